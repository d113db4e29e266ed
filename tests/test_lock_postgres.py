"""The lock among machines: who has it, when it is free, and what its holder notices."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from tests import servers
from tests.conftest import PYTHON, ROOT, until
from tests.ledger_calls import CALLER, begin, claim, schema_of

psycopg = pytest.importorskip("psycopg", reason=servers.INSTALL)

from jobrun.boottime import boottime  # noqa: E402
from jobrun.errors import ConfigError, Refused  # noqa: E402
from jobrun.ledger_postgres import open_ledger  # noqa: E402
from jobrun.lock_postgres import SessionLock  # noqa: E402
from jobrun.postgres_database import Database  # noqa: E402

TEN = 1788516000  # 2026-09-04T10:00:00Z
TTL = 1.8  # seconds; its holder's command would be given 0.3 to end


class Holder:
    """A process that holds the lock of the job while its run is open."""

    def __init__(self, address: str, ttl: float = TTL) -> None:
        with closing(open_ledger(address, CALLER)) as ledger:
            claimed = begin(ledger, claim(TEN)).claimed
            assert claimed is not None
        self.run = claimed.run_id
        self.process = subprocess.Popen(
            [PYTHON, "-m", "tests.holder", address, str(ttl), str(self.run)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.backend = int(self.hears("held"))

    def hears(self, word: str) -> str:
        """The next that it says begins so; the rest of it."""
        assert self.process.stdout is not None
        said, _, rest = self.process.stdout.readline().strip().partition(" ")
        assert said == word, (said, rest)
        return rest

    def is_kept(self) -> bool:
        """It is asked to end: it has heard of no loss."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.hears("end") == "None False"


@contextmanager
def holding(address: str, ttl: float = TTL) -> Iterator[Holder]:
    holder = Holder(address, ttl)
    try:
        yield holder
    finally:
        with suppress(ProcessLookupError):
            os.kill(holder.process.pid, signal.SIGCONT)
        holder.process.kill()
        with holder.process:  # closes its pipes
            pass


@pytest.fixture
def address(postgres: str) -> Iterator[str]:
    with schema_of(postgres) as address:
        open_ledger(address, CALLER).close()
        yield address


@contextmanager
def rival(address: str) -> Iterator[SessionLock]:
    with closing(Database(address)) as database:
        yield SessionLock(database, "sales", "db2:1", TTL, 0.3)


def free_after(lock: SessionLock, begun: float) -> float:
    """Seconds from an instant until the lock is to be had; it is taken."""
    until(lock.acquire, "the lock")
    return boottime() - begun


def query(address: str, sql: str) -> list[tuple[object, ...]]:
    with closing(psycopg.connect(address, autocommit=True)) as server:
        cursor = server.execute(sql)
        return cursor.fetchall() if cursor.description else []


def wait(seconds: float) -> None:
    """What is looked at is that nothing happens in that time."""
    deadline = time.monotonic() + seconds
    until(lambda: time.monotonic() >= deadline, "the clock")


def test_one_holder(address: str) -> None:
    """Another session does not get it, nor is kept waiting; another job's is another lock."""
    with holding(address) as holder, rival(address) as lock:
        begun = boottime()
        assert not lock.acquire()
        assert boottime() - begun < 1
        assert (lock.is_free(), lock.holder()) == (False, "db1:4711")
        other = SessionLock(lock._database, "sales", "db2:1", TTL, 0.3, slot=1)
        assert other.is_free()
        assert other.acquire()
        other.release()
        assert holder.is_kept()
        until(lock.is_free, "the release")
        assert lock.acquire(5)
        assert lock.is_held()
        lock.release()
        assert lock.acquire(), "released whole, however often its holder has asked"


def test_a_holder_that_is_killed(address: str) -> None:
    """The lock is free at once."""
    with holding(address) as holder, rival(address) as lock:
        assert not lock.acquire()
        begun = boottime()
        holder.process.kill()
        assert free_after(lock, begun) < TTL / 2


def test_a_holder_that_is_stopped(address: str) -> None:
    """After the ttl, not sooner than the holder's command would be dead."""
    with holding(address) as holder, rival(address) as lock:
        begun = boottime()
        os.kill(holder.process.pid, signal.SIGSTOP)
        assert TTL - 0.7 < free_after(lock, begun) < TTL + 0.5
        os.kill(holder.process.pid, signal.SIGCONT)


def test_a_holder_with_pauses(address: str) -> None:
    """Three of half the ttl: kept, the same session."""
    with holding(address, 3) as holder:
        for _ in range(3):
            os.kill(holder.process.pid, signal.SIGSTOP)
            wait(1.5)
            os.kill(holder.process.pid, signal.SIGCONT)
            wait(0.1)
        assert holder.is_kept()


def test_a_session_that_is_ended(address: str) -> None:
    """Its holder takes the lock again over a new connection, for the same run."""
    with holding(address) as holder, rival(address) as lock:
        for _ in range(3):
            begun = boottime()
            query(address, f"SELECT pg_terminate_backend({holder.backend})")
            before, holder.backend = holder.backend, int(holder.hears("again"))
            assert boottime() - begun < 1.5
            assert before != holder.backend
        assert not lock.acquire()
        assert holder.is_kept()


def test_what_only_sounds_like_a_loss(address: str) -> None:
    """Notifications, and a server that reads its settings anew."""
    with holding(address) as holder:
        for _ in range(5):
            query(address, "NOTIFY jobrun; SELECT pg_reload_conf()")
        wait(0.6)
        assert holder.is_kept()


def test_taken_over_meanwhile(address: str) -> None:
    """Whoever has the lock by now has taken the run for lost: the holder hears of it at once."""
    with holding(address, 6) as holder, rival(address) as lock:
        os.kill(holder.process.pid, signal.SIGSTOP)
        query(address, f"SELECT pg_terminate_backend({holder.backend})")
        assert lock.acquire(5)
        query(address, f"UPDATE jobrun_run SET outcome = 'lost' WHERE id = {holder.run}")
        begun = boottime()
        os.kill(holder.process.pid, signal.SIGCONT)
        assert "has taken over" in holder.hears("end")
        assert boottime() - begun < 0.5


def test_another_has_the_lock_and_not_the_run(address: str) -> None:
    """It may give it back: the holder goes on trying, until its time is over."""
    with holding(address) as holder, rival(address) as lock:
        os.kill(holder.process.pid, signal.SIGSTOP)
        query(address, f"SELECT pg_terminate_backend({holder.backend})")
        assert lock.acquire(5)
        os.kill(holder.process.pid, signal.SIGCONT)
        lock.release()
        holder.hears("again")
        assert holder.is_kept()


def test_a_connection_whose_end_the_server_has_not_heard_of(address: str) -> None:
    """A firewall forgets it: the session that still has the lock there is ended by its own role."""
    with relayed(address) as (through, cut), holding(through, 6) as holder:
        begun = boottime()
        cut()
        holder.hears("again")
        assert boottime() - begun < 1.5
        assert holder.is_kept()


@pytest.fixture(scope="module")
def own_server() -> Iterator[servers.Postgres]:
    with servers.own_postgres() as server:
        yield server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_a_server_that_is_restarted(own_server: servers.Postgres, how: signal.Signals) -> None:
    """The holder is there again before anybody else, and its command went on."""
    with schema_of(own_server.address) as address, holding(address, 6) as holder:
        own_server.stop(how)
        own_server.start()
        begun = boottime()
        holder.hears("again")
        assert boottime() - begun < 1.5
        assert holder.is_kept()


def test_a_server_that_has_lost_a_process(own_server: servers.Postgres) -> None:
    """It ends all sessions; who comes then knows that a holder may not be there again yet."""
    with schema_of(own_server.address) as address, holding(address, 6) as holder:
        with rival(address) as lock:
            until(lock.is_settled, "a server that has been there for a while")
            os.kill(lock._database.backend_pid, signal.SIGKILL)
        holder.hears("again")
        with rival(address) as lock:
            assert not lock.is_settled()
        assert holder.is_kept()


def test_a_server_that_does_not_come_back(own_server: servers.Postgres) -> None:
    """Lost when there would be no time left to end the command, and why is told."""
    with schema_of(own_server.address) as address, holding(address) as holder:
        own_server.stop()
        begun = boottime()
        why = holder.hears("end")
        own_server.start()
    assert boottime() - begun < TTL
    assert why.endswith(" True")
    assert "terminating connection" in why


def test_direct_connections_are_told_from_a_pooler(address: str) -> None:
    """None of twenty is taken for one."""
    for _ in range(20):
        with rival(address) as lock:
            assert lock.acquire()


def test_a_connection_that_is_lost_between_two_statements(address: str) -> None:
    """Nothing is written over a new one before the lock has been taken there."""
    with rival(address) as lock:
        assert lock.acquire()
        database = lock._database
        query(address, f"SELECT pg_terminate_backend({database.backend_pid})")
        for _ in range(2):
            with pytest.raises(Refused):
                database.rows("SELECT 1")
        assert lock.is_held()
        assert database.rows("SELECT 1") == [(1,)]
        with rival(address) as other:
            query(address, f"SELECT pg_terminate_backend({database.backend_pid})")
            assert other.acquire(5)
            with pytest.raises(Refused):
                database.rows("SELECT 1")
            assert not lock.is_held()
            assert database.rows("SELECT 1") == [(1,)], "bound to it no longer"


def test_a_server_without_the_setting(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """78: before PostgreSQL 14 a stopped holder would have the lock for ever."""
    monkeypatch.setattr("jobrun.lock_postgres._FIRST_VERSION", 999_999)
    with rival(address) as lock, pytest.raises(ConfigError, match="PostgreSQL 18"):
        lock.acquire()


@contextmanager
def relayed(address: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """The address of a relay to the server, and what closes the client's side of it alone."""
    import re
    import socket
    import threading

    port = int(re.search(r":(\d+)/", address)[1])  # type: ignore[index]
    listener = socket.create_server(("127.0.0.1", 0))
    clients: list[socket.socket] = []
    ends: list[socket.socket] = [listener]

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client = listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", port))
                clients.append(client)
                ends.extend((client, server))
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    def cut() -> None:
        clients.pop().shutdown(socket.SHUT_RDWR)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield re.sub(r":\d+/", f":{listener.getsockname()[1]}/", address), cut
    finally:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.mark.parametrize("last", ["read", "put"])
def test_a_holder_that_is_stopped_in_a_transaction(address: str, last: str) -> None:
    """Others wait for it no longer than the ttl, wherever in it that was."""
    ttl = 1.0
    with closing(Database(address)) as database, closing(Database(address)) as other:
        lock = SessionLock(database, "sales", "db1:1", ttl, 0)
        assert lock.acquire()
        with suppress(Refused), database.writing(job="sales"):
            if last == "read":
                database.rows("SELECT version FROM jobrun_meta")
            else:
                database.put("UPDATE jobrun_meta SET version = version")
            begun = boottime()
            with other.writing(10, job="sales"):
                pass
            assert boottime() - begun < ttl + 0.5
            database.put("UPDATE jobrun_meta SET version = version + 1")
        lock.release()
        assert database.rows("SELECT version FROM jobrun_meta") == [(1,)]


def test_a_holder_that_is_stopped_right_after_its_transaction(address: str) -> None:
    """The server counts from there, whatever way the transaction was sent."""
    with closing(Database(address)) as database, rival(address) as other:
        lock = SessionLock(database, "sales", "db1:1", 1.0, 0)
        assert lock.acquire()
        with database.writing(job="sales"):
            database.put("UPDATE jobrun_meta SET version = version")
        begun = boottime()
        assert 0.8 < free_after(other, begun) < 1.5
        with pytest.raises(Refused):
            database.rows("SELECT 1")
        lock.release()
