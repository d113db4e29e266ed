"""jobrun in a fork of the test's own process: a call for the price of a fork.

The real program with real files, locks, guardian and commands; only the interpreter's start is
saved, and the clock stands still. For tests that make thousands of calls (POSIX).
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple, NoReturn

import typer

from jobrun import asked, attempts, by_hand, call, cli, key_file, lastcall, retention, run
from jobrun.__main__ import main
from jobrun.errors import EXIT_BUG
from jobrun.lock_file import primitive
from tests.conftest import Jobrun, Result, instant

# What a call loads when it needs it is loaded before the fork.
LOADED = (asked, attempts, by_hand, call, cli, key_file, lastcall, retention, run, primitive())
COMMANDS = typer.main.get_command(cli.app)  # half of what a screen takes
KILLED = 99  # no command of these tests ends so


class Answer(NamedTuple):
    status: int
    out: bytes
    err: bytes

    @property
    def lines(self) -> list[str]:
        """Of stderr, without the word on where the ledger lies."""
        text = self.err.decode("utf-8", "surrogateescape")
        return [line for line in text.split("\n")[:-1] if "what=ephemeral-ledger" not in line]


def jobrun(
    argv: Sequence[str],
    environ: Mapping[str, str],
    now: float,
    hook: Callable[[], None] = lambda: None,
    folder: str | None = None,
) -> Answer:
    """One call. `hook` is run in the fork before it: to be killed somewhere, say."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            _live(argv, environ, now, hook, folder, (out, err))
        _, status = os.waitpid(pid, 0)
        return Answer(os.waitstatus_to_exitcode(status), _read(out), _read(err))


def _live(
    argv: Sequence[str],
    environ: Mapping[str, str],
    now: float,
    hook: Callable[[], None],
    folder: str | None,
    streams: tuple[IO[bytes], IO[bytes]],
) -> NoReturn:
    code = EXIT_BUG
    gc.disable()  # nobody wants the memory of the test's process looked through
    typer.main.get_command = lambda typer_instance: COMMANDS
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream.fileno(), number)
        sys.stdout = _text(1, "surrogateescape")
        sys.stderr = _text(2, "backslashreplace")
        os.chdir(folder or ".")
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(120)  # a call that hangs is a failure, not a test that hangs
        hook()
        code = main(argv, environ, lambda: now)
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        for text in (sys.stdout, sys.stderr):
            text.flush()
        os._exit(code)


def _text(descriptor: int, errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(descriptor, "wb", closefd=False), errors=errors)


def _read(stream: IO[bytes]) -> bytes:
    stream.seek(0)
    return stream.read()


class Forked(Jobrun):
    """As the fixture `jobrun`, with a fork for each call."""

    def __call__(  # type: ignore[override]
        self, *argv: str, now: str, env: dict[str, str] | None = None
    ) -> Result:
        environ = {**self.environment, **(env or {})}
        found = jobrun(argv, environ, instant(now), folder=str(self.folder))
        lines = "".join(f"{line}\n" for line in found.lines)
        return Result(found.status, found.out.decode(), lines)


def die() -> NoReturn:
    """As kill -9 does: nothing is tidied up."""
    os._exit(KILLED)


def folder_in_memory() -> str | None:
    """Where thousands of small transactions cost nothing; None: wherever files go."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
