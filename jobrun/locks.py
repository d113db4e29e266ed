"""Which lock a call takes for a job: this machine's, or with it that of all that share a ledger."""

from __future__ import annotations

import os

from jobrun import places
from jobrun.errors import JobrunError
from jobrun.lock_file import FileLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.job import Job
    from jobrun.ledger import Ledger
    from jobrun.lock import Lock
    from jobrun.rows import RunRow


def of(name: str, call: Call, ledger: Ledger, job: Job | None = None) -> Lock:
    """The lock of a job; `job` None: as its last call took it. Raises UsageError (2)."""
    here = of_this_machine(name, call)
    if call.where.is_file and (job is None or job.lock is None):
        return here
    from jobrun import machines

    return machines.lock(name, call, ledger, job, here)


def check(job: Job, call: Call) -> None:
    """Raises UsageError (2) for a lock that can't be, before anything is made."""
    if job.lock is not None:
        from jobrun import machines

        machines.check(job, call)


def of_this_machine(name: str, call: Call, slot: int | None = None) -> FileLock:
    return FileLock(places.locks_folder(call.where.beside), name, call.where.owner, slot)


def is_under_way(run: RunRow, call: Call, ledger: Ledger) -> bool:
    """Whether a run without an end that can't be looked up from here (process.is_here) has its
    lock; also where that can't be told."""
    try:
        return is_doubtful(run, call) or is_held(run, call, ledger)
    except JobrunError:
        return True


def is_doubtful(run: RunRow, call: Call) -> bool:
    """A lock on a network filesystem may be free although its holder, on another host, is not."""
    from jobrun import process

    host = call.caller.host
    is_of_another = run.host != host and not process.is_here(run, host)
    return is_of_another and places.filesystem_of(call.where) in places.NETWORK


def is_held(run: RunRow, call: Call, ledger: Ledger) -> bool:
    """Whether somebody has its lock. Raises JobrunError."""
    if call.where.is_file:
        return is_held_here(run, call)
    from jobrun import machines

    return machines.is_held(machines.lock_of(run, call, ledger))


def is_held_here(run: RunRow, call: Call) -> bool:
    """Whether its wrapper or guardian has its lock, in whatever container they are.

    Where nobody has it, it is taken for a moment.
    """
    lock = of_this_machine(run.job, call, run.slot)
    try:
        return os.path.exists(lock.path) and not lock.acquire()
    finally:
        lock.release()


def holder(run: RunRow, call: Call, ledger: Ledger) -> str:
    """`host:pid` of who has its lock, or had it last: of a long name the beginning, and nothing
    where that is not known. Raises JobrunError."""
    if call.where.is_file:
        return of_this_machine(run.job, call, run.slot).holder().partition(" ")[0]
    from jobrun import machines

    return machines.lock_of(run, call, ledger).holder()
