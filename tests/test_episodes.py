"""Events that are written once an episode: a clock behind the record, a command left behind."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import Jobrun
from tests.orphans import orphaned

HOURLY = ("run", "a", "--every", "1h", "--stdin", "null", "--", "true")
DONE_TO = "watermark=2026-09-04T12:00:00+00:00"


def events(jobrun: Jobrun, kind: str) -> list[tuple[object, ...]]:
    found = "SELECT substr(at, 12, 5), key, detail FROM jobrun_event WHERE kind = ? ORDER BY id"
    return jobrun.query(found, kind)


def called(jobrun: Jobrun, *clocks: str) -> list[int]:
    return [jobrun(*HOURLY, now=f"2026-09-04T{clock}Z").status for clock in clocks]


@pytest.mark.parametrize(
    ("clocks", "status"), [(("11:57:00", "11:58:00", "11:59:00"), 0), (("09:00", "09:01"), 75)]
)
def test_a_clock_behind_is_one_event_however_many_calls_see_it(
    jobrun: Jobrun, clocks: tuple[str, ...], status: int
) -> None:
    """R39: skipped up to five minutes, refused beyond; told once, with what is done to where."""
    assert called(jobrun, "12:05:00") == [0]
    assert set(called(jobrun, *clocks)) == {status}
    assert events(jobrun, "clock-behind") == [(clocks[0][:5], None, DONE_TO)]
    assert jobrun.query("SELECT count(*) FROM jobrun_run") == [(1,)]


def test_a_clock_that_was_right_in_between_begins_another_episode(jobrun: Jobrun) -> None:
    """Also where nothing was done meanwhile, so that the watermark is the same."""
    called(jobrun, "12:05:00", "11:00", "11:01", "12:10:00", "11:05", "11:06")
    assert events(jobrun, "clock-behind") == [("11:00", None, DONE_TO), ("11:05", None, DONE_TO)]


def test_a_clock_that_was_never_set_is_one_event_too(jobrun: Jobrun) -> None:
    """A machine without a battery wakes up in 1970: refused, and on record."""
    called(jobrun, "12:05:00")
    for minute in (1, 2):
        assert jobrun(*HOURLY, now=f"1970-01-01T00:0{minute}:00Z").status == 75
    assert events(jobrun, "clock-behind") == [("00:01", None, DONE_TO)]


@pytest.mark.skipif(sys.platform != "linux", reason="an orphan is known by /proc")
def test_an_orphan_is_one_event_however_many_calls_meet_it(jobrun: Jobrun) -> None:
    """Its run is named, and its window; another orphan is another event."""
    for hour in (11, 12):
        called(jobrun, f"{hour}:05")
        with orphaned(jobrun, "--key", str(hour), now=f"2026-09-04T{hour}:06Z"):
            for minute in (7, 8, 9):
                found = jobrun(*HOURLY, now=f"2026-09-04T{hour}:0{minute}Z")
                assert "reason=orphan-alive" in found.stderr
        (jobrun.folder / "ready").unlink()
    assert events(jobrun, "orphan") == [("11:07", "a:11", "run=2"), ("12:07", "a:12", "run=4")]
    assert "orphan" in jobrun("explain", "a", "11").stdout
