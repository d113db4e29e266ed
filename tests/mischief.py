"""What goes wrong inside a wrapper under test: `mischief=NAME` of tests/driven.py."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from jobrun import output, wire


def feed_raises(folder: Path) -> None:
    """An error of ours in the middle of a run."""

    def feed(self: output.Stream, data: bytes) -> None:
        raise MemoryError("mischief")

    output.Stream.feed = feed  # type: ignore[method-assign]


def reads_late(folder: Path) -> None:
    """We are stopped between the fork of the guardian and its first report."""
    wrapper = os.getpid()

    def stop() -> None:
        if os.getpid() == wrapper:
            os.kill(wrapper, signal.SIGSTOP)

    os.register_at_fork(after_in_parent=stop)


def guardian_dies(folder: Path) -> None:
    """Killed, say by the kernel that is out of memory, before it has said anything."""
    os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGKILL))


def guardian_lets_go(folder: Path) -> None:
    """It does not keep the socket that holds a lock of several machines."""
    from jobrun import hold

    hold.Hold.needed = property(lambda self: {self.receiver})  # type: ignore[method-assign,assignment]


def no_files_for_the_command(folder: Path) -> None:
    """The command's own process can open nothing, and be given no standard streams."""
    forks: list[int] = []

    def limit() -> None:
        forks.append(os.getpid())
        if len(forks) == 2:  # the guardian, then the command
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))

    os.register_at_fork(after_in_child=limit)


def dies_once_it_is_told(folder: Path) -> None:
    """We get no further than to tell the command what it is: it runs and ends, we are killed."""
    from tests.conftest import is_alive, until  # with pytest: not into the memory of every driver

    send = wire.send

    def send_and_die(fd: int, data: bytes) -> bool:
        sent = send(fd, data)
        if b"tests.children" in data:
            ready = folder / "ready"
            until(ready.exists, "the command to be ready")
            until(lambda: not is_alive(ready.read_text().split()[0]), "the command to end")
            os.kill(os.getpid(), signal.SIGKILL)
        return sent

    wire.send = send_and_die


def speaks_early(folder: Path) -> None:
    """None: its word of a lost lock comes seconds before its guardian's, not a tenth of one, in
    which a busy machine may not come to it."""
    from jobrun import keeping, lock_redis, postgres_keeper

    keeping._AHEAD = keeping._LATE = 2.0
    postgres_keeper._LAST = lock_redis.LAST_WORD = 2.1


MISCHIEF: dict[str, Callable[[Path], None]] = {
    made.__name__: made
    for made in (
        feed_raises, reads_late, guardian_dies, no_files_for_the_command, dies_once_it_is_told,
        guardian_lets_go, speaks_early,
    )
}  # fmt: skip
