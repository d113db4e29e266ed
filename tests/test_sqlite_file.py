"""The ledger's SQLite file: made whole, opened safely, refused in one line."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jobrun import rows, sqlite_file
from jobrun.errors import ConfigError, JobrunError, LedgerError, UnsafePlace
from jobrun.ledger_sqlite import SqliteLedger, open_ledger
from tests.ledger_calls import CALLER, NOW, TEN, begin, claim, run
from tests.sqlite_programs import child, end_of, sql


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobrun.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[SqliteLedger]:
    """A ledger without a row."""
    with closing(open_ledger(str(path), CALLER)) as ledger:
        yield ledger


# -- making it -----------------------------------------------------------------------------------


def test_a_new_ledger_is_ours_alone(path: Path) -> None:
    """0600, WAL, at the newest version, with nothing beside it once it is closed."""
    with closing(open_ledger(str(path), network=False)) as ledger:
        assert (ledger.created, ledger.shared, ledger.address) == (True, False, str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["jobrun.db"]
    assert sql(path, "PRAGMA journal_mode") == [("wal",)]
    assert sql(path, "SELECT version FROM jobrun_meta") == [(sqlite_file.VERSION,)]


def test_it_is_made_once(path: Path, ledger: SqliteLedger) -> None:
    """The second to open it did not make it."""
    with closing(open_ledger(str(path))) as again:
        assert not again.created


def test_first_openers_meet_a_whole_ledger(path: Path) -> None:
    """Eight processes at the same moment: one made it, all can write, nothing is left behind."""
    code = """
print("ready", flush=True); sys.stdin.readline()
ledger = open_ledger(sys.argv[1], network=False)
ledger.skip(sys.argv[2], "paused", None, None, 1_800_000_000)
print(ledger.created)
ledger.close()
"""
    children = [child(code, path, f"job{n}") for n in range(8)]
    for process in children:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in children:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    told = sorted(end_of(process) for process in children)
    assert told == [(0, "False\n")] * 7 + [(0, "True\n")]
    assert len(sql(path, "SELECT * FROM jobrun_skip")) == 8
    assert os.listdir(path.parent) == ["jobrun.db"]


def test_a_filesystem_without_links(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the ledger is made in its place."""

    def link(source: str, target: str) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with closing(open_ledger(str(path), network=False)) as ledger:
        assert (ledger.created, ledger.shared) == (True, False)
    assert sql(path, "PRAGMA journal_mode") == [("wal",)]
    assert os.listdir(path.parent) == ["jobrun.db"]


def test_an_empty_file_becomes_a_ledger(path: Path) -> None:
    """`touch jobrun.db` is nobody's database."""
    path.touch()
    with closing(open_ledger(str(path), network=False)) as ledger:
        assert not ledger.shared
    assert sql(path, "PRAGMA journal_mode") == [("wal",)]


def test_on_a_network_filesystem_there_is_no_wal(path: Path) -> None:
    """D09: WAL needs shared memory; a ledger that was moved there is brought back from it."""
    open_ledger(str(path), network=True).close()
    assert sql(path, "PRAGMA journal_mode") == [("delete",)]
    sql(path, "PRAGMA journal_mode = wal")
    open_ledger(str(path), network=True).close()
    assert sql(path, "PRAGMA journal_mode") == [("delete",)]


def test_looking_makes_nothing(path: Path) -> None:
    """A reading command on a path without a ledger says so and leaves no file."""
    with pytest.raises(LedgerError, match="there is none"):
        open_ledger(str(path), create=False)
    assert os.listdir(path.parent) == []
    sql(path, "CREATE TABLE sales (amount)")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="there is none"):
        open_ledger(str(path), create=False)
    assert path.read_bytes() == before


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_to_the_ledger(path: Path, tmp_path: Path) -> None:
    """It is the file that it names: also where that is still to be made."""
    link = tmp_path / "link.db"
    link.symlink_to(path)
    for created in (True, False):
        with closing(open_ledger(str(link))) as ledger:
            assert (ledger.created, ledger.address) == (created, str(path))


def test_in_a_database_of_the_users_own(path: Path) -> None:
    """Journal mode, user_version and tables are the user's; ours all begin with jobrun_."""
    sql(path, "CREATE TABLE sales (amount)", "PRAGMA user_version = 7")
    with closing(open_ledger(str(path), CALLER, network=False)) as ledger:
        assert ledger.shared
        run(ledger, TEN)
    assert sql(path, "PRAGMA journal_mode") == [("delete",)]
    assert sql(path, "PRAGMA user_version") == [(7,)]
    names = sql(path, "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    assert {str(name).partition("_")[0] for (name,) in names} == {"jobrun", "sales"}


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give away")
def test_what_root_makes_in_anothers_folder_is_that_others(tmp_path: Path) -> None:
    """Or the owner would be locked out of his own ledger."""
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 1234, 1234)
    open_ledger(str(home / "jobrun.db"), network=False).close()
    assert (home / "jobrun.db").stat().st_uid == 1234


# -- refusing ------------------------------------------------------------------------------------


def refusal(path: Path) -> JobrunError:
    with pytest.raises(JobrunError) as caught:
        open_ledger(str(path), network=False)
    assert "\n" not in caught.value.message
    assert str(path.parent) in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("size", [1, 200, 5000])
def test_a_file_that_is_no_database(path: Path, size: int) -> None:
    """D07: refused, not a byte changed, and the hint says what moving it aside means."""
    path.write_bytes(b"x" * size)
    error = refusal(path)
    assert (error.code, "not a database" in error.message) == (74, True)
    assert "watermark" in (error.hint or "")
    assert path.read_bytes() == b"x" * size
    assert os.listdir(path.parent) == ["jobrun.db"]


def test_a_newer_ledger(path: Path, ledger: SqliteLedger) -> None:
    """D13: an older program leaves it alone."""
    ledger.close()
    sql(path, "UPDATE jobrun_meta SET version = 999", "PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    error = refusal(path)
    assert error.code == 74
    assert f"written by a newer jobrun (999 > {sqlite_file.VERSION})" in error.message
    assert path.read_bytes() == before


def test_a_damaged_ledger(path: Path, ledger: SqliteLedger) -> None:
    """Refused where reading meets the damage; a check names it."""
    for number in range(50):
        ledger.skip("j", rows.LOCK_HELD, None, f"holder {number}", NOW)
    ledger.close()
    page = sql(path, "SELECT rootpage FROM sqlite_master WHERE name = 'jobrun_skip'")[0][0]
    assert isinstance(page, int)
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    with closing(open_ledger(str(path))) as damaged:
        with pytest.raises(LedgerError, match="damaged"):
            damaged.skips()
        assert damaged.problems()


def test_a_missing_folder(tmp_path: Path) -> None:
    """A path with a spelling mistake is not made up for."""
    error = refusal(tmp_path / "missing" / "jobrun.db")
    assert isinstance(error, UnsafePlace)
    assert str(tmp_path / "missing") in error.message


def test_a_folder_in_place_of_the_file(path: Path) -> None:
    """Nor a pipe, nor a device: opening one may hang."""
    path.mkdir()
    assert refusal(path).code == 74


def as_stranger(path: Path) -> tuple[int, str]:
    """(exit code, message) of opening the ledger as an ordinary user."""
    code = """
import os, pwd
from jobrun import sqlite_errors, sqlite_schema
from jobrun.errors import JobrunError
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    open_ledger(sys.argv[1], network=False).close()
except JobrunError as error:
    print(error.message)
    sys.stdout.flush()
    os._exit(error.code)
"""
    return end_of(child(code, path))


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
def test_a_ledger_that_may_only_be_read(reachable: Path) -> None:
    """D05: reading would leave sidecars that the owner can't write; nothing is left."""
    path = reachable / "jobrun.db"
    open_ledger(str(path)).close()
    path.chmod(0o444)
    reachable.chmod(0o777)
    before = path.read_bytes()
    status, message = as_stranger(path)
    assert status == 74
    assert "not readable and writable from here" in message
    assert path.read_bytes() == before
    assert os.listdir(reachable) == ["jobrun.db"]


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_that_can_not_be_written(reachable: Path, exists: bool) -> None:
    """Neither made nor opened there: SQLite keeps its journal beside the file."""
    path = reachable / "jobrun.db"
    if exists:
        open_ledger(str(path)).close()
        path.chmod(0o666)
    reachable.chmod(0o555)
    status, message = as_stranger(path)
    reachable.chmod(0o755)
    assert status == 73
    assert f"can't write {reachable}: permission denied" in message


def test_a_full_disk(path: Path, ledger: SqliteLedger) -> None:
    """D03: nothing is claimed; once there is room the next call goes on without repair."""
    ledger._database.rows("PRAGMA max_page_count = 1")
    with pytest.raises(LedgerError, match="no room left"):
        begin(ledger, claim(TEN), events=((None, "blocked", "x" * 100_000),))
    assert ledger.job("j") is None
    assert not ledger._database.connection.in_transaction
    ledger._database.rows("PRAGMA max_page_count = 100000")
    run(ledger, TEN)
    assert ledger.problems() == []


def test_a_database_in_memory_journal_is_refused(
    path: Path, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """78: a crash in the middle of a write would damage it."""
    ledger._database.rows("PRAGMA journal_mode = delete")
    ledger._database.rows("PRAGMA journal_mode = memory")
    with pytest.raises(ConfigError, match="memory"):
        sqlite_file._check_journal(ledger._database, None)
