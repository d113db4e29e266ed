"""The SQLite ledger beyond what every ledger must do; SQLite itself is the witness."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jobrun import rows
from jobrun.errors import LedgerError, NotRecorded, Refused
from jobrun.instants import HOUR, iso
from jobrun.ledger_skip import idle_row, note_idle
from jobrun.ledger_sqlite import SqliteLedger, open_ledger
from jobrun.rows import Gap, Opening
from jobrun.sqlite_database import Database
from tests.conftest import PYTHON, ROOT
from tests.ledger_calls import (
    CALLER,
    ELEVEN,
    IMPOSSIBLE,
    NOW,
    TEN,
    begin,
    claim,
    hourly,
    result,
    run,
    state,
)
from tests.sqlite_programs import child, end_of, sql


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobrun.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[SqliteLedger]:
    """A ledger without a row."""
    with closing(open_ledger(str(path), CALLER)) as ledger:
        yield ledger


# -- writing -------------------------------------------------------------------------------------


HOLD = """
import sqlite3
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True); sys.stdin.readline()
connection.execute("COMMIT")
"""


@pytest.fixture
def busy(path: Path, ledger: SqliteLedger) -> Iterator[subprocess.Popen[str]]:
    """Another program in a transaction, until it gets a line."""
    process = child(HOLD, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    if process.poll() is None:
        end_of(process, "\n")


def test_a_write_waits_for_another(path: Path, busy: subprocess.Popen[str]) -> None:
    """D01: two jobs at midnight; the second waits instead of failing."""
    code = """
from jobrun import ledger_skip
ledger_skip.PATIENCE = 20.0  # the other one may be late
ledger = open_ledger(sys.argv[1])
ledger._database.connection.set_trace_callback(lambda text: print(text, flush=True))
ledger.skip("x", "lock-held", None, None, 1788523500)
"""
    process = child(code, path)
    assert process.stdout is not None
    while "BEGIN IMMEDIATE" not in process.stdout.readline():
        pass
    end_of(busy, "\n")
    status, rest = end_of(process)
    assert (status, "COMMIT" in rest) == (0, True)


def test_busy_for_too_long_is_refused(ledger: SqliteLedger, busy: subprocess.Popen[str]) -> None:
    """75: nothing ran, a later call may; and the hint tells how to find the other."""
    with pytest.raises(Refused, match="busy for 0 s") as caught, ledger._database.writing(0.05):
        raise AssertionError
    assert "fuser" in (caught.value.hint or "")


def test_a_skip_gives_up_after_a_second(
    ledger: SqliteLedger, busy: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is printed anyway, so it never holds a call up."""
    monkeypatch.setattr("jobrun.ledger_skip.PATIENCE", 0.05)
    assert not ledger.skip("j", rows.LOCK_HELD, None, None, NOW)
    assert not note_idle(ledger._database, "j", NOW)
    (patience,) = ledger._database.rows("PRAGMA busy_timeout")
    assert patience == (30_000,)
    end_of(busy, "\n")
    assert ledger.skip("j", rows.LOCK_HELD, None, None, NOW)


def test_readers_do_not_wait_for_a_writer(
    ledger: SqliteLedger, busy: subprocess.Popen[str]
) -> None:
    """`status` works while a run is being recorded."""
    assert ledger.jobs() == []


def test_a_ledger_deleted_while_a_command_runs(path: Path, ledger: SqliteLedger) -> None:
    """D11: SQLite reports success into a file that is gone; 76, never a plain 0."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    path.unlink()
    with pytest.raises(NotRecorded, match="deleted or replaced"):
        ledger.finish(result(opened.claimed, claim(TEN).key), None, hourly)


def test_a_ledger_replaced_before_a_command_starts(path: Path, ledger: SqliteLedger) -> None:
    """Then nothing runs."""
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)
    with pytest.raises(LedgerError, match="deleted or replaced"):
        begin(ledger, claim(TEN))


@pytest.mark.parametrize(("until", "paused"), [(None, True), (NOW + 3, True), (NOW, False)])
def test_a_pause_is_read_again_at_each_finish(
    path: Path, ledger: SqliteLedger, until: int | None, paused: bool
) -> None:
    """A job that is paused while its backlog is worked off starts no further window."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    end = "NULL" if until is None else f"'{iso(until)}'"
    sql(path, f"UPDATE jobrun_job SET paused_at = '{iso(NOW)}', paused_until = {end}")
    finished = ledger.finish(result(opened.claimed, claim(TEN).key), claim(ELEVEN), hourly)
    assert (finished.paused, finished.claimed is None) == (paused, paused)


def test_no_statement_stays_open_while_blocks_are_drawn(tmp_path: Path) -> None:
    """A half-read iterator must not keep a read lock: with a rollback journal it stops writers."""
    path = tmp_path / "network.db"
    with closing(open_ledger(str(path), CALLER, network=True)) as ledger:
        gaps = tuple(
            Gap(TEN + n * 2 * HOUR, TEN + n * 2 * HOUR + HOUR, 1, rows.TOO_OLD) for n in range(600)
        )
        begin(ledger, gaps=gaps)
        drawn = ledger.blocks("j", TEN)
        next(drawn)
        sql(path, "UPDATE jobrun_job SET spec = 'x'")
        assert len(list(drawn)) == 599


CRASH = """
import os
from tests.ledger_calls import CALLER, TEN, begin, claim, hourly, result
ledger = open_ledger(sys.argv[1], CALLER)
opened = begin(ledger, claim(TEN))
def crash(statement):
    global left
    left -= 1
    if not left:
        os._exit(9)
left = int(sys.argv[2])
ledger._database.connection.set_trace_callback(crash)
ledger.finish(result(opened.claimed, claim(TEN).key), claim(TEN + 3600), hourly)
"""


def test_a_crash_at_any_statement_of_a_finish(tmp_path: Path) -> None:
    """Either nothing of it happened or all: the window runs again, or is done, and no third."""
    seen = set()
    for number in range(1, 50):
        path = tmp_path / f"{number}.db"
        crashed = end_of(child(CRASH, path, number))[0]
        with closing(open_ledger(str(path), CALLER)) as ledger:
            states = state(ledger, TEN), state(ledger, ELEVEN)
            assert ledger.problems() == []
            open_runs = tuple(row.id for row in ledger.open_runs("j"))
            begin(ledger, claim(TEN, kind=rows.RERUN), lost=open_runs)
        seen.add(states)
        if not crashed:
            break
    assert seen == {
        ((rows.RUNNING, 1, 0), None),
        ((rows.PROCESSED, 1, 0), (rows.RUNNING, 1, 0)),
    }


def test_many_jobs_at_midnight(path: Path) -> None:
    """Six processes write at once, each its own job: all of it is there in the end."""
    code = """
from jobrun.rows import Opening
from tests.ledger_calls import CALLER, NOW, claim, result
name = sys.argv[2]
for n in range(20):
    ledger = open_ledger(sys.argv[1], CALLER)
    row = ledger.job(name)
    unit = claim(0)._replace(key=f"{name}:{n}", start=None, end=None)
    opened = ledger.open(Opening(name, row.token if row else 0, NOW), unit, None)
    ended = result(opened.claimed, unit.key, token=opened.token)
    ledger.finish(ended._replace(job=name), None, None)
    ledger.close()
"""
    children = [child(code, path, f"job{n}") for n in range(6)]
    assert [end_of(process) for process in children] == [(0, "")] * 6
    assert sql(path, "SELECT count(*) FROM jobrun_window WHERE state = 'processed'") == [(120,)]


# -- rows that can't be --------------------------------------------------------------------------

ALSO_IMPOSSIBLE = {
    **IMPOSSIBLE,
    "an instant in another form": "UPDATE jobrun_job SET watermark = '2026-09-04 10:00'",
    "a second row about the file": "INSERT INTO jobrun_meta VALUES (2, 1, 1, 0, NULL)",
}


@pytest.mark.parametrize("statement", ALSO_IMPOSSIBLE.values(), ids=ALSO_IMPOSSIBLE)
def test_impossible_rows_are_refused(ledger: SqliteLedger, path: Path, statement: str) -> None:
    """Whoever writes them: the file itself refuses."""
    begin(ledger, claim(TEN))
    with pytest.raises(sqlite3.IntegrityError):
        sql(path, "PRAGMA foreign_keys = ON", statement)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE jobrun_job SET watermark = '2026-09-04T10:00:00+00:00'", "by the rows it is"),
        ("UPDATE jobrun_window SET state = 'running'", "no run of it is open"),
        ("UPDATE jobrun_window SET token = 99", "was never given"),
        ("DELETE FROM jobrun_window", "missing"),
        (
            "INSERT INTO jobrun_gap VALUES (1, 'j', '2026-09-04T10:30:00+00:00',"
            " '2026-09-04T11:30:00+00:00', 1, 'x', NULL, '2026-09-04T12:00:00+00:00', 0)",
            "before the one below it ends",
        ),
    ],
)
def test_a_check_finds_what_no_row_can_tell(
    ledger: SqliteLedger, path: Path, statement: str, problem: str
) -> None:
    """`doctor`: the watermark is verified, and rows are held against each other."""
    run(ledger, TEN)
    assert ledger.problems() == []
    sql(path, statement)
    assert [line for line in ledger.problems() if problem in line]


# -- the idle way --------------------------------------------------------------------------------


def test_the_idle_row(ledger: SqliteLedger) -> None:
    """One read tells whether a call has nothing to do."""
    database = ledger._database
    assert idle_row(database, "j") is None
    begin(ledger, first="latest")
    known = ("every 1h", "latest", iso(TEN), iso(ELEVEN))
    assert idle_row(database, "j") == (*known, None, None, None, 0)
    opened = begin(ledger, claim(TEN))
    assert idle_row(database, "j") == (*known, None, None, None, 1)
    assert opened.claimed is not None
    ended = result(opened.claimed, claim(TEN).key, token=opened.token)
    ledger.finish(ended, None, hourly)
    assert (idle_row(database, "j") or ())[-1] == 0
    begin(ledger, claim(TEN, kind=rows.RERUN))
    assert (idle_row(database, "j") or ())[-1] == 1


def test_an_idle_call_is_noted(ledger: SqliteLedger) -> None:
    """One folded row, when the job was called, and the largest clock seen."""
    begin(ledger)
    for at in (NOW + 60, NOW + 120):
        assert note_idle(ledger._database, "j", at)
    (skip,) = ledger.skips("j")
    assert (skip.reason, skip.times, skip.last_at) == (rows.NO_CLOSED_WINDOW, 2, NOW + 120)
    job = ledger.job("j")
    assert job is not None
    assert (job.last_seen, job.largest_now) == (NOW + 120, NOW + 120)


def test_the_idle_way_loads_nothing_slow() -> None:
    """It is taken at every minute of the day."""
    code = "import sys; from jobrun import sqlite_file, ledger_skip; print(*sys.modules)"
    loaded = subprocess.run(
        [PYTHON, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    slow = {"typing", "enum", "re", "dataclasses", "pathlib", "inspect", "contextlib"}
    assert slow & set(loaded.stdout.split()) == set()


# -- speed ---------------------------------------------------------------------------------------


def test_every_query_has_an_index(ledger: SqliteLedger) -> None:
    """Fast at a million rows: no statement of a call walks through windows, runs, gaps or skips."""
    seen: list[str] = []
    ledger._database.connection.set_trace_callback(seen.append)
    run(ledger, TEN, rows.FAILED_RUN)
    run(ledger, TEN)
    lost = begin(ledger, claim(ELEVEN)).claimed
    assert lost is not None
    gap = Gap(ELEVEN + HOUR, ELEVEN + 2 * HOUR, 1, "x")
    begin(ledger, ended=(("j:x", "x"),), lost=(lost.run_id,), gaps=(gap,))
    list(ledger.blocks("j", TEN))
    ledger.count_blocks("j", TEN, NOW)
    ledger.unfinished("j"), ledger.open_runs("j"), ledger.runs("j"), ledger.runs(key="j:x")
    ledger.windows("j", TEN, NOW), ledger.gaps("j", TEN, NOW), ledger.keys("j")
    ledger.skips("j"), ledger.skips(), ledger.events("j"), ledger.usual("j")
    ledger.skip("j", rows.LOCK_HELD, None, None, NOW)
    idle_row(ledger._database, "j")
    ledger._database.connection.set_trace_callback(None)
    walks = {
        (statement, detail)
        for statement in seen
        if not statement.startswith(("PRAGMA", "BEGIN", "COMMIT", "--"))
        for *_, detail in ledger._database.rows(f"EXPLAIN QUERY PLAN {statement}")
        if str(detail).startswith("SCAN jobrun_")
        or "TEMP B-TREE FOR ORDER" in str(detail)
        or (statement.startswith("SELECT") and "PRIMARY KEY (job=?)" in str(detail))
    }
    by_design = {"SCAN jobrun_meta", "SCAN jobrun_skip USING INDEX jobrun_skip_last"}
    # A row a host, which is one; the runs that are open now.
    by_design |= {"SCAN jobrun_host", "SCAN jobrun_run USING INDEX jobrun_run_open"}
    assert {detail for _, detail in walks} <= by_design


def test_descriptors_do_not_leak(path: Path) -> None:
    """D17: a ledger opened and closed leaves none."""
    open_ledger(str(path)).close()
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    for _ in range(20):
        open_ledger(str(path)).close()
    after = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    assert len(after) == len(before)


def test_an_opening_keeps_nothing_when_it_is_refused(ledger: SqliteLedger, path: Path) -> None:
    """A write that breaks a rule is rolled back as a whole: it is a bug, and says so."""
    impossible = Opening("j", 0, NOW, schedule="every 1h", watermark=TEN)
    with pytest.raises(sqlite3.IntegrityError):
        ledger.open(impossible, claim(TEN), lambda instant: instant)
    assert sql(path, "SELECT * FROM jobrun_job") == []


def test_a_closed_database_says_so(path: Path) -> None:
    """A mistake of ours is no broken ledger: it is not explained away."""
    open_ledger(str(path)).close()
    database = Database(str(path))
    database.close()
    with pytest.raises(sqlite3.ProgrammingError):
        database.rows("SELECT 1")
