"""The story of one call: lock, plan, run, record.

1. Catch signals, open the ledger, take the job's lock without waiting; busy: withdraw.
2. Read the clock, once. Judge runs that never ended: alive is a skip, dead is lost.
3. Plan: which windows, or which skip and why (`policy.py`).
4. Run them, each claimed before it starts and recorded when it ends (`attempts.py`).

Here is the first of these, `turn.py` has the others: a call that meets a held lock does not load
what it takes to plan and to run.
"""

from __future__ import annotations

import os
import time
from functools import partial

from jobrun import locks, options, places
from jobrun.call import Situation, note_holder
from jobrun.errors import EXIT_SIGNAL, StoreDown
from jobrun.ledgers import is_there, open_ledger
from jobrun.rows import FAR
from jobrun.signals import catch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.job import Job
    from jobrun.ledger import Ledger
    from jobrun.rows import RunRow
    from jobrun.signals import Signals


def run(job: Job, call: Call) -> int:
    """One call, from the lock to the exit code. Raises JobrunError where nothing ran."""
    began = time.monotonic()
    refuse_early(job, call)
    places.make_state_folder(call.where, job.ledger, call.environ)
    signals = catch()
    try:
        return _with_store(job, call, signals, began)
    except StoreDown as error:
        from jobrun import outage

        again = partial(_with_store, job, call, signals, began)
        return outage.meet(job, call, signals, error, again)
    finally:
        signals.restore()


def _with_store(job: Job, call: Call, signals: Signals, began: float) -> int:
    """Raises StoreDown where it has gone before anything ran."""
    kind = places.filesystem_of(call.where)
    network = kind in places.NETWORK
    ledger = open_ledger(call.where, call.caller, create=True, network=network, clock=call.clock)
    options.name_command(ledger.shared)
    try:
        job = as_set(job, call, ledger.overrides(job.name))
        tell_ledger(ledger, job, call, kind)
        return _with_ledger(job, call, ledger, signals, began)
    finally:
        ledger.close()


def _with_ledger(job: Job, call: Call, ledger: Ledger, signals: Signals, began: float) -> int:
    if _is_idle(job, call, ledger):
        return 0
    lock = locks.of(job.name, call, ledger, job)
    owner = places.other_owner(os.stat(call.where.owner))
    situation = Situation(job, call, ledger, lock, signals, began, owner)
    if job.parallel is not None:
        return _in_parallel(situation)
    if job.overlap == "allow":
        from jobrun import overlap

        return overlap.take(situation)
    return _with_lock(situation)


def refuse_early(job: Job, call: Call) -> None:
    """Plan for a ledger that is not there yet, so that a call that is wrong makes none."""
    if job.key_file is not None:
        from jobrun import key_file

        key_file.check(job.key_file)
    locks.check(job, call)
    if job.has_grid and not is_there(call.where):
        from jobrun import turn

        turn.plan_first(job, call.now())


def as_set(job: Job, call: Call, overrides: str | None) -> Job:
    """The call with what is set on record, before anything is decided by it.

    By hand it has that already, and what was typed wins.
    """
    if overrides is None or job.mode not in options.OF_RUN:
        return job
    from jobrun import setting

    return setting.apply(job, call, overrides)


def tell_ledger(ledger: Ledger, job: Job, call: Call, kind: str) -> None:
    """A new ledger is a NOTE, one that will not last or be trusted a WARNING, quiet or not; so is a
    clock that is far from the server's, once."""
    fields = {"job": job.name, "ledger": call.ledger, "at": call.now()}
    if ledger.created:
        call.lines.event("NOTE", {"job": job.name, "what": "new-ledger", **fields})
    if kind in places.EPHEMERAL:
        what = {"job": job.name, "what": "ephemeral-ledger", "filesystem": kind}
        call.lines.event("WARNING", {**what, **fields})
    if kind in places.NETWORK:
        what = {"job": job.name, "what": "network-filesystem", "filesystem": kind}
        call.lines.event("WARNING", {**what, **fields})
    if ledger.skew is not None and abs(ledger.skew) > FAR:
        from jobrun import episodes

        episodes.clock_skew(ledger, job, call)


def _is_idle(job: Job, call: Call, ledger: Ledger) -> bool:
    """By a server's ledger; a file is asked before most of this is loaded (`__main__.py`)."""
    if call.where.is_file or job.mode != options.WINDOWS:
        return False
    if places.has_outbox(call.where.beside):  # handed in under the lock
        return False
    from jobrun import idle

    return idle.way_out_of(job, ledger, call.clock, call.lines)


def _with_lock(situation: Situation) -> int:
    job, call, ledger, lock, signals, *_ = situation
    named = None
    if job.key_file is not None and not (call.where.is_file and job.lock is None):
        from jobrun import key_file

        # A server hears nothing of us while a large file is read: not with its lock.
        named = key_file.key(job.name, job.key_file)
    is_held = lock.acquire(job.wait, signals)
    try:
        if not is_held:
            if signals.received:
                return EXIT_SIGNAL + signals.received
            from jobrun import skips

            return skips.lock_held(job, call, ledger, holder(ledger, job.name), lock.holder())
        note_holder(lock, call)
        from jobrun import turn

        return turn.take(situation, named)
    except StoreDown as error:
        error.is_late = True
        raise
    finally:
        lock.release()


def _in_parallel(situation: Situation) -> int:
    from jobrun import parallel

    job, call = situation.job, situation.call

    def enter(signals: Signals) -> Situation:
        """As the worker that this process is."""
        mine = call._replace(caller=call.caller._replace(pid=os.getpid()))
        ledger = open_ledger(call.where, mine.caller)
        lock = locks.of(job.name, mine, ledger, job)
        return situation._replace(call=mine, ledger=ledger, lock=lock, signals=signals)

    return parallel.take(situation, enter)


def holder(ledger: Ledger, job: str) -> RunRow | None:
    """The running row of the lock's holder; None between two of its windows."""
    running = ledger.open_runs(job)
    return running[-1] if running else None
