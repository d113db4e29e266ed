"""`failures`: what is dead, held or failed, and what became of its last run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobrun.instants import iso
from jobrun.options import again, typed
from jobrun.rows import DEAD, FAILED, HELD, Pause, RunRow, WindowRow
from jobrun.screen import (
    BAD,
    DIM,
    NOTHING,
    STILL,
    WARN,
    Cell,
    Line,
    Screen,
    Table,
    boundary_cell,
    head,
    instant_cell,
    line,
    span_cell,
    without,
)
from jobrun.screens.runs import outcome_cell, run_data
from jobrun.screens.status import next_try

_STYLES = {FAILED: BAD, HELD: STILL, DEAD: WARN}


class Failure(NamedTuple):
    """`due`: when it may be tried again, where that is later than now."""

    row: WindowRow
    run: RunRow | None  # its last
    due: int | None
    pause: Pause | None  # of its job


def failures_screen(
    ledger: str, found: Sequence[Failure], now: int, *, job: str | None, cut: bool
) -> Screen:
    """The one that changed last stands last; `cut`: older ones are left out."""
    parts: list[Line | Table] = [head(ledger, now)]
    if cut:
        parts.append(line(f"older ones are left out: the newest {len(found)} are shown", DIM))
    if found:
        parts.append(_table(found, now, with_job=job is None))
        parts += [line(f"  {text}", DIM) for text in _hints(found, job or "JOB")]
    else:
        parts.append(line("no failures", DIM))
    data = {"now": iso(now), "failures": [_data(failure) for failure in found], "more": cut}
    return Screen(tuple(parts), data)


def _table(found: Sequence[Failure], now: int, *, with_job: bool) -> Table:
    titles = ("JOB", "UNIT", "STATE", ">FAILURES", "LAST OUTCOME", "LAST (UTC)", "NEXT TRY")
    cells = tuple(
        (
            Cell(row.job),
            _unit_cell(row, now),
            Cell(row.state, style=_STYLES[row.state]),
            Cell(str(row.failures)),
            NOTHING if run is None else outcome_cell(run),
            instant_cell(row.changed_at, now, seconds=True, style=DIM),
            _next_cell(row, due, pause, now),
        )
        for row, run, due, pause in found
    )
    table = Table(titles, cells)
    return table if with_job else without(table, "JOB")


def _unit_cell(row: WindowRow, now: int) -> Cell:
    if row.start is not None and row.end is not None:
        return span_cell(row.start, row.end, now)
    return Cell(row.key.partition(":")[2], row.key)


def _next_cell(row: WindowRow, due: int | None, pause: Pause | None, now: int) -> Cell:
    if row.state == HELD:
        return Cell("a person decides")
    if row.state == DEAD:
        return NOTHING
    if pause is not None:
        return Cell(next_try(pause, now))
    return Cell("the next call") if due is None else boundary_cell(due, now)


def _hints(found: Sequence[Failure], job: str) -> list[str]:
    is_unit = all(failure.row.start is None for failure in found)
    retry = again("retry", job, is_unit=is_unit)
    hints = [f"{retry}    {typed('explain', job, 'WHEN')}"]
    if any(failure.row.state in (DEAD, HELD) for failure in found):
        hints.append(f'{typed("resolve", job, "WHEN")} --note "..."')
    if any(failure.pause is not None for failure in found):
        hints.append(typed("resume", job))
    return hints


def _data(failure: Failure) -> dict[str, object]:
    row, run, due, pause = failure
    instants = {"start": row.start, "end": row.end, "next_attempt_at": due}
    return {
        **row._asdict(),
        **{name: None if at is None else iso(at) for name, at in instants.items()},
        "changed_at": iso(row.changed_at),
        "paused": pause is not None,
        "last_run": None if run is None else run_data(run),
    }
