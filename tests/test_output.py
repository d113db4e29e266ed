"""Output on its way through: unchanged, at once, never in the way of a deadline, kept in bounds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobrun.kept import HEAD, TAIL, Keeper, read_kept
from jobrun.output import Output
from tests.conftest import until
from tests.driven import Driven, command

if sys.platform == "win32":
    pytest.skip("POSIX pipes", allow_module_level=True)

import fcntl
import pty
import socket
import tty

SHORT_OF_A_CUT = HEAD + TAIL


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    wrapper = Driven(tmp_path)
    yield wrapper
    wrapper.clean_up()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "output" / "2026-09" / "8124"


# -- passing on ------------------------------------------------------------------------------------


def test_passed_on_before_a_newline_comes(driven: Driven) -> None:
    """`working...` is seen while the command still works."""
    driven.start(*command("prints_then_waits", driven.ready, "working..."))
    assert driven.process.stdout is not None
    assert os.read(driven.process.stdout.fileno(), 100) == b"working..."
    driven.tree()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_reader_that_has_gone_is_not_the_command_s_business(
    driven: Driven, base: Path, stream: str
) -> None:
    """`| head -1`: the command goes on to its end, its output is kept, and it is noted."""
    reader, writer = os.pipe()
    os.close(reader)
    redirect = ">&2" if stream == "stderr" else ""
    code = f"echo one {redirect}; echo two {redirect}; exit 7"
    driven.start("sh", "-c", code, base=str(base), popen={stream: writer})
    os.close(writer)
    ended = driven.end()
    assert (ended["cause"], ended["exit_code"]) == ("exited", 7)
    assert ended["dropped"] == [stream]
    assert base.with_suffix(f".{stream[3:]}").read_bytes() == b"one\ntwo\n"


def test_stream_that_cannot_be_written(driven: Driven, base: Path) -> None:
    """`1<file`: it is open, but not for us."""
    with open(os.devnull, "rb") as null:
        ended = driven.run("echo", "hi", base=str(base), popen={"stdout": null})
    assert (ended["exit_code"], ended["dropped"]) == (0, ["stdout"])
    assert base.with_suffix(".out").read_bytes() == b"hi\n"


def test_full_disk_behind_stdout(driven: Driven) -> None:
    """`> file` on a full disk costs the output, not the command."""
    with open("/dev/full", "wb") as full:
        ended = driven.run("sh", "-c", "echo hi; exit 3", popen={"stdout": full})
    assert (ended["exit_code"], ended["dropped"]) == (3, ["stdout"])


def full_pipe() -> tuple[int, int]:
    """As wide as it can be made, with room for nothing."""
    reader, writer = os.pipe()
    if sys.platform == "linux":
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, bytes(65_536)):
            pass
    os.set_blocking(writer, True)
    return reader, writer


def slow_streams() -> dict[str, tuple[int, int]]:
    master, slave = pty.openpty()
    tty.setraw(slave)
    ours, theirs = socket.socketpair()
    return {
        "pipe": full_pipe(),
        "terminal": (master, slave),
        "socket": (ours.detach(), theirs.detach()),
    }


@pytest.mark.parametrize("kind", ["pipe", "terminal", "socket"])
@pytest.mark.parametrize("how", ["timeout", "signal"])
def test_reader_that_sleeps_puts_nothing_off(driven: Driven, kind: str, how: str) -> None:
    """Nobody reads, the command floods: the limit and a signal are kept all the same."""
    reader, writer = slow_streams()[kind]
    limit = 1.0 if how == "timeout" else None
    driven.start(*command("floods", 50), timeout=limit, popen={"stdout": writer})
    pid = driven.started()["command"]
    if how == "signal":
        # Not its read of `go`, in which it waits at first.
        until(lambda: "pipe_write" in wait_channel(pid), "the command to be blocked")
        os.kill(driven.started()["wrapper"], signal.SIGTERM)
    ended = driven.end()
    assert ended["cause"] == ("timed-out" if how == "timeout" else "interrupted")
    driven.ends_with_nothing_left([pid])
    os.close(reader)
    os.close(writer)


def wait_channel(pid: int) -> str:
    return Path(f"/proc/{pid}/wchan").read_text()


def test_slow_reader_gets_everything(driven: Driven) -> None:
    """The command has ended long before its reader wakes up: no byte is lost."""
    driven.start(*command("floods", 1))
    pid = driven.started()["command"]
    assert driven.process.stdout is not None
    first = os.read(driven.process.stdout.fileno(), 1000)
    rest = driven.end()["stdout"]
    assert len(first) + len(rest) == 1_048_576
    assert pid


def test_shared_stream_stays_blocking(driven: Driven) -> None:
    """O_NONBLOCK on our stdout would be set for the shell, too."""
    reader, writer = os.pipe()
    driven.start(*command("prints_then_waits", driven.ready, "hi"), popen={"stdout": writer})
    driven.tree()
    assert os.read(reader, 10) == b"hi"
    assert os.get_blocking(writer)
    os.close(reader)
    os.close(writer)


def test_long_line_in_little_memory(driven: Driven, base: Path) -> None:
    """350 MB without a newline: passed on whole, kept in bounds, less than 30 MB of memory."""
    code = "head -c 350M /dev/zero | tr '\\0' x"
    driven.start("sh", "-c", code, base=str(base), popen={"stdout": -1})
    assert driven.process.stdout is not None
    size = 0
    while block := os.read(driven.process.stdout.fileno(), 1 << 20):
        size += len(block)
    ended = driven.end()
    assert size == ended["bytes"] == 350 << 20
    assert ended["peak"] < 30_000
    kept = read_kept(f"{base}.out")
    assert kept is not None
    assert kept.left_out == (350 << 20) - HEAD - TAIL


def test_only_kept(driven: Driven, base: Path) -> None:
    """--output on-failure: nothing is passed on while it runs."""
    ended = driven.run("sh", "-c", "echo hi; echo ho >&2", live=False, base=str(base))
    assert (ended["stdout"], ended["stderr"]) == (b"", b"")
    assert base.with_suffix(".out").read_bytes() == b"hi\n"
    assert base.with_suffix(".err").read_bytes() == b"ho\n"


def test_kept_output_is_shown(driven: Driven, base: Path) -> None:
    """--output on-failure: afterwards all that was kept comes, more than a pipe holds."""
    ended = driven.run(*command("floods", 1), live=False, base=str(base), show=True)
    kept = read_kept(f"{base}.out")
    assert kept is not None
    assert ended["stdout"] == kept.data
    assert len(kept.data) > HEAD + TAIL


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_reader_that_has_gone_is_told_of_what_is_shown(
    driven: Driven, base: Path, stream: str
) -> None:
    """What could not be shown is not passed over in silence either."""
    reader, writer = os.pipe()
    os.close(reader)
    redirect = ">&2" if stream == "stderr" else ""
    argv = ("sh", "-c", f"echo hi {redirect}")
    ended = driven.run(*argv, live=False, base=str(base), show=True, popen={stream: writer})
    os.close(writer)
    assert ended["dropped"] == [stream]


@pytest.mark.parametrize("kind", ["pipe", "terminal", "socket"])
def test_stuck_reader_does_not_make_us_deaf(driven: Driven, base: Path, kind: str) -> None:
    """Nobody reads what is shown: TERM ends us all the same."""
    reader, writer = slow_streams()[kind]
    argv = command("floods", 1)
    driven.start(*argv, live=False, base=str(base), show=True, popen={"stdout": writer})
    wrapper = driven.started()["wrapper"]
    until((driven.folder / "showing").exists, "the command to end")
    until(lambda: "poll" in wait_channel(wrapper), "the reader to be waited for")
    os.kill(wrapper, signal.SIGTERM)
    assert driven.end()["exit_code"] == 0
    os.close(reader)
    os.close(writer)


def test_stuck_reader_after_a_signal(driven: Driven, base: Path) -> None:
    """We were asked to stop before there was anything to show: it gets a second, no more."""
    reader, writer = full_pipe()
    argv = command("chatters", driven.ready, driven.folder / "said")
    driven.start(*argv, live=False, base=str(base), show=True, popen={"stdout": writer})
    driven.tree()
    os.kill(driven.started()["wrapper"], signal.SIGTERM)
    assert driven.end()["cause"] == "interrupted"
    os.close(reader)
    os.close(writer)


def test_what_was_kept_and_is_gone_is_not_shown(base: Path) -> None:
    """Somebody has tidied up, or the disk is broken: that is no error of the run."""
    output = Output(False, str(base))
    output.out.feed(b"hi")
    output.close()
    base.with_suffix(".out").unlink()
    base.with_suffix(".out").mkdir()
    output.show()


def test_what_cannot_be_kept_is_passed_on(driven: Driven) -> None:
    """Where keeping fails, the output of --output on-failure is better seen than lost."""
    ended = driven.run("sh", "-c", "echo hi; exit 3", live=False, base="/dev/full/no-folder")
    assert (ended["exit_code"], ended["stdout"]) == (3, b"hi\n")
    assert "/dev/full" in ended["problem"]


# -- keeping ---------------------------------------------------------------------------------------


def test_kept_as_it_comes(driven: Driven, base: Path) -> None:
    """After kill -9 of everything the file holds what had been printed."""
    driven.start(*command("prints_then_waits", driven.ready, "working..."), base=str(base))
    driven.tree()
    until(lambda: base.with_suffix(".out").exists(), "the file")
    until(lambda: base.with_suffix(".out").read_bytes(), "the text")
    os.kill(driven.started()["wrapper"], signal.SIGKILL)
    assert base.with_suffix(".out").read_bytes() == b"working..."


def test_no_output_no_file(driven: Driven, base: Path) -> None:
    """And no folder either."""
    driven.run("true", base=str(base))
    assert not base.parent.exists()


def test_files_are_private(driven: Driven, base: Path) -> None:
    """Whatever the umask, nobody else reads what a command prints."""
    driven.run("echo", "hi", base=str(base), popen={"umask": 0})
    assert base.with_suffix(".out").stat().st_mode & 0o777 == 0o600
    assert base.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("piece", [1, 1000, 65_536, 131_072, 300_000, 2_000_000])
@pytest.mark.parametrize("size", [HEAD, SHORT_OF_A_CUT, SHORT_OF_A_CUT + 1, 3_000_000])
@pytest.mark.parametrize("saved", ["each time", "when full", "at the end"])
def test_head_and_tail(tmp_path: Path, size: int, piece: int, saved: str) -> None:
    """In whatever pieces it comes, and however often it is saved, the file is the same."""
    if piece == 1 and (size > HEAD or saved == "each time"):
        size = 5000
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    keeper = Keeper(str(tmp_path / "kept"))
    for start in range(0, size, piece):
        keeper.feed(data[start : start + piece])
        if saved == "each time" or (saved == "when full" and keeper.full):
            keeper.save()
    keeper.close()
    kept = read_kept(str(tmp_path / "kept"))
    assert kept is not None
    assert keeper.problem is None
    assert os.listdir(tmp_path) == ["kept"]
    if size <= SHORT_OF_A_CUT:
        assert kept == (data, 0)
        return
    left_out = size - HEAD - TAIL
    mark = b"\n[jobrun: %d bytes left out]\n" % left_out
    assert kept == (data[:HEAD] + mark + data[-TAIL:], left_out)


def test_readable_at_every_moment(tmp_path: Path) -> None:
    """While it grows: the head, the last that was saved, and never more than 768 KiB."""
    path = tmp_path / "kept"
    keeper = Keeper(str(path))
    for number in range(400):
        keeper.feed(b"%07d\n" % number * 1000)
        keeper.save()
        kept = read_kept(str(path))
        assert kept is not None
        assert kept.data.startswith(b"0000000\n")
        assert kept.data.endswith(b"%07d\n" % number)
        assert path.stat().st_size <= HEAD + 2 * TAIL + 100
        assert len(kept.data) + kept.left_out >= (number + 1) * 8000
    keeper.close()


def test_file_of_an_earlier_ledger_is_not_shown(tmp_path: Path) -> None:
    """A new ledger counts its runs from 1: what lies there is another run's."""
    (tmp_path / "kept").write_bytes(b"of another run")
    keeper = Keeper(str(tmp_path / "kept"))
    keeper.close()
    assert read_kept(str(tmp_path / "kept")) is None


def test_closed_file_is_left_alone(tmp_path: Path) -> None:
    """A thread that was given up may come back late: it does not begin the file anew."""
    keeper = Keeper(str(tmp_path / "kept"))
    keeper.feed(b"all")
    keeper.close()
    keeper.feed(b"late")
    keeper.save()
    keeper.close()
    assert (tmp_path / "kept").read_bytes() == b"all"


def test_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    """Nobody makes us write over another file."""
    (tmp_path / "precious").write_bytes(b"precious")
    keeper = Keeper(str(tmp_path / "kept"))
    (tmp_path / "kept").symlink_to(tmp_path / "precious")
    keeper.feed(b"hi")
    assert keeper.save() == b"hi"
    assert keeper.problem is not None
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """64 KiB of space."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system of our own can be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_full_disk_costs_what_is_kept_only(driven: Driven, small_disk: Path) -> None:
    """ENOSPC in keeping is told; the command and what is passed on know nothing of it."""
    ended = driven.run(*command("floods", 2), base=str(small_disk / "kept"))
    assert (ended["exit_code"], len(ended["stdout"])) == (0, 2 << 20)
    assert "No space left" in ended["problem"]


def test_full_disk_at_the_end(driven: Driven, small_disk: Path) -> None:
    """What could not be kept is more than a pipe holds, and nothing else comes: it is shown.

    How much fitted before depends on how often a busy machine came to save it.
    """
    code = "echo hi; head -c 300000 /dev/zero"
    whole = b"hi\n" + bytes(300_000)
    ended = driven.run("sh", "-c", code, live=False, base=str(small_disk / "kept"))
    assert "No space left" in ended["problem"]
    kept, shown = (small_disk / "kept.out").read_bytes(), ended["stdout"]
    assert whole.startswith(kept)
    assert whole.endswith(shown)
    assert len(kept) + len(shown) >= len(whole)
