"""Windows on record that have not closed: they were tried on a clock that was ahead. Pure.

Such a row would keep its stretch until the clock came true: a merged window that failed on a clock
20 days ahead stopped its job for 20 days. Nothing of it is done, so it is void: what has closed of
it is due again, cut as any other stretch, and the rest in its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobrun import rows
from jobrun.consent import JITTER
from jobrun.instants import iso_z
from jobrun.plans import Note, note
from jobrun.rows import Block, JobRow, Opening, Stored, WindowRow


def among(unfinished: Iterable[WindowRow], job: JobRow | None, now: int) -> tuple[WindowRow, ...]:
    """Those of them that end after now, by more than clocks are corrected by.

    None where the watermark itself is after now: there nothing runs and nothing changes (R39). What
    is held waits for a person, on any clock.
    """
    if job is not None and job.watermark is not None and job.watermark > now:
        return ()
    return tuple(
        row
        for row in unfinished
        if row.end is not None and row.end > now + JITTER and row.state != rows.HELD
    )


def leave_out(known: Stored, now: int) -> tuple[Stored, tuple[WindowRow, ...]]:
    """The record as it will be once they are void; and those, oldest first."""
    idle = (row for row in known.unfinished if row.key not in known.taken)
    found = among(idle, known.job, now)
    if not found:
        return known, ()
    keys = {row.key for row in found}

    def blocks(since: int) -> Iterator[Block]:
        return (block for block in known.blocks(since) if block.key not in keys)

    def failures() -> list[WindowRow]:
        return [row for row in known.failures() if row.key not in keys]

    unfinished = tuple(row for row in known.unfinished if row.key not in keys)
    return known._replace(unfinished=unfinished, blocks=blocks, failures=failures), found


def make_void(opening: Opening, found: tuple[WindowRow, ...]) -> Opening:
    """Written with the opening; the events keep the bounds that they had."""
    events = [
        (row.key, "clock-set-back", f"void: {iso_z(row.start or 0)} to {iso_z(row.end or 0)}")
        for row in found
    ]
    void = tuple(row.key for row in found)
    return opening._replace(void=void, events=(*opening.events, *events))


def notes_of(job: str, found: tuple[WindowRow, ...], now: int) -> tuple[Note, ...]:
    """One line, however many they are."""
    if not found:
        return ()
    first, last = found[0], found[-1]
    fields: dict[str, object] = {"window": (first.start, last.end), "key": first.key}
    fields |= {"windows": sum(row.windows for row in found), "now": now}
    hint = (
        "tried on a clock that was ahead of this one, and not done: what has closed of it is due"
        " again now, the rest in its time"
    )
    return (note("WARNING", job, "clock-set-back", hint, **fields),)
