"""Places, ledgers and clocks that are not right: one line with the value, nothing changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobrun import places
from tests.conftest import PYTHON, Jobrun, Result, clean_environment

NOBODY = 65534
root = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="needs root, to act as another user"
)
HOURLY = ("--every", "1h")


def said(found: Result) -> list[str]:
    """The error and its hint; exactly one of each, and no traceback."""
    assert "Traceback" not in found.stderr
    errors = [line for line in found.lines if line.startswith("jobrun: error: ")]
    assert len(errors) == 1
    return [
        line.split(": ", 2)[2] for line in found.lines if ": error: " in line or ": hint: " in line
    ]


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below, with its bytes."""
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def as_user(jobrun: Jobrun, uid: int, *argv: str, **env: str) -> Result:
    found = subprocess.run(
        [PYTHON, "-m", "tests.as_user", str(uid), *argv],
        env={**jobrun.environment, **env},
        cwd="/",
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    return Result(found.returncode, found.stdout.decode(), found.stderr.decode())


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["--every", "0h"], None),
        (["--every", "1h30m"], None),
        (["--every", "7h"], None),
        (["--every", "1h", "--tz", "Europe/Berlin"], None),
        (["--every", "1d", "--tz", "Europe/Nowhere"], None),
        (["--cron", "0 0 31 2 *"], None),
        (["--cron", "*/30 * * * * *"], None),
        (["--cron", "@reboot"], None),
        (["--every", "1h", "--first", "2026-09-03T02:00"], "has no zone"),
        (["--every", "1h", "--first", "yesterdy"], None),
        (["--every", "1h", "--window", "2026-09-03T02:00"], "has no zone"),
        (["--every", "1h", "--window", "2026-09-03T02:30Z"], "2026-09-03T02:00"),
    ],
)
def test_a_wrong_option_changes_nothing_on_disk(
    jobrun: Jobrun, argv: list[str], error: str | None
) -> None:
    """Grids, zones, expressions, instants: exit 2, the value in the line, no window on record."""
    found = jobrun("run", "a", *argv, "--", "true", now="2026-09-04T12:00:00Z")
    assert found.status == 2
    lines = said(found)
    assert argv[-1] in lines[0] or argv[1] in lines[0]
    assert error is None or error in " ".join(lines)
    if jobrun.ledger.exists():
        assert jobrun.query("select count(*) from jobrun_window") == [(0,)]


@root
@pytest.mark.parametrize(
    "argv",
    [
        ("status",), ("status", "--check"), ("status", "a"), ("failures",), ("events", "--json"),
        ("rerun", "a", "yesterday"), ("run", "a", *HOURLY, "--dry-run", "--", "true"),
    ],
)  # fmt: skip
def test_a_ledger_that_can_not_be_seen_is_not_taken_for_none(
    jobrun: Jobrun, reachable: Path, argv: tuple[str, ...]
) -> None:
    """73, as whatever changes something: it may well be there, and hold jobs that fail."""
    folder = reachable / "state"
    folder.mkdir(mode=0o700)
    ledger = f"{folder}/jobrun.db"
    made = jobrun("run", "a", *HOURLY, "--", "false", env={"JOBRUN_LEDGER": ledger})
    assert made.status == 1
    found = as_user(jobrun, NOBODY, *argv, JOBRUN_LEDGER=ledger)
    assert (found.status, found.stdout) == (73, "")
    assert ledger in said(found)[0]


@root
def test_an_unwritable_folder_names_the_owner(jobrun: Jobrun, reachable: Path) -> None:
    """73: who we are, whose it is, and where else it may lie."""
    folder = reachable / "state"
    folder.mkdir(mode=0o700)
    found = as_user(jobrun, NOBODY, "run", "a", "--", "true", JOBRUN_LEDGER=f"{folder}/jobrun.db")
    assert found.status == 73
    lines = said(found)
    assert "permission denied (you are nobody" in lines[0]
    assert str(folder) in lines[0]
    assert "--ledger" in lines[1]
    assert tree(folder) == {}


def test_a_ledger_in_a_folder_that_is_gone_is_refused(jobrun: Jobrun, tmp_path: Path) -> None:
    """Not mounted, say: a new ledger there would know nothing of what is done."""
    path = tmp_path / "mount" / "state" / "jobrun.db"
    found = jobrun("run", "a", "--ledger", str(path), "--", "echo", "ran")
    assert (found.status, found.stdout) == (73, "")
    assert str(path.parent) in said(found)[0]
    assert not path.parent.parent.exists()


def test_the_default_ledger_makes_its_folder(jobrun: Jobrun, tmp_path: Path) -> None:
    """The first call of a new user needs nothing to be there."""
    home = tmp_path / "a" / "b"
    environment = {**clean_environment(), "JOBRUN_HOME": str(home)}
    argv = [PYTHON, "-m", "jobrun", "run", "a", "--", "true"]
    found = subprocess.run(argv, env=environment, capture_output=True, check=True)
    assert b"what=new-ledger" in found.stderr
    assert (home / "jobrun.db").exists()
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_missing_home_names_the_way_out(tmp_path: Path) -> None:
    """73 without a usable home, naming --ledger."""
    code = (
        "import os, sys; os.geteuid = lambda: 1234; os.getuid = lambda: 1234;"
        "from jobrun.__main__ import script; script()"
    )
    found = subprocess.run(
        [PYTHON, "-c", code, "run", "a", "--", "true"],
        env={**clean_environment(), "HOME": "/nonexistent"},
        capture_output=True,
    )
    assert found.returncode == 73
    assert b'error: no usable home ("/nonexistent")' in found.stderr
    assert b"hint: --ledger PATH" in found.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps a folder that is in use")
def test_a_working_directory_that_is_gone(jobrun: Jobrun, tmp_path: Path) -> None:
    """An absolute ledger works, a relative one is refused; no getcwd traceback."""
    dead = tmp_path / "dead"
    code = (
        f"import os; os.mkdir({str(dead)!r}); os.chdir({str(dead)!r}); os.rmdir({str(dead)!r});"
        "from jobrun.__main__ import script; script()"
    )
    argv = [PYTHON, "-c", code, "run", "a"]
    good = subprocess.run([*argv, "--", "true"], env=jobrun.environment, capture_output=True)
    assert good.returncode == 0
    bad = subprocess.run(
        [*argv, "--ledger", "s.db", "--", "true"], env=jobrun.environment, capture_output=True
    )
    assert bad.returncode == 73
    assert b"the working directory is gone" in bad.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of its own that can be filled."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux, to mount a small tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=False)
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_runs_nothing_and_needs_no_repair(jobrun: Jobrun, small_disk: Path) -> None:
    """74 while it is full; once there is room the next call catches up."""
    call = ("run", "a", "--ledger", str(small_disk / "jobrun.db"), *HOURLY, "--", "echo", "ran")
    assert jobrun(*call, now="2026-09-04T11:00:00Z").stdout == "ran\n"
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    full = jobrun(*call, now="2026-09-04T13:00:00Z")
    assert (full.status, full.stdout) == (74, "")
    assert "full" in said(full)[0]
    filler.unlink()
    assert jobrun(*call, now="2026-09-04T13:00:00Z").stdout == "ran\nran\n"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"x" * 200, "is no SQLite database"),
        (b"SQLite format 3\0" + b"\xff" * 4096, ""),
    ],
)
def test_a_corrupt_ledger_is_refused_and_left_as_it_is(
    jobrun: Jobrun, content: bytes, error: str
) -> None:
    """74, nothing runs, not a byte changes."""
    jobrun.ledger.write_bytes(content)
    found = jobrun("run", "a", "--", "echo", "ran")
    assert (found.status, found.stdout) == (74, "")
    lines = said(found)
    assert str(jobrun.ledger) in lines[0]
    assert jobrun.ledger.read_bytes() == content


def test_a_newer_ledger_is_refused_and_left_as_it_is(jobrun: Jobrun) -> None:
    """74: an older program must not write what it does not know."""
    jobrun("run", "a", "--", "true")
    jobrun.change("update jobrun_meta set version = 999")
    before = jobrun.query("select * from jobrun_run")
    found = jobrun("run", "a", "--", "echo", "ran")
    assert (found.status, found.stdout) == (74, "")
    assert "newer jobrun (999 > " in said(found)[0]
    assert jobrun.query("select * from jobrun_run") == before


def test_the_log_of_a_ledger_that_is_gone_is_not_taken_over(jobrun: Jobrun) -> None:
    """kill -9, then `rm jobrun.db`: a new one linked over its -wal would be the old one again."""
    code = (
        "import os, signal\nfrom jobrun.ledger_sqlite import SqliteLedger\n"
        "def die(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
        "SqliteLedger.finish = die\nfrom jobrun.__main__ import script; script()"
    )
    argv = [PYTHON, "-c", code, "run", "a", "--", "true"]
    subprocess.run(argv, env=jobrun.environment, capture_output=True)
    log = Path(f"{jobrun.ledger}-wal")
    before = log.read_bytes()
    assert before
    jobrun.ledger.unlink()
    found = jobrun("run", "b", "--", "echo", "ran")
    assert (found.status, found.stdout) == (74, "")
    lines = said(found)
    assert f"{log} is there" in lines[0]
    assert log.read_bytes() == before
    assert not jobrun.ledger.exists()
    for name in ("-wal", "-shm"):
        Path(f"{jobrun.ledger}{name}").unlink()
    assert jobrun("run", "b", "--", "echo", "ran").stdout == "ran\n"
    assert jobrun.query("select name from jobrun_job") == [("b",)]


def test_a_database_without_a_journal_is_refused(jobrun: Jobrun) -> None:
    """78: the user's own database with its journal in memory would not survive a crash."""
    connection = sqlite3.connect(jobrun.ledger)
    connection.execute("create table mine (x)")
    connection.commit()
    connection.close()
    assert jobrun("run", "a", "--", "true").status == 0
    assert jobrun.query("select name from sqlite_master where name = 'mine'") == [("mine",)]


def test_a_ledger_that_stays_busy_is_told_after_its_patience(jobrun: Jobrun) -> None:
    """Another program's write of a few seconds is waited for: no "database is locked"."""
    jobrun("run", "a", "--", "true")
    connection = sqlite3.connect(jobrun.ledger, isolation_level=None)
    connection.execute("begin immediate")
    process = jobrun.start("run", "a", "--", "echo", "ran")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    connection.execute("commit")
    connection.close()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"ran\n")
    assert b"locked" not in err


@pytest.mark.parametrize(
    ("watermark", "now", "status"),
    [
        ("2027-09-09T00:00:00+00:00", "2026-09-04T12:00:00Z", 75),
        ("2026-09-04T12:00:00+00:00", "2026-09-04T11:59:58Z", 0),
        ("2026-09-04T12:00:00+00:00", "1970-01-01T00:03:00Z", 75),
    ],
)
def test_a_clock_behind_the_watermark_runs_nothing(
    jobrun: Jobrun, watermark: str, now: str, status: int
) -> None:
    """75 naming both and the repair; up to five minutes a skip. Never back by itself."""
    jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T11:30:00Z")
    jobrun.change("update jobrun_job set next = null")
    jobrun.change("update jobrun_job set watermark = ?", watermark)
    found = jobrun("run", "a", *HOURLY, "--", "echo", "ran", now=now)
    assert (found.status, found.stdout) == (status, "")
    if status:
        assert now[:4] in said(found)[0]
    else:
        assert "reason=clock-behind-watermark" in found.stderr
    assert jobrun.query("select watermark from jobrun_job") == [(watermark,)]


def test_a_clock_in_1970_makes_no_state(jobrun: Jobrun) -> None:
    """75 "clock not set", no watermark is created."""
    found = jobrun("run", "a", *HOURLY, "--", "echo", "ran", now="1970-01-01T00:03:00Z")
    assert (found.status, found.stdout) == (75, "")
    assert "clock" in said(found)[0]
    assert not jobrun.ledger.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links and owners")
def test_a_planted_link_is_not_followed(jobrun: Jobrun, tmp_path: Path) -> None:
    """73: the file it points to is neither opened nor changed."""
    jobrun("run", "b", "--", "true")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    lock = Path(places.locks_folder(str(jobrun.ledger))) / f"{places.slug('a')}.lock"
    lock.symlink_to(victim)
    found = jobrun("run", "a", "--", "echo", "ran")
    assert (found.status, found.stdout) == (73, "")
    assert str(lock) in said(found)[0]
    assert victim.read_text() == "precious"
    lock.unlink()
    os.link(victim, lock)
    found = jobrun("run", "a", "--", "echo", "ran")
    assert (found.status, found.stdout) == (73, "")
    assert victim.read_text() == "precious"


@root
def test_a_foreign_owner_of_the_lock_is_refused(jobrun: Jobrun) -> None:
    """73 naming path and owner, not taken for a held lock."""
    jobrun("run", "a", "--", "true")
    lock = Path(places.locks_folder(str(jobrun.ledger))) / f"{places.slug('a')}.lock"
    os.chown(lock, 12345, 12345)
    found = jobrun("run", "a", "--", "echo", "ran")
    assert (found.status, found.stdout) == (73, "")
    assert "12345" in said(found)[0]


@root
def test_a_lock_folder_that_others_can_write_is_refused(jobrun: Jobrun) -> None:
    """73: somebody else could put a lock of his own there."""
    jobrun("run", "a", "--", "true")
    os.chmod(places.locks_folder(str(jobrun.ledger)), 0o777)
    found = jobrun("run", "a", "--", "echo", "ran")
    assert (found.status, found.stdout) == (73, "")
    assert "writable for others" in said(found)[0]


@root
def test_sudo_once_leaves_the_users_job_working(jobrun: Jobrun, reachable: Path) -> None:
    """What root makes beside another's ledger becomes that other's."""
    home = reachable / "state"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    ledger = f"{home}/jobrun.db"
    first = as_user(jobrun, NOBODY, "run", "a", "--", "true", JOBRUN_LEDGER=ledger)
    assert first.status == 0, first.stderr
    shutil.rmtree(f"{ledger}.d")
    by_root = jobrun("run", "b", "--", "echo", "out", env={"JOBRUN_LEDGER": ledger})
    assert by_root.status == 0, by_root.stderr
    owners = {path.stat().st_uid for path in home.rglob("*")}
    assert owners == {NOBODY}
    for job in ("a", "b"):
        again = as_user(jobrun, NOBODY, "run", job, "--", "echo", "out", JOBRUN_LEDGER=ledger)
        assert (again.status, again.stdout) == (0, "out\n"), again.stderr


def test_what_is_made_is_for_its_owner_alone(jobrun: Jobrun) -> None:
    """Folders 0700, files 0600, whatever the umask; the command's umask is its own."""
    code = "import os, sys; os.umask(0); from jobrun.__main__ import script; script()"
    argv = [PYTHON, "-c", code, "run", "a", "--", "sh", "-c", "umask; echo x >&2"]
    found = subprocess.run(argv, env=jobrun.environment, capture_output=True, check=True)
    assert found.stdout == b"0000\n"
    made = [jobrun.ledger, *Path(f"{jobrun.ledger}.d").rglob("*"), Path(f"{jobrun.ledger}.d")]
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in made}
    assert modes == {(True, 0o700), (False, 0o600)}


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors")
@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]])
def test_missing_streams_never_make_it_fail(jobrun: Jobrun, closed: list[int]) -> None:
    """pythonw, `>&-`: the command runs all the same."""
    code = f"import os, sys; [os.close(n) for n in {closed}]; os.execv(sys.argv[1], sys.argv[1:])"
    argv = [
        PYTHON,
        "-c",
        code,
        *jobrun.argv("run", "a", "--", "sh", "-c", "echo out; echo err >&2"),
    ]
    found = subprocess.run(argv, env=jobrun.environment, capture_output=True)
    assert found.returncode == 0
    assert jobrun.query("select outcome, output_bytes from jobrun_run") == [("succeeded", 8)]


@pytest.mark.skipif(sys.platform == "win32", reason="pipes")
def test_a_reader_that_goes_away_does_not_end_the_command(jobrun: Jobrun) -> None:
    """`jobrun … | head -1`: dropped and noted, the command goes on to its end."""
    script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo done >&2"
    process = jobrun.start("run", "a", "--", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 0
    assert b"done\n" in err
    assert b"Traceback" not in err
