"""What a loop waits for, and what it does then."""

from __future__ import annotations

import math
import select
from collections.abc import Callable

Action = Callable[[], object]

_LONGEST = 3600.0  # seconds: poll takes no more than 2 ** 31 ms, and a loop comes round anyway


class Poller:
    def __init__(self) -> None:
        self._poll = select.poll()
        self._actions: dict[int, Action] = {}

    def when_readable(self, fd: int, action: Action) -> None:
        self._poll.register(fd, select.POLLIN)
        self._actions[fd] = action

    def when_writable(self, fd: int, action: Action) -> None:
        self._poll.register(fd, select.POLLOUT)
        self._actions[fd] = action

    def forget(self, fd: int) -> None:
        if self._actions.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def turn(self, seconds: float) -> bool:
        """Wait once, at most so long (0 and less: not at all); whether anything happened."""
        patience = max(0, math.ceil(min(seconds, _LONGEST) * 1000))
        ready = self._poll.poll(patience)
        for fd, _ in ready:
            action = self._actions.get(fd)
            if action is not None:  # an earlier action of this turn may have forgotten it
                action()
        return bool(ready)
