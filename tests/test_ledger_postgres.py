"""The PostgreSQL ledger beyond what every ledger must do; the server itself is the witness."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from threading import Barrier
from typing import Any

import psycopg
import pytest

from jobrun import postgres_schema, rows
from jobrun.errors import ConfigError, LedgerError, NoLedger, Refused, UsageError
from jobrun.instants import HOUR, iso
from jobrun.ledger_postgres import PostgresLedger, open_ledger
from jobrun.postgres_database import Database
from jobrun.rows import Breaker, Gap, Opened, Opening
from tests.conftest import Jobrun
from tests.ledger_calls import (
    CALLER,
    ELEVEN,
    IMPOSSIBLE,
    NOW,
    TEN,
    TWELVE,
    Again,
    begin,
    claim,
    hourly,
    in_a_schema,
    job_row,
    mark,
    result,
    run,
    state,
)


@pytest.fixture
def again(postgres: str) -> Iterator[Again]:
    with in_a_schema(postgres) as again:
        yield again


@pytest.fixture
def ledger(again: Again) -> PostgresLedger:
    """A ledger without a row."""
    ledger = again()
    assert isinstance(ledger, PostgresLedger)
    return ledger


@pytest.fixture
def empty(ledger: PostgresLedger) -> str:
    """The address of a schema in which there is no ledger."""
    tables = sql(ledger, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    sql(ledger, f"DROP TABLE {', '.join(name for (name,) in tables)} CASCADE")
    sql(ledger, "DROP FUNCTION jobrun_done")
    return ledger.address


def sql(ledger: PostgresLedger, *statements: str) -> list[tuple[Any, ...]]:
    """As another program, each by itself; the rows of the last one."""
    with closing(psycopg.connect(ledger.address, autocommit=True)) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def at_once(number: int, act: Any) -> list[Any]:
    """What as many threads get that all begin at the same moment."""
    gate = Barrier(number)

    def one(n: int) -> Any:
        gate.wait(20)
        return act(n)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(one, range(number)))


# -- opening it ----------------------------------------------------------------------------------


def test_of_many_first_calls_one_makes_it(empty: str) -> None:
    """At midnight, on as many machines: all of them go on, one has made it."""

    def open_(_: int) -> bool:
        with closing(open_ledger(empty)) as ledger:
            assert ledger.jobs() == []
            return ledger.created

    assert sorted(at_once(8, open_)) == [False] * 7 + [True]


def test_a_migration_that_fails_changes_nothing(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one transaction with its number."""
    first = postgres_schema.scripts()
    monkeypatch.setattr(postgres_schema, "scripts", lambda: [*first, "CREATE TABLE x (); NO SQL"])
    with pytest.raises(psycopg.errors.SyntaxError):
        open_ledger(empty)
    with closing(Database(empty)) as database:
        assert database.version == len(first)
        assert database.rows("SELECT to_regclass('x')") == [(None,)]


def test_none_is_made_for_a_look(empty: str) -> None:
    """`status` says that there is none."""
    with pytest.raises(LedgerError, match="there is none"):
        open_ledger(empty, create=False)
    with closing(Database(empty)) as database:
        assert database.rows("SELECT to_regclass('jobrun_meta')") == [(None,)]


def test_a_newer_ledger_is_left_alone(ledger: PostgresLedger) -> None:
    """One machine was updated first."""
    sql(ledger, "UPDATE jobrun_meta SET version = 99")
    with pytest.raises(LedgerError, match=r"newer jobrun \(99 > 1\)"):
        open_ledger(ledger.address)


@contextmanager
def role(ledger: PostgresLedger, *grants: str) -> Iterator[str]:
    """The address by a role that may do no more than that."""
    schema = ledger.address.rpartition("D")[2]
    name = f"nobody_{schema}"
    sql(ledger, f"CREATE ROLE {name} LOGIN", *(f"GRANT {grant} TO {name}" for grant in grants))
    try:
        yield ledger.address.replace("postgres@", f"{name}@")
    finally:
        sql(ledger, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_a_ledger_that_does_not_say_its_version(ledger: PostgresLedger) -> None:
    """74, and it is left as it is."""
    sql(ledger, "DELETE FROM jobrun_meta")
    with pytest.raises(LedgerError, match="does not say its version"):
        open_ledger(ledger.address)


@pytest.mark.parametrize(
    ("grants", "said"),
    [
        ((), "permission denied for schema"),
        (("USAGE ON SCHEMA {schema}",), "permission denied for table jobrun_meta"),
        (
            ("USAGE ON SCHEMA {schema}", "SELECT ON ALL TABLES IN SCHEMA {schema}"),
            "permission denied for table jobrun_",
        ),
    ],
)
def test_a_role_that_may_not_use_the_tables(
    ledger: PostgresLedger, grants: tuple[str, ...], said: str
) -> None:
    """74, with what to grant: that is enough."""
    schema = ledger.namespace
    with role(ledger, *(grant.format(schema=schema) for grant in grants)) as address:
        plain = address.partition("?")[0]
        with pytest.raises(LedgerError, match=said) as caught:
            work_of(plain, schema)
        sql(ledger, *(caught.value.hint or "").split("; "))
        work_of(plain, schema)
    assert len(ledger.runs()) == 1


@pytest.mark.parametrize("grants", [(), ("USAGE ON SCHEMA {schema}",)])
def test_a_role_that_may_not_make_the_tables(
    ledger: PostgresLedger, empty: str, grants: tuple[str, ...]
) -> None:
    """74, with what to grant, or the option for another place."""
    schema = empty.rpartition("D")[2]
    with role(ledger, *(grant.format(schema=schema) for grant in grants)) as address:
        plain = address.partition("?")[0]
        with pytest.raises(LedgerError, match="permission denied") as caught:
            work_of(plain, schema)
        *statements, otherwise = (caught.value.hint or "").split("; ")
        assert "--namespace" in otherwise
        sql(ledger, *statements)
        work_of(plain, schema)


def test_a_role_that_may_not_make_a_schema(ledger: PostgresLedger) -> None:
    """74: its administrator makes it."""
    with role(ledger) as address:
        plain, schema = address.partition("?")[0], f"of_{ledger.namespace}"
        with pytest.raises(LedgerError, match="permission denied for database") as caught:
            work_of(plain, schema)
        try:
            sql(ledger, *(caught.value.hint or "").split("; ")[:2])
            work_of(plain, schema)
        finally:
            sql(ledger, f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.mark.parametrize(
    "grants",
    [
        ("USAGE ON SCHEMA {schema}",),
        ("USAGE ON SCHEMA {schema}", "SELECT ON ALL TABLES IN SCHEMA {schema}"),
        (
            "USAGE ON SCHEMA {schema}",
            "SELECT, INSERT, DELETE ON ALL TABLES IN SCHEMA {schema}",
            "UPDATE ON {schema}.jobrun_job",
        ),
    ],
)
def test_doctor_knows_what_a_run_may_not(
    jobrun: Jobrun, ledger: PostgresLedger, grants: tuple[str, ...]
) -> None:
    """Where a run is 74 it fails, with the same remedy; with that all is well."""
    schema = ledger.namespace
    with role(ledger, *(grant.format(schema=schema) for grant in grants)) as address:
        jobrun.environment |= {"JOBRUN_LEDGER": address, "JOBRUN_HOME": str(jobrun.folder)}
        assert jobrun(*HOURLY).status == 74
        (failed,) = failures(jobrun)
        assert "may not" in failed["found"]
        sql(ledger, *failed["hint"].split("; "))
        assert failures(jobrun) == []
        assert jobrun(*HOURLY).status == 0


def test_a_role_that_may_run_but_not_import(jobrun: Jobrun, ledger: PostgresLedger) -> None:
    """74, with what to grant: that is enough."""
    schema, exported = ledger.namespace, jobrun.folder / "exported"
    grants = (
        f"USAGE ON SCHEMA {schema}",
        f"SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema}",
    )
    with role(ledger, *grants) as address:
        jobrun.environment |= {"JOBRUN_LEDGER": address, "JOBRUN_HOME": str(jobrun.folder)}
        assert jobrun(*HOURLY).status == 0
        exported.write_text(jobrun("export").stdout)
        assert jobrun("forget", "sales", "--yes").status == 0
        refused = jobrun("import", str(exported))
        assert (refused.status, "sequence" in refused.stderr) == (74, True), refused
        sql(ledger, *refused.lines[-1].removeprefix("jobrun: hint: ").split("; "))
        assert jobrun("import", str(exported)).status == 0


def test_doctor_knows_what_a_first_run_may_not(
    jobrun: Jobrun, ledger: PostgresLedger, empty: str
) -> None:
    """It tries to make the ledger, and makes none."""
    with role(ledger, f"USAGE ON SCHEMA {empty.rpartition('D')[2]}") as address:
        jobrun.environment |= {"JOBRUN_LEDGER": address, "JOBRUN_HOME": str(jobrun.folder)}
        assert jobrun(*HOURLY).status == 74
        (failed,) = failures(jobrun)
        assert failed["name"] == "ledger"
        sql(ledger, *failed["hint"].split("; ")[:2])
        assert failures(jobrun) == []
        assert sql(ledger, "SELECT to_regclass('jobrun_meta')") == [(None,)]
        assert jobrun(*HOURLY).status == 0


HOURLY = ("run", "sales", "--every", "1h", "--", "true")


def failures(jobrun: Jobrun) -> list[dict[str, Any]]:
    """What doctor calls broken."""
    found = jobrun("doctor", "--json")
    failed = [check for check in json.loads(found.stdout)["checks"] if check["grade"] == "FAIL"]
    assert found.status == bool(failed)
    return failed


def work_of(address: str, schema: str) -> None:
    """A call that runs."""
    with closing(open_ledger(address, CALLER, namespace=schema)) as ledger:
        run(ledger, TEN)


def test_a_ledger_further_down_the_search_path_is_another(ledger: PostgresLedger) -> None:
    """The first schema is the one, also where another has tables, or ones that we may not read."""
    schema = ledger.namespace
    own = f"own_{schema}"
    for grants in ((), (f"SELECT ON ALL TABLES IN SCHEMA {schema}",)):
        with role(ledger, f"USAGE ON SCHEMA {schema}", *grants) as address:
            sql(ledger, f"CREATE SCHEMA {own} AUTHORIZATION nobody_{schema}")
            path = address.replace(f"%3D{schema}", f"%3D{own},{schema}")
            try:
                with pytest.raises(NoLedger):
                    open_ledger(path, create=False)
                with closing(open_ledger(path, CALLER)) as made:
                    assert (made.created, made.namespace) == (True, own)
                    run(made, TEN)
            finally:
                sql(ledger, f"DROP SCHEMA {own} CASCADE")
    assert ledger.runs() == []


@pytest.mark.usefixtures("empty")
def test_a_search_path_that_leads_nowhere(ledger: PostgresLedger) -> None:
    """78, also for a look, with the option that makes a schema."""
    with role(ledger) as address:
        for create in (True, False):
            with pytest.raises(ConfigError, match="no schema for its tables") as caught:
                open_ledger(address, create=create)
            assert "--namespace" in (caught.value.hint or "")


# -- name spaces ----------------------------------------------------------------------------------


@pytest.fixture
def spaces(postgres: str) -> Iterator[Callable[[str], PostgresLedger]]:
    """Opens the ledger of a name space, whose schema goes when the test is over."""
    opened: list[PostgresLedger] = []

    def open_(namespace: str) -> PostgresLedger:
        opened.append(open_ledger(postgres, CALLER, namespace=namespace))
        return opened[-1]

    with closing(psycopg.connect(postgres, autocommit=True)) as server:
        try:
            yield open_
        finally:
            for ledger in opened:
                ledger.close()
            for schema in {ledger.address.rpartition("=")[2] for ledger in opened}:
                server.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


def test_a_name_space_is_a_schema_that_the_first_call_makes(
    postgres: str, spaces: Callable[[str], PostgresLedger]
) -> None:
    """Also one of a name that SQL has a word for; nothing lies elsewhere."""
    assert [spaces("order").created, spaces("order").created] == [True, False]
    run(spaces("order"), TEN)
    with closing(psycopg.connect(postgres, autocommit=True)) as server:
        places = server.execute(
            "SELECT schemaname, count(*) FROM pg_tables WHERE tablename LIKE 'jobrun%'"
            " AND schemaname IN ('order', 'public') GROUP BY schemaname"
        ).fetchall()
    assert places == [("order", len(re.findall("CREATE TABLE", postgres_schema.scripts()[0])))]


def test_of_many_first_calls_of_a_name_space_one_makes_it(postgres: str) -> None:
    """The schema too, under the migration's lock."""

    def open_(_: int) -> bool:
        with closing(open_ledger(postgres, namespace="crowd")) as ledger:
            return ledger.created

    try:
        assert sorted(at_once(8, open_)) == [False] * 7 + [True]
    finally:
        with closing(psycopg.connect(postgres, autocommit=True)) as server:
            server.execute("DROP SCHEMA crowd CASCADE")


def test_name_spaces_neither_see_nor_block_each_other(
    spaces: Callable[[str], PostgresLedger],
) -> None:
    """The same job; while one writes of it in the one, another does in the other."""
    staging, production = spaces("staging"), spaces("production")
    run(staging, TEN)
    assert (production.job("j"), production.runs()) == (None, [])
    with staging._database.writing(job="j"):
        run(production, TEN)
        with (
            pytest.raises(Refused, match="busy"),
            spaces("staging")._database.writing(0.05, job="j"),
        ):
            pass
    assert [len(ledger.runs()) for ledger in (staging, production)] == [1, 1]


def test_a_lock_is_of_the_schema_however_it_is_named(
    postgres: str, spaces: Callable[[str], PostgresLedger]
) -> None:
    """By --namespace or by the search path: those are the same tables."""
    one = spaces("staging")
    with (
        closing(open_ledger(f"{postgres}?options=-csearch_path%3Dstaging", CALLER)) as other,
        one._database.writing(job="j"),
        pytest.raises(Refused, match="busy"),
        other._database.writing(0.05, job="j"),
    ):
        pass
    assert not other.created


def test_a_mark_finds_its_tables_from_any_search_path(
    postgres: str, spaces: Callable[[str], PostgresLedger]
) -> None:
    """In the command's own transaction, whose search path stays as it is."""
    ledger = spaces("staging")
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    with closing(psycopg.connect(postgres, autocommit=True)) as server:
        server.execute("BEGIN; SET LOCAL search_path = pg_catalog")
        key = f"j:{iso(TEN)}"
        server.execute("SELECT staging.jobrun_done('j', %s, %s)", (key, opened.token))
        assert server.execute("SHOW search_path").fetchall() == [("pg_catalog",)]
        server.execute("COMMIT")
    assert state(ledger, TEN) == ("processed", 1, 0)


def test_a_schema_that_is_there_may_be_used_by_who_may_not_make_one(
    ledger: PostgresLedger, empty: str
) -> None:
    """The administrator has made it, and granted what is in it."""
    schema = empty.rpartition("D")[2]
    with role(ledger, f"USAGE, CREATE ON SCHEMA {schema}") as address:
        plain = address.partition("?")[0]
        with closing(open_ledger(plain, CALLER, namespace=schema)) as made:
            assert made.created
            run(made, TEN)


# -- the server -----------------------------------------------------------------------------------


def test_out_of_reach(postgres: str) -> None:
    """75: nothing ran, a later call may; the password is in nobody's mail."""
    address = postgres.replace("postgres@", "anna:secret@").rpartition(":")[0] + ":1/db"
    with pytest.raises(Refused, match="out of reach") as caught:
        open_ledger(address)
    assert "anna@127.0.0.1:1/db" in caught.value.message
    assert "secret" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("address", ["postgresql://h/db?nosuch=1", "postgresql://[x/db"])
def test_what_is_no_address(address: str) -> None:
    """2: before anything is asked of a server."""
    with pytest.raises(UsageError, match="no address"):
        open_ledger(address)


def test_zone_and_style_of_a_session_change_nothing(ledger: PostgresLedger) -> None:
    """They are the role's or the database's, and behind a pooler anybody's."""
    run(ledger, TEN)
    strange = "%20-ctimezone%3DAsia/Tokyo%20-cdatestyle%3DGerman%20-cdefault_transaction_isolation"
    with closing(open_ledger(f"{ledger.address}{strange}%3Dserializable", CALLER)) as other:
        assert other.job("j") == ledger.job("j")
        run(other, ELEVEN)
        assert other.runs("j") == ledger.runs("j")


# -- one at a time -------------------------------------------------------------------------------


def test_of_many_that_planned_one_opens(again: Again) -> None:
    """Whatever their locks say: the token is taken once, the window is claimed once."""
    ledgers = [again() for _ in range(8)]
    begin(ledgers[0])
    opening = Opening("j", 1, NOW)
    opened = at_once(8, lambda n: ledgers[n].open(opening, claim(TEN), hourly))
    assert [got.token for got in opened if got is not None] == [2]
    assert state(ledgers[0], TEN) == (rows.RUNNING, 1, 0)
    assert len(ledgers[0].open_runs("j")) == 1


def test_a_new_job_is_made_once(again: Again) -> None:
    """There is no row yet that could be locked."""
    ledgers = [again() for _ in range(8)]
    opening = Opening("j", 0, NOW, schedule="every 1h", watermark=TEN)
    opened = at_once(8, lambda n: ledgers[n].open(opening, claim(TEN), hourly))
    assert [got.token for got in opened if got is not None] == [1]


def test_writers_of_one_job_wait_for_each_other(again: Again, ledger: PostgresLedger) -> None:
    """Not for those of another; a skip does not wait for long, and readers never do."""
    other = again()
    begin(ledger)
    with ledger._database.writing(job="j"):
        assert other.skip("k", rows.LOCK_HELD, None, None, NOW)
        assert other.job("j") is not None
        with pytest.raises(Refused, match="busy for 0 s"), other._database.writing(0.05, job="j"):  # type: ignore[attr-defined]
            raise AssertionError
    assert other.skip("j", rows.LOCK_HELD, None, None, NOW)


def test_a_token_is_given_once_although_the_job_was_forgotten(again: Again) -> None:
    """Between the two there is no row to count on."""
    first, second = again(), again()

    def act(n: int) -> Opened | None:
        if n == 0:
            return first.open(Opening("j", 0, NOW), None, None)
        second.forget("j", token)
        return None

    for _ in range(5):
        token = begin(first).token
        opened, _ = at_once(2, act)
        assert opened is None or opened.token > token
        if opened is not None:
            assert first.forget("j", opened.token)


# -- a connection that is lost --------------------------------------------------------------------


def test_a_connection_that_was_cut_between_two_writes(ledger: PostgresLedger) -> None:
    """While a command ran for hours: its end is recorded over another one."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    cut(ledger)
    with pytest.raises(Refused, match="out of reach"):
        ledger.job("j")
    assert ledger.finish(result(opened.claimed, claim(TEN).key), None, hourly).watermark == ELEVEN


@pytest.mark.parametrize("arrives", [True, False])
def test_a_commit_whose_answer_is_lost_is_never_guessed(
    ledger: PostgresLedger, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server knows what became of it: what it has is there, else the caller tries again."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    connection = ledger._database.connection
    execute: Any = connection.execute

    def lose(query: object, *arguments: object, **more: object) -> object:
        if query != "COMMIT":
            return execute(query, *arguments, **more)
        if arrives:
            execute(query)
        cut(ledger)
        return execute("SELECT 1")

    monkeypatch.setattr(connection, "execute", lose)
    ended = result(opened.claimed, claim(TEN).key)
    if not arrives:
        with pytest.raises(Refused, match="out of reach"):
            ledger.finish(ended, claim(ELEVEN), hourly)
        assert state(ledger, TEN) == (rows.RUNNING, 1, 0)
    finished = ledger.finish(ended, claim(ELEVEN), hourly)
    assert (finished.outcome, finished.watermark) == (rows.SUCCEEDED, ELEVEN)
    assert finished.claimed is not None
    assert [row.id for row in ledger.open_runs("j")] == [finished.claimed.run_id]
    assert state(ledger, ELEVEN) == (rows.RUNNING, 1, 0)


def cut(ledger: PostgresLedger) -> None:
    """End the server's side of the ledger's connection."""
    pid = ledger._database.connection.info.backend_pid
    sql(ledger, f"SELECT pg_terminate_backend({pid}, 5000)")


# -- marks, and rows that can't be -----------------------------------------------------------------


def test_a_mark_is_part_of_the_commands_transaction(ledger: PostgresLedger) -> None:
    """Data and mark are committed together, and the window is never run again."""
    opened = begin(ledger, claim(TEN))
    assert opened.claimed is not None
    key = claim(TEN).key or ""
    done = f"SELECT jobrun_done('j', '{key}', '{opened.token}')"
    sql(
        ledger,
        "CREATE TABLE sales (n int)",
        f"BEGIN; INSERT INTO sales VALUES (1); {done}; ROLLBACK",
    )
    assert state(ledger, TEN) == (rows.RUNNING, 1, 0)
    sql(ledger, f"BEGIN; INSERT INTO sales VALUES (1); {done}; COMMIT")
    failed = result(opened.claimed, key, outcome=rows.FAILED_RUN, exit_code=4)
    assert ledger.finish(failed, None, hourly).marked
    assert sql(ledger, "SELECT n FROM sales") == [(1,)]
    assert job_row(ledger).watermark == ELEVEN


def test_a_mark_of_an_old_holder_leaves_nothing_to_commit(ledger: PostgresLedger) -> None:
    """Its data goes with it, whatever its program does about the error."""
    old = begin(ledger, claim(TEN))
    assert old.claimed is not None
    begin(ledger, claim(TEN), lost=(old.claimed.run_id,))
    sql(ledger, "CREATE TABLE sales (n int)")
    with closing(psycopg.connect(ledger.address)) as command:
        command.execute("INSERT INTO sales VALUES (1)")
        with pytest.raises(psycopg.Error, match="no running window") as caught:
            command.execute("SELECT jobrun_done('j', %s, %s)", (claim(TEN).key, old.token))
        assert caught.value.sqlstate == "JR001"
        command.commit()
    assert sql(ledger, "SELECT n FROM sales") == []
    with pytest.raises(psycopg.Error, match="no running window"):
        mark(ledger, "j:unknown", 2)


@pytest.mark.parametrize("statement", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_rows_are_refused(ledger: PostgresLedger, statement: str) -> None:
    """Whoever writes them: the server itself refuses."""
    begin(ledger, claim(TEN))
    with pytest.raises(psycopg.IntegrityError):
        sql(ledger, statement)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE jobrun_job SET watermark = '2026-09-04 10:00Z'", "by the rows it is"),
        ("UPDATE jobrun_window SET state = 'running'", "no run of it is open"),
        ("UPDATE jobrun_window SET token = 99", "was never given"),
        (
            'INSERT INTO jobrun_gap (job, start, "end", windows, reason, at, void)'
            " SELECT 'j', '2026-09-04 10:30Z', '2026-09-04 11:30Z', 1, 'x', now(), false",
            "before the one below it ends",
        ),
    ],
)
def test_a_check_finds_what_no_row_can_tell(
    ledger: PostgresLedger, statement: str, problem: str
) -> None:
    """`doctor`: the watermark is verified, and rows are held against each other."""
    run(ledger, TEN)
    assert ledger.problems() == []
    sql(ledger, statement)
    assert [line for line in ledger.problems() if problem in line]


def test_an_opening_keeps_nothing_when_it_is_refused(ledger: PostgresLedger) -> None:
    """Also where the statement that breaks a rule was sent without waiting: it is a bug, and says
    so; the next call is as if it had not been."""
    impossible = Opening("j", 0, NOW, schedule="every 1h", watermark=TEN)
    with pytest.raises(psycopg.IntegrityError):
        ledger.open(impossible, claim(TEN), lambda instant: instant)
    assert ledger.jobs() == []
    assert run(ledger, TEN).watermark == ELEVEN


def test_text_without_a_place_in_postgresql(ledger: PostgresLedger) -> None:
    """A NUL, which SQLite keeps, enters as \\x00."""
    ledger.skip("j", rows.LOCK_HELD, None, "a\0b", NOW)
    assert ledger.skips()[0].detail == "a\\x00b"


# -- speed -----------------------------------------------------------------------------------------

MANY = """
INSERT INTO jobrun_window SELECT job, job || to_char(at, '":"YYYY-MM-DD"T"HH24:MI:SS"+00:00"'),
       at AT TIME ZONE 'UTC', (at + interval '1 hour') AT TIME ZONE 'UTC', 'processed', 1, 0, 1,
       false, NULL, 1, NULL, now()
  FROM unnest(ARRAY['a', 'j']) AS job,
       generate_series(timestamp '2025-09-01', '2026-09-01', '1 hour') AS at;
INSERT INTO jobrun_run (job, key, kind, attempt, token, host, "user", terminal, started, ended,
                        took, outcome, exit_code)
SELECT job, key, 'new', 1, 1, 'db1', 'etl', false, start, start, 1, 'succeeded', 0
  FROM jobrun_window;
INSERT INTO jobrun_skip (job, reason, detail, at, times, last_at)
SELECT job, 'lock-held', key, start, 1, start FROM jobrun_window;
INSERT INTO jobrun_event (at, job, key, kind) SELECT start, job, key, 'lost' FROM jobrun_window;
INSERT INTO jobrun_gap (job, start, "end", windows, reason, at, void)
SELECT job, start + interval '2 years', "end" + interval '2 years', 1, 'x', start, false
  FROM jobrun_window;
INSERT INTO jobrun_value SELECT job, key, 'rows', '1' FROM jobrun_window;
ANALYZE
"""


def test_every_query_has_an_index(ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two years of two hourly jobs: no statement of a call walks through all of a table."""
    begin(ledger)
    ledger.skip("a", rows.LOCK_HELD, None, None, NOW)
    sql(ledger, *MANY.split(";"))
    asked: list[tuple[str, Any]] = []
    execute = Database._execute

    def seen(self: Database, statement: str, parameters: Any) -> Any:
        asked.append((statement, parameters))
        return execute(self, statement, parameters)

    monkeypatch.setattr(Database, "_execute", seen)
    run(ledger, TEN, rows.FAILED_RUN, breaker=Breaker(9, None, None))
    run(ledger, TEN)
    lost = begin(ledger, claim(ELEVEN)).claimed
    assert lost is not None
    gap = Gap(TWELVE, TWELVE + HOUR, 1, "x")
    begin(ledger, ended=(("j:x", "x"),), lost=(lost.run_id,), gaps=(gap,))
    next(ledger.blocks("j", TEN))
    ledger.processed("j", TEN, 3), ledger.count_blocks("j", TEN, NOW)
    ledger.unfinished("j"), ledger.open_runs("j"), ledger.runs("j"), ledger.runs(key="j:x")
    ledger.windows("j", TEN, NOW), ledger.gaps("j", TEN, NOW), ledger.keys("j")
    ledger.failures("j"), ledger.failures(), ledger.values("j", "j:x"), ledger.runs()
    ledger.skips("j"), ledger.skips(), ledger.events("j"), ledger.events(), ledger.usual("j")
    ledger.runs(host="db1"), ledger.open_runs()
    ledger.skip("j", rows.LOCK_HELD, None, None, NOW)
    monkeypatch.undo()
    few = ("jobrun_job", "jobrun_meta", "jobrun_host")
    walks = {
        (line.strip(), statement)
        for statement, parameters in asked
        for (line,) in ledger._database.rows(f"EXPLAIN {statement}", parameters)
        if "Seq Scan on jobrun_" in line and not any(table in line for table in few)
    }
    assert walks == set()
