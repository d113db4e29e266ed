"""Rows that can't be, because a bit has turned or a hand was in the file: told, 74, and no more."""

from __future__ import annotations

import json
import sys

import pytest

from tests.conftest import ROOT, Jobrun, Result
from tests.damage import put, write_schema

HOURLY = ("--every", "1h")
NINE, TEN = "2026-09-04T09:00:00+00:00", "2026-09-04T10:00:00+00:00"
RUN = ("run", "a", *HOURLY, "--", "echo", "{start}")
HINT = "jobrun: hint: put a copy back; jobrun doctor looks at all of it\n"


@pytest.fixture
def damaged(jobrun: Jobrun) -> Jobrun:
    """A job that ran once, and failed once: its hour from nine is done, the one from ten is not."""
    jobrun(*RUN, now="2026-09-04T10:05:00Z")
    failed = jobrun("run", "a", *HOURLY, "--", "false", now="2026-09-04T11:05:00Z")
    assert failed.status == 1
    return jobrun


def told(jobrun: Jobrun, found: Result) -> str:
    """What is damaged, where the answer to it is: one line and a hint, 74, nothing else."""
    assert (found.status, found.stdout) == (74, "")
    error, hint = found.stderr.splitlines(keepends=True)
    assert hint == HINT
    before = f"jobrun: error: ledger {jobrun.ledger}: damaged: "
    assert error.startswith(before)
    return error.removeprefix(before).rstrip("\n")


WINDOW = f"jobrun_window, row 'a:{TEN}'"
STATES = "none of running, failed, held, processed, skipped, dead, void"
OUTCOMES = "none of succeeded, failed, timed-out, killed, not-started, lost, interrupted, fenced"
VALUES = {
    "a state that is none": (
        ("jobrun_window", "state", "fbiled"), ("windows", "a"),
        f"{WINDOW}: state is 'fbiled', {STATES}",
    ),
    "a state, as a plan sees it": (
        ("jobrun_window", "state", "fbiled"), RUN, f"{WINDOW}: state is 'fbiled', {STATES}, gap",
    ),
    "an outcome": (
        ("jobrun_run", "outcome", "failud"), ("history",),
        f"jobrun_run, row 2: outcome is 'failud', {OUTCOMES}",
    ),
    "no instant": (
        ("jobrun_window", "changed_at", "2026-99-04T10:00:00+00:00"), RUN,
        f"{WINDOW}: changed_at is '2026-99-04T10:00:00+00:00', no instant",
    ),
    "an instant in another spelling": (
        ("jobrun_job", "watermark", "2026-09-04 10:00:00+00:00"), ("status",),
        "jobrun_job, row 'a': watermark is '2026-09-04 10:00:00+00:00', no instant",
    ),
    "nothing where a number must be": (
        ("jobrun_window", "attempts", None), ("show", f"a:{TEN}"),
        f"{WINDOW}: attempts is NULL, no number that can stand there",
    ),
    "nothing where an instant must be": (
        ("jobrun_run", "started", None), ("logs", "a"),
        "jobrun_run, row 2: started is NULL, no instant",
    ),
    "bytes": (
        ("jobrun_run", "host", b"\xff\0"), ("status", "--json"),
        "jobrun_run, row 2: host is b'\\xff\\x00', no text",
    ),
    "a number that can't be added to": (
        ("jobrun_job", "token", 2**63 - 1), ("skip", "a", TEN, "--reason", "no"),
        "jobrun_job, row 'a': token is 9223372036854775807, no number that can stand there",
    ),
    "a window that ends before it begins": (
        ("jobrun_window", "end", NINE), ("windows", "a"),
        f"{WINDOW}: end is '{NINE}', not after start",
    ),
    "a key of another window": (
        ("jobrun_window", "key", "a:x"), RUN,
        "jobrun_window, row 'a:x': key is 'a:x', not that of its job and start",
    ),
    "an end without an outcome": (
        ("jobrun_run", "outcome", None), ("plan", "a"),
        "jobrun_run, row 2: ended is '2026-09-04T11:05:00+00:00', with outcome NULL",
    ),
}  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_a_value_that_can_not_be(damaged: Jobrun, value: str) -> None:
    """Each names the file, the table, the row and the value, whoever reads it."""
    (table, column, other), call, expected = VALUES[value]
    where = {"jobrun_window": f"start = '{TEN}'", "jobrun_run": "id = 2", "jobrun_job": "1"}[table]
    put(damaged.ledger, table, column, other, where)
    assert expected == told(damaged, damaged(*call, now="2026-09-04T12:05:00Z"))


def test_doctor_names_every_row(damaged: Jobrun) -> None:
    """All of them at once, by table."""
    put(damaged.ledger, "jobrun_window", "state", "x")
    put(damaged.ledger, "jobrun_run", "kind", "x", "id = 1")
    found = damaged("doctor", "--json")
    assert found.status == 1
    checks = json.loads(found.stdout)["checks"]
    lines = [check["found"] for check in checks if check["name"] == "ledger"]
    assert lines[:3] == [
        f"jobrun_window, row 'a:{NINE}': state is 'x', {STATES}",
        f"jobrun_window, row 'a:{TEN}': state is 'x', {STATES}",
        "jobrun_run, row 1: kind is 'x', none of new, retry, rerun, backfill, lookback",
    ]


@pytest.mark.parametrize(("column", "value"), [("next", "x"), ("watermark", None)])
def test_a_call_with_nothing_to_do(jobrun: Jobrun, column: str, value: str | None) -> None:
    """The cheap way out does not take it for idle."""
    jobrun(*RUN, now="2026-09-04T10:05:00Z")
    put(jobrun.ledger, "jobrun_job", column, value)
    found = jobrun(*RUN, now="2026-09-04T10:06:00Z")
    assert told(jobrun, found).startswith("jobrun_job, row 'a': next is ")


def test_a_skip_that_can_not_be_counted(jobrun: Jobrun) -> None:
    """It is printed whether it is on record or not, but damage does not pass: it is told."""
    for minute in ("05", "06"):
        jobrun(*RUN, now=f"2026-09-04T10:{minute}:00Z")
    put(jobrun.ledger, "jobrun_skip", "times", None)
    found = jobrun(*RUN, now="2026-09-04T10:07:00Z")
    rule = "times is NULL, no number that can stand there"
    assert told(jobrun, found) == f"jobrun_skip, row 1: {rule}"


# -- while a command runs --------------------------------------------------------------------------

SPOIL = """
import pathlib, sys
from tests.damage import put, unguarded
path = pathlib.Path(sys.argv[1])
print(sys.argv[2])
"""


def spoil(jobrun: Jobrun, statement: str) -> Result:
    """Two windows are due; the command of the first writes that to the ledger."""
    code = f"{SPOIL}\nwith unguarded(path) as connection:\n    connection.execute({statement!r})"
    command = (sys.executable, "-c", code, str(jobrun.ledger), "{start}")
    environment = {"PYTHONPATH": str(ROOT)}
    return jobrun("run", "a", *HOURLY, "--", *command, now="2026-09-04T11:05:00Z", env=environment)


def test_the_next_window_can_not_be_claimed(jobrun: Jobrun) -> None:
    """What has run is on record, once, and its line is printed; then it is told what is damaged."""
    jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T09:05:00Z")
    columns = "job, start, end, state, attempts, failures, windows, partial, token, changed_at"
    eleven = "2026-09-04T11:00:00+00:00"
    row = f"'a', '{TEN}', '{eleven}', 'failed', 1, 1, 1, 0, 2, '{TEN}'"
    found = spoil(jobrun, f"INSERT INTO jobrun_window (key, {columns}) VALUES ('a:x', {row})")
    assert (found.status, found.stdout) == (74, f"{NINE}\n")
    processed, error, hint = found.stderr.splitlines(keepends=True)
    assert processed.startswith(f"jobrun: PROCESSED job=a window={NINE}/{TEN} ")
    rule = "key is 'a:x', not that of its job and start"
    assert error == (
        f"jobrun: error: ledger {jobrun.ledger}: damaged: jobrun_window, row 'a:x': {rule}\n"
    )
    assert hint == HINT
    done = "select state, attempts from jobrun_window where start = ?"
    assert jobrun.query(done, NINE) == [("processed", 1)]
    assert told(jobrun, jobrun(*RUN, now="2026-09-04T11:06:00Z")).startswith("jobrun_window, ")


def test_a_run_that_can_not_be_recorded(jobrun: Jobrun) -> None:
    """76 at once, not after minutes: what it did is said, and which row is in the way."""
    jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T09:05:00Z")
    found = spoil(jobrun, f"UPDATE jobrun_window SET attempts = -1 WHERE start = '{NINE}'")
    assert (found.status, found.stdout) == (76, f"{NINE}\n")
    failed, _, error, hint = found.stderr.splitlines()
    assert failed.startswith(f"jobrun: FAILED job=a window={NINE}/{TEN} ")
    assert " exit=76 outcome=not-recorded " in failed
    assert error == (
        f'jobrun: error: ran but not recorded (succeeded): "a:{NINE}": ledger {jobrun.ledger}:'
        f" damaged: jobrun_window, row 'a:{NINE}': attempts is -1, no number that can stand there"
    )
    assert hint == "jobrun: hint: the next call runs it again"


def test_a_table_that_is_not_as_it_was_made(jobrun: Jobrun) -> None:
    """76 at once: a table that another one refers to is not there by that name, nor will it be."""
    assert jobrun("run", "a", *HOURLY, "--", "false", now="2026-09-04T10:05:00Z").status == 1
    ((made,),) = jobrun.query("SELECT sql FROM sqlite_master WHERE name = 'jobrun_event'")
    turned = str(made).replace("REFERENCES jobrun_job ", "REFERENCES jobrun_job$ ")
    write_schema(jobrun.ledger, [(turned, "jobrun_event")])
    found = jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T10:07:00Z")
    assert found.status == 76
    *_, error, hint = found.stderr.splitlines()
    assert "damaged, or another program has changed its tables (no such table: " in error
    assert hint == "jobrun: hint: the next call runs it again"


def test_a_table_that_a_claim_refers_to(jobrun: Jobrun) -> None:
    """74, nothing runs: a table that another one refers to is not there by that name."""
    jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T10:05:00Z")
    ((made,),) = jobrun.query("SELECT sql FROM sqlite_master WHERE name = 'jobrun_run'")
    turned = str(made).replace("REFERENCES jobrun_job ", "REFERENCES jobrun_job$ ")
    write_schema(jobrun.ledger, [(turned, "jobrun_run")])
    found = jobrun("run", "a", *HOURLY, "--", "echo", "ran", now="2026-09-04T11:05:00Z")
    assert (found.status, found.stdout) == (74, "")
    *_, error, hint = found.stderr.splitlines()
    assert "damaged, or another program has changed its tables (no such table: " in error
    assert hint == "jobrun: hint: put a copy back; jobrun doctor looks at all of it"
