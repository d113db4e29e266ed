"""`jobrun show JOB|KEY|RUN`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun import fate, lastcall, options, printed, schedule
from jobrun.by_hand import mode_of
from jobrun.cli.look import JsonOption, LedgerOption, Look, WhatArgument
from jobrun.cli.target import Target, find
from jobrun.errors import UsageError
from jobrun.ledger import Ledger
from jobrun.screen import Screen
from jobrun.screens.origin import origin_screen
from jobrun.screens.show import job_screen, key_screen, run_screen
from jobrun.standing import stand

EVENTS = 10
RUNS = 200


def show(
    ctx: typer.Context,
    what: WhatArgument,
    origin: Annotated[
        bool, typer.Option("--origin", help="Of a job: each option, and where it comes from.")
    ] = False,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """Everything on record about a job, a key or a run."""
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        target = find(look, rows, what)
        assert rows is not None  # or nothing would have been found
        look.show(_origin(look, rows, target) if origin else _screen(look, rows, target))
    return 0


def _origin(look: Look, ledger: Ledger, target: Target) -> Screen:
    job, window, run = target
    if window is not None or run is not None:
        raise UsageError("--origin is of a job", options.typed("show", job.name, "--origin"))
    return origin_screen(look.path, job, mode_of(ledger, job), lastcall.read(job.spec), look.now)


def _screen(look: Look, ledger: Ledger, target: Target) -> Screen:
    job, window, run = target
    if run is not None:
        files = printed.streams_of(look.where.beside, run)
        return run_screen(look.path, look.as_it_is(run), files, look.now)
    if window is not None:
        found = ledger.runs(job=job.name, key=window.key, limit=RUNS)
        runs = [look.as_it_is(run) for run in found]
        values = ledger.values(job.name, window.key)
        longest = fate.longest_on_record(lastcall.of(job))
        return key_screen(look.path, window, runs, values, look.now, longest)
    standing = stand(ledger, job, look.now, look.is_alive)
    grid = None if job.schedule is None else schedule.parse(job.schedule).describe()
    return job_screen(look.path, standing, ledger.events(job.name, limit=EVENTS), look.now, grid)
