"""What a lock must offer: one holder a job at any moment, freed however the holder ends.

The lock is courtesy, the ledger is truth: it keeps two copies apart at the same moment; that a
window is done once comes from its row and from the token.

There are three answers. Busy is False and a skip. Not permitted and not supported are UnsafePlace
(73): nothing may run without a lock, and a place that can't lock must never look like a busy job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrun.rows import RunRow


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

    @property
    def keeper(self) -> Keeper | None:
        """Where several machines have a part in it: what keeps it, now that it is held."""

    def is_held(self) -> bool:
        """Whether it is still held, after it was taken; false: another may have it by now."""

    def beside(self, slot: int) -> Lock:
        """One of those beside it, counted from 1 (overlap.py)."""

    def is_elsewhere(self, run: RunRow) -> bool:
        """Whether a run without an end is under way on a machine that can't be asked of it."""

    def check_others(self, runs: Sequence[RunRow]) -> None:
        """Whether what is known of the job's runs without an end can be known by this lock.

        Raises ConfigError (78) where they are under way by another one.
        """

    def unlock(self) -> None:
        """Release it whoever has a copy of its descriptor."""

    def release(self) -> None: ...


class Keeper(Protocol):
    """A lock of several machines while a command runs: held by a connection, which may be lost.

    It is driven by the loop that waits for the command: nothing here waits, and nothing raises.
    Instants are of boottime().
    """

    @property
    def fd(self) -> int:
        """The socket to wait for; -1: none now. May be another after each call."""

    @property
    def wants_write(self) -> bool:
        """Whether `fd` is waited for to take something, not to have something."""

    @property
    def due(self) -> float:
        """When `on_time` is to be called."""

    @property
    def until(self) -> float:
        """When the command is asked to end, unless there is better word by then.

        As long before another machine may have the lock as TERM and KILL may take.
        """

    @property
    def held_fd(self) -> int:
        """The socket that holds the lock as long as it is open, so that the guardian keeps it open
        too; -1: none does."""

    @property
    def adopted(self) -> int:
        """Grows with each new socket in `held_fd`, whose number may be the old one's."""

    @property
    def lost(self) -> str | None:
        """How the lock was lost, for good: "the server closed the session (57P05)"."""

    def guard(self, run_id: int | None) -> None:
        """From here on it is driven; None: the lock is held between two runs."""

    def on_ready(self) -> None:
        """`fd` has what was waited for, or an error; it may also come for nothing."""

    def on_time(self, now: float) -> None:
        """`due` has come, or `until`, where this is the last chance to say how it was lost."""

    def rest(self) -> None:
        """It is no longer driven: the connection, where there still is one, is its owner's."""


class SharedLock(Protocol):
    """A lock of several machines, held by a connection."""

    @property
    def keeper(self) -> Keeper:
        """Once it is held."""

    def acquire(self, wait: float = 0.0, signals: Interruption | None = None) -> bool:
        """As of a Lock. Raises ConfigError where it would be none."""

    def holder(self) -> str:
        """Who has it, `host:pid`, as far as is known."""

    def is_held(self) -> bool:
        """As of a Lock. Where its connection is gone, a short while is spent to take it again."""

    def is_free(self) -> bool:
        """Whether nobody has it, looked at without taking it."""

    def is_settled(self) -> bool:
        """Whether it has been there for long enough that a holder would have taken it again."""

    def release(self) -> None: ...
