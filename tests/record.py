"""A job's record as SQLite itself reads it, and stretches of time. For the model test."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

Stretch = tuple[int, int]  # half-open, seconds

FINISHED = ("processed", "skipped", "dead")


class Row(NamedTuple):
    key: str
    start: int
    end: int
    state: str
    attempts: int


class Run(NamedTuple):
    id: int
    key: str | None
    start: int | None
    end: int | None
    kind: str | None
    attempt: int
    token: int
    outcome: str | None


class Record(NamedTuple):
    """Windows and gaps without the void ones; runs are all there are, oldest first."""

    schedule: str | None = None
    mark: int | None = None
    windows: tuple[Row, ...] = ()
    gaps: tuple[Stretch, ...] = ()
    runs: tuple[Run, ...] = ()
    units: tuple[tuple[str, str, int], ...] = ()  # of --key: key, state, attempts
    dump: tuple[str, ...] = ()  # everything, as text

    @property
    def done(self) -> dict[int, int]:
        """Start and end of what is processed."""
        return {row.start: row.end for row in self.windows if row.state == "processed"}

    @property
    def given_up(self) -> list[Stretch]:
        """What was decided not to run."""
        skipped = [(row.start, row.end) for row in self.windows if row.state == "skipped"]
        return sorted([*self.gaps, *skipped])

    @property
    def finished(self) -> list[Stretch]:
        return sorted([*self.done.items(), *self.given_up])

    @property
    def unfinished(self) -> list[Row]:
        return [row for row in self.windows if row.state not in FINISHED]

    @property
    def blocks(self) -> list[Stretch]:
        """All that is on record, in any state."""
        return sorted([*self.gaps, *((row.start, row.end) for row in self.windows)])


def read(ledger: Path, job: str) -> Record:
    if not ledger.exists():
        return Record()
    with closing(sqlite3.connect(ledger)) as connection:
        ask = connection.execute
        found = ask("select schedule, watermark from jobrun_job where name = ?", (job,)).fetchall()
        schedule, mark = found[0] if found else (None, None)
        windows = ask(
            'select key, start, "end", state, attempts from jobrun_window'
            " where job = ? and start is not null and state <> 'void' order by start",
            (job,),
        )
        gaps = ask('select start, "end" from jobrun_gap where job = ? and void = 0', (job,))
        units = ask(
            "select key, state, attempts from jobrun_window where job = ? and start is null", (job,)
        )
        runs = ask(
            'select r.id, r.key, start, "end", kind, attempt, r.token, outcome from jobrun_run as r'
            " left join jobrun_window as w on w.job = r.job and w.key = r.key"
            " where r.job = ? order by r.id",
            (job,),
        )
        return Record(
            schedule,
            _at(mark),
            tuple(Row(key, _when(s), _when(e), state, n) for key, s, e, state, n in windows),
            tuple((_when(start), _when(end)) for start, end in gaps),
            tuple(Run(i, key, _at(s), _at(e), *rest) for i, key, s, e, *rest in runs),
            tuple(units),
            tuple(connection.iterdump()),
        )


def _when(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def _at(text: str | None) -> int | None:
    return None if text is None else _when(text)


# -- stretches of time -----------------------------------------------------------------------------


def reach(start: int, stretches: Iterable[Stretch]) -> int:
    """How far one comes from `start` on over stretches that adjoin."""
    for begin, end in sorted(stretches):
        if begin <= start < end:
            start = end
    return start


def meets(one: Stretch, other: Stretch) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def minus(stretches: Iterable[Stretch], others: Iterable[Stretch]) -> list[Stretch]:
    """What of the first is not in the second."""
    left = sorted(stretches)
    for begin, end in others:
        pieces = [((s, min(e, begin)), (max(s, end), e)) for s, e in left]
        left = [(s, e) for pair in pieces for s, e in pair if s < e]
    return left
