"""Ends of runs that the server of a ledger has not been told of, and tells them.

Each run's end is put by on this machine's disk before it is sent (outbox.py), so that a server out
of reach, or a wrapper that dies, loses nothing but time. Whoever holds the job's lock next on this
machine hands it in, before he takes open runs for lost. The server knows a run whose end it has on
record already, and refuses one whose place another has taken meanwhile: as FENCED, on record and
told.
"""

from __future__ import annotations

from contextlib import closing

from jobrun import locks, options, outbox, places, process, report, rows, values_file
from jobrun.errors import DamagedLedger, JobrunError, UsageError
from jobrun.ledgers import open_ledger
from jobrun.outbox import Found, Limits, Parcel
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.attempt import Attempt
    from jobrun.call import Call, Situation
    from jobrun.ledger import Ledger
    from jobrun.places import Where
    from jobrun.plans import Note
    from jobrun.rows import Breaker, Finished, Result
    from jobrun.schedule import Grid


_ALIVE = "its call is alive, and tells it itself"
_HELD = "the lock of its job is held"


def put_by(situation: Situation, run: Attempt, result: Result) -> str | None:
    """The path of its file; None, and a WARNING, where it can't be written."""
    call, job = situation.call, situation.job
    limits = None
    if result.breaker is not None and job.pause_after is not None:
        stops = job.on_failure == "stop"
        limits = Limits(job.pause_after, job.resume_after, job.lag, stops)
    unit, attempt = run.unit, run.claimed.attempt
    parcel = Parcel(result, *run.process, attempt, unit.start, unit.end, limits)
    folder = places.outbox_folder(call.where.beside)

    def make_folder(path: str) -> None:
        places.make_folder(path, situation.owner)

    try:
        return outbox.write(folder, parcel, make_folder)
    except OSError as error:
        cause = f"{folder}: {error.strerror or error}"
    except JobrunError as error:  # of the folder's maker
        cause = error.message
    what = {"job": result.job, "what": "no-outbox", "key": result.key, "cause": cause}
    call.lines.event("WARNING", {**what, "run": result.run_id, "at": call.now()})
    return None


def hand_in(call: Call, ledger: Ledger, job: str) -> None:
    """The ends of the job's runs, by who holds its lock. Raises Refused where the server can't
    take them now."""
    folder = places.outbox_folder(call.where.beside)
    for found in outbox.look(folder):
        if found.is_meant(job):
            _hand_in(call, ledger, found)
    _tidy(ledger, folder)


def _tidy(ledger: Ledger, folder: str) -> None:
    """What is half written and stays so: the wrapper whose run it is of was killed."""
    for run_id, path in outbox.drafts(folder):
        row = ledger.run(run_id)
        if row is None or not process.wrapper_alive(row):
            outbox.remove(path)


def _hand_in(call: Call, ledger: Ledger, found: Found) -> str | None:
    """Why the file stays, None where it is gone."""
    problem = found.problem if found.parcel is None else _deliver(call, ledger, found.parcel)
    if problem is None:
        outbox.remove(found.path)
    elif problem != _ALIVE:
        _warn(call, found, problem)
    return problem


def _warn(call: Call, found: Found, problem: str) -> None:
    """It stays where it is: what it says may still be of use to a person."""
    what = {"what": "outbox", "file": found.path, "cause": problem, "at": call.now()}
    call.lines.event("WARNING", what)


def _deliver(call: Call, ledger: Ledger, parcel: Parcel) -> str | None:
    """Why it could not be, None where the server has answered."""
    result = parcel.result
    row = ledger.run(result.run_id)
    if row is not None and not parcel.is_of(row):
        return f"run {result.run_id} is another one there: it is of another ledger"
    if row is not None and process.wrapper_alive(row):
        return _ALIVE
    try:
        grid = _grid(result)
        # Nobody is left who would try it again himself.
        result = result._replace(breaker=_breaker(call, parcel, grid), goes_on=False)
        finished = ledger.finish(result, None, None if grid is None else grid.next)
    except (DamagedLedger, UsageError) as error:
        return error.message
    values_file.remove(places.values_file(call.where.beside, result.run_id))
    _tell(call, parcel, finished)
    return None


def _grid(result: Result) -> Grid | None:
    if result.schedule is None:
        return None
    from jobrun import schedule

    return schedule.parse(result.schedule)


def _breaker(call: Call, parcel: Parcel, grid: Grid | None) -> Breaker | None:
    if parcel.limits is None or grid is None:
        return None
    from jobrun.breaker import make_breaker

    return make_breaker(*parcel.limits, grid, call.now)


def _tell(call: Call, parcel: Parcel, finished: Finished) -> None:
    result, is_fenced = parcel.result, finished.outcome == rows.FENCED
    fields = told(parcel, "" if is_fenced else "replayed")
    if not is_fenced:
        fields |= {"outcome": finished.outcome, "state": finished.window_state}
    present = {**fields, "run": result.run_id, "at": call.now()}
    call.lines.event("FENCED" if is_fenced else "NOTE", present)
    is_dead = finished.window_state == rows.DEAD and finished.outcome in rows.FAILURES
    if is_dead and not is_fenced:
        report.dead(call, result.job, result.key or "", result.run_id)
    report.breaker(call, result.job, finished, result.run_id)


def told(parcel: Parcel, what: str) -> dict[str, object]:
    """The fields of a line about it, but the last two; `state` is in its place."""
    result = parcel.result
    return {
        "job": result.job,
        "what": what or None,
        "window": None if parcel.start is None else (parcel.start, parcel.end),
        "key": result.key,
        "exit": result.exit_code or None,
        "outcome": result.outcome,
        "state": None,
        "attempt": parcel.attempt,
        "took": result.took,
    }


# -- foreseen --------------------------------------------------------------------------------------


def foretold(ledger: Ledger, where: Where) -> Ledger:
    """To be looked at: as it will be once what lies here is handed in."""
    if where.is_file or not places.has_outbox(where.beside):
        return ledger
    from jobrun.handed_in import HandedIn
    from jobrun.ledger_postgres import PostgresLedger

    assert isinstance(ledger, PostgresLedger)
    return HandedIn(ledger, outbox.look(places.outbox_folder(where.beside)))


def notes(ledger: Ledger, call: Call, job: str) -> list[Note]:
    """What a call hands in before it plans, where `ledger` is foretold."""
    if call.where.is_file:
        return []
    from jobrun.handed_in import HandedIn

    ends = ledger.ends(job) if isinstance(ledger, HandedIn) else []
    runs = ((told(parcel, "would-replay"), parcel.result.run_id) for parcel in ends)
    return [("NOTE", {**fields, "run": run}, options.typed("flush")) for fields, run in runs]


# -- by hand --------------------------------------------------------------------------------------


class Flushed(NamedTuple):
    """What has become of a file; `left` is why it is still there."""

    found: Found
    left: str | None


def flush(call: Call, job: str | None, dry_run: bool) -> tuple[Flushed, ...]:
    """Hand in what lies in the outbox, of one job or of all. Raises JobrunError."""
    folder = places.outbox_folder(call.where.beside)
    found = [each for each in outbox.look(folder) if each.is_meant(job)]
    if call.where.is_file or not places.has_outbox(call.where.beside):
        return ()
    if dry_run:
        return tuple(_foresee(call, each) for each in found)
    with closing(open_ledger(call.where)) as ledger:
        flushed = tuple(Flushed(each, _flush(call, ledger, each)) for each in found)
        _tidy(ledger, folder)
        return flushed


def _foresee(call: Call, found: Found) -> Flushed:
    if found.parcel is None:
        _warn(call, found, found.problem or "")
    else:
        fields = told(found.parcel, "would-replay")
        run = found.parcel.result.run_id
        call.lines.event("NOTE", {**fields, "run": run, "at": call.now()})
    return Flushed(found, found.problem or "--dry-run")


def _flush(call: Call, ledger: Ledger, found: Found) -> str | None:
    """Under the lock of its job, as every other who hands it in."""
    if found.parcel is None:
        return _hand_in(call, ledger, found)
    lock = locks.of_this_machine(found.parcel.result.job, call)
    try:
        if lock.acquire():
            return _hand_in(call, ledger, found)
        fields = told(found.parcel, "not-replayed")
        held = {"cause": _HELD, "run": found.parcel.result.run_id, "at": call.now()}
        call.lines.event("NOTE", {**fields, **held})
        return _HELD
    finally:
        lock.release()
