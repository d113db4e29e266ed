"""`lead` and `backfill --parallel` on several machines with one PostgreSQL (D4, M17)."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.conftest import PYTHON, is_alive, make_end, until
from tests.machines import LONG, SHORT, Machine
from tests.scenes import linux

psycopg = pytest.importorskip("psycopg", reason=servers.INSTALL)

from tests.test_lead import DAEMON, parent_of  # noqa: E402
from tests.test_parallel import WAITS, argv, begin  # noqa: E402

pytestmark = linux

NOW = "2026-09-20T12:05Z"


class Candidate:
    """A call of `lead` on a machine; its lines are in a file. All daemons are in one folder."""

    def __init__(self, machine: Machine, shared: Path, *options: str, deaf: bool = False) -> None:
        self.machine = machine
        self.path = machine.folder / "lines"
        daemon = ("--", PYTHON, "-c", DAEMON, *(["deaf"] if deaf else []))
        with self.path.open("a") as lines:
            self.process = machine.start(
                "lead", "hub", "-C", str(shared), *options, *daemon,
                now=NOW, stderr=lines, stdout=lines,
            )  # fmt: skip

    def says(self, text: str, times: int = 1) -> None:
        until(lambda: self.path.read_text().count(text) >= times, f"{text} in {self.path}", 60)

    def send(self, number: int) -> None:
        self.process.send_signal(number)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """Where the daemons are: none is left."""
    folder = tmp_path / "shared"
    folder.mkdir()
    yield folder
    for path in folder.glob("leads.*"):
        make_end(path.read_text())


def daemons(shared: Path) -> list[int]:
    """Their pids, in the order of their tokens."""
    found = sorted(shared.glob("leads.*"), key=lambda path: int(path.suffix[1:]))
    return [int(path.read_text()) for path in found]


def daemon(shared: Path, number: int, seconds: float = 60) -> int:
    """The pid of the nth one, once it is there."""
    until(lambda: len(daemons(shared)) >= number, f"daemon {number}", seconds)
    return daemons(shared)[number - 1]


def both(alpha: Machine, beta: Machine, shared: Path, *options: str) -> tuple[Candidate, Candidate]:
    """One that leads, one that stands by."""
    first = Candidate(alpha, shared, *options)
    daemon(shared, 1)
    second = Candidate(beta, shared, *options)
    second.says(f"what=standby holder=alpha:{first.process.pid}")
    return first, second


def test_another_machine_leads_after_a_crash(alpha: Machine, beta: Machine, shared: Path) -> None:
    """All of the leader is gone at once: the other one leads with its next look."""
    first, second = both(alpha, beta, shared, *LONG)
    pid = daemon(shared, 1)
    guardian = parent_of(pid)
    first.send(signal.SIGSTOP)  # or one of them ends another
    for each in (guardian, pid, first.process.pid):
        os.kill(each, signal.SIGKILL)
    daemon(shared, 2)
    second.says("what=leads")
    assert "LOST job=hub" in second.path.read_text()
    second.send(signal.SIGTERM)
    assert second.process.wait(20) == 143


def test_a_guardian_ends_the_daemon_before_another_machine_leads(
    alpha: Machine, beta: Machine, shared: Path
) -> None:
    """kill -9 of the wrapper, a daemon that ignores TERM: the lock is kept until it is dead."""
    first = Candidate(alpha, shared, *LONG, "-k", "1s", deaf=True)
    pid = daemon(shared, 1)
    second = Candidate(beta, shared, *LONG)
    second.says("what=standby")
    first.process.kill()
    daemon(shared, 2)
    assert not is_alive(pid)
    assert second.process.poll() is None  # a daemon that finds another one fails


def test_a_leader_that_is_stopped_stands_by_afterwards(
    alpha: Machine, beta: Machine, shared: Path
) -> None:
    """STOP: its guardian ends the daemon in time, the other machine leads; CONT: it stands by."""
    first, second = both(alpha, beta, shared, *SHORT)
    pid = daemon(shared, 1)
    first.send(signal.SIGSTOP)
    daemon(shared, 2)
    assert not is_alive(pid)
    first.send(signal.SIGCONT)
    first.says(f"what=standby holder=beta:{second.process.pid}")
    assert first.process.poll() is None
    second.send(signal.SIGTERM)
    assert second.process.wait(20) == 143
    daemon(shared, 3)


def test_a_session_that_is_ended_changes_nothing(
    alpha: Machine, beta: Machine, shared: Path
) -> None:
    """The lock is taken again for the same daemon."""
    first, second = both(alpha, beta, shared)
    session = (
        "SELECT pid FROM pg_stat_activity WHERE application_name ="
        f" 'jobrun alpha/{first.process.pid}'"
    )
    ((before,),) = alpha.rows(session)
    alpha.rows(f"SELECT pg_terminate_backend({before})")
    until(lambda: alpha.rows(session) not in ([], [(before,)]), "its new session")
    assert is_alive(daemon(shared, 1))
    first.send(signal.SIGTERM)
    assert first.process.wait(20) == 143
    daemon(shared, 2)
    second.says("what=leads")


def test_who_stands_by_holds_no_snapshot(alpha: Machine, beta: Machine, shared: Path) -> None:
    """Row 21: one idle session, no transaction, so VACUUM removes what is dead."""
    both(alpha, beta, shared)
    alpha.rows("CREATE TABLE t (n int)")
    alpha.rows("INSERT INTO t SELECT generate_series(1, 1000)")
    seen: list[object] = []
    asked = (
        "SELECT query_start, state, backend_xmin FROM pg_stat_activity"
        " WHERE application_name = 'jobrun'"
    )

    def has_looked() -> bool:
        ((at, state, xmin),) = alpha.rows(asked)
        seen.append(at)
        assert xmin is None or state == "active"
        return len(set(seen)) > 3

    def is_removed() -> bool:
        alpha.rows("VACUUM t")
        return alpha.rows("SELECT pg_relation_size('t')") == [(0,)]

    until(has_looked, "three looks, none of which waits for the lock")
    alpha.rows("DELETE FROM t")
    until(is_removed, "the rows to be gone: not in the midst of a look")


def test_a_server_that_is_down(tmp_path: Path, shared: Path) -> None:
    """The daemon is ended before another one could begin; each says so once, and tries on."""
    with servers.own_postgres() as server:
        machines = [Machine(tmp_path / host, host, server.address) for host in ("alpha", "beta")]
        first, second = both(machines[0], machines[1], shared, *SHORT)
        pid = daemon(shared, 1)
        server.stop()
        until(lambda: not is_alive(pid), "the end of the daemon")
        second.says("error: ")
        hang_up_on(server.port, times=4)
        server.start()
        daemon(shared, 2)
        assert len(daemons(shared)) == 2
        assert [each.process.poll() for each in (first, second)] == [None, None]
        assert second.path.read_text().count("error: ") == 1
        for machine in machines:
            machine.end()


def hang_up_on(port: int, times: int) -> None:
    """Whoever asks the server that is down is told so in other words than by nobody."""
    with socket.create_server(("127.0.0.1", port)) as nobody:
        nobody.settimeout(60)
        for _ in range(times):
            nobody.accept()[0].close()


def test_a_machine_that_dies_leaves_its_windows_to_the_others(
    alpha: Machine, beta: Machine
) -> None:
    """backfill --parallel: all of one machine is gone at once, midway; each window is done."""
    begin(alpha)
    calls = []
    for machine in (alpha, beta):
        here = ("-C", str(machine.folder))  # not that of the last call
        parallel = argv(9, "--parallel", "2", *here, script=WAITS)
        calls.append(machine.start(*parallel, now=NOW))
        until(lambda folder=machine.folder: len(list(folder.glob("j_*Z"))) == 2, "commands")  # type: ignore[misc]
    found = alpha.rows("SELECT pid, child_pid FROM jobrun_run WHERE host = 'alpha' ORDER BY id")
    workers = [(pid, child) for pid, child in found if child is not None][-2:]
    for worker, _ in workers:
        os.kill(worker, signal.SIGSTOP)
    calls[0].kill()  # before it could begin another worker
    for worker, child in workers:
        for pid in (parent_of(child), child, worker):
            os.kill(pid, signal.SIGKILL)
    gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'jobrun alpha/%'"
    until(lambda: beta.rows(gone) == [(0,)], "the server to notice")
    settled = "SELECT clock_timestamp() - pg_postmaster_start_time() > interval '3 s'"
    until(lambda: beta.rows(settled) == [(True,)], "a server that has been there for a while")
    (beta.folder / "go").touch()
    _, err = calls[1].communicate(timeout=60)
    assert calls[1].returncode == 0, err
    states = beta.rows(
        "SELECT state, attempts, count(*) FROM jobrun_window GROUP BY 1, 2 ORDER BY 2"
    )
    assert states == [("processed", 1, 7), ("processed", 2, 2)]
    assert b"hint: 9 windows: 9 processed\n" in err
