"""Stop a tree: ask, wait, kill, collect.

It never waits by itself. Whoever has it, the wrapper's loop or the guardian's, calls `step` when
`due` has come, or sooner when something has happened.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Reached(Protocol):
        def members(self) -> tuple[int, ...]:
            """Pids of those that are alive."""

        def ask(self, number: int) -> bool:
            """Signal them, stopped ones too; False where that can't be done."""

        def kill(self) -> None: ...


PATIENCE = 10.0  # seconds after KILL: what still lives then is stuck in the kernel, or not ours
_SHORTEST_LOOK = 0.01
_LONGEST_LOOK = 0.25
_NEVER = float("inf")


class Ladder:
    def __init__(self, tree: Reached, grace: float) -> None:
        self.over = False
        self.begun = False
        self.due = _NEVER  # monotonic seconds
        self.survivors: tuple[int, ...] = ()
        self.tree = tree
        self._grace = grace
        self._kill_at = _NEVER
        self._give_up_at = _NEVER
        self._pause = _SHORTEST_LOOK

    def ask(self, number: int, now: float) -> None:
        """Signal the tree; the grace counts from the first time."""
        heard = self.tree.ask(number)
        self._await(now, self._grace if heard else 0.0)

    def join(self, now: float) -> None:
        """Somebody else has signalled it."""
        self._await(now, self._grace)

    def _await(self, now: float, grace: float) -> None:
        self.begun = True
        self._kill_at = min(self._kill_at, now + grace)
        self._look_again(now, _SHORTEST_LOOK)

    def kill(self, now: float) -> None:
        self.begun = True
        self.tree.kill()
        self._give_up_at = min(self._give_up_at, now + PATIENCE)
        self._look_again(now, _SHORTEST_LOOK)

    def hasten(self) -> None:
        """Something has happened: look at the next step."""
        self.due = 0.0

    def step(self, now: float) -> None:
        if now < self.due or self.over:
            return
        alive = self.tree.members()
        if not alive or now >= self._give_up_at:
            self.over, self.survivors, self.due = True, alive, _NEVER
        elif self._give_up_at < _NEVER:
            self.tree.kill()  # again: some may have forked between look and signal
            self._look_again(now, self._pause * 2)
        elif now >= self._kill_at:
            self.kill(now)
        else:
            self._look_again(now, self._pause * 2)

    def _look_again(self, now: float, pause: float) -> None:
        self._pause = min(pause, _LONGEST_LOOK)
        self.due = min(now + self._pause, max(self._kill_at, now), self._give_up_at)
