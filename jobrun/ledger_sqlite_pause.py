"""Pauses in the SQLite ledger; each call is part of a transaction.

A pause is written without the job's lock, since a job that runs for hours must be reachable. So
whoever claims a run looks for it in the same transaction.
"""

from __future__ import annotations

from jobrun.instants import from_iso, iso
from jobrun.ledger_sqlite_windows import add_event, text
from jobrun.rows import BREAKER, Pause
from jobrun.sqlite_database import Database

PAUSED, RESUMED = "paused", "resumed"  # events

_BEGIN = """
UPDATE jobrun_job
   SET paused_at = :at, paused_until = :until, paused_reason = :reason, paused_by = :by
 WHERE name = :job
"""

_END = """
UPDATE jobrun_job
   SET paused_at = NULL, paused_until = NULL, paused_reason = NULL, paused_by = NULL
 WHERE name = :job
"""


def is_paused(database: Database, job: str, now: int) -> bool:
    pause = _pause(database, job)
    return pause is not None and pause.holds(now)


def begin_pause(database: Database, job: str, pause: Pause) -> bool:
    """In the place of the one that is there; False where there is no such job."""
    values = {**pause._asdict(), "at": iso(pause.at), "until": text(pause.until), "job": job}
    if database.change(_BEGIN, values) != 1:
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


def _pause(database: Database, job: str) -> Pause | None:
    found = database.rows(
        "SELECT paused_at, paused_until, paused_by, paused_reason FROM jobrun_job"
        " WHERE name = ? AND paused_at IS NOT NULL",
        (job,),
    )
    for at, until, by, reason in found:
        return Pause(from_iso(at), from_iso(until) if until else None, by, reason)
    return None
