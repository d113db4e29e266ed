"""`--pause-after`: what makes a job pause itself, as its options and its grid say. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jobrun.rows import Breaker

if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.schedule import Grid


def breaker_of(job: Job, grid: Grid | None, now: Callable[[], int]) -> Breaker | None:
    """None where the call asks for none, or is by hand: a person sees what fails."""
    limit = job.pause_after
    if limit is None or grid is None or job.is_by_hand:
        return None

    def closed_since(instant: int) -> int:
        closed = grid.count(instant - job.lag, now() - job.lag, limit)
        return limit if closed is None else closed

    waiting = closed_since if job.on_failure == "stop" else None
    return Breaker(limit, job.resume_after, waiting)
