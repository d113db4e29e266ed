"""The ledger in one SQLite file."""

from __future__ import annotations

from collections.abc import Iterable

from jobrun.ledger_sql import SqlLedger
from jobrun.sqlite_database import is_shared
from jobrun.sqlite_file import connect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.rows import Caller
    from jobrun.sqlite_database import Database


def open_ledger(
    path: str,
    caller: Caller | None = None,
    create: bool = True,
    network: bool | None = None,
    to_read: bool = False,
    namespace: str | None = None,
) -> SqliteLedger:
    """The ledger in the file at `path`; `caller` is kept with each run, and needed to claim one.

    `create`, `network`, `to_read` and the errors: see sqlite_file.connect. That the file is of a
    `namespace` is kept in it.
    """
    database, created = connect(path, create, network, to_read)
    ledger = SqliteLedger(database, created, caller)
    if namespace is not None and not to_read and namespace != ledger.namespace:
        database.change("UPDATE jobrun_meta SET namespace = ?", (namespace,))
    return ledger


class SqliteLedger(SqlLedger):
    _database: Database

    @property
    def namespace(self) -> str:
        """A command of a name space gets the path alone, and may call jobrun by it."""
        return self._database.rows("SELECT namespace FROM jobrun_meta")[0][0] or ""

    @property
    def shared(self) -> bool:
        return is_shared(self._database)

    def _own_damage(self) -> Iterable[str]:
        from jobrun.sqlite_schema import damage

        return damage(self._database)
