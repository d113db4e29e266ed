"""How long the screens take at a million rows: `python -m tests.bench.screens`.

The ledger is filled by SQL (its own calls would take half an hour), 420 MB in a temporary folder.
Wanted: each below 0.3 s, start of the interpreter included.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jobrun.instants import MINUTE, from_iso, iso
from tests.ledgers import Writer

ROWS = 1_000_000
FIRST = from_iso("2024-01-01T00:00:00+00:00")
SCREENS = (
    ("status",),
    ("history",),
    ("history", "beat", "--all"),
    ("windows", "beat"),
    ("windows", "beat", "--since", "2024-01-01"),
    ("show", "beat"),
    ("logs", "beat"),
)


def fill(path: Path) -> None:
    """A job of one-minute windows, all processed, a run each."""
    Writer(path).job("beat", FIRST, every="every 1m", watermark=FIRST)
    connection = sqlite3.connect(path)
    connection.executemany(
        "INSERT INTO jobrun_window (job, key, start, end, state, attempts, failures, windows,"
        " partial, token, changed_at) VALUES ('beat', ?, ?, ?, 'processed', 1, 0, 1, 0, 1, ?)",
        ((f"beat:{iso(t)}", iso(t), iso(t + MINUTE), iso(t + MINUTE)) for t in instants()),
    )
    connection.executemany(
        "INSERT INTO jobrun_run (job, key, kind, attempt, token, host, pid, user, terminal,"
        " started, ended, took, outcome, exit_code)"
        " VALUES ('beat', ?, 'new', 1, 1, 'db1', ?, 'etl', 0, ?, ?, 0.1, 'succeeded', 0)",
        ((f"beat:{iso(t)}", t, iso(t + MINUTE), iso(t + MINUTE)) for t in instants()),
    )
    end = FIRST + ROWS * MINUTE
    connection.execute(
        "UPDATE jobrun_job SET watermark = ?, next = ?, last_seen = ?, largest_now = ?",
        (iso(end), iso(end + MINUTE), iso(end), iso(end)),
    )
    connection.commit()
    connection.close()


def instants() -> range:
    return range(FIRST, FIRST + ROWS * MINUTE, MINUTE)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jobrun.db")
        fill(path)
        environment = {**os.environ, "JOBRUN_LEDGER": str(path)}
        for argv in SCREENS:
            began = time.perf_counter()
            command = [sys.executable, "-m", "jobrun", *argv]
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
            print(f"{time.perf_counter() - began:6.3f} s  jobrun {' '.join(argv)}")


if __name__ == "__main__":
    main()
