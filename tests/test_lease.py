"""The lock where a pooler stands before the server: a row that expires."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.conftest import until
from tests.cut import cable
from tests.ledger_calls import CALLER, schema_of
from tests.machines import HOURLY, NOW, Machine
from tests.scenes import Held, field
from tests.test_lock_postgres import query, running

psycopg = pytest.importorskip("psycopg", reason=servers.INSTALL)

from jobrun.boottime import boottime  # noqa: E402
from jobrun.ledger_postgres import open_ledger  # noqa: E402
from jobrun.lock_lease import LeaseLock  # noqa: E402
from jobrun.lock_postgres import SessionLock  # noqa: E402
from jobrun.postgres_database import Database  # noqa: E402

Kind = Callable[..., Any]
LEASE = ("--lock", "lease", "--lock-ttl", "7s", "-k", "3s")


@pytest.fixture
def address(postgres: str) -> Iterator[str]:
    with schema_of(postgres) as address:
        open_ledger(address, CALLER).close()
        yield address


@contextmanager
def lock_of(
    address: str, kind: Kind, ttl: float = 30, job: str = "sales", slot: int | None = None
) -> Iterator[Any]:
    with closing(Database(address)) as database:
        lock = kind(database, job, f"{kind.__name__}:1", ttl, 0, slot)
        yield lock
        lock.release()


@pytest.mark.parametrize("first", [SessionLock, LeaseLock])
@pytest.mark.parametrize("second", [SessionLock, LeaseLock])
def test_one_holder_whichever_way(address: str, first: Kind, second: Kind) -> None:
    """Also where one call takes it by its session and another by a lease."""
    with lock_of(address, first) as one, lock_of(address, second) as other:
        assert one.acquire()
        assert not other.acquire()
        assert (other.is_free(), other.holder()) == (False, f"{first.__name__}:1")
        assert one.is_held()
        one.release()
        assert other.acquire()
        assert not one.acquire()


def test_a_holder_that_is_not_heard_of(address: str) -> None:
    """Another has it after the ttl, not before; then it is lost for good."""
    with lock_of(address, LeaseLock, ttl=1) as one, lock_of(address, LeaseLock) as other:
        begun = boottime()
        assert one.acquire()
        until(other.acquire, "the lease")
        assert boottime() - begun >= 1
        assert not one.is_held()
        one.release()
        assert other.is_held()


@pytest.mark.parametrize("slot", [None, 1])
def test_a_lease_is_kept_whatever_its_job_is_called(address: str, slot: int | None) -> None:
    """Also like one of our tables; and that of a slot, over a new connection too."""
    with lock_of(address, LeaseLock, job="jobrun_lock", slot=slot) as lock:
        assert lock.acquire()
        assert lock.is_held()
        query(address, f"SELECT pg_terminate_backend({lock._database.backend_pid})")
        assert lock.is_held()


def test_a_lease_that_has_expired_is_lost_though_nobody_has_it(address: str) -> None:
    """Whoever took it by a session meanwhile has left no trace in it."""
    with lock_of(address, LeaseLock, ttl=0.3) as one, lock_of(address, SessionLock) as other:
        assert one.acquire()
        until(other.acquire, "the lease")
        assert not one.is_held()


@pytest.mark.parametrize("ends", ["idle", "asked"])
def test_a_lease_outlives_its_connection(address: str, ends: str) -> None:
    """The next one goes on with it, also while a command runs."""
    with lock_of(address, LeaseLock) as lock, lock_of(address, LeaseLock) as other:
        assert lock.acquire()
        lock.keeper.guard(1)
        if ends == "asked":
            lock.keeper.on_time(boottime() + 15)
        query(address, f"SELECT pg_terminate_backend({lock._database.backend_pid})")
        adopted = lock.keeper.adopted
        while lock.keeper.adopted == adopted:
            lock.keeper.wait(1)
            assert lock.keeper.lost is None
        lock.keeper.rest()
        assert lock.is_held()
        assert not other.acquire()


def test_a_lease_that_ended_before_the_command_began(address: str) -> None:
    """However lately the server was asked for anything else: nothing runs."""
    with lock_of(address, LeaseLock, ttl=0.5) as one, lock_of(address, LeaseLock) as other:
        assert one.acquire()
        until(other.acquire, "the lease")
        assert one._database.rows("SELECT 1") == [(1,)]
        one.keeper.guard(1)
        assert one.keeper.lost == "another call has it"


def test_a_slot_that_was_lost_while_the_job_was_waited_for(address: str, tmp_path: Path) -> None:
    """A call beside others takes another one for its next window."""
    alpha = Machine(tmp_path / "alpha", "alpha", address)
    more = (*HOURLY, *LEASE, "--overlap", "allow", "--first", "2026-09-04T10:00Z")
    with lock_of(address, LeaseLock) as job, lock_of(address, LeaseLock, slot=1) as slot:
        held = Held(alpha, "sales", *more, now=NOW)
        assert job.acquire(20)
        assert not slot.acquire()
        held.end_command()
        assert slot.acquire(40)
        job.release()
        done = held.release()
        assert (done.status, done.stderr.count("PROCESSED")) == (0, 2)
        assert alpha.rows("SELECT slot, attempt FROM jobrun_run ORDER BY id") == [(1, 1), (2, 1)]


def test_a_session_that_is_taken_again_beside_a_lease(address: str) -> None:
    """Not before that is given back."""
    with (
        cable(address) as (wire, near),
        running(near) as holder,
        lock_of(address, LeaseLock) as lease,
    ):
        holder.stop()
        query(address, f"SELECT pg_terminate_backend({holder.backend}, 20000)")
        assert lease.acquire(20)
        before = wire.taken
        holder.go_on()
        until(lambda: wire.taken > before + 1, "a second try")
        assert lease.is_held()
        lease.release()
        holder.hears_again()
        assert holder.is_kept()


# -- behind a pooler -------------------------------------------------------------------------------

POOLERS = {
    "transaction": {"pool_mode": "transaction"},
    "session": {"pool_mode": "session"},
    "options": {"pool_mode": "transaction", "ignore_startup_parameters": "options"},
}


@contextmanager
def behind(server: str, folder: Path, kind: str) -> Iterator[tuple[Machine, str]]:
    """A machine whose ledger is behind a pooler, and the ledger's name space there."""
    with schema_of(server) as place, servers.pgbouncer(server, **POOLERS[kind]) as address:
        machine = Machine(folder / "alpha", "alpha", address)
        if kind == "options":
            address += "?options=-cidle_session_timeout%3D5000"
        machine.environment["JOBRUN_LEDGER"] = address
        yield machine, place.rpartition("%3D")[2]
        machine.end()


@pytest.mark.parametrize("kind", POOLERS)
def test_a_pooler_is_refused(postgres: str, tmp_path: Path, kind: str) -> None:
    """78, and what to do; nothing is set that another client would meet."""
    with behind(postgres, tmp_path, kind) as (alpha, space):
        call = ("run", "sales", *HOURLY, "--namespace", space, "--", "echo", "ran")
        refused = alpha(*call, now=NOW)
        assert (refused.status, refused.stdout) == (78, "")
        assert "a connection pooler is in between" in refused.stderr
        assert "--lock lease" in refused.stderr
        assert alpha.rows("SHOW idle_session_timeout") == [("0",)]
        assert alpha.rows("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


@pytest.mark.long
def test_a_lease_behind_a_pooler(postgres: str, tmp_path: Path) -> None:
    """Three machines share the work: each window once, and no error of a prepared statement."""
    with behind(postgres, tmp_path, "transaction") as (alpha, space):
        minutes = ("--every", "1m", "--first", "2026-09-04T08:45Z", "--overlap", "allow")
        calls = []
        for host in ("alpha", "beta", "gamma"):
            machine = alpha if host == "alpha" else Machine(tmp_path / host, host, alpha.address)
            machine.environment = {**alpha.environment, "JOBRUN_HOME": str(machine.folder)}
            lease = ("--lock", "lease", "--namespace", space)
            calls.append(machine.start("run", "sales", *minutes, *lease, "--", "true", now=NOW))
        said = [call.communicate(timeout=120) for call in calls]
        assert [call.returncode for call in calls] == [0, 0, 0], said
        asked = "SELECT outcome, count(*), count(DISTINCT key) FROM {}.jobrun_run GROUP BY outcome"
        assert alpha.rows(asked.format(space)) == [("succeeded", 200, 200)]


def test_a_machine_that_crashes_behind_a_pooler(postgres: str, tmp_path: Path) -> None:
    """It has the lease for the ttl, not for less; then its window runs again."""
    with behind(postgres, tmp_path, "transaction") as (alpha, space):
        more = (*HOURLY, *LEASE, "--namespace", space)
        beta = Machine(tmp_path / "beta", "beta", alpha.address)
        beta.environment = {**alpha.environment, "JOBRUN_HOME": str(beta.folder)}
        held = Held(alpha, "sales", *more, now=NOW)
        busy = beta("run", "sales", *more, "--", "true", now=NOW)
        assert field(busy.stderr, "holder") == f"alpha:{held.wrapper.pid}"
        alpha.crash(held)
        ((expires,),) = alpha.rows(f"SELECT expires FROM {space}.jobrun_lock")
        again = beta("run", "sales", *more, "--wait", "50s", "--", "true", now=NOW)
        assert alpha.rows(f"SELECT clock_timestamp() > '{expires}'") == [(True,)]
        assert [line.split()[1] for line in again.lines] == ["LOST", "PROCESSED"]
