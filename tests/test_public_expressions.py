"""Cron expressions: what people reported of other tools, each as a test (family X)."""

from __future__ import annotations

import resource
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from jobrun import schedule
from tests.conftest import Jobrun
from tests.scenes import SHOW, at, begin, error_of, hint_of, planned, posix

pytestmark = posix

YEAR = [date(2026, 1, 1) + timedelta(days) for days in range(365)]
SUNDAY, MONDAY, FRIDAY, SATURDAY = 6, 0, 4, 5


def days_of_2026(jobrun: Jobrun, expression: str) -> list[date]:
    """The days on which a nightly expression has an instant, as a call would take its windows.

    Each window begins at one; it is counted from the last instant before the year.
    """
    grid = schedule.parse(schedule.canonical(None, expression, None, None))
    start = grid.floor(int(datetime(2025, 12, 31, tzinfo=UTC).timestamp()))
    first = datetime.fromtimestamp(start, UTC).isoformat()
    found = planned(jobrun, "--cron", expression, "--first", first, now="2027-02-01T00:00:00Z")
    days = [date.fromisoformat(start[:10]) for start, _ in found]
    return [day for day in days if day.year == 2026]


def test_X01_both_day_fields_mean_either(jobrun: Jobrun) -> None:
    """josiahcarlson/parse-crontab#49, inngest/inngest#2631: the library took "the 13th and a
    Friday" where cron takes either, so three days were left of 61."""
    days = [day for day in YEAR if day.weekday() == FRIDAY or day.day == 13]
    assert len(days) == 61
    assert days_of_2026(jobrun, "0 0 13 * 5") == days
    shown = jobrun("run", "a", "--cron", "0 0 13 * 5", "--dry-run", "--", "true")
    assert "either" in shown.stdout


@pytest.mark.parametrize(
    ("expression", "month_days", "weekdays"),
    [
        ("0 0 1,15 * 1", {1, 15}, {MONDAY}),
        ("0 0 1-7 * 5", set(range(1, 8)), {FRIDAY}),
        ("0 0 13 * *", {13}, set()),
        ("0 0 * * 5", set(), {FRIDAY}),
        ("0 0 31 * 0", {31}, {SUNDAY}),
    ],
)
def test_X01_a_list_or_a_range_is_no_other_rule(
    jobrun: Jobrun, expression: str, month_days: set[int], weekdays: set[int]
) -> None:
    """inngest/inngest#2631: `1-7 * 5`, written for "the first Friday", is every Friday and the
    first seven days of the month."""
    days = [day for day in YEAR if day.day in month_days or day.weekday() in weekdays]
    assert days_of_2026(jobrun, expression) == days


@pytest.mark.parametrize(
    ("expression", "minutes"),
    [
        ("*/7 * * * *", [0, 7, 14, 21, 28, 35, 42, 49, 56]),
        ("*/59 * * * *", [0, 59]),
        ("*/31 * * * *", [0, 31]),
        ("*/40 * * * *", [0, 40]),
        ("3-59/7 * * * *", [3, 10, 17, 24, 31, 38, 45, 52, 59]),
        ("1-59 * * * *", list(range(1, 60))),
    ],
)
def test_X03_steps_that_do_not_divide_the_hour_leave_no_hole(
    jobrun: Jobrun, expression: str, minutes: list[int]
) -> None:
    """cronie-crond/cronie#142, HangfireIO/Cronos#39: `*/59` fires at :00 and :59; the short rest of
    the hour is a window like the others."""
    times = [f"2026-05-01T{hour:02d}:{minute:02d}Z" for hour in range(3) for minute in minutes]
    last = next(index for index, time in enumerate(times) if time.startswith("2026-05-01T02"))
    found = planned(
        jobrun, "--cron", expression, "--first", times[0], now=times[last].replace("Z", ":30Z")
    )
    assert found == list(pairwise(at(time) for time in times[: last + 1]))


@pytest.mark.parametrize("step", range(1, 60))
def test_X03_every_step_tiles_its_hours(step: int) -> None:
    """cronie-crond/cronie#142: all steps of minutes, over a day: no hole, no overlap, each hour
    begun anew."""
    grid = schedule.parse(schedule.canonical(None, f"*/{step} * * * *", None, None))
    begun = int(datetime(2026, 5, 1, tzinfo=UTC).timestamp())
    expected = [begun + 3600 * hour + 60 * m for hour in range(24) for m in range(0, 60, step)]
    found = [begun]
    while found[-1] < begun + 86_400:
        found.append(grid.next(found[-1]))
    assert found == [*expected, begun + 86_400]


ALL_WEEK = set(range(7))


@pytest.mark.parametrize(
    ("expressions", "weekdays"),
    [
        (["sat-sun", "SAT-SUN", "Sat-Sun", "6-7", "6,0", "6,7", "sun,sat"], {SATURDAY, SUNDAY}),
        (["MON-SUN", "mon-sun", "1-7", "0-6", "*"], ALL_WEEK),
        (["5-7", "fri-sun", "FRI-Sun", "5,6,0"], {FRIDAY, SATURDAY, SUNDAY}),
        (["7", "0", "sun", "SUN"], {SUNDAY}),
        (["sun-mon", "0-1", "0,1"], {SUNDAY, MONDAY}),
    ],
)
def test_X04_ranges_that_end_in_sunday(
    jobrun: Jobrun, expressions: list[str], weekdays: set[int]
) -> None:
    """taichino/croniter#119, cronie-crond/cronie#200: `sat-sun` was refused, or became an empty
    range that never fires."""
    days = [day for day in YEAR if day.weekday() in weekdays]
    assert days_of_2026(jobrun, f"0 0 * * {expressions[0]}") == days
    instants = []
    for expression in expressions:
        grid = schedule.parse(schedule.canonical(None, f"0 0 * * {expression}", None, None))
        found, t = [], int(datetime(2025, 12, 31, 12, tzinfo=UTC).timestamp())
        while (t := grid.next(t)) < datetime(2027, 1, 1, tzinfo=UTC).timestamp():
            found.append(datetime.fromtimestamp(t, UTC).date())
        instants.append(found)
    assert instants == [days] * len(expressions)


@pytest.mark.parametrize("letter", ["L", "l"])
def test_X06_l_is_the_last_day_of_the_month(jobrun: Jobrun, letter: str) -> None:
    """jmrozanec/cron-utils#204, aptible/supercronic#170: `L` was refused, or taken for something
    else; 2028 is a leap year."""
    found = planned(
        jobrun, "--cron", f"0 0 {letter} * *", "--first", "2027-12-31T00Z",
        now="2028-05-01T00:00:00Z",
    )  # fmt: skip
    ends = [end for _, end in found]
    assert ends == [at(f"2028-{day}T00Z") for day in ("01-31", "02-29", "03-31", "04-30")]


def test_X06_l_in_a_list_is_one_day_more(jobrun: Jobrun) -> None:
    """jmrozanec/cron-utils#204: the 15th and the last day, a payroll's two days a month."""
    found = planned(
        jobrun, "--cron", "0 0 15,L * *", "--first", "2028-01-31T00Z", now="2028-04-01T00:00:00Z"
    )
    ends = [end for _, end in found]
    assert ends == [at(f"2028-{day}T00Z") for day in ("02-15", "02-29", "03-15", "03-31")]


@pytest.mark.parametrize(
    "expression",
    ["0 0 * * 5L", "0 0 * * FRI#L", "0 0 * * L", "0 0 L-3 * *", "0 0 LW * *", "0 0 * L *",
     "L 0 * * *", "0 L * * *", "0 0 L * 5", "0 0 * * 5#6", "0 0 * * 5#0",
     "0 0 ? * 5", "0 0 15W * 5", "H 2 * * *"],
)  # fmt: skip
def test_X06_other_dialects_letters_are_never_ignored(jobrun: Jobrun, expression: str) -> None:
    """jmrozanec/cron-utils#204: a letter of Quartz or Jenkins was dropped, and the job ran on other
    days; each is refused, with the expression in the line."""
    found = jobrun("run", "a", "--cron", expression, "--", "echo", "ran")
    assert (found.status, found.stdout) == (2, "")
    assert f'--cron "{expression}": ' in error_of(found)
    assert not jobrun.ledger.exists()


@pytest.mark.parametrize(
    ("nickname", "start", "end"),
    [
        ("@hourly", "2026-05-06T09Z", "2026-05-06T10Z"),
        ("@daily", "2026-05-05T00Z", "2026-05-06T00Z"),
        ("@midnight", "2026-05-05T00Z", "2026-05-06T00Z"),
        ("@Daily", "2026-05-05T00Z", "2026-05-06T00Z"),
        ("@weekly", "2026-04-26T00Z", "2026-05-03T00Z"),
        ("@monthly", "2026-04-01T00Z", "2026-05-01T00Z"),
        ("@yearly", "2025-01-01T00Z", "2026-01-01T00Z"),
        ("@annually", "2025-01-01T00Z", "2026-01-01T00Z"),
    ],
)
def test_X08_nicknames(jobrun: Jobrun, nickname: str, start: str, end: str) -> None:
    """gjcarneiro/yacron#22: a nickname was not known; @weekly is Sunday 00:00, as in crontab(5)."""
    assert planned(jobrun, "--cron", nickname, now="2026-05-06T10:05:00Z") == [(at(start), at(end))]


@pytest.mark.parametrize(
    ("nickname", "says", "hint"),
    [
        ("@reboot", "@reboot has no window", "@reboot jobrun run JOB -- COMMAND"),
        ("@montly", "no such nickname: @montly", "--cron @monthly"),
        ("@dayly", "no such nickname: @dayly", "--cron @daily"),
        ("@weekley", "no such nickname: @weekley", "--cron @weekly"),
        ("@every 1h", "@every is not a cron expression", "--every 1h"),
        ("@", "no such nickname: @", "--cron @hourly, @daily"),
    ],
)
def test_X08_a_nickname_without_a_window_or_a_meaning(
    jobrun: Jobrun, nickname: str, says: str, hint: str
) -> None:
    """aptible/supercronic#30: an @reboot job ran once, then the scheduler crashed when it looked
    for the next time."""
    found = jobrun("run", "a", "--cron", nickname, "--", "echo", "ran")
    assert (found.status, found.stdout) == (2, "")
    assert error_of(found).startswith(f'--cron "{nickname}": {says}')
    assert hint in hint_of(found)
    assert not jobrun.ledger.exists()


@pytest.mark.parametrize(
    "expression",
    ["*/30 * * * * *", "* * * * * *", "0 0 2 * * *", "0 2 * * * 30", "0 0 2 * * * *",
     "0 2 * * * 2026", "0 2 * *", "* * * *", "2", " "],
)  # fmt: skip
def test_X09_X10_any_other_number_of_fields_is_refused(jobrun: Jobrun, expression: str) -> None:
    """taichino/croniter#122, lincolnloop/django-absurd#40, robfig/cron#542, dkron-io/dkron#890:
    seconds were taken first by one parser and last by another, and a job ran every second."""
    found = jobrun("run", "a", "--cron", expression, "--", "echo", "ran")
    assert (found.status, found.stdout) == (2, "")
    count = len(expression.split())
    assert error_of(found).startswith(f'--cron "{expression}": expected 5 fields, got {count}: ')
    assert not jobrun.ledger.exists()


SPACINGS = ("0 */2 * * *", "0\t*/2\t*\t*\t*", "0  */2  *   * *", "  0 */2 * * * ", "00 */2 * * *",
            "0 */02 * * *", "0 0-23/2 * * *", "0 */2 * * 0-6", "0 */2 1-31 * *")  # fmt: skip


@pytest.mark.parametrize("spacing", SPACINGS)
def test_X10_two_hours_in_every_spelling(jobrun: Jobrun, spacing: str) -> None:
    """robfig/cron#542, dkron-io/dkron#890: a five-field line went through a six-field parser; tabs,
    doubled blanks and leading zeros change nothing."""
    begin(jobrun, "a", "2026-05-01T00Z", "--cron", SPACINGS[0])
    call = ("run", "a", "--cron", spacing, "--accept-schedule", "--", *SHOW)
    found = jobrun(*call, now="2026-05-01T06:05:00Z")
    assert found.stdout.split() == [f"a:{at(f'2026-05-01T0{hour}Z')}" for hour in (0, 2, 4)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("00 02 * * *", "0 2 * * *"),
        ("30 01 * * *", "30 1 * * *"),
        ("0\t2 *  * *", "0 2 * * *"),
        ("*/1 * * * *", "* * * * *"),
        ("0 2 * JAN mon", "0 2 * 1 1"),
        ("0 2 * * 7", "0 2 * * 0"),
    ],
)
def test_X10_one_meaning_is_one_schedule(jobrun: Jobrun, one: str, other: str) -> None:
    """robfig/cron#542: a line that somebody tidied up is still the same schedule, and needs no
    consent to a change."""
    begin(jobrun, "a", "2026-01-05T00Z" if "*/1" in one else NEXT[one], "--cron", one)
    found = jobrun("run", "a", "--cron", other, "-v", "--", "true", now="2026-01-05T00:00:30Z")
    assert (found.status, "reason=no-closed-window" in found.stderr) == (0, True)
    assert len(jobrun.query("select distinct schedule from jobrun_job")) == 1


NEXT = {
    "00 02 * * *": "2026-01-04T02Z",
    "30 01 * * *": "2026-01-04T01:30Z",
    "0\t2 *  * *": "2026-01-04T02Z",
    "0 2 * JAN mon": "2025-01-27T02Z",
    "0 2 * * 7": "2026-01-04T02Z",
}


@pytest.mark.parametrize(
    "expression",
    ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30,31 2 *", "59 23 31 2-2 *",
     "0 0 1 * 5#3"],
)  # fmt: skip
@pytest.mark.parametrize("zone", [(), ("--tz", "Europe/Berlin")], ids=["utc", "berlin"])
def test_X11_a_date_that_never_comes_is_refused_at_once(
    jobrun: Jobrun, expression: str, zone: tuple[str, ...]
) -> None:
    """jmrozanec/cron-utils#310, jaclarke/cronosjs#37: the search for the next 31 February never
    ended, at 100 % CPU."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    found = jobrun("run", "a", "--cron", expression, *zone, "--", "echo", "ran")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 1.0
    assert (found.status, found.stdout) == (2, "")
    assert f'--cron "{expression}": ' in error_of(found)
    assert not jobrun.ledger.exists()


@pytest.mark.parametrize("expression", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_X11_it_is_told_that_it_never_comes(jobrun: Jobrun, expression: str) -> None:
    """jaclarke/cronosjs#37: the reason is said, not only that something is wrong."""
    found = jobrun("run", "a", "--cron", expression, "--", "true")
    assert "never" in error_of(found)


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n", " \r", "\t"])
def test_X13_line_ends_of_windows_are_no_part_of_the_schedule(jobrun: Jobrun, end: str) -> None:
    """laradock/laradock#1432, dokku/dokku-letsencrypt#300: a crontab with Windows line ends was
    ignored, or failed in odd ways."""
    begin(jobrun, "a", "2026-05-01T02Z", "--cron", "0 2 * * *")
    call = ("run", "a", "--cron", f"0 2 * * *{end}", "--", *SHOW)
    found = jobrun(*call, now="2026-05-02T02:00:00Z")
    assert (found.status, found.stdout) == (0, f"a:{at('2026-05-01T02Z')}\n")


def test_X13_a_carriage_return_in_the_middle_is_shown(jobrun: Jobrun) -> None:
    """laradock/laradock#1432: a \\r that nobody can see made a line wrong; where it is refused, one
    can see it."""
    found = jobrun("run", "a", "--cron", "0 2\r3 * * *", "--", "true")
    assert found.status == 2
    assert "\r" not in error_of(found)
    assert "0 2\\r3 * * *" in error_of(found)


def test_X13_a_command_that_ends_in_a_carriage_return_is_shown_so(jobrun: Jobrun) -> None:
    """dokku/dokku-letsencrypt#300: "job.sh: not found" although job.sh was there; its name ended
    in a \\r."""
    (jobrun.folder / "job.sh").write_text("#!/bin/sh\necho ran\n")
    (jobrun.folder / "job.sh").chmod(0o755)
    found = jobrun("run", "a", "--", "job.sh\r", env={"PATH": f"{jobrun.folder}:/bin"})
    assert (found.status, found.stdout) == (127, "")
    assert error_of(found).startswith('not found: "job.sh\\r"; searched PATH=')
    last = jobrun("run", "b", "--", "printf", "<%s>", "job.sh\r")
    assert last.stdout == "<job.sh\r>"
