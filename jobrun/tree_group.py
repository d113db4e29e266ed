"""The tree where there is no /proc (macOS, BSD): the command's process group, and no more."""

from __future__ import annotations

import os
import signal
import time


class GroupTree:
    def __init__(self, pid: int) -> None:
        self._pid = pid

    def members(self) -> tuple[int, ...]:
        """The leader's pid, for all of them: the group can't be listed without running ps."""
        return (self._pid,) if self._reach(0) else ()

    def send(self, number: int) -> None:
        self._reach(number)

    def ask(self, number: int) -> bool:
        self.send(number)
        self.send(signal.SIGCONT)
        return True

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def _reach(self, number: int) -> bool:
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS: nothing but zombies is left
            return False
        return True


def birth() -> str:
    # The kernel's own figure would cost running ps for every command; this is only ever compared
    # to the second, with what ps says when somebody asks.
    now = int(time.time())
    return f"wall {now} {now}"


def born(pid: int, birth: str) -> bool:
    """Whether `pid` is alive and not younger than the record of its birth."""
    import subprocess

    answer = subprocess.run(
        ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        env={"PATH": "/bin:/usr/bin", "LC_ALL": "C", "TZ": "UTC"},
    )
    state, _, text = answer.stdout.strip().partition(" ")
    if not text or state.startswith("Z"):
        return False
    started = time.strptime(f"{text.strip()} UTC", "%a %b %d %H:%M:%S %Y %Z")
    return _seconds(started) <= int(birth.split()[-1]) + 1


def _seconds(moment: time.struct_time) -> int:
    import calendar

    return calendar.timegm(moment)
