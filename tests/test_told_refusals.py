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


def events(jobrun: Jobrun) -> list[tuple[object, ...]]:
    found = "SELECT substr(at, 12, 5), detail FROM jobrun_event WHERE kind = 'refused' ORDER BY id"
    return jobrun.query(found)


OFTEN = ("--every", "5m")
CHANGE = "every 1h -> every 5m"


@pytest.mark.parametrize("overlap", [(), ("--overlap", "allow")])
def test_a_schedule_that_wants_consent_is_told_by_status_and_by_one_event(
    jobrun: Jobrun, overlap: tuple[str, ...]
) -> None:
    """Not that nobody calls the job: somebody does, and is refused."""
    first = ("--first", "2026-09-04T09:00Z")
    assert called(jobrun, *HOURLY, *first, now="2026-09-04T12:05Z") == 0
    clocks = ("14:10", "14:15", "20:00")
    codes = [called(jobrun, *OFTEN, *overlap, now=f"2026-09-04T{clock}Z") for clock in clocks]
    assert codes == [78, 78, 78]
    assert events(jobrun) == [("14:10", CHANGE)]
    assert checked(jobrun, "2026-09-04T20:01Z") == (
        1,
        [
            f"s  REFUSED: calls since 09-04 14:10, the last at 09-04 20:00: {CHANGE}",
            "  if the change is meant: --accept-schedule once; if not: --every 1h",
        ],
    )
    assert called(jobrun, *OFTEN, *overlap, "--accept-schedule", now="2026-09-04T20:05Z") == 0
    assert checked(jobrun, "2026-09-04T20:06Z") == (0, [])


def test_a_refusal_ends_with_the_first_call_that_is_none(jobrun: Jobrun) -> None:
    """Also where that has nothing to do; the next one is told anew."""
    assert called(jobrun, *HOURLY, now="2026-09-04T12:05Z") == 0
    for minute in (10, 15):
        assert called(jobrun, *OFTEN, now=f"2026-09-04T14:{minute}Z") == 78
    assert called(jobrun, *HOURLY, now="2026-09-04T14:20Z") == 0
    assert called(jobrun, *OFTEN, now="2026-09-04T14:30Z") == 78
    assert checked(jobrun, "2026-09-04T14:31Z")[0] == 1
    assert called(jobrun, *HOURLY, now="2026-09-04T14:35Z") == 0
    assert checked(jobrun, "2026-09-04T14:36Z") == (0, [])
    assert called(jobrun, *OFTEN, now="2026-09-04T14:40Z") == 78
    assert [at for at, _ in events(jobrun)] == ["14:10", "14:30", "14:40"]


def test_a_circle_of_jobs_is_told_as_a_refusal(jobrun: Jobrun) -> None:
    """Whatever it is that wants a person."""
    assert called(jobrun, *HOURLY, now="2026-09-04T12:05Z") == 0
    for minute in (10, 15):
        assert called(jobrun, *HOURLY, "--after", "s", now=f"2026-09-04T12:{minute}Z") == 78
    status, (first, hint) = checked(jobrun, "2026-09-04T12:16Z")
    assert status == 1
    assert first.startswith("s  REFUSED: calls since 09-04 12:10, the last at 09-04 12:15: ")
    assert first.endswith("s --after s")
    assert hint == "  jobrun events s"


def test_a_refused_call_is_a_call(jobrun: Jobrun) -> None:
    """Whatever refuses it: a job that cron calls is not LATE. By hand it is the person's matter."""
    assert called(jobrun, *HOURLY, now="2026-09-04T12:05Z") == 0
    for clock in ("09:00", "09:30", "10:00"):
        assert called(jobrun, *HOURLY, now=f"2026-09-04T{clock}Z") == 75
    last_seen = "SELECT substr(last_seen, 12, 5) FROM jobrun_job"
    assert jobrun.query(last_seen) == [("10:00",)]
    assert called(jobrun, *HOURLY, now="2026-09-04T14:05Z") == 0
    assert called(jobrun, *OFTEN, now="2026-09-04T16:30Z") == 78
    assert jobrun.query(last_seen) == [("16:30",)]
