"""What a call says otherwise than the record: `--first`, the schedule, the clock (R32 to R40)."""

from __future__ import annotations

from jobrun.instants import HOUR
from tests.model import DAILY, HOURLY, NOON, NOW, TEN, Model, at, called, spans, starts, words


def test_the_first_first_counts_and_others_are_told_once() -> None:
    """R33: one NOTE, with a hint that names backfill and skip."""
    model = Model()
    model.call((*HOURLY, "--first", "2026-09-04T11:00Z"), NOW)
    assert words(model.call((*HOURLY, "--first", "2026-09-04T11:00Z"), NOW)) == []
    other = model.call((*HOURLY, "--first", "2026-08-01"), NOW)
    assert other.plan is not None
    assert words(other) == ["first-ignored"]
    assert "jobrun backfill j --from 2026-08-01" in str(other.plan.notes[0][2])
    assert "jobrun skip j" in str(other.plan.notes[0][2])
    assert list(other.plan.opening.events) == [(None, "first-ignored", "2026-08-01")]
    for again in ("2026-08-01", "2026-08-01", "2026-09-04T11:00Z"):
        assert words(model.call((*HOURLY, "--first", again), NOW)) == []


def test_a_job_may_begin_in_the_future() -> None:
    """R33: until then there is nothing to do, and the clock is not to blame."""
    argv = (*HOURLY, "--first", "2026-09-06")
    model = Model()
    for now in (NOW, NOW + HOUR, at("2026-09-06T00:59")):
        waiting = model.call(argv, now)
        assert waiting.reason == "no-closed-window"
        assert waiting.plan is not None
        assert {"next": at("2026-09-06T01:00")} == waiting.plan.skips[0].fields
    assert starts(model.call(argv, at("2026-09-06T01:00"))) == [48]


def test_the_first_call_is_told() -> None:
    """With what it begins with and whose days it counts."""
    outcome = Model().call(DAILY, NOW)
    assert words(outcome) == ["first-run"]
    assert outcome.plan is not None
    assert outcome.plan.opening[4:6] == ("every 1d", "latest")


def test_a_plain_change_of_schedule_needs_no_consent() -> None:
    """R34: the watermark is a boundary of both, at most one window is due; and it is told."""
    model = called(NOON)
    outcome = model.call(("--every", "30m"), NOON + 1800)
    assert starts(outcome) == [12]
    assert words(outcome) == ["schedule-changed"]
    assert model.row is not None
    assert model.row.schedule == "every 30m"


def test_another_schedule_is_refused_until_consent() -> None:
    """R34: both texts, the next windows under each, who called last; and nothing is changed."""
    model = called(text="every 1d tz=Europe/Berlin")
    spec = '{"user": "etl", "host": "db1", "terminal": true, "at": 1788519600}'
    model.change(spec=spec)
    refused = model.call(HOURLY, NOW)
    assert refused.error is not None
    assert refused.error.message == (
        'j: the schedule on record is "every 1d tz=Europe/Berlin", this call has "every 1h":'
        " the next window is 2026-09-04T10:00:00Z to 2026-09-04T22:00:00Z by the one,"
        " 2026-09-04T10:00:00Z to 2026-09-04T11:00:00Z by the other, 2 closed by now;"
        " last called by etl@db1 at a terminal at 2026-09-04T11:00:00Z"
    )
    assert refused.error.hint == (
        "if the change is meant: --accept-schedule once; if not: --every 1d --tz Europe/Berlin"
    )
    assert starts(model.call((*HOURLY, "--accept-schedule"), NOW)) == [10, 11]
    assert model.call(HOURLY, NOW).reason == "no-closed-window"


def test_a_hole_keeps_its_bounds_under_another_schedule() -> None:
    """R5, R34: once attempted, the stored end is used for every later attempt."""
    model = called()
    model.failed(10)
    outcome = model.call((*DAILY, "--accept-schedule"), at("2026-09-05T00:05"))
    assert [(TEN, TEN + HOUR, False), (TEN + HOUR, at("2026-09-05T00:00"), True)] == list(
        spans(outcome.tried)
    )


def test_boundaries_that_have_moved_are_told() -> None:
    """R36: the same schedule, another next boundary: warn once, and use the new one."""
    model = called()
    model.change(next=TEN + HOUR + 60)
    moved = model.call(HOURLY, TEN + 60)
    assert words(moved) == ["boundaries-moved"]
    assert moved.plan is not None
    assert moved.plan.writes
    assert words(model.call(HOURLY, TEN + 60)) == []


def test_a_clock_that_was_never_set_is_refused() -> None:
    """R39: before 2000, with a state or without."""
    for model in (Model(), called()):
        refused = model.call(HOURLY, 180)
        assert (
            refused.status,
            refused.error and refused.error.message,
        ) == (75, "clock not set: it says 1970-01-01T00:03:00Z")
        assert list(model.windows) == []


def test_a_jump_ahead_is_believed_ten_minutes_later() -> None:
    """R40: until then one window a call and no gap; the same for every catch-up."""
    for catch_up in ("all", "latest", "merge"):
        model = called(seen=TEN)
        argv = (*HOURLY, "--catch-up", catch_up)
        ahead = at("2026-10-15T12:05")
        first = model.call(argv, ahead)
        assert (starts(first), words(first), model.gaps) == ([10], ["clock"], [])
        assert starts(model.call(argv, ahead + 599)) == [11]
        believed = model.call(argv, ahead + 600)
        assert starts(believed)[0] == {"latest": 41 * 24 + 11}.get(catch_up, 12)
        assert "clock" not in words(believed)
        assert model.row is not None
        assert (None, ahead + 600) == (model.row.clock_jump_at, model.row.largest_now)


def test_a_jump_ahead_is_believed_with_consent() -> None:
    """R40: --accept-clock, once."""
    model = called(seen=TEN)
    argv = (*HOURLY, "--catch-up", "latest")
    assert starts(model.call((*argv, "--accept-clock"), at("2026-10-15T12:05"))) == [41 * 24 + 11]


def test_on_a_doubted_clock_nothing_is_too_old() -> None:
    """R40: no gap, and not the window that --max-age would give up either."""
    model = called(seen=TEN)
    doubted = model.call((*HOURLY, "--max-age", "1d"), at("2026-10-15T12:05"))
    assert (doubted.reason, starts(doubted), model.gaps) == ("too-old", [], [])


def test_a_clock_that_comes_back_is_no_longer_doubted() -> None:
    """R40: a later jump is a new one."""
    model = called(seen=TEN)
    model.call(HOURLY, at("2027-09-04T12:05"))
    model.call(HOURLY, NOW)
    assert model.row is not None
    assert (model.row.clock_jump_at, model.row.largest_now) == (None, NOW)
