"""The story of one call: lock, plan, run, record.

1. Catch signals, open the ledger, take the job's lock without waiting; busy: withdraw.
2. Read the clock, once. Judge runs that never ended: alive is a skip, dead is lost.
3. Plan: which windows, or which skip and why (`policy.py`).
4. Run them, each claimed before it starts and recorded when it ends (`attempts.py`).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from jobrun import (
    key_file,
    lastcall,
    options,
    places,
    policy,
    process,
    report,
    rows,
    schedule,
    skips,
)
from jobrun.attempts import Attempts
from jobrun.call import Situation
from jobrun.errors import EXIT_SIGNAL, LedgerError, Refused, UsageError
from jobrun.instants import iso_z
from jobrun.ledger_sqlite import open_ledger
from jobrun.lock_file import FileLock
from jobrun.policy import Plan, Unit
from jobrun.rows import JobRow, Opening, RunRow, Stored
from jobrun.value import NamedTuple

if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.job import Job
    from jobrun.key_file import Stamp
    from jobrun.ledger import Ledger
    from jobrun.lock import Lock
    from jobrun.process import Signals
    from jobrun.schedule import Grid

NOTHING = Stored(None, (), lambda since: iter(()))
REPLANS = 5  # another holder between our read and our write, although we hold the lock


def run(job: Job, call: Call) -> int:
    """One call, from the lock to the exit code. Raises JobrunError where nothing ran."""
    began = time.monotonic()
    refuse_early(job, call)
    places.make_state_folder(job.ledger, call.environ)
    signals = process.catch()
    try:
        kind = places.filesystem(call.ledger)
        ledger = open_ledger(call.ledger, call.caller, network=kind in places.NETWORK)
        try:
            tell_ledger(ledger, job, call, kind)
            return _with_lock(job, call, ledger, signals, began)
        finally:
            ledger.close()
    finally:
        signals.restore()


def refuse_early(job: Job, call: Call) -> None:
    """Plan for a ledger that is not there yet, so that a call that is wrong makes none."""
    if job.key_file is not None:
        key_file.check(job.key_file)
    if job.has_grid and not os.path.exists(call.ledger):
        policy.plan_call(job, grid_of(job, NOTHING), NOTHING, call.now())


def tell_ledger(ledger: Ledger, job: Job, call: Call, kind: str) -> None:
    """A new ledger is a NOTE, one that will not last or be trusted a WARNING; quiet or not."""
    fields = {"job": job.name, "ledger": call.ledger, "at": call.now()}
    if ledger.created:
        call.lines.event("NOTE", {"job": job.name, "what": "new-ledger", **fields})
    if kind in places.EPHEMERAL:
        what = {"job": job.name, "what": "ephemeral-ledger", "filesystem": kind}
        call.lines.event("WARNING", {**what, **fields})
    if kind in places.NETWORK:
        what = {"job": job.name, "what": "network-filesystem", "filesystem": kind}
        call.lines.event("WARNING", {**what, **fields})


def _with_lock(job: Job, call: Call, ledger: Ledger, signals: Signals, began: float) -> int:
    lock = FileLock(places.locks_folder(call.ledger), job.name, call.ledger)
    if not lock.acquire(job.wait, signals):
        if signals.received:
            return EXIT_SIGNAL + signals.received
        return skips.lock_held(job, call, ledger, holder(ledger, job.name), lock.holder())
    try:
        note_holder(lock, call)
        owner = places.other_owner(os.stat(call.ledger))
        return _under_lock(Situation(job, call, ledger, lock, signals, began, owner))
    finally:
        lock.release()


def note_holder(lock: Lock, call: Call) -> None:
    """For people, and for a skip that comes while the holder has no run on record."""
    lock.note(f"{call.caller.host}:{call.caller.pid} since {iso_z(call.now())}")


def holder(ledger: Ledger, job: str) -> RunRow | None:
    """The running row of the lock's holder; None between two of its windows."""
    running = ledger.open_runs(job)
    return running[-1] if running else None


def _under_lock(situation: Situation) -> int:
    job, call, ledger = situation.job, situation.call, situation.ledger
    now = call.now()
    for _ in range(REPLANS):
        judged = judge_open_runs(ledger, job.name, call)
        if judged.alive is not None:
            return _skip_alive(situation, judged.alive, judged.pids)
        plan, grid, stamp = make_plan(job, ledger, now)
        code = carry_out(situation, plan, grid, judged.lost, stamp)
        if code is not None:
            return code
    raise Refused(
        f'job "{job.name}": another holder wrote {REPLANS} times while this one held the lock',
        "jobrun doctor tests the lock",
    )


class Judged(NamedTuple):
    """Runs without an end, although their lock was free."""

    lost: list[RunRow]  # nothing of them is left
    alive: RunRow | None  # one of which something is
    pids: tuple[int, ...]  # its command's processes; without any it is the wrapper that lives


def judge_open_runs(ledger: Ledger, job: str, call: Call) -> Judged:
    """A wrapper alive means that its lock file was replaced. A command alive means that its wrapper
    and guardian were both killed. Either way never a second copy beside it.

    The processes are asked whatever host the row names: a machine may have been renamed, and a pid
    of another boot or container is never taken for ours.
    """
    lost: list[RunRow] = []
    for row in ledger.open_runs(job):
        if process.wrapper_alive(row):
            return Judged([], row, ())
        marker = {"JOBRUN_RUN_ID": str(row.id), "JOBRUN_LEDGER": call.ledger}
        if pids := process.command_alive(row, marker):
            return Judged([], row, pids)
        if row.host != call.caller.host:
            _refuse_shared(row, call)
        lost.append(row)
    return Judged(lost, None, ())


def _refuse_shared(row: RunRow, call: Call) -> None:
    """A lock on a network filesystem may be free although its holder, on another host, is not."""
    if places.filesystem(call.ledger) in places.NETWORK:
        raise LedgerError(
            f"the ledger {call.ledger} is on a network filesystem, and run {row.id} of host"
            f" {row.host} has not ended: this host is {call.caller.host}",
            "a ledger on a local disk of each host",
        )


def _skip_alive(situation: Situation, row: RunRow, pids: tuple[int, ...]) -> int:
    job, call, ledger = situation.job, situation.call, situation.ledger
    if not pids:
        return skips.lock_held(job, call, ledger, row, "")
    detail = {"pids": ",".join(map(str, pids)), "run": row.id}
    fold = f"run {row.id}"
    return skips.skip(job, call, ledger, rows.ORPHAN_ALIVE, row.key, detail, fold)


def stored(ledger: Ledger, job: str) -> Stored:
    """What planning reads of a job."""
    return Stored(
        ledger.job(job),
        tuple(ledger.unfinished(job)),
        lambda since: ledger.blocks(job, since),
    )


def make_plan(job: Job, ledger: Ledger, now: int) -> tuple[Plan, Grid | None, Stamp | None]:
    """What this call is to do, whatever its mode."""
    known = stored(ledger, job.name)
    if job.mode == options.PLAIN:
        return plan_plain(job, known, now), None, None
    if job.mode == options.KEY:
        return plan_key(job, ledger, known, now)
    grid = grid_of(job, known)
    return policy.plan_call(job, grid, known, now), grid, None


def grid_of(job: Job, known: Stored) -> Grid:
    """The grid that the call names, or the stored one where it is by hand."""
    text = job.schedule
    row = known.job
    if job.mode != options.WINDOWS and row is not None and row.schedule is not None:
        if text not in (None, row.schedule):
            raise UsageError(
                f'job "{job.name}" is on record with "{row.schedule}", not "{text}"',
                "by hand the grid on record is used: leave --every, --cron and --tz away",
            )
        text = row.schedule
    if text is None:
        raise UsageError(
            f'job "{job.name}" has no schedule on record',
            "--every 1h or --cron EXPR says which windows there are",
        )
    return schedule.parse(text)


def plan_plain(job: Job, known: Stored, now: int) -> Plan:
    """Locked and recorded, nothing more; refused where the job has windows to keep in order."""
    row = known.job
    if row is not None and row.schedule is not None:
        raise UsageError(
            f'job "{job.name}" has windows ("{row.schedule}"): a call without --every or --cron'
            " would do none of them",
            "the options of its crontab line, or another JOB",
        )
    return policy.single(job.name, known, now, Unit(None, None, None, None))


def plan_key(
    job: Job, ledger: Ledger, known: Stored, now: int
) -> tuple[Plan, Grid | None, Stamp | None]:
    """One unit that is no window: a key that is on record as processed is skipped."""
    key, stamp = job.key, None
    if job.key_file is not None:
        key, stamp = key_file.key(job.name, job.key_file)
    assert key is not None
    row = ledger.window(job.name, key)
    if row is not None and row.state in rows.FINISHED:
        return policy.skipped(job.name, known, now, rows.KEY_EXISTS, key), None, None
    kind = rows.NEW if row is None else rows.RETRY
    return policy.single(job.name, known, now, Unit(key, None, None, kind)), None, stamp


def carry_out(
    situation: Situation, plan: Plan, grid: Grid | None, lost: list[RunRow], stamp: Stamp | None
) -> int | None:
    """Write and run what was planned. None where another holder has been: plan again."""
    job, call, ledger = situation.job, situation.call, situation.ledger
    row = ledger.job(job.name)
    opening = complete(plan.opening, situation, row, lost)
    following = grid.next if grid is not None else None

    def tell() -> None:
        for run in lost:
            report.lost(call, run)
        _tell_notes(call, plan)

    if not plan.units:
        if plan.writes and ledger.open(opening, None, following) is None:
            return None
        tell()
        return _skip(situation, plan)
    work = Attempts(situation, grid, stamp, row)
    if situation.signals.received:
        return EXIT_SIGNAL + situation.signals.received
    if not work.run(plan.units, opening, tell):
        return None
    return _end(situation, plan, work)


def complete(
    opening: Opening, situation: Situation, row: JobRow | None, lost: list[RunRow]
) -> Opening:
    """The policy's opening, with what only the call knows.

    A call by hand, or of a unit beside a job's windows, is not what `rerun` and `plan` go by.
    """
    job, call = situation.job, situation.call
    has_windows = row is not None and row.schedule is not None
    spec = None
    if job.mode == options.WINDOWS or (not job.has_grid and not has_windows):
        folder = places.working_folder()
        spec = lastcall.write(job, call.caller, call.now(), folder, situation.ledger.shared)
    return opening._replace(spec=spec, lost=tuple(run.id for run in lost))


def _end(situation: Situation, plan: Plan, work: Attempts) -> int:
    job, call = situation.job, situation.call
    if situation.signals.received:
        return work.exit_code or EXIT_SIGNAL + situation.signals.received
    rest = len(plan.units) - work.done
    if not work.exit_code and (rest or plan.left_text):
        left = plan.left_text if not rest else _more(plan, rest)
        since = plan.units[work.done].start if rest else plan.left_from
        fields = {"job": job.name, "left": left, "from": since, "at": call.now()}
        call.lines.event("BACKLOG", fields)
    return work.exit_code


def _more(plan: Plan, rest: int) -> object:
    return plan.left + rest if plan.left is not None else plan.left_text


def _skip(situation: Situation, plan: Plan) -> int:
    job, call, ledger = situation.job, situation.call, situation.ledger
    believed = not plan.opening.keep_largest_now
    code = 0
    for reason, key, detail in plan.skips:
        code = skips.skip(job, call, ledger, reason, key, detail, believed=believed) or code
    return code


def _tell_notes(call: Call, plan: Plan) -> None:
    for word, fields, hint in plan.notes:
        ledger = call.ledger if fields.get("what") == "first-run" else None
        call.lines.event(word, {**fields, "ledger": ledger, "at": call.now()})
        if hint:
            call.lines.say("hint", hint)
