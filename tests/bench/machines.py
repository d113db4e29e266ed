"""What several machines with one store do when one of them dies, stops or is cut off: measured.

    python tests/bench/machines.py                   every row, about 25 minutes
    python tests/bench/machines.py 2 3 13b           some of them
    python tests/bench/machines.py --quick           fewer of each
    python tests/bench/machines.py --markdown        as the README has it

The rows are the acceptance tests of "several machines": what is done, what is expected, and what
was seen. Hosts are forks with names, folders and networks of their own (fleet.py), the servers are
those that the tests bring. Exit 1 where a row is not as expected; a row that can't be measured here
says why. Linux only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import fleet
from tests.bench.machines_rows import (
    after_kill,
    cut,
    end_session,
    found_again,
    inside_a_transaction,
    killed,
    killed_without_socket,
    lock_alone,
    once_in_a_slot,
    pauses,
    restart,
    server_down,
    standby,
    stopped,
    stopped_alone,
    wrapper_stopped,
)
from tests.bench.machines_scene import Bench, Seen
from tests.conftest import ROOT


class Row(NamedTuple):
    number: str
    what: str
    expected: str
    measure: Callable[[Bench], Seen]


# -- in other programs -----------------------------------------------------------------------------


def program(*argv: str, rounds: int = 1) -> Callable[[Bench], Seen]:
    """A benchmark or a group of tests: right where it exits 0; its last line tells.

    `rounds`: how often each of the tests that ask for that runs.
    """

    def measure(bench: Bench) -> Seen:
        environment = {**os.environ, "JOBRUN_ROUNDS": str(bench.times(rounds, 1))}
        found = subprocess.run(
            [sys.executable, *argv], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        lines = found.stdout.strip().splitlines() or [found.stderr.strip()[-200:]]
        return Seen(found.returncode == 0, lines[-1].strip("= "))

    return measure


def suite(*names: str, rounds: int = 1) -> Callable[[Bench], Seen]:
    return program("-m", "pytest", "-q", "-p", "no:cacheprovider", *names, rounds=rounds)


def chaos(*argv: str) -> Callable[[Bench], Seen]:
    def measure(bench: Bench) -> Seen:
        windows = str(bench.times(600, 60))
        seen = program("tests/bench/chaos.py", "--windows", windows, *argv)(bench)
        return seen if "--mutant" not in argv else seen._replace(is_right=not seen.is_right)

    return measure


SESSION, LEASE = ("--lock", "session"), ("--lock", "lease")
SHORT = ("--lock-ttl", "5s", "--kill-after", "1s")


def redis(bench: Bench) -> tuple[str, str]:
    return "--lock", bench.redis()


ROWS = (
    Row("1", "3 hosts, one 100 ms late, 20 ms job", "1 run a slot", once_in_a_slot),
    Row("1 lease", "... lease", "1 run a slot", lambda b: once_in_a_slot(b, *LEASE)),
    Row("1 redis", "... Redis", "1 run a slot", lambda b: once_in_a_slot(b, *redis(b))),
    Row("1 control", "... the lock alone, no windows", "slots with 2", lock_alone),
    Row("2", "kill -9", "< 0.2 s", lambda b: after_kill(b, SESSION, b.times(20), 0, 0.2)),
    Row("3", "STOP 8 s, ttl 5", "<= 5.2 s, old fenced", lambda b: stopped(b, SESSION, b.times(10))),
    Row("4 lease", "... lease", "the same", lambda b: stopped(b, LEASE, b.times(10))),
    Row("4 redis", "... Redis", "the same", lambda b: stopped(b, redis(b), b.times(10))),
    Row("5 lease", "... no rival, lease", "accepted once", lambda b: stopped_alone(b, LEASE)),
    Row("5 redis", "... no rival, Redis", "accepted once", lambda b: stopped_alone(b, redis(b))),
    Row(
        "6 lease",
        "kill -9, lease, ttl 5",
        "3.3-5.1 s",
        lambda b: after_kill(b, (*LEASE, *SHORT), b.times(5), 3.2, 5.2),
    ),
    Row(
        "6 redis",
        "kill -9, Redis, ttl 30",
        "< 1.3 s",
        lambda b: after_kill(b, redis(b), b.times(10), 0, 1.3),
    ),
    Row("7", "network cut, ttl 5", "<= 5.1 s", lambda b: cut(b, 5, b.times(3, 1))),
    Row("7 long", "network cut, ttl 10", "<= 10.1 s", lambda b: cut(b, 10, b.times(3, 1))),
    Row("8", "network cut, ttl 6", "dead <= 5.5 s, no overlap", lambda b: cut(b, 6, b.times(3, 1))),
    Row(
        "9",
        "the server ends the session",
        "again < 1.5 s, command goes on",
        lambda b: found_again(b, end_session, b.times(20)),
    ),
    Row(
        "10 fast",
        "the server restarts, fast",
        "again < 1.5 s, command goes on",
        lambda b: found_again(b, restart(signal.SIGINT), b.times(3, 1)),
    ),
    Row(
        "10 immediate",
        "... immediately",
        "again < 1.5 s, command goes on",
        lambda b: found_again(b, restart(signal.SIGQUIT), b.times(3, 1)),
    ),
    Row("11", "the server is down for longer", "cancelled, kept, replayed", server_down),
    Row("12", "kill -9 of the wrapper", "dead < 1.2 s, no overlap", killed),
    Row("13", "STOP of the wrapper, ttl 6", "dead <= 5.6 s, no overlap", wrapper_stopped),
    Row("13b", "12, the guardian lets the socket go", "overlap", killed_without_socket),
    Row(
        "14",
        "cut at COMMIT",
        "accepted once",
        suite("tests/test_outbox.py", "-k", "cut_at_the_commit", rounds=10),
    ),
    Row("15", "chaos", "600 once", chaos()),
    Row("15 lease", "... lease", "600 once", chaos("--lock", "lease")),
    Row("16", "... without the token's check", "some twice", chaos("--mutant", "no-token")),
    Row(
        "17",
        "crash points",
        "as wanted",
        suite("tests/test_outbox.py", "-k", "killed_at", rounds=5),
    ),
    Row(
        "18-20",
        "poolers",
        "refused; a lease works",
        suite("tests/test_lease.py", "tests/test_lock_postgres.py", "-k", "pooler"),
    ),
    Row("21", "standby for 60 s", "no snapshot", standby),
    Row("22", "ttl 6, five pauses of 3 s", "kept", pauses),
    Row("23-24", "Redis: cut, durability", "as wanted", suite("tests/test_lock_redis.py")),
    Row(
        "25",
        "NOTIFY, reload",
        "kept",
        suite("tests/test_lock_postgres.py", "-k", "sounds_like_a_loss"),
    ),
    Row("26", "stopped in a transaction, ttl 5", "<= 5.2 s", inside_a_transaction),
    Row("27", "a local run", "imports neither", suite("tests/test_imports.py")),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Several machines: measured.")
    parser.add_argument("rows", nargs="*", help="numbers of rows; all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    return parser.parse_args()


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="jobrun-machines-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def main() -> int:
    given = arguments()
    fleet.warm_up()
    wrong = 0
    for row in ROWS:
        if given.rows and row.number not in given.rows and row.number.split()[0] not in given.rows:
            continue
        with folder() as made, Bench(made, given.quick) as bench:
            try:
                seen: Seen | None = row.measure(bench)
                what = "" if seen is None else seen.what
            except pytest.skip.Exception as error:
                seen, what = None, f"not measured: {error}"
            except AssertionError as error:
                seen, what = Seen(False, ""), str(error)
        mark = "-" if seen is None else "yes" if seen.is_right else "NO"
        wrong += mark == "NO"
        cells = (row.number, row.what, row.expected, what, mark)
        print("| " + " | ".join(cells) + " |" if given.markdown else "  ".join(cells), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
