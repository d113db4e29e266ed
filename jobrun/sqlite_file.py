"""Open the ledger's file safely, and make it where there is none.

This module is on the idle way.
"""

from __future__ import annotations

import os
import sys
import time

from jobrun import places
from jobrun.database import PATIENCE
from jobrun.errors import ConfigError, LedgerError, NoLedger, Refused, UnsafePlace
from jobrun.sqlite_database import Database, is_shared, ledger_version

VERSION = 3  # how many files schema/sqlite/ holds
SMALLEST = 512  # bytes of one page, the least that a database with anything in it has


def connect(
    path: str, create: bool = True, network: bool | None = None, to_read: bool = False
) -> tuple[Database, bool]:
    """Open the ledger at `path`, at this program's version; and whether this call made it.

    `network` is whether the file lies on a network filesystem, where WAL, which needs shared
    memory, would corrupt it. None leaves the journal of a file that exists as it is.

    `to_read`: what can't be written by anybody is opened all the same, and each write fails.

    Raises UnsafePlace (73) for a folder that is missing or can't be written, LedgerError (74) for a
    file that is no ledger or can't be read and written, Refused (75) if it is busy for 30 seconds,
    ConfigError (78) for a journal that a crash would not survive. The file is left as it was.
    """
    path = os.path.realpath(path)
    if to_read and places.is_read_only(path):
        return _open_to_read(path), False
    exists = _looks_usable(path)
    if not exists and not create:
        raise _no_ledger(path)
    created = not exists and _make(path, bool(network))
    empty = os.path.getsize(path) == 0
    database = _open(path)
    try:
        _bring_up_to_date(database, create, empty)
        _check_journal(database, network)
    except BaseException:
        database.close()
        raise
    return database, created


def _no_ledger(path: str) -> NoLedger:
    return NoLedger(
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
        reason = "read-only file system" if places.is_read_only(folder) else "permission denied"
        raise places.cant_write(folder, PermissionError(reason))
    return found is not None


def _check_file(path: str, found: os.stat_result) -> None:
    if not os.path.isfile(path):
        raise LedgerError(f"ledger {path}: not a regular file", "--ledger names a file of its own")
    if 0 < found.st_size < SMALLEST:  # a single byte SQLite would write over
        from jobrun.sqlite_errors import not_a_database

        raise not_a_database(path, f"{found.st_size} bytes")
    if found.st_nlink > 1:  # its maker was killed before the name that it was made under was gone
        _sweep(path)
    if not os.access(path, os.R_OK | os.W_OK):
        if places.is_read_only(path):
            raise _read_only(path)
        # Reading alone is no good either: in WAL mode it leaves sidecar files of this user's, which
        # the owner can't write any more.
        owner, mode = places.user_name(found.st_uid), found.st_mode & 0o7777
        raise LedgerError(
            f"ledger {path}: not readable and writable from here, it is {owner}'s (0{mode:o})",
            f"sudo -u {owner} jobrun ..., or chown it",
        )


def _read_only(path: str) -> LedgerError:
    return LedgerError(
        f"ledger {path}: on a read-only file system",
        f"findmnt -T {path}; after an error of the disk it is mounted so (dmesg), else: mount -o"
        " remount,rw",
    )


def _make(path: str, network: bool) -> bool:
    """Make a new ledger; False where another process was faster.

    It is made complete under a name of its own, then linked to the path: nobody ever sees half of
    it, one of several wins, and none meets the switch to WAL of another, which does not wait for
    locks (4 of 360 first openers failed on it). Raises LedgerError where another's log is there.
    """
    _sweep(path)
    if _log_is_left(path):
        if os.path.exists(path):  # made meanwhile by another
            return False
        raise LedgerError(
            f"ledger {path}: the file is gone, its log {path}-wal is there: a new one would take"
            " over what is in it",
            f"put the file back; or, to begin anew: rm {path}-wal {path}-shm",
        )
    making = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.new"
    try:
        _make_empty(making)
        database = _open(making)
        try:
            _bring_up_to_date(database, create=True, empty=True)
            _check_journal(database, network)
        finally:
            database.close()
        try:
            os.link(making, path)
        except FileExistsError:
            return False
        except OSError:  # a filesystem without hard links: the empty file is filled in its place
            return _make_empty(path)
        return True
    finally:
        _remove(making)


def _log_is_left(path: str) -> bool:
    """Of a ledger whose last writer was killed, and that was then removed without its log."""
    for log in (f"{path}-wal", f"{path}-journal"):
        try:
            if os.path.getsize(log):
                return True
        except OSError:
            pass
    return False


def _remove(making: str) -> None:
    for leftover in (making + "-journal", making + "-wal", making + "-shm", making):
        try:  # noqa: SIM105 - contextlib would be imported for this alone
            os.unlink(leftover)
        except OSError:
            pass


def _sweep(path: str) -> None:
    """Remove what calls left beside the ledger that were killed while they made it."""
    folder, name = os.path.split(path)
    try:
        entries = os.listdir(folder)
    except OSError:  # it may be written and not be read
        return
    for entry in entries:
        if entry.startswith(f"{name}.") and entry.endswith(".new"):
            pid, _, rest = entry[len(name) + 1 :].partition(".")
            if pid.isdecimal() and len(rest) == len("01234567.new") and _is_dead(int(pid)):
                _remove(os.path.join(folder, entry))


def _is_dead(pid: int) -> bool:
    if sys.platform == "win32":  # os.kill would end it; what it has open can't be removed there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _make_empty(path: str) -> bool:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise places.cant_write(path, error) from error
    try:
        _give_away(descriptor, os.stat(os.path.dirname(path)))
    finally:
        os.close(descriptor)
    return True


def _give_away(descriptor: int, folder: os.stat_result) -> None:
    """What root makes in another's folder becomes that other's, or he is locked out of it."""
    if sys.platform != "win32" and os.geteuid() == 0 and folder.st_uid != 0:
        os.fchown(descriptor, folder.st_uid, folder.st_gid)


def _open(path: str) -> Database:
    database = Database(path)
    try:
        database.change("PRAGMA foreign_keys = ON")
        database.change("PRAGMA synchronous = FULL")
    except BaseException:
        database.close()
        raise
    return database


def _open_to_read(path: str) -> Database:
    database = Database(path, to_read=True)
    try:
        if ledger_version(database) != VERSION:
            raise _read_only(path)
    except BaseException:
        database.close()
        raise
    return database


def _bring_up_to_date(database: Database, create: bool, empty: bool) -> None:
    """Look at the version; `empty` is a file without a byte, which nobody but us can want."""
    version = ledger_version(database)
    if version > VERSION:
        raise LedgerError(
            f"ledger {database.path}: written by a newer jobrun ({version} > {VERSION})",
            "pip install --upgrade jobrun, or another ledger: --ledger PATH",
        )
    if version == 0 and not create:
        raise _no_ledger(database.path)
    if version < VERSION:
        from jobrun.sqlite_schema import migrate

        migrate(database, own=empty)


def _check_journal(database: Database, network: bool | None) -> None:
    ((mode,),) = database.rows("PRAGMA journal_mode")
    if mode in ("off", "memory"):
        raise ConfigError(
            f"ledger {database.path}: its journal mode is {mode}, a crash would damage it",
            f"sqlite3 {database.path} 'PRAGMA journal_mode = wal'",
        )
    wanted = "delete" if network else "wal"
    if network is not None and mode != wanted and not is_shared(database):
        _set_journal(database, wanted)


def _set_journal(database: Database, wanted: str) -> None:
    """The switch does not wait for the locks of others by itself."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            database.rows(f"PRAGMA journal_mode = {wanted}")
            return
        except Refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
