"""The command of tests/bench/kill.py: it tells in two independent ways when it is not alone.

    python -I -S kill_command.py FOLDER LASTING FLAG...

It holds an exclusive lock of its own while it lives, and says so if another one has it. And it adds
to a counter without any lock, reading, pausing, writing: an overlap that the lock missed loses one.
All that it says goes to a journal of its job, a line each. It exits 3 with the flag `fails`,
ignores TERM with `deaf`, and with `marks` has data in the ledger, marked by jobrun.done. With
`beside` others of its job may run, but none for its key: the lock is one for each, and nothing is
counted.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys

FOLDER, LASTING, FLAGS = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
JOB, KEY, RUN = (os.environ[f"JOBRUN_{name}"] for name in ("JOB", "KEY", "RUN_ID"))
ROUND = 0.04  # seconds at most between reading and writing
FAILED, REFUSED = 3, 9


def opened(suffix: str, flags: int) -> int:
    return os.open(f"{FOLDER}/{JOB}.{suffix}", flags | os.O_RDWR | os.O_CREAT, 0o600)


JOURNAL = opened("journal", os.O_APPEND)


def say(*words: object) -> None:
    os.write(JOURNAL, (" ".join(map(str, words)) + "\n").encode())


def chance() -> float:
    """Of [0, 1)."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


def occupy() -> None:
    marker = opened(f"{KEY}.busy" if "beside" in FLAGS else "busy", 0)
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("twice", KEY, RUN, os.pread(marker, 500, 0).decode())
        return
    os.pwrite(marker, f"{KEY} {RUN} {os.getpid()}".ljust(99).encode(), 0)


def count(lasting: float) -> None:
    if "beside" in FLAGS:
        select.select([], [], [], lasting)
        return
    counter = opened("counter", 0)
    while True:
        seen = int(os.pread(counter, 20, 0) or b"0")
        pause = chance() * min(lasting, ROUND)
        select.select([], [], [], pause)
        os.pwrite(counter, b"%020d" % (seen + 1), 0)
        say("wrote", seen + 1, RUN)
        lasting -= pause
        if lasting <= 0.001:
            return


def mark() -> None:
    """Data of its own in the ledger's database, and the mark, in one transaction."""
    import sqlite3

    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    from jobrun.errors import NotRecorded
    from jobrun.mark import done

    ledger = sqlite3.connect(os.environ["JOBRUN_LEDGER"], timeout=20, isolation_level=None)
    ledger.execute("CREATE TABLE IF NOT EXISTS mine (key TEXT, run INTEGER)")
    ledger.execute("BEGIN IMMEDIATE")
    ledger.execute("INSERT INTO mine VALUES (?, ?)", (KEY, RUN))
    try:
        done(ledger)
    except NotRecorded:
        say("refused", KEY, RUN)
        sys.exit(REFUSED)
    ledger.execute("COMMIT")
    say("marked", KEY, RUN)


def main() -> None:
    if "deaf" in FLAGS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    occupy()
    say("start", KEY, RUN, os.environ["JOBRUN_ATTEMPT"], os.environ["JOBRUN_TOKEN"], os.getpid())
    # Most are short, whatever they may last: catching up must get on.
    count(LASTING if chance() < 0.3 else min(LASTING, ROUND) * chance())
    if "fails" in FLAGS and chance() < 0.3:
        sys.exit(FAILED)
    if "marks" in FLAGS:
        mark()
        if "fails" in FLAGS:
            sys.exit(FAILED)
    say("done", KEY, RUN)


if __name__ == "__main__":
    main()
