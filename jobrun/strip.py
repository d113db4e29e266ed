"""A stretch of a job's time as slots, one a window of its grid, each with what became of it.

The rows of the ledger come first: a stored window keeps its bounds whatever the schedule says by
now. What lies between them is cut at the grid's boundaries. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

from jobrun.rows import (
    DEAD,
    FAILED,
    HELD,
    LOST,
    PROCESSED,
    RUNNING,
    SKIPPED,
    VOID,
    Gap,
    WindowRow,
)

PENDING = "pending"
RETRIED = "after a retry"  # processed, not at the first try
OUTSIDE = "not asked for"  # before the job's first window, and no row

# One letter a state, in the order in which they are counted below the strip.
LETTERS = {
    PROCESSED: "#",
    RETRIED: "r",
    SKIPPED: "s",
    DEAD: "D",
    FAILED: "F",
    HELD: "h",
    RUNNING: "R",
    LOST: "L",
    PENDING: ".",
    OUTSIDE: " ",
}
TO_DO = (FAILED, HELD, RUNNING, LOST, PENDING)
GIVEN_UP = (SKIPPED, DEAD)


class Boundaries(Protocol):
    """The part of a grid that is needed here (schedule.py)."""

    def next(self, t: int, /) -> int: ...

    def floor(self, t: int, /) -> int: ...


class Slot(NamedTuple):
    start: int
    end: int
    state: str
    row: WindowRow | None = None
    gap: Gap | None = None


class Stretch(NamedTuple):
    """Slots that stand together and have the same state for the same reason."""

    start: int
    end: int
    windows: int
    first: Slot


def back(grid: Boundaries, until: int, windows: int, since: int) -> int:
    """So many windows before `until`, not before `since`."""
    start = until
    for _ in range(windows):
        if start <= since:
            return since
        start = grid.floor(start - 1)
    return max(start, since)


def slots(
    grid: Boundaries,
    since: int,
    until: int,
    watermark: int,
    rows: Sequence[WindowRow],
    gaps: Sequence[Gap],
) -> Iterator[Slot]:
    """The slots of [since, until) in order; a gap, or a merged row, gives one a grid window."""
    at = since
    blocks = [
        *(_of_row(row) for row in rows if row.state != VOID),
        *(_of_gap(gap) for gap in gaps if not gap.void),
    ]
    for block in sorted(blocks, key=lambda slot: slot.start):
        if block.end <= at or block.start >= until:
            continue
        yield from _between(grid, at, block.start, watermark)
        yield from _inside(grid, block, max(at, block.start), min(block.end, until))
        at = block.end
    yield from _between(grid, at, until, watermark)


def _of_row(row: WindowRow) -> Slot:
    assert row.start is not None  # a ledger's windows() has no --key units
    assert row.end is not None
    retried = row.state == PROCESSED and row.attempts > 1
    return Slot(row.start, row.end, RETRIED if retried else row.state, row)


def _of_gap(gap: Gap) -> Slot:
    return Slot(gap.start, gap.end, SKIPPED, None, gap)


def _between(grid: Boundaries, start: int, end: int, watermark: int) -> Iterator[Slot]:
    while start < end:
        stop = min(grid.next(start), end)
        yield Slot(start, stop, PENDING if start >= watermark else OUTSIDE)
        start = stop


def _inside(grid: Boundaries, block: Slot, start: int, end: int) -> Iterator[Slot]:
    if block.row is not None and block.row.windows == 1:
        yield block
        return
    while start < end:
        stop = min(grid.next(start), end)
        yield block._replace(start=start, end=stop)
        start = stop


def stretches(found: Sequence[Slot]) -> list[Stretch]:
    """Neighbours joined; rows of their own (failed, dead, running) are not joined."""
    joined = []
    for _, group in groupby(found, _alike):
        slots = list(group)
        joined.append(Stretch(slots[0].start, slots[-1].end, len(slots), slots[0]))
    return joined


def _alike(slot: Slot) -> tuple[object, ...]:
    if slot.row is not None and slot.state not in (PROCESSED, RETRIED, SKIPPED):
        return (slot.row.key,)
    source = slot.row or slot.gap
    return slot.state, source and source.reason, slot.gap and slot.gap.detail


def count(found: Sequence[Slot], states: Sequence[str]) -> int:
    return sum(1 for slot in found if slot.state in states)
