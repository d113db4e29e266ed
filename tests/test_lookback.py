"""`--lookback N`: before a new window the processed ones below it run again (R43, T21)."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.cases import DAILY, HOURLY
from tests.conftest import PYTHON, Jobrun, until

# What a command sees, a line a run; fails where FAILS names its hour.
SAYS = (
    "import os; e = os.environ; hour = e['JOBRUN_WINDOW_START'][11:13];"
    "print(hour, e['JOBRUN_KIND'], e['JOBRUN_ATTEMPT']);"
    "raise SystemExit(3 if hour in e.get('FAILS', '').split() else 0)"
)
COMMAND = ("--", PYTHON, "-c", SAYS)


def at(hour: int, minute: int = 5) -> str:
    return f"2026-09-04T{hour:02}:{minute:02}Z"


def call(
    jobrun: Jobrun, now: str, *more: str, fails: str = "", status: int = 0, **env: str
) -> list[str]:
    """What ran, as `08 lookback 2`."""
    found = jobrun(
        "run", "j", *HOURLY, *more, *COMMAND, now=now, env={"FAILS": fails, **env}
    )  # fmt: skip
    assert status == found.status, found.stderr
    return found.stdout.splitlines()


def states(jobrun: Jobrun) -> dict[str, str]:
    """By hour."""
    found = jobrun.query("select substr(start, 12, 2), state from jobrun_window order by start")
    return {str(hour): str(state) for hour, state in found}


@pytest.fixture
def done(jobrun: Jobrun) -> Jobrun:
    """The windows of 7, 8 and 9 o'clock are processed."""
    assert len(call(jobrun, at(10), "--first", "2026-09-04T07:00Z")) == 3
    return jobrun


def test_what_is_below_a_new_window_runs_before_it(done: Jobrun) -> None:
    """R43: outside of the cap; nothing without a new window; the watermark is that of new ones."""
    assert call(done, at(10, 59), "--lookback", "2") == []
    ran = call(done, at(13), "--lookback", "2", "--max-windows", "2")
    assert ran == ["08 lookback 2", "09 lookback 2", "10 new 1", "11 new 1"]
    assert call(done, at(13), "--lookback", "2") == ["10 lookback 2", "11 lookback 2", "12 new 1"]
    assert done.query("select watermark from jobrun_job") == [("2026-09-04T13:00:00+00:00",)]


def test_more_than_there_are(jobrun: Jobrun) -> None:
    """The first window of a job has nothing below it."""
    assert call(jobrun, at(10), "--lookback", "3") == ["09 new 1"]
    assert call(jobrun, at(11), "--lookback", "3") == ["09 lookback 2", "10 new 1"]


def test_what_was_never_processed_is_none_to_look_back_to(done: Jobrun) -> None:
    """R43: the nearest that are processed; a gap and a window that was skipped are passed over."""
    assert done("skip", "j", at(10, 0), "--reason", "empty", now=at(11)).status == 0
    assert call(done, at(13), "--catch-up", "latest") == ["12 new 1"]
    ran = call(done, at(14), "--lookback", "2")
    assert ran == ["09 lookback 2", "12 lookback 2", "13 new 1"]


def test_a_failure_there_stops_nothing(done: Jobrun) -> None:
    """R43: it stays processed, the exit code tells, the new windows run all the same."""
    ran = call(done, at(12), "--lookback", "2", fails="08", status=3)
    assert ran == ["08 lookback 2", "09 lookback 2", "10 new 1", "11 new 1"]
    assert set(states(done).values()) == {"processed"}
    assert call(done, at(12)) == []


def test_a_command_that_cannot_be_started_reaches_the_new_window(done: Jobrun) -> None:
    """R25, R43: it is the new one that has failed, or its attempts would never be counted."""
    found = done("run", "j", *HOURLY, "--lookback", "1", "--", "./none", now=at(12))
    assert found.status == 127
    assert states(done) == {"07": "processed", "08": "processed", "09": "processed", "10": "failed"}


def test_a_slow_look_back_does_not_keep_a_new_window_from_its_turn(done: Jobrun) -> None:
    """With --stop-after one new window starts at least, or each call would only look back."""
    found = done(
        "run", "j", *HOURLY, "--lookback", "2", "--stop-after", "0", *COMMAND, now=at(12)
    )  # fmt: skip
    assert found.stdout.splitlines() == ["08 lookback 2", "09 lookback 2", "10 new 1"]
    assert "BACKLOG job=j left=1 from=2026-09-04T11:00:00Z" in found.stderr


def test_a_window_that_is_tried_again_is_not_new(done: Jobrun) -> None:
    """R43: it runs first; where it stops the call, nothing is looked back to."""
    call(done, at(11), "--lookback", "1", fails="10", status=3)
    assert call(done, at(12), "--lookback", "1", fails="10", status=3) == ["10 retry 2"]
    ran = call(done, at(13), "--lookback", "1")
    assert ran == ["10 retry 3", "09 lookback 3", "11 new 1", "12 new 1"]


def test_with_holes(done: Jobrun) -> None:
    """R25, R43: under --on-failure continue the hole, then the look back, then what is new."""
    more = ("--on-failure", "continue", "--lookback", "1")
    call(done, at(11), *more, fails="10", status=3)
    assert call(done, at(12), *more) == ["10 retry 2", "09 lookback 3", "11 new 1"]


def test_the_plan_says_so(done: Jobrun) -> None:
    """R47: in the plan of the call, and of the last one."""
    call(done, at(11), "--lookback", "1")
    asked = ("run", "j", *HOURLY, "--lookback", "1", "--dry-run", *COMMAND)
    for argv in (asked, ("plan", "j")):
        plan = done(*argv, now=at(12)).stdout
        runs = [line.split()[1:3] for line in plan.splitlines() if line.startswith("run ")]
        assert [(window[11:13], kind) for window, kind in runs] == [
            ("10", "lookback"),
            ("11", "new"),
        ]


def test_by_hand_nothing_is_looked_back_to(done: Jobrun) -> None:
    """The option of the crontab's line is taken over, and means nothing there."""
    call(done, at(10), "--lookback", "2")
    call(done, at(11), "--lookback", "2")
    assert done("rerun", "j", at(9, 0), now=at(12)).stdout.splitlines() == ["09 rerun 3"]
    by_hand = call(done, at(13), "--lookback", "2", "--window", at(12, 0))
    assert by_hand == ["12 backfill 1"]


def test_quiet_tells_a_failure_once(jobrun: Jobrun) -> None:
    """The new window that succeeds after it is no recovery: --remind goes by the failure."""
    fails = "import os; raise SystemExit(3 * (os.environ['JOBRUN_KIND'] == 'lookback'))"
    told = []
    for day in (3, 4, 5):
        found = jobrun(
            "run", "j", *DAILY, "--lookback", "1", "--remind", "2d", "-q",
            "--", PYTHON, "-c", fails, now=f"2026-09-{day:02}T00:05Z",
        )  # fmt: skip
        said = [word for word in ("FAILED", "PROCESSED") if word in found.stderr]
        told.append((found.status, said))
    assert told == [(0, []), (3, ["FAILED"]), (3, [])]


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_killed_while_it_looks_back(done: Jobrun, tmp_path: Path) -> None:
    """The run is lost, its window stays processed, and the next call looks back once more."""
    ready = tmp_path / "ready"
    hold = "import os, sys; open(sys.argv[1], 'w').close(); os.read(0, 1)"
    reader, writer = os.pipe()
    wrapper = done.start(
        "run", "j", *HOURLY, "--lookback", "1", "--stdin", "inherit",
        "--", PYTHON, "-c", hold, str(ready), now=at(11), stdin=reader,
    )  # fmt: skip
    until(ready.exists, "the look back")
    wrapper.send_signal(signal.SIGKILL)
    wrapper.communicate(timeout=20)
    os.close(reader)
    os.close(writer)
    found = done("run", "j", *HOURLY, "--lookback", "1", "--wait", "20", *COMMAND, now=at(11))
    assert found.stdout.splitlines() == ["09 lookback 3", "10 new 1"]
    assert "LOST job=j" in found.stderr
    assert set(states(done).values()) == {"processed"}
