"""Values of a ledger changed behind the back of its schema, as a bit that turns changes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def unguarded(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that no CHECK, NOT NULL or FOREIGN KEY keeps from anything; UNIQUE ones do."""
    with _open(path) as connection:
        # An index is a table's own or has SQL of its own; only that of tables is made anew.
        tables = connection.execute(
            "SELECT sql, name FROM sqlite_master WHERE type = 'table' AND name LIKE 'jobrun_%'"
        ).fetchall()
        loose = [
            (sql.replace("TEXT NOT NULL", "TEXT").replace("INTEGER NOT NULL", "INTEGER"), name)
            for sql, name in tables
        ]
    write_schema(path, loose)
    try:
        with _open(path) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            yield connection
    finally:
        write_schema(path, tables)


def put(path: Path, table: str, column: str, value: object, where: str = "1") -> None:
    """Give that column another value; None is NULL."""
    with unguarded(path) as connection:
        connection.execute(f'UPDATE {table} SET "{column}" = ? WHERE {where}', (value,))


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def write_schema(path: Path, tables: list[tuple[str, str]]) -> None:
    """The SQL of tables by name, as the next program that opens the file will read it."""
    with _open(path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany("UPDATE sqlite_master SET sql = ? WHERE name = ?", tables)
