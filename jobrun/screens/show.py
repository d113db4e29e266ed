"""`show`: everything on record about a job, a key or a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobrun import overrides
from jobrun.instants import iso
from jobrun.options import BY_NAME, FLAG, shell_text, typed
from jobrun.printed import Stream
from jobrun.rows import EventRow, JobRow, RunRow, WindowRow
from jobrun.screen import (
    DIM,
    STILL,
    Cell,
    Line,
    Screen,
    Table,
    about,
    ago,
    boundary_cell,
    head,
    instant_cell,
    line,
    moment,
    plural,
    span_cell,
)
from jobrun.screens.events import event_data, events_table
from jobrun.screens.runs import by, fold, outcome, outcome_cell, run_data, runs_table, took
from jobrun.screens.status import (
    STYLES,
    behind_cell,
    pause_words,
    standing_data,
    trouble_lines,
)
from jobrun.standing import FAILING, Standing

WIDE = 100  # letters of a value on a terminal
Fields = Sequence[tuple[str, Cell | None]]


def _fields(fields: Fields) -> tuple[Line, ...]:
    """Label and value, a line each; what is not known is left out."""
    return tuple(
        Line((Cell(f"{label:<15}", style=DIM), cell)) for label, cell in fields if cell is not None
    )


def _maybe(value: object) -> Cell | None:
    return None if value in (None, "") else Cell(str(value))


def job_screen(
    ledger: str, standing: Standing, events: Sequence[EventRow], now: int, schedule: str | None
) -> Screen:
    facts = standing.facts
    job, call = facts.job, facts.spec
    command = shell_text(call.command) + ("" if call.whole else " ... (only a hash of the rest)")
    fields: Fields = (
        ("job", Cell(job.name)),
        ("state", Cell(standing.state, style=STYLES[standing.state])),
        ("windows", Cell(schedule or "none: a plain job, or units of --key")),
        ("done to", None if job.watermark is None else boundary_cell(job.watermark, now)),
        ("next boundary", None if job.next is None else boundary_cell(job.next, now)),
        ("behind", None if facts.behind.windows == 0 else behind_cell(facts.behind)),
        ("paused", _pause(standing, now)),
        ("failing", _failing(standing, now)),
        ("holder", _holder(standing.running, now)),
        ("usual run", None if facts.usual is None else Cell(about(facts.usual))),
        ("last run", None if standing.last is None else _brief(standing.last, now)),
        ("first seen", instant_cell(job.first_seen, now)),
        ("last called", Cell(ago(job.last_seen, now), iso(job.last_seen))),
        (
            "called by",
            _maybe(call.caller and f"{call.caller} {'tty' if call.terminal else 'cron'}"),
        ),
        ("in folder", _maybe(call.cwd)),
        ("options", _maybe(shell_text(_words(call.options)))),
        ("set on record", _set_on_record(job, call.options)),
        ("command", _maybe(command if call.command else None)),
        ("first window", _maybe(job.first)),
        ("token", Cell(str(job.token))),
    )
    parts: list[Line | Table] = [head(ledger, now), *_fields(fields), *trouble_lines(standing, now)]
    if events:
        parts += [line(""), events_table(events, now, with_job=False)]
    data = {**standing_data(standing), "spec": call._asdict(), "schedule": job.schedule}
    data |= {"now": iso(now), "token": job.token, "first": job.first, "next": _iso(job.next)}
    return Screen(tuple(parts), {**data, "events": [event_data(event) for event in events]})


def _words(options: dict[str, str]) -> list[str]:
    """Options as typed; a flag is kept as `1`."""
    words = []
    for name, text in options.items():
        flag = name in BY_NAME and BY_NAME[name].kind == FLAG
        words += [name] if flag else [name, text]
    return words


def _set_on_record(job: JobRow, used: Mapping[str, str]) -> Cell | None:
    """Which of the options they are; --origin says by whom, and why."""
    found = [
        overrides.shown(name, each.value)
        + ("" if used.get(name) == each.value else " (does not fit: not used)")
        for name, each in overrides.read(job.overrides).items()
    ]
    shown = ", ".join(found)
    return Cell(f"{shown}    (--origin)", style=STILL) if shown else None


def _pause(standing: Standing, now: int) -> Cell | None:
    pause = standing.facts.job.shown_pause(now)
    if pause is None:
        return None
    text = pause_words(pause, now, is_running=standing.running is not None)
    return Cell(text, style=STILL)


def _failing(standing: Standing, now: int) -> Cell | None:
    """What --pause-after counts, until a window is processed: also where all is settled by hand."""
    job = standing.facts.job
    if job.failing_since is None:
        return None
    settled = "" if standing.facts.undone or FAILING in standing.troubles else ", settled since"
    since = moment(job.failing_since, now)
    return Cell(f"{plural(job.failing, 'window')} in a row since {since}{settled}")


def _holder(run: RunRow | None, now: int) -> Cell | None:
    if run is None:
        return None
    return Cell(
        f"run {run.id}, {run.user}@{run.host} pid {run.pid}, for {about(now - run.started)}"
    )


def _brief(run: RunRow, now: int) -> Cell:
    return outcome_cell(run, f"{outcome(run)} after {took(run, now)}, run {run.id}")


def key_screen(
    ledger: str,
    row: WindowRow,
    runs: Sequence[RunRow],
    values: Mapping[str, str],
    now: int,
    longest: int,
) -> Screen:
    """`values` are what the window left for other jobs; `longest` is its job's longest delay."""
    window = None if row.start is None or row.end is None else span_cell(row.start, row.end, now)
    later = row.due_at(now, longest)
    fields: Fields = (
        ("key", Cell(row.key)),
        ("state", Cell(row.state)),
        ("window (UTC)", window),
        ("stands for", Cell(f"{row.windows} windows, merged") if row.windows > 1 else None),
        ("partial", Cell("yes: a seam after a change of schedule") if row.partial else None),
        ("tries", Cell(f"{row.attempts}, of them failed {row.failures}")),
        ("reason", _maybe(row.reason)),
        ("next try", None if later is None else instant_cell(later, now, seconds=True)),
        ("changed", instant_cell(row.changed_at, now, seconds=True)),
        ("token", Cell(str(row.token))),
        *(("left" if n == 0 else "", _value(*each)) for n, each in enumerate(values.items())),
    )
    parts: list[Line | Table] = [head(ledger, now), *_fields(fields), line("")]
    parts.append(runs_table(fold(runs), now, with_job=False) if runs else line("no runs", DIM))
    data = {**row._asdict(), "start": _iso(row.start), "end": _iso(row.end)}
    data |= {"next_attempt_at": _iso(row.next_attempt_at), "changed_at": iso(row.changed_at)}
    data |= {"now": iso(now), "runs": [run_data(run) for run in runs], "values": dict(values)}
    return Screen(tuple(parts), data)


def _value(name: str, value: str) -> Cell:
    """One line, of what may be any text."""
    full = f"{name}={value if value.isprintable() else ascii(value)}"
    return Cell(full if len(full) <= WIDE else f"{full[:WIDE]} ...", full)


def run_screen(ledger: str, run: RunRow, kept: Sequence[Stream], now: int) -> Screen:
    window = None if run.start is None or run.end is None else span_cell(run.start, run.end, now)
    fields: Fields = (
        ("run", Cell(str(run.id))),
        ("job", Cell(run.job)),
        ("key", _maybe(run.key)),
        ("window (UTC)", window),
        ("kind", _maybe(run.kind)),
        ("try", Cell(str(run.attempt)) if run.key is not None else None),
        ("outcome", outcome_cell(run)),
        ("why", _maybe(run.why)),
        ("exit code", _maybe(run.exit_code)),
        ("signal", _maybe(run.signal)),
        ("started", instant_cell(run.started, now, seconds=True)),
        ("ended", None if run.ended is None else instant_cell(run.ended, now, seconds=True)),
        ("took", Cell(took(run, now))),
        ("by", Cell(f"{by(run)}, host {run.host}")),
        ("processes", Cell(f"jobrun {run.pid or '-'}, command {run.child_pid or '-'}")),
        ("token", Cell(str(run.token))),
        ("output", _maybe(None if run.output_bytes is None else f"{run.output_bytes} bytes")),
        *(("kept", Cell(f"{k.path} ({k.size} bytes)")) for k in kept if k.size),
    )
    parts = (head(ledger, now), *_fields(fields), line(f"  {typed('logs', str(run.id))}", DIM))
    data = {**run_data(run), "now": iso(now)}
    return Screen(parts, {**data, "kept": [k._asdict() for k in kept]})


def _iso(instant: int | None) -> str | None:
    return None if instant is None else iso(instant)
