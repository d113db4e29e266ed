"""What a run has come to is kept on its machine until the server has it on record."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobrun import places
from tests import cutter, servers
from tests.conftest import Jobrun, Result, instant, state, until
from tests.scenes import HOLD, Changed, Held, altered, field, linux, posix

pytestmark = posix

HOURLY = ("run", "sales", "--every", "1h")
NOW, SOON, LATER = "2026-09-04T12:05:00Z", "2026-09-04T12:06:00Z", "2026-09-04T13:05:00Z"
KEY = "sales:2026-09-04T11:00:00+00:00"
# Says in a file that it was started, and that it came to its end.
WITNESS = ("sh", "-c", "echo started >> witness; echo done >> witness")


def query(jobrun: Jobrun, sql: str) -> list[tuple[Any, ...]]:
    with closing(psycopg.connect(jobrun.environment["JOBRUN_LEDGER"], autocommit=True)) as server:
        cursor = server.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def killed(jobrun: Jobrun, *argv: str, now: str) -> None:
    """A call that is killed before the end of its run is on record; the server has noticed."""
    altered(jobrun, BEFORE_FINISH, *argv, now=now)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'jobrun%'"
    until(lambda: query(jobrun, sessions) == [(0,)], "the end of its session")


def outbox(jobrun: Jobrun) -> list[Path]:
    where = places.find(None, jobrun.environment)
    return sorted(Path(places.outbox_folder(where.beside)).glob("*"))


def witnessed(jobrun: Jobrun) -> tuple[int, int]:
    """How often the command was started, and came to its end."""
    words = (jobrun.folder / "witness").read_text().split()
    return words.count("started"), words.count("done")


def on_record(jobrun: Jobrun) -> list[tuple[Any, ...]]:
    return query(jobrun, "SELECT state, attempts FROM jobrun_window ORDER BY start")


def outcomes(jobrun: Jobrun) -> list[str]:
    return [found for (found,) in query(jobrun, "SELECT outcome FROM jobrun_run ORDER BY id")]


def let_expire(jobrun: Jobrun) -> None:
    """What lasts until its ttl is over is over."""
    query(jobrun, "UPDATE jobrun_lock SET expires = clock_timestamp()")


# -- a call that is killed ------------------------------------------------------------------------

KILL = "import os\nfrom jobrun.ledger_postgres import PostgresLedger\n"
KILL += "die = lambda *_: os.kill(os.getpid(), 9)\n"
BEFORE_FINISH = f"{KILL}PostgresLedger.finish = die"
# Where the wrapper is killed, and what is left of it, as the table of the design says.
POINTS = {
    "before the claim": (f"{KILL}PostgresLedger.open = die", (1, 1)),
    "after the claim": (
        f"{KILL}opens = PostgresLedger.open\nPostgresLedger.open = lambda *a: die(opens(*a))",
        (1, 1),
    ),
    "during the command": ("import os\nos.environ['WRAPPER'] = str(os.getpid())", (2, 1)),
    "after the command": (f"{KILL}from jobrun import outbox\noutbox.write = die", (2, 2)),
    "before it is put by": (f"{KILL}os.replace = die", (2, 2)),
    "before the mark": (BEFORE_FINISH, (1, 1)),
    "during the commit": (
        f"{KILL}from jobrun.postgres_database import Database\ncommit = Database.commit\n"
        "def finish(*a):\n"
        "    def sent(database, number):\n"
        "        database.connection.execute('COMMIT')\n"
        "        database.connection.pgconn.pipeline_sync()\n"
        "        database.connection.pgconn.flush()\n"
        "        die()\n"
        "    Database.commit = sent\n"
        "    return ends(*a)\n"
        "ends = PostgresLedger.finish\nPostgresLedger.finish = finish",
        (1, 1),
    ),
    "after the mark": (
        f"{KILL}ends = PostgresLedger.finish\nPostgresLedger.finish = lambda *a: die(ends(*a))",
        (1, 1),
    ),
    "at the end": (
        f"{KILL}from jobrun import outbox\ngone = outbox.remove\n"
        "outbox.remove = lambda path: die(gone(path))",
        (1, 1),
    ),
}


# `JOBRUN_ROUNDS=10 python -m pytest tests/test_outbox.py -k "killed_at or cut_at"`: each so often.
ROUNDS = range(int(os.environ.get("JOBRUN_ROUNDS", "1")))


@linux
@pytest.mark.parametrize("round_", ROUNDS)
@pytest.mark.parametrize("lock", ["session", "lease"])
@pytest.mark.parametrize("point", POINTS)
def test_a_call_that_is_killed_at(on_postgres: Jobrun, point: str, lock: str, round_: int) -> None:
    """Two calls after it the window is done, once on record; what had ended was not run again."""
    code, counts = POINTS[point]
    command = WITNESS
    if point == "during the command":
        command = ("sh", "-c", "echo started >> witness; kill -9 $WRAPPER; sleep 60")
    of_lock = ("-k", "0", "--lock", lock)
    killed = altered(on_postgres, code, *HOURLY, *of_lock, "--", *command, now=NOW)
    assert killed.status == -signal.SIGKILL, killed
    let_expire(on_postgres)
    calls = [
        on_postgres(*HOURLY, *of_lock, "--wait", "20", "-v", "--", *WITNESS, now=now)
        for now in (SOON, SOON)
    ]
    assert [call.status for call in calls] == [0, 0]
    assert "reason=no-closed-window" in calls[1].stderr
    assert witnessed(on_postgres) == counts
    assert [state for state, _ in on_record(on_postgres)] == ["processed"]
    assert outcomes(on_postgres).count("succeeded") == 1
    assert outbox(on_postgres) == []


def test_what_had_ended_is_put_on_record_by_the_next_call(on_postgres: Jobrun) -> None:
    """As it ended, by its own time; the line says so, and the next window has its turn."""
    killed(on_postgres, *HOURLY, "--", *WITNESS, now=NOW)
    (kept,) = outbox(on_postgres)
    assert (kept.name, kept.stat().st_mode & 0o777) == ("1.json", 0o600)
    again = on_postgres(*HOURLY, "-q", "--wait", "20", "--", "true", now=LATER)
    assert (again.status, len(again.lines)) == (0, 1)
    window = "2026-09-04T11:00:00+00:00/2026-09-04T12:00:00+00:00"
    begins = f"jobrun: NOTE job=sales what=replayed window={window} key={KEY} outcome=succeeded"
    assert again.stderr.startswith(f"{begins} state=processed attempt=1 took=")
    assert on_record(on_postgres) == [("processed", 1)] * 2
    ended = query(on_postgres, "SELECT ended FROM jobrun_run WHERE id = 1")
    assert ended[0][0].timestamp() == instant(NOW)


def test_what_a_failure_comes_to_is_the_same(on_postgres: Jobrun) -> None:
    """Its delay, its death, the pause that it makes: as if the server had been told at once."""
    more = ("--max-attempts", "1", "--on-failure", "continue", "--pause-after", "1")
    killed(on_postgres, *HOURLY, *more, "--", "sh", "-c", "exit 3", now=NOW)
    again = on_postgres(*HOURLY, *more, "--wait", "20", "--", "true", now=LATER)
    words = [line.split()[1:4] for line in again.lines]
    assert words == [
        ["NOTE", "job=sales", "what=replayed"],
        ["WARNING", "job=sales", "what=dead"],
        ["hint:", "jobrun", "retry"],
        ["WARNING", "job=sales", "what=paused"],
        ["hint:", "after", "the"],
        ["SKIPPED", "job=sales", "reason=paused"],
    ]
    assert on_record(on_postgres) == [("dead", 1)]
    assert query(on_postgres, "SELECT exit_code FROM jobrun_run") == [(3,)]


def test_what_a_command_has_left_for_others_is_kept_with_it(on_postgres: Jobrun) -> None:
    """$JOBRUN_VALUES, and the window's turn to be tried again."""
    leaves = ("sh", "-c", "echo rows=5 > $JOBRUN_VALUES")
    killed(on_postgres, *HOURLY, "--", *leaves, now=NOW)
    assert on_postgres("flush", now=SOON).status == 0
    assert query(on_postgres, "SELECT name, value FROM jobrun_value") == [("rows", "5")]


def test_a_unit_and_a_plain_run(on_postgres: Jobrun) -> None:
    """Of --key, and of a job that has none: the next call of each."""
    for line in (("run", "files", "--key", "one"), ("run", "plain")):
        killed(on_postgres, *line, "--", "true", now=NOW)
        again = on_postgres(*line, "--wait", "20", "-v", "--", "true", now=SOON)
        assert (again.status, "what=replayed" in again.stderr) == (0, True)
        assert "LOST" not in again.stderr
    assert outcomes(on_postgres) == ["succeeded"] * 3


def test_beside_others(on_postgres: Jobrun) -> None:
    """--overlap allow: whoever looks at the runs under way next hands it in."""
    beside = (*HOURLY, "--overlap", "allow")
    killed(on_postgres, *beside, "--", *WITNESS, now=NOW)
    until(lambda: "replayed" in on_postgres(*beside, "--", *WITNESS, now=SOON).stderr, "the lock")
    assert witnessed(on_postgres) == (1, 1)
    assert on_record(on_postgres) == [("processed", 1)]


# -- a machine that took over ---------------------------------------------------------------------


def rival(jobrun: Jobrun, *argv: str, now: str, address: str | None = None) -> Result:
    """A call of another machine: what lies beside the ledger is another's."""
    other = {"JOBRUN_HOME": str(jobrun.folder / "other")}
    return jobrun(*argv, now=now, env=other if address is None else {**other, **ledger_at(address)})


def ledger_at(address: str) -> dict[str, str]:
    return {"JOBRUN_LEDGER": address}


def test_a_machine_that_took_over_first(on_postgres: Jobrun) -> None:
    """What comes late is FENCED, on record and told, and the file is gone."""
    killed(on_postgres, *HOURLY, "--", *WITNESS, now=NOW)
    taken = rival(on_postgres, *HOURLY, "--", *WITNESS, now=SOON)
    assert [line.split()[1] for line in taken.lines] == ["LOST", "PROCESSED"]
    assert "would-replay" not in on_postgres("plan", "sales", now=SOON).stdout
    late = on_postgres(*HOURLY, "-q", "--", "true", now=SOON)
    assert late.status == 0
    (line,) = late.lines
    assert line.split()[1:3] == ["FENCED", "job=sales"]
    assert (field(line, "outcome"), field(line, "run")) == ("succeeded", "1")
    assert outcomes(on_postgres) == ["fenced", "succeeded"]
    assert on_record(on_postgres) == [("processed", 2)]
    assert outbox(on_postgres) == []


def test_a_job_that_was_forgotten(on_postgres: Jobrun) -> None:
    """Its run is nowhere on record any more: told as fenced, so that nobody waits for it."""
    killed(on_postgres, *HOURLY, "--", "true", now=NOW)
    assert rival(on_postgres, "forget", "sales", "--yes", now=SOON).status == 0
    flushed = on_postgres("flush", now=SOON)
    assert (flushed.status, "FENCED" in flushed.stderr, outbox(on_postgres)) == (0, True, [])


# -- a server out of reach ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_server() -> Iterator[servers.Postgres]:
    """A server that the tests of this module stop and start."""
    with servers.own_postgres() as server:
        yield server


@pytest.fixture
def on_own(jobrun: Jobrun, own_server: servers.Postgres) -> Jobrun:
    address = own_server.address
    with closing(psycopg.connect(address, autocommit=True)) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    jobrun.environment |= {"JOBRUN_LEDGER": address, "JOBRUN_HOME": str(jobrun.folder)}
    return jobrun


def test_a_server_that_goes_while_the_command_runs(
    on_own: Jobrun, own_server: servers.Postgres
) -> None:
    """76, what ran and that it is kept; no other window begins. The next call goes on from it."""
    held = Held(on_own, "sales", "--every", "1h", "--first", "2026-09-04T10:00Z", now=NOW)
    own_server.stop()
    try:
        assert held.wrapper.stdin is not None
        held.wrapper.stdin.close()
        held.wrapper.stdin = None
        until(lambda: outbox(on_own), "the end of the command")
        held.wrapper.send_signal(signal.SIGTERM)
        found = held.release()
    finally:
        own_server.start()
    err = found.stderr
    assert found.status == 76
    assert 'error: ran but not recorded (succeeded): "sales:2026-09-04T10:00:00+00:00"' in err
    (kept,) = outbox(on_own)
    assert f"hint: kept in {kept}: jobrun flush, or the next call here" in err
    again = on_own(*HOURLY, "--wait", "20", "--", "true", now=SOON)
    assert [line.split()[3] for line in again.lines] == ["what=replayed", again.lines[1].split()[3]]
    assert on_record(on_own) == [("processed", 1)] * 2


def test_a_server_that_stays_away(on_own: Jobrun, own_server: servers.Postgres) -> None:
    """It is tried as long as nobody else can have the lock, then kept; the command's code wins."""
    soon = ("-k", "0", "--lock-ttl", "8")
    fails = (*HOLD[:-1], f"{HOLD[-1]}; sys.exit(7)")
    held = Held(on_own, "sales", "--every", "1h", *soon, command=fails, now=NOW)
    own_server.stop()
    try:
        found = held.release()
    finally:
        own_server.start()
    assert (found.status, "ran but not recorded (failed)" in found.stderr) == (7, True)
    assert "Traceback" not in found.stderr
    flushed = on_own("flush", now=SOON)
    assert (flushed.status, "outcome=failed" in flushed.stderr) == (0, True)
    assert on_record(on_own) == [("failed", 1)]


@pytest.mark.parametrize("round_", ROUNDS)
@pytest.mark.parametrize("lock", ["session", "lease"])
@pytest.mark.parametrize("is_rival_there", [False, True])
@pytest.mark.parametrize("cut", [cutter.BEFORE, cutter.AFTER])
def test_a_network_that_is_cut_at_the_commit(
    on_postgres: Jobrun, cut: str, is_rival_there: bool, lock: str, round_: int
) -> None:
    """What the server has is what holds: nothing is guessed, one end of the window is accepted."""
    server = on_postgres.environment["JOBRUN_LEDGER"]
    on_postgres("run", "other", "--", "true")  # the ledger is there
    with cutter.cutter(server, cut) as network:
        on_postgres.environment["JOBRUN_LEDGER"] = network.address
        line = (*HOURLY, "-k", "0", "--lock", lock)
        call = on_postgres.start(*line, "--", *WITNESS, now=NOW)
        assert network.happened.wait(20)
        call.send_signal(signal.SIGTERM)
        _, err = call.communicate(timeout=20)
        assert (call.returncode, b"ran but not recorded" in err) == (76, True)
        network.mend()
        let_expire(on_postgres)
        if is_rival_there:
            take = (*line, "--wait", "20", "--", "true")
            assert rival(on_postgres, *take, now=SOON, address=server).status == 0
        first, second = (on_postgres("flush", now=SOON) for _ in range(2))
        on_postgres.environment["JOBRUN_LEDGER"] = server
    is_fenced = is_rival_there and cut == cutter.BEFORE
    assert (first.status, "FENCED" in first.stderr) == (0, is_fenced)
    assert "what=nothing-to-flush" in second.stderr
    found = query(on_postgres, "SELECT outcome FROM jobrun_run WHERE job = 'sales' ORDER BY id")
    expected = ["fenced", "succeeded"] if is_fenced else ["succeeded"]
    assert [outcome for (outcome,) in found] == expected
    assert [state for state, _ in on_record(on_postgres)] == ["processed"]


# -- what a person sees and does ------------------------------------------------------------------


def test_what_lies_there_is_shown(on_postgres: Jobrun) -> None:
    """status, which is not content with it, and doctor; both say what to do."""
    killed(on_postgres, *HOURLY, "--", "true", now=NOW)
    status = on_postgres("status", "--check", now=SOON)
    assert status.status == 1
    assert "outbox: 1 run has ended and is not on record yet, the first 1m ago" in status.stdout
    (kept,) = json.loads(on_postgres("status", "--json", now=SOON).stdout)["outbox"]
    assert (kept["run"], kept["key"], kept["outcome"]) == (1, KEY, "succeeded")
    doctor = on_postgres("doctor", now=SOON).stdout
    assert "WARN  outbox      1 run has ended and is not on record yet" in doctor
    assert "jobrun flush" in doctor


def test_a_plan_is_what_follows_from_it(on_postgres: Jobrun) -> None:
    """Not LOST, and what the next call does; that of `plan` and that of --dry-run."""
    killed(on_postgres, *HOURLY, "--", "true", now=NOW)
    for argv in (("plan", "sales"), (*HOURLY, "--dry-run", "--", "true")):
        found = on_postgres(*argv, now=LATER)
        assert (found.status, "LOST" in found.stdout, "watermark" in found.stdout) == (
            0,
            False,
            False,
        )
        assert "done to 2026-09-04 12:00 UTC" in found.stdout
        (note,) = (line for line in found.stdout.splitlines() if line.startswith("NOTE: what="))
        assert note.startswith("NOTE: what=would-replay window=2026-09-04T11:00:00+00:00/")
        assert "outcome=succeeded" in note
        assert "  jobrun flush" in found.stdout
    planned = json.loads(on_postgres("plan", "sales", "--json", now=LATER).stdout)
    assert [run["key"] for run in planned["runs"]] == ["sales:2026-09-04T12:00:00+00:00"]
    assert len(outbox(on_postgres)) == 1


@pytest.mark.parametrize(
    "argv", [("status",), ("explain", "sales"), ("history",), ("windows", "sales"), ("show", KEY)]
)
def test_what_lies_there_is_not_lost(on_postgres: Jobrun, argv: tuple[str, ...]) -> None:
    """Whoever looks sees how it ended."""
    fails = ("sh", "-c", "exit 3")
    killed(on_postgres, *HOURLY, "--", *fails, now=NOW)
    before = on_postgres(*argv, now=SOON)
    on_postgres("flush", now=SOON)
    after = on_postgres(*argv, now=SOON)
    shown, kept, _ = before.stdout.partition("outbox: ")
    assert bool(kept) == (argv[0] in ("status", "explain"))
    assert "exit 3" in shown
    assert shown == after.stdout


def test_a_plan_after_a_failure(on_postgres: Jobrun) -> None:
    """It says what the call does that hands it in: of what has failed, of what is dead by it."""
    for job, *more in (
        ("sales",),
        ("stock", "--max-attempts", "1"),
        ("late", "--retry-delay", "2h"),
    ):
        line = ("run", job, "--every", "1h", *more, "--", "sh", "-c", "exit 3")
        killed(on_postgres, *line, now=NOW)
        foreseen = json.loads(on_postgres("plan", job, "--json", now=LATER).stdout)
        assert on_postgres("flush", job, now=LATER).status == 0
        after = json.loads(on_postgres("plan", job, "--json", now=LATER).stdout)
        note, *rest = foreseen.pop("notes")
        assert (note["what"], rest) == ("would-replay", after.pop("notes"))
        assert foreseen == after


def test_flush_of_one_job_or_of_all(on_postgres: Jobrun) -> None:
    """--dry-run says it and does nothing, --json is one document, and then nothing is left."""
    for job in ("sales", "stock"):
        argv = ("run", job, "--every", "1h", "--", "true")
        killed(on_postgres, *argv, now=NOW)
    dry = on_postgres("flush", "--dry-run", now=SOON)
    assert (dry.status, dry.stderr.count("what=would-replay"), len(outbox(on_postgres))) == (
        0,
        2,
        2,
    )
    one = on_postgres("flush", "sales", now=SOON)
    assert (one.status, one.stderr.count("what=replayed"), len(outbox(on_postgres))) == (0, 1, 1)
    rest = json.loads(on_postgres("flush", "--json", now=SOON).stdout)["outbox"]
    assert [(each["job"], each["left"]) for each in rest] == [("stock", None)]
    nothing = on_postgres("flush", now=SOON)
    assert (nothing.status, "what=nothing-to-flush" in nothing.stderr) == (0, True)


def test_flush_leaves_alone_what_another_call_holds(on_postgres: Jobrun) -> None:
    """The job's lock is held: 75, and its holder has it on record before anything else."""
    killed(on_postgres, *HOURLY, "--", "true", now=NOW)
    hides = places.outbox_folder(places.find(None, on_postgres.environment).beside)
    hidden = Path(hides).rename(on_postgres.folder / "hidden")
    held = Held(on_postgres, "sales", "--every", "1h", "--wait", "20", now=SOON)
    hidden.rename(hides)
    busy = on_postgres("flush", now=SOON)
    held.release()
    assert (busy.status, "what=not-replayed" in busy.stderr, len(outbox(on_postgres))) == (
        75,
        True,
        1,
    )


def test_flush_of_a_file(jobrun: Jobrun) -> None:
    """A ledger in a file is on the same disk: there is never anything."""
    jobrun("run", "a", "--", "true")
    found = jobrun("flush")
    assert (found.status, "what=nothing-to-flush" in found.stderr) == (0, True)


DAMAGED = {
    "empty": (r"(?s).*", ""),
    "half of it": (r"(?s)\A(.{99}).*", r"\1"),
    "of a later version": ('"v": 1', '"v": 2'),
    "another outcome": ('"succeeded"', '"splendid"'),
    "a number too large": ('"exit_code": 0', f'"exit_code": {2**70}'),
    "of another ledger": ('"birth": "', '"birth": "x'),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_file_that_can_not_be_handed_in(on_postgres: Jobrun, damage: str) -> None:
    """A WARNING names it, it stays where it is, and the call goes on as without it."""
    killed(on_postgres, *HOURLY, "--", "true", now=NOW)
    (kept,) = outbox(on_postgres)
    kept.write_text(re.sub(*DAMAGED[damage], kept.read_text(), count=1))
    call = on_postgres(*HOURLY, "-q", "--wait", "20", "--", "true", now=SOON)
    assert call.status == 0
    assert f"WARNING what=outbox file={kept} cause=" in call.lines[0]
    assert [line.split()[1] for line in call.lines] == ["WARNING", "LOST"]
    assert outbox(on_postgres) == [kept]
    assert on_postgres("flush", now=SOON).status == 75


def test_a_place_that_can_not_be_written(on_postgres: Jobrun) -> None:
    """A WARNING, and the server is told all the same."""
    on_postgres("run", "other", "--", "true")
    where = places.find(None, on_postgres.environment)
    Path(places.outbox_folder(where.beside)).rmdir()
    Path(places.outbox_folder(where.beside)).write_text("")
    call = on_postgres(*HOURLY, "-q", "--", "true", now=NOW)
    assert (call.status, [line.split()[1] for line in call.lines]) == (0, ["NOTE", "WARNING"])
    assert f"WARNING job=sales what=no-outbox key={KEY} cause=" in call.stderr
    assert on_record(on_postgres) == [("processed", 1)]


def test_a_call_that_lives_tells_it_itself(on_postgres: Jobrun) -> None:
    """Beside others its lock is its own: who comes by leaves its file alone."""
    stops = "import os\nfrom jobrun.ledger_postgres import PostgresLedger\n"
    stops += "ends = PostgresLedger.finish\n"
    stops += "PostgresLedger.finish = lambda *a: (os.kill(os.getpid(), 19), ends(*a))[1]"
    beside = (*HOURLY, "--overlap", "allow")
    call = Changed(on_postgres, stops).start(*beside, "--", *WITNESS, now=NOW)
    until(lambda: outbox(on_postgres) and state(call.pid) == "T", "the end of the command")
    other = on_postgres(*beside, "-v", "--", *WITNESS, now=SOON)
    assert (other.status, "replayed" in other.stderr, len(outbox(on_postgres))) == (0, False, 1)
    call.send_signal(signal.SIGCONT)
    call.communicate(timeout=20)
    assert (call.returncode, witnessed(on_postgres), outbox(on_postgres)) == (0, (1, 1), [])
