"""What grows with the ledger, and with the number of jobs: nothing should.

    python tests/bench/scale.py [--rounds N] [--rows N] [--markdown]

Each kind of call on a ledger with a million windows and runs, and on one with ten, in turn. Then
the screens, sixty jobs at once, and the plan for a backlog of a year. The large ledger is filled by
SQL (its own calls would take half an hour): 420 MB in a temporary folder.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from jobrun.instants import DAY, MINUTE, iso
from tests.bench.measure import (
    HOLD,
    Place,
    Table,
    milliseconds,
    pairs,
    parser,
    peak,
    run,
    verdict,
)
from tests.ledgers import Writer

FEW = 10
JOBS = 60
SCREENS = (
    ("status",),
    ("history",),
    ("history", "beat", "--all"),
    ("windows", "beat"),
    ("show", "beat"),
    ("logs", "beat"),
)
_WINDOWS = """
INSERT INTO jobrun_window (job, key, start, end, state, attempts, failures, windows, partial, token,
                           changed_at)
VALUES ('beat', ?, ?, ?, 'processed', 1, 0, 1, 0, 1, ?)
"""
_RUNS = """
INSERT INTO jobrun_run (job, key, kind, attempt, token, host, pid, user, terminal, started, ended,
                        took, outcome, exit_code)
VALUES ('beat', ?, 'new', 1, 1, 'db1', ?, 'etl', 0, ?, ?, 0.1, 'succeeded', 0)
"""


def measure(given: Namespace, place: Place) -> None:
    rows = 200 if given.quick else given.rows
    many, few = (ledger_of(place, number) for number in (rows, FEW))
    compare(given, many, few, rows)
    show_screens(given, many, rows)
    start_many(given, place)
    plan_a_year(given, place)


# -- a ledger --------------------------------------------------------------------------------------


def ledger_of(place: Place, rows: int) -> Place:
    """A job of one-minute windows: so many processed, with a run each, the last one a day ago."""
    folder = place.folder / f"rows-{rows}"
    folder.mkdir()
    here = Place(folder, place.jobrun)
    end = int(time.time()) // MINUTE * MINUTE - DAY
    instants = range(end - rows * MINUTE, end, MINUTE)
    Writer(here.ledger).job("beat", instants[0], every="every 1m", watermark=instants[0])
    connection = sqlite3.connect(here.ledger)
    ends = [iso(start + MINUTE) for start in instants]
    starts = [iso(instants[0]), *ends[:-1]]
    both = list(zip(starts, ends, strict=True))
    connection.executemany(_WINDOWS, ((f"beat:{a}", a, b, b) for a, b in both))
    connection.executemany(_RUNS, ((f"beat:{a}", pid, b, b) for pid, (a, b) in enumerate(both)))
    connection.execute(
        "UPDATE jobrun_job SET watermark = ?, next = ?, last_seen = ?, largest_now = ?",
        (iso(end), iso(end + MINUTE), iso(end), iso(end)),
    )
    connection.commit()
    connection.close()
    return here


# -- calls -----------------------------------------------------------------------------------------


def calls(place: Place) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Each kind of call; a key is another one each time."""
    windows = ("run", "beat", "--every", "1m")
    keys = count()
    last = sqlite3.connect(place.ledger).execute("SELECT max(start) FROM jobrun_window").fetchone()
    yield "one window", lambda: place.call(*windows, "--max-windows", "1", "-q", "--", "true")
    yield "nothing to do", lambda: place.call(*windows, "--lag", "1w", "-q", "--", "true")
    yield "a key", lambda: place.call("run", "load", "--key", f"{next(keys)}", "-q", "--", "true")
    yield "plain", lambda: place.call("run", "plain", "-q", "--", "true")
    yield "the lock is held", lambda: place.call("run", "busy", "-q", "--", "true")
    yield "rerun", lambda: place.call("rerun", "beat", last[0], "-q")
    yield "status", lambda: place.call("status")
    yield "history", lambda: place.call("history")
    yield "windows", lambda: place.call("windows", "beat")
    yield "plan", lambda: place.call("plan", "beat")


def compare(given: Namespace, many: Place, few: Place, rows: int) -> None:
    title = f"calls on a ledger of {rows:,} windows and runs, beside one of {FEW}"
    table = Table(title, "call", "ms", f"with {FEW}", "ratio (quartiles)", "wanted")
    with ExitStack() as held:
        for place in (many, few):
            held.enter_context(place.holding(*place.call("run", "busy", "--", *HOLD)))
        for (label, ours), (_, theirs) in zip(calls(many), calls(few), strict=True):
            taken = pairs(
                lambda argv=ours: many.seconds(argv()),  # type: ignore[misc]
                lambda argv=theirs: few.seconds(argv()),  # type: ignore[misc]
                given.rounds,
            )
            both = (milliseconds(figures) for figures in taken)
            table.add(label, *both, taken.ratio, verdict(taken.ratio.middle, 1.2))
    table.show(given.markdown)


def show_screens(given: Namespace, place: Place, rows: int) -> None:
    table = Table(f"screens at {rows:,} windows and runs", "screen", "s", "wanted")
    for argv in SCREENS:
        took = median(place.seconds(place.call(*argv)) for _ in range(min(given.rounds, 5) or 1))
        # `--all` prints every run there is.
        most = 0.3 if "--all" not in argv and argv[0] not in ("show", "logs") else None
        table.add(f"jobrun {' '.join(argv)}", f"{took:.3f}", verdict(took, most))
    table.show(given.markdown)


# -- many jobs, many windows -----------------------------------------------------------------------


class Start(NamedTuple):
    delay: float  # seconds until the command ran
    failed: bool
    said: bool  # anything on stderr


def start_many(given: Namespace, place: Place) -> None:
    """All in one moment, as cron does at the full hour, and over one second; on one ledger."""
    place.seconds(place.call("run", "first", "-q", "--", "true"))
    jobs, times = (4, 1) if given.quick else (JOBS, 5)
    table = Table(f"{jobs} jobs, {times} times", "what", "in one moment", "over a second", "wanted")
    at_once, spread_out = (
        [start for _ in range(times) for start in start_jobs(place, jobs, seconds)]
        for seconds in (0.0, 1.0)
    )
    for what, figure, most in (
        ("until the command runs, s: median", lambda starts: percentile(starts, 50), None),
        ("until the command runs, s: 99 of 100", lambda starts: percentile(starts, 99), 1.5),
        ("failed", lambda starts: sum(start.failed for start in starts), 0),
        ("printed anything", lambda starts: sum(start.said for start in starts), 0),
    ):
        figures = [figure(starts) for starts in (at_once, spread_out)]
        table.add(what, *figures, verdict(max(map(float, figures)), most))
    table.show(given.markdown)


def percentile(starts: list[Start], place: int) -> str:
    delays = [start.delay for start in starts]
    return f"{quantiles(delays, n=100, method='inclusive')[place - 1]:.2f}"


def start_jobs(place: Place, jobs: int, seconds: float) -> list[Start]:
    pause, began = threading.Event(), time.monotonic()
    started = []
    for number in range(jobs):
        pause.wait(max(0.0, began + number * seconds / jobs - time.monotonic()))
        started.append(start_one(place, f"job-{number}"))
    return [outcome(process, at) for process, at in started]


def start_one(place: Place, job: str) -> tuple[subprocess.Popen[bytes], float]:
    argv = place.call("run", job, "-q", "--", "date", "+%s.%N")
    at = time.time()
    return place.start(argv, subprocess.PIPE, subprocess.PIPE), at


def outcome(process: subprocess.Popen[bytes], at: float) -> Start:
    """Its command printed the instant that it ran at; one that did not run counts as an hour."""
    out, err = process.communicate()
    said = [line for line in err.splitlines() if b"what=ephemeral-ledger" not in line]
    delay = float(out) - at if out else 3600.0
    return Start(delay, bool(process.returncode), bool(said))


def plan_a_year(given: Namespace, place: Place) -> None:
    first = iso(int(time.time()) // DAY * DAY - 365 * DAY)
    windows = ("run", "year", "--every", "1m", "--first", first)
    call = (*windows, "--dry-run", "--", "true")
    table = Table("a backlog of a year of minutes", "what", "", "wanted")
    took = median(place.seconds(place.call(*call)) for _ in range(given.rounds or 1))
    table.add("planned (--dry-run), s", f"{took:.2f}", verdict(took, 1.0))
    size = peak(place, *call)
    table.add("memory of that, MiB", f"{size:.1f}", verdict(size, 50))
    size = peak(place, *windows, "--max-windows", "1", "-q", "--", "true")
    table.add("memory of a call that runs one of them, MiB", f"{size:.1f}", verdict(size, 50))
    table.show(given.markdown)


if __name__ == "__main__":
    reader = parser(__doc__ or "", rounds=9)
    reader.add_argument("--rows", type=int, default=1_000_000, help="windows and runs (10^6)")
    sys.exit(run(reader.parse_args(), measure))
