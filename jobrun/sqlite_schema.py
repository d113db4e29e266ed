"""Bring a ledger file to this program's version of the schema.

Migrations are the numbered files of schema/sqlite/. Each is committed together with its number, and
the number is read inside the write transaction: of two processes that start at midnight on a new
version one migrates, the other finds it done. Nothing here uses `executescript`, which commits.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence

from jobrun.errors import LedgerError
from jobrun.sqlite_database import Database, ledger_version

FOLDER = os.path.join(os.path.dirname(__file__), "schema", "sqlite")


def scripts() -> list[str]:
    """The text of every migration, in order: the first one makes version 1."""
    try:
        names = sorted(name for name in os.listdir(FOLDER) if name.endswith(".sql"))
        return [_read(os.path.join(FOLDER, name)) for name in names]
    except OSError as error:
        raise LedgerError(
            f"{error.filename or FOLDER}, a file of jobrun's own, can't be read: {error.strerror}",
            "ulimit -n for too many open files; else install jobrun anew",
        ) from error


def migrate(database: Database, own: bool, migrations: Sequence[str] | None = None) -> None:
    """Run what the file has not seen yet; `own` is stored with the first one."""
    migrations = scripts() if migrations is None else migrations
    # A migration may have to make a table anew. The switch does nothing inside a transaction; each
    # one is checked as a whole before it is committed.
    database.change("PRAGMA foreign_keys = OFF")
    try:
        while _migrate_once(database, own, migrations):
            pass
    finally:
        database.change("PRAGMA foreign_keys = ON")


def statements(script: str) -> Iterator[str]:
    """The statements of a script, each ends with its line; triggers have semicolons inside."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _migrate_once(database: Database, own: bool, migrations: Sequence[str]) -> bool:
    with database.writing() as transaction:
        version = ledger_version(database)
        if version >= len(migrations):
            transaction.roll_back()
            return False
        for statement in statements(migrations[version]):
            database.change(statement)
        if version == 0:
            database.change("UPDATE jobrun_meta SET own_file = ?", (own,))
        database.change("UPDATE jobrun_meta SET version = ?", (version + 1,))
        _check_references(database, version + 1)
    return True


def damage(database: Database) -> Iterator[str]:
    """What SQLite itself finds in the file; a line a problem."""
    lines = [f"damaged: {line}" for (line,) in database.rows("PRAGMA integrity_check")]
    yield from (lines if lines != ["damaged: ok"] else broken_references(database))


def broken_references(database: Database) -> Iterator[str]:
    """Rows that refer to rows that are missing; of our tables only, the user's may be large."""
    tables = (
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'jobrun$_%' ESCAPE '$'"
    )
    for (name,) in database.rows(tables):
        for table, row, parent, _ in database.rows(f"PRAGMA foreign_key_check({name})"):
            yield f"{table}: row {row} refers to a row of {parent} that is missing"


def _check_references(database: Database, version: int) -> None:
    for broken in broken_references(database):
        raise LedgerError(
            f"ledger {database.path}: can't become version {version}: {broken}",
            f"put a copy back, or sqlite3 {database.path} 'PRAGMA foreign_key_check'",
        )


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as script:
        return script.read()
