"""The signals that a call receives, noted for the loop that waits.

A signal that was ignored when jobrun started (nohup, a shell's background job) stays ignored.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None

STOPPING = tuple(
    number
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGBREAK")
    if (number := getattr(signal, name, None)) is not None
)
# timeout(1) signals its child, then its whole group: the same request, microseconds apart.
_ONE_REQUEST = 0.5  # seconds


class Signals:
    """What has arrived since `catch`; `restore` puts things back."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self.received: int | None = None  # the first that asked us to stop
        self.times = 0  # how often we were asked
        self._last = 0.0
        self._news: list[int] = []
        self.fd = -1  # readable where there is news; on Windows nothing can wait for it
        if sys.platform != "win32":
            self.fd, self._waker = os.pipe()
            os.set_blocking(self.fd, False)
            os.set_blocking(self._waker, False)
            self._old_waker = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._old = {number: self.note(number) for number in numbers}

    def note(self, number: int) -> Handler:
        """Note this one too, unless it is ignored; returns what was there."""
        old = signal.getsignal(number)
        if old != signal.SIG_IGN:
            signal.signal(number, self._arrived)
        return old

    def ask(self, number: int) -> None:
        """As if it had arrived, also where it is ignored."""
        self._arrived(number, None)

    def take(self) -> list[int]:
        """The numbers that are new, in order; a stopping one is repeated only if meant again."""
        self._empty()
        news, self._news = self._news, []
        return news

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the next signal, which `take` tells afterwards."""
        if sys.platform == "win32":
            time.sleep(seconds)
            return
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        if poll.poll(seconds * 1000):
            self._empty()  # or the next pause would be none

    def _empty(self) -> None:
        if sys.platform != "win32":
            with contextlib.suppress(BlockingIOError):
                os.read(self.fd, 4096)

    def restore(self) -> None:
        for number, old in self._old.items():
            put_back(number, old)
        if sys.platform != "win32":
            signal.set_wakeup_fd(self._old_waker)
            os.close(self.fd)
            os.close(self._waker)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if number in STOPPING:
            now = time.monotonic()
            if self.times and now - self._last < _ONE_REQUEST:
                return
            self._last = now
            self.times += 1
            self.received = self.received or number
        self._news.append(number)


def catch() -> Signals:
    """Note what asks us to stop, from now on. Once a call."""
    if sys.platform != "win32" and os.getpid() == 1:
        # In a container orphans become our children: vigil.py collects them.
        return Signals((*STOPPING, signal.SIGCHLD))
    return Signals(STOPPING)


def put_back(number: int, old: Handler) -> None:
    """Give a signal back what `note` found; None is a handler that Python did not set."""
    signal.signal(number, signal.SIG_DFL if old is None else old)
