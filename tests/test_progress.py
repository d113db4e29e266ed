"""How far a long catch-up is: for a person at a terminal, and never between the command's lines."""

from __future__ import annotations

import io
import itertools
import time

import pytest

from jobrun.progress import Progress
from tests.test_tables import Terminal


def go(out: io.TextIOWrapper, total: int, *, live: bool) -> None:
    shown = Progress(total, live=live, out=out)
    for window in range(total):
        shown.hide()
        shown.advance(f"sales:{window}")
    shown.close()


def test_nobody_is_told_where_no_person_is() -> None:
    """cron mails what is printed: a pipe gets nothing."""
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    go(pipe, 10, live=True)
    go(pipe, 10, live=False)
    pipe.flush()
    assert pipe.buffer.getvalue() == b""


def test_beside_live_output_it_is_a_plain_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A window takes four seconds: each third one is told, the last one is not."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks) * 4.0)
    monkeypatch.setattr(Progress, "_text", lambda self, key: f"{self._done} {key}")
    terminal = Terminal()
    go(terminal, 10, live=True)
    told = [line.split()[1] for line in terminal.text().splitlines()]
    assert told == sorted(told)
    assert 1 < len(told) < 9
    assert "10" not in told


def test_a_bar_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is drawn where the command is silent, and the last thing done is to erase it."""
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    go(terminal, 10, live=False)
    assert "sales:9" in terminal.text()
    assert terminal.text().endswith("\x1b[2K")
