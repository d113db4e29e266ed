"""The main job under a real cron, through a kill -9 and an outage, compared to the cent.

    python tests/bench/main_job.py            cron stopped for two minutes; seven minutes in all
    python tests/bench/main_job.py --short    cron stopped for one; four minutes in all

A shop writes orders all the while. cron calls jobrun each minute for windows of a minute, the
command adds them to a turnover with `jobrun_done`. One call is killed with SIGKILL while its
command works; later cron itself is stopped. In the end each window is in once, and the sums are
those of the orders. As root, with Debian's cron, and only where no cron runs already.

Exit 0: right to the cent. 1: not, with what is wrong. 77: can't be done here, with the reason.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROLLUP = ROOT / "examples" / "rollup"
CRON_D = Path("/etc/cron.d")
CANT = 77

# Stands before the roll-up and waits where the scenario wants to kill it.
HELD = """\
#!/bin/sh
if [ -e hold ]; then
    rm hold
    echo "$JOBRUN_KEY" > holding
    timeout 300 cat gate
fi
exec "$@"
"""


class Wrong(Exception):
    """What should have happened within its time and has not."""


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S", time.gmtime()), text, flush=True)


def wait(what: str, seconds: float, holds: Callable[[], bool]) -> None:
    """Until it holds; raises Wrong after so many seconds."""
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Wrong(f"not within {seconds:.0f} s: {what}")
        pause.wait(0.1)
    say(what)


def reason_not_to() -> str | None:
    if sys.platform == "win32" or os.geteuid() != 0:
        return "a cron of our own wants root: sudo python tests/bench/main_job.py"
    if shutil.which("cron") is None:
        return "no cron here: apt install cron"
    if not CRON_D.is_dir():
        return f"this cron reads no {CRON_D}"
    for entry in Path("/proc").glob("[0-9]*/comm"):
        try:
            running = entry.read_text().strip()
        except OSError:
            continue  # ended meanwhile
        if running in ("cron", "crond"):
            return f"a cron runs already (pid {entry.parent.name}): it can't be stopped for a test"
    return None


class Ledger:
    """What the shop's database says of the job, read from outside."""

    def __init__(self, database: Path) -> None:
        self.database = database

    def _rows(self, sql: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(self.database, timeout=30)
        try:
            return connection.execute(sql).fetchall()
        except sqlite3.OperationalError:
            return []  # no ledger yet
        finally:
            connection.close()

    def processed(self) -> int:
        return len(self._rows("SELECT 1 FROM jobrun_window WHERE state = 'processed'"))

    def outcomes(self) -> list[str]:
        return [str(row[0]) for row in self._rows("SELECT outcome FROM jobrun_run ORDER BY id")]

    def wrapper(self) -> int:
        ((pid,),) = self._rows("SELECT pid FROM jobrun_run WHERE outcome IS NULL")
        return int(str(pid))


class Cron:
    """A cron of our own, with one line of ours, which does nothing once this process is gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.line = CRON_D / f"jobrun-main-job-{os.getpid()}"
        self.process: subprocess.Popen[bytes] | None = None

    def write_line(self) -> None:
        jobrun = f"{sys.executable} -m jobrun"
        command = f"{sys.executable} {ROLLUP}/rollup_once.py shop.db {{start}} {{end}}"
        self.line.write_text(
            f"PYTHONPATH={ROOT}\n"
            f"* * * * * root kill -0 {os.getpid()} 2> /dev/null && cd {self.folder}"
            f" && {jobrun} run turnover --every 1minute --lag 5s"
            f" --ledger shop.db --retry-delay 1s -- ./held {command} >> log 2>&1\n"
        )
        self.line.chmod(0o644)  # cron reads no file that others can write

    def start(self) -> None:
        # No output of ours: what another line of this machine starts may live on, and hold it open.
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(["cron", "-f"], stdin=null, stdout=null, stderr=null)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def remove(self) -> None:
        self.stop()
        self.line.unlink(missing_ok=True)


@contextmanager
def orders(database: Path) -> Iterator[None]:
    """A shop that is open for as long as the block lasts."""
    shop = subprocess.Popen([sys.executable, str(ROLLUP / "orders.py"), str(database)])
    try:
        yield
    finally:
        shop.terminate()
        shop.wait(10)


def scenario(folder: Path, cron: Cron, before: int, stopped: int, windows: int) -> None:
    """`before` windows, a kill, cron away for `stopped` minutes, until `windows` are done."""
    ledger = Ledger(folder / "shop.db")
    cron.write_line()
    cron.start()
    say("cron is started")
    wait(f"{before} windows are processed", 150, lambda: ledger.processed() >= before)

    (folder / "hold").touch()
    wait("a command is at work", 130, (folder / "holding").exists)
    wait("and on record", 10, lambda: "None" in ledger.outcomes())
    os.kill(ledger.wrapper(), signal.SIGKILL)
    say("its jobrun is killed with SIGKILL")
    done = ledger.processed()
    wait("the run is known as lost", 130, lambda: "lost" in ledger.outcomes())
    wait("its window is processed after all", 30, lambda: ledger.processed() > done)

    cron.stop()
    say("cron is stopped")
    back = time.time() + 60 * stopped
    wait(f"it was away for {stopped} min", 60 * stopped + 30, lambda: time.time() >= back)
    cron.start()
    say("cron is back")
    wait(f"{windows} windows are processed", 240, lambda: ledger.processed() >= windows)


def compare(folder: Path) -> bool:
    command = [sys.executable, str(ROLLUP / "check.py"), str(folder / "shop.db")]
    return subprocess.run(command).returncode == 0


def run(folder: Path, before: int, stopped: int, windows: int) -> int:
    os.mkfifo(folder / "gate")
    (folder / "held").write_text(HELD)
    (folder / "held").chmod(0o755)
    cron = Cron(folder)
    try:
        with orders(folder / "shop.db"):
            scenario(folder, cron, before, stopped, windows)
    except Wrong as wrong:
        say(f"wrong: {wrong}")
        log = folder / "log"
        print(log.read_text() if log.exists() else "cron has called nothing")
        return 1
    finally:
        cron.remove()
    return 0 if compare(folder) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="The main job under a real cron.")
    parser.add_argument("--short", action="store_true", help="four minutes instead of seven")
    short = parser.parse_args().short
    reason = reason_not_to()
    if reason:
        print(reason)
        return CANT
    with tempfile.TemporaryDirectory(prefix="jobrun-main-job-") as folder:
        if short:
            return run(Path(folder), before=0, stopped=1, windows=3)
        return run(Path(folder), before=2, stopped=2, windows=7)


if __name__ == "__main__":
    sys.exit(main())
