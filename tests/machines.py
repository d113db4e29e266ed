"""jobrun on machines of their own, which share a ledger on a server, a lock on one, or both."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from tests import other_host
from tests.conftest import PYTHON, Jobrun, instant, until
from tests.scenes import Held

HOURLY = ("--every", "1h")
NOW = "2026-09-04T12:05Z"
# The time to end a command is much longer than it takes, and ends long before the ttl.
SHORT = ("--lock-ttl", "7s", "-k", "3s")
# Longer than any test: what one call does for another is not by its end.
LONG = ("--lock-ttl", "5m")

AS_ANOTHER_HOST = """
import sys
from tests import other_host
other_host.run(sys.argv[1], sys.argv[2], sys.argv[3:])
"""
# However long this takes, the server has been there for less.
EARLY = """
from jobrun import lock_postgres
lock_postgres._IS_SETTLED = lock_postgres._IS_SETTLED.replace("3 seconds", "1 hour")
"""
SPEAKS_EARLY = """
from pathlib import Path
from tests.mischief import speaks_early
speaks_early(Path())
"""


class Machine(Jobrun):
    """`ledger` and `lock` are addresses; it has a ledger of its own where none is given."""

    program = ("-m", "tests.other_host")

    def __init__(
        self, folder: Path, host: str, ledger: str | None = None, lock: str | None = None
    ) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.boot = host
        self.host = other_host.name_of(host)
        self.address = ledger or str(self.ledger)
        self.environment |= {"JOBRUN_LEDGER": self.address, "JOBRUN_HOME": str(folder)}
        if lock is not None:
            self.environment["JOBRUN_LOCK"] = lock
        self._started: list[subprocess.Popen[bytes]] = []

    def argv(self, *argv: str, now: str | None = None) -> list[str]:
        seconds = "-" if now is None else str(instant(now))
        return [PYTHON, *self.program, self.boot, seconds, *argv]

    def start(self, *argv: str, **options: Any) -> subprocess.Popen[bytes]:
        self._started.append(super().start(*argv, **options))
        return self._started[-1]

    def end(self) -> None:
        """Of a test that failed."""
        for process in self._started:
            process.kill()
            with process:  # closes its pipes
                pass

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Of the ledger on a server, or what that server says."""
        import psycopg

        with closing(psycopg.connect(self.address, autocommit=True)) as server:
            cursor = server.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def end_session(self, held: Held) -> None:
        """That of a call, on the server, until it is gone."""
        name = f"jobrun {self.host}/{held.wrapper.pid}"
        ((pid, is_sent),) = self.rows(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE application_name = '{name}'"
        )
        assert is_sent
        there = f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"
        until(lambda: self.rows(there) == [], "the end of its session")

    def crash(self, held: Held) -> None:
        """All that it runs is gone at once: nobody has the time to end another."""
        guardian = int(Path(f"/proc/{held.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(held.wrapper.pid, signal.SIGSTOP)
        for pid in (guardian, held.pid, held.wrapper.pid):
            os.kill(pid, signal.SIGKILL)
        held.wrapper.communicate()


class EarlyMachine(Machine):
    """To which every server has just been started."""

    program = ("-c", EARLY + AS_ANOTHER_HOST)


class WatchfulMachine(Machine):
    """Which says how a lock was lost long before its guardian would have to."""

    program = ("-c", SPEAKS_EARLY + AS_ANOTHER_HOST)


def runs(machine: Machine) -> list[tuple[Any, ...]]:
    return machine.rows("SELECT host, attempt, outcome FROM jobrun_run ORDER BY id")
