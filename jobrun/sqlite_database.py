"""An open SQLite database: short transactions, and errors in words of ours.

Every write is `with database.writing():`, a BEGIN IMMEDIATE that waits for at most 30 seconds.
Every read fetches all of its rows, so no statement stays open. What SQLite has to say becomes an
error of ours, in one line that names the file.

While a connection is open nothing else in this process may open and close the database's file: the
close of any descriptor drops the locks that SQLite holds on it (POSIX). `os.stat` does no harm.

This module is on the idle way: it imports sqlite3, and nothing that sqlite3 has not loaded.
"""

from __future__ import annotations

import os
import sqlite3
import time

from jobrun.database import PATIENCE, as_text
from jobrun.errors import DamagedLedger, JobrunError, LedgerError, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from types import TracebackType
    from typing import Any

    from jobrun.database import Parameters

_ASK_ANEW = 0.05  # seconds
_PAGE = 1000  # rows


class Database:
    """A connection to the file at `path`, which exists."""

    __slots__ = ("_identity", "_patience", "connection", "path")

    def __init__(self, path: str, to_read: bool = False) -> None:
        self.path = path
        self._patience = PATIENCE
        try:
            address = _address_to_read(path) if to_read else path
            self.connection = sqlite3.connect(
                address, timeout=PATIENCE, isolation_level=None, uri=to_read
            )
        except sqlite3.Error as error:
            raise _explained(error, path, PATIENCE) from error
        self._identity = _identity(path)

    @property
    def address(self) -> str:
        return self.path

    def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Every row of a query."""
        return self._execute(sql, parameters)[1]

    def change(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement that writes; how many rows it changed."""
        return self._execute(sql, parameters)[0].rowcount

    def put(self, sql: str, parameters: Parameters = ()) -> None:
        """Run a statement that writes, where nobody asks how many rows it has changed."""
        self._execute(sql, parameters)

    def insert(self, sql: str, parameters: Parameters = ()) -> int:
        """Run an INSERT; the id of its row."""
        return self._execute(sql, parameters)[0].lastrowid or 0

    def writing(
        self,
        patience: float = PATIENCE,
        lost: type[JobrunError] = LedgerError,
        job: str | None = None,
        long: bool = False,
    ) -> Transaction:
        """A transaction; `lost` is the error for a file that has gone in the meantime.

        Whatever its `job`, and however long: one writes at a time.
        """
        return Transaction(self, patience, lost)

    def stream(
        self, sql: str, parameters: Parameters = ()
    ) -> Generator[tuple[Any, ...], None, None]:
        """The rows of a query, a page at a time; a part of `reading` or of a transaction."""
        try:
            cursor = self.connection.execute(sql, parameters)
            while page := cursor.fetchmany(_PAGE):
                yield from page
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise _explained(error, self.path, self._patience) from error

    def reading(self) -> Snapshot:
        """All that is read in it is of one instant; in WAL mode no writer waits for it."""
        return Snapshot(self)

    def as_kept(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """What will be read where these are written."""
        kept = as_text(values)
        assert isinstance(kept, tuple)
        return kept

    def load(self, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write many rows into a table, ids and all. A part of a transaction."""
        places = ", ".join("?" * (columns.count(",") + 1))
        try:
            self.connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows)
        except sqlite3.Error as error:
            raise _explained(error, self.path, self._patience) from error

    def reserve(self, table: str, largest: int) -> None:
        """No new row of the table gets an id up to `largest`: one writes at a time, as it is."""

    def still_there(self) -> bool:
        """Whether the path is still the file that was opened.

        SQLite goes on writing into a file that was deleted or replaced, and reports success.
        """
        return _identity(self.path) == self._identity

    def wait_at_most(self, seconds: float, at_once: float | None = None) -> None:
        """How long each statement waits for the locks of others; PATIENCE at first.

        `at_once` is how long the next one does, where it is tried again for `seconds` in all.
        """
        self._patience = seconds
        now = seconds if at_once is None else max(0.0, at_once)
        self.change(f"PRAGMA busy_timeout = {int(now * 1000)}")

    def close(self) -> None:
        self.connection.close()

    def _execute(
        self, sql: str, parameters: Parameters = ()
    ) -> tuple[sqlite3.Cursor, list[tuple[Any, ...]]]:
        try:
            cursor = self.connection.execute(sql, parameters)
            return cursor, cursor.fetchall()
        except UnicodeEncodeError:
            return self._execute(sql, as_text(parameters))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise _explained(error, self.path, self._patience) from error


class Snapshot:
    """`with database.reading():` begins with the first that is read in it."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.change("BEGIN DEFERRED")

    def __exit__(self, *_: object) -> None:
        if self._database.connection.in_transaction:
            self._database.change("ROLLBACK")


class Transaction:
    """`with database.writing():` BEGIN IMMEDIATE; COMMIT at the end, ROLLBACK on an error."""

    __slots__ = ("_database", "_lost", "_patience")

    def __init__(self, database: Database, patience: float, lost: type[JobrunError]) -> None:
        self._database = database
        self._patience = patience
        self._lost = lost

    def __enter__(self) -> Transaction:
        try:
            self._begin()
            self._database.wait_at_most(self._patience)
        except BaseException:
            self._database.wait_at_most(PATIENCE)
            raise
        return self

    def _begin(self) -> None:
        """Between its tries SQLite sleeps 1 ms, then longer, up to 100: of sixty that wait, most
        would sleep while nobody writes. Asked anew every 50 ms it sleeps 17 at most.
        """
        deadline = time.monotonic() + self._patience
        while True:
            left = deadline - time.monotonic()
            self._database.wait_at_most(self._patience, at_once=min(left, _ASK_ANEW))
            try:
                self._database.change("BEGIN IMMEDIATE")
                return
            except Refused:
                if left <= _ASK_ANEW:
                    raise

    def roll_back(self) -> None:
        if self._database.connection.in_transaction:
            self._database.change("ROLLBACK")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._database.connection.in_transaction:
                self._commit()
        finally:
            self.roll_back()
            self._database.wait_at_most(PATIENCE)

    def _commit(self) -> None:
        self._database.change("COMMIT")
        if not self._database.still_there():
            raise self._lost(
                f"ledger {self._database.path}: deleted or replaced while this call ran; "
                "what it wrote is lost",
                "put a copy back, or the next call makes a new one, which knows no watermark",
            )


def ledger_version(database: Database) -> int:
    """The version of the ledger in it; 0 where there is none."""
    if not database.rows("SELECT 1 FROM sqlite_master WHERE name = 'jobrun_meta'"):
        return 0
    found = database.rows("SELECT version FROM jobrun_meta")
    if len(found) != 1 or not isinstance(found[0][0], int):
        raise DamagedLedger(f"ledger {database.path}: damaged, it does not say its version")
    return found[0][0]


def is_shared(database: Database) -> bool:
    """Whether it is a database of the user's own, with a ledger in it."""
    return not database.rows("SELECT own_file FROM jobrun_meta")[0][0]


def _address_to_read(path: str) -> str:
    """Of a file on a read-only filesystem: the log beside it is read too, and none can be made."""
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode=ro{'' if os.path.exists(path + '-wal') else '&immutable=1'}"


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _explained(error: sqlite3.Error | UnicodeDecodeError, path: str, patience: float) -> Exception:
    from jobrun.sqlite_errors import explained

    return explained(error, path, patience)
