"""Run a command to its end: start it blocked, let it go, wait for it, or stop all of it.

    child = start(lock_fd, stdin)      it exists, has a pid, and waits
    child.go(argv, env, cwd)           what it is to run; or child.cancel(): it never runs
    ended = child.wait(signals, ...)   let it, until it has ended

The mechanism only; what counts as failure is the caller's business. Each platform has a sibling:
process_posix.py (guardian.py, vigil.py) and process_windows.py.
"""

from __future__ import annotations

import sys

from jobrun.ended import Ended
from jobrun.signals import Signals, catch

if sys.platform == "win32":
    from jobrun.process_windows import (
        Child,
        ask_wrapper,
        command_alive,
        is_here,
        left_of,
        start,
        wrapper_alive,
    )
else:
    from jobrun.process_posix import Child, start
    from jobrun.tree import ask_wrapper, command_alive, is_here, left_of, wrapper_alive

__all__ = [
    "Child",
    "Ended",
    "Signals",
    "ask_wrapper",
    "catch",
    "command_alive",
    "is_here",
    "left_of",
    "start",
    "wrapper_alive",
]
