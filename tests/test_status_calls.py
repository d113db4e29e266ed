"""What `status` and the screens beside it say after calls of a job, from outside in."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Jobrun
from tests.scenes import HOURLY, Held, posix

DAILY = ("--every", "1d")


def checked(jobrun: Jobrun, now: str) -> tuple[int, list[str]]:
    found = jobrun("status", "--check", now=now)
    return found.status, found.stdout.splitlines()


@pytest.mark.parametrize(
    ("options", "settle"),
    [
        (("--max-attempts", "1"), ("resolve", "s", "yesterday", "--note", "x")),
        ((), ("skip", "s", "yesterday", "--reason", "x")),
    ],
)
def test_a_job_whose_last_trouble_is_settled_is_fine(
    jobrun: Jobrun, options: tuple[str, ...], settle: tuple[str, ...]
) -> None:
    """Not FAILING until the next window is processed: for that of a day, a day later."""
    jobrun("run", "s", *DAILY, *options, "--", "false", now="2026-09-04T12:00Z")
    assert checked(jobrun, "2026-09-04T12:01Z")[0] == 1
    found = jobrun(*settle, now="2026-09-04T12:02Z")
    assert found.status == 0, found.stderr
    assert jobrun("failures", "--check", now="2026-09-04T12:03Z").status == 0
    assert checked(jobrun, "2026-09-04T12:03Z") == (0, [])
    shown = jobrun("show", "s", now="2026-09-04T12:03Z").stdout
    assert "1 window in a row since 09-04 12:00, settled since\n" in shown


def test_a_plain_job_whose_last_run_failed_is_failing(jobrun: Jobrun) -> None:
    """Nothing settles that but a run."""
    jobrun("run", "s", "--", "false", now="2026-09-04T12:00Z")
    assert checked(jobrun, "2026-09-04T12:01Z")[0] == 1


@posix
def test_while_a_window_is_tried_again_its_failures_are_counted(jobrun: Jobrun) -> None:
    """Not x0: the run that is under way has not ended in any way."""
    for minute in ("05", "20"):
        assert jobrun("run", "s", *HOURLY, "--", "false", now=f"2026-09-04T12:{minute}Z").status
    held = Held(jobrun, "s", *HOURLY, now="2026-09-04T12:50Z")
    said = jobrun("status", now="2026-09-04T12:51Z").stdout
    (found,) = json.loads(jobrun("status", "--json", now="2026-09-04T12:51Z").stdout)["jobs"]
    held.release()
    assert "s  FAILING: exit 1 x2 since 09-04 12:05\n" in said
    assert (found["alike"], found["last_run"]["exit_code"]) == (2, 1)


TRIPPING = (
    *HOURLY, "--first", "2026-09-04T06:00Z", "--pause-after", "2", "--resume-after", "1h",
    "--on-failure", "continue", "--max-windows", "4",
)  # fmt: skip
PROBE = "; the next call probes with one window"


def test_a_probe_that_is_due_is_shown_as_one(jobrun: Jobrun) -> None:
    """Not as a job that runs as ever, or fails: the pause goes on until one window has tried."""
    jobrun("run", "sales", *TRIPPING, "--", "false", now="2026-09-04T12:05Z")
    before, due = "2026-09-04T13:04Z", "2026-09-04T13:06Z"
    for now, end in ((before, ""), (due, PROBE)):
        text = f"since 09-04 12:05, until 09-04 13:05, by jobrun: 2 windows failed{end}"
        resume = "  jobrun resume sales    jobrun plan sales"
        assert checked(jobrun, now) == (1, [f"sales  paused: {text}", resume])
        assert jobrun("status", now=now).stdout.splitlines()[2].split()[1] == "paused"
        assert f"paused         {text}\n" in jobrun("show", "sales", now=now).stdout
        assert (
            f"paused {text}\n  jobrun resume sales\n" in jobrun("windows", "sales", now=now).stdout
        )
        explained = jobrun("explain", "sales", now=now).stdout
        assert f"next           the job is paused {text}\n" in explained
        assert "jobrun resume sales\n" in explained
        failures = jobrun("failures", "sales", now=now).stdout
        assert ("the probe, or a call after it" if end else "a call after the pause") in failures
        assert "  jobrun resume sales\n" in failures
    listed = json.loads(jobrun("failures", "--json", now=due).stdout)["failures"]
    assert [failure["paused"] for failure in listed] == [True, True]


@posix
def test_while_a_probe_runs_no_other_is_promised(jobrun: Jobrun) -> None:
    """And once it is done nothing is paused."""
    jobrun("run", "sales", *TRIPPING, "--", "false", now="2026-09-04T12:05Z")
    held = Held(jobrun, "sales", *TRIPPING, now="2026-09-04T13:06Z")
    said = jobrun("status", now="2026-09-04T13:07Z").stdout
    held.release()
    assert said.splitlines()[2].split()[1] == "running"
    assert "by jobrun: 2 windows failed; one window tries\n" in said
    assert "paused" not in jobrun("status", now="2026-09-04T13:08Z").stdout


def test_a_pause_of_a_person_is_none_once_its_time_is_over(jobrun: Jobrun) -> None:
    """The next call does all there is."""
    jobrun("run", "s", *HOURLY, "--", "true", now="2026-09-04T12:05Z")
    jobrun("pause", "s", "--for", "1h", now="2026-09-04T12:06Z")
    assert "paused" in jobrun("status", now="2026-09-04T12:30Z").stdout
    assert "paused" not in jobrun("status", now="2026-09-04T13:06Z").stdout
