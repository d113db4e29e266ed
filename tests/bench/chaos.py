"""One job on three hosts while everything around it fails: is any window recorded twice?

    python tests/bench/chaos.py                      600 windows, some two minutes
    python tests/bench/chaos.py --mutant no-token    without the token's check: must be found

Each host calls the job again and again, as cron would, with one PostgreSQL that the tests bring.
At random a wrapper is killed (-9) or stopped for a while, a connection is ended by the server, a
host's network is cut. What must hold at the end: every window processed, and each accepted once,
the watermark at the last one's end, nothing left running. Exit 1 where it does not. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random, SystemRandom

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from jobrun.instants import MINUTE
from tests import servers
from tests.bench import fleet, kill_calls

FIRST = 1_788_516_000  # 2026-09-04T10:00Z
JOB = "chaos"
TTL, KILL_AFTER = "3s", "1s"
COMMAND = (
    'echo "start $JOBRUN_KEY $JOBRUN_TOKEN $JOBRUN_RUN_ID $(date +%s.%N)" >>{journal}; sleep 0.02;'
    ' echo "end $JOBRUN_KEY $JOBRUN_TOKEN $JOBRUN_RUN_ID $(date +%s.%N)" >>{journal}'
)
_AGAIN = 0.05  # seconds between two calls of one host
_STRIKE = 0.28  # seconds between two strikes, on average
_LONGEST = 6.0  # seconds that something is stopped or cut


MUTANTS: dict[str, Callable[[], None] | None] = {"": None, "no-token": kill_calls.no_token}


class Caller:
    """One host that calls the job again and again; each turn of it takes no time."""

    def __init__(self, host: fleet.Host, argv: list[str], mutant: Callable[[], None] | None):
        self.host = host
        self.pid = 0
        self.calls = 0
        self.codes: Counter[int] = Counter()
        self._argv = argv
        self._mutant = mutant
        self._next = 0.0

    def turn(self, clock: Callable[[], float]) -> None:
        if self.pid:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                return
            self.codes[os.waitstatus_to_exitcode(status)] += 1
            self.pid, self._next = 0, time.monotonic() + _AGAIN
        if time.monotonic() >= self._next:
            self.pid = self.host.call(self._argv, clock, self._mutant)
            self.calls += 1

    def wait(self) -> None:
        if self.pid:
            os.waitpid(self.pid, 0)
            self.pid = 0


class Strikes:
    """Now and then something is done to one of the hosts; what was stopped is continued later."""

    def __init__(self, seed: int, address: str, callers: list[Caller]) -> None:
        self.tally: Counter[str] = Counter()
        self._random = Random(seed)
        self._address = address
        self._callers = callers
        self._next = 0.0
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._cut: set[str] = set()

    def turn(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._later if entry[0] <= now]:
            self._later.remove(entry)
            entry[1]()
        if now >= self._next:
            self._next = now + self._random.uniform(0, 2 * _STRIKE)
            self._strike()

    def end(self) -> None:
        for _, action in self._later:
            action()
        self._later.clear()

    def _strike(self) -> None:
        caller = self._random.choice(self._callers)
        self._random.choice((self._kill, self._stop, self._end_connection, self._cut_network))(
            caller
        )

    def _signal(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def _kill(self, caller: Caller) -> None:
        if caller.pid:
            self._signal(caller.pid, signal.SIGKILL)
            self.tally["kill -9"] += 1

    def _stop(self, caller: Caller) -> None:
        if caller.pid:
            pid = caller.pid
            self._signal(pid, signal.SIGSTOP)
            self.tally["stopped"] += 1
            self._soon(lambda: self._signal(pid, signal.SIGCONT))

    def _end_connection(self, caller: Caller) -> None:
        asked = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'jobrun%%' AND pid <> pg_backend_pid()"
        )
        self.tally["connections ended"] += len(fleet.query(self._address, asked))

    def _cut_network(self, caller: Caller) -> None:
        host = caller.host
        if host.name in self._cut:
            return
        self._cut.add(host.name)
        host.cut()
        self.tally["networks cut"] += 1

        def mend() -> None:
            host.mend()
            self._cut.discard(host.name)

        self._soon(mend)

    def _soon(self, action: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + self._random.uniform(0.5, _LONGEST), action))


class Chaos:
    def __init__(self, folder: Path, address: str, given: argparse.Namespace) -> None:
        self.address, self.windows = address, given.windows
        self.journal = folder / "journal"
        self._given = given
        self._folder = folder
        self.end = FIRST + given.windows * MINUTE

    def run(self) -> list[str]:
        """What must not be."""
        names = [f"replica{number}" for number in range(1, 4)]
        command = COMMAND.format(journal=self.journal)
        options = ["--every", "1m", "--first", str_of(FIRST), "--max-windows", "40", "-q"]
        options += ["--lock-ttl", TTL, "--kill-after", KILL_AFTER, "--retry-delay", "0s"]
        options += ["--lock", self._given.lock]
        argv = ["run", JOB, *options, "--", "sh", "-c", command]
        mutant = MUTANTS[self._given.mutant]
        with fleet.hosts(self._folder, self.address, names) as hosts:
            callers = [Caller(host, argv, mutant) for host in hosts]
            strikes = Strikes(self._given.seed, self.address, callers)
            self._drive(callers, strikes)
            strikes.end()
            for caller in callers:
                caller.wait()
            self._calm(hosts[0], argv)
        self.strikes, self.callers = strikes, callers
        return self.violations()

    def _drive(self, callers: list[Caller], strikes: Strikes) -> None:
        deadline = time.monotonic() + self._given.seconds
        looked = 0.0
        while time.monotonic() < deadline:
            for caller in callers:
                caller.turn(self._clock)
            strikes.turn()
            time.sleep(0.005)
            if time.monotonic() - looked > 1:
                looked = time.monotonic()
                if self.processed() >= self.windows:
                    return

    def _calm(self, host: fleet.Host, argv: list[str]) -> None:
        """A few calls that nobody disturbs: what was left running is found and settled."""
        for _ in range(self.windows // 40 + 3):
            os.waitpid(host.call(argv, self._clock), 0)

    def _clock(self) -> float:
        return float(self.end + 30)

    def processed(self) -> int:
        try:
            ((count,),) = fleet.query(
                self.address,
                "SELECT count(*) FROM jobrun_window WHERE job = %s AND state = 'processed'",
                JOB,
            )
        except psycopg.errors.UndefinedTable:  # there is no table yet
            return 0
        return int(count)

    def violations(self) -> list[str]:
        found = []
        if (count := self.processed()) != self.windows:
            found.append(f"{count} windows are processed, not {self.windows}")
        twice = fleet.query(
            self.address,
            "SELECT key, count(*) FROM jobrun_run WHERE job = %s AND outcome = 'succeeded'"
            " GROUP BY key HAVING count(*) > 1",
            JOB,
        )
        found += [f"{key} was accepted {times} times" for key, times in twice]
        ((watermark,),) = fleet.query(
            self.address, "SELECT watermark FROM jobrun_job WHERE name = %s", JOB
        )
        if (at := int(watermark.timestamp())) != self.end:
            found.append(f"the watermark is {str_of(at)}, not {str_of(self.end)}")
        running = "SELECT id FROM jobrun_run WHERE job = %s AND outcome IS NULL"
        found += [f"run {run} has no end" for (run,) in fleet.query(self.address, running, JOB)]
        return found

    def report(self, took: float) -> None:
        outcomes = fleet.query(
            self.address,
            "SELECT coalesce(outcome, 'running'), count(*) FROM jobrun_run WHERE job = %s"
            " GROUP BY 1 ORDER BY 1",
            JOB,
        )
        starts = sum(line.startswith("start ") for line in self.journal.read_text().splitlines())
        calls = sum(caller.calls for caller in self.callers)
        codes = sum((caller.codes for caller in self.callers), Counter[int]())
        print(
            f"{self.windows} windows, 3 hosts, {took:.0f} s, {calls} calls, seed {self._given.seed}"
        )
        print("strikes:", ", ".join(f"{n} {what}" for what, n in self.strikes.tally.items()))
        print(f"commands started: {starts}")
        print("runs:", ", ".join(f"{number} {what}" for what, number in outcomes))
        print("exit codes:", ", ".join(f"{code}: {n}" for code, n in sorted(codes.items())))


def str_of(instant: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instant))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Three hosts, one job, and everything fails.")
    parser.add_argument("--windows", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=400, help="at most so long")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--lock", choices=("session", "lease"), default="session")
    parser.add_argument("--mutant", choices=MUTANTS, default="")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    fleet.warm_up()
    folder = Path(tempfile.mkdtemp(prefix="jobrun-chaos-"))
    found: list[str] = ["it did not end"]
    try:
        with servers.postgres() as address:
            chaos = Chaos(folder, address, given)
            began = time.monotonic()
            found = chaos.run()
            chaos.report(time.monotonic() - began)
    finally:
        if not found:
            shutil.rmtree(folder)
    print(f"{len(found)} violations")
    for line in found[:20]:
        print(f"violation: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
