"""What a screen says, as values, and the short and full forms of instants and durations.

A cell knows two forms: `text` for a person at a terminal, `full` for a pipe, where an instant is
ISO 8601 with its offset. `style` only repeats in colour what the letters say. Pure; `tables.py`
prints it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from jobrun.instants import DAY, HOUR, MINUTE, iso

# Colours, by what they repeat.
GOOD, BAD, BUSY, WARN, STILL, DIM = "green", "bold red", "cyan", "yellow", "magenta", "dim"


class Cell(NamedTuple):
    text: str
    full: str | None = None  # None: the same as `text`
    style: str = ""


NOTHING = Cell("-")


class Line(NamedTuple):
    """Free text; the cells stand beside each other without a blank."""

    cells: tuple[Cell, ...]


class Table(NamedTuple):
    """`titles` once, then one row a line; a title that begins with `>` is set to the right."""

    titles: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def without(table: Table, title: str) -> Table:
    """The table less one column."""
    at = table.titles.index(title)
    rows = tuple(row[:at] + row[at + 1 :] for row in table.rows)
    return Table(table.titles[:at] + table.titles[at + 1 :], rows)


class Screen(NamedTuple):
    """`data` is the same in JSON's types, without "v" and the ledger's name."""

    parts: tuple[Line | Table, ...]
    data: Mapping[str, object]


def line(text: str, style: str = "") -> Line:
    return Line((Cell(text, style=style),))


def head(ledger: str, now: int) -> Line:
    """The first line of every screen. The full form has the year and the seconds of `now`."""
    return Line(
        (Cell(f"ledger {ledger}    now {minute(now)} UTC", f"ledger {ledger}  now {iso(now)}"),)
    )


def minute(instant: int) -> str:
    """2026-09-04 03:07"""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(instant))


def moment(instant: int, now: int, *, seconds: bool = False) -> str:
    """09-04 03:07, or 03:07:05 with seconds; the year only where it is not this one."""
    then = time.gmtime(instant)
    year = "" if then.tm_year == time.gmtime(now).tm_year else "%Y-"
    return time.strftime(f"{year}%m-%d %H:%M{':%S' if seconds else ''}", then)


def boundary(instant: int, now: int) -> str:
    """An instant that must not be rounded: it has its seconds, if any."""
    return moment(instant, now, seconds=instant % MINUTE != 0)


def instant_cell(instant: int | None, now: int, *, seconds: bool = False, style: str = "") -> Cell:
    if instant is None:
        return NOTHING
    return Cell(moment(instant, now, seconds=seconds), iso(instant), style)


def boundary_cell(instant: int | None, now: int) -> Cell:
    return NOTHING if instant is None else Cell(boundary(instant, now), iso(instant))


def span(start: int, end: int, now: int) -> str:
    """09-03 22:00 - 23:00; both dates where it lasts a day or more."""
    last = boundary(end, now)
    return f"{boundary(start, now)} - {last if end - start >= DAY else last.rpartition(' ')[2]}"


def span_cell(start: int, end: int, now: int) -> Cell:
    """The full form is the one of `window=` in jobrun's lines."""
    return Cell(span(start, end, now), f"{iso(start)}/{iso(end)}")


def about(seconds: float) -> str:
    """A duration at a glance: <0.1s, 0.3s, 12s, 4m10s, 3h07m, 5h, 1d4h."""
    if 0 < seconds < 0.05:
        return "<0.1s"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return _two(whole, (MINUTE, "m"), (1, "02ds"))
    if whole < DAY:
        return _two(whole, (HOUR, "h"), (MINUTE, "02dm"))
    return _two(whole, (DAY, "d"), (HOUR, "dh"))


def _two(whole: int, large: tuple[int, str], small: tuple[int, str]) -> str:
    first, rest = divmod(whole, large[0])
    second = rest // small[0]
    return f"{first}{large[1]}" + (f"{second:{small[1][:-1]}}{small[1][-1]}" if second else "")


def ago(instant: int, now: int) -> str:
    """One unit: `2m ago`; a clock that went back since gives `just now`, no negative number."""
    passed = now - instant
    for length, letter in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s")):
        if passed >= length:
            return f"{passed // length}{letter} ago"
    return "just now"


def number(count: int | None) -> str:
    """None is a count that was given up at 10,000 (schedule.py: cron)."""
    return "10000+" if count is None else str(count)


def plural(count: int | None, word: str) -> str:
    return f"{number(count)} {word}{'' if count == 1 else 's'}"
