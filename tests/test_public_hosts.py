"""Jobs, ledgers and hosts side by side: public reports, each as a test (family N, N05 to N11)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Jobrun
from tests.scenes import (
    HOURLY,
    SHOW,
    Held,
    at,
    begin,
    error_of,
    linux,
    needs,
    posix,
    skips,
    states,
    watermark,
)

pytestmark = posix

NOW, LATER = "2026-05-02T00:05:00Z", "2026-05-02T01:05:00Z"
DAILY = ("--every", "1d")


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "b"), ("a", "A"), ("a", "a-a"), ("a", "a.2026-05-01"), ("sales", "sales2"), ("1", "11")],
)
def test_N05_the_same_window_of_two_jobs_is_two_pieces_of_work(
    jobrun: Jobrun, one: str, other: str
) -> None:
    """zoolutions/sidekiq-unique-jobs#628, openclaw/openclaw#61275: the key lacked the job, and the
    second job was skipped, or recorded as done."""
    show = ("sh", "-c", "echo $JOBRUN_JOB $JOBRUN_KEY $JOBRUN_SLUG")
    for job in (one, other):
        found = jobrun("run", job, *DAILY, "--", *show, now=NOW)
        key = f"{job}:{at('2026-05-01T00Z')}"
        assert found.stdout == f"{job} {key} {job}_20260501T000000Z\n"
        unit = jobrun("run", job, "--key", "order-17", "--", *SHOW, now=NOW)
        assert unit.stdout == f"{job}:order-17\n"
    assert jobrun.query("select count(*) from jobrun_window where state = 'processed'") == [(4,)]
    for job in (one, other):
        again = jobrun("run", job, "--key", "order-17", "--", *SHOW, now=NOW)
        assert f" reason=key-exists key={job}:order-17 " in again.stderr


def test_N05_one_job_at_work_holds_up_no_other(jobrun: Jobrun) -> None:
    """zoolutions/sidekiq-unique-jobs#628: mixed up with its neighbour, a job was "running" that was
    not; a tick of each while the other runs."""
    held = Held(jobrun, "a", *DAILY, now=NOW)
    found = jobrun("run", "b", *DAILY, "--", *SHOW, now=NOW)
    assert found.stdout == f"b:{at('2026-05-01T00Z')}\n"
    assert skips(jobrun, "b") == []
    assert held.release().status == 0


def test_N07_two_deployments_of_one_job_on_one_host(jobrun: Jobrun, tmp_path: Path) -> None:
    """laravel/framework#41182, resque/resque-scheduler#419: staging and production shared one lock,
    and production was skipped as "already run elsewhere"."""
    ledgers = [tmp_path / name / "jobrun.db" for name in ("staging", "production")]
    for ledger in ledgers:
        ledger.parent.mkdir()
    held = Held(jobrun, "a", "--ledger", str(ledgers[0]))
    found = jobrun("run", "a", "--ledger", str(ledgers[1]), "--", "echo", "ran")
    assert (found.status, found.stdout) == (0, "ran\n")
    beside = jobrun("run", "a", "--ledger", f"{ledgers[0]}2", "--", "echo", "ran")
    assert (beside.status, beside.stdout) == (0, "ran\n")
    assert held.release().status == 0


@pytest.mark.parametrize("way", ["link", "folder-link", "relative", "dots", "environment"])
def test_N07_one_ledger_by_any_name_is_one_lock(jobrun: Jobrun, tmp_path: Path, way: str) -> None:
    """laravel/framework#41182, the other way round: what means the same ledger must meet the same
    lock, or the job runs twice."""
    held = Held(jobrun, "a")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.db").symlink_to(jobrun.ledger)
    (tmp_path / "here").symlink_to(tmp_path)
    name = {
        "link": str(tmp_path / "link.db"),
        "folder-link": str(tmp_path / "here" / "jobrun.db"),
        "relative": "jobrun.db",
        "dots": str(tmp_path / "sub" / ".." / "jobrun.db"),
        "environment": "",
    }[way]
    options = ("--ledger", name) if name else ()
    found = jobrun("run", "a", *options, "--busy-exit", "9", "--", "echo", "second")
    assert (found.status, found.stdout) == (9, "")
    assert " reason=lock-held " in found.stderr
    assert held.release().status == 0


UNSHARE = ("unshare", "-pf", "--mount-proc", "--kill-child", "--uts")


@linux
@needs("unshare", "util-linux")
@pytest.mark.parametrize("options", [(), HOURLY], ids=["plain", "windows"])
@pytest.mark.parametrize("old", ["old-container", "new-container"])
def test_N09_a_container_that_came_back_is_not_in_its_own_way(
    jobrun: Jobrun, old: str, options: tuple[str, ...]
) -> None:
    """stellar/stellar-core#652, jesec/rtorrent#57, wraith/wraith#104: after a restart the pid was
    in use again (1, always), or the host had another name, and the job refused to start."""
    if subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a pid namespace: root, or sysctl kernel.unprivileged_userns_clone=1")
    now = "2026-09-04T12:05:00Z"
    begin(jobrun, "a", "2026-09-04T11Z", *HOURLY)
    name = "a" if options else "b"
    if not options:
        jobrun("run", "b", "--", "true", now="2026-09-04T11:01:00Z")
    jobrun.change(
        "insert into jobrun_run (job, attempt, token, host, pid, child_pid, birth, user, terminal,"
        " started) values (?, 1, 1, ?, 1, 7, 'boot-of-then/pid:[1] 3 4', 'root', 0, ?)",
        name,
        old,
        at("2026-09-04T11:05Z"),
    )
    call = jobrun.argv("run", name, *options, "--", "echo", "ran", now=now)
    script = 'hostname new-container && exec "$@"'
    found = subprocess.run(
        [*UNSHARE, "sh", "-c", script, "sh", *call], env=jobrun.environment, cwd=jobrun.folder,
        capture_output=True, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (0, b"ran\n")
    assert b" LOST " in found.stderr
    rows = jobrun.query(
        "select host, pid, outcome from jobrun_run where job = ? order by id desc limit 2", name
    )
    assert rows == [("new-container", 1, "succeeded"), (old, 1, "lost")]


@linux
def test_N09_our_own_pid_of_another_boot_is_not_us(jobrun: Jobrun) -> None:
    """jesec/rtorrent#57: after a reboot the pid in the lock was that of the new process itself."""
    jobrun("run", "a", "--", "true")
    code = (
        "import os, sqlite3, sys; c = sqlite3.connect(os.environ['JOBRUN_LEDGER'])\n"
        "c.execute('insert into jobrun_run (job, attempt, token, host, pid, birth, user, terminal,"
        " started) select job, 1, 1, host, ?, ?, user, 0, started from jobrun_run',"
        " (os.getpid(), 'boot-of-then/pid:[1] 3 4'))\n"
        "c.commit(); c.close()\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    call = jobrun.argv("run", "a", "--", "echo", "ran")
    found = subprocess.run(
        [call[0], "-c", code, *call], env=jobrun.environment, capture_output=True, timeout=60
    )
    assert (found.returncode, found.stdout) == (0, b"ran\n")
    assert jobrun.query("select outcome from jobrun_run order by id") == [
        ("succeeded",),
        ("lost",),
        ("succeeded",),
    ]


@pytest.mark.parametrize("gone", ["folder", "parent", "file-in-its-place"])
def test_N11_a_store_that_is_gone_is_said_by_each_tick(
    jobrun: Jobrun, tmp_path: Path, gone: str
) -> None:
    """dkron-io/dkron#998, dkron-io/dkron#1210: the store was gone, no job ran any more, and nothing
    reported it."""
    state = tmp_path / "mount" / "state"
    state.mkdir(parents=True)
    jobrun.ledger = state / "jobrun.db"
    where = ("--ledger", str(jobrun.ledger))
    begin(jobrun, "a", "2026-05-01T00Z", *HOURLY, *where)
    away = state if gone != "parent" else state.parent
    away.rename(tmp_path / "unmounted")
    if gone == "file-in-its-place":
        state.write_text("")
    for minute in range(5 if gone == "folder" else 2):
        tick = jobrun(
            "run", "a", *HOURLY, *where, "-q", "--", "echo", "ran",
            now=f"2026-05-01T01:{minute:02d}:00Z",
        )  # fmt: skip
        assert (tick.status, tick.stdout) == (73, "")
        assert str(state) in error_of(tick)
        assert jobrun("status", "--check", *where).status == 1
    if gone == "file-in-its-place":
        state.unlink()
    assert not away.exists()
    (tmp_path / "unmounted").rename(away)
    after = jobrun("run", "a", *HOURLY, *where, "--", *SHOW, now="2026-05-01T03:05:00Z")
    assert after.stdout.split() == [f"a:{at(f'2026-05-01T0{hour}Z')}" for hour in range(3)]
    assert watermark(jobrun) == at("2026-05-01T03Z")


def test_N11_a_new_ledger_in_an_empty_mount_point_is_said_even_when_quiet(
    jobrun: Jobrun, tmp_path: Path
) -> None:
    """dkron-io/dkron#1210: where only the mount point is left, a new ledger can't be told from a
    first call; but it is said, however quiet, and it runs one window and no history."""
    state = tmp_path / "mount"
    state.mkdir()
    jobrun.ledger = state / "jobrun.db"
    where = ("--ledger", str(jobrun.ledger))
    call = ("run", "a", *HOURLY, *where, "-q", "--", *SHOW)
    begin(jobrun, "a", "2026-05-01T00Z", *HOURLY, *where)
    state.rename(tmp_path / "unmounted")
    state.mkdir()
    found = jobrun(*call, now="2026-05-01T03:05:00Z")
    assert found.stdout == f"a:{at('2026-05-01T02Z')}\n"
    assert f" NOTE job=a what=new-ledger ledger={jobrun.ledger} " in found.lines[0]
    assert " what=first-run " in found.stderr
    assert states(jobrun) == {at("2026-05-01T02Z"): "processed"}
    assert os.listdir(tmp_path / "unmounted") != []
