"""Another process that holds a lock of several machines (tests/holder.py): heard, stopped, ended.

Where nothing else is said its lock lasts so long that no test waits for its end, and it is asked
for so seldom that what happens at once is not taken for the next question's doing.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.conftest import PYTHON, ROOT, clean_environment, line_of, state, until

TTL, KILL_AFTER = 120.0, 20.0  # seconds; asked every 39


class End(NamedTuple):
    """Instants are of `boottime`."""

    until: float  # when its command would have been asked to end
    at: float
    longest: float  # seconds in which it heard nothing
    why: str  # how the lock was lost


class Holder:
    def __init__(self, address: str, ttl: float, kill_after: float, run: int) -> None:
        self.process = subprocess.Popen(
            [PYTHON, "-m", "tests.holder", address, str(ttl), str(kill_after), str(run)],
            cwd=ROOT,
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.backend = int(self.hears("held"))

    def hears(self, word: str) -> str:
        """The next that it says begins so; the rest of it."""
        assert self.process.stdout is not None
        said, _, rest = line_of(self.process.stdout).decode().strip().partition(" ")
        assert said == word, (said, rest)
        return rest

    def hears_again(self) -> None:
        """It has taken the lock once more, over another connection."""
        self.backend = int(self.hears("again"))

    def end(self) -> End:
        """It ends: the lock is lost."""
        until, at, longest, *why = self.hears("end").split(" ", 3)
        return End(float(until), float(at), float(longest), "".join(why))

    def is_kept(self) -> bool:
        """It is asked to end: it has heard of no loss."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return not self.end().why

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        until(lambda: state(self.process.pid) == "T", "the stop")

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        with self.process:  # closes its pipes
            pass


@contextmanager
def holding(
    address: str, ttl: float = TTL, kill_after: float = KILL_AFTER, run: int = 1
) -> Iterator[Holder]:
    holder = Holder(address, ttl, kill_after, run)
    try:
        yield holder
    finally:
        holder.kill()
