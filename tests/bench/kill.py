"""Kill whatever, whenever, for as long as one likes, and look whether anything is done twice.

    python tests/bench/kill.py                       1,000 kills, some five minutes
    python tests/bench/kill.py --seconds 3600        for an hour
    python tests/bench/kill.py --overlap             most calls with --overlap allow
    python tests/bench/kill.py --mutant no-token     without one of the safeguards: must be found

Several jobs on one ledger, each called all the while as cron would, by calls that run commands of
many shapes. Wrappers, guardians and commands are killed, stopped and asked to end, at random and
at each phase of a call. Every hundred kills all is left alone for a moment, each job is called once
undisturbed, and what must hold is checked (kill_record.py). Linux only.

The seed fixes whom is meant to be hit when; the machine decides the rest. Exit 1 on a violation.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import kill_calls
from tests.bench.kill_harness import JOBS, Harness

ROUND = 100  # kills between two looks
SHOWN = 20  # violations
_EVER = 10.0**9  # seconds, or kills
_SUBREAPER = 36  # prctl: orphans of our children become ours


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Random kills: is anything done twice?")
    parser.add_argument("--kills", type=int, help="so many (1000, or any number in --seconds)")
    parser.add_argument("--seconds", type=float, help="at most so long")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--jobs", type=int, choices=range(1, len(JOBS) + 1))
    parser.add_argument("--overlap", action="store_true", help="calls beside each other")
    parser.add_argument("--mutant", choices=kill_calls.MUTANTS, default="")
    return parser.parse_args()


def stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(harness: Harness, kills: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    try:
        while harness.tally.kills < kills and time.monotonic() < deadline:
            harness.round(min(ROUND, kills - harness.tally.kills), deadline)
            if harness.violations:
                return  # what comes after one says nothing
    finally:
        harness.end()


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, stop)
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    kill_calls.warm_up()
    kills = given.kills or (int(_EVER) if given.seconds else 1000)
    jobs = given.jobs or (1 if given.mutant == "late-claim" else len(JOBS))
    # In memory where that can be had: no disk needs to be waited for, since none is unplugged.
    shm = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = tempfile.mkdtemp(prefix="jobrun-kill-", dir=shm)
    harness = Harness(folder, given.seed, jobs, given.mutant, given.overlap)
    began = time.monotonic()
    try:
        run(harness, kills, given.seconds or _EVER)
    finally:
        if not harness.violations:
            shutil.rmtree(folder)
    report(harness, given.seed, time.monotonic() - began)
    return 1 if harness.violations else 0


def report(harness: Harness, seed: int, took: float) -> None:
    for line in harness.tally.lines():
        print(line)
    count = len(harness.violations)
    print(f"seed {seed}: {harness.tally.kills} kills in {took:.0f} s, {count} violations")
    for line in harness.violations[:SHOWN]:
        print(f"violation: {line}")
    if harness.violations:
        print(f"ledger and journals are left in {harness.folder}")


if __name__ == "__main__":
    sys.exit(main())
