"""`plan` and `run --dry-run`: what a call would run, what it would leave, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jobrun import options, placeholders
from jobrun.instants import MINUTE, iso
from jobrun.job import Job
from jobrun.plans import Note, Plan, Skip, Unit
from jobrun.rows import PAUSED, RETRY_LATER, UPSTREAM, JobRow, RunRow
from jobrun.screen import (
    DIM,
    GOOD,
    NOTHING,
    STILL,
    WARN,
    Cell,
    Line,
    Screen,
    Table,
    about,
    boundary,
    head,
    line,
    minute,
    moment,
    number,
    plural,
    span_cell,
)
from jobrun.screens.runs import waits_data, waits_for
from jobrun.screens.status import pause_data, pause_text

SHOWN = 20  # runs
IN_JSON = 1000
WIDE = 60  # letters of a command on a terminal
FEW = 5  # runs that are needed to say that calls come late

# What a unit's placeholders stand for.
Values = Callable[[Unit], Mapping[str, str]]


class Setting(NamedTuple):
    """What a plan is made for. `source` says whose options and command these are."""

    ledger: str
    job: Job
    row: JobRow | None
    describe: str | None  # of the grid
    source: str
    holder: RunRow | None  # a run that is under way
    late: int | None  # usual seconds from a window's readiness to its run, where that is long
    now: int


def plan_screen(setting: Setting, plan: Plan, values: Values) -> Screen:
    parts: list[Line | Table] = [head(setting.ledger, setting.now), *_title(setting)]
    rows = tuple(_rows(setting, plan, values))
    if rows:
        unit = "UNIT" if setting.describe is None else "WINDOW (UTC)"
        parts.append(Table(("DO", unit, "WHY", "COMMAND"), rows))
    if len(plan.units) > SHOWN:
        last = plan.units[-1].start
        until = f", the last starts {minute(last)}" if last is not None else ""
        parts.append(line(f"... {len(plan.units) - SHOWN} more runs{until}", DIM))
    parts += [line(text, style) for text, style in _remarks(setting, plan)]
    parts.append(_end(setting, plan))
    return Screen(tuple(parts), _data(setting, plan, values))


def _title(setting: Setting) -> Iterator[Line]:
    job, row = setting.job, setting.row
    if setting.describe is None:
        keyed = job.key is not None or job.key_file is not None
        what = "a unit of --key, once" if keyed else "no windows: each call runs the command once"
        yield line(f"{job.name}  {what}")
    else:
        lag = f", lag {about(job.lag)}" if job.lag else ""
        cap = f"catch-up {job.catch_up}, at most {job.max_windows} a call"
        if job.parallel is not None:
            cap = f"{job.parallel} at a time"
        yield line(f"{job.name}  {setting.describe}{lag}, {cap}")
    yield line(f"{setting.source}; nothing is changed by this plan", DIM)
    if row is not None and row.watermark is not None:
        yield line(f"done to {minute(row.watermark)} UTC")


def _rows(setting: Setting, plan: Plan, values: Values) -> Iterator[tuple[Cell, ...]]:
    now = setting.now
    for gap in plan.opening.gaps:
        why = f"{plural(gap.windows, 'window')}, {gap.reason}"
        yield Cell("give up", style=WARN), span_cell(gap.start, gap.end, now), Cell(why), NOTHING
    for key, reason in plan.opening.ended:
        yield Cell("give up", style=WARN), Cell(key.partition(":")[2], key), Cell(reason), NOTHING
    for unit in plan.units[:SHOWN]:
        command = _command_cell(setting.job.command, values(unit))
        yield Cell("run", style=GOOD), _unit_cell(unit, now), Cell(_kind(unit)), command
    for skip in plan.skips:
        unit_cell = NOTHING if skip.key is None else Cell(skip.key.partition(":")[2], skip.key)
        yield Cell("skip", style=WARN), unit_cell, _why(skip, now), NOTHING
    for key in plan.opening.due:
        yield Cell("due", style=GOOD), Cell(key.partition(":")[2], key), Cell("by hand"), NOTHING


def _why(skip: Skip, now: int) -> Cell:
    later = skip.fields.get("next")
    if skip.reason == RETRY_LATER and isinstance(later, int):
        return Cell(f"{skip.reason}, not before {boundary(later, now)}")
    if skip.reason not in UPSTREAM:
        return Cell(skip.reason)
    return Cell(f"{skip.reason}: {waits_for(skip, now)}", style=WARN)


def _unit_cell(unit: Unit, now: int) -> Cell:
    if unit.start is not None and unit.end is not None:
        return span_cell(unit.start, unit.end, now)
    return NOTHING if unit.key is None else Cell(unit.key.partition(":")[2], unit.key)


def _kind(unit: Unit) -> str:
    words = [unit.kind or "plain"]
    words += ["partial"] if unit.partial else []
    words += [f"{unit.windows} windows in one"] if unit.windows > 1 else []
    words += [f"fails: {unit.refusal[0]}"] if unit.refusal is not None else []
    return ", ".join(words)


def _command_cell(command: Sequence[str], values: Mapping[str, str]) -> Cell:
    full = options.shell_text(filled(command, values))
    return Cell(full if len(full) <= WIDE else f"{full[:WIDE]} ...", full)


def filled(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    return [placeholders.fill(argument, values) for argument in command]


def _remarks(setting: Setting, plan: Plan) -> Iterator[tuple[str, str]]:
    """What the call itself would print, and what a person should know before it is installed."""
    pause = setting.row.pause if setting.row is not None else None
    if pause is not None and any(skip.reason == PAUSED for skip in plan.skips):
        yield f"paused {pause_text(pause, setting.now)}", STILL
        yield f"       {options.typed('resume', setting.job.name)}", DIM
    elif pause is not None and plan.units and setting.row and setting.row.is_probed(setting.now):
        yield f"a probe, paused {pause_text(pause, setting.now)}", STILL
    if plan.left != 0:
        since = "" if plan.left_from is None else f", from {minute(plan.left_from)}"
        yield f"{number(plan.left)} windows are left to the next calls{since}", WARN
    for note in plan.notes:
        yield from _note(note)
    job = setting.job
    if setting.describe is not None and not placeholders.names_window(job.command):
        yield "note: COMMAND names no {start} or {end}; after an outage of n windows it runs n", DIM
        yield "      times (--catch-up latest: once), unless it reads JOBRUN_WINDOW_START", DIM
    if setting.late is not None:
        late = about(setting.late)
        yield f"note: its runs begin {late} after their window is ready: call it more often", DIM


def _note(note: Note) -> Iterator[tuple[str, str]]:
    word, fields, hint = note
    given = ((name, value) for name, value in fields.items() if name != "job")
    shown = (f"{name}={_field(value)}" for name, value in given if value is not None)
    yield f"{word}: {' '.join(shown)}", WARN if word in ("WARNING", "LOST") else ""
    if hint is not None:
        yield f"  {hint}", DIM


def _field(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(iso(instant) for instant in value)
    # Of the fields of a note, whole numbers this large are instants.
    return iso(value) if isinstance(value, int) and value > 10**8 else str(value)


def _end(setting: Setting, plan: Plan) -> Line:
    parts = []
    if plan.left != 0:
        parts.append("the next call finds more at once")
    elif plan.waits is not None:
        seconds = "" if plan.waits % MINUTE == 0 else f":{plan.waits % MINUTE:02}"
        parts.append(f"next call that finds more: {minute(plan.waits)}{seconds} UTC")
    run = setting.holder
    if run is not None:
        since = moment(run.started, setting.now)
        holder = f"{run.user}@{run.host} pid {run.pid}"
        held = "beside" if setting.job.overlap == "allow" else "lock: held by"
        parts.append(f"{held} run {run.id}, {holder}, since {since}")
    else:
        parts.append("lock: free")
    return line(".  ".join(parts))


def usual_lateness(runs: Sequence[RunRow], lag: int) -> int | None:
    """Seconds from a window's readiness to its run, if that is usually more than half its length.

    So it is where cron calls at the very instants at which windows end: always one window late.
    """
    late = sorted(
        (run.started - run.end - lag, run.end - run.start)
        for run in runs
        if run.start is not None and run.end is not None and run.attempt == 1 and run.kind == "new"
    )
    if len(late) < FEW:
        return None
    seconds, length = late[len(late) // 2]
    # Hours of backlog are an outage, no habit.
    return seconds if seconds >= 5 * MINUTE and length / 2 < seconds < length else None


def _data(setting: Setting, plan: Plan, values: Values) -> dict[str, object]:
    opening, row = plan.opening, setting.row
    return {
        "now": iso(setting.now),
        "job": setting.job.name,
        "schedule": setting.describe,
        "done_to": None if row is None or row.watermark is None else iso(row.watermark),
        "runs": [
            {**_unit_data(unit), "argv": filled(setting.job.command, values(unit))}
            for unit in plan.units[:IN_JSON]
        ],
        "runs_in_all": len(plan.units),
        "gaps": [
            {"start": iso(g.start), "end": iso(g.end), "windows": g.windows, "reason": g.reason}
            for g in opening.gaps
        ],
        "due": list(opening.due),
        "ended": [{"key": key, "reason": reason} for key, reason in opening.ended],
        "skips": [_skip_data(skip) for skip in plan.skips],
        "left": plan.left,
        "next": None if plan.waits is None else iso(plan.waits),
        "notes": [{"word": word, **fields, "hint": hint} for word, fields, hint in plan.notes],
        "holder": None if setting.holder is None else setting.holder.id,
        "paused": None if row is None or row.pause is None else pause_data(row.pause),
    }


def _skip_data(skip: Skip) -> dict[str, object]:
    if skip.reason in UPSTREAM:
        return waits_data(skip)
    return {"reason": skip.reason, "key": skip.key}


def _unit_data(unit: Unit) -> dict[str, object]:
    return {
        **unit._asdict(),
        "start": None if unit.start is None else iso(unit.start),
        "end": None if unit.end is None else iso(unit.end),
    }
