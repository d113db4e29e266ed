"""Several machines on one ledger: each window once, whoever of them dies, is stopped or cut off."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import servers
from tests.conftest import is_alive, line_of, until
from tests.machines import HOURLY, LONG, NOW, SHORT, EarlyMachine, Machine, runs
from tests.scenes import Held, altered, field, linux

pytest.importorskip("psycopg", reason=servers.INSTALL)

from jobrun import places
from jobrun.boottime import boottime
from jobrun.lock_postgres import SessionLock
from jobrun.options import shell_text
from jobrun.postgres_database import Database

pytestmark = linux


@pytest.fixture
def lock(alpha: Machine) -> Iterator[SessionLock]:
    """That of the job, to look at it."""
    with closing(Database(alpha.address)) as database:
        yield SessionLock(database, "sales", "test:1", 30, 1)


def test_the_second_withdraws(alpha: Machine, beta: Machine) -> None:
    """While that one runs, and it names the machine."""
    held = Held(alpha, "sales", *HOURLY, now=NOW)
    second = beta("run", "sales", *HOURLY, "--", "echo", "ran", now=NOW)
    assert (second.status, second.stdout) == (0, "")
    assert "SKIPPED job=sales reason=lock-held" in second.stderr
    assert field(second.stderr, "holder") == f"alpha:{held.wrapper.pid}"
    assert held.release().status == 0
    assert beta("run", "sales", *HOURLY, "-v", "--", "echo", "ran", now=NOW).stdout == ""
    assert runs(alpha) == [("alpha", 1, "succeeded")]


def test_a_machine_that_crashes(alpha: Machine, beta: Machine, lock: SessionLock) -> None:
    """Another one has its lock long before its ttl, and does the window as the second attempt."""
    held = Held(alpha, "sales", *HOURLY, *LONG, now=NOW)
    assert not lock.is_free()
    alpha.crash(held)
    until(lock.is_free, "the lock")
    until(lock.is_settled, "a server that has been there for a while")
    again = beta("run", "sales", *HOURLY, "--", "true", now=NOW)
    assert (again.status, [line.split()[1] for line in again.lines]) == (0, ["LOST", "PROCESSED"])
    assert runs(alpha) == [("alpha", 1, "lost"), ("beta", 2, "succeeded")]


def test_a_wrapper_that_is_stopped(alpha: Machine, beta: Machine) -> None:
    """Its command is dead before the other machine begins; what it says later is refused."""
    held = Held(alpha, "sales", *HOURLY, *SHORT, now=NOW)
    second = beta.start("run", "sales", *HOURLY, "--wait", "60s", "--", "echo", "up", now=NOW)
    waits = "SELECT count(*) > 1 FROM pg_stat_activity WHERE application_name LIKE 'jobrun%'"
    until(lambda: alpha.rows(waits) == [(True,)], "the other machine")
    os.kill(held.wrapper.pid, signal.SIGSTOP)
    begun = boottime()
    assert second.stdout is not None
    assert line_of(second.stdout, 60) == b"up\n"
    assert not is_alive(held.pid)
    second.communicate(timeout=20)
    took = boottime() - begun
    os.kill(held.wrapper.pid, signal.SIGCONT)
    late = held.release()
    assert (late.status, "FENCED" in late.stderr) == (76, True)
    stopped = re.search(r"lost the lock: this process was stopped for ([\d.]+) s", late.stderr)
    assert stopped is not None
    assert float(stopped[1]) >= took - 0.1
    assert runs(alpha) == [("alpha", 1, "fenced"), ("beta", 2, "succeeded")]


def test_a_session_that_is_ended(alpha: Machine, beta: Machine, lock: SessionLock) -> None:
    """The command goes on, and nobody else begins; also the next window is done by this call."""
    held = Held(alpha, "sales", *HOURLY, "--first", "2026-09-04T10:00Z", now=NOW)
    alpha.end_session(held)
    until(lambda: lock.holder() == f"alpha:{held.wrapper.pid}", "the lock taken again")
    assert "lock-held" in beta("run", "sales", *HOURLY, "--", "true", now=NOW).stderr
    assert held.release().status == 0
    assert runs(alpha) == [("alpha", 1, "succeeded")] * 2


@pytest.mark.parametrize(
    ("how", "hosts"),
    [
        (signal.SIGINT, ("alpha", "beta")),
        (signal.SIGQUIT, ("alpha", "beta")),
        (signal.SIGQUIT, ("web@1", "web@2")),
    ],
    ids=["fast", "immediate", "namesakes"],
)
def test_a_server_that_is_restarted(
    tmp_path: Path, how: signal.Signals, hosts: tuple[str, str]
) -> None:
    """The command goes on; who comes right then leaves its holder the time to be there again, also
    where that has the same name."""
    with servers.own_postgres() as server:
        alpha = Machine(tmp_path / "alpha", hosts[0], server.address)
        beta = EarlyMachine(tmp_path / "beta", hosts[1], server.address)
        more = ("--first", "2026-09-04T10:00Z", *LONG)
        held = Held(alpha, "sales", *HOURLY, *more, now=NOW)
        os.kill(held.wrapper.pid, signal.SIGSTOP)
        server.stop(how)
        server.start()
        early = beta("run", "sales", *HOURLY, "--", "echo", "ran", now=NOW)
        assert field(early.stderr, "holder") == f"{alpha.host}:{held.wrapper.pid}"
        os.kill(held.wrapper.pid, signal.SIGCONT)
        taken = f"SELECT 1 FROM pg_stat_activity WHERE application_name LIKE '%{held.wrapper.pid}'"
        until(lambda: alpha.rows(taken), "the lock taken again")
        assert held.release().status == 0
        assert runs(alpha) == [(alpha.host, 1, "succeeded")] * 2
        alpha.end()
        beta.end()


CUT = """
import os
from jobrun.attempts import Attempts
from jobrun.lock_postgres import SessionLock
from jobrun.postgres_database import Database

def cut(self, *more):
    self.situation.ledger.database.connection.pgconn.finish()
    if {is_taken}:
        other.append(SessionLock(Database(os.environ["JOBRUN_LEDGER"]), "sales", "beta:1", 30, 1))
        assert other[0].acquire(20)
    return finish(self, *more)

other, finish, Attempts._finish = [], Attempts._finish, cut
"""


@pytest.mark.parametrize("is_taken", [False, True], ids=["free", "taken"])
def test_a_connection_that_is_lost_after_the_command(alpha: Machine, is_taken: bool) -> None:
    """The lock is taken again before the next window is claimed; where another has it, the run is
    on record, and the next window is that other's."""
    call = ("run", "sales", *HOURLY, "--first", "2026-09-04T10:00Z", "--", "true")
    done = altered(alpha, CUT.format(is_taken=is_taken), *call, now=NOW)
    assert (done.status, done.stderr.count("PROCESSED")) == ((75, 1) if is_taken else (0, 2))
    assert ("the lock is lost between two runs" in done.stderr) is is_taken
    assert {outcome for *_, outcome in runs(alpha)} == {"succeeded"}


# Says whether the call has its lock by then: who has one is called by it on the server.
LOOK = """
import hashlib, os
import psycopg
read = hashlib.file_digest

def look(*more):
    with psycopg.connect(os.environ["JOBRUN_LEDGER"]) as server:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s"
        ((locks,),) = server.execute(asked, [f"jobrun %/{os.getpid()}"])
    print("read under", locks, "locks", flush=True)
    return read(*more)

hashlib.file_digest = look
"""


def test_a_large_file_is_read_before_the_lock_is_taken(alpha: Machine) -> None:
    """It may take longer than the server waits for a word of who has the lock."""
    (alpha.folder / "dump").write_text("all of it")
    done = altered(alpha, LOOK, "run", "sales", "--key-file", "dump", "--", "true")
    assert (done.status, done.stdout) == (0, "read under 0 locks\n")
    assert "PROCESSED" in done.stderr


def test_what_runs_on_another_machine_is_seen(
    alpha: Machine, beta: Machine, lock: SessionLock
) -> None:
    """As long as that has the lock; a look takes it from nobody."""
    held = Held(alpha, "sales", *HOURLY, now=NOW)
    assert "running" in beta("status", now=NOW).stdout
    alpha.crash(held)
    until(lambda: lock.is_free() and lock.is_settled(), "the lock")
    assert "running" not in beta("status", now=NOW).stdout
    assert "lost" in beta("history", now=NOW).stdout


def test_what_a_namesake_runs_is_seen_and_stopped_there(
    tmp_path: Path, alpha: Machine, lock: SessionLock
) -> None:
    """Its pids are none of ours, though its name is; the server knows who has the lock."""
    one = Machine(tmp_path / "one", "web@1", alpha.address)
    two = Machine(tmp_path / "two", "web@2", alpha.address)
    held = Held(one, "sales", *HOURLY, now=NOW)
    for look in (("status",), ("show", "sales"), ("history",)):
        seen = two(*look, now=NOW).stdout
        assert ("running" in seen, "lost" in seen) == (True, False)
    refused = two("stop", "sales", now=NOW)
    assert (refused.status, "another machine or container that" in refused.stderr) == (75, True)
    assert one("stop", "sales", now=NOW).status == 0
    held.release()
    assert "what=not-running" in two("stop", "sales", now=NOW).stderr
    held = Held(one, "sales", *HOURLY, now=NOW)
    one.crash(held)
    until(lambda: lock.is_free() and lock.is_settled(), "the lock")
    assert "what=not-running" in two("stop", "sales", now=NOW).stderr
    assert "lost" in two("history", now=NOW).stdout


def test_what_another_machine_waits_for_is_stopped_there(alpha: Machine, beta: Machine) -> None:
    """Between two tries no run is under way, but its call has the lock."""
    more = ("--retries", "1", "--retry-delay", "30s")
    fails = ("sh", "-c", f"touch {alpha.folder}/tried; exit 1")
    call = alpha.start("run", "sales", *HOURLY, *more, "--", *fails, now=NOW)
    until((alpha.folder / "tried").exists, "the first try")
    until(lambda: ("alpha", 1, "failed") in runs(alpha), "its record")
    refused = beta("stop", "sales", now=NOW)
    assert refused.status == 75
    told = "the call of run 1, which waits to try again, is of host alpha, this is beta"
    assert told in refused.stderr
    assert "what=stopped" in alpha("stop", "sales", now=NOW).stderr
    call.communicate(timeout=20)
    assert "what=not-running" in beta("stop", "sales", now=NOW).stderr
    assert runs(alpha) == [("alpha", 1, "failed")]


def test_replicas_of_one_crontab(alpha: Machine, beta: Machine, tmp_path: Path) -> None:
    """A short job, one of three late: it runs once a window."""
    gamma = Machine(tmp_path / "gamma", "gamma", alpha.address)
    hours = [f"2026-09-04T{hour:02}:00:30Z" for hour in range(10, 14)]
    for hour in hours:
        started = [machine.start("run", "sales", *HOURLY, "--", "sleep", "0.02", now=hour)
                   for machine in (alpha, beta)]  # fmt: skip
        until(lambda first=started[0]: first.poll() is not None, "the first")  # type: ignore[misc]
        started.append(gamma.start("run", "sales", *HOURLY, "--", "sleep", "0.02", now=hour))
        for each in started:
            each.communicate(timeout=20)
            assert each.returncode == 0
    found = alpha.rows("SELECT key, count(*) FROM jobrun_run GROUP BY key")
    assert sorted(count for _, count in found) == [1] * len(hours)


def test_beside_each_other(alpha: Machine, beta: Machine) -> None:
    """--overlap allow: each has windows of its own; those of a machine that crashed run again."""
    since = ("--first", "2026-09-04T10:00Z", "--overlap", "allow")
    first = Held(alpha, "sales", *HOURLY, *since, now=NOW)
    second = Held(beta, "sales", *HOURLY, *since, now=NOW)
    held = alpha("run", "sales", *HOURLY, *since, "--", "true", now=NOW)
    assert "reason=lock-held" in held.stderr
    alone = beta("run", "sales", *HOURLY, "--", "true", now=NOW)
    assert field(alone.stderr, "holder") == f"alpha:{first.wrapper.pid}"
    alpha.crash(first)
    with closing(Database(alpha.address)) as database:
        slot = SessionLock(database, "sales", "test:1", 30, 1, slot=1)
        until(slot.is_free, "the slot")
    again = beta("run", "sales", *HOURLY, *since, "--", "echo", "{start_hour}", now=NOW)
    assert (again.status, again.stdout) == (0, "10\n")
    assert second.release().status == 0
    assert sorted(runs(alpha)) == [
        ("alpha", 1, "lost"), ("beta", 1, "succeeded"), ("beta", 2, "succeeded"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["session", "lease"])
def test_a_job_that_is_named_as_a_slot_might_be(alpha: Machine, beta: Machine, kind: str) -> None:
    """It is another job: `etl.1` runs while `etl` has a call beside others, and the reverse."""
    how = (*HOURLY, "--lock", kind)
    beside = Held(alpha, "etl", *how, "--overlap", "allow", now=NOW)
    other = beta("run", "etl.1", *how, "--", "echo", "ran", now=NOW)
    assert (other.status, other.stdout) == (0, "ran\n")
    assert beside.release().status == 0
    other_job = Held(alpha, "job.1", *how, now=NOW)
    beside_it = beta("run", "job", *how, "--overlap", "allow", "-v", "--", "true", now=NOW)
    assert "PROCESSED" in beside_it.stderr
    taken = "SELECT slot FROM jobrun_run WHERE job = 'job'"
    assert alpha.rows(taken) == [(1,)]
    assert other_job.release().status == 0


def test_between_two_tries(alpha: Machine, beta: Machine, lock: SessionLock) -> None:
    """The lock is kept while a call waits to try again, for longer than the ttl."""
    more = ("--retries", "1", "--retry-delay", "8s", "--lock-ttl", "5s", "-k", "0s")
    script = f"test -e {alpha.folder}/tried || {{ touch {alpha.folder}/tried; exit 1; }}; cat"
    call = alpha.start(
        "run", "sales", *HOURLY, *more, "--stdin", "inherit", "--", "sh", "-c", script,
        now=NOW, stdin=subprocess.PIPE,
    )  # fmt: skip
    until((alpha.folder / "tried").exists, "the first try")
    until(lambda: ("alpha", 1, "failed") in runs(alpha), "its record")
    assert not lock.is_free()
    assert "lock-held" in beta("run", "sales", *HOURLY, "--", "true", now=NOW).stderr
    call.communicate(timeout=30)
    assert (call.returncode, len(runs(alpha))) == (0, 2)


def test_a_ttl_that_leaves_no_time(alpha: Machine) -> None:
    """2: the command could not be ended before another machine begins."""
    wrong = alpha("run", "sales", "--lock-ttl", "20s", "--", "true")
    assert (wrong.status, "at least 21s" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("wrong", "longest"),
    [
        (("--lock-ttl", "25d"), "24d"), (("--lock-ttl", "10000d"), "24d"),
        (("--lock", "lease", "--lock-ttl", "25d"), "24d"), (("--kill-after", "9d"), "8d"),
        (("--lock", "redis://127.0.0.1:1", "--lock-ttl", "25d"), "24d"),
    ],
)  # fmt: skip
def test_longer_than_a_server_can_count(
    alpha: Machine, wrong: tuple[str, ...], longest: str
) -> None:
    """2, with the longest that is."""
    found = alpha("run", "sales", *wrong, "--", "echo", "ran")
    assert (found.status, found.stdout) == (2, "")
    assert f"{wrong[-2]} {wrong[-1]}: at most {longest}" in found.stderr


@pytest.mark.parametrize(
    "right", [("--lock-ttl", "24d"), ("--lock-ttl", "24d", "--lock", "lease"), ("-k", "8d")]
)
def test_as_long_as_a_server_can_count(alpha: Machine, right: tuple[str, ...]) -> None:
    """The longest that is taken is kept, too."""
    assert alpha("run", "sales", *HOURLY, *right, "--", "true", now=NOW).status == 0


def test_a_longer_grace_of_an_older_call(alpha: Machine) -> None:
    """On record from a file, or by an older program: it is in no verb's way."""
    alpha("run", "sales", *HOURLY, "-k", "7d", "--", "true", now=NOW)
    alpha.rows("UPDATE jobrun_job SET spec = replace(spec, '7d', '90d')")
    found = alpha("skip", "sales", "2026-09-04T10:00Z", "--reason", "x", now=NOW)
    assert (found.status, "Traceback" in found.stderr) == (0, False), found


def test_what_a_person_does_waits_for_other_machines(alpha: Machine, beta: Machine) -> None:
    """`skip` and the like are refused while one of them runs."""
    held = Held(alpha, "sales", *HOURLY, now=NOW)
    refused = beta("forget", "sales", "--yes", now=NOW)
    assert (refused.status, "alpha" in refused.stderr) == (75, True)
    assert held.release().status == 0
    assert beta("forget", "sales", "--yes", now=NOW).status == 0


def test_nothing_to_do_takes_no_lock(alpha: Machine, beta: Machine, lock: SessionLock) -> None:
    """One read tells, also while the lock is another's."""
    assert alpha("run", "sales", *HOURLY, "--", "true", now=NOW).status == 0
    assert lock.acquire()
    second = beta("run", "sales", *HOURLY, "-v", "--", "true", now=NOW)
    assert (second.status, field(second.stderr, "reason")) == (0, "no-closed-window")
    assert beta.rows("SELECT job, reason, times FROM jobrun_skip") == [
        ("sales", "no-closed-window", 1)
    ]


def test_who_waits_outlasts_a_server_that_has_just_started(tmp_path: Path) -> None:
    """What was lost in its restart is left to who had it, for a moment; then it may be had."""
    with servers.own_postgres() as server:
        alpha = Machine(tmp_path / "alpha", "alpha", server.address)
        beta = Machine(tmp_path / "beta", "beta", server.address)
        held = Held(alpha, "sales", *HOURLY, now=NOW)
        alpha.crash(held)
        early = EarlyMachine(tmp_path / "early", "beta", server.address)
        assert "lock-held" in early("run", "sales", *HOURLY, "--", "true", now=NOW).stderr
        second = beta("run", "sales", *HOURLY, "--wait", "50s", "--", "true", now=NOW)
        assert (second.status, [line.split()[1] for line in second.lines]) == (
            0,
            ["LOST", "PROCESSED"],
        )


# -- what was printed on another machine ----------------------------------------------------------


def test_logs_of_another_machine_say_where_they_are(alpha: Machine, beta: Machine) -> None:
    """The output stays where it ran: the host is named, and what to type there."""
    alpha("run", "sales", *HOURLY, "--", "echo", "hello", now=NOW)
    here = alpha("logs", "sales", now=NOW)
    assert here.stdout == "hello\n"
    found = beta("logs", "sales", now=NOW)
    assert (found.status, found.stdout, "no longer" in found.stderr) == (0, "", False)
    assert found.lines[1:] == [
        "what it printed is not here: it is kept where it ran, on alpha",
        "jobrun: hint: on alpha: jobrun logs 1",
    ]
    alpha.rows("UPDATE jobrun_run SET \"user\" = 'etl'")
    assert beta("logs", "1", now=NOW).lines[-1] == "jobrun: hint: on alpha, as etl: jobrun logs 1"


def test_logs_of_what_runs_on_another_machine(alpha: Machine, beta: Machine) -> None:
    """Nobody follows what will never come; of a run that printed nothing there is nothing there."""
    held = Held(alpha, "sales", *HOURLY, now=NOW)
    found = beta("logs", "sales", "-f", now=NOW)
    assert (found.status, found.lines[-1]) == (0, "jobrun: hint: on alpha: jobrun logs 1")
    assert held.release().status == 0
    alpha("run", "still", "--", "true", now=NOW)
    assert beta("logs", "still", now=NOW).lines[-1] == "it printed nothing"


def test_logs_of_another_user_of_a_server(alpha: Machine) -> None:
    """Each user has a state folder of their own: what was kept there is not gone."""
    alpha("run", "sales", *HOURLY, "--", "echo", "hello", now=NOW)
    alpha.rows("UPDATE jobrun_run SET \"user\" = 'etl'")
    assert alpha("logs", "sales", now=NOW).stdout == "hello\n"  # it is here after all
    found = alpha("logs", "sales", now=NOW, env={"JOBRUN_HOME": str(alpha.folder / "other")})
    server = shell_text((places.find(None, alpha.environment).name,))
    assert found.lines[-1] == f"jobrun: hint: sudo -u etl -H jobrun logs 1 --ledger {server}"
