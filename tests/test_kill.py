"""Random kills (tests/bench/kill.py) for a while, and what they found, each as a plain test."""

from __future__ import annotations

import os
import shutil
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
from jobrun import living
from tests import frozen
look = living.judge_open_runs
def looked(*arguments):
    found = look(*arguments)
    living.judge_open_runs = look
    print('looked', flush=True)
    sys.stdin.readline()
    return found
living.judge_open_runs = looked
sys.exit(frozen.run({NOW}, sys.argv[1:]))
"""


def paused_after_the_look(jobrun: Jobrun, *argv: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [PYTHON, "-c", AFTER_THE_LOOK, *argv],
        env=jobrun.environment,
        cwd=jobrun.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"looked\n"
    return process


def runs_meanwhile(jobrun: Jobrun, *mode: str) -> subprocess.Popen[bytes]:
    """A call whose command lasts until somebody writes to `fifo`; the lock is no obstacle."""
    os.mkfifo(jobrun.folder / "fifo")
    Path(places.locks_folder(str(jobrun.ledger)), f"{places.slug('a')}.lock").unlink()
    command = ("sh", "-c", "echo ready; cat fifo")
    process = jobrun.start("run", "a", *mode, "--", *command, now=LATER)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("mode", [("--every", "1h", "--stdin", "null"), ("--key", "k"), ()])
def test_a_run_that_opens_after_the_look_for_runs_is_seen(
    jobrun: Jobrun, mode: tuple[str, ...]
) -> None:
    """Its lock file is removed under a call that plans: another call runs, and no second beside."""
    jobrun("run", "b", "--", "true")  # a ledger
    sleeper = paused_after_the_look(jobrun, "run", "a", *mode, "--", "echo", "second")
    runs = runs_meanwhile(jobrun, *mode)
    out, err = sleeper.communicate(b"go on\n", timeout=20)
    (jobrun.folder / "fifo").write_text("first\n")
    first, _ = runs.communicate(timeout=20)
    assert (runs.returncode, first) == (0, b"first\n")
    assert out == b""
    assert b"reason=lock-held" in err
    assert jobrun.query("select count(*), max(token) from jobrun_run where job = 'a'") == [(1, 1)]


@pytest.mark.parametrize(
    "act",
    [
        ("skip", "a", "2026-09-04T11:00Z", "--reason", "x"),
        ("watermark", "a", "--set", "2026-09-04T09:00Z", "--reason", "x"),
    ],
)
def test_an_act_by_hand_sees_a_run_that_opens_after_its_look(
    jobrun: Jobrun, act: tuple[str, ...]
) -> None:
    """The same under `skip` and `watermark --set`: refused, and the run is recorded."""
    jobrun("run", "a", "--every", "1h", "--", "true", now="2026-09-04T11:05:00Z")
    sleeper = paused_after_the_look(jobrun, *act)
    runs = runs_meanwhile(jobrun, "--every", "1h")
    _, err = sleeper.communicate(b"go on\n", timeout=20)
    (jobrun.folder / "fifo").write_text("first\n")
    runs.communicate(timeout=20)
    assert (sleeper.returncode, runs.returncode) == (75, 0), err
    assert jobrun.query("select state from jobrun_window") == [("processed",), ("processed",)]
    assert jobrun.query("select watermark from jobrun_job") == [("2026-09-04T12:00:00+00:00",)]


def kill(*argv: str) -> tuple[int, str]:
    """A run of tests/bench/kill.py, which ends all that it started also where we give it up."""
    for program in ("bash", "setsid"):
        if not shutil.which(program):
            pytest.skip(f"needs {program}")
    environment = clean_environment()
    del environment["PYTHONPATH"]  # as a person calls it, from the README
    harness = subprocess.Popen(
        [PYTHON, "tests/bench/kill.py", *argv],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        out, _ = harness.communicate(timeout=400)
    except subprocess.TimeoutExpired:
        harness.terminate()
        out, _ = harness.communicate(timeout=60)
    return harness.returncode, out


@pytest.mark.long
@pytest.mark.parametrize("more", [(), ("--overlap",)])
def test_random_kills(more: tuple[str, ...]) -> None:
    """Sixty of them, and nothing was done twice, left out or left behind."""
    status, out = kill("--kills", "60", "--seed", "1", *more)
    assert status == 0, out
    # One that hits several counts for each: the last of them may go beyond.
    assert 60 <= int(out.rpartition(" kills in ")[0].rpartition(" ")[2]) < 64


@pytest.mark.long
@pytest.mark.parametrize("mutant", ["no-token", "no-guardian", "late-claim"])
def test_random_kills_find_what_is_missing(mutant: str) -> None:
    """Without token, guardian, or the claim before the start. What shows first is chance."""
    status, out = kill("--seconds", "300", "--seed", "1", "--mutant", mutant)
    assert status == 1, out
    assert "\nviolation: " in out, out
    shutil.rmtree(out.rpartition(" are left in ")[2].strip())
