"""`jobrun history [JOB] [--since WHEN] [--all]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun.cli.look import AnyJobArgument, JsonOption, LedgerOption, Look, SinceOption
from jobrun.screens.history import history_screen

SKIPS = 5
READ_AHEAD = 10  # rows read for one shown, since repeats are folded
MOST = 100_000


def history(
    ctx: typer.Context,
    job: AnyJobArgument = None,
    since: SinceOption = None,
    every: Annotated[bool, typer.Option("--all", help="Each repeat of a window, too.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="At most N rows.")
    ] = 20,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """What ran, newest first: window, try, duration, outcome, by whom; and what was skipped."""
    look = Look(ctx, ledger, as_json)
    limit = max(1, min(limit, MOST))
    with look.ledger() as rows:
        row = None if job is None else look.job(rows, job)
        if rows is None:
            look.nothing_yet({"runs": [], "skips": []})
            return 0
        start = None if since is None else look.instant(since, row)
        read = limit + 1 if every else min(limit * READ_AHEAD, MOST) + 1
        runs = [look.as_it_is(run) for run in rows.runs(job=job, since=start, limit=read)]
        skips = [s for s in rows.skips(job, limit=SKIPS) if start is None or s.last_at >= start]
        screen = history_screen(
            look.path,
            runs[: read - 1],
            skips,
            look.now,
            job=job,
            every=every,
            rows=limit,
            more=len(runs) == read,
        )
        look.show(screen)
    return 0
