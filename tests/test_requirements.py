"""One test a row of the requirements, named after its id: from outside, through real processes.

D (several machines) is in test_requirements_machines.py; the rows of M that need alerts or a server
come with their parts of the product.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobrun import __version__, places
from tests.conftest import PYTHON, Jobrun, is_alive, until

HOURLY = ("--every", "1h")
SHOW = (PYTHON, "-c", "import os; print(os.environ['JOBRUN_KEY'])")
# Says that it runs, then waits for its stdin to end: the test decides when.
HOLD = (PYTHON, "-uc", "import sys; print('ready'); sys.stdin.read()")


def hold(jobrun: Jobrun, job: str, *options: str, **more: str) -> subprocess.Popen[bytes]:
    """A call whose command runs until its stdin is closed."""
    now = more.get("now")
    process = jobrun.start(
        "run", job, *options, "--stdin", "inherit", "--", *HOLD, stdin=subprocess.PIPE, now=now
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def release(process: subprocess.Popen[bytes]) -> int:
    return finish(process)[0]


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Close the command's stdin, so that it ends; jobrun's exit code and its lines."""
    _, err = process.communicate(timeout=20)
    return process.returncode, err.decode()


def test_the_worked_example(jobrun: Jobrun) -> None:
    """Requirements, section S: as written, to the letter."""
    first = ("run", "sales-summary", *HOURLY, "--first", "2026-09-04T09:00Z", "--", *SHOW)
    assert jobrun(*first, now="2026-09-04T10:05:00Z").status == 0
    call = ("run", "sales-summary", *HOURLY, "--", *SHOW)

    held = hold(jobrun, "sales-summary", *HOURLY, now="2026-09-04T12:05:00Z")
    while_running = jobrun(*call, now="2026-09-04T12:07:00Z")
    assert while_running.status == 0
    assert " SKIPPED job=sales-summary reason=lock-held " in while_running.stderr
    status, printed = finish(held)
    assert status == 0
    words = [line for line in printed.splitlines() if "PROCESSED" in line]
    keys = ["sales-summary:2026-09-04T10:00:00+00:00", "sales-summary:2026-09-04T11:00:00+00:00"]
    assert [f" key={key} " in line for key, line in zip(keys, words, strict=True)] == [True, True]

    after = jobrun(*call, now="2026-09-04T12:07:00Z")
    assert (after.status, after.stdout, after.stderr) == (0, "", "")
    verbose = jobrun("run", "sales-summary", *HOURLY, "-v", "--", *SHOW, now="2026-09-04T12:07:00Z")
    assert verbose.stderr == (
        "jobrun: SKIPPED job=sales-summary reason=no-closed-window"
        " next=2026-09-04T13:00:00Z at=2026-09-04T12:07:00Z\n"
    )
    by_hand = jobrun(
        "run", "sales-summary", *HOURLY, "--window", "2026-09-04T10:00Z", "--", *SHOW,
        now="2026-09-04T12:07:00Z",
    )  # fmt: skip
    assert by_hand.status == 0
    assert by_hand.stderr == (
        f"jobrun: SKIPPED job=sales-summary reason=key-exists key={keys[0]}"
        " at=2026-09-04T12:07:00Z\n"
    )
    skips = jobrun.query(
        "select reason, sum(times) from jobrun_skip group by reason order by reason"
    )
    assert skips == [("key-exists", 1), ("lock-held", 1), ("no-closed-window", 2)]
    (row,) = jobrun.query("select watermark from jobrun_job")
    assert row == ("2026-09-04T12:00:00+00:00",)


def test_S1_one_lock_a_job_freed_however_the_process_ends(jobrun: Jobrun) -> None:
    """kill -9 frees it, nothing stale is left, and unrelated jobs never share it."""
    held = hold(jobrun, "a")
    other = jobrun("run", "b", "--", "true")
    assert "PROCESSED job=b" in other.stderr
    assert "reason=lock-held" in jobrun("run", "a", "--", "true").stderr
    names = os.listdir(places.locks_folder(str(jobrun.ledger)))
    assert sorted(names) == sorted(f"{places.slug(job)}.lock" for job in "ab")
    held.kill()
    held.communicate(timeout=20)
    until(lambda: "PROCESSED job=a" in jobrun("run", "a", "--", "true").stderr, "the lock")


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p"])
def test_S2_a_network_filesystem_is_said(kind: str, jobrun: Jobrun, tmp_path: Path) -> None:
    """Locks there are not to be trusted: a WARNING, once a call, and no WAL."""
    code = (
        "import sys; from jobrun import places; "
        f"places.filesystem = lambda path: {kind!r}; "
        "from tests import frozen; sys.exit(frozen.run(1.8e9, sys.argv[1:]))"
    )
    argv = [PYTHON, "-c", code, "run", "a", "--", "true"]
    found = subprocess.run(argv, env=jobrun.environment, capture_output=True, check=True)
    warnings = [line for line in found.stderr.decode().splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert f"what=network-filesystem filesystem={kind} " in warnings[0]
    assert jobrun.query("pragma journal_mode") == [("delete",)]


def test_S3_the_second_copy_withdraws_at_once_with_its_reason(jobrun: Jobrun) -> None:
    """Exit 0, logged, recorded; waiting and another exit code are explicit choices."""
    held = hold(jobrun, "a")
    started = time.monotonic()
    second = jobrun("run", "a", "--", "true")
    assert time.monotonic() - started < 5
    assert second.status == 0
    ((run, pid),) = jobrun.query("select id, pid from jobrun_run where outcome is null")
    assert f"reason=lock-held holder={os.uname().nodename}:{pid} since=" in second.stderr
    assert f" run={run} at=" in second.stderr
    assert jobrun("run", "a", "--busy-exit", "75", "--", "true").status == 75
    assert jobrun.query("select reason, times from jobrun_skip") == [("lock-held", 2)]
    waiting = jobrun.start("run", "a", "--wait", "30", "--", "true")
    assert release(held) == 0
    _, err = waiting.communicate(timeout=30)
    assert b"PROCESSED job=a" in err


def test_S4_keys_come_from_the_input_alone(jobrun: Jobrun, tmp_path: Path) -> None:
    """Window start, a name, a file's name and content: never from now or by chance."""
    jobrun("run", "w", *HOURLY, "--", *SHOW, now="2026-09-04T12:05:00Z")
    jobrun("run", "k", "--key", "order-17", "--", "true")
    file = tmp_path / "in.csv"
    file.write_bytes(b"a,b\n")
    digest = (
        subprocess.run(["sha256sum", file], capture_output=True, check=True)
        .stdout.split()[0]
        .decode()
    )
    jobrun("run", "f", "--key-file", str(file), "--", "true")
    keys = [key for (key,) in jobrun.query("select key from jobrun_window order by job")]
    assert keys == [f"f:in.csv:{digest}", "k:order-17", "w:2026-09-04T11:00:00+00:00"]
    again = jobrun("run", "f", "--key-file", str(file), "--", "false")
    assert again.status == 0
    assert "reason=key-exists" in again.stderr


def test_S5_mark_and_watermark_move_together(jobrun: Jobrun) -> None:
    """One transaction: a ledger seen from outside never has one without the other."""
    jobrun(
        "run",
        "a",
        *HOURLY,
        "--first",
        "2026-09-04T00:00Z",
        "--",
        "true",
        now="2026-09-04T00:05:00Z",
    )
    query = (
        "select (select count(*) from jobrun_window where state='processed'),"
        " (select strftime('%H', watermark) from jobrun_job)"
    )
    code = (
        "import sqlite3, os; c = sqlite3.connect(os.environ['JOBRUN_LEDGER']);"
        f"print(c.execute({query!r}).fetchone())"
    )
    found = jobrun("run", "a", *HOURLY, "--", PYTHON, "-c", code, now="2026-09-04T04:05:00Z")
    assert found.stdout.splitlines() == [f"({n}, '{n:02d}')" for n in range(4)]


def test_S6_the_started_mark_comes_first_and_the_key_is_handed_on(jobrun: Jobrun) -> None:
    """Started mark, effect, finished mark; the command sees its key and its attempt."""
    code = (
        "import os, sqlite3; c = sqlite3.connect(os.environ['JOBRUN_LEDGER']);"
        "found = c.execute('select key, state from jobrun_window').fetchall();"
        "print(found, os.environ['JOBRUN_KEY'])"
    )
    found = jobrun("run", "a", "--key", "mail-7", "--", PYTHON, "-c", code)
    assert found.stdout == "[('a:mail-7', 'running')] a:mail-7\n"
    assert jobrun.query("select key, state from jobrun_window") == [("a:mail-7", "processed")]


def test_S7_windows_are_closed_half_open_and_contiguous(jobrun: Jobrun) -> None:
    """[start, end) from the watermark up to now; the open one is left out."""
    show = (
        PYTHON,
        "-c",
        "import os; print(os.environ['JOBRUN_WINDOW_START'], os.environ['JOBRUN_WINDOW_END'])",
    )
    call = ("run", "a", *HOURLY, "--first", "2026-09-04T10:00Z", "--", *show)
    found = jobrun(*call, now="2026-09-04T12:59:59Z")
    assert found.stdout.splitlines() == [
        "2026-09-04T10:00:00+00:00 2026-09-04T11:00:00+00:00",
        "2026-09-04T11:00:00+00:00 2026-09-04T12:00:00+00:00",
    ]
    assert (
        jobrun(*call, now="2026-09-04T13:00:00Z").stdout.split()[0] == "2026-09-04T12:00:00+00:00"
    )


def test_S8_a_lag_waits_for_late_records(jobrun: Jobrun) -> None:
    """A window is ready its lag after its end, and `next=` says when."""
    call = ("run", "a", *HOURLY, "--lag", "10m", "-v", "--", *SHOW)
    jobrun(*call, now="2026-09-04T11:10:00Z")
    early = jobrun(*call, now="2026-09-04T12:09:59Z")
    assert "reason=no-closed-window next=2026-09-04T12:10:00Z" in early.stderr
    assert jobrun(*call, now="2026-09-04T12:10:00Z").stdout == "a:2026-09-04T11:00:00+00:00\n"


def test_S9_an_outage_is_caught_up_oldest_first_and_capped(jobrun: Jobrun) -> None:
    """All that closed, in order, as many as the cap allows; the rest is said and done next."""
    jobrun("run", "a", *HOURLY, "--", "true", now="2026-09-04T00:05:00Z")
    call = (
        "run",
        "a",
        *HOURLY,
        "--max-windows",
        "3",
        "--",
        PYTHON,
        "-c",
        "import os; print(os.environ['JOBRUN_WINDOW_START'][11:13])",
    )
    capped = jobrun(*call, now="2026-09-04T05:05:00Z")
    assert capped.stdout.split() == ["00", "01", "02"]
    assert "BACKLOG job=a left=2 from=2026-09-04T03:00:00Z" in capped.stderr
    assert jobrun(*call, now="2026-09-04T05:06:00Z").stdout.split() == ["03", "04"]


def test_S10_lines_tell_processed_lock_and_key_apart(jobrun: Jobrun) -> None:
    """Three states, three lines, each with its fields."""
    done = jobrun("run", "a", "--key", "k", "--", "true")
    assert done.lines[-1].startswith("jobrun: PROCESSED job=a key=a:k attempt=1 took=")
    assert (
        "SKIPPED job=a reason=key-exists key=a:k at="
        in jobrun("run", "a", "--key", "k", "--", "true").stderr
    )
    held = hold(jobrun, "a")
    assert (
        "SKIPPED job=a reason=lock-held holder="
        in jobrun("run", "a", "--key", "k", "--", "true").stderr
    )
    assert release(held) == 0


def test_S11_started_late_twice_and_by_hand_does_each_window_once(jobrun: Jobrun) -> None:
    """What a late start, a retry wrapper and a person do to it changes nothing."""
    call = ("run", "a", *HOURLY, "--first", "2026-09-04T08:00Z", "--", *SHOW)
    out = [
        jobrun(*call, now=f"2026-09-04T{at}:00Z").stdout
        for at in ("09:30", "09:30", "12:05", "12:05")
    ]
    out.append(
        jobrun(
            "run",
            "a",
            *HOURLY,
            "--window",
            "2026-09-04T09:00Z",
            "--",
            *SHOW,
            now="2026-09-04T12:06:00Z",
        ).stdout
    )
    keys = "".join(out).split()
    assert keys == [f"a:2026-09-04T{hour}:00:00+00:00" for hour in ("08", "09", "10", "11")]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_D8_staging_does_not_block_production_on_a_shared_server(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """The same job in two environments: neither waits for, nor sees the other."""
    jobrun: Jobrun = request.getfixturevalue("jobrun" if kind == "sqlite" else "on_postgres")
    staging, production = (("--namespace", name) for name in ("staging", "production"))
    held = hold(jobrun, "a", *HOURLY, *staging, now="2026-09-04T12:05Z")
    for space in (production, ()):
        call = ("run", "a", *HOURLY, *space, "-v", "--", *SHOW)
        found = jobrun(*call, now="2026-09-04T12:06Z")
        assert found.stdout == "a:2026-09-04T11:00:00+00:00\n", found
    busy = jobrun("run", "a", *HOURLY, *staging, "--", *SHOW, now="2026-09-04T12:06Z")
    assert (busy.stdout, " reason=lock-held " in busy.stderr) == ("", True)
    assert release(held) == 0
    runs = {
        space: json.loads(jobrun("history", "a", *space, "--json", now="2026-09-04T12:07Z").stdout)
        for space in (staging, production, ())
    }
    assert [len(found["runs"]) for found in runs.values()] == [1, 1, 1]
    assert len({found["ledger"] for found in runs.values()}) == 3


def test_M7_a_running_row_whose_processes_are_gone_is_lost_at_once(jobrun: Jobrun) -> None:
    """No timeout to guess: the lock is free, so the next call says LOST and runs it again."""
    held = hold(jobrun, "a", *HOURLY, now="2026-09-04T12:05:00Z")
    jobrun.query("select 1")
    held.kill()
    held.communicate(timeout=20)
    call = ("run", "a", *HOURLY, "--", *SHOW)

    def again() -> bool:
        found = jobrun(*call, now="2026-09-04T12:06:00Z")
        return "LOST job=a window=" in found.stderr and "attempt=2" in found.stderr

    until(again, "the lost run's window to run again")
    assert jobrun.query("select outcome, ended is null from jobrun_run order by id") == [
        ("lost", 1),
        ("succeeded", 0),
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_M8_a_timeout_ends_the_whole_tree(jobrun: Jobrun, tmp_path: Path) -> None:
    """TERM, grace, KILL, for children in sessions of their own too; exit 124."""
    pids = tmp_path / "pids"
    script = (
        f"setsid sh -c 'echo $$ >> {pids}; exec sleep 999' & echo $$ >> {pids};"
        " trap '' TERM; wait; sleep 999"
    )
    found = jobrun("run", "a", "--timeout", "1", "-k", "1", "--", "sh", "-c", script)
    assert found.status == 124
    assert " exit=124 outcome=timed-out attempt=1 " in found.stderr
    for pid in pids.read_text().split():
        assert not is_alive(pid)


def test_M9_skip_or_wait_as_one_chooses(jobrun: Jobrun) -> None:
    """The second copy skips by default; --wait gives up with a skip after its patience."""
    held = hold(jobrun, "a")
    found = jobrun("run", "a", "--wait", "1", "--busy-exit", "9", "--", "true")
    assert found.status == 9
    assert "reason=lock-held" in found.stderr
    assert release(held) == 0


def test_M10_retry_with_backoff_and_a_list_of_what_is_dead(jobrun: Jobrun) -> None:
    """Attempts are counted over calls; what is used up is listed until retried or resolved."""
    options = ("--first", "2026-09-04T10:00Z", "--on-failure", "continue", "--retries", "1")
    call = ("run", "a", *HOURLY, *options, "--retry-delay", "2m", "-q", "--", "sh", "-c", "exit 3")
    for minute in ("05", "10"):
        assert jobrun(*call, now=f"2026-09-04T12:{minute}:00Z").status == 3
    now = "2026-09-04T12:11:00Z"
    listed = json.loads(jobrun("failures", "--json", now=now).stdout)["failures"]
    assert [(row["key"], row["state"], row["failures"]) for row in listed] == [
        ("a:2026-09-04T10:00:00+00:00", "dead", 2), ("a:2026-09-04T11:00:00+00:00", "dead", 2)
    ]  # fmt: skip
    assert jobrun("failures", "--check", now=now).status == 1
    assert jobrun("retry", "a", "2026-09-04T10:00Z", "--", "true", now=now).status == 0
    settled = jobrun("resolve", "a", "2026-09-04T11:00Z", "--note", "sent by hand", now=now)
    assert settled.status == 0
    assert jobrun("failures", "--check", now=now).status == 0
    assert jobrun("status", "--check", now=now).status == 0
    states = jobrun.query("select state, reason from jobrun_window order by start")
    assert states == [("processed", None), ("skipped", "resolved")]


def test_M15_at_least_once_and_commit_on_success_only(jobrun: Jobrun) -> None:
    """A failed window stays unfinished and is tried again; only success moves the watermark."""
    call = ("run", "a", *HOURLY, "--")
    failed = jobrun(*call, "false", now="2026-09-04T12:05:00Z")
    assert failed.status == 1
    assert jobrun.query("select state, attempts from jobrun_window") == [("failed", 1)]
    assert jobrun.query("select watermark from jobrun_job") == [("2026-09-04T11:00:00+00:00",)]
    jobrun(*call, "true", now="2026-09-04T12:06:30Z")
    assert jobrun.query("select state, attempts from jobrun_window") == [("processed", 2)]
    assert jobrun.query("select watermark from jobrun_job") == [("2026-09-04T12:00:00+00:00",)]


def test_M16_which_hosts_there_are_and_how_they_are(on_postgres: Jobrun) -> None:
    """Seen by their calls: since when, last, with which jobrun and clock, what is open."""
    on_postgres("run", "a", *HOURLY, "--", "true", now="2026-09-04T12:05Z")
    held = hold(on_postgres, "b", now="2026-09-04T12:10Z")
    found = json.loads(on_postgres("hosts", "--json", now="2026-09-04T12:11Z").stdout)
    assert release(held) == 0
    (host,) = found["hosts"]
    assert (host["first_seen"], host["last_seen"]) == (
        "2026-09-04T12:05:00+00:00", "2026-09-04T12:10:00+00:00"
    )  # fmt: skip
    assert (host["version"], host["skew_ms"], host["open_runs"]) == (__version__, 0, 1)
    assert host["last_run"]["job"] == "b"


def test_the_ledger_is_plain_sqlite(jobrun: Jobrun) -> None:
    """One file that can be copied and read with any SQLite."""
    jobrun("run", "a", "--", "true")
    copy = jobrun.folder / "copy.db"
    shutil.copy(jobrun.ledger, copy)
    assert sqlite3.connect(copy).execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.skipif(not shutil.which("faketime"), reason="needs Debian's faketime")
def test_the_worked_example_with_a_faked_clock(jobrun: Jobrun) -> None:
    """The same through the operating system's clock, as a person would try it."""

    def at(time: str, *argv: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        call = ["faketime", "-f", f"@2026-09-04 {time}", PYTHON, "-m", "jobrun", *argv]
        environment = {**jobrun.environment, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "TZ": "UTC"}
        pipe = subprocess.PIPE
        return subprocess.Popen(call, env=environment, stdin=stdin, stdout=pipe, stderr=pipe)

    def lines(process: subprocess.Popen[bytes]) -> list[str]:
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0
        return [line for line in err.decode().splitlines() if "ephemeral" not in line]

    job = ("sales-summary", "--every", "1h")
    lines(at("10:05:00", "run", *job, "--", "true"))
    held = at("12:05:00", "run", *job, "--stdin", "inherit", "--", *HOLD, stdin=subprocess.PIPE)
    assert held.stdout is not None
    assert held.stdout.readline() == b"ready\n"
    (skipped,) = lines(at("12:07:00", "run", *job, "--", *SHOW))
    assert " SKIPPED job=sales-summary reason=lock-held holder=" in skipped
    processed = [line.split() for line in lines(held)]
    assert [line[1:5] for line in processed] == [
        [
            "PROCESSED",
            "job=sales-summary",
            f"window=2026-09-04T{hour}:00:00+00:00/2026-09-04T{hour + 1}:00:00+00:00",
            f"key=sales-summary:2026-09-04T{hour}:00:00+00:00",
        ]
        for hour in (10, 11)
    ]
    (idle,) = lines(at("12:07:00", "run", *job, "-v", "--", *SHOW))
    assert " SKIPPED job=sales-summary reason=no-closed-window next=2026-09-04T13:00:00Z" in idle
    (key,) = lines(at("12:07:00", "run", *job, "--window", "2026-09-04T10:00Z", "--", *SHOW))
    assert " reason=key-exists key=sales-summary:2026-09-04T10:00:00+00:00 at=" in key
