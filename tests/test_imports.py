"""What a call loads on its way: a test reads `-X importtime`, so nothing slow creeps in."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import PYTHON, Jobrun

SCRIPT = "from jobrun.__main__ import script; script()"
HOURLY = ("run", "a", "--every", "1h", "-q", "--", "true")


def loaded(jobrun: Jobrun, *argv: str) -> set[str]:
    """The modules that a call imports, beyond those of an interpreter that does nothing."""

    def modules(*arguments: str) -> set[str]:
        command = [PYTHON, "-X", "importtime", "-c", *arguments]
        found = subprocess.run(command, env=jobrun.environment, capture_output=True, check=True)
        lines = found.stderr.decode().splitlines()
        return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time")}

    return modules(SCRIPT, *argv) - modules("pass")


def roots(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("argv", [HOURLY, ("run", "b", "-q", "--", "true")])
def test_a_run_loads_nothing_that_is_slow(jobrun: Jobrun, argv: tuple[str, ...]) -> None:
    """Neither typer nor croniter nor rich; and no dataclasses, typing, json, logging either."""
    modules = loaded(jobrun, *argv)
    found = roots(modules)
    slow = {"typer", "click", "croniter", "rich", "dateutil", "dataclasses", "inspect"}
    slow |= {"subprocess", "logging", "tempfile", "hashlib", "zoneinfo", "asyncio", "concurrent"}
    slow |= {"json", "typing", "pathlib", "urllib", "ipaddress", "psycopg", "redis", "valkey"}
    slow |= {"socket", "_socket", "mmap"}
    assert not found & slow
    unasked = {"asked", "breaker", "episodes", "fate", "inputs", "overlap", "setting", "upstream"}
    unasked |= {"boottime", "hold", "keeping", "machines", "lock_redis", "redis_wire"}
    assert not modules & {f"jobrun.{name}" for name in unasked}
    assert ("jobrun.values_file" in modules) == (argv is HOURLY)
    assert "sqlite3" in found


def test_an_idle_call_loads_next_to_nothing(jobrun: Jobrun) -> None:
    """Neither dataclasses, typing, enum, re nor inspect; neither the lock nor the planner."""
    jobrun(*HOURLY)
    found = loaded(jobrun, *HOURLY)
    slow = {"dataclasses", "typing", "enum", "re", "inspect", "pathlib", "json", "portalocker"}
    assert not roots(found) & slow
    assert not found & {"jobrun.run", "jobrun.policy", "jobrun.process", "jobrun.rows"}
    assert jobrun.query("select reason, times from jobrun_skip") == [("no-closed-window", 1)]


def test_a_call_that_meets_a_held_lock_loads_nothing_to_run_with(jobrun: Jobrun) -> None:
    """Neither the planner nor what starts and watches a command; that is loaded with the lock."""
    holder = jobrun.start(
        "run", "a", "--", "sh", "-c", "echo held; exec cat", stdin=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    found = loaded(jobrun, "run", "a", "-q", "--", "true")
    holder.communicate(timeout=20)
    assert not found & {"jobrun.turn", "jobrun.policy", "jobrun.attempts", "jobrun.process"}
    assert jobrun.query("select reason from jobrun_skip") == [("lock-held",)]


@pytest.mark.skipif(sys.platform == "win32", reason="another launcher")
def test_cron_is_loaded_where_cron_must_be_planned(jobrun: Jobrun) -> None:
    """The test can see a slow module: --cron needs croniter, an idle call of it does not."""
    nightly = ("run", "a", "--cron", "0 2 * * *", "-q", "--", "true")
    assert "croniter" in roots(loaded(jobrun, *nightly))
    assert "croniter" not in roots(loaded(jobrun, *nightly))
