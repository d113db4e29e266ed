"""What every ledger must do for a call: claim, record, refuse. Over every implementation."""

from __future__ import annotations

import pytest

from jobrun import rows
from jobrun.instants import HOUR, iso
from jobrun.ledger import Ledger
from jobrun.rows import Breaker, Finished, Gap, Left, Opened, Opening, Skipped
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
    mark,
    result,
    run,
    state,
    watermark,
)

# -- a call --------------------------------------------------------------------------------------


def test_an_unknown_job_has_nothing(ledger: Ledger) -> None:
    """Reading a job that was never called finds nothing and makes nothing."""
    assert ledger.job("j") is None
    assert ledger.jobs() == []
    assert ledger.window("j", "j:x") is None
    assert ledger.unfinished("j") == []
    assert list(ledger.blocks("j", 0)) == []
    assert ledger.count_blocks("j", 0, NOW) == 0
    assert ledger.open_runs("j") == []
    assert ledger.run(1) is None
    assert ledger.runs() == []
    assert ledger.usual("j") is None


def test_the_first_call_makes_the_job(ledger: Ledger) -> None:
    """What planning decided is stored by the opening transaction."""
    opened = begin(ledger, first="latest", spec="{}")
    assert opened == Opened(token=1, watermark=TEN, claimed=None)
    job = job_row(ledger)
    assert (job.schedule, job.first, job.spec) == ("every 1h", "latest", "{}")
    assert (job.watermark, job.next, job.token) == (TEN, ELEVEN, 1)
    assert (job.first_seen, job.last_seen, job.largest_now) == (NOW, NOW, NOW)
    assert [row.name for row in ledger.jobs()] == ["j"]


def test_a_claim_is_a_running_window_and_an_open_run(ledger: Ledger) -> None:
    """Before a command starts its window is claimed, with who runs it and how to know it again."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    assert opened.claimed.attempt == 1
    (window,) = ledger.unfinished("j")
    assert (window.state, window.start, window.end, window.token) == ("running", TEN, ELEVEN, 1)
    (row,) = ledger.open_runs("j")
    assert (row.id, row.attempt, row.kind) == (opened.claimed.run_id, 1, rows.NEW)
    assert (row.host, row.pid, row.user, row.terminal) == ("db1", 4711, "etl", False)
    assert (row.child_pid, row.birth, row.start, row.end) == (4712, "boot 1 2", TEN, ELEVEN)
    assert (row.outcome, row.ended, row.took) == (None, None, None)


def test_success_marks_the_window_and_moves_the_watermark(ledger: Ledger) -> None:
    """Mark and watermark are one transaction (R26); the run keeps how it ended."""
    finished = run(ledger, TEN)
    assert finished == Finished(rows.SUCCEEDED, rows.PROCESSED, ELEVEN, False, None, False)
    assert state(ledger, TEN) == (rows.PROCESSED, 1, 0)
    job = job_row(ledger)
    assert (job.watermark, job.next) == (ELEVEN, TWELVE)
    (row,) = ledger.runs("j")
    assert (row.outcome, row.exit_code, row.ended, row.took) == (rows.SUCCEEDED, 0, NOW + 2, 1.5)
    assert row.output_bytes == 10
    assert ledger.open_runs("j") == []


def test_a_finish_claims_the_next_window(ledger: Ledger) -> None:
    """n windows are n + 1 transactions: the end of one run and the claim of the next are one."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    finished = ledger.finish(result(opened.claimed, claim(TEN).key), claim(ELEVEN), hourly)
    assert finished.claimed is not None
    assert finished.watermark == ELEVEN
    assert [row.id for row in ledger.open_runs("j")] == [finished.claimed.run_id]
    assert state(ledger, ELEVEN) == (rows.RUNNING, 1, 0)


@pytest.mark.parametrize("outcome", [o for o in rows.FAILURES if o != rows.LOST])
def test_a_failure_leaves_the_window_to_be_tried_again(ledger: Ledger, outcome: str) -> None:
    """The watermark stays at its start (R24); the next attempt counts on."""
    finished = run(ledger, TEN, outcome, next_attempt_at=NOW + 60)
    assert (finished.outcome, finished.window_state) == (outcome, rows.FAILED)
    assert finished.watermark == TEN
    (window,) = ledger.unfinished("j")
    assert (window.attempts, window.failures, window.reason) == (1, 1, outcome)
    assert window.next_attempt_at == NOW + 60
    run(ledger, TEN)
    assert state(ledger, TEN) == (rows.PROCESSED, 2, 1)
    assert watermark(ledger) == ELEVEN


def test_an_interrupted_window_is_due_at_once(ledger: Ledger) -> None:
    """A start that was stopped by a signal counts as an attempt, not as a failure."""
    run(ledger, TEN, rows.INTERRUPTED, next_attempt_at=None)
    (window,) = ledger.unfinished("j")
    assert (window.state, window.reason) == (rows.FAILED, rows.INTERRUPTED)
    assert (window.attempts, window.failures, window.next_attempt_at) == (1, 0, None)


def test_what_was_told_is_kept_until_a_success(ledger: Ledger) -> None:
    """`--remind` needs to know across calls what was printed last."""
    run(ledger, TEN, rows.FAILED_RUN, told="failed 3", told_at=NOW)
    job = job_row(ledger)
    assert (job.told, job.told_at) == ("failed 3", NOW)
    run(ledger, TEN)
    job = job_row(ledger)
    assert (job.told, job.told_at) == (None, None)


def test_recording_the_same_result_again_changes_nothing(ledger: Ledger) -> None:
    """A finish whose answer was lost may be tried again."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    ended = result(opened.claimed, claim(TEN).key)
    assert ledger.finish(ended, None, hourly) == ledger.finish(ended, None, hourly)
    assert state(ledger, TEN) == (rows.PROCESSED, 1, 0)


@pytest.mark.parametrize("outcome", [rows.SUCCEEDED, rows.FAILED_RUN, rows.INTERRUPTED])
def test_an_answer_that_was_not_heard_is_given_once_more(again: Again, outcome: str) -> None:
    """A server may have committed, and its answer be lost: nothing is counted or claimed twice."""
    ledger = again()
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    ended = result(opened.claimed, claim(TEN).key, outcome=outcome, breaker=Breaker(9, None, None))
    following = claim(ELEVEN, child_pid=4713, birth="boot 1 3")
    first = ledger.finish(ended, following, hourly)
    assert first.claimed is not None
    before = (ledger.job("j"), ledger.windows("j", 0, NOW), ledger.runs("j"), ledger.events("j"))
    assert again().finish(ended, following, hourly) == first
    after = (ledger.job("j"), ledger.windows("j", 0, NOW), ledger.runs("j"), ledger.events("j"))
    assert before == after


# -- the token -----------------------------------------------------------------------------------


def test_of_two_that_planned_one_opens(ledger: Ledger, again: Again) -> None:
    """A token that moved since planning read it means that the plan is stale: nothing changes."""
    begin(ledger)
    late = Opening("j", 0, NOW, gaps=(Gap(TEN, ELEVEN, 1, rows.TOO_OLD),))
    assert again().open(late, claim(TEN), hourly) is None
    job = job_row(ledger)
    assert (job.token, job.watermark) == (1, TEN)
    assert (ledger.runs(), ledger.gaps("j", 0, NOW)) == ([], [])


def test_an_old_holder_is_fenced(ledger: Ledger, again: Again) -> None:
    """D6: a result with an older token is refused: its own run says so, nothing else changes."""
    old = begin(ledger, claim(TEN))
    assert old.claimed is not None
    new = begin(again(), claim(TEN), lost=(old.claimed.run_id,))
    assert new.claimed is not None
    before = (ledger.job("j"), ledger.window("j", claim(TEN).key or ""))
    finished = ledger.finish(result(old.claimed, claim(TEN).key, told="x", told_at=1), None, hourly)
    assert (finished.outcome, finished.window_state) == (rows.FENCED, rows.RUNNING)
    assert (ledger.job("j"), ledger.window("j", claim(TEN).key or "")) == before
    row = ledger.run(old.claimed.run_id)
    assert row is not None
    assert (row.outcome, row.exit_code, row.ended) == (rows.FENCED, 0, NOW + 2)
    assert [row.id for row in ledger.open_runs("j")] == [new.claimed.run_id]


def test_a_fenced_holder_claims_nothing(ledger: Ledger, again: Again) -> None:
    """The window that it would have run next is the new holder's."""
    old = begin(ledger, claim(TEN))
    assert old.claimed is not None
    begin(again())
    finished = ledger.finish(result(old.claimed, claim(TEN).key), claim(ELEVEN), hourly)
    assert finished.claimed is None
    assert state(ledger, ELEVEN) is None


def test_a_lost_run_has_no_made_up_end(ledger: Ledger) -> None:
    """Its window is due at once, counted as a failure, and a person can be told (M7)."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    begin(ledger, lost=(opened.claimed.run_id,))
    row = ledger.run(opened.claimed.run_id)
    assert row is not None
    assert (row.outcome, row.ended, row.took) == (rows.LOST, None, None)
    (window,) = ledger.unfinished("j")
    assert (window.state, window.failures, window.reason) == (rows.FAILED, 1, rows.LOST)
    assert window.next_attempt_at is None
    assert [(event.key, event.kind) for event in ledger.events("j")] == [(window.key, rows.LOST)]


def test_a_lost_run_that_had_marked_its_window_leaves_it_done(again: Again) -> None:
    """As one that ended so: its values are kept, nothing fails any more, a probe ends the pause."""
    ledger = again()
    breaker = Breaker(1, -2, None)  # its runs end two seconds after they begin
    tripped = run(ledger, TEN, rows.FAILED_RUN, breaker=breaker).tripped
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    mark(ledger, claim(TEN).key or "", opened.token)
    lost = opened.claimed.run_id
    left = (Left(lost, (("rows", "5"),)),)
    found = begin(ledger, claim(ELEVEN), lost=(lost,), left=left, breaker=breaker)
    assert (found.marked, found.tripped, found.resumed) == ((lost,), None, tripped)
    assert found.claimed is not None
    assert state(ledger, TEN) == (rows.PROCESSED, 2, 1)
    assert ledger.runs("j")[-2].outcome == rows.LOST
    assert ledger.values("j", claim(TEN).key or "") == {"rows": "5"}
    assert (job_row(ledger).failing, job_row(ledger).pause) == (0, None)
    kinds = [event.kind for event in ledger.events("j", limit=3)]
    assert kinds == [rows.RECOVERED, "resumed", rows.LOST]


def test_a_window_that_has_been_marked_since_planning_is_planned_again(again: Again) -> None:
    """By the last word of a command that nobody hears of any more: nothing of the call is kept."""
    ledger = again()
    key = claim(TEN).key or ""
    lost = begin(ledger, claim(TEN)).claimed
    assert lost is not None
    mark(ledger, key, lost.token)
    opening = Opening("j", 1, NOW, schedule="every 1h", lost=(lost.run_id,))
    for kind in (rows.NEW, rows.RETRY):
        assert ledger.open(opening, claim(TEN, kind=kind), hourly) is None
    assert (job_row(ledger).token, state(ledger, TEN)) == (1, (rows.PROCESSED, 1, 0))
    assert [row.outcome for row in ledger.runs("j")] == [None]
    by_hand = ledger.open(opening, claim(TEN, kind=rows.RERUN), hourly)
    assert by_hand is not None
    assert by_hand.marked == (lost.run_id,)


def test_a_run_that_ended_is_not_lost(ledger: Ledger) -> None:
    """Its end came from an outbox meanwhile: whoever takes it for lost plans again."""
    run(ledger, TEN)
    opening = Opening("j", job_row(ledger).token, NOW, lost=(ledger.runs("j")[0].id,))
    assert ledger.open(opening, claim(TEN), hourly) is None
    assert state(ledger, TEN) == (rows.PROCESSED, 1, 0)
    assert ledger.runs("j")[0].outcome == rows.SUCCEEDED
    assert ledger.events() == []


def test_an_end_that_is_on_record_is_never_fenced(ledger: Ledger) -> None:
    """Told once more after another has taken over, it is answered by what is on record."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    ended = result(opened.claimed, claim(TEN).key, token=opened.token)
    ledger.finish(ended, None, hourly)
    begin(ledger, claim(ELEVEN, child_pid=4713))
    again = ledger.finish(ended, None, hourly)
    assert (again.outcome, again.window_state) == (rows.SUCCEEDED, rows.PROCESSED)
    assert ledger.runs("j")[-1].outcome == rows.SUCCEEDED


def test_a_further_try_has_a_token_of_its_own(again: Again) -> None:
    """What is left of the try before shows the old one, and is refused."""
    ledger = again()
    first = begin(ledger, claim(TEN))
    assert first.claimed is not None
    assert first.claimed.token == first.token
    failed = {"outcome": rows.FAILED_RUN, "exit_code": 1, "goes_on": True}
    ledger.finish(result(first.claimed, claim(TEN).key, **failed), None, hourly)
    second = ledger.claim("j", first.token, claim(TEN, again=True))
    assert second is not None
    assert (second.attempt, second.failures, second.token) == (2, 1, first.token + 1)
    assert ledger.claim("j", first.token, claim(TEN, again=True)) is None
    late = result(first.claimed, claim(TEN).key, outcome=rows.SUCCEEDED)
    assert ledger.finish(late, None, hourly).outcome == rows.FENCED
    ended = result(second, claim(TEN).key, token=second.token)
    following = claim(ELEVEN, child_pid=4713, birth="boot 1 3")
    finished = ledger.finish(ended, following, hourly)
    assert finished.claimed is not None
    assert (finished.window_state, finished.claimed.token) == (rows.PROCESSED, second.token)
    assert again().finish(ended, following, hourly) == finished


# -- what a call leaves about itself -------------------------------------------------------------


def test_consent_stores_the_schedule_and_the_first_first_stays(ledger: Ledger) -> None:
    """R33, R34: a schedule is changed when it is given, the first `--first` never."""
    begin(ledger, first="none")
    begin(ledger, schedule="every 1d", first="latest", watermark=TWELVE)
    job = job_row(ledger)
    assert (job.schedule, job.first, job.watermark) == ("every 1d", "none", TEN)


def test_a_clock_that_is_not_believed_leaves_the_largest_now(ledger: Ledger) -> None:
    """R40: it is noted, and cleared when it turns out right."""
    begin(ledger)
    begin(ledger, now=NOW + 365 * 24 * HOUR, keep_largest_now=True, clock_jump_at=NOW)
    job = job_row(ledger)
    assert (job.largest_now, job.clock_jump_at) == (NOW, NOW)
    begin(ledger, now=NOW + 5)
    job = job_row(ledger)
    assert (job.largest_now, job.clock_jump_at, job.last_seen) == (NOW + 5, None, NOW + 5)


def test_repeated_skips_are_folded(ledger: Ledger) -> None:
    """Same reason, key and detail: one row that counts, and says when first and when last."""
    for at in (NOW, NOW + 60, NOW + 120):
        assert ledger.skip("j", rows.LOCK_HELD, None, "db1:4711", at)
    assert ledger.skip("j", rows.LOCK_HELD, None, "db1:9", NOW + 90)
    assert ledger.skip("j", rows.KEY_EXISTS, "j:x", None, NOW + 30)
    told = [(s.reason, s.detail, s.times, s.at, s.last_at) for s in ledger.skips("j")]
    assert told == [
        (rows.LOCK_HELD, "db1:4711", 3, NOW, NOW + 120),
        (rows.LOCK_HELD, "db1:9", 1, NOW + 90, NOW + 90),
        (rows.KEY_EXISTS, None, 1, NOW + 30, NOW + 30),
    ]
    assert len(ledger.skips(limit=1)) == 1


def test_a_skip_says_that_the_job_was_called(ledger: Ledger) -> None:
    """Also before any call got so far as to make the job; the call that does finds it."""
    ledger.skip("j", rows.LOCK_HELD, None, None, NOW)
    job = job_row(ledger)
    assert (job.last_seen, job.token, job.schedule) == (NOW, 0, None)
    assert begin(ledger).token == 1


def test_runs_newest_first(ledger: Ledger) -> None:
    """Of all jobs, of one, of one key, since an instant."""
    run(ledger, TEN, rows.FAILED_RUN)
    run(ledger, TEN)
    run(ledger, ELEVEN)
    numbers = [row.id for row in ledger.runs()]
    assert numbers == sorted(numbers, reverse=True)
    assert [row.attempt for row in ledger.runs(key=f"j:{iso(TEN)}")] == [2, 1]
    assert len(ledger.runs("j", limit=2)) == 2
    assert ledger.runs("other") == []
    assert ledger.runs("j", since=NOW + 1) == []
    assert len(ledger.runs("j", since=NOW)) == 3


def test_the_usual_duration(ledger: Ledger) -> None:
    """The median of what succeeded; failures say nothing about it."""
    for number, took in enumerate((9.0, 1.0, 2.0)):
        run(ledger, TEN + number * HOUR, took=took)
    run(ledger, TEN + 3 * HOUR, rows.FAILED_RUN, took=100.0)
    assert ledger.usual("j") == 2.0


def test_bytes_that_are_no_text(ledger: Ledger) -> None:
    """A name or message from the system may hold any byte: it enters as \\xNN."""
    begin(ledger, events=((None, "blocked", "caf\udce9"),))
    ledger.skip("j", rows.LOCK_HELD, None, "half \ud83d", NOW)
    assert ledger.events()[0].detail == "caf\\xe9"
    assert ledger.skips()[0].detail == "half \\ud83d"


# -- values for other jobs, windows that are left out ----------------------------------------------


def test_values_are_those_of_the_newest_run_that_processed_the_window(ledger: Ledger) -> None:
    """Kept in the transaction that records it; a failed rerun leaves them, a good one replaces."""
    key = f"j:{iso(TEN)}"
    assert ledger.values("j", key) == {}
    run(ledger, TEN, values=(("path", "/x"), ("rows", "5")))
    assert ledger.values("j", key) == {"path": "/x", "rows": "5"}
    run(ledger, TEN, rows.FAILED_RUN, kind=rows.RERUN, values=(("rows", "6"),))
    assert ledger.values("j", key) == {"path": "/x", "rows": "5"}
    run(ledger, TEN, kind=rows.RERUN, values=(("rows", "7"),))
    assert ledger.values("j", key) == {"rows": "7"}
    run(ledger, ELEVEN, rows.FAILED_RUN, values=(("rows", "8"),))
    assert ledger.values("j", f"j:{iso(ELEVEN)}") == {}


def test_a_fenced_run_leaves_nothing(ledger: Ledger) -> None:
    """Its result is refused, with all that it brought."""
    first = begin(ledger, claim(TEN))
    assert first.claimed is not None
    begin(ledger)
    late = result(first.claimed, f"j:{iso(TEN)}", token=first.token, values=(("rows", "1"),))
    assert ledger.finish(late, None, hourly).outcome == rows.FENCED
    assert ledger.values("j", f"j:{iso(TEN)}") == {}


def test_windows_that_are_left_out_are_finished(ledger: Ledger) -> None:
    """With their reason and bounds; the watermark moves; one that is processed stays so."""
    run(ledger, TEN)
    left_out = [
        Skipped(f"j:{iso(TEN)}", TEN, ELEVEN, rows.CONDITION_FALSE),
        Skipped(f"j:{iso(ELEVEN)}", ELEVEN, ELEVEN + 2 * HOUR, rows.CONDITION_FALSE, True, 2),
    ]
    begin(ledger, skipped=tuple(left_out))
    assert state(ledger, TEN) == (rows.PROCESSED, 1, 0)
    row = ledger.window("j", f"j:{iso(ELEVEN)}")
    assert row is not None
    assert (row.state, row.reason, row.windows, row.partial) == (
        "skipped",
        "condition-false",
        2,
        True,
    )
    assert watermark(ledger) == ELEVEN + 2 * HOUR
    assert ledger.problems() == []
