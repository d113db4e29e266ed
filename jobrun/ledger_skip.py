"""Skips in the ledger, and the little that a call with nothing to do reads and writes.

Skips are written without the job's lock, so they wait for a second only and then give up: the line
that is printed does not depend on them.

This module is on the idle way.
"""

from __future__ import annotations

from jobrun.errors import DamagedLedger, JobrunError
from jobrun.instants import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jobrun.database import Database

PATIENCE = 1.0  # seconds

_SEEN = """
INSERT INTO jobrun_job (name, token, largest_now, first_seen, last_seen)
SELECT :job, token_floor, :at, :at, :at FROM jobrun_meta WHERE true
    ON CONFLICT (name) DO UPDATE
   SET last_seen = :at,
       largest_now = CASE WHEN :believed AND jobrun_job.largest_now < :at THEN :at
                          ELSE jobrun_job.largest_now END
"""

_FOLD = """
INSERT INTO jobrun_skip (job, key, reason, detail, at, times, last_at)
VALUES (:job, :key, :reason, :detail, :at, 1, :at)
    ON CONFLICT (job, reason, coalesce(key, ''), coalesce(detail, '')) DO UPDATE
   SET times = jobrun_skip.times + 1, last_at = :at
"""

# INDEXED BY: SQLite can't know how few are unfinished, and walks through all of the job's windows.
_IDLE = """
SELECT schedule, first, watermark, next, paused_at, overrides, spec,
       EXISTS (SELECT 1 FROM jobrun_window INDEXED BY jobrun_window_unfinished
                WHERE job = name AND state IN ('running', 'failed', 'held'))
    OR EXISTS (SELECT 1 FROM jobrun_run INDEXED BY jobrun_run_open
                WHERE job = name AND outcome IS NULL)
  FROM jobrun_job WHERE name = ?
"""


def idle_row(database: Database, job: str) -> tuple[Any, ...] | None:
    """(schedule, first, watermark, next, paused_at, overrides, spec, unfinished); None: never seen.

    `unfinished` is 1 where a window is running, failed or held, or a run has no outcome: then it
    takes the lock to say what is left to do.
    """
    found = database.rows(_IDLE, (job,))
    return found[0] if found else None


def note_idle(database: Database, job: str, at: int, detail: str | None = None) -> bool:
    """Record that a call at `at` found no closed window; False if the ledger stayed busy."""
    return record_skip(database, job, "no-closed-window", None, detail, at, believed=True)


def record_skip(
    database: Database,
    job: str,
    reason: str,
    key: str | None,
    detail: str | None,
    at: int,
    believed: bool = False,
    also: Callable[[int], None] | None = None,
) -> bool:
    """Record a skip and that the job was called; `believed` is whether `at` is a sound clock.

    `also` is called with `at`, to write what goes with it.

    A repeat of the same reason, key and detail only counts up: `at` stays the first time, `last_at`
    is the latest. Raises DamagedLedger: that does not pass by itself, and has to be told.
    """
    skip = {"job": job, "reason": reason, "key": key, "detail": detail}
    try:
        with database.writing(PATIENCE, job=job):
            database.change(_SEEN, {"job": job, "at": iso(at), "believed": believed})
            database.change(_FOLD, {**skip, "at": iso(at)})
            if also is not None:
                also(at)
    except DamagedLedger:
        raise
    except JobrunError:
        return False
    return True
