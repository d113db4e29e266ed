"""What a call does whose ledger's server is out of reach when it begins (`--on-store-down`).

- skip: nothing, and says so. Without the store nobody knows what is done, or what others do.
- wait: until the server is there or the time is over, then as skip.
- run: unrecorded.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jobrun import rows
from jobrun.boottime import about
from jobrun.errors import EXIT_REFUSED, EXIT_SIGNAL, StoreDown
from jobrun.ledgers import open_ledger

if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.job import Job
    from jobrun.ledger import Ledger
    from jobrun.signals import Signals


def meet(job: Job, call: Call, signals: Signals, down: StoreDown) -> Ledger | int:
    """The ledger, if it is there in time; else the exit code."""
    word, seconds = job.on_store_down
    if word == "wait":
        found = _wait(call, signals, seconds, down)
        if not isinstance(found, StoreDown):
            return found
        down = found
    if word == "run":
        from jobrun import unrecorded

        return unrecorded.run(job, call, signals, down)
    return _skip(job, call, down)


def _wait(call: Call, signals: Signals, seconds: int, down: StoreDown) -> Ledger | int | StoreDown:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        signals.pause(min(left, about(1.0)))
        if signals.received is not None:
            return EXIT_SIGNAL + signals.received
        try:
            return open_ledger(call.where, call.caller, create=True, clock=call.clock)
        except StoreDown as error:
            down = error
    return down


def _skip(job: Job, call: Call, down: StoreDown) -> int:
    cause = {"reason": rows.STORE_DOWN, "cause": down.message}
    call.lines.event("SKIPPED", {"job": job.name, **cause, "at": call.now()}, force=True)
    if down.hint is not None:
        call.lines.say("hint", down.hint)
    return job.busy_exit if "--busy-exit" in job.given else EXIT_REFUSED
