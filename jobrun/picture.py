"""What the ledger knows of a stretch of a job's windows, read by index only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import TYPE_CHECKING, NamedTuple

from jobrun import fate, lastcall, upstream
from jobrun.ledger import Ledger
from jobrun.plans import Skip
from jobrun.rows import DEAD, RUNNING, VOID, JobRow, Pause, RunRow, Source, WindowRow
from jobrun.standing import Alive, to_do
from jobrun.strip import OUTSIDE, PENDING, Slot, back, slots

if TYPE_CHECKING:
    from jobrun.schedule import Grid

USUAL = 72  # windows, where the call names no stretch
MOST = 1000  # slots: a strip of a million letters helps nobody
COUNTED = 1_000_000
FAR = 253_402_300_799  # the end of the year 9999
LISTED = 50  # rows below the strip


class Picture(NamedTuple):
    """What is known of a stretch of a job's windows. Instants in seconds.

    `slots` are those of [shown, until); of [since, until) so many are `to_do` and `windows` in all,
    None where counting was given up. `unfinished` are rows of [since, shown).
    """

    job: str
    describe: str  # every 1 hour (UTC)
    since: int
    shown: int
    until: int
    windows: int | None
    to_do: int | None
    slots: Sequence[Slot]
    unfinished: Sequence[WindowRow]
    last_runs: Mapping[str, RunRow]  # by key, of what is listed
    stops: bool  # a failed window stops the later ones
    longest: int  # seconds: the longest delay before a retry
    pause: Pause | None = None  # as on record; its time may be over
    void: int = 0  # rows that are in nobody's way since watermark or clock was set back
    waits: Skip | None = None  # what the first pending window waits for, where that is another job


def take(
    ledger: Ledger, job: JobRow, grid: Grid, since: int | None, until: int, alive: Alive, now: int
) -> Picture:
    """[since, until) at the grid's boundaries; without `since` the newest, and all not done.

    At most the newest 1000 windows become slots; `to_do` counts the whole stretch.
    """
    assert job.watermark is not None
    mark, end = job.watermark, grid.floor(until)
    usual = min(back(grid, end, USUAL, mark - 10**9), mark)
    start = min(grid.floor(usual if since is None else since), end)
    shown = back(grid, end, MOST, start)
    unfinished = [row for row in ledger.unfinished(job.name) if _meets(row, start, end)]
    rows = ledger.windows(job.name, shown, FAR, limit=2 * MOST)
    found = _slots(ledger, job.name, grid, (shown, end), mark, rows, alive)
    if since is None and found and shown == start:
        start = found[0].start
    return Picture(
        job=job.name,
        describe=grid.describe(),
        since=start,
        shown=shown,
        until=end,
        windows=grid.count(start, end, COUNTED),
        to_do=_to_do(ledger, job, grid, (max(start, mark), end), unfinished, now),
        slots=found,
        unfinished=tuple(row for row in unfinished if row.end is not None and row.end <= shown),
        last_runs=_last_runs(
            ledger, job.name, [*unfinished, *(row for row in rows if row.state == DEAD)]
        ),
        pause=job.pause,
        void=sum(row.state == VOID for row in rows),
        longest=fate.longest_on_record(lastcall.of(job)),
        stops=lastcall.of(job).options.get("--on-failure", "stop") == "stop",
        waits=_waits(ledger, job, found),
    )


def _waits(ledger: Ledger, job: JobRow, found: Sequence[Slot]) -> Skip | None:
    """By the last call's --after."""
    first = next((slot for slot in found if slot.state == PENDING), None)
    if first is None:
        return None
    source = Source(ledger.job, ledger.blocks, ledger.values)
    return upstream.last_hurdle(job, source, first.start, first.end)


def _slots(
    ledger: Ledger,
    job: str,
    grid: Grid,
    stretch: tuple[int, int],
    mark: int,
    rows: list[WindowRow],
    alive: Alive,
) -> tuple[Slot, ...]:
    """From the job's first window on."""
    gone = {run.key for run in ledger.open_runs(job) if not alive(run)}
    known = [_as_it_is(row, gone) for row in rows]
    every = slots(grid, *stretch, mark, known, ledger.gaps(job, *stretch))
    return tuple(dropwhile(lambda slot: slot.state == OUTSIDE, every))


def _meets(row: WindowRow, start: int, end: int) -> bool:
    return row.start is not None and row.end is not None and row.start < end and row.end > start


def _as_it_is(row: WindowRow, gone: set[str | None]) -> WindowRow:
    """A running row whose processes are gone is lost already; the next call will say so."""
    return row._replace(state="lost") if row.state == RUNNING and row.key in gone else row


def _to_do(
    ledger: Ledger,
    job: JobRow,
    grid: Grid,
    stretch: tuple[int, int],
    unfinished: list[WindowRow],
    now: int,
) -> int | None:
    start, end = stretch
    closed = grid.count(start, end, COUNTED) if start < end else 0
    return None if closed is None else to_do(ledger, job, stretch, closed, unfinished, now)


def _last_runs(ledger: Ledger, job: str, rows: list[WindowRow]) -> dict[str, RunRow]:
    runs = (ledger.runs(job=job, key=row.key, limit=1) for row in rows[:LISTED])
    return {run.key: run for found in runs for run in found if run.key is not None}
