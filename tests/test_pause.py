"""`pause` and `resume`: requirement M3, from outside, on a clock that stands still."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys

import pytest

from tests.conftest import PYTHON, Jobrun, Result, instant, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX: sh, signals")

DAY = "2026-09-04"
HOURLY = ("run", "sales", "--every", "1h")
SHOW = ("--", "sh", "-c", "echo $JOBRUN_WINDOW_START")
# Says that it runs, then waits for its stdin to end: the test decides when.
HOLD = ("--stdin", "inherit", "--", PYTHON, "-uc", "import sys; print('ready'); sys.stdin.read()")


def at(time: str) -> str:
    return f"{DAY}T{time}:00Z"


def hours(result: Result) -> list[str]:
    """The windows that ran, by their hour."""
    return [line[11:13] for line in result.stdout.split()]


def events(jobrun: Jobrun, job: str = "sales") -> list[str]:
    found = jobrun.query("select kind from jobrun_event where job = ? order by id", job)
    return [str(kind) for (kind,) in found]


def paused(jobrun: Jobrun) -> list[tuple[object, ...]]:
    return jobrun.query("select name, paused_at is not null from jobrun_job order by name")


@pytest.fixture
def sales(jobrun: Jobrun) -> Jobrun:
    """An hourly job, done to 10:00."""
    assert jobrun(*HOURLY, *SHOW, now=at("10:05")).status == 0
    return jobrun


def test_M3_a_paused_job_does_not_run_until_it_is_resumed(sales: Jobrun) -> None:
    """Who, why, on record and in the line, folded; --busy-exit; then all that was missed."""
    found = sales("pause", "sales", "--reason", "source down", now=at("10:10"))
    assert found.status == 0
    assert " what=paused by=" in found.stderr
    assert ' why="source down" at=2026-09-04T10:10:00Z\n' in found.stderr
    skipped = sales(*HOURLY, *SHOW, now=at("11:05"))
    assert (skipped.status, skipped.stdout) == (0, "")
    assert " SKIPPED job=sales reason=paused by=" in skipped.stderr
    assert ' why="source down" at=' in skipped.stderr
    assert sales(*HOURLY, "--busy-exit", "9", *SHOW, now=at("12:05")).status == 9
    rows = sales.query("select reason, times, detail like 'by %: source down' from jobrun_skip")
    assert rows == [("paused", 2, 1)]
    resumed = sales("resume", "sales", now=at("12:06"))
    assert " NOTE job=sales what=resumed by=" in resumed.stderr
    assert ': source down" at=2026-09-04T12:06:00Z' in resumed.stderr
    assert hours(sales(*HOURLY, *SHOW, now=at("12:07"))) == ["10", "11"]
    assert events(sales) == ["paused", "resumed"]
    assert sales(*HOURLY, "-v", *SHOW, now=at("12:08")).stderr.count("no-closed-window") == 1


@pytest.mark.parametrize("mode", [(), ("--key", "k"), ("--key-file", "f")])
def test_plain_calls_and_keys_are_paused_too(jobrun: Jobrun, mode: tuple[str, ...]) -> None:
    """In every mode of run, also for a key that is done already."""
    (jobrun.folder / "f").write_text("x")
    call = ("run", "a", "--busy-exit", "9", *mode, "--", "echo", "ran")
    assert jobrun(*call, now=at("10:00")).stdout == "ran\n"
    jobrun("pause", "a", now=at("10:01"))
    found = jobrun(*call, now=at("10:02"))
    assert (found.status, found.stdout) == (9, "")
    assert "reason=paused by=" in found.stderr
    jobrun("resume", "a", now=at("10:03"))
    assert "reason=paused" not in jobrun(*call, now=at("10:04")).stderr


def test_what_a_person_asks_for_by_hand_runs_all_the_same(sales: Jobrun) -> None:
    """rerun, backfill of several windows, --window; the job stays paused."""
    sales("pause", "sales", now=at("10:10"))
    now = at("12:05")
    assert hours(sales("rerun", "sales", at("09:00"), *SHOW, now=now)) == ["09"]
    backfill = ("backfill", "sales", "--from", at("06:00"), "--to", at("09:00"))
    assert hours(sales(*backfill, *SHOW, now=now)) == ["06", "07", "08"]
    assert hours(sales(*HOURLY, "--window", at("11:00"), *SHOW, now=now)) == ["11"]
    assert "reason=paused" in sales(*HOURLY, *SHOW, now=now).stderr


def test_a_job_that_runs_is_paused_between_two_of_its_windows(sales: Jobrun) -> None:
    """No lock is needed: `run 2 goes on`, the call ends after it and says how many are left."""
    held = sales.start(*HOURLY, *HOLD, stdin=subprocess.PIPE, now=at("13:05"))
    assert held.stdout is not None
    assert held.stdout.readline() == b"ready\n"
    found = sales("pause", "sales", "--reason", "enough", now=at("13:06"))
    assert found.status == 0
    assert (
        "jobrun: hint: run 2 goes on to the end, and no other starts; jobrun stop" in found.stderr
    )
    out, err = held.communicate(timeout=20)
    assert (held.returncode, out) == (0, b"")
    assert b"SKIPPED job=sales reason=paused by=" in err
    assert b" why=enough left=2 at=" in err
    assert b"BACKLOG" not in err
    assert sales.query("select key, outcome from jobrun_run where id > 1") == [
        ("sales:2026-09-04T10:00:00+00:00", "succeeded")
    ]
    sales("resume", "sales", now=at("13:07"))
    assert hours(sales(*HOURLY, *SHOW, now=at("13:08"))) == ["11", "12"]


@pytest.mark.parametrize("mode", [HOURLY, ("run", "plain")])
def test_a_pause_between_plan_and_claim_is_seen(sales: Jobrun, mode: tuple[str, ...]) -> None:
    """Once it is on record no run starts: a call that has planned already plans again."""
    sales("run", "plain", "--", "true", now=at("10:06"))
    code = (
        "import subprocess, sys\n"
        "from jobrun import turn\nfrom tests import frozen\n"
        "make_plan = turn.make_plan\n"
        "def then_paused(*arguments, **more):\n"
        "    plan = make_plan(*arguments, **more)\n"
        f"    subprocess.run({sales.argv('pause', mode[1])!r}, check=plan is not None)\n"
        "    return plan\n"
        "turn.make_plan = then_paused\n"
        f"sys.exit(frozen.run({instant(at('12:05'))}, sys.argv[1:]))"
    )
    argv = [PYTHON, "-c", code, *mode, "--", "echo", "ran"]
    found = subprocess.run(
        argv, env=sales.environment, cwd=sales.folder, capture_output=True, timeout=60, check=True
    )
    assert b"ran" not in found.stdout
    assert b"reason=paused" in found.stderr
    assert sales.query("select count(*) from jobrun_run where started > ?", at("12:00")) == [(0,)]


# -- how long -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [("--for", "1h"), ("--until", at("11:10"))])
def test_a_pause_that_has_an_end_ends(sales: Jobrun, length: tuple[str, str]) -> None:
    """At that second the next call runs what is due, and the end is an event."""
    found = sales("pause", "sales", *length, now=at("10:10"))
    assert " what=paused until=2026-09-04T11:10:00Z by=" in found.stderr
    skipped = sales(*HOURLY, *SHOW, now=f"{DAY}T11:09:59Z")
    assert "reason=paused until=2026-09-04T11:10:00Z by=" in skipped.stderr
    assert hours(sales(*HOURLY, *SHOW, now=at("11:10"))) == ["10"]
    assert events(sales) == ["paused", "resumed"]
    assert paused(sales) == [("sales", 0)]


def test_a_pause_ends_also_where_nothing_is_due(sales: Jobrun) -> None:
    """A call with nothing to do clears it, once; the next one takes the idle way again."""
    sales("pause", "sales", "--for", "10m", now=at("10:10"))
    for time in ("10:20", "10:25"):
        assert "reason=no-closed-window" in sales(*HOURLY, "-v", "--", "true", now=at(time)).stderr
    assert events(sales) == ["paused", "resumed"]
    assert paused(sales) == [("sales", 0)]


def test_a_clock_that_is_doubted_ends_no_pause(sales: Jobrun) -> None:
    """Two months ahead for one call: paused all the same."""
    sales("pause", "sales", "--for", "2d", now=at("10:10"))
    wrong = sales(*HOURLY, *SHOW, now="2026-11-04T12:05:00Z")
    assert (wrong.status, wrong.stdout) == (0, "")
    assert "reason=paused" in wrong.stderr
    assert paused(sales) == [("sales", 1)]


def test_a_date_is_a_day_of_the_jobs_zone(jobrun: Jobrun) -> None:
    """`--until 2026-09-07` for a job of Istanbul: midnight there."""
    call = ("run", "report", "--every", "1d", "--tz", "Europe/Istanbul", "--", "true")
    jobrun(*call, now=at("10:00"))
    found = jobrun("pause", "report", "--until", "2026-09-07", now=at("10:10"))
    assert " until=2026-09-06T21:00:00Z " in found.stderr


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("pause", "sales", "--for", "1h", "--until", at("12:00")), "--for and --until"),
        (("pause", "sales", "--for", "0"), '--for "0"'),
        (("pause", "sales", "--for", "soon"), '--for "soon"'),
        (("pause", "sales", "--until", at("10:10")), "is not after now, 2026-09-04T10:10:00Z"),
        (("pause", "sales", "--until", "2026-09-04T12:00"), "zone"),
        (("pause",), "JOB or --all"),
        (("pause", "sales", "--all"), "JOB or --all"),
        (("pause", "--all", "--for", "soon"), '--for "soon"'),
        (("pause", "sale"), 'no job "sale"'),
        (("resume",), "JOB or --all"),
        (("resume", "sale"), 'no job "sale"'),
        (("resume", "sales", "--catch-up", "merge"), '--catch-up "merge": all or latest'),
    ],
)
def test_what_can_not_be_meant_is_refused(
    sales: Jobrun, argv: tuple[str, ...], message: str
) -> None:
    """2, one error that names the value, and nothing is changed."""
    found = sales(*argv, now=at("10:10"))
    assert found.status == 2
    assert message in found.stderr
    assert found.stderr.count("error:") == 1
    assert events(sales) == []


# -- resume ---------------------------------------------------------------------------------------


def test_resume_with_latest_gives_up_all_but_the_newest(sales: Jobrun) -> None:
    """One gap, the failed one by its own row and an event; W moves; the newest window runs."""
    assert sales(*HOURLY, "--", "false", now=at("11:05")).status == 1
    sales("pause", "sales", now=at("11:10"))
    dry = sales("resume", "sales", "--catch-up", "latest", "--dry-run", now=at("15:10"))
    (line,) = dry.lines
    assert line.startswith("jobrun: NOTE job=sales what=would-resume windows=4 by=")
    assert paused(sales) == [("sales", 1)]
    found = sales("resume", "sales", "--catch-up", "latest", now=at("15:10"))
    assert found.status == 0
    assert f"reason=not-latest window={DAY}T11:00:00+00:00/{DAY}T14:00:00+00:00" in found.stderr
    assert "what=not-latest key=sales:2026-09-04T10:00:00+00:00" in found.stderr
    assert sales.query("select windows, reason from jobrun_gap") == [(3, "not-latest")]
    rows = sales.query("select substr(start, 12, 2), state, reason from jobrun_window order by 1")
    assert rows == [("09", "processed", None), ("10", "skipped", "not-latest")]
    assert sales.query("select watermark from jobrun_job") == [("2026-09-04T14:00:00+00:00",)]
    assert hours(sales(*HOURLY, *SHOW, now=at("15:11"))) == ["14"]
    told = ["failed", "paused", "not-latest", "not-latest", "resumed", "recovered"]
    assert events(sales) == told


def test_resume_with_latest_keeps_the_lag(sales: Jobrun) -> None:
    """The newest closed window is the newest of a call, whose options are those of the last one."""
    lagging = (*HOURLY, "--lag", "30m")
    sales(*lagging, "--", "true", now=at("10:06"))
    sales(*lagging, "--", "true", now=at("11:31"))
    sales("pause", "sales", now=at("11:40"))
    assert sales("resume", "sales", "--catch-up", "latest", now=at("15:10")).status == 0
    assert hours(sales(*lagging, *SHOW, now=at("15:11"))) == ["13"]


def test_resume_with_latest_waits_for_no_lock(sales: Jobrun) -> None:
    """A run is at work: 75, still paused; without --catch-up it is resumed all the same."""
    held = sales.start(*HOURLY, *HOLD, stdin=subprocess.PIPE, now=at("11:05"))
    assert held.stdout is not None
    assert held.stdout.readline() == b"ready\n"
    sales("pause", "sales", now=at("11:06"))
    found = sales("resume", "sales", "--catch-up", "latest", now=at("11:07"))
    assert (found.status, "sales" in found.stderr) == (75, True)
    assert paused(sales) == [("sales", 1)]
    assert sales("resume", "sales", now=at("11:07")).status == 0
    assert paused(sales) == [("sales", 0)]
    held.communicate(timeout=20)


def test_a_lost_run_is_closed_by_resume_with_latest(sales: Jobrun) -> None:
    """kill -9, paused, resumed with latest: the lost window is given up with the others."""
    held = sales.start(*HOURLY, *HOLD, stdin=subprocess.PIPE, now=at("11:05"))
    assert held.stdout is not None
    assert held.stdout.readline() == b"ready\n"
    sales("pause", "sales", now=at("11:06"))
    held.kill()
    held.communicate(timeout=20)

    resume = ("resume", "sales", "--catch-up", "latest")
    until(lambda: sales(*resume, now=at("13:07")).status == 0, "the lock")
    assert sales.query("select outcome from jobrun_run where id = 2") == [("lost",)]
    assert sales.query("select state from jobrun_window where start like '%T10:%'") == [
        ("skipped",)
    ]
    assert hours(sales(*HOURLY, *SHOW, now=at("13:08"))) == ["12"]


@pytest.mark.parametrize(
    ("options", "state"), [(("--on-lost", "hold"), "held"), (("--max-attempts", "1"), "dead")]
)
def test_resume_with_latest_goes_by_what_the_job_says_of_a_lost_run(
    sales: Jobrun, options: tuple[str, str], state: str
) -> None:
    """Held or dead, with its event and its word; neither given up nor run again."""
    held = sales.start(*HOURLY, *options, *HOLD, stdin=subprocess.PIPE, now=at("11:05"))
    assert held.stdout is not None
    assert held.stdout.readline() == b"ready\n"
    sales("pause", "sales", now=at("11:06"))
    held.kill()
    held.communicate(timeout=20)
    run = "select 1 from jobrun_run where outcome = 'lost'"
    resumed: list[Result] = []

    def is_lost() -> bool:
        resumed.append(sales("resume", "sales", "--catch-up", "latest", now=at("13:07")))
        return bool(sales.query(run))

    until(is_lost, "the lock")
    key = "sales:2026-09-04T10:00:00+00:00"
    assert resumed[-1].lines[0].startswith("jobrun: LOST job=sales ")
    assert f" WARNING job=sales what={state} key={key} " in resumed[-1].stderr
    assert sales.query("select state, reason from jobrun_window where key = ?", key) == [
        (state, "lost")
    ]
    assert events(sales)[1:4] == ["lost", state, "not-latest"]
    later = sales(*HOURLY, *options, "--on-failure", "continue", *SHOW, now=at("13:08"))
    assert hours(later) == ["12"]
    assert sales.query("select state from jobrun_window where key = ?", key) == [(state,)]


def test_a_job_that_is_not_paused_is_not_resumed(sales: Jobrun) -> None:
    """Said, exit 0, and --catch-up latest gives nothing up."""
    found = sales("resume", "sales", "--catch-up", "latest", now=at("15:10"))
    assert found.status == 0
    assert "NOTE job=sales what=not-paused" in found.stderr
    assert len(hours(sales(*HOURLY, *SHOW, now=at("15:11")))) == 5
    assert events(sales) == []


def test_all_jobs_at_once(sales: Jobrun) -> None:
    """--all never shortens a pause that is there; resume --all ends each."""
    sales("run", "plain", "--", "true", now=at("10:06"))
    sales("pause", "plain", "--reason", "for good", now=at("10:07"))
    found = sales("pause", "--all", "--for", "1h", now=at("10:10"))
    assert "NOTE job=sales what=paused until=" in found.stderr
    assert "NOTE job=plain what=paused-already by=" in found.stderr
    assert sales.query("select name, paused_until from jobrun_job order by name") == [
        ("plain", None),
        ("sales", "2026-09-04T11:10:00+00:00"),
    ]
    assert sales("resume", "--all", "--catch-up", "latest", now=at("13:10")).status == 0
    assert paused(sales) == [("plain", 0), ("sales", 0)]
    assert hours(sales(*HOURLY, *SHOW, now=at("13:11"))) == ["12"]


def test_a_job_that_is_busy_does_not_keep_others_from_being_resumed(sales: Jobrun) -> None:
    """resume --all --catch-up latest: 75 for the one that runs, the rest is done."""
    sales("run", "zebra", "--every", "1h", "--", "true", now=at("10:06"))
    held = sales.start(*HOURLY, *HOLD, stdin=subprocess.PIPE, now=at("11:05"))
    assert held.stdout is not None
    assert held.stdout.readline() == b"ready\n"
    sales("pause", "--all", now=at("11:06"))
    found = sales("resume", "--all", "--catch-up", "latest", now=at("13:07"))
    assert found.status == 75
    assert paused(sales) == [("sales", 1), ("zebra", 0)]
    held.communicate(timeout=20)


@pytest.mark.parametrize("argv", [("pause", "sales", "--for", "1h"), ("pause", "--all")])
def test_a_dry_run_changes_nothing(sales: Jobrun, argv: tuple[str, ...]) -> None:
    """The line says would-pause, the ledger is the same to the last row."""
    before = dump(sales)
    found = sales(*argv, "--dry-run", now=at("10:10"))
    assert (found.status, "what=would-pause" in found.stderr) == (0, True)
    assert dump(sales) == before


def dump(jobrun: Jobrun) -> list[str]:
    connection = sqlite3.connect(jobrun.ledger)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("where", ["before", "after"])
def test_killed_at_the_write(sales: Jobrun, verb: str, where: str) -> None:
    """kill -9 before the transaction: as if never asked; after it: done, and its event is there."""
    if verb == "resume":
        sales("pause", "sales", now=at("10:07"))
    first = f"{verb}(*arguments); " if where == "after" else ""
    code = (
        "import os, signal, sys\n"
        "from jobrun.ledger_sqlite import SqliteLedger\nfrom tests import frozen\n"
        f"{verb} = SqliteLedger.{verb}\n"
        "def killed(*arguments):\n"
        f"    {first}os.kill(os.getpid(), signal.SIGKILL)\n"
        f"SqliteLedger.{verb} = killed\n"
        f"sys.exit(frozen.run({instant(at('10:10'))}, sys.argv[1:]))"
    )
    argv = [PYTHON, "-c", code, verb, "sales"]
    found = subprocess.run(argv, env=sales.environment, cwd=sales.folder, timeout=60)
    assert found.returncode == -signal.SIGKILL
    done = where == "after"
    assert paused(sales) == [("sales", int((verb == "pause") == done))]
    assert (f"{verb}d" in events(sales)) == done
    ran = hours(sales(*HOURLY, *SHOW, now=at("11:05")))
    assert ran == ([] if (verb == "pause") == done else ["10"])


# -- how it is told -------------------------------------------------------------------------------


def test_the_screens_tell_it(sales: Jobrun) -> None:
    """status, show, plan, windows, history: paused, since when, by whom, why, until when."""
    sales("pause", "sales", "--until", at("20:00"), "--reason", "source down", now=at("10:10"))
    sales(*HOURLY, "--", "true", now=at("11:05"))
    now = at("12:05")
    words = "since 09-04 10:10, until 09-04 20:00, by "
    status = sales("status", now=now)
    assert "sales  paused  " in status.stdout
    assert f"sales  paused: {words}" in status.stdout
    assert "jobrun resume sales" in status.stdout
    assert sales("status", "--check", now=now) == (0, "", "")
    assert words in sales("show", "sales", now=now).stdout
    plan = sales("plan", "sales", now=now).stdout
    assert "skip  -" in plan
    assert f"paused {words}" in plan
    windows = sales("windows", "sales", now=now).stdout
    assert f"paused {words}" in windows
    assert "2 windows for a call after the pause" in windows
    assert ": source down" in sales("history", "sales", now=now).stdout
    assert (
        '"paused": {"at": "2026-09-04T10:10:00+00:00"' in sales("status", "--json", now=now).stdout
    )
    assert "paused" not in sales("plan", "sales", "--at", at("20:00"), now=now).stdout
