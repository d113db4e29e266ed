"""Run a command on Linux, macOS and other POSIX systems."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jobrun import guardian, streams, tree, wire
from jobrun.ended import Ended
from jobrun.terminal import Terminal
from jobrun.vigil import Vigil

if TYPE_CHECKING:
    from jobrun.output import Output
    from jobrun.signals import Signals


def start(lock_fd: int | None, stdin: str = "null") -> Child:
    """A guardian, and a command that waits to be told what it is.

    `stdin` is "inherit" or "null". Raises OSError where there are no processes or pipes left.
    """
    streams.fill()
    wires = guardian.open_wires()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, guardian.CAUGHT)
    try:
        pid = os.fork()
        if pid == 0:
            guardian.guard(wires, lock_fd, stdin)
    except OSError:
        guardian.close(*(fd for pipe in wires for fd in pipe))
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return Child(pid, wires, Terminal(stdin))


class Child:
    """A command and its guardian: `go` or `cancel`, and after `go` `wait`."""

    def __init__(self, guardian_pid: int, wires: guardian.Wires, terminal: Terminal) -> None:
        guardian.close(
            wires.go.reader,
            wires.orders.reader,
            wires.report.writer,
            wires.out.writer,
            wires.err.writer,
        )
        self.guardian_pid = guardian_pid
        self.report = wire.Receiver(wires.report.reader)
        self.sources = (wires.out.reader, wires.err.reader)
        self.terminal = terminal
        self._go, self._orders = wires.go.writer, wires.orders.writer
        self.pid = self._first_report()
        self.birth = tree.birth(self.pid)

    def _first_report(self) -> int:
        what, *rest = self.report.one() or [b"failed", b"", b"0"]
        if what == b"pid":
            return int(rest[0])
        self._dismiss()
        raise OSError(int(rest[1]), f"can't start a process: {os.strerror(int(rest[1]))}")

    def go(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        """Let it run; looked up on the PATH in `env`, from `cwd`."""
        self.went = time.monotonic()
        self.terminal.lend(self.pid)
        message = wire.frame(
            os.fsencode(cwd or ""), b"%d" % len(argv), *map(os.fsencode, argv), *_pairs(env)
        )
        wire.send(self._go, message)
        os.close(self._go)
        self._go = -1

    def cancel(self) -> None:
        """It ends without having run."""
        self._dismiss()

    def wait(
        self,
        signals: Signals,
        timeout: float | None,
        kill_after: float,
        marker: tree.Marker,
        output: Output,
    ) -> Ended:
        """Until it has ended, and its tree too where we sent a signal.

        `timeout`: seconds from `go`. `kill_after`: seconds between TERM and KILL, for us and for
        the guardian without us. `marker`: variables that no other command's environment has so.
        """
        # The guardian knows the command's group from the start, and from here on all of the tree.
        self._order(b"tree", b"%f" % kill_after, *_pairs(marker))
        self.tree = tree.tree_of(self.pid, marker, (self.guardian_pid,))
        try:
            return Vigil(self, signals, timeout, kill_after, output).keep()
        finally:
            self.terminal.take_back()
            self._dismiss()

    def _order(self, *items: bytes) -> None:
        wire.send(self._orders, wire.frame(*items))

    def _dismiss(self) -> None:
        """The guardian is gone after this, and with it its hold on the lock."""
        if self._go >= 0:
            os.close(self._go)
        self._order(b"done")
        guardian.close(self._orders, self.report.fd, *self.sources)
        _collect(self.guardian_pid)


def _pairs(variables: Mapping[str, str]) -> list[bytes]:
    # Python gives us a nameless variable where somebody has set one, and exec refuses it.
    return [os.fsencode(f"{name}={value}") for name, value in variables.items() if name]


def _collect(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)  # somebody may have stopped it, and we would wait for ever
        os.waitpid(pid, 0)
    except (ChildProcessError, ProcessLookupError):
        pass  # SIGCHLD is ignored, or as pid 1 we have collected it already
