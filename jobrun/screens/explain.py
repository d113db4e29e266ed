"""`explain`: the whole story of one window, or unit of --key, in order of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from jobrun.fate import after_loss_on_record, longest_on_record
from jobrun.instants import iso, iso_z
from jobrun.options import again, typed
from jobrun.rows import (
    DEAD,
    FAILED,
    HELD,
    LOST,
    PROCESSED,
    RUNNING,
    SKIPPED,
    UPSTREAM_FAILED,
    VOID,
    EventRow,
    Gap,
    RunRow,
    SkipRow,
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
    about,
    boundary_cell,
    head,
    instant_cell,
    line,
    plural,
    span_cell,
)
from jobrun.screens.events import event_data
from jobrun.screens.runs import (
    Folded,
    fold,
    outcome,
    outcome_cell,
    run_data,
    took,
    waits_for,
)
from jobrun.screens.skips import skip_data
from jobrun.screens.status import after_loss, pause_words
from jobrun.standing import Standing
from jobrun.story import OPEN, Closed, HeldUp, Story
from jobrun.strip import OUTSIDE, PENDING

Other = Closed | HeldUp | Gap | SkipRow | EventRow
Some = TypeVar("Some", RunRow, RunRow | Folded)

_STATES = {
    PROCESSED: ("processed", GOOD),
    FAILED: ("FAILED, will be tried again", BAD),
    RUNNING: ("running", BUSY),
    LOST: ("lost", BAD),  # and what comes of it
    DEAD: ("dead, its attempts are used up", BAD),
    HELD: ("held, waits for a person", STILL),
    SKIPPED: ("skipped", WARN),
    VOID: ("void since the watermark was lowered, runs in its turn", WARN),
    PENDING: ("pending", DIM),
    OPEN: ("open", DIM),
    OUTSIDE: ("before the first window of this job", DIM),
}
# In one second a run stands after what its call wrote before it, and before what came of it.
_BEFORE_A_RUN = (LOST, HELD, "orphan", "schedule-changed", "boundaries-moved", "clock-believed")
SKIPS = 3  # of the job as a whole, for one reason; more are put together


def explain_screen(
    ledger: str, story: Story, standing: Standing, last_words: str | None, now: int
) -> Screen:
    entries = in_order(story, fold(story.runs), _few(story.skips))
    parts: list[Line | Table] = [head(ledger, now), _title(story, standing, now)]
    if entries:
        rows = tuple(_row(entry, now) for entry in entries)
        parts.append(Table(("AT (UTC)", "WHAT", "HOW", "BY"), rows))
    if story.cut:
        more = "there may be more, the oldest 1000 are shown: jobrun skips, events --limit N"
        parts.append(line(more, DIM))
    parts += [_field(*field) for field in _tail(story, standing, last_words, now)]
    return Screen(tuple(parts), _data(story, last_words, now))


def _title(story: Story, standing: Standing, now: int) -> Line:
    key, _, _, state, row, gap = story.subject
    words, style = _STATES.get(state, (state, ""))
    if state == LOST and row is not None:
        words += f", {after_loss(standing, row, now)}"
    reason = gap.reason if gap is not None else row.reason if row is not None else None
    if state in (SKIPPED, VOID) and reason:
        words += f": {reason}"
    return Line((Cell(f"{key}    "), Cell(words, style=style)))


# -- in order of time -----------------------------------------------------------------------------


def in_order(story: Story, runs: Sequence[Some], skips: Sequence[SkipRow]) -> list[Other | Some]:
    gap = story.subject.gap
    entries: list[Other | Some] = [*story.held_up, *skips, *story.events]
    entries += reversed(runs)
    entries += [entry for entry in (story.closed, gap) if entry is not None]
    return sorted(entries, key=lambda entry: _place(entry, story))


def _place(entry: Other | RunRow | Folded, story: Story) -> tuple[int, int]:
    """When it was, and which of one second comes first."""
    if isinstance(entry, RunRow):
        return entry.started, 3
    if isinstance(entry, Folded):
        return entry.runs[-1].started, 3
    if isinstance(entry, SkipRow):
        # Of the job as a whole it may have begun before the window was there.
        since = story.closed.at if story.closed is not None and entry.key is None else entry.at
        return max(entry.at, since), 4
    if isinstance(entry, EventRow):
        return entry.at, 2 if entry.kind in _BEFORE_A_RUN else 5
    return entry.at, 0 if isinstance(entry, Closed) else 1


def _few(skips: Sequence[SkipRow]) -> list[SkipRow]:
    """Many of the job as a whole, of one reason (a holder each, say), are one row."""
    shown = [skip for skip in skips if skip.key is not None]
    reasons = dict.fromkeys(skip.reason for skip in skips if skip.key is None)
    for reason in reasons:
        alike = [skip for skip in skips if skip.key is None and skip.reason == reason]
        shown += alike if len(alike) <= SKIPS else [_together(alike)]
    return shown


def _together(skips: Sequence[SkipRow]) -> SkipRow:
    return skips[0]._replace(
        detail=f"{len(skips)} different ones",
        times=sum(skip.times for skip in skips),
        last_at=max(skip.last_at for skip in skips),
    )


def _row(entry: Other | RunRow | Folded, now: int) -> tuple[Cell, ...]:
    if isinstance(entry, RunRow):
        return _run_row(entry, now)
    if isinstance(entry, Folded):
        return _folded_row(entry)
    what, how = _words(entry, now)
    at = entry.at
    return instant_cell(at, now, seconds=True, style=DIM), Cell(what), how, NOTHING


def _run_row(run: RunRow, now: int) -> tuple[Cell, ...]:
    kind = f", {run.kind}" if run.kind not in (None, "new", "retry") else ""
    length = took(run, now)
    how = f"{outcome(run)} for {length}" if run.outcome is None else outcome(run)
    how += f" after {length}" if run.took is not None else ""
    if run.outcome == LOST:
        how = "lost: nobody saw its end"
    where = f"{run.user}@{run.host} pid {run.pid}, {'tty' if run.terminal else 'cron'}"
    return (
        instant_cell(run.started, now, seconds=True, style=DIM),
        Cell(f"run {run.id}, try {run.attempt}{kind}"),
        outcome_cell(run, how),
        Cell(where, style=DIM),
    )


def _folded_row(folded: Folded) -> tuple[Cell, ...]:
    alike = outcome_cell(folded.runs[0], f"{outcome(folded.runs[0])} each")
    return Cell("..."), Cell(f"{len(folded.runs)} tries between"), alike, NOTHING


def _words(entry: Other, now: int) -> tuple[str, Cell]:
    """What happened, and more of it; a kind or reason unknown here speaks for itself."""
    if isinstance(entry, Closed):
        lag = f", lag {about(entry.lag)}" if entry.lag else ""
        window = span_cell(entry.start, entry.end, now)
        return "closed", Cell(f"{window.text}{lag}", f"{window.full}{lag}")
    if isinstance(entry, HeldUp):
        failed = entry.runs[0]
        window = span_cell(failed.start or 0, failed.end or 0, now)
        ends = f": {outcome(failed)}" + (f" x{len(entry.runs)}" if entry.runs[1:] else "")
        return "held up", Cell(f"by {window.text}{ends}", f"by {window.full}{ends}")
    if isinstance(entry, Gap):
        many = f"{plural(entry.windows, 'window')}: " if entry.windows != 1 else ""
        return "given up", Cell(f"{many}{entry.reason}" + _after(": ", entry.detail))
    if isinstance(entry, EventRow):
        return entry.kind, Cell(entry.detail) if entry.detail else NOTHING
    last = instant_cell(entry.last_at, now, seconds=True)
    what = entry.reason + _after(": ", entry.detail)
    if entry.times == 1:
        return "skipped", Cell(what)
    often = f"{what}, x{entry.times} until"
    return "skipped", Cell(f"{often} {last.text}", f"{often} {last.full}")


def _after(between: str, text: str | None) -> str:
    return f"{between}{text}" if text else ""


# -- below: what is to come -----------------------------------------------------------------------


def _tail(
    story: Story, standing: Standing, last_words: str | None, now: int
) -> Iterator[tuple[str, Cell]]:
    failed = next((run for run in story.runs if run.outcome is not None), None)
    if failed is not None and failed.why is not None:
        yield "why", Cell(failed.why)
    if last_words is not None and failed is not None:
        yield "last words", Cell(f"{last_words}    ({typed('logs', str(failed.id))})")
    if story.queue is not None:
        queue, span = story.queue, span_cell(story.queue.start, story.queue.end, now)
        many = plural(queue.windows, "window")
        yield "waits for it", Cell(f"{many}, {span.text}", f"{many}, {span.full}")
    if story.behind is not None:
        row = story.behind
        span = span_cell(row.start or 0, row.end or 0, now)
        yield "waits for", Cell(f"{span.text}, {row.state}", f"{span.full}, {row.state}")
    if story.upstream is not None:
        style = BAD if story.upstream.reason == UPSTREAM_FAILED else WARN
        yield "upstream", Cell(waits_for(story.upstream, now), style=style)
    upcoming = _next(story, standing, now)
    if upcoming is not None:
        yield "next", upcoming
    for number, text in enumerate(_do(story, standing, now)):
        yield "" if number else "do", Cell(text, style=DIM)


def _next(story: Story, standing: Standing, now: int) -> Cell | None:
    state, job, end = story.subject.state, standing.facts.job, story.subject.end
    if state not in (FAILED, PENDING, LOST, VOID, OPEN) or end is None:
        return None
    if (pause := job.shown_pause(now)) is not None:
        words = pause_words(pause, now, is_running=standing.running is not None)
        return Cell(f"the job is paused {words}", style=STILL)
    turns = [row for row in (story.subject.row, story.behind) if row is not None]
    if (hindrance := _hindrance(story, standing, turns)) is not None:
        return hindrance
    spec = standing.facts.spec
    longest = longest_on_record(spec)
    every = f" (every {about(standing.called_every)} so far)" if standing.called_every else ""
    text = f"the next call{every}"
    # Whatever it waits for ends before it does.
    later = max([end + spec.seconds("--lag", 0), *(r.due_at(now, longest) or 0 for r in turns)])
    if later <= now:
        return Cell(text)
    when = boundary_cell(later, now)
    return Cell(f"{text}, not before {when.text}", f"{text}, not before {when.full}")


def _hindrance(story: Story, standing: Standing, turns: Sequence[WindowRow]) -> Cell | None:
    """Why no call is known that runs it; `turns` are its row and that which it waits for."""
    if story.upstream is not None and story.upstream.reason == UPSTREAM_FAILED:
        return Cell("no call, before a person has looked at the upstream", style=BAD)
    if story.upstream is not None:
        return Cell("a call once the upstream is as far", style=WARN)
    if story.behind is not None and _is_under_way(story.behind, standing):
        return Cell("once the one before it has ended, which is running", style=BUSY)
    fates = {_fate(row, standing) for row in turns}
    if HELD in fates:
        return Cell("no call, before a person has looked at the one that is held", style=STILL)
    is_dead = story.subject.row is not None and _fate(story.subject.row, standing) == DEAD
    return Cell("no call, its attempts are used up", style=WARN) if is_dead else None


def _is_under_way(row: WindowRow, standing: Standing) -> bool:
    return standing.running is not None and standing.running.key == row.key


def _fate(row: WindowRow, standing: Standing) -> str:
    """Its state once the next call has seen what was lost."""
    return after_loss_on_record(standing.facts.spec, row) if row.state == RUNNING else row.state


def _do(story: Story, standing: Standing, now: int) -> Iterator[str]:
    """What a person may type now."""
    name, key = standing.facts.job.name, story.subject.key
    state, is_window = story.subject.state, story.subject.start is not None
    if state in (FAILED, LOST, DEAD, HELD):
        yield again("retry", name, key, is_unit=not is_window)
    if state in (DEAD, HELD):
        yield f'{typed("resolve", name, key)} --note "..."'
    if state in (FAILED, LOST):
        yield f'{typed("skip", name, key)} --reason "..."'
    if state in (SKIPPED, PROCESSED) and is_window:
        yield again("rerun", name, key)
    if state == OUTSIDE:
        yield again("backfill", name, "--from", iso_z(story.subject.start or 0), "--to", "T")
    if state in (FAILED, PENDING) and standing.facts.job.shown_pause(now):
        yield typed("resume", name)
    if state == PENDING:
        yield typed("plan", name)
    if story.behind is not None:
        yield typed("explain", name, story.behind.key)
    if story.upstream is not None and story.upstream.hint is not None:
        yield story.upstream.hint


def _field(label: str, value: Cell) -> Line:
    return Line((Cell(f"{label:<15}", style=DIM), value))


# -- as JSON --------------------------------------------------------------------------------------


def _data(story: Story, last_words: str | None, now: int) -> dict[str, object]:
    subject, queue = story.subject, story.queue
    row = subject.row
    later = row.next_attempt_at if row is not None else None
    return {
        "now": iso(now),
        "key": subject.key,
        "start": None if subject.start is None else iso(subject.start),
        "end": None if subject.end is None else iso(subject.end),
        "state": subject.state,
        "attempts": row.attempts if row is not None else 0,
        "failures": row.failures if row is not None else 0,
        "next_attempt_at": None if later is None else iso(later),
        "story": [_entry_data(entry) for entry in in_order(story, story.runs, story.skips)],
        "last_words": last_words,
        "waiting_for_it": None if queue is None else queue.windows,
        "waits_for": None if story.behind is None else story.behind.key,
    }


def _entry_data(entry: Other | RunRow) -> dict[str, object]:
    """`at`, `what`, and all that the row has."""
    if isinstance(entry, RunRow):
        return {"at": iso(entry.started), "what": "run", **run_data(entry)}
    if isinstance(entry, SkipRow):
        return {"what": "skip", **skip_data(entry)}
    if isinstance(entry, EventRow):
        return {"what": "event", **event_data(entry)}
    at = {"at": iso(entry.at)}
    if isinstance(entry, Closed):
        return {**at, "what": "closed", "lag": entry.lag}
    if isinstance(entry, HeldUp):
        runs = [run.id for run in reversed(entry.runs)]
        return {**at, "what": "held-up", "key": entry.runs[0].key, "runs": runs}
    bounds = {"start": iso(entry.start), "end": iso(entry.end)}
    more = {"windows": entry.windows, "reason": entry.reason, "detail": entry.detail}
    return {**at, "what": "gap", **bounds, **more}
