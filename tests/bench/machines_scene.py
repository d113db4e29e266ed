"""Hosts, a holder and its rival: the scenes that machines.py measures."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psycopg

from jobrun import lock_postgres
from jobrun.instants import MINUTE
from tests import servers
from tests.bench import fleet

FIRST = 1_788_516_000  # 2026-09-04T10:00Z
_SETTLE = 0.5  # seconds that a call needs until it waits for a lock
_YOUNG = 3.2  # seconds in which a new server's locks are left to those who had them
_LOOK = 0.002  # seconds between two looks at a process or a journal


class Seen(NamedTuple):
    is_right: bool
    what: str


def clock() -> float:
    """The calls' clock stands still: one window has closed."""
    return float(FIRST + MINUTE + 3)


def poll_often() -> None:
    """A rival asks every 50 ms, not every second: what is measured is when the lock is free."""
    lock_postgres.POLL_AT_FIRST = 0.05


class Bench:
    """The servers and hosts of one row."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self.folder, self.quick = folder, quick
        self._open = ExitStack()
        self._jobs = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def times(self, many: int, few: int = 2) -> int:
        return few if self.quick else many

    def server(self) -> servers.Postgres:
        """A stock server, seen as an ordinary user."""
        server = self._open.enter_context(servers.own_postgres())
        with psycopg.connect(server.address, autocommit=True) as owner:
            owner.execute("CREATE ROLE clerk LOGIN")
            owner.execute("CREATE DATABASE clerk OWNER clerk")
        server.address = re.sub("postgres@(.*)/postgres", r"clerk@\1/clerk", server.address)
        time.sleep(_YOUNG)
        return server

    def redis(self, *options: str) -> str:
        return self._open.enter_context(servers.valkey("--appendonly", "yes", *options))

    def hosts(self, address: str, *names: str) -> list[fleet.Host]:
        self._jobs += 1
        folder = self.folder / f"hosts{self._jobs}"
        folder.mkdir()
        return self._open.enter_context(fleet.hosts(folder, address, names))

    def scene(self, address: str, options: Sequence[str], command: str = "sleep 60") -> Scene:
        return Scene(self, address, options, command)


class Scene:
    """A holder on one host that runs a command, and a rival on another that waits for the lock.

    The command notes in a journal of its host that it has started, and leaves its pid; a rival's
    does the same.
    """

    def __init__(
        self, bench: Bench, address: str, options: Sequence[str], command: str = "sleep 60"
    ) -> None:
        bench._jobs += 1
        self.job = f"scene{bench._jobs}"
        self.address = address
        self.a, self.b = bench.hosts(address, "alpha", "beta")
        self._options = ["--every", "1m", *options]
        self._commands = {"alpha": command, "beta": "true"}
        self.holder = self.rival = 0
        self.since = 0.0

    def _call(self, host: fleet.Host, *more: str, before: Callable[[], None] = poll_often) -> int:
        text = f"echo $$ >{host.folder}/pid.new; mv {host.folder}/pid.new {host.folder}/pid; "
        command = ["sh", "-c", text + self._commands[host.name]]
        argv = ["run", self.job, *self._options, *more, "--", *command]
        return host.call(argv, clock, before)

    def hold(self, before: Callable[[], None] = poll_often) -> None:
        """Start the holder; its command is running after this."""
        self.holder = self._call(self.a, before=before)
        self.command = self._pid(self.a, 20.0)

    def challenge(self) -> None:
        """Start the rival, and give it the time to find the lock held."""
        self.rival = self._call(self.b, "--wait", "90s")
        time.sleep(_SETTLE)

    def strike(self, number: int) -> float:
        """Signal the holder's wrapper; when that was."""
        os.kill(self.holder, number)
        return time.time()

    def _pid(self, host: fleet.Host, patience: float) -> int:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError, ValueError):
                return int((host.folder / "pid").read_text())
            time.sleep(_LOOK)
        raise AssertionError(f"{host.name} has not started: {self.said(host)}")

    def said(self, host: fleet.Host) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (host.folder / "err").read_text()
        return ""

    def taken_over(self, patience: float = 60.0) -> float:
        """When the rival's command has started; seconds of time.time()."""
        deadline = time.time() + patience
        while time.time() < deadline:
            with contextlib.suppress(FileNotFoundError):
                return (self.b.folder / "pid").stat().st_mtime
            time.sleep(_LOOK)
        raise AssertionError(f"the rival has not started: {self.said(self.b)}")

    def outcome(self, pid: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def runs(self) -> list[tuple[str, int | None, str]]:
        asked = "SELECT host, attempt, outcome FROM jobrun_run WHERE job = %s ORDER BY id"
        return [tuple(row) for row in fleet.query(self.address, asked, self.job)]

    def accepted(self) -> int:
        return sum(outcome == "succeeded" for _, _, outcome in self.runs())

    def token(self) -> int:
        ((token,),) = fleet.query(
            self.address, "SELECT token FROM jobrun_job WHERE name = %s", self.job
        )
        return int(token)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def death_of(*pids: int, patience: float = 60.0) -> float:
    """When all of them are dead; seconds of time.time()."""
    deadline = time.time() + patience
    while any(map(is_alive, pids)):
        assert time.time() < deadline, f"one of {pids} lives on"
        time.sleep(_LOOK)
    return time.time()


def span(seconds: Sequence[float]) -> str:
    if max(seconds) < 1:
        low, middle, high = (x * 1000 for x in (min(seconds), median(seconds), max(seconds)))
        return f"{low:.0f} / {middle:.0f} / {high:.0f} ms (n={len(seconds)})"
    return f"{min(seconds):.2f} / {median(seconds):.2f} / {max(seconds):.2f} s (n={len(seconds)})"
