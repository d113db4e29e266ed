"""A wrapper under test: `process` driven in a process of its own, and what can be asked of it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import PYTHON, ROOT, clean_environment, is_alive, make_end, until


def command(name: str, *arguments: object) -> list[str]:
    """One of tests/children.py."""
    return [PYTHON, "-m", "tests.children", name, *map(str, arguments)]


class Driven:
    """Started by `run` or `start`; whatever is left at the end of the test is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ready = folder / "ready"
        self.process: subprocess.Popen[bytes]
        self._left: list[int] = []

    def start(
        self, *argv: str, before: tuple[str, ...] = (), popen: Mapping[str, Any] | None = None,
        **script: object,
    ) -> Driven:  # fmt: skip
        """`script`: how it is driven, if otherwise; `before`: what runs the driver itself."""
        given: dict[str, object] = {
            "folder": str(self.folder), "argv": argv, "cwd": None, "stdin": "null", "hold": False,
            "cancel": False, "padding": 0, "timeout": None, "kill_after": 10.0, "live": True,
            "base": None, "mischief": None, "show": False, "keeper": None,
        }  # fmt: skip
        if script.get("hold"):
            os.mkfifo(self.folder / "hold")
        driver = [PYTHON, "-m", "tests.drive_process", json.dumps({**given, **script})]
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        options = {"cwd": ROOT, "env": clean_environment(), **streams, **(popen or {})}
        self.process = subprocess.Popen([*before, *driver], **options)
        return self

    def run(self, *argv: str, **script: object) -> dict[str, Any]:
        """From beginning to end; how it ended, with `stdout` and `stderr`."""
        self.start(*argv, **script)  # type: ignore[arg-type]
        return self.end()

    def end(self, seconds: float = 30) -> dict[str, Any]:
        out, err = self.process.communicate(timeout=seconds)
        ended = self._told("ended")
        assert ended is not None, f"the driver failed: {err!r}"
        return {**ended, "stdout": out, "stderr": err}

    def started(self) -> dict[str, Any]:
        """The pids of wrapper, guardian and command, once they are there."""
        until(lambda: self._told("started"), "the start")
        found = self._told("started")
        assert found is not None
        self._left += [found["wrapper"], found["guardian"], found["command"]]
        return found

    def tree(self) -> list[int]:
        """The pids of the command's processes, once it is ready."""
        self.started()
        until(self.ready.exists, "the command to be ready")
        pids = [int(line) for line in self.ready.read_text().split()]
        self._left += pids
        return pids

    def let_go(self) -> None:
        (self.folder / "hold").write_bytes(b".")

    def is_locked(self) -> bool:
        with open(self.folder / "lock", "rb+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def ends_with_nothing_left(self, pids: list[int], seconds: float = 20) -> None:
        """The lock becomes free, and not before the last of these is dead.

        Who has held it closes it a moment before that.
        """
        until(lambda: not self.is_locked(), "the lock", seconds)
        told = self._told("started") or {}
        holders = {told.get("wrapper"), told.get("guardian")}
        assert [pid for pid in pids if pid not in holders and is_alive(pid)] == []
        until(lambda: not any(map(is_alive, pids)), "the end of all")

    def clean_up(self) -> None:
        for pid in self._left:
            make_end(pid)
        if hasattr(self, "process"):
            self.process.kill()
            self.process.communicate()

    def _told(self, name: str) -> dict[str, Any] | None:
        try:
            told: dict[str, Any] = json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            return None
        return told
