"""`jobrun explain JOB [KEY|WHEN]`"""

from __future__ import annotations

from typing import Annotated

import typer

from jobrun import lastcall, options, printed
from jobrun.cli.look import JobArgument, JsonOption, LedgerOption, Look
from jobrun.errors import UsageError
from jobrun.ledger import Ledger
from jobrun.outbox import Found
from jobrun.rows import FAILURES, JobRow, RunRow
from jobrun.screens.explain import explain_screen
from jobrun.screens.outbox import kept_lines
from jobrun.standing import stand
from jobrun.story import Subject, of_row, tell, window_at

RUNS = 1000  # of one window


def explain(
    ctx: typer.Context,
    job: JobArgument,
    what: Annotated[
        str | None,
        typer.Argument(metavar="[KEY|WHEN]", help="A key, or an instant inside the window."),
    ] = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """What became of one window, in order of time; without WHEN of the one that needs a look."""
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        row = look.job(rows, job)
        assert rows is not None  # or the job would be unknown
        subject = _newest(rows, row, look.now) if what is None else _find(look, rows, row, what)
        found = rows.runs(job=row.name, key=subject.key, limit=RUNS)
        runs = [look.as_it_is(run) for run in found]
        standing = stand(rows, row, look.now, look.is_alive)
        story = tell(rows, standing, subject, runs, look.now)
        screen = explain_screen(look.path, story, standing, _last_words(look, runs), look.now)
        kept = kept_lines(_kept(look, row, subject), look.now)
        look.show(screen._replace(parts=(*screen.parts, *kept)))
    return 0


def _kept(look: Look, job: JobRow, subject: Subject) -> list[Found]:
    """What of it the server has not been told."""
    found = ((each, each.parcel) for each in look.outbox(job.name))
    return [each for each, of in found if of is not None and of.result.key == subject.key]


def _find(look: Look, ledger: Ledger, job: JobRow, what: str) -> Subject:
    for key in (what, f"{job.name}:{what}"):  # as printed, and as given to --key
        row = ledger.window(job.name, key)
        if row is not None:
            return of_row(row)
    if job.schedule is None:
        raise UsageError(
            f'nothing is on record of key "{what}" in {look.path}',
            options.typed("windows", job.name),
        )
    return window_at(ledger, job, look.instant(what, job))


def _newest(ledger: Ledger, job: JobRow, now: int) -> Subject:
    """What waits for a person or a next try: on record, dead, or yet to run; else the last run."""
    for rows in (ledger.unfinished(job.name), ledger.failures(job.name, limit=1)):
        if rows:
            return of_row(rows[0])
    lag = lastcall.of(job).seconds("--lag", 0)
    if job.watermark is not None and job.next is not None and job.next + lag <= now:
        return window_at(ledger, job, job.watermark)
    for run in ledger.runs(job=job.name):
        row = ledger.window(job.name, run.key) if run.key is not None else None
        if row is not None:
            return of_row(row)
    raise UsageError(
        f"{job.name} has run neither a window nor a key yet", options.typed("history", job.name)
    )


def _last_words(look: Look, runs: list[RunRow]) -> str | None:
    """The last line that the last run printed, if it failed: of stderr, else of stdout."""
    last = next((run for run in runs if run.outcome is not None), None)
    if last is None or last.outcome not in FAILURES:
        return None
    for stream in reversed(printed.streams_of(look.where.beside, last)):
        lines = printed.read(stream).decode("utf-8", "backslashreplace").split("\n")
        said = [line for line in map(printed.harmless, lines) if line.strip()]
        if said:
            return said[-1].strip()
    return None
