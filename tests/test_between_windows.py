"""Trouble between two windows: the one that ended is on record, the next one is not lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PYTHON, Jobrun, Result, is_alive, until
from tests.scenes import until_free

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes")

NOW = "1788523500"  # 2026-09-04T12:05:00Z
LATER = "2026-09-04T12:07:00Z"
CALL = ("run", "a", "--every", "1h", "--first", "2026-09-04T10:00Z")
SHOW = ("--", "sh", "-c", "echo $JOBRUN_WINDOW_START")


def patched(jobrun: Jobrun, patch: str, *argv: str, **env: str) -> Result:
    """A call in a process where something is broken."""
    code = f"import sys\n{patch}\nfrom tests import frozen\n"
    code += f"sys.exit(frozen.run({NOW}, sys.argv[1:]))"
    found = subprocess.run(
        [PYTHON, "-c", code, *argv],
        env={**jobrun.environment, **env},
        cwd=jobrun.folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    return Result(found.returncode, found.stdout.decode(), found.stderr.decode())


def states(jobrun: Jobrun) -> list[tuple[object, ...]]:
    return jobrun.query(
        "select substr(start, 12, 2), state, attempts, failures from jobrun_window order by start"
    )


def test_no_process_for_the_next_command(jobrun: Jobrun) -> None:
    """EAGAIN at the second fork: the first window is processed, 75 says why it stopped."""
    patch = (
        "from jobrun import process; start = process.start; calls = []\n"
        "def failing(*a):\n"
        "    calls.append(1)\n"
        "    if len(calls) > 1: raise OSError(11, 'Resource temporarily unavailable')\n"
        "    return start(*a)\n"
        "process.start = failing"
    )
    found = patched(jobrun, patch, *CALL, *SHOW)
    assert found.status == 75
    assert found.stdout == "2026-09-04T10:00:00+00:00\n"
    assert "PROCESSED" in found.stderr
    assert "no process for the command: Resource temporarily unavailable" in found.stderr
    assert states(jobrun) == [("10", "processed", 1, 0)]
    assert jobrun(*CALL, *SHOW, now=LATER).stdout == "2026-09-04T11:00:00+00:00\n"


NO_PROCESS = (
    "from jobrun import process\n"
    "def failing(*a): raise OSError(12, 'Cannot allocate memory')\n"
    "process.start = failing"
)


def test_no_process_for_the_first_command(jobrun: Jobrun) -> None:
    """75, nothing ran, nothing is on record."""
    found = patched(jobrun, NO_PROCESS, *CALL, *SHOW)
    assert (found.status, found.stdout) == (75, "")
    assert "Traceback" not in found.stderr
    assert states(jobrun) == []


@pytest.mark.parametrize(
    "error", ["LedgerError('the disk is full')", "Refused('busy')", "OSError(5, 'I/O error')"]
)
def test_tidying_up_never_stops_a_catch_up(jobrun: Jobrun, error: str) -> None:
    """Old output that can't be removed, a ledger that can't be asked about it."""
    patch = (
        "from jobrun.errors import LedgerError, Refused\n"
        "from jobrun.ledger_sqlite import SqliteLedger\n"
        f"def failing(*a): raise {error}\n"
        "SqliteLedger.run = failing"
    )
    folder = Path(f"{jobrun.ledger}.d") / "output"
    jobrun("run", "a", "--key", "k", "--", "echo", "x")
    (month,) = [path.parent for path in folder.rglob("*.out")]
    for number in range(1000, 1120):
        (month / f"{number}.out").write_text("x")
    found = patched(jobrun, patch, *CALL, *SHOW)
    assert found.status == 0, found.stderr
    assert found.stdout.count("\n") == 2


def test_a_bug_in_reporting_ends_the_call_and_loses_no_window(jobrun: Jobrun) -> None:
    """70 with a traceback; what ended is on record, the next window's command never ran."""
    patch = (
        "from jobrun.report import Report\n"
        "def failing(*a): raise RuntimeError('a bug')\n"
        "Report.ended = failing"
    )
    found = patched(jobrun, patch, *CALL, *SHOW)
    assert found.status != 0
    assert found.stdout == "2026-09-04T10:00:00+00:00\n"
    assert states(jobrun)[0] == ("10", "processed", 1, 0)
    until_free(jobrun.ledger, "a")
    again = jobrun(*CALL, *SHOW, now=LATER)
    assert again.stdout == "2026-09-04T11:00:00+00:00\n"
    assert jobrun.query("select count(*) from jobrun_run where outcome is null") == [(0,)]


@pytest.mark.parametrize("where", ["before", "after"])
def test_killed_between_two_windows(jobrun: Jobrun, where: str) -> None:
    """Before the finishing transaction the window runs again, after it the next one does."""
    patch = (
        "import os, signal\n"
        "from jobrun.ledger_sqlite import SqliteLedger\n"
        "finish = SqliteLedger.finish\n"
        "def killed(*a):\n"
        f"    {'finish(*a); ' if where == 'after' else ''}os.kill(os.getpid(), signal.SIGKILL)\n"
        "SqliteLedger.finish = killed"
    )
    assert patched(jobrun, patch, *CALL, *SHOW).status == -signal.SIGKILL
    starts: list[str] = []

    def again() -> bool:
        starts.append(jobrun(*CALL, *SHOW, now=LATER).stdout)
        return starts[-1] != ""

    until(again, "the lock")
    hours = [line[11:13] for line in starts[-1].split()]
    assert hours == {"before": ["10", "11"], "after": ["11"]}[where]
    assert [row[:2] for row in states(jobrun)] == [("10", "processed"), ("11", "processed")]


def test_what_ran_and_is_not_recorded_is_never_called_processed(jobrun: Jobrun) -> None:
    """Its ledger is gone: FAILED with outcome=not-recorded, 76, the key in the error."""
    found = jobrun(
        *CALL,
        "--",
        "sh",
        "-c",
        f"rm -f {jobrun.ledger} {jobrun.ledger}-*",
        now="2026-09-04T11:05:00Z",
    )
    assert found.status == 76
    assert " exit=76 outcome=not-recorded " in found.stderr
    assert "PROCESSED" not in found.stderr
    error = next(line for line in found.lines if ": error: " in line)
    assert '"a:2026-09-04T10:00:00+00:00"' in error


def test_the_commands_own_failure_wins_over_76(jobrun: Jobrun) -> None:
    """Fenced or not recorded: its exit code is what cron gets."""
    script = f"rm -f {jobrun.ledger} {jobrun.ledger}-*; exit 3"
    assert jobrun(*CALL, "--", "sh", "-c", script, now="2026-09-04T11:05:00Z").status == 3
    other = Jobrun(jobrun.folder / "fenced")
    other.folder.mkdir()
    steal = "update jobrun_job set token = token + 1"
    code = (
        "import sqlite3, os; c = sqlite3.connect(os.environ['JOBRUN_LEDGER']);"
        f"c.execute({steal!r}); c.commit(); raise SystemExit(3)"
    )
    found = other(*CALL, "--", PYTHON, "-c", code, now="2026-09-04T11:05:00Z")
    assert found.status == 3
    assert " FENCED job=a " in found.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the tree beyond the group is Linux's")
@pytest.mark.parametrize(
    "act", [("forget", "a", "--yes"), ("skip", "a", "2026-09-04T11:00Z", "--reason", "x")]
)
@pytest.mark.parametrize("host", [None, "renamed"])
def test_acts_and_calls_see_an_orphan(
    jobrun: Jobrun, act: tuple[str, ...], host: str | None
) -> None:
    """Wrapper and guardian killed, the command lives: no act pulls the record from under it, and a
    host that was renamed since makes no difference."""
    code = "import os, signal; print('ready', os.getpid(), flush=True); signal.pause()"
    process = jobrun.start(*CALL, "--", PYTHON, "-c", code, now="2026-09-04T11:05:00Z")
    assert process.stdout is not None
    orphan = int(process.stdout.readline().split()[1])
    try:
        guardian = int(Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(guardian, signal.SIGKILL)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(20)
        if host is not None:
            jobrun.change("update jobrun_run set host = ?", host)
        found = jobrun(*act, now=LATER)
        assert found.status == 75
        assert f"run 1 is alive (pid {orphan})" in found.stderr
        second = jobrun(*CALL, *SHOW, now=LATER)
        assert (second.status, second.stdout) == (0, "")
        assert "reason=orphan-alive" in second.stderr
    finally:
        os.kill(orphan, signal.SIGKILL)
        process.communicate(timeout=20)
    until(lambda: not is_alive(orphan), "the orphan's end")
    assert jobrun(*CALL, *SHOW, now=LATER).stdout.startswith("2026-09-04T10")


def test_a_holder_without_a_run_is_named(jobrun: Jobrun) -> None:
    """Between two windows, or by hand: holder=host:pid and nothing else."""
    jobrun("run", "a", "--", "true")
    code = (
        "import sys\nfrom jobrun import turn\n"
        "def hold(situation, named): print('ready', flush=True); sys.stdin.read(); return 0\n"
        "turn.take = hold\nfrom tests import frozen\n"
        f"sys.exit(frozen.run({NOW}, sys.argv[1:]))"
    )
    holder = subprocess.Popen(
        [PYTHON, "-c", code, "run", "a", "--", "true"],
        env=jobrun.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    found = jobrun("run", "a", "--", "true", now=LATER)
    holder.communicate(timeout=20)
    assert f" reason=lock-held holder={os.uname().nodename}:{holder.pid} at=" in found.stderr


def test_kept_output_lies_where_its_run_began(jobrun: Jobrun) -> None:
    """The month of the claim, whatever the clock says a moment later."""
    code = (
        "import sys\nfrom jobrun.__main__ import main\nimport os\n"
        "ticks = iter(range(10**6))\n"
        "clock = lambda: 1788220799 + 0.4 * next(ticks)\n"  # 2026-08-31T23:59:59Z and on
        "sys.exit(main(sys.argv[1:], os.environ, clock))"
    )
    argv = [PYTHON, "-c", code, "run", "a", "-q", "--", "echo", "hello"]
    subprocess.run(argv, env=jobrun.environment, capture_output=True, check=True)
    assert jobrun("logs", "1", now=LATER).stdout == "hello\n"


def test_durations_have_an_end(jobrun: Jobrun) -> None:
    """A slip of the hand is refused, a long one works."""
    for option in ("--timeout", "--lag"):
        found = jobrun("run", "a", "--every", "1h", option, "9" * 20, "--", "true")
        assert found.status == 2
        assert f'error: {option} "{"9" * 20}"' in found.stderr
    assert jobrun("run", "b", "--timeout", "90d", "--", "true").status == 0
