"""What a schedule may say, and what each refusal says: `--every`, `--cron`, `--tz`, `--anchor`."""

from __future__ import annotations

import subprocess
import time

import pytest

from jobrun import schedule
from jobrun.errors import UsageError
from tests.conftest import PYTHON, ROOT
from tests.test_schedule import at, boundaries, cron, every


def canonical_cron(expression: str) -> str:
    return schedule.canonical(None, expression, None, None).removeprefix("cron ")


# -- --cron --------------------------------------------------------------------------------------

# Of windows.md T41 and R12, and of what people type: each with words of its own reason.
REFUSED = {
    "0 0 31 2 *": "never fires",
    "0 0 30 2 *": "never fires",
    "0 0 31 4,6,9,11 *": "never fires",
    "0 0 1 * 5#3": '# in "5#3" needs a * in the other day field',
    "0 0 15W * 1": 'W in "15W" needs a * in the other day field',
    "0 0 L * 1": 'L in "L" needs a * in the other day field',
    "0 0 5-5 * *": "a range from a value to itself",
    "0 0 * jan-jan *": "a range from a value to itself",
    "0 0 * * 0-sun": "a range from a value to itself",
    "0 22-2 * * *": "the range ends before it begins",
    "0 0 * * 5-1": "the range ends before it begins",
    "59/15 * * * *": "a step needs a range",
    "*/0 * * * *": "a step is a whole number above 0",
    "*/x * * * *": "a step is a whole number above 0",
    "*/30 * * * * *": "expected 5 fields, got 6",
    "0 0 0 1 1 ? 2026": "expected 5 fields, got 7",
    "0 0 * *": "expected 5 fields, got 4",
    "": "expected 5 fields, got 0",
    "H * * * *": "Jenkins",
    "H/15 * * * *": "Jenkins",
    "R * * * *": "random",
    "0 0 ? * *": "Quartz",
    "@reboot": "has no window",
    "@every 5m": "is not a cron expression",
    "@montly": "no such nickname",
    "0 0 * * 5L": "L is known in the day of month only",
    "0 0 * * FRI#L": "L is known in the day of month only",
    "0 0 LW * *": "L is known in the day of month only",
    "0 0 1-L * *": "L is known in the day of month only",
    "0 0 * * 1W": "W is known in the day of month only",
    "0 0 1,15W * *": "can't be mixed",
    "0 0 * * 1#1,3": "can't be mixed",
    "0 0 * * 5#6": "the number after # is 1 to 5",
    "0 0 1#2 * *": "# is known in the day of week only",
    "*,5 * * * *": "a * in a list",
    "60 * * * *": 'minute "60": 0-59',
    "* 24 * * *": 'hour "24": 0-23',
    "* * 0 * *": 'day of month "0": 1-31',
    "* * * 13 *": 'month "13": 1-12 or jan-dec',
    "* * * * 8": 'day of week "8": 0-7 or sun-sat',
    "* * * * mondy": "day of week",
    "0 0 -5 * *": "day of month",
    "1, * * * *": "minute",
    "٣ * * * *": "only ASCII",
    "0 0 * *\u00a0*": "only ASCII",
    "0 0 * * *\x0b": "only ASCII",
    "0 2 * * * # nightly": "a comment is no part",
    "TZ=Europe/Berlin 0 2 * * *": "a zone is no part",
    "CRON_TZ=UTC 0 2 * * *": "a zone is no part",
    "0,1,2 " * 80: "at most 200",
}


@pytest.mark.parametrize("expression", REFUSED)
def test_refused_with_a_reason_of_its_own(expression: str) -> None:
    """R12, R13, T41: one line with the value and the rule, and a hint, in less than a second."""
    began = time.process_time()
    with pytest.raises(UsageError) as refused:
        cron(expression)
    assert time.process_time() - began < 1
    assert REFUSED[expression] in refused.value.message
    assert refused.value.message.startswith('--cron "')
    assert refused.value.hint


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("@montly", "--cron @monthly"),
        ("@every 5m", "--every 5m"),
        ("TZ=Europe/Berlin 0 2 * * *", '--cron "0 2 * * *" --tz Europe/Berlin'),
        ("0 22-2 * * *", "22-23,0-2"),
        ("0 5/20 * * *", "5-23/20, or 5 alone"),
        ("0 0 ? * *", '--cron "0 0 * * *"'),
    ],
)
def test_hints_can_be_typed(expression: str, hint: str) -> None:
    """The hint is the next step, spelled out."""
    with pytest.raises(UsageError) as refused:
        cron(expression)
    assert hint == refused.value.hint


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("00 02 * * *", "0 2 * * *"),
        (" 0\t*/2  * * * ", "0 */2 * * *"),
        ("0 2 * * *\r", "0 2 * * *"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@annually", "0 0 1 1 *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * Sun", "0 0 * * 0"),
        ("0 0 * * sat-sun", "0 0 * * 6,0"),
        ("0 0 * * MON-FRI", "0 0 * * 1-5"),
        ("0 0 * * fri-mon", "0 0 * * 5,6,0,1"),
        ("0 0 * * 5-7", "0 0 * * 5,6,0"),
        ("0 0 * * fri#2", "0 0 * * 5#2"),
        ("0 0 * NOV-feb *", "0 0 * 11,12,1,2 *"),
        ("0 0 l jul *", "0 0 L 7 *"),
        ("*/7 0-30/5,1 * * *", None),
        ("*/59 * * * *", "*/59 * * * *"),
        ("0 0 15w * *", "0 0 15W * *"),
    ],
)
def test_one_spelling_for_each_meaning(typed: str, text: str | None) -> None:
    """Blanks, zeros, names, 7 for Sunday: equal expressions have equal texts, and parse again."""
    if text is None:
        with pytest.raises(UsageError):
            canonical_cron(typed)
    else:
        assert text == canonical_cron(typed)
        assert text == canonical_cron(text)
        assert f"cron {text}" == cron(typed).text


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 13 * 5", 61),  # either: every Friday, and every 13th
        ("0 0 */2 * 1", 26),  # both: odd Mondays
        ("0 0 1-31 * 1", 365),
        ("0 0 * * sat-sun", 104),
        ("0 0 * * MON-SUN", 365),
        ("0 0 * * 5-7", 156),
        ("0 0 31 2 1", 4),  # either, and one of them never
        ("0 0 L * *", 12),
        ("0 0 15,L * *", 24),
        ("0 0 * * 5#3", 12),
        ("0 0 * * 0#5", 4),
        ("0 0 15W * *", 12),
        ("0 0 31W 2 *", 1),
    ],
)
def test_days_of_2026(expression: str, days: int) -> None:
    """How the two day fields, L, # and W count, in a year that one can look up."""
    found = boundaries(cron(expression), at("2025-12-31T23:59"), at("2026-12-31T23:59"))
    assert days == len(found)


def test_which_rule_joins_the_day_fields_is_said() -> None:
    """R12: `plan` shows `describe`, and there it must stand."""
    assert (
        cron("0 0 13 * 5").describe()
    ) == "cron 0 0 13 * 5 (UTC), on days that match either of the day fields"
    assert "both of the day fields" in cron("0 0 */2 * 1").describe()
    assert cron("0 2 * * *", "Europe/Berlin").describe() == "cron 0 2 * * * (Europe/Berlin)"


def test_sparse_days_are_found_over_2100() -> None:
    """29 February over the year that has none, and a fifth Friday in February: no endless loop."""
    began = time.process_time()
    leap = cron("0 0 29 2 *")
    assert at("2104-02-29T00:00") == leap.next(at("2096-02-29T00:00"))
    assert at("2096-02-29T00:00") == leap.floor(at("2104-02-28T00:00"))
    assert at("2032-02-29T00:00") == cron("0 0 29 2 */5").next(at("2026-01-01T00:00"))
    with pytest.raises(UsageError, match="outside the years"):
        leap.next(at("9999-01-01T00:00"))
    with pytest.raises(UsageError, match="no boundary"):
        leap.floor(at("1971-01-01T00:00"))
    assert time.process_time() - began < 1


# -- --every, --tz, --anchor ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0h", "a window has a length"),
        ("-1h", "one whole number and one unit"),
        ("1.5h", "one whole number and one unit"),
        ("1h30m", "one whole number and one unit"),
        ("500ms", "one second is the least"),
        ("0.5s", "one second is the least"),
        ("hour", "one whole number and one unit"),
        ("60", "one whole number and one unit"),
        ("1M", "one whole number and one unit"),
        ("1y", "one whole number and one unit"),
        ("7h", "it does not divide a day"),
        ("48h", "it does not divide a day"),
        ("5mo", "the months of a year must divide by it"),
    ],
)
def test_every_is_refused(text: str, says: str) -> None:
    """R7, R8, R9."""
    with pytest.raises(UsageError, match=says) as refused:
        every(text)
    assert refused.value.message.startswith(f"--every {text}: ")
    assert refused.value.hint
    assert refused.value.hint.startswith("--every ")


def test_a_compound_is_told_its_simple_form() -> None:
    """R7: say 90m."""
    with pytest.raises(UsageError) as refused:
        every("1h30m")
    assert refused.value.hint == "--every 90m"


@pytest.mark.parametrize(
    ("typed", "text"),
    [("1hour", "every 1h"), ("01h", "every 1h"), ("2days", "every 2d"), ("1month", "every 1mo")],
)
def test_long_units_are_units(typed: str, text: str) -> None:
    """1hour is 1h; but 60m stays 60m: it is what was typed."""
    assert text == schedule.canonical(typed, None, None, None)
    assert text == schedule.canonical(typed, None, None, "UTC" if text[-1] != "h" else None)
    assert schedule.canonical("60m", None, None, None) == "every 60m"


def test_zones_go_with_days_and_cron() -> None:
    """R10: elapsed time has no zone; an unknown one is told the nearest name."""
    assert every("1d", "Europe/Istanbul").text == "every 1d tz=Europe/Istanbul"
    with pytest.raises(UsageError, match="elapsed time has no zone"):
        every("24h", "Europe/Istanbul")
    with pytest.raises(UsageError) as unknown:
        every("1d", "Europe/Istambul")
    assert unknown.value.hint == "--tz Europe/Istanbul"
    for name in ("localtime", "../UTC", "America", "right/UTC", "Not/AZone", "Europe/Berlin\n"):
        with pytest.raises(UsageError, match="no zone of that name"):
            cron("0 0 * * *", name)


def test_anchor_moves_a_grid_of_elapsed_time() -> None:
    """R8: anchor + k * N, before it too; one that changes nothing leaves the text alone."""
    grid = every("7h", anchor="2026-09-01T00:00Z")
    assert grid.text == "every 7h anchor=2026-09-01T00:00:00+00:00"
    assert at("2026-09-04T19:00") == grid.next(at("2026-09-04T12:00"))
    assert at("2026-08-31T17:00") == grid.floor(at("2026-08-31T23:59"))
    assert every("1h", anchor="2026-09-01").text == "every 1h"
    assert at("2026-09-04T10:30") == every("1h", anchor="2026-09-01T00:30Z").floor(
        at("2026-09-04T11:29")
    )
    for refused in (("1d", None, "2026-09-01"), (None, "0 0 * * *", "2026-09-01")):
        with pytest.raises(UsageError, match="--anchor"):
            schedule.canonical(refused[0], refused[1], refused[2], None)
    with pytest.raises(UsageError, match="has no zone"):
        every("7h", anchor="2026-09-01T00:00")


def test_exactly_one_makes_the_grid() -> None:
    """R7."""
    for both in ((None, None), ("1h", "0 * * * *")):
        with pytest.raises(UsageError, match="exactly one"):
            schedule.canonical(both[0], both[1], None, None)


def test_weeks_begin_on_mondays_and_months_on_the_first() -> None:
    """R9; 24h is elapsed time and 1d is a day: they differ where the clocks change."""
    assert at("2028-03-06T00:00") == every("1w").next(at("2028-02-28T00:00"))
    assert at("2026-12-07T00:00") == every("2w").floor(at("2026-12-20T00:00"))
    assert at("2026-07-01T00:00") == every("6mo").next(at("2026-01-01T00:00"))
    berlin = every("1d", "Europe/Berlin")
    assert berlin.next(at("2026-10-24T22:00")) - at("2026-10-24T22:00") == 25 * 3600
    assert berlin.describe() == "every 1 day (Europe/Berlin)"
    assert every("15m").describe() == "every 15 minutes (UTC)"


def test_a_year_of_minutes_is_counted_at_once() -> None:
    """R23: arithmetic for elapsed time, whole days for cron, up to a limit."""
    start, end = at("2025-09-04T12:00"), at("2026-09-04T12:00")
    began = time.process_time()
    assert every("60s").count(start, end, 10_000) == 525_600
    assert cron("* * * * *").count(start, end, 10_000) is None
    assert cron("* * * * *", "America/New_York").count(start, end) == 525_600
    assert time.process_time() - began < 1


def test_the_calendar_words_are_local() -> None:
    """R4: a day of Istanbul begins on the UTC date before."""
    assert schedule.local(at("2026-09-03T21:00"), "Europe/Istanbul") == (
        "2026-09-04",
        "2026-09",
        "00",
    )
    assert schedule.local(at("2026-09-03T21:00"), None) == ("2026-09-03", "2026-09", "21")


def test_a_canonical_text_needs_nothing_heavy() -> None:
    """The idle way compares texts: no croniter, no zone database, no datetime."""
    code = (
        "import sys; before = set(sys.modules);"
        "from jobrun import schedule; schedule.canonical('1d', None, None, 'Europe/Berlin');"
        "schedule.canonical(None, '0 2 * * mon-fri', None, 'Europe/Berlin');"
        "print(*sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run(
        [PYTHON, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ours = {"jobrun", "jobrun.errors", "jobrun.expression", "jobrun.instants", "jobrun.schedule"}
    assert ours == set(ran.stdout.split()) - {"time", "__future__"}
