"""What a check of the whole SQLite ledger finds: one line a problem."""

from __future__ import annotations

from collections.abc import Iterator

from jobrun.errors import LedgerError
from jobrun.instants import iso
from jobrun.ledger_sqlite_windows import finished_prefix
from jobrun.sqlite_file import SqliteFile

_OVERLAPS = """
SELECT job, start, before FROM (
    SELECT job, start, max("end") OVER (
               PARTITION BY job ORDER BY start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS before
      FROM (SELECT job, start, "end" FROM jobrun_window WHERE start IS NOT NULL AND state <> 'void'
            UNION ALL
            SELECT job, start, "end" FROM jobrun_gap WHERE void = 0))
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


def problems(file: SqliteFile) -> list[str]:
    damage = list(_damage(file))
    # What a damaged file says about its rows is not worth a line.
    return damage or [*_references(file), *_watermarks(file), *_impossible(file)]


def _damage(file: SqliteFile) -> Iterator[str]:
    try:
        for (line,) in file.rows("PRAGMA integrity_check"):
            if line != "ok":
                yield f"damaged: {line}"
    except LedgerError as error:
        yield error.message


def _references(file: SqliteFile) -> Iterator[str]:
    for table, row, parent, _ in file.rows("PRAGMA foreign_key_check"):
        if table.startswith("jobrun_"):
            yield f"{table}: row {row} refers to a row of {parent} that is missing"


def _watermarks(file: SqliteFile) -> Iterator[str]:
    for name, stored in file.rows("SELECT name, watermark FROM jobrun_job ORDER BY name"):
        reached = finished_prefix(file, name)
        if reached is not None and iso(reached) != stored:
            yield f"{name}: the watermark is {stored}, by the rows it is {iso(reached)}"


def _impossible(file: SqliteFile) -> Iterator[str]:
    for job, start, before in file.rows(_OVERLAPS):
        yield f"{job}: a window or gap begins at {start}, before the one below it ends at {before}"
    for _, key in file.rows(_RUNNING_BY_NOBODY):
        yield f"{key}: running, but no run of it is open"
    for _, key, token, newest in file.rows(_STRANGE_TOKENS):
        yield f"{key}: token {token} was never given, the newest of its job is {newest}"
