"""Job: the validated options of one call, made in one place and never changed."""

from __future__ import annotations

from jobrun import options, placeholders, schedule
from jobrun.errors import UsageError
from jobrun.instants import DAY, MINUTE, parse_duration
from jobrun.options import (
    BACKFILL,
    BY_HAND,
    BY_NAME,
    KEY,
    LEAD,
    PLAIN,
    RERUN,
    RETRY,
    WINDOWS,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from jobrun.links import Input

MAX_NAME = 100
MAX_KEY = 200


class Job:
    """What one call is to do. Durations are whole seconds; None means not given.

    `mode` is one of the letters of options.py. `schedule` is the canonical text of the grid, None
    where the call gives none. `given` are the option texts as typed, by long name: what the ledger
    keeps for `rerun`, `plan` and `show`.
    """

    __slots__ = (
        "accept_clock", "accept_schedule", "after", "busy_exit", "catch_up", "command", "condition",
        "cwd", "dry_run", "first", "give_up_on", "given", "inputs", "key", "key_file", "kill_after",
        "lag", "ledger", "lock", "lock_ttl", "log_format", "lookback", "max_age", "max_attempts",
        "max_windows", "mode", "name", "namespace", "ok_exit", "on_failure", "on_lost",
        "on_store_down", "output", "overlap", "parallel", "pause_after", "quiet", "redo", "remind",
        "resume_after", "retries", "retry_delay", "retry_max_delay", "retry_on", "schedule",
        "since", "stdin", "stop_after", "stuck_after", "timeout", "tz", "until", "verbose", "wait",
        "window",
    )  # fmt: skip

    accept_clock: bool
    accept_schedule: bool
    after: tuple[tuple[str, str], ...]
    busy_exit: int
    catch_up: str
    command: tuple[str, ...]
    condition: str | None
    cwd: str | None
    dry_run: bool
    first: str | None
    give_up_on: tuple[tuple[int, int], ...] | None
    given: dict[str, str]
    inputs: tuple[Input, ...]
    key: str | None
    key_file: str | None
    kill_after: int
    lag: int
    ledger: str | None
    lock: str | None
    lock_ttl: int | None
    log_format: str
    lookback: int | None
    max_age: int | None
    max_attempts: int | None
    max_windows: int
    mode: str
    name: str
    namespace: str | None
    ok_exit: tuple[tuple[int, int], ...]
    on_failure: str
    on_lost: str
    on_store_down: tuple[str, int]  # skip, wait or run; seconds
    output: str
    overlap: str
    parallel: int | None
    pause_after: int | None
    quiet: bool
    redo: str
    remind: int
    resume_after: int | None
    retries: int
    retry_delay: int
    retry_max_delay: int | None
    retry_on: tuple[tuple[int, int], ...] | None
    schedule: str | None
    since: str | None
    stdin: str | None
    stop_after: int | None
    stuck_after: int
    timeout: int | None
    tz: str | None
    until: str | None
    verbose: bool
    wait: int
    window: str | None

    def __init__(self, **fields: object) -> None:
        for name in self.__slots__:
            object.__setattr__(self, name, fields[name])

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Job is frozen: {name}")

    def is_success(self, exit_code: int) -> bool:
        return any(low <= exit_code <= high for low, high in self.ok_exit)

    @property
    def is_by_hand(self) -> bool:
        """Whether a person asks for windows by their names, so that it runs also while paused."""
        return self.mode not in (PLAIN, KEY, WINDOWS, LEAD)

    @property
    def ttl(self) -> int:
        """Seconds after which another machine may have the lock of one that is not heard of."""
        return usual_ttl(self.kill_after) if self.lock_ttl is None else self.lock_ttl

    @property
    def has_grid(self) -> bool:
        return self.mode in options.GRID


def parse_run(argv: Sequence[str], environ: Mapping[str, str]) -> Job:
    """The job of `jobrun run ARGV`. Raises UsageError, with a hint, before anything is touched."""
    line = _read(argv, "run")
    return make(_only_job(line), _mode(line.options), line.options, line.command, environ)


def parse_lead(argv: Sequence[str], environ: Mapping[str, str]) -> Job:
    """The job of `jobrun lead ARGV`; as `parse_run`."""
    line = _read(argv, "lead")
    return make(_only_job(line, "lead"), LEAD, line.options, line.command, environ)


def _read(argv: Sequence[str], verb: str) -> options.Line:
    if "--" not in argv:
        raise options.no_command(argv, verb)
    line = options.read_line(argv)
    if line.words and not line.command:
        raise UsageError(
            "no command after --", options.shell_text(("jobrun", verb, *argv, "COMMAND"))
        )
    return line


def parse_by_hand(
    verb: str,
    line: options.Line,
    kept: Mapping[str, str],
    command: Sequence[str],
    environ: Mapping[str, str],
) -> Job:
    """The job of `rerun`, `retry`, `backfill`: the last call's options, unless given anew."""
    mode = {"rerun": RERUN, "retry": RETRY, "backfill": BACKFILL}[verb]
    given = {**kept, **line.options}
    if len(line.words) > 1:
        given["--window"] = line.words[1]
    return make(line.words[0], mode, given, list(line.command or command), environ)


def make(
    name: str,
    mode: str,
    given: dict[str, str],
    command: Sequence[str],
    environ: Mapping[str, str],
    typed: dict[str, str] | None = None,
) -> Job:
    """Check every value, whatever the mode needs of them, and freeze them.

    `typed`: what the call said, where `given` is that and what is set on record.
    """
    check_name(name)
    words = ("--window",) if mode in (RERUN, RETRY) else ()  # WHEN of a verb
    options.check_modes((name for name in given if name not in words), mode)
    values = {option: _value(option, text) for option, text in given.items()}
    for option in BY_NAME.values():
        if option.long not in values:
            values[option.long] = _value(option.long, option.default) if option.default else None
    quiet = bool(values["--quiet"] or values["-Q"]) or environ.get("JOBRUN_QUIET", "") not in (
        "",
        "0",
    )
    _check_together(mode, given, values)
    placeholders.check(command, mode, given)
    if "--resume-after" in given and "--pause-after" not in given:
        raise UsageError("--resume-after needs --pause-after", "--pause-after 3")
    text = _schedule(given)
    after = _after(given)
    return Job(
        name=name,
        mode=mode,
        given=given if typed is None else typed,
        command=tuple(command),
        schedule=text,
        tz=None if given.get("--tz") in (None, "UTC") else given["--tz"],
        quiet=quiet,
        output="on-failure" if values["-Q"] else values["--output"],
        overlap="allow" if values["--parallel"] else values["--overlap"],
        log_format=_log_format(given, environ),
        lock=_lock(given, environ),
        accept_schedule=bool(values["--accept-schedule"]),
        accept_clock=bool(values["--accept-clock"]),
        dry_run=bool(values["--dry-run"]),
        verbose=bool(values["--verbose"]),
        after=after,
        inputs=_inputs(given, after),
        condition=given.get("--if"),
        on_store_down=_on_store_down(str(values["--on-store-down"]), given, command),
        first=given.get("--first"),
        since=given.get("--from"),
        until=given.get("--to"),
        key=_key(name, given),
        **{
            option.removeprefix("--").replace("-", "_"): values[option]
            for option in (
                "--busy-exit", "--catch-up", "--cwd", "--give-up-on", "--key-file", "--kill-after",
                "--lag", "--ledger", "--lock-ttl", "--lookback", "--max-age",
                "--max-attempts", "--max-windows", "--namespace", "--ok-exit", "--on-failure",
                "--on-lost", "--parallel", "--pause-after", "--redo", "--remind", "--resume-after",
                "--retries",
                "--retry-delay", "--retry-max-delay", "--retry-on", "--stdin", "--stop-after",
                "--stuck-after", "--timeout", "--wait", "--window",
            )
        },
    )  # fmt: skip


def check_name(name: str) -> None:
    """1 to 100 letters (any script), digits, `.`, `_`, `-`, not starting with `.` or `-`."""
    for character in name:
        if not _is_of_a_name(character):
            fixed = "".join(c if _is_of_a_name(c) else "-" for c in name).strip("-.")
            raise UsageError(
                f"JOB {shown(name)}: letters, digits, . _ - only; {shown(character)} is not",
                None if "://" in name else fixed[:MAX_NAME] or None,
            )
    if not name or not (name[0] == "_" or name[0].isalnum()):
        raise UsageError(f'JOB "{name}": a name begins with a letter, a digit or _')
    if len(name) > MAX_NAME:
        raise UsageError(f'JOB "{name[:20]}...": {len(name)} characters, at most {MAX_NAME}')


def _is_of_a_name(character: str) -> bool:
    """A letter or a digit of any script, a mark that belongs to a letter, or one of `._-`."""
    if character.isascii():
        return character.isalnum() or character in "._-"
    import unicodedata

    category = unicodedata.category(character)
    return category[0] in "LM" or category == "Nd"


def shown(text: str) -> str:
    """Whatever is in it, on one line and in quotes."""
    import json

    return json.dumps(text, ensure_ascii=not text.isprintable())


def _only_job(line: options.Line, verb: str = "run") -> str:
    if not line.words:
        raise UsageError("no JOB before --", options.USAGE[verb])
    cron = line.options.get("--cron")
    if len(line.words) > 1 and cron is not None and len(cron.split()) == 1:
        follow = " ".join(f'"{word}"' for word in line.words[-4:][:2])
        expression = " ".join([cron, *line.words[-4:]])
        raise UsageError(
            f"--cron {cron}: 5 fields are needed, this is 1, and {follow} follow it unquoted",
            f'--cron "{expression}" (double quotes work in sh, cmd.exe and Task Scheduler alike)',
        )
    if len(line.words) > 1:
        raise UsageError(
            f'"{line.words[1]}" stands before --: options end there, the command comes after',
            f"a command with a -- of its own needs both: ... -- {line.words[1]} ... -- ...",
        )
    return line.words[0]


def _mode(given: Mapping[str, str]) -> str:
    if "--key" in given and "--key-file" in given:
        raise UsageError("--key and --key-file: one of them names the unit of work")
    if "--key" in given or "--key-file" in given:
        return KEY
    if "--window" in given:
        return BY_HAND
    return WINDOWS if "--every" in given or "--cron" in given else PLAIN


def _schedule(given: Mapping[str, str]) -> str | None:
    every, cron = given.get("--every"), given.get("--cron")
    if every is None and cron is None:
        alone = [name for name in ("--tz", "--anchor") if name in given]
        if alone:
            raise UsageError(f"{alone[0]} needs --every or --cron")
        return None
    if every is not None and cron is not None:
        raise UsageError(f'--every "{every}" and --cron "{cron}": one of them makes the grid')
    return schedule.canonical(every, cron, given.get("--anchor"), given.get("--tz"))


def _inputs(given: Mapping[str, str], after: tuple[tuple[str, str], ...]) -> tuple[Input, ...]:
    """Those of --input, and --if may speak of no others."""
    found: tuple[Input, ...] = ()
    if "--input" in given:
        from jobrun import links

        found = links.inputs(given["--input"], [name for name, _ in after])
    if "--if" in given:
        if not found:
            raise UsageError("--if needs --input", "--after UP --input ROWS=UP.rows")
        from jobrun import condition

        condition.check(given["--if"], [each.name for each in found])
    return found


def _after(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if "--after" not in given:
        return ()
    from jobrun import links

    found = links.after(given["--after"])
    for name, _ in found:
        check_name(name)
    return found


def _key(name: str, given: Mapping[str, str]) -> str | None:
    key = given.get("--key")
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY or not key.isprintable():
        raise UsageError(f"--key {shown(key[:40])}: 1 to {MAX_KEY} printable characters")
    if len(key) >= 16 and key[:4].isdigit() and key[4] == "-" and key[10] in "T ":
        raise UsageError(
            f'--key "{key}" looks like a window; a key is no instant',
            options.shell_text(("--window", key)),
        )
    return f"{name}:{key}"


LOCKS = ("session", "lease")  # of the ledger's own server

# A plain run has no row that a later call could go on from.
_OF_RETRIES = ("--retry-delay", "--retry-max-delay", "--retry-on", "--give-up-on")
LONGEST_WAIT = MINUTE  # that a call waits itself, its lock held


def _check_together(mode: str, given: Mapping[str, str], values: Mapping[str, object]) -> None:
    """What does not go together. Raises UsageError."""
    beside = values["--overlap"] == "allow"
    if beside and values["--lookback"]:
        raise UsageError("--lookback with --overlap allow: what is below may be under way")
    if beside and mode == PLAIN and values["--retries"]:
        raise UsageError("--retries with --overlap allow: no later call goes on from a plain one")
    if "--retry-on" in given and "--give-up-on" in given:
        raise UsageError("--retry-on and --give-up-on: one of them says which codes are final")
    _check_lock(given, values)
    delay, longest = given.get("--retry-delay"), given.get("--retry-max-delay")
    if delay and longest and parse_duration(longest, "") < parse_duration(delay, ""):
        raise UsageError(f"--retry-max-delay {longest} is less than --retry-delay {delay}")
    if mode != PLAIN:
        return
    for name in _OF_RETRIES:
        if name in given and not values["--retries"]:
            raise UsageError(f"{name} needs --retries, or --every, --cron or --key")
    for name in _OF_RETRIES[:2]:
        if name in given and parse_duration(given[name], name) > LONGEST_WAIT:
            raise UsageError(
                f"{name} {given[name]}: a plain call waits a minute at the most, and no later call"
                " goes on from it",
                f"{name} 1m; with --every, --cron or --key a later call goes on",
            )


# PostgreSQL counts the milliseconds of a session that idles in 31 bits.
LONGEST_TTL = 24 * DAY


def usual_ttl(kill_after: int) -> int:
    return min(max(30, 3 * kill_after), LONGEST_TTL)


def _check_lock(given: Mapping[str, str], values: Mapping[str, Any]) -> None:
    ttl, grace = values["--lock-ttl"], values["--kill-after"]
    for name, longest in (("--lock-ttl", LONGEST_TTL), ("--kill-after", LONGEST_TTL // 3)):
        if (values[name] or 0) > longest:
            longest_text = f"{longest // DAY}d"
            raise UsageError(
                f"{name} {given[name]}: at most {longest_text}", f"{name} {longest_text}"
            )
    if ttl is not None and ttl < 2 * grace + 1:
        raise UsageError(
            f"--lock-ttl {given['--lock-ttl']}: the command would have no time to end before"
            f" another machine begins; at least {2 * grace + 1}s with --kill-after {grace}s",
            f"--lock-ttl {2 * grace + 1}s; or a shorter --kill-after",
        )


def _lock(given: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """An address is read where it is used."""
    name = "--lock" if "--lock" in given else "JOBRUN_LOCK"
    text = given.get("--lock") or environ.get("JOBRUN_LOCK") or None
    if text is None or text in LOCKS:
        return text
    from jobrun import address

    scheme, _, place = text.partition("://")
    if scheme not in ("redis", "rediss", "unix") or not place:
        close = options.nearest(text, LOCKS) or "redis://host:6379/0"
        told = address.hidden(text)
        raise UsageError(f'{name} "{told}": session, lease or redis://host', f"--lock {close}")
    address.check(name, text)
    if name == "--lock" and address.has_secret(text):
        raise UsageError(
            "--lock with a password: on a command line, and on record, it is everybody's to read",
            "REDISCLI_AUTH=... in the environment, or all of it: JOBRUN_LOCK=redis://:...@host/0",
        )
    return text


def _on_store_down(text: str, given: Mapping[str, str], command: Sequence[str]) -> tuple[str, int]:
    word, colon, rest = text.partition(":")
    if (word == "wait") != bool(colon) or word not in ("skip", "wait", "run"):
        raise UsageError(
            f'--on-store-down "{text}": skip, wait:DUR or run', "--on-store-down wait:10m"
        )
    if word == "run":
        _check_unrecorded(given, command)
    return word, parse_duration(rest, "--on-store-down", "wait:10m") if colon else 0


def _check_unrecorded(given: Mapping[str, str], command: Sequence[str]) -> None:
    """Without the store nobody knows what it would take. Raises UsageError."""
    if "--after" in given:
        raise UsageError("--on-store-down run with --after: nobody knows what that job has done")
    if given.get("--overlap") == "allow":
        raise UsageError("--on-store-down run with --overlap allow: nobody knows what runs beside")
    unknown = placeholders.names_in(command) & {"token", "run_id", "attempt"}
    if unknown:
        name = sorted(unknown)[0]
        raise UsageError(f"--on-store-down run: {{{name}}} has no value without a record")


def _log_format(given: Mapping[str, str], environ: Mapping[str, str]) -> str:
    text = given.get("--log-format") or environ.get("JOBRUN_LOG_FORMAT") or "text"
    if text not in ("text", "json"):
        raise UsageError(f'JOBRUN_LOG_FORMAT "{text}": text or json')
    return text


def _value(name: str, text: str) -> object:
    """The value of an option's text. Raises UsageError with the value, the rule and a hint."""
    option = BY_NAME[name]
    kind = option.kind
    if isinstance(kind, tuple):
        return _word(name, text, kind)
    if kind == options.DURATION:
        return parse_duration(text, name)
    if kind == options.COUNT:
        return _number(name, text, 1, 10**9)
    if kind == options.TIMES:
        return _number(name, text, 0, 10**9)
    if kind == options.CODE:
        return _number(name, text, 0, 255)
    if kind == options.CODES:
        return _codes(name, text)
    if not text:
        raise UsageError(f'{name} "": a value is needed: {option.value}')
    return text


def _word(name: str, text: str, words: tuple[str, ...]) -> str:
    if text in words:
        return text
    close = options.nearest(text, words)
    raise UsageError(f'{name} "{text}": {" or ".join(words)}', f"{name} {close or words[0]}")


def _number(name: str, text: str, low: int, high: int) -> int:
    if _is_number(text) and low <= int(text) <= high:
        return int(text)
    raise UsageError(f'{name} "{text}": a whole number from {low} to {high}')


def _codes(name: str, text: str) -> tuple[tuple[int, int], ...]:
    """`0,3` or `0-7` as ranges; 32 bits, for Windows."""
    ranges = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not (_is_number(low) and (not dash or _is_number(high))):
            raise UsageError(f'{name} "{text}": exit codes as 0,3 or 0-7', f"{name} 0,3")
        pair = int(low), int(high) if dash else int(low)
        if pair[0] > pair[1] or pair[1] >= 2**32:
            raise UsageError(f'{name} "{text}": {part} is no range of exit codes', f"{name} 0-7")
        ranges.append(pair)
    return tuple(ranges)


def _is_number(text: str) -> bool:
    """For `int`, which also takes digits of any script, and refuses what has thousands of them."""
    return text.isascii() and text.isdigit() and len(text) < 12
