"""Workers: copies of this process that share one piece of work, and never outlive it. POSIX only.

Each has one end of a pair of sockets whose other end is ours alone: when we are gone, however that
came, the kernel tells it by SIGIO, and it stops as it would for SIGTERM.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator

from jobrun.errors import EXIT_BUG
from jobrun.signals import STOPPING, Signals, catch, put_back

LONGEST_PAUSE = 1.0  # seconds, should the word of a worker's end be lost
# Asks for a signal when there is news of a socket.
_O_ASYNC = getattr(os, "O_ASYNC", 0x40)


class Workers:
    """`body` is what each does: from its number, and the signals that it gets, to its exit code."""

    def __init__(self, signals: Signals, body: Callable[[int, Signals], int]) -> None:
        self._signals = signals
        self._body = body
        self._alive: dict[int, tuple[int, socket.socket]] = {}  # by pid
        self._old = signal.getsignal(signal.SIGCHLD)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored nobody could wait
        signals.note(signal.SIGCHLD)

    def start(self, number: int) -> None:
        """Raises OSError where there are no processes left."""
        ours, theirs = socket.socketpair()
        # One that asks us to stop must not meet a worker that can't note it yet.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            pid = os.fork()
            if pid == 0:
                ours.close()
                self._be(number, theirs, mask)
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()
        self._alive[pid] = number, ours

    def ended(self) -> Iterator[tuple[int, int, int]]:
        """(number, pid, exit code) of each, as they end; -9 is one that SIGKILL has ended.

        What asks us to stop is passed on to all of them.
        """
        while self._alive:
            for number in self._signals.take():
                if number in STOPPING:
                    self.tell(number)
            found = list(self._collect())
            yield from found
            if not found:
                self._signals.pause(LONGEST_PAUSE)

    def tell(self, number: int) -> None:
        for pid in self._alive:  # not collected yet, so it is nobody else's
            os.kill(pid, number)

    def release(self) -> None:
        """Where not all have ended, the others are asked to."""
        put_back(signal.SIGCHLD, self._old)
        for _, ours in self._alive.values():
            ours.close()

    def _collect(self) -> Iterator[tuple[int, int, int]]:
        for pid in list(self._alive):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                number, ours = self._alive.pop(pid)
                ours.close()
                yield number, pid, os.waitstatus_to_exitcode(status)

    def _be(self, number: int, theirs: socket.socket, mask: set[int | signal.Signals]) -> None:
        """The life of a worker; never returns."""
        code = EXIT_BUG
        try:
            for _, other in self._alive.values():
                other.close()
            put_back(signal.SIGCHLD, self._old)
            self._signals.restore()
            signals = catch()
            _stop_without(theirs, signals)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = self._body(number, signals)
        except Exception:
            sys.excepthook(*sys.exc_info())
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:  # noqa: SIM105 - as at the end of any call
                    stream.flush()
                except (OSError, AttributeError, ValueError):
                    pass
            os._exit(code)


def _stop_without(theirs: socket.socket, signals: Signals) -> None:
    """Once the other end is closed, this process is asked to stop."""
    theirs.setblocking(False)

    def look(*_: object) -> None:
        try:
            is_gone = not theirs.recv(1)
        except BlockingIOError:
            return
        except OSError:
            is_gone = True
        if is_gone:
            signals.ask(signal.SIGTERM)

    signal.signal(signal.SIGIO, look)
    fcntl.fcntl(theirs, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(theirs, fcntl.F_GETFL)
    fcntl.fcntl(theirs, fcntl.F_SETFL, flags | _O_ASYNC)
    look()  # for what came before
