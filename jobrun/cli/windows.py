"""`jobrun windows JOB [--last DUR | --since WHEN --until WHEN]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun import lastcall, options, picture, schedule
from jobrun.cli.look import JobArgument, JsonOption, LedgerOption, Look, SinceOption
from jobrun.errors import UsageError
from jobrun.instants import parse_duration
from jobrun.ledger import Ledger
from jobrun.rows import JobRow
from jobrun.screen import Screen
from jobrun.screens.windows import keys_screen, windows_screen

KEYS = 100


def windows(
    ctx: typer.Context,
    job: JobArgument,
    last: Annotated[str | None, typer.Option("--last", metavar="DUR", help="So far back.")] = None,
    since: SinceOption = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="WHEN", help="Windows that end until then.")
    ] = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """Which windows are done and which are not, and why; the last line says `complete` or not."""
    if last is not None and since is not None:
        raise UsageError("--last and --since: one of them says where it begins")
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        row = look.job(rows, job)
        assert rows is not None  # or the job would be unknown
        look.show(_screen(look, rows, row, last, since, until))
    return 0


def _screen(
    look: Look, ledger: Ledger, row: JobRow, last: str | None, since: str | None, until: str | None
) -> Screen:
    if row.schedule is None or row.watermark is None:
        keys = ledger.keys(row.name, limit=KEYS)
        if not keys:
            raise UsageError(f"{row.name} has no windows", options.typed("history", row.name))
        return keys_screen(look.path, row.name, keys, look.now, KEYS)
    grid = schedule.parse(row.schedule)
    ready = look.now - lastcall.of(row).seconds("--lag", 0)
    end = min(ready, look.instant(until, row)) if until is not None else ready
    start = look.instant(since, row) if since is not None else None
    if last is not None:
        start = end - parse_duration(last, "--last")
    seen = picture.take(ledger, row, grid, start, end, look.is_alive, look.now)

    def calendar(instant: int) -> tuple[str, str]:
        return schedule.local(instant, None if grid.zone == "UTC" else grid.zone)[:2]

    return windows_screen(look.path, seen, look.now, calendar)
