"""Jobs whose every call is refused: `status` tells it, nobody has to read cron's mail."""

from __future__ import annotations

import pytest

from tests.conftest import Jobrun
from tests.scenes import HOURLY, hint_of

HINT = 'set the clock, or: jobrun watermark s --set 2026-09-04T12:00:00Z --reason "..."'


def called(jobrun: Jobrun, *options: str, now: str) -> int:
    return jobrun("run", "s", *options, "--", "true", now=now).status


def checked(jobrun: Jobrun, now: str) -> tuple[int, list[str]]:
    found = jobrun("status", "--check", now=now)
    return found.status, found.stdout.splitlines()


@pytest.mark.parametrize("now", ["2026-09-04T13:01Z", "2026-09-04T12:06Z"])
def test_a_watermark_ahead_of_the_clock_is_a_trouble_with_its_way_back(
    jobrun: Jobrun, now: str
) -> None:
    """A clock that was a year ahead, once: since it is right, each call is refused with 75."""
    assert called(jobrun, *HOURLY, now="2027-09-04T12:05Z") == 0
    clocks = ("2026-09-04T12:05Z", "2026-09-04T12:10Z", "2026-09-04T13:00Z")
    refused = [jobrun("run", "s", *HOURLY, "--", "true", now=clock) for clock in clocks]
    assert [found.status for found in refused] == [75, 75, 75]
    assert hint_of(refused[0]) == HINT
    status, (first, hint, *_) = checked(jobrun, now)
    assert status == 1
    assert first.startswith("s  AHEAD: done to 2027-09-04T12:00:00+00:00, 364d2")
    assert first.endswith(" ahead of the clock: every call is refused")
    assert hint == f"  {HINT.replace('12:00:', '13:00:' if '13:' in now else '12:00:')}"
    assert jobrun("status", now=now).stdout.splitlines()[2].split()[1] == "AHEAD"


def test_what_is_done_to_an_instant_ahead_of_the_clock_is_no_trouble_where_calls_are_not_refused(
    jobrun: Jobrun,
) -> None:
    """Up to five minutes, and where --first lies in the future."""
    assert called(jobrun, *HOURLY, now="2026-09-04T12:05Z") == 0
    assert checked(jobrun, "2026-09-04T11:55Z") == (0, [])
    assert checked(jobrun, "2026-09-04T11:54Z")[0] == 1
    first = ("--first", "2026-09-07T00:00Z")
    found = jobrun("run", "later", *HOURLY, *first, "--", "true", now="2026-09-04T11:55Z")
    assert found.status == 0
    assert checked(jobrun, "2026-09-04T11:55Z") == (0, [])
