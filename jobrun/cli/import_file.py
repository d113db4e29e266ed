"""`jobrun import FILE|- [--dry-run]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import DryRunOption, LedgerOption, a_call


def import_file(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What export wrote; -: stdin.")],
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
) -> int:
    """Take in what `export` wrote, of any engine: of each job all of it or nothing, and once.

    A job that is on record is brought up to date where the file is a later state of it, else
    refused. Kept output is no part of it. While a job of many rows is written other calls wait.
    """
    from jobrun.cli import transfer

    return transfer.import_from(a_call(ctx, ledger), file, dry_run, ledger)
