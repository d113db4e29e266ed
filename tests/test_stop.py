"""`stop`: a job that runs is ended by its own wrapper, whom a pid alone does not name."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobrun import places
from tests.conftest import PYTHON, Jobrun, Result, is_alive, until
from tests.orphans import orphaned
from tests.scenes import Held, needs

if sys.platform == "win32":
    pytest.skip("signals are POSIX's", allow_module_level=True)

NOW = "2026-09-04T12:05Z"
KEY = "a:2026-09-04T11:00:00+00:00"
HOURLY = ("--every", "1h", "--stdin", "null")
UNSHARE = ("unshare", "-pf", "--mount-proc", "--kill-child")
linux = pytest.mark.skipif(sys.platform != "linux", reason="an orphan is known by /proc")


class Running:
    """A call of job `a` whose command says that it is there."""

    def __init__(self, jobrun: Jobrun, *argv: str, life: str = "waits") -> None:
        ready = jobrun.folder / "ready"
        command = (PYTHON, "-m", "tests.children", life, str(ready))
        self.wrapper = jobrun.start("run", "a", *argv, "--", *command, now=NOW)
        until(ready.exists, "the command")
        self.pids = [int(pid) for pid in ready.read_text().split()]

    def end(self) -> tuple[int, str]:
        _, err = self.wrapper.communicate(timeout=20)
        until(lambda: not any(map(is_alive, self.pids)), "the end of the tree")
        return self.wrapper.returncode, err.decode()


def outcomes(jobrun: Jobrun) -> list[object]:
    return [row[0] for row in jobrun.query("SELECT outcome FROM jobrun_run ORDER BY id")]


def test_stop_ends_the_whole_tree_and_says_how_it_ended(jobrun: Jobrun) -> None:
    """The wrapper does it as at a timeout: interrupted, no failure, and no further window."""
    running = Running(
        jobrun, *HOURLY, "--first", "2026-09-04T08:00Z", "--kill-after", "1", life="family"
    )
    found = jobrun("stop", "a", now=NOW)
    assert (found.status, found.stdout) == (0, "")
    (line,) = found.lines
    key = "a:2026-09-04T08:00:00+00:00"
    assert line.startswith(f"jobrun: NOTE job=a what=stopped key={key} ")
    assert " outcome=interrupted took=" in line
    status, err = running.end()
    assert (status, " INTERRUPTED job=a " in err) == (128 + signal.SIGTERM, True)
    assert outcomes(jobrun) == ["interrupted"]
    state = "SELECT state, attempts, failures, next_attempt_at FROM jobrun_window"
    assert jobrun.query(state) == [("failed", 1, 0, None)]
    after = jobrun("run", "a", *HOURLY, "--max-windows", "1", "-q", "--", "true", now=NOW)
    assert after.status == 0
    assert jobrun.query(state) == [("processed", 2, 0, None)]


def test_stop_is_on_record_with_who(jobrun: Jobrun) -> None:
    """In events, and in the story of the window it hit."""
    running = Running(jobrun, *HOURLY)
    assert jobrun("stop", "a", now=NOW).status == 0
    running.end()
    ((key, detail),) = jobrun.query("SELECT key, detail FROM jobrun_event WHERE kind = 'stop'")
    ((user, host),) = jobrun.query("SELECT user, host FROM jobrun_run")
    assert (key, detail) == (KEY, f"run=1 by {user}@{host}")
    story = jobrun("explain", "a", KEY, now=NOW).stdout
    assert story.index("interrupted after") < story.index(f"run=1 by {user}@{host}")


def test_a_command_that_ignores_it_is_killed_after_the_grace(jobrun: Jobrun) -> None:
    """That of the job: --kill-after of its call."""
    running = Running(jobrun, "-k", "1", life="ignores")
    assert " outcome=interrupted " in jobrun("stop", "a", now=NOW).stderr
    assert running.end()[0] == 128 + signal.SIGTERM


def test_a_second_stop_with_kill_waits_for_no_grace(jobrun: Jobrun) -> None:
    """The first one is still waiting: both say how it ended."""
    running = Running(jobrun, "-k", "1h", life="ignores")
    first = jobrun.start("stop", "a", now=NOW)
    asked = "SELECT count(*) FROM jobrun_event WHERE kind = 'stop'"
    until(lambda: jobrun.query(asked) == [(1,)], "the first stop")
    assert is_alive(running.pids[0])
    found = jobrun("stop", "a", "--kill", now=NOW)
    assert (found.status, " what=stopped outcome=interrupted " in found.stderr) == (0, True)
    _, err = first.communicate(timeout=20)
    assert (first.returncode, b" what=stopped " in err) == (0, True)
    assert running.end()[0] == 128 + signal.SIGTERM


def test_stop_dry_run_signals_nobody(jobrun: Jobrun) -> None:
    """It names the run and its holder, and writes nothing."""
    running = Running(jobrun)
    found = jobrun("stop", "a", "--dry-run", now=NOW)
    assert f" what=would-stop holder={os.uname().nodename}:{running.wrapper.pid} " in found.stderr
    assert is_alive(running.pids[0])
    assert jobrun.query("SELECT * FROM jobrun_event WHERE kind = 'stop'") == []
    assert jobrun("stop", "a", now=NOW).status == 0
    running.end()


def test_what_does_not_run_is_stopped_already(jobrun: Jobrun) -> None:
    """A word, exit 0: that is what was wanted. An unknown job is a mistake."""
    jobrun("run", "a", "--", "true", now=NOW)
    found = jobrun("stop", "a", now=NOW)
    assert (found.status, " what=not-running " in found.stderr) == (0, True)
    assert jobrun("stop", "b", now=NOW).status == 2


@linux
def test_a_pid_that_is_another_process_by_now_is_never_signalled(jobrun: Jobrun) -> None:
    """The run that was left open names it, by pid; its birth is another."""
    with orphaned(jobrun, now=NOW):
        pass
    code = "import signal; print('ready', flush=True); signal.pause()"
    with subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.PIPE) as bystander:
        assert bystander.stdout is not None
        assert bystander.stdout.readline() == b"ready\n"
        jobrun.change("UPDATE jobrun_run SET pid = ?, child_pid = ?", *[bystander.pid] * 2)
        for argv in (("stop", "a"), ("stop", "a", "--kill")):
            found = jobrun(*argv, now=NOW)
            assert (found.status, " what=not-running " in found.stderr) == (0, True)
        assert is_alive(bystander.pid)
        bystander.kill()


@linux
@pytest.mark.parametrize("life", ["waits", "ignores", "family"])
def test_a_tree_without_wrapper_and_guardian_goes_down_the_ladder(
    jobrun: Jobrun, life: str
) -> None:
    """Nobody else can end it; then it is lost, as the next call would find it."""
    with orphaned(jobrun, *HOURLY, "-k", "1", now=NOW, life=life):
        pids = (jobrun.folder / "ready").read_text().split()
        assert "orphan-alive" in jobrun("run", "a", *HOURLY, "--", "true", now=NOW).stderr
        found = jobrun("stop", "a", now=NOW)
        assert (found.status, " what=stopped " in found.stderr) == (0, True)
        assert " outcome=lost run=1 " in found.stderr
        assert not any(map(is_alive, pids))
    assert outcomes(jobrun) == ["lost"]
    kinds = [row[0] for row in jobrun.query("SELECT kind FROM jobrun_event ORDER BY id")]
    assert kinds == ["orphan", "lost", "stop"]
    again = jobrun("run", "a", *HOURLY, "--", "sh", "-c", "echo $JOBRUN_ATTEMPT", now=NOW)
    assert again.stdout == "2\n"


def test_a_wrapper_that_is_stopped_hears_it(jobrun: Jobrun) -> None:
    """Ctrl-Z in some terminal long ago: TERM, and CONT after it."""
    running = Running(jobrun)
    os.kill(running.wrapper.pid, signal.SIGSTOP)
    assert " outcome=interrupted " in jobrun("stop", "a", now=NOW).stderr
    running.end()


def test_a_run_of_another_host_is_refused(jobrun: Jobrun) -> None:
    """It can't be asked from here; once nobody has its lock, there is nothing to stop."""
    running = Running(jobrun)
    jobrun.change("UPDATE jobrun_run SET host = 'db9', birth = 'other 1 1'")
    found = jobrun("stop", "a", now=NOW)
    assert (found.status, 'job "a": run 1 is of host db9' in found.stderr) == (75, True)
    running.wrapper.kill()
    running.end()
    said: list[str] = []

    def has_let_go() -> bool:
        found = jobrun("stop", "a", now=NOW)
        said.append(found.stderr)
        return found.status == 0

    until(has_let_go, "its lock")  # its guardian's, until that is gone, too
    assert " what=not-running " in said[-1]


WAITS = ("--retries", "1", "--retry-delay", "30s", "--", "false")


def test_a_call_that_waits_for_its_next_try_is_stopped(jobrun: Jobrun) -> None:
    """It runs nothing in that moment, and tries no more."""
    waiting = jobrun.start("run", "a", *HOURLY, *WAITS, now=NOW)
    until(lambda: waits(jobrun), "the wait")
    found = jobrun("stop", "a", now=NOW)
    assert (found.status, " what=stopped " in found.stderr) == (0, True)
    waiting.communicate(timeout=20)
    assert (waiting.returncode, outcomes(jobrun)) == (128 + signal.SIGTERM, ["failed"])


def waits(jobrun: Jobrun) -> bool:
    """Whether the holder of the job's lock has left word that it does."""
    lock = Path(places.locks_folder(str(jobrun.ledger))) / f"{places.slug('a')}.lock"
    return lock.exists() and b" attempt=2 " in lock.read_bytes()


class Container(Jobrun):
    """jobrun in a pid namespace of its own, on the same ledger and of the same name."""

    def argv(self, *argv: str, now: str | None = None) -> list[str]:
        return [*UNSHARE, *super().argv(*argv, now=now)]


@pytest.fixture
def container(jobrun: Jobrun) -> Container:
    if subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no pid namespaces here")
    return Container(jobrun.folder)


@linux
@needs("unshare", "util-linux")
def test_what_a_container_of_the_same_name_runs_is_seen_and_refused(
    jobrun: Jobrun, container: Container
) -> None:
    """Its pids are none of ours; its lock says that it lives, and then that it does not."""
    held = Held(container, "a", "--every", "1h", now=NOW)

    def seen() -> list[bool]:
        looks = (("status", "a"), ("show", "a"), ("show", "1"), ("history",), ("explain", "a", KEY))
        return ["lost" in jobrun(*look, now=NOW).stdout for look in looks]

    assert seen() == [False] * 5
    assert "running" in jobrun("status", "a", now=NOW).stdout
    for more in ((), ("--kill",), ("--dry-run",)):
        found = jobrun("stop", "a", *more, now=NOW)
        assert (found.status, "run 1 is of another machine or container" in found.stderr) == (
            75,
            True,
        )
    assert container("stop", "a", now=NOW).status == 75  # from a third one
    assert outcomes(jobrun) == [None]
    held.wrapper.kill()
    held.wrapper.communicate(timeout=20)
    until(lambda: jobrun("stop", "a", now=NOW).status == 0, "the end of its processes")
    assert seen() == [True] * 5
    assert "running" not in jobrun("status", "a", now=NOW).stdout


@linux
@needs("unshare", "util-linux")
def test_a_call_of_a_container_that_waits_for_its_next_try_is_refused(
    jobrun: Jobrun, container: Container
) -> None:
    """No run is under way, and yet the job is not at rest: its lock is held."""
    waiting = container.start("run", "a", *HOURLY, *WAITS, now=NOW)
    until(lambda: waits(jobrun), "the wait")
    found = jobrun("stop", "a", now=NOW)
    assert found.status == 75
    assert "the call of run 1, which waits to try again, is of another machine" in found.stderr
    waiting.kill()
    waiting.communicate(timeout=20)
    until(lambda: jobrun("stop", "a", now=NOW).status == 0, "the end of its processes")
    assert " what=not-running " in jobrun("stop", "a", now=NOW).stderr


@linux
@pytest.mark.parametrize("mode", [HOURLY, ("--key", "mail", "--stdin", "null")])
def test_an_orphan_that_is_stopped_is_held_where_its_job_says_so(
    jobrun: Jobrun, mode: tuple[str, ...]
) -> None:
    """--on-lost hold: it may have sent the mail, so no later call runs it but a person decides."""
    hold = (*mode, "--on-lost", "hold")
    with orphaned(jobrun, *hold, "-k", "1", now=NOW):
        found = jobrun("stop", "a", now=NOW)
    key = "a:mail" if "--key" in mode else KEY
    assert [line.split()[1] for line in found.lines] == ["LOST", "WARNING", "hint:", "NOTE"]
    assert f" WARNING job=a what=held key={key} " in found.stderr
    assert f'hint: if it did its work: jobrun resolve a {key} --note "..."' in found.stderr
    again = jobrun("run", "a", *hold, "--", "echo", "AGAIN", now="2026-09-04T12:06Z")
    assert (again.stdout, " reason=window-held " in again.stderr) == ("", True)
    assert jobrun.query("SELECT state, reason FROM jobrun_window") == [("held", "lost")]
    kinds = [row[0] for row in jobrun.query("SELECT kind FROM jobrun_event ORDER BY id")]
    assert kinds == ["lost", "held", "stop"]


@linux
def test_an_orphan_that_is_stopped_is_dead_after_its_last_attempt(jobrun: Jobrun) -> None:
    """--max-attempts: finished, so that the watermark goes over it and the next has its turn."""
    once = (*HOURLY, "--max-attempts", "1")
    with orphaned(jobrun, *once, "-k", "1", now=NOW):
        found = jobrun("stop", "a", now=NOW)
    assert f" WARNING job=a what=dead key={KEY} " in found.stderr
    assert f"hint: jobrun retry a {KEY}" in found.stderr
    assert jobrun.query("SELECT state FROM jobrun_window") == [("dead",)]
    assert jobrun.query("SELECT watermark, next FROM jobrun_job") == [
        ("2026-09-04T12:00:00+00:00", "2026-09-04T13:00:00+00:00")
    ]
    show = ("sh", "-c", "echo $JOBRUN_WINDOW_START")
    again = jobrun("run", "a", *once, "--", *show, now="2026-09-04T13:05Z")
    assert again.stdout == "2026-09-04T12:00:00+00:00\n"


MOUNT = ("unshare", "-m", "sh", "-c")
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


def can_mount() -> bool:
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run(
            [*MOUNT, "mount --bind /tmp /tmp"], check=False, capture_output=True
        ).returncode
    )


@pytest.mark.skipif(not can_mount(), reason="no mount namespaces here")
def test_a_read_only_filesystem_is_named_and_keeps_nobody_from_stopping(jobrun: Jobrun) -> None:
    """As after an error of the disk: nothing new runs, and what runs can be ended."""
    running = Running(jobrun, *HOURLY)

    def read_only(*argv: str) -> Result:
        command = [*MOUNT, READ_ONLY, str(jobrun.folder), *jobrun.argv(*argv, now=NOW)]
        found = subprocess.run(
            command, env=jobrun.environment, cwd=jobrun.folder, capture_output=True,
            timeout=60, check=False,
        )  # fmt: skip
        return Result(found.returncode, found.stdout.decode(), found.stderr.decode())

    refused = read_only("run", "b", "--", "true")
    assert refused.status == 74
    assert f"{jobrun.ledger}: on a read-only file system" in refused.stderr
    assert "remount,rw" in refused.lines[-1]
    stopped = read_only("stop", "a")
    assert (stopped.status, "what=stopped" in stopped.stderr) == (0, True)
    assert running.end()[0] == 143
    again = read_only("stop", "a")
    assert (again.status, "what=not-running" in again.stderr) == (0, True)
