"""Calls of jobrun that meet something at their Nth step, forked from a parent that is warm.

    python -m tests.trials        answers requests on stdin, a JSON object a line each

A *step* is an SQL statement of the wrapper (`sql`), or one of its system calls around lock, spawn,
output and rename (`wrapper`), or one of the guardian (`guardian`) or of the command before exec
(`command`). What happens there is a *trap*: the process dies as by kill -9, SQLite or the system
says an error, or another call runs in between although the lock is held.

The parent has everything imported, so that a trial costs what jobrun itself does. It adopts what a
trial leaves behind, so it knows when all of it has ended. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import fcntl
import gc
import json
import mmap
import os
import select
import signal
import sqlite3
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

EVENTS = frozenset({
    "open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.chown", "os.truncate",
    "os.listdir", "os.chdir", "os.fork", "os.kill", "os.killpg", "os.exec", "fcntl.flock",
    "sqlite3.connect",
})  # fmt: skip
# What the interpreter has no audit event for.
# Where the system may say an error instead; not what only we would get wrong.
MAY_FAIL = EVENTS - {"os.kill", "os.killpg", "os.exec", "sqlite3.connect"}
FUNCTIONS = (
    "write", "close", "pipe", "pwrite", "dup2", "setpgid", "waitpid", "waitid", "setsid",
)  # fmt: skip
ROLES = ("sql", "wrapper", "guardian", "command")
PATIENCE = 30.0  # seconds that a process may take to end
_SUBREAPER = 36  # prctl: orphans of our children become ours


class Trap(NamedTuple):
    """`what` happens at the `at`th step of the `role` whose name begins with `of`; 0: never."""

    role: str = "sql"
    at: int = 0
    what: str = "die"
    of: str = ""
    # Only the Nth step, or each from there on.
    lasting: bool = False


class Request(NamedTuple):
    folder: str
    argv: list[str]
    now: float
    trap: list[Any]
    mutant: str = ""  # of mutants.py
    intruder: list[str] | None = None  # the call that runs in between
    err: str = "err"  # the file that gets what it says


class Steps:
    """Counted together by all processes of a trial."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)

    def reset(self) -> None:
        self._put(0, 0)

    def read(self) -> tuple[int, int]:
        """How many there were, and how often the trap has sprung."""
        count, sprung = struct.unpack("ii", self._shared[:])
        return count, sprung

    def next(self) -> int:
        count, sprung = self.read()
        self._put(count + 1, sprung)
        return count + 1

    def spring(self) -> None:
        count, sprung = self.read()
        self._put(count, sprung + 1)

    def _put(self, count: int, sprung: int) -> None:
        self._shared[:] = struct.pack("ii", count, sprung)


class Trial:
    """This process, as a trial; `role` is None where nothing is to happen."""

    def __init__(self) -> None:
        self.role: str | None = None
        self.trap = Trap()
        self.steps = Steps()
        self.ledger: sqlite3.Connection | None = None
        self.ask: Callable[[], None] = lambda: None

    def step(self, is_sql: bool, name: str) -> str | None:
        """Count a step; what is to happen there, where the caller has to do it."""
        trap = self.trap
        role = "sql" if is_sql and self.role == "wrapper" else self.role
        if role is None or is_sql != (trap.role == "sql") or role != trap.role:
            return None
        if not name.startswith(trap.of):
            return None
        place = self.steps.next()
        if place != trap.at and not (trap.lasting and place > trap.at > 0):
            return None
        return self._spring(trap.what)

    def _spring(self, what: str) -> str | None:
        self.steps.spring()
        if what == "die":
            self.role = None
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "intrude":
            if self.ledger is None or not self.ledger.in_transaction:
                self.ask()
            return None
        return what

    @property
    def is_error(self) -> bool:
        """Whether the system says an error, by the name of its number."""
        return self.trap.what.isupper()

    def on_event(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.role is not None and event in (MAY_FAIL if self.is_error else EVENTS):
            self.fail(self.step(False, event))

    def on_write(self, fd: int) -> None:
        """A write to a file or to a stream of ours may fail, one among ourselves does not."""
        place = "kept" if "/output/" in os.readlink(f"/proc/self/fd/{fd}") else str(fd)
        if place in ("kept", "1", "2"):
            self.fail(self.step(False, f"write {place}"))

    def fail(self, what: str | None) -> None:
        if what is not None:
            number = getattr(errno, what)
            raise OSError(number, os.strerror(number))


THIS = Trial()


# -- SQL ------------------------------------------------------------------------------------------

_ERRORS = {
    "busy": ("SQLITE_BUSY", "database is locked"),
    "full": ("SQLITE_FULL", "database or disk is full"),
    "ioerr": ("SQLITE_IOERR_WRITE", "disk I/O error"),
    "late": ("SQLITE_IOERR_FSYNC", "disk I/O error"),
}


class Watched(sqlite3.Connection):
    """A connection whose statements are steps."""

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        THIS.ledger = self
        # These touch no file: no error of ours can befall them.
        is_safe = sql.startswith(("PRAGMA busy_timeout", "PRAGMA foreign_keys"))
        is_safe = is_safe and THIS.trap.what in _ERRORS
        what = None if is_safe else THIS.step(True, sql.lstrip())
        if what is None:
            return super().execute(sql, parameters)
        return self._fail(what, sql, parameters)

    def _fail(self, what: str, sql: str, parameters: Any) -> NoReturn:
        if what == "late":  # it was done, and that could not be told
            super().execute(sql, parameters)
        if what == "full" and self.in_transaction:
            super().execute("ROLLBACK")  # SQLite does so by itself
        name, message = _ERRORS[what]
        error = sqlite3.OperationalError(message)
        error.sqlite_errorcode = getattr(sqlite3, name)
        error.sqlite_errorname = name
        raise error


_connect = sqlite3.connect


def connect(path: str, **options: Any) -> sqlite3.Connection:
    return _connect(path, factory=Watched, **options)


# -- the process ----------------------------------------------------------------------------------


def stepping(name: str) -> Callable[..., Any]:
    """The function of `os`, as a step."""
    function = getattr(os, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if THIS.role is not None and not THIS.is_error:
            THIS.step(False, f"os.{name}")
        elif THIS.role is not None and name == "write":
            THIS.on_write(*arguments[:1])
        return function(*arguments, **options)

    return call


def unwatched(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        role, THIS.role = THIS.role, None
        try:
            return function(*arguments)
        finally:
            THIS.role = role

    return call


def as_role(role: str, life: Callable[..., Any]) -> Callable[..., Any]:
    def live(*arguments: Any) -> Any:
        THIS.role = role if THIS.role is not None else None
        return life(*arguments)

    return live


def prepare(request: Request) -> None:
    """What is put in place of jobrun's and Python's own, in this process alone."""
    from jobrun import attempts, guardian, signals, tree_proc
    from tests import mutants

    sqlite3.connect = connect  # type: ignore[assignment]
    for name in FUNCTIONS:
        setattr(os, name, stepping(name))
    guardian.guard = as_role("guardian", guardian.guard)
    guardian.be_command = as_role("command", guardian.be_command)
    # How many files in /proc are looked at depends on what else this machine does.
    tree_proc._read = unwatched(tree_proc._read)
    if THIS.trap.lasting:
        attempts.RECORD_FOR = 0
    pause = signals.Signals.pause
    signals.Signals.pause = lambda self, seconds: pause(self, min(seconds, 0.01))  # type: ignore[method-assign]
    if request.mutant:
        getattr(mutants, request.mutant)()


def live(request: Request) -> NoReturn:
    """The trial, in its fork."""
    from jobrun.__main__ import main

    code = 70
    try:
        os.setpgid(0, 0)
        _streams(request.folder, request.err)
        faulthandler.enable(2)  # says where it hangs, when the parent loses its patience
        os.chdir(request.folder)
        THIS.trap = Trap(*request.trap)
        prepare(request)
        environ = {"PATH": os.environ["PATH"], "JOBRUN_LEDGER": f"{request.folder}/jobrun.db"}
        THIS.role = "wrapper"
        code = main(request.argv, environ, lambda: request.now)
        THIS.role = None
        sys.stdout.flush()
    except BaseException:
        THIS.role = None
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _streams(folder: str, said: str) -> None:
    """None of the parent's; what is said ends up in files that can't block."""
    null = os.open(os.devnull, os.O_RDWR)
    out = os.open(f"{folder}/out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    err = os.open(f"{folder}/{said}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for fd, standard in ((null, 0), (out, 1), (err, 2)):
        os.dup2(fd, standard)
        os.close(fd)


# -- the parent -----------------------------------------------------------------------------------


def fork(request: Request) -> int:
    """Start a trial; its pid."""
    pid = os.fork()
    if pid == 0:
        live(request)
    return pid


def attempt(request: Request) -> dict[str, object]:
    """Run a trial until its wrapper has ended; what it leaves behind may go on."""
    THIS.steps.reset()
    asked, ask = os.pipe()
    reply, replied = os.pipe()

    def between() -> None:
        os.write(ask, b".")
        os.read(reply, 1)

    THIS.ask = between
    pid = fork(request)
    try:
        status = _wait(pid, asked, lambda: _intrude(request, replied))
    finally:
        for fd in (asked, ask, reply, replied):
            os.close(fd)
    count, sprung = THIS.steps.read()
    return {"status": status, "steps": count, "sprung": sprung}


def _wait(pid: int, asked: int = -1, answer: Callable[[], object] = int) -> int | None:
    """The exit status, negative for a signal; None where it does not end."""
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    if asked >= 0:
        poll.register(asked, select.POLLIN)
    try:
        while ready := dict(poll.poll(PATIENCE * 1000)):
            if asked in ready:
                os.read(asked, 1)
                answer()
            else:
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.kill(pid, signal.SIGABRT)
        return None
    finally:
        os.close(ended)


def _intrude(request: Request, replied: int) -> None:
    """A whole call in the midst of another one, as if the lock let both in."""
    locks = f"{request.folder}/jobrun.db.d/locks"
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(locks):
            os.unlink(f"{locks}/{name}")
    assert request.intruder is not None
    other = request._replace(argv=request.intruder, trap=list(Trap(role="")), err="intruder")
    _wait(fork(other))
    os.write(replied, b".")


def settle() -> dict[str, object]:
    """Wait until nothing is left of the trials; whether it ended in time."""
    deadline = time.monotonic() + PATIENCE
    pause = select.poll()
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return {"settled": True}
        if time.monotonic() > deadline:
            return {"settled": False}
        pause.poll(1)


def warm_up() -> None:
    from jobrun.lock_file import primitive
    from tests import mutants  # noqa: F401 - as it will be needed
    from tests.as_user import import_all

    import_all()
    primitive()
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    sys.addaudithook(THIS.on_event)
    gc.freeze()  # a collection would write to, and so copy, all that is shared with the forks
    gc.disable()


def serve() -> None:
    warm_up()
    for line in sys.stdin:
        what = json.loads(line)
        answer = attempt(Request(**what)) if what else settle()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    # The module that the others import is this one.
    sys.modules["tests.trials"] = sys.modules["__main__"]
    fcntl.fcntl(0, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    serve()
