"""The ledger in one SQLite file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jobrun.ledger_sql import SqlLedger
from jobrun.sqlite_database import is_shared
from jobrun.sqlite_file import connect

if TYPE_CHECKING:
    from jobrun.rows import Caller
    from jobrun.sqlite_database import Database


def open_ledger(
    path: str,
    caller: Caller | None = None,
    create: bool = True,
    network: bool | None = None,
    to_read: bool = False,
) -> SqliteLedger:
    """The ledger in the file at `path`; `caller` is kept with each run, and needed to claim one.

    `create`, `network`, `to_read` and the errors: see sqlite_file.connect.
    """
    database, created = connect(path, create, network, to_read)
    return SqliteLedger(database, created, caller)


class SqliteLedger(SqlLedger):
    _database: Database

    @property
    def shared(self) -> bool:
        return is_shared(self._database)

    def _own_damage(self) -> Iterable[str]:
        from jobrun.sqlite_schema import damage

        return damage(self._database)
