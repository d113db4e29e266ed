"""Drives `process` alone, without a ledger: `python -m tests.drive_process SCRIPT`.

SCRIPT is JSON: what Script of tests/driven.py holds. It says in files what happened: `started`
(pids), `ended` (how).
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobrun import process
from jobrun.output import Output
from tests.mischief import MISCHIEF

if TYPE_CHECKING:
    from jobrun.lock import Keeper


def main(text: str) -> None:
    script = json.loads(text)
    folder = Path(script["folder"])
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    signals = process.catch()
    if script["mischief"]:
        MISCHIEF[script["mischief"]](folder)
    keeper = made_keeper(script["keeper"])
    child = process.start(lock, script["stdin"], keeper)
    pids = {"wrapper": os.getpid(), "guardian": child.guardian_pid, "command": child.pid}
    say(folder / "started", {**pids, "birth": child.birth})
    if script["hold"]:
        (folder / "hold").read_bytes()  # a FIFO: until the test says so
    if script["cancel"]:
        child.cancel()
        say(folder / "ended", {})
        return
    marker = {"JOBRUN_RUN_ID": "7", "JOBRUN_LEDGER": str(folder / "jobrun.db")}
    argv = [*script["argv"], *("x" * n for n in [script["padding"]] if n)]
    if keeper is not None:
        keeper.guard(7)
    child.go(argv, {**os.environ, **marker}, script["cwd"])
    output = Output(script["live"], script["base"])
    ended = child.wait(signals, script["timeout"], script["kill_after"], marker, output)
    output.close()
    if keeper is not None:
        keeper.rest()
    if script["show"]:
        say(folder / "showing", True)
        output.show(signals)
    more: dict[str, object] = {
        "bytes": output.bytes,
        "problem": output.problem,
        "dropped": output.dropped,
    }
    more["rested"] = getattr(keeper, "rested", None)
    say(
        folder / "ended", {**ended._asdict(), **more, "peak": peak_memory(), "times": signals.times}
    )
    signals.restore()


def made_keeper(arguments: list[Any] | None) -> Keeper | None:
    """A double by its server's path, the lock of a job by a database's address."""
    if arguments is None:
        return None
    if "://" in str(arguments[1]):
        from jobrun.lock_postgres import SessionLock
        from jobrun.postgres_database import Database

        job, address, ttl, kill_after = arguments
        lock = SessionLock(Database(address), job, "db1:1", ttl, kill_after)
        assert lock.acquire()
        return lock.keeper
    from tests.keeper_double import Double

    return Double(*arguments)


def peak_memory() -> int:
    """KiB, of this program alone: what getrusage tells is at least what our parent had."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def say(path: Path, what: object) -> None:
    """Appears at once and whole."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(what))
    draft.replace(path)


if __name__ == "__main__":
    main(sys.argv[1])
