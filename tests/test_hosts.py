"""Hosts: who has called, with which jobrun and clock; in a file and on a server."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobrun import __version__, ledger_postgres, ledger_sqlite, rows
from jobrun.call import host_name
from jobrun.instants import DAY, HOUR, MINUTE
from jobrun.ledger import Ledger
from tests import servers
from tests.conftest import PYTHON, Jobrun, instant
from tests.ledger_calls import CALLER, NOW, TEN, begin, claim, in_a_schema, result, run, schema_of
from tests.scenes import HOLD, Held

HOURLY = ("run", "sales", "--every", "1h")


@pytest.fixture(params=["file", "server"])
def either(request: pytest.FixtureRequest) -> Jobrun:
    found: Jobrun = request.getfixturevalue("jobrun" if request.param == "file" else "on_postgres")
    return found


def at(clock: str) -> str:
    return f"2026-09-04T{clock}Z"


def hosts(jobrun: Jobrun, now: str = at("12:59")) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(jobrun("hosts", "--json", now=now).stdout)["hosts"]
    return found


def seen(jobrun: Jobrun) -> list[tuple[str, str]]:
    """The minutes in which each was seen first and last."""
    return [(host["first_seen"][11:16], host["last_seen"][11:16]) for host in hosts(jobrun)]


# -- seen ------------------------------------------------------------------------------------------


def test_a_host_is_seen_by_its_calls(either: Jobrun) -> None:
    """To the minute: all of its calls write the same row. Its last run, whatever became of it."""
    assert hosts(either) == []
    either(*HOURLY, "--", "true", now=at("12:05:00"))
    assert seen(either) == [("12:05", "12:05")]
    either("run", "other", "--", "false", now=at("12:05:50"))
    either("run", "other", "--", "false", now=at("12:07:00"))
    assert seen(either) == [("12:05", "12:07")]
    (host,) = hosts(either)
    assert (host["host"], host["version"], host["open_runs"]) == (host_name(), __version__, 0)
    assert {name: host["last_run"][name] for name in ("run", "job", "key", "outcome")} == {
        "run": 3, "job": "other", "key": None, "outcome": "failed"
    }  # fmt: skip


def test_what_runs_there_is_open(either: Jobrun) -> None:
    """As far as is on record."""
    held = Held(either, "a", now=at("12:05"))
    assert [host["open_runs"] for host in hosts(either)] == [1]
    assert held.release().status == 0
    assert [host["open_runs"] for host in hosts(either)] == [0]


def test_a_call_that_only_skips_has_been_there(on_postgres: Jobrun) -> None:
    """On a server: most calls have nothing to do."""
    on_postgres(*HOURLY, "--", "true", now=at("12:05"))
    on_postgres(*HOURLY, "--", "true", now=at("12:35"))
    assert seen(on_postgres) == [("12:05", "12:35")]


def test_an_idle_call_writes_nothing_of_it_into_a_file(jobrun: Jobrun) -> None:
    """There is one host, and that way is as short as it was."""
    jobrun(*HOURLY, "--", "true", now=at("12:05"))
    jobrun(*HOURLY, "--", "true", now=at("12:35"))
    assert seen(jobrun) == [("12:05", "12:05")]
    assert [host["skew_ms"] for host in hosts(jobrun)] == [None]


def test_a_table_of_them(either: Jobrun) -> None:
    """One row a line, the ledger first; no ledger is no error."""
    nothing = either("hosts", now=at("12:00"))
    assert (nothing.status, "no ledger at" in nothing.stdout) == (0, True)
    either(*HOURLY, "--", "true", now=at("12:05"))
    head, titles, row = either("hosts", now=at("12:06")).stdout.splitlines()
    assert head.startswith("ledger ")
    assert titles.split("  ")[0] == "HOST"
    assert row.split()[:2] == [host_name(), "2026-09-04T12:05:00+00:00"]
    assert "1 sales ok 2026-09-04T12:05:00+00:00" in row


def other_host(jobrun: Jobrun, name: str, **columns: object) -> None:
    """As a call there has left it."""
    row = {"host": name, "first_seen": at("12:00:00"), "last_seen": at("12:04:00"), **columns}
    row |= {name: str(row[name]).replace("Z", "+00:00") for name in ("first_seen", "last_seen")}
    if str(jobrun.environment["JOBRUN_LEDGER"]).startswith("postgresql:"):
        marks = ", ".join(["%s"] * len(row))
        with closing(psycopg.connect(jobrun.environment["JOBRUN_LEDGER"])) as server:
            text = f"INSERT INTO jobrun_host ({', '.join(row)}) VALUES ({marks})"
            server.execute(text.encode(), list(row.values()))
            server.commit()
    else:
        marks = ", ".join("?" * len(row))
        text = f"INSERT INTO jobrun_host ({', '.join(row)}) VALUES ({marks})"
        jobrun.change(text, *row.values())


def test_those_seen_last_come_first_and_the_others_are_said(either: Jobrun) -> None:
    """A cluster may have a host for each call."""
    either(*HOURLY, "--", "true", now=at("12:05"))
    for name, minute in (("a", "12:01"), ("b", "12:06"), ("c", "11:00")):
        other_host(either, name, last_seen=at(f"{minute}:00"), version="1.0.0")
    assert [host["host"] for host in hosts(either)] == ["b", host_name(), "a", "c"]
    cut = either("hosts", "--limit", "2", now=at("12:07")).stdout
    assert "\na " not in cut
    assert "--limit 20" in cut


# -- forgotten -------------------------------------------------------------------------------------


def test_a_host_that_has_gone_is_forgotten(either: Jobrun) -> None:
    """By hand: its runs stay on record, and with its next call it is back."""
    either("run", "a", "--", "true", now=at("12:05"))
    name = host_name()
    dry = either("hosts", "--forget", name, "--dry-run", now=at("12:06"))
    assert (dry.status, "would-forget-host" in dry.stderr, len(hosts(either))) == (0, True, 1)
    gone = either("hosts", "--forget", name, now=at("12:06"))
    assert (gone.status, f"what=host-forgotten host={name}" in gone.stderr) == (0, True)
    assert hosts(either) == []
    unknown = either("hosts", "--forget", name, now=at("12:06"))
    assert (unknown.status, "jobrun hosts" in unknown.stderr) == (2, True)
    either("run", "a", "--", "true", now=at("12:07"))
    assert seen(either) == [("12:07", "12:07")]


def test_a_host_that_has_an_open_run_is_not_forgotten(either: Jobrun) -> None:
    """75, naming it: somebody has to find out what became of it."""
    held = Held(either, "a", now=at("12:05"))
    for more in ((), ("--dry-run",)):
        refused = either("hosts", "--forget", host_name(), *more, now=at("12:06"))
        assert (refused.status, "1 of a" in refused.stderr) == (75, True)
    assert held.release().status == 0


@pytest.fixture(params=["sqlite", "postgres"])
def as_host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Ledger]]:
    """Opens one ledger as a call on that host does."""
    opened: list[Ledger] = []

    def open_(host: str) -> Ledger:
        caller = CALLER._replace(host=host)
        opened.append(
            ledger_sqlite.open_ledger(str(tmp_path / "jobrun.db"), caller)
            if request.param == "sqlite"
            else ledger_postgres.open_ledger(address, caller)
        )
        return opened[-1]

    if request.param == "sqlite":
        yield open_
    else:
        with schema_of(request.getfixturevalue("postgres")) as address:
            yield open_
            for ledger in opened:
                ledger.close()
    for ledger in opened:
        ledger.close()


def test_what_has_not_called_for_long_goes_when_another_one_comes(
    as_host: Callable[[str], Ledger],
) -> None:
    """Not a host whose run is open."""
    run(as_host("old"), TEN)
    begin(as_host("stuck"), claim(TEN + HOUR))
    later = NOW + 100 * DAY
    begin(as_host("stuck"), now=later - 99 * DAY)
    begin(as_host("old"), now=NOW + 2 * MINUTE)
    assert [row.host for row in as_host("new").hosts()] == ["stuck", "old"]
    begin(as_host("new"), now=later)
    assert [row.host for row in as_host("new").hosts()] == ["new", "stuck"]


def test_what_is_told_late_does_not_make_a_host_older(as_host: Callable[[str], Ledger]) -> None:
    """The end of a run may come to the record after other calls."""
    ledger = as_host("db1")
    first = begin(ledger, claim(TEN))
    assert first.claimed is not None
    begin(ledger, now=NOW + HOUR)
    ended = result(first.claimed, claim(TEN).key, token=first.token + 1, ended=NOW + MINUTE)
    ledger.finish(ended, None, None)
    assert [(row.first_seen, row.last_seen) for row in ledger.hosts()] == [(NOW, NOW + HOUR)]


def test_many_calls_of_a_host_at_once(postgres: str) -> None:
    """Of different jobs, beginning and ending in the same moment: none is in another's way."""
    with in_a_schema(postgres) as again:
        ledgers = [again() for _ in range(12)]

        def one(number: int) -> str:
            ledger, job = ledgers[number], f"j{number}"
            opening = rows.Opening(job, 0, NOW, schedule="every 1h", watermark=TEN)
            first = claim(TEN)._replace(key=f"{job}:2026-09-04T10:00:00+00:00")
            opened = ledger.open(opening, first, None)
            assert opened is not None
            assert opened.claimed is not None
            ended = result(opened.claimed, first.key, job=job, token=opened.token)
            return ledger.finish(ended, None, None).outcome

        with ThreadPoolExecutor(12) as pool:
            assert list(pool.map(one, range(12))) == [rows.SUCCEEDED] * 12
        assert len(ledgers[0].hosts()) == 1


# -- clocks and versions ---------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [7.5, -12.0, 0.0])
def test_a_clock_is_held_against_the_servers(postgres: str, ahead: float) -> None:
    """In milliseconds, at the middle of one round trip."""
    with schema_of(postgres) as address:
        clock: Callable[[], float] = lambda: time.time() + ahead  # noqa: E731
        with closing(ledger_postgres.open_ledger(address, CALLER, clock=clock)) as ledger:
            assert ledger.skew == pytest.approx(ahead * 1000, abs=500)
            begin(ledger)
            assert [row.skew for row in ledger.hosts()] == [ledger.skew]
        with closing(ledger_postgres.open_ledger(address, CALLER)) as other:
            begin(other, now=NOW + HOUR)
            assert [row.skew for row in other.hosts()] == [ledger.skew]


def far(jobrun: Jobrun, clock: str, skew: int = 0, job: str = "a") -> list[str]:
    """The lines about clocks of a call, and of what comes with them."""
    env = {"FROZEN_SKEW": str(skew)}
    found = jobrun("run", job, "-q", "--", "true", now=at(clock), env=env)
    assert found.status == 0, found
    return [line for line in found.lines if "clock" in line]


def test_a_clock_that_is_far_off_is_told_once_an_episode(on_postgres: Jobrun) -> None:
    """Quiet or not; by the first call of whatever job. Another one begins once it was right."""
    assert far(on_postgres, "12:05", 5000) == []
    warning, hint = far(on_postgres, "12:06", -5100)
    assert f" WARNING job=a what=clock-skew host={host_name()} skew=-5.1s at=" in warning
    assert "jobrun hosts" in hint
    assert far(on_postgres, "12:06:30", 7000, job="b") == []
    assert far(on_postgres, "12:08", 7000) == []
    assert far(on_postgres, "12:10") == []
    assert len(far(on_postgres, "12:10:10", 6000)) == 2
    (host,) = hosts(on_postgres)
    assert host["skew_ms"] == 6000


def test_a_leader_s_clock_is_held_against_the_servers(on_postgres: Jobrun) -> None:
    """As that of any other call."""
    found = on_postgres(
        "lead", "hub", "-q", "--", "true", now=at("12:05"), env={"FROZEN_SKEW": "7000"}
    )
    assert found.status == 0, found
    assert " WARNING job=hub what=clock-skew " in found.stderr
    (host,) = hosts(on_postgres)
    assert host["skew_ms"] == 7000


def test_doctor_and_hosts_say_what_is_not_alike(on_postgres: Jobrun) -> None:
    """A clock that is far off, here or elsewhere; versions. Not of hosts that are gone."""
    on_postgres("run", "a", "--", "true", now=at("12:05"))
    well = on_postgres("doctor", now=at("12:06")).stdout
    assert "ok    skew        this host's clock is 0.000s ahead of the server's" in well
    other_host(on_postgres, "db9", version="0.9.0", skew=-61_500)
    other_host(on_postgres, "db0", version="0.8.0", skew=99_000, last_seen="2026-08-01T12:00:00Z")
    found = on_postgres("doctor", now=at("12:06"), env={"FROZEN_SKEW": "8000"}).stdout
    assert "WARN  skew        this host's clock is 8.000s ahead of the server's" in found
    assert "WARN  skew        db9's is 61.500s behind the server's" in found
    assert f"WARN  hosts       jobrun's versions differ: {__version__} on " in found
    assert "0.9.0 on db9" in found
    assert "db0" not in found
    screen = on_postgres("hosts", now=at("12:06")).stdout
    assert "-61.500s" in screen
    assert "db9: windows close by its clock, 61.500s behind the server's: NTP" in screen
    assert "versions differ" in screen


# -- doctor and the server -------------------------------------------------------------------------


def test_doctor_looks_at_the_server(on_postgres: Jobrun) -> None:
    """Its version, the role, what would lose a ledger; each with what to do."""
    on_postgres("run", "a", "--", "true", now=at("12:05"))
    found = on_postgres("doctor", now=at("12:06"))
    assert found.status == 0
    assert "ok    server      PostgreSQL " in found.stdout
    assert "WARN  server      fsync is off: " in found.stdout  # as of all servers of these tests
    assert "WARN  role        postgres is a superuser: " in found.stdout
    assert "CREATE ROLE jobrun LOGIN" in found.stdout
    assert "psycopg " in found.stdout


def test_doctor_looks_at_the_role(on_postgres: Jobrun) -> None:
    """One that may write but not change the tables; one that gave up on durable commits."""
    on_postgres("run", "a", "--", "true", now=at("12:05"))
    address = on_postgres.environment["JOBRUN_LEDGER"]
    schema = address.rpartition("D")[2]
    name = f"etl_{schema}"
    with closing(psycopg.connect(address, autocommit=True)) as server:
        for statement in (
            f"CREATE ROLE {name} LOGIN",
            f"GRANT USAGE ON SCHEMA {schema} TO {name}",
            f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {name}",
            f"ALTER ROLE {name} SET synchronous_commit = off",
        ):
            server.execute(statement.encode())
        try:
            env = {"JOBRUN_LEDGER": address.replace("postgres@", f"{name}@")}
            found = on_postgres("doctor", now=at("12:06"), env=env).stdout
            assert f"WARN  role        {name}; the tables are postgres's" in found
            assert "WARN  role        synchronous_commit is off" in found
            assert f"ALTER ROLE {name} SET synchronous_commit = on" in found
        finally:
            server.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def test_a_standby_is_refused_at_once(jobrun: Jobrun) -> None:
    """78 for calls and screens, with the address that finds the primary; doctor says it too."""
    with servers.own_postgres() as server:
        jobrun.environment |= {"JOBRUN_LEDGER": server.address, "JOBRUN_HOME": str(jobrun.folder)}
        assert jobrun("run", "a", "--", "true").status == 0
        server.stop()
        server.make_standby()
        server.start()
        for argv in (("run", "a", "--", "echo", "ran"), ("status",)):
            refused = jobrun(*argv)
            assert (refused.status, refused.stdout) == (78, ""), refused
            assert "a standby" in refused.stderr
            assert "target_session_attrs=read-write" in refused.stderr
        doctor = jobrun("doctor")
        assert (doctor.status, "FAIL  ledger      ledger " in doctor.stdout) == (1, True)


@pytest.mark.parametrize("lock", ["session", "lease"])
def test_a_server_that_becomes_a_standby_is_waited_for(jobrun: Jobrun, lock: str) -> None:
    """While a command runs: an outage, until a primary is back that takes the record."""
    with servers.own_postgres() as server:
        jobrun.environment |= {"JOBRUN_LEDGER": server.address, "JOBRUN_HOME": str(jobrun.folder)}
        assert jobrun("run", "a", "--", "true").status == 0
        held = Held(jobrun, "a", "--lock", lock, "--lock-ttl", "60")
        server.stop()
        server.make_standby()
        server.start()
        held.end_command()
        assert held.wrapper.stderr is not None
        waiting = held.wrapper.stderr.readline()
        assert b"what=not-recorded-yet" in waiting, waiting
        assert b"a standby" in waiting
        (server.data / "standby.signal").unlink()
        server.stop()
        server.start()
        done = held.release()
        assert (done.status, "PROCESSED job=a" in done.stderr) == (0, True), done


# -- from an earlier version -----------------------------------------------------------------------

# A program of version 2: it knows no hosts.
OLD = """
from jobrun import ledger_sql, sqlite_file, sqlite_schema
scripts = sqlite_schema.scripts()[:2]
sqlite_schema.scripts = lambda: scripts
sqlite_file.VERSION = 2
ledger_sql.note_host = ledger_sql.forget_old = lambda *_: None
"""
IN_FROZEN = """
import sys
from tests import frozen
sys.exit(frozen.run(float(sys.argv[1]), sys.argv[2:]))
"""


def start_old(jobrun: Jobrun, *argv: str, now: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PYTHON, "-c", OLD + IN_FROZEN, str(instant(now)), *argv], env=jobrun.environment,
        cwd=jobrun.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def test_an_older_ledger_is_migrated_while_an_older_wrapper_is_at_work(jobrun: Jobrun) -> None:
    """Its history tells which hosts there were; the wrapper ends its run as if nothing was."""
    old = start_old(jobrun, "run", "a", "--", "true", now=at("10:00"))
    assert (old.communicate(timeout=30)[0], old.returncode) == ("", 0)
    hold = ("--stdin", "inherit", "--", *HOLD)
    wrapper = start_old(jobrun, *HOURLY, *hold, now=at("12:05"))
    assert wrapper.stdout is not None
    assert wrapper.stdout.readline().strip().isdecimal()
    assert jobrun.query("SELECT version FROM jobrun_meta") == [(2,)]
    (host,) = hosts(jobrun)
    assert (host["host"], host["version"], host["open_runs"]) == (host_name(), None, 1)
    assert (host["first_seen"][11:16], host["last_seen"][11:16]) == ("10:00", "12:05")
    assert jobrun.query("SELECT version FROM jobrun_meta") == [(3,)]
    assert jobrun("run", "b", "--", "true", now=at("12:06")).status == 0
    _, lines = wrapper.communicate(timeout=30)
    assert (wrapper.returncode, " PROCESSED job=sales " in lines) == (0, True)
    assert jobrun.query("SELECT state FROM jobrun_window") == [("processed",)]
    assert [host["version"] for host in hosts(jobrun)] == [__version__]
