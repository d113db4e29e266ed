"""The lock among machines: who has it, when it is free, and what its holder notices."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from tests import holding, servers
from tests.conftest import Unwilling, until
from tests.cut import cable
from tests.holding import KILL_AFTER, TTL, Holder
from tests.ledger_calls import CALLER, begin, claim, schema_of

psycopg = pytest.importorskip("psycopg", reason=servers.INSTALL)

from jobrun import lock_postgres  # noqa: E402
from jobrun.boottime import boottime  # noqa: E402
from jobrun.errors import ConfigError, Refused  # noqa: E402
from jobrun.ledger_postgres import open_ledger  # noqa: E402
from jobrun.lock_postgres import SessionLock  # noqa: E402
from jobrun.postgres_database import Database  # noqa: E402

TEN = 1788516000  # 2026-09-04T10:00:00Z


@contextmanager
def running(address: str, ttl: float = TTL, kill_after: float = KILL_AFTER) -> Iterator[Holder]:
    """A process that holds the lock of the job while its run is open."""
    with closing(open_ledger(address, CALLER)) as ledger:
        claimed = begin(ledger, claim(TEN)).claimed
    assert claimed is not None
    with holding.holding(address, ttl, kill_after, claimed.run_id) as holder:
        yield holder


@pytest.fixture
def address(postgres: str) -> Iterator[str]:
    with schema_of(postgres) as address:
        open_ledger(address, CALLER).close()
        yield address


@contextmanager
def rival(address: str) -> Iterator[SessionLock]:
    with closing(Database(address)) as database:
        yield SessionLock(database, "sales", "db2:1", TTL, KILL_AFTER)


def query(address: str, sql: str) -> list[tuple[object, ...]]:
    with closing(psycopg.connect(address, autocommit=True)) as server:
        cursor = server.execute(sql)
        return cursor.fetchall() if cursor.description else []


def spoken(address: str, holder: Holder, times: int) -> None:
    """The server has heard of it so often from here on: all but the last it has answered."""
    asked = f"SELECT query_start FROM pg_stat_activity WHERE pid = {holder.backend}"
    seen = {*query(address, asked)}

    def has_spoken() -> bool:
        seen.update(query(address, asked))
        return len(seen) > times

    until(has_spoken, "words of the holder")


def silent(address: str, holder: Holder, seconds: float) -> None:
    """The server has not heard of it for so long."""
    asked = f"SELECT clock_timestamp() - state_change > interval '{seconds} s'"
    asked += f" FROM pg_stat_activity WHERE pid = {holder.backend}"
    until(lambda: query(address, asked) == [(True,)], "silence")


def test_one_holder(address: str) -> None:
    """Another session does not get it, nor is kept waiting; another job's is another lock."""
    with running(address) as holder, rival(address) as lock:
        assert not lock.acquire(signals=Unwilling())
        assert (lock.is_free(), lock.holder()) == (False, "db1:4711")
        other = SessionLock(lock._database, "sales", "db2:1", TTL, KILL_AFTER, slot=1)
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
    """The lock is free at once: long before its ttl is over."""
    with running(address) as holder, rival(address) as lock:
        assert not lock.acquire()
        holder.process.kill()
        until(lock.acquire, "the lock")


def test_a_holder_that_is_stopped(address: str) -> None:
    """After the ttl, not sooner than the holder's command would be dead."""
    ttl, kill_after = 6, 2
    with running(address, ttl, kill_after) as holder, rival(address) as lock:
        holder.stop()
        until(lock.acquire, "the lock", 60)
        taken = boottime()
        holder.go_on()
        assert taken >= holder.end().until + kill_after


def test_a_holder_with_pauses(address: str) -> None:
    """Each longer than it is silent otherwise, together longer than its command has: kept."""
    with running(address, 10, 3) as holder:
        for _ in range(2):
            holder.stop()
            silent(address, holder, 3.5)
            holder.go_on()
            spoken(address, holder, 1)
        assert holder.is_kept()


@pytest.mark.parametrize(("ttl", "kill_after"), [(6, 1), (30, 10), (60, 20), (600, 5)])
def test_a_pause_of_half_the_ttl_is_survived(address: str, ttl: float, kill_after: float) -> None:
    """Right before the server is asked, too."""
    with closing(Database(address)) as database:
        lock = SessionLock(database, "sales", "db1:1", ttl, kill_after)
        assert lock.acquire()
        lock.keeper.guard(1)
        assert lock.keeper.until - lock.keeper.due >= ttl / 2
        lock.release()


def test_a_session_that_is_ended(address: str) -> None:
    """Its holder takes the lock again over a new connection, for the same run."""
    with running(address) as holder, rival(address) as lock:
        for _ in range(3):
            before = holder.backend
            query(address, f"SELECT pg_terminate_backend({before})")
            holder.hears_again()
            assert before != holder.backend
        assert not lock.acquire()
        assert holder.is_kept()


def test_what_only_sounds_like_a_loss(address: str) -> None:
    """Notifications, and a server that reads its settings anew."""
    with running(address, 10, 3) as holder:
        for _ in range(5):
            query(address, "NOTIFY jobrun; SELECT pg_reload_conf()")
        spoken(address, holder, 2)
        assert holder.is_kept()


def test_taken_over_meanwhile(address: str) -> None:
    """Whoever has the lock by now has taken the run for lost: the holder hears of it at once."""
    with running(address) as holder, rival(address) as lock:
        holder.stop()
        query(address, f"SELECT pg_terminate_backend({holder.backend})")
        assert lock.acquire(20)
        query(address, "UPDATE jobrun_run SET outcome = 'lost'")
        holder.go_on()
        end = holder.end()
        assert "has taken over" in end.why
        assert end.at < end.until


def test_another_has_the_lock_and_not_the_run(address: str) -> None:
    """It may give it back: the holder goes on trying, until its time is over."""
    with cable(address) as (wire, near), running(near) as holder, rival(address) as lock:
        holder.stop()
        query(address, f"SELECT pg_terminate_backend({holder.backend})")
        assert lock.acquire(20)
        before = wire.taken
        holder.go_on()
        until(lambda: wire.taken > before + 1, "a second try")
        lock.release()
        holder.hears_again()
        assert holder.is_kept()


def test_a_connection_whose_end_the_server_has_not_heard_of(address: str) -> None:
    """A firewall forgets it: the session that still has the lock there is ended by its own role."""
    with relayed(address) as (through, cut), running(through) as holder:
        cut()
        holder.hears_again()
        assert holder.is_kept()


@pytest.fixture(scope="module")
def own_server() -> Iterator[servers.Postgres]:
    with servers.own_postgres() as server:
        yield server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_a_server_that_is_restarted(own_server: servers.Postgres, how: signal.Signals) -> None:
    """The holder is there again before anybody else, and its command went on."""
    with schema_of(own_server.address) as address, running(address) as holder:
        own_server.stop(how)
        own_server.start()
        holder.hears_again()
        assert holder.is_kept()


# An instant at which it has not been there for long, if it ends all sessions after this.
SOON = "SELECT extract(epoch FROM clock_timestamp()) + 3"


def test_a_server_that_has_lost_a_process(
    own_server: servers.Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends all sessions; who comes then knows that a holder may not be there again yet."""
    with schema_of(own_server.address) as address, running(address) as holder:
        with rival(address) as lock:
            until(lock.is_settled, "a server that has been there for a while")
            ((soon,),) = lock._database.rows(SOON)
            os.kill(lock._database.backend_pid, signal.SIGKILL)
        holder.hears_again()
        by_then = lock_postgres._IS_SETTLED.replace("clock_timestamp()", f"to_timestamp({soon})")
        monkeypatch.setattr(lock_postgres, "_IS_SETTLED", by_then)
        with rival(address) as lock:
            assert not lock.is_settled()
        assert holder.is_kept()


def test_a_server_that_does_not_come_back(own_server: servers.Postgres) -> None:
    """Lost when there would be no time left to end the command, and why is told."""
    ttl, kill_after = 10, 5
    with (
        schema_of(own_server.address) as address,
        running(address, ttl, kill_after) as holder,
    ):
        own_server.stop()
        gone = boottime()
        end = holder.end()
        own_server.start()
    assert end.until - 0.1 <= end.at < gone + ttl - 2
    assert "terminating connection" in end.why


def test_direct_connections_are_told_from_a_pooler(address: str) -> None:
    """None of twenty is taken for one."""
    for _ in range(20):
        with rival(address) as lock:
            assert lock.acquire(20)


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
            assert other.acquire(20)
            with pytest.raises(Refused):
                database.rows("SELECT 1")
            assert not lock.is_held()
            assert database.rows("SELECT 1") == [(1,)], "bound to it no longer"


def test_what_became_of_an_earlier_connection(address: str) -> None:
    """Once the lock is taken on a new one it counts no more: that is no loss of this one."""
    with rival(address) as lock:
        assert lock.acquire()
        lock.release()
        connection = lock._database.connection
        query(address, f"SELECT pg_terminate_backend({lock._database.backend_pid}, 20000)")
        connection.pgconn.consume_input()
        connection.pgconn.notifies()
        connection.close()
        assert lock.acquire()
        lock.keeper.guard(1)
        lock.keeper.on_ready()  # for nothing
        assert not lock._database.connection.closed


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
    """Others wait for it until its ttl is over, wherever in it that was."""
    with closing(Database(address)) as database, closing(Database(address)) as other:
        lock = SessionLock(database, "sales", "db1:1", 3.0, 0)
        assert lock.acquire()
        others: list[str] = []
        with suppress(Refused), database.writing(job="sales"):
            if last == "read":
                database.rows("SELECT version FROM jobrun_meta")
            else:
                database.put("UPDATE jobrun_meta SET version = version")
            with other.writing(60, job="sales"):
                others.append("has had its turn")
            database.put("UPDATE jobrun_meta SET version = version + 1")
        assert others
        lock.release()
        assert database.rows("SELECT version FROM jobrun_meta") == [(1,)]


def test_a_holder_that_is_stopped_right_after_its_transaction(address: str) -> None:
    """The server counts from there, whatever way the transaction was sent."""
    ttl = 3.0
    with closing(Database(address)) as database, rival(address) as other:
        lock = SessionLock(database, "sales", "db1:1", ttl, 0)
        assert lock.acquire()
        with database.writing(job="sales"):
            database.put("UPDATE jobrun_meta SET version = version")
            begun = boottime()
        until(other.acquire, "the lock", 60)
        assert boottime() - begun >= ttl
        with pytest.raises(Refused):
            database.rows("SELECT 1")
        lock.release()
