"""The mark of `jobrun.done` in PostgreSQL, over a connection of psycopg 3.

psycopg is never loaded here: whoever has such a connection has loaded it. What is asked of it is
what its documentation promises of a connection: `info` and `execute`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from jobrun.errors import ConfigError, NotRecorded, UsageError
from jobrun.places import SERVERS
from jobrun.value import NamedTuple

# One statement: whoever is connected elsewhere finds no such run, and marks nothing there.
_MARK = """
SELECT {place}jobrun_done(job, key, token) FROM {place}jobrun_run
 WHERE id = %s AND job = %s AND key = %s AND token = %s
"""
_REPLACED = "JR001"
_NOT_THERE = ("42P01", "42883", "3F000")  # no such table, function, schema
_NOT_ALLOWED = "42501"
_IDLE = 0  # libpq's PQTRANS_IDLE, and PQ_PIPELINE_OFF


class Marked(NamedTuple):
    """The run that marks its window, as its environment names it."""

    job: str
    key: str
    token: int
    run_id: int


def is_ours(connection: object) -> bool:
    """Whether it is a connection of psycopg 3 that does not want to be awaited."""
    info = getattr(connection, "info", None)
    known = hasattr(info, "transaction_status") and hasattr(info, "pipeline_status")
    return known and hasattr(connection, "execute") and not hasattr(connection, "__aenter__")


def mark(connection: Any, this: Marked, ledger: str | None) -> None:
    """Raises as `jobrun.done` does."""
    _check_transaction(connection)
    if ledger is not None and not ledger.startswith(SERVERS):
        raise _elsewhere(connection, ledger)
    place = _place(ledger or "")
    values = (this.run_id, this.job, this.key, this.token)
    try:
        found = connection.execute(_MARK.format(place=place), values, prepare=False).rowcount
    except Exception as error:
        _explain(error, connection, this, ledger, place)
        raise
    if found != 1:
        raise _elsewhere(connection, ledger)


def _check_transaction(connection: Any) -> None:
    if connection.info.pipeline_status != _IDLE:
        raise UsageError(
            "jobrun.done: the connection is in pipeline mode, where nobody knows what is committed",
            "jobrun.done(connection) after the `with connection.pipeline()` block",
        )
    if connection.info.transaction_status == _IDLE:
        raise UsageError(
            "jobrun.done: no transaction is open, so the mark would stand alone",
            "with connection.transaction(): the data, then jobrun.done(connection)",
        )


def _place(ledger: str) -> str:
    """The schema of the ledger's name space; without one the search path leads there."""
    found = re.search(r"[?&]namespace=(\w+)", ledger)
    return f'"{found[1]}".' if found else ""


def _explain(
    error: Exception, connection: Any, this: Marked, ledger: str | None, place: str
) -> None:
    """Raise what is better known here; an error of the user's own is left to the caller."""
    code = getattr(error, "sqlstate", None)
    if code == _REPLACED:
        # Also where it was made behind a savepoint: what is before that must not be committed.
        with suppress(Exception):
            connection.execute("ROLLBACK")
        raise NotRecorded(
            f'"{this.key}": this run (token {this.token}) is not its holder any more; the'
            " transaction was rolled back",
            "another run of it has begun: exit, it does the work",
        ) from error
    if code in _NOT_THERE:
        raise _elsewhere(connection, ledger) from error
    if code == _NOT_ALLOWED:
        user = connection.info.user
        raise ConfigError(
            f"jobrun.done: the role {user} may not mark windows ({str(error).strip()})",
            f"GRANT USAGE ON SCHEMA of the ledger TO {user}; GRANT SELECT ON {place}jobrun_run,"
            f" SELECT, UPDATE ON {place}jobrun_window",
        ) from error


def _elsewhere(connection: Any, ledger: str | None) -> ConfigError:
    here = _address(connection.info)
    return ConfigError(
        f"jobrun.done: this run is not on record where the connection leads, {here}; the ledger is"
        f" {ledger or 'another'}; data and mark can only be one in one database",
        f'jobrun run --ledger "{here}"; without --namespace its schema must be in the search path',
    )


def _address(info: Any) -> str:
    if info.host.startswith("/"):
        return f"postgresql://{info.user}@/{info.dbname}?host={info.host}&port={info.port}"
    return f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"
