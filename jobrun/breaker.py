"""`--pause-after`: what makes a job pause itself, as its options and its grid say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from jobrun import windows
from jobrun.plans import COUNTED
from jobrun.rows import Block, Breaker

if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.schedule import Grid


def breaker_of(job: Job, grid: Grid | None, now: Callable[[], int]) -> Breaker | None:
    """None where the call asks for none, or is by hand: a person sees what fails."""
    limit = job.pause_after
    if limit is None or grid is None or job.is_by_hand:
        return None

    def closed_since(instant: int, blocks: Callable[[int], Iterable[Block]]) -> int:
        start = grid.floor(instant - job.lag)
        free, _ = windows.count_free(grid, start, now() - job.lag, blocks(start), COUNTED)
        return limit if free is None else free

    waiting = closed_since if job.on_failure == "stop" else None
    return Breaker(limit, job.resume_after, waiting)
