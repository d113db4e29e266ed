"""A run that nobody saw end, and whose command had marked its window (jobrun_done): it is done."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.conftest import PYTHON, Jobrun, Result, is_alive, until
from tests.scenes import Held

if sys.platform == "win32":
    pytest.skip("kill -9, /proc", allow_module_level=True)

NOON, ONE = "2026-09-04T12:05Z", "2026-09-04T13:05Z"
CALL = ("run", "a", "--every", "1h", "--first", "2026-09-04T11:00Z")
KEY = "a:2026-09-04T11:00:00+00:00"
SHOW = ("--", "sh", "-c", "echo $JOBRUN_KEY")
# Leaves what LEFT says, marks, and waits for its stdin to end.
MARKS = """
import os, signal, sqlite3, sys, jobrun
signal.signal(signal.SIGTERM, signal.SIG_DFL)
if 'JOBRUN_VALUES' in os.environ:
    open(os.environ['JOBRUN_VALUES'], 'w').write(os.environ['LEFT'])
connection = sqlite3.connect(os.environ['JOBRUN_LEDGER'], isolation_level=None, timeout=20)
connection.execute('BEGIN IMMEDIATE')
jobrun.done(connection)
connection.execute('COMMIT')
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def mark(jobrun: Jobrun, *options: str, left: str = "rows=5", now: str = NOON) -> Held:
    """A call of `a` whose command has marked its window, and waits."""
    return Held(
        jobrun, "a", "--every", "1h", "--first", "2026-09-04T11:00Z", *options,
        command=(PYTHON, "-uc", MARKS), now=now, env={"LEFT": left},
    )  # fmt: skip


def guardian_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def orphan(held: Held) -> None:
    """Neither its wrapper nor its guardian is left."""
    guardian = guardian_of(held.pid)
    os.kill(held.wrapper.pid, signal.SIGSTOP)  # or it would see the end of its guardian
    for pid in (guardian, held.wrapper.pid):
        os.kill(pid, signal.SIGKILL)
    held.wrapper.wait(20)
    until(lambda: not is_alive(guardian), "the guardian's end")


def lose(held: Held) -> None:
    """As by a power cut."""
    orphan(held)
    os.kill(held.pid, signal.SIGKILL)
    until(lambda: not is_alive(held.pid), "the command's end")
    for stream in (held.wrapper.stdin, held.wrapper.stdout, held.wrapper.stderr):
        if stream is not None:
            stream.close()


def kinds(jobrun: Jobrun) -> list[object]:
    told = "('lost', 'failed', 'recovered', 'paused', 'resumed', 'dead', 'held')"
    return [
        kind
        for (kind,) in jobrun.query(
            f"select kind from jobrun_event where kind in {told} order by id"
        )
    ]


def failing(jobrun: Jobrun) -> object:
    return jobrun.query("select failing from jobrun_job where name = 'a'")[0][0]


def values(jobrun: Jobrun) -> list[tuple[object, ...]]:
    return jobrun.query("select name, value from jobrun_value")


def files(jobrun: Jobrun) -> list[Path]:
    return list(Path(f"{jobrun.ledger}.d/values").glob("*"))


def next_hour(jobrun: Jobrun, *options: str) -> Result:
    return jobrun(*CALL, *options, *SHOW, now=ONE)


@pytest.mark.parametrize(
    "options",
    [
        ("--pause-after", "1"),
        ("--max-attempts", "1"),
        ("--on-lost", "hold"),
        ("--overlap", "allow"),
    ],
)
def test_it_is_no_failure_whatever_would_be_made_of_one(
    jobrun: Jobrun, options: tuple[str, ...]
) -> None:
    """Not paused, dead, held or tried again: the next window has its turn."""
    lose(mark(jobrun, *options))
    status = jobrun("status", "a", now=NOON).stdout
    assert "again" not in status
    assert "its window is processed: its command had marked it" in status
    assert "again" not in jobrun("explain", KEY, now=NOON).stdout
    plan = jobrun("plan", "a", now=ONE)
    assert " outcome=lost state=processed " in plan.stdout + plan.stderr
    assert "paused" not in plan.stdout + plan.stderr
    found = next_hour(jobrun, *options)
    assert (found.status, found.stdout) == (0, "a:2026-09-04T12:00:00+00:00\n")
    assert " outcome=lost state=processed attempt=1 run=1 " in found.stderr
    assert "WARNING" not in found.stderr
    assert (kinds(jobrun), failing(jobrun)) == (["lost"], 0)


def test_it_does_not_make_its_job_one_that_fails(jobrun: Jobrun) -> None:
    """Where no other window is due after it: `status --check` finds nothing."""
    lose(mark(jobrun))
    assert "state=processed" in jobrun(*CALL, *SHOW, now=NOON).stderr
    assert jobrun("status", "--check", now=NOON) == Result(0, "", "")
    assert jobrun("failures", "--check", now=NOON).status == 0


def test_it_ends_a_row_of_failures(jobrun: Jobrun) -> None:
    """As a success does: the count is cleared, and an event says that the job has recovered."""
    assert jobrun(*CALL, "--pause-after", "3", "--", "false", now=NOON).status == 1
    assert failing(jobrun) == 1
    lose(mark(jobrun, "--pause-after", "3", now="2026-09-04T12:45Z"))
    assert next_hour(jobrun, "--pause-after", "3").status == 0
    assert (kinds(jobrun), failing(jobrun)) == (["failed", "lost", "recovered"], 0)


def test_a_probe_that_is_lost_so_ends_the_pause(jobrun: Jobrun) -> None:
    """The job had paused itself; the window that it tries is done."""
    options = ("--pause-after", "1", "--resume-after", "10m")
    assert jobrun(*CALL, *options, "--", "false", now=NOON).status == 1
    lose(mark(jobrun, *options, now="2026-09-04T12:45Z"))
    found = next_hour(jobrun, *options)
    assert " NOTE job=a what=resumed by=jobrun " in found.stderr
    assert (found.status, found.stdout) == (0, "a:2026-09-04T12:00:00+00:00\n")
    assert kinds(jobrun) == ["paused", "failed", "lost", "resumed", "recovered"]


def test_what_it_has_left_comes_to_those_who_wait_for_it(jobrun: Jobrun) -> None:
    """kill -9 of jobrun alone: the guardian ends the command, the next call keeps the values."""
    held = mark(jobrun)
    held.wrapper.kill()
    held.wrapper.communicate(timeout=20)
    until(lambda: "LOST" in jobrun(*CALL, *SHOW, now=NOON).stderr, "the lock")
    assert (values(jobrun), files(jobrun)) == ([("rows", "5")], [])
    down = ("--after", "a", "--input", "ROWS=a.rows", "--", "sh", "-c", "echo $ROWS")
    found = jobrun("run", "b", *CALL[2:], *down, now=NOON)
    assert (found.status, found.stdout) == (0, "5\n")


def test_what_it_has_left_is_told_where_it_can_not_be_read(jobrun: Jobrun) -> None:
    """As at an end that was seen: nothing of it is kept, the window is processed."""
    lose(mark(jobrun, left="rows"))
    found = jobrun(*CALL, *SHOW, now=NOON)
    assert f" WARNING job=a what=values-lost key={KEY} cause=" in found.stderr
    assert (values(jobrun), files(jobrun)) == ([], [])


def test_what_a_run_leaves_that_is_lost_without_a_mark_is_not_kept(jobrun: Jobrun) -> None:
    """It runs again, and leaves its own."""
    lose(mark(jobrun))
    jobrun.change("update jobrun_window set state = 'running', reason = null")
    found = jobrun(*CALL, *SHOW, now=NOON)
    assert (found.stdout, "state=processed" in found.stderr) == (f"{KEY}\n", False)
    assert (values(jobrun), files(jobrun)) == ([], [])


@pytest.mark.skipif(sys.platform != "linux", reason="an orphan is known by /proc")
def test_stop_of_one_that_nobody_watches_any_more(jobrun: Jobrun) -> None:
    """It is stopped and lost; what it did stays done."""
    held = mark(jobrun, "--on-lost", "hold", "--kill-after", "1")
    orphan(held)
    found = jobrun("stop", "a", now=NOON)
    assert found.status == 0
    assert " outcome=lost state=processed " in found.stderr
    assert "WARNING" not in found.stderr
    assert not is_alive(held.pid)
    assert (values(jobrun), kinds(jobrun)) == ([("rows", "5")], ["lost"])
    assert next_hour(jobrun).stdout == "a:2026-09-04T12:00:00+00:00\n"
    held.wrapper.communicate(timeout=20)


def test_resume_with_the_latest_finds_it_too(jobrun: Jobrun) -> None:
    """It gives up what is pending, not what is done, and keeps what that has left."""
    lose(mark(jobrun))
    assert jobrun("pause", "a", now=NOON).status == 0
    found = jobrun("resume", "a", "--catch-up", "latest", now="2026-09-04T15:05Z")
    assert " outcome=lost state=processed " in found.stderr
    assert (values(jobrun), kinds(jobrun)) == ([("rows", "5")], ["paused", "lost", "resumed"])


def test_a_unit_of_key_is_done_as_well(jobrun: Jobrun) -> None:
    """key-exists, and nobody is asked."""
    held = Held(
        jobrun, "k", "--key", "x", "--on-lost", "hold", command=(PYTHON, "-uc", MARKS), now=NOON,
        env={"LEFT": ""},
    )  # fmt: skip
    lose(held)
    found = jobrun("run", "k", "--key", "x", "--on-lost", "hold", *SHOW, now=NOON)
    assert (found.stdout, "reason=key-exists" in found.stderr) == ("", True)
