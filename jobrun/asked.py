"""What a person asks for by hand: a window, again, a range, to be skipped, another watermark.

The watermark stays where it is, but for `plan_watermark` and `plan_resume`; what is asked for must
be windows of the grid, closed, with the bounds that are on record where one has run before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from jobrun import consent, options, rows, windows
from jobrun.backlog import Backlog, events_of, give_up_all_but_newest, notes_of
from jobrun.errors import Refused, UsageError
from jobrun.instants import iso_z
from jobrun.plans import COUNTED, TAKEN, Note, Plan, Skip, Unit, note
from jobrun.rows import GAP, Block, Gap, Opening, Stored
from jobrun.windows import Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.schedule import Grid


IN_PARALLEL = 200_000  # windows of a range that several work on

Event = tuple[str | None, str, str]  # key, kind, detail
Marked = tuple[tuple[str, int, int], ...]  # key, start, end

# -- one window ------------------------------------------------------------------------------------


def plan_window(job: Job, grid: Grid, known: Stored, now: int) -> Plan:
    """`--window WHEN`: though its turn has not come; key-exists where it is processed."""
    return _plan_one(job, grid, known, now, "--window", again=False)


def plan_rerun(job: Job, grid: Grid, known: Stored, now: int) -> Plan:
    """`rerun JOB WHEN`: processed or not, with the bounds on record (R41)."""
    return _plan_one(job, grid, known, now, "WHEN", again=True)


def _plan_one(job: Job, grid: Grid, known: Stored, now: int, option: str, again: bool) -> Plan:
    plan = Plan(_opening(job.name, grid, known, now))
    typed = job.window or ""
    start = windows.parse_when(typed, grid.zone, now, job.name, option)
    window, block = _window_at(grid, known, start, option, typed, again)
    key = windows.key(job.name, start)
    if window.end + job.lag > now:
        return plan._replace(skips=(Skip(rows.NOT_CLOSED, key, {"next": window.end + job.lag}),))
    if block is not None and block.state == rows.PROCESSED and not again:
        return plan._replace(skips=(Skip(rows.KEY_EXISTS, key, {}),))
    return plan._replace(units=(_unit(job.name, known, window, block is not None),))


def _opening(name: str, grid: Grid, known: Stored, now: int) -> Opening:
    opening = consent.begin(name, known.job, now)
    stored = known.job is not None and known.job.schedule is not None
    return opening if stored else opening._replace(schedule=grid.text)


def _window_at(
    grid: Grid, known: Stored, start: int, option: str, typed: str, on_record: bool
) -> tuple[Window, Block | None]:
    """The window that starts there, and its row. With `on_record` the row's bounds are taken.

    Raises UsageError where no window starts, or where one with other bounds is on record (R5).
    """
    mark = known.job.watermark if known.job else None
    row = next(_rows(known, start, start + 1), None)
    row_is_it = row is not None and row.start == start
    if not row_is_it and start != mark:
        windows.check_boundary(grid, start, option, typed)
    end = grid.next(start)
    inside = next(_rows(known, start, end), None)
    if row_is_it and row is not None and (on_record or row.start != grid.floor(start)):
        end = row.end
    elif start == mark and inside is not None and inside.start > start:
        end = inside.start  # the seam that a scheduled call would run
    elif inside is not None and (inside.start, inside.end) != (start, end):
        raise _other_bounds(start, end, inside, option, typed)
    if row_is_it and row is not None and row.end == end:
        return _as_on_record(row), row
    return _window_of(grid, start, end), row if row_is_it else None


def _as_on_record(row: Block) -> Window:
    return Window(row.start, row.end, row.partial, row.windows)


def _blocks(known: Stored, start: int, end: int) -> Iterator[Block]:
    """What is on record and meets [start, end)."""
    return takewhile(lambda block: block.start < end, known.blocks(start))


def _rows(known: Stored, start: int, end: int) -> Iterator[Block]:
    """The windows among it, not the gaps."""
    return (block for block in _blocks(known, start, end) if block.state != GAP)


def _other_bounds(start: int, end: int, row: Block, option: str, typed: str) -> UsageError:
    recorded = f"{row.key}, {_span(row.start, row.end)}"
    return UsageError(
        f'{option} "{typed}" is {_span(start, end)}; on record is {recorded}',
        f"{_rerun(row)} runs the one on record",
    )


def _rerun(row: Block) -> str:
    key = row.key or ""
    return options.again("rerun", key.partition(":")[0], key)


def _span(start: int, end: int) -> str:
    return f"{iso_z(start)} to {iso_z(end)}"


def _unit(name: str, known: Stored, window: Window, exists: bool) -> Unit:
    """As on record where it is unfinished; a finished row tells its bounds only."""
    key = windows.key(name, window.start)
    for row in known.unfinished:
        if row.key == key:
            return Unit(key, row.start, row.end, rows.RERUN, row.partial, row.windows)
    kind = rows.RERUN if exists else rows.BACKFILL
    return Unit(key, window.start, window.end, kind, window.partial, window.windows)


# -- a range ---------------------------------------------------------------------------------------


def plan_range(job: Job, grid: Grid, known: Stored, now: int) -> Plan:
    """`backfill JOB --from A --to B`: [A, B), oldest first, below the watermark (R42).

    `--redo` says which finished windows run again: none, failed (dead ones), all. What was skipped
    or lies in a gap runs in any case. Not capped: it would begin anew at the next call.
    """
    opening = _opening(job.name, grid, known, now)
    most = COUNTED if job.parallel is None else IN_PARALLEL
    start, end = _range(job.name, grid, job.since or "", job.until or "", now, known, most)
    mark = known.job.watermark if known.job else None
    if mark is None or end > mark:
        done = "nothing is done yet" if mark is None else f"it is done to {iso_z(mark)}"
        run = options.typed("run", job.name, "--first", "A")
        hint = f"--to {iso_z(mark)}" if mark else f"{run} does them in order"
        raise UsageError(f"--to {job.until} is above what is done: {done}", hint)
    if end > now:  # done to there by a clock that was ahead: what has not closed is not run
        hint = f"--to {iso_z(grid.floor(now))}"
        raise UsageError(f"--to {job.until} is after now, {iso_z(now)}", hint)
    kept = _NOT_REDONE[job.redo]
    units: list[Unit] = []
    skips: list[Skip] = []
    tokens: dict[str, int] = {}
    for tile in windows.tiles(grid, start, end, _inside(known, start, end)):
        if isinstance(tile, Window):
            units.append(_unit(job.name, known, tile, False))
        elif tile.state in kept:
            state = None if tile.state == rows.PROCESSED else tile.state
            skips.append(Skip(rows.KEY_EXISTS, tile.key, {"state": state}))
        else:
            units.append(_unit(job.name, known, _as_on_record(tile), True))
            tokens[tile.key or ""] = TAKEN if tile.state == rows.RUNNING else tile.token or 0
    count = len(units) + len(skips)
    plan = Plan(opening, tuple(units), tuple(skips), windows=count, tokens=tokens)
    return plan._replace(notes=(_echo(job.name, grid, start, end, count),))


# By `--redo`: the states that stay as they are.
_NOT_REDONE = {"none": (rows.PROCESSED, rows.DEAD), "failed": (rows.PROCESSED,), "all": ()}


def _range(
    name: str, grid: Grid, since: str, until: str, now: int, known: Stored, most: int = COUNTED
) -> tuple[int, int]:
    """The bounds of a range: boundaries, or the edges of what is on record."""
    start = windows.parse_when(since, grid.zone, now, name, "--from")
    end = windows.parse_when(until, grid.zone, now, name, "--to")
    if start >= end:
        rule = "a range is half-open: [from, to)"
        raise UsageError(f"--from {since} --to {until}: {rule}", f"--to {iso_z(grid.next(start))}")
    for at, option, typed in ((start, "--from", since), (end, "--to", until)):
        if not _is_edge(known, at):
            windows.check_boundary(grid, at, option, typed)
    if grid.count(start, end, most) is None or (grid.count(start, end) or 0) > most:
        rule = f"more than {most} windows are not done in one go"
        raise UsageError(f"--from {since} --to {until}: {rule}", "a shorter range")
    return start, end


def _is_edge(known: Stored, at: int) -> bool:
    """Whether the watermark or a row on record lies there, boundary of this grid or not."""
    if known.job is not None and at == known.job.watermark:
        return True
    return any(at in (row.start, row.end) for row in _rows(known, at - 1, at + 1))


def _inside(known: Stored, start: int, end: int) -> Iterator[Block]:
    """The rows of a range. Raises UsageError where one reaches over its ends."""
    for row in _rows(known, start, end):
        _refuse_cut(row, start, end)
        yield row


def _refuse_cut(row: Block, start: int, end: int) -> None:
    if row.start < start or row.end > end:
        raise UsageError(
            f"the range {_span(start, end)} cuts {row.key}, {_span(row.start, row.end)}",
            f"--from {iso_z(min(start, row.start))} --to {iso_z(max(end, row.end))}",
        )


def _window_of(grid: Grid, start: int, end: int) -> Window:
    partial = not (windows.is_boundary(grid, start) and windows.is_boundary(grid, end))
    return Window(start, end, partial, windows.count(grid, start, end) or 1)


def _echo(name: str, grid: Grid, start: int, end: int, count: int) -> Note:
    """Half-open ranges are read as closed ones: say where the last window starts."""
    last = max(start, grid.floor(end - 1))
    number = f"{count} window{'' if count == 1 else 's'}"
    text = f"{number}, {_span(start, end)}, the last starts {iso_z(last)}"
    return note("NOTE", name, "backfill", text, window=(start, end), windows=count)


# -- finished by hand ------------------------------------------------------------------------------


def plan_skip(
    name: str,
    grid: Grid,
    known: Stored,
    now: int,
    when: str | None,
    since: str | None,
    until: str | None,
    reason: str,
) -> Plan:
    """`skip JOB WHEN` or `--from A --to B`: failed windows and what is pending become finished.

    `rows` of the plan are to be marked, its opening has a gap for each pending stretch. Raises
    UsageError for windows that are open or processed: nothing is changed then.
    """
    if when is not None:
        start = windows.parse_when(when, grid.zone, now, name)
        window, block = _window_at(grid, known, start, "WHEN", when, True)
        if block is not None and block.state == rows.DEAD:
            key = block.key or ""
            hint = f'{options.typed("resolve", name, key)} --note "..."'
            raise UsageError(f"{key} is dead: it will not be run anyhow", hint)
        start, end = window.start, window.end
    else:
        start, end = _range(name, grid, since or "", until or "", now, known)
    _refuse_open(known, start, end, now)
    marked, gaps = _skippable(grid, known, start, end, now, reason)
    if when is not None and gaps:  # a single one gets a row, so that its key can be looked up
        marked, gaps = ((windows.key(name, start), start, end),), ()
    events: list[Event] = [(key, rows.BY_HAND, f"skipped: {reason}") for key, _, _ in marked]
    events += [
        (None, rows.BY_HAND, f"{_span(gap.start, gap.end)} skipped: {reason}") for gap in gaps
    ]
    opening = _opening(name, grid, known, now)._replace(gaps=gaps, events=tuple(events))
    return Plan(opening, rows=marked, windows=len(marked) + sum(gap.windows or 0 for gap in gaps))


def _refuse_open(known: Stored, start: int, end: int, now: int) -> None:
    from jobrun import lastcall

    lag = lastcall.of(known.job).seconds("--lag", 0)
    if end + lag > now:
        rule = f"not closed before {iso_z(end + lag)}; an open window can't be skipped"
        raise UsageError(f"{_span(start, end)}: {rule}", "skip it when it has closed")


def _skippable(
    grid: Grid, known: Stored, start: int, end: int, now: int, reason: str
) -> tuple[Marked, tuple[Gap, ...]]:
    """The rows to be marked and the gaps to be made.

    Raises UsageError for a processed one, and for one that is only in part in the range.
    """
    marked, gaps = [], []
    for free_from, free_to, block in windows.stretches(start, end, known.blocks(start)):
        to = end if free_to is None else free_to
        if free_from < to:
            number = windows.count(grid, free_from, to, COUNTED)
            gaps.append(Gap(free_from, to, number, rows.BY_HAND, reason, now))
        if block is not None and block.state == rows.PROCESSED:
            hint = f"{_rerun(block)} does it again"
            raise UsageError(f"{block.key} is processed: there is nothing to skip", hint)
        if block is not None and block.key and block.state in rows.UNFINISHED:
            _refuse_cut(block, start, end)
            marked.append((block.key, block.start, block.end))
    return tuple(marked), tuple(gaps)


def plan_watermark(
    name: str, grid: Grid, known: Stored, now: int, to: str, reason: str
) -> tuple[int, Opening]:
    """`watermark JOB --set T`: the instant, and what is written with it (R38).

    Going up, what is pending or failed below T is finished by hand, so that the record has no hole.
    Raises UsageError where T is no boundary or lies after now.
    """
    opening = _opening(name, grid, known, now)
    instant = windows.parse_when(to, grid.zone, now, name, "--set")
    if not _is_edge(known, instant):
        windows.check_boundary(grid, instant, "--set", to)
    if instant > now:
        raise UsageError(
            f'--set "{to}" is after now, {iso_z(now)}', f"--set {iso_z(grid.floor(now))}"
        )
    old = known.job.watermark if known.job else None
    change = f"{iso_z(old) if old else '-'} -> {iso_z(settles_at(known, instant, now))}"
    event = (None, "watermark-set", f"{change}: {reason}")
    if old is None or old >= instant:
        return instant, opening._replace(events=(event,))
    gaps, ended = _passed_over(grid, known, old, instant, now, reason)
    return instant, opening._replace(gaps=gaps, ended=ended, events=(event,))


def settles_at(known: Stored, instant: int, now: int) -> int:
    """To where a watermark that is set to `instant` goes: up over what is finished there.

    Lowered, it goes over nothing that has not closed: that is void then.
    """
    old = known.job.watermark if known.job else None
    is_lowered, mark = old is not None and instant < old, instant
    for block in known.blocks(instant):
        is_void = is_lowered and block.end > now
        if block.start > mark or block.state in rows.UNFINISHED or is_void:
            break
        mark = max(mark, block.end)
    return mark


def plan_resume(job: Job, grid: Grid, known: Stored, now: int, by: str) -> Plan:
    """`resume JOB --catch-up latest`: the pause ends, older windows than the newest are given up.

    Raises Refused (75) on a clock that can't be right: it would give up what has not been yet.
    """
    opening = consent.begin(job.name, known.job, now)
    mark = known.job.watermark if known.job else None
    if mark is not None:
        consent.refuse_far_behind(job.name, grid, known, mark, now)
    if opening.keep_largest_now:
        raise Refused(
            f"{job.name}: the clock says {iso_z(now)}, a month or more after the last call",
            "set the clock; or resume it, and let --accept-clock of its next run believe it",
        )
    backlog = Backlog(job, grid, known, mark or now, now)
    if mark is not None:
        backlog = give_up_all_but_newest(backlog)
    ended = tuple((key, rows.NOT_LATEST) for key in backlog.ended)
    events = (*opening.events, *events_of(backlog))
    opening = opening._replace(gaps=backlog.gaps, ended=ended, events=events, resumed_by=by)
    return Plan(opening, notes=tuple(notes_of(backlog)))


def _passed_over(
    grid: Grid, known: Stored, old: int, new: int, now: int, reason: str
) -> tuple[tuple[Gap, ...], tuple[tuple[str, str], ...]]:
    gaps, ended = [], []
    for start, until, block in windows.stretches(old, new, known.blocks(old)):
        end = min(new, new if until is None else until)
        if start < end:
            number = windows.count(grid, start, end, COUNTED)
            gaps.append(Gap(start, end, number, rows.BY_HAND, reason, now))
        if block is not None and block.key and block.state in rows.UNFINISHED:
            if block.end > new:
                raise UsageError(
                    f"--set {iso_z(new)} cuts {block.key}, {_span(block.start, block.end)}",
                    f"--set {iso_z(block.end)} gives it up, {iso_z(block.start)} does not",
                )
            ended.append((block.key, rows.BY_HAND))
    return tuple(gaps), tuple(ended)
