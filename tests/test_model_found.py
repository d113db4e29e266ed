"""What the model and the fuzz tests have found, each as the shortest call that shows it."""

from __future__ import annotations

import pytest

from tests.conftest import Jobrun

HOURLY = ("--every", "1h")


def test_a_retry_is_not_waited_for_until_a_wrong_clock_comes_true(jobrun: Jobrun) -> None:
    """A window that failed while the clock was 20 days ahead waits no 20 days once it is right."""
    wrong = "2026-09-24T12:05:00Z"
    assert jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T10:05:00Z").status == 0
    failed = jobrun("run", "a", *HOURLY, "--window", "2026-09-04T10:00Z", "--", "false", now=wrong)
    assert failed.status == 1
    right = jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T11:30:00Z")
    assert "reason=retry-later" not in right.stderr
    assert jobrun.query("select state, attempts from jobrun_window order by start") == [
        ("processed", 1),
        ("processed", 2),
    ]


@pytest.mark.parametrize(
    "verb",
    [
        ("skip", "--from", "2026-09-04T10:00Z", "--to", "2026-09-04T11:00Z"),
        ("skip", "--from", "2026-09-04T11:00Z", "--to", "2026-09-04T13:00Z"),
        ("watermark", "--set", "2026-09-04T11:00Z"),
    ],
)
def test_what_is_asked_for_cuts_no_window(jobrun: Jobrun, verb: tuple[str, ...]) -> None:
    """A merged window that failed is given up as a whole or not at all: 3 hours, not 1."""
    assert jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T10:05:00Z").status == 0
    merged = (*HOURLY, "--catch-up", "merge", "--", "false")
    assert jobrun("run", "a", *merged, now="2026-09-04T13:05:00Z").status == 1
    name, *words = verb
    found = jobrun(name, "a", *words, "--reason", "no", now="2026-09-04T13:06:00Z")
    assert found.status == 2
    assert " cuts a:2026-09-04T10:00:00+00:00, " in found.stderr
    assert jobrun.query("select watermark from jobrun_job") == [("2026-09-04T10:00:00+00:00",)]
    assert jobrun.query("select count(*) from jobrun_window where state = 'failed'") == [(1,)]


@pytest.mark.parametrize(
    "option", ["--ok-exit=3-²", "--ok-exit=" + "9" * 5000, "--lag=" + "9" * 5000 + "w"]
)
def test_digits_that_are_no_number(jobrun: Jobrun, option: str) -> None:
    """Of another script, or thousands of them: a usage error, and no ledger is made."""
    found = jobrun("run", "a", *HOURLY, option, "--", "true")
    assert found.status == 2
    assert found.stderr.startswith(f"jobrun: error: {option.partition('=')[0]} ")
    assert not jobrun.ledger.exists()


def test_a_day_before_the_first_one_of_a_zone(jobrun: Jobrun) -> None:
    """The year 1 begins in the year 0 of UTC, which Python has not."""
    zone = ("--every", "1d", "--tz", "Europe/Berlin")
    found = jobrun("run", "a", *zone, "--first", "0001-01-01", "--", "true")
    assert found.status == 2
    assert "outside the years 1970 to 9997" in found.stderr


@pytest.mark.parametrize("number", ["9223372036854775808", "9" * 60, "٣"])
def test_a_number_that_no_run_can_have_is_a_job(jobrun: Jobrun, number: str) -> None:
    """More than SQLite counts to, or digits of another script: looked up as a name."""
    assert jobrun("run", "a", "--", "true").status == 0
    found = jobrun("show", number)
    assert found.status == 2
    assert found.stderr.startswith("jobrun: error: no job ")


@pytest.mark.parametrize(
    "damage",
    [
        "update jobrun_job set largest_now = '2026-99-04T10:00:00+00:00'",
        "update jobrun_job set told = cast(x'ff' as text), told_at = first_seen",
        "update jobrun_meta set version = 'one'",
        "delete from jobrun_meta",
    ],
)
def test_a_bit_that_turned_is_told_as_damage(jobrun: Jobrun, damage: str) -> None:
    """SQLite sees no harm in a value that is none: it was a traceback."""
    assert jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T10:05:00Z").status == 0
    jobrun.change(damage)
    found = jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T11:05:00Z")
    assert found.status == 74
    assert "damaged" in found.stderr


def test_an_option_of_a_newer_program(jobrun: Jobrun) -> None:
    """On record of the last call, and unknown to this one: rerun says so."""
    assert jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T10:05:00Z").status == 0
    spec = '{"options": {"--new": "1"}, "command": ["true"]}'
    jobrun.change("update jobrun_job set spec = ?", spec)
    found = jobrun("rerun", "a", "2026-09-04T09:00Z", now="2026-09-04T10:06:00Z")
    assert found.status == 2
    assert 'no option "--new"' in found.stderr
