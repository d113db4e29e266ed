"""The lock of a job on several machines: that of this machine first, then that of all of them.

What this machine can tell by itself costs no server anything, and the guardian of a command has the
first as ever. Who has the second is asked where processes can't be: a run of another machine that
has no end on record is under way as long as its lock is held, and lost when it is not.

So all that call a job have to take the same lock. The last call's is kept, and is what a call by
hand takes. It is that of all runs without an end, too: whoever would take another one asks that
first, and withdraws unless it is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from jobrun import lastcall
from jobrun.address import hidden
from jobrun.errors import ConfigError, JobrunError, StoreDown, UsageError
from jobrun.job import usual_ttl
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.job import Job
    from jobrun.lastcall import LastCall
    from jobrun.ledger import Ledger
    from jobrun.lock import Interruption, Keeper, Lock, SharedLock
    from jobrun.lock_file import FileLock
    from jobrun.rows import RunRow

DEFAULT = "session"
KILL_AFTER = 10  # seconds, where no call says so


class Terms(NamedTuple):
    """How a job's lock is kept."""

    kind: str
    ttl: float  # seconds after which a holder that says nothing has lost it
    kill_after: float
    namespace: str


def lock(name: str, call: Call, ledger: Ledger, job: Job | None, here: FileLock) -> Lock:
    """See locks.of; `here` is that of this machine."""
    if job is not None:
        check(job, call)
    terms = _terms(name, call, ledger, job)

    def shared(slot: int | None) -> SharedLock:
        return _shared(name, call, ledger, terms, slot)

    def check_others(runs: Sequence[RunRow]) -> None:
        if runs and not call.where.is_file:  # what is on record there is of this machine
            _check_others(runs, call, ledger, terms.kind)

    return MachinesLock(here, shared, check_others, call.caller.host)


def check(job: Job, call: Call) -> None:
    """Whether its lock could be had at all, before anything is made. Raises UsageError."""
    if job.lock is None:
        return
    if "://" in job.lock:
        from jobrun import redis_address

        redis_address.read(job.lock, call.environ)
    elif call.where.is_file:
        raise UsageError(
            f"--lock {job.lock}: the ledger {call.ledger} is a file, which has none",
            "--ledger postgresql://user@host/database, or --lock redis://host:6379/0",
        )


def lock_of(run: RunRow, call: Call, ledger: Ledger) -> SharedLock:
    """What a run of any machine has as long as it is under way."""
    return _shared(run.job, call, ledger, _terms_of_runs(run.job, ledger), run.slot)


def _check_others(runs: Sequence[RunRow], call: Call, ledger: Ledger, kind: str) -> None:
    """See Lock.check_others. One that opens after our look has taken another token."""
    theirs = _terms_of_runs(runs[0].job, ledger)
    if _place(theirs.kind) == _place(kind):
        return
    ours = hidden(kind)
    for run in runs:
        who = f"run {run.id} of host {run.host}"
        try:
            if not is_held(lock_of(run, call, ledger)):
                continue
        except StoreDown:
            raise
        except JobrunError as error:
            raise ConfigError(
                f'job "{run.job}": this call goes by the lock {ours}, and whether {who} has ended'
                f" only its own can tell: {error.message}",
                f"called once with JOBRUN_LOCK={theirs.kind} it is settled, where its server is"
                f" gone for good with an empty one at its address; {error.hint}",
            ) from None
        raise ConfigError(
            f'job "{run.job}": {who} goes by the lock {theirs.kind}, and this call by {ours}',
            f"JOBRUN_LOCK={theirs.kind} for all that call it; another one once that run has ended",
        )


def _place(kind: str) -> tuple[str, int, int] | None:
    """Where it is known; None: to the ledger's server, where sessions and leases see each other."""
    if "://" not in kind:
        return None
    from jobrun import redis_address

    return redis_address.read(kind, {}).place


def _terms(name: str, call: Call, ledger: Ledger, job: Job | None) -> Terms:
    if job is not None:
        return Terms(job.lock or DEFAULT, job.ttl, job.kill_after, ledger.namespace)
    last = lastcall.of(ledger.job(name))
    kind = last.options.get("--lock") or last.around(call.environ).get("JOBRUN_LOCK")
    return _as_last_called(last, kind, ledger)


def _terms_of_runs(name: str, ledger: Ledger) -> Terms:
    """Of those without an end: the lock is on record together with the first of them."""
    last = lastcall.of(ledger.job(name))
    return _as_last_called(last, last.options.get("--lock"), ledger)


def _as_last_called(last: LastCall, kind: str | None, ledger: Ledger) -> Terms:
    kill_after = last.seconds("--kill-after", KILL_AFTER)  # `stop` may wait for it, the lock held
    return Terms(kind or DEFAULT, usual_ttl(kill_after), kill_after, ledger.namespace)


def _shared(
    name: str, call: Call, ledger: Ledger, terms: Terms, slot: int | None = None
) -> SharedLock:
    who = f"{call.caller.host}:{call.caller.pid}"
    if "://" in terms.kind:
        from jobrun import redis_address
        from jobrun.lock_redis import RedisLock

        server = redis_address.read(terms.kind, call.environ)
        return RedisLock(server, name, who, terms.ttl, terms.kill_after, slot, terms.namespace)
    from jobrun.ledger_postgres import PostgresLedger
    from jobrun.lock_lease import LeaseLock
    from jobrun.lock_postgres import SessionLock

    assert isinstance(ledger, PostgresLedger)
    kind = LeaseLock if terms.kind == "lease" else SessionLock
    return kind(ledger.database, name, who, terms.ttl, terms.kill_after, slot)


class MachinesLock:
    """`here` is this machine's, `of_all` makes the other one, the job's or that of a slot,
    `check_others` is of a Lock, and `host` is this machine."""

    def __init__(
        self,
        here: FileLock,
        of_all: Callable[[int | None], SharedLock],
        check_others: Callable[[Sequence[RunRow]], None],
        host: str,
        slot: int | None = None,
    ) -> None:
        self._here = here
        self._of_all = of_all
        self.check_others = check_others
        self._host = host
        self._shared = of_all(slot)
        self._is_taken = False
        self._was_busy_here = True

    @property
    def fd(self) -> int:
        return self._here.fd

    @property
    def keeper(self) -> Keeper | None:
        return self._shared.keeper if self._is_taken else None

    def acquire(self, wait: float = 0.0, signals: Interruption | None = None) -> bool:
        limit = time.monotonic() + wait
        self._was_busy_here = not self._here.acquire(wait, signals)
        if self._was_busy_here:
            return False
        try:
            self._is_taken = self._shared.acquire(max(0.0, limit - time.monotonic()), signals)
        finally:
            if not self._is_taken:
                self._here.release()
        return self._is_taken

    def note(self, text: str) -> None:
        self._here.note(text)

    def holder(self) -> str:
        return self._here.holder() if self._was_busy_here else self._shared.holder()

    def is_held(self) -> bool:
        return self._is_taken and self._shared.is_held()

    def unlock(self) -> None:
        self._let_go()
        self._here.unlock()

    def release(self) -> None:
        self._let_go()
        self._here.release()

    def _let_go(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._shared.release()

    def beside(self, slot: int) -> MachinesLock:
        here = self._here.beside(slot)
        return MachinesLock(here, self._of_all, self.check_others, self._host, slot)

    def is_elsewhere(self, run: RunRow) -> bool:
        from jobrun import process  # loaded where the lock is had

        if run.slot is None and self._is_taken:
            # Its lock is ours. Right after a restart of the server its holder may not have had the
            # time to take it again.
            return not (process.is_here(run, self._host) or self._shared.is_settled())
        return is_held(self._of_all(run.slot))


def is_held(shared: SharedLock) -> bool:
    """Whether somebody has it, or had it until a moment ago and may take it again."""
    return not (shared.is_free() and shared.is_settled())
