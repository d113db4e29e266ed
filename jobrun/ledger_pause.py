"""Pauses, and the count of failed windows that leads to one; each call is part of a transaction.

A pause is written without the job's lock, since a job that runs for hours must be reachable. So
whoever claims a run looks for it in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
    Block,
    Breaker,
    Failing,
    Opening,
    Pause,
    Result,
)
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.database import Database

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
 WHERE job = :job AND key = :key
"""

# A window counts once, however often it is tried: at its first failure since the last one that was
# processed. Neither the clock tells (many end within a second) nor the number of the run (where
# they run beside each other, one that began before may end after).
_WEIGHT = """
SELECT r.kind, CASE WHEN w.counted_in = j.failing_row THEN 0 ELSE 1 END FROM jobrun_run AS r
  JOIN jobrun_job AS j ON j.name = r.job
  LEFT JOIN jobrun_window AS w ON w.job = r.job AND w.key = r.key
 WHERE r.id = ? AND NOT r.by_hand
"""

_CLEAR = """
UPDATE jobrun_job
   SET failing = 0, failing_since = NULL, failing_row = failing_row + 1
 WHERE name = :job
"""


class Weighed(NamedTuple):
    """What the end of a run has made of the job's pause."""

    pause: Pause | None  # as it is now
    tripped: Pause | None = None  # the breaker has made it
    resumed: Pause | None = None  # the breaker has ended that one


class _Failure(NamedTuple):
    """What the breaker weighs of a run that has failed."""

    job: str
    key: str | None
    at: int
    is_dead: bool  # so is its window


class _Success(NamedTuple):
    """... and of one that processed its window."""

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


def weight(database: Database, run_id: int) -> int | None:
    """See Ledger.weight."""
    for kind, more in database.rows(_WEIGHT, (run_id,)):
        if kind in (None, NEW, RETRY):
            return int(more)
    return None


def weigh_end(database: Database, result: Result, before: Before, blocks: Blocks) -> Weighed:
    """What the end of a run makes of the job's pause; `blocks` is what is on record from an instant
    on."""
    marked = before.is_marked(result.token)
    if result.outcome != SUCCEEDED and not marked:
        if result.outcome not in FAILURES:
            return Weighed(before.pause)
        # Where the call tries again it is not settled yet that it fails.
        breaker = None if result.goes_on else result.breaker
        return _weigh(database, _failure(result), breaker, before, blocks)
    if before.state == PROCESSED and not marked:
        return Weighed(before.pause)  # once more: nothing new is done
    success = _Success(result.job, result.key, result.ended, result.breaker is not None)
    return _weigh_success(database, success, before)


def weigh_loss(
    database: Database,
    opening: Opening,
    key: str | None,
    is_dead: bool,
    before: Before,
    blocks: Blocks,
) -> Weighed:
    """What a lost run makes of it, as any other failure."""
    failure = _Failure(opening.job, key, opening.now, is_dead)
    return _weigh(database, failure, opening.breaker, before, blocks)


def weigh_marked_loss(
    database: Database, opening: Opening, key: str | None, before: Before
) -> Weighed:
    """The same of a lost run whose command had marked its window."""
    success = _Success(opening.job, key, opening.now, opening.breaker is not None)
    return _weigh_success(database, success, before)


def weigh_standing(database: Database, result: Result, before: Before, blocks: Blocks) -> Weighed:
    """What a failure makes of it that is settled only now: its end has counted it."""
    if result.breaker is None or not before.failing:
        return Weighed(before.pause)  # or a person has resumed the job since
    return _weigh_more(database, _failure(result), 0, result.breaker, before, blocks)


def _failure(result: Result) -> _Failure:
    return _Failure(result.job, result.key, result.ended, result.is_dead)


def _weigh_success(database: Database, success: _Success, before: Before) -> Weighed:
    """A window is processed that was not before: nothing fails any more.

    Where it was a probe, the breaker's pause is over.
    """
    pause = before.pause
    if before.kind == LOOKBACK:
        return Weighed(pause)  # nothing new is done
    job, key, at, may_resume = success
    if before.failing:
        database.put(_CLEAR, {"job": job})
    if not may_resume or pause is None or not pause.is_probed(at):
        return Weighed(pause)
    database.put(_END, {"job": job})
    add_event(database, job, at, None, RESUMED, f"{key} is processed; it was paused {pause.text}")
    return Weighed(None, resumed=pause)


def _weigh(
    database: Database, failure: _Failure, breaker: Breaker | None, before: Before, blocks: Blocks
) -> Weighed:
    """Count it, where it counts; the breaker may make a pause of it."""
    more = before.weight
    if more is None:
        return Weighed(before.pause)
    weighed = _weigh_more(database, failure, more, breaker, before, blocks)
    if more and failure.key is not None:
        database.put(_COUNTED, {"job": failure.job, "key": failure.key})
    return weighed


def _weigh_more(
    database: Database,
    failure: _Failure,
    more: int,
    breaker: Breaker | None,
    before: Before,
    blocks: Blocks,
) -> Weighed:
    from jobrun.weigh import Failure, weigh

    since = from_iso(before.failing_since) if before.failing_since is not None else None
    stood = Failing(before.failing, since, before.pause)
    after, tripped = weigh(stood, Failure(failure.at, failure.is_dead, more), breaker, blocks)
    if after[:2] != stood[:2]:
        counted = {"failing": after.failing, "since": text(after.since)}
        database.put(_COUNT, {**counted, "job": failure.job})
    if tripped is not None:
        begin_pause(database, failure.job, tripped)
    elif after.pause is not None and after.pause != stood.pause:
        _put(database, failure.job, after.pause)
    return Weighed(after.pause, tripped=tripped)


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
