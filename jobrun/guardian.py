"""The guardian: the command's parent, so that the command never outlives its wrapper.

    wrapper  --go-->       command     what to run; end of file before it: nothing
    wrapper  --orders-->   guardian    how to end it, then "done"; end of file: the wrapper died
    wrapper  <--report--   guardian    the command's pid, its stops, how it ended
    wrapper  <--report--   command     until exec: why it could not start
    wrapper  <--out, err-- command     the guardian has the read ends too, for the day it is alone

Where the lock is one of several machines, hold.py adds its deadline, which holds a stopped wrapper
too, and its socket.

It is no leaner program but a fork of the wrapper: it is there before the command is, it needs
nothing from the disk, and it inherits the lock's descriptor, so that the lock is held until the
command is gone. The command gets none of our descriptors: all of them are closed by exec.

It has a process group of its own and not a session of its own: then the command's group would be
orphaned in the kernel's sense (no parent in its session), could not be given the terminal, and
would get an error where it should be stopped by SIGTTIN.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time

from jobrun import wire
from jobrun.ended import AT_CWD, AT_EXEC, AT_GUARDIAN
from jobrun.ladder import Ladder
from jobrun.stopping import NEVER
from jobrun.tree import tree_of
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from jobrun.hold import Hold
    from jobrun.tree import Tree

IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP)
# What we may have a handler for. Blocked while we fork, or a child could take one for itself.
CAUGHT = (*IGNORED, signal.SIGCONT, signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU)
# Python ignores these for itself; a command without SIGPIPE would write to `head` for ever.
IGNORED_BY_PYTHON = tuple(
    number for name in ("SIGPIPE", "SIGXFSZ") if (number := getattr(signal, name, None)) is not None
)
KILL_AFTER = 10.0  # seconds, until we are told
_LOOK_EVERY = 1.0  # seconds, where there is a deadline: no wait counts a suspend
_UNRUN = 125  # exit code of a command that never was; nobody sees it


class Pipe(NamedTuple):
    reader: int
    writer: int


class Wires(NamedTuple):
    go: Pipe
    orders: Pipe
    report: Pipe
    out: Pipe
    err: Pipe


def open_wires() -> Wires:
    pipes: list[Pipe] = []
    try:
        while len(pipes) < len(Wires._fields):
            pipes.append(Pipe(*os.pipe()))
    except OSError:
        close(*(fd for pipe in pipes for fd in pipe))
        raise
    return Wires(*pipes)


def close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def guard(
    wires: Wires, lock_fd: int | None, stdin: str, mask: set[int], hold: Hold | None
) -> NoReturn:
    """The life of the guardian, in a fresh fork with CAUGHT blocked; `mask` was so before."""
    try:
        close(wires.go.writer, wires.orders.writer, wires.report.reader)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, no status could be had
        pid = os.fork()
        if pid == 0:
            be_command(wires, stdin, mask)
        os.setpgid(pid, pid)  # as it does itself: whoever is first
        _withdraw(wires, lock_fd, hold)
        _tell(wires, b"pid", pid)
        Guardian(pid, wires, hold).serve()
    except OSError as error:
        _tell(wires, b"failed", AT_GUARDIAN.encode(), error.errno or 0)
    finally:
        os._exit(0)


def _withdraw(wires: Wires, lock_fd: int | None, hold: Hold | None) -> None:
    """Out of reach of terminals and groups, and of everybody who waits for a pipe to close."""
    os.setpgid(0, 0)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    needed = {wires.orders.reader, wires.report.writer, wires.out.reader, wires.err.reader}
    if lock_fd is not None:
        needed.add(lock_fd)
    close_others(needed if hold is None else needed | hold.needed)
    os.chdir("/")  # a folder that the command removes, or a disk that is unmounted, is not ours


def close_others(needed: set[int]) -> None:
    # Not up to the limit: that can be 10 ** 9 in a container, and close_range is not everywhere.
    try:
        fds = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        fds = list(range(256))
    for fd in fds:
        if fd > 2 and fd not in needed:
            with contextlib.suppress(OSError):  # one is the listing's own
                os.close(fd)


def _tell(wires: Wires, *what: bytes | int) -> None:
    items = (item if isinstance(item, bytes) else b"%d" % item for item in what)
    wire.send(wires.report.writer, wire.frame(*items))


class Guardian:
    def __init__(self, pid: int, wires: Wires, hold: Hold | None) -> None:
        self._pid = pid
        self._wires = wires
        self._hold = hold
        self._orders = wire.Receiver(wires.orders.reader)
        self._tree: Tree = tree_of(pid, {})
        self._grace = KILL_AFTER
        self._ladder: Ladder | None = None  # once we end the command ourselves
        self._has_killed = False  # since the wrapper has asked, and left it at that
        self._dismissed = False
        self._ended = self._ended_by_itself = False
        self._poll = select.poll()
        self._wake, waker = os.pipe()
        for fd in (self._wake, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)

    def serve(self) -> None:
        for fd in (self._orders.fd, self._wake):
            self._poll.register(fd, select.POLLIN)
        if self._hold is not None:
            self._poll.register(self._hold.receiver, select.POLLIN)
        self._look_after_command()  # it may have ended before we were listening
        while not self._is_over():
            for fd, _ in self._poll.poll(self._patience()):
                self._hear(fd)
            if self._hold is not None and not self._dismissed:
                self._watch_lock(self._hold)
            if self._ladder is not None:
                self._ladder.step(time.monotonic())

    def _is_over(self) -> bool:
        has_ended_it = self._ladder is not None and self._ladder.over
        return self._dismissed or (self._orders.ended and has_ended_it)

    def _patience(self) -> float | None:
        """Milliseconds; None: for ever."""
        patience = [] if self._hold is None else [*self._left(self._hold), _LOOK_EVERY]
        if self._ladder is not None and not self._ladder.over:
            patience.append(self._ladder.due - time.monotonic())
        return max(0.0, min(patience)) * 1000 + 1 if patience else None

    def _hear(self, fd: int) -> None:
        if fd == self._wake:
            os.read(self._wake, 4096)
            self._look_after_command()
        elif fd == self._orders.fd:
            self._obey()
        elif self._hold is not None and fd == self._hold.receiver:
            if not self._hold.receive():
                self._poll.unregister(fd)
        # A command that says goodbye must not block on, or die of, a pipe nobody reads.
        elif not os.read(fd, 65_536):
            self._poll.unregister(fd)

    def _look_after_command(self) -> None:
        if self._ladder is not None:
            self._ladder.hasten()
        # Once we are alone its zombie is left: the number of its group can't be given again.
        while not (self._ended or self._orders.ended) and (change := _change(self._pid)):
            what, number = change
            self._ended = what != b"stopped"
            self._ended_by_itself = what == b"exited"
            _tell(self._wires, what, number)

    def _obey(self) -> None:
        for kind, *rest in self._orders.take():
            if kind == b"done":
                self._dismissed = True
            else:
                grace, *marks = map(os.fsdecode, rest)
                self._tree = tree_of(self._pid, dict(mark.split("=", 1) for mark in marks))
                self._grace = float(grace)
        if self._orders.ended:
            self._poll.unregister(self._orders.fd)
            if not self._dismissed:
                self._end_command()

    def _end_command(self) -> None:
        """The wrapper is dead. Before `go` the command has seen the same and ends by itself."""
        for fd in (self._wires.out.reader, self._wires.err.reader):
            self._poll.register(fd, select.POLLIN)
        if self._ladder is None:
            self._begin().ask(signal.SIGTERM, time.monotonic())

    def _watch_lock(self, hold: Hold) -> None:
        must_ask, must_kill = (seconds <= 0 for seconds in self._left(hold))
        if not (must_ask or must_kill):
            return
        if self._ladder is None:
            _tell(self._wires, b"lock-lost")  # first: what comes after it is our doing
        self._has_killed = must_kill
        if must_kill:
            self._begin().kill(time.monotonic())
        else:
            self._begin().ask(signal.SIGTERM, time.monotonic())

    def _left(self, hold: Hold) -> tuple[float, float]:
        """Seconds until we ask and kill for a wrapper that does not: it is stopped, or dead."""
        ask, kill = hold.left()
        has_asked = self._ladder is not None or self._ended_by_itself
        return NEVER if has_asked else ask, NEVER if self._has_killed else kill

    def _begin(self) -> Ladder:
        """Ending the command ourselves, unless we have begun."""
        if self._ladder is None:
            self._ladder = Ladder(self._tree, self._grace)
        return self._ladder


def _change(pid: int) -> tuple[bytes, int] | None:
    """The next stop or the end of the command: (what, signal or exit code).

    Its zombie is left where that can be done: its pid, which is also its group's, can't become
    somebody else's as long as we are there.
    """
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return _collected(*os.waitpid(pid, os.WNOHANG | os.WUNTRACED))
    change = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    if change is None:
        return None
    if change.si_code == os.CLD_STOPPED:
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG)  # or it would be told again
        return b"stopped", change.si_status
    return b"exited" if change.si_code == os.CLD_EXITED else b"killed", change.si_status


def _collected(pid: int, status: int) -> tuple[bytes, int] | None:
    if pid == 0:
        return None
    if os.WIFSTOPPED(status):
        return b"stopped", os.WSTOPSIG(status)
    if os.WIFSIGNALED(status):
        return b"killed", os.WTERMSIG(status)
    return b"exited", os.WEXITSTATUS(status)


def be_command(wires: Wires, stdin: str, mask: set[int]) -> NoReturn:
    """The life of the command until exec, in a fork of the guardian."""
    try:
        guardian = os.getppid()
        os.setpgid(0, 0)
        failure = _prepare(wires, stdin, mask)
        message = wire.Receiver(wires.go.reader).one()
        if message is not None:
            stage, number = failure or _become(message, guardian)
            _tell(wires, b"failed", stage.encode(), number)
    except Exception as error:  # or our end would be taken for the command's answer
        _tell(wires, b"failed", AT_GUARDIAN.encode(), getattr(error, "errno", None) or 0)
    finally:
        os._exit(_UNRUN)


def _prepare(wires: Wires, stdin: str, mask: set[int]) -> tuple[str, int] | None:
    """Signals and streams; where that can't be done, the stage and the errno."""
    _plain_signals(mask)
    try:
        os.close(wires.orders.reader)
        if stdin == "null":
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(wires.out.writer, 1)
        os.dup2(wires.err.writer, 2)
    except OSError as error:  # no descriptors left, no /dev/null
        return AT_GUARDIAN, error.errno or 0
    return None


def _plain_signals(mask: set[int]) -> None:
    """As they were when we were started; handlers are ours, ignoring was the caller's."""
    for number in CAUGHT:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _become(message: list[bytes], guardian: int) -> tuple[str, int]:
    """Only returns where it can't: the stage and the errno."""
    cwd, count, *rest = message
    argv, environment = rest[: int(count)], rest[int(count) :]
    try:
        if cwd:
            os.chdir(cwd)
    except OSError as error:
        return AT_CWD, error.errno or 0
    if os.getppid() != guardian:
        return AT_GUARDIAN, errno.ECHILD
    if not argv[0]:
        return AT_EXEC, errno.ENOENT  # joined to a folder of PATH it would be the folder
    try:
        os.execvpe(argv[0], argv, dict(item.split(b"=", 1) for item in environment))
    except OSError as error:
        return AT_EXEC, error.errno or 0
