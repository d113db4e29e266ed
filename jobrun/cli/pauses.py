"""`pause` and `resume`: written without the job's lock, so that a job that runs can be reached.

Only `resume --catch-up latest` takes it: what that gives up must not run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from jobrun import asked, living, options, schedule, turn, unclosed, upstream, windows
from jobrun.by_hand import as_last_said, known_job
from jobrun.call import Call
from jobrun.cli.acts import moved, stored_grid, tell, under_lock
from jobrun.errors import JobrunError, UsageError
from jobrun.instants import iso_z, parse_duration
from jobrun.ledger import Ledger
from jobrun.ledgers import open_ledger
from jobrun.rows import JobRow, Opening, Pause, Source


class Which(NamedTuple):
    """The jobs that are meant: one, or all that are on record."""

    name: str | None
    every: bool
    dry_run: bool


class Length(NamedTuple):
    """How long a pause is, as typed; neither: until it is resumed."""

    duration: str | None  # --for
    until: str | None


def pause(call: Call, which: Which, length: Length, reason: str | None) -> int:
    """No run starts any more but by hand; what runs now goes on to its end."""
    if length.duration is not None and length.until is not None:
        raise UsageError("--for and --until: one of them says how long")
    _end(length, None, call.now())  # what is wrong for all is said once

    def one(ledger: Ledger, row: JobRow) -> None:
        now = call.now()
        wanted = Pause(now, _end(length, row, now), _who(call), reason)
        if which.every and row.pause is not None and row.is_paused(now):
            _tell(call, row.name, "paused-already", row.pause)  # never a shorter one for a longer
            return
        if which.dry_run:
            _tell(call, row.name, "would-pause", wanted)
            return
        if not ledger.pause(row.name, wanted):
            known_job(ledger, row.name)  # forgotten a moment ago
        _tell(call, row.name, "paused", wanted)
        _tell_running(call, ledger, row.name)

    return _each(call, which, one)


def resume(call: Call, which: Which, catch_up: str) -> int:
    """What is due runs with the next call: all of it, or the newest window only."""

    def one(ledger: Ledger, row: JobRow) -> None:
        if row.pause is None:
            if not which.every:
                call.lines.event("NOTE", _fields(call, row.name, "not-paused"))
        elif catch_up == "latest" and row.schedule is not None:
            _resume_with_latest(call, row.name, which.dry_run)
        elif which.dry_run:
            _tell_resumed(call, row.name, "would-resume", row.pause)
        elif ledger.resume(row.name, _who(call), call.now()):
            _tell_resumed(call, row.name, "resumed", row.pause)

    return _each(call, which, one)


def _each(call: Call, which: Which, act: Callable[[Ledger, JobRow], None]) -> int:
    """Of all jobs, one that can't be dealt with now does not keep the others from it."""
    if which.every == (which.name is not None):
        raise UsageError(
            "JOB or --all: which jobs are meant", f"{options.typed('status')} lists them"
        )
    code = 0
    with closing(open_ledger(call.where)) as ledger:
        if which.name is not None:
            act(ledger, known_job(ledger, which.name))
            return 0
        for row in ledger.jobs():
            try:
                act(ledger, row)
            except JobrunError as error:
                call.lines.error(error)
                code = code or error.code
    return code


def _end(length: Length, row: JobRow | None, now: int) -> int | None:
    """An instant; a date is a day in the job's zone."""
    if length.duration is not None:
        seconds = parse_duration(length.duration, "--for")
        if not seconds:
            raise UsageError(f'--for "{length.duration}": a pause takes some time', "--for 2h")
        return now + seconds
    if length.until is None:
        return None
    text = row.schedule if row is not None else None
    zone = schedule.parse(text).zone if text is not None else "UTC"
    end = windows.parse_when(length.until, zone, now, None, "--until")
    if end <= now:
        raise UsageError(f'--until "{length.until}" is not after now, {iso_z(now)}', "--for 2h")
    return end


def _resume_with_latest(call: Call, name: str, dry_run: bool) -> None:
    with under_lock(call, name) as (ledger, row):
        if row.pause is None:  # another person has been a moment ago
            return
        this = as_last_said(ledger, row, call.environ)
        grid, lost = stored_grid(row), living.judge_open_runs(ledger, name, call).lost
        source = Source(ledger.job, ledger.blocks, ledger.values)
        known = turn.stored(ledger, name)._replace(upstreams=upstream.of(this.after, source))
        known, fates = turn.after_loss(this, ledger, known, lost)
        known, void = unclosed.leave_out(known, call.now())
        plan = asked.plan_resume(this, grid, known, call.now(), _who(call))
        plan = turn.tell_loss(plan, fates)
        opening = unclosed.make_void(plan.opening, void)._replace(token=row.token)
        opening = turn.give_up(opening, call, lost)
        if dry_run:
            _tell_resumed(call, name, "would-resume", row.pause, windows=_given_up(opening))
            return
        opened = ledger.open(opening, None, grid.next)
        if opened is None:
            raise moved(name)
        tell(call, unclosed.notes_of(name, void, call.now()))
        turn.tell(this, call, ledger, plan, lost, opened)
    _tell_resumed(call, name, "resumed", row.pause)


def _given_up(opening: Opening) -> int | None:
    """How many windows; None where a gap is too long to count them."""
    counts = [gap.windows for gap in opening.gaps]
    known = [count for count in counts if count is not None]
    return sum(known) + len(opening.ended) if len(known) == len(counts) else None


# -- what is said ---------------------------------------------------------------------------------


def _who(call: Call) -> str:
    return f"{call.caller.user}@{call.caller.host}"


def _fields(call: Call, name: str, what: str, **more: object) -> dict[str, object]:
    return {"job": name, "what": what, **more, "at": call.now()}


def _tell(call: Call, name: str, what: str, pause: Pause) -> None:
    told = {"until": pause.until, "by": pause.by, "why": pause.reason}
    call.lines.event("NOTE", _fields(call, name, what, **told))


def _tell_resumed(call: Call, name: str, what: str, pause: Pause, **more: object) -> None:
    call.lines.event("NOTE", _fields(call, name, what, **more, by=_who(call), was=pause.text))


def _tell_running(call: Call, ledger: Ledger, name: str) -> None:
    """Looked for once the pause is on record: no other has started since."""
    running = [run for run in ledger.open_runs(name) if living.left_of(run, call) is not None]
    if running:
        numbers = ", ".join(str(run.id) for run in running)
        word, verb = ("run", "goes") if len(running) == 1 else ("runs", "go")
        on = f"{word} {numbers} {verb} on to the end, and no other starts"
        call.lines.say("hint", f"{on}; {options.typed('stop', name)} ends it now")
