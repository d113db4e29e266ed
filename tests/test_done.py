"""Exactly once: a command that marks its window inside its own transaction."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import jobrun as package
from jobrun import rows
from jobrun.errors import ConfigError, NotRecorded, UsageError
from jobrun.instants import iso
from jobrun.ledger_sqlite import SqliteLedger, open_ledger
from jobrun.rows import Claimed, Finished, Opening
from tests.conftest import PYTHON, ROOT
from tests.ledger_calls import CALLER, ELEVEN, NOW, TEN, begin, claim, hourly, result, state

KEY = f"j:{iso(TEN)}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of the user's own, with a table of sales."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE sales (amount)")
    return path


@pytest.fixture
def ledger(path: Path) -> Iterator[SqliteLedger]:
    """The ledger in it."""
    with closing(open_ledger(str(path), CALLER)) as ledger:
        yield ledger


@pytest.fixture
def claimed(ledger: SqliteLedger) -> Claimed:
    """The window 10:00 runs, with token 1."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    return opened.claimed


@pytest.fixture
def command(
    path: Path, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sqlite3.Connection]:
    """The connection of its command, which has written a row and not yet committed."""
    monkeypatch.setenv("JOBRUN_JOB", "j")
    monkeypatch.setenv("JOBRUN_KEY", KEY)
    monkeypatch.setenv("JOBRUN_TOKEN", "1")
    monkeypatch.setenv("JOBRUN_LEDGER", str(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO sales VALUES (1)")
        yield connection


def sales(path: Path) -> int:
    """How many rows of data are committed."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM sales").fetchone()[0])


def finish(ledger: SqliteLedger, claimed: Claimed, outcome: str) -> Finished:
    code = int(outcome != rows.SUCCEEDED)
    return ledger.finish(result(claimed, KEY, outcome=outcome, exit_code=code), None, hourly)


# -- from Python ---------------------------------------------------------------------------------


def test_data_and_mark_are_one(
    ledger: SqliteLedger, path: Path, command: sqlite3.Connection
) -> None:
    """Both are there after COMMIT, neither before."""
    package.done(command)
    assert (sales(path), state(ledger, TEN)) == (0, (rows.RUNNING, 1, 0))
    command.execute("COMMIT")
    assert (sales(path), state(ledger, TEN)) == (1, (rows.PROCESSED, 1, 0))


@pytest.mark.parametrize("outcome", [rows.FAILED_RUN, rows.KILLED, rows.INTERRUPTED])
def test_a_marked_window_is_processed_whatever_the_exit(
    ledger: SqliteLedger, command: sqlite3.Connection, claimed: Claimed, outcome: str
) -> None:
    """The run says how the command ended, the window that it was done."""
    package.done(command)
    command.execute("COMMIT")
    finished = finish(ledger, claimed, outcome)
    assert (finished.outcome, finished.window_state) == (outcome, rows.PROCESSED)
    assert (finished.watermark, finished.marked) == (ELEVEN, True)
    assert ledger.runs("j")[0].outcome == outcome


def test_a_marked_window_survives_the_wrapper(
    ledger: SqliteLedger, command: sqlite3.Connection, claimed: Claimed
) -> None:
    """kill -9 between the command's COMMIT and the record: lost, but never run again."""
    package.done(command)
    command.execute("COMMIT")
    opened = begin(ledger, lost=(claimed.run_id,))
    assert opened.watermark == ELEVEN
    assert state(ledger, TEN) == (rows.PROCESSED, 1, 0)
    assert ledger.runs("j")[0].outcome == rows.LOST


def test_a_window_that_is_not_marked_is_not(ledger: SqliteLedger, claimed: Claimed) -> None:
    """The ledger's own mark is no mark of the command's."""
    assert not finish(ledger, claimed, rows.SUCCEEDED).marked


def test_marking_twice_is_marking_once(
    ledger: SqliteLedger, path: Path, command: sqlite3.Connection
) -> None:
    """Already processed by the same token passes."""
    package.done(command)
    package.done(command)
    command.execute("COMMIT")
    assert (sales(path), state(ledger, TEN)) == (1, (rows.PROCESSED, 1, 0))


def test_a_holder_that_was_replaced_commits_nothing(
    ledger: SqliteLedger, path: Path, command: sqlite3.Connection, claimed: Claimed
) -> None:
    """The other one does the work: the whole transaction is rolled back."""
    command.execute("ROLLBACK")
    begin(ledger, claim(TEN), lost=(claimed.run_id,))
    command.execute("BEGIN IMMEDIATE")
    command.execute("INSERT INTO sales VALUES (1)")
    with pytest.raises(NotRecorded, match="rolled back"):
        package.done(command)
    assert not command.in_transaction
    assert (sales(path), state(ledger, TEN)) == (0, (rows.RUNNING, 2, 1))


def test_a_unit_of_a_key_can_be_marked(
    ledger: SqliteLedger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--key` has no window, and is marked alike."""
    unit = claim(TEN)._replace(key="j:orders.csv", start=None, end=None)
    assert ledger.open(Opening("j", 0, NOW), unit, None) is not None
    for name, value in {"JOB": "j", "KEY": "j:orders.csv", "TOKEN": "1"}.items():
        monkeypatch.setenv(f"JOBRUN_{name}", value)
    monkeypatch.delenv("JOBRUN_LEDGER", raising=False)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO sales VALUES (1)")
        package.done(connection)
    assert [row.state for row in ledger.keys("j")] == [rows.PROCESSED]


def test_without_a_transaction_it_is_refused(path: Path, command: sqlite3.Connection) -> None:
    """A mark that stands alone is no mark of the data."""
    command.execute("COMMIT")
    with pytest.raises(UsageError, match="no transaction is open"):
        package.done(command)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("JOBRUN_KEY", None, "this run has no key"),
        ("JOBRUN_JOB", None, "JOBRUN_JOB is not set, this is no command of jobrun's"),
        ("JOBRUN_TOKEN", "", "JOBRUN_TOKEN is not set"),
        ("JOBRUN_TOKEN", "1x", '"1x" is no number'),
    ],
)
def test_outside_of_jobrun(
    command: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str | None,
    message: str,
) -> None:
    """It says what is missing, and leaves the transaction to the caller."""
    monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        package.done(command)
    assert command.in_transaction


def test_another_database_is_refused(
    path: Path, command: sqlite3.Connection, tmp_path: Path
) -> None:
    """Attached is not enough: two files are two commits."""
    with closing(sqlite3.connect(tmp_path / "data.db", isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS ledger", (str(path),))
        connection.execute("BEGIN")
        with pytest.raises(ConfigError, match="can only be one in one file") as caught:
            package.done(connection)
    assert f"--ledger {tmp_path / 'data.db'}" in (caught.value.hint or "")


def test_another_ledger_is_refused(command: sqlite3.Connection, tmp_path: Path) -> None:
    """It might hold a window of the same key and token."""
    other = tmp_path / "other.db"
    open_ledger(str(other)).close()
    with closing(sqlite3.connect(other, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        with pytest.raises(ConfigError):
            package.done(connection)


def test_a_database_in_memory_is_refused(command: sqlite3.Connection) -> None:
    """It has no file, and no ledger."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        with pytest.raises(ConfigError, match="in memory"):
            package.done(connection)


def test_an_error_of_the_users_own_stays_what_it_is(
    path: Path, command: sqlite3.Connection
) -> None:
    """Only the trigger's refusal is put in words of ours."""
    command.execute("ROLLBACK")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.isolation_level = None
        connection.execute("BEGIN")
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            package.done(connection)


def test_importing_jobrun_stays_light() -> None:
    """`done` loads when it is asked for."""
    code = "import sys, jobrun; print('jobrun.mark' in sys.modules, jobrun.done.__name__)"
    found = subprocess.run(
        [PYTHON, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout == "False done\n"
    with pytest.raises(AttributeError, match="no attribute 'dome'"):
        package.dome  # noqa: B018


# -- from SQL ------------------------------------------------------------------------------------

BAD_MARKS = {
    "an unknown key": f"('j', '{KEY}x', 1)",
    "an unknown job": f"('k', '{KEY}', 1)",
    "an old token": f"('j', '{KEY}', 0)",
    "no token": f"('j', '{KEY}', NULL)",
    "an empty token": f"('j', '{KEY}', '')",
    "a token that is no number": f"('j', '{KEY}', 'one')",
}


@pytest.mark.parametrize("mark", BAD_MARKS.values(), ids=BAD_MARKS)
def test_a_mark_that_meets_no_window_commits_no_data(
    path: Path, command: sqlite3.Connection, ledger: SqliteLedger, mark: str
) -> None:
    """Without the guard an UPDATE of no row would let the COMMIT through, and say nothing."""
    with pytest.raises(sqlite3.IntegrityError, match="rolled back"):
        command.execute(f"INSERT INTO jobrun_done VALUES {mark}")
    with pytest.raises(sqlite3.OperationalError, match="no transaction is active"):
        command.execute("COMMIT")
    assert (sales(path), state(ledger, TEN)) == (0, (rows.RUNNING, 1, 0))


def test_a_token_given_as_text_marks(
    path: Path, command: sqlite3.Connection, ledger: SqliteLedger
) -> None:
    """`'$JOBRUN_TOKEN'` in a shell script is text, which never equals a number by itself."""
    command.execute(f"INSERT INTO jobrun_done (job, key, token) VALUES ('j', '{KEY}', '1')")
    command.execute("COMMIT")
    assert (sales(path), state(ledger, TEN)) == (1, (rows.PROCESSED, 1, 0))


def shell(path: Path, mark: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The sqlite3 shell with a script that marks as its last statement before COMMIT."""
    script = f"""
BEGIN IMMEDIATE;
INSERT INTO sales VALUES (1);
INSERT INTO sales VALUES (2);
INSERT INTO jobrun_done VALUES {mark};
COMMIT;
"""
    return subprocess.run(
        ["sqlite3", *options, str(path)], input=script, text=True, capture_output=True
    )


has_shell = pytest.mark.skipif(shutil.which("sqlite3") is None, reason="no sqlite3 shell here")


@has_shell
@pytest.mark.parametrize("options", [(), ("-bail",)], ids=["careless", "bail"])
def test_the_sqlite3_shell(
    path: Path, claimed: Claimed, ledger: SqliteLedger, options: tuple[str, ...]
) -> None:
    """Without -bail it goes on to COMMIT after an error: there is nothing left to commit."""
    assert shell(path, f"('j', '{KEY}', '7')", *options).returncode != 0
    assert (sales(path), state(ledger, TEN)) == (0, (rows.RUNNING, 1, 0))
    assert shell(path, f"('j', '{KEY}', '1')", *options).returncode == 0
    assert (sales(path), state(ledger, TEN)) == (2, (rows.PROCESSED, 1, 0))


def test_what_is_done_can_be_read(
    path: Path, command: sqlite3.Connection, ledger: SqliteLedger
) -> None:
    """The view lists what is processed."""
    package.done(command)
    command.execute("COMMIT")
    assert command.execute("SELECT * FROM jobrun_done").fetchall() == [("j", KEY, 1)]
