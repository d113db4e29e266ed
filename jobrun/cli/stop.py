"""`jobrun stop JOB [--kill]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import DryRunOption, JobArgument, LedgerOption, a_call


def stop(
    ctx: typer.Context,
    job: JobArgument,
    kill: Annotated[bool, typer.Option("--kill", help="At once: no grace after TERM.")] = False,
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
) -> int:
    """End what it runs now, as at a timeout, and say how it ended. Not for good: that is pause."""
    from jobrun import halt

    return halt.stop(a_call(ctx, ledger), job, kill, dry_run)
