"""A command on Windows, in its job object. Also true under wine, but for Ctrl-Break."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("Windows job objects", allow_module_level=True)

import errno
import socket

from jobrun import process, process_windows
from jobrun.ended import Ended
from jobrun.kept import HEAD, TAIL, read_kept
from jobrun.output import Output, Stream
from tests.keeper_double import Double, Session

PYTHON = sys.executable
Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command to its end; its stdout is kept in the file `1.out`."""

    def perform(
        *argv: str,
        timeout: float | None = None,
        cwd: str | None = None,
        keeper: Double | None = None,
    ) -> Ended:
        signals = process.catch()
        output = Output(False, str(tmp_path / "1"))
        try:
            child = process.start(None, keeper=keeper)
            if keeper is not None:
                keeper.guard(1)
            child.go(argv, os.environ, cwd)
            return child.wait(signals, timeout, 0.5, {}, output)
        finally:
            output.close()
            signals.restore()

    return perform


@pytest.mark.parametrize("code", [0, 1, 255, 256, 0xC0000005, 0xFFFFFFFF])
def test_exit_code_of_32_bits(run: Run, code: int) -> None:
    """The whole code, as Windows shows it."""
    number = code if code < 1 << 31 else code - (1 << 32)
    assert run(PYTHON, "-c", f"import os; os._exit({number})").exit_code == code


@pytest.mark.parametrize(
    "argument", ["", "a b", 'a"b', "a\\", "a b\\", 'a\\"b', "%PATH%", "^&|<>", "é中😀", "*"]
)
def test_argument_arrives(run: Run, tmp_path: Path, argument: str) -> None:
    """Character for character, through the C runtime of the other side."""
    run(PYTHON, "-c", "import sys; print(ascii(sys.argv[1]))", argument)
    assert (tmp_path / "1.out").read_text().strip() == ascii(argument)


def test_batch_file(run: Run, tmp_path: Path) -> None:
    """Arguments with blanks and & arrive; one with a quote is refused."""
    batch = tmp_path / "a b.bat"
    batch.write_text("@echo off\r\necho [%1] [%2]\r\nexit /b 7\r\n")
    assert run(str(batch), "x y", "c&d").exit_code == 7
    assert (tmp_path / "1.out").read_text().strip() == '["x y"] ["c&d"]'
    refused = run(str(batch), 'a"b')
    assert refused.error == (errno.EINVAL, "exec")
    assert refused.detail is not None
    assert "cmd.exe would change '\"'" in refused.detail


@pytest.mark.parametrize(("name", "error"), [("nowhere", errno.ENOENT), ("no.txt", errno.ENOEXEC)])
def test_what_cannot_be_started(run: Run, tmp_path: Path, name: str, error: int) -> None:
    """Not found, and not a program."""
    (tmp_path / "no.txt").write_text("no")
    ended = run(f".\\{name}", cwd=str(tmp_path))
    assert (ended.cause, ended.error) == ("not-started", (error, "exec"))


def test_missing_folder_is_told_apart(run: Run) -> None:
    """A working directory that is not there is no missing command."""
    ended = run(PYTHON, "-c", "", cwd=r"C:\nowhere\at\all")
    assert ended.error is not None
    assert ended.error[1] == "cwd"


def test_what_cannot_be_started_leaves_nothing_open(run: Run) -> None:
    """A call with many windows must not run out of descriptors."""
    free = next_descriptor()
    run(".\\nowhere")
    assert next_descriptor() == free


def next_descriptor() -> int:
    fd = os.open(os.devnull, os.O_RDONLY)
    os.close(fd)
    return fd


def test_slow_reader_gets_everything(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`| more`: the command has ended long before; nothing is cut, and nobody is blamed for it."""
    feed = Stream.feed

    def slowly(self: Stream, data: bytes) -> None:
        threading.Event().wait(4 * process_windows.LINGER)
        feed(self, data)

    monkeypatch.setattr(process_windows, "LINGER", 0.2)
    monkeypatch.setattr(Stream, "feed", slowly)
    ended = run(PYTHON, "-c", "print('x' * 5000)")
    assert (ended.exit_code, ended.left_open) == (0, None)
    assert len((tmp_path / "1.out").read_text().strip()) == 5000


def test_timeout_ends_the_tree(run: Run, tmp_path: Path) -> None:
    """A grandchild would write its file half a minute later; its end is waited for."""
    child = "import threading; threading.Event().wait(30)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    ended = run(PYTHON, "-c", code, timeout=2.0)
    assert (ended.cause, ended.survivors) == ("timed-out", ())


def test_answered_pings_put_the_deadline_off_and_a_lost_lock_ends_the_command(run: Run) -> None:
    """A lock of several machines: its keeper has its turns although no wait here knows sockets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        session = Session(listener.accept()[0])
        session.answer(5)
        session.close()

    server = threading.Thread(target=serve)
    server.start()
    keeper = Double(listener.getsockname(), 0.4, 1.2, "")
    ended = run(PYTHON, "-c", "import threading; threading.Event().wait(30)", keeper=keeper)
    server.join()
    keeper.close()
    listener.close()
    assert (ended.cause, ended.detail) == ("lock-lost", "the server closed the session (57P05)")
    assert 1.2 < ended.took < 10


def test_silent_server_ends_the_command_in_time(run: Run) -> None:
    """Nobody but us could: there is no guardian."""
    listener = socket.create_server(("127.0.0.1", 0))
    keeper = Double(listener.getsockname(), 0.2, 1.5, "")
    ended = run(PYTHON, "-c", "import threading; threading.Event().wait(30)", keeper=keeper)
    keeper.close()
    listener.close()
    assert (ended.cause, ended.detail) == ("lock-lost", "no answer from its server in time")


def test_daemon_is_left_alone(run: Run, tmp_path: Path) -> None:
    """The command has ended by itself: kill-on-close is off, what it left behind goes on."""
    child = "import threading; threading.Event().wait(3)"
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid)"
    ended = run(PYTHON, "-c", code)
    assert (ended.cause, ended.exit_code) == ("exited", 0)
    assert int((tmp_path / "1.out").read_text())
    assert ended.left_open is not None


def test_killed_wrapper_takes_its_command_along(tmp_path: Path) -> None:
    """TerminateProcess of us: the job's last handle is closed, and the command is gone."""
    code = (
        "import os, sys\n"
        "from jobrun import process\n"
        "from jobrun.output import Output\n"
        "child = process.start(None)\n"
        "child.go(sys.argv[1:], os.environ, None)\n"
        "child.wait(process.catch(), None, 1, {}, Output(True, None))\n"
    )
    inner = "import os, threading; print(os.getpid(), flush=True); threading.Event().wait(60)"
    wrapper = subprocess.Popen(
        [PYTHON, "-c", code, PYTHON, "-c", inner],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    assert wrapper.stdout is not None
    assert int(wrapper.stdout.readline())
    wrapper.kill()
    assert wrapper.stdout.read() == b""  # its end: the last one who could write is gone
    wrapper.stdout.close()
    wrapper.wait(10)


def test_output_is_kept_in_bounds(run: Run, tmp_path: Path) -> None:
    """Head and tail, also where a file that is open can't be replaced."""
    run(PYTHON, "-c", "import sys; sys.stdout.write('x' * 3000000)")
    kept = read_kept(str(tmp_path / "1.out"))
    assert kept is not None
    assert kept.left_out == 3_000_000 - HEAD - TAIL
