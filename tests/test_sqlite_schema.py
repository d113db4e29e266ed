"""Migrations: the same schema whichever way, once, together with their number."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jobrun import sqlite_file, sqlite_schema
from jobrun.errors import LedgerError
from jobrun.sqlite_database import Database, ledger_version
from tests.ledger_calls import TEN, run, sqlite
from tests.sqlite_programs import child, end_of, sql

# A later version as it may come one day: a new column, and a table made anew.
LATER = """
ALTER TABLE jobrun_job ADD COLUMN owner TEXT;

CREATE TABLE jobrun_event_new (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, job TEXT NOT NULL REFERENCES jobrun_job (name),
    key TEXT, kind TEXT NOT NULL, detail TEXT, told TEXT
);
INSERT INTO jobrun_event_new SELECT id, at, job, key, kind, detail, NULL FROM jobrun_event;
DROP TABLE jobrun_event;
ALTER TABLE jobrun_event_new RENAME TO jobrun_event;
"""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database."""
    path = tmp_path / "jobrun.db"
    path.touch()
    with closing(Database(str(path))) as database:
        yield database


def schema(database: Database) -> list[tuple[object, ...]]:
    return database.rows("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")


def test_the_version_is_the_number_of_migrations() -> None:
    """They are numbered from 1 without a hole, and the program knows how many there are."""
    names = sorted(name for name in os.listdir(sqlite_schema.FOLDER) if name.endswith(".sql"))
    assert [int(name[:4]) for name in names] == list(range(1, sqlite_file.VERSION + 1))


@pytest.mark.parametrize("version", range(sqlite_file.VERSION + 1))
def test_migrated_from_any_version_is_the_fresh_schema(tmp_path: Path, version: int) -> None:
    """A ledger that was made by any release ends where a new one begins."""
    fresh = tmp_path / "fresh.db"
    sqlite_file.connect(str(fresh))[0].close()
    old = tmp_path / "old.db"
    old.touch()
    with closing(Database(str(old))) as database:
        sqlite_schema.migrate(database, True, sqlite_schema.scripts()[:version])
        assert ledger_version(database) == version
    sqlite_file.connect(str(old))[0].close()
    with closing(Database(str(fresh))) as one, closing(Database(str(old))) as other:
        assert schema(one) == schema(other)


def test_a_later_migration_keeps_the_rows(tmp_path: Path) -> None:
    """Foreign keys are off while tables are made anew, and on again after."""
    with closing(sqlite(tmp_path)) as ledger:
        run(ledger, TEN)
        ledger.skip("j", "paused", None, None, TEN)
    with closing(Database(str(tmp_path / "jobrun.db"))) as database:
        sqlite_schema.migrate(database, True, [*sqlite_schema.scripts(), LATER])
        assert ledger_version(database) == sqlite_file.VERSION + 1
        assert database.rows("SELECT name, owner FROM jobrun_job") == [("j", None)]
        assert database.rows("PRAGMA foreign_keys") == [(1,)]


@pytest.mark.parametrize(
    "broken",
    [
        "CREATE TABLE jobrun_extra (a);\nNO SQL;",
        "CREATE TABLE jobrun_extra (a);\nDELETE FROM jobrun_job;",
    ],
    ids=["no SQL", "rows without a job"],
)
def test_a_migration_that_fails_changes_nothing(tmp_path: Path, broken: str) -> None:
    """It is one transaction with its number, checked before it is committed."""
    with closing(sqlite(tmp_path)) as ledger:
        run(ledger, TEN)
    with closing(Database(str(tmp_path / "jobrun.db"))) as database:
        before = schema(database)
        with pytest.raises(LedgerError):
            sqlite_schema.migrate(database, True, [*sqlite_schema.scripts(), broken])
        assert (schema(database), ledger_version(database)) == (before, sqlite_file.VERSION)


MIGRATE = """
import os
from jobrun.sqlite_database import Database
from jobrun.sqlite_schema import migrate, scripts
database = Database(sys.argv[1])
later = [*scripts(), "CREATE TABLE jobrun_later (a);"]
"""


def test_two_processes_migrate_at_once(tmp_path: Path) -> None:
    """The number is read inside the write lock: one migrates, the other finds it done."""
    path = tmp_path / "jobrun.db"
    path.touch()
    code = (
        MIGRATE + 'print("ready", flush=True); sys.stdin.readline(); migrate(database, True, later)'
    )
    children = [child(code, path) for _ in range(4)]
    for process in children:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in children:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [end_of(process) for process in children] == [(0, "")] * 4
    assert sql(path, "SELECT version, own_file FROM jobrun_meta") == [(sqlite_file.VERSION + 1, 1)]


@pytest.mark.parametrize("at", ["CREATE TRIGGER", "UPDATE jobrun_meta", "COMMIT", "jobrun_later"])
def test_a_crash_in_the_middle_of_a_migration(tmp_path: Path, at: str) -> None:
    """The next one begins where the last finished one ended."""
    path = tmp_path / "jobrun.db"
    path.touch()
    crash = f"""
database.connection.set_trace_callback(lambda text: os._exit(9) if {at!r} in text else None)
migrate(database, True, later)
"""
    assert end_of(child(MIGRATE + crash, path))[0] == 9
    with closing(Database(str(path))) as database:
        assert ledger_version(database) == (sqlite_file.VERSION if at == "jobrun_later" else 0)
    assert end_of(child(MIGRATE + "migrate(database, True, later)", path)) == (0, "")
    assert sql(path, "SELECT version FROM jobrun_meta") == [(sqlite_file.VERSION + 1,)]


def test_statements_are_told_apart(database: Database) -> None:
    """A trigger's body holds semicolons, a comment may hold anything."""
    script = """
-- one; two
CREATE TABLE t (a); -- three;
CREATE TRIGGER u AFTER INSERT ON t BEGIN SELECT 1; SELECT ';'; END;
"""
    found = list(sqlite_schema.statements(script))
    assert [re.sub(r"--.*", "", statement).split()[1] for statement in found] == [
        "TABLE",
        "TRIGGER",
    ]
    for statement in found:
        database.change(statement)


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 37), reason="STRICT is what it looks for")
def test_the_schema_is_for_old_sqlite_too() -> None:
    """3.34 is the oldest that jobrun works with: no STRICT, no RETURNING, no unixepoch()."""
    text = "".join(sqlite_schema.scripts())
    assert not re.search(r"\b(STRICT|RETURNING|unixepoch|->>)\b", text)


def test_no_statement_is_left_half(tmp_path: Path) -> None:
    """The last statement of every migration ends with its semicolon, or it would not be run."""
    for script in sqlite_schema.scripts():
        joined = "".join(sqlite_schema.statements(script))
        assert joined.strip() == script.strip()
