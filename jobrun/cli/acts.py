"""`skip`, `resolve`, `watermark`, `forget`: what a person changes on record, under the lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobrun import (
    asked,
    asked_again,
    living,
    locks,
    options,
    process,
    run,
    schedule,
    turn,
    unclosed,
    windows,
)
from jobrun import job as jobs
from jobrun.by_hand import known_job
from jobrun.call import Call, note_holder
from jobrun.errors import Refused, UsageError
from jobrun.instants import iso
from jobrun.ledger import Ledger
from jobrun.ledgers import open_ledger
from jobrun.plans import Note
from jobrun.rows import BY_HAND, DEAD, FAILED, HELD, RESOLVED, JobRow, Opening, WindowRow

if TYPE_CHECKING:
    from jobrun.lock import Interruption, Lock
    from jobrun.schedule import Grid


def skip(
    call: Call,
    name: str,
    when: str | None,
    since: str | None,
    until: str | None,
    reason: str,
    dry_run: bool = False,
) -> int:
    """Finish windows by hand: one, or the pending and failed ones of a range."""
    if (when is None) == (since is None and until is None):
        raise UsageError(
            "skip takes WHEN, or --from and --to", "jobrun skip JOB yesterday --reason TEXT"
        )
    with under_lock(call, name) as (ledger, row):
        unit = ledger.window(name, when) if when is not None else None
        if unit is not None and unit.start is None:
            return _skip_unit(call, ledger, row, unit, reason, dry_run)
        grid = stored_grid(row)
        known, void = unclosed.leave_out(turn.stored(ledger, name), call.now())
        plan = asked.plan_skip(name, grid, known, call.now(), when, since, until, reason)
        opening = unclosed.make_void(plan.opening, void)._replace(token=row.token)
        if not dry_run:
            if ledger.skip_windows(opening, plan.rows, grid.next) is None:
                raise moved(name)
            tell(call, unclosed.notes_of(name, void, call.now()))
        _tell_skipped(call, name, reason, dry_run, windows=plan.windows)
        return 0


def _skip_unit(
    call: Call, ledger: Ledger, row: JobRow, unit: WindowRow, reason: str, dry_run: bool
) -> int:
    """A unit of --key that will not be tried again."""
    if unit.state not in (FAILED, HELD):
        raise UsageError(f"{unit.key} is {unit.state}: there is nothing to skip")
    events = ((unit.key, BY_HAND, f"skipped: {reason}"),)
    ended = ((unit.key, BY_HAND),)
    opening = Opening(row.name, row.token, call.now(), ended=ended, events=events)
    if not dry_run and ledger.open(opening, None, None) is None:
        raise moved(row.name)
    _tell_skipped(call, row.name, reason, dry_run, key=unit.key)
    return 0


def _tell_skipped(call: Call, name: str, reason: str, dry_run: bool, **which: object) -> None:
    what = "would-skip" if dry_run else "skipped-by-hand"
    fields = {"job": name, "what": what, **which, "why": reason, "at": call.now()}
    call.lines.event("NOTE", fields)


def resolve(call: Call, name: str, when: str, note: str, dry_run: bool) -> int:
    """What is dead or held is settled by a person: finished, and no longer listed."""
    with under_lock(call, name) as (ledger, row):
        unit = _unit(call, ledger, row, when)
        if unit.state not in (DEAD, HELD):
            raise UsageError(
                f"{unit.key} is {unit.state}: resolve is for what is dead or held",
                options.typed("explain", name, unit.key),
            )
        by = f"{call.caller.user}@{call.caller.host}"
        what = {"job": name, "what": "would-resolve" if dry_run else "resolved", "key": unit.key}
        if not dry_run:
            event = (unit.key, RESOLVED, f"it was {unit.state}, by {by}: {note}")
            ended = ((unit.key, RESOLVED),)
            opening = Opening(name, row.token, call.now(), ended=ended, events=(event,))
            following = None if row.schedule is None else stored_grid(row).next
            if ledger.open(opening, None, following) is None:
                raise moved(name)
        told = {**what, "was": unit.state, "by": by, "why": note, "at": call.now()}
        call.lines.event("NOTE", told)
        return 0


def _unit(call: Call, ledger: Ledger, row: JobRow, when: str) -> WindowRow:
    """The window, or unit of --key, that is on record. Raises UsageError."""
    for key in (when, f"{row.name}:{when}"):
        if found := ledger.window(row.name, key):
            return found
    if row.schedule is not None:
        start = windows.parse_when(when, stored_grid(row).zone, call.now(), row.name)
        block = next(ledger.blocks(row.name, start), None)
        if block is not None and block.key is not None and block.start < start:
            hint = f'{options.typed("resolve", row.name, block.key)} --note "..."'
            raise asked_again.inside(when, block.key, block.end, hint)
        if found := ledger.window(row.name, windows.key(row.name, start)):
            return found
    raise UsageError(
        f'"{when}" of {row.name} is not on record', options.typed("failures", row.name)
    )


def watermark(
    call: Call, name: str, to: str | None, reason: str | None, dry_run: bool = False
) -> int:
    """Print the watermark, or set it: up or down, to a boundary that is not after now."""
    if to is None:
        ledger = open_ledger(call.where)
        try:
            row = known_job(ledger, name)
        finally:
            ledger.close()
        print(iso(row.watermark) if row.watermark is not None else "-")
        return 0
    if not reason:
        raise UsageError(
            "watermark --set needs --reason", 'jobrun watermark JOB --set T --reason "..."'
        )
    with under_lock(call, name) as (held, row):
        grid = stored_grid(row)
        known, void = unclosed.leave_out(turn.stored(held, name), call.now())
        instant, opening = asked.plan_watermark(name, grid, known, call.now(), to, reason)
        opening = unclosed.make_void(opening, void)._replace(token=row.token)
        if dry_run:
            settled = asked.settles_at(known, instant, call.now())
            what = {"job": name, "what": "would-set-watermark", "watermark": settled}
            call.lines.event("NOTE", {**what, "why": reason, "at": call.now()})
            return 0
        opened = held.set_watermark(opening, instant, grid.next)
        if opened is None:
            raise moved(name)
        tell(call, unclosed.notes_of(name, void, call.now()))
        # Up again over what is finished already: where it has come to, not what was asked for.
        what = {"job": name, "what": "watermark-set", "watermark": opened.watermark, "why": reason}
        call.lines.event("NOTE", {**what, "at": call.now()})
        return 0


def forget(call: Call, name: str, dry_run: bool = False) -> int:
    """Remove every row of the job; its kept output goes by its own age."""
    with under_lock(call, name) as (ledger, row):
        if not dry_run and not ledger.forget(name, row.token):
            raise moved(name)
        what = "would-forget" if dry_run else "forgotten"
        call.lines.event("NOTE", {"job": name, "what": what, "at": call.now()})
        return 0


@contextmanager
def under_lock(call: Call, name: str) -> Iterator[tuple[Ledger, JobRow]]:
    """The ledger and the job's row, while its lock is held. Raises Refused where it is busy."""
    jobs.check_name(name)
    ledger = open_ledger(call.where)
    options.name_command(ledger.shared)
    signals = process.catch()
    try:
        known_job(ledger, name)
        with locked(call, ledger, name, signals) as lock:
            # Its token before the look: a run that opens after it has taken another.
            row = known_job(ledger, name)
            refuse_alive(ledger, name, call, lock)
            yield ledger, row
    finally:
        signals.restore()
        ledger.close()


@contextmanager
def locked(
    call: Call, ledger: Ledger, name: str, signals: Interruption | None = None
) -> Iterator[Lock]:
    """The lock of a job, on record or not. Raises Refused where it is busy."""
    lock = locks.of(name, call, ledger)
    if not lock.acquire(0, signals):
        raise _busy(ledger, name)
    try:
        note_holder(lock, call)
        turn.hand_in(call, ledger, name)
        yield lock
    finally:
        lock.release()


def refuse_alive(ledger: Ledger, name: str, call: Call, lock: Lock) -> None:
    """What a run that lives goes by is not changed under it, whatever its lock says."""
    judged = living.judge_open_runs(ledger, name, call, lock)
    if judged.alive is not None:
        pids = ",".join(map(str, judged.pids or (judged.alive.pid,)))
        others = f", and {len(judged.living) - 1} beside it" if len(judged.living) > 1 else ""
        free = "" if judged.alive.slot is not None else ", though its lock is free"
        raise Refused(
            f'job "{name}": run {judged.alive.id} is alive (pid {pids}){others}{free}',
            "end it first, or wait for its end",
        )


def stored_grid(row: JobRow) -> Grid:
    if row.schedule is None:
        raise UsageError(
            f'job "{row.name}" has no windows: it was called without --every or --cron'
        )
    return schedule.parse(row.schedule)


def _busy(ledger: Ledger, name: str) -> Refused:
    running = run.holder(ledger, name)
    who = f" by {running.host}:{running.pid}, run {running.id}" if running else ""
    return Refused(f'job "{name}" is running: its lock is held{who}', "again when it has ended")


def tell(call: Call, notes: tuple[Note, ...]) -> None:
    for word, fields, hint in notes:
        call.lines.event(word, {**fields, "at": call.now()})
        if hint:
            call.lines.say("hint", hint)


def moved(name: str) -> Refused:
    return Refused(f'job "{name}": another holder wrote meanwhile', "again, now")
