"""Output on its way through: unchanged, at once, never in the way of a deadline, kept in bounds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobrun.kept import HEAD, TAIL, Keeper, read_kept
from jobrun.retention import retain
from tests.conftest import until
from tests.driven import Driven, command

if sys.platform == "win32":
    pytest.skip("POSIX pipes", allow_module_level=True)

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


def test_full_disk_behind_stdout(driven: Driven) -> None:
    """`> file` on a full disk costs the output, not the command."""
    with open("/dev/full", "wb") as full:
        ended = driven.run("sh", "-c", "echo hi; exit 3", popen={"stdout": full})
    assert (ended["exit_code"], ended["dropped"]) == (3, ["stdout"])


def slow_streams() -> dict[str, tuple[int, int]]:
    master, slave = pty.openpty()
    tty.setraw(slave)
    ours, theirs = socket.socketpair()
    return {
        "pipe": os.pipe(),
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
        until(lambda: "pipe" in wait_channel(pid), "the command to be blocked")
        os.kill(driven.started()["wrapper"], signal.SIGTERM)
    ended = driven.end(10)
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
    """350 MB without a newline: passed on whole, kept in bounds, less than 80 MB of memory."""
    code = "head -c 350M /dev/zero | tr '\\0' x"
    driven.start("sh", "-c", code, base=str(base), popen={"stdout": -1})
    assert driven.process.stdout is not None
    size = 0
    while block := os.read(driven.process.stdout.fileno(), 1 << 20):
        size += len(block)
    ended = driven.end()
    assert size == ended["bytes"] == 350 << 20
    assert ended["peak"] < 80_000
    kept = read_kept(f"{base}.out")
    assert kept is not None
    assert kept.left_out == (350 << 20) - HEAD - TAIL


def test_only_kept(driven: Driven, base: Path) -> None:
    """--output on-failure: nothing is passed on while it runs."""
    ended = driven.run("sh", "-c", "echo hi; echo ho >&2", live=False, base=str(base))
    assert (ended["stdout"], ended["stderr"]) == (b"", b"")
    assert base.with_suffix(".out").read_bytes() == b"hi\n"
    assert base.with_suffix(".err").read_bytes() == b"ho\n"


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
@pytest.mark.parametrize("saved", ["each time", "at the end"])
def test_head_and_tail(tmp_path: Path, size: int, piece: int, saved: str) -> None:
    """In whatever pieces it comes, and however often it is saved, the file is the same."""
    if piece == 1 and (size > HEAD or saved == "each time"):
        size = 5000
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    keeper = Keeper(str(tmp_path / "kept"))
    for start in range(0, size, piece):
        keeper.feed(data[start : start + piece])
        if saved == "each time":
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


def test_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    """Nobody makes us write over another file."""
    (tmp_path / "precious").write_bytes(b"precious")
    keeper = Keeper(str(tmp_path / "kept"))
    (tmp_path / "kept").symlink_to(tmp_path / "precious")
    keeper.feed(b"hi")
    assert keeper.save() == b"hi"
    assert keeper.problem is not None
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_full_disk_costs_what_is_kept_only(driven: Driven, tmp_path: Path) -> None:
    """ENOSPC in keeping is told; the command and what is passed on know nothing of it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system of our own can be mounted here")
    try:
        ended = driven.run(*command("floods", 2), base=str(disk / "kept"))
    finally:
        subprocess.run(["umount", disk], check=True)
    assert (ended["exit_code"], len(ended["stdout"])) == (0, 2 << 20)
    assert "No space left" in ended["problem"]


# -- removing --------------------------------------------------------------------------------------

NOW = 1_788_500_000  # 2026-09-04


def run_files(folder: Path, month: str, *run_ids: int) -> None:
    (folder / month).mkdir(parents=True, exist_ok=True)
    for run_id in run_ids:
        for suffix in (".out", ".err"):
            (folder / month / f"{run_id}{suffix}").touch()


def runs_left(folder: Path) -> list[int]:
    return sorted({int(path.stem) for path in folder.rglob("*.out")})


def no_failure(run_id: int) -> bool:
    return False


def test_last_hundred_runs_stay(tmp_path: Path) -> None:
    """Called after each run, it removes the one that is the hundred-and-first by then."""
    for run_id in range(1, 131):
        run_files(tmp_path, "2026-09", run_id)
        retain(str(tmp_path), NOW, no_failure)
        assert runs_left(tmp_path) == list(range(max(1, run_id - 99), run_id + 1))


def test_failures_stay_for_thirty_days(tmp_path: Path) -> None:
    """A failure among many successes is still there, until its month is old enough."""
    run_files(tmp_path, "2026-07", *range(1, 11))
    run_files(tmp_path, "2026-08", *range(11, 60))
    run_files(tmp_path, "2026-09", *range(60, 160))
    for _ in range(60):
        retain(str(tmp_path), NOW, lambda run_id: run_id % 10 == 0)
    assert [run for run in runs_left(tmp_path) if run < 60] == [20, 30, 40, 50]


def test_rare_job_keeps_its_hundred_for_years(tmp_path: Path) -> None:
    """Age alone removes nothing of the last hundred runs."""
    for number in range(100):
        run_files(tmp_path, f"{2018 + number // 12}-{number % 12 + 1:02}", number)
    retain(str(tmp_path), NOW, no_failure)
    assert len(runs_left(tmp_path)) == 100


def test_emptied_months_go_and_strangers_stay(tmp_path: Path) -> None:
    """A folder that became empty is removed; a file that is not ours is not touched."""
    (tmp_path / "2020-01").mkdir()
    (tmp_path / "notes").mkdir()
    run_files(tmp_path, "2026-09", *range(1, 140))
    (tmp_path / "2026-09" / "read me").touch()
    retain(str(tmp_path), NOW, no_failure)
    assert sorted(os.listdir(tmp_path)) == ["2026-09", "notes"]
    assert (tmp_path / "2026-09" / "read me").exists()


def test_no_folder_is_no_error(tmp_path: Path) -> None:
    """A job that has never printed anything."""
    retain(str(tmp_path / "nowhere"), NOW, no_failure)


def test_job_that_always_fails_is_bounded_and_cheap(tmp_path: Path) -> None:
    """A failure every minute: at most a thousand are kept, each call within a few milliseconds."""
    run_files(tmp_path, "2026-09", *range(1, 1100))
    took = []
    for _ in range(5):
        began = time.perf_counter()
        retain(str(tmp_path), NOW, lambda run_id: True)
        took.append(time.perf_counter() - began)
    assert len(runs_left(tmp_path)) == 1000
    assert min(took) < 0.02
    shutil.rmtree(tmp_path)
