"""`jobrun flush [JOB] [--dry-run]`"""

from __future__ import annotations

import typer

from jobrun import replay, tables
from jobrun.cli.look import AnyJobArgument, DryRunOption, JsonOption, LedgerOption, a_call
from jobrun.errors import EXIT_REFUSED
from jobrun.screen import Screen
from jobrun.screens.outbox import kept_data


def flush(
    ctx: typer.Context,
    job: AnyJobArgument = None,
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """Tell the server what this machine has kept for it: how runs ended that are not on record.

    The next call of their job does the same. Exit 75 where something is left.
    """
    call = a_call(ctx, ledger)
    flushed = replay.flush(call, job, dry_run)
    if as_json:
        data = [{**kept_data(each.found), "left": each.left} for each in flushed]
        tables.show(Screen((), {"outbox": data}), call.ledger, as_json=True)
    elif not flushed:
        call.lines.event("NOTE", {"job": job, "what": "nothing-to-flush", "at": call.now()})
    is_left = any(each.left is not None for each in flushed)
    return EXIT_REFUSED if is_left and not dry_run else 0
