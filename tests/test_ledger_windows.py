"""What every ledger must do with windows, gaps and the watermark. Over every implementation."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobrun import rows
from jobrun.instants import HOUR, iso
from jobrun.ledger import Ledger
from jobrun.rows import Block, Gap, Opening
from tests.ledger_calls import (
    ELEVEN,
    NOW,
    TEN,
    TWELVE,
    Again,
    begin,
    claim,
    hourly,
    job_row,
    result,
    run,
    state,
    watermark,
)

# -- again and by hand ---------------------------------------------------------------------------


def test_a_rerun_that_fails_leaves_the_success(ledger: Ledger) -> None:
    """R41: processed stays processed, attempts are counted, the watermark does not move."""
    run(ledger, TEN)
    finished = run(ledger, TEN, rows.FAILED_RUN, kind=rows.RERUN, next_attempt_at=NOW + 60)
    assert (finished.outcome, finished.window_state) == (rows.FAILED_RUN, rows.PROCESSED)
    assert not finished.marked
    assert state(ledger, TEN) == (rows.PROCESSED, 2, 1)
    assert watermark(ledger) == ELEVEN


def test_a_lost_rerun_leaves_the_success(ledger: Ledger) -> None:
    """A crash during a rerun is no reason to run the window again."""
    run(ledger, TEN)
    opened = begin(ledger, claim(TEN, kind=rows.RERUN))
    assert opened.claimed is not None
    begin(ledger, lost=(opened.claimed.run_id,))
    assert state(ledger, TEN) == (rows.PROCESSED, 2, 0)


def test_of_a_range_the_first_that_is_free_is_claimed(ledger: Ledger) -> None:
    """What runs, or was claimed since it was planned, is another's; also at the end of a run."""
    run(ledger, TEN)
    opened = begin(ledger, claim(ELEVEN, slot=2))
    hours = [TEN + n * HOUR for n in range(4)]
    planned = [claim(start, planned=0, child_pid=50) for start in hours]
    first = begin(ledger, planned[0]._replace(instead=tuple(planned[1:])))
    assert first.claimed is not None
    assert first.claimed.key == f"j:{iso(TWELVE)}"
    done = result(first.claimed, first.claimed.key, token=first.token, beside=True)
    again = planned[0]._replace(planned=1, child_pid=51, instead=tuple(planned[1:]))
    finished = ledger.finish(done, again, hourly)
    assert finished.claimed is not None
    assert finished.claimed.key == f"j:{iso(TEN)}"
    assert ledger.finish(done, again, hourly).claimed == finished.claimed
    done = result(finished.claimed, finished.claimed.key, token=first.token, beside=True)
    assert ledger.finish(done, planned[1], hourly).claimed is None
    assert opened.claimed is not None
    keys = {f"j:{iso(start)}": 0 for start in hours}
    assert ledger.taken("j", keys) == set(list(keys)[:3])


def test_what_runs_beside_is_not_claimed_again(ledger: Ledger) -> None:
    """It was claimed, without a token, after the runs without an end were judged: plan again."""
    first = begin(ledger, claim(TEN, slot=1))
    assert first.claimed is not None
    done = result(first.claimed, first.claimed.key, token=first.token, beside=True)
    following = claim(ELEVEN, slot=1, planned=0, child_pid=51)
    assert ledger.finish(done, following, hourly).claimed is not None
    opening = Opening("j", job_row(ledger).token, NOW)
    again = claim(ELEVEN, slot=2, kind=rows.RETRY, child_pid=52)
    assert ledger.open(opening, again, hourly) is None
    lost = opening._replace(lost=(2,))
    opened = ledger.open(lost, again, hourly)
    assert opened is not None
    assert opened.claimed is not None


def test_bounds_of_a_window_are_immutable(ledger: Ledger) -> None:
    """R5: a later attempt has the stored end, whatever the schedule says by then."""
    run(ledger, TEN, rows.FAILED_RUN)
    run(ledger, TEN, hours=5)
    window = ledger.window("j", claim(TEN).key or "")
    assert window is not None
    assert (window.end, window.windows) == (ELEVEN, 1)


def test_a_unit_that_is_no_window(ledger: Ledger) -> None:
    """`--key`: no bounds, no watermark, and not among the job's windows."""
    unit = claim(TEN)._replace(key="j:orders.csv", start=None, end=None)
    opened = ledger.open(Opening("j", 0, NOW), unit, None)
    assert opened is not None
    assert opened.claimed is not None
    finished = ledger.finish(result(opened.claimed, unit.key), None, None)
    assert (finished.window_state, finished.watermark) == (rows.PROCESSED, None)
    (row,) = ledger.keys("j")
    assert (row.key, row.start, row.end) == ("j:orders.csv", None, None)
    assert ledger.windows("j", 0, NOW) == []
    assert ledger.runs(key="j:orders.csv")[0].start is None


def test_a_plain_run_is_a_run_only(ledger: Ledger) -> None:
    """Without a schedule and without a key there is no unit to mark."""
    plain = claim(TEN)._replace(key=None, start=None, end=None, kind=None)
    opened = ledger.open(Opening("j", 0, NOW), plain, None)
    assert opened is not None
    assert opened.claimed is not None
    assert opened.claimed.attempt == 1
    finished = ledger.finish(result(opened.claimed, None), None, None)
    assert (finished.outcome, finished.window_state) == (rows.SUCCEEDED, None)
    assert ledger.keys("j") == []


def test_windows_skipped_by_hand_are_finished(ledger: Ledger) -> None:
    """R30: the watermark passes them; a processed one stays what it is."""
    run(ledger, TEN)
    run(ledger, ELEVEN, rows.FAILED_RUN, next_attempt_at=NOW + 60)
    job = job_row(ledger)
    three = tuple((f"j:{iso(start)}", start, start + HOUR) for start in (TEN, ELEVEN, TWELVE))
    opened = ledger.skip_windows(Opening("j", job.token, NOW), three, hourly)
    assert opened is not None
    assert opened.watermark == TWELVE + HOUR
    assert state(ledger, TEN) == (rows.PROCESSED, 1, 0)
    assert state(ledger, ELEVEN) == (rows.SKIPPED, 1, 1)
    window = ledger.window("j", f"j:{iso(TWELVE)}")
    assert window is not None
    assert (window.state, window.reason, window.attempts) == (rows.SKIPPED, rows.BY_HAND, 0)


def test_a_watermark_set_back_voids_what_ends_after_now(ledger: Ledger) -> None:
    """R38: rows of a clock that was wrong are kept and listed, and in nobody's way."""
    far = TEN + 365 * 24 * HOUR
    gap = Gap(TEN, far, 8760, rows.NOT_LATEST)
    begin(ledger, gaps=(gap,))
    run(ledger, far)
    job = job_row(ledger)
    assert job.watermark == far + HOUR
    opened = ledger.set_watermark(Opening("j", job.token, NOW), TEN, hourly)
    assert opened is not None
    assert opened.watermark == TEN
    assert list(ledger.blocks("j", 0)) == []
    assert [row.state for row in ledger.windows("j", 0, 2 * far)] == [rows.VOID]
    assert [row.void for row in ledger.gaps("j", 0, 2 * far)] == [True]
    assert ledger.problems() == []


def test_a_watermark_set_back_keeps_what_was_processed(ledger: Ledger) -> None:
    """R38: it goes up again over windows that are processed, and they are not run again."""
    run(ledger, TEN)
    job = job_row(ledger)
    opened = ledger.set_watermark(Opening("j", job.token, NOW), TEN, hourly)
    assert opened is not None
    assert opened.watermark == ELEVEN


def test_a_watermark_set_forward_voids_nothing(ledger: Ledger) -> None:
    """By hand it may go up."""
    run(ledger, TEN, rows.FAILED_RUN)
    job = job_row(ledger)
    opened = ledger.set_watermark(Opening("j", job.token, NOW), TWELVE, hourly)
    assert opened is not None
    assert opened.watermark == TWELVE
    assert state(ledger, TEN) == (rows.FAILED, 1, 1)


def test_what_is_not_done_may_be_made_void(ledger: Ledger) -> None:
    """Failed, or lost by the same opening; what is processed stays so. Gaps may follow at once."""
    run(ledger, TEN, rows.FAILED_RUN, hours=5, next_attempt_at=NOW + 60)
    run(ledger, TEN + 5 * HOUR)
    left = begin(ledger, claim(TEN + 6 * HOUR, hours=5)).claimed
    assert left is not None
    keys = tuple(f"j:{iso(TEN + hour * HOUR)}" for hour in (0, 5, 6))
    gap = Gap(TEN, ELEVEN, 1, rows.NOT_LATEST)
    begin(ledger, lost=(left.run_id,), void=keys, gaps=(gap,))
    assert state(ledger, TEN) == (rows.VOID, 1, 1)
    assert state(ledger, TEN + 5 * HOUR) == (rows.PROCESSED, 1, 0)
    assert state(ledger, TEN + 6 * HOUR) == (rows.VOID, 1, 1)
    assert watermark(ledger) == ELEVEN
    assert ledger.unfinished("j") == []
    assert ledger.problems() == []


def test_a_void_window_may_be_run_with_other_bounds(ledger: Ledger) -> None:
    """It is nobody's any more; its attempts go on counting."""
    run(ledger, TEN, hours=24)
    job = job_row(ledger)
    ledger.set_watermark(Opening("j", job.token, NOW), TEN, hourly)
    assert state(ledger, TEN) == (rows.VOID, 1, 0)
    run(ledger, TEN)
    window = ledger.window("j", claim(TEN).key or "")
    assert window is not None
    assert (window.state, window.end, window.attempts) == (rows.PROCESSED, ELEVEN, 2)


def test_a_forgotten_job_leaves_no_row(ledger: Ledger) -> None:
    """Every row goes; the token goes on, so that no holder of the old job passes for a new one."""
    run(ledger, TEN)
    begin(ledger, gaps=(Gap(ELEVEN, TWELVE, 1, rows.TOO_OLD),), events=((None, "blocked", None),))
    ledger.skip("j", rows.LOCK_HELD, None, None, NOW)
    assert not ledger.forget("j", 1)  # another holder has been since
    assert ledger.runs() != []
    assert ledger.forget("j", 2)
    assert (ledger.jobs(), ledger.runs(), ledger.skips(), ledger.events()) == ([], [], [], [])
    assert ledger.windows("j", 0, 2 * NOW) == []
    assert begin(ledger).token == 3


# -- the watermark, gaps and blocks --------------------------------------------------------------


def test_a_filled_hole_lets_the_watermark_jump(ledger: Ledger) -> None:
    """R25: over whatever adjoins and is finished, windows and gaps alike."""
    run(ledger, TEN, rows.FAILED_RUN)
    run(ledger, ELEVEN)
    begin(ledger, gaps=(Gap(TWELVE, TWELVE + 3 * HOUR, 3, rows.TOO_OLD),))
    run(ledger, TWELVE + 3 * HOUR)
    run(ledger, TWELVE + 5 * HOUR)
    assert watermark(ledger) == TEN
    assert run(ledger, TEN).watermark == TWELVE + 4 * HOUR


def test_a_gap_moves_the_watermark(ledger: Ledger) -> None:
    """R29: what is given up is one row, finished, with how many and why."""
    gap = Gap(TEN, TEN + 100 * HOUR, 100, rows.NOT_LATEST, "outage", NOW)
    assert begin(ledger, gaps=(gap,)).watermark == TEN + 100 * HOUR
    assert ledger.gaps("j", TEN, ELEVEN) == [gap]
    assert ledger.gaps("j", TEN + 100 * HOUR, TEN + 200 * HOUR) == []


def test_a_failed_window_that_is_given_up_is_skipped(ledger: Ledger) -> None:
    """R29: its own row says so, with the reason, and the watermark passes it."""
    run(ledger, TEN, rows.FAILED_RUN, next_attempt_at=NOW + 60)
    key = claim(TEN).key or ""
    opened = begin(ledger, ended=((key, rows.NOT_LATEST),), events=((key, rows.NOT_LATEST, "why"),))
    assert opened.watermark == ELEVEN
    window = ledger.window("j", key)
    assert window is not None
    assert (window.state, window.reason) == (rows.SKIPPED, rows.NOT_LATEST)
    given_up, failed = (event[3:] for event in ledger.events())
    assert given_up == (key, rows.NOT_LATEST, "why")
    assert failed == (key, "failed", "exit 1, run=1")


@pytest.mark.parametrize(
    ("hour", "left"),
    [
        (0, [(1, 4, 3)]),
        (1, [(0, 1, 1), (2, 4, 2)]),
        (3, [(0, 3, 3)]),
    ],
)
def test_a_window_that_is_run_is_cut_out_of_its_gap(
    ledger: Ledger, hour: int, left: list[tuple[int, int, int]]
) -> None:
    """R29: its row then wins, the pieces that remain keep their counts, reason and detail."""
    gap = Gap(TEN, TEN + 4 * HOUR, 4, rows.TOO_OLD, "outage", NOW)
    begin(ledger, gaps=(gap,))
    run(ledger, TEN + hour * HOUR, rows.FAILED_RUN, kind=rows.BACKFILL)
    pieces = [
        gap._replace(start=TEN + a * HOUR, end=TEN + b * HOUR, windows=windows)
        for a, b, windows in left
    ]
    assert ledger.gaps("j", 0, 2 * NOW) == pieces
    assert state(ledger, TEN + hour * HOUR) == (rows.FAILED, 1, 1)
    assert ledger.problems() == []


def test_a_gap_of_unequal_windows_is_cut_without_a_guess(ledger: Ledger) -> None:
    """Where only the schedule could tell how many lie on each side, the counts become unknown."""
    begin(ledger, gaps=(Gap(TEN, TEN + 5 * HOUR, 4, rows.TOO_OLD),))
    run(ledger, ELEVEN)
    assert [gap.windows for gap in ledger.gaps("j", 0, 2 * NOW)] == [None, None]


def test_a_gap_of_one_window_goes_as_a_whole(ledger: Ledger) -> None:
    """Nothing remains of it."""
    begin(ledger, gaps=(Gap(TEN, ELEVEN, 1, rows.TOO_OLD),))
    run(ledger, TEN)
    assert ledger.gaps("j", 0, 2 * NOW) == []


def test_blocks_are_windows_and_gaps_by_start(ledger: Ledger) -> None:
    """Planning walks around them (R19), from any instant, also from inside of one."""
    begin(ledger, gaps=(Gap(ELEVEN, ELEVEN + 2 * HOUR, 2, rows.TOO_OLD),))
    run(ledger, TEN, rows.FAILED_RUN, next_attempt_at=NOW)
    run(ledger, ELEVEN + 3 * HOUR)
    failed = Block(TEN, ELEVEN, rows.FAILED, f"j:{iso(TEN)}", NOW, token=2)
    gap = Block(ELEVEN, ELEVEN + 2 * HOUR, "gap", None, None, 2)
    later = ELEVEN + 3 * HOUR
    done = Block(later, later + HOUR, rows.PROCESSED, f"j:{iso(later)}", None, token=3)
    assert list(ledger.blocks("j", 0)) == [failed, gap, done]
    assert list(ledger.blocks("j", TEN + 1)) == [failed, gap, done]
    assert list(ledger.blocks("j", ELEVEN)) == [gap, done]
    assert list(ledger.blocks("j", TWELVE)) == [gap, done]
    assert list(ledger.blocks("j", later + HOUR)) == []


def test_blocks_of_more_than_a_page(ledger: Ledger) -> None:
    """Pages join without a seam."""
    gaps = tuple(
        Gap(TEN + n * 2 * HOUR, TEN + n * 2 * HOUR + HOUR, 1, rows.TOO_OLD) for n in range(1, 1201)
    )
    begin(ledger, gaps=gaps)
    assert [block.start for block in ledger.blocks("j", 0)] == [gap.start for gap in gaps]


def test_the_nearest_processed_windows(ledger: Ledger) -> None:
    """R43: the newest n that start below, oldest first; of no other state."""
    run(ledger, TEN)
    run(ledger, TEN + HOUR, rows.FAILED_RUN)
    run(ledger, TEN + 2 * HOUR)
    assert [b.start for b in ledger.processed("j", TEN + 3 * HOUR, 9)] == [TEN, TEN + 2 * HOUR]
    assert [b.start for b in ledger.processed("j", TEN + 3 * HOUR, 1)] == [TEN + 2 * HOUR]
    assert [b.start for b in ledger.processed("j", TEN + 2 * HOUR, 9)] == [TEN]
    assert ledger.processed("j", TEN, 9) == []


def test_counting_blocks(ledger: Ledger) -> None:
    """Windows that have a row or lie in a gap, of those that start in the range."""
    begin(ledger, gaps=(Gap(TWELVE, TWELVE + 9 * HOUR, 9, rows.TOO_OLD),))
    run(ledger, TEN, rows.FAILED_RUN)
    run(ledger, ELEVEN)
    assert ledger.count_blocks("j", TEN, TWELVE) == 2
    assert ledger.count_blocks("j", TEN, TWELVE + 1) == 11
    assert ledger.count_blocks("j", ELEVEN, TWELVE) == 1


def test_windows_that_meet_a_range(ledger: Ledger) -> None:
    """By start; one that reaches in from below is there, one that only touches is not."""
    run(ledger, TEN)
    run(ledger, ELEVEN, hours=3)
    met = ledger.windows("j", TWELVE, TWELVE + HOUR)
    assert [(row.start, row.end, row.windows) for row in met] == [(ELEVEN, ELEVEN + 3 * HOUR, 3)]
    assert ledger.windows("j", 0, TEN) == []
    assert len(ledger.windows("j", 0, NOW, limit=1)) == 1


OUTCOMES = [rows.SUCCEEDED, rows.FAILED_RUN, rows.INTERRUPTED, "gap", "skip"]


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(history=st.lists(st.tuples(st.integers(0, 7), st.sampled_from(OUTCOMES)), max_size=25))
def test_the_watermark_is_the_end_of_the_finished_prefix(
    again: Again, history: list[tuple[int, str]]
) -> None:
    """R18: whatever happens in whatever order, it passes no hole and never goes back."""
    ledger = again()
    assert ledger.forget("j", begin(ledger).token)
    begin(ledger)
    finished: set[int] = set()  # hours that are processed, skipped or in a gap
    expected = 0
    for hour, what in history:
        happen(ledger, hour, what, finished)
        while expected in finished:
            expected += 1
        assert watermark(ledger) == TEN + expected * HOUR
    assert ledger.problems() == []


def happen(ledger: Ledger, hour: int, what: str, finished: set[int]) -> None:
    """One call, and what it means for the model."""
    start = TEN + hour * HOUR
    before = state(ledger, start)
    if what == "gap":
        if before is None and hour not in finished:
            begin(ledger, gaps=(Gap(start, start + HOUR, 1, rows.TOO_OLD),))
            finished.add(hour)
    elif what == "skip":
        opening = Opening("j", job_row(ledger).token, NOW)
        ledger.skip_windows(opening, ((f"j:{iso(start)}", start, start + HOUR),), hourly)
        finished.add(hour)
    else:
        was_done = before is not None and before[0] == rows.PROCESSED
        run(ledger, start, what, kind=rows.RERUN if was_done else rows.NEW)
        if what == rows.SUCCEEDED:
            finished.add(hour)
        elif before is None or before[0] != rows.PROCESSED:
            finished.discard(hour)
