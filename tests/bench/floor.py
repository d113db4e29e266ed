"""What parts a call of jobrun is made of: `overhead.py` starts this with the measured interpreter.

Prints one line a part, `name seconds`, the median of several. The last line is the monotonic clock
a moment before the exit, from which whoever waits for us can tell what the exit takes.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from jobrun import lock_file

TIMES = 15


def two_forks() -> None:
    """A guardian, its command, an exec, and both are waited for."""
    guardian = os.fork()
    if guardian == 0:
        command = os.fork()
        if command == 0:
            os.execv("/bin/true", ["true"])
        os.waitpid(command, 0)
        os._exit(0)
    os.waitpid(guardian, 0)


def two_commits(folder: Path) -> None:
    """Open a ledger's kind of database, write twice, close it."""
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    for _ in range(2):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO runs VALUES (1)")
        connection.execute("COMMIT")
    connection.close()


def seconds(part: Callable[[], object]) -> float:
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        part()
        taken.append(time.perf_counter() - began)
    return median(taken)


def main() -> None:
    lock_file.primitive()
    importlib.import_module("jobrun.turn")  # as large as a call: a small process is forked faster
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as name:
        folder = Path(name)
        connection = sqlite3.connect(folder / "floor.db")
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE runs (id)")
        connection.close()
        print("forks", seconds(two_forks))
        print("commits", seconds(lambda: two_commits(folder)))
    print("modules", len([name for name in sys.modules if name.startswith("jobrun")]))
    print("end", time.monotonic(), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
