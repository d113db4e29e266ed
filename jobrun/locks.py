"""Which lock a call takes for a job: this machine's, or with it that of all that share a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrun import places
from jobrun.lock_file import FileLock

if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.job import Job
    from jobrun.ledger import Ledger
    from jobrun.lock import Lock


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
