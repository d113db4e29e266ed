"""`hosts`: which machines have called, and what each is at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jobrun.instants import iso
from jobrun.options import typed
from jobrun.rows import HostRow, RunRow
from jobrun.screen import (
    DIM,
    NOTHING,
    WARN,
    Cell,
    Line,
    Screen,
    Table,
    ago,
    head,
    instant_cell,
    line,
    moment,
)
from jobrun.screens.runs import outcome, outcome_cell

_TITLES = ("HOST", "LAST SEEN", "SINCE (UTC)", "JOBRUN", ">SKEW", ">OPEN", "LAST RUN")


class Machine(NamedTuple):
    row: HostRow
    open_runs: int  # that have not ended, as far as is on record
    last: RunRow | None  # the run that it has begun last


def hosts_screen(ledger: str, found: Sequence[Machine], now: int, limit: int) -> Screen:
    """At most `limit` rows; one more is there where the ledger has others."""
    parts: list[Line | Table] = [head(ledger, now)]
    shown = found[:limit]
    if shown:
        parts.append(Table(_TITLES, tuple(_cells(machine, now) for machine in shown)))
        parts += [line(f"  {text}", DIM) for text in _hints([machine.row for machine in shown])]
    else:
        parts.append(line("no hosts", DIM))
    if len(found) > limit:
        parts.append(line(f"those seen before them are left out: --limit {limit * 10}", DIM))
    data = {"hosts": [_data(machine) for machine in shown], "more": len(found) > limit}
    return Screen(tuple(parts), {"now": iso(now), **data})


def ahead(skew: int | None) -> str:
    """7.250s ahead of, 0.003s behind: where a clock is."""
    if skew is None:
        return "-"
    return f"{abs(skew) / 1000:.3f}s {'ahead of' if skew >= 0 else 'behind'}"


def versions(rows: Sequence[HostRow]) -> dict[str, list[str]]:
    """The hosts of each version of jobrun."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.version is not None:
            found.setdefault(row.version, []).append(row.host)
    return found


def _cells(machine: Machine, now: int) -> tuple[Cell, ...]:
    row = machine.row
    return (
        Cell(row.host),
        Cell(ago(row.last_seen, now), iso(row.last_seen)),
        instant_cell(row.first_seen, now, style=DIM),
        Cell(row.version or "-"),
        Cell(_signed(row.skew), style=WARN if row.is_far else ""),
        Cell(str(machine.open_runs)) if machine.open_runs else NOTHING,
        NOTHING if machine.last is None else _last(machine.last, now),
    )


def _signed(skew: int | None) -> str:
    return "-" if skew is None else f"{skew / 1000:+.3f}s"


def _last(run: RunRow, now: int) -> Cell:
    text = f"{run.id} {run.job} {outcome(run)}"
    return outcome_cell(run, text)._replace(
        text=f"{text} {moment(run.started, now)}", full=f"{text} {iso(run.started)}"
    )


def _hints(rows: Sequence[HostRow]) -> Iterator[str]:
    for row in rows:
        if row.is_far:
            yield f"{row.host}: windows close by its clock, {ahead(row.skew)} the server's: NTP"
    if len(versions(rows)) > 1:
        yield f"versions differ: {', '.join(versions(rows))}; pip install --upgrade jobrun"
    if len(rows) > 1:
        yield f"one that has gone: {typed('hosts', '--forget', 'HOST')}"


def _data(machine: Machine) -> dict[str, object]:
    row, last = machine.row, machine.last
    return {
        "host": row.host,
        "first_seen": iso(row.first_seen),
        "last_seen": iso(row.last_seen),
        "version": row.version,
        "skew_ms": row.skew,
        "open_runs": machine.open_runs,
        "last_run": None
        if last is None
        else {
            "run": last.id,
            "job": last.job,
            "key": last.key,
            "started": iso(last.started),
            "outcome": last.outcome,
        },
    }
