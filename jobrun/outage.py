"""What a call does whose ledger's server is out of reach when it begins, or goes before anything
has run (`--on-store-down`).

- skip: nothing, and says so. Without the store nobody knows what is done, or what others do.
- wait: until the server is there or the time is over, then as skip.
- run: unrecorded.py. As skip where the call has been told by the record, or by who has the lock,
  what it would have to forget for that.
"""

from __future__ import annotations

import time

from jobrun import rows
from jobrun.boottime import about
from jobrun.errors import EXIT_REFUSED, EXIT_SIGNAL, InDoubt, StoreDown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jobrun.call import Call
    from jobrun.job import Job
    from jobrun.signals import Signals


def meet(job: Job, call: Call, signals: Signals, down: StoreDown, again: Callable[[], int]) -> int:
    """The exit code; `again` is all that the call does where it has the store, and raises StoreDown
    where nothing has run."""
    word, seconds = job.on_store_down
    if word == "wait":
        return _wait(job, call, signals, seconds, down, again)
    if word == "run" and not down.is_late:
        from jobrun import unrecorded

        return unrecorded.run(job, call, signals, down)
    return _skip(job, call, down)


def _wait(
    job: Job,
    call: Call,
    signals: Signals,
    seconds: int,
    down: StoreDown,
    again: Callable[[], int],
) -> int:
    deadline = time.monotonic() + seconds
    # What may be on record as a run of ours, which lives, would keep us from our turn.
    while not isinstance(down, InDoubt) and (left := deadline - time.monotonic()) > 0:
        signals.pause(min(left, about(1.0)))
        if signals.received is not None:
            return EXIT_SIGNAL + signals.received
        try:
            return again()
        except StoreDown as error:
            down = error
    return _skip(job, call, down)


def _skip(job: Job, call: Call, down: StoreDown) -> int:
    cause = {"reason": rows.STORE_DOWN, "cause": down.message}
    call.lines.event("SKIPPED", {"job": job.name, **cause, "at": call.now()}, force=True)
    if down.hint is not None:
        call.lines.say("hint", down.hint)
    return job.busy_exit if "--busy-exit" in job.given else EXIT_REFUSED
