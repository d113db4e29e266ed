"""What a person does at three in the morning: again, older ones, never, from there on."""

from __future__ import annotations

import subprocess

import pytest

from tests.conftest import PYTHON, Jobrun

NOW = "2026-09-04T12:05:00Z"
SHOW = (
    PYTHON,
    "-c",
    "import os; print(os.environ['JOBRUN_WINDOW_START'][11:13], os.environ['JOBRUN_KIND'],"
    " os.environ['JOBRUN_ATTEMPT'])",
)
FAIL = (PYTHON, "-c", "raise SystemExit(3)")


@pytest.fixture
def sales(jobrun: Jobrun) -> Jobrun:
    """A job that is done from 08:00 to 12:00."""
    first = ("--first", "2026-09-04T08:00Z")
    jobrun("run", "sales", "--every", "1h", *first, "-q", "--", *SHOW, now=NOW)
    return jobrun


def at(hour: int) -> str:
    return f"2026-09-04T{hour:02}:00Z"


def test_rerun_takes_command_options_and_folder_of_the_last_call(sales: Jobrun) -> None:
    """And says so; the kind is rerun and the attempt counts on."""
    found = sales("rerun", "sales", at(9), now=NOW, cwd="/")
    assert (found.status, found.stdout) == (0, "09 rerun 2\n")
    assert found.lines[0].startswith("jobrun: hint: from the last call: --every 1h --first ")
    assert found.lines[0].endswith(f" in {sales.folder}")
    assert "PROCESSED" in found.lines[1]


def test_rerun_with_another_command_keeps_folder_and_options(jobrun: Jobrun) -> None:
    """Those of the last call unless given anew, and it says which."""
    (jobrun.folder / "sub").mkdir()
    first = ("--every", "1h", "--first", at(10), "-C", "sub", "--ok-exit", "0,3")
    jobrun("run", "w", *first, "--", "true", now="2026-09-04T11:05:00Z")
    found = jobrun("rerun", "w", at(10), "--", "sh", "-c", "pwd; exit 3", now=NOW, cwd="/")
    assert (found.status, found.stdout) == (0, f"{jobrun.folder}/sub\n")
    assert "--ok-exit 0,3" in found.lines[0]
    assert found.lines[0].endswith(f" in {jobrun.folder}/sub")


def test_a_failed_unit_is_given_up_by_its_key(jobrun: Jobrun) -> None:
    """Without that `status --check` would name it for ever."""
    jobrun("run", "drop", "--key", "k1", "--", *FAIL, now=NOW)
    assert jobrun("status", "--check", now=NOW).status == 1
    found = jobrun("skip", "drop", "drop:k1", "--reason", "half a file", now=NOW)
    assert found.status == 0
    assert 'what=skipped-by-hand key=drop:k1 why="half a file"' in found.stderr
    assert jobrun.query("select state from jobrun_window") == [("skipped",)]
    again = jobrun("run", "drop", "--key", "k1", "--", *FAIL, now=NOW)
    assert (again.status, "reason=key-exists" in again.stderr) == (0, True)


def test_rerun_takes_a_key_as_it_was_printed(sales: Jobrun) -> None:
    """Pasted from a line or a screen."""
    found = sales("rerun", "sales", "sales:2026-09-04T09:00:00+00:00", now=NOW)
    assert found.stdout == "09 rerun 2\n"


def test_a_rerun_that_fails_leaves_the_success_in_place(sales: Jobrun) -> None:
    """The exit code is the command's; the window stays processed."""
    found = sales("rerun", "sales", at(9), "--", *FAIL, now=NOW)
    assert found.status == 3
    assert " FAILED job=sales " in found.stderr
    assert sales.query("select distinct state from jobrun_window") == [("processed",)]
    assert sales("run", "sales", "--every", "1h", "-v", "--", *SHOW, now=NOW).stdout == ""


def test_rerun_of_an_unknown_job_names_the_nearest(sales: Jobrun) -> None:
    """With the ledger and how many jobs it knows."""
    found = sales("rerun", "sale", at(9), now=NOW)
    assert found.status == 2
    assert f'error: no job "sale" in {sales.ledger} (1 job)' in found.stderr
    assert "hint: sales?" in found.stderr


def test_backfill_runs_older_windows_once(sales: Jobrun) -> None:
    """Half-open, echoed; the second time all are key-exists; the watermark stays."""
    call = ("backfill", "sales", "--from", at(5), "--to", at(8))
    found = sales(*call, now=NOW)
    assert found.stdout.split("\n") == ["05 backfill 1", "06 backfill 1", "07 backfill 1", ""]
    assert (
        "3 windows, 2026-09-04T05:00:00Z to 2026-09-04T08:00:00Z, the last starts" in found.stderr
    )
    again = sales(*call, now=NOW)
    assert (again.status, again.stdout) == (0, "")
    assert again.stderr.count("reason=key-exists") == 3
    assert sales.query("select watermark from jobrun_job") == [("2026-09-04T12:00:00+00:00",)]


def test_backfill_redo_all_runs_them_again(sales: Jobrun) -> None:
    """Only when it is asked for."""
    call = ("backfill", "sales", "--from", at(8), "--to", at(10), "--redo", "all")
    assert sales(*call, now=NOW).stdout == "08 rerun 2\n09 rerun 2\n"


def test_backfill_needs_both_ends(sales: Jobrun) -> None:
    """Nothing is guessed."""
    found = sales("backfill", "sales", "--from", at(5), now=NOW)
    assert found.status == 2
    assert "error: backfill needs --to" in found.stderr


def test_a_dry_run_by_hand_changes_nothing(sales: Jobrun) -> None:
    """The plan of it, and not a row more."""
    before = sales.query("select count(*) from jobrun_run")
    found = sales("backfill", "sales", "--from", at(5), "--to", at(8), "--dry-run", now=NOW)
    assert found.status == 0
    assert "backfill" in found.stdout
    assert before == sales.query("select count(*) from jobrun_run")


def test_skip_finishes_windows_by_hand(jobrun: Jobrun) -> None:
    """A failed one blocks; skipped, the rest goes on."""
    call = ("run", "a", "--every", "1h", "--first", at(8), "-q", "--")
    assert jobrun(*call, *FAIL, now="2026-09-04T09:05:00Z").status == 3
    found = jobrun("skip", "a", at(8), "--reason", "source down", now=NOW)
    assert found.status == 0
    assert 'what=skipped-by-hand windows=1 why="source down"' in found.stderr
    assert jobrun(*call, *SHOW, now=NOW).stdout.split()[::3] == ["09", "10", "11"]


def test_skip_of_a_range_is_one_gap(jobrun: Jobrun) -> None:
    """However many windows; finished for the watermark."""
    jobrun(
        "run",
        "a",
        "--every",
        "1h",
        "--first",
        at(0),
        "--max-windows",
        "1",
        "-q",
        "--",
        *SHOW,
        now=NOW,
    )
    found = jobrun("skip", "a", "--from", at(1), "--to", at(11), "--reason", "x", now=NOW)
    assert found.status == 0, found.stderr
    assert "windows=10" in found.stderr
    assert jobrun.query("select windows, reason from jobrun_gap") == [(10, "by-hand")]
    assert jobrun("run", "a", "--every", "1h", "-q", "--", *SHOW, now=NOW).stdout.split()[0] == "11"


@pytest.mark.parametrize(("hour", "word"), [(9, "is processed"), (12, "an open window")])
def test_skip_refuses_what_would_be_a_lie(sales: Jobrun, hour: int, word: str) -> None:
    """Processed ones and open ones: exit 2, nothing changes."""
    before = sales.query("select * from jobrun_window")
    found = sales("skip", "sales", at(hour), "--reason", "x", now=NOW)
    assert found.status == 2
    assert word in found.stderr
    assert before == sales.query("select * from jobrun_window")


def test_watermark_is_printed_and_set_with_a_reason(sales: Jobrun) -> None:
    """Down: windows that are on record stay processed; the event tells who moved it and why."""
    assert sales("watermark", "sales", now=NOW).stdout == "2026-09-04T12:00:00+00:00\n"
    refused = sales("watermark", "sales", "--set", at(10), now=NOW)
    assert refused.status == 2
    assert "--reason" in refused.stderr
    assert sales("watermark", "sales", "--set", at(10), "--reason", "x", now=NOW).status == 0
    # Up again over what is done: to where it has come, as the line says.
    told = "2026-09-04T12:00:00Z -> 2026-09-04T12:00:00Z: x"
    moved = "select detail from jobrun_event where kind = 'watermark-set'"
    assert sales.query(moved) == [(told,)]
    assert (
        sales("watermark", "sales", "--set", "2026-09-04T13:00Z", "--reason", "x", now=NOW).status
        == 2
    )
    assert (
        sales("watermark", "sales", "--set", "2026-09-04T10:30Z", "--reason", "x", now=NOW).status
        == 2
    )


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (("skip", at(7), "--reason", "x"), "would-skip windows=1 why=x"),
        (("skip", "--from", at(6), "--to", at(8), "--reason", "x"), "would-skip windows=2 why=x"),
        (
            ("watermark", "--set", at(10), "--reason", "x"),
            "would-set-watermark watermark=2026-09-04T12:00:00Z why=x",
        ),
        (("forget",), "would-forget"),
    ],
    ids=["skip", "skip a range", "watermark", "forget"],
)
def test_a_dry_run_changes_nothing(sales: Jobrun, act: tuple[str, ...], told: str) -> None:
    """It says what would be, a watermark that goes up again over what is done too; asks nobody."""
    tables = ("job", "window", "gap", "event", "run")
    before = [sales.query(f"select * from jobrun_{table}") for table in tables]
    found = sales(act[0], "sales", *act[1:], "--dry-run", now=NOW)
    assert found.status == 0
    assert found.lines == [f"jobrun: NOTE job=sales what={told} at=2026-09-04T12:05:00Z"]
    assert before == [sales.query(f"select * from jobrun_{table}") for table in tables]


def test_a_dry_run_is_refused_where_the_act_would_be(sales: Jobrun) -> None:
    """An open window, a processed one, a boundary that is none."""
    for act in (("skip", at(12)), ("skip", at(9)), ("watermark", "--set", "2026-09-04T10:30Z")):
        found = sales(act[0], "sales", *act[1:], "--reason", "x", "--dry-run", now=NOW)
        assert found.status == 2


def test_acts_wait_for_nobody(sales: Jobrun) -> None:
    """While the job runs they are refused (75) with the holder."""
    hold = (PYTHON, "-uc", "import sys; print('ready'); sys.stdin.read()")
    running = sales.start(
        "run", "sales", "--every", "1h", "--stdin", "inherit", "--", *hold,
        now="2026-09-04T13:05:00Z", stdin=subprocess.PIPE,
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    for act in (("skip", "sales", at(7), "--reason", "x"), ("forget", "sales", "--yes")):
        found = sales(*act, now="2026-09-04T13:05:00Z")
        assert found.status == 75
        assert 'error: job "sales" is running: its lock is held by ' in found.stderr
    running.communicate(timeout=20)


def test_forget_asks_and_removes_every_row(sales: Jobrun) -> None:
    """Without --yes and without a terminal it refuses; a later job of the name begins anew."""
    assert sales("forget", "sales", now=NOW).status == 2
    assert sales("forget", "sales", "--yes", now=NOW).status == 0
    for table in ("job", "window", "run", "skip", "gap", "event"):
        assert sales.query(f"select count(*) from jobrun_{table}") == [(0,)]
    again = sales("run", "sales", "--every", "1h", "--", *SHOW, now=NOW)
    assert again.stdout == "11 new 1\n"


def test_a_key_beside_windows_does_not_change_what_rerun_goes_by(sales: Jobrun) -> None:
    """The spec is that of the last call with windows."""
    sales("run", "sales", "--key", "extra", "--", "true", now=NOW)
    assert sales("rerun", "sales", at(9), now=NOW).stdout == "09 rerun 2\n"
    assert sales("plan", "sales", now=NOW).status == 0


@pytest.mark.parametrize(
    "act", [("rerun", "p", "today"), ("backfill", "p", "--from", at(10), "--to", at(11))]
)
def test_a_plain_job_is_not_given_a_schedule_by_hand(jobrun: Jobrun, act: tuple[str, ...]) -> None:
    """What is told instead runs it, and its crontab's line goes on."""
    line = ("run", "p", "--timeout", "1h", "--", "sh", "-c", "echo again")
    jobrun(*line, now=NOW)
    for more in ((), ("--every", "1h")):
        found = jobrun(*act, *more, now=NOW)
        assert found.status == 2
        assert found.lines == [
            'jobrun: error: job "p" has no windows',
            "jobrun: hint: each call runs it: jobrun run p --timeout 1h -- sh -c 'echo again'",
        ]
    assert jobrun(*line, now=NOW).status == 0
    window = jobrun("run", "p", "--every", "1h", "--window", at(10), "--", "true", now=NOW)
    assert (window.status, "its own line would be refused" in window.stderr) == (2, True)
    assert jobrun(*line, now=NOW).status == 0


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("processed", "jobrun run u --key k1-2 -- COMMAND"),
        ("failed", "jobrun retry u u:k1"),
        ("dead", "jobrun retry u u:k1"),
    ],
)
def test_a_unit_is_run_again_by_its_key(jobrun: Jobrun, state: str, told: str) -> None:
    """rerun is for windows: what is told goes by what became of the unit."""
    jobrun("run", "u", "--key", "k1", "--", "true", now=NOW)
    jobrun.change("update jobrun_window set state = ?", state)
    for key in ("k1", "u:k1"):
        found = jobrun("rerun", "u", key, "--every", "1h", now=NOW)
        assert (found.status, found.lines[-1]) == (2, f"jobrun: hint: {told}")
    other = jobrun("rerun", "u", "k2", now=NOW)
    assert other.lines[-1] == "jobrun: hint: jobrun run u --key k2 -- COMMAND"
    assert jobrun("run", "u", "--key", "k3", "--", "true", now=NOW).status == 0


def test_a_window_by_hand_may_stand_beside_units(jobrun: Jobrun) -> None:
    """A schedule is in the way of no call with --key."""
    jobrun("run", "u", "--key", "k1", "--", "true", now=NOW)
    window = ("--every", "1h", "--window", at(10))
    assert jobrun("run", "u", *window, "--", "true", now=NOW).status == 0
    assert jobrun.query("select count(*) from jobrun_window") == [(2,)]
    assert jobrun("run", "u", "--key", "k2", "--", "true", now=NOW).status == 0
