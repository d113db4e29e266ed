"""Pauses, and the count of failed windows that leads to one; each call is part of a transaction.

A pause is written without the job's lock, since a job that runs for hours must be reachable. So
whoever claims a run looks for it in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jobrun.instants import from_iso, iso
from jobrun.ledger_sqlite_windows import add_event, text
from jobrun.rows import (
    BREAKER,
    FAILURES,
    LOOKBACK,
    NEW,
    PROCESSED,
    RETRY,
    SUCCEEDED,
    Block,
    Breaker,
    Failing,
    Opening,
    Pause,
    Result,
)
from jobrun.sqlite_database import Database
from jobrun.value import NamedTuple

Blocks = Callable[[int], Iterable[Block]]

PAUSED, RESUMED = "paused", "resumed"  # events

_BEGIN = """
UPDATE jobrun_job
   SET paused_at = :at, paused_until = :until, paused_reason = :reason, paused_by = :by
 WHERE name = :job
"""

_END = """
UPDATE jobrun_job
   SET paused_at = NULL, paused_until = NULL, paused_reason = NULL, paused_by = NULL,
       failing = 0, failing_since = NULL, failing_row = failing_row + 1
 WHERE name = :job
"""

_COUNT = """
UPDATE jobrun_job SET failing = :failing, failing_since = :since WHERE name = :job
"""

_COUNTED = """
UPDATE jobrun_window
   SET counted_in = (SELECT failing_row FROM jobrun_job WHERE name = :job)
 WHERE job = :job AND key = (SELECT key FROM jobrun_run WHERE id = :run_id)
"""

# A window counts once, however often it is tried: at its first failure since the last one that was
# processed. Neither the clock tells (many end within a second) nor the number of the run (where
# they run beside each other, one that began before may end after).
_WEIGHT = """
SELECT r.kind, CASE WHEN w.counted_in = j.failing_row THEN 0 ELSE 1 END FROM jobrun_run AS r
  JOIN jobrun_job AS j ON j.name = r.job
  LEFT JOIN jobrun_window AS w ON w.job = r.job AND w.key = r.key
 WHERE r.id = ? AND r.by_hand = 0
"""

_CLEAR = """
UPDATE jobrun_job
   SET failing = 0, failing_since = NULL, failing_row = failing_row + 1
 WHERE name = :job
"""

_BEFORE = """
SELECT r.kind, w.state, j.failing FROM jobrun_run AS r
  JOIN jobrun_job AS j ON j.name = r.job
  LEFT JOIN jobrun_window AS w ON w.job = r.job AND w.key = r.key
 WHERE r.id = ?
"""


class Before(NamedTuple):
    """What the end of a run is weighed by, read before it is recorded."""

    kind: str | None
    state: str | None  # of its window
    failing: int


class _Success(NamedTuple):
    """What the breaker weighs of a run that processed its window."""

    job: str
    key: str | None
    at: int
    may_resume: bool  # there is a breaker


def is_paused(database: Database, job: str, now: int) -> bool:
    pause = _pause(database, job)
    return pause is not None and pause.holds(now)


def begin_pause(database: Database, job: str, pause: Pause) -> bool:
    """In the place of the one that is there; False where there is no such job."""
    if not _put(database, job, pause):
        return False
    until = f", until {iso(pause.until)}" if pause.until is not None else ""
    add_event(database, job, pause.at, None, PAUSED, f"{pause.text}{until}")
    return True


def end_pause(database: Database, job: str, by: str, now: int) -> bool:
    """By the BREAKER only where its time is over: a person may have written another one since."""
    pause = _pause(database, job)
    if pause is None or (by == BREAKER and pause.holds(now)):
        return False
    database.change(_END, {"job": job})
    how = "its time is over" if by == BREAKER else f"by {by}"
    add_event(database, job, now, None, RESUMED, f"{how}; it was paused {pause.text}")
    return True


# -- the breaker ----------------------------------------------------------------------------------


def before_end(database: Database, run_id: int) -> Before:
    for row in database.rows(_BEFORE, (run_id,)):
        return Before(*row)
    return Before(None, None, 0)  # its row was taken away meanwhile


def weigh_end(
    database: Database, result: Result, before: Before, marked: bool, blocks: Blocks
) -> tuple[Pause | None, Pause | None]:
    """The pause that the end of a run makes, and the one that it ends.

    `marked` is whether its command marked it, `blocks` what is on record from an instant on.
    """
    if result.outcome != SUCCEEDED and not marked:
        if result.outcome not in FAILURES:
            return None, None
        # Where the call tries again it is not settled yet that it fails.
        breaker = None if result.goes_on else result.breaker
        failed = result.ended, result.is_dead
        tripped = _weigh(database, result.job, result.run_id, failed, breaker, blocks)
        return tripped, None
    if before.state == PROCESSED and not marked:
        return None, None  # once more: nothing new is done
    success = _Success(result.job, result.key, result.ended, result.breaker is not None)
    return None, _weigh_success(database, success, before)


def _weigh_success(database: Database, success: _Success, before: Before) -> Pause | None:
    """A window is processed that was not before: nothing fails any more.

    Where it was a probe, the breaker's pause is over: that pause.
    """
    if before.kind == LOOKBACK:
        return None  # nothing new is done
    job, key, at, may_resume = success
    if before.failing:
        database.change(_CLEAR, {"job": job})
    pause = _pause(database, job) if may_resume else None
    if pause is None or pause.by != BREAKER or pause.holds(at):
        return None
    database.change(_END, {"job": job})
    add_event(database, job, at, None, RESUMED, f"{key} is processed; it was paused {pause.text}")
    return pause


def weigh_marked_loss(
    database: Database, opening: Opening, key: str | None, before: Before
) -> Pause | None:
    """The pause that a lost run ends, whose command had marked its window."""
    success = _Success(opening.job, key, opening.now, opening.breaker is not None)
    return _weigh_success(database, success, before)


def weigh_loss(
    database: Database, opening: Opening, run_id: int, is_dead: bool, blocks: Blocks
) -> Pause | None:
    """The pause that a lost run makes, as any other failure."""
    failed = opening.now, is_dead
    return _weigh(database, opening.job, run_id, failed, opening.breaker, blocks)


def _weigh(
    database: Database,
    job: str,
    run_id: int,
    failed: tuple[int, bool],
    breaker: Breaker | None,
    blocks: Blocks,
) -> Pause | None:
    """Count a run that has failed, at an instant, and whether its window is dead; the pause that
    the breaker makes of it, None where it makes none."""
    more = weight(database, run_id)
    if more is None:
        return None
    tripped = _weigh_more(database, job, failed, more, breaker, blocks)
    database.change(_COUNTED, {"job": job, "run_id": run_id})
    return tripped


def weigh_standing(database: Database, result: Result, blocks: Blocks) -> Pause | None:
    """The pause that a failure makes that is settled only now: its end has counted it."""
    if result.breaker is None or not _failing(database, result.job).failing:
        return None  # or a person has resumed the job since
    failed = result.ended, result.is_dead
    return _weigh_more(database, result.job, failed, 0, result.breaker, blocks)


def _weigh_more(
    database: Database,
    job: str,
    failed: tuple[int, bool],
    more: int,
    breaker: Breaker | None,
    blocks: Blocks,
) -> Pause | None:
    from jobrun.weigh import Failure, weigh

    before = _failing(database, job)
    after, tripped = weigh(before, Failure(*failed, more), breaker, blocks)
    counted = {"failing": after.failing, "since": text(after.since)}
    database.change(_COUNT, {**counted, "job": job})
    if tripped is not None:
        begin_pause(database, job, tripped)
    elif after.pause is not None and after.pause != before.pause:
        _put(database, job, after.pause)
    return tripped


def weight(database: Database, run_id: int) -> int | None:
    """See Ledger.weight."""
    for kind, more in database.rows(_WEIGHT, (run_id,)):
        if kind in (None, NEW, RETRY):
            return int(more)
    return None


def _failing(database: Database, job: str) -> Failing:
    found = "SELECT failing, failing_since FROM jobrun_job WHERE name = ?"
    ((failing, since),) = database.rows(found, (job,))
    return Failing(failing, from_iso(since) if since else None, _pause(database, job))


def _put(database: Database, job: str, pause: Pause) -> bool:
    values = {**pause._asdict(), "at": iso(pause.at), "until": text(pause.until), "job": job}
    return database.change(_BEGIN, values) == 1


def _pause(database: Database, job: str) -> Pause | None:
    found = database.rows(
        "SELECT paused_at, paused_until, paused_by, paused_reason FROM jobrun_job"
        " WHERE name = ? AND paused_at IS NOT NULL",
        (job,),
    )
    for at, until, by, reason in found:
        return Pause(from_iso(at), from_iso(until) if until else None, by, reason)
    return None
