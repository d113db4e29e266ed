"""A lock of several machines while its command runs: its keeper is driven by the loop that waits.

Loaded only where there is such a lock.
"""

from __future__ import annotations

import sys

from jobrun.boottime import boottime
from jobrun.stopping import NEVER

if sys.platform == "win32":
    import select
else:
    from jobrun.poller import Poller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.hold import Hold
    from jobrun.lock import Keeper
    from jobrun.signals import Signals

_LOOK_EVERY = 1.0  # seconds: no wait of ours counts a suspend
# Before the guardian does: a command that is asked twice may take it for haste.
_AHEAD = 0.1  # seconds
_LATE = 0.5  # seconds after that, and we have been stopped, or the machine suspended
_SILENT = "no answer from its server in time"


class Keeping:
    """`hold`: what a guardian is to know, where there is one; `grace`: seconds from TERM to KILL.

    The keeper's socket is watched by `poller`, whoever takes its turns; on Windows by `hear`.
    """

    def __init__(self, keeper: Keeper, hold: Hold | None = None, grace: float = 0.0) -> None:
        self._keeper = keeper
        self._hold = hold
        self._grace = grace
        self._is_over = False
        self._looked = boottime()
        self._stopped = ""
        if sys.platform != "win32":
            self.poller = Poller()
            self._watched = (-1, False)

    @property
    def why(self) -> str:
        """How the lock was lost."""
        return self._stopped or self._keeper.lost or _SILENT

    @property
    def patience(self) -> float:
        """Seconds until the next look."""
        return NEVER if self._is_over else min(_LOOK_EVERY, self._due - boottime())

    @property
    def _due(self) -> float:
        return min(self._keeper.due, self._keeper.until - _AHEAD)

    def look(self, is_ending: bool = False, is_safe: bool = False) -> bool:
        """Let the keeper do what is due, and tell the guardian; True once: the lock is lost.

        `is_ending`: the command has been asked to end; `is_safe`: it has ended by itself.
        """
        was_over = self._is_over
        if not was_over:
            self._let_keeper_act()
            self._watch()
        if self._hold is not None:
            self._tell(self._hold, is_ending, is_safe)
        return self._is_over and not was_over

    def first_look(self) -> bool:
        """Whether the lock is lost before there is a loop."""
        self._watch()
        self.hear()
        return self.look()

    def were_stopped(self) -> None:
        """The guardian had to act for us; whatever the server did meanwhile comes from that."""
        if not self._stopped:
            self._stopped = f"this process was stopped for {boottime() - self._looked:.1f} s"

    def hear(self) -> None:
        """What the keeper's socket has by now, for a loop that can't wait for it."""
        if sys.platform == "win32":
            fds = [fd for fd in [self._keeper.fd] if fd >= 0 and not self._is_over]
            writing = fds if self._keeper.wants_write else []
            if fds and any(select.select(fds, writing, fds, 0)):
                self._keeper.on_ready()
        else:
            self.poller.turn(0.0)

    def pause(self, signals: Signals, seconds: float) -> bool:
        """Wait so long, or until the next signal, or look; True once: the lock is lost."""
        signals.pause(max(0.0, min(seconds, self.patience)))
        self.hear()
        return self.look()

    def _let_keeper_act(self) -> None:
        keeper, now = self._keeper, boottime()
        if now >= max(keeper.until - _AHEAD, self._looked) + _LATE:
            self.were_stopped()
        if keeper.lost is None and now >= self._due:
            keeper.on_time(now)
        self._is_over = keeper.lost is not None or now >= keeper.until - _AHEAD
        self._looked = now

    if sys.platform != "win32":

        def _watch(self) -> None:
            keeper = self._keeper
            wanted = (-1 if self._is_over else keeper.fd, keeper.wants_write)
            if wanted == self._watched:
                return
            self.poller.forget(self._watched[0])
            self._watched = wanted
            if wanted[0] >= 0:
                when = self.poller.when_writable if wanted[1] else self.poller.when_readable
                when(wanted[0], keeper.on_ready)

    else:

        def _watch(self) -> None: ...

    def _tell(self, hold: Hold, is_ending: bool, is_safe: bool) -> None:
        until = self._keeper.until
        if is_ending:
            hold.set_deadlines(NEVER, until + self._grace)
        else:
            hold.set_deadlines(NEVER if is_safe else until, NEVER)
        hold.hand_over()
