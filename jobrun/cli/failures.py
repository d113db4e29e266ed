"""`jobrun failures [JOB] [--check]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun import fate, lastcall
from jobrun.cli.look import AnyJobArgument, JsonOption, LedgerOption, Look
from jobrun.ledger import Ledger
from jobrun.rows import WindowRow
from jobrun.screens.failures import Failure, failures_screen

SHOWN = 1000


def failures(
    ctx: typer.Context,
    job: AnyJobArgument = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 where something is listed.")
    ] = False,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """What is dead, held or failed: how often, how it ended last, when it is tried again."""
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        if job is not None:
            look.job(rows, job)
        if rows is None:
            look.nothing_yet({"failures": []})
            return int(check)  # a monitor that looks at the wrong place must not be content
        found = rows.failures(job, limit=SHOWN + 1)
        shown = _with_runs(look, rows, found[-SHOWN:])
        cut = len(found) > SHOWN
        look.show(failures_screen(look.path, shown, look.now, job=job, cut=cut))
    return int(check and bool(found))


def _with_runs(look: Look, ledger: Ledger, found: list[WindowRow]) -> list[Failure]:
    jobs = {name: ledger.job(name) for name in {row.job for row in found}}
    longest = {name: fate.longest_on_record(lastcall.of(job)) for name, job in jobs.items()}
    pauses = {name: job and job.shown_pause(look.now) for name, job in jobs.items()}
    shown = []
    for row in found:
        runs = ledger.runs(job=row.job, key=row.key, limit=1)
        run = look.as_it_is(runs[0]) if runs else None
        due = row.due_at(look.now, longest[row.job])
        shown.append(Failure(row, run, due, pauses[row.job]))
    return shown
