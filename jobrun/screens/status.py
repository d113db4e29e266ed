"""`status`: one row a job, then what is wrong, why, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobrun import consent, rows
from jobrun.fate import after_loss_on_record, longest_on_record
from jobrun.instants import iso
from jobrun.options import again, typed
from jobrun.outbox import Found
from jobrun.rows import Pause, RunRow, WindowRow
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
    about,
    ago,
    boundary,
    boundary_cell,
    head,
    line,
    moment,
    number,
    plural,
    span,
)
from jobrun.screens.outbox import kept_data, kept_lines
from jobrun.screens.runs import outcome, outcome_cell, run_data, waits_data, waits_for
from jobrun.standing import (
    AHEAD,
    BLOCKED,
    DEAD,
    FAILING,
    HELD,
    LATE,
    LOST,
    NEW,
    OK,
    PAUSED,
    REFUSED,
    RUNNING,
    STUCK,
    WAITS,
    Behind,
    Standing,
    of_state,
)

STYLES = {
    OK: GOOD,
    FAILING: BAD,
    HELD: STILL,
    DEAD: WARN,
    RUNNING: BUSY,
    AHEAD: BAD,
    REFUSED: BAD,
    LATE: WARN,
    BLOCKED: BAD,
    WAITS: WARN,
    STUCK: WARN,
    LOST: BAD,
    PAUSED: STILL,
    NEW: DIM,
}
TITLES = ("JOB", "STATE", "DONE TO", "BEHIND", "LAST RUN", "CALLED")


def status_screen(
    ledger: str,
    standings: Sequence[Standing],
    now: int,
    *,
    check: bool,
    outbox: Sequence[Found] = (),
) -> Screen:
    """With `check` only what is wrong: nothing at all where nothing is."""
    troubles = tuple(part for s in standings for part in trouble_lines(s, now))
    troubles += kept_lines(outbox, now)
    data: dict[str, object] = {"now": iso(now), "jobs": [standing_data(s) for s in standings]}
    data["outbox"] = [kept_data(found) for found in outbox]
    if check:
        return Screen(troubles, data)
    rows = tuple(_row(s, now) for s in standings)
    pauses = tuple(part for s in standings for part in pause_lines(s, now))
    waiting = tuple(part for s in standings for part in waits_lines(s, now))
    return Screen((head(ledger, now), Table(TITLES, rows), *troubles, *pauses, *waiting), data)


def _row(standing: Standing, now: int) -> tuple[Cell, ...]:
    job = standing.facts.job
    return (
        Cell(job.name),
        Cell(standing.state, style=STYLES[standing.state]),
        boundary_cell(job.watermark, now),
        behind_cell(standing.facts.behind),
        _last_cell(standing, now),
        Cell(ago(job.last_seen, now), iso(job.last_seen), DIM),
    )


def behind_cell(behind: Behind) -> Cell:
    if behind.windows == 0:
        return NOTHING
    return Cell(f"{number(behind.windows)} ({about(behind.seconds)})", style=WARN)


def _last_cell(standing: Standing, now: int) -> Cell:
    if standing.running is not None:
        usual = standing.facts.usual
        text = about(max(0, now - standing.running.started))
        return Cell(f"{text}, mostly {about(usual)}" if usual is not None else text, style=BUSY)
    last = standing.last
    if last is None:
        return NOTHING
    ended = last.ended if last.ended is not None else last.started
    words = outcome(last)
    if words == "ok" and last.took is not None:
        words += f" {about(last.took)}"
    if words != "ok" and standing.alike > 1 and not words.startswith("ok"):
        words += f" x{standing.alike}"
    return outcome_cell(last, f"{words} {moment(ended, now)}")._replace(
        full=f"{words} {iso(ended)}"
    )


def trouble_lines(standing: Standing, now: int) -> Iterator[Line]:
    """What is wrong with a job, a line each, and the next step, indented to stand below it."""
    name = standing.facts.job.name
    for trouble in standing.troubles:
        what, hint = _EXPLAIN[trouble](standing, now)
        yield Line((Cell(f"{name}  {trouble}: ", style=STYLES[trouble]), Cell(what)))
        yield line(f"  {hint}", DIM)


def waits_lines(standing: Standing, now: int) -> Iterator[Line]:
    """No trouble of its own: the other job is to be looked at."""
    skip = standing.facts.waits
    if skip is not None and BLOCKED not in standing.troubles:
        yield Line((Cell(f"{standing.facts.job.name}  "), Cell(waits_for(skip, now), style=WARN)))


def _steps(*commands: str) -> str:
    return "    ".join(commands)


def _retry(standing: Standing) -> str:
    job = standing.facts.job
    return again("retry", job.name, is_unit=job.schedule is None)


def _blocked(standing: Standing, now: int) -> tuple[str, str]:
    skip = standing.facts.waits
    assert skip is not None
    return waits_for(skip, now), skip.hint or ""


def pause_lines(standing: Standing, now: int) -> Iterator[Line]:
    """A pause that a person has made: no trouble, but not to be forgotten."""
    if PAUSED not in standing.troubles and standing.facts.job.shown_pause(now) is not None:
        what, hint = _paused(standing, now)
        name = Cell(f"{standing.facts.job.name}  {PAUSED}: ", style=STYLES[PAUSED])
        yield Line((name, Cell(what)))
        yield line(f"  {hint}", DIM)


def pause_text(pause: Pause, now: int) -> str:
    """since 09-04 10:00, until 09-07 00:00, by anna@db1: source down"""
    until = f", until {boundary(pause.until, now)}" if pause.until is not None else ""
    return f"since {moment(pause.at, now)}{until}, {pause.text}"


def pause_words(pause: Pause, now: int, *, is_running: bool) -> str:
    """The same, and what comes of it where its time is over: it is not, before one has tried."""
    text = pause_text(pause, now)
    if not pause.is_probed(now):
        return text
    return f"{text}; {'one window tries' if is_running else 'the next call probes with one window'}"


def next_try(pause: Pause, now: int) -> str:
    """When a window that the pause keeps from its turn may have it."""
    is_due = pause.is_probed(now)
    return "the probe, or a call after it" if is_due else "a call after the pause"


def _paused(standing: Standing, now: int) -> tuple[str, str]:
    job = standing.facts.job
    assert job.pause is not None
    what = pause_words(job.pause, now, is_running=standing.running is not None)
    return what, _steps(typed("resume", job.name), typed("plan", job.name))


def _failing(standing: Standing, now: int) -> tuple[str, str]:
    name, last, row = standing.facts.job.name, standing.last, standing.failed
    logs = typed("logs", name)
    if row is None:
        assert last is not None  # without a failed window it is the last run that failed
        ended = f"{outcome(last)} {_when(standing, last, now)}"
        return ended, _steps(logs, typed("history", name))
    how = outcome(last) if last is not None and last.key == row.key else row.state
    what = [f"{how}, {plural(row.failures, 'failure')} of {_unit(row, now)}"]
    if not row.failures:  # interrupted, or made due by hand; a unit by its own call only
        which = "the" if row.start is not None else "its"
        begun = f"{rows.INTERRUPTED}, " if how == rows.INTERRUPTED else ""
        what = [f"{begun}{_unit(row, now)} is due, {which} next call runs it"]
    what += _later(_waiting(standing))
    if (due := row.due_at(now, longest_on_record(standing.facts.spec))) is not None:
        what.append(f"next try not before {boundary(due, now)}")
    return ", ".join(what), _steps(logs, typed("explain", name))


def _held(standing: Standing, now: int) -> tuple[str, str]:
    """Each waits for a person; where a failure stops the job, the later ones wait for it."""
    found = of_state(standing.facts, rows.HELD)
    what = [f"the run of {_several(found, now)} was lost"]
    behind = standing.facts.behind.windows
    stops = standing.facts.spec.options.get("--on-failure") != "continue"
    windows = any(row.start is not None for row in found)
    later = max(0, (behind or 0) - len(standing.facts.unfinished)) if stops and windows else 0
    what += _later(later)
    name = standing.facts.job.name
    resolve = typed("resolve", name, found[0].key)
    return ", ".join(what), _steps(_retry(standing), f'{resolve} --note "..."')


def _later(count: int) -> list[str]:
    return [f"{plural(count, 'later window')} wait{'s' if count == 1 else ''}"] if count else []


def _dead(standing: Standing, now: int) -> tuple[str, str]:
    found = of_state(standing.facts, rows.DEAD)
    name = standing.facts.job.name
    failures = plural(found[-1].failures, "failure")
    what = f"{_several(found, now)}, {failures}"
    return what, _steps(typed("failures", name), _retry(standing))


def _several(found: Sequence[WindowRow], now: int) -> str:
    """window 09-03 22:00 - 23:00; 3 of them, the last window 09-03 22:00 - 23:00"""
    last = _unit(found[-1], now)
    return last if len(found) == 1 else f"{len(found)} of them, the last {last}"


def _when(standing: Standing, last: RunRow, now: int) -> str:
    if standing.alike == 1:
        return f"at {moment(last.started, now)}"
    ended = standing.facts.ended
    first = ended[standing.alike - 1] if standing.alike <= len(ended) else last
    return f"x{standing.alike} since {moment(first.started, now)}"


def _unit(row: WindowRow, now: int) -> str:
    if row.start is None or row.end is None:
        return row.key
    return f"window {span(row.start, row.end, now)}"


def _waiting(standing: Standing) -> int:
    """How many closed windows stand behind the failed one, where a failure stops the job."""
    spec, behind = standing.facts.spec, standing.facts.behind.windows
    if standing.failed is None or standing.failed.start is None or behind is None:
        return 0
    if spec.options.get("--on-failure") == "continue":
        return 0
    return max(0, behind - len(standing.facts.unfinished))


def _stuck(standing: Standing, now: int) -> tuple[str, str]:
    run = standing.running
    assert run is not None
    usual = standing.facts.usual
    mostly = f", mostly {about(usual)}" if usual is not None else ""
    what = f"run {run.id} since {moment(run.started, now)} ({about(now - run.started)}{mostly})"
    return (
        f"{what}, holder {run.host}:{run.pid}",
        _steps(typed("logs", str(run.id), "-f"), typed("show", str(run.id))),
    )


def after_loss(standing: Standing, unit: WindowRow, now: int) -> str:
    """What the next call does about a unit whose run is lost."""
    state = after_loss_on_record(standing.facts.spec, unit)
    if state == rows.HELD:
        return "the next call holds it for a person"
    if state == rows.DEAD:
        return "its attempts are used up, the next call makes it dead"
    pause = standing.facts.job.shown_pause(now)
    return f"{'the next call' if pause is None else next_try(pause, now)} runs it again"


def _lost(standing: Standing, now: int) -> tuple[str, str]:
    run = standing.lost
    assert run is not None
    what = f"run {run.id} of {moment(run.started, now)} has no end and its processes are gone"
    unit = standing.facts.units.get(run.key or "")
    if unit is not None and unit.is_marked_by(run):
        what += "; its window is processed: its command had marked it"
    elif unit is not None and unit.state == rows.RUNNING:
        what += f"; {after_loss(standing, unit, now)}"
    return what, _steps(typed("show", str(run.id)), typed("logs", str(run.id)))


def _ahead(standing: Standing, now: int) -> tuple[str, str]:
    mark = standing.facts.job.watermark
    assert mark is not None
    far = about(mark - now)
    what = f"done to {iso(mark)}, {far} ahead of the clock: every call is refused"
    return what, standing.facts.way_back or ""


def _refused(standing: Standing, now: int) -> tuple[str, str]:
    job, event = standing.facts.job, standing.facts.refusal
    assert event is not None
    since, last = moment(event.at, now), moment(job.last_seen, now)
    what = f"calls since {since}, the last at {last}: {event.detail}"
    before, is_change, _ = (event.detail or "").partition(" -> ")
    if is_change and before == job.schedule:
        return what, consent.ways_on(before)
    return what, typed("events", job.name)


def _late(standing: Standing, now: int) -> tuple[str, str]:
    every = standing.called_every
    was = f" (was every {about(every)})" if every else ""
    silent = about(now - standing.facts.job.last_seen)
    return f"not called for {silent}{was}: is its crontab line there?", "jobrun doctor"


_EXPLAIN = {
    FAILING: _failing,
    HELD: _held,
    DEAD: _dead,
    STUCK: _stuck,
    LOST: _lost,
    AHEAD: _ahead,
    REFUSED: _refused,
    LATE: _late,
    BLOCKED: _blocked,
    PAUSED: _paused,
}


def standing_data(standing: Standing) -> dict[str, object]:
    job, behind, running, last = (
        standing.facts.job,
        standing.facts.behind,
        standing.running,
        standing.last,
    )
    return {
        "job": job.name,
        "state": standing.state,
        "troubles": list(standing.troubles),
        "done_to": None if job.watermark is None else iso(job.watermark),
        "paused": None if job.pause is None else pause_data(job.pause),
        "dead": len(of_state(standing.facts, rows.DEAD)),
        "held": len(of_state(standing.facts, rows.HELD)),
        "failing": {
            "windows": job.failing,
            "since": None if job.failing_since is None else iso(job.failing_since),
        },
        "behind": {"windows": behind.windows, "seconds": behind.seconds},
        "running": None if running is None else run_data(running),
        "last_run": None if last is None else run_data(last),
        "alike": standing.alike,
        "usual_seconds": standing.facts.usual,
        "waits": None if standing.facts.waits is None else waits_data(standing.facts.waits),
        "called": iso(job.last_seen),
        "called_every_seconds": standing.called_every,
    }


def pause_data(pause: Pause) -> dict[str, object]:
    until = None if pause.until is None else iso(pause.until)
    return {**pause._asdict(), "at": iso(pause.at), "until": until}
