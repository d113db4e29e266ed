"""Pass the command's output on, unchanged and as it comes, while keeping a bounded part of it."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys

from jobrun import streams
from jobrun.kept import Keeper, MakeFolder, make_private_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Asked(Protocol):
        """What tells that we are to stop (signals.py)."""

        times: int  # how often we were asked
        fd: int  # readable where something has arrived

        def take(self) -> object:
            """Empty `fd`."""


_PATIENCE = 1.0  # seconds, with a reader that is stuck when we are to stop


class Output:
    """Of one run.

    `live`: pass it on. `base`: keep it in the files base + ".out" and base + ".err".
    Where keeping fails and nothing is passed on, the rest is passed on rather than lost.
    """

    def __init__(
        self, live: bool, base: str | None, make_folder: MakeFolder = make_private_folder
    ) -> None:
        def stream(fd: int, name: str, suffix: str, missing: bool) -> Stream:
            keeper = None if base is None else Keeper(base + suffix, make_folder)
            return Stream(fd, name, live, keeper, missing)

        # Where it was closed when we started, its number may be another file's by now.
        self.out = stream(1, "stdout", ".out", sys.stdout is None)
        self.err = stream(2, "stderr", ".err", sys.stderr is None)
        self._streams = (self.out, self.err)

    @property
    def bytes(self) -> int:
        """All that came, of both streams."""
        return self.out.bytes + self.err.bytes

    @property
    def problem(self) -> str | None:
        """Why it could not be kept, or not whole."""
        return self.out.problem or self.err.problem

    @property
    def dropped(self) -> tuple[str, ...]:
        """Which of our own streams is broken, so that output was not passed on: stdout, stderr."""
        return tuple(stream.name for stream in self._streams if stream.dropped)

    @property
    def unsaved(self) -> bool:
        return any(stream.unsaved for stream in self._streams)

    def save(self) -> None:
        """Bring the kept files up to date."""
        for stream in self._streams:
            stream.save()

    def close(self) -> None:
        for stream in self._streams:
            stream.close()

    def show(self, signals: Asked | None = None) -> None:
        """What was kept, stdout to stdout and stderr to stderr; after `close`.

        With `signals` it gives up where we are asked to stop while a reader of ours is stuck, and
        a second after it gets stuck where we have been asked already.
        """
        for stream in self._streams:
            stream.show(signals)


class Stream:
    """stdout or stderr, from the command to ours and to the file."""

    def __init__(
        self, fd: int, name: str, live: bool, keeper: Keeper | None, missing: bool
    ) -> None:
        self.name = name
        self.bytes = 0
        self.dropped = False
        self._fd = fd
        self._missing = missing
        self._keeper = keeper
        self._sink = Sink(fd, missing) if live else None

    @property
    def problem(self) -> str | None:
        return None if self._keeper is None else self._keeper.problem

    @property
    def unsaved(self) -> bool:
        return self._keeper is not None and self._keeper.unsaved

    @property
    def blocked_on(self) -> int | None:
        """The descriptor that has to become writable before more may come."""
        return self._sink.fd if self._sink is not None and self._sink.waiting else None

    def feed(self, data: bytes) -> None:
        self.bytes += len(data)
        if self._sink is not None:
            self._pass_on(data)
        if self._keeper is not None:
            self._keeper.feed(data)
            if self._keeper.full:
                self.save()

    def drain(self) -> None:
        """Go on with what was blocked."""
        self._pass_on(b"")

    def save(self) -> None:
        if self._keeper is not None:
            lost = self._keeper.save()
            if self.problem and self._sink is None:
                self._sink = Sink(self._fd, self._missing)
                self._pass_on(lost)

    def close(self) -> None:
        self.save()
        if self._keeper is not None:
            self._keeper.close()
        if self._sink is not None:
            self._sink.close()

    def show(self, signals: Asked | None) -> None:
        kept = None
        with contextlib.suppress(OSError):  # what can't be read is as good as gone
            kept = None if self._keeper is None else self._keeper.read()
        if kept is not None and not self._missing:
            self._sink = Sink(self._fd)
            self._pass_on(kept.data)
            self._sink.empty(signals)
            self._pass_on(b"")
            self._sink.close()

    def _pass_on(self, data: bytes) -> None:
        assert self._sink is not None
        # What was closed when we started is not broken: nobody wanted to have it.
        if not self._sink.write(data) and not self._missing:
            self.dropped = True


class Sink:
    """A stream of ours, written without waiting for its reader.

    Setting O_NONBLOCK would set it for everybody who shares the stream, the shell included. So a
    pipe or a terminal is opened once more where the system can do that, and elsewhere written in
    pieces that fit where poll says that something does. Files always take everything.
    """

    def __init__(self, fd: int, missing: bool = False) -> None:
        self.fd = fd
        self._opened = -1
        self._wide = False
        self._piece: int | None = None
        self._rest = memoryview(b"")
        self._broken = missing
        if not missing and _may_block(fd):
            self._open_again(fd)

    @property
    def waiting(self) -> bool:
        return bool(self._rest)

    def write(self, data: bytes) -> bool:
        """As much as fits now; False where it is broken."""
        self._rest = memoryview(bytes(self._rest) + data if self._rest else data)
        if not self._broken:
            try:
                while self._rest and self._has_room():
                    self._rest = self._rest[os.write(self.fd, self._rest[: self._piece]) :]
            except BlockingIOError:
                self._widen()
            except OSError:
                self._broken = True
        if self._broken:
            self._rest = memoryview(b"")
        return not self._broken

    def empty(self, signals: Asked | None) -> None:
        """Write the rest, waiting for the reader."""
        if sys.platform == "win32":
            return  # it waits as it writes
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        times, patience = 0, None
        if signals is not None:
            poll.register(signals.fd, select.POLLIN)
            times, patience = signals.times, _PATIENCE * 1000 if signals.times else None
        while self.waiting and poll.poll(patience):
            self.write(b"")
            if signals is not None:
                signals.take()
                if signals.times > times:
                    return

    def close(self) -> None:
        if self._opened >= 0:
            os.close(self._opened)
            self._opened = -1

    def _open_again(self, fd: int) -> None:
        if sys.platform == "win32":
            return
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            self.fd = self._opened = os.open(f"/proc/self/fd/{fd}", flags)
        except OSError:  # no /proc, a socket, another user's pipe, no reader
            self._piece = select.PIPE_BUF

    def _widen(self) -> None:
        if self._opened >= 0 and not self._wide:
            streams.widen(self._opened)
            self._wide = True

    def _has_room(self) -> bool:
        if self._piece is None or sys.platform == "win32":
            return True
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        return bool(poll.poll(0))


def _may_block(fd: int) -> bool:
    if sys.platform == "win32":
        return False  # each stream has a thread of its own there (process_windows.py)
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False  # closed: the first write says so
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
