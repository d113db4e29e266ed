"""The reading half of a ledger in a database.

Every call fetches all of its rows at once: no statement, and with it no read lock, stays open while
a command runs. `limit` counts rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobrun.instants import iso
from jobrun.ledger_values import columns, damaged, rows_of
from jobrun.rows import (
    RUNNING,
    VOID,
    Block,
    EventRow,
    Gap,
    HostRow,
    JobRow,
    RunRow,
    SkipRow,
    ValueRow,
    WindowRow,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.database import Database
    from jobrun.ledger_values import Row

ABOUT = 1000  # rows of one kind about one key
PAGE = 500
ALL = 2**62  # rows
_LATEST_RUNS = 200  # of which the usual duration is taken

# Neither windows nor gaps overlap (void ones apart), so the latest one that starts by :since is the
# only one that can reach beyond it: both searches begin there, by index.
_BLOCKS = """
SELECT start, "end", state, key, next_attempt_at, windows, partial, token FROM jobrun_window
 WHERE job = :job AND state <> 'void' AND "end" > :since
   AND start >= coalesce((SELECT max(start) FROM jobrun_window
                           WHERE job = :job AND state <> 'void' AND start <= :since), :since)
UNION ALL
SELECT start, "end", 'gap', NULL, NULL, coalesce(windows, 1), false, NULL FROM jobrun_gap
 WHERE job = :job AND NOT void AND "end" > :since
   AND start >= coalesce((SELECT max(start) FROM jobrun_gap
                           WHERE job = :job AND NOT void AND start <= :since), :since)
 ORDER BY start LIMIT :page
"""

_PROCESSED = """
SELECT start, "end", state, key, next_attempt_at, windows, partial, token FROM jobrun_window
 WHERE job = :job AND start < :below AND state = 'processed' ORDER BY start DESC LIMIT :limit
"""

_COUNT_BLOCKS = """
SELECT (SELECT coalesce(sum(windows), 0) FROM jobrun_window
         WHERE job = :job AND state <> 'void' AND start >= :since AND start < :until)
     + (SELECT coalesce(sum(windows), 0) FROM jobrun_gap
         WHERE job = :job AND NOT void AND start >= :since AND start < :until)
"""

_WINDOWS = """
SELECT {columns} FROM jobrun_window
 WHERE job = :job AND start < :until AND "end" > :since
   AND start >= coalesce((SELECT max(start) FROM jobrun_window
                           WHERE job = :job AND state <> 'void' AND start <= :since), :since)
UNION
SELECT {columns} FROM jobrun_window
 WHERE job = :job AND state = 'void' AND start < :until AND "end" > :since
 ORDER BY start LIMIT :limit
"""

_FAILURES = """
SELECT {columns} FROM jobrun_window INDEXED BY jobrun_window_unfinished
 WHERE state IN ('running', 'failed', 'held') AND state <> 'running' {where}
UNION ALL
SELECT {columns} FROM jobrun_window INDEXED BY jobrun_window_dead
 WHERE state = 'dead' {where}
 ORDER BY changed_at DESC, key DESC LIMIT :limit
"""

_GAPS = """
SELECT {columns} FROM jobrun_gap
 WHERE job = :job AND NOT void AND start < :until AND "end" > :since
   AND start >= coalesce((SELECT max(start) FROM jobrun_gap
                           WHERE job = :job AND NOT void AND start <= :since), :since)
UNION ALL
SELECT {columns} FROM jobrun_gap
 WHERE job = :job AND void AND start < :until AND "end" > :since
 ORDER BY start
"""


class Reads:
    """What can be read; SqlLedger adds what can be written."""

    def __init__(self, database: Database, created: bool) -> None:
        self._database = database
        self._created = created

    @property
    def address(self) -> str:
        return self._database.address

    @property
    def created(self) -> bool:
        return self._created

    def job(self, name: str) -> JobRow | None:
        return _one(self._select(JobRow, "jobrun_job WHERE name = :name", name=name))

    def jobs(self) -> list[JobRow]:
        return self._select(JobRow, "jobrun_job ORDER BY name")

    def overrides(self, job: str) -> str | None:
        found = self._database.rows("SELECT overrides FROM jobrun_job WHERE name = ?", (job,))
        return found[0][0] if found else None

    def idle_row(self, job: str) -> tuple[object, ...] | None:
        from jobrun.ledger_skip import idle_row

        return idle_row(self._database, job)

    def window(self, job: str, key: str) -> WindowRow | None:
        source = "jobrun_window WHERE job = :job AND key = :key"
        return _one(self._select(WindowRow, source, job=job, key=key))

    def taken(self, job: str, planned: Mapping[str, int]) -> set[str]:
        marks = ", ".join("?" * len(planned))
        sql = f"SELECT key, token, state FROM jobrun_window WHERE job = ? AND key IN ({marks})"
        return {
            key
            for key, token, state in self._database.rows(sql, (job, *planned))
            if state == RUNNING or (state != VOID and token != planned[key])
        }

    def unfinished(self, job: str) -> list[WindowRow]:
        source = (
            "jobrun_window INDEXED BY jobrun_window_unfinished WHERE job = :job"
            " AND start IS NOT NULL AND state IN ('running', 'failed', 'held') ORDER BY start"
        )
        return self._select(WindowRow, source, job=job)

    def blocks(self, job: str, since: int) -> Iterator[Block]:
        end = 0
        while True:
            page = self._query(Block, _BLOCKS, job=job, since=iso(since), page=PAGE)
            for block in page:
                if block.start < end:
                    before = f"{job}: a window or gap begins at {iso(block.start)}, before"
                    raise damaged(self._database, f"{before} the one below it ends at {iso(end)}")
                end = block.end
                yield block
            if len(page) < PAGE:
                return
            since = end

    def processed(self, job: str, below: int, limit: int) -> list[Block]:
        return self._query(Block, _PROCESSED, job=job, below=iso(below), limit=limit)[::-1]

    def count_blocks(self, job: str, since: int, until: int) -> int:
        within = {"job": job, "since": iso(since), "until": iso(until)}
        return int(self._database.rows(_COUNT_BLOCKS, within)[0][0])

    def open_runs(self, job: str | None = None) -> list[RunRow]:
        where = "" if job is None else "r.job = :job AND "
        return self._runs(f"{where}r.outcome IS NULL", "r.id", ALL, job=job)

    def run(self, run_id: int) -> RunRow | None:
        return _one(self._runs("r.id = :id", "r.id", 1, id=run_id))

    def runs(
        self,
        job: str | None = None,
        key: str | None = None,
        since: int | None = None,
        limit: int = 20,
        until: int | None = None,
        host: str | None = None,
    ) -> list[RunRow]:
        if key is not None:
            job = job or key.partition(":")[0]  # for the index
        asked = {
            "job": job,
            "key": key,
            "since": None if since is None else iso(since),
            "until": None if until is None else iso(until),
            "host": host,
        }
        conditions = {
            "job": "r.job = :job",
            "key": "r.key = :key",
            "since": "r.started >= :since",
            "until": "r.started < :until",
            "host": "r.host = :host",
        }
        where = [conditions[name] for name, value in asked.items() if value is not None]
        return self._runs(" AND ".join(where) or "true", "r.id DESC", limit, **asked)

    def windows(self, job: str, since: int, until: int, limit: int = 10_000) -> list[WindowRow]:
        sql = _WINDOWS.format(columns=columns(WindowRow))
        return self._query(WindowRow, sql, job=job, since=iso(since), until=iso(until), limit=limit)

    def keys(self, job: str, limit: int = 100) -> list[WindowRow]:
        source = (
            "jobrun_window WHERE job = :job AND start IS NULL"
            " ORDER BY changed_at DESC, key LIMIT :limit"
        )
        return self._select(WindowRow, source, job=job, limit=limit)

    def failures(self, job: str | None = None, limit: int = -1) -> list[WindowRow]:
        where = "" if job is None else "AND job = :job"
        sql = _FAILURES.format(columns=columns(WindowRow), where=where)
        return self._query(WindowRow, sql, job=job, limit=ALL if limit < 0 else limit)[::-1]

    def gaps(self, job: str, since: int, until: int) -> list[Gap]:
        sql = _GAPS.format(columns=columns(Gap))
        return self._query(Gap, sql, job=job, since=iso(since), until=iso(until))

    def values(self, job: str, key: str) -> dict[str, str]:
        source = "jobrun_value WHERE job = :job AND key = :key ORDER BY name"
        left = self._select(ValueRow, source, job=job, key=key)
        return {row.name: row.value for row in left}

    def skips(self, job: str | None = None, limit: int = 20) -> list[SkipRow]:
        where = "true" if job is None else "job = :job"
        source = f"jobrun_skip WHERE {where} ORDER BY last_at DESC, id DESC LIMIT :limit"
        return self._select(SkipRow, source, job=job, limit=limit)

    def events(
        self, job: str | None = None, limit: int = 20, kind: str | None = None
    ) -> list[EventRow]:
        where = "true" if job is None else "job = :job"
        where += "" if kind is None else " AND kind = :word"
        source = f"jobrun_event WHERE {where} ORDER BY id DESC LIMIT :limit"
        return self._select(EventRow, source, job=job, word=kind, limit=limit)

    def hosts(self, limit: int = -1) -> list[HostRow]:
        source = "jobrun_host ORDER BY last_seen DESC, host LIMIT :limit"
        return self._select(HostRow, source, limit=ALL if limit < 0 else limit)

    def host(self, name: str) -> HostRow | None:
        return _one(self._select(HostRow, "jobrun_host WHERE host = :name", name=name))

    def skips_about(self, job: str, key: str, since: int, until: int) -> list[SkipRow]:
        meets = "reason <> 'no-closed-window' AND at <= :until AND last_at >= :since"
        found = self._about(SkipRow, "jobrun_skip", meets, job, key, since, until)
        return sorted(found, key=lambda row: (row.at, row.id))

    def events_about(self, job: str, key: str, since: int, until: int) -> list[EventRow]:
        meets = "at BETWEEN :since AND :until"
        found = self._about(EventRow, "jobrun_event", meets, job, key, since, until)
        return sorted(found, key=lambda row: row.id)

    def usual(self, job: str) -> float | None:
        latest = "SELECT took, outcome FROM jobrun_run WHERE job = ? ORDER BY id DESC LIMIT ?"
        # BETWEEN: what has rotted to text, or to nothing, is no part of an estimate.
        successful = (
            f"SELECT took FROM ({latest}) AS latest"
            " WHERE outcome = 'succeeded' AND took BETWEEN 0 AND 1e12 LIMIT 21"
        )
        took = sorted(row[0] for row in self._database.rows(successful, (job, _LATEST_RUNS)))
        return took[len(took) // 2] if took else None

    def close(self) -> None:
        self._database.close()

    def _runs(self, where: str, order: str, limit: int, **values: object) -> list[RunRow]:
        names = ", ".join(
            f'w."{name}"' if name in ("start", "end") else f"r.{name}" for name in RunRow._fields
        )
        sql = (
            f"SELECT {names} FROM jobrun_run AS r"
            " LEFT JOIN jobrun_window AS w ON w.job = r.job AND w.key = r.key"
            f" WHERE {where} ORDER BY {order} LIMIT :limit"
        )
        return self._query(RunRow, sql, limit=limit, **values)

    def _about(
        self, kind: type[Row], table: str, meets: str, job: str, key: str, since: int, until: int
    ) -> list[Row]:
        """Rows of the key, and rows of no key that meet a stretch of time."""
        within = {"job": job, "key": key, "since": iso(since), "until": iso(until)}
        found: list[Row] = []
        for which in ("key = :key", f"key IS NULL AND {meets}"):
            source = f"{table} WHERE job = :job AND {which} ORDER BY id LIMIT :limit"
            found += self._select(kind, source, limit=ABOUT, **within)
        return found

    def _select(self, kind: type[Row], source: str, **values: object) -> list[Row]:
        """Rows whose fields are columns of one table."""
        return self._query(kind, f"SELECT {columns(kind)} FROM {source}", **values)

    def _query(self, kind: type[Row], sql: str, **values: object) -> list[Row]:
        return rows_of(self._database, kind, sql, values)


def _one(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None
