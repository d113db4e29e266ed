"""Why and how a command is ended: a signal asks, the second one kills, the limit asks too.

What came first is the cause, whatever comes after it: the ladder has been begun for that.
"""

from __future__ import annotations

import signal

from jobrun.ended import EXITED, INTERRUPTED, TIMED_OUT, Ended
from jobrun.ladder import Ladder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.ladder import Reached

NEVER = float("inf")


class Stopping:
    """`deadline`: monotonic seconds, or NEVER."""

    def __init__(self, tree: Reached, grace: float, deadline: float) -> None:
        self.ladder = Ladder(tree, grace)
        self.deadline = deadline
        self._cause = EXITED
        self._our_signal: int | None = None

    @property
    def due(self) -> float:
        return min(self.deadline, self.ladder.due)

    def signalled(self, number: int, times: int, now: float) -> None:
        """We were asked to stop, for the first, second, … of `times`."""
        self._because(INTERRUPTED, number)
        if times > 1:
            self.ladder.kill(now)
        else:
            self.ladder.ask(number, now)

    def stop(self, cause: str, number: int, now: float) -> None:
        self._because(cause, number)
        self.ladder.ask(number, now)

    def join(self, cause: str, number: int, now: float) -> None:
        """Somebody else has asked."""
        self._because(cause, number)
        self.ladder.join(now)

    def watch_clock(self, now: float) -> None:
        """The limit, and the next rung."""
        if now >= self.deadline:
            self.deadline = NEVER
            self.stop(TIMED_OUT, signal.SIGTERM, now)
        if now >= self.ladder.due:
            self.ladder.step(now)

    def told(self, ended: Ended) -> Ended:
        """With what we did to it."""
        return ended._replace(
            cause=self._cause, our_signal=self._our_signal, survivors=self.ladder.survivors
        )

    def _because(self, cause: str, number: int) -> None:
        if not self.ladder.begun:
            self._cause, self._our_signal = cause, int(number)
