"""What a call runs, leaves and says: the cases of the window rules, and one test a rule.

The planner is pure; `model.py` applies its plans as the ledger will.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun import fate, policy, schedule
from jobrun import job as jobs
from jobrun.instants import HOUR, iso
from jobrun.rows import Block
from tests.cases import PARTIAL, Call, Case
from tests.cases_windows import CASES
from tests.model import (
    DAILY,
    HOURLY,
    MIDNIGHT,
    NOON,
    NOW,
    TEN,
    Model,
    at,
    called,
    spans,
    starts,
    words,
)


def prepared(case: Case) -> Model:
    """The state that the case begins with."""
    model = Model(case.job)
    if case.watermark is None:
        return model
    seen = at(case.seen or case.calls[0].now)
    grid_of = Model(case.job)
    text = grid_of._job(case.stored or case.argv).schedule
    assert text is not None
    model.has_been_called(text, at(case.watermark), seen)
    for row in case.rows:
        model.has(at(row.start), at(row.end), row.state, row.attempts)
    return model


@pytest.mark.parametrize("case", [c for c in CASES if not c.lock_is_held], ids=lambda c: c.id)
def test_case(case: Case) -> None:
    """Windows, their order and bounds, the watermark, the reason and the exit code of each call."""
    model = prepared(case)
    for call in case.calls:
        check(model, case, call)


def check(model: Model, case: Case, call: Call) -> None:
    gaps = len(model.gaps)
    outcome = model.call(call.argv or case.argv, at(call.now), [at(start) for start in call.fails])
    assert call.status == outcome.status, outcome.error
    wanted = [(at(span[0]), at(span[1]), span[2:] == (PARTIAL,)) for span in call.windows]
    assert wanted == list(spans(outcome.tried))
    assert (call.attempts or (1,) * len(wanted)) == outcome.attempts
    assert model.watermark == (None if call.watermark is None else iso(at(call.watermark)))
    assert call.reason == outcome.reason
    if outcome.error is not None:
        for words in call.says:
            assert words in f"{outcome.error.message} {outcome.error.hint}"
        return
    assert outcome.plan is not None
    assert call.left == outcome.plan.left_text
    new = [(gap.start, gap.end, gap.windows) for gap in model.gaps[gaps:]]
    assert [(at(a), at(b), number) for a, b, number in call.gaps] == new
    ended = [f"{case.job}:{iso(at(start))}" for start in call.given_up]
    assert ended == [key for key, _ in outcome.plan.opening.ended]


# -- one test a rule -----------------------------------------------------------------------------


@pytest.mark.parametrize("catch_up", ["all", "latest", "merge"])
@pytest.mark.parametrize("grid", ["every 60s", "cron * * * * * tz=Europe/Berlin"])
def test_a_year_of_minutes_is_planned_at_once(grid: str, catch_up: str) -> None:
    """R23: under a second and 50 MB."""
    known = called(at("2025-09-04T12:00"), grid).stored()
    every, _, zone = grid.partition(" tz=")
    argv = ("--cron", every.removeprefix("cron "), "--tz", zone) if zone else ("--every", "60s")
    job = jobs.parse_run(["j", *argv, "--catch-up", catch_up, "--", "true"], {})
    began = time.process_time()
    units = policy.plan(job, schedule.parse(grid), known, NOON).units
    assert time.process_time() - began < 1
    assert len(units) == (100 if catch_up == "all" else 1)
    tracemalloc.start()
    policy.plan(job, schedule.parse(grid), known, NOON)
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


def test_the_plan_is_drawn_lazily() -> None:
    """R23: of the rows above the watermark no more are read than a batch and its count need."""
    read = []

    def blocks(since: int) -> Iterator[Block]:
        """Every odd hour, for ever."""
        for hour in count(since // HOUR | 1, 2):
            read.append(hour)
            yield Block(hour * HOUR, hour * HOUR + HOUR, "processed", None, None)

    start = at("2026-01-01T00:00")
    known = called(start).stored()._replace(blocks=blocks)
    job = jobs.parse_run(["j", *HOURLY, "--max-windows", "5", "--", "true"], {})
    plan = policy.plan(job, schedule.parse("every 1h"), known, NOW)
    assert len(plan.units) == 5
    assert plan.left == (NOON - start) // HOUR // 2 - 5
    assert max(read) <= NOW // HOUR + 1


@pytest.mark.parametrize(
    ("attempts", "length", "seconds"),
    [(1, 86_400, 60), (2, 86_400, 120), (6, 86_400, 1920), (7, 86_400, 3600), (99, 86_400, 3600),
     (4, 300, 300), (1, 10, 10), (0, 3600, 60)],
)  # fmt: skip
def test_the_delay_before_a_retry_doubles(attempts: int, length: int, seconds: int) -> None:
    """R24: at most the window's own length, and an hour."""
    job = jobs.parse_run(["j", *HOURLY, "--", "true"], {})
    assert seconds == fate.delay(job, attempts, length)


def test_a_failed_window_is_not_tried_again_too_soon() -> None:
    """R24: measured from the start of the attempt; what comes after it waits too."""
    model = called()
    model.call(HOURLY, NOW, [TEN])
    early = model.call(HOURLY, NOW + 59)
    assert (early.reason, starts(early)) == ("retry-later", [])
    assert early.plan is not None
    assert early.plan.skips[0].fields == {"next": NOW + 60}
    assert starts(model.call(HOURLY, NOW + 60)) == [10, 11]


def test_pending_windows_before_a_failed_one_run_first() -> None:
    """R21: a window that was tried by hand and failed has its turn in order."""
    model = called()
    model.failed(11, next_attempt_at=NOW + 1)
    assert starts(model.call(HOURLY, NOW)) == [10]
    assert starts(model.call(HOURLY, NOW + 1)) == [11]


def test_a_lost_window_runs_at_once() -> None:
    """R27: a running row of a dead holder, whatever the delay."""
    model = called()
    model.failed(10, state="running", next_attempt_at=NOW + HOUR)
    assert starts(model.call(HOURLY, NOW)) == [10, 11]


def test_a_held_window_holds_what_comes_after() -> None:
    """stop: window-held; continue: the others run."""
    model = called()
    key = model.failed(10, state="held")
    held = model.call(HOURLY, NOW)
    assert held.plan is not None
    assert ("window-held", key) == (held.reason, held.plan.skips[0].key)
    assert starts(model.call((*HOURLY, "--on-failure", "continue"), NOW)) == [11]


@pytest.mark.parametrize(
    ("cap", "tried"), [(2, [10, 14]), (3, [10, 11, 14]), (9, [10, 11, 14, 15])]
)
def test_holes_take_half_the_cap(cap: int, tried: list[int]) -> None:
    """R25: rounded up, oldest first, then new windows."""
    model = called()
    for hour in (10, 11):
        model.failed(hour)
    model.has(NOON, NOON + 2 * HOUR, "processed")
    argv = (*HOURLY, "--on-failure", "continue", "--max-windows", str(cap))
    assert tried == starts(model.call(argv, at("2026-09-04T16:05")))


def test_a_cap_of_one_takes_hole_and_new_in_turn() -> None:
    """R25: or a hole that always fails would be the only one to run."""
    argv = (*HOURLY, "--on-failure", "continue", "--max-windows", "1", "--retry-delay", "1s")
    model = called()
    now, tried = at("2026-09-04T15:05"), []
    for minute in range(6):
        tried += starts(model.call(argv, now + 60 * minute, [TEN]))
    assert tried == [10, 11, 10, 12, 10, 13]


def test_latest_gives_up_what_was_missed() -> None:
    """R29: one gap, a retry of the newest only, and nothing twice."""
    argv = (*HOURLY, "--catch-up", "latest")
    model = called()
    assert starts(model.call(argv, NOW, [at("2026-09-04T11:00")])) == [11]
    assert starts(model.call(argv, NOW + 60)) == [11]
    assert [gap[:4] for gap in model.gaps] == [(TEN, TEN + HOUR, 1, "not-latest")]
    assert model.call(argv, NOW + 120).reason == "no-closed-window"


def test_latest_leaves_rows_out_of_its_gaps() -> None:
    """R29: a window that has a row is never inside a gap; the newest, if done, is not run again."""
    model = called()
    model.has(NOON, NOON + HOUR, "processed")
    model.has(NOON + 2 * HOUR, NOON + 3 * HOUR, "processed")
    outcome = model.call((*HOURLY, "--catch-up", "latest"), NOON + 3 * HOUR)
    assert outcome.reason == "no-closed-window"
    spans_of_gaps = [(gap.start - NOON, gap.end - NOON) for gap in model.gaps]
    assert spans_of_gaps == [(-2 * HOUR, 0), (HOUR, 2 * HOUR)]
    assert model.watermark == iso(NOON + 3 * HOUR)


def test_too_old_windows_are_given_up_with_a_warning() -> None:
    """R29: one gap; but a window that was tried never ages out."""
    model = called()
    model.failed(11)
    outcome = model.call((*HOURLY, "--max-age", "3h"), at("2026-09-04T16:05"))
    assert starts(outcome) == [11, 13, 14, 15]
    assert [gap[:2] for gap in model.gaps] == [(TEN, TEN + HOUR), (NOON, NOON + HOUR)]
    assert words(outcome) == ["too-old", "too-old"]
    assert outcome.plan is not None
    assert {"WARNING"} == {word for word, _, _ in outcome.plan.notes}


def test_max_age_is_measured_from_the_end() -> None:
    """A window that ended exactly so long ago is not too old."""
    assert starts(called().call((*HOURLY, "--max-age", "2h"), NOON + 4 * HOUR)) == [13, 14, 15]


def test_merge_is_one_window_and_its_retry_has_its_bounds() -> None:
    """R29: one row, key of the watermark, however many; not bounded by the cap."""
    argv = (*HOURLY, "--catch-up", "merge", "--max-windows", "2")
    model = called()
    first = model.call(argv, NOON + 4 * HOUR, [TEN])
    assert list(spans(first.tried)) == [(TEN, NOON + 4 * HOUR, False)]
    assert first.tried[0].windows == 6
    second = model.call(argv, NOON + 5 * HOUR)
    wanted = [(TEN, NOON + 4 * HOUR, False), (NOON + 4 * HOUR, NOON + 5 * HOUR, False)]
    assert wanted == list(spans(second.tried))
    assert [unit.windows for unit in second.tried] == [6, 1]
    assert [unit.kind for unit in second.tried] == ["retry", "new"]


def test_a_failed_backfill_does_not_stop_the_job() -> None:
    """R18: what failed below the watermark is tried again after the windows whose turn it is."""
    model = called()
    model.failed(8)
    assert starts(model.call(HOURLY, NOW)) == [10, 11, 8]


def test_a_paused_job_is_skipped() -> None:
    """Until its time has come, where there is one."""
    model = called()
    model.change(paused_at=TEN, paused_until=NOW, paused_reason="weekend")
    assert model.call(HOURLY, NOW - 1).reason == "paused"
    assert starts(model.call(HOURLY, NOW)) == [10, 11]


def test_the_next_call_that_finds_work_is_told() -> None:
    """end + lag, not the boundary."""
    idle = called(NOON).call((*HOURLY, "--lag", "10m"), NOW)
    assert idle.plan is not None
    assert (
        idle.plan.waits,
        idle.plan.skips[0].fields,
    ) == (NOON + HOUR + 600, {"next": NOON + HOUR + 600})
    assert not idle.plan.writes


def test_a_lag_that_grew_leaves_a_failed_window_open() -> None:
    """R20, R37: the lag may change freely."""
    model = called()
    model.failed(10)
    assert model.call((*HOURLY, "--lag", "2h"), NOW).reason == "no-closed-window"


@settings(deadline=None)
@given(st.data())
def test_whatever_happens_each_window_is_done_once(data: st.DataObject) -> None:
    """R5, R17, R18, R25: any calls, caps, failures, merges and changes of grid; then quiet."""
    model = called(MIDNIGHT)
    now = MIDNIGHT
    for _ in range(data.draw(st.integers(1, 8))):
        now += data.draw(st.sampled_from([0, 60, HOUR, 5 * HOUR, 26 * HOUR]))
        argv = (
            *data.draw(st.sampled_from([HOURLY, HOURLY, ("--every", "30m"), DAILY])),
            "--accept-schedule",
            "--on-failure", data.draw(st.sampled_from(["stop", "continue"])),
            "--catch-up", data.draw(st.sampled_from(["all", "all", "merge"])),
            "--max-windows", data.draw(st.sampled_from(["1", "3", "100"])),
        )  # fmt: skip
        hours_that_fail = data.draw(st.sets(st.integers(0, 40), max_size=4))
        before = model.watermark or ""
        model.call(argv, now, [MIDNIGHT + hour * HOUR for hour in hours_that_fail])
        assert before <= (model.watermark or "")
    for _ in range(3):
        model.call((*HOURLY, "--accept-schedule", "--max-windows", "999"), now := now + 2 * HOUR)
    assert model.watermark == iso(now // HOUR * HOUR)
    position = MIDNIGHT
    for row in sorted(model.windows.values(), key=lambda row: row.start or 0):
        assert (row.state, row.start) == ("processed", position)
        position = row.end or 0


def test_a_retry_that_is_due_before_the_next_window_is_what_a_plan_waits_for() -> None:
    """`plan` says when a call will find work, not when the next window closes."""
    model = called()
    model.failed(10, next_attempt_at=NOON + 5 * 60)
    outcome = model.call(HOURLY, NOON + 3 * 60)
    assert outcome.plan is not None
    assert outcome.reason == "retry-later"
    assert outcome.plan.waits == NOON + 5 * 60
