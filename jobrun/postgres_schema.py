"""Bring a ledger in PostgreSQL to this program's version of the schema.

Migrations are the numbered files of schema/postgres/. Each is committed together with its number,
which is read under the lock: of two machines that start at midnight on a new version one migrates,
the other finds it done.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from jobrun.errors import LedgerError, NoLedger
from jobrun.postgres_database import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.postgres_database import Database

_SCHEMA = "SELECT 1 FROM pg_namespace WHERE nspname = ?"
FOLDER = os.path.join(os.path.dirname(__file__), "schema", "postgres")


def scripts() -> list[str]:
    """The text of every migration, in order: the first one makes version 1."""
    return [_read(name) for name in sorted(os.listdir(FOLDER)) if name.endswith(".sql")]


def bring_up_to_date(database: Database, create: bool) -> bool:
    """Whether this call made the ledger. A newer one than ours is left as it is."""
    migrations = scripts()
    version = database.version
    if version > len(migrations):
        raise LedgerError(
            f"ledger {database.address}: written by a newer jobrun ({version} > {len(migrations)})",
            "pip install --upgrade jobrun, on every machine",
        )
    if version == 0 and not create:
        raise NoLedger(
            f"ledger {database.address}: there is none",
            "the first `jobrun run` makes it; another place: --ledger or JOBRUN_LEDGER",
        )
    made = [_migrate_once(database, migrations) for _ in migrations[version:]]
    return version == 0 and made[0]


def try_out(database: Database) -> None:
    """What `bring_up_to_date` would do for a new ledger; nothing of it stays."""
    with database.writing() as transaction:
        _migrate(database, scripts())
        transaction.roll_back()


def _migrate_once(database: Database, migrations: Sequence[str]) -> bool:
    """Whether it was done here."""
    with database.writing():
        return _migrate(database, migrations)


def _migrate(database: Database, migrations: Sequence[str]) -> bool:
    schema = quoted(database.schema)
    ((there,),) = database.rows("SELECT to_regclass('jobrun_meta') IS NOT NULL")
    version = database.rows("SELECT version FROM jobrun_meta")[0][0] if there else 0
    if version >= len(migrations):
        return False
    # Asked first: whoever may not make a schema may not make one that is there, either.
    if not there and not database.rows(_SCHEMA, (database.schema,)):
        database.run_script(f"CREATE SCHEMA {schema}")
    # What is made is made there, and functions find it there, whoever calls them.
    database.run_script(f"SET LOCAL search_path = {schema}, pg_temp")
    database.run_script(migrations[version])
    database.change("UPDATE jobrun_meta SET version = ?", (version + 1,))
    return True


def _read(name: str) -> str:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as script:
        return script.read()
