"""`history`: runs, newest first, and below them the calls that ran nothing."""

from __future__ import annotations

from collections.abc import Sequence

from jobrun.instants import iso
from jobrun.rows import RunRow, SkipRow
from jobrun.screen import DIM, Line, Screen, Table, head, line
from jobrun.screens.runs import fold, run_data, runs_table
from jobrun.screens.skips import skip_data, skips_table


def history_screen(
    ledger: str,
    runs: Sequence[RunRow],
    skips: Sequence[SkipRow],
    now: int,
    *,
    job: str | None,
    every: bool,
    rows: int,
    more: bool,
) -> Screen:
    """At most `rows` rows; `every` unfolds repeats; `more`: the ledger holds older runs."""
    shown = list(runs) if every else fold(runs)
    cut = more or len(shown) > rows
    parts: list[Line | Table] = [head(ledger, now)]
    if shown:
        parts.append(runs_table(shown[:rows], now, with_job=job is None))
    else:
        parts.append(line("no runs", DIM))
    if cut:
        parts.append(line(f"older runs are left out: --limit {rows * 10}", DIM))
    if skips:
        parts += [line(""), skips_table(skips, now, with_job=job is None)]
    data = {
        "now": iso(now),
        "runs": [run_data(run) for run in runs],
        "more": more,
        "skips": [skip_data(skip) for skip in skips],
    }
    return Screen(tuple(parts), data)
