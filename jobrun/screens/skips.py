"""Calls that ran nothing, and windows that did not run: `skips`, and below `history`."""

from __future__ import annotations

from collections.abc import Sequence

from jobrun.instants import iso
from jobrun.rows import SkipRow
from jobrun.screen import DIM, NOTHING, Cell, Line, Screen, Table, head, instant_cell, line, without


def skips_screen(
    ledger: str, skips: Sequence[SkipRow], now: int, *, job: str | None, rows: int
) -> Screen:
    """At most `rows` rows; one more is there where the ledger has older ones."""
    parts: list[Line | Table] = [head(ledger, now)]
    if skips:
        parts.append(skips_table(skips[:rows], now, with_job=job is None))
    else:
        parts.append(line("no skips", DIM))
    if len(skips) > rows:
        parts.append(line(f"older skips are left out: --limit {rows * 10}", DIM))
    shown = [skip_data(skip) for skip in skips[:rows]]
    return Screen(tuple(parts), {"now": iso(now), "skips": shown, "more": len(skips) > rows})


def skips_table(skips: Sequence[SkipRow], now: int, *, with_job: bool) -> Table:
    titles = ("SKIPPED", "JOB", "KEY", ">TIMES", "LAST (UTC)", "DETAIL")
    cells = tuple(
        (
            Cell(skip.reason),
            Cell(skip.job),
            Cell(skip.key or "-"),
            Cell(str(skip.times)),
            instant_cell(skip.last_at, now, seconds=True, style=DIM),
            Cell(skip.detail) if skip.detail else NOTHING,
        )
        for skip in skips
    )
    table = Table(titles, cells)
    return table if with_job else without(table, "JOB")


def skip_data(skip: SkipRow) -> dict[str, object]:
    return {**skip._asdict(), "at": iso(skip.at), "last_at": iso(skip.last_at)}
