"""What a check of a whole ledger finds: one line a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from jobrun.errors import LedgerError
from jobrun.instants import iso
from jobrun.ledger_values import impossible_rows
from jobrun.ledger_windows import finished_prefix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.database import Database

_OVERLAPS = """
SELECT job, start, before FROM (
    SELECT job, start, max("end") OVER (
               PARTITION BY job ORDER BY start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS before
      FROM (SELECT job, start, "end" FROM jobrun_window WHERE start IS NOT NULL AND state <> 'void'
            UNION ALL
            SELECT job, start, "end" FROM jobrun_gap WHERE NOT void) AS taken) AS ordered
 WHERE start < before ORDER BY job, start
"""

_RUNNING_BY_NOBODY = """
SELECT job, key FROM jobrun_window AS w
 WHERE state = 'running' AND NOT EXISTS (
       SELECT 1 FROM jobrun_run WHERE job = w.job AND key = w.key AND outcome IS NULL)
"""

_STRANGE_TOKENS = """
SELECT w.job, w.key, w.token, j.token FROM jobrun_window AS w JOIN jobrun_job AS j ON j.name = w.job
 WHERE w.token > j.token
"""


# What the database itself has to say of what it keeps, in lines.
Own = Callable[[], Iterable[str]]


def problems(database: Database, own: Own) -> list[str]:
    # What a damaged ledger says about its rows is not worth a line.
    return damage(database, own) or [*_watermarks(database), *_runs(database)]


def damage(database: Database, own: Own) -> list[str]:
    """What no call has written and none can bring to an end."""
    return list(_values(database, own)) or list(_contradictions(database))


def _values(database: Database, own: Own) -> Iterator[str]:
    """Of each value by itself, then by what the database knows of it."""
    try:
        yield from impossible_rows(database)
        yield from own()
    except LedgerError as error:
        yield error.message


def _watermarks(database: Database) -> Iterator[str]:
    for name, stored in database.rows("SELECT name, watermark FROM jobrun_job ORDER BY name"):
        reached = finished_prefix(database, name)
        if reached is not None and iso(reached) != stored:
            yield f"{name}: the watermark is {stored}, by the rows it is {iso(reached)}"


def _contradictions(database: Database) -> Iterator[str]:
    for job, start, before in database.rows(_OVERLAPS):
        yield f"{job}: a window or gap begins at {start}, before the one below it ends at {before}"
    for _, key, token, newest in database.rows(_STRANGE_TOKENS):
        yield f"{key}: token {token} was never given, the newest of its job is {newest}"


def _runs(database: Database) -> Iterator[str]:
    for _, key in database.rows(_RUNNING_BY_NOBODY):
        yield f"{key}: running, but no run of it is open"
