"""`jobrun plan JOB [--at INSTANT]` and, in the same words, `jobrun run --dry-run`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing, suppress
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from jobrun import command, foreseen, locks, options, overlap, places, replay, tables, turn
from jobrun import job as jobs
from jobrun.by_hand import as_it_would_be, in_its_place
from jobrun.call import Call, this_caller
from jobrun.cli.look import JobArgument, JsonOption, LedgerOption, Look
from jobrun.errors import NoLedger, UsageError
from jobrun.job import Job
from jobrun.lastcall import LastCall
from jobrun.ledger import Ledger
from jobrun.ledgers import is_there, open_ledger
from jobrun.lines import Lines
from jobrun.living import judge_open_runs, keys_of
from jobrun.plans import Plan, Unit
from jobrun.rows import Claimed, JobRow, Opening
from jobrun.run import as_set
from jobrun.screen import Screen, moment
from jobrun.screens.plan import Setting, plan_screen, usual_lateness

RUNS = 20


def plan(
    ctx: typer.Context,
    job: JobArgument,
    at: Annotated[
        str | None, typer.Option("--at", metavar="INSTANT", help="As if it were then.")
    ] = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """What the next call would do, with the options and the command of the last one."""
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        row = look.job(rows, job)
        assert rows is not None  # or the job would be unknown
        last = in_its_place(as_it_would_be(rows, row), look.where)
        this = as_last_called(rows, row, last, look.environ)
        now = look.now if at is None else look.instant(at, row, "--at")
        when = "" if last.at is None else f" {moment(last.at, look.now, seconds=True)}"
        source = f"as last called{when} by {last.caller or 'unknown'}"
        source += ", with what is set since (show --origin)" if row.overrides else ""
        call = Call(look.environ, lambda: now, Lines(), look.where, this_caller())
        look.show(_screen(this, call, rows, source, is_now=at is None))
    return 0


def as_last_called(ledger: Ledger, row: JobRow, last: LastCall, environ: Mapping[str, str]) -> Job:
    if row.schedule is None and ledger.keys(row.name, limit=1):
        raise UsageError(
            f"{row.name} has units of --key: the next call names one, and runs it unless it is"
            " processed",
            f"{options.typed('windows', row.name)} lists the newest",
        )
    if not last.command:
        raise UsageError(f"no command is on record for {row.name}", options.USAGE["run"])
    mode = options.PLAIN if row.schedule is None else options.WINDOWS
    rest = () if last.whole else ("...",)
    command = [*last.command, *rest]
    return jobs.make(row.name, mode, dict(last.options), command, last.around(environ))


def dry_run(job: Job, call: Call) -> int:
    """`run --dry-run`: the plan of this very call. A ledger that is not there is not made."""
    with (
        TemporaryDirectory(prefix="jobrun-") as folder,
        closing(_as_it_is(call, folder)) as ledger,
    ):
        job = as_set(job, call, ledger.overrides(job.name))
        screen = _screen(job, call, ledger, "as this call says", is_now=True)
        tables.show(screen, call.ledger, as_json=job.log_format == "json")
    return 0


def _as_it_is(call: Call, folder: str) -> Ledger:
    """The ledger; where there is none one without a row, in `folder`."""
    if is_there(call.where):
        with suppress(NoLedger):
            ledger = open_ledger(call.where)
            options.name_command(ledger.shared)
            return replay.foretold(ledger, call.where)
    return open_ledger(places.find(os.path.join(folder, "empty.db"), {}), create=True)


def _screen(job: Job, call: Call, ledger: Ledger, source: str, is_now: bool) -> Screen:
    """What runs now keeps a call of now from its turn; to one of later it leaves the rest."""
    now = call.now()
    lock = locks.of(job.name, call, ledger, job) if ledger.open_runs(job.name) else None
    judged = judge_open_runs(ledger, job.name, call, lock, by_lock=False)
    taken = keys_of(judged.living)
    plan, grid, _ = turn.make_plan(job, ledger, now, judged.lost, taken)
    holder = foreseen.holder(job, ledger, judged.living)
    kept_out = foreseen.kept_out(job, holder, judged.living) if is_now else None
    if kept_out is not None:
        plan, row = Plan(Opening(job.name, 0, now), skips=(kept_out,)), ledger.job(job.name)
    else:
        plan = overlap.name_holder(plan, judged.living, call)
        plan, row = foreseen.loss(job, call, ledger, plan, grid, judged.lost)
        plan = plan._replace(notes=(*replay.notes(ledger, call, job.name), *plan.notes))
    setting = Setting(
        ledger=call.ledger,
        job=job,
        row=row,
        describe=None if grid is None else grid.describe(),
        source=source,
        holder=None if holder is None else holder.run,
        late=usual_lateness(ledger.runs(job=job.name, limit=RUNS), job.lag),
        now=now,
    )

    def values(unit: Unit) -> dict[str, str]:
        known = None if unit.key is None else ledger.window(job.name, unit.key)
        claimed = Claimed(0, 1 if known is None else known.attempts + 1, now)
        token = 1 if row is None else row.token + 1
        zone = "UTC" if grid is None else grid.zone
        found = command.values(job, unit, claimed, token, zone, call.ledger)
        return {**found, "run_id": "RUN"}

    return plan_screen(setting, plan, values)
