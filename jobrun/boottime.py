"""The clock of deadlines that a server counts too: it goes on while this machine is suspended."""

from __future__ import annotations

import sys
import time

if sys.platform == "win32":
    boottime = time.monotonic
else:
    _CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS: it counts there

    def boottime() -> float:
        """Seconds since some instant of this boot."""
        return time.clock_gettime(_CLOCK)
