"""jobrun on a ledger in PostgreSQL, from outside: the same calls, the same answers."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests import servers
from tests.conftest import PYTHON, Jobrun, until
from tests.scenes import altered

HOURLY = ("run", "sales", "--every", "1h")
NOW, LATER = "2026-09-04T12:05Z", "2026-09-04T13:05Z"


def query(jobrun: Jobrun, sql: str) -> list[tuple[Any, ...]]:
    with closing(psycopg.connect(jobrun.environment["JOBRUN_LEDGER"], autocommit=True)) as server:
        cursor = server.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def test_each_window_once(on_postgres: Jobrun) -> None:
    """It remembers there what it remembers in a file; what is beside it stays on this machine."""
    first = on_postgres(*HOURLY, "--", "echo", "{start_hour}", now=NOW)
    assert (first.status, first.stdout) == (0, "11\n")
    assert 'what=new-ledger ledger="postgresql://' in first.stderr
    again = on_postgres(*HOURLY, "-v", "--", "false", now=NOW)
    assert (again.status, "no-closed-window" in again.stderr) == (0, True)
    later = on_postgres(*HOURLY, "--", "echo", "{start_hour}", now=LATER)
    assert (later.stdout, len(later.lines)) == ("12\n", 1)
    states = query(on_postgres, "SELECT state, attempts FROM jobrun_window ORDER BY start")
    assert states == [("processed", 1)] * 2
    assert len(list(on_postgres.folder.glob("postgresql*.d/output/*/*/*.out"))) == 2


def test_what_failed_is_tried_again(on_postgres: Jobrun) -> None:
    """The exit code is the command's, and the next call does the window."""
    assert on_postgres(*HOURLY, "--", "sh", "-c", "exit 7", now=NOW).status == 7
    assert on_postgres(*HOURLY, "--", "true", now="2026-09-04T12:30Z").status == 0
    row = query(on_postgres, "SELECT state, attempts, failures FROM jobrun_window")
    assert row == [("processed", 2, 1)]


def test_a_call_that_was_killed(on_postgres: Jobrun) -> None:
    """Its row is judged by the next call: nothing is left of it, so its window runs again."""
    script = "echo up; exec cat"
    call = on_postgres.start(*HOURLY, "--", "sh", "-c", script, now=NOW, stdin=subprocess.PIPE)
    assert call.stdout is not None
    assert call.stdout.readline() == b"up\n"
    call.kill()
    call.communicate(timeout=20)
    again = on_postgres(*HOURLY, "--wait", "20", "--", "true", now="2026-09-04T12:30Z")
    assert (again.status, [line.split()[1] for line in again.lines]) == (0, ["LOST", "PROCESSED"])


def test_every_screen_and_verb_knows_it(on_postgres: Jobrun) -> None:
    """What looks, and what a person does."""
    on_postgres(*HOURLY, "--", "true", now=NOW)
    on_postgres("run", "other", "--every", "1h", "--", "false", now=NOW)
    for argv in (
        ("status",), ("history",), ("windows", "sales"), ("logs", "1"), ("show", "sales"),
        ("show", "1"), ("plan", "sales"), ("failures",), ("skips",), ("events",), ("graph",),
        ("explain", "sales", "2026-09-04T11:00Z"), ("pause", "sales", "--reason", "x"),
        ("resume", "sales"), ("watermark", "sales"), ("rerun", "sales", "2026-09-04T11:00Z"),
        ("backfill", "sales", "--from", "2026-09-04T08:00Z", "--to", "2026-09-04T10:00Z"),
        ("set", "sales", "--timeout", "5m"), ("show", "sales", "--origin"), ("stop", "sales"),
        ("skip", "other", "2026-09-04T11:00Z", "--reason", "x"), ("forget", "other", "--yes"),
    ):  # fmt: skip
        result = on_postgres(*argv, now=NOW)
        assert result.status == 0, (argv, result)
    assert query(on_postgres, "SELECT count(*) FROM jobrun_run") == [(4,)]


def test_where_there_is_none_a_look_makes_none(on_postgres: Jobrun) -> None:
    """`status` and `--dry-run` say what they can, and leave the database as it is."""
    status = on_postgres("status", now=NOW)
    assert (status.status, "no ledger at postgresql://" in status.stdout) == (0, True)
    dry = on_postgres(*HOURLY, "--dry-run", "--", "true", now=NOW)
    assert (dry.status, "first" in dry.stdout) == (0, True)
    assert query(on_postgres, "SELECT to_regclass('jobrun_meta')") == [(None,)]


def test_no_password_is_told(on_postgres: Jobrun) -> None:
    """Neither in lines and screens, nor to the command, nor in the names of files."""
    address = on_postgres.environment["JOBRUN_LEDGER"].replace("postgres@", "postgres:hush@")
    on_postgres.environment["JOBRUN_LEDGER"] = address
    run = on_postgres(*HOURLY, "-v", "--", "sh", "-c", "echo $JOBRUN_LEDGER", now=NOW)
    told = [run, *(on_postgres(verb, now=NOW) for verb in ("status", "history", "doctor"))]
    assert "postgresql://postgres@127.0.0.1" in run.stdout
    assert "hush" not in str(told)
    assert "hush" not in str([*os.walk(on_postgres.folder)])


@pytest.mark.parametrize("how", ["typed", "given"])
def test_no_secret_is_kept(on_postgres: Jobrun, how: str) -> None:
    """Of no parameter, however its name is written, of the lock neither; on no record or screen."""
    plain = on_postgres.environment["JOBRUN_LEDGER"]
    more = "pass%77ord=hush%2F1&sslpassword=hush2&oauth_client_secret=hush3"
    address = plain.replace("postgres@", "postgres:hush%40@")
    address += f"{'&' if '?' in plain else '?'}{more}&namespace=quiet"
    with servers.valkey("--requirepass", "hush5") as server:
        on_postgres.environment["JOBRUN_LOCK"] = server.replace("//", "//:hush5@")
        options = ("--ledger", address) if how == "typed" else ()
        if how == "given":
            on_postgres.environment["JOBRUN_LEDGER"] = address
        told = [on_postgres(*HOURLY, "-v", *options, "--", "sh", "-c", "env; exit 3", now=NOW)]
        assert told[0].status == 3, told
        for argv in (
            ("status",), ("status", "--json"), ("history", "--json"), ("doctor",), ("hosts",),
            ("show", "sales", "--json"), ("show", "sales", "--origin"), ("plan", "sales", "--json"),
            ("explain", "sales"), ("export",), ("logs", "sales"), ("failures", "--json"),
            ("rerun", "sales", "2026-09-04T11:00Z"), ("stop", "sales"), ("events",), ("skips",),
        ):  # fmt: skip
            told.append(on_postgres(*argv, *options, now=NOW))
            assert told[-1].status != 2, (argv, told[-1])
    on_postgres.environment["JOBRUN_LEDGER"] = plain
    told.append(on_postgres("export", "--namespace", "quiet", now=NOW))
    assert '"spec"' in told[-1].stdout
    assert "hush" not in str(told)
    left = [path for path in on_postgres.folder.rglob("*") if "hush" in path.name]
    left += [p for p in on_postgres.folder.rglob("*") if p.is_file() and b"hush" in p.read_bytes()]
    assert left == []
    query(on_postgres, "DROP SCHEMA quiet CASCADE")


def test_an_open_run_of_another_host_whose_lock_nobody_has(on_postgres: Jobrun) -> None:
    """It is lost, and its window runs again: whoever runs holds the job's lock on the server."""
    on_postgres(*HOURLY, "--", "true", now=NOW)
    query(
        on_postgres,
        "UPDATE jobrun_run SET host = 'db9', ended = NULL, outcome = NULL, took = NULL,"
        " exit_code = NULL, output_bytes = NULL",
    )
    settled = "SELECT now() - pg_postmaster_start_time() > interval '3 s'"
    until(lambda: query(on_postgres, settled) == [(True,)], "a server that is no longer new")
    again = on_postgres(*HOURLY, "--", "echo", "{start_hour}", now=LATER)
    assert (again.status, again.stdout) == (0, "12\n")
    assert query(on_postgres, "SELECT host, outcome FROM jobrun_run ORDER BY id LIMIT 1") == [
        ("db9", "lost")
    ]


def test_tables_that_are_not_as_they_were_made(on_postgres: Jobrun) -> None:
    """74 before a command has run, 76 after: in a line, as of a file."""
    on_postgres(*HOURLY, "--", "false", now=NOW)
    for table, status, ran in (("event", 76, "ran\n"), ("gap", 74, "")):
        query(on_postgres, f"ALTER TABLE jobrun_{table} RENAME TO other_{table}")
        found = on_postgres(*HOURLY, "--", "echo", "ran", now="2026-09-04T12:07Z")
        assert (found.status, found.stdout) == (status, ran)
        assert "damaged, or another program has changed its tables (" in found.stderr
        query(on_postgres, f"ALTER TABLE other_{table} RENAME TO jobrun_{table}")


def test_without_psycopg(on_postgres: Jobrun) -> None:
    """78: what to install."""
    script = (
        "import sys; sys.modules['psycopg'] = None\nfrom jobrun.__main__ import script; script()"
    )
    done = subprocess.run(
        [PYTHON, "-c", script, *HOURLY, "--", "true"],
        env=on_postgres.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    assert "pip install 'jobrun[postgres]'" in done.stderr


@pytest.mark.parametrize("address", ["mysql://db1/x", "http://x"])
def test_other_addresses_are_refused(jobrun: Jobrun, address: str) -> None:
    """2, with what there is."""
    refused = jobrun("run", "a", "--ledger", address, "--", "true")
    assert (refused.status, "postgresql://" in refused.stderr) == (2, True)


# The first statement of a transaction that writes the job's row takes so long.
SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('jobrun.slow', true), '') = '' THEN
        PERFORM set_config('jobrun.slow', 'done', true), pg_sleep({seconds});
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER slow BEFORE INSERT OR UPDATE OR DELETE ON jobrun_job
    FOR EACH STATEMENT EXECUTE FUNCTION slow()
"""
# A lock whose ttl, after which what idles in a transaction is ended too, is one of 2 s; and a file
# that takes longer to read.
SHORT = "from jobrun import machines\nmachines.usual_ttl = lambda _: 2\n"
SLOW_FILE = """
import select
from jobrun import ledger_import
def traces(*of):
    select.select([], [], [], 2.5)
    return first(*of)
first, ledger_import._traces = ledger_import._traces, traces
"""


@pytest.mark.parametrize(
    "verb",
    [
        ("import", "sales.jsonl"),
        ("forget", "sales", "--yes"),
        ("skip", "sales", "2026-09-04T08:00Z", "--reason", "so"),
        ("watermark", "sales", "--set", "2026-09-04T08:00Z", "--reason", "so"),
    ],
    ids=lambda verb: verb[0],
)
def test_what_a_person_does_takes_as_long_as_it_does(
    on_postgres: Jobrun, verb: tuple[str, ...]
) -> None:
    """Of many rows, or windows: no limit that is made for short transactions ends it."""
    on_postgres(*HOURLY, "-k", "0s", "--", "true", now=NOW)
    if verb[0] == "import":
        (on_postgres.folder / verb[1]).write_text(on_postgres("export").stdout)
        assert on_postgres("forget", "sales", "--yes").status == 0
    query(on_postgres, SLOW.format(seconds=2.5))
    found = altered(on_postgres, SHORT, *verb)
    assert (found.status, "NOTE job=sales what=" in found.stderr) == (0, True)


def test_a_file_that_takes_long_to_read(on_postgres: Jobrun) -> None:
    """While it is compared with what is on record, and while it is written."""
    on_postgres(*HOURLY, "-k", "0s", "--", "true", now=NOW)
    earlier = on_postgres("export").stdout
    on_postgres(*HOURLY, "-k", "0s", "--", "true", now=LATER)
    later = on_postgres.folder / "later.jsonl"
    later.write_text(on_postgres("export").stdout)
    assert on_postgres("forget", "sales", "--yes").status == 0
    assert on_postgres("import", "-", input=earlier.encode()).status == 0
    found = altered(on_postgres, SHORT + SLOW_FILE, "import", str(later))
    assert (found.status, "what=brought-up-to-date" in found.stderr) == (0, True)


def test_a_limit_of_the_role_is_told_as_one(on_postgres: Jobrun) -> None:
    """75: the server is there, and says why it has ended the session."""
    on_postgres(*HOURLY, "--", "true", now=NOW)
    query(on_postgres, SLOW.format(seconds=20))
    on_postgres.environment["JOBRUN_LEDGER"] += "%20-ctransaction_timeout%3D1s"
    found = on_postgres("forget", "sales", "--yes")
    assert (found.status, found.stderr.count("has ended the session (")) == (75, 1)
    assert "jobrun: hint: a timeout of the role or the database (SHOW ALL)" in found.stderr
