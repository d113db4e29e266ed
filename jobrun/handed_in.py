"""The record as it will be once this machine has handed in what it keeps of it (replay.py): for who
only looks, and must not take for lost what has ended, and is known here.

What else comes of an end is left to that: values for other jobs, a pause by --pause-after, what
--lookback goes back to.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobrun import process, rows, schedule
from jobrun.ledger_end import end_state, read_before
from jobrun.ledger_postgres import PostgresLedger
from jobrun.rows import Block, JobRow, Result, RunRow, WindowRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from jobrun.ledger_values import Row
    from jobrun.outbox import Found, Parcel

_DONE = (*rows.FINISHED, rows.GAP)


class HandedIn(PostgresLedger):
    """On the connection of `ledger`. Of what is `found` in the outbox that counts which would be
    taken: its run has no end on record, its call is gone, and nobody has been since."""

    def __init__(self, ledger: PostgresLedger, found: Iterable[Found]) -> None:
        super().__init__(ledger.database, ledger.created, None)
        self.skew = ledger.skew
        self._ends: dict[int, Parcel] = {}  # by run id
        self._of_windows: dict[tuple[str | None, int | None], Result] = {}  # by key and token
        for parcel in [each.parcel for each in found if each.parcel is not None]:
            self._take(parcel)

    def ends(self, job: str) -> list[Parcel]:
        return [parcel for parcel in self._ends.values() if parcel.result.job == job]

    def job(self, name: str) -> JobRow | None:
        row = super().job(name)
        return None if row is None else self._advanced(row)

    def jobs(self) -> list[JobRow]:
        return [self._advanced(row) for row in super().jobs()]

    def open_runs(self, job: str | None = None) -> list[RunRow]:
        return [run for run in super().open_runs(job) if run.outcome is None]

    def unfinished(self, job: str) -> list[WindowRow]:
        return [row for row in super().unfinished(job) if row.state in rows.UNFINISHED]

    def failures(self, job: str | None = None, limit: int = -1) -> list[WindowRow]:
        known = super().failures(job)
        results = [parcel.result for parcel in self._ends.values()]
        ended = [self.window(each.job, each.key) for each in results if each.key is not None]
        more = [row for row in ended if row is not None and job in (None, row.job)]
        known += [row for row in more if row.state in rows.UNDONE and row not in known]
        known.sort(key=lambda row: (row.changed_at, row.key))
        return known if limit < 0 else known[-limit:]

    def _query(self, kind: type[Row], sql: str, **values: object) -> list[Row]:
        found: list[Any] = super()._query(kind, sql, **values)
        if kind is RunRow:
            found = [self._ended(row) for row in found]
        elif kind in (WindowRow, Block):
            found = [self._settled(row) for row in found]
        return found

    def _take(self, parcel: Parcel) -> None:
        result = parcel.result
        row = self.run(result.run_id)
        if row is None or not parcel.is_of(row) or process.wrapper_alive(row):
            return
        before = read_before(self._database, result.job, result.key, result.run_id)
        if not before.is_recorded and before.is_held_by(result):
            self._ends[result.run_id] = parcel
            self._of_windows[result.key, result.token] = result

    def _ended(self, run: RunRow) -> RunRow:
        parcel = self._ends.get(run.id)
        if parcel is None:
            return run
        result = parcel.result
        return run._replace(
            ended=result.ended,
            took=result.took,
            outcome=result.outcome,
            exit_code=result.exit_code,
            signal=result.signal,
            output_bytes=result.output_bytes,
            why=result.why,
        )

    def _settled(self, row: WindowRow | Block) -> WindowRow | Block:
        result = self._of_windows.get((row.key, row.token))
        if result is None or row.state != rows.RUNNING:  # its command may have marked it
            return row
        state = end_state(result)
        due = None if state == rows.PROCESSED else result.next_attempt_at
        if isinstance(row, Block):
            return row._replace(state=state, next_attempt_at=due)
        return row._replace(
            state=state,
            next_attempt_at=due,
            failures=row.failures + (result.outcome in rows.FAILURES),
            reason=None if state == rows.PROCESSED else result.outcome,
            changed_at=result.ended,
        )

    def _advanced(self, row: JobRow) -> JobRow:
        """With the watermark where it belongs then."""
        mark = row.watermark
        if mark is None or row.schedule is None or not self.ends(row.name):
            return row
        for block in self.blocks(row.name, mark):
            if block.start > mark or block.state not in _DONE:
                break
            mark = block.end
        if mark == row.watermark:
            return row
        return row._replace(watermark=mark, next=schedule.parse(row.schedule).next(mark))
