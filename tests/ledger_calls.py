"""Calls of one job, j with windows of an hour, on any ledger: short words for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import connect
from typing import Any
from uuid import uuid4

from jobrun import rows
from jobrun.instants import HOUR, from_iso, iso
from jobrun.ledger import Ledger
from jobrun.ledger_sqlite import open_ledger
from jobrun.rows import Caller, Claim, Claimed, Finished, JobRow, Opened, Opening, Result

TEN = from_iso("2026-09-04T10:00:00+00:00")
ELEVEN, TWELVE, NOW = TEN + HOUR, TEN + 2 * HOUR, TEN + 2 * HOUR + 300
CALLER = Caller("db1", 4711, "etl", False)

# Once the window of 10:00 is claimed: each makes a row that can't be.
IMPOSSIBLE = {
    "end before start": "UPDATE jobrun_window SET \"end\" = '2026-09-04T09:00:00+00:00'",
    "no such state": "UPDATE jobrun_window SET state = 'done'",
    "another key than its start": "UPDATE jobrun_window SET key = 'j:x'",
    "a key of another job": "UPDATE jobrun_window SET start = NULL, \"end\" = NULL, key = 'x:y'",
    "half a window": 'UPDATE jobrun_window SET "end" = NULL',
    "a start that never was": "UPDATE jobrun_window SET attempts = 0, failures = 0",
    "more failures than attempts": "UPDATE jobrun_window SET failures = 2",
    "processed and due": "UPDATE jobrun_window"
    " SET next_attempt_at = changed_at, state = 'processed'",
    "a watermark without a grid": "UPDATE jobrun_job SET schedule = NULL",
    "a next that is past": "UPDATE jobrun_job SET next = watermark",
    "a running run with an exit code": "UPDATE jobrun_run SET exit_code = 0",
    "a lost run with an end": "UPDATE jobrun_run SET outcome = 'lost', ended = started",
    "an end without an outcome": "UPDATE jobrun_run SET ended = started",
    "a run of no window": "UPDATE jobrun_run SET key = 'j:x'",
    "two windows of one start": "INSERT INTO jobrun_window SELECT job, 'j:x', start, \"end\","
    " state, attempts, failures, windows, partial, NULL, token, NULL, changed_at, counted_in"
    " FROM jobrun_window",
}

Again = Callable[[], Ledger]


def sqlite(folder: Path) -> Ledger:
    return open_ledger(str(folder / "jobrun.db"), CALLER)


@contextmanager
def in_a_file(folder: Path) -> Iterator[Again]:
    """One ledger of SQLite's."""
    with _opened(lambda: sqlite(folder)) as again:
        yield again


@contextmanager
def in_a_schema(server: str) -> Iterator[Again]:
    """One ledger of PostgreSQL's."""
    from jobrun import ledger_postgres

    with (
        schema_of(server) as address,
        _opened(lambda: ledger_postgres.open_ledger(address, CALLER)) as again,
    ):
        yield again


_SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'"


@contextmanager
def schema_of(server: str) -> Iterator[str]:
    """The address of a new schema, where no other test looks; name spaces made meanwhile go too."""
    import psycopg

    schema = f"t{uuid4().hex}"

    def rows(statement: str) -> list[tuple[str]]:
        with closing(psycopg.connect(server, autocommit=True)) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    before = rows(_SCHEMAS)
    rows(f"CREATE SCHEMA {schema}")
    try:
        yield f"{server}?options=-csearch_path%3D{schema}"
    finally:
        for (name,) in set(rows(_SCHEMAS)) - set(before):
            rows(f'DROP SCHEMA "{name}" CASCADE')


@contextmanager
def _opened(open_: Again) -> Iterator[Again]:
    ledgers: list[Ledger] = []

    def again() -> Ledger:
        ledgers.append(open_())
        return ledgers[-1]

    try:
        yield again
    finally:
        for ledger in ledgers:
            ledger.close()


def mark(ledger: Ledger, key: str, token: int) -> None:
    """As a command of the job j does, in its own connection."""
    if ledger.address.startswith("postgresql:"):
        import psycopg

        with closing(psycopg.connect(ledger.address, autocommit=True)) as server:
            server.execute("SELECT jobrun_done('j', %s, %s)", (key, token))
    else:
        with closing(connect(ledger.address, isolation_level=None)) as file:
            done = "INSERT INTO jobrun_done (job, key, token) VALUES ('j', ?, ?)"
            file.execute(done, (key, token))


def hourly(instant: int) -> int:
    """The grid of the tests."""
    return instant - instant % HOUR + HOUR


def claim(start: int, hours: int = 1, **more: Any) -> Claim:
    """The claim of a window of the job j."""
    window = Claim(
        key=f"j:{iso(start)}",
        start=start,
        end=start + hours * HOUR,
        kind=rows.NEW,
        partial=False,
        windows=hours,
        child_pid=4712,
        birth="boot 1 2",
        started=NOW,
    )
    return window._replace(**more)


def result(claimed: Claimed, key: str | None, **more: Any) -> Result:
    """The result of a run of the job j that succeeded."""
    plain = Result(
        job="j",
        run_id=claimed.run_id,
        token=1,
        key=key,
        outcome=rows.SUCCEEDED,
        exit_code=0,
        signal=None,
        ended=NOW + 2,
        took=1.5,
        output_bytes=10,
        next_attempt_at=None,
        told=None,
        told_at=None,
    )
    return plain._replace(**more)


def begin(ledger: Ledger, claimed: Claim | None = None, **more: Any) -> Opened:
    """Open with the token as it is; a new job gets the watermark 10:00."""
    job = ledger.job("j")
    opening = Opening("j", job.token if job else 0, NOW, schedule="every 1h", watermark=TEN)
    opened = ledger.open(opening._replace(**more), claimed, hourly)
    assert opened is not None
    return opened


def run(ledger: Ledger, start: int, outcome: str = rows.SUCCEEDED, **more: Any) -> Finished:
    """One window of one call, from its opening to its end."""
    first = claim(start, **{name: more.pop(name) for name in ("kind", "hours") if name in more})
    opened = begin(ledger, first)
    assert opened.claimed is not None
    ended = {"token": opened.token, "outcome": outcome, "exit_code": int(outcome != rows.SUCCEEDED)}
    return ledger.finish(result(opened.claimed, first.key, **{**ended, **more}), None, hourly)


def state(ledger: Ledger, start: int) -> tuple[str, int, int] | None:
    """(state, attempts, failures) of a window."""
    window = ledger.window("j", f"j:{iso(start)}")
    return None if window is None else (window.state, window.attempts, window.failures)


def watermark(ledger: Ledger) -> int | None:
    return job_row(ledger).watermark


def job_row(ledger: Ledger) -> JobRow:
    """The job, which is there."""
    job = ledger.job("j")
    assert job is not None
    return job
