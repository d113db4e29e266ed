"""`--wait` where it is not the job's lock that keeps a call from its turn, but runs that hold none:
those beside others, and one whose lock was lost a moment ago and may be taken again.

Whoever waits lets the lock go: those who work beside each other need it for a moment each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from jobrun import process, skips
from jobrun.call import note_holder
from jobrun.errors import EXIT_SIGNAL
from jobrun.lock_file import LONGEST_PAUSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Situation
    from jobrun.living import Living
    from jobrun.rows import RunRow


def left(situation: Situation) -> float:
    """Seconds of --wait that are left."""
    return max(0.0, situation.began + situation.job.wait - time.monotonic())


def can_wait(situation: Situation, living: Sequence[Living]) -> bool:
    """Whether there is time, and each of these has somebody who looks after it, or may have it: an
    orphan may never end."""
    return left(situation) > 0 and not any(each.pids for each in living)


def until_ended(situation: Situation, runs: Sequence[RunRow]) -> bool:
    """Whether one of them ends in that time; False also where a signal asks us to stop."""
    while (seconds := left(situation)) and situation.signals.received is None:
        situation.signals.pause(min(LONGEST_PAUSE, seconds))
        if any(_has_ended(situation, run) for run in runs):
            return situation.signals.received is None
    return False


def _has_ended(situation: Situation, run: RunRow) -> bool:
    """Or has lost its wrapper: what is left then is for a look under the job's lock."""
    row = situation.ledger.run(run.id)
    if row is None or row.outcome is not None:
        return True
    return not process.wrapper_alive(run) and not situation.lock.is_elsewhere(run)


def lock_again(situation: Situation) -> int | None:
    """The job's lock in what is left of the time; the exit code where it is not to be had."""
    job, call, ledger, lock, signals, *_ = situation
    if lock.acquire(left(situation), signals):
        note_holder(lock, call)
        return None
    if signals.received:
        return EXIT_SIGNAL + signals.received
    open_runs = ledger.open_runs(job.name)
    return skips.lock_held(job, call, ledger, open_runs[-1] if open_runs else None, lock.holder())
