"""What must hold after any number of kills, read from the ledger and from the commands' journals.

The two are independent: the journal is written by the commands themselves, the ledger by jobrun.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from jobrun.instants import MINUTE, iso
from jobrun.ledger_sqlite import open_ledger


def query(folder: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Never left open: a fork must not inherit it. Not read-only: that can't recover a WAL."""
    uri = f"file:{folder}/jobrun.db?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=20)) as connection:
        return connection.execute(sql, values).fetchall()


def journal(folder: str, job: str) -> list[list[str]]:
    try:
        with open(f"{folder}/{job}.journal") as lines:
            return [line.split() for line in lines]
    except FileNotFoundError:
        return []


class Said:
    """The journal of one job, read from the beginning."""

    def __init__(self, folder: str, job: str) -> None:
        self.starts: dict[int, tuple[str, int, int]] = {}  # run: key, attempt, token
        self.done: set[str] = set()
        self.marks: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._finished: dict[str, str] = {}  # key: how we know
        self._written: dict[int, str] = {}  # value of the counter: run
        self._attempts: set[tuple[str, int]] = set()
        for what, *rest in journal(folder, job):
            getattr(self, f"_{what}")(*rest)

    def _start(self, key: str, run: str, attempt: str, token: str, pid: str) -> None:
        if key in self._finished:
            self.wrong.append(f"{key} ran again, as run {run}, after it was {self._finished[key]}")
        if int(run) in self.starts:
            self.wrong.append(f"run {run} of {key} was started twice")
        if (key, int(attempt)) in self._attempts:
            self.wrong.append(f"attempt {attempt} of {key} was given twice, now to run {run}")
        self._attempts.add((key, int(attempt)))
        self.starts[int(run)] = key, int(attempt), int(token)

    def _twice(self, *words: str) -> None:
        self.wrong.append(f"two commands at once: {' '.join(words)}")

    def _wrote(self, value: str, run: str) -> None:
        before = self._written.setdefault(int(value), run)
        if before != run:
            self.wrong.append(f"lost update: runs {before} and {run} both counted to {value}")

    def _marked(self, key: str, run: str) -> None:
        self.marks[key] += 1
        self._finished[key] = f"marked by run {run}"
        self.done.add(key)

    def _refused(self, key: str, run: str) -> None:
        self.wrong.append(f"run {run} of {key} was refused its mark")

    def _recorded(self, key: str, run: str) -> None:
        self._finished.setdefault(key, f"recorded by run {run}")

    def _done(self, key: str, run: str) -> None:
        self.done.add(key)


def wrong(folder: str, jobs: dict[str, int], first: int) -> Iterator[str]:
    """All that does not hold; `jobs` are their names and the instants up to which all is done."""
    for job, now in jobs.items():
        said = Said(folder, job)
        yield from said.wrong
        yield from _windows_wrong(folder, job, said, first, now)
        yield from _runs_wrong(folder, job, said)
    yield from _marks_wrong(folder)
    with closing(open_ledger(f"{folder}/jobrun.db", create=False)) as ledger:
        yield from ledger.problems()


def _windows_wrong(folder: str, job: str, said: Said, first: int, now: int) -> Iterator[str]:
    reached = iso(now // MINUTE * MINUTE)
    ((watermark,),) = query(folder, "SELECT watermark FROM jobrun_job WHERE name = ?", job)
    if watermark != reached:
        yield f"{job}: the watermark is {watermark}, not {reached}"
    expected = iso(first)
    select = 'SELECT key, start, "end", state FROM jobrun_window WHERE job = ? ORDER BY start'
    for key, start, end, state in query(folder, select, job):
        if start != expected:
            yield f"{job}: a hole, {expected} to {start}"
        if state != "processed":
            yield f"{key} is {state}"
        elif key not in said.done:
            yield f"{key} is on record as processed, its command never came to its end"
        expected = end
    if expected != reached:
        yield f"{job}: a hole, {expected} to {reached}"
    for start, end in query(folder, 'SELECT start, "end" FROM jobrun_gap WHERE job = ?', job):
        yield f"{job}: a gap, {start} to {end}"


def _runs_wrong(folder: str, job: str, said: Said) -> Iterator[str]:
    on_record: dict[int, tuple[str, int, int]] = {}
    finished: set[str] = set()
    before = of = 0
    select = (
        "SELECT id, key, attempt, token, pid, slot, outcome FROM jobrun_run WHERE job = ?"
        " ORDER BY id"
    )
    for run, key, attempt, token, pid, slot, outcome in query(folder, select, job):
        on_record[run] = key, attempt, token
        if outcome is None:
            yield f"run {run} of {key} is on record as running"
        if key in finished:
            yield f"run {run} of {key}: it was processed before"
        if outcome == "succeeded":
            finished.add(key)
        of = 0 if slot is not None else of  # beside others, each claim has a token of its own
        if token < before or (token == before) != (pid == of):
            yield f"{job}: token {token} of pid {pid} comes after {before} of {of}"
        before, of = token, pid
    for run, started in said.starts.items():
        if on_record.get(run) != started:
            yield f"run {run} was started for {started}, on record it is {on_record.get(run)}"


def _marks_wrong(folder: str) -> Iterator[str]:
    """Exactly once, where a command marks itself."""
    if not query(folder, "SELECT 1 FROM sqlite_master WHERE name = 'mine'"):
        return
    twice = "SELECT key, count(*) FROM mine GROUP BY key HAVING count(*) > 1"
    for key, times in query(folder, twice):
        yield f"{key} has its data {times} times, marked each time"
    unmarked = (
        "SELECT m.key, w.state FROM mine AS m LEFT JOIN jobrun_window AS w ON w.key = m.key"
        " WHERE w.state IS NOT 'processed'"
    )
    for key, state in query(folder, unmarked):
        yield f"{key} has its data and is {state}"


def orphans(folder: str) -> list[tuple[int, int, str]]:
    """(run, pid of its wrapper, key) of which a call said `orphan-alive`."""
    select = (
        "SELECT r.id, r.pid, r.key FROM jobrun_skip AS s JOIN jobrun_run AS r"
        " ON s.detail = 'run ' || r.id WHERE s.reason = 'orphan-alive'"
    )
    return query(folder, select)
