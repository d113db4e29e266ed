"""Changes that a person may want to be told of: `events`, and below `show`."""

from __future__ import annotations

from collections.abc import Sequence

from jobrun.instants import iso
from jobrun.rows import EventRow
from jobrun.screen import DIM, NOTHING, Cell, Line, Screen, Table, head, instant_cell, line, without


def events_screen(
    ledger: str, events: Sequence[EventRow], now: int, *, job: str | None, rows: int
) -> Screen:
    """At most `rows` rows; one more is there where the ledger has older ones."""
    parts: list[Line | Table] = [head(ledger, now)]
    if events:
        parts.append(events_table(events[:rows], now, with_job=job is None))
    else:
        parts.append(line("no events", DIM))
    if len(events) > rows:
        parts.append(line(f"older events are left out: --limit {rows * 10}", DIM))
    shown = [event_data(event) for event in events[:rows]]
    return Screen(tuple(parts), {"now": iso(now), "events": shown, "more": len(events) > rows})


def events_table(events: Sequence[EventRow], now: int, *, with_job: bool) -> Table:
    cells = tuple(
        (
            instant_cell(event.at, now, seconds=True, style=DIM),
            Cell(event.job),
            Cell(event.kind),
            Cell(event.key or "-"),
            Cell(event.detail) if event.detail else NOTHING,
        )
        for event in events
    )
    table = Table(("EVENT (UTC)", "JOB", "KIND", "KEY", "DETAIL"), cells)
    return table if with_job else without(table, "JOB")


def event_data(event: EventRow) -> dict[str, object]:
    return {**event._asdict(), "at": iso(event.at)}
