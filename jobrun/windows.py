"""Windows: half-open intervals between boundaries, their keys, and those that have closed. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from jobrun.errors import UsageError
from jobrun.instants import DAY, from_iso, iso, iso_z
from jobrun.rows import Block
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

    from jobrun.schedule import Grid


class Window(NamedTuple):
    """[start, end). `partial`: its bounds are not those of the grid (a seam, or cut by a row)."""

    start: int
    end: int
    partial: bool = False
    windows: int = 1  # how many of the grid it stands for, where it is merged


def key(job: str, start: int) -> str:
    """`JOB:2026-09-04T10:00:00+00:00`: no `:` is in a job's name, so it splits at its first one."""
    return f"{job}:{iso(start)}"


def slug(job: str, start: int) -> str:
    """The key as part of a file name, on Windows too: sales-summary_20260904T100000Z."""
    return f"{job}_{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(start))}"


def is_boundary(grid: Grid, instant: int) -> bool:
    return grid.floor(instant) == instant


def tiles(grid: Grid, start: int, ready: int, blocks: Iterable[Block]) -> Iterator[Window | Block]:
    """From `start` on, in order and without a hole: what is on record, and the windows between.

    As far as it has ended by `ready`, which is now less the lag. `blocks` are those that end after
    `start`, by start. Lazy: nothing beyond what is drawn is computed.
    """
    for free_from, free_to, block in stretches(start, ready, blocks):
        yield from cut(grid, free_from, free_to, ready)
        if block is not None:
            yield block


def stretches(
    start: int, ready: int, blocks: Iterable[Block]
) -> Iterator[tuple[int, int | None, Block | None]]:
    """Free stretches, each with the block that ends it; the last is open: (start, None, None)."""
    for block in blocks:
        if block.start >= ready:
            break
        if block.end > start:
            yield start, max(start, block.start), block
            start = block.end
    yield start, None, None


def cut(grid: Grid, start: int, until: int | None, ready: int) -> Iterator[Window]:
    """The windows of [start, until) that have ended by `ready`; the last may be cut short."""
    at_boundary = start < ready and is_boundary(grid, start)
    while start < ready and (until is None or start < until):
        whole = grid.next(start)
        end = whole if until is None else min(whole, until)
        if end > ready:
            return
        yield Window(start, end, partial=not at_boundary or end != whole)
        start, at_boundary = end, end == whole


def closed_windows(
    grid: Grid, watermark: int, now: int, lag: int, blocks: Iterable[Block]
) -> Iterator[Window]:
    """The windows from the watermark on that have closed and are not on record, oldest first."""
    for tile in tiles(grid, watermark, now - lag, blocks):
        if isinstance(tile, Window):
            yield tile


def merged(
    grid: Grid, start: int, ready: int, blocks: Iterable[Block], split: int
) -> Iterator[Window | Block]:
    """The same as `tiles`, with one window for each free stretch.

    Two for the one that `split` lies in: what has ended by then is a window of its own.
    """
    for free_from, free_to, block in stretches(start, ready, blocks):
        for limit in (min(split, ready), ready):
            end = closed_end(grid, free_from, free_to, limit)
            if end > free_from:
                partial = not (is_boundary(grid, free_from) and is_boundary(grid, end))
                yield Window(free_from, end, partial, count(grid, free_from, end) or 1)
                free_from = end
        if block is not None:
            yield block


def count_free(
    grid: Grid, start: int, ready: int, blocks: Iterable[Block], limit: int
) -> tuple[int | None, int | None]:
    """How many closed windows from `start` on are not on record, and where the first starts.

    None where they, or the blocks among them, are more than `limit` and counting would be slow.
    """
    total, first = 0, None
    for turn, (free_from, free_to, _) in enumerate(stretches(start, ready, blocks)):
        free = count(grid, free_from, closed_end(grid, free_from, free_to, ready), limit)
        if free != 0 and first is None:
            first = free_from
        if free is None or turn > limit:
            return None, first
        total += free
    return total, first


def check_boundary(grid: Grid, instant: int, option: str, typed: str) -> None:
    """Raises UsageError that names the boundaries on both sides."""
    below = grid.floor(instant)
    if below != instant:
        raise UsageError(
            f'{option} "{typed}" is no boundary of "{grid.text}": the nearest are'
            f" {iso_z(below)} and {iso_z(grid.next(instant))}",
            f"{option} {iso_z(below)}",
        )


def closed_end(grid: Grid, start: int, until: int | None, ready: int) -> int:
    """Where the closed windows of [start, until) end; `start` where there are none."""
    if until is not None and until <= ready:
        return until
    return max(start, grid.floor(ready)) if ready > start else start


def count(grid: Grid, start: int, end: int, limit: int | None = None) -> int | None:
    """How many windows `cut` would give for [start, end); None for more than `limit`."""
    whole = grid.count(start, end, limit)
    if whole is None or start >= end:
        return whole
    return whole if is_boundary(grid, end) else whole + 1


# -- instants as a person types them ---------------------------------------------------------------


def parse_when(
    text: str, tz: str, now: int | None = None, job: str | None = None, option: str = "WHEN"
) -> int:
    """WHEN and INSTANT: ISO 8601 with an offset or Z; a day, `today` or `yesterday` in `tz`; a key.

    `today` and `yesterday` need `now`, keys need `job`. Raises UsageError; for a time without a
    zone it names the spellings that would be right.
    """
    if job is not None and text.startswith(f"{job}:"):
        text = text.removeprefix(f"{job}:")
    if now is not None and text in ("today", "yesterday"):
        return _day_back(now, tz, 1 if text == "yesterday" else 0)
    found = _read_iso(text)
    if found is None:
        raise UsageError(
            f'{option} "{text}": an instant is 2026-09-04T10:00Z, with an offset or Z; or a day',
            f"{option} 2026-09-04T10:00Z",
        )
    if not 1970 <= found.year <= 9997:
        raise _outside(text, option)
    if len(text) == 10:
        return _checked(_start_of_day(found.toordinal(), tz), text, option)
    if found.tzinfo is None:
        raise _no_zone(text, tz, option)
    return _checked(int(found.timestamp()), text, option)


def _read_iso(text: str) -> datetime | None:
    """A day, or a day and a time in whole seconds; None for any other form that Python knows."""
    from datetime import datetime

    if not (text.isascii() and text[4:5] == text[7:8] == "-" and text[10:11] in ("", "T", " ")):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    offset = found.utcoffset()
    whole = not found.microsecond and (offset is None or not offset.microseconds)
    return found if whole else None


def _checked(instant: int, text: str, option: str) -> int:
    if not 2 * DAY <= instant < from_iso("9998-01-01T00:00:00+00:00"):
        raise _outside(text, option)
    return instant


def _outside(text: str, option: str) -> UsageError:
    return UsageError(f'{option} "{text}": outside the years 1970 to 9997')


def _start_of_day(day: int, tz: str) -> int:
    from jobrun.walls import load_zone, start_of_day

    return start_of_day(day, load_zone(tz))


def _day_back(now: int, tz: str, days: int) -> int:
    from jobrun.walls import day_of, load_zone

    return _start_of_day(day_of(now, load_zone(tz)) - days, tz)


def _no_zone(text: str, tz: str, option: str) -> UsageError:
    from datetime import datetime

    from jobrun.walls import load_zone

    right = [f"{text}Z (UTC)"]
    aware = datetime.fromisoformat(text).replace(tzinfo=load_zone(tz))
    if tz != "UTC":
        offset = aware.isoformat()[19:]
        right.append(f"{text}{offset} ({tz}, this job's zone)")
    return UsageError(
        f'{option} "{text}" has no zone', f"{', '.join(right)}, or a day: {text[:10]}"
    )
