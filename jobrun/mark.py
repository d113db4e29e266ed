"""Exactly once, for a command whose data lives in the ledger's own database.

jobrun runs a window again if it can't know that the window was done: the machine died between the
command's COMMIT and the ledger's. A command that marks its window *inside* its own transaction
closes that gap. The data and the mark are committed together or not at all, so whatever happens
afterwards (exit code, crash, power) the window is never run again.

    connection = sqlite3.connect(os.environ["JOBRUN_LEDGER"], isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO sales ...")
    jobrun.done(connection)
    connection.execute("COMMIT")

The mark is `INSERT INTO jobrun_done (job, key, token)`, a view with a trigger, so any language and
the sqlite3 shell (`-bail`) can make it. It is the last statement before COMMIT. Where this run is
not the window's holder any more, the trigger rolls the whole transaction back.

The tables must be in the ledger's file itself (`--ledger` names a database of your own). Attached
to it is not enough: SQLite commits several files in WAL mode one after another.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobrun.errors import ConfigError, NotRecorded, UsageError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping


def done(connection: sqlite3.Connection) -> None:
    """Mark this run's window as processed, in the transaction that `connection` has open.

    Reads JOBRUN_JOB, JOBRUN_KEY and JOBRUN_TOKEN, which jobrun gives to its command. Raises
    UsageError outside of such a command or without an open transaction, ConfigError where the
    connection's database is not the ledger, NotRecorded after the transaction was rolled back
    because another run holds the window now.
    """
    job, key, token = _this_run(os.environ)
    if not connection.in_transaction:
        raise UsageError(
            "jobrun.done: no transaction is open, so the mark would stand alone",
            'connection.execute("BEGIN IMMEDIATE") before the data, COMMIT after the mark',
        )
    _check_database(connection, os.environ.get("JOBRUN_LEDGER"))
    try:
        connection.execute("INSERT INTO main.jobrun_done VALUES (?, ?, ?)", (job, key, token))
    except Exception as error:
        if "jobrun_done:" not in str(error):
            raise
        raise NotRecorded(
            f'"{key}": this run (token {token}) is not its holder any more; the transaction was '
            "rolled back",
            "another run of it has begun: exit, it does the work",
        ) from error


def _this_run(environ: Mapping[str, str]) -> tuple[str, str, int]:
    names = ("JOBRUN_JOB", "JOBRUN_KEY", "JOBRUN_TOKEN")
    missing = [name for name in names if not environ.get(name)]
    if missing == ["JOBRUN_KEY"]:
        raise UsageError(
            "jobrun.done: this run has no key, so there is nothing to mark",
            "jobrun run JOB --every 1h, or --key KEY",
        )
    if missing:
        raise UsageError(
            f"jobrun.done: {missing[0]} is not set, this is no command of jobrun's",
            "jobrun run JOB --every 1h -- COMMAND",
        )
    job, key, token = (environ[name] for name in names)
    if not token.isascii() or not token.isdigit():
        raise UsageError(f'jobrun.done: JOBRUN_TOKEN "{token}" is no number')
    return job, key, int(token)


def _check_database(connection: sqlite3.Connection, ledger: str | None) -> None:
    """Its main database must be the ledger: an attached one is committed apart from the data."""
    views = "SELECT 1 FROM main.sqlite_master WHERE name = 'jobrun_done'"
    main = _main_file(connection)
    if connection.execute(views).fetchone() is None or not _is_same(main, ledger):
        from shlex import quote

        data = quote(main) if main else "PATH OF THE DATA"
        raise ConfigError(
            f"jobrun.done: the connection's database is {main or 'in memory'}, the ledger is "
            f"{ledger}; data and mark can only be one in one file",
            f"jobrun run --ledger {data}, and connect to $JOBRUN_LEDGER",
        )


def _main_file(connection: sqlite3.Connection) -> str:
    for _, schema, path in connection.execute("PRAGMA database_list"):
        if schema == "main":
            return str(path or "")
    return ""


def _is_same(path: str, ledger: str | None) -> bool:
    try:
        return ledger is None or os.path.samefile(path, ledger)
    except OSError:
        return False
