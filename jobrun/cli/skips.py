"""`jobrun skips [JOB] [--limit N]`"""

from __future__ import annotations

import typer

from jobrun.cli.look import AnyJobArgument, JsonOption, LedgerOption, LimitOption, Look
from jobrun.screens.skips import skips_screen


def skips(
    ctx: typer.Context,
    job: AnyJobArgument = None,
    limit: LimitOption = 20,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """Windows and calls that did not run, and why, newest first; repeats are one row."""
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        if job is not None:
            look.job(rows, job)
        if rows is None:
            look.nothing_yet({"skips": []})
            return 0
        found = rows.skips(job, limit=limit + 1)
        look.show(skips_screen(look.path, found, look.now, job=job, rows=limit))
    return 0
