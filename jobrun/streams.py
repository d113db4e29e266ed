"""Standard streams, ours and a command's, as descriptors."""

from __future__ import annotations

import os
import sys

_WIDE = 1 << 20  # bytes: what Linux lets everybody have


def widen(fd: int) -> None:
    """Let a pipe hold more, where the system can: more bytes a turn, and fewer waits."""
    if sys.platform == "linux":
        import fcntl

        try:
            if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < _WIDE:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _WIDE)
        except OSError:  # no pipe, or this user's pipes hold too much already
            pass


def fill() -> None:
    """Open /dev/null on what was closed when we started (`>&-`, some daemons).

    Otherwise the next file opened, the ledger say, would be somebody's standard output.
    """
    fd = 0
    while fd <= 2:
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)
