"""One SQLite file as a ledger's place: opened safely, written in short transactions.

Every write is `with file.writing():`, a BEGIN IMMEDIATE that waits for at most 30 seconds; every
read fetches all of its rows, so no statement stays open. What SQLite has to say becomes an error of
ours, in one line that names the file.

While a connection is open nothing else in this process may open and close the ledger's file: the
close of any descriptor drops the locks that SQLite holds on it (POSIX). `os.stat` does no harm.

This module is on the idle way: it imports sqlite3, and nothing that sqlite3 has not loaded.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time

from jobrun import places
from jobrun.errors import ConfigError, JobrunError, LedgerError, Refused, UnsafePlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, TypeAlias

    Parameters: TypeAlias = tuple[object, ...] | dict[str, Any]

VERSION = 1  # how many files schema/sqlite/ holds
BUSY_SECONDS = 30.0


class SqliteFile:
    """An open ledger file; `shared` is whether it is a database of the user's own."""

    __slots__ = ("_identity", "connection", "path", "shared")

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.shared = False
        self._identity = _identity(path)

    def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Every row of a query."""
        return self._execute(sql, parameters).fetchall()

    def change(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement that writes; how many rows it changed."""
        return self._execute(sql, parameters).rowcount

    def insert(self, sql: str, parameters: Parameters = ()) -> int:
        """Run an INSERT; the id of its row."""
        return self._execute(sql, parameters).lastrowid or 0

    def writing(
        self, patience: float = BUSY_SECONDS, lost: type[JobrunError] = LedgerError
    ) -> Transaction:
        """A transaction; `lost` is the error for a file that has gone in the meantime."""
        return Transaction(self, patience, lost)

    def still_there(self) -> bool:
        """Whether the path is still the file that was opened.

        SQLite goes on writing into a file that was deleted or replaced, and reports success.
        """
        return _identity(self.path) == self._identity

    def close(self) -> None:
        self.connection.close()

    def _execute(self, sql: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        try:
            return self.connection.execute(sql, parameters)
        except UnicodeEncodeError:
            return self._execute(sql, _as_text(parameters))
        except sqlite3.Error as error:
            raise _explained(error, self.path) from error


class Transaction:
    """`with file.writing():` one BEGIN IMMEDIATE, committed at the end, rolled back on an error."""

    __slots__ = ("_file", "_lost", "_patience")

    def __init__(self, file: SqliteFile, patience: float, lost: type[JobrunError]) -> None:
        self._file = file
        self._patience = patience
        self._lost = lost

    def __enter__(self) -> Transaction:
        self._wait_at_most(self._patience)
        self._file._execute("BEGIN IMMEDIATE")
        return self

    def roll_back(self) -> None:
        if self._file.connection.in_transaction:
            self._file.connection.execute("ROLLBACK")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._file.connection.in_transaction:
                self._commit()
        finally:
            self.roll_back()
            self._wait_at_most(BUSY_SECONDS)

    def _commit(self) -> None:
        self._file._execute("COMMIT")
        if not self._file.still_there():
            raise self._lost(
                f"ledger {self._file.path}: deleted or replaced while this call ran; what it wrote "
                "is lost",
                "put a copy back, or the next call makes a new one, which knows no watermark",
            )

    def _wait_at_most(self, seconds: float) -> None:
        self._file.connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")


def connect(path: str, create: bool = True, network: bool | None = None) -> tuple[SqliteFile, bool]:
    """Open the ledger at `path`, at this program's version; and whether this call made it.

    `network` is whether the file lies on a network filesystem, where WAL, which needs shared
    memory, would corrupt it. None leaves the journal of a file that exists as it is.

    Raises UnsafePlace (73) for a folder that is missing or can't be written, LedgerError (74) for a
    file that is no ledger or can't be read and written, Refused (75) if it is busy for 30 seconds,
    ConfigError (78) for a journal that a crash would not survive. The file is left as it was.
    """
    path = os.path.realpath(path)
    exists = _looks_usable(path)
    if not exists and not create:
        raise _no_ledger(path)
    created = not exists and _make(path, bool(network))
    empty = os.path.getsize(path) == 0
    file = _open(path)
    try:
        _bring_up_to_date(file, create, empty)
        _check_journal(file, network)
    except BaseException:
        file.close()
        raise
    return file, created


def give_to_owner(descriptor: int, owner: os.stat_result) -> None:
    """What root makes for another's ledger becomes that other's, or he is locked out of it."""
    if os.name == "posix" and os.geteuid() == 0 and owner.st_uid != 0:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _no_ledger(path: str) -> LedgerError:
    return LedgerError(
        f"ledger {path}: there is none",
        "the first `jobrun run` makes it; another place: --ledger PATH or JOBRUN_LEDGER",
    )


def _looks_usable(path: str) -> bool:
    """Whether there is a file; refused where nothing good could come of opening it."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise UnsafePlace(
            f"ledger {path}: its folder {folder} does not exist, or can't be seen from here",
            f"mkdir -m 700 -p {folder}",
        )
    try:
        found = os.stat(path)
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise places.cant_write(path, error) from error
    if found is not None:
        _check_file(path, found)
    if not os.access(folder, os.W_OK | os.X_OK):  # SQLite keeps its journal beside the file
        raise places.cant_write(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    return found is not None


def _check_file(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise LedgerError(f"ledger {path}: not a regular file", "--ledger names a file of its own")
    if not os.access(path, os.R_OK | os.W_OK):
        # Reading alone is no good either: in WAL mode it leaves sidecar files of this user's, which
        # the owner can't write any more.
        owner, mode = places.user_name(found.st_uid), stat.S_IMODE(found.st_mode)
        raise LedgerError(
            f"ledger {path}: not readable and writable from here, it is {owner}'s (0{mode:o})",
            f"sudo -u {owner} jobrun ..., or chown it",
        )


def _make(path: str, network: bool) -> bool:
    """Make a new ledger; False where another process was faster.

    It is made complete under a name of its own, then linked to the path: nobody ever sees half of
    it, one of several wins, and none meets the switch to WAL of another, which does not wait for
    locks (4 of 360 first openers failed on it).
    """
    making = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.new"
    try:
        _make_empty(making)
        file = _open(making)
        try:
            _bring_up_to_date(file, create=True, empty=True)
            _check_journal(file, network)
        finally:
            file.close()
        try:
            os.link(making, path)
        except FileExistsError:
            return False
        except OSError:  # a filesystem without hard links: the empty file is filled in its place
            return _make_empty(path)
        return True
    finally:
        for leftover in (making, making + "-journal", making + "-wal", making + "-shm"):
            if os.path.lexists(leftover):
                os.unlink(leftover)


def _make_empty(path: str) -> bool:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise places.cant_write(path, error) from error
    try:
        give_to_owner(descriptor, os.stat(os.path.dirname(path)))
    finally:
        os.close(descriptor)
    return True


def _open(path: str) -> SqliteFile:
    try:
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    except sqlite3.Error as error:
        raise _explained(error, path) from error
    file = SqliteFile(path, connection)
    try:
        file.change("PRAGMA foreign_keys = ON")
        file.change("PRAGMA synchronous = FULL")
    except BaseException:
        file.close()
        raise
    return file


def _bring_up_to_date(file: SqliteFile, create: bool, empty: bool) -> None:
    """Look at the version; `empty` is a file without a byte, which nobody but us can want."""
    version, file.shared = read_meta(file)
    if version > VERSION:
        raise LedgerError(
            f"ledger {file.path}: written by a newer jobrun ({version} > {VERSION})",
            "pip install --upgrade jobrun, or another ledger: --ledger PATH",
        )
    if version == 0 and not create:
        raise _no_ledger(file.path)
    if version < VERSION:
        from jobrun.sqlite_schema import migrate

        migrate(file, own=empty)
        _, file.shared = read_meta(file)


def read_meta(file: SqliteFile) -> tuple[int, bool]:
    """(version, whether the database is the user's own); version 0 is one without a ledger."""
    if not file.rows("SELECT 1 FROM sqlite_master WHERE name = 'jobrun_meta'"):
        return 0, True
    ((version, own),) = file.rows("SELECT version, own_file FROM jobrun_meta")
    return version, not own


def _check_journal(file: SqliteFile, network: bool | None) -> None:
    ((mode,),) = file.rows("PRAGMA journal_mode")
    if mode in ("off", "memory"):
        raise ConfigError(
            f"ledger {file.path}: its journal mode is {mode}, a crash would damage it",
            f"sqlite3 {file.path} 'PRAGMA journal_mode = wal'",
        )
    wanted = "delete" if network else "wal"
    if not file.shared and network is not None and mode != wanted:
        _set_journal(file, wanted)


def _set_journal(file: SqliteFile, wanted: str) -> None:
    """The switch does not wait for the locks of others by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            file.rows(f"PRAGMA journal_mode = {wanted}")
            return
        except Refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _as_text(parameters: Parameters) -> Parameters:
    """Arguments and names that are no text enter with \\xNN in place of each such byte."""
    if isinstance(parameters, dict):
        return {name: _escaped(value) for name, value in parameters.items()}
    return tuple(map(_escaped, parameters))


def _escaped(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a pair, from Windows
        return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _explained(error: sqlite3.Error, path: str) -> Exception:
    from jobrun.sqlite_errors import explained

    return explained(error, path)
