"""Crontab lines, taken apart as Debian's cron does (crontab(5)): settings, fields, command, stdin.

Written from the manual page, on its own: it shares nothing with the program under test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_SETTING = re.compile(r"""\s*([A-Za-z_]\w*|"[^"]*"|'[^']*')\s*=\s*(.*?)\s*$""")
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: tuple[tuple[str, int, int, list[str]], ...] = (
    ("minute", 0, 59, []),
    ("hour", 0, 23, []),
    ("day of month", 1, 31, []),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_NICKNAMES = {
    "@reboot", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly",
}  # fmt: skip


class Entry(NamedTuple):
    number: int  # of the line, from 1
    when: str
    command: str  # what the shell gets
    stdin: str  # what comes after an unescaped %


class Crontab(NamedTuple):
    settings: dict[str, str]
    entries: list[Entry]


def read(text: str) -> Crontab:
    """Raises ValueError, naming the line, for what cron would refuse."""
    settings: dict[str, str] = {}
    entries: list[Entry] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        setting = _SETTING.fullmatch(line)
        if setting:
            settings[setting[1].strip("\"'")] = _unquoted(setting[2])
        else:
            entries.append(_entry(number, line.strip()))
    return Crontab(settings, entries)


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _entry(number: int, line: str) -> Entry:
    width = 1 if line.startswith("@") else 5
    *fields, rest = line.split(None, width)
    if len(fields) != width:
        raise ValueError(f"line {number}: {width} fields and a command are needed")
    if width == 1 and fields[0] not in _NICKNAMES:
        raise ValueError(f"line {number}: {fields[0]} is no nickname")
    for text, field in zip(fields, _FIELDS, strict=False):
        if width == 5:
            _check_field(number, text, *field)
    command, stdin = _split_percent(rest)
    return Entry(number, " ".join(fields), command, stdin)


def _check_field(
    number: int, text: str, name: str, lowest: int, highest: int, names: list[str]
) -> None:
    for item in text.split(","):
        span, _, step = item.partition("/")
        bounds = [] if span == "*" else span.split("-")
        values = [_value(bound, lowest, names) for bound in bounds]
        good = (
            len(values) <= 2
            and all(lowest <= value <= highest for value in values)
            and values == sorted(values)
            and (not step or (step.isdigit() and int(step) > 0))
        )
        if not good:
            raise ValueError(f"line {number}: bad {name} {item!r}")


def _value(text: str, lowest: int, names: list[str]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + lowest
    return int(text) if text.isdigit() else -1


def _split_percent(text: str) -> tuple[str, str]:
    """The first % that no backslash escapes ends the command, the others are line ends of stdin."""
    parts = re.split(r"(?<!\\)%", text)
    command, *lines = [part.replace(r"\%", "%") for part in parts]
    return command, "\n".join(lines)


def comments(text: str) -> Iterator[tuple[int, str]]:
    """The commands that a comment shows, `#   jobrun plan sales      what it is for`."""
    for number, line in enumerate(text.splitlines(), 1):
        shown = re.match(r"#   (jobrun .*?)(?:\s{2,}.*)?$", line)
        if shown:
            yield number, shown[1]
