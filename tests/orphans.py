"""A command whose wrapper and guardian were both killed: nobody is left to end it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import PYTHON, Jobrun, is_alive, make_end, until


@contextmanager
def orphaned(jobrun: Jobrun, *options: str, now: str, life: str = "waits") -> Iterator[int]:
    """Its pid; `life` is one of children.py. Whatever is left of it ends with the block."""
    ready = jobrun.folder / "ready"
    command = (PYTHON, "-m", "tests.children", life, str(ready))
    wrapper = jobrun.start("run", "a", *options, "--stdin", "null", "--", *command, now=now)
    until(ready.exists, "the command")
    pids = [int(pid) for pid in ready.read_text().split()]
    guardian = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(wrapper.pid, signal.SIGSTOP)  # or it would see the end of its guardian
    os.kill(guardian, signal.SIGKILL)
    os.kill(wrapper.pid, signal.SIGKILL)
    wrapper.wait(20)
    until(lambda: not is_alive(guardian), "the guardian's end")
    try:
        yield pids[0]
    finally:
        for pid in pids:
            make_end(pid)
        wrapper.communicate(timeout=20)
