"""The end of a run: how things stand before it, and what it writes; part of a transaction.

What it takes to decide is read at once. Nobody else writes of the job until the transaction ends,
nor does a command that marks its own window (jobrun_done).

Of what a person may want to be told: a job that was fine and fails is one event, however often it
fails; one more when nothing of it is failed any longer, and nothing that had failed is just being
tried again. A failure that the call itself makes good, by trying again, is none; where its wait for
that, or the next try, is ended, it is one after all.
"""

from __future__ import annotations

from jobrun.instants import from_iso, iso
from jobrun.ledger_windows import add_event, text
from jobrun.rows import (
    DEAD,
    FAILED,
    FAILED_RUN,
    FAILURES,
    LOST,
    MARKED,
    NEW,
    PROCESSED,
    RECOVERED,
    RETRY,
    RUNNING,
    SUCCEEDED,
    Pause,
    Result,
)
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.database import Database

_BEFORE = """
SELECT j.token, j.schedule, j.watermark, j.told, j.told_at, j.failing, j.failing_since,
       j.trouble_since, r.kind, r.outcome, r.by_hand, w.state, w.reason, w.token, w.attempts,
       CASE WHEN w.counted_in = j.failing_row THEN 0 ELSE 1 END,
       j.paused_at, j.paused_until, j.paused_by, j.paused_reason
  FROM jobrun_job AS j
  LEFT JOIN jobrun_run AS r ON r.id = :run_id
  LEFT JOIN jobrun_window AS w ON w.job = :job AND w.key = :key
 WHERE j.name = :job
"""

# The command may have marked the window itself (jobrun_done), or it is a rerun: processed stays.
_END_WINDOW = """
UPDATE jobrun_window
   SET next_attempt_at = CASE state WHEN 'processed' THEN next_attempt_at
                                    ELSE :next_attempt_at END,
       reason = CASE state WHEN 'processed' THEN reason ELSE :reason END,
       state = CASE state WHEN 'processed' THEN state ELSE :state END,
       failures = failures + :failed,
       changed_at = :now
 WHERE job = :job AND key = :key AND token = :token AND state IN ('running', 'processed')
"""

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


Values = tuple[tuple[str, str], ...]  # by name


class Before(NamedTuple):
    """How things stand; of the job, the run and its window, None where there is none."""

    token: int | None = None
    schedule: str | None = None
    watermark: str | None = None
    told: str | None = None
    told_at: str | None = None
    failing: int = 0
    failing_since: str | None = None
    trouble_since: str | None = None
    kind: str | None = None
    outcome: str | None = None
    by_hand: bool | None = None
    state: str | None = None
    reason: str | None = None
    window_token: int | None = None
    attempts: int | None = None
    uncounted: int = 0  # 1 where its window is none yet of those that failed one after another
    pause: Pause | None = None

    def is_held_by(self, result: Result) -> bool:
        """Whether nobody has been who could have run the same: by the job's token, or where others
        run beside it by that of its window."""
        if not result.beside:
            return self.token == result.token
        return self.token is not None and (result.key is None or self._is_its_window(result))

    @property
    def is_recorded(self) -> bool:
        """Whether the end of the run is on record: an answer was lost, and it is told once more."""
        return self.outcome not in (None, LOST)

    @property
    def weight(self) -> int | None:
        """See Ledger.weight."""
        # By hand, also None: the run is not there any more.
        if self.by_hand in (None, True) or self.kind not in (None, NEW, RETRY):
            return None
        return self.uncounted

    def is_marked(self, token: int) -> bool:
        """Whether the command of the run with that token has marked the window itself."""
        return self.reason == MARKED and self.window_token == token

    def state_after(self, result: Result) -> str | None:
        """What its window comes to."""
        if self.state == PROCESSED or not self._is_its_window(result):
            return self.state
        return end_state(result)

    def _is_its_window(self, result: Result) -> bool:
        return self.window_token == result.token and self.state in (RUNNING, PROCESSED)


def read_before(database: Database, job: str, key: str | None, run_id: int) -> Before:
    asked = {"job": job, "key": key, "run_id": run_id}
    for *stands, paused_at, until, by, reason in database.rows(_BEFORE, asked):
        pause = None
        if paused_at is not None:
            pause = Pause(from_iso(paused_at), from_iso(until) if until else None, by, reason)
        return Before._make((*stands, pause))
    return Before()


def end_window(database: Database, result: Result) -> None:
    if result.key is None:  # of a plain run there is none
        return
    succeeded = result.outcome == SUCCEEDED
    values = {
        "job": result.job,
        "key": result.key,
        "token": result.token,
        "state": end_state(result),
        "reason": None if succeeded else result.outcome,
        "failed": int(result.outcome in FAILURES),
        "next_attempt_at": None if succeeded else text(result.next_attempt_at),
        "now": iso(result.ended),
    }
    database.put(_END_WINDOW, values)


def end_state(result: Result) -> str:
    if result.outcome == SUCCEEDED:
        return PROCESSED
    return DEAD if result.is_dead else FAILED


def remember(database: Database, result: Result, before: Before) -> None:
    """What has been printed of failures, for the calls to come."""
    told = (result.told, text(result.told_at))
    if told != (before.told, before.told_at):
        put = "UPDATE jobrun_job SET told = ?, told_at = ? WHERE name = ?"
        database.change(put, (*told, result.job))


def keep_values(
    database: Database, job: str, key: str | None, values: Values, before: Before
) -> None:
    """What a command that processed its window has left, in place of what an earlier one did."""
    if key is None:
        return
    if before.attempts != 1 or before.outcome is not None:
        database.put("DELETE FROM jobrun_value WHERE job = ? AND key = ?", (job, key))
    for name, value in values:
        put = "INSERT INTO jobrun_value (job, key, name, value) VALUES (?, ?, ?, ?)"
        database.put(put, (job, key, name, value))


def note_end(database: Database, result: Result, before: Before) -> None:
    """The events that it makes."""
    how = _how(result)
    if result.outcome == SUCCEEDED or before.is_marked(result.token):
        note_success(database, result.job, result.key, result.ended, how, before)
        return
    state = before.state_after(result)
    # A rerun that fails leaves the success before it in place.
    if result.outcome not in FAILURES or state == PROCESSED or result.goes_on:
        return
    if database.change(_FAILS, {"job": result.job, "now": iso(result.ended)}):
        add_event(database, result.job, result.ended, result.key, FAILED, how)
    if state == DEAD:
        add_event(database, result.job, result.ended, result.key, DEAD, how)


def note_success(
    database: Database, job: str, key: str | None, at: int, how: str, before: Before
) -> None:
    """The event that the job has recovered, where it had failed and nothing of it has any longer;
    `how` the run ended."""
    if before.trouble_since is not None and database.change(_HAS_RECOVERED, {"job": job}):
        add_event(database, job, at, key, RECOVERED, how)


def _how(result: Result) -> str:
    """exit 3, run=12"""
    code = result.exit_code
    what = result.outcome if code is None or result.outcome != FAILED_RUN else f"exit {code}"
    return f"{what}, run={result.run_id}"
