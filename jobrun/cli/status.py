"""`jobrun status [JOB] [--check]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import AnyJobArgument, JsonOption, LedgerOption, Look
from jobrun.screens.status import status_screen
from jobrun.standing import stand


def status(
    ctx: typer.Context,
    job: AnyJobArgument = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only what is wrong; exit 1 where something is.")
    ] = False,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """How each job stands: done to, behind, last run, last call, and what is wrong."""
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        if job is None and rows is None:
            look.nothing_yet({"jobs": []})
            return int(check)  # a monitor that looks at the wrong place must not be content
        jobs = rows.jobs() if rows is not None and job is None else [look.job(rows, job or "")]
        standings = [stand(rows, row, look.now, look.is_alive) for row in jobs] if rows else []
        kept = look.outbox(job)
        look.show(status_screen(look.path, standings, look.now, check=check, outbox=kept))
        is_wrong = bool(kept) or any(standing.troubles for standing in standings)
        return int(check and is_wrong)
