"""How windows and gaps change in the ledger; each call is part of a transaction.

A window's bounds are immutable once it has a row, a window that has a row is never inside a gap,
and the watermark is a cache of the finished prefix.
"""

from __future__ import annotations

from jobrun.instants import from_iso, iso
from jobrun.rows import (
    RETRY,
    SKIPPED,
    Claim,
    Gap,
    Skipped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from jobrun.database import Database
    from jobrun.ledger import NextBoundary

# Those of a row are kept for good, unless it is void.
_BOUNDS = ",\n       ".join(
    f"""{column} = CASE jobrun_window.state WHEN 'void' THEN excluded.{column}
                  ELSE jobrun_window.{column} END"""
    for column in ('"end"', "windows", "partial")
)

# A window that was processed stays so while it is run again: its run row says that it runs.
_CLAIM = f"""
INSERT INTO jobrun_window (job, key, start, "end", state, attempts, failures, windows, partial,
                           token, changed_at)
VALUES (:job, :key, :start, :end, 'running', 1, 0, :windows, :partial, :token, :now)
    ON CONFLICT (job, key) DO UPDATE
   SET state = CASE jobrun_window.state WHEN 'processed' THEN 'processed' ELSE 'running' END,
       {_BOUNDS},
       attempts = jobrun_window.attempts + 1,
       failures = CASE WHEN :anew AND jobrun_window.state = 'dead' THEN 0
                       ELSE jobrun_window.failures END,
       next_attempt_at = NULL,
       reason = NULL,
       token = excluded.token,
       changed_at = excluded.changed_at
"""

_LOSE_WINDOW = """
UPDATE jobrun_window
   SET state = :state, failures = failures + 1, reason = 'lost', next_attempt_at = NULL,
       changed_at = :now
 WHERE job = :job AND key = :key AND state = 'running'
"""

_SKIP_WINDOW = f"""
INSERT INTO jobrun_window (job, key, start, "end", state, attempts, failures, windows, partial,
                           token, reason, changed_at)
VALUES (:job, :key, :start, :end, 'skipped', 0, 0, :windows, :partial, :token, :reason, :now)
    ON CONFLICT (job, key) DO UPDATE
   SET state = 'skipped',
       {_BOUNDS},
       next_attempt_at = NULL, token = excluded.token, reason = excluded.reason,
       changed_at = excluded.changed_at
 WHERE jobrun_window.state <> 'processed'
"""

_ADD_GAP = """
INSERT INTO jobrun_gap (job, start, "end", windows, reason, detail, at, void)
VALUES (:job, :start, :end, :windows, :reason, :detail, :at, false)
"""

# Up from the stored watermark over whatever adjoins and is finished. UNION, not UNION ALL: where
# nothing adjoins the same instant comes again, and that ends it.
_FINISHED_PREFIX = """
WITH RECURSIVE finished (until) AS (
    SELECT watermark FROM jobrun_job WHERE name = :job AND watermark IS NOT NULL
    UNION
    SELECT coalesce(
        (SELECT CASE WHEN "end" > until THEN "end" END FROM jobrun_window
          WHERE job = :job AND start <= until AND state IN ('processed', 'skipped', 'dead')
          ORDER BY start DESC LIMIT 1),
        (SELECT CASE WHEN "end" > until THEN "end" END FROM jobrun_gap
          WHERE job = :job AND start <= until AND NOT void
          ORDER BY start DESC LIMIT 1),
        until)
      FROM finished
)
SELECT max(until) FROM finished
"""

_MOVE_WATERMARK = """
UPDATE jobrun_job
   SET watermark = :watermark,
       next = coalesce(:next, CASE WHEN watermark = :watermark THEN next END)
 WHERE name = :job
"""


def claim_window(database: Database, job: str, token: int, claim: Claim) -> tuple[str, int, int]:
    """Its state, its attempt number, and how often it has failed."""
    if claim.start is not None and claim.end is not None:
        _open_gaps(database, job, claim.start, claim.end, claim.windows)
    values = {
        "job": job,
        "key": claim.key,
        "start": text(claim.start),
        "end": text(claim.end),
        "windows": claim.windows,
        "partial": claim.partial,
        "token": token,
        "anew": claim.kind == RETRY,  # by hand: a call never tries a dead one
        "now": iso(claim.started),
    }
    database.put(_CLAIM, values)
    counted = "SELECT state, attempts, failures FROM jobrun_window WHERE job = ? AND key = ?"
    ((state, attempts, failures),) = database.rows(counted, (job, claim.key))
    return str(state), int(attempts), int(failures)


def lose_window(database: Database, job: str, key: str | None, state: str, now: int) -> None:
    """Its run is lost: it is due at once, or what the call has decided."""
    database.change(_LOSE_WINDOW, {"job": job, "key": key, "state": state, "now": iso(now)})


def void_window(database: Database, job: str, key: str, now: int) -> None:
    """An unfinished window that has not closed: its stretch is free again."""
    database.change(
        "UPDATE jobrun_window SET state = 'void', next_attempt_at = NULL, changed_at = ?"
        " WHERE job = ? AND key = ? AND state IN ('running', 'failed')",
        (iso(now), job, key),
    )


def give_up_window(database: Database, job: str, key: str, reason: str, now: int) -> None:
    """A failed, held or dead one that will not be tried again."""
    database.change(
        "UPDATE jobrun_window SET state = ?, reason = ?, next_attempt_at = NULL, changed_at = ?"
        " WHERE job = ? AND key = ? AND state IN ('failed', 'held', 'dead')",
        (SKIPPED, reason, iso(now), job, key),
    )


def make_due(database: Database, job: str, key: str, now: int) -> None:
    """A unit that is not processed: its next call runs it; of a dead one failures count anew."""
    database.change(
        "UPDATE jobrun_window"
        "   SET failures = CASE state WHEN 'dead' THEN 0 ELSE failures END,"
        "       state = 'failed', next_attempt_at = NULL, changed_at = ?"
        " WHERE job = ? AND key = ? AND state IN ('failed', 'held', 'dead')",
        (iso(now), job, key),
    )


def skip_window(database: Database, job: str, token: int, skipped: Skipped, now: int) -> None:
    """Finished without a run; a window that is processed stays so."""
    start, end = skipped.start, skipped.end
    _open_gaps(database, job, start, end, skipped.windows)
    values = {**skipped._asdict(), "job": job, "start": iso(start), "end": iso(end)}
    database.put(_SKIP_WINDOW, {**values, "token": token, "now": iso(now)})


def add_gap(database: Database, job: str, gap: Gap) -> None:
    values: dict[str, Any] = {**gap._asdict(), "job": job}
    values.update(start=iso(gap.start), end=iso(gap.end), at=iso(gap.at))
    del values["void"]
    database.put(_ADD_GAP, values)


def add_event(
    database: Database, job: str, at: int, key: str | None, kind: str, detail: str | None
) -> None:
    database.put(
        "INSERT INTO jobrun_event (at, job, key, kind, detail) VALUES (?, ?, ?, ?, ?)",
        (iso(at), job, key, kind, detail),
    )


def advance(database: Database, job: str, next_boundary: NextBoundary | None) -> int | None:
    """Move the watermark up over what is finished; where it is now."""
    reached = finished_prefix(database, job)
    if reached is None:
        return None
    following = next_boundary(reached) if next_boundary else None
    values = {"job": job, "watermark": iso(reached), "next": text(following)}
    database.put(_MOVE_WATERMARK, values)
    return reached


def finished_prefix(database: Database, job: str) -> int | None:
    """Where the watermark belongs, by the rows; None where there is none yet."""
    ((reached,),) = database.rows(_FINISHED_PREFIX, {"job": job})
    return None if reached is None else from_iso(reached)


def put_watermark(database: Database, job: str, to: int, now: int) -> None:
    """By hand. Lowering it takes everything that ends after now out of the way."""
    values = {"job": job, "to": iso(to), "now": iso(now)}
    put = "UPDATE jobrun_job SET watermark = :to, next = NULL WHERE name = :job"
    lowered = database.change(f"{put} AND watermark > :to", values)
    if not lowered:
        database.change(put, values)
        return
    after_now = 'WHERE job = :job AND "end" > :now'
    database.change(f"UPDATE jobrun_gap SET void = true {after_now}", values)
    database.change(
        "UPDATE jobrun_window SET state = 'void', next_attempt_at = NULL, changed_at = :now"
        f" {after_now} AND state <> 'running'",
        values,
    )


def text(instant: int | None) -> str | None:
    return None if instant is None else iso(instant)


def _open_gaps(database: Database, job: str, start: int, end: int, windows: int) -> None:
    """Make room for a window's row."""
    while found := _last_gap(database, job, start, end):
        id_, gap = found
        from jobrun.gaps import carve

        database.change("DELETE FROM jobrun_gap WHERE id = ?", (id_,))
        for piece in carve(gap, start, end, windows):
            add_gap(database, job, piece)


def _last_gap(database: Database, job: str, start: int, end: int) -> tuple[int, Gap] | None:
    """The last gap that meets [start, end)."""
    found = database.rows(
        'SELECT id, start, "end", windows, reason, detail, at FROM jobrun_gap'
        " WHERE job = ? AND NOT void AND start < ? ORDER BY start DESC LIMIT 1",
        (job, iso(end)),
    )
    if not found or found[0][2] <= iso(start):
        return None
    id_, first, last, windows, reason, detail, at = found[0]
    return id_, Gap(from_iso(first), from_iso(last), windows, reason, detail, from_iso(at))
