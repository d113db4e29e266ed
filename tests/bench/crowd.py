"""Many hosts call many jobs at the same moment, with one PostgreSQL: what does a window cost there?

    python tests/bench/crowd.py                      50 jobs on 4 hosts each, 10 minutes of ticks
    python tests/bench/crowd.py --jobs 20 --hosts 10

A tick is the start of a minute: every job is called on each of its hosts at once, as the same
crontab on all of them would. The clock of the calls is the simulated one. Printed are calls,
connections, transactions and statements for a window, and how long calls take, from the fork to
the exit: the interpreter's start and the imports, which are the host's and not the server's, are
left out (fleet.py). Exit 1 where a window is not processed exactly once. Linux only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from jobrun.instants import MINUTE
from tests import servers
from tests.bench import fleet

FIRST = 1_788_516_000  # 2026-09-04T10:00Z
LATE = 3  # seconds after its window's end that a call is made


_LOOK = 0.2  # seconds between two looks at the connections
_BUSY = 3  # exit code of a call that met another host at work


class Crowd:
    def __init__(self, folder: Path, address: str, given: argparse.Namespace) -> None:
        self._folder, self._address, self._given = folder, address, given
        self.took: list[float] = []
        self.ticks: list[float] = []  # from the first call of a tick to the end of the last
        self.codes: Counter[int] = Counter()
        self.most = 0  # connections at once

    def run(self) -> None:
        names = [f"host{number}" for number in range(1, self._given.hosts + 1)]
        with fleet.hosts(self._folder, self._address, names) as hosts:
            self._tick(hosts[:1], FIRST + LATE)  # the ledger is made, and each job's first window
            self.took, self.ticks, self.codes = [], [], Counter()
            fleet.query(self._address, "SELECT pg_stat_statements_reset()")
            for tick in range(1, self._given.ticks + 1):
                self._tick(hosts, FIRST + tick * MINUTE + LATE)

    def _tick(self, hosts: list[fleet.Host], now: int) -> None:
        start, began = time.monotonic(), {}
        for number in range(self._given.jobs):
            for host in hosts:
                options = ["--every", "1m", "-q", "--busy-exit", str(_BUSY)]
                argv = ["run", f"job{number}", *options, "--", "true"]
                pid = host.call(argv, lambda: float(now))
                began[pid] = time.monotonic()
        look = 0.0
        while began:
            pid, status = self._collect(began)
            if pid:
                self.took.append(time.monotonic() - began.pop(pid))
                self.codes[os.waitstatus_to_exitcode(status)] += 1
                continue
            if time.monotonic() >= look:
                look = time.monotonic() + _LOOK
                self.most = max(self.most, self._connections())
            time.sleep(0.002)
        self.ticks.append(time.monotonic() - start)

    def _collect(self, began: dict[int, float]) -> tuple[int, int]:
        for pid in began:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return pid, status
        return 0, 0

    def _connections(self) -> int:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'jobrun%%'"
        ((count,),) = fleet.query(self._address, asked)
        return int(count)

    def violations(self) -> list[str]:
        """Each job's windows of all ticks and the one before them: processed, and run once."""
        asked = (
            "SELECT j.name, count(DISTINCT w.key), count(r.id) FROM jobrun_job AS j"
            " JOIN jobrun_window AS w ON w.job = j.name AND w.state = 'processed'"
            " JOIN jobrun_run AS r ON r.job = w.job AND r.key = w.key GROUP BY j.name"
        )
        wanted = self._given.ticks + 1
        found = {job: (done, runs) for job, done, runs in fleet.query(self._address, asked)}
        names = [f"job{number}" for number in range(self._given.jobs)]
        counts = ((name, *found.get(name, (0, 0))) for name in names)
        return [
            f"{name}: {done} of {wanted} windows processed, {runs} runs"
            for name, done, runs in counts
            if (done, runs) != (wanted, wanted)
        ]

    def report(self) -> None:
        windows = self._given.ticks * self._given.jobs
        calls = len(self.took)
        server = "SELECT sum(calls), sum(total_exec_time) FROM pg_stat_statements"
        ((statements, busy),) = fleet.query(self._address, server)
        commits = "SELECT sum(calls) FROM pg_stat_statements WHERE query ILIKE 'COMMIT%%'"
        ((written,),) = fleet.query(self._address, commits)
        *_, late = quantiles(self.took, n=20)
        rows = [
            ("calls", f"{calls}", f"{calls / windows:.1f}"),
            ("that met another host at work", f"{self.codes[_BUSY]}", ""),
            ("connections made", f"{calls}", f"{calls / windows:.1f}"),
            ("connections at once, at most", f"{self.most}", ""),
            ("statements", f"{statements}", f"{statements / windows:.1f}"),
            ("transactions that write", f"{written}", f"{written / windows:.1f}"),
            ("time in the server's statements", f"{busy:.0f} ms", f"{busy / windows:.2f} ms"),
            ("a call, median", f"{median(self.took) * 1000:.0f} ms", ""),
            ("a call, 95 of 100", f"{late * 1000:.0f} ms", ""),
            ("a tick, median", f"{median(self.ticks):.2f} s", ""),
            ("windows in a second", f"{windows / sum(self.ticks):.0f}", ""),
        ]
        print(f"{self._given.jobs} jobs on {self._given.hosts} hosts, {self._given.ticks} ticks,")
        print(f"{windows} windows; exit codes {dict(self.codes)}\n")
        print("| | in all | a window |\n| --- | --- | --- |")
        for row in rows:
            print("| " + " | ".join(row) + " |")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Many hosts, many jobs, one PostgreSQL.")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ticks", type=int, default=10)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    fleet.warm_up()
    folder = Path(tempfile.mkdtemp(prefix="jobrun-crowd-"))
    try:
        with servers.own_postgres(shared_preload_libraries="pg_stat_statements") as server:
            address = server.address
            fleet.query(address, "CREATE EXTENSION pg_stat_statements")
            crowd = Crowd(folder, address, given)
            crowd.run()
            crowd.report()
            found = crowd.violations()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for line in found:
        print(f"violation: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
