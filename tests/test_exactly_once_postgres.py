"""`jobrun.done` and `SELECT jobrun_done(...)` in PostgreSQL: data and mark are one transaction."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import jobrun as package
from jobrun import rows
from jobrun.errors import ConfigError, NotRecorded, UsageError
from jobrun.instants import HOUR
from jobrun.ledger_postgres import PostgresLedger
from jobrun.rows import Opened, Opening
from tests.conftest import PYTHON, Jobrun, until
from tests.ledger_calls import NOW, TEN, Again, begin, claim, hourly, in_a_schema, state
from tests.test_exactly_once import FIRST, HOURLY, LEFT_BEHIND, SECOND
from tests.test_readme import BLOCKS

KEY = "a:2026-09-04T11:00:00+00:00"
WORK = """
import os, signal, sys
import jobrun, psycopg
connection = psycopg.connect(os.environ['JOBRUN_LEDGER'])
connection.execute('create table if not exists mine (key text)')
connection.execute('insert into mine values (%s)', (os.environ['JOBRUN_KEY'],))
jobrun.done(connection)
connection.commit()
"""
PSQL = """
psql -qtA -v ON_ERROR_STOP={stop} -v job="$JOBRUN_JOB" -v key="{key}" -v token="{token}" \
    -d "$JOBRUN_LEDGER" <<'SQL'
CREATE TABLE IF NOT EXISTS mine (key text);
BEGIN;
INSERT INTO mine VALUES (:'key');
SELECT jobrun_done(:'job', :'key', :'token');
COMMIT;
SQL
"""
shell = pytest.mark.skipif(not shutil.which("psql"), reason="no psql here")
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def query(jobrun: Jobrun, sql: str) -> list[tuple[Any, ...]]:
    return rows_of(jobrun.environment["JOBRUN_LEDGER"], sql)


def rows_of(address: str, *statements: str) -> list[tuple[Any, ...]]:
    """As another program, each by itself; the rows of the last one."""
    with closing(psycopg.connect(address, autocommit=True)) as server:
        for statement in statements:
            cursor = server.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def shop(on_postgres: Jobrun) -> Jobrun:
    """`service=shop` is its database, as in the README, with an account in it."""
    found = conninfo_to_dict(on_postgres.environment["JOBRUN_LEDGER"])
    services = on_postgres.folder / "services.conf"
    services.write_text("\n".join(["[shop]", *(f"{name}={found[name]}" for name in found)]))
    on_postgres.environment["PGSERVICEFILE"] = str(services)
    account = "CREATE TABLE account (cents int)", "INSERT INTO account VALUES (0)"
    rows_of(on_postgres.environment["JOBRUN_LEDGER"], *account)
    return on_postgres


def mine(jobrun: Jobrun) -> list[tuple[Any, ...]]:
    return query(jobrun, "SELECT key FROM mine")


# -- through whole calls ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end", ["sys.exit(9)", "os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(0)"]
)
def test_a_marked_window_is_processed_whatever_the_command_does_then(
    on_postgres: Jobrun, end: str
) -> None:
    """Exit 9 and a kill -9 right after COMMIT reach cron; the window is never run again."""
    call = ("run", "a", *HOURLY, "--", PYTHON, "-c", WORK + end)
    first = on_postgres(*call, now=FIRST)
    assert first.status == {"9)": 9, "L)": 137, "0)": 0}[end[-2:]]
    assert " PROCESSED job=a " in first.stderr
    assert on_postgres(*call, now=SECOND).status == 0
    assert mine(on_postgres) == [(KEY,)]
    found = query(on_postgres, "SELECT state, reason, attempts FROM jobrun_window")
    assert found == [("processed", "marked", 1)]


@posix
def test_a_marked_window_survives_wrapper_and_all(on_postgres: Jobrun) -> None:
    """kill -9 of everything after the mark: nothing is done twice."""
    code = WORK + "print('ready', flush=True); signal.pause()"
    call = ("run", "a", *HOURLY)
    process = on_postgres.start(*call, "-k", "1", "--", PYTHON, "-c", code, now=FIRST)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.communicate(timeout=20)

    def settled() -> bool:
        on_postgres(*call, "--", PYTHON, "-c", WORK, now=SECOND)
        return query(on_postgres, "SELECT outcome FROM jobrun_run") == [("lost",)]

    until(settled, "the next call to take the lock")
    assert mine(on_postgres) == [(KEY,)]


def test_with_a_stale_token_the_data_is_not_there(on_postgres: Jobrun) -> None:
    """Another holder has been since: its transaction is rolled back whole."""
    steal = (
        "import os, psycopg\n"
        "with psycopg.connect(os.environ['JOBRUN_LEDGER']) as other:\n"
        "    other.execute('update jobrun_window set token = token + 1')\n"
    )
    found = on_postgres("run", "a", *HOURLY, "--", PYTHON, "-c", steal + WORK, now=FIRST)
    assert found.status != 0
    assert "NotRecorded" in found.stderr
    assert query(on_postgres, "SELECT to_regclass('mine')") == [(None,)]


@posix
def test_what_a_failed_try_left_behind_marks_nothing_beside_the_next_one(
    on_postgres: Jobrun,
) -> None:
    """The next try has a token of its own; the data is there once."""
    for name in ("go", "said"):
        os.mkfifo(on_postgres.folder / name)
    call = ("run", "a", *HOURLY, "--retries", "1", "--retry-delay", "0", "--timeout", "30")
    found = on_postgres(*call, "--", PYTHON, "-c", LEFT_BEHIND, WORK, now=FIRST)
    assert found.status == 0, found.stderr
    assert "(token 1) is not its holder any more; the transaction was rolled" in found.stdout
    assert mine(on_postgres) == [(KEY,)]


@shell
@pytest.mark.parametrize("space", [(), ("--namespace", "staging")])
@pytest.mark.parametrize("file", ["interest_pg.py", "interest-pg.sh"])
def test_what_the_readme_shows(shop: Jobrun, file: str, space: tuple[str, ...]) -> None:
    """Each as it stands there; in a name space the shell's names the schema."""
    (text,) = [block.text for block in BLOCKS if block.text.startswith(f"# {file}\n")]
    if space:
        text = text.replace("SELECT jobrun_done", "SELECT staging.jobrun_done")
    (shop.folder / file).write_text(text)
    program = (PYTHON,) if file.endswith(".py") else ("sh", "-e")
    try:
        found = shop("run", "a", *HOURLY, *space, "--", *program, file, now=FIRST)
        assert found.status == 0, found.stderr
        assert query(shop, "SELECT cents FROM account") == [(1250,)]
        windows = f"{space[-1]}.jobrun_window" if space else "jobrun_window"
        assert query(shop, f"SELECT reason FROM {windows}") == [("marked",)]
    finally:
        query(shop, "DROP SCHEMA IF EXISTS staging CASCADE")


@shell
@pytest.mark.parametrize("stop", [1, 0])
@pytest.mark.parametrize(
    ("key", "token"),
    [("$JOBRUN_KEY", "0"), ("a:unknown", "$JOBRUN_TOKEN"), ("$JOBRUN_KEY", "x"), ("", "")],
)
def test_psql_never_commits_unmarked_data(
    on_postgres: Jobrun, key: str, token: str, stop: int
) -> None:
    """Stale token, unknown key, a token that is no number, nothing; and a careless COMMIT."""
    call = ("run", "a", *HOURLY, "--", "sh", "-ec", PSQL.format(key=key, token=token, stop=stop))
    found = on_postgres(*call, now=FIRST)
    assert (found.status == 3) == bool(stop), found
    assert mine(on_postgres) == []


@shell
def test_psql_marks(on_postgres: Jobrun) -> None:
    """The token is text in a shell, and taken for the number that it is."""
    script = PSQL.format(key="$JOBRUN_KEY", token="$JOBRUN_TOKEN", stop=1)
    found = on_postgres("run", "a", *HOURLY, "--", "sh", "-ec", script, now=FIRST)
    assert found.status == 0, found.stderr
    assert mine(on_postgres) == [(KEY,)]
    assert query(on_postgres, "SELECT reason FROM jobrun_window") == [("marked",)]


# -- over a connection -----------------------------------------------------------------------------


class Command(NamedTuple):
    """The window 10:00 runs with token 1, and this is the database of its command."""

    ledger: PostgresLedger
    opened: Opened

    @contextmanager
    def connected(self, **more: Any) -> Iterator[psycopg.Connection[Any]]:
        """A connection that has written a row and not yet committed."""
        with closing(psycopg.connect(self.ledger.address, **more)) as connection:
            connection.execute("BEGIN" if connection.autocommit else "SELECT 1")
            connection.execute("INSERT INTO sales VALUES (1)")
            yield connection

    def sales(self) -> int:
        """How many rows of data are committed."""
        return int(rows_of(self.ledger.address, "SELECT count(*) FROM sales")[0][0])

    def replace(self) -> None:
        """Another holder has been since."""
        assert self.opened.claimed is not None
        begin(self.ledger, claim(TEN), lost=(self.opened.claimed.run_id,))


@pytest.fixture
def again(postgres: str) -> Iterator[Again]:
    with in_a_schema(postgres) as again:
        yield again


@pytest.fixture
def command(again: Again, monkeypatch: pytest.MonkeyPatch) -> Command:
    """With the environment that jobrun gives it."""
    ledger = again()
    assert isinstance(ledger, PostgresLedger)
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    given = {"JOB": "j", "KEY": claim(TEN).key or "", "TOKEN": "1", "LEDGER": ledger.address}
    for name, value in {**given, "RUN_ID": str(opened.claimed.run_id)}.items():
        monkeypatch.setenv(f"JOBRUN_{name}", value)
    rows_of(ledger.address, "CREATE TABLE sales (amount int)")
    return Command(ledger, opened)


@pytest.mark.parametrize("autocommit", [False, True])
def test_data_and_mark_are_one(command: Command, autocommit: bool) -> None:
    """Both are there after COMMIT, neither before; marking twice is marking once."""
    with command.connected(autocommit=autocommit) as connection:
        package.done(connection)
        package.done(connection)
        assert (command.sales(), state(command.ledger, TEN)) == (0, (rows.RUNNING, 1, 0))
        connection.commit()
        assert (command.sales(), state(command.ledger, TEN)) == (1, (rows.PROCESSED, 1, 0))


def test_a_connection_of_the_users_own_kind(command: Command) -> None:
    """Rows as dicts, cursors that bind at the client."""
    from psycopg.rows import dict_row

    more = {"row_factory": dict_row, "cursor_factory": psycopg.ClientCursor}
    with command.connected(**more) as connection:
        package.done(connection)
        connection.commit()
    assert command.sales() == 1


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_holder_that_was_replaced_commits_nothing(command: Command, autocommit: bool) -> None:
    """Whatever its program does about the error."""
    command.replace()
    with command.connected(autocommit=autocommit) as connection:
        with pytest.raises(NotRecorded, match="rolled back"):
            package.done(connection)
        connection.commit()
    assert (command.sales(), state(command.ledger, TEN)) == (0, (rows.RUNNING, 2, 1))


def test_not_even_what_is_before_a_savepoint(command: Command) -> None:
    """The error is caught outside of the inner block, and the outer one goes on to COMMIT."""
    command.replace()
    connected = psycopg.connect(command.ledger.address)
    with closing(connected) as connection, connection.transaction():
        connection.execute("INSERT INTO sales VALUES (1)")
        with pytest.raises(NotRecorded), connection.transaction():
            package.done(connection)
    assert command.sales() == 0


def test_a_mark_of_an_isolated_transaction(command: Command) -> None:
    """It does not see the other holder, and is refused by the server for that."""
    with command.connected() as connection:
        connection.rollback()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("INSERT INTO sales VALUES (1)")
        command.replace()
        with pytest.raises(psycopg.errors.SerializationFailure):
            package.done(connection)
        connection.commit()
    assert command.sales() == 0


@pytest.mark.parametrize("autocommit", [False, True])
def test_without_a_transaction_it_is_refused(command: Command, autocommit: bool) -> None:
    """A mark that stands alone is no mark of the data."""
    connected = psycopg.connect(command.ledger.address, autocommit=autocommit)
    refused = pytest.raises(UsageError, match="no transaction is open")
    with closing(connected) as connection, refused:
        package.done(connection)
    assert state(command.ledger, TEN) == (rows.RUNNING, 1, 0)


def test_in_a_pipeline_it_is_refused(command: Command) -> None:
    """There a transaction that is not open looks like one that is."""
    refused = pytest.raises(UsageError, match="pipeline")
    with command.connected(autocommit=True) as connection, connection.pipeline(), refused:
        package.done(connection)


def test_another_database_is_refused(command: Command, postgres: str) -> None:
    """No ledger is there; the error says where the connection leads and where the ledger is."""
    other = f"{postgres.rpartition('/')[0]}/template1"
    with closing(psycopg.connect(other)) as connection:
        connection.execute("SELECT 1")
        with pytest.raises(ConfigError, match="one in one database") as caught:
            package.done(connection)
    assert "/template1; the ledger is postgresql://" in str(caught.value)
    assert f'--ledger "{other}"' in (caught.value.hint or "")


def test_another_ledger_is_refused(command: Command, postgres: str) -> None:
    """It holds a window of the same job, key and token: staging beside production."""
    with in_a_schema(postgres) as again:
        other = again()
        begin(other, claim(TEN - HOUR))
        rows_of(other.address, "UPDATE jobrun_job SET token = 0")
        begin(other, claim(TEN))
        with closing(psycopg.connect(other.address)) as connection:
            connection.execute("SELECT 1")
            with pytest.raises(ConfigError, match="not on record where the connection leads"):
                package.done(connection)
            connection.commit()
        assert state(other, TEN) == (rows.RUNNING, 1, 0)


def test_a_file_is_another_database(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the other way round."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        memory.execute("BEGIN")
        with pytest.raises(ConfigError, match="in memory, the ledger is postgresql://"):
            package.done(memory)
    monkeypatch.setenv("JOBRUN_LEDGER", "/var/lib/jobrun/jobrun.db")
    refused = pytest.raises(ConfigError, match=r"the ledger is /var/lib/jobrun/jobrun\.db")
    with command.connected() as connection, refused:
        package.done(connection)


def test_a_role_that_may_not_mark_is_told_what_to_grant(command: Command, postgres: str) -> None:
    """The command's role needs not be jobrun's."""
    schema = rows_of(command.ledger.address, "SELECT current_schema()")[0][0]
    rows_of(postgres, "CREATE ROLE teller LOGIN", f"GRANT USAGE ON SCHEMA {schema} TO teller")
    address = command.ledger.address.replace("postgres@", "teller@")
    try:
        with closing(psycopg.connect(address)) as connection:
            connection.execute("SELECT 1")
            with pytest.raises(ConfigError, match="role teller may not mark") as caught:
                package.done(connection)
        assert "UPDATE ON jobrun_window" in (caught.value.hint or "")
        rows_of(
            command.ledger.address,
            "GRANT SELECT ON jobrun_run TO teller",
            "GRANT SELECT, UPDATE ON jobrun_window TO teller",
        )
        with closing(psycopg.connect(address)) as connection:
            connection.execute("SELECT 1")
            package.done(connection)
    finally:
        rows_of(postgres, "DROP OWNED BY teller", "DROP ROLE teller")


def test_what_it_does_not_know_is_named(command: Command) -> None:
    """A cursor, an async connection, anything: with what can be done instead."""

    async def asynchronous() -> None:
        async with await psycopg.AsyncConnection.connect(command.ledger.address) as connection:
            await connection.execute("SELECT 1")
            with pytest.raises(TypeError, match=r"psycopg\.\S*AsyncConnection is neither"):
                package.done(connection)  # type: ignore[arg-type]

    with command.connected() as connection:
        for other in (connection.cursor(), None, "postgresql://"):
            with pytest.raises(TypeError, match=r"SELECT jobrun_done\(job, key, token\)"):
                package.done(other)  # type: ignore[arg-type]
    asyncio.run(asynchronous())


# -- in a race with another holder -----------------------------------------------------------------


@contextmanager
def beside(call: Callable[[], object], ledger: PostgresLedger) -> Iterator[Future[object]]:
    """It runs in another thread, and waits by now for whoever writes of the job."""
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        until(lambda: rows_of(ledger.address, waiting) or future.done(), "the lock's queue")
        assert not future.done(), future.result()
        yield future


def test_whoever_takes_over_waits_for_a_mark_and_plans_again(
    command: Command, again: Again
) -> None:
    """The window was marked after planning read it: it is not claimed a second time."""
    assert command.opened.claimed is not None
    opening = Opening("j", 1, NOW, schedule="every 1h", lost=(command.opened.claimed.run_id,))
    rival = again()
    with command.connected() as connection:
        package.done(connection)
        with beside(lambda: rival.open(opening, claim(TEN), hourly), command.ledger) as opened:
            connection.commit()
            assert opened.result(20) is None
    assert state(rival, TEN) == (rows.PROCESSED, 1, 0)
    assert begin(rival, lost=(command.opened.claimed.run_id,)).marked == (1,)


def test_a_mark_waits_for_whoever_takes_over(command: Command, again: Again) -> None:
    """His claim is there first: the mark is refused, and the data with it."""
    rival = again()
    assert isinstance(rival, PostgresLedger)
    with command.connected() as connection, ExitStack() as opening:
        opening.enter_context(rival._database.writing(job="j"))
        with beside(lambda: package.done(connection), command.ledger) as marked:
            rival._database.change("UPDATE jobrun_job SET token = 2")
            rival._database.change("UPDATE jobrun_window SET token = 2")
            opening.close()
            with pytest.raises(NotRecorded):
                marked.result(20)
        connection.commit()
    assert command.sales() == 0


def test_a_command_that_stops_between_mark_and_commit_holds_up_nobody_for_long(
    command: Command,
) -> None:
    """Its session is ended by the server after seconds, not when its machine comes back."""
    limit = "SHOW idle_in_transaction_session_timeout"
    with command.connected() as connection:
        connection.execute("SET idle_in_transaction_session_timeout = '1h'")
        package.done(connection)
        assert connection.execute(limit).fetchone() == ("15s",)
        connection.commit()
        assert connection.execute(limit).fetchone() == ("1h",)
    with command.connected() as connection:
        connection.execute("SET idle_in_transaction_session_timeout = '14s'")
        package.done(connection)
        assert connection.execute(limit).fetchone() == ("14s",)
