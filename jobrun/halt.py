"""`stop`: end what a job runs now, and say how it ended.

Its wrapper is asked, by TERM, and does the rest: it stops the whole tree of its command by the same
ladder as at a timeout, records the run as interrupted, and starts no other. Whoever is asked is
known by pid and birth: a later process with that pid is never signalled. Where the wrapper and its
guardian are gone and the command is not, its tree goes down the ladder from here.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from jobrun import lastcall, locks, options, process, schedule, turn
from jobrun.by_hand import as_last_said, known_job
from jobrun.errors import EXIT_SIGNAL, JobrunError, Refused
from jobrun.ladder import PATIENCE, Ladder
from jobrun.ledgers import open_ledger
from jobrun.plans import Plan
from jobrun.rows import FAILURES, LOST, JobRow, Opening, RunRow
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.ledger import Ledger
    from jobrun.process import Signals

MARGIN = 5.0  # seconds that a wrapper needs beside the ladder: its record, a busy machine
AGAIN = 0.6  # seconds after which a second signal is another request (signals.py)
LOOK_EVERY = 0.05
RECENT = 20  # runs among which a wrapper's last one is: it may wait with none under way
KILL_AFTER = 10


class Halt(NamedTuple):
    """One call of `stop`."""

    call: Call
    ledger: Ledger
    signals: Signals
    job: JobRow
    kill: bool  # not only asked: no grace

    @property
    def grace(self) -> float:
        """Seconds that the command has after TERM."""
        return float(lastcall.of(self.job).seconds("--kill-after", KILL_AFTER))

    @property
    def patience(self) -> float:
        return (AGAIN if self.kill else self.grace) + PATIENCE + MARGIN


def stop(call: Call, name: str, kill: bool, dry_run: bool) -> int:
    """The exit code. Raises Refused where it has not ended, or is not ours to end."""
    ledger = open_ledger(call.where, to_read=True)
    options.name_command(ledger.shared)
    signals = process.catch()
    try:
        halt = Halt(call, ledger, signals, known_job(ledger, name), kill)
        wrappers = _wrappers(halt)
        orphans = _orphans(halt)
        if dry_run or not (wrappers or orphans):
            return _tell_only(halt, (*wrappers, *orphans))
        code = _stop_wrappers(halt, wrappers)
        if orphans and not code:
            code = _stop_orphans(halt, orphans)
        if not code:
            _refuse_elsewhere(halt)
        return code
    finally:
        signals.restore()
        ledger.close()


def _wrappers(halt: Halt) -> tuple[RunRow, ...]:
    """The last run of each wrapper that lives, also of one that waits for its next try."""
    runs = [*reversed(halt.ledger.open_runs(halt.job.name))]
    runs += halt.ledger.runs(job=halt.job.name, limit=RECENT)
    newest: dict[int | None, RunRow] = {}
    for run in runs:
        if run.pid not in newest and process.wrapper_alive(run):
            newest[run.pid] = run
    return tuple(newest.values())


def _orphans(halt: Halt) -> tuple[RunRow, ...]:
    """Commands that live without their wrapper; beside others (--overlap allow) both may be."""
    runs = halt.ledger.open_runs(halt.job.name)
    alone = (run for run in runs if not process.wrapper_alive(run))
    return tuple(run for run in alone if process.command_alive(run, run.marker(halt.call.ledger)))


def _tell_only(halt: Halt, found: Sequence[RunRow]) -> int:
    """What would be stopped; or that there is nothing, which is what was wanted."""
    for run in found:
        _tell(halt, "would-stop", run, holder=f"{run.host}:{run.pid}")
    if not found:
        _refuse_elsewhere(halt)
        at = halt.call.now()
        halt.call.lines.event("NOTE", {"job": halt.job.name, "what": "not-running", "at": at})
    return 0


def _refuse_elsewhere(halt: Halt) -> None:
    """What another machine or container runs can't be asked from here, nor a call there that waits
    for its next try: as long as it lives it has its lock."""
    call, ledger, name = halt.call, halt.ledger, halt.job.name
    for run in ledger.open_runs(name):
        if not _is_here(halt, run) and locks.is_under_way(run, call, ledger):
            gone = "where that is gone, the next call finds it lost"
            raise _of_another(halt, run, f"run {run.id}", gone)
    for run in ledger.runs(job=name, limit=1):
        if run.outcome in FAILURES and not _is_here(halt, run) and _is_kept(halt, run):
            what = f"the call of run {run.id}, which waits to try again,"
            pause = f"{options.typed('pause', name)} keeps a scheduled one from trying again"
            raise _of_another(halt, run, what, pause)


def _is_here(halt: Halt, run: RunRow) -> bool:
    return process.is_here(run, halt.call.caller.host)


def _is_kept(halt: Halt, run: RunRow) -> bool:
    """Whether its call still has the lock, and not another, which has just begun."""
    holder = f"{run.host}:{run.pid}"
    lock = run, halt.call, halt.ledger
    return locks.is_held(*lock) and holder.startswith(locks.holder(*lock))


def _of_another(halt: Halt, run: RunRow, what: str, more: str) -> Refused:
    here = halt.call.caller.host
    whose = f"host {run.host}, this is {here}"
    if run.host == here:
        whose = f"another machine or container that is called {here}, too"
    return Refused(
        f'job "{run.job}": {what} is of {whose}', f"there: {options.typed('stop', run.job)}; {more}"
    )


def _tell(halt: Halt, what: str, run: RunRow, **more: object) -> None:
    fields: dict[str, object] = {"job": run.job, "what": what, "key": run.key, **more}
    halt.call.lines.event("NOTE", {**fields, "run": run.id, "at": halt.call.now()})


# -- a wrapper that lives -------------------------------------------------------------------------


def _stop_wrappers(halt: Halt, runs: Sequence[RunRow]) -> int:
    for run in runs:
        _ask(halt, run)
        _record(halt, run)
    if halt.kill:
        _wait(halt, runs, AGAIN)
        for run in runs:
            _ask(halt, run)
    left = _wait(halt, runs, halt.patience)
    for run in runs:
        if run not in left:
            _tell_end(halt, run)
    if halt.signals.received:
        return EXIT_SIGNAL + halt.signals.received
    for run in left:
        hint = options.typed("stop", run.job, "--kill")
        if halt.kill:
            hint = f"kill -9 {run.pid}: its guardian ends the command then"
        raise Refused(
            f'job "{run.job}": run {run.id} has not ended within {halt.patience:.0f} s'
            f" (pid {run.pid})",
            hint,
        )
    return 0


def _ask(halt: Halt, run: RunRow) -> None:
    """One that has ended meanwhile is not asked."""
    try:
        process.ask_wrapper(run, signal.SIGTERM)
    except PermissionError:
        raise Refused(
            f'job "{run.job}": run {run.id} is {run.user}\'s, not yours to stop (pid {run.pid})',
            f"{options.shell_text(('sudo', '-u', run.user, '-H'))}"
            f" {options.typed('stop', run.job, '--ledger', halt.call.ledger)}",
        ) from None


def _record(halt: Halt, run: RunRow) -> None:
    """A ledger that can't be written must not keep anybody from stopping a job."""
    caller = halt.call.caller
    detail = f"run={run.id} by {caller.user}@{caller.host}{' with --kill' if halt.kill else ''}"
    try:
        halt.ledger.note_event(run.job, run.key, "stop", detail, halt.call.now())
    except JobrunError as error:
        halt.call.lines.error(error)


def _wait(halt: Halt, runs: Sequence[RunRow], seconds: float) -> list[RunRow]:
    """Those that still live when the time is over, or when a signal asks us to stop."""
    deadline = time.monotonic() + seconds
    while left := [run for run in runs if process.wrapper_alive(run)]:
        if time.monotonic() >= deadline or halt.signals.received:
            break
        halt.signals.pause(LOOK_EVERY)
    return left


def _tell_end(halt: Halt, asked: RunRow) -> None:
    """How its last run ended: it may have begun another one before it was asked."""
    runs = halt.ledger.runs(job=asked.job, limit=RECENT)
    last = next((run for run in runs if run.pid == asked.pid and _is_here(halt, run)), asked)
    more = {"exit": last.exit_code, "outcome": last.outcome or LOST, "took": last.took}
    _tell(halt, "stopped", last, **more)


# -- a command without one ------------------------------------------------------------------------


def _stop_orphans(halt: Halt, runs: Sequence[RunRow]) -> int:
    """Under the job's lock, which its guardian may still hold while it does the same."""
    lock = locks.of(halt.job.name, halt.call, halt.ledger)
    if not lock.acquire(halt.patience, halt.signals):
        if halt.signals.received:
            return EXIT_SIGNAL + halt.signals.received
        raise Refused(
            f'job "{halt.job.name}": its lock is held', options.typed("status", halt.job.name)
        )
    try:
        for run in runs:
            _walk_down(halt, run)
            if halt.signals.received:
                return EXIT_SIGNAL + halt.signals.received
        turn.hand_in(halt.call, halt.ledger, halt.job.name)
        _lose(halt, runs)
    finally:
        lock.release()
    return 0


def _walk_down(halt: Halt, run: RunRow) -> None:
    """TERM, the grace, KILL. Raises Refused where even that does not end it."""
    tree = process.left_of(run, run.marker(halt.call.ledger))
    if tree is None:
        return
    ladder = Ladder(tree, halt.grace)
    if halt.kill:
        ladder.kill(time.monotonic())
    else:
        ladder.ask(signal.SIGTERM, time.monotonic())
    while not ladder.over and not halt.signals.received:
        halt.signals.pause(max(0.0, ladder.due - time.monotonic()))
        ladder.step(time.monotonic())
    if ladder.survivors:
        pids = ", ".join(map(str, ladder.survivors))
        raise Refused(
            f'job "{run.job}": run {run.id} is alive after KILL (pid {pids})',
            "its processes may be another user's: sudo"
            f" {options.typed('stop', run.job, '--ledger', halt.call.ledger)}",
        )


def _lose(halt: Halt, runs: Sequence[RunRow]) -> None:
    """What the next call would find out, and by what the last one said of it: nobody saw how it
    ended."""
    call, ledger = halt.call, halt.ledger
    row = known_job(ledger, halt.job.name)
    this = as_last_said(ledger, row, call.environ)
    _, fates = turn.after_loss(this, ledger, turn.stored(ledger, row.name), runs)
    by = f"by {call.caller.user}@{call.caller.host}"
    events = tuple((run.key, "stop", f"run={run.id} {by}") for run in runs)
    opening = Opening(row.name, row.token, call.now(), events=events)
    plan = Plan(turn.give_up(opening, call, runs))
    plan = turn.tell_loss(plan, fates)
    # A dead one is finished: the watermark moves over it.
    following = None if row.schedule is None else schedule.parse(row.schedule).next
    opened = ledger.open(plan.opening, None, following)
    if opened is None:
        raise Refused(f'job "{row.name}": another holder wrote meanwhile', "again, now")
    turn.tell(this, call, ledger, plan, runs, opened)
    for run in runs:
        _tell(halt, "stopped", run, outcome=LOST)
