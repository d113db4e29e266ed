"""What SQLite's errors mean for a ledger, in one line with a next step. Loaded on an error only."""

from __future__ import annotations

import os
import sqlite3

from jobrun.errors import (
    Contradiction,
    DamagedLedger,
    JobrunError,
    LedgerError,
    Refused,
    UnsafePlace,
)


def explained(error: sqlite3.Error | UnicodeDecodeError, path: str, patience: float) -> Exception:
    """The error of ours that says what SQLite means; a bug of ours stays what it is."""
    code = getattr(error, "sqlite_errorcode", None)
    # Text that is none, in a row or, where the schema itself is damaged, in SQLite's own message.
    if isinstance(error, UnicodeDecodeError) or str(error).startswith("Could not decode"):
        code = sqlite3.SQLITE_CORRUPT
    if code is None or code & 0xFF == sqlite3.SQLITE_MISUSE:
        return error
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # the index beside a write-ahead log found no room
        code = sqlite3.SQLITE_FULL
    kind, rule, hint = _MEANING.get(code & 0xFF, (LedgerError, "can't be used", None))
    detail = f"{error}, {getattr(error, 'sqlite_errorname', code)}"
    if hint is not None:
        hint = hint.format(path=path, folder=os.path.dirname(path))
    return kind(f"ledger {path}: {rule.format(patience=patience)} ({detail})", hint)


def not_a_database(path: str, detail: str) -> JobrunError:
    kind, rule, hint = _NOT_A_DATABASE
    return kind(f"ledger {path}: {rule} ({detail})", hint.format(path=path))


_NOT_A_DATABASE = (
    DamagedLedger,
    "not a database",
    "put a copy back, or mv {path} {path}.broken: a new ledger knows no watermark, so each job "
    "begins as --first says",
)
_MEANING: dict[int, tuple[type[JobrunError], str, str | None]] = {
    sqlite3.SQLITE_BUSY: (
        Refused,
        "busy for {patience:.0f} s, another program keeps a transaction open",
        "fuser -v {path} names it; the next call tries again",
    ),
    sqlite3.SQLITE_PROTOCOL: (
        Refused,
        "other programs keep its write-ahead log busy",
        "fuser -v {path} names them; the next call tries again",
    ),
    sqlite3.SQLITE_FULL: (
        LedgerError,
        "no room left to write",
        "df {folder}; once there is room the next call goes on, nothing has to be repaired",
    ),
    sqlite3.SQLITE_NOTADB: _NOT_A_DATABASE,
    sqlite3.SQLITE_CORRUPT: (
        DamagedLedger,
        "damaged",
        "put a copy back, or sqlite3 {path} .recover; mv it aside and a new ledger knows no "
        "watermark, so each job begins as --first says",
    ),
    sqlite3.SQLITE_CONSTRAINT: (
        Contradiction,
        "damaged, what it holds and what is to be written contradict each other",
        "put a copy back; jobrun doctor looks at all of it",
    ),
    sqlite3.SQLITE_ERROR: (
        DamagedLedger,
        "damaged, or another program has changed its tables",
        "put a copy back; jobrun doctor looks at all of it",
    ),
    sqlite3.SQLITE_READONLY: (
        LedgerError,
        "can't be written",
        "ls -l {path}*; mount -o remount,rw if its filesystem is read-only",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        UnsafePlace,
        "can't be opened, or its folder can't be written",
        "ls -ld {folder} {path}*",
    ),
    sqlite3.SQLITE_IOERR: (LedgerError, "input/output error", "look at the disk: dmesg | tail"),
}
