"""What became of one window, or unit of --key: from the ledger's rows alone.

Whatever kinds of events and reasons of skips there are: those of the key, and those of the job as a
whole from the moment at which the window had closed to the one at which it was settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobrun import schedule, upstream, windows
from jobrun.ledger import Ledger
from jobrun.ledger_reads import ABOUT
from jobrun.plans import Skip
from jobrun.rows import (
    BY_HAND,
    FAILED,
    FAILURES,
    FINISHED,
    HELD,
    LOST,
    NOT_LATEST,
    RECOVERED,
    RUNNING,
    SUCCEEDED,
    TOO_OLD,
    VOID,
    EventRow,
    Gap,
    JobRow,
    RunRow,
    SkipRow,
    Source,
    WindowRow,
)
from jobrun.standing import Standing
from jobrun.strip import OUTSIDE, PENDING, slots

OTHERS = 200  # runs of other windows, of those that held this one up
COUNTED = 1_000_000
OPEN = "open"  # not closed yet
WAITS = (FAILED, HELD, LOST, RUNNING, PENDING)

# Of the job as a whole, but about windows that were given up: each of those has a row of its own.
_OF_OTHERS = (NOT_LATEST, TOO_OLD, BY_HAND)
# What a run beside them says as well.
_OF_RUNS = (FAILED, RECOVERED)


class Subject(NamedTuple):
    """The window, or unit, that is asked about; `row` or `gap` where there is one."""

    key: str
    start: int | None
    end: int | None
    state: str
    row: WindowRow | None = None
    gap: Gap | None = None


class Closed(NamedTuple):
    """When the window was over; a call takes it `lag` seconds later."""

    at: int
    start: int
    end: int
    lag: int  # as the last call has it


class HeldUp(NamedTuple):
    """An earlier window that failed while this one was waiting, and was in its way."""

    at: int
    runs: tuple[RunRow, ...]  # of the earlier one, newest first


class Queue(NamedTuple):
    """Closed windows, [start, end), that wait for this one; `windows` None: too many to count."""

    windows: int | None
    start: int
    end: int


class Story(NamedTuple):
    subject: Subject
    runs: tuple[RunRow, ...]  # newest first
    closed: Closed | None
    held_up: tuple[HeldUp, ...]
    skips: tuple[SkipRow, ...]
    events: tuple[EventRow, ...]
    queue: Queue | None
    behind: WindowRow | None  # the unfinished window that this one waits for
    upstream: Skip | None  # why it, or what is before it, waits for another job
    cut: bool  # there may be more skips or events than were read


def of_row(row: WindowRow) -> Subject:
    return Subject(row.key, row.start, row.end, row.state, row)


def window_at(ledger: Ledger, job: JobRow, instant: int) -> Subject:
    """The window that an instant lies in, by its row, by a gap, or by the grid."""
    grid = schedule.parse(job.schedule or "")
    mark = job.watermark or 0
    start, end = grid.floor(instant), grid.next(instant)
    if start < mark <= instant:
        start = mark  # the seam of a change of schedule
    rows = ledger.windows(job.name, start, end)
    found = slots(grid, start, end, mark, rows, ledger.gaps(job.name, start, end))
    slot = next(slot for slot in found if slot.start <= instant < slot.end)
    void = next((r for r in rows if r.state == VOID and r.start == slot.start), None)
    row = slot.row or (void if slot.gap is None else None)
    if row is not None:
        return of_row(row)
    return Subject(windows.key(job.name, slot.start), *slot[:3], None, slot.gap)


def tell(
    ledger: Ledger, standing: Standing, subject: Subject, runs: Sequence[RunRow], now: int
) -> Story:
    """All that the rows say of it. `standing` is its job's; `runs` its own, newest first."""
    job, lag = standing.facts.job, standing.facts.spec.seconds("--lag", 0)
    closed = None
    if subject.state != OUTSIDE and subject.start is not None and (subject.end or now) <= now:
        closed = Closed(subject.end or now, subject.start, subject.end or now, lag)
    since = min([run.started for run in runs] + ([closed.at] if closed else []), default=now)
    until = _settled_at(subject, runs, now)
    events = ledger.events_about(job.name, subject.key, since, until)
    skips = ledger.skips_about(job.name, subject.key, since, until)
    behind = _behind(subject, standing)
    return Story(
        subject=subject._replace(state=_state(subject, runs, now)),
        runs=tuple(runs),
        closed=closed,
        held_up=_held_up(ledger, closed, runs, standing, now),
        skips=tuple(skips),
        events=tuple(
            event
            for event in events
            if event.kind not in (_OF_RUNS if event.key is not None else _OF_OTHERS)
        ),
        queue=_queue(ledger, subject, standing, now - lag) if behind is None else None,
        behind=behind,
        upstream=_upstream(ledger, standing, subject, behind) if closed is not None else None,
        cut=max(len(skips), len(events)) >= ABOUT,
    )


def _state(subject: Subject, runs: Sequence[RunRow], now: int) -> str:
    if subject.state == RUNNING and runs and runs[0].outcome == LOST:
        return LOST
    if subject.state == PENDING and subject.end is not None and subject.end > now:
        return OPEN
    return subject.state


def _settled_at(subject: Subject, runs: Sequence[RunRow], now: int) -> int:
    """When it was finished for the first time; what the job did later is not of this story."""
    good = [run.ended for run in runs if run.outcome == SUCCEEDED and run.ended is not None]
    if good:
        return min(good)
    if subject.gap is not None:
        return subject.gap.at
    if subject.row is not None and subject.state in FINISHED:
        return subject.row.changed_at
    return now


# -- before it and behind it ----------------------------------------------------------------------


def _stops(standing: Standing) -> bool:
    return standing.facts.spec.options.get("--on-failure", "stop") == "stop"


def _held_up(
    ledger: Ledger, closed: Closed | None, runs: Sequence[RunRow], standing: Standing, now: int
) -> tuple[HeldUp, ...]:
    """Earlier windows that failed between the moment at which it closed and its first run."""
    if closed is None or not _stops(standing):
        return ()
    until = runs[-1].started if runs else now
    found: dict[str, list[RunRow]] = {}
    name = standing.facts.job.name
    for run in ledger.runs(job=name, since=closed.at, until=until, limit=OTHERS):
        is_earlier = run.start is not None and run.start < closed.start
        if is_earlier and run.key is not None and run.outcome in FAILURES:
            found.setdefault(run.key, []).append(run)
    return tuple(HeldUp(failed[-1].started, tuple(failed)) for failed in found.values())


def _behind(subject: Subject, standing: Standing) -> WindowRow | None:
    """The oldest unfinished window before it, where that stops the later ones."""
    mark = standing.facts.job.watermark
    if subject.state not in WAITS or subject.start is None or mark is None:
        return None
    if subject.start < mark or not _stops(standing):
        return None
    beside = standing.facts.spec.options.get("--overlap") == "allow"  # what runs is in nobody's way
    waited_for = (FAILED, HELD) if beside else (FAILED, HELD, RUNNING)
    rows = (
        row
        for row in standing.facts.unfinished
        if row.start is not None and row.state in waited_for
    )
    return next((row for row in rows if mark <= (row.start or 0) < (subject.start or 0)), None)


def _upstream(
    ledger: Ledger, standing: Standing, subject: Subject, behind: WindowRow | None
) -> Skip | None:
    """By the --after of the last call: of what it waits for, else of itself."""
    if subject.state not in WAITS:
        return None
    job, first = standing.facts.job, standing.facts.waits
    source = Source(ledger.job, ledger.blocks, ledger.values)
    for start, end in ((behind.start, behind.end) if behind else (None, None), subject[1:3]):
        if start is not None and end is not None:
            found = upstream.last_hurdle(job, source, start, end)
            if found is not None:
                return found
    # New windows are begun in order: where the first has to wait, so have the others.
    is_later = subject.row is None and subject.start is not None
    is_new = all(row.start != job.watermark for row in standing.facts.unfinished)
    return first if is_later and is_new else None


def _queue(ledger: Ledger, subject: Subject, standing: Standing, ready: int) -> Queue | None:
    """What waits for this one: the windows that have closed since, and have no row."""
    job = standing.facts.job
    row, end = subject.row, subject.end
    if row is None or end is None or row.state not in (FAILED, HELD, RUNNING):
        return None
    if end - 1 < (job.watermark or 0) or not _stops(standing) or job.schedule is None:
        return None
    grid = schedule.parse(job.schedule)
    last = grid.floor(ready)
    closed = grid.count(end, last, COUNTED) if last > end else 0
    if closed == 0:
        return None
    on_record = ledger.count_blocks(job.name, end, last)
    return Queue(None if closed is None else max(0, closed - on_record), end, last)
