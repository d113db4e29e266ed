"""One look at one ledger: what every command that only looks has in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperOption

from jobrun import locks, options, outbox, places, process, replay, schedule, tables, windows
from jobrun.by_hand import known_job
from jobrun.call import Call, host_name, this_caller
from jobrun.errors import JobrunError, NoLedger, UsageError
from jobrun.ledger import Ledger
from jobrun.ledgers import is_there, open_ledger
from jobrun.lines import Lines
from jobrun.outbox import Found
from jobrun.places import Where
from jobrun.rows import LOST, JobRow, RunRow
from jobrun.screen import Screen, line

_NAMESPACE = "jobrun.namespace"  # in the context's meta

LedgerOption = Annotated[
    str | None,
    typer.Option("--ledger", metavar="PATH", help="The SQLite file, or postgresql://..."),
]


class LedgerCommand(TyperCommand):
    """Whatever takes --ledger takes --namespace, too: `_find` reads it."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        names = [parameter.name for parameter in self.params]
        if "ledger" in names:
            option = TyperOption(
                param_decls=["--namespace"],
                metavar="NAME",
                help="What is on record of that name space.",
                expose_value=False,
                callback=_keep_namespace,
            )
            self.params.insert(names.index("ledger") + 1, option)


def _keep_namespace(ctx: typer.Context, _: object, name: str | None) -> None:
    ctx.meta[_NAMESPACE] = name


def _find(ctx: typer.Context, ledger: str | None) -> Where:
    outside: Outside = ctx.obj
    namespace: str | None = ctx.meta.get(_NAMESPACE)
    where = places.find(ledger, outside.environ, namespace)
    options.name_ledger(ledger, where.base, namespace)
    return where


def job_names(incomplete: str) -> list[str]:
    """For the shell's completion: the jobs of the default ledger, none where it can't be read."""
    try:
        where = places.find(None, os.environ)
        if not is_there(where):
            return []
        with closing(open_ledger(where)) as ledger:
            return [job.name for job in ledger.jobs() if job.name.startswith(incomplete)]
    except JobrunError:
        return []


JobArgument = Annotated[str, typer.Argument(metavar="JOB", autocompletion=job_names)]
AnyJobArgument = Annotated[
    str | None, typer.Argument(metavar="[JOB]", help="Only this.", autocompletion=job_names)
]
OneJobArgument = Annotated[
    str | None, typer.Argument(metavar="JOB", autocompletion=job_names)
]  # or AllOption
AllOption = Annotated[bool, typer.Option("--all", help="Every job that is on record.")]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="For the record.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say it, change nothing.")]
WhatArgument = Annotated[str, typer.Argument(metavar="JOB|KEY|RUN", autocompletion=job_names)]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="WHEN", help="2026-09-04T10:00Z, 2026-09-04, yesterday, a key."
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, max=100_000, help="At most N rows.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document.")]


class Outside(NamedTuple):
    """What a call gets from the outside; `ctx.obj` of every command."""

    clock: Callable[[], float]
    environ: Mapping[str, str]


def a_call(ctx: typer.Context, ledger: str | None) -> Call:
    """For a command that changes something."""
    outside: Outside = ctx.obj
    where = _find(ctx, ledger)
    if not where.is_file:  # the locks of this machine lie there, though it may have run nothing yet
        places.make_state_folder(where, ledger, outside.environ)
    lines = Lines(log_format=outside.environ.get("JOBRUN_LOG_FORMAT") or "text")
    return Call(outside.environ, outside.clock, lines, where, this_caller())


class Look:
    """`now` is read once. Raises UsageError, UnsafePlace, LedgerError."""

    def __init__(self, ctx: typer.Context, ledger: str | None, as_json: bool) -> None:
        outside: Outside = ctx.obj
        self.clock = outside.clock
        self.now = int(outside.clock())
        self.environ = outside.environ
        self.where = _find(ctx, ledger)
        self.path = self.where.name
        self.as_json = as_json
        self._open: Ledger | None = None
        self.is_named = bool(ledger or self.environ.get("JOBRUN_LEDGER"))

    @contextmanager
    def ledger(self) -> Iterator[Ledger | None]:
        """The ledger, None where there is none yet: looking never makes one.

        What this machine has kept for it is seen as if it were there.
        """
        try:
            ledger = open_ledger(self.where, clock=self.clock) if is_there(self.where) else None
        except NoLedger:
            if self.where.is_file:  # there is a file, of somebody else's
                raise
            ledger = None
        options.name_command(ledger is not None and ledger.shared)
        if ledger is not None:
            ledger = replay.foretold(ledger, self.where)
        self._open = ledger
        try:
            yield ledger
        finally:
            self._open = None
            if ledger is not None:
                ledger.close()

    def outbox(self, job: str | None) -> tuple[Found, ...]:
        """What this machine has kept for a server; of one job what of it can be read."""
        if self.where.is_file:
            return ()
        found = outbox.look(places.outbox_folder(self.where.beside))
        return tuple(each for each in found if each.is_meant(job))

    def show(self, screen: Screen) -> None:
        tables.show(screen, self.path, as_json=self.as_json)

    def nothing_yet(self, empty: Mapping[str, object]) -> None:
        """There is no ledger: no error, but a word, since it may be the wrong place to look."""
        self.show(Screen((line(f"no ledger at {self.path} yet"),), {"exists": False, **empty}))
        folder = os.path.dirname(self.path)
        makes_it = "jobrun run makes it; another one: --ledger PATH or JOBRUN_LEDGER"
        # `run` makes only its own folder.
        missing = self.where.is_file and self.is_named and not os.path.isdir(folder)
        Lines().say("hint", f"mkdir -m 700 -p {folder}" if missing else makes_it)

    def job(self, ledger: Ledger | None, name: str) -> JobRow:
        """Raises UsageError, with what may have been meant."""
        if ledger is None:
            raise UsageError(
                f'no job "{name}": no ledger at {self.path} yet', "--ledger PATH or JOBRUN_LEDGER"
            )
        return known_job(ledger, name)

    def instant(self, when: str, job: JobRow | None, option: str = "WHEN") -> int:
        """WHEN as a person types it; a date is a day in the job's zone. Raises UsageError."""
        zone = "UTC"
        if job is not None and job.schedule is not None:
            zone = schedule.parse(job.schedule).zone
        name = job.name if job is not None else None
        return windows.parse_when(when, zone, self.now, name, option)

    def as_it_is(self, run: RunRow) -> RunRow:
        """A run without outcome whose processes are gone is lost, before a call has said so."""
        if run.outcome is not None or self.is_alive(run):
            return run
        return run._replace(outcome=LOST)

    def is_alive(self, run: RunRow) -> bool:
        """Whether a run without outcome is still under way.

        Asked of its processes, not of its lock: a look that took the lock, if only for a moment,
        would make a call that starts in that moment skip. Only where they can't be looked up, on
        another machine or in a container, does the lock tell: a server says who has it, and one of
        this machine's that can be taken is that of a run which is lost.
        """
        if process.is_here(run, host_name()):
            marker = run.marker(self.path)
            return process.wrapper_alive(run) or bool(process.command_alive(run, marker))
        assert self._open is not None  # it is where the run was read
        call = Call(self.environ, self.clock, Lines(), self.where, this_caller())
        return locks.is_under_way(run, call, self._open)
