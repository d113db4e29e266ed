"""Clocks and calendars: what people reported of other tools, each as a test (family C)."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from tests.conftest import Jobrun
from tests.scenes import (
    HOURLY,
    SHOW,
    at,
    begin,
    error_of,
    field,
    hint_of,
    planned,
    posix,
    skips,
    watermark,
)

pytestmark = posix

BOUNDS = ("sh", "-c", "echo $JOBRUN_WINDOW_START $JOBRUN_WINDOW_END")
NEW_YORK, LONDON = {"TZ": "America/New_York"}, {"TZ": "Europe/London"}


def keys(*starts: str) -> list[str]:
    return [f"a:{at(start)}" for start in starts]


@pytest.mark.parametrize("host", ["America/New_York", "UTC"])
@pytest.mark.parametrize(
    "grid", [HOURLY, ("--cron", "0 * * * *"), ("--cron", "0 * * * *", "--tz", "America/New_York")]
)
def test_C01_the_night_that_loses_an_hour_loses_no_window(
    jobrun: Jobrun, grid: tuple[str, ...], host: str
) -> None:
    """robfig/cron#541, rundeck/rundeck#6879: a job between 2 and 3 was skipped on the night when
    the clocks go forward."""
    begin(jobrun, "a", "2026-03-08T05Z", *grid)
    found = jobrun("run", "a", *grid, "--", *BOUNDS, now="2026-03-08T09:05:00Z", env={"TZ": host})
    assert found.status == 0
    hours = [at(f"2026-03-08T{hour:02d}Z") for hour in range(5, 10)]
    assert [tuple(line.split()) for line in found.stdout.splitlines()] == list(pairwise(hours))


@pytest.mark.parametrize("minute", [0, 1, 29, 30, 31, 59])
def test_C01_a_daily_job_in_the_hour_that_is_missing_runs_once_that_day(
    jobrun: Jobrun, minute: int
) -> None:
    """rundeck/rundeck#6879: the critical job at 02:xx did not run on that day; the first instant
    after the missing hour stands for all of it."""
    grid = ("--cron", f"{minute} 2 * * *", "--tz", "America/New_York")
    before, after = f"2026-03-07T07:{minute:02d}Z", f"2026-03-09T06:{minute:02d}Z"
    begin(jobrun, "a", before, *grid)
    found = jobrun("run", "a", *grid, "--", *SHOW, now="2026-03-09T12:00:00Z")
    assert found.stdout.split() == keys(before, "2026-03-08T07:00Z")
    assert watermark(jobrun) == at(after)


def test_C02_a_repeated_hour_is_two_windows_each_once(jobrun: Jobrun) -> None:
    """kelektiv/node-cron#563: on the night when the clocks go back, 01:30 came twice and so did
    the job."""
    begin(jobrun, "a", "2026-11-01T04Z", *HOURLY)
    ran = []
    for now in ("05:30", "05:30", "06:30", "06:30"):
        found = jobrun("run", "a", *HOURLY, "--", *SHOW, now=f"2026-11-01T{now}:00Z", env=NEW_YORK)
        assert found.status == 0
        ran += found.stdout.split()
    assert ran == keys("2026-11-01T04Z", "2026-11-01T05Z")


def test_C02_an_hour_without_a_tick_is_made_up(jobrun: Jobrun) -> None:
    """cronie-crond/cronie#124: a UTC crontab on a host with local time fired in none of the whole
    repeated hour."""
    begin(jobrun, "a", "2026-10-25T00Z", *HOURLY)
    found = jobrun("run", "a", *HOURLY, "--", *SHOW, now="2026-10-25T02:00:05Z", env=LONDON)
    assert (found.status, found.stdout.split()) == (0, keys("2026-10-25T00Z", "2026-10-25T01Z"))


@pytest.mark.parametrize("minute", [0, 30, 59])
def test_C02_a_daily_job_in_the_hour_that_comes_twice_runs_once(
    jobrun: Jobrun, minute: int
) -> None:
    """kelektiv/node-cron#563: the daily job at 01:30 fired at both of them."""
    grid = ("--cron", f"{minute} 1 * * *", "--tz", "America/New_York")
    times = [f"2026-10-31T05:{minute:02d}Z", f"2026-11-01T05:{minute:02d}Z"]
    begin(jobrun, "a", times[0], *grid)
    ran = []
    for now in ("2026-11-01T05:59:30Z", "2026-11-01T06:59:30Z", "2026-11-02T06:59:30Z"):
        ran += jobrun("run", "a", *grid, "--", *SHOW, now=now).stdout.split()
    assert ran == keys(*times)
    assert watermark(jobrun) == at(f"2026-11-02T06:{minute:02d}Z")


@pytest.mark.parametrize(
    ("now", "ahead"),
    [
        ("2026-05-01T04:10:00Z", "7h50m"),
        ("2026-05-01T11:54:59Z", "5m1s"),
        ("2026-04-30T12:00:00Z", "1d0h"),
        ("2025-05-01T12:00:00Z", "365d0h"),
    ],
)
def test_C04_a_clock_that_was_set_back_is_said_and_changes_nothing(
    jobrun: Jobrun, now: str, ahead: str
) -> None:
    """dbader/schedule#323, citusdata/pg_cron#105: after a step back nothing ran until time had
    caught up, and nothing said so."""
    begin(jobrun, "a", "2026-05-01T11Z", *HOURLY)
    jobrun("run", "a", *HOURLY, "--", "true", now="2026-05-01T12:00:00Z")
    before = skips(jobrun)
    for _ in range(2):
        found = jobrun("run", "a", *HOURLY, "-q", "--", "echo", "ran", now=now)
        assert (found.status, found.stdout) == (75, "")
        said = f"a: the watermark 2026-05-01T12:00:00Z is {ahead} ahead of the clock, {now}"
        assert error_of(found) == said
        assert "jobrun watermark a --set " in hint_of(found)
    assert watermark(jobrun) == at("2026-05-01T12Z")
    assert skips(jobrun) == before
    right = jobrun("run", "a", *HOURLY, "--", *SHOW, now="2026-05-01T13:00:00Z")
    assert (right.status, right.stdout.split()) == (0, keys("2026-05-01T12Z"))


@pytest.mark.parametrize("now", ["11:59:59", "11:59:58", "11:58:00", "11:55:00"])
def test_C04_a_small_step_back_is_a_skip(jobrun: Jobrun, now: str) -> None:
    """citusdata/pg_cron#105: time servers step by seconds every day; that is no alarm."""
    begin(jobrun, "a", "2026-05-01T11Z", *HOURLY)
    jobrun("run", "a", *HOURLY, "--", "true", now="2026-05-01T12:00:00Z")
    call = ("run", "a", *HOURLY, "--", "echo", "ran")
    found = jobrun(*call, now=f"2026-05-01T{now}Z")
    assert (found.status, found.stdout) == (0, "")
    assert " SKIPPED job=a reason=clock-behind-watermark " in found.stderr
    assert skips(jobrun)[-1] == ("clock-behind-watermark", 1)
    assert watermark(jobrun) == at("2026-05-01T12Z")


def test_C06_a_board_that_boots_in_1970_loses_and_invents_nothing(jobrun: Jobrun) -> None:
    """node-schedule/node-schedule#431: without a battery the clock began in 1970 and then jumped
    to today, and half a century of runs was due."""
    begin(jobrun, "a", "2026-05-01T00Z", *HOURLY)
    for now in ("1970-01-01T00:00:00Z", "1970-01-01T00:03:00Z", "1999-12-31T23:59:59Z"):
        found = jobrun("run", "a", *HOURLY, "--", "echo", "ran", now=now)
        assert (found.status, found.stdout) == (75, "")
        assert error_of(found) == f"clock not set: it says {now}"
    found = jobrun("run", "a", *HOURLY, "--", *SHOW, now="2026-05-01T02:05:00Z")
    assert found.stdout.split() == keys("2026-05-01T00Z", "2026-05-01T01Z")


@pytest.mark.parametrize(
    "options", [HOURLY, ("--every", "1d"), ("--cron", "0 2 * * *"), (*HOURLY, "--first", "none")]
)
def test_C06_a_first_call_in_1970_makes_no_state(jobrun: Jobrun, options: tuple[str, ...]) -> None:
    """node-schedule/node-schedule#431: a first call at a wrong clock must not decide where the job
    begins."""
    found = jobrun("run", "a", *options, "--", "echo", "ran", now="1970-01-01T00:03:00Z")
    assert (found.status, found.stdout) == (75, "")
    assert error_of(found) == "clock not set: it says 1970-01-01T00:03:00Z"
    assert list(jobrun.folder.iterdir()) == []


@pytest.mark.parametrize(
    "zone",
    [
        "Asia/Tokyo",
        "America/Los_Angeles",
        "UTC",
        None,
        "Not/AZone",
        ":/etc/localtime",
        "",
        "XYZ-14",
    ],
)
def test_C08_the_hosts_zone_changes_neither_keys_nor_times(
    jobrun: Jobrun, zone: str | None
) -> None:
    """databacker/mysql-backup#374, semaphoreui/semaphore#1042, aptible/supercronic#77: TZ in the
    environment, or its absence in a container, moved the job by hours."""
    jobrun.environment.pop("TZ", None)
    if zone is not None:
        jobrun.environment["TZ"] = zone
    begin(jobrun, "a", "2026-05-01T00Z", "--every", "1d")
    now = "2026-05-03T03:05:00Z"
    found = jobrun("run", "a", "--every", "1d", "--", *SHOW, now=now)
    assert found.status == 0
    ran = keys("2026-05-01T00Z", "2026-05-02T00Z")
    assert found.stdout.split() == ran
    assert {field(line, "at") for line in found.lines} == {now}
    assert jobrun.query("select key, started, ended from jobrun_run") == [
        (key, at(now), at(now)) for key in ran
    ]
    history = json.loads(jobrun("history", "a", "--json", now=now).stdout)
    assert {run["started"] for run in history["runs"]} == {at(now)}


@pytest.mark.parametrize("zone", ["Not/AZone", "Europe/Berln", "EST5EDT4", "../etc/passwd", ""])
@pytest.mark.parametrize("grid", [("--every", "1d"), ("--cron", "0 2 * * *")])
def test_C08_an_unknown_zone_that_was_asked_for_is_refused(
    jobrun: Jobrun, grid: tuple[str, ...], zone: str
) -> None:
    """semaphoreui/semaphore#1042: a misspelt zone silently became UTC."""
    found = jobrun("run", "a", *grid, "--tz", zone, "--", "echo", "ran")
    assert (found.status, found.stdout) == (2, "")
    assert f'--tz "{zone}"' in error_of(found)
    assert not jobrun.ledger.exists()


def test_C09_months_are_months_on_whatever_day_one_calls(jobrun: Jobrun) -> None:
    """n8n-io/n8n#29614, actualbudget/actual#6814, odysseus-dev/odysseus#1668: a monthly schedule on
    day 29 to 31 left out the short months."""
    grid = ("--every", "1mo")
    begin(jobrun, "a", "2026-01-01T00Z", *grid)
    call = ("run", "a", *grid, "--", *BOUNDS)
    # No call since New Year: so long a step of the clock wants a word.
    first = jobrun(*call[:-4], "--accept-clock", *call[-4:], now="2026-03-31T00:10:00Z")
    firsts = [at(f"2026-0{month}-01T00Z") for month in (1, 2, 3, 4)]
    assert [tuple(line.split()) for line in first.stdout.splitlines()] == list(pairwise(firsts[:3]))
    last = jobrun(*call, now="2026-04-01T00:00:00Z")
    assert last.stdout.split() == firsts[2:]


@pytest.mark.parametrize(
    ("expression", "boundaries"),
    [
        ("0 0 31 * *", ["01-31", "03-31", "05-31", "07-31", "08-31", "10-31", "12-31"]),
        ("0 0 30 * *", [f"{m:02d}-30" for m in (1, *range(3, 13))]),
        ("0 0 29 * *", [f"{m:02d}-29" for m in range(1, 13)]),
        ("0 0 L * *", [f"{m:02d}-{d}" for m, d in enumerate(
            (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), 1)]),
    ],
)  # fmt: skip
def test_C09_a_window_reaches_over_the_month_that_lacks_the_day(
    jobrun: Jobrun, expression: str, boundaries: list[str]
) -> None:
    """actualbudget/actual#6814: what fell into February was in no run; windows between the days
    that exist leave nothing out (2028 is a leap year)."""
    instants = [at(f"2028-{day}T00Z") for day in boundaries]
    found = planned(
        jobrun, "--cron", expression, "--first", instants[0], now="2028-12-31T00:00:00Z"
    )
    assert found == [pair for pair in pairwise(instants) if pair[1] <= at("2028-12-31T00Z")]


@pytest.mark.parametrize(
    ("first", "now", "starts"),
    [
        ("2026-12-21", "2027-01-04T00:05:00Z", ["2026-12-21", "2026-12-28"]),
        ("2020-12-21", "2021-01-11T00:00:00Z", ["2020-12-21", "2020-12-28", "2021-01-04"]),
        ("2024-12-23", "2025-01-06T00:00:00Z", ["2024-12-23", "2024-12-30"]),
        ("2023-12-25", "2024-01-07T23:59:59Z", ["2023-12-25"]),
    ],
)
def test_C11_weeks_around_new_year_are_each_there_once(
    jobrun: Jobrun, first: str, now: str, starts: list[str]
) -> None:
    """ProgressPlanner/progress-planner#738, duckdb/duckdb#2932: the calendar's year beside the ISO
    week gave a week that does not exist, or one twice; a key here is the Monday itself."""
    grid = ("--every", "1w")
    begin(jobrun, "a", f"{first}T00Z", *grid)
    found = jobrun("run", "a", *grid, "--", *SHOW, now=now)
    assert found.stdout.split() == keys(*(f"{day}T00Z" for day in starts))
    assert jobrun("run", "a", *grid, "--", *SHOW, now=now).stdout == ""


EPOCHS = ("sh", "-c", "echo {start_unix} {end_unix}")


@pytest.mark.parametrize("grid", [HOURLY, ("--cron", "0 * * * *")])
@pytest.mark.parametrize(
    ("day", "hour", "seconds"),
    [("2038-01-19", 2, 2147479200), ("2106-02-07", 6, 4294965600)],
    ids=["2^31", "2^32"],
)
def test_C13_seconds_beyond_32_bits(
    jobrun: Jobrun, grid: tuple[str, ...], day: str, hour: int, seconds: int
) -> None:
    """pallets-eco/croniter#87, cronie-crond/cronie#162: times after 2038-01-19 overflowed."""
    begin(jobrun, "a", f"{day}T{hour:02d}Z", *grid)
    found = jobrun("run", "a", *grid, "--", *EPOCHS, now=f"{day}T{hour + 2:02d}:05:00Z")
    assert found.status == 0
    bounds = [f"{seconds + 3600 * n} {seconds + 3600 * (n + 1)}" for n in (0, 1)]
    assert found.stdout.splitlines() == bounds
    assert watermark(jobrun) == at(f"{day}T{hour + 2:02d}Z")
    assert f"{day}T{hour + 2:02d}:05:00" in jobrun("history", "a").stdout
