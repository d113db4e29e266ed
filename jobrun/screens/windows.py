"""`windows`: a strip of letters, what is not processed and why, and whether it is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from jobrun.instants import DAY, HOUR, iso
from jobrun.options import typed
from jobrun.picture import LISTED, Picture
from jobrun.rows import (
    DEAD,
    FAILED,
    HELD,
    LOST,
    PROCESSED,
    RUNNING,
    SKIPPED,
    Gap,
    WindowRow,
)
from jobrun.screen import (
    BAD,
    BUSY,
    DIM,
    GOOD,
    NOTHING,
    STILL,
    WARN,
    Cell,
    Line,
    Screen,
    Table,
    boundary,
    head,
    line,
    minute,
    moment,
    number,
    plural,
    span_cell,
)
from jobrun.screens.runs import outcome, waits_for
from jobrun.screens.status import next_try, pause_data, pause_words
from jobrun.strip import (
    GIVEN_UP,
    LETTERS,
    OUTSIDE,
    PENDING,
    RETRIED,
    TO_DO,
    Slot,
    Stretch,
    count,
    stretches,
)

LETTERS_IN_A_ROW = 60
_STYLES = {
    PROCESSED: GOOD,
    RETRIED: BUSY,
    SKIPPED: WARN,
    DEAD: WARN,
    FAILED: BAD,
    LOST: BAD,
    HELD: STILL,
    RUNNING: BUSY,
    PENDING: DIM,
}
# From an instant to its date and month in the job's zone: ("2026-09-04", "2026-09").
Calendar = Callable[[int], tuple[str, str]]


def windows_screen(ledger: str, picture: Picture, now: int, calendar: Calendar) -> Screen:
    parts: list[Line | Table] = [head(ledger, now), _title(picture)]
    parts += _strip(picture.slots, now, calendar)
    if picture.shown > picture.since:
        parts.append(
            line(f"(the newest {len(picture.slots)} of {number(picture.windows)} windows;"
                 f" earlier ones: --until {iso(picture.shown)})", DIM)
        )  # fmt: skip
    parts += _totals(picture.slots)
    if picture.void:
        since = "since the clock or the watermark was set back; each runs in its turn"
        parts.append(line(f"{plural(picture.void, 'window')} void {since}", WARN))
    if picture.pause is not None and picture.pause.shows(now):
        is_running = any(slot.state == RUNNING for slot in picture.slots)
        words = pause_words(picture.pause, now, is_running=is_running)
        parts.append(line(f"paused {words}", STILL))
        parts.append(line(f"  {typed('resume', picture.job)}", DIM))
    parts += _listed(picture, now)
    verdict = _verdict(picture)
    parts.append(line(verdict, GOOD if verdict == "complete" else WARN))
    return Screen(tuple(parts), _data(picture, now, verdict))


def _title(picture: Picture) -> Line:
    return Line(
        (
            Cell(f"{picture.job}  {picture.describe}    "),
            Cell(f"{minute(picture.since)} to {minute(picture.until)} UTC"),
        )
    )


def _verdict(picture: Picture) -> str:
    given_up = count(picture.slots, GIVEN_UP)
    parts = [f"{number(picture.to_do)} to do"] if picture.to_do != 0 else []
    parts += [f"{given_up} given up"] if given_up else []
    if parts:
        return "not complete: " + ", ".join(parts)
    return "complete" if count(picture.slots, (PROCESSED, RETRIED)) else "no windows"


# -- the strip ------------------------------------------------------------------------------------


def _strip(slots: Sequence[Slot], now: int, calendar: Calendar) -> Iterator[Line]:
    if not slots:
        return iter(())
    lengths = {slot.end - slot.start for slot in slots}
    if lengths == {HOUR} and all(slot.start % HOUR == 0 for slot in slots):
        return _hours(slots, now)
    if min(lengths) > 20 * HOUR and max(lengths) < 28 * HOUR:
        return _days(slots, calendar)
    return _plain(slots, now, lengths)


def _hours(slots: Sequence[Slot], now: int) -> Iterator[Line]:
    """A day a row, an hour a column."""
    yield line(" " * 7 + " ".join(f"{hour:02d}" for hour in range(24)), DIM)
    for day, group in groupby(slots, key=lambda slot: slot.start // DAY):
        places = {slot.start % DAY // HOUR: slot for slot in group}
        label = moment(day * DAY, now).removesuffix(" 00:00")[-5:]
        yield _letters(f"{label}  ", [places.get(hour) for hour in range(24)], " {} ")


def _days(slots: Sequence[Slot], calendar: Calendar) -> Iterator[Line]:
    """A month a row, a day a column, by the calendar of the job's zone."""
    yield line(" " * 9 + "1   5    10   15   20   25   30", DIM)
    for month, group in groupby(slots, key=lambda slot: calendar(slot.start)[1]):
        places = {int(calendar(slot.start)[0][8:]): slot for slot in group}
        yield _letters(f"{month}  ", [places.get(day) for day in range(1, 32)], "{}")


def _plain(slots: Sequence[Slot], now: int, lengths: set[int]) -> Iterator[Line]:
    """Letters only; rows begin at round times where windows of one length fill a day."""
    step = min(lengths)
    if len(lengths) == 1 and DAY % step == 0 and step < HOUR:
        row = max(n for n in range(1, LETTERS_IN_A_ROW + 1) if DAY % (n * step) == 0) * step
        for at, group in groupby(slots, key=lambda slot: slot.start // row):
            places = {slot.start % row // step: slot for slot in group}
            cells = [places.get(place) for place in range(row // step)]
            yield _letters(f"{boundary(at * row, now)}  ", cells, "{}")
        return
    for at in range(0, len(slots), LETTERS_IN_A_ROW):
        some = slots[at : at + LETTERS_IN_A_ROW]
        yield _letters(f"{boundary(some[0].start, now)}  ", some, "{}")


def _letters(label: str, places: Sequence[Slot | None], form: str) -> Line:
    cells = [Cell(label, style=DIM)]
    for slot in places:
        state = slot.state if slot is not None else OUTSIDE
        cells.append(Cell(form.format(LETTERS[state]), style=_STYLES.get(state, "")))
    return Line(tuple(cells))


def _totals(slots: Sequence[Slot]) -> Iterator[Line]:
    counts = [(letter, state, count(slots, (state,))) for state, letter in LETTERS.items()]
    shown = [f"{letter} {state} {n}" for letter, state, n in counts if n and state != OUTSIDE]
    if shown:
        yield line("   ".join(shown), DIM)


# -- what is not processed ------------------------------------------------------------------------


def _listed(picture: Picture, now: int) -> Iterator[Table | Line]:
    earlier = [
        Slot(r.start, r.end, r.state, r)
        for r in picture.unfinished
        if r.start is not None and r.end is not None
    ]
    found = [*stretches(earlier), *stretches(picture.slots)]
    listed = [s for s in found if s.first.state in (*TO_DO, *GIVEN_UP)]
    if not listed:
        return
    rows = tuple(_row(stretch, picture, now) for stretch in listed[:LISTED])
    yield Table(("WINDOW (UTC)", "STATE", ">TRIES", "WHY"), rows)
    if len(listed) > LISTED:
        yield line(f"... {len(listed) - LISTED} more rows (--last, --since, --until, --json)", DIM)


def _row(stretch: Stretch, picture: Picture, now: int) -> tuple[Cell, ...]:
    slot = stretch.first
    return (
        span_cell(stretch.start, stretch.end, now),
        Cell(slot.state, style=_STYLES.get(slot.state, "")),
        Cell(str(slot.row.attempts) if slot.row is not None else "0"),
        Cell(why) if (why := _why(stretch, picture, now)) else NOTHING,
    )


def _why(stretch: Stretch, picture: Picture, now: int) -> str:
    slot = stretch.first
    if slot.gap is not None:
        return _gap_reason(slot.gap, stretch.windows)
    if slot.row is None:
        return _pending(stretch, picture, now)
    run = picture.last_runs.get(slot.row.key)
    if slot.state in (RUNNING, LOST) and run is not None:
        return f"run {run.id} since {moment(run.started, now)}, {run.user}@{run.host} pid {run.pid}"
    if slot.state == HELD:
        return "its run was lost, a person decides: jobrun retry, or resolve"
    if slot.state == DEAD and run is not None:
        return f"{outcome(run)}, last {moment(run.started, now)}, no further try: jobrun retry"
    if slot.state != FAILED:
        return f"{plural(stretch.windows, 'window')}, {slot.row.reason}" if slot.row.reason else ""
    last = f"{outcome(run)}, last {moment(run.started, now)}" if run is not None else "failed"
    later = slot.row.due_at(now, picture.longest)
    when = (
        f"by {_next_call(picture, now)}" if later is None else f"not before {boundary(later, now)}"
    )
    return f"{last}, next try {when}"


def _gap_reason(gap: Gap, windows: int) -> str:
    detail = f": {gap.detail}" if gap.detail else ""
    return f"{plural(windows, 'window')}, {gap.reason}{detail}"


def _pending(stretch: Stretch, picture: Picture, now: int) -> str:
    blocker = next((s for s in picture.slots if s.state in (FAILED, HELD, LOST)), None)
    waits = plural(stretch.windows, "window")
    if picture.stops and blocker is not None and blocker.start < stretch.start:
        return f"{waits} behind {boundary(blocker.start, now)}"
    if picture.waits is not None:
        return f"{waits}: {waits_for(picture.waits, now)}"
    return f"{waits} for {_next_call(picture, now)}"


def _next_call(picture: Picture, now: int) -> str:
    if picture.pause is None or not picture.pause.shows(now):
        return "the next call"
    return next_try(picture.pause, now)


def _data(picture: Picture, now: int, verdict: str) -> dict[str, object]:
    return {
        "now": iso(now),
        "job": picture.job,
        "schedule": picture.describe,
        "since": iso(picture.since),
        "shown_since": iso(picture.shown),
        "until": iso(picture.until),
        "windows": picture.windows,
        "to_do": picture.to_do,
        "given_up": count(picture.slots, GIVEN_UP),
        "void": picture.void,
        "paused": None if picture.pause is None else pause_data(picture.pause),
        "complete": verdict == "complete",
        "slots": [_slot_data(slot) for slot in picture.slots],
    }


def _slot_data(slot: Slot) -> dict[str, object]:
    source = slot.row or slot.gap
    return {
        "start": iso(slot.start),
        "end": iso(slot.end),
        "state": slot.state,
        "key": slot.row.key if slot.row is not None else None,
        "tries": slot.row.attempts if slot.row is not None else 0,
        "reason": source.reason if source is not None else None,
    }


def keys_screen(ledger: str, job: str, keys: Sequence[WindowRow], now: int, limit: int) -> Screen:
    """A job whose units of work are keys: there is no strip, only the newest of them."""
    rows = tuple(
        (
            Cell(row.key.partition(":")[2], row.key),
            Cell(row.state, style=_STYLES.get(row.state, "")),
            Cell(str(row.attempts)),
            Cell(moment(row.changed_at, now), iso(row.changed_at), DIM),
        )
        for row in keys
    )
    table = Table(("KEY", "STATE", ">TRIES", "CHANGED (UTC)"), rows)
    parts: list[Line | Table] = [head(ledger, now), table]
    if len(keys) == limit:
        parts.append(line(f"older keys are left out: the newest {limit} are shown", DIM))
    data = {"now": iso(now), "job": job, "keys": [_key_data(row) for row in keys]}
    return Screen(tuple(parts), data)


def _key_data(row: WindowRow) -> dict[str, object]:
    return {
        "key": row.key,
        "state": row.state,
        "tries": row.attempts,
        "reason": row.reason,
        "changed_at": iso(row.changed_at),
    }
