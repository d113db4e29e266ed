"""`--pause-after`: what one more failure makes of a job, and when it is paused by it. Pure.

The ledger counts by it where a run ends or is found lost, and `plan` where it foresees that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jobrun.rows import BREAKER, Block, Breaker, Failing, Pause
from jobrun.value import NamedTuple


class Failure(NamedTuple):
    """A run in its turn that has failed or was lost."""

    at: int
    is_dead: bool  # so is its window
    more: int  # windows that fail now and did not before: 0 or 1


def weigh(
    before: Failing,
    failure: Failure,
    breaker: Breaker | None,
    blocks: Callable[[int], Iterable[Block]],
) -> tuple[Failing, Pause | None]:
    """What is on record then; the pause that the breaker makes of it, None where it makes none.

    `blocks` is what is on record from an instant on. A job of one window a day fails at the same
    one all day long: those that have closed since then count as well, unless they are on record, as
    failed too or as done without.
    """
    at, is_dead, more = failure
    since = at if before.since is None else before.since
    after = before._replace(failing=before.failing + more, since=since)
    if breaker is None:
        return after, None
    until = None if breaker.probe_after is None else at + breaker.probe_after
    pause = before.pause
    if pause is not None:
        if pause.by == BREAKER and not pause.holds(at):  # the probe has failed
            after = after._replace(pause=pause._replace(at=at, until=until))
        return after, None
    waiting = 0
    if not is_dead and breaker.waiting_since is not None:
        # Behind a dead one the next have their turn, and count when they have failed.
        waiting = breaker.waiting_since(since, blocks)
    if after.failing + waiting < breaker.windows:
        return after, None
    tripped = Pause(at, until, BREAKER, _reason(after.failing, waiting))
    return after._replace(pause=tripped), tripped


def _reason(failed: int, waiting: int) -> str:
    number = failed + waiting
    windows = f"{number} window{'' if number == 1 else 's'} failed"
    return f"{windows} or wait for one that did" if waiting else windows
