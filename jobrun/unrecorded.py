"""A call whose ledger is out of reach, and that is to run all the same (`--on-store-down run`).

It holds this machine's lock and no other, runs what it was called for, or of windows the newest
that has closed, and puts nothing on record. What it has done is noted on this machine, so that the
next call here does not do it again; a call that has the store does.
"""

from __future__ import annotations

import contextlib
import os

from jobrun import (
    command,
    consent,
    locks,
    options,
    placeholders,
    places,
    rows,
    schedule,
    turn,
    windows,
)
from jobrun.attempts import start_blocked
from jobrun.call import note_holder
from jobrun.errors import EXIT_NOT_RECORDED, EXIT_SIGNAL
from jobrun.instants import iso
from jobrun.output import Output
from jobrun.plans import Unit
from jobrun.report import Report
from jobrun.rows import Claimed, Fate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.errors import StoreDown
    from jobrun.job import Job
    from jobrun.lock import Lock
    from jobrun.signals import Signals

UNKNOWN = "whether it is paused, has been done already, or runs on another machine"


def run(job: Job, call: Call, signals: Signals, down: StoreDown) -> int:
    """The exit code: 76 where the command succeeded, else its own. Raises JobrunError where
    nothing ran."""
    lock = locks.of_this_machine(job.name, call)
    if not lock.acquire(job.wait, signals):
        if signals.received:
            return EXIT_SIGNAL + signals.received
        holder = lock.holder().partition(" ")[0] or None
        _skip(job, call, rows.LOCK_HELD, holder=holder)
        return job.busy_exit
    try:
        note_holder(lock, call)
        consent.begin(job.name, None, call.now())  # the clock is set
        unit = _unit(job, call)
        done = _Done(job, call)
        if unit is None:
            _skip(job, call, rows.NO_CLOSED_WINDOW)
            return 0
        if unit.key is not None and done.has(unit.key):
            _skip(job, call, rows.KEY_EXISTS, key=unit.key, state="unrecorded")
            return 0
        _tell(job, call, unit, down)
        code, succeeded = _perform(job, call, signals, lock, unit)
        if succeeded and unit.key is not None:
            done.add(unit.key)
        return code
    finally:
        lock.release()


def _skip(job: Job, call: Call, reason: str, **more: object) -> None:
    fields = {"job": job.name, "reason": reason, **more, "at": call.now()}
    if reason == rows.NO_CLOSED_WINDOW:
        call.lines.idle(fields)
    else:
        call.lines.event("SKIPPED", fields)


def _unit(job: Job, call: Call) -> Unit | None:
    """Of windows the newest: nobody knows which of the others are left."""
    if job.mode == options.PLAIN:
        return Unit(None, None, None, None)
    if job.mode == options.KEY:
        return Unit(turn.name_unit(job)[0], None, None, rows.NEW)
    grid = schedule.parse(job.schedule or "")
    end = grid.floor(call.now() - job.lag)
    start = grid.floor(end - 1)
    first = job.first
    if first not in (None, "latest", "none"):
        begins = windows.parse_when(first, grid.zone, call.now(), job.name, "--first")
        if start < begins:
            return None
    return Unit(windows.key(job.name, start), start, end, rows.NEW)


def _tell(job: Job, call: Call, unit: Unit, down: StoreDown) -> None:
    window = None if unit.start is None else (unit.start, unit.end)
    left = "; which other windows are left" if window else ""
    what = {"job": job.name, "what": "unrecorded", "window": window, "key": unit.key}
    why = {"unknown": f"{UNKNOWN}{left}", "cause": down.message, "at": call.now()}
    call.lines.event("NOTE", {**what, **why})


def _perform(job: Job, call: Call, signals: Signals, lock: Lock, unit: Unit) -> tuple[int, bool]:
    """The exit code, and whether the command succeeded."""
    zone = "UTC" if job.schedule is None else schedule.parse(job.schedule).zone
    claimed = Claimed(0, 1, call.now())
    values = command.values(job, unit, claimed, 0, zone, call.ledger)
    del values["token"], values["attempt"]
    # No other run's: by it the processes of this one are known.
    values["run_id"] = f"unrecorded-{call.caller.host}-{call.caller.pid}"
    if unit.start is not None:
        values["values_file"] = os.devnull
    environment = command.environment(call.environ, values)
    report = Report(job, call, unit, claimed, values, environment)
    # The same as the last one's: what that has left where it was killed is gone then.
    base = os.path.join(_folder(call), places.slug(job.name))
    output = Output(job.output == "live", None if job.output == "live" else base)
    child = start_blocked(job, lock)
    argv = [placeholders.fill(argument, values) for argument in job.command]
    report.started(child.pid)
    child.go(argv, environment, job.cwd)
    ended = child.wait(signals, job.timeout, job.kill_after, command.marker(environment), output)
    output.close()
    verdict = command.judge(ended, job)
    report.ended(ended, verdict, None, output, signals, Fate(), told=True)
    for suffix in (".out", ".err"):
        with contextlib.suppress(OSError):
            os.unlink(base + suffix)
    succeeded = verdict.outcome == rows.SUCCEEDED
    return verdict.answer or EXIT_NOT_RECORDED, succeeded


def _folder(call: Call) -> str:
    return os.path.join(f"{call.where.beside}.d", "unrecorded")


class _Done:
    """What calls on this machine have done without a record, since they last had one."""

    def __init__(self, job: Job, call: Call) -> None:
        self._path = os.path.join(_folder(call), f"{places.slug(job.name)}.done")
        self._now = call.now()

    def has(self, key: str) -> bool:
        try:
            with open(self._path, encoding="utf-8", errors="surrogateescape") as file:
                return any(line.rstrip("\n").partition(" ")[2] == key for line in file)
        except OSError:
            return False

    def add(self, key: str) -> None:
        """Best effort: without it the next call here runs it again, as any other may."""
        with contextlib.suppress(OSError):
            places.make_folder(os.path.dirname(self._path))
            with open(self._path, "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{iso(self._now)} {key}\n")
