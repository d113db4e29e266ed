"""Time where other machines have a part in it."""

from __future__ import annotations

import os
import sys
import time

if sys.platform == "win32":
    boottime = time.monotonic
else:
    _CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS: it counts there

    def boottime() -> float:
        """Seconds since some instant of this boot.

        The clock of deadlines that a server counts too: it goes on while this machine is suspended.
        """
        return time.clock_gettime(_CLOCK)


def about(seconds: float) -> float:
    """More or less by a fifth, so that those who wait don't all ask at once."""
    return seconds * (0.8 + 0.4 * os.urandom(1)[0] / 255)
