"""What is not done without a person's word: on a clock that can't be right, on another schedule.

A wrong clock moves the watermark into a future that the right one then waits for; two crontab lines
with one job name flip its grid at every call. Both have stopped jobs for a year without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from jobrun import options, rows, schedule, windows
from jobrun.errors import ConfigError, JobrunError, Refused
from jobrun.instants import DAY, MINUTE, duration, iso_z
from jobrun.plans import COUNTED
from jobrun.rows import GAP, UNFINISHED, Block, JobRow, Opening, Stored
from jobrun.windows import Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.schedule import Grid

YEAR_2000 = 946_684_800  # machines without a battery wake up in 1970
JUMP = 31 * DAY  # further ahead than any clock has been seen: not believed at once
BELIEVED_AFTER = 10 * MINUTE  # ... but by a second call that sees the same clock
JITTER = 5 * MINUTE  # time servers correct clocks by so much


def begin(name: str, row: JobRow | None, now: int, accept_clock: bool = False) -> Opening:
    """The opening of a call, with what is known of its clock: `keep_largest_now` means doubted.

    Raises Refused where the clock was never set.
    """
    if now < YEAR_2000:
        raise Refused(f"clock not set: it says {iso_z(now)}", "set the clock of this machine")
    opening = Opening(job=name, token=row.token if row else 0, now=now)
    if row is None or not row.largest_now or now - row.largest_now <= JUMP:
        return _without_old_pause(opening, row)
    seen = row.clock_jump_at
    if accept_clock or (seen is not None and BELIEVED_AFTER <= now - seen <= JUMP):
        believed = opening._replace(events=((None, "clock-believed", iso_z(now)),))
        return _without_old_pause(believed, row)
    doubted = opening._replace(clock_jump_at=seen, keep_largest_now=True)
    if seen is not None and 0 <= now - seen <= JUMP:
        return doubted
    event = (None, "clock-doubted", f"{iso_z(row.largest_now)} -> {iso_z(now)}")
    return doubted._replace(clock_jump_at=now, events=(event,))


def _without_old_pause(opening: Opening, row: JobRow | None) -> Opening:
    """A person's pause whose time is over ends with the next call, whatever that is for.

    Not on a clock that is doubted: a year ahead, and no pause would be left.
    """
    over = row is not None and row.pause is not None and not row.is_paused(opening.now)
    if row is None or not over or row.is_probed(opening.now):
        return opening
    return opening._replace(resumed_by=rows.BREAKER)


def refuse_far_behind(name: str, grid: Grid, known: Stored, mark: int, now: int) -> None:
    """R39: a watermark after now. Up to five minutes it is a skip, and none of this.

    The way back is to now, or to the start of a gap that reaches over it: what a clock that was
    ahead has given up is not done, and below the watermark nobody would miss it.
    """
    if mark - now > JITTER:
        raise Refused(
            f"{name}: the watermark {iso_z(mark)} is {duration(mark - now)} ahead of the clock,"
            f" {iso_z(now)}",
            way_back(name, grid, known.blocks, now),
        )


def way_back(name: str, grid: Grid, blocks: Callable[[int], Iterator[Block]], now: int) -> str:
    """What a person can do about a watermark that is ahead of the clock."""
    over = next(blocks(now), None)
    is_given_up = over is not None and over.state == GAP and over.start < now
    back = iso_z(over.start if over is not None and is_given_up else grid.floor(now))
    command = options.typed("watermark", name, "--set", back)
    return f'set the clock, or: {command} --reason "..."'


def is_far_behind(row: JobRow, grid: Grid, now: int) -> bool:
    """Whether a scheduled call at `now` would be refused for that."""
    is_ahead = row.watermark is not None and row.watermark - now > JITTER
    return is_ahead and not is_future_first(row, grid, now)


def is_future_first(row: JobRow, grid: Grid, now: int) -> bool:
    """Whether the watermark is ahead of the clock because `--first` asked for it."""
    if row.first in (None, "latest", "none"):
        return False
    first = windows.parse_when(row.first or "", grid.zone, now, row.name, "--first")
    return first == row.watermark


def is_new_schedule(job: Job, grid: Grid, known: Stored, row: JobRow, mark: int, now: int) -> bool:
    """Whether this call's schedule is another one than the stored, and may take its place.

    R34: with `--accept-schedule`; without it only where the change is plain: the watermark is a
    boundary of both, and there is at most one window to do. Raises ConfigError otherwise.
    """
    if row.schedule == grid.text:
        return False
    if row.schedule is None or job.accept_schedule:
        return True
    ready = now - job.lag
    due = len(list(islice(_due(grid, known, mark, ready), 2)))
    if windows.is_boundary(grid, mark) and due < 2:
        return True
    left, _ = windows.count_free(grid, mark, ready, known.blocks(mark), COUNTED)
    closed = f"{COUNTED}+" if left is None else str(left + len(known.unfinished))
    raise _changed(job, grid, row, mark, closed)


def _due(grid: Grid, known: Stored, mark: int, ready: int) -> Iterator[Window | Block]:
    for tile in windows.tiles(grid, mark, ready, known.blocks(mark)):
        if isinstance(tile, Window) or tile.state in UNFINISHED:
            yield tile


def _changed(job: Job, grid: Grid, row: JobRow, mark: int, closed: str) -> ConfigError:
    old = row.schedule or ""
    before, after = _next_window(old, mark), _next_window(grid.text, mark)
    return ConfigError(
        f'{job.name}: the schedule on record is "{old}", this call has "{grid.text}": the next'
        f" window is {before} by the one, {after} by the other, {closed} closed by now;"
        f" last called {_last_caller(row)}",
        ways_on(old),
        change(old, grid.text),
    )


def change(before: str, after: str) -> str:
    return f"{before} -> {after}"


def ways_on(before: str) -> str:
    """What a person can do about a schedule that wants consent."""
    return f"if the change is meant: --accept-schedule once; if not: {options_of(before)}"


def _next_window(text: str, mark: int) -> str:
    try:
        return f"{iso_z(mark)} to {iso_z(schedule.parse(text).next(mark))}"
    except JobrunError:  # a zone that is gone, say
        return "unknown"


def _last_caller(row: JobRow) -> str:
    from jobrun import lastcall

    last = lastcall.read(row.spec)
    how = "at a terminal" if last.terminal else "without a terminal"
    when = iso_z(row.last_seen if last.at is None else last.at)
    return f"by {last.caller or 'an unknown user'} {how} at {when}"


def options_of(text: str) -> str:
    """A canonical text as it is typed: --cron "0 2 * * *" --tz Europe/Berlin."""
    kind, _, rest = text.partition(" ")
    rest, _, zone = rest.partition(" tz=")
    rest, _, anchor = rest.partition(" anchor=")
    typed = f'--cron "{rest}"' if kind == "cron" else f"--every {rest}"
    return typed + (f" --tz {zone}" if zone else "") + (f" --anchor {anchor}" if anchor else "")
