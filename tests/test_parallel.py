"""`backfill --parallel N` (M17): one range, several workers, on one host or many."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobrun import places
from jobrun.lock_file import FileLock
from tests.conftest import Jobrun, Result, is_alive, until

if sys.platform == "win32":
    pytest.skip("fork", allow_module_level=True)

NOW = "2026-09-20T12:05Z"
# Leaves a file of its window's name, then waits for one that is called `go`.
WAITS = 'echo "$JOBRUN_KEY" >> done; : > "$JOBRUN_SLUG"; until [ -e go ]; do sleep 0.01; done'
NOTES = 'echo "$JOBRUN_KEY" >> done'


@pytest.fixture
def job(jobrun: Jobrun) -> Jobrun:
    """j, hourly, done up to NOW without a window of its own."""
    begin(jobrun)
    return jobrun


def begin(jobrun: Jobrun) -> None:
    argv = ("j", "--every", "1h", "--first", "none", "-q")
    assert jobrun("run", *argv, "--", "true", now=NOW).status == 0


def argv(windows: int, *more: str, script: str = NOTES) -> tuple[str, ...]:
    """So many windows from 2026-09-01 on."""
    to = f"2026-09-{1 + windows // 24:02}T{windows % 24:02}:00Z"
    span = ("backfill", "j", "--from", "2026-09-01T00:00Z", "--to", to)
    return (*span, *more, "--", "sh", "-c", script)


def backfill(jobrun: Jobrun, windows: int, *more: str, script: str = NOTES) -> Result:
    return jobrun(*argv(windows, *more, script=script), now=NOW)


class Running:
    """A backfill whose commands wait for `go`, up to where so many of them are there."""

    def __init__(self, jobrun: Jobrun, windows: int, workers: int, *more: str) -> None:
        self.jobrun = jobrun
        parallel = ("--parallel", str(workers), *more)
        self.process = jobrun.start(*argv(windows, *parallel, script=WAITS), now=NOW)
        until(lambda: len(slugs(jobrun)) == min(windows, workers), "the commands")

    def end(self) -> Result:
        (self.jobrun.folder / "go").touch()
        out, err = self.process.communicate(timeout=60)
        return Result(self.process.returncode, out.decode(), err.decode())


def slugs(jobrun: Jobrun) -> list[Path]:
    return sorted(jobrun.folder.glob("j_*Z"))


def done(jobrun: Jobrun) -> list[str]:
    return (jobrun.folder / "done").read_text().split()


def outcomes(jobrun: Jobrun) -> list[tuple[object, ...]]:
    """Hour, attempt and outcome of each run that is no scheduled one."""
    found = "select substr(key, 14, 2), attempt, outcome from jobrun_run order by key, id"
    return jobrun.query(found)


def under_way(jobrun: Jobrun) -> list[tuple[int, int]]:
    """Pids of a worker and its command."""
    found = jobrun.query("select pid, child_pid from jobrun_run where outcome is null order by key")
    return [(int(str(pid)), int(str(child))) for pid, child in found]


def test_each_window_of_a_range_is_run_once(job: Jobrun) -> None:
    """200 windows, four workers; what is finished before is left out by the next call."""
    found = backfill(job, 200, "--parallel", "4", "-q")
    assert (found.status, sorted(done(job))) == (0, sorted(set(done(job))))
    assert len(done(job)) == 200
    assert "NOTE job=j what=backfilled windows=200 processed=200 at=" in found.stderr
    assert "jobrun: hint: 200 windows: 200 processed\n" in found.stderr
    assert len({pid for (pid,) in job.query("select pid from jobrun_run")}) == 4
    found = backfill(job, 201, "--parallel", "4", "-q")
    assert "what=backfilled windows=1 processed=1 " in found.stderr
    assert backfill(job, 201, "--parallel", "4", "-q").status == 0
    assert len(done(job)) == 201


def test_workers_run_at_the_same_time(job: Jobrun) -> None:
    """Three commands wait for each other; the oldest windows first."""
    running = Running(job, 7, 3)
    assert [path.name[-7:-5] for path in slugs(job)] == ["00", "01", "02"]
    assert running.end().status == 0
    assert len(done(job)) == 7


def test_what_was_processed_runs_again_once_where_that_is_asked_for(job: Jobrun) -> None:
    """--redo all: by one of the workers, not by each."""
    backfill(job, 12)
    assert backfill(job, 12, "--parallel", "3", "--redo", "all").status == 0
    assert sorted(done(job)) == sorted(2 * list(set(done(job))))
    kinds = job.query("select kind, count(*) from jobrun_run group by kind order by kind")
    assert kinds == [("backfill", 12), ("rerun", 12)]


def test_a_killed_worker_frees_its_window(job: Jobrun) -> None:
    """kill -9 midway: it is replaced, its window is lost and run again, all the others once."""
    running = Running(job, 8, 2)
    worker, command = under_way(job)[0]
    os.kill(worker, signal.SIGKILL)
    until(lambda: not is_alive(command), "the guardian's work")
    found = running.end()
    assert found.status == 0
    assert f"WARNING job=j what=worker-killed pid={worker} signal=9 " in found.stderr
    assert "LOST job=j" in found.stderr
    assert "hint: 8 windows: 8 processed\n" in found.stderr
    assert outcomes(job)[:3] == [("00", 1, "lost"), ("00", 2, "succeeded"), ("01", 1, "succeeded")]
    assert len(outcomes(job)) == 9


def test_a_worker_that_is_stopped_leaves_its_window_to_the_others(job: Jobrun) -> None:
    """TERM to one of them: interrupted, then done by another; all is done, so it exits 0."""
    running = Running(job, 4, 2)
    worker, _ = under_way(job)[0]
    os.kill(worker, signal.SIGTERM)
    until(lambda: not is_alive(worker), "its end")
    found = running.end()
    assert found.status == 0
    assert outcomes(job)[:2] == [("00", 1, "interrupted"), ("00", 2, "succeeded")]
    assert "hint: 4 windows: 4 processed, 1 interrupted\n" in found.stderr


def test_a_signal_ends_all_of_them(job: Jobrun) -> None:
    """TERM to the call: the commands are ended, what ran is interrupted, 143."""
    running = Running(job, 6, 3)
    pids = under_way(job)
    running.process.terminate()
    _, err = running.process.communicate(timeout=30)
    assert running.process.returncode == 143
    assert [is_alive(pid) for pair in pids for pid in pair] == [False] * 6
    assert [outcome for _, _, outcome in outcomes(job)] == ["interrupted"] * 3
    assert b"hint: 6 windows: 3 interrupted, 6 left\n" in err
    assert backfill(job, 6, "--parallel", "2").status == 0


def test_no_worker_is_left_where_the_call_is_killed(job: Jobrun) -> None:
    """kill -9 of the parent: its workers end their commands, record that, and go."""
    running = Running(job, 6, 3)
    pids = under_way(job)
    running.process.kill()
    running.process.wait(20)
    until(lambda: not any(is_alive(pid) for pair in pids for pid in pair), "all of them")
    running.process.communicate(timeout=20)
    assert [outcome for _, _, outcome in outcomes(job)] == ["interrupted"] * 3


FAILS = 'echo "$JOBRUN_KEY" >> done; case $JOBRUN_KEY in *T0[13]*) exit 3;; esac'


def test_failed_windows_are_left_and_the_others_done(job: Jobrun) -> None:
    """--on-failure continue: each once, and the code of the first."""
    found = backfill(job, 8, "--parallel", "3", "--on-failure", "continue", script=FAILS)
    assert found.status == 3
    assert len(done(job)) == 8
    assert "hint: 8 windows: 6 processed, 2 failed\n" in found.stderr


def test_no_window_is_begun_after_a_failure(job: Jobrun) -> None:
    """--on-failure stop: what the others are at is ended, and no more."""
    script = f"case $JOBRUN_KEY in *T00*) until [ -e go ]; do sleep 0.01; done;; *) {WAITS};; esac"
    script = script.replace("*) echo", "*T01*) exit 5;; *) echo")
    process = job.start(*argv(20, "--parallel", "2", script=script), now=NOW)
    until(lambda: (1, "failed") in [row[1:] for row in outcomes(job)], "the failure")
    (job.folder / "go").touch()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 5
    assert outcomes(job) == [("00", 1, "succeeded"), ("01", 1, "failed")]
    assert b"hint: 20 windows: 1 processed, 1 failed, 18 left\n" in err


def test_a_scheduled_call_is_not_run_beside_the_workers(job: Jobrun) -> None:
    """Without --overlap allow: skipped, lock-held; with it, beside them."""
    running = Running(job, 4, 2)
    hourly = ("run", "j", "--every", "1h", "--busy-exit", "9")
    later = "2026-09-20T13:05Z"
    found = job(*hourly, "--", "echo", "ran", now=later)
    assert (found.status, "reason=lock-held holder=" in found.stderr) == (9, True)
    found = job(*hourly, "--overlap", "allow", "--", "echo", "ran", now=later)
    assert (found.status, found.stdout) == (0, "ran\n")
    assert running.end().status == 0


def test_a_scheduled_call_waits_for_the_workers(job: Jobrun) -> None:
    """With --wait it has its turn after them."""
    running = Running(job, 2, 2)
    later = job.start(
        "run", "j", "--every", "1h", "--wait", "60", "--", "echo", "ran", now="2026-09-20T13:05Z"
    )
    assert later.poll() is None
    assert running.end().status == 0
    assert later.communicate(timeout=60)[0] == b"ran\n"


def test_a_backfill_is_not_begun_beside_a_call_that_is_alone(job: Jobrun) -> None:
    """It withdraws as any other call does."""
    alone = job.start(
        "run", "j", "--every", "1h", "--stdin", "inherit", "--", "sh", "-c", "echo on; read -r _",
        now="2026-09-20T13:05Z", stdin=subprocess.PIPE,
    )  # fmt: skip
    assert alone.stdout is not None
    alone.stdout.readline()
    found = backfill(job, 4, "--parallel", "2", "--busy-exit", "9")
    assert (found.status, "SKIPPED job=j reason=lock-held" in found.stderr) == (9, True)
    alone.communicate(b"\n", timeout=20)
    assert not (job.folder / "done").exists()


def test_workers_wait_for_a_call_that_has_come_between(job: Jobrun) -> None:
    """What has begun is done: they wait for the job's lock, however long."""
    running = Running(job, 2, 2)
    gate = FileLock(places.locks_folder(str(job.ledger)), "j", str(job.ledger))
    assert gate.acquire(20)
    (job.folder / "go").touch()
    until(lambda: not under_way(job), "the last windows")
    assert running.process.poll() is None
    gate.release()
    assert running.end().status == 0


def test_two_hosts_share_a_range(on_postgres: Jobrun, tmp_path: Path) -> None:
    """On one server, each with a state folder of its own: together each window once."""
    begin(on_postgres)
    calls = []
    for name in ("one", "two"):
        home = tmp_path / name
        home.mkdir()
        parallel = argv(60, "--parallel", "2", "-q", script=WAITS)
        calls.append(on_postgres.start(*parallel, now=NOW, env={"JOBRUN_HOME": str(home)}))
    until(lambda: len(slugs(on_postgres)) == 4, "the commands of both")
    (on_postgres.folder / "go").touch()
    told = [call.communicate(timeout=60)[1].decode() for call in calls]
    assert [call.returncode for call in calls] == [0, 0], told
    assert len(done(on_postgres)) == len(set(done(on_postgres))) == 60
    processed = [int(text.partition(" processed=")[2].split()[0]) for text in told]
    assert sum(processed) == 60
    assert min(processed) > 0


def test_the_plan_says_how_many_at_once(job: Jobrun) -> None:
    """--dry-run changes nothing and names N."""
    found = backfill(job, 3, "--parallel", "2", "--dry-run")
    assert "2 at a time" in found.stdout
    assert job.query("select count(*) from jobrun_run") == [(0,)]


@pytest.mark.parametrize("number", ["0", "-1", "x", ""])
def test_a_number_that_is_none_is_refused(job: Jobrun, number: str) -> None:
    """Before anything is touched."""
    found = backfill(job, 3, f"--parallel={number}")
    assert (found.status, "error: --parallel " in found.stderr) == (2, True)
