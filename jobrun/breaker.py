"""`--pause-after`: what makes a job pause itself, as its options and its grid say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jobrun import windows
from jobrun.plans import COUNTED
from jobrun.rows import Block, Breaker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.schedule import Grid


def breaker_of(job: Job, grid: Grid | None, now: Callable[[], int]) -> Breaker | None:
    """None where the call asks for none, or is by hand: a person sees what fails."""
    if job.pause_after is None or grid is None or job.is_by_hand:
        return None
    stops = job.on_failure == "stop"
    return make_breaker(job.pause_after, job.resume_after, job.lag, stops, grid, now)


def make_breaker(
    limit: int,
    resume_after: int | None,
    lag: int,
    stops: bool,
    grid: Grid,
    now: Callable[[], int],
) -> Breaker:
    """`stops`: at the first failed window, so that those behind it wait."""

    def closed_since(instant: int, blocks: Callable[[int], Iterable[Block]]) -> int:
        start = grid.floor(instant - lag)
        free, _ = windows.count_free(grid, start, now() - lag, blocks(start), COUNTED)
        return limit if free is None else free

    return Breaker(limit, resume_after, closed_since if stops else None)
