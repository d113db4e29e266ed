"""Several hosts on this one machine, with one PostgreSQL: calls in forks that have all loaded.

A host is a name, a state folder and a relay to the server, so that its network can be cut. A call
of it is a fork of this process: the interpreter's start and the imports, most of a call's time, are
left out, and so thousands of calls fit into minutes. What a fork runs is `main` as it is, but for
the host's name and what a measurement changes in it, as jobrun without one of its safeguards.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import psycopg
from psycopg.conninfo import conninfo_to_dict

from jobrun import lock_file, sqlite_schema
from jobrun.__main__ import main
from tests import other_host, servers
from tests.as_user import import_all
from tests.conftest import until

RELAY = Path(__file__).with_name("relay.py")


def warm_up() -> None:
    import_all()
    lock_file.primitive()
    scripts = sqlite_schema.scripts()
    sqlite_schema.scripts = lambda: scripts


def query(address: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Over a connection that is closed at once: a fork must not inherit it."""
    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(sql.encode(), values)
        return cursor.fetchall() if cursor.description is not None else []


class Host(NamedTuple):
    name: str
    folder: Path
    address: str  # of the ledger, through its relay
    relay: subprocess.Popen[bytes]

    def cut(self) -> None:
        self.relay.send_signal(signal.SIGSTOP)

    def mend(self) -> None:
        self.relay.send_signal(signal.SIGCONT)

    def call(
        self,
        argv: Sequence[str],
        clock: Callable[[], float],
        before: Callable[[], None] | None = None,
    ) -> int:
        """Start a call; its pid. What it prints goes to the end of `err` in the host's folder.

        `before` is called in it first.
        """
        blocked = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)  # or it could take a handler of ours
        pid = os.fork()
        if pid == 0:
            for number in blocked:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        if pid == 0:
            self._live(argv, clock, before)
        return pid

    def _live(
        self,
        argv: Sequence[str],
        clock: Callable[[], float],
        before: Callable[[], None] | None,
    ) -> NoReturn:
        code = 70
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            err = os.open(self.folder / "err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            for fd, standard in ((null, 0), (null, 1), (err, 2)):
                os.dup2(fd, standard)
            os.chdir(self.folder)
            other_host.be(self.name)
            if before is not None:
                before()
            environ = {"PATH": os.environ["PATH"], "JOBRUN_HOME": str(self.folder)}
            code = main(argv, {**environ, "JOBRUN_LEDGER": self.address}, clock)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            os._exit(code)


@contextmanager
def hosts(folder: Path, address: str, names: Sequence[str]) -> Iterator[list[Host]]:
    """Hosts that reach the server of `address` each through a relay of its own."""
    server = int(str(conninfo_to_dict(address)["port"]))
    found: list[Host] = []
    try:
        for name in names:
            home, port = folder / name, servers.free_port()
            home.mkdir()
            command = [sys.executable, str(RELAY), str(port), str(server)]
            through = address.replace(f":{server}/", f":{port}/")
            found.append(Host(name, home, through, subprocess.Popen(command)))
            until(lambda port=port: _answers(port), f"the relay of {name}")  # type: ignore[misc]
        yield found
    finally:
        for host in found:
            host.mend()
            host.relay.kill()
            host.relay.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
