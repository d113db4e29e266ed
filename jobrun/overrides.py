"""Options that are set on record, `jobrun set JOB OPTION VALUE`: they win over the crontab's.

    {"--timeout": {"value": "2h", "by": "anna@db1", "at": 1788523500, "reason": "slow source"}}

A value of None means: as if the option were not given.

The line may change after that, so that what is set does not go with it any more. A job must not
stop for that at every call: what does not fit is left out, and said.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobrun import job as jobs
from jobrun import options
from jobrun.errors import UsageError
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.options import Option

# What the crontab's line alone can say: the schedule wants consent, other jobs read on what this
# one waits for in its last call, the others are decided by before the ledger is read.
_OF_THE_LINE = (
    "--every", "--cron", "--tz", "--anchor", "--first", "--after", "--cwd", "--stdin", "--ledger",
    "--namespace", "--on-store-down", "--lock", "--lock-ttl",
)  # fmt: skip
ON, OFF = "on", "off"


class Override(NamedTuple):
    value: str | None
    by: str
    at: int
    reason: str | None


def read(text: str | None) -> dict[str, Override]:
    """By long name, from the text of JobRow.overrides."""
    if text is None:
        return {}
    import json

    return {
        name: Override(*(fields.get(field) for field in Override._fields))  # a newer one has more
        for name, fields in json.loads(text).items()
    }


def write(overrides: Mapping[str, Override]) -> str | None:
    import json

    if not overrides:
        return None
    return json.dumps({name: each._asdict() for name, each in overrides.items()})


class Fitted(NamedTuple):
    """The options of a call: its line's and, in their place, what is set and fits."""

    options: dict[str, str]
    used: dict[str, Override]
    misfits: dict[str, UsageError]  # what is set and does not go with the others, and why


def fit(name: str, mode: str, line: Mapping[str, str], known: Mapping[str, Override]) -> Fitted:
    """What is set for another mode is neither used nor a misfit. `name` is the job's."""
    here = {
        option: override
        for option, override in known.items()
        if option not in options.BY_NAME or mode in options.BY_NAME[option].modes
    }
    found = misfits(name, mode, line, here)
    used = {option: override for option, override in here.items() if option not in found}
    return Fitted(_together(line, used), used, found)


def misfits(
    name: str,
    mode: str,
    line: Mapping[str, str],
    known: Mapping[str, Override],
    first: str | None = None,
) -> dict[str, UsageError]:
    """What of it goes neither with the line nor with the rest of it; as few as can be.

    Where two don't go together, what must not be left out stays, then what is `first`. One may fit
    only beside another: --resume-after, once --pause-after does.
    """
    if _problem(name, mode, _together(line, known)) is None:
        return {}

    def rank(option: str) -> tuple[bool, bool]:
        return not _holds_back(option, known[option].value), option != first

    used: dict[str, Override] = {}
    left = sorted(known, key=rank)
    while True:
        found = {}
        for option in left:
            problem = _problem(name, mode, _together(line, {**used, option: known[option]}))
            if problem is None:
                break
            found[option] = problem
        else:
            return found
        used[option] = known[option]
        left.remove(option)


def _together(line: Mapping[str, str], known: Mapping[str, Override]) -> dict[str, str]:
    found = {**line, **{option: override.value for option, override in known.items()}}
    return {option: value for option, value in found.items() if value is not None}


def _problem(name: str, mode: str, given: dict[str, str]) -> UsageError | None:
    try:
        jobs.make(name, mode, given, ("true",), {})
    except UsageError as error:
        return error
    return None


def refuse_unsafe(name: str, fitted: Fitted, known: Mapping[str, Override]) -> None:
    """Raise UsageError where one that does not fit must not be left out either."""
    for option, problem in fitted.misfits.items():
        override = known[option]
        if _holds_back(option, override.value):
            raise UsageError(
                f"{shown(option, override.value)}, set on record by {override.by}, does not go"
                f" with this call: {problem.message}",
                f"{unset(name, option)}, or the line as it was",
            )


def _holds_back(option: str, value: str | None) -> bool:
    """Whether without it a command would run that a person has kept from running, or other than it
    was to: a call that is refused can be made good, a run can't.

    All others may be left out, for what the line says then holds, and whoever wrote it last knew:
    --resume-after, --retry-delay and the like only say how a thing is done that the line has taken
    away; without `--pause-after off` a job may pause itself, which runs nothing; without --overlap
    allow it runs alone, without --lookback nothing runs twice; and --retry-on gives way only to the
    line's own --give-up-on.
    """
    if option not in options.BY_NAME:
        return True  # a newer jobrun knows what it is for
    if option == "--retries":
        return not (value or "").strip("0")
    return option in ("--if", "--input") and value is not None


def unset(name: str, option: str) -> str:
    """What to type, so that the line's own holds again."""
    return options.typed("unset", name, option.lstrip("-"))


def long_name(word: str) -> str:
    """`--timeout` of `timeout`"""
    name = word if word.startswith("-") else f"--{word}"
    return options.BY_NAME[name].long if name in options.BY_NAME else name


def option_named(word: str) -> Option:
    """`--timeout` or `timeout`. Raises UsageError where it can't be set."""
    name = long_name(word)
    option = options.BY_NAME.get(name)
    if option is None:
        close = options.nearest(name, options.BY_NAME)
        raise UsageError(
            f'no option "{name}"', f"{close}?" if close else "jobrun run --help lists them"
        )
    if option.long in _OF_THE_LINE or not option.kept:
        raise UsageError(
            f"{option.long} can't be set: it belongs to the line that calls jobrun",
            "change it in the crontab",
        )
    return option


def text_of(option: Option, word: str | None) -> str | None:
    """The text as a call has it; a flag is kept as `1`. Raises UsageError."""
    if word == OFF:
        return None
    if option.kind != options.FLAG and word is None:
        raise UsageError(f"a value is missing: {option.long} {option.value}")
    if option.kind == options.FLAG and word not in (ON, None):
        raise UsageError(f'{option.long} "{word}": on or off', f"{option.long} on")
    return "1" if option.kind == options.FLAG else word


def shown(name: str, value: str | None) -> str:
    """`--timeout 2h`, `--quiet on`, `--max-age off`"""
    if value is None:
        return f"{name} {OFF}"
    flag = name in options.BY_NAME and options.BY_NAME[name].kind == options.FLAG
    return f"{name} {ON}" if flag else options.shell_text([name, value])
