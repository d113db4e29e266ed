"""What a call finds of earlier runs, as `plan` and `--dry-run` foresee it: without writing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobrun import overlap, policy, process, report, rows, turn
from jobrun.living import Living
from jobrun.plans import Plan, Skip
from jobrun.rows import BREAKER, DEAD, LOOKBACK, Block, Breaker, Failing, JobRow, Pause, RunRow
from jobrun.weigh import Failure, weigh

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.job import Job
    from jobrun.ledger import Ledger
    from jobrun.schedule import Grid


def holder(job: Job, ledger: Ledger, living: Sequence[Living]) -> Living | None:
    """What runs, or the last run of a call that holds the lock with none: it waits to try again."""
    if living or job.overlap == "allow":
        return living[0] if living else None
    ended = (run for run in ledger.runs(job=job.name, limit=1) if run.slot is None)
    return next((Living(run, ()) for run in ended if process.wrapper_alive(run)), None)


def kept_out(job: Job, holder: Living | None, living: Sequence[Living]) -> Skip | None:
    """Why the call would not come to plan at all: what is under way is not to be run beside."""
    first = overlap.keeper_of(living) if job.overlap == "allow" else holder
    if first is None:
        return None
    if first.pids:
        return Skip(rows.ORPHAN_ALIVE, first.run.key, {})
    # With --wait it has its turn once that has ended.
    return None if job.wait else Skip(rows.LOCK_HELD, None, {})


def loss(
    job: Job, call: Call, ledger: Ledger, plan: Plan, grid: Grid | None, lost: Sequence[RunRow]
) -> tuple[Plan, JobRow | None]:
    """The plan with what is said of the lost runs, and the job's row once they are on record.

    Where the job pauses itself by them, or a probe was among them, it is all that the call does.
    """
    row = ledger.job(job.name)
    if row is None or not lost:
        return plan, row
    pause, tripped = _weighed(job, call, ledger, row, plan, grid, lost)
    notes = [report.lost_note(run, _is_marked(ledger, run)) for run in lost]
    notes += plan.notes
    notes += [report.paused_note(job.name, tripped)] if tripped is not None else []
    plan = plan._replace(notes=tuple(notes))
    if pause is None or pause == row.pause:
        return plan, row
    if plan.units and pause.holds(plan.opening.now):
        skips = (policy.paused_skip(pause),)
        plan = plan._replace(units=(), skips=skips, left=0, left_from=None, waits=None)
    return plan, row.paused(pause)


def _weighed(
    job: Job,
    call: Call,
    ledger: Ledger,
    row: JobRow,
    plan: Plan,
    grid: Grid | None,
    lost: Sequence[RunRow],
) -> tuple[Pause | None, Pause | None]:
    """The pause that is on record then; and the one that the breaker has made, if it has."""
    breaker = turn.breaker_of_loss(job, call, plan.opening, lost, grid)
    dead = {key for key, state in plan.opening.fates if state == DEAD}
    found, tripped = Failing(row.failing, row.failing_since, row.pause), None
    counted: set[str | None] = set()

    def blocks(since: int) -> Iterator[Block]:
        return ledger.blocks(job.name, since)

    for run in lost:
        if _is_marked(ledger, run):
            found = _after_mark(found, run, breaker, plan.opening.now)
            counted.clear()
        elif (more := ledger.weight(run.id)) is not None:
            more = 0 if run.key in counted else more
            failure = Failure(plan.opening.now, run.key in dead, more)
            found, by_this = weigh(found, failure, breaker, blocks)
            tripped = by_this or tripped
            counted.add(run.key)
    return found.pause, tripped


def _is_marked(ledger: Ledger, run: RunRow) -> bool:
    row = ledger.window(run.job, run.key) if run.key is not None else None
    return row is not None and row.is_marked_by(run)


def _after_mark(found: Failing, run: RunRow, breaker: Breaker | None, now: int) -> Failing:
    """Its window is processed: nothing fails any more, and what it probed for is over."""
    if run.kind == LOOKBACK:
        return found
    pause = found.pause
    is_over = breaker is not None and pause is not None and pause.by == BREAKER
    ended = is_over and pause is not None and not pause.holds(now)
    return Failing(0, None, None if ended else pause)
