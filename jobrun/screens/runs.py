"""A run in words, and tables of runs: `history`, `show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobrun.instants import iso
from jobrun.plans import Skip
from jobrun.rows import (
    FAILED_RUN,
    FAILURES,
    KILLED,
    NOT_STARTED,
    SUCCEEDED,
    TIMED_OUT,
    UPSTREAM_FAILED,
    RunRow,
)
from jobrun.screen import (
    BAD,
    BUSY,
    DIM,
    GOOD,
    NOTHING,
    WARN,
    Cell,
    Table,
    about,
    boundary,
    instant_cell,
    span,
    span_cell,
    without,
)

# So many alike in a row are folded to three: the newest, how many more, the oldest.
FOLD = 4


def outcome(run: RunRow) -> str:
    """ok, ok (exit 3), exit 3, killed 9, timed out, not started, interrupted, lost, fenced"""
    if run.outcome is None:
        return "running"
    if run.outcome == SUCCEEDED:
        return f"ok (exit {run.exit_code})" if run.exit_code else "ok"
    if run.outcome == FAILED_RUN:
        return "failed" if run.exit_code is None else f"exit {run.exit_code}"
    if run.outcome == KILLED:
        return "killed" if run.signal is None else f"killed {run.signal}"
    if run.outcome in (TIMED_OUT, NOT_STARTED):
        return run.outcome.replace("-", " ")
    return run.outcome


def waits_for(skip: Skip, now: int) -> str:
    """Of a window that waits for another job: for which, and how far that one is."""
    up, mark, window = (skip.fields.get(name) for name in ("up", "watermark", "up-window"))
    of = f" {span(window[0], window[1], now)}" if isinstance(window, tuple) else ""
    if skip.reason == UPSTREAM_FAILED:
        return f"{up}: {skip.fields['state']}{of}"
    done = f"done to {boundary(mark, now)}" if isinstance(mark, int) else "not begun"
    return f"waits for {up}, {done}" + (f", {skip.fields['state']}{of}" if of else "")


def waits_data(skip: Skip) -> dict[str, object]:
    """What jobrun's line says of an upstream, as JSON has it."""
    mark, window = skip.fields.get("watermark"), skip.fields.get("up-window")
    return {
        "reason": skip.reason,
        "key": skip.key,
        "up": skip.fields.get("up"),
        "watermark": iso(mark) if isinstance(mark, int) else None,
        "up_window": "/".join(map(iso, window)) if isinstance(window, tuple) else None,
        "state": skip.fields.get("state"),
    }


def outcome_cell(run: RunRow, text: str | None = None) -> Cell:
    if run.outcome is None:
        style = BUSY
    elif run.outcome == SUCCEEDED:
        style = GOOD
    else:
        style = BAD if run.outcome in FAILURES else WARN
    return Cell(text or outcome(run), style=style)


def unit_cell(run: RunRow, now: int) -> Cell:
    """The window, or the key without its job; a plain run has neither."""
    if run.start is not None and run.end is not None:
        return span_cell(run.start, run.end, now)
    if run.key is None:
        return NOTHING
    return Cell(run.key.partition(":")[2], run.key)


def by(run: RunRow) -> str:
    """`anna tty`: a person at a terminal; `etl cron`: nobody was there."""
    return f"{run.user} {'tty' if run.terminal else 'cron'}"


def took(run: RunRow, now: int) -> str:
    """How long it took, or has been taking."""
    if run.took is not None:
        return about(run.took)
    return about(max(0, now - run.started)) if run.outcome is None else "-"


class Folded(NamedTuple):
    """Runs that are left out between the one above and the one below, all of one end."""

    runs: tuple[RunRow, ...]  # newest first


def fold(runs: Sequence[RunRow]) -> list[RunRow | Folded]:
    """Repeats of one window that ended alike, to the newest and the oldest of them."""
    shown: list[RunRow | Folded] = []
    group: list[RunRow] = []
    for run in [*runs, None]:
        if group and (run is None or run.key is None or _alike(run) != _alike(group[0])):
            if len(group) >= FOLD:
                group[1:-1], middle = [], tuple(group[1:-1])
                shown += [group[0], Folded(middle), group[1]]
            else:
                shown += group
            group = []
        if run is not None:
            group.append(run)
    return shown


def _alike(run: RunRow) -> tuple[object, ...]:
    return run.job, run.key, run.outcome, run.exit_code, run.signal


def runs_table(rows: Sequence[RunRow | Folded], now: int, *, with_job: bool) -> Table:
    only_windows = all(r.start is not None for r in rows if isinstance(r, RunRow))
    unit = "WINDOW (UTC)" if only_windows else "UNIT"
    titles = ("RUN", "JOB", unit, ">TRY", "STARTED", ">TOOK", "OUTCOME", "BY")
    cells = (_folded_row(row, now) if isinstance(row, Folded) else _row(row, now) for row in rows)
    table = Table(titles, tuple(cells))
    return table if with_job else without(table, "JOB")


def _row(run: RunRow, now: int) -> tuple[Cell, ...]:
    return (
        Cell(str(run.id)),
        Cell(run.job),
        unit_cell(run, now),
        Cell(str(run.attempt)) if run.key is not None else NOTHING,
        instant_cell(run.started, now, seconds=True, style=DIM),
        Cell(took(run, now)),
        outcome_cell(run),
        Cell(by(run), style=DIM),
    )


def _folded_row(folded: Folded, now: int) -> tuple[Cell, ...]:
    newest, oldest = folded.runs[0], folded.runs[-1]
    return (
        Cell("..."),
        Cell(newest.job),
        unit_cell(newest, now),
        Cell(f"{oldest.attempt}-{newest.attempt}"),
        NOTHING,
        NOTHING,
        outcome_cell(newest, f"{outcome(newest)} x{len(folded.runs)}"),
        Cell("(--all)", style=DIM),
    )


def run_data(run: RunRow) -> dict[str, object]:
    """A run for --json: every column, instants as text."""
    return {
        **run._asdict(),
        **{
            name: None if value is None else iso(value)
            for name, value in (
                ("started", run.started),
                ("ended", run.ended),
                ("start", run.start),
                ("end", run.end),
            )
        },
    }
