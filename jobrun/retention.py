"""Remove old kept output: of each job the last 100 runs stay, and failures for 30 days.

    output/<job>/<YYYY-MM>/<run id>.out, .err

It is called after each run, so it must not cost more than that is worth: one run is added at a
time, so looking a few places beyond the last hundred finds what has just fallen out. A failure that
is kept there is not looked at again before its month is old.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from jobrun.errors import JobrunError

KEPT_RUNS = 100
KEPT_FAILURES = 1000  # with the others; a job that fails every minute must not fill the disk
FAILURE_AGE = 30 * 86_400  # seconds; counted from the end of the month that the run is filed in
_LOOKED_AT = 8  # runs beyond the hundredth, each call
_REMOVED = 32  # runs at most, each call: the rest is left to the next ones

Run = tuple[int, str]  # run id, month


def retain(folder: str, now: int, failed: Callable[[int], bool]) -> None:
    """`folder`: of one job. `now`: an instant. `failed`: whether this run, by its id, is to be kept
    as a failure. Never raises: what can't be removed now is tried by the next call."""
    with contextlib.suppress(OSError, JobrunError):  # of `failed`: the ledger is busy
        oldest_month = time.strftime("%Y-%m", time.gmtime(now - FAILURE_AGE))
        budget = _REMOVED
        for run_id, month in _superfluous(folder, oldest_month, failed):
            _remove(os.path.join(folder, month), run_id)
            budget -= 1
            if not budget:
                return


def _superfluous(folder: str, oldest_month: str, failed: Callable[[int], bool]) -> list[Run]:
    months = sorted((m for m in os.listdir(folder) if _is_month(m)), reverse=True)
    seen = 0
    found: list[Run] = []
    for month in months:
        runs = _runs(os.path.join(folder, month))
        if not runs:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(folder, month))
        for place, run_id in enumerate(runs, start=seen):
            if _must_go(place, month < oldest_month, run_id, failed):
                found.append((run_id, month))
        seen += len(runs)
        if len(found) >= _REMOVED:
            break
    return found


def _must_go(place: int, is_old: bool, run_id: int, failed: Callable[[int], bool]) -> bool:
    if place < KEPT_RUNS:
        return False
    if is_old or place >= KEPT_FAILURES:
        return True
    return place < KEPT_RUNS + _LOOKED_AT and not failed(run_id)


def _is_month(name: str) -> bool:
    return len(name) == 7 and name[4] == "-" and name.replace("-", "").isdecimal()


def _runs(folder: str) -> list[int]:
    """Newest first."""
    stems = {name.partition(".")[0] for name in os.listdir(folder)}
    return sorted((int(stem) for stem in stems if stem.isdecimal()), reverse=True)


def _remove(folder: str, run_id: int) -> None:
    # `.new`: left by a run that was killed while its file was being replaced.
    for suffix in (".out", ".err", ".out.new", ".err.new"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, f"{run_id}{suffix}"))
