"""What wrapper and guardian share while a lock of several machines is held.

The guardian keeps the held socket open, so that a server frees the lock only once the command is
dead; and it knows until when the command may run, should the wrapper be stopped. That lies in
memory that both have: word of it in a pipe could block us, or be stale, where the guardian is
stopped. A newer socket, after a re-adoption, goes over a pair of sockets.
"""

from __future__ import annotations

import _socket
import mmap
import os
import sys

from jobrun.boottime import boottime
from jobrun.stopping import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.lock import Keeper

assert sys.platform != "win32"

_SIZE = 8  # of a float
_FD_SIZE = 4


class Hold:
    """Made by the wrapper, before there is a guardian."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self._held_fd = keeper.held_fd
        self._handed_over = keeper.adopted
        self._deadlines = memoryview(mmap.mmap(-1, 2 * _SIZE)).cast("d")
        self._sender, self._receiver = _socket.socketpair()
        self._sender.setblocking(False)
        self.set_deadlines(NEVER, NEVER)

    # -- the wrapper's ---------------------------------------------------------------------------

    def begin(self) -> None:
        """The guardian is there."""
        self._receiver.close()

    def set_deadlines(self, ask_at: float, kill_at: float) -> None:
        """When the guardian ends the command by itself; of boottime(), or NEVER."""
        self._deadlines[1] = kill_at
        self._deadlines[0] = ask_at

    def hand_over(self) -> None:
        """A held socket that the guardian has not got yet; where that can't be now, next time."""
        keeper = self.keeper
        if self._handed_over == keeper.adopted or keeper.held_fd < 0:
            return
        rights = keeper.held_fd.to_bytes(_FD_SIZE, sys.byteorder)
        try:
            self._sender.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        except OSError:  # its end, or it is stopped
            return
        self._handed_over = keeper.adopted

    def end(self) -> None:
        self._sender.close()

    # -- the guardian's --------------------------------------------------------------------------

    def left(self) -> tuple[float, float]:
        """Seconds until it asks, and until it kills."""
        now = boottime()
        return self._deadlines[0] - now, self._deadlines[1] - now

    @property
    def receiver(self) -> int:
        return self._receiver.fileno()

    @property
    def needed(self) -> set[int]:
        return {self.receiver} | ({self._held_fd} if self._held_fd >= 0 else set())

    def receive(self) -> bool:
        """Keep a newer socket instead of the old one; False where the wrapper is gone."""
        data, attached, _, _ = self._receiver.recvmsg(1, _socket.CMSG_SPACE(_FD_SIZE))
        for _, _, rights in attached:
            old, self._held_fd = self._held_fd, int.from_bytes(rights, sys.byteorder)
            if old >= 0:
                os.close(old)
        return bool(data)
