"""By hand: `--window`, `rerun`, `backfill`, `skip`, `watermark --set`, as plans."""

from __future__ import annotations

import pytest

from jobrun import asked, schedule
from jobrun.errors import JobrunError, UsageError
from jobrun.instants import HOUR, iso
from jobrun.plans import Plan
from jobrun.rows import Gap
from tests.model import DAILY, HOURLY, MIDNIGHT, NOON, NOW, TEN, Model, Outcome, at, called, spans
from tests.model import starts as hours

GRID = schedule.parse("every 1h")


def window(model: Model, when: str, now: int = NOW) -> Outcome:
    return model.call((*HOURLY, "--window", when), now)


def kinds(outcome: Outcome) -> list[str | None]:
    return [unit.kind for unit in outcome.tried]


def done(*, until: int = 10) -> Model:
    """Hours 6 to `until` processed, and the watermark there."""
    model = called(MIDNIGHT + until * HOUR)
    for hour in range(6, until):
        model.failed(hour, state="processed")
    return model


# -- --window and rerun --------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["2026-09-04T11:00Z", "j:2026-09-04T11:00:00+00:00"])
def test_a_pending_window_runs_before_its_turn(when: str) -> None:
    """Kind backfill; the watermark stays, and the window is not run again when its turn comes."""
    model = called()
    outcome = window(model, when)
    assert (hours(outcome), kinds(outcome), outcome.attempts) == ([11], ["backfill"], (1,))
    assert model.watermark == iso(TEN)
    assert hours(model.call(HOURLY, NOW)) == [10]
    assert model.watermark == iso(NOON)


def test_a_processed_window_is_key_exists() -> None:
    """S5: and it runs with rerun, as attempt 2."""
    model = done()
    assert window(model, "2026-09-04T09:00Z").reason == "key-exists"
    again = model.call(("rerun", "2026-09-04T09:00Z"), NOW)
    assert (hours(again), kinds(again), again.attempts) == ([9], ["rerun"], (2,))


def test_a_failed_window_is_tried_at_once_by_hand() -> None:
    """R24: whatever the delay."""
    model = called()
    model.failed(10, next_attempt_at=NOW + HOUR)
    outcome = window(model, "2026-09-04T10:00Z")
    assert (hours(outcome), kinds(outcome)) == ([10], ["rerun"])


def test_a_window_in_a_gap_runs_by_hand() -> None:
    """R29: its row then wins."""
    model = called(NOON)
    model.gaps.append(Gap(TEN, NOON, 2, "too-old"))
    assert (hours(window(model, "2026-09-04T11:00Z"))) == [11]


def test_an_open_window_is_not_closed() -> None:
    """R20: with the instant at which it will be."""
    outcome = called().call((*HOURLY, "--lag", "10m", "--window", "2026-09-04T11:00Z"), NOW)
    assert outcome.reason == "not-closed"
    assert outcome.plan is not None
    assert outcome.plan.skips[0].fields == {"next": NOON + 600}


@pytest.mark.parametrize("verb", [(*HOURLY, "--window"), ("rerun",)])
def test_when_must_be_a_boundary(verb: tuple[str, ...]) -> None:
    """Refused, naming both neighbours."""
    refused = called().call((*verb, "2026-09-04T10:10Z"), NOW)
    assert refused.status == 2
    assert refused.error is not None
    assert "2026-09-04T10:00:00Z and 2026-09-04T11:00:00Z" in refused.error.message


def test_other_bounds_than_on_record_are_refused() -> None:
    """R5, T46: one key never means two windows; rerun takes the bounds on record."""
    model = called(MIDNIGHT + HOUR, "every 1d")
    model.failed(0, state="processed")
    refused = model.call((*DAILY, "--window", "2026-09-04"), at("2026-09-05T00:05"))
    assert refused.error is not None
    assert (refused.status, "j:2026-09-04T00:00:00+00:00" in refused.error.message) == (2, True)
    again = model.call(("rerun", "2026-09-04"), at("2026-09-05T00:05"))
    assert list(spans(again.tried)) == [(MIDNIGHT, MIDNIGHT + HOUR, False)]
    inside = called(MIDNIGHT, "every 1d")
    inside.failed(12, state="processed")
    inside.change(watermark=MIDNIGHT - 24 * HOUR)
    assert inside.call((*DAILY, "--window", "2026-09-04"), at("2026-09-05T00:05")).status == 2


def test_a_seam_is_asked_for_by_the_watermark() -> None:
    """R34: it is no boundary of the grid, but a window starts there."""
    model = called(TEN, "every 1d")
    outcome = model.call((*DAILY, "--window", "2026-09-04T10:00Z"), at("2026-09-05T00:05"))
    assert list(spans(outcome.tried)) == [(TEN, at("2026-09-05T00:00"), True)]


def test_a_window_by_hand_may_be_the_first_call() -> None:
    """The schedule is stored, the watermark is not: the next call begins as a first one."""
    model = Model()
    assert hours(window(model, "2026-09-04T08:00Z")) == [8]
    assert model.watermark is None
    assert hours(model.call(HOURLY, NOW)) == [11]


# -- backfill ------------------------------------------------------------------------------------


def backfill(model: Model, start: str, end: str, *more: str) -> Outcome:
    argv = ("backfill", "--from", f"2026-09-04T{start}Z", "--to", f"2026-09-04T{end}Z", *more)
    return model.call(argv, NOW)


def test_redo_says_which_finished_windows_run_again() -> None:
    """R42: none; failed, which are dead ones; all. Skipped ones and gaps run in any case."""
    for redo, wanted in (("none", [4, 7]), ("failed", [4, 6, 7]), ("all", [4, 5, 6, 7])):
        model = called()
        for hour, state in ((5, "processed"), (6, "dead"), (7, "skipped")):
            model.failed(hour, state=state)
        model.gaps.append(Gap(MIDNIGHT, MIDNIGHT + 5 * HOUR, 5, "too-old"))
        outcome = backfill(model, "04:00", "08:00", "--redo", redo)
        assert hours(outcome) == wanted
        assert outcome.plan is not None
        assert {skip.reason for skip in outcome.plan.skips} <= {"key-exists"}
        assert len(outcome.plan.skips) == 4 - len(wanted)
        assert model.watermark == iso(TEN)


def test_a_range_is_echoed_as_it_was_meant() -> None:
    """Half-open ranges are read as closed ones."""
    outcome = backfill(called(), "00:00", "03:00")
    assert outcome.plan is not None
    (_, fields, text), *_ = outcome.plan.notes
    assert fields["windows"] == 3
    assert text == (
        "3 windows, 2026-09-04T00:00:00Z to 2026-09-04T03:00:00Z,"
        " the last starts 2026-09-04T02:00:00Z"
    )


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        ("09:00", "11:00", "above what is done: it is done to 2026-09-04T10:00:00Z"),
        ("09:00", "09:00", "half-open"),
        ("09:00", "08:00", "half-open"),
        ("08:30", "09:00", "2026-09-04T08:00:00Z and 2026-09-04T09:00:00Z"),
        ("08:00", "09:30", "2026-09-04T09:00:00Z and 2026-09-04T10:00:00Z"),
    ],
)
def test_a_range_is_refused(start: str, end: str, says: str) -> None:
    """R42: boundaries, not empty, below the watermark."""
    refused = backfill(called(), start, end)
    assert refused.error is not None
    assert (refused.status, says in refused.error.message) == (2, True)


def test_a_range_is_bounded() -> None:
    """Each of its windows is one unit in memory."""
    model = called(text="every 60s")
    refused = model.call(("backfill", "--from", "2025-09-04", "--to", "2026-09-04"), NOW)
    assert refused.error is not None
    assert "more than 10000 windows" in refused.error.message


# -- skip ----------------------------------------------------------------------------------------


def skip(model: Model, *args: str | None, now: int = NOW) -> Plan:
    when, since, until = (*args, None, None)[:3]
    return asked.plan_skip("j", GRID, model.stored(), now, when, since, until, "source down")


def test_a_range_is_skipped_as_one_gap_around_its_rows() -> None:
    """R30: pending ones in a gap, failed ones by their rows."""
    model = called()
    key = model.failed(11)
    plan = skip(model, None, "2026-09-04T10:00Z", "2026-09-04T12:00Z")
    assert plan.rows == ((key, TEN + HOUR, NOON),)
    assert plan.opening.gaps == (Gap(TEN, TEN + HOUR, 1, "by-hand", "source down", NOW),)
    assert (plan.windows, plan.writes) == (2, True)
    assert [event[2] for event in plan.opening.events] == [
        "skipped: source down",
        "2026-09-04T10:00:00Z to 2026-09-04T11:00:00Z skipped: source down",
    ]


def test_one_window_is_skipped_by_a_row() -> None:
    """Pending or failed: its key can be looked up."""
    model = called()
    for when in ("2026-09-04T10:00Z", "j:2026-09-04T10:00:00+00:00"):
        plan = skip(model, when)
        assert plan.rows == (("j:2026-09-04T10:00:00+00:00", TEN, TEN + HOUR),)
        assert plan.opening.gaps == ()
        model.failed(10)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("2026-09-04T12:00Z",), "not closed before 2026-09-04T13:00:00Z"),
        ((None, "2026-09-04T11:00Z", "2026-09-04T14:00Z"), "not closed before"),
        (("2026-09-04T09:00Z",), "is processed"),
        ((None, "2026-09-04T08:00Z", "2026-09-04T12:00Z"), "is processed"),
        (("2026-09-04T10:10Z",), "no boundary"),
    ],
)
def test_open_and_processed_windows_are_not_skipped(
    args: tuple[str | None, ...], says: str
) -> None:
    """R30."""
    with pytest.raises(UsageError, match=says):
        skip(done(), *args)


def test_the_lag_of_the_last_call_counts() -> None:
    """A window that is open for its job can't be skipped."""
    model = called()
    model.change(spec='{"options": {"--lag": "10m"}}')
    with pytest.raises(UsageError, match="not closed before 2026-09-04T12:10:00Z"):
        skip(model, "2026-09-04T11:00Z")


# -- watermark -----------------------------------------------------------------------------------


def test_raising_the_watermark_leaves_no_hole() -> None:
    """R18: what is passed over is finished by hand: pending in gaps, failed by its row."""
    model = called()
    key = model.failed(11)
    instant, opening = asked.plan_watermark(
        "j", GRID, model.stored(), NOW, "2026-09-04T12:00Z", "moved by hand"
    )
    assert instant == NOON
    assert opening.gaps == (Gap(TEN, TEN + HOUR, 1, "by-hand", "moved by hand", NOW),)
    assert opening.ended == ((key, "by-hand"),)
    assert [kind for _, kind, _ in opening.events] == ["watermark-set"]


def test_lowering_the_watermark_changes_nothing_else() -> None:
    """R38: what ends after now is made void by the ledger; the rest stays."""
    model = done()
    instant, opening = asked.plan_watermark(
        "j", GRID, model.stored(), NOW, "2026-09-04T07:00Z", "again"
    )
    assert (instant, opening.gaps, opening.ended) == (MIDNIGHT + 7 * HOUR, (), ())


@pytest.mark.parametrize("to", ["2026-09-04T13:00Z", "2026-09-04T10:10Z", "2026-09-04T10:00"])
def test_a_watermark_is_refused(to: str) -> None:
    """R38: a boundary, not after now, with a zone."""
    with pytest.raises(UsageError, match="--set"):
        asked.plan_watermark("j", GRID, called().stored(), NOW, to, "why")


def test_by_hand_too_a_clock_must_have_been_set() -> None:
    """R39."""
    with pytest.raises(JobrunError, match="clock not set"):
        asked.plan_watermark("j", GRID, Model().stored(), 180, "1970-01-03", "why")
