"""What every ledger must do with pauses and failed windows in a row. Over every implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from jobrun import rows
from jobrun.instants import HOUR
from jobrun.ledger import Ledger
from jobrun.rows import BREAKER, Block, Breaker, Opening, Pause
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
)

ANNA = Pause(NOW, None, "anna@db1", "source down")
THREE = Breaker(3, None, None)


def kinds(ledger: Ledger) -> list[str]:
    found = [event.kind for event in reversed(ledger.events("j"))]
    return [kind for kind in found if kind in ("paused", "resumed")]


def fail(ledger: Ledger, start: int, breaker: Breaker | None = THREE) -> rows.Finished:
    return run(ledger, start, rows.FAILED_RUN, breaker=breaker)


def test_there_is_no_pause_of_an_unknown_job(ledger: Ledger) -> None:
    """Neither made nor ended, and no row comes of it."""
    assert not ledger.pause("j", ANNA)
    assert not ledger.resume("j", "anna@db1", NOW)
    assert ledger.job("j") is None


def test_a_pause_takes_no_token(again: Again) -> None:
    """Beside a run that goes on: its end is recorded, the next one is not claimed."""
    ledger = again()
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    assert again().pause("j", ANNA)
    finished = ledger.finish(result(opened.claimed, claim(TEN).key), claim(ELEVEN), hourly)
    assert (finished.outcome, finished.paused, finished.claimed) == (rows.SUCCEEDED, True, None)
    assert job_row(ledger).pause == ANNA


def test_nothing_is_written_for_a_call_that_is_paused_by_now(ledger: Ledger) -> None:
    """It planned before: None, as where another holder has been, and the token stays."""
    begin(ledger)
    ledger.pause("j", ANNA)
    token = job_row(ledger).token
    opening = Opening("j", token, NOW, events=((None, "blocked", ""),))
    assert ledger.open(opening, claim(TEN), hourly) is None
    assert job_row(ledger).token == token
    assert kinds(ledger) == ["paused"]
    assert ledger.runs() == []


def test_by_hand_a_pause_is_in_nobodys_way(ledger: Ledger) -> None:
    """The first claim and those after it."""
    begin(ledger)
    ledger.pause("j", ANNA)
    opened = begin(ledger, claim(TEN, by_hand=True))
    assert opened.claimed is not None
    ended = result(opened.claimed, claim(TEN).key, token=opened.token)
    finished = ledger.finish(ended, claim(ELEVEN, by_hand=True), hourly)
    assert not finished.paused
    assert finished.claimed is not None


@pytest.mark.parametrize(("until", "ends"), [(None, False), (NOW + 1, False), (NOW, True)])
def test_only_a_pause_whose_time_is_over_ends_by_itself(
    ledger: Ledger, until: int | None, ends: bool
) -> None:
    """A person may have written another one since the call planned."""
    begin(ledger)
    ledger.pause("j", ANNA._replace(until=until))
    begin(ledger, resumed_by=BREAKER)
    assert (job_row(ledger).pause is None) == ends
    assert ledger.resume("j", "anna@db1", NOW) == (not ends)
    assert kinds(ledger) == ["paused", "resumed"]


# -- windows that fail one after another ----------------------------------------------------------


def test_each_window_counts_once_since_the_last_processed_one(ledger: Ledger) -> None:
    """All within one second: it is told by the runs, not by the clock."""
    for start, failing in ((TEN, 1), (ELEVEN, 2), (TEN, 2), (ELEVEN, 2)):
        assert fail(ledger, start).tripped is None
        assert job_row(ledger).failing == failing
    run(ledger, TWELVE)
    assert (job_row(ledger).failing, job_row(ledger).failing_since) == (0, None)
    for start, failing in ((TWELVE + HOUR, 1), (ELEVEN, 2), (ELEVEN, 2)):
        fail(ledger, start)
        assert job_row(ledger).failing == failing
    tripped = fail(ledger, TEN).tripped
    assert tripped == Pause(NOW + 2, None, BREAKER, "3 windows failed")
    assert job_row(ledger).pause == tripped
    assert kinds(ledger) == ["paused"]


def test_a_window_counts_again_after_each_one_processed(ledger: Ledger) -> None:
    """Also after a pause that a person has ended: the count begins anew, for the same windows."""
    fail(ledger, TEN)
    run(ledger, ELEVEN)
    fail(ledger, TEN)
    assert job_row(ledger).failing == 1
    ledger.pause("j", ANNA)
    ledger.resume("j", "anna@db1", NOW)
    for failing in (1, 1):
        fail(ledger, TEN)
        assert job_row(ledger).failing == failing


@pytest.mark.parametrize("outcome", [rows.INTERRUPTED, rows.SUCCEEDED])
@pytest.mark.parametrize("kind", [rows.LOOKBACK, rows.RERUN])
def test_what_does_not_count(ledger: Ledger, outcome: str, kind: str) -> None:
    """An end that is no failure of a window in its turn, and what only runs again, either way."""
    run(ledger, TEN)
    fail(ledger, ELEVEN)
    run(ledger, TEN, outcome, kind=kind)
    run(ledger, TEN, rows.FAILED_RUN, kind=kind, breaker=THREE)
    assert job_row(ledger).failing == 1


def test_what_a_run_would_weigh_if_it_failed(ledger: Ledger) -> None:
    """As `plan` foresees it: once a window, and nothing of what a person has asked for."""

    def weight(start: int, **more: Any) -> int | None:
        claimed = begin(ledger, claim(start, **more)).claimed
        assert claimed is not None
        return ledger.weight(claimed.run_id)

    assert weight(TEN) == 1
    fail(ledger, TEN)
    assert (weight(TEN, kind=rows.RETRY), weight(ELEVEN)) == (0, 1)
    assert weight(ELEVEN, kind=rows.RETRY, by_hand=True) is None
    assert weight(TEN, kind=rows.LOOKBACK) is None
    assert ledger.weight(99) is None


def test_what_a_person_asked_for_does_not_count(ledger: Ledger) -> None:
    """Neither where it fails nor where it is lost."""
    for ends in (True, False):
        opened = begin(ledger, claim(TEN, kind=rows.RETRY, by_hand=True))
        assert opened.claimed is not None
        if ends:
            failed = {"outcome": rows.FAILED_RUN, "exit_code": 1, "breaker": THREE}
            ended = result(opened.claimed, claim(TEN).key, token=opened.token, **failed)
            ledger.finish(ended, None, hourly)
        else:
            begin(ledger, lost=(opened.claimed.run_id,), breaker=THREE)
        assert (job_row(ledger).failing, job_row(ledger).failing_since) == (0, None)


def test_a_lost_run_is_the_last_straw(ledger: Ledger) -> None:
    """All of the opening is written, and the claim alone is not made."""
    fail(ledger, TEN)
    first = begin(ledger, claim(ELEVEN)).claimed
    assert first is not None
    lost = {"lost": (first.run_id,), "events": ((None, "blocked", ""),)}
    opened = begin(ledger, claim(TWELVE), **lost, breaker=Breaker(2, 60, None))
    tripped = Pause(NOW, NOW + 60, BREAKER, "2 windows failed")
    assert (opened.claimed, opened.tripped) == (None, tripped)
    assert (job_row(ledger).pause, job_row(ledger).token) == (tripped, opened.token)
    assert [found.outcome for found in ledger.runs()] == [rows.LOST, rows.FAILED_RUN]
    assert [event.kind for event in ledger.events("j", limit=3)] == ["blocked", "paused", "lost"]


def test_a_lost_run_without_a_breaker_only_counts(ledger: Ledger) -> None:
    """As a call by hand finds it."""
    first = begin(ledger, claim(TEN)).claimed
    assert first is not None
    opened = begin(ledger, claim(TEN, kind=rows.RETRY), lost=(first.run_id,))
    assert opened.claimed is not None
    assert opened.tripped is None
    assert job_row(ledger).failing == 1


def test_those_that_wait_count_too(ledger: Ledger) -> None:
    """So many as closed since the first failure, asked for from that instant on, with what is on
    record: that does not wait."""
    asked = []

    def waiting(since: int, blocks: Callable[[int], Iterable[Block]]) -> int:
        asked.append(since)
        assert [(block.start, block.state) for block in blocks(TEN)] == [(TEN, rows.FAILED)]
        assert not list(blocks(ELEVEN))
        return len(asked) - 1

    breaker = Breaker(3, 60, waiting)
    assert [fail(ledger, TEN, breaker).tripped is not None for _ in range(3)] == [
        False,
        False,
        True,
    ]
    assert set(asked) == {NOW + 2}
    pause = job_row(ledger).pause
    assert pause is not None
    assert pause.until == NOW + 62
    assert pause.reason == "3 windows failed or wait for one that did"


def test_a_pause_of_a_person_is_not_overwritten(ledger: Ledger) -> None:
    """Made while the last straw ran."""
    for start in (TEN, ELEVEN):
        fail(ledger, start)
    opened = begin(ledger, claim(TWELVE))
    assert opened.claimed is not None
    ledger.pause("j", ANNA)
    failed = result(
        opened.claimed, claim(TWELVE).key, token=opened.token, outcome=rows.FAILED_RUN, exit_code=1,
        breaker=THREE,
    )  # fmt: skip
    assert ledger.finish(failed, None, hourly).tripped is None
    assert job_row(ledger).pause == ANNA


def test_a_failure_that_is_settled_later_is_weighed_then(ledger: Ledger) -> None:
    """Without being counted again; where a person has resumed the job since, it is forgotten."""
    for resumes in (True, False):
        opened = begin(ledger, claim(TEN))
        assert opened.claimed is not None
        failed = result(
            opened.claimed, claim(TEN).key, token=opened.token, outcome=rows.FAILED_RUN,
            exit_code=1, breaker=Breaker(1, None, None), goes_on=True,
        )  # fmt: skip
        assert ledger.finish(failed, None, hourly).tripped is None
        if resumes:
            ledger.pause("j", ANNA)
            ledger.resume("j", "anna@db1", NOW)
        tripped = None if resumes else Pause(NOW + 2, None, BREAKER, "1 window failed")
        assert ledger.stand(failed) == tripped
        assert (job_row(ledger).pause, job_row(ledger).failing) == (tripped, int(not resumes))


def test_a_probe_ends_the_pause_or_makes_it_longer(ledger: Ledger) -> None:
    """Failed: from then on, without an event; processed: over, with one."""
    breaker = Breaker(1, -2, None)  # its runs end two seconds after they begin
    first = fail(ledger, TEN, breaker).tripped
    assert first == Pause(NOW + 2, NOW, BREAKER, "1 window failed")
    assert fail(ledger, TEN, Breaker(1, -3, None)).tripped is None
    assert job_row(ledger).pause == first._replace(until=NOW - 1)
    assert kinds(ledger) == ["paused"]
    finished = run(ledger, TEN, breaker=breaker)
    assert finished.resumed == first._replace(until=NOW - 1)
    assert job_row(ledger).pause is None
    assert kinds(ledger) == ["paused", "resumed"]


def test_a_window_that_its_command_has_marked_is_processed(again: Again) -> None:
    """Whatever it answers then: nothing fails any more."""
    ledger = again()
    for start in (TEN, ELEVEN):
        fail(ledger, start)
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    mark(ledger, claim(TEN).key or "", opened.token)
    failed = {"outcome": rows.FAILED_RUN, "exit_code": 4, "breaker": THREE}
    ended = result(opened.claimed, claim(TEN).key, token=opened.token, **failed)
    assert ledger.finish(ended, None, hourly).marked
    assert job_row(ledger).failing == 0
