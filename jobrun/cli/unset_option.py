"""`jobrun unset JOB OPTION [--reason TEXT]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import DryRunOption, JobArgument, LedgerOption, ReasonOption, a_call


def unset_option(
    ctx: typer.Context,
    job: JobArgument,
    option: Annotated[
        str, typer.Argument(metavar="OPTION", help="--timeout, max-windows and the like.")
    ],
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
) -> int:
    """The option is again what the crontab says."""
    from jobrun import setting

    return setting.unset_option(a_call(ctx, ledger), job, option, reason, dry_run)
