"""Take what a file (exported.py) has of a job into a ledger: all of it or nothing, once.

Two histories are never mixed. What the ledger has of the job must be an earlier state of what the
file has: every row is there, as it is or as it went on. Then the file's rows take the place of
these; where they are the same, nothing is written. Anything else is refused, with the first row
that tells them apart.

Numbers are kept where they are free. Where another job has one of them all of the job's are raised
by one number, so that their order stays, and what names a run goes with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from jobrun.errors import Contradiction, LedgerError, Refused, UsageError
from jobrun.exported import (
    EVENT,
    GAP,
    JOB,
    RUN,
    SKIP,
    TABLES,
    VALUE,
    WINDOW,
    WITH_ID,
    Exported,
    Part,
    Row,
    Table,
)
from jobrun.ledger_export import rows, token_floor
from jobrun.rows import DEAD, FAILED, HELD, LOST, PROCESSED, RECOVERED, SKIPPED, VOID
from jobrun.value import NamedTuple

if TYPE_CHECKING:
    from jobrun.database import Database

# What comes of a job.
NEW = "imported"
FORWARD = "brought-up-to-date"
SAME = "unchanged"

# How many numbers others may take while some are looked for that are free: more with each try.
_ROOM = (0, 1_000, 100_000)
# Events whose detail is of our own making, and names a run.
_OF_RUNS = (FAILED, RECOVERED, DEAD, HELD, LOST, "stop", "orphan")
_ENDS = ("ended", "took", "outcome", "exit_code", "signal", "output_bytes", "why")

# All that is written without a token leaves its trace in one of these.
_TRACES = """
SELECT (SELECT count(*) FROM jobrun_event WHERE job = :job),
       (SELECT coalesce(sum(times), 0) FROM jobrun_skip WHERE job = :job),
       (SELECT count(*) FROM jobrun_run WHERE job = :job),
       (SELECT count(outcome) FROM jobrun_run WHERE job = :job)
"""


class Taken(NamedTuple):
    """`what` has become of a job; `raised`: by how much its numbers were."""

    what: str
    raised: int


class _Judged(NamedTuple):
    what: str
    raised: int  # where it is on record
    token: int
    traces: list[Any]  # of what is on record


def judge(database: Database, exported: Exported, part: Part) -> str:
    """What `take` would do: NEW, FORWARD or SAME. Raises UsageError for another history."""
    return _judge(database, exported, part).what


def take(database: Database, exported: Exported, part: Part, used: Collection[int] = ()) -> Taken:
    """Under the job's lock. `used`: numbers of runs that are not free, though no row has them.

    Raises UsageError for another history, Refused where others write it meanwhile, LedgerError for
    rows that can't be together.
    """
    for room in _ROOM:
        judged = _judge(database, exported, part)
        if judged.what == SAME:
            return Taken(SAME, judged.raised)
        with database.reading():
            raised = _free(database, exported, part, judged, used, room)
        for table in WITH_ID:
            if ids := part.ids(table):
                database.reserve(table.in_database, ids[1] + raised)
        try:
            if _write(database, exported, part, judged, raised):
                return Taken(judged.what, raised)
        except Contradiction as error:
            raise LedgerError(
                f"{exported.name}: the rows of job {part.name} contradict each other, or others of"
                f" {database.address} ({error.__cause__ or error.message}); none was written"
            ) from error
    raise Refused(f'job "{part.name}": others write meanwhile', "again, now")


def keep_token_floor(database: Database, floor: int) -> None:
    """Of what was forgotten there, too, no token is given again."""
    with database.writing():
        put = "UPDATE jobrun_meta SET token_floor = ? WHERE token_floor < ?"
        database.change(put, (floor, floor))


# -- what is on record -----------------------------------------------------------------------------


def _judge(database: Database, exported: Exported, part: Part) -> _Judged:
    with database.reading():
        traces = _traces(database, part.name)
        token, floor = part.job[_TOKEN], token_floor(database)
        stored = _job(database, part.name)
        if stored is None:
            return _Judged(NEW, 0, max(token, floor), traces)
        raised = _raised(database, part)
        same = _Comparison(database, exported, part, raised, floor).is_same(stored)
        return _Judged(SAME if same else FORWARD, raised, max(token, stored[_TOKEN]), traces)


def _job(database: Database, job: str) -> Row | None:
    return next(iter(list(rows(database, JOB, job))), None)


def _traces(database: Database, job: str) -> list[Any]:
    return [_job(database, job), *database.rows(_TRACES, {"job": job})]


def _raised(database: Database, part: Part) -> int:
    """By how much the numbers on record are above the file's: by the oldest row of either."""
    for table in (RUN, EVENT, SKIP, GAP):
        asked = f"SELECT min(id) FROM {table.in_database} WHERE job = ?"
        ((oldest,),) = database.rows(asked, (part.name,))
        ids = part.ids(table)
        if oldest is not None and ids is not None:
            return int(oldest) - int(ids[0])
    return 0


class _Comparison:
    """A job on record beside the file's."""

    def __init__(
        self, database: Database, exported: Exported, part: Part, raised: int, floor: int
    ) -> None:
        self._database = database
        self._exported = exported
        self._part = part
        self._raised = raised
        self._floor = floor
        self._gaps: list[Row] = []  # of the record only: split, or another history's

    def is_same(self, stored: Row) -> bool:
        """Raises UsageError where the record is no earlier state of what the file has."""
        theirs = self._database.as_kept(self._part.job)
        if stored[_FIRST_SEEN] != theirs[_FIRST_SEEN]:
            raise self._other(JOB, stored, f"was first seen at {theirs[_FIRST_SEEN]} there")
        same = all(
            mine == its
            for place, (mine, its) in enumerate(zip(stored, theirs, strict=True))
            if place != _TOKEN
        )
        for table in (GAP, WINDOW, RUN, EVENT, SKIP, VALUE):
            same &= self._is_same(table)
        if self._gaps:
            raise self._other(GAP, self._gaps[0], "is not in it")
        # What an acquisition changed has been named above, unless it changed nothing.
        if stored[_TOKEN] > max(theirs[_TOKEN], self._floor):
            raise self._other(JOB, stored, f"has token {theirs[_TOKEN]} there")
        return same

    def _is_same(self, table: Table) -> bool:
        same, mine = True, rows(self._database, table, self._part.name)
        theirs = _as_stored(self._database, self._exported, self._part, table, self._raised)
        with closing(mine), closing(theirs):
            for stored, given in _side_by_side(mine, theirs, table.key):
                if given is not None and table is WINDOW:
                    self._open_gaps(given)
                if stored == given:
                    continue
                same = False
                if given is None:
                    assert stored is not None
                    self._miss(table, stored)
                elif stored is not None and not _WENT_ON[table.name](
                    _named(table, stored), _named(table, given)
                ):
                    raise self._other(table, stored, "is not the same there")
        return same

    def _miss(self, table: Table, stored: Row) -> None:
        """A gap may have been split since, by the windows in it; values are those of a run."""
        if table is GAP:
            if not _named(GAP, stored)["void"]:
                self._gaps.append(stored)
        elif table is not VALUE:
            raise self._other(table, stored, "is not in it")

    def _open_gaps(self, given: Row) -> None:
        if self._gaps:
            start = _named(WINDOW, given)["start"]
            self._gaps = [gap for gap in self._gaps if start is None or not _holds(gap, start)]

    def _other(self, table: Table, stored: Row, why: str) -> UsageError:
        what = _TOLD[table.name].format(**_named(table, stored))
        return UsageError(
            f'job "{self._part.name}" has another history in {self._database.address} than in'
            f" {self._exported.name}: {what} {why}"
        )


def _side_by_side(
    mine: Iterator[Row], theirs: Iterator[Row], key: int
) -> Iterator[tuple[Row | None, Row | None]]:
    """Rows of one key together, None where there is none; both are in the order of their key."""
    stored, given = next(mine, None), next(theirs, None)
    while stored is not None or given is not None:
        if given is None or (stored is not None and stored[:key] < given[:key]):
            yield stored, None
            stored = next(mine, None)
        elif stored is None or given[:key] < stored[:key]:
            yield None, given
            given = next(theirs, None)
        else:
            yield stored, given
            stored, given = next(mine, None), next(theirs, None)


def _named(table: Table, row: Row) -> dict[str, Any]:
    return dict(zip(table.columns, row, strict=True))


def _holds(gap: Row, start: str) -> bool:
    named = _named(GAP, gap)
    return bool(named["start"] <= start < named["end"])


# -- whether a row can have become another ---------------------------------------------------------

_Named = dict[str, Any]


def _window_went_on(was: _Named, now: _Named) -> bool:
    if any(now[name] < was[name] for name in ("token", "attempts", "changed_at")):
        return False
    if was["state"] not in (PROCESSED, SKIPPED) or now["state"] in (was["state"], VOID):
        return True
    return bool(now["attempts"] > was["attempts"])


def _run_went_on(was: _Named, now: _Named) -> bool:
    """Only its end may be missing."""
    ended = was["outcome"] not in (None, LOST)
    return all(now[name] == value for name, value in was.items() if ended or name not in _ENDS)


def _gap_went_on(was: _Named, now: _Named) -> bool:
    return {**was, "void": True} == now


def _skip_went_on(was: _Named, now: _Named) -> bool:
    later = now["times"] >= was["times"] and now["last_at"] >= was["last_at"]
    return later and {**was, "times": now["times"], "last_at": now["last_at"]} == now


_WENT_ON: dict[str, Callable[[_Named, _Named], bool]] = {
    "window": _window_went_on,
    "gap": _gap_went_on,
    "run": _run_went_on,
    "skip": _skip_went_on,
    "event": lambda was, now: False,
    "value": lambda was, now: True,  # of the run that left it
}
_TOLD = {
    "job": "its row, with token {token}, first seen at {first_seen},",
    "window": "{key}, {state} since {changed_at},",
    "gap": "the gap from {start} to {end}",
    "run": "run {id}, started at {started},",
    "skip": "the skip {reason} of {last_at}",
    "event": "the event {kind} of {at}",
}


# -- numbers ---------------------------------------------------------------------------------------


def _free(
    database: Database,
    exported: Exported,
    part: Part,
    judged: _Judged,
    used: Collection[int],
    room: int,
) -> int:
    """By how much the file's numbers are raised so that no other job has them."""
    taken = used if judged.what == NEW else ()
    of_runs = part.ids(RUN)
    if not _collides(database, exported, part, judged.raised) and not (
        of_runs is not None
        and any(of_runs[0] <= number <= of_runs[1] for number in taken)
        and any(row[0] in taken for _, row in exported.rows(part, RUN))
    ):
        return judged.raised
    largest = max(taken, default=0)
    for table in WITH_ID:
        ((id_,),) = database.rows(f"SELECT coalesce(max(id), 0) FROM {table.in_database}")
        largest = max(largest, id_)
    lowest = min(ids[0] for table in WITH_ID if (ids := part.ids(table)))
    return largest + 1 + room - int(lowest)


def _collides(database: Database, exported: Exported, part: Part, raised: int) -> bool:
    """Whether another job has a number of the file's; the numbers of two jobs are interleaved."""
    for table in WITH_ID:
        ids = part.ids(table)
        if ids is None:
            continue
        others = (
            f"SELECT id FROM {table.in_database} WHERE id BETWEEN ? AND ? AND job <> ? ORDER BY id"
        )
        within = (ids[0] + raised, ids[1] + raised, part.name)
        with closing(database.stream(others, within)) as found:
            its = ((row[0] + raised,) for _, row in exported.rows(part, table))
            for other, own in _side_by_side(found, its, 1):
                if other is not None and own is not None:
                    return True
    return False


# -- writing ---------------------------------------------------------------------------------------


def _write(
    database: Database, exported: Exported, part: Part, judged: _Judged, raised: int
) -> bool:
    """False where something else has been written since it was judged."""
    with database.writing(job=part.name, long=True) as transaction:
        if _traces(database, part.name) != judged.traces:
            transaction.roll_back()
            return False
        if judged.what == FORWARD:
            for table in reversed(TABLES):
                where = "name" if table is JOB else "job"
                database.change(f"DELETE FROM {table.in_database} WHERE {where} = ?", (part.name,))
        if _collides(database, exported, part, raised):
            transaction.roll_back()
            return False
        job = database.as_kept(part.job)
        job = (*job[:_TOKEN], judged.token, *job[_TOKEN + 1 :])
        database.load(JOB.in_database, JOB.listed, [job])
        for table in TABLES[1:]:
            if table.name in part.sections:
                stored = _as_stored(database, exported, part, table, raised)
                database.load(table.in_database, table.listed, stored)
    return True


def _as_stored(
    database: Database, exported: Exported, part: Part, table: Table, raised: int
) -> Generator[Row, None, None]:
    """The file's rows as they are read again, once they are written."""
    for _, given in exported.rows(part, table, database.as_kept):
        row = given
        if raised and table.has_id:
            row = (row[0] + raised, *row[1:])
            if table is EVENT and row[_KIND] in _OF_RUNS and row[_DETAIL] is not None:
                row = (*row[:_DETAIL], _renumbered(row[_DETAIL], raised), *row[_DETAIL + 1 :])
        yield row


def _renumbered(detail: str, raised: int) -> str:
    return re.sub(r"\brun=(\d+)", lambda found: f"run={int(found[1]) + raised}", detail)


_TOKEN, _FIRST_SEEN = JOB.columns.index("token"), JOB.columns.index("first_seen")
_KIND, _DETAIL = EVENT.columns.index("kind"), EVENT.columns.index("detail")
