"""`retry`: what failed, is dead or is held, now and by hand, whatever its delay."""

from __future__ import annotations

from collections.abc import Sequence

from jobrun import consent, options, rows, windows
from jobrun.errors import UsageError
from jobrun.instants import iso_z
from jobrun.plans import Note, Plan, Skip, Unit, note
from jobrun.rows import Stored, WindowRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.schedule import Grid


def plan_retry(job: Job, grid: Grid, known: Stored, now: int) -> Plan:
    """`retry JOB [WHEN]` of a job with windows: all of them that are not done, oldest first.

    Those of lost runs too, but none that has not closed: it was tried on a clock that was ahead, or
    the lag has grown. A unit of --key beside them is made due. The failures of a dead one count
    anew.
    """
    plan = Plan(consent.begin(job.name, known.job, now))
    found = sorted(_undone(known), key=lambda row: row.start or 0)
    if job.window is not None:
        one = _one(job, grid, known, found, now)
        if isinstance(one, Skip):
            return plan._replace(skips=(one,))
        found = [one]
    if not found:
        return plan._replace(notes=(_nothing(job.name),))
    units, skips = [], []
    for row in found:
        if row.start is None or row.end is None:
            continue
        if row.end + job.lag > now:
            skips.append(_not_closed(row.key, row.end + job.lag))
        else:
            units.append(Unit(row.key, row.start, row.end, rows.RETRY, row.partial, row.windows))
    plan = plan._replace(units=tuple(units), skips=tuple(skips))
    return _with_units(plan, job.name, found)


def plan_units(job: Job, known: Stored, now: int) -> Plan:
    """`retry JOB [KEY]` of a job without windows: its units are made due.

    Only the next call of each knows its command.
    """
    found = _undone(known)
    if job.window is not None:
        key = job.window
        found = [row for row in found if row.key in (key, f"{job.name}:{key}")]
        if not found:
            raise UsageError(
                f'no unit "{key}" of {job.name} is failed, dead or held',
                options.typed("failures", job.name),
            )
    plan = _with_units(Plan(consent.begin(job.name, known.job, now)), job.name, found)
    return plan if found else plan._replace(notes=(_nothing(job.name),))


def _undone(known: Stored) -> list[WindowRow]:
    """Running ones are those of a dead holder."""
    lost = {row.key: row for row in known.unfinished if row.state == rows.RUNNING}
    return [*{**{row.key: row for row in known.failures()}, **lost}.values()]


def _not_closed(key: str, ready: int) -> Skip:
    return Skip(rows.NOT_CLOSED, key, {"next": ready})


def _one(
    job: Job, grid: Grid, known: Stored, found: Sequence[WindowRow], now: int
) -> WindowRow | Skip:
    """The row that WHEN means; a skip where nothing is on record of it since it has not closed.

    Raises UsageError where there is no such window, or it is in no need of it.
    """
    typed = job.window or ""
    of_key = [row for row in found if row.key == typed and row.start is None]
    start = None if of_key else windows.parse_when(typed, grid.zone, now, job.name)
    right = of_key or [row for row in found if row.start == start]
    if right:
        return right[0]
    assert start is not None
    block = next((b for b in known.blocks(start) if b.start <= start), None)
    if block is None:
        windows.check_boundary(grid, start, "WHEN", typed)
        ready = grid.next(start) + job.lag
        if ready > now:
            return _not_closed(windows.key(job.name, start), ready)
    if block is not None and block.start < start and block.key is not None:
        raise inside(typed, block.key, block.end, options.again("retry", job.name, block.key))
    state = "pending" if block is None else block.state
    raise UsageError(
        f'WHEN "{typed}" is {state}: retry is for what failed, is dead or held',
        options.again("rerun", job.name, windows.key(job.name, start)),
    )


def inside(typed: str, key: str, end: int, hint: str) -> UsageError:
    """Of what begins no window on record, but lies in one."""
    return UsageError(f'WHEN "{typed}" lies inside {key}, which ends {iso_z(end)}', hint)


def _with_units(plan: Plan, name: str, found: Sequence[WindowRow]) -> Plan:
    """With the units of --key among `found` made due, and said so."""
    due = tuple(row.key for row in found if row.start is None)
    hint = "the next call with its --key runs it: the last command was of another one"
    notes = tuple(note("NOTE", name, "due", hint, key=key) for key in due)
    events = tuple((key, "due", "retry by hand") for key in due)
    opening = plan.opening._replace(due=due, events=(*plan.opening.events, *events))
    return plan._replace(opening=opening, notes=(*plan.notes, *notes))


def _nothing(name: str) -> Note:
    return note("NOTE", name, "nothing-failed", options.typed("status", name))
