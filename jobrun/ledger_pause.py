"""Pauses, and the count of failed windows that leads to one; each call is part of a transaction.

A pause is written without the job's lock, since a job that runs for hours must be reachable. So
whoever claims a run looks for it in the same transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrun.instants import from_iso, iso
from jobrun.ledger_end import Before
from jobrun.ledger_windows import add_event, text
from jobrun.rows import (
    BREAKER,
    FAILURES,
    LOOKBACK,
    NEW,
    PROCESSED,
    RETRY,
    SUCCEEDED,
    Breaker,
    Pause,
    Result,
)
from jobrun.value import NamedTuple

if TYPE_CHECKING:
    from jobrun.database import Database

PAUSED, RESUMED = "paused", "resumed"  # events

_BEGIN = """
UPDATE jobrun_job
   SET paused_at = :at, paused_until = :until, paused_reason = :reason, paused_by = :by
 WHERE name = :job
"""

_END = """
UPDATE jobrun_job
   SET paused_at = NULL, paused_until = NULL, paused_reason = NULL, paused_by = NULL,
       failing = 0, failing_since = NULL, failing_run = NULL
 WHERE name = :job
"""

# A window counts once, however often it is tried: at its first failure since the last one that was
# processed. By the number of the run, since many end within a second.
_COUNT = """
UPDATE jobrun_job
   SET failing = failing + CASE WHEN EXISTS (
           SELECT 1 FROM jobrun_run
            WHERE job = :job AND key = :key AND id >= failing_run AND id <> :run
              AND kind IN ('new', 'retry')
              AND outcome IN ('failed', 'timed-out', 'killed', 'not-started', 'lost')
       ) THEN 0 ELSE 1 END,
       failing_since = coalesce(failing_since, :now),
       failing_run = coalesce(failing_run, :run)
 WHERE name = :job
"""

_CLEAR = """
UPDATE jobrun_job SET failing = 0, failing_since = NULL, failing_run = NULL WHERE name = :job
"""


class Weighed(NamedTuple):
    """What the end of a run has made of the job's pause."""

    pause: Pause | None  # as it is now
    tripped: Pause | None = None  # the breaker has made it
    resumed: Pause | None = None  # the breaker has ended that one


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


def count_failure(database: Database, job: str, run_id: int, now: int) -> bool:
    """Of a run in its turn; what a person asks for by hand does not count, nor what runs again."""
    for kind, key in database.rows("SELECT kind, key FROM jobrun_run WHERE id = ?", (run_id,)):
        if kind in (None, NEW, RETRY):
            database.change(_COUNT, {"job": job, "key": key, "run": run_id, "now": iso(now)})
            return True
    return False


def weigh_end(database: Database, result: Result, before: Before) -> Weighed:
    """What the end of a run makes of the job's pause."""
    marked = before.is_marked(result)
    if result.outcome != SUCCEEDED and not marked:
        return _weigh_failure(database, result, before.pause)
    if before.kind == LOOKBACK or (before.state == PROCESSED and not marked):
        return Weighed(before.pause)  # once more: nothing new is done
    return _weigh_success(database, result, before)


def _weigh_success(database: Database, result: Result, before: Before) -> Weighed:
    """A window is processed that was not before: nothing fails any more.

    Where it was a probe, the breaker's pause is over.
    """
    if before.failing:
        database.change(_CLEAR, {"job": result.job})
    pause = before.pause
    if result.breaker is None or not _is_over(pause, result.ended):
        return Weighed(pause)
    assert pause is not None
    database.change(_END, {"job": result.job})
    detail = f"{result.key} is processed; it was paused {pause.text}"
    add_event(database, result.job, result.ended, None, RESUMED, detail)
    return Weighed(None, resumed=pause)


def _weigh_failure(database: Database, result: Result, pause: Pause | None) -> Weighed:
    """Count it; the breaker may make a pause of it."""
    is_failure = result.outcome in FAILURES
    if not is_failure or not count_failure(database, result.job, result.run_id, result.ended):
        return Weighed(pause)
    if result.breaker is None or result.goes_on:  # that it fails is not settled yet
        return Weighed(pause)
    until = None
    if result.breaker.probe_after is not None:
        until = result.ended + result.breaker.probe_after
    if pause is not None:
        if _is_over(pause, result.ended):  # the probe has failed
            pause = pause._replace(at=result.ended, until=until)
            _put(database, result.job, pause)
        return Weighed(pause)
    failed, waiting = _failing(database, result.job, result.breaker)
    if result.is_dead:  # the next ones have their turn, and count when they have failed
        waiting = 0
    if failed + waiting < result.breaker.windows:
        return Weighed(None)
    tripped = Pause(result.ended, until, BREAKER, _reason(failed, waiting))
    begin_pause(database, result.job, tripped)
    return Weighed(tripped, tripped=tripped)


def _is_over(pause: Pause | None, now: int) -> bool:
    """Whether it is one of the breaker's, whose time is over."""
    return pause is not None and pause.by == BREAKER and not pause.holds(now)


def _reason(failed: int, waiting: int) -> str:
    number = failed + waiting
    windows = f"{number} window{'' if number == 1 else 's'} failed"
    return f"{windows} or wait for one that did" if waiting else windows


def _failing(database: Database, job: str, breaker: Breaker) -> tuple[int, int]:
    """How many windows failed one after another, and how many more wait for one of them.

    A job of one window a day fails at the same one all day long: those that have closed since then
    count as well.
    """
    ((failing, since),) = database.rows(
        "SELECT failing, failing_since FROM jobrun_job WHERE name = ?", (job,)
    )
    closed = breaker.waiting_since(from_iso(since)) if breaker.waiting_since is not None else 0
    return failing, max(0, 1 + closed - failing)


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
