"""A ledger's server that is out of reach when a call begins: --on-store-down."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jobrun import places
from tests import cutter, servers
from tests.conftest import PYTHON, Jobrun, is_alive, until
from tests.scenes import Changed, Held, altered, field, posix
from tests.test_between_windows import NO_PROCESS, patched

pytestmark = posix

HOURLY = ("run", "sales", "--every", "1h")
NOW, SOON = "2026-09-04T12:05:00Z", "2026-09-04T12:06:00Z"
KEY = "sales:2026-09-04T11:00:00+00:00"
RUN = ("--on-store-down", "run")


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Postgres]:
    """One that the tests stop and start; it is stopped where a test begins."""
    with servers.own_postgres() as made:
        made.stop()
        yield made


@pytest.fixture
def down(jobrun: Jobrun, server: servers.Postgres) -> Jobrun:
    """jobrun with a ledger whose server is not there: nobody listens."""
    jobrun.environment |= {"JOBRUN_LEDGER": server.address, "JOBRUN_HOME": str(jobrun.folder)}
    return jobrun


def test_nothing_runs(down: Jobrun) -> None:
    """75, and why, whatever is quiet; --busy-exit says otherwise."""
    found = down(*HOURLY, "-q", "--", "echo", "ran", now=NOW)
    assert (found.status, found.stdout) == (75, "")
    assert "SKIPPED job=sales reason=store-down cause=" in found.lines[0]
    assert "Connection refused" in found.lines[0]
    assert found.lines[1].startswith("jobrun: hint: psql with the same address")
    assert down(*HOURLY, "--busy-exit", "9", "--", "true", now=NOW).status == 9
    assert down(*HOURLY, "--window", KEY, "--", "true", now=NOW).status == 75


@pytest.mark.parametrize(
    "argv",
    [
        ("status",), ("history",), ("flush",), ("rerun", "sales", "yesterday"), ("stop", "sales"),
        ("pause", "sales"), ("run", "sales", "--dry-run", "--", "true"),
    ],
)  # fmt: skip
def test_other_commands_say_so(down: Jobrun, argv: tuple[str, ...]) -> None:
    """75 and a line, no traceback."""
    found = down(*argv, now=NOW)
    if argv == ("flush",):  # there is nothing for it, either
        assert found.status == 0
        return
    assert (found.status, "Traceback" in found.stderr) == (75, False)
    assert "out of reach" in found.stderr


def test_a_name_that_does_not_resolve(down: Jobrun) -> None:
    """Out of reach, too."""
    down.environment["JOBRUN_LEDGER"] = "postgresql://jobrun@no-such-host.invalid/jobrun"
    found = down(*HOURLY, "--", "true", now=NOW)
    assert (found.status, "reason=store-down" in found.stderr) == (75, True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("/postgres", "/nope"), 'database \\"nope\\" does not exist'),
        (("postgres@", "nobody9@"), 'role \\"nobody9\\" does not exist'),
    ],
)
def test_what_no_wait_mends(on_postgres: Jobrun, change: tuple[str, str], said: str) -> None:
    """Another database, another role: 78, also where it was to run without a record."""
    address = on_postgres.environment["JOBRUN_LEDGER"].partition("?")[0]
    head, _, tail = address.rpartition(change[0])
    on_postgres.environment["JOBRUN_LEDGER"] = f"{head}{change[1]}{tail}"
    found = on_postgres(*HOURLY, *RUN, "--", "echo", "ran", now=NOW)
    assert (found.status, found.stdout) == (78, "")
    assert said.replace("\\", "") in found.stderr


def test_a_server_that_has_no_room_is_out_of_reach(jobrun: Jobrun) -> None:
    """As many clients as it may have: the next call may find one gone."""
    psycopg = pytest.importorskip("psycopg")
    with servers.own_postgres(max_connections=4, superuser_reserved_connections=0) as full:
        jobrun.environment |= {"JOBRUN_LEDGER": full.address, "JOBRUN_HOME": str(jobrun.folder)}
        held = [psycopg.connect(full.address) for _ in range(4)]
        found = jobrun(*HOURLY, "--", "true", now=NOW)
        for connection in held:
            connection.close()
    assert (found.status, "reason=store-down" in found.stderr) == (75, True)
    assert "too many clients" in found.stderr


def test_wait_until_it_is_there(down: Jobrun, server: servers.Postgres) -> None:
    """Then everything is as ever."""
    call = down.start(*HOURLY, "--on-store-down", "wait:10m", "--", "echo", "ran", now=NOW)
    server.start()
    try:
        out, err = call.communicate(timeout=60)
    finally:
        server.stop()
    assert (call.returncode, out) == (0, b"ran\n")
    assert b"PROCESSED" in err
    assert b"store-down" not in err


def test_wait_in_vain(down: Jobrun) -> None:
    """As skip, once the time is over."""
    found = down(*HOURLY, "--on-store-down", "wait:1s", "--", "echo", "ran", now=NOW)
    assert (found.status, found.stdout, "reason=store-down" in found.stderr) == (75, "", True)


def test_a_signal_ends_the_wait(down: Jobrun) -> None:
    """At once, and nothing runs."""
    call = down.start(*HOURLY, "--on-store-down", "wait:10m", "--", "echo", "ran", now=NOW)
    caught = f"/proc/{call.pid}/status"

    def catches() -> bool:
        with open(caught) as lines:
            mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
        return bool(mask & (1 << (signal.SIGTERM - 1)))

    until(catches, "the wait")
    call.send_signal(signal.SIGTERM)
    out, _ = call.communicate(timeout=20)
    assert (call.returncode, out) == (143, b"")


# -- a server that goes once the call has opened the ledger ---------------------------------------

# Stops the server, once, the first time that the named function is called.
STOPS = """
import os, signal
from jobrun import {module}
from tests.conftest import is_alive, until

real, server = {module}.{name}, int(os.environ["SERVER"])


def stopping(*given):
    {module}.{name} = real
    os.kill(server, signal.SIGINT)
    until(lambda: not is_alive(server), "the end of the server")
    return real(*given)


{module}.{name} = stopping
"""
EARLY = {
    "before it has read anything": ("ledger_sql", "SqlLedger.overrides"),
    "before it has the lock": ("lock_postgres", "SessionLock._try"),
}
LATE = {
    "once it has the lock": ("turn", "take"),
    "once it has its plan": ("turn", "carry_out"),
    "as it claims": ("postgres_database", "Database.begin"),
}
HELD_UP = {**EARLY, **LATE}


class Stopping(Changed):
    """Its calls stop the server at a point; each has a job of its own."""

    def __init__(self, down: Jobrun, server: servers.Postgres, point: tuple[str, str]) -> None:
        module, name = point
        super().__init__(down, STOPS.format(module=module, name=name))
        self.environment = {**down.environment, "SERVER": str(server.pid)}
        self.server = server
        self.job = f"sales-{server.pid}"

    def calling(self, *options: str) -> tuple[str, ...]:
        return ("run", self.job, "--every", "1h", *options, "--", "sh", "-c", "echo ran >> witness")

    @property
    def witness(self) -> str:
        found = self.folder / "witness"
        return found.read_text() if found.exists() else ""


@pytest.fixture
def stopping(down: Jobrun, server: servers.Postgres, point: tuple[str, str]) -> Iterator[Stopping]:
    server.start()
    yield Stopping(down, server, point)
    with suppress(OSError):  # it is stopped
        server.stop()


@pytest.mark.parametrize("point", HELD_UP.values(), ids=HELD_UP)
def test_it_goes_and_nothing_runs(stopping: Stopping, down: Jobrun) -> None:
    """As where it was not there from the start; the next call finds everything to do."""
    found = stopping(*stopping.calling("-q"), now=NOW)
    assert (found.status, stopping.witness) == (75, "")
    assert f"SKIPPED job={stopping.job} reason=store-down cause=" in found.lines[-2]
    stopping.server.start()
    again = down(*stopping.calling(), now=SOON)
    assert (again.status, stopping.witness, "LOST" in again.stderr) == (0, "ran\n", False)


@pytest.mark.parametrize("point", HELD_UP.values(), ids=HELD_UP)
def test_it_goes_and_is_waited_for(stopping: Stopping, down: Jobrun) -> None:
    """Then the same call does it, once."""
    pid = stopping.server.pid
    call = stopping.start(*stopping.calling("--on-store-down", "wait:1m"), now=NOW)
    until(lambda: not is_alive(pid), "the end of the server")
    stopping.server.start()
    _, err = call.communicate(timeout=60)
    assert (call.returncode, stopping.witness) == (0, "ran\n")
    assert b"PROCESSED" in err
    runs = json.loads(down("history", stopping.job, "--json", now=SOON).stdout)["runs"]
    assert [run["outcome"] for run in runs] == ["succeeded"]


@pytest.mark.parametrize("lock", ["session", "lease"])
def test_a_connection_that_is_cut_before_the_lock(on_postgres: Jobrun, lock: str) -> None:
    """And can be made anew at once: nobody notices."""
    cuts = "from jobrun.ledger_postgres import PostgresLedger\n"
    cuts += "PostgresLedger.idle_row = lambda ledger, _: ledger.database.close()"
    found = altered(on_postgres, cuts, *HOURLY, "--lock", lock, "--", "echo", "ran", now=NOW)
    assert (found.status, found.stdout) == (0, "ran\n"), found


@pytest.mark.parametrize("point", EARLY.values(), ids=EARLY)
def test_it_goes_and_it_runs_without_a_record(stopping: Stopping) -> None:
    """Nothing is known yet."""
    found = stopping(*stopping.calling(*RUN), now=NOW)
    assert (found.status, stopping.witness, "unrecorded" in found.stderr) == (76, "ran\n", True)


@pytest.mark.parametrize("point", LATE.values(), ids=LATE)
def test_it_goes_once_the_record_has_spoken(stopping: Stopping) -> None:
    """It may have said that the newest window is done, so nothing runs."""
    found = stopping(*stopping.calling(*RUN), now=NOW)
    assert (found.status, stopping.witness) == (75, "")
    assert "reason=store-down" in found.stderr


@pytest.mark.parametrize("point", [("skips", "paused")])
def test_it_goes_once_something_has_run(stopping: Stopping) -> None:
    """An error of a call that is over: it does not begin again."""
    job, wait = stopping.job, ("--on-store-down", "wait:1m", "--first", "2026-09-04T10:00Z")
    script = f"echo ran >> witness; {PYTHON} -m jobrun pause {job}"
    found = stopping("run", job, "--every", "1h", *wait, "--", "sh", "-c", script, now=NOW)
    assert (found.status, stopping.witness) == (75, "ran\n")
    assert [line.split()[1] for line in found.lines[-3:]] == ["PROCESSED", "error:", "hint:"]


@pytest.mark.parametrize("lock", ["session", "lease"])
@pytest.mark.parametrize("cut", [cutter.BEFORE, cutter.AFTER])
def test_a_claim_that_may_be_on_record(on_postgres: Jobrun, cut: str, lock: str) -> None:
    """It is not waited for then, and nothing runs: the next call sees what there is."""
    server = on_postgres.environment["JOBRUN_LEDGER"]
    on_postgres("run", "other", "--", "true")  # the ledger is there
    line = (*HOURLY, "--lock", lock, "-k", "0", "--lock-ttl", "5")
    with cutter.cutter(server, cut, cutter.BEGINS_A_RUN) as network:
        on_postgres.environment["JOBRUN_LEDGER"] = network.address
        found = on_postgres(*line, "--on-store-down", "wait:10m", "--", "echo", "ran", now=NOW)
        assert network.happened.is_set()
        network.mend()
        again = on_postgres(*line, "--wait", "30", "--", "echo", "again", now=SOON)
    assert (found.status, found.stdout, "reason=store-down" in found.stderr) == (75, "", True)
    assert (again.status, again.stdout) == (0, "again\n"), again
    assert ("LOST" in again.stderr) == (cut == cutter.AFTER)


# -- without a record -----------------------------------------------------------------------------


def test_run_without_a_record(down: Jobrun) -> None:
    """The newest window, 76, and what nobody knows; the same window not again on this machine."""
    script = "echo $JOBRUN_KEY ${JOBRUN_TOKEN-none}; echo rows=1 > $JOBRUN_VALUES"
    call = (*HOURLY, "-q", "--first", "2026-09-01T00:00Z", *RUN, "--", "sh", "-c", script)
    found = down(*call, now=NOW)
    assert (found.status, found.stdout) == (76, f"{KEY} none\n")
    note, line = found.lines
    assert "NOTE job=sales what=unrecorded window=2026-09-04T11:00:00+00:00/" in note
    assert 'unknown="whether it is paused' in note
    assert line.split()[1] == "FAILED"
    assert (field(line, "exit"), field(line, "outcome")) == ("76", "not-recorded")
    again = down(*call, now=SOON)
    assert (again.status, again.stdout) == (0, "")
    later = down(*call, now="2026-09-04T13:05:00Z")
    assert (later.status, later.stdout.split()[0]) == (76, "sales:2026-09-04T12:00:00+00:00")


def test_what_fails_without_a_record(down: Jobrun) -> None:
    """Its own code, its output if that was to be kept, and the next call tries again."""
    fails = ("sh", "-c", "echo said; exit 7")
    for _ in range(2):
        found = down(*HOURLY, "-Q", *RUN, "--", *fails, now=NOW)
        assert (found.status, found.stdout) == (7, "said\n")
        assert "FAILED job=sales" in found.stderr
        assert "jobrun logs" not in found.stderr


def test_no_process_without_a_record(down: Jobrun) -> None:
    """75 and why, as with one; the window is still to be done."""
    call = (*HOURLY, *RUN, "--", "echo", "ran")
    found = patched(down, NO_PROCESS, *call)
    assert (found.status, found.stdout) == (75, "")
    assert "no process for the command: Cannot allocate memory" in found.stderr
    assert "Traceback" not in found.stderr
    assert down(*call, now=NOW).stdout == "ran\n"


def test_plain_runs_and_units_without_a_record(down: Jobrun) -> None:
    """A plain one each time, a unit once."""
    for status in (76, 76):
        assert down("run", "plain", *RUN, "--", "true", now=NOW).status == status
    for status in (76, 0):
        assert down("run", "files", "--key", "one", *RUN, "--", "true", now=NOW).status == status


def test_killed_without_a_record(down: Jobrun) -> None:
    """What it had kept of the output is gone with the next one."""
    folder = Path(f"{places.find(None, down.environment).beside}.d", "unrecorded")
    waits = f"echo said; until ls {folder}/*.out; do sleep 0.1; done 2> /dev/null >&2"
    kills = ("sh", "-c", f"{waits}; kill -9 $WRAPPER; sleep 60")
    code = "import os\nos.environ['WRAPPER'] = str(os.getpid())"
    killed = altered(down, code, *HOURLY, "-Q", "-k", "0", *RUN, "--", *kills, now=NOW)
    assert killed.status == -signal.SIGKILL
    again = down(*HOURLY, "-Q", "--wait", "20", *RUN, "--", "echo", "ran", now=NOW)
    assert again.status == 76
    (done,) = folder.iterdir()
    assert done.suffix == ".done"


def test_one_at_a_time_without_a_record(down: Jobrun) -> None:
    """This machine's lock holds as ever."""
    held = Held(down, "sales", "--every", "1h", *RUN, now=NOW)
    busy = down(*HOURLY, *RUN, "--busy-exit", "9", "--", "echo", "ran", now=NOW)
    assert (busy.status, busy.stdout, "reason=lock-held" in busy.stderr) == (9, "", True)
    assert held.release().status == 76


@pytest.mark.parametrize(
    "argv",
    [
        ("--on-store-down", "wait"), ("--on-store-down", "wait:x"), ("--on-store-down", "skip:1m"),
        ("--on-store-down", "never"), (*RUN, "--after", "up"), (*RUN, "--overlap", "allow"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(jobrun: Jobrun, argv: tuple[str, ...]) -> None:
    """2, before anything is touched."""
    assert jobrun(*HOURLY, *argv, "--", "true").status == 2


def test_a_wait_that_is_no_duration(jobrun: Jobrun) -> None:
    """2, and the hint can be typed as it is."""
    found = jobrun(*HOURLY, "--on-store-down", "wait:x", "--", "true")
    assert (found.status, found.lines[-1]) == (2, "jobrun: hint: --on-store-down wait:10m")


def test_a_placeholder_that_nobody_knows(jobrun: Jobrun) -> None:
    """{token} is of the record: 2."""
    found = jobrun(*HOURLY, *RUN, "--", "echo", "{token}")
    assert (found.status, "{token} has no value without a record" in found.stderr) == (2, True)
