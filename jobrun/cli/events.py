"""`jobrun events [JOB] [--limit N]`"""

from __future__ import annotations

import typer

from jobrun.cli.look import AnyJobArgument, JsonOption, LedgerOption, LimitOption, Look
from jobrun.screens.events import events_screen


def events(
    ctx: typer.Context,
    job: AnyJobArgument = None,
    limit: LimitOption = 20,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """What changed: failed, lost, paused, schedule-changed and the like, newest first."""
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        if job is not None:
            look.job(rows, job)
        if rows is None:
            look.nothing_yet({"events": []})
            return 0
        found = rows.events(job, limit=limit + 1)
        look.show(events_screen(look.path, found, look.now, job=job, rows=limit))
    return 0
