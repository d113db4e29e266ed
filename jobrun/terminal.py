"""Lend the terminal to the command's process group, and take it back."""

from __future__ import annotations

import os
import signal


class Terminal:
    """Of a command with this `stdin`; does nothing where there is none to lend."""

    def __init__(self, stdin: str) -> None:
        self.lent = False
        self._inherited = stdin == "inherit"
        self._old = signal.getsignal(signal.SIGTTOU)

    def lend(self, group: int) -> None:
        if self._inherited and _in_foreground():
            # We are in the background from here on; our own lines must not stop us.
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            self.lent = _give(group)

    def take_back(self) -> None:
        if self.lent:
            _give(os.getpgrp())
            signal.signal(signal.SIGTTOU, self._old)
            self.lent = False


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # not a terminal, or not ours
        return False


def _give(group: int) -> bool:
    try:
        os.tcsetpgrp(0, group)
    except OSError:  # hung up meanwhile, or the command is dead already
        return False
    return True
