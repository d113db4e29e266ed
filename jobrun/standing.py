"""How a job stands: one word, what is wrong, how far behind. Read by index only; judged purely.

new      nothing has run yet
ok       the last run succeeded
FAILING  a window waits for its next try, or the last run failed
HELD     a window waits for a person (--on-lost hold)
DEAD     a window's attempts are used up, and nobody has settled it
running  a run is under way
STUCK    it has been under way for longer than --stuck-after
lost     a run has no outcome and its processes are gone; the next call runs its window again,
         unless its command had marked it as done
REFUSED  its calls have another schedule than the record, or wait for each other in a circle: 78
AHEAD    done to an instant that is ahead of the clock: every call is refused
LATE     nobody has called it for longer than ever between two calls on record
BLOCKED  another job, which it comes after, has given up what its next window needs
waits    another job, which it comes after, is not as far yet
paused   on purpose; or by itself, which is a trouble
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from jobrun import consent, lastcall, rows, schedule, unclosed, upstream
from jobrun.instants import DAY, MINUTE
from jobrun.lastcall import LastCall
from jobrun.ledger import Ledger
from jobrun.plans import Skip
from jobrun.rows import (
    BREAKER,
    FAILURES,
    NO_CLOSED_WINDOW,
    UPSTREAM_FAILED,
    EventRow,
    JobRow,
    RunRow,
    SkipRow,
    Source,
    WindowRow,
)

NEW, OK, FAILING, RUNNING = "new", "ok", "FAILING", "running"
HELD, DEAD = "HELD", "DEAD"
STUCK, LOST, LATE, PAUSED = "STUCK", "lost", "LATE", "paused"
AHEAD, REFUSED = "AHEAD", "REFUSED"
BLOCKED, WAITS = "BLOCKED", "waits"

# A look reads so many rows of a job; before it says LATE it reads deeper, for the quiet nights and
# weekends of a crontab line like `*/15 9-17 * * 1-5`.
SHALLOW, DEEP = 20, 1000
UNDONE = 1000  # rows

Alive = Callable[[RunRow], bool]


class Behind(NamedTuple):
    """Closed windows that are not finished; `seconds` from the watermark to the last of their ends.

    `windows` None: more than could be counted cheaply.
    """

    windows: int | None
    seconds: int


class Facts(NamedTuple):
    """What the ledger says about one job, read at one instant."""

    job: JobRow
    spec: LastCall
    runs: tuple[RunRow, ...]  # newest first
    open_runs: tuple[RunRow, ...]  # oldest first
    unfinished: tuple[WindowRow, ...]
    undone: tuple[WindowRow, ...]  # dead, held and failed, units of --key too, newest last
    calls: tuple[int, ...]  # instants of calls that ran something, in order
    idle_every: int | None  # mean seconds between calls that found nothing to do
    behind: Behind
    usual: float | None  # seconds that a run takes
    units: Mapping[str, WindowRow]  # by key, of open runs and of the last that ended
    waits: Skip | None = None  # why its next window, which has closed, waits for another job
    refusal: EventRow | None = None  # why its calls are refused, where they are
    way_back: str | None = None  # from a watermark ahead of the clock, where that is refused

    @property
    def ended(self) -> list[RunRow]:
        """Newest first."""
        return _ended(self.runs)


class Standing(NamedTuple):
    """`state` is the one word; `troubles` are all of FAILING, HELD, DEAD, STUCK, lost, AHEAD,
    REFUSED, LATE, BLOCKED, paused (by itself) that are true."""

    facts: Facts
    state: str
    troubles: tuple[str, ...]
    running: RunRow | None
    lost: RunRow | None
    last: RunRow | None  # the newest run that has ended
    alike: int  # how many runs in a row, or tries of the window, ended as `last` did
    failed: WindowRow | None  # the oldest window, or newest key, that failed
    called_every: int | None  # usual seconds between two calls


def read(ledger: Ledger, job: JobRow, now: int, depth: int = SHALLOW) -> Facts:
    runs = tuple(ledger.runs(job=job.name, limit=depth))
    spec = lastcall.of(job)
    unfinished = tuple(ledger.unfinished(job.name))
    open_runs = tuple(ledger.open_runs(job.name))
    return Facts(
        job=job,
        spec=spec,
        runs=runs,
        open_runs=open_runs,
        unfinished=unfinished,
        undone=tuple(ledger.failures(job.name, limit=UNDONE)),
        calls=_called_at(runs),
        idle_every=_idle_every(ledger.skips(job.name)),
        behind=behind(ledger, job, unfinished, now, spec.seconds("--lag", 0)),
        usual=ledger.usual(job.name),
        units=_units(ledger, job.name, [*open_runs, *_ended(runs)[:1]]),
        waits=waits(ledger, job, now - spec.seconds("--lag", 0)),
        refusal=lastcall.refusal(job, ledger),
        way_back=_way_back(ledger, job, now),
    )


def _units(ledger: Ledger, job: str, runs: Sequence[RunRow]) -> dict[str, WindowRow]:
    keys = {run.key for run in runs if run.key is not None}
    rows = (ledger.window(job, key) for key in keys)
    return {row.key: row for row in rows if row is not None}


def _ended(runs: Sequence[RunRow]) -> list[RunRow]:
    return [run for run in runs if run.outcome is not None]


def _way_back(ledger: Ledger, job: JobRow, now: int) -> str | None:
    if job.schedule is None or job.watermark is None or job.watermark <= now:
        return None
    grid = schedule.parse(job.schedule)
    if not consent.is_far_behind(job, grid, now):
        return None
    return consent.way_back(job.name, grid, lambda since: ledger.blocks(job.name, since), now)


def waits(ledger: Ledger, job: JobRow, ready: int) -> Skip | None:
    """What the window at the watermark waits for; `ready` is now less the lag."""
    if job.watermark is None or job.next is None or job.next > ready:
        return None
    source = Source(ledger.job, ledger.blocks, ledger.values)
    return upstream.last_hurdle(job, source, job.watermark, job.next)


def stand(ledger: Ledger, job: JobRow, now: int, alive: Alive) -> Standing:
    """Read and judge; deeper where the first look says LATE."""
    standing = judge(read(ledger, job, now), now, alive)
    if LATE in standing.troubles:
        return judge(read(ledger, job, now, DEEP), now, alive)
    return standing


def behind(
    ledger: Ledger, job: JobRow, unfinished: tuple[WindowRow, ...], now: int, lag: int
) -> Behind:
    """The windows that have closed, are ready since the lag is over, and are not finished."""
    mark, ready = job.watermark, now - lag
    if job.schedule is None or mark is None or (job.next or mark) > ready:
        return Behind(0, 0)
    grid = schedule.parse(job.schedule)
    end = grid.floor(ready)
    closed = grid.count(mark, end, 10_000)
    if closed is None:
        return Behind(None, end - mark)
    begun = [row for row in unfinished if row.start is not None and mark <= row.start < end]
    left = to_do(ledger, job, (mark, end), closed, begun, now)
    return Behind(left, end - mark if left else 0)


def to_do(
    ledger: Ledger,
    job: JobRow,
    stretch: tuple[int, int],
    closed: int,
    begun: Sequence[WindowRow],
    now: int,
) -> int:
    """Of the `closed` windows of a stretch those without a row or a gap, and what is `begun`.

    A row that has not closed stands for what has: the next call does it anew.
    """
    void = unclosed.among(begun, job, now)
    freed = sum(row.windows for row in void if stretch[0] <= (row.start or 0) < stretch[1])
    taken = ledger.count_blocks(job.name, *stretch) - freed
    return max(0, closed - taken) + len(begun) - len(void)


def _called_at(runs: tuple[RunRow, ...]) -> tuple[int, ...]:
    """One call may run many windows: the first run of each process."""
    first: dict[tuple[str, int | None], int] = {}
    for run in runs:  # newest first, so the oldest stays
        first[run.host, run.pid] = run.started
    return tuple(sorted(first.values()))


def _idle_every(skips: list[SkipRow]) -> int | None:
    """Repeats of a skip are one row; its mean gap counts nights and outages, too."""
    for skip in skips:
        if skip.reason == NO_CLOSED_WINDOW and skip.times > 2:
            return (skip.last_at - skip.at) // (skip.times - 1)
    return None


def judge(facts: Facts, now: int, alive: Alive) -> Standing:
    living = [run for run in facts.open_runs if alive(run)]
    running = living[0] if living else None
    lost = next((run for run in facts.open_runs if run not in living), None)
    last = next(iter(facts.ended), None)
    failed = _failed(facts)
    pause = facts.job.shown_pause(now)
    paused = pause is not None
    troubles = tuple(
        word
        for word, is_true in (
            (FAILING, not paused and (failed is not None or _has_failed(last, facts))),
            (HELD, bool(of_state(facts, rows.HELD))),
            (DEAD, bool(of_state(facts, rows.DEAD))),
            (STUCK, running is not None and _is_stuck(running, facts.spec, now)),
            (LOST, lost is not None),
            (AHEAD, not facts.job.is_paused(now) and facts.way_back is not None),
            (REFUSED, not facts.job.is_paused(now) and facts.refusal is not None),
            (LATE, not facts.job.is_paused(now) and running is None and _is_late(facts, now)),
            (BLOCKED, facts.waits is not None and facts.waits.reason == UPSTREAM_FAILED),
            (PAUSED, pause is not None and pause.by == BREAKER),
        )
        if is_true
    )
    return Standing(
        facts=facts,
        state=_state(facts, troubles, running, paused),
        troubles=troubles,
        running=running,
        lost=lost,
        last=last,
        alike=_alike(facts, last, failed),
        failed=failed,
        called_every=_called_every(facts),
    )


def _state(facts: Facts, troubles: tuple[str, ...], running: RunRow | None, paused: bool) -> str:
    """The word that matters most: what needs a person, then what happens, then what was."""
    if STUCK in troubles or LOST in troubles:
        return STUCK if STUCK in troubles else LOST
    if running is not None:
        return RUNNING
    if paused:
        return PAUSED
    for word in (AHEAD, REFUSED, FAILING, HELD, DEAD, LATE, BLOCKED):
        if word in troubles:
            return word
    if facts.waits is not None:
        return WAITS
    return OK if facts.runs else NEW


def _failed(facts: Facts) -> WindowRow | None:
    found = [row for row in facts.unfinished if row.state == rows.FAILED]
    units = [row for row in of_state(facts, rows.FAILED) if row.start is None]
    return next(iter([*found, *units[::-1]]), None)


def _has_failed(last: RunRow | None, facts: Facts) -> bool:
    """What it left dead or held is told as that; what has been settled since is no failure."""
    if last is None or last.outcome not in FAILURES:
        return False
    unit = facts.units.get(last.key or "")
    return unit is None or unit.state not in (*rows.UNDONE, rows.PROCESSED, rows.SKIPPED)


def of_state(facts: Facts, state: str) -> list[WindowRow]:
    """Windows, or units of --key, that are dead, held or failed, the newest last."""
    return [row for row in facts.undone if row.state == state]


def _alike(facts: Facts, last: RunRow | None, failed: WindowRow | None) -> int:
    if last is None:
        return 0
    if failed is not None and failed.key == last.key:
        return failed.failures
    count = 0
    for run in facts.ended:
        if (run.outcome, run.exit_code, run.signal) != (last.outcome, last.exit_code, last.signal):
            break
        count += 1
    return count


def _is_stuck(running: RunRow, spec: LastCall, now: int) -> bool:
    return not spec.leads and now - running.started > spec.seconds("--stuck-after", DAY)


def _called_every(facts: Facts) -> int | None:
    gaps = _gaps(facts)
    usual = int(median(gaps)) if len(gaps) > 1 else None
    return min((gap for gap in (usual, facts.idle_every) if gap is not None), default=None)


def _gaps(facts: Facts) -> list[int]:
    return sorted(b - a for a, b in pairwise(facts.calls))


def _is_late(facts: Facts, now: int) -> bool:
    """Silent for longer than in 99 of 100 gaps between its calls, with a fifth to spare.

    So a line like `*/15 9-17 * * 1-5` is not late on a Sunday, once a weekend is on record, and an
    outage or two on record do not hide the next one for ever.
    """
    if facts.spec.leads:
        return False
    silent, gaps = now - facts.job.last_seen, _gaps(facts)
    usual = _called_every(facts)
    if usual is not None:
        longest = gaps[len(gaps) * 99 // 100] if gaps else 0
        return silent > max(2 * usual, longest * 6 // 5) + MINUTE
    job = facts.job
    if job.watermark is None or job.next is None:
        return False
    # Called once or twice only: a window that nobody asked for through a second length is late.
    return facts.behind.windows != 0 and silent > 2 * (job.next - job.watermark)
