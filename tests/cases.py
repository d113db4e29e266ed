"""What a case of the window rules is made of.

All instants are UTC, as `2026-09-04T10:00`; the job is `j` unless the case names one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

PARTIAL = "partial"

Span = tuple[str, ...]  # (start, end), or (start, end, PARTIAL)


class Row(NamedTuple):
    """A window that is on record before the first call."""

    start: str
    end: str
    state: str = "processed"
    attempts: int = 1


class Call(NamedTuple):
    """One call, and what it must do. `argv` is of `run` unless it begins with another verb."""

    now: str
    windows: tuple[Span, ...]  # tried, in this order
    watermark: str | None  # afterwards
    reason: str | None = None  # of the skip, where nothing runs
    status: int = 0
    argv: tuple[str, ...] | None = None  # instead of the case's
    fails: tuple[str, ...] = ()  # starts of the windows whose command exits 3
    attempts: tuple[int, ...] = ()  # the number of each try, where it is not 1
    left: str | None = None  # of BACKLOG
    says: tuple[str, ...] = ()  # what the error names
    gaps: tuple[tuple[str, str, int | None], ...] = ()  # new ones
    given_up: tuple[str, ...] = ()  # starts of failed windows that are ended
    takes: int = 0  # seconds of the first command


class Case(NamedTuple):
    """`stored` is the schedule on record, where it is another one than the calls have."""

    id: str
    argv: tuple[str, ...]
    watermark: str | None  # None: no state at all
    calls: tuple[Call, ...]
    rows: tuple[Row, ...] = ()
    stored: tuple[str, ...] | None = None
    job: str = "j"
    lock_is_held: bool = False
    seen: str | None = None  # the largest clock reading on record; None: of a moment ago


def steps(start: str, count: int, **length: int) -> tuple[Span, ...]:
    """`count` windows of the same length from `start` on."""
    first, step = datetime.fromisoformat(start), timedelta(**length)
    edges = [(first + step * n).isoformat()[:19] for n in range(count + 1)]
    return tuple(pairwise(edges))


def chain(*edges: str) -> tuple[Span, ...]:
    """Windows from edge to edge."""
    return tuple(pairwise(edges))


def day(*hours: int) -> tuple[Span, ...]:
    """Windows of an hour on 2026-09-04 that start then."""
    return tuple(span for hour in hours for span in steps(f"2026-09-04T{hour:02}:00", 1, hours=1))


def on_record(spans: tuple[Span, ...], state: str = "processed") -> tuple[Row, ...]:
    return tuple(Row(span[0], span[1], state) for span in spans)


HOURLY = ("--every", "1h")
DAILY = ("--every", "1d")
MIDNIGHT = "2026-09-04T00:00"
TEN, TWELVE = "2026-09-04T10:00", "2026-09-04T12:00"
FIVE_PAST = "2026-09-04T12:05"


def cron(expression: str, zone: str = "UTC", *more: str) -> tuple[str, ...]:
    return ("--cron", expression, "--tz", zone, *more)


def one(id: str, argv: tuple[str, ...], mark: str | None, call: Call) -> Case:
    return Case(id, argv, mark, (call,))


def walk(id: str, argv: tuple[str, ...], now: str, *edges: str) -> Case:
    """From the first edge to the last, window by window."""
    return one(id, argv, edges[0], Call(now, chain(*edges), edges[-1]))


def hours(start: str, count: int) -> tuple[str, ...]:
    """The edges of so many windows of an hour."""
    return (start, *(end for _, end in steps(start, count, hours=1)))
