"""The ledger in a PostgreSQL database, which many machines share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from jobrun.ledger_sql import SqlLedger
from jobrun.postgres_database import Database
from jobrun.postgres_schema import bring_up_to_date, try_out
from jobrun.rows import Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.rows import Caller


def open_ledger(
    address: str,
    caller: Caller | None = None,
    create: bool = True,
    namespace: str | None = None,
    clock: Callable[[], float] | None = None,
) -> PostgresLedger:
    """The ledger at `postgresql://user@host/database`; `caller` is kept with each run.

    With `namespace` its tables are in the schema of that name, else where the role's search path
    leads to. `clock`: seconds since 1970; with it `skew` is known.

    Raises UsageError (2) for what is no address, ConfigError (78) for one that leads nowhere or to
    a standby, or whose server does not let us in, LedgerError (74) for a database that has no
    ledger and is not to get one, or a newer one, or that can't be written, Refused (75) for one
    that is out of reach or busy.
    """
    database = Database(address, namespace, clock)
    try:
        created = bring_up_to_date(database, create)
    except BaseException:
        database.close()
        raise
    ledger = PostgresLedger(database, created, caller)
    ledger.skew = database.skew
    return ledger


def try_to_make(address: str, namespace: str | None) -> None:
    """Make a ledger and take it back, where there is none. Raises as `open_ledger` does."""
    with closing(Database(address, namespace)) as database:
        try_out(database)


_SERVER = """
SELECT current_setting('server_version'),
       CAST(current_setting('server_version_num') AS integer),
       CAST(current_user AS text), r.rolsuper, CAST(pg_get_userbyid(c.relowner) AS text),
       pg_has_role(c.relowner, 'USAGE'),
       current_setting('synchronous_commit'), current_setting('fsync'), pg_backend_pid() = ?,
       (SELECT coalesce(string_agg(verb, ', ' ORDER BY verb), '')
          FROM unnest(ARRAY['DELETE', 'INSERT', 'SELECT', 'UPDATE']) AS verb
         WHERE EXISTS (SELECT FROM pg_class AS t
                        WHERE t.relnamespace = c.relnamespace AND t.relkind = 'r'
                          AND starts_with(t.relname, 'jobrun_')
                          AND NOT has_table_privilege(t.oid, verb)))
  FROM pg_roles AS r, pg_class AS c
 WHERE r.rolname = current_user AND c.oid = to_regclass('jobrun_meta')
"""


class PostgresLedger(SqlLedger):
    _database: Database

    @property
    def database(self) -> Database:
        """Whose connection may hold the job's lock as well."""
        return self._database

    @property
    def namespace(self) -> str:
        """However it is named: by --namespace or by the search path."""
        return self._database.schema

    @property
    def shared(self) -> bool:
        """Its tables are jobrun's own, and its role's: nobody else reads what is in them."""
        return False

    def server(self) -> Server | None:
        ((*found,),) = self._database.rows(_SERVER, (self._database.backend_pid,))
        return Server._make((*found, self._database.rights()))
