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
