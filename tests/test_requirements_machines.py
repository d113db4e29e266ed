"""Section D of the requirements, several machines: one test a row, named after its id.

Each machine is jobrun with a name, a state folder and processes of its own; all share one
PostgreSQL. Staging beside production (D8) is in test_requirements.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.conftest import PYTHON, ROOT, is_alive, until
from tests.machines import HOURLY, NOW, SHORT, Machine, runs
from tests.scenes import HOLD, Held, field, linux

pytest.importorskip("psycopg", reason=servers.INSTALL)

from jobrun.boottime import boottime
from jobrun.lock_postgres import SessionLock
from jobrun.postgres_database import Database

pytestmark = linux

DAEMON = (PYTHON, "-uc", "import os, signal; print(os.getpid()); signal.pause()")


@pytest.fixture
def machines(tmp_path: Path, alpha: Machine, beta: Machine) -> Iterator[tuple[Machine, ...]]:
    """Three, on one ledger."""
    gamma = Machine(tmp_path / "gamma", "gamma", alpha.address)
    yield alpha, beta, gamma
    gamma.end()


def lock_of(machine: Machine, job: str) -> SessionLock:
    return SessionLock(Database(machine.address), job, "test:1", 30, 1)


def is_free(machine: Machine, job: str) -> bool:
    lock = lock_of(machine, job)
    with closing(lock._database):
        return lock.is_free()


def guardian_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def sessions(machine: Machine, held: Held) -> list[int]:
    """What the server counts of a call."""
    asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'jobrun {}/{}'"
    return [pid for (pid,) in machine.rows(asked.format(machine.host, held.wrapper.pid))]


def test_D1_of_three_machines_one_runs_the_window(machines: tuple[Machine, ...]) -> None:
    """All start in the same moment; the losers skip, exit 0: held elsewhere."""
    calls = [
        each.start("run", "sales", *HOURLY, "--stdin", "inherit", "--", *HOLD,
                   stdin=subprocess.PIPE, now=NOW)
        for each in machines
    ]  # fmt: skip

    def losers() -> list[subprocess.Popen[bytes]]:
        return [call for call in calls if call.poll() is not None]

    until(lambda: len(losers()) == 2, "two of them to withdraw")
    (winner,) = (call for call in calls if call not in losers())
    for loser in losers():
        out, err = loser.communicate(timeout=20)
        assert (loser.returncode, out) == (0, b"")
        assert b"reason=lock-held holder=" in err
        assert field(err.decode(), "holder").endswith(f":{winner.pid}")
    winner.communicate(timeout=20)
    assert winner.returncode == 0
    assert [outcome for _, _, outcome in runs(machines[0])] == ["succeeded"]


def test_D2_once_a_slot_comes_from_the_record_and_not_from_the_lock(
    machines: tuple[Machine, ...],
) -> None:
    """The job takes 20 ms, one machine is late: one run a window; with the lock alone, two."""
    alpha, beta, _ = machines
    short = ("--", "sleep", "0.02")
    for machine in (alpha, beta):
        assert machine("run", "sales", *HOURLY, *short, now=NOW).status == 0
        assert machine("run", "locked", *short, now=NOW).status == 0
    counted = "SELECT job, count(*) FROM jobrun_run GROUP BY job ORDER BY job"
    assert alpha.rows(counted) == [("locked", 2), ("sales", 1)]


def test_D3_a_lost_lock_stops_the_command_and_refuses_its_result(
    machines: tuple[Machine, ...],
) -> None:
    """Its session has ended while it stood still, and another machine was faster."""
    alpha, beta, _ = machines
    held = Held(alpha, "sales", *HOURLY, now=NOW)
    os.kill(held.wrapper.pid, signal.SIGSTOP)
    alpha.end_session(held)
    until(lambda: is_free(alpha, "sales"), "the lock")
    assert " PROCESSED " in beta("run", "sales", *HOURLY, "--", "true", now=NOW).stderr
    os.kill(held.wrapper.pid, signal.SIGCONT)
    until(lambda: not is_alive(held.pid), "the end of the command")  # its stdin is open
    late = held.release()
    assert late.status == 76
    assert " FENCED job=sales " in late.stderr
    assert "lost the lock: " in late.stderr
    assert runs(alpha) == [("alpha", 1, "fenced"), ("beta", 2, "succeeded")]


def test_D4_one_leads_for_its_life_and_another_takes_over(machines: tuple[Machine, ...]) -> None:
    """kill -9 of the leader: its daemon is dead before the other machine's begins."""
    alpha, beta, _ = machines
    leader = alpha.start("lead", "hub", "--", *DAEMON)
    assert leader.stdout is not None
    daemon = int(leader.stdout.readline())
    standby = beta.start("lead", "hub", "--", *DAEMON)
    assert standby.stderr is not None
    assert standby.stdout is not None
    assert f"what=standby holder=alpha:{leader.pid} ".encode() in standby.stderr.readline()
    leader.kill()
    follower = int(standby.stdout.readline())
    assert not is_alive(daemon)
    assert is_alive(follower)
    standby.send_signal(signal.SIGTERM)
    standby.communicate(timeout=20)
    assert [(host, outcome) for host, _, outcome in runs(alpha)] == [
        ("alpha", "lost"), ("beta", "interrupted"),
    ]  # fmt: skip


def test_D5_after_a_kill_minus_9_the_lock_is_free_in_an_instant(
    machines: tuple[Machine, ...],
) -> None:
    """With a stock server and no setting, long before its ttl (`tests/bench/machines.py 2`)."""
    alpha = machines[0]
    for job in ("a", "b", "c"):
        held = Held(alpha, job, *HOURLY, "--lock-ttl", "5m", now=NOW)
        lock = lock_of(alpha, job)
        with closing(lock._database):
            assert not lock.is_free()
            alpha.crash(held)
            until(lock.is_free, "the lock")


def test_D6_a_write_with_an_older_token_is_refused(
    machines: tuple[Machine, ...], tmp_path: Path
) -> None:
    """STOP for longer than the lock lasts, CONT: no second effect, and no second result.

    The command and its table are those of examples/fencing.
    """
    alpha, beta, _ = machines
    reports = tmp_path / "reports.db"
    report = (PYTHON, str(ROOT / "examples/fencing/report.py"), str(reports), "orders.txt")
    call = ("run", "report", *HOURLY, *SHORT)
    slow = alpha.folder / "orders.txt"
    os.mkfifo(slow)
    (beta.folder / "orders.txt").write_text("500\n")
    old = alpha.start(*call, "--", *report, now=NOW)
    with open(slow, "w", encoding="ascii") as orders:  # once it reads them
        ((command,),) = alpha.rows("SELECT child_pid FROM jobrun_run")
        frozen = (old.pid, guardian_of(command), command)
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        new = beta(*call, "--wait", "50s", "--", *report, now=NOW)
        assert (new.status, [line.split()[1] for line in new.lines]) == (0, ["LOST", "PROCESSED"])
        orders.write("100\n")
    os.kill(command, signal.SIGCONT)  # the first of its machine to go on
    until(lambda: not is_alive(command), "its end")
    for pid in frozen[:2]:
        os.kill(pid, signal.SIGCONT)
    _, said = old.communicate(timeout=20)
    assert b"a newer run has written it, this one (token 1) has no say" in said
    assert b" FENCED job=report " in said
    assert old.returncode in (
        1,
        76,
    )  # the command's, or that of a lost lock: whichever is met first
    assert contents(reports) == [("report:2026-09-04T11:00:00+00:00", 500, 2)]
    assert runs(alpha) == [("alpha", 1, "fenced"), ("beta", 2, "succeeded")]


def contents(reports: Path) -> list[tuple[Any, ...]]:
    import sqlite3

    with closing(sqlite3.connect(reports)) as connection:
        return connection.execute("SELECT key, cents, fence FROM report").fetchall()


def test_D7_it_waits_as_long_as_it_is_told_and_gives_up(machines: tuple[Machine, ...]) -> None:
    """For a run on another machine as for one of its own."""
    alpha, beta, _ = machines
    held = Held(alpha, "sales", *HOURLY, now=NOW)
    begun = boottime()
    gives_up = beta("run", "sales", *HOURLY, "--wait", "1s", "--", "true", now=NOW)
    assert boottime() - begun >= 1
    assert (gives_up.status, "reason=lock-held" in gives_up.stderr) == (0, True)
    waits = beta.start("run", "sales", *HOURLY, "--wait", "20s", "-v", "--", "true", now=NOW)
    asks = "SELECT count(*) > 1 FROM pg_stat_activity WHERE application_name LIKE 'jobrun%'"
    until(lambda: alpha.rows(asks) == [(True,)], "the other machine")
    assert held.release().status == 0
    _, said = waits.communicate(timeout=20)
    assert (waits.returncode, b"reason=no-closed-window" in said) == (0, True)


def test_D9_a_lock_that_is_held_is_one_connection(machines: tuple[Machine, ...]) -> None:
    """Counted on the server: while the command runs, after the lock was taken again, at its end."""
    alpha = machines[0]
    held = Held(alpha, "sales", *HOURLY, "--first", "2026-09-04T10:00Z", now=NOW)
    (session,) = sessions(alpha, held)
    alpha.end_session(held)
    until(lambda: sessions(alpha, held) not in ([], [session]), "another session")
    until(lambda: not is_free(alpha, "sales"), "the lock taken again")
    assert len(sessions(alpha, held)) == 1
    assert held.release().status == 0
    until(lambda: sessions(alpha, held) == [], "the end of its session")


def test_M17_cron_decides_when_and_hosts_share_the_windows(machines: tuple[Machine, ...]) -> None:
    """Two machines take a range together, the third does what is new: each window once."""
    alpha, beta, gamma = machines
    hourly = ("run", "j", "--every", "1h", "--first", "none")
    assert alpha(*hourly, "--", "true", now="2026-09-04T10:05Z").status == 0
    span = ("--from", "2026-09-02T00:00Z", "--to", "2026-09-03T00:00Z", "--parallel", "2")
    go = alpha.folder / "go"
    command = ("--", "sh", "-c", f"until [ -e {go} ]; do sleep 0.01; done")
    calls = [
        machine.start("backfill", "j", *span, *command, now="2026-09-04T11:05Z")
        for machine in (alpha, beta)
    ]
    until(lambda: len(runs(alpha)) == 4, "all workers")
    new = gamma(*hourly, "--overlap", "allow", "--", "true", now="2026-09-04T11:05Z")
    assert (new.status, "PROCESSED job=j" in new.stderr) == (0, True)
    go.touch()
    told = [call.communicate(timeout=60)[1].decode() for call in calls]
    assert [call.returncode for call in calls] == [0, 0], "".join(told)
    assert sorted({host for host, _, _ in runs(alpha)}) == ["alpha", "beta", "gamma"]
    assert {outcome for _, _, outcome in runs(alpha)} == {"succeeded"}
    once = alpha.rows("SELECT count(*), count(DISTINCT key) FROM jobrun_run")
    assert once == [(25, 25)]
