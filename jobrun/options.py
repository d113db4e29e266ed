"""Every option of `run`, declared once, and the one parser that reads them.

The table below is the only place that knows an option: the parser, the check of values, the rule
which mode an option belongs to, `--help` and the README's table (manual.py) and what is kept of a
call for `rerun`, `plan` and `show` are all made from it.

Typer is not used here: a call must reach its command in the time that the stack it replaces
takes, and a bare `--` must be found before anything else is looked at.
"""

from __future__ import annotations

from jobrun.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The modes of a call, one letter each.
PLAIN, KEY, WINDOWS, BY_HAND, RERUN, BACKFILL, RETRY, LEAD = "pkwhrbtl"
ANY = "pkwhrbt"
ALSO_LEAD = "pkwhrbtl"
NO_UNITS = PLAIN + LEAD
GRID = "whrbt"
UNITS = KEY + GRID
OF_RUN = "pkwhl"
MODE_NAMES = {
    PLAIN: "a plain call (no --every, --cron, --key)",
    KEY: "--key",
    WINDOWS: "--every or --cron",
    BY_HAND: "--window",
    RERUN: "rerun",
    BACKFILL: "backfill",
    RETRY: "retry",
    LEAD: "lead",
}

# The kinds of value; `job.py` turns each into what the program works with.
FLAG, TEXT, DURATION, COUNT, CODE, CODES = "flag", "text", "duration", "count", "code", "codes"
LIST = "list"  # may be given again, or with commas
TIMES = "times"  # a count that may be 0


class Option:
    """One row of the table.

    `names` as typed, `value` as help shows it (empty for a flag), `kind` of value or a tuple of
    the words allowed, `default` as text, `modes` it belongs to, `kept` whether a later `rerun`
    takes it over, `help` one line.
    """

    __slots__ = ("default", "help", "kept", "kind", "modes", "names", "value")

    def __init__(
        self,
        names: str,
        value: str,
        kind: str | tuple[str, ...],
        default: str,
        modes: str,
        help: str,
        kept: bool = True,
    ) -> None:
        self.names = tuple(names.split())
        self.value = value
        self.kind = kind
        self.default = default
        self.modes = modes
        self.kept = kept
        self.help = help

    @property
    def long(self) -> str:
        return self.names[-1]


_O = Option
# fmt: off
GROUPS: tuple[tuple[str, tuple[Option, ...]], ...] = (
    (
        "WHICH WINDOWS (not when: cron or Task Scheduler decides when)",
        (
            _O("--every", "N[s|m|h|d|w|mo]", TEXT, "", GRID,
               "fixed grid: 15m, 1hour, 1day, 1month"),
            _O("--cron", "EXPR", TEXT, "", GRID,
               "grid between the instants of a 5-field expression"),
            _O("--tz", "ZONE", TEXT, "UTC", GRID,
               "zone of days, --cron and {start_date}"),
            _O("--anchor", "INSTANT", TEXT, "", GRID,
               "an instant of the grid, where N does not divide a day"),
            _O("--lag", "DUR", DURATION, "0", GRID,
               "a window is ready this long after its end (6h30m: not before 06:30)"),
            _O("--first", "latest|none|INSTANT", TEXT, "latest", GRID,
               "the first window, where there is no watermark yet"),
        ),
    ),
    (
        "WHAT WAS MISSED",
        (
            _O("--catch-up", "all|latest|merge", ("all", "latest", "merge"), "all", GRID,
               "all in order; the newest only; one window over the whole range"),
            _O("--max-windows", "N", COUNT, "100", GRID,
               "cap of a call; the rest is left to the next call (BACKLOG)"),
            _O("--max-age", "DUR", DURATION, "", GRID,
               "give up windows that ended longer ago and were never tried"),
            _O("--stop-after", "DUR", DURATION, "", GRID,
               "start no new window when the call is older than this"),
            _O("--on-failure", "stop|continue", ("stop", "continue"), "stop", GRID,
               "stop at the first failure, or leave a hole for the next call"),
            _O("--lookback", "N", COUNT, "", GRID,
               "before new windows the N processed ones below them run again"),
            _O("--accept-schedule", "", FLAG, "", "w",
               "yes, the schedule of this job has changed (once)", kept=False),
            _O("--accept-clock", "", FLAG, "", "w",
               "yes, the clock is right although it jumped (once)", kept=False),
        ),
    ),
    (
        "AFTER A FAILURE",
        (
            _O("--retries", "N", TIMES, "0", ANY,
               "try again so often, then the window is dead (--max-attempts)"),
            _O("--retry-delay", "DUR", DURATION, "1m", ANY,
               "not sooner than this, doubled each time; up to 1m the call waits"),
            _O("--retry-max-delay", "DUR", DURATION, "", ANY,
               "doubled up to this; 1h, without --retries the window's length"),
            _O("--retry-on", "CODES", CODES, "", ANY,
               "these exit codes only are tried again: 75 or 1-9,124"),
            _O("--give-up-on", "CODES", CODES, "", ANY,
               "these are not tried again: the window is dead at once"),
            _O("--max-attempts", "M", COUNT, "", UNITS,
               "a window that failed so often is dead: finished, and listed"),
            _O("--on-lost", "rerun|hold", ("rerun", "hold"), "rerun", UNITS,
               "a run that died with its host: again, or a person decides"),
            _O("--pause-after", "N", COUNT, "", GRID,
               "after N failed windows in a row the job pauses itself"),
            _O("--resume-after", "DUR", DURATION, "", GRID,
               "so long after it one window is tried; processed: the pause ends"),
        ),
    ),
    (
        "WHAT COMES FIRST",
        (
            _O("--after", "JOB[:processed|finished]", LIST, "", GRID,
               "a window waits until that job has done the same time; repeatable"),
            _O("--input", "NAME=JOB.KEY", LIST, "", GRID,
               "a value that its window left, as variable NAME; repeatable"),
            _O("--if", "EXPR", TEXT, "", GRID,
               "on inputs, all text: 'int(ROWS) > 0'; not true: the window is skipped"),
        ),
    ),
    (
        "ONE PIECE OF WORK",
        (
            _O("--window", "WHEN", TEXT, "", BY_HAND,
               "this window, though its turn has not come", kept=False),
            _O("--key", "KEY", TEXT, "", KEY,
               "a unit of work that is no window, once", kept=False),
            _O("--key-file", "PATH", TEXT, "", KEY,
               "the same, named by the file's name and content", kept=False),
            _O("--from", "WHEN", TEXT, "", BACKFILL,
               "backfill: the first window's start", kept=False),
            _O("--to", "WHEN", TEXT, "", BACKFILL,
               "backfill: the end, half-open", kept=False),
            _O("--redo", "none|failed|all", ("none", "failed", "all"), "none", BACKFILL,
               "backfill: which finished windows run again", kept=False),
            _O("--parallel", "N", COUNT, "", BACKFILL,
               "backfill: N windows at once, beside those of other hosts", kept=False),
            _O("--dry-run", "", FLAG, "", ANY,
               "print the plan, change nothing", kept=False),
        ),
    ),
    (
        "THE COMMAND",
        (
            _O("--timeout", "DUR", DURATION, "", ANY,
               "of each run: TERM to the whole tree at the limit"),
            _O("-k --kill-after", "DUR", DURATION, "10s", ALSO_LEAD,
               "KILL so long after TERM"),
            _O("--ok-exit", "CODES", CODES, "0", ALSO_LEAD,
               "what counts as success: 0,3 or 0-7; jobrun exits 0"),
            _O("-C --cwd", "DIR", TEXT, "", ALSO_LEAD,
               "run there; the command is looked up after the change"),
            _O("--stdin", "inherit|null", ("inherit", "null"), "", ALSO_LEAD,
               "plain and key: inherit, but no terminal; windows: null"),
            _O("--output", "live|on-failure", ("live", "on-failure"), "live", ANY,
               "pass its output on, or show it only if the run fails"),
        ),
    ),
    (
        "LOCK AND EXIT",
        (
            _O("-w --wait", "DUR", DURATION, "0", ANY,
               "wait for the lock"),
            _O("--overlap", "skip|allow", ("skip", "allow"), "skip", "pkw",
               "allow: beside other calls, each with windows of its own"),
            _O("--busy-exit", "N", CODE, "0", ANY,
               "exit code where nothing ran because it could not be now"),
            _O("--stuck-after", "DUR", DURATION, "24h", ANY,
               "a lock held longer is a WARNING that quiet does not hide"),
            _O("--lock", "session|lease|URL", TEXT, "", ALSO_LEAD,
               "what holds the lock among machines: PostgreSQL, or redis://host"),
            _O("--lock-ttl", "DUR", DURATION, "", ALSO_LEAD,
               "... and when that of a machine that is not heard of is free; 30s"),
        ),
    ),
    (
        "WHAT IS PRINTED",
        (
            _O("-q --quiet", "", FLAG, "", ALSO_LEAD,
               "hide PROCESSED and skips; never what failed or is stuck"),
            _O("-Q", "", FLAG, "", ANY,
               "quiet, and output only if the run fails: what chronic does"),
            _O("--remind", "DUR", DURATION, "1h", ANY,
               "under quiet: an unchanged failure at most this often"),
            _O("-v --verbose", "", FLAG, "", ALSO_LEAD,
               "STARTED and idle lines too"),
            _O("--log-format", "text|json", ("text", "json"), "text", ALSO_LEAD,
               "the same fields as JSON, one object a line"),
            _O("--ledger", "PATH", TEXT, "", ALSO_LEAD,
               "the SQLite file, or postgresql://user@host/database"),
            _O("--namespace", "NAME", TEXT, "", ALSO_LEAD,
               "jobs, windows and locks of its own: staging beside production"),
            _O("--on-store-down", "skip|wait:DUR|run", TEXT, "skip", PLAIN + KEY + WINDOWS,
               "the ledger's server is out of reach: not now; wait; run unrecorded"),
        ),
    ),
)
# fmt: on

BY_NAME: dict[str, Option] = {
    name: option for _, options in GROUPS for option in options for name in option.names
}

USAGE = {
    "run": "jobrun run JOB [OPTIONS] -- COMMAND [ARG]...",
    "rerun": "jobrun rerun JOB WHEN [OPTIONS] [-- COMMAND [ARG]...]",
    "retry": "jobrun retry JOB [WHEN] [OPTIONS] [-- COMMAND [ARG]...]",
    "backfill": "jobrun backfill JOB --from WHEN --to WHEN [OPTIONS] [-- COMMAND [ARG]...]",
    "lead": "jobrun lead NAME [OPTIONS] -- DAEMON [ARG]...",
}


class Line:
    """A command line, taken apart: words before `--`, option texts by long name, the command."""

    __slots__ = ("command", "options", "words")

    def __init__(self, words: list[str], options: dict[str, str], command: list[str]) -> None:
        self.words = words
        self.options = options
        self.command = command


def read_line(argv: Sequence[str]) -> Line:
    """Take the arguments after `run` (`rerun`, `retry`, `backfill`) apart at the first bare `--`.

    Raises UsageError for an unknown option, a missing value, an option given twice.
    """
    end = list(argv).index("--") if "--" in argv else len(argv)
    line = Line([], {}, list(argv[end + 1 :]))
    position = 0
    while position < end:
        argument = argv[position]
        position += 1
        if not argument.startswith("-") or argument == "-":
            line.words.append(argument)
            continue
        name, equals, value = argument.partition("=")
        option = BY_NAME.get(name) or _unknown(argument, argv)
        if option.kind == FLAG:
            _put(line, option, _no_value(name, equals, value))
        elif equals:
            _put(line, option, value)
        else:
            _put(line, option, _following(option, name, argv, position, end))
            position += 1
    return line


def _put(line: Line, option: Option, value: str) -> None:
    before = line.options.get(option.long)
    if before is not None and option.kind == LIST:
        value = f"{before},{value}"
    elif before is not None and before != value:
        raise UsageError(f'{option.long} given twice: "{before}" and "{value}"')
    line.options[option.long] = value


def _no_value(name: str, equals: str, value: str) -> str:
    if equals:
        raise UsageError(f'{name} takes no value, "{value}" was given', name)
    return "1"


def _following(option: Option, name: str, argv: Sequence[str], position: int, end: int) -> str:
    if position < end and not argv[position].startswith("--"):
        return argv[position]
    what = f"a value is missing: {name} {option.value}"
    raise UsageError(what if "--" in argv else f"{what}; and no -- before the command")


def _unknown(argument: str, argv: Sequence[str]) -> Option:
    name = argument.partition("=")[0]
    if "--" not in argv:
        raise no_command(argv)
    if not argument.startswith("--") and len(argument) > 2 and argument[:2] in BY_NAME:
        option = BY_NAME[argument[:2]]
        rest = argument[2:]
        apart = f"-{rest}" if option.kind == FLAG else rest
        raise UsageError(f'no option "{argument}"', f"apart: {argument[:2]} {apart}")
    close = nearest(name, BY_NAME) if len(name) > 2 else None
    hint = f"{close}?" if close else "jobrun run --help lists them"
    if name == "-n":  # a converted `flock -n` line
        hint = "jobrun never waits, unless --wait asks for it; the plan alone: --dry-run"
    raise UsageError(f'no option "{name}"', hint)


def no_command(argv: Sequence[str], verb: str = "run") -> UsageError:
    """No bare `--`: say so with the person's own words, and how it would be right."""
    words: list[str] = []
    options: list[str] = []
    position = 0
    while position < len(argv):
        name = argv[position].partition("=")[0]
        option = BY_NAME.get(name)
        if option is None and (words or argv[position].startswith("-")):
            break
        if option is None:
            words.append(argv[position])
        else:
            width = 1 if option.kind == FLAG or "=" in argv[position] else 2
            options += argv[position : position + width]
            position += width - 1
        position += 1
    command = list(argv[position:]) or ["COMMAND"]
    shown = ["jobrun", verb, *(words or ["JOB"]), *options, "--", *command]
    return UsageError("no -- before the command", shell_text(shown))


def shell_text(words: Iterable[str]) -> str:
    """The words as one could type them into sh; quotes only where they are needed."""
    return " ".join(
        word if _is_plain(word) else "'" + word.replace("'", "'\\''") + "'" for word in words
    )


def _is_plain(word: str) -> bool:
    """Whether a shell leaves it as it is; one that is not sh makes two words of `{a,b}`."""
    if not word or ("{" in word and ("," in word or ".." in word)):
        return False
    return all(c.isalnum() or c in "@%_-+=:,./{}" for c in word)


class _Hints:
    """What every command that is told to a person has in common."""

    ledger: tuple[str, ...] = ()
    is_shared = False


def name_ledger(given: str | None, path: str, namespace: str | None) -> None:
    """From here on `typed` names the ledger at `path`, where `--ledger` has `given` it, and what
    `--namespace` has.

    One that the environment names is found by the person's next call, too.
    """
    words = ("--ledger", path) if given else ()
    _Hints.ledger = words if namespace is None else (*words, "--namespace", namespace)


def name_command(is_shared: bool) -> None:
    """From here on `again` asks for the command, where the ledger `is_shared`: a database of the
    user's own has no more than its first word on record."""
    _Hints.is_shared = is_shared


def again(verb: str, job: str, *words: str, is_unit: bool = False) -> str:
    """`rerun`, `retry` or `backfill` as a person can type it; a unit of --key is run by its own
    call, with its own command."""
    return typed(
        verb, job, *words, *(("--", "COMMAND") if _Hints.is_shared and not is_unit else ())
    )


def typed(*words: str) -> str:
    """A command of ours as a person can type it: `jobrun retry drop 'drop:my file.csv'`.

    With the ledger that this call was given: without it, another's job would be acted on.
    """
    if "--ledger" in words:
        return shell_text(("jobrun", *words))
    end = words.index("--") if "--" in words else len(words)
    return shell_text(("jobrun", *words[:end], *_Hints.ledger, *words[end:]))


def check_modes(given: Iterable[str], mode: str) -> None:
    """Refuse options that do not belong to the mode. Raises UsageError."""
    for name in given:
        if name not in BY_NAME:  # on record of the last call
            raise UsageError(
                f'no option "{name}": the last call was of a newer jobrun',
                "pip install --upgrade jobrun; or the next `jobrun run`, as it is in the crontab",
            )
        option = BY_NAME[name]
        if mode in option.modes:
            continue
        if mode == PLAIN:
            needed = " or ".join(dict.fromkeys(_needed(m) for m in option.modes if m in "whk"))
            raise UsageError(f"{name} needs {needed or 'backfill'}")
        raise UsageError(f"{name} does not go with {MODE_NAMES[mode]}")


def _needed(mode: str) -> str:
    return {"w": "--every or --cron", "h": "--window", "k": "--key"}[mode]


def nearest(word: str, names: Iterable[str], edits: int = 2) -> str | None:
    """The name that `word` may have meant: the nearest within so many edits."""
    best = min(((distance(word, name), name) for name in names), default=(99, ""))
    return best[1] if best[0] <= edits else None


def distance(one: str, other: str) -> int:
    """How many letters must be put in, taken out or changed (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]
