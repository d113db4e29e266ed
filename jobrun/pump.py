"""From one pipe of the command to one of our streams, at the pace of the slower one."""

from __future__ import annotations

import os
import select

from jobrun import streams
from jobrun.poller import Poller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.output import Stream

_CHUNK = 131_072
_BUSY = 65_536  # bytes in one read: as much as a pipe holds that nobody has widened
_WHOLE_PIPE = 1 << 20


class Pump:
    def __init__(self, poller: Poller, fd: int, stream: Stream) -> None:
        self.fd = fd
        self.reading = True
        self._poller = poller
        self._stream = stream
        self._finishing = False
        self._wide = False
        poller.when_readable(fd, self._read)

    @property
    def finished(self) -> bool:
        """Everything has been read and passed on."""
        return not self.reading and self._stream.blocked_on is None

    def held_open(self) -> bool:
        """Whether somebody can still write to the pipe."""
        return self.reading and not self._state() & select.POLLHUP

    def finish(self) -> None:
        """Don't wait for the pipe's end: what lies in it now is all."""
        self._finishing = True
        if self._stream.blocked_on is None:
            self._read_last()

    def _read(self, size: int = _CHUNK) -> None:
        data = os.read(self.fd, size)
        if not data:
            self._stop()
            return
        if len(data) >= _BUSY and not self._wide:
            streams.widen(self.fd)
            self._wide = True
        self._stream.feed(data)
        self.catch_up()

    def catch_up(self) -> None:
        """Wait for our reader before we read on, where it has to take something first.

        That may be more than was just read: what can't be kept is passed on too.
        """
        blocked_on = self._stream.blocked_on
        if blocked_on is not None:
            self._poller.forget(self.fd)
            self._poller.when_writable(blocked_on, self._drain)

    def _drain(self) -> None:
        blocked_on = self._stream.blocked_on
        self._stream.drain()
        if self._stream.blocked_on is None and blocked_on is not None:
            self._poller.forget(blocked_on)
            if self._finishing:
                self._read_last()
            elif self.reading:
                self._poller.when_readable(self.fd, self._read)

    def _read_last(self) -> None:
        if self.reading and self._state() & select.POLLIN:
            self._read(_WHOLE_PIPE)
        self._stop()

    def _stop(self) -> None:
        self._poller.forget(self.fd)
        self.reading = False

    def _state(self) -> int:
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return sum(event for _, event in poll.poll(0))
