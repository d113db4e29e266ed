"""One call of jobrun: who makes it, from where, with which clock."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from jobrun.instants import iso_z
from jobrun.job import Job
from jobrun.lines import Lines
from jobrun.rows import Caller
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.ledger import Ledger
    from jobrun.lock import Lock
    from jobrun.places import Where
    from jobrun.process import Signals


class Call(NamedTuple):
    """`clock` returns seconds since 1970-01-01T00:00Z and is the only clock that a call reads."""

    environ: Mapping[str, str]
    clock: Callable[[], float]
    lines: Lines
    where: Where
    caller: Caller

    @property
    def ledger(self) -> str:
        """What a person calls it."""
        return self.where.name

    def now(self) -> int:
        return int(self.clock())


class Situation(NamedTuple):
    """What is there once the lock is held."""

    job: Job
    call: Call
    ledger: Ledger
    lock: Lock
    signals: Signals
    began: float  # monotonic seconds
    owner: tuple[int, int] | None  # of what is made beside the ledger, where it is not us
    slot: int | None = None  # which of the locks beside the job's `lock` is (overlap.py)


def note_holder(lock: Lock, call: Call, more: str = "") -> None:
    """For people, and for a skip that comes while the holder has no run on record."""
    lock.note(f"{call.caller.host}:{call.caller.pid} since {iso_z(call.now())}{more}")


def this_caller() -> Caller:
    return Caller(host_name(), os.getpid(), _user_name(), _on_terminal())


def host_name() -> str:
    if sys.platform == "win32":
        import socket

        return socket.gethostname()
    return os.uname().nodename


def _user_name() -> str:
    if sys.platform == "win32":
        return os.getlogin()
    from jobrun.places import user_name

    return user_name(os.getuid())


def _on_terminal() -> bool:
    for descriptor in (0, 2):
        try:
            if os.isatty(descriptor):
                return True
        except OSError:
            pass
    return False
