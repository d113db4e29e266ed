"""`jobrun export [JOB...] > FILE`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import LedgerOption, a_call, job_names


def export(
    ctx: typer.Context,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB]...", help="Only these.", autocompletion=job_names),
    ] = None,
    ledger: LedgerOption = None,
) -> int:
    """All that is on record, as JSON lines on stdout, for `import`; as at one instant.

    Kept output is no part of it: it stays where it is.
    """
    from jobrun.cli import transfer

    return transfer.export(a_call(ctx, ledger), jobs or [])
