"""Runs as rows of the ledger: begun, ended; each call is part of a transaction."""

from __future__ import annotations

from jobrun.instants import iso
from jobrun.rows import Caller, Claim, Claimed, Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.database import Database

_START_RUN = """
INSERT INTO jobrun_run (job, key, kind, attempt, token, host, pid, child_pid, birth, "user",
                        terminal, started, slot, by_hand)
VALUES (:job, :key, :kind, :attempt, :token, :host, :pid, :child_pid, :birth, :user, :terminal,
        :started, :slot, :by_hand)
"""

# A run that was given up for lost, and ends after all, is better known now.
_END_RUN = """
UPDATE jobrun_run
   SET outcome = :outcome, ended = :ended, took = :took, exit_code = :exit_code, signal = :signal,
       output_bytes = :output_bytes, why = :why
 WHERE id = :run_id AND (outcome IS NULL OR outcome = 'lost')
"""

_CLAIMED = """
SELECT r.id, r.attempt, coalesce(w.failures, r.attempt - 1), r.token, r.key
  FROM jobrun_run AS r LEFT JOIN jobrun_window AS w ON w.job = r.job AND w.key = r.key
 WHERE r.job = ? AND r.outcome IS NULL AND r.child_pid = ? AND r.birth = ?
"""

_LOSE = """
UPDATE jobrun_run SET outcome = 'lost' WHERE id = ? AND job = ? AND outcome IS NULL
"""


def start_run(
    database: Database, job: str, token: int, claim: Claim, attempt: int, caller: Caller
) -> int:
    """Its number."""
    run: dict[str, object] = {
        **claim._asdict(),
        **caller._asdict(),
        "started": iso(claim.started),
        "job": job,
        "attempt": attempt,
        "token": token,
    }
    return database.insert(_START_RUN, run)


def claimed_before(database: Database, job: str, claim: Claim) -> Claimed | None:
    """The run that this claim has begun already, told by its process."""
    process = (job, claim.child_pid, claim.birth)
    for id_, attempt, failures, token, key in database.rows(_CLAIMED, process):
        return Claimed(id_, attempt, claim.started, failures, token, key)
    return None


def end_run(database: Database, result: Result, outcome: str) -> None:
    values = {**result._asdict(), "outcome": outcome, "ended": iso(result.ended)}
    database.put(_END_RUN, values)


def lose_run(database: Database, job: str, run_id: int) -> tuple[str | None, int] | None:
    """Its key and its token; None where its end is on record by now."""
    if not database.change(_LOSE, (run_id, job)):
        return None
    ((key, token),) = database.rows("SELECT key, token FROM jobrun_run WHERE id = ?", (run_id,))
    return key, token
