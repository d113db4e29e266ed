"""`jobrun set JOB OPTION VALUE [--reason TEXT]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import DryRunOption, JobArgument, LedgerOption, ReasonOption, a_call


def set_option(
    ctx: typer.Context,
    job: JobArgument,
    option: Annotated[
        str, typer.Argument(metavar="OPTION", help="--timeout, max-windows and the like.")
    ],
    value: Annotated[
        str | None, typer.Argument(metavar="[VALUE]", help="off: as if it were not given.")
    ] = None,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
) -> int:
    """From the next call on this option has this value, whatever the crontab says."""
    from jobrun import setting

    return setting.set_option(a_call(ctx, ledger), job, option, value, reason, dry_run)
