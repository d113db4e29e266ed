"""`jobrun watermark JOB [--set T --reason TEXT]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import DryRunOption, JobArgument, LedgerOption, a_call


def watermark(
    ctx: typer.Context,
    job: JobArgument,
    to: Annotated[
        str | None, typer.Option("--set", metavar="INSTANT", help="A boundary, not after now.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="For the record.")
    ] = None,
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
) -> int:
    """The end of what is settled: print it, or set it by hand."""
    from jobrun.cli import acts

    return acts.watermark(a_call(ctx, ledger), job, to, reason, dry_run)
