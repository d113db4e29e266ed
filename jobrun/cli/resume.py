"""`jobrun resume JOB|--all [--catch-up all|latest]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import AllOption, DryRunOption, LedgerOption, OneJobArgument, a_call
from jobrun.errors import UsageError


def resume(
    ctx: typer.Context,
    job: OneJobArgument = None,
    every: AllOption = False,
    catch_up: Annotated[
        str,
        typer.Option(
            "--catch-up",
            metavar="all|latest",
            help="latest: windows that closed meanwhile are given up, but for the newest.",
        ),
    ] = "all",
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
) -> int:
    """The end of a pause: what is due runs with the next call."""
    from jobrun.cli import pauses

    if catch_up not in ("all", "latest"):
        raise UsageError(f'--catch-up "{catch_up}": all or latest', "--catch-up latest")
    which = pauses.Which(job, every, dry_run)
    return pauses.resume(a_call(ctx, ledger), which, catch_up)
