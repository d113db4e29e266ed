"""Locks: what people reported of other tools, each as a test of its own (family L)."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import string
import subprocess
from pathlib import Path

import pytest

from jobrun import places
from tests.conftest import PYTHON, Jobrun, is_alive, open_files, until
from tests.scenes import (
    HOURLY,
    SHOW,
    Held,
    altered,
    as_user,
    at,
    begin,
    error_of,
    field,
    hint_of,
    linux,
    posix,
    public,
    root,
    skips,
    watermark,
)

pytestmark = posix

ALICE, BOB = 1001, 1002
NOW, LATER = "2026-09-04T12:05:00Z", "2026-09-04T12:06:00Z"


def lock_file(jobrun: Jobrun, job: str = "a") -> Path:
    return Path(places.locks_folder(str(jobrun.ledger))) / f"{places.slug(job)}.lock"


def locks_of_the_system() -> list[str]:
    """/proc/locks; a line of a process that waits has an arrow more."""
    return [line.replace("-> ", "") for line in Path("/proc/locks").read_text().splitlines()]


@linux
@pytest.mark.parametrize("options", [(), HOURLY, ("--key", "k")], ids=["plain", "windows", "key"])
@pytest.mark.parametrize(
    "daemon",
    [
        "setsid sleep 300 >/dev/null 2>&1 </dev/null & echo $!",
        "nohup sleep 300 >/dev/null 2>&1 </dev/null & echo $!",
        "(setsid sleep 300 >/dev/null 2>&1 </dev/null & echo $!) & wait",
        "setsid sleep 300 & echo $!",
    ],
    ids=["setsid", "nohup", "twice", "holds-the-output"],
)
def test_L01_a_daemon_left_behind_does_not_hold_the_lock(
    jobrun: Jobrun, daemon: str, options: tuple[str, ...]
) -> None:
    """brooklyncentral/clocker#382: a daemon started under the lock inherited its descriptor, and
    the job was "running" until the daemon ended."""
    found = jobrun("run", "a", *options, "--", "sh", "-c", daemon, now=NOW)
    pid = int(found.stdout)
    try:
        assert found.status == 0
        assert is_alive(pid)
        until(lambda: b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes(), "the daemon's exec")
        assert [path for path in open_files(pid) if path.endswith((".lock", ".db"))] == []
        held = {line.split()[5].split(":")[2] for line in locks_of_the_system()}
        assert str(lock_file(jobrun).stat().st_ino) not in held
        again = jobrun("run", "a", "--every", "1h", "--", "true", now="2026-09-04T13:05:00Z")
        assert again.status == 0
        assert jobrun.query("select outcome from jobrun_run") == [("succeeded",)] * 2
        assert skips(jobrun) == []
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


DEAF = (PYTHON, "-uc", "import os, signal; signal.signal(15, signal.SIG_IGN); print(os.getpid())"
        "\nwhile True: signal.pause()")  # fmt: skip


@linux
@pytest.mark.parametrize("command", ["hears", "deaf"])
def test_L03_a_command_never_outlives_its_wrapper_into_a_second_copy(
    jobrun: Jobrun, command: str
) -> None:
    """Supervisor/supervisor#199, acassen/keepalived#475: the wrapper was killed, its command went
    on under init, and a second copy ran beside it."""
    begin(jobrun, "a", "2026-09-04T11:00Z", *HOURLY)
    more = {"command": DEAF} if command == "deaf" else {}
    held = Held(jobrun, "a", *HOURLY, "-k", "1", now=NOW, **more)  # type: ignore[arg-type]
    held.wrapper.kill()
    # A zombie that nobody has collected has ended.
    both = ("sh", "-c", f"grep -q '^State:.[^ZX]' /proc/{held.pid}/status || echo alone")
    printed: list[str] = []

    def second_runs() -> bool:
        found = jobrun("run", "a", *HOURLY, "--", *both, now=LATER)
        assert found.status == 0
        printed.append(found.stderr)
        return found.stdout == "alone\n"

    until(second_runs, "the lock to be let go")
    held.wrapper.communicate(timeout=20)
    assert not is_alive(held.pid)
    assert f" LOST job=a window={at('2026-09-04T11Z')}/" in printed[-1]
    assert all(" reason=lock-held " in text for text in printed[:-1])
    assert jobrun.query("select outcome, ended is null from jobrun_run order by id") == [
        ("lost", 1),
        ("succeeded", 0),
    ]
    assert watermark(jobrun) == at("2026-09-04T12Z")


@linux
def test_L03_an_orphan_of_wrapper_and_guardian_is_named(jobrun: Jobrun) -> None:
    """Supervisor/supervisor#199: where nobody was left to end the command, the next call started a
    second one; it must name the orphan instead, as often as it is called."""
    begin(jobrun, "a", "2026-09-04T11:00Z", *HOURLY)
    held = Held(jobrun, "a", *HOURLY, now=NOW)
    guardian = int(Path(f"/proc/{held.pid}/stat").read_text().rpartition(")")[2].split()[1])
    held.wrapper.send_signal(signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    held.wrapper.kill()
    held.wrapper.wait(20)
    until(lambda: not is_alive(guardian), "the guardian's end")
    for _ in range(3):
        found = jobrun("run", "a", *HOURLY, "--busy-exit", "9", "--", "echo", "second", now=LATER)
        assert (found.status, found.stdout) == (9, "")
        assert f" reason=orphan-alive key=a:{at('2026-09-04T11Z')} pids={held.pid} run=1 " in (
            found.stderr
        )
    assert watermark(jobrun) == at("2026-09-04T11Z")
    assert is_alive(held.pid)
    held.wrapper.communicate(timeout=20)  # its stdin ends, so it does
    until(lambda: not is_alive(held.pid), "the orphan to end")
    after = jobrun("run", "a", *HOURLY, "--", *SHOW, now=LATER)
    assert after.stdout == f"a:{at('2026-09-04T11Z')}\n"
    assert jobrun.query("select outcome from jobrun_run order by id") == [("lost",), ("succeeded",)]


def remove(folder: Path) -> None:
    for lock in folder.iterdir():
        lock.unlink()


def replace(folder: Path) -> None:
    for lock in folder.iterdir():
        new = lock.with_suffix(".new")
        new.touch(0o600)
        new.rename(lock)


def move_folder(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def remove_all(folder: Path) -> None:
    while folder.parent.exists():  # its wrapper may be keeping output there at this moment
        shutil.rmtree(folder.parent, ignore_errors=True)


@pytest.mark.parametrize("options", [(), HOURLY], ids=["plain", "windows"])
@pytest.mark.parametrize("tidy", [remove, replace, move_folder, remove_all])
def test_L04_a_lock_file_that_is_tidied_away_lets_nobody_in(
    jobrun: Jobrun, tidy: object, options: tuple[str, ...]
) -> None:
    """forseti-security/forseti-security#1578: the lock lay in /tmp, which was emptied while the job
    ran, and cron started it a second time."""
    assert callable(tidy)
    held = Held(jobrun, "a", *options, now=NOW)
    tidy(lock_file(jobrun).parent)
    found = jobrun("run", "a", *options, "--busy-exit", "9", "--", "echo", "second", now=LATER)
    assert (found.status, found.stdout) == (9, "")
    host = os.uname().nodename
    assert f" reason=lock-held holder={host}:{held.wrapper.pid} since=" in found.stderr
    assert " run=1 " in found.stderr
    assert lock_file(jobrun).exists()
    ended = held.release()
    assert ended.status == 0
    assert " PROCESSED job=a " in ended.stderr
    assert lock_file(jobrun).exists()
    assert jobrun.query("select outcome from jobrun_run") == [("succeeded",)]
    third = jobrun("run", "a", *options, "--", "true", now="2026-09-04T13:06:00Z")
    assert " PROCESSED job=a " in third.stderr


# Where the locks of this user lie by default.
WHERE = """
import os
os.geteuid = os.getuid = lambda: {}
os.path.isdir = lambda path: True
from jobrun import places
print(places.locks_folder(places.ledger_path(None, os.environ)))
"""


def test_L04_nothing_lies_in_tmp_unless_one_says_so(jobrun: Jobrun, tmp_path: Path) -> None:
    """forseti-security/forseti-security#1578: the lock's default place was a folder that the system
    empties; TMPDIR must not matter either."""
    environment = {k: v for k, v in jobrun.environment.items() if not k.startswith("JOBRUN_")}
    environment |= {"TMPDIR": str(tmp_path), "HOME": "/home/of-alice", "XDG_STATE_HOME": "relative"}
    for uid, expected in ((0, "/var/lib/jobrun"), (ALICE, "/home/of-alice/.local/state/jobrun")):
        found = subprocess.run(
            [PYTHON, "-c", WHERE.format(uid)], env=environment, capture_output=True, check=True
        )
        assert found.stdout.decode() == f"{expected}/jobrun.db.d/locks\n"


@root
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_L06_a_lock_that_root_made_is_no_traceback_for_the_next_user(
    jobrun: Jobrun, reachable: Path, umask: int
) -> None:
    """bit-team/backintime#1676, opentap/opentap#637: root had created the lock file, and everybody
    else got a permission traceback, or took it for a held lock."""
    ledger = public(reachable) / "jobrun.db"
    before = os.umask(umask)
    try:
        first = jobrun("run", "a", "--ledger", str(ledger), "--", "true")
        held = Held(jobrun, "b", "--ledger", str(ledger))
    finally:
        os.umask(before)
    assert first.status == 0
    for job in ("a", "b"):
        found = as_user(jobrun, ALICE, "run", job, "--ledger", str(ledger), "--", "echo", "ran")
        assert (found.status, found.stdout) == (74, "")
        assert error_of(found) == (
            f"ledger {ledger}: not readable and writable from here, it is root's (0600)"
        )
        assert hint_of(found) == "sudo -u root jobrun ..., or chown it"
    assert held.release().status == 0


@root
def test_L06_root_first_in_a_users_own_folder_leaves_it_working(
    jobrun: Jobrun, reachable: Path
) -> None:
    """bit-team/backintime#1676: `sudo` once, and the user's own job failed from then on; here it
    works, and is kept apart from root's run while that goes on."""
    folder = public(reachable) / "of-alice"
    folder.mkdir(0o700)
    os.chown(folder, ALICE, ALICE)
    where = ("--ledger", str(folder / "jobrun.db"))
    held = Held(jobrun, "a", *where)
    during = as_user(jobrun, ALICE, "run", "a", *where, "--", "echo", "ran")
    assert (during.status, during.stdout) == (0, "")
    assert f" reason=lock-held holder={os.uname().nodename}:{held.wrapper.pid} " in during.stderr
    assert held.release().status == 0
    after = as_user(jobrun, ALICE, "run", "a", *where, "--", "echo", "ran")
    assert (after.status, after.stdout) == (0, "ran\n")


# The system answers a request for a lock with this error.
NO_LOCK = """
import fcntl
def flock(*_): raise OSError({}, "as told")
fcntl.flock = fcntl.lockf = flock
"""


@pytest.mark.parametrize("options", [(), HOURLY], ids=["plain", "windows"])
@pytest.mark.parametrize("name", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
def test_L07_a_filesystem_without_locks_is_refused_by_name(
    jobrun: Jobrun, name: str, options: tuple[str, ...]
) -> None:
    """wolph/portalocker#92, nipy/nipype#1370: "no locks available" on NFS was an uncaught
    exception, or was taken for a held lock."""
    number = getattr(errno, name)
    found = altered(jobrun, NO_LOCK.format(number), "run", "a", *options, "--", "touch", "ran")
    assert found.status == 73
    assert error_of(found).startswith(f"{lock_file(jobrun)}: ")
    assert f" does not support locks ({errno.errorcode[number]}); " in error_of(found)
    assert hint_of(found) == "--ledger PATH on a local disk"
    assert not (jobrun.folder / "ran").exists()
    assert jobrun.query("select count(*) from jobrun_skip") == [(0,)]


@pytest.mark.parametrize("name", ["EACCES", "EPERM", "EIO", "EDEADLK", "EINVAL"])
def test_L07_any_other_trouble_with_the_lock_is_not_a_held_lock(jobrun: Jobrun, name: str) -> None:
    """wolph/portalocker#92: only "somebody else has it" may be a skip; everything else would hide a
    job that never runs again."""
    number = getattr(errno, name)
    found = altered(jobrun, NO_LOCK.format(number), "run", "a", "--", "touch", "ran")
    assert found.status == 73
    assert f"({errno.errorcode[number]})" in error_of(found)
    assert not (jobrun.folder / "ran").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("etl.day-1", "etl-day.1"),
        ("a_b", "a-b"),
        ("Sales", "sales"),
        ("caf\u00e9", "cafe\u0301"),
        ("\u8ca9\u58f2", "\u8cfc\u8cb7"),
        ("x" * 99 + "1", "x" * 99 + "2"),
        ("con", "con.txt"),
        ("1", "01"),
    ],
)
def test_L09_two_names_never_share_a_lock(jobrun: Jobrun, one: str, other: str) -> None:
    """hivemoot/hivemoot-agent#493, GibraltarSoftware/DistributedLocking#1: other characters became
    one separator, and a job was skipped because another one ran."""
    held = Held(jobrun, one)
    found = jobrun("run", other, "--", "echo", "ran")
    assert (found.status, found.stdout) == (0, "ran\n")
    assert held.release().status == 0
    assert jobrun.query("select job from jobrun_run order by id") == [(one,), (other,)]
    locks = [path.name for path in lock_file(jobrun).parent.iterdir()]
    assert len({name.lower() for name in locks}) == 2
    assert all(name.isascii() for name in locks)


@pytest.mark.parametrize(
    "name",
    [b"../../x", b"etl/day-1", b".", b"..", b".x", b"", b"a\nb", b"a\n", b"\xff", b"a\xff", b"a b",
     b"a:b", b"a\\b", b"a*", b"~", b"-"],
)  # fmt: skip
def test_L09_a_name_that_is_no_file_name_makes_nothing(jobrun: Jobrun, name: bytes) -> None:
    """hivemoot/hivemoot-agent#493: names with slashes left the lock folder, others broke the
    database; refused before anything is made."""
    argv = [*map(os.fsencode, jobrun.argv("run")), name, b"--", b"true"]
    found = subprocess.run(
        argv, env=jobrun.environment, cwd=jobrun.folder, capture_output=True, timeout=60
    )
    assert found.returncode == 2
    assert found.stderr.startswith(b"jobrun: error: ")
    assert b"Traceback" not in found.stderr
    assert list(jobrun.folder.iterdir()) == []


def test_L09_every_byte_in_a_name_is_taken_or_refused(jobrun: Jobrun) -> None:
    """hivemoot/hivemoot-agent#493: which characters are safe was found out one report at a time;
    all 255 bytes here, in one process."""
    code = (
        "import os, sys; from jobrun.__main__ import main\n"
        "for byte in range(1, 256):\n"
        "    name = os.fsdecode(b'a' + bytes([byte]) + b'b')\n"
        "    code = main(['run', name, '--dry-run', '--', 'true'], os.environ, lambda: 1.8e9)\n"
        "    print('code', byte, code)"
    )
    found = subprocess.run(
        [PYTHON, "-c", code], env=jobrun.environment, cwd=jobrun.folder, capture_output=True
    )
    lines = [line.split() for line in found.stdout.splitlines() if line.startswith(b"code ")]
    codes = {int(byte): int(code) for _, byte, code in lines}
    good = set((string.ascii_letters + string.digits + "._-").encode())
    assert codes == {byte: 0 if byte in good else 2 for byte in range(1, 256)}
    assert list(jobrun.folder.iterdir()) == []


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\u6f22", "\U0001d4b3"])
def test_L11_a_long_name_is_shortened_for_the_file_only(jobrun: Jobrun, letter: str) -> None:
    """symfony/symfony#42212, cameronmaske/celery-once#97: a long key became a file name beyond the
    limit, and the lock could not be taken at all."""
    name = letter * 100
    script = ("sh", "-c", "echo out; echo $JOBRUN_JOB")
    found = jobrun("run", name, *HOURLY, "--", *script, now=NOW)
    assert (found.status, found.stdout) == (0, f"out\n{name}\n")
    assert jobrun.query("select job, key from jobrun_run") == [
        (name, f"{name}:{at('2026-09-04T11Z')}")
    ]
    made = [path.name for path in Path(f"{jobrun.ledger}.d").rglob("*")]
    assert max(len(os.fsencode(file)) for file in made) <= 255
    assert jobrun("logs", name).stdout == f"out\n{name}\n"


@pytest.mark.parametrize("length", [101, 300, 5000])
def test_L11_a_name_beyond_the_limit_is_told_the_limit(jobrun: Jobrun, length: int) -> None:
    """symfony/symfony#42212: "File name too long" came out of the lock; here the limit is said."""
    found = jobrun("run", "a" * length, "--", "true")
    assert found.status == 2
    assert "100" in error_of(found)
    assert len(error_of(found)) < 400
    assert list(jobrun.folder.iterdir()) == []


@pytest.mark.parametrize("quiet", [True, False])
def test_L13_ticks_that_meet_a_running_instance_mail_nothing_when_quiet(
    jobrun: Jobrun, quiet: bool
) -> None:
    """owncloud/core#18049: each minute cron mailed "already running" although nothing was wrong."""
    held = Held(jobrun, "a", now="2026-09-04T12:00:00Z")
    # cron's environment is nearly empty: the line of a crontab sets JOBRUN_QUIET.
    env = {"JOBRUN_QUIET": "1"} if quiet else {}
    for minute in range(1, 6):
        tick = jobrun("run", "a", "--", "echo", "ran", now=f"2026-09-04T12:0{minute}:00Z", env=env)
        assert (tick.status, tick.stdout) == (0, "")
        if quiet:
            assert tick.stderr == ""
        else:
            (line,) = tick.lines
            assert f" SKIPPED job=a reason=lock-held holder={os.uname().nodename}:" in line
            assert field(line, "since") == "2026-09-04T12:00:00Z"
            assert field(line, "held") == f"{minute}m0s"
            assert field(line, "run") == "1"
    assert jobrun.query("select reason, times, detail, last_at from jobrun_skip") == [
        ("lock-held", 5, f"{os.uname().nodename}:{held.wrapper.pid} run 1", at("2026-09-04T12:05Z"))
    ]
    assert held.release().status == 0
