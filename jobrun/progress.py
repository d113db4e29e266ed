"""How far a call is that makes up many windows, for a person at a terminal; silent elsewhere.

The command's own output goes to the same terminal as it comes, and a bar that is redrawn would
tear it apart. So a bar is drawn only where the output is kept back (`--output on-failure`), and
taken away before a line of ours (`hide`); otherwise there is one plain line now and then.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from jobrun import tables
from jobrun.screen import about

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from rich.progress import Progress as Bar

PAUSE = 10.0  # seconds between two plain lines


class Progress:
    """`advance` after each window, `hide` before a line, `close` at the end, come what may."""

    def __init__(self, total: int, *, live: bool, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._total = total
        self._done = 0
        self._began = self._told = time.monotonic()
        self._is_shown = tables.is_terminal(self._out)
        self._bar = _bar(total, self._out) if self._is_shown and not live else None

    def advance(self, key: str) -> None:
        """One window is done, whatever came of it."""
        self._done += 1
        # The terminal may be gone (HUP ignored): that is no reason to end a catch-up. rich leaves
        # by SystemExit where it meets a broken pipe.
        with suppress(OSError, SystemExit):
            self._show(key)

    def _show(self, key: str) -> None:
        if self._bar is not None:
            self._bar.start()
            self._bar.update(self._bar.task_ids[0], completed=self._done, description=key)
            self._bar.refresh()
        elif self._is_shown and self._is_time():
            self._told = time.monotonic()
            tables.write(f"jobrun: {self._text(key)}\n", self._out)

    def hide(self) -> None:
        if self._bar is not None:
            with suppress(OSError, SystemExit):
                self._bar.stop()

    def close(self) -> None:
        self.hide()
        self._bar = None

    def _is_time(self) -> bool:
        return self._done < self._total and time.monotonic() - self._told >= PAUSE

    def _text(self, key: str) -> str:
        left = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        return f"{self._done} of {self._total} windows, {key}, about {about(left)} to go"


def _bar(total: int, out: TextIO) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(file=out, highlight=False),
        transient=True,  # what happened is in the lines
        auto_refresh=False,  # a thread of ours and the fork of the next command do not go together
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task("", total=total)
    return bar
