"""`jobrun resolve JOB WHEN --note TEXT`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import DryRunOption, JobArgument, LedgerOption, a_call


def resolve(
    ctx: typer.Context,
    job: JobArgument,
    when: Annotated[str, typer.Argument(metavar="WHEN", help="One window, or unit.")],
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="For the record.")],
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
) -> int:
    """A dead or held window is settled otherwise: finished, and no longer listed."""
    from jobrun.cli import acts

    return acts.resolve(a_call(ctx, ledger), job, when, note, dry_run)
