"""Windows: keys, tiling around what is on record, and instants as a person types them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrun import schedule, windows
from jobrun.errors import UsageError
from jobrun.instants import HOUR
from jobrun.rows import Block
from jobrun.windows import Window, parse_when
from tests.model import at

HOURLY = schedule.parse("every 1h")
DAILY = schedule.parse("every 1d")
T0 = at("2026-09-04T00:00")


def block(start: int, end: int, state: str = "processed") -> Block:
    """Hours of 2026-09-04."""
    return Block(T0 + start * HOUR, T0 + end * HOUR, state, f"j:{start}", None)


def hours(*bounds: int | tuple[int, ...]) -> list[tuple[int, ...]]:
    return [bound if isinstance(bound, tuple) else (bound, bound + 1) for bound in bounds]


def in_hours(found: list[Window]) -> list[tuple[int, ...]]:
    return [((w.start - T0) // HOUR, (w.end - T0) // HOUR) for w in found]


# -- keys ----------------------------------------------------------------------------------------


def test_a_key_is_the_job_and_the_start() -> None:
    """R3, S4: with an offset, so that no two share one; and it splits at its first colon."""
    key = windows.key("sales-summary", at("2026-09-04T10:00"))
    assert key == "sales-summary:2026-09-04T10:00:00+00:00"
    assert key.split(":", 1) == ["sales-summary", "2026-09-04T10:00:00+00:00"]


def test_a_slug_has_no_colon() -> None:
    """R4: a file name, on Windows too; a percent sign or a name in any script changes nothing."""
    assert windows.slug("sales-summary", at("2026-09-04T10:00")) == "sales-summary_20260904T100000Z"
    assert windows.slug("günlük", at("2038-01-19T03:14:08")) == "günlük_20380119T031408Z"


@given(st.lists(st.integers(946_684_800, 4_102_444_800), min_size=2, unique=True))
def test_keys_sort_as_time_does(starts: list[int]) -> None:
    """R3: over 2038 and 2099 too."""
    keys = [windows.key("j", start) for start in sorted(starts)]
    assert keys == sorted(set(keys))


# -- tiling --------------------------------------------------------------------------------------


def closed(mark: int, now: float, *blocks: Block, grid: schedule.Grid = HOURLY) -> list[Window]:
    instant = T0 + int(now * HOUR)
    return list(windows.closed_windows(grid, T0 + mark * HOUR, instant, 0, iter(blocks)))


def test_windows_close_when_their_end_is_reached() -> None:
    """R19, R20: from the watermark, boundary to boundary, as far as end + lag <= now."""
    assert hours(10, 11) == in_hours(closed(10, 12))
    assert hours(10) == in_hours(closed(10, 11.99))
    assert closed(10, 10.5) == []
    lagging = windows.closed_windows(HOURLY, T0, T0 + 2 * HOUR, HOUR, iter(()))
    assert hours(0) == in_hours(list(lagging))


def test_windows_go_around_what_is_on_record() -> None:
    """R5, R19: rows and gaps are never planned again, and cut what would reach over them."""
    assert hours(10, 13) == in_hours(closed(10, 14, block(11, 13)))
    seams = closed(10, 25, block(12, 13), grid=DAILY)
    assert hours((10, 12), (13, 24)) == in_hours(seams)
    assert [window.partial for window in seams] == [True, True]
    assert hours(13) == in_hours(closed(10, 14, block(9, 12), block(11, 13)))


def test_a_cut_window_closes_at_its_own_end() -> None:
    """The day has not ended, what is left of it before the next row has."""
    assert hours((10, 12)) == in_hours(closed(10, 20, block(12, 13), grid=DAILY))


@given(
    mark=st.integers(0, 30),
    now=st.integers(0, 60),
    cuts=st.lists(st.integers(0, 60), max_size=8, unique=True),
)
def test_tiles_leave_no_hole_and_no_overlap(mark: int, now: int, cuts: list[int]) -> None:
    """R2, R17: whatever is on record, from the watermark each tile begins where the last ended."""
    edges = sorted(cuts)
    pairs = zip(edges[::2], edges[1::2], strict=False)
    blocks = [block(a, b) for a, b in pairs if b > mark]
    position = T0 + mark * HOUR
    for tile in windows.tiles(DAILY, position, T0 + now * HOUR, iter(blocks)):
        assert tile.start <= position < tile.end
        assert isinstance(tile, Block) or tile.start == position
        position = tile.end


def test_a_merged_window_ends_before_the_next_row() -> None:
    """R29: one window over each free stretch; it says how many it stands for."""
    ready = T0 + 9 * HOUR + 60
    found = windows.merged(HOURLY, T0, ready, iter([block(4, 5)]), ready)
    merged = [tile for tile in found if isinstance(tile, Window)]
    assert hours((0, 4), (5, 9)) == in_hours(merged)
    assert [window.windows for window in merged] == [4, 4]
    assert [window.partial for window in merged] == [False, False]


@pytest.mark.parametrize(
    ("split", "parts"),
    [
        (0, ((0, 4), (5, 9))), (2, ((0, 2), (2, 4), (5, 9))), (4, ((0, 4), (5, 9))),
        (7, ((0, 4), (5, 7), (7, 9))), (9, ((0, 4), (5, 9))), (30, ((0, 4), (5, 9))),
    ],
)  # fmt: skip
def test_a_merged_window_is_two_where_only_the_first_may_run(
    split: int, parts: tuple[tuple[int, int], ...]
) -> None:
    """So far the upstreams have come; what has ended by then does not wait for the rest."""
    at = T0 + split * HOUR
    for within in (0, 60):
        found = windows.merged(HOURLY, T0, T0 + 9 * HOUR + 90, iter([block(4, 5)]), at + within)
        merged = [tile for tile in found if isinstance(tile, Window)]
        assert hours(*parts) == in_hours(merged)
        assert sum(window.windows for window in merged) == 8


def test_counting_is_what_tiling_would_give() -> None:
    """The number of what is left, without making each window; cut ones count."""
    blocks = [block(3, 5), block(7, 8)]
    for grid in (HOURLY, DAILY, schedule.parse("cron 0 */5 * * *")):
        for mark in (0, 1, 4, 9):
            live = [b for b in blocks if b.end > T0 + mark * HOUR]
            span = T0 + mark * HOUR, T0 + 49 * HOUR + 60
            tiles = [t for t in windows.tiles(grid, *span, iter(live)) if isinstance(t, Window)]
            counted = windows.count_free(grid, *span, iter(live), 10_000)
            assert (len(tiles), tiles[0].start) == counted
    assert windows.count_free(
        schedule.parse("cron * * * * *"), T0, T0 + 9_000 * HOUR, (), 10_000
    ) == (None, T0)


# -- instants as they are typed ------------------------------------------------------------------


NOW = at("2026-09-04T12:05")


@pytest.mark.parametrize(
    ("typed", "zone", "instant"),
    [
        ("2026-09-04T10:00Z", "UTC", "2026-09-04T10:00"),
        ("2026-09-04T10:00:00+00:00", "UTC", "2026-09-04T10:00"),
        ("2026-09-04T10:00+02:00", "Europe/Berlin", "2026-09-04T08:00"),
        ("2026-09-04 10:00Z", "UTC", "2026-09-04T10:00"),
        ("2026-09-04", "UTC", "2026-09-04T00:00"),
        ("2026-09-04", "Europe/Istanbul", "2026-09-03T21:00"),
        ("2026-04-24", "Africa/Cairo", "2026-04-23T22:00"),  # it begins at one o'clock
        ("today", "Europe/Istanbul", "2026-09-03T21:00"),
        ("yesterday", "UTC", "2026-09-03T00:00"),
        ("sales:2026-09-04T10:00:00+00:00", "UTC", "2026-09-04T10:00"),
    ],
)
def test_when(typed: str, zone: str, instant: str) -> None:
    """ISO 8601 with an offset or Z; a day in the job's zone; today, yesterday; a key as printed."""
    assert at(instant) == parse_when(typed, zone, NOW, "sales")


@pytest.mark.parametrize(
    "typed",
    [
        "10:00", "now", "tomorrow", "2026-09-04T", "2026-13-01", "2026-09-04T25:00Z", "2026-W36-5",
        "20260904T100000Z", "2026-09-04T10:00:00.5Z", "1969-12-31", "9999-01-01", "", "2026-09",
        "1788519600", "other:2026-09-04T10:00:00+00:00",
        "２０２６-09-04",
    ],
)  # fmt: skip
def test_when_is_refused(typed: str) -> None:
    """What is no instant, or no whole second, or a year that nothing here can hold."""
    with pytest.raises(UsageError) as refused:
        parse_when(typed, "UTC", NOW, "sales", "--window")
    assert refused.value.message.startswith(f'--window "{typed}"')


def test_a_time_without_a_zone_is_told_the_right_spellings() -> None:
    """Both of them, with the offset that the job's zone has at that time."""
    with pytest.raises(UsageError) as refused:
        parse_when("2026-09-03T02:00", "Europe/Berlin", NOW, "sales", "--from")
    assert refused.value.message == '--from "2026-09-03T02:00" has no zone'
    assert refused.value.hint == (
        "2026-09-03T02:00Z (UTC), 2026-09-03T02:00+02:00 (Europe/Berlin, this job's zone),"
        " or a day: 2026-09-03"
    )
    with pytest.raises(UsageError) as refused:
        parse_when("2026-09-03T02:00", "UTC", NOW, "sales", "--from")
    assert refused.value.hint == "2026-09-03T02:00Z (UTC), or a day: 2026-09-03"
