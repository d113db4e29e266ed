"""Run a command on Linux, macOS and other POSIX systems."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence

from jobrun import guardian, streams, tree, wire
from jobrun.ended import LOCK_LOST, Ended
from jobrun.ladder import PATIENCE
from jobrun.poller import Poller
from jobrun.terminal import Terminal
from jobrun.vigil import Vigil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.hold import Hold
    from jobrun.keeping import Keeping
    from jobrun.lock import Keeper
    from jobrun.output import Output
    from jobrun.signals import Signals

_OVERDUE = 100  # milliseconds after which a report that does not come is looked into


def start(lock_fd: int | None, stdin: str = "null", keeper: Keeper | None = None) -> Child:
    """A guardian, and a command that waits to be told what it is.

    `stdin` is "inherit" or "null"; `keeper` that of a lock of several machines. Raises OSError
    where there are no processes or pipes left.
    """
    streams.fill()
    hold = None if keeper is None else _hold(keeper)
    wires = guardian.open_wires()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, guardian.CAUGHT)
    try:
        pid = os.fork()
        if pid == 0:
            guardian.guard(wires, lock_fd, stdin, mask, hold)
    except OSError:
        guardian.close(*(fd for pipe in wires for fd in pipe))
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return Child(pid, wires, Terminal(stdin), hold)


def _hold(keeper: Keeper) -> Hold:
    # What is loaded by now is in the guardian too, which must not need the disk.
    from jobrun.hold import Hold

    return Hold(keeper)


class Child:
    """A command and its guardian: `go` or `cancel`, and after `go` `wait`."""

    def __init__(
        self, guardian_pid: int, wires: guardian.Wires, terminal: Terminal, hold: Hold | None
    ) -> None:
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
        self._hold = hold
        if hold is not None:
            hold.begin()
        self.pid = self._first_report()
        self.birth = tree.birth(self.pid)

    def _first_report(self) -> int:
        message = self.report.one() if self._is_reported() else None
        what, *rest = message or [b"gone"]
        if what == b"pid":
            return int(rest[0])
        self._dismiss()
        if what == b"failed":
            raise OSError(int(rest[1]), os.strerror(int(rest[1])))
        raise OSError(errno.ECHILD, "its guardian was killed before the command was there")

    def _is_reported(self) -> bool:
        """False where the guardian was killed first.

        Its end of file would not tell: the blocked command has the pipe too, and waits for us.
        """
        poll = select.poll()
        poll.register(self.report.fd, select.POLLIN)
        while not poll.poll(_OVERDUE):
            try:
                if os.waitpid(self.guardian_pid, os.WNOHANG)[0]:
                    return False
            except ChildProcessError:  # SIGCHLD is ignored; pid 1 has collected it
                return False
        return True

    def go(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        """What it is to run, looked up on the PATH in `env`, from `cwd`; `wait` lets it."""
        self._message = wire.frame(
            os.fsencode(cwd or ""), b"%d" % len(argv), *map(os.fsencode, argv), *_pairs(env)
        )

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

        `timeout`: seconds, from now. `kill_after`: seconds between TERM and KILL, for us and for
        the guardian without us. `marker`: variables that no other command's environment has so.
        """
        keeping = self._keeping(kill_after)
        if keeping is not None and keeping.first_look():
            self._dismiss()
            return Ended(LOCK_LOST, detail=keeping.why)
        try:
            self._let_go(kill_after, marker)
            ended = Vigil(self, signals, timeout, kill_after, output, keeping).keep()
        except BaseException:
            self._leave_to_guardian(signals, kill_after)
            raise
        finally:
            self.terminal.take_back()
        self._dismiss()
        return ended

    def _keeping(self, kill_after: float) -> Keeping | None:
        if self._hold is None:
            return None
        from jobrun.keeping import Keeping

        return Keeping(self._hold.keeper, self._hold, kill_after)

    def _let_go(self, kill_after: float, marker: tree.Marker) -> None:
        # The guardian knows the command's group from the start, and all of the tree before there
        # is one: what has left the group must not outlive us, whenever we are killed.
        self._order(b"tree", b"%f" % kill_after, *_pairs(marker))
        self.tree = tree.tree_of(self.pid, marker, (self.guardian_pid,))
        self.went = time.monotonic()
        self.terminal.lend(self.pid)
        wire.send(self._go, self._message)
        self._close_go()

    def _order(self, *items: bytes) -> None:
        wire.send(self._orders, wire.frame(*items))

    def _close_go(self) -> None:
        if self._go >= 0:
            os.close(self._go)
            self._go = -1

    def _end_hold(self) -> None:
        if self._hold is not None:
            self._hold.end()

    def _dismiss(self) -> None:
        """The guardian is gone after this, and with it its hold on the lock."""
        self._close_go()
        self._end_hold()
        self._order(b"done")
        guardian.close(self._orders, self.report.fd, *self.sources)
        _collect(self.guardian_pid)

    def _leave_to_guardian(self, signals: Signals, kill_after: float) -> None:
        """It ends the tree as if we were dead; whoever asks us to stop does not wait for that."""
        self._close_go()
        self._end_hold()
        guardian.close(self._orders, *self.sources)
        _continue(self.guardian_pid)
        poller = Poller()
        poller.when_readable(self.report.fd, self.report.take)
        poller.when_readable(signals.fd, signals.take)
        asked, deadline = signals.times, time.monotonic() + kill_after + 2 * PATIENCE
        while not self.report.ended and signals.times == asked and time.monotonic() < deadline:
            poller.turn(deadline - time.monotonic())
        if self.report.ended:
            _collect(self.guardian_pid)
        os.close(self.report.fd)


def _pairs(variables: Mapping[str, str]) -> list[bytes]:
    # Python gives us a nameless variable where somebody has set one, and exec refuses it.
    return [os.fsencode(f"{name}={value}") for name, value in variables.items() if name]


def _collect(pid: int) -> None:
    _continue(pid)  # somebody may have stopped it, and we would wait for ever
    with contextlib.suppress(ChildProcessError):  # SIGCHLD is ignored; pid 1 has collected it
        os.waitpid(pid, 0)


def _continue(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
