"""A session's lock and the command that runs under it: never two commands at any moment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import servers
from tests.conftest import is_alive, open_files, state, until
from tests.driven import Driven, command
from tests.ledger_calls import CALLER, schema_of

if sys.platform == "win32":
    pytest.skip("signals are POSIX's", allow_module_level=True)

psycopg = pytest.importorskip("psycopg", reason=servers.INSTALL)

from jobrun.ledger_postgres import open_ledger  # noqa: E402
from jobrun.lock_postgres import SessionLock  # noqa: E402
from jobrun.postgres_database import Database  # noqa: E402

TTL, KILL_AFTER = 120.0, 0.5  # seconds
# Its keeper gives the command longer to end than it takes: it is dead long before the ttl is over.
SHORT = (9.0, 5.0)


@pytest.fixture
def address(postgres: str) -> Iterator[str]:
    with schema_of(postgres) as address:
        open_ledger(address, CALLER).close()
        yield address


@pytest.fixture
def rival(address: str) -> Iterator[SessionLock]:
    with closing(Database(address)) as database:
        yield SessionLock(database, "sales", "db2:1", TTL, KILL_AFTER)


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    wrapper = Driven(tmp_path)
    yield wrapper
    wrapper.clean_up()


def start(
    driven: Driven, address: str, life: str, mischief: str | None = None,
    terms: tuple[float, float] = (TTL, KILL_AFTER), kill_after: float = KILL_AFTER,
) -> list[int]:  # fmt: skip
    """The command's processes; the lock is held."""
    driven.start(
        *command(life, driven.ready), keeper=["sales", address, *terms],
        kill_after=kill_after, mischief=mischief,
    )  # fmt: skip
    return driven.tree()


def signal_wrapper(driven: Driven, number: int) -> None:
    os.kill(driven.started()["wrapper"], number)


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_alive(pid)]


@pytest.mark.parametrize("life", ["ignores", "family"])
def test_wrapper_killed(driven: Driven, address: str, rival: SessionLock, life: str) -> None:
    """The lock is free as soon as the command is dead with all of its own, and not before."""
    pids = start(driven, address, life)
    assert not rival.acquire()
    signal_wrapper(driven, signal.SIGKILL)
    until(rival.acquire, "the lock")
    assert living(pids) == []


def test_guardian_that_lets_the_session_go(
    driven: Driven, address: str, rival: SessionLock
) -> None:
    """The test above can fail: then two of them run at the same time."""
    pids = start(driven, address, "ignores", "guardian_lets_go", kill_after=20.0)
    signal_wrapper(driven, signal.SIGKILL)
    until(rival.acquire, "the lock")
    assert living(pids) == pids


def test_wrapper_stopped(driven: Driven, address: str, rival: SessionLock) -> None:
    """The command is dead by the deadline and its grace, the server frees the lock after it."""
    pids = start(driven, address, "ignores", terms=SHORT)
    signal_wrapper(driven, signal.SIGSTOP)
    until(rival.acquire, "the lock", 60)
    assert living(pids) == []
    assert state(driven.started()["wrapper"]) == "T"
    signal_wrapper(driven, signal.SIGCONT)
    ended = driven.end()
    assert ended["cause"] == "lock-lost"
    assert ended["detail"].startswith("this process was stopped for ")


def test_session_ended_by_the_server(driven: Driven, address: str, rival: SessionLock) -> None:
    """The lock is taken again, the command goes on, and the guardian holds the new session."""
    pids = start(driven, address, "ignores")
    with psycopg.connect(address, autocommit=True) as other:
        sessions = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
        ((old,),) = other.execute(sessions).fetchall()
        other.execute("SELECT pg_terminate_backend(%s)", (old,))
        until(lambda: other.execute(sessions).fetchall() not in ([], [(old,)]), "a new session")
    assert living(pids) == pids
    guardian, wrapper = (driven.started()[role] for role in ("guardian", "wrapper"))
    until(lambda: sockets(guardian) & sockets(wrapper), "the new socket to be handed over")
    signal_wrapper(driven, signal.SIGKILL)
    until(rival.acquire, "the lock")
    assert living(pids) == []


def sockets(pid: int) -> set[str]:
    return {link for link in open_files(pid) if link.startswith("socket:")}


def test_taken_by_another_meanwhile(driven: Driven, address: str, rival: SessionLock) -> None:
    """It is not to be had again by the deadline: the command is ended, and it is said why."""
    pids = start(driven, address, "waits", "speaks_early", terms=(9.0, KILL_AFTER))
    signal_wrapper(driven, signal.SIGSTOP)
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        until(rival.acquire, "the lock")
    signal_wrapper(driven, signal.SIGCONT)
    ended = driven.end()
    assert (ended["cause"], living(pids)) == ("lock-lost", [])
    assert "terminating connection due to administrator command, 57P01" in ended["detail"]
