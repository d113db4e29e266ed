"""Options that are set on record, `jobrun set JOB OPTION VALUE`: they win over the crontab's.

    {"--timeout": {"value": "2h", "by": "anna@db1", "at": 1788523500, "reason": "slow source"}}

A value of None means: as if the option were not given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jobrun import options
from jobrun.errors import UsageError
from jobrun.value import NamedTuple

if TYPE_CHECKING:
    from jobrun.options import Option

# What the crontab's line alone can say: the schedule wants consent, other jobs read on what this
# one waits for in its last call, the others are decided by before the ledger is read.
_OF_THE_LINE = (
    "--every", "--cron", "--tz", "--anchor", "--first", "--after", "--cwd", "--stdin", "--ledger",
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

    return {name: Override(**fields) for name, fields in json.loads(text).items()}


def write(overrides: Mapping[str, Override]) -> str | None:
    import json

    if not overrides:
        return None
    return json.dumps({name: each._asdict() for name, each in overrides.items()})


def values(text: str | None) -> dict[str, str | None]:
    return {name: override.value for name, override in read(text).items()}


def applied(given: Mapping[str, str], text: str | None) -> dict[str, str]:
    """The options of a call, with what is set."""
    found = {**given, **values(text)}
    return {name: value for name, value in found.items() if value is not None}


def option_named(word: str) -> Option:
    """`--timeout` or `timeout`. Raises UsageError where it can't be set."""
    name = word if word.startswith("-") else f"--{word}"
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
