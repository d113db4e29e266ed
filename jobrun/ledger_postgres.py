"""The ledger in a PostgreSQL database, which many machines share."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from jobrun.ledger_sql import SqlLedger
from jobrun.postgres_database import Database
from jobrun.postgres_schema import bring_up_to_date

if TYPE_CHECKING:
    from jobrun.rows import Caller


def open_ledger(
    address: str,
    caller: Caller | None = None,
    create: bool = True,
    namespace: str | None = None,
) -> PostgresLedger:
    """The ledger at `postgresql://user@host/database`; `caller` is kept with each run.

    With `namespace` its tables are in the schema of that name, else where the role's search path
    leads to.

    Raises UsageError (2) for what is no address, ConfigError (78) for a standby, LedgerError (74)
    for a database that has no ledger and is not to get one, or a newer one, or that can't be
    written, Refused (75) for one that is out of reach or busy.
    """
    database = Database(address, namespace)
    try:
        created = bring_up_to_date(database, create)
    except BaseException:
        database.close()
        raise
    return PostgresLedger(database, created, caller)


class PostgresLedger(SqlLedger):
    @property
    def database(self) -> Database:
        """Whose connection may hold the job's lock as well."""
        return cast("Database", self._database)

    @property
    def shared(self) -> bool:
        """Its tables are jobrun's own, and its role's: nobody else reads what is in them."""
        return False
