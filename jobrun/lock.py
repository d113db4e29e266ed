"""What a lock must offer: one holder a job at any moment, freed however the holder ends.

The lock is courtesy, the ledger is truth: it keeps two copies apart at the same moment; that a
window is done once comes from its row and from the token.

There are three answers. Busy is False and a skip. Not permitted and not supported are UnsafePlace
(73): nothing may run without a lock, and a place that can't lock must never look like a busy job.
"""

from __future__ import annotations

from typing import Protocol


class Interruption(Protocol):
    """What may end a wait early (signals.py)."""

    received: int | None  # the number of a signal that asks us to stop

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the next signal."""


class Lock(Protocol):
    @property
    def fd(self) -> int:
        """The descriptor that holds it. The lock lasts until every copy of it is closed."""

    def acquire(self, wait: float = 0.0, signals: Interruption | None = None) -> bool:
        """Take it; False if another holds it for `wait` seconds, or a signal ended the wait.

        Raises UnsafePlace where it can't be had at all.
        """

    def note(self, text: str) -> None:
        """Leave a line about the holder, for people. No decision reads it."""

    def holder(self) -> str:
        """The line that the present or the last holder left; empty where there is none."""

    def unlock(self) -> None:
        """Release it whoever has a copy of its descriptor."""

    def release(self) -> None: ...
