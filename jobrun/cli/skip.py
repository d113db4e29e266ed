"""`jobrun skip JOB WHEN|--from A --to B --reason TEXT`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import DryRunOption, JobArgument, LedgerOption, a_call


def skip(
    ctx: typer.Context,
    job: JobArgument,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="For the record.")],
    when: Annotated[str | None, typer.Argument(metavar="[WHEN]", help="One window.")] = None,
    since: Annotated[str | None, typer.Option("--from", metavar="WHEN")] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="WHEN", help="The end, half-open.")
    ] = None,
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
) -> int:
    """Finish windows by hand: they will not run. Not those that are open or processed."""
    from jobrun.cli import acts

    return acts.skip(a_call(ctx, ledger), job, when, since, until, reason, dry_run)
