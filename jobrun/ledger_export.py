"""All rows of some jobs, as they are read for a file (exported.py) and compared with one."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from jobrun.exported import JOB, TABLES, Row, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.database import Database


def all_rows(database: Database, jobs: Sequence[str]) -> Iterator[tuple[Table, Row]]:
    """Job by job, in the order of exported.py; a job that is not there has none."""
    for job in jobs:
        for table in TABLES:
            with closing(rows(database, table, job)) as found:
                for row in found:
                    yield table, row


def rows(database: Database, table: Table, job: str) -> Generator[Row, None, None]:
    """Of a job, by their key; truth is True and False in either engine."""
    where = "name" if table is JOB else "job"
    order = ", ".join(table.columns[: table.key])
    sql = f"SELECT {table.listed} FROM {table.in_database} WHERE {where} = ? ORDER BY {order}"
    truths = [place for place, kind in enumerate(table.kinds) if kind == "bool"]
    with closing(database.stream(sql, (job,))) as found:
        if not truths:
            yield from found
            return
        for row in found:
            values = list(row)
            for place in truths:
                values[place] = bool(values[place])
            yield tuple(values)


def token_floor(database: Database) -> int:
    """The largest token of a job that was forgotten."""
    return int(database.rows("SELECT token_floor FROM jobrun_meta")[0][0])
