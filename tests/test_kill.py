"""Random kills for a while (tests/bench/kill.py), and what they have found, each as a plain test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("subreaper, pidfd and /proc are Linux's", allow_module_level=True)

from jobrun import places
from tests.conftest import PYTHON, ROOT, Jobrun, clean_environment

NOW = "1788523500"  # 2026-09-04T12:05:00Z
LATER = "2026-09-04T12:06:00Z"

# A call that, once it has looked for runs that are alive, says so and goes on when it is told to.
AFTER_THE_LOOK = f"""
import sys
from jobrun import turn
from tests import frozen
look = turn.judge_open_runs
def looked(*arguments):
    found = look(*arguments)
    turn.judge_open_runs = look
    print('looked', flush=True)
    sys.stdin.readline()
    return found
turn.judge_open_runs = looked
sys.exit(frozen.run({NOW}, sys.argv[1:]))
"""


@pytest.mark.parametrize("mode", [("--every", "1h", "--stdin", "null"), ("--key", "k"), ()])
def test_a_run_that_opens_after_the_look_for_runs_is_seen(
    jobrun: Jobrun, mode: tuple[str, ...]
) -> None:
    """Its lock file is removed under a call that plans: another call runs, and no second beside."""
    jobrun("run", "b", "--", "true")  # a ledger
    fifo = jobrun.folder / "fifo"
    os.mkfifo(fifo)
    sleeper = subprocess.Popen(
        [PYTHON, "-c", AFTER_THE_LOOK, "run", "a", *mode, "--", "echo", "second"],
        env=jobrun.environment,
        cwd=jobrun.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert sleeper.stdout is not None
    assert sleeper.stdout.readline() == b"looked\n"
    Path(places.locks_folder(str(jobrun.ledger)), f"{places.slug('a')}.lock").unlink()
    runs = jobrun.start("run", "a", *mode, "--", "sh", "-c", f"echo ready; cat {fifo}", now=LATER)
    assert runs.stdout is not None
    assert runs.stdout.readline() == b"ready\n"
    out, err = sleeper.communicate(b"go on\n", timeout=20)
    fifo.write_text("first\n")
    first, _ = runs.communicate(timeout=20)
    assert (runs.returncode, first) == (0, b"first\n")
    assert out == b""
    assert b"reason=lock-held" in err
    assert jobrun.query("select count(*), max(token) from jobrun_run where job = 'a'") == [(1, 1)]
