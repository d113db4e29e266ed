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

# A window counts once, however often it is tried: at its first failure since the last one that was
# processed. Neither the clock tells (many end within a second) nor the number of the run (where
# they run beside each other, one that began before may end after).
_COUNT = """
UPDATE jobrun_job
   SET failing = failing + CASE WHEN EXISTS (
           SELECT 1 FROM jobrun_window
            WHERE job = :job AND key = :key AND counted_in = failing_row
       ) THEN 0 ELSE 1 END,
       failing_since = coalesce(failing_since, :now)
 WHERE name = :job
"""

_COUNTED = """
UPDATE jobrun_window
   SET counted_in = (SELECT failing_row FROM jobrun_job WHERE name = :job)
 WHERE job = :job AND key = :key
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


class _Failure(NamedTuple):
    """What the breaker weighs of a run that failed or was lost."""

    job: str
    run_id: int
    at: int
    is_dead: bool  # so is its window


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
        failure = _Failure(result.job, result.run_id, result.ended, result.is_dead)
        # Where the call tries again it is not settled yet that it fails.
        breaker = None if result.goes_on else result.breaker
        return _weigh_failure(database, failure, breaker, blocks), None
    if before.kind == LOOKBACK or (before.state == PROCESSED and not marked):
        return None, None  # once more: nothing new is done
    return None, _weigh_success(database, result, before.failing)


def _weigh_success(database: Database, result: Result, failing: int) -> Pause | None:
    """A window is processed that was not before: nothing fails any more.

    Where it was a probe, the breaker's pause is over: that pause.
    """
    if failing:
        database.change(_CLEAR, {"job": result.job})
    pause = _pause(database, result.job) if result.breaker is not None else None
    if pause is None or pause.by != BREAKER or pause.holds(result.ended):
        return None
    database.change(_END, {"job": result.job})
    detail = f"{result.key} is processed; it was paused {pause.text}"
    add_event(database, result.job, result.ended, None, RESUMED, detail)
    return pause


def weigh_loss(
    database: Database, opening: Opening, run_id: int, is_dead: bool, blocks: Blocks
) -> Pause | None:
    """The pause that a lost run makes, as any other failure."""
    failure = _Failure(opening.job, run_id, opening.now, is_dead)
    return _weigh_failure(database, failure, opening.breaker, blocks)


def _weigh_failure(
    database: Database, failure: _Failure, breaker: Breaker | None, blocks: Blocks
) -> Pause | None:
    """Count it; the pause that the breaker makes of it, None where it makes none."""
    job, run_id, at, is_dead = failure
    if not _count_failure(database, job, run_id, at) or breaker is None:
        return None
    until = None if breaker.probe_after is None else at + breaker.probe_after
    pause = _pause(database, job)
    if pause is not None:
        if pause.by == BREAKER and not pause.holds(at):  # the probe has failed
            _put(database, job, pause._replace(at=at, until=until))
        return None
    failed, waiting = _failing(database, job, breaker, blocks)
    if is_dead:  # the next ones have their turn, and count when they have failed
        waiting = 0
    if failed + waiting < breaker.windows:
        return None
    tripped = Pause(at, until, BREAKER, _reason(failed, waiting))
    begin_pause(database, job, tripped)
    return tripped


def _count_failure(database: Database, job: str, run_id: int, now: int) -> bool:
    """Of a run in its turn; what a person asks for by hand does not count, nor what runs again."""
    run = "SELECT kind, key FROM jobrun_run WHERE id = ? AND by_hand = 0"
    for kind, key in database.rows(run, (run_id,)):
        if kind in (None, NEW, RETRY):
            counted = {"job": job, "key": key, "now": iso(now)}
            database.change(_COUNT, counted)
            database.change(_COUNTED, counted)
            return True
    return False


def _reason(failed: int, waiting: int) -> str:
    number = failed + waiting
    windows = f"{number} window{'' if number == 1 else 's'} failed"
    return f"{windows} or wait for one that did" if waiting else windows


def _failing(database: Database, job: str, breaker: Breaker, blocks: Blocks) -> tuple[int, int]:
    """How many windows failed one after another, and how many more wait for one of them.

    A job of one window a day fails at the same one all day long: those that have closed since then
    count as well, unless they are on record, as failed too or as done without.
    """
    ((failing, since),) = database.rows(
        "SELECT failing, failing_since FROM jobrun_job WHERE name = ?", (job,)
    )
    waiting = breaker.waiting_since
    return failing, waiting(from_iso(since), blocks) if waiting is not None else 0


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
