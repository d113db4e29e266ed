"""Run a command on Windows: in a job object that dies with us.

There is no guardian: the kernel ends the job when our last handle is closed, however we die. And
there is no command that waits to be told what it is: `start` makes the job, `go` the process, so
that the ledger's row holds our pid, whose life is the command's as well. Each stream has a thread
of its own, since a pipe can't be waited for together with a process.
"""

from __future__ import annotations

import _thread
import _winapi
import ctypes
import errno
import msvcrt
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import wintypes

from jobrun.command_line import (
    DEFAULT_PATHEXT,
    NotFaithful,
    command_line,
    environment_block,
    find_program,
)
from jobrun.ended import AT_CWD, AT_EXEC, EXITED, LOCK_LOST, NOT_STARTED, UNKNOWN_PID, Ended
from jobrun.signals import STOPPING
from jobrun.stopping import NEVER, Stopping

if sys.platform == "win32":  # for the type checker, which finds nothing in it elsewhere
    from jobrun.job_object import JobObject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.keeping import Keeping
    from jobrun.lock import Keeper
    from jobrun.output import Output, Stream
    from jobrun.rows import RunRow
    from jobrun.signals import Signals

assert sys.platform == "win32"

LINGER = 1.0  # seconds to go on reading after the end
_LOOK_EVERY = 0.1  # seconds: Ctrl-Break interrupts no wait
_CHUNK = 65_536
_SAVE_EVERY = 0.2
_SUSPENDED, _NEW_GROUP, _NO_WINDOW = 0x4, 0x200, 0x0800_0000
_QUERY_AND_WAIT = 0x1000 | 0x0010_0000
_TERMINATE = 0x1
_ENDED_BY_US = 1
_GONE_FOLDERS = (267, 3)  # ERROR_DIRECTORY, ERROR_PATH_NOT_FOUND

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_kernel32.GetProcessTimes.argtypes = (wintypes.HANDLE, *[wintypes.LPVOID] * 4)


def start(lock_fd: int | None, stdin: str = "null", keeper: Keeper | None = None) -> Child:
    """The job for a command; `lock_fd` stays ours alone. Raises OSError.

    `keeper`: that of a lock of several machines. Nobody but us ends the command when it is lost.
    """
    return Child(stdin, keeper)


class _StartupInfo:
    """What _winapi.CreateProcess reads; only these handles are inherited."""

    def __init__(self, stdin: int, stdout: int, stderr: int) -> None:
        self.dwFlags = _winapi.STARTF_USESTDHANDLES
        self.wShowWindow = 0
        self.hStdInput, self.hStdOutput, self.hStdError = stdin, stdout, stderr
        self.lpAttributeList = {"handle_list": list({stdin, stdout, stderr})}


class Child:
    def __init__(self, stdin: str, keeper: Keeper | None) -> None:
        self.pid = os.getpid()
        self.birth = f"windows {_created(self.pid) or 0}"
        self._stdin = stdin
        self._keeper = keeper
        self._job = JobObject()
        self._process = 0
        self._error: tuple[int, str] | None = None
        self._detail: str | None = None
        self._readers: list[int] = []

    def go(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        """Start it; where that fails, `wait` tells why."""
        self.went = time.monotonic()
        theirs: list[int] = []
        try:
            for _ in range(2):
                reader, writer = os.pipe()
                self._readers.append(reader)
                theirs.append(writer)
            theirs.append(os.open(os.devnull, os.O_RDONLY))
            self._create(argv, dict(env), cwd, self._startup(*theirs))
        except NotFaithful as error:
            self._error, self._detail = (errno.EINVAL, AT_EXEC), str(error)
        except OSError as error:
            at_cwd = getattr(error, "winerror", 0) in _GONE_FOLDERS
            self._error = (error.errno or errno.EINVAL, AT_CWD if at_cwd else AT_EXEC)
        finally:
            for fd in theirs:
                os.close(fd)

    def _startup(self, out: int, err: int, null: int) -> _StartupInfo:
        handles = [_inheritable(msvcrt.get_osfhandle(fd)) for fd in (out, err)]
        stdin = _winapi.GetStdHandle(_winapi.STD_INPUT_HANDLE) if self._stdin == "inherit" else 0
        if not stdin:
            stdin = msvcrt.get_osfhandle(null)
        return _StartupInfo(_inheritable(stdin), *handles)

    def _create(
        self, argv: Sequence[str], env: dict[str, str], cwd: str | None, startup: _StartupInfo
    ) -> None:
        if cwd and not os.path.isdir(cwd):
            raise OSError(errno.ENOENT, "no such folder", cwd, _GONE_FOLDERS[0])
        upper = {name.upper(): value for name, value in env.items()}
        folder = os.path.abspath(cwd or ".")
        pathext = upper.get("PATHEXT", DEFAULT_PATHEXT)
        program = find_program(argv[0], upper.get("PATH", ""), pathext, folder, os.path.isfile)
        if program is None:
            raise FileNotFoundError(errno.ENOENT, "not found", argv[0])
        shell = os.path.join(_system_folder(), "cmd.exe")
        process, thread, pid, _ = _winapi.CreateProcess(
            None,
            command_line(program, argv[1:], shell),
            None,
            None,
            True,
            _SUSPENDED | _NEW_GROUP | (0 if _has_console() else _NO_WINDOW),
            environment_block(env),
            cwd,
            startup,
        )
        self._process = process
        try:
            self._job.take_in(process, thread, pid)
        except OSError:
            _winapi.TerminateProcess(process, 1)
            raise
        finally:
            _winapi.CloseHandle(thread)

    def cancel(self) -> None:
        """There is nothing yet that could run."""
        self._close()

    def wait(
        self,
        signals: Signals,
        timeout: float | None,
        kill_after: float,
        marker: Mapping[str, str],
        output: Output,
    ) -> Ended:
        """As process_posix.Child.wait; the job is the tree, no marker is needed."""
        try:
            if self._error is not None:
                return Ended(NOT_STARTED, error=self._error, detail=self._detail)
            deadline = NEVER if timeout is None else self.went + timeout
            stopping = Stopping(self._job, kill_after, deadline)
            pumps = self._pumps(output)
            ended = _Watch(self._process, stopping, signals, self._keeping()).keep()
            ended = ended._replace(took=time.monotonic() - self.went)
            if ended.our_signal is None:
                self._job.release()

            def in_a_hurry() -> bool:
                return signals.received is not None or time.monotonic() >= deadline

            held = [pump for pump in pumps if pump.finish(in_a_hurry)]
            if held and ended.our_signal is None:
                ended = ended._replace(left_open=self._job.other_member() or UNKNOWN_PID)
            return ended
        finally:
            self._close()

    def _keeping(self) -> Keeping | None:
        if self._keeper is None:
            return None
        from jobrun.keeping import Keeping

        return Keeping(self._keeper)

    def _pumps(self, output: Output) -> list[_Pump]:
        readers, self._readers = self._readers, []
        return [_Pump(*pair) for pair in zip(readers, (output.out, output.err), strict=True)]

    def _close(self) -> None:
        self._job.close()
        while self._readers:
            os.close(self._readers.pop())
        if self._process:
            _winapi.CloseHandle(self._process)
            self._process = 0


class _Watch:
    """Until the process has ended, and all of the job where we ended it."""

    def __init__(
        self, process: int, stopping: Stopping, signals: Signals, keeping: Keeping | None
    ) -> None:
        self._process = process
        self._stopping = stopping
        self._signals = signals
        self._keeping = keeping

    def keep(self) -> Ended:
        while not self._is_over():
            self._pause()
            now = time.monotonic()
            for number in self._signals.take():
                if number in STOPPING:
                    self._stopping.signalled(number, self._signals.times, now)
            self._stopping.watch_clock(now)
            if self._keeping is not None:
                self._watch_lock(self._keeping, now)
        code = _winapi.GetExitCodeProcess(self._process) if self._has_exited() else None
        ended = self._stopping.told(Ended(EXITED, exit_code=code))
        if ended.cause == LOCK_LOST and self._keeping is not None:
            return ended._replace(detail=self._keeping.why)
        return ended

    def _watch_lock(self, keeping: Keeping, now: float) -> None:
        keeping.hear()
        has_end = self._stopping.ladder.begun or self._has_exited()
        if keeping.look() and not has_end:
            self._stopping.stop(LOCK_LOST, signal.SIGTERM, now)

    def _pause(self) -> None:
        due = self._stopping.due - time.monotonic()
        patience = int(max(0.0, min(due, _LOOK_EVERY)) * 1000)
        if self._has_exited():  # its handle would end every wait at once
            time.sleep(patience / 1000)
        else:
            _winapi.WaitForSingleObject(self._process, patience)

    def _has_exited(self) -> bool:
        return _winapi.WaitForSingleObject(self._process, 0) == _winapi.WAIT_OBJECT_0

    def _is_over(self) -> bool:
        ladder = self._stopping.ladder
        return ladder.over if ladder.begun else self._has_exited()


class _Pump:
    """A thread that reads one pipe; a slow reader of ours holds up nothing but this stream."""

    def __init__(self, fd: int, stream: Stream) -> None:
        self._fd = fd
        self._stream = stream
        self._reads = 0  # begun
        self._reading = False  # not passing on
        self._finishing = False  # what lies in the pipe now is all
        self._had_last = False
        self._abandoned = False  # nothing may be passed on any more
        self._ended = False  # nobody has the other end
        self._running = _thread.allocate_lock()
        self._running.acquire()
        _thread.start_new_thread(self._run, ())

    def finish(self, in_a_hurry: Callable[[], bool]) -> bool:
        """Wait for the end of the pipe, not longer than LINGER, and then for our reader, unless
        `in_a_hurry`; whether somebody else holds the other end."""
        if self._running.acquire(timeout=LINGER):
            return not self._ended
        self._finishing = True
        reads = -1
        while not self._running.acquire(timeout=_LOOK_EVERY):
            # The pipe can't be asked while it is being read. One that holds anything is not read
            # for so long.
            is_empty = self._reading and self._reads == reads
            if is_empty or in_a_hurry():
                self._abandoned = True
                return is_empty
            reads = self._reads
        return not self._ended

    def _run(self) -> None:
        saved = 0.0
        try:
            while (data := self._read()) and not self._abandoned:
                self._stream.feed(data)
                if time.monotonic() - saved >= _SAVE_EVERY or not self._waiting() > 0:
                    self._stream.save()
                    saved = time.monotonic()
        finally:
            os.close(self._fd)
            self._running.release()

    def _read(self) -> bytes:
        """Empty at the end, and after the last that is wanted."""
        if self._finishing:
            waiting = self._waiting()
            self._ended = waiting < 0
            if waiting <= 0 or self._had_last:
                return b""
            self._had_last = True  # it takes all that a pipe holds; a daemon may go on for ever
        self._reads += 1
        self._reading = True
        try:
            data = os.read(self._fd, _CHUNK)
        except OSError:  # the pipe is broken: that is its end
            data = b""
        self._reading = False
        self._ended = not data
        return data

    def _waiting(self) -> int:
        """Bytes that lie in the pipe; -1 where nobody can write to it any more."""
        try:
            return int(_winapi.PeekNamedPipe(msvcrt.get_osfhandle(self._fd), 0)[0])
        except OSError:
            return -1


def is_here(run: RunRow, host: str) -> bool:
    """Whether this run's processes can be looked up from here, on `host`, be they alive or not."""
    return run.host == host


def wrapper_alive(run: RunRow) -> bool:
    """Whether the jobrun that recorded this run, here, still lives."""
    if run.pid is None or run.birth is None:
        return False
    return run.birth == f"windows {_created(run.pid)}"


def ask_wrapper(run: RunRow, number: int) -> bool:
    """End the jobrun that recorded this run; False where it is gone. Raises PermissionError.

    A process of another console can't be asked here: it ends at once, its job object with it, and
    the run is lost.
    """
    if run.pid is None:
        return False
    try:
        handle = _winapi.OpenProcess(_TERMINATE | _QUERY_AND_WAIT, False, run.pid)
    except PermissionError:
        raise
    except OSError:
        return False
    try:
        # The handle keeps the pid from being given to another one meanwhile.
        if not wrapper_alive(run):
            return False
        _winapi.TerminateProcess(handle, _ENDED_BY_US)
    finally:
        _winapi.CloseHandle(handle)
    return True


def left_of(run: RunRow, marker: Mapping[str, str]) -> None:
    """Nothing, as with command_alive."""


def command_alive(run: RunRow, marker: Mapping[str, str]) -> tuple[int, ...]:
    """Nothing: a command in a job that is closed by our death does not outlive it."""
    return ()


def _created(pid: int) -> int | None:
    """When a process that is alive was made, in 100 ns since 1601."""
    try:
        handle = _winapi.OpenProcess(_QUERY_AND_WAIT, False, pid)
    except OSError:
        return None
    try:
        if _winapi.WaitForSingleObject(handle, 0) == _winapi.WAIT_OBJECT_0:
            return None
        times = [wintypes.FILETIME() for _ in range(4)]
        if not _kernel32.GetProcessTimes(handle, *map(ctypes.byref, times)):
            return None
        return times[0].dwHighDateTime << 32 | times[0].dwLowDateTime
    finally:
        _winapi.CloseHandle(handle)


def _inheritable(handle: int) -> int:
    os.set_handle_inheritable(handle, True)
    return handle


def _has_console() -> bool:
    return bool(_kernel32.GetConsoleWindow())


def _system_folder() -> str:
    return os.path.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32")
