"""A ledger's server that is out of reach when a call begins: --on-store-down."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobrun import places
from tests import servers
from tests.conftest import Jobrun, until
from tests.scenes import Held, altered, field, posix

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
