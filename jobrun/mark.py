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

In PostgreSQL it is the same, in the database of `--ledger postgresql://...`:

    with psycopg.connect("service=shop") as connection:
        connection.execute("INSERT INTO sales ...")
        jobrun.done(connection)

There the mark is `SELECT jobrun_done(job, key, token)`, in a name space `staging.jobrun_done`. Its
error leaves nothing to commit.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from jobrun.errors import ConfigError, NotRecorded, UsageError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    import psycopg


def done(connection: sqlite3.Connection | psycopg.Connection[Any]) -> None:
    """Mark this run's window as processed, in the transaction that `connection` has open.

    `connection` is one of sqlite3 or of psycopg 3. Reads JOBRUN_JOB, JOBRUN_KEY, JOBRUN_TOKEN and
    JOBRUN_RUN_ID, which jobrun gives to its command. Raises UsageError outside of such a command or
    without an open transaction, ConfigError where the connection's database is not the ledger,
    NotRecorded after the transaction was rolled back because another run holds the window now,
    TypeError for any other connection.
    """
    job, key, token = _this_run(os.environ)
    ledger = os.environ.get("JOBRUN_LEDGER")
    if isinstance(getattr(connection, "in_transaction", None), bool):
        _mark_in_file(cast("sqlite3.Connection", connection), job, key, token, ledger)
        return
    from jobrun import mark_postgres

    if not mark_postgres.is_ours(connection):
        raise TypeError(
            f"jobrun.done: {_kind(connection)} is neither a connection of sqlite3 nor one of"
            " psycopg 3 (not of its async ones); over any other, as the last statement before"
            " COMMIT: SELECT jobrun_done(job, key, token) with $JOBRUN_JOB, $JOBRUN_KEY and"
            " $JOBRUN_TOKEN"
        )
    run_id = _number(os.environ, "JOBRUN_RUN_ID")
    mark_postgres.mark(connection, mark_postgres.Marked(job, key, token, run_id), ledger)


def _mark_in_file(
    connection: sqlite3.Connection, job: str, key: str, token: int, ledger: str | None
) -> None:
    if not connection.in_transaction:
        raise UsageError(
            "jobrun.done: no transaction is open, so the mark would stand alone",
            'connection.execute("BEGIN IMMEDIATE") before the data, COMMIT after the mark',
        )
    _check_database(connection, ledger)
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
    return environ["JOBRUN_JOB"], environ["JOBRUN_KEY"], _number(environ, "JOBRUN_TOKEN")


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not text.isascii() or not text.isdigit():
        raise UsageError(f'jobrun.done: {name} "{text}" is no number')
    return int(text)


def _kind(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"


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
