"""--namespace: the same words are another ledger's; from outside, in a file and on a server."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from jobrun.places import find
from tests.conftest import Jobrun
from tests.scenes import Held

HOURLY = ("run", "sales", "--every", "1h")
STAGING = ("--namespace", "staging")
NOW, LATER = "2026-09-04T12:05Z", "2026-09-04T12:06Z"


@pytest.fixture
def shared(jobrun: Jobrun, postgres: str) -> Iterator[Jobrun]:
    """jobrun on a server that others use, too: their search path is left alone."""
    jobrun.environment |= {"JOBRUN_LEDGER": postgres, "JOBRUN_HOME": str(jobrun.folder)}
    try:
        yield jobrun
    finally:
        with closing(psycopg.connect(postgres, autocommit=True)) as server:
            server.execute("DROP SCHEMA IF EXISTS staging CASCADE")


@pytest.fixture(params=["file", "server"])
def either(request: pytest.FixtureRequest) -> Jobrun:
    found: Jobrun = request.getfixturevalue("jobrun" if request.param == "file" else "shared")
    return found


def test_everything_lies_in_a_place_of_its_own(jobrun: Jobrun) -> None:
    """Ledger, locks, outputs; the path of another folder or suffix as well."""
    jobrun(*HOURLY, *STAGING, "--", "echo", "x", now=NOW)
    assert not jobrun.ledger.exists()
    made = jobrun.folder / "jobrun.staging.db"
    assert made.is_file()
    assert [path.name for path in (jobrun.folder / "jobrun.staging.db.d").iterdir()]
    jobrun("run", "a", "--ledger", "my.jobs.sqlite", *STAGING, "--", "true")
    assert (jobrun.folder / "my.jobs.staging.sqlite").is_file()


def test_without_it_nothing_is_seen_of_it(either: Jobrun) -> None:
    """Every screen says where it looks."""
    either(*HOURLY, *STAGING, "--", "true", now=NOW)
    there = either("status", *STAGING, now=LATER)
    assert "sales" in there.stdout
    assert "staging" in there.stdout.splitlines()[0]
    with_it = either("status", "sales", now=LATER)
    assert (with_it.status, with_it.stdout) == (2, "")
    assert "staging" not in with_it.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("rerun", "sales", "2026-09-04T11:00Z"),
        ("backfill", "sales", "--from", "2026-09-04T09:00Z", "--to", "2026-09-04T10:00Z"),
        ("retry", "sales"), ("plan", "sales"), ("show", "sales"), ("pause", "sales"),
        ("watermark", "sales"), ("forget", "sales", "--yes"), ("doctor",),
        ("set", "sales", "--lag", "5m"),
    ],
)  # fmt: skip
def test_every_command_knows_it(jobrun: Jobrun, words: tuple[str, ...]) -> None:
    """What takes --ledger; and nobody else's ledger is made, or looked for."""
    jobrun(*HOURLY, *STAGING, "--", "true", now=NOW)
    found = jobrun(*words, *STAGING, now=LATER)
    assert found.status == 0, found
    assert not jobrun.ledger.exists()
    assert (jobrun(*words, now=LATER).status == 0) == (words == ("doctor",))


def test_what_the_last_call_said_is_not_said_twice(either: Jobrun) -> None:
    """By hand it is found by what is typed; `plan` and `rerun` go by the rest of the last call."""
    either(*HOURLY, *STAGING, "--lag", "1m", "--", "echo", "{start_hour}", now=NOW)
    again = either("rerun", "sales", "2026-09-04T11:00Z", *STAGING, now=LATER)
    assert (again.status, again.stdout) == (0, "11\n")
    assert "--namespace" not in again.lines[0]
    assert "--lag 1m" in again.lines[0]
    plan = either("plan", "sales", *STAGING, "--at", "2026-09-04T13:05Z", now=LATER)
    assert "echo 12" in plan.stdout


def test_a_hint_can_be_typed_as_it_is(either: Jobrun) -> None:
    """It names the space, and the ledger where the call did."""
    fails = ("--max-attempts", "1", "--", "sh", "-c", "exit 1")
    found = either(*HOURLY, *STAGING, *fails, now=NOW)
    (hint,) = [line.partition("hint: ")[2] for line in found.lines if "jobrun retry" in line]
    words = shlex.split(hint.partition("; ")[0])
    assert words[-2:] == [*STAGING]
    assert "--ledger" not in words
    assert "PROCESSED" not in either(*words[1:], now=LATER).stderr
    assert len(json.loads(either("history", *STAGING, "--json", now=LATER).stdout)["runs"]) == 2


def test_a_hint_names_both(jobrun: Jobrun) -> None:
    """A path as it was found, without the space in it."""
    path = os.path.realpath(jobrun.folder / "x.db")
    fails = ("--max-attempts", "1", "--", "sh", "-c", "exit 1")
    found = jobrun(*HOURLY, "--ledger", "x.db", *STAGING, *fails, now=NOW)
    (hint,) = [line.partition("hint: ")[2] for line in found.lines if "jobrun retry" in line]
    assert shlex.split(hint.partition("; ")[0])[-4:] == ["--ledger", path, *STAGING]


def test_a_command_finds_its_own_ledger_again(either: Jobrun) -> None:
    """By $JOBRUN_LEDGER alone, and where it names its name space once more."""
    inner = " ".join(shlex.quote(word) for word in either.argv("run", "inner", "-q"))
    script = f"{inner} -- true; {inner} --namespace staging -- true"
    outer = either("run", "outer", *STAGING, "--", "sh", "-c", script)
    assert outer.status == 0, outer
    jobs = json.loads(either("status", *STAGING, "--json").stdout)["jobs"]
    assert [job["job"] for job in jobs] == ["inner", "outer"]
    assert len(json.loads(either("history", "inner", *STAGING, "--json").stdout)["runs"]) == 2


def test_a_lock_on_a_server_is_of_the_name_space_of_a_file(jobrun: Jobrun, redis: str) -> None:
    """Also where a command of it calls jobrun, by the path alone: production's is another."""
    lock = ("--lock", redis)
    jobrun("run", "inner", *STAGING, *lock, "--", "true")
    production = Held(jobrun, "inner", *lock)
    inner = " ".join(shlex.quote(word) for word in jobrun.argv("run", "inner", *lock))
    outer = jobrun("run", "outer", *STAGING, "--", "sh", "-c", f"{inner} -- echo ran")
    assert (outer.status, outer.stdout) == (0, "ran\n"), outer
    by_path = jobrun("skips", "inner", "--ledger", "jobrun.staging.db")
    assert "lock-held" not in by_path.stdout
    assert production.release().status == 0


def test_an_address_may_say_it(shared: Jobrun) -> None:
    """In a crontab's JOBRUN_LEDGER, once for all lines."""
    shared(*HOURLY, *STAGING, "--", "true", now=NOW)
    shared.environment["JOBRUN_LEDGER"] += "?namespace=staging"
    assert "sales" in shared("status", now=LATER).stdout


@pytest.mark.parametrize("name", ["", "Staging", "1st", "a-b", "a.b", "pg_x", "ä", "a" * 41, "a/b"])
def test_what_is_no_name(jobrun: Jobrun, name: str) -> None:
    """2, for calls and screens, before anything is made."""
    for argv in (("run", "a", "--namespace", name, "--", "true"), ("status", "--namespace", name)):
        found = jobrun(*argv)
        assert (found.status, f'--namespace "{name}"' in found.stderr) == (2, True), found
    assert list(jobrun.folder.iterdir()) == []


def test_the_longest_name(jobrun: Jobrun) -> None:
    """Fits in a file's name, and in a schema's."""
    assert jobrun("run", "a", "--namespace", "a_9" + "b" * 37, "--", "true").status == 0


@pytest.mark.parametrize(
    ("address", "namespace", "name", "opened"),
    [
        ("postgresql://u:p@h/d", "x", "postgresql://u@h/d?namespace=x", "postgresql://u:p@h/d"),
        ("postgresql://h/d?port=1", "x", "postgresql://h/d?port=1&namespace=x", "postgresql://h/d?port=1"),
        ("postgresql://h/d?namespace=y&port=1", None, "postgresql://h/d?port=1&namespace=y",
         "postgresql://h/d?port=1"),
        ("postgresql://h/d?port=1&namespace=y", "x", "postgresql://h/d?port=1&namespace=x",
         "postgresql://h/d?port=1"),
        ("postgresql://h/d?namespace=y", "y", "postgresql://h/d?namespace=y", "postgresql://h/d"),
    ],
)  # fmt: skip
def test_of_an_address(address: str, namespace: str | None, name: str, opened: str) -> None:
    """What is shown, which is taken again as it is; libpq gets what it knows."""
    where = find(address, {"JOBRUN_HOME": "/state"}, namespace)
    assert (where.name, where.address) == (name, opened)
    again = find(where.name, {"JOBRUN_HOME": "/state"})
    assert (again.name, again.beside, again.namespace) == (name, where.beside, where.namespace)
