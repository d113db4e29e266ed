"""What a person may want to be told of, as rows of the SQLite ledger; part of a transaction each.

A job that was fine and fails is one event, however often it fails; one more when nothing of it is
failed any longer, and nothing that had failed is just being tried again. A failure that the call
itself makes good, by trying again, is none; where its wait for that, or the next try, is ended, it
is one after all.
"""

from __future__ import annotations

from jobrun.instants import iso
from jobrun.ledger_sqlite_windows import add_event
from jobrun.rows import DEAD, FAILED, FAILED_RUN, FAILURES, PROCESSED, RECOVERED, SUCCEEDED, Result
from jobrun.sqlite_database import Database

_FAILS = """
UPDATE jobrun_job SET trouble_since = :now WHERE name = :job AND trouble_since IS NULL
"""

_HAS_RECOVERED = """
UPDATE jobrun_job SET trouble_since = NULL
 WHERE name = :job AND trouble_since IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM jobrun_window INDEXED BY jobrun_window_unfinished
                    WHERE job = :job AND state IN ('running', 'failed', 'held')
                      AND (state = 'failed' OR (state = 'running' AND failures > 0)))
"""


def note_end(database: Database, result: Result, state: str | None, marked: bool) -> None:
    """The events that the end of a run makes; `state` is what its window has come to."""
    how = _how(result)
    if result.outcome == SUCCEEDED or marked:
        note_success(database, result.job, result.key, result.ended, how)
        return
    # A rerun that fails leaves the success before it in place.
    if result.outcome not in FAILURES or state == PROCESSED or result.goes_on:
        return
    if database.change(_FAILS, {"job": result.job, "now": iso(result.ended)}):
        add_event(database, result.job, result.ended, result.key, FAILED, how)
    if state == DEAD:
        add_event(database, result.job, result.ended, result.key, DEAD, how)


def note_success(database: Database, job: str, key: str | None, at: int, how: str) -> None:
    """The event that the job has recovered, where it had failed and nothing of it has any longer;
    `how` the run ended."""
    if database.change(_HAS_RECOVERED, {"job": job}):
        add_event(database, job, at, key, RECOVERED, how)


def _how(result: Result) -> str:
    """exit 3, run=12"""
    code = result.exit_code
    what = result.outcome if code is None or result.outcome != FAILED_RUN else f"exit {code}"
    return f"{what}, run={result.run_id}"
