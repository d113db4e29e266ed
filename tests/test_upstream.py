"""Whether an upstream has come far enough: R44 on blocks, without a ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrun import links, rows, schedule, upstream
from jobrun.rows import Block, Source
from jobrun.upstream import NOT_RUN, Upstream


def made(wants: str, mark: int | None, blocks: Iterable[Block]) -> tuple[Upstream, list[int]]:
    """An upstream and where its blocks were asked for."""
    known, asked = sorted(blocks), []

    def since(job: str, at: int) -> Iterator[Block]:
        asked.append(at)
        return (block for block in known if block.end > at)

    source = Source(lambda name: None, since, lambda name, key: {})
    return Upstream("up", wants, mark, source), asked


def block(start: int, end: int, state: str = rows.PROCESSED) -> Block:
    return Block(start, end, state, None, None)


def test_windows_in_order_read_the_upstream_once() -> None:
    """A hundred windows of ours are one reading of the other job's rows; a look back is another."""
    up, asked = made(links.PROCESSED, 100, [block(at, at + 1) for at in range(100)])
    assert all(up.hurdle("j:x", at, at + 1) is None for at in range(100))
    assert asked == [0]
    assert up.hurdle("j:x", 50, 60) is None
    assert asked == [0, 50]


def test_a_merged_window_reads_the_upstream_once() -> None:
    """How far it may go, and whether it may run, is one reading, up to the first in the way."""
    known = [*(block(at, at + 1) for at in range(100)), block(100, 101, "dead")]
    up, asked = made(links.PROCESSED, 200, known)
    assert upstream.reach((up,), 10, 200) == 100
    assert up.hurdle("j:x", 10, 100) is None
    assert asked == [10]
    assert up.hurdle("j:x", 10, 101) is not None


def test_the_newest_window_is_looked_at_first() -> None:
    """What lies below it is read where it can't run, and once."""
    known = [block(at, at + 1, "dead" if at in (5, 7, 8, 9) else "processed") for at in range(20)]
    up, asked = made(links.PROCESSED, 20, known)
    grid = schedule.parse("every 1s")
    assert upstream.newest((up,), grid, 0, 20) == 20
    assert asked == [19]
    asked.clear()
    assert upstream.newest((up,), grid, 0, 10) == 7
    assert asked == [9, 0]
    assert upstream.newest((up,), grid, 5, 6) == 5
    other, _ = made(links.PROCESSED, 15, [block(0, 6), block(6, 7, "skipped"), block(7, 15)])
    assert upstream.newest((up, other), grid, 0, 10) == 5
    assert upstream.newest((up, other), grid, 0, 99) == 15


@pytest.mark.parametrize(
    ("mark", "blocks", "found"),
    [
        (10, [block(0, 10)], None),
        (10, [block(0, 4), block(4, 10)], None),
        (12, [block(-3, 5), block(5, 12)], None),
        (9, [block(0, 9)], ("upstream-pending", None)),
        (None, [], ("upstream-pending", None)),
        (10, [block(0, 4), block(4, 10, "dead")], ("upstream-failed", "dead")),
        (4, [block(0, 4), block(8, 10, "dead")], ("upstream-failed", "dead")),
        (10, [block(0, 4), block(6, 10)], ("upstream-failed", NOT_RUN)),
        (10, [block(2, 10)], ("upstream-failed", NOT_RUN)),
        (10, [block(0, 8)], ("upstream-failed", NOT_RUN)),
        (10, [], ("upstream-failed", NOT_RUN)),
        (10, [block(0, 10, "failed")], ("upstream-pending", "failed")),
        (10, [block(0, 10, "running")], ("upstream-pending", "running")),
        (5, [block(0, 5), block(5, 10, "held")], ("upstream-pending", "held")),
        (10, [block(-5, 0, "dead"), block(0, 10), block(10, 11, "dead")], None),
    ],
)
def test_R44_for_the_window_0_to_10(
    mark: int | None, blocks: list[Block], found: tuple[str, str | None] | None
) -> None:
    """R44: all of it processed, and the watermark not before its end; neighbours don't matter."""
    skip = made(links.PROCESSED, mark, blocks)[0].hurdle("j:x", 0, 10)
    assert found == (skip and (skip.reason, skip.fields.get("state")))
    only_ended = made(links.FINISHED, mark, blocks)[0].hurdle("j:x", 0, 10)
    assert (only_ended is None) == (mark is not None and mark >= 10)


STATES = ("processed", "dead", "skipped", "gap", "failed", "running", "held")


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[Block]]:
    """A watermark, and blocks of any length with holes between them."""
    blocks, at = [], 0
    for hole, length in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=8)):
        blocks.append(block(at + hole, at + hole + length, draw(st.sampled_from(STATES))))
        at += hole + length
    return draw(st.integers(0, 30)), blocks


@given(histories(), st.lists(st.tuples(st.integers(0, 24), st.integers(1, 8)), max_size=6))
def test_R44_second_by_second(
    history: tuple[int, list[Block]], windows: list[tuple[int, int]]
) -> None:
    """R44 as a statement on each second of the window, whatever was asked before."""
    mark, blocks = history
    up, _ = made(links.PROCESSED, mark, blocks)
    for start, length in windows:
        end = start + length
        states = {
            next((b.state for b in blocks if b.start <= at < b.end), NOT_RUN if at < mark else None)
            for at in range(start, end)
        }
        expected = "upstream-pending"
        if states & {"dead", "skipped", "gap", NOT_RUN}:
            expected = "upstream-failed"
        elif mark >= end and states == {"processed"}:
            expected = ""
        skip = up.hurdle("j:x", start, end)
        assert expected == ("" if skip is None else skip.reason)


@given(histories(), histories(), st.integers(0, 20), st.integers(0, 30), st.integers(1, 3))
def test_how_far_a_call_may_go_is_as_its_windows_are_asked_for(
    one: tuple[int, list[Block]], two: tuple[int, list[Block]], start: int, end: int, length: int
) -> None:
    """`merge`: one window to there may run, none beyond it; `latest`: the newest that may."""
    grid = schedule.parse(f"every {length}s")
    start, end = grid.floor(start), grid.floor(end)

    def fresh() -> tuple[Upstream, ...]:
        return tuple(made(links.PROCESSED, *history)[0] for history in (one, two))

    def runs(first: int, last: int) -> bool:
        return upstream.hurdle(fresh(), "j:x", first, last) is None

    ups = fresh()
    reach = upstream.reach(ups, start, end)
    for at in range(start + 1, end + 1):
        assert runs(start, at) == (at <= reach)
        assert (upstream.hurdle(ups, "j:x", start, at) is None) == (at <= reach)
    may = [at for at in range(start, end, length) if runs(at, at + length)]
    newest = grid.floor(upstream.newest(fresh(), grid, start, end))
    assert max(newest, start) == (may[-1] + length if may else start)


def test_of_several_what_needs_a_person_comes_first() -> None:
    """And none of them is asked for more than it knows."""
    late, _ = made(links.PROCESSED, 5, [block(0, 5)])
    dead, _ = made(links.PROCESSED, 10, [block(0, 10, "dead")])
    fine, _ = made(links.PROCESSED, 10, [block(0, 10)])
    assert upstream.hurdle((fine, fine), "j:x", 0, 10) is None
    for several in ((late, dead), (dead, late)):
        skip = upstream.hurdle((fine, *several), "j:x", 0, 10)
        assert skip is not None
        assert skip.reason == "upstream-failed"
