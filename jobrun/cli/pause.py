"""`jobrun pause JOB|--all [--for DUR|--until T] [--reason TEXT]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import AllOption, DryRunOption, LedgerOption, OneJobArgument, a_call


def pause(
    ctx: typer.Context,
    job: OneJobArgument = None,
    every: AllOption = False,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DUR", help="It ends after so long.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Or then.")] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="For the record.")
    ] = None,
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
) -> int:
    """No run starts any more, but by hand, until resume. What runs now goes on to its end."""
    from jobrun.cli import pauses

    which = pauses.Which(job, every, dry_run)
    return pauses.pause(a_call(ctx, ledger), which, pauses.Length(duration, until), reason)
