"""What the ledger's rows tell, and how many there may be (family D, the second half)."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
from contextlib import closing

import pytest

from tests.conftest import PYTHON, Jobrun, make_end, open_files, until
from tests.scenes import (
    HOURLY,
    SHOW,
    Held,
    at,
    begin,
    linux,
    posix,
)

pytestmark = posix

NOW, LATER = "2026-09-04T12:05:00Z", "2026-09-04T12:07:00Z"
ALICE, BOB = 1001, 1002
LOOKING = [["status"], *([verb, "a"] for verb in ("history", "windows", "show", "logs", "plan"))]


ROWS = (
    "with recursive n(i) as (select 0 union all select i + 1 from n where i < {count} - 1)"
    " insert into jobrun_run (job, attempt, token, host, user, terminal, started, ended, took,"
    " outcome, exit_code) select 'j' || (i % 50), 1, 1, 'h', 'u', 0,"
    " strftime('%Y-%m-%dT%H:%M:%S+00:00', 1700000000 + i, 'unixepoch'),"
    " strftime('%Y-%m-%dT%H:%M:%S+00:00', 1700000001 + i, 'unixepoch'), 1.0, 'succeeded', 0 from n"
)


def seconds_of(jobrun: Jobrun, *argv: str) -> float:
    """CPU seconds of the cheapest of five calls: a busy machine does not count."""
    found = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert jobrun(*argv).status == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


@pytest.mark.parametrize("count", [100_000, pytest.param(2_000_000, marks=pytest.mark.long)])
def test_D15_a_long_history_makes_nothing_slow(jobrun: Jobrun, count: int) -> None:
    """timescale/timescaledb#8571, Abilityai/trinity#772, enioka-Haute-Couture/jqm#307: the history
    grew without bound, and queries crawled."""
    jobrun("run", "j7", "-q", "--", "true")
    jobrun.change(
        "with recursive n(i) as (select 0 union all select i + 1 from n where i < 49)"
        " insert or ignore into jobrun_job (name, token, largest_now, first_seen, last_seen)"
        " select 'j' || i, 1, '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:00+00:00',"
        " '2026-01-01T00:00:00+00:00' from n"
    )
    calls = [
        ("run", "j7", "-q", "--", "true"),
        ("history", "j7", "-n", "20"),
        ("status",),
    ]
    short = [seconds_of(jobrun, *call) for call in calls]
    jobrun.change(ROWS.format(count=count))
    jobrun("run", "j7", "-q", "--", "true")
    long = [seconds_of(jobrun, *call) for call in calls]
    assert [b - a < 0.2 for a, b in zip(short, long, strict=True)] == [True] * len(calls)


@linux
def test_D16_ten_jobs_wait_for_a_vacuum_of_somebody_else(jobrun: Jobrun) -> None:
    """buildbot/buildbot#5443, home-assistant/core#11903: a VACUUM rewrote the file, and everybody
    who came meanwhile failed; here ten come."""
    jobrun("run", "a", "-q", "--", "true")
    path = str(jobrun.ledger)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as other:
        assert other.execute("pragma auto_vacuum").fetchone() == (0,)
        other.execute("begin exclusive")  # the lock that a VACUUM holds
        started = [jobrun.start("run", f"j{n}", "-q", "--", "true") for n in range(10)]
        for process in started:
            until(lambda p=process: path in open_files(p.pid), "it to open it")  # type: ignore[misc]
        other.execute("commit")
        other.execute("vacuum")
    assert [process.communicate(timeout=60)[1] for process in started] == [b""] * 10
    assert [process.returncode for process in started] == [0] * 10
    assert jobrun.query("select count(*) from jobrun_run where outcome = 'succeeded'") == [(11,)]


# How many descriptors the wrapper and the guardian have open.
COUNTS = """
import os, pathlib
stat = pathlib.Path("/proc/%d/stat" % os.getppid()).read_text()
both = os.getppid(), int(stat.rpartition(")")[2].split()[1])
print(*(len(os.listdir("/proc/%d/fd" % pid)) for pid in both))
"""


@linux
@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.long)])
def test_D17_no_descriptor_leaks_from_run_to_run(jobrun: Jobrun, count: int) -> None:
    """perfsonar/pscheduler#1077, gvarsanyi/sync-exec#16: one descriptor was lost with each run,
    until there were "too many open files"."""
    begin(jobrun, "a", "2026-05-01T00Z", "--every", "1m")
    command = (PYTHON, "-c", COUNTS) if count < 100 else ("true",)
    call = jobrun.argv(
        "run", "a", "--every", "1m", "--max-windows", str(count), "-q", "--", *command,
        now="2026-05-02T12:00:00Z",
    )  # fmt: skip
    found = subprocess.run(
        ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *call], env=jobrun.environment,
        cwd=jobrun.folder, capture_output=True, timeout=600,
    )  # fmt: skip
    assert found.returncode == 0
    lines = found.stdout.splitlines()
    assert len(set(lines[1:])) == (1 if count < 100 else 0)
    assert jobrun.query("select count(*) from jobrun_run where outcome = 'succeeded'") == [(count,)]


@linux
def test_D18_a_killed_run_is_not_running_for_ever(jobrun: Jobrun) -> None:
    """Nextdoor/ndscheduler#86, akornatskyy/scheduler#105: the process was killed, its row stayed
    "running", and blocked or misled everybody."""
    begin(jobrun, "a", "2026-09-04T11Z", *HOURLY)
    held = Held(jobrun, "a", *HOURLY, now=NOW)
    os.kill(held.wrapper.pid, signal.SIGKILL)
    make_end(held.pid)
    held.wrapper.communicate(timeout=20)
    shown = jobrun("status", "--check", now=LATER)
    assert shown.status == 1
    assert shown.stdout.startswith("a  lost: run 1 of 09-04 12:05 has no end and its ")
    assert "running" not in jobrun("status", now=LATER).stdout
    again: list[str] = []

    def runs() -> bool:
        again.append(jobrun("run", "a", *HOURLY, "--", *SHOW, now=LATER).stdout)
        return again[-1] != ""

    until(runs, "the lock to be let go")
    assert jobrun.query("select outcome, ended, took from jobrun_run order by id limit 1") == [
        ("lost", None, None)
    ]
    assert jobrun("status", "--check", now=LATER).status == 0


@linux
@pytest.mark.parametrize("column", ["pid", "child_pid"])
def test_D18_a_pid_that_is_somebody_elses_now_is_neither_alive_nor_signalled(
    jobrun: Jobrun, column: str
) -> None:
    """akornatskyy/scheduler#105: the pid of the row belonged to another program by then; it was
    taken for the job, or killed."""
    jobrun("run", "a", "--", "true")
    # A second run between them: born at once after the first, the stranger once shared the tick
    # (10 ms) of the birth that the row names.
    jobrun("run", "a", "--", "true")
    stranger = subprocess.Popen(["sleep", "300"])
    try:
        jobrun.change(
            "insert into jobrun_run (job, attempt, token, host, pid, child_pid, birth, user,"
            " terminal, started) select job, 2, 1, host, 1, 1, birth, user, 0, started"
            " from jobrun_run where id = 1"
        )
        jobrun.change(f"update jobrun_run set {column} = ? where outcome is null", stranger.pid)
        found = jobrun("run", "a", "--timeout", "30", "--", "echo", "ran")
        assert (found.status, found.stdout) == (0, "ran\n")
        assert jobrun.query("select outcome from jobrun_run order by id") == [
            ("succeeded",),
            ("succeeded",),
            ("lost",),
            ("succeeded",),
        ]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("host", ["", "gone", None])
def test_D19_a_row_from_the_future_without_a_pid_blocks_nothing(
    jobrun: Jobrun, host: str | None
) -> None:
    """spark-jobserver/spark-jobserver#1023, AOEpeople/Aoe_Scheduler#40: a row "running", without
    pid and host, made in the future, blocked its kind of job."""
    jobrun("run", "a", "--", "true", now=NOW)
    name = os.uname().nodename if host is None else host
    jobrun.change(
        "insert into jobrun_run (job, attempt, token, host, user, terminal, started)"
        " values ('a', 1, 1, ?, '', 0, '2026-09-04T14:05:00+00:00')",
        name,
    )
    for screen in LOOKING[:2]:
        shown = jobrun(*screen, now=NOW)
        assert (shown.status, "Traceback" in shown.stderr) == (0, False)
        assert "-2h" not in shown.stdout
    found = jobrun("run", "a", "--", "echo", "ran", now=LATER)
    assert (found.status, found.stdout) == (0, "ran\n")
    rows = jobrun.query("select outcome, started, ended, took from jobrun_run where id = 2")
    assert rows == [("lost", at("2026-09-04T14:05Z"), None, None)]
    for screen in LOOKING[:2]:
        shown = jobrun(*screen, now=LATER)
        assert (shown.status, "-1h" in shown.stdout, "-2h" in shown.stdout) == (0, False, False)
