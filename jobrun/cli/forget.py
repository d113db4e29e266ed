"""`jobrun forget JOB [--yes]`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from jobrun import options, tables
from jobrun.cli.look import DryRunOption, JobArgument, LedgerOption, a_call
from jobrun.errors import UsageError


def forget(
    ctx: typer.Context,
    job: JobArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
) -> int:
    """Remove every row of a job. Its next call is its first one again."""
    from jobrun.cli import acts

    call = a_call(ctx, ledger)
    ask = not yes and not dry_run
    if ask and not tables.is_terminal(sys.stdin):
        raise UsageError(
            "forget asks first, and nobody is there", options.typed("forget", job, "--yes")
        )
    question = f"Forget all that is on record of {job} in {call.ledger}?"
    if ask and not typer.confirm(question, err=True):
        return 1
    return acts.forget(call, job, dry_run)
