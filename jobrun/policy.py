"""Which windows a call runs, which it leaves and why, given its options, the record, an instant.

Pure: nothing here reads a clock, a file or a ledger. What the ledger holds comes as `Stored`, whose
callables are drawn on only as far as a plan needs, so a year of backlog costs what one batch costs.
Windows that a person asks for by hand are planned in `asked.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from jobrun import changes, consent, options, rows, unclosed, windows
from jobrun.backlog import Backlog, events_of, give_up_all_but_newest, give_up_old, notes_of
from jobrun.plans import COUNTED, Note, Plan, Skip, Unit, note
from jobrun.rows import Block, JobRow, Opening, Pause, Stored, WindowRow
from jobrun.value import NamedTuple
from jobrun.windows import Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.schedule import Grid


def plan_call(job: Job, grid: Grid, known: Stored, now: int) -> Plan:
    """The plan of a call that has windows, whatever asks for them."""
    known, void = unclosed.leave_out(known, now)
    made = _planner(job.mode)(job, grid, known, now)
    return made._replace(
        opening=unclosed.make_void(made.opening, void),
        notes=(*unclosed.notes_of(job.name, void, now), *made.notes),
    )


def _planner(mode: str) -> Callable[[Job, Grid, Stored, int], Plan]:
    if mode == options.WINDOWS:
        return plan
    from jobrun import asked, asked_again

    by_hand: dict[str, Callable[[Job, Grid, Stored, int], Plan]] = {
        options.BY_HAND: asked.plan_window,
        options.RERUN: asked.plan_rerun,
        options.BACKFILL: asked.plan_range,
        options.RETRY: asked_again.plan_retry,
    }
    return by_hand[mode]


def single(name: str, known: Stored, now: int, unit: Unit) -> Plan:
    """One unit that is no window."""
    return Plan(consent.begin(name, known.job, now), (unit,))


def paused(opening: Opening, row: JobRow | None) -> Plan | None:
    """Nothing but the skip of a job that is paused; None where it is not, or where that is over."""
    if row is None or row.pause is None or opening.resumed_by:
        return None
    if row.is_probed(opening.now) and not opening.keep_largest_now:
        return None
    return Plan(opening, skips=(paused_skip(row.pause),))


def paused_skip(pause: Pause) -> Skip:
    fields: dict[str, object] = {"until": pause.until, "by": pause.by, "why": pause.reason}
    return Skip(rows.PAUSED, None, fields, pause.text)


def skipped(name: str, known: Stored, now: int, skip: Skip) -> Plan:
    """Nothing but a skip."""
    return Plan(consent.begin(name, known.job, now), skips=(skip,))


# -- the windows whose turn it is ------------------------------------------------------------------


def plan(job: Job, grid: Grid, known: Stored, now: int) -> Plan:
    """What a scheduled call does: the windows that have closed and are not done, oldest first.

    Raises Refused (75) on a clock that can't be right, ConfigError (78) on a schedule that wants
    consent, UsageError (2) on a `--first` that is no boundary.
    """
    row = known.job
    opening = consent.begin(job.name, row, now, job.accept_clock)
    if halt := paused(opening, row):
        return halt
    if row is not None and row.is_probed(now) and job.pause_after is None:
        opening = opening._replace(resumed_by=rows.BREAKER)  # nobody asks for it any more
    if row is None or row.watermark is None:
        return _plan_first(job, grid, known, now, opening)
    if row.watermark > now and not consent.is_future_first(row, grid, now):
        consent.refuse_far_behind(job.name, grid, known, row.watermark, now)
        behind: dict[str, object] = {"watermark": row.watermark, "now": now}
        return Plan(opening, skips=(Skip(rows.CLOCK_BEHIND, None, behind),))
    settled = _settled(row.watermark, known)
    opening, notes = changes.compare(job, grid, known, row, settled, opening)
    backlog = Backlog(job, grid, known, settled, now)
    return _plan_backlog(backlog, opening, notes)


def _settled(mark: int, known: Stored) -> int:
    """The watermark as the next writing transaction will find it: past finished blocks (T17)."""
    for block in known.blocks(mark):
        if block.start > mark or block.state in rows.UNFINISHED:
            break
        mark = max(mark, block.end)
    return mark


# -- the first call -----------------------------------------------------------------------------


def _plan_first(job: Job, grid: Grid, known: Stored, now: int, opening: Opening) -> Plan:
    first = job.first or "latest"
    mark = _first_mark(job, grid, first, now)
    opening = opening._replace(schedule=grid.text, first=first, watermark=mark)
    told = note("NOTE", job.name, "first-run", first=first, days=grid.zone)
    backlog = Backlog(job, grid, known, _settled(mark, known), now)
    return _plan_backlog(backlog, opening, (told,))


def _first_mark(job: Job, grid: Grid, first: str, now: int) -> int:
    """R32, R33: where a job without a watermark begins."""
    newest_end = grid.floor(now - job.lag)
    if first == "none":
        return newest_end
    if first == "latest":
        return grid.floor(newest_end - 1)
    mark = windows.parse_when(first, grid.zone, now, job.name, "--first")
    windows.check_boundary(grid, mark, "--first", first)
    return mark


# -- the batch -------------------------------------------------------------------------------------


class _Drawn(NamedTuple):
    units: tuple[Unit, ...]
    hurdles: tuple[Skip, ...]  # what stands in the way of others
    reached: int  # from there on nothing new was drawn
    waits: Skip | None = None  # there the next new one waits for another job


def _plan_backlog(backlog: Backlog, opening: Opening, notes: tuple[Note, ...]) -> Plan:
    if opening.keep_largest_now:
        return _plan_doubted(backlog, opening, notes)
    if backlog.is_probe and (key := backlog.under_way) is not None:  # one window tries, not each
        return Plan(opening, skips=(Skip(rows.LOCK_HELD, key, {}),), notes=notes)
    if backlog.job.max_age is not None:
        backlog = give_up_old(backlog, backlog.now - backlog.job.max_age)
    if backlog.job.catch_up == "latest":
        backlog = give_up_all_but_newest(backlog)
    opening = opening._replace(
        gaps=backlog.gaps,
        ended=tuple((key, rows.NOT_LATEST) for key in backlog.ended),
        events=(*opening.events, *events_of(backlog)),
    )
    plan = Plan(opening, notes=(*notes, *notes_of(backlog)))
    cap = 1 if backlog.is_probe else backlog.job.max_windows
    return _look_back(backlog, _fill(plan, backlog, _draw(backlog, _tiles(backlog), cap)))


def _look_back(backlog: Backlog, plan: Plan) -> Plan:
    """R43: outside of the cap, right before the first new window, so that they run only with it."""
    first = next((n for n, unit in enumerate(plan.units) if unit.kind == rows.NEW), None)
    if backlog.job.lookback is None or first is None:
        return plan
    below = backlog.known.processed(plan.units[first].start or 0, backlog.job.lookback)
    again = [
        Unit(row.key, row.start, row.end, rows.LOOKBACK, row.partial, row.windows) for row in below
    ]
    return plan._replace(units=(*plan.units[:first], *again, *plan.units[first:]))


def _plan_doubted(backlog: Backlog, opening: Opening, notes: tuple[Note, ...]) -> Plan:
    """R40: on a clock that is not believed yet, the oldest window at the most, and no gap.

    The oldest and not the newest, whatever `--catch-up` says: if the clock is wrong, the newest is
    a window of the future, and being on record it would never run when its time has come.
    """
    row, now = backlog.known.job, backlog.now
    seen = row.largest_now if row else now
    hint = "--accept-clock once if it is right; a call 10 minutes from now will believe it too"
    warning = note("WARNING", backlog.job.name, "clock", hint, now=now, since=seen)
    plan = Plan(opening, notes=(*notes, warning))
    drawn = _draw(
        backlog, windows.tiles(backlog.grid, *backlog.span, backlog.blocks(backlog.mark)), 1
    )
    for unit in drawn.units:
        if unit.kind == rows.NEW and _is_too_old(backlog, unit.end or now):
            too_old = Skip(rows.TOO_OLD, unit.key, {"window": (unit.start, unit.end)})
            return plan._replace(skips=(too_old,))
    return _fill(plan, backlog, drawn)


def _is_too_old(backlog: Backlog, end: int) -> bool:
    return backlog.job.max_age is not None and end < backlog.now - backlog.job.max_age


def _tiles(backlog: Backlog) -> Iterator[Window | Block]:
    blocks = backlog.blocks(backlog.mark)
    if backlog.job.catch_up == "merge":
        return windows.merged(backlog.grid, *backlog.span, blocks, backlog.reach)
    return windows.tiles(backlog.grid, *backlog.span, blocks)


def _draw(backlog: Backlog, tiles: Iterable[Window | Block], cap: int) -> _Drawn:
    if backlog.job.on_failure == "continue":
        return _draw_holes_first(backlog, tiles, cap)
    return _draw_in_order(backlog, tiles, cap)


def _draw_in_order(backlog: Backlog, tiles: Iterable[Window | Block], cap: int) -> _Drawn:
    """R21, R24: up to the first one that can't run now."""
    units: list[Unit] = []
    hurdles: tuple[Skip, ...] = ()
    reached = backlog.mark
    unfinished = backlog.unfinished
    waits = None
    for tile in tiles:
        step = _step(backlog, tile, unfinished)
        if isinstance(step, Skip):
            hurdles = (step,)
            waits = step if step.reason in rows.UPSTREAM else None
            break
        if step is not None and len(units) == cap:
            break
        if step is not None:
            units.append(step)
            reached = tile.end
    # Below the watermark only a backfill leaves failed ones: tried again, in nobody's way.
    below = (row for row in unfinished.values() if _end(row) <= backlog.mark)
    tried_again = [_retry(row) for row in below if _hurdle(backlog, row) is None]
    return _Drawn((*units, *tried_again)[:cap], hurdles, reached, waits)


def _draw_holes_first(backlog: Backlog, tiles: Iterable[Window | Block], cap: int) -> _Drawn:
    """R25: holes with at most half the cap, rounded up, then new windows."""
    hurdles = [(row, _hurdle(backlog, row)) for row in backlog.unfinished.values()]
    holes = [_retry(row) for row, hurdle in hurdles if hurdle is None][: (cap + 1) // 2]
    new, waits = _draw_new(backlog, tiles, cap)
    if cap == 1 and not backlog.is_probe and holes and new and _ended_on(backlog, holes[0]):
        holes = []
    if len(new) > cap - len(holes):
        new, waits = new[: cap - len(holes)], None
    reached = max([backlog.mark, *(unit.end or 0 for unit in new)])
    in_the_way = [hurdle for hurdle in (*(each for _, each in hurdles), waits) if hurdle]
    return _Drawn((*holes, *new), tuple(in_the_way), reached, waits)


def _draw_new(
    backlog: Backlog, tiles: Iterable[Window | Block], cap: int
) -> tuple[list[Unit], Skip | None]:
    """So many windows without a row, up to the first that waits for another job."""
    new: list[Unit] = []
    for window in (tile for tile in tiles if isinstance(tile, Window)):
        if waits := _upstream_hurdle(backlog, window.start, window.end):
            return new, waits
        if len(new) == cap:
            break
        new.append(_new(backlog.job.name, window))
    return new, None


def _ended_on(backlog: Backlog, hole: Unit) -> bool:
    """Whether the last call did this one: with a cap of 1 no other would ever have its turn."""
    job, row = backlog.known.job, backlog.unfinished.get(hole.key or "")
    return job is not None and row is not None and row.changed_at >= job.last_seen


def _step(
    backlog: Backlog, tile: Window | Block, unfinished: dict[str, WindowRow]
) -> Unit | Skip | None:
    """What is to be done about a tile: run it, stop there, or nothing because it is finished."""
    if isinstance(tile, Window):
        waits = _upstream_hurdle(backlog, tile.start, tile.end)
        return waits or _new(backlog.job.name, tile)
    row = unfinished.get(tile.key or "")
    return None if row is None else _hurdle(backlog, row) or _retry(row)


def _new(name: str, window: Window) -> Unit:
    key = windows.key(name, window.start)
    return Unit(key, window.start, window.end, rows.NEW, window.partial, window.windows)


def _retry(row: WindowRow) -> Unit:
    """With the bounds of its first attempt, whatever the schedule says by now (R5)."""
    return Unit(row.key, row.start, row.end, rows.RETRY, row.partial, row.windows)


def _hurdle(backlog: Backlog, row: WindowRow) -> Skip | None:
    """Why an unfinished row can't run now. Running ones are those of a dead holder: at once."""
    if row.state == rows.HELD:
        return Skip(rows.WINDOW_HELD, row.key, {})
    if (due := due_at(backlog.job, row, backlog.now)) is not None:
        return Skip(rows.RETRY_LATER, row.key, {"next": due})
    if _end(row) > backlog.ready:  # the lag has grown
        return Skip(rows.NO_CLOSED_WINDOW, None, {"next": _end(row) + backlog.job.lag})
    return _upstream_hurdle(backlog, row.start or 0, _end(row))


def _upstream_hurdle(backlog: Backlog, start: int, end: int) -> Skip | None:
    """Why a window has to wait for another job (R44)."""
    if not backlog.known.upstreams:
        return None
    from jobrun import upstream

    key = windows.key(backlog.job.name, start)
    return upstream.hurdle(backlog.known.upstreams, key, start, end)


def due_at(job: Job, row: WindowRow, now: int) -> int | None:
    """When something that failed may be tried again, where that is later than now."""
    if row.next_attempt_at is None:
        return None
    from jobrun import fate

    return row.due_at(now, fate.longest_delay(job))


def _end(row: WindowRow) -> int:
    assert row.end is not None  # Stored.unfinished are windows
    return row.end


def _fill(plan: Plan, backlog: Backlog, drawn: _Drawn) -> Plan:
    """The plan with what was drawn, what is left, and when there will be more."""
    waits = backlog.grid.next(max(backlog.ready, backlog.mark)) + backlog.job.lag
    if not drawn.units:
        taken = backlog.known.taken
        reason = rows.LOCK_HELD if taken else rows.NO_CLOSED_WINDOW
        idle = Skip(reason, None, {"next": waits})
        skip = drawn.hurdles[0] if drawn.hurdles else idle
        retry_at = skip.fields.get("next")
        sooner = retry_at if isinstance(retry_at, int) else waits
        # When another job will be as far nobody knows.
        return plan._replace(skips=(skip,), waits=None if drawn.waits else min(waits, sooner))
    left, start = _left(backlog, drawn)
    planned = {unit.key for unit in drawn.units}
    unfinished = backlog.unfinished.values()
    others = [row for row in unfinished if row.key not in planned and not _hurdle(backlog, row)]
    starts = [at for at in (start, *(row.start for row in others)) if at is not None]
    return plan._replace(
        units=drawn.units,
        skips=(drawn.waits,) if drawn.waits else (),
        left=None if left is None else left + len(others),
        left_from=min(starts, default=None),
        waits=None if drawn.waits else waits,
    )


def _left(backlog: Backlog, drawn: _Drawn) -> tuple[int | None, int | None]:
    """How many new windows the next call will find, and where the first of them starts."""
    if drawn.waits is not None:
        return 0, None
    blocks = backlog.blocks(drawn.reached)
    return windows.count_free(backlog.grid, drawn.reached, backlog.ready, blocks, COUNTED)
