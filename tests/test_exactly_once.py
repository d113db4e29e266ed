"""`jobrun_done` through whole calls: data and mark are one transaction, whatever comes after."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PYTHON, Jobrun, until

HOURLY = ("--every", "1h")
FIRST, SECOND = "2026-09-04T12:05:00Z", "2026-09-04T12:07:00Z"
shell = pytest.mark.skipif(not shutil.which("sqlite3"), reason="needs the sqlite3 shell")

# The user's own transaction in the ledger's database: data, then the mark, then what the test says.
WORK = """
import os, signal, sqlite3, sys
import jobrun
connection = sqlite3.connect(os.environ['JOBRUN_LEDGER'], isolation_level=None, timeout=30)
connection.execute('create table if not exists mine (key text)')
connection.execute('begin immediate')
connection.execute('insert into mine values (?)', (os.environ['JOBRUN_KEY'],))
jobrun.done(connection)
connection.execute('commit')
"""
# At attempt 1 it leaves such work behind and fails; at attempt 2 that goes on first, to its end.
LEFT_BEHIND = """
import os, subprocess, sys
is_first = os.environ['JOBRUN_ATTEMPT'] == '1'
if is_first:
    if os.fork():
        sys.exit(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1), os.dup2(null, 2)
    open('go').close()
else:
    open('go', 'w').close()
    print(open('said').read())
found = subprocess.run([sys.executable, '-c', sys.argv[1]], stderr=subprocess.PIPE, text=True)
if is_first:
    open('said', 'w').write(found.stderr or 'committed')
sys.exit(found.returncode)
"""
SHELL = """
PRAGMA busy_timeout = 30000;
CREATE TABLE IF NOT EXISTS mine (key TEXT);
BEGIN IMMEDIATE;
INSERT INTO mine VALUES ('$JOBRUN_KEY');
INSERT INTO jobrun_done (job, key, token) VALUES ('$JOBRUN_JOB', '{key}', {token});
COMMIT;
"""


def mine(jobrun: Jobrun) -> list[tuple[object, ...]]:
    return jobrun.query("select key from mine")


def by_shell(
    key: str = "$JOBRUN_KEY", token: str = "$JOBRUN_TOKEN", bail: bool = True
) -> list[str]:
    text = SHELL.format(key=key, token=token)
    command = f'sqlite3 {"-bail" if bail else ""} "$JOBRUN_LEDGER" <<END\n{text}END\n'
    return ["sh", "-c", command]


@pytest.mark.parametrize(
    "end", ["sys.exit(9)", "os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(0)"]
)
def test_a_marked_window_is_processed_whatever_the_command_does_then(
    jobrun: Jobrun, end: str
) -> None:
    """Exit 9 and kill -9 reach cron; the window is never run again."""
    call = ("run", "a", *HOURLY, "--", PYTHON, "-c", WORK + end)
    first = jobrun(*call, now=FIRST)
    assert first.status == {"9)": 9, "L)": 137, "0)": 0}[end[-2:]]
    assert " PROCESSED job=a " in first.stderr
    assert jobrun(*call, now=SECOND).status == 0
    assert mine(jobrun) == [("a:2026-09-04T11:00:00+00:00",)]
    assert jobrun.query("select state, attempts from jobrun_window") == [("processed", 1)]
    assert jobrun.query("select watermark from jobrun_job") == [("2026-09-04T12:00:00+00:00",)]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_marked_window_survives_wrapper_and_all(jobrun: Jobrun) -> None:
    """kill -9 of everything after the mark: nothing is done twice."""
    code = WORK + "print('ready', flush=True); signal.pause()"
    process = jobrun.start("run", "a", *HOURLY, "-k", "1", "--", PYTHON, "-c", code, now=FIRST)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    ((wrapper,),) = jobrun.query("select pid from jobrun_run")
    assert isinstance(wrapper, int)
    os.kill(wrapper, signal.SIGKILL)
    process.communicate(timeout=20)

    def settled() -> bool:
        jobrun("run", "a", *HOURLY, "--", PYTHON, "-c", WORK, now=SECOND)
        return jobrun.query("select count(*) from jobrun_run where outcome is null") == [(0,)]

    until(settled, "the next call to take the lock")
    assert mine(jobrun) == [("a:2026-09-04T11:00:00+00:00",)]
    assert jobrun.query("select outcome from jobrun_run") == [("lost",)]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_marked_and_then_interrupted_is_processed(jobrun: Jobrun) -> None:
    """TERM to jobrun after the mark: 143, and the window is done."""
    code = WORK + "print('ready', flush=True); signal.pause()"
    process = jobrun.start("run", "a", *HOURLY, "--", PYTHON, "-c", code, now=FIRST)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143
    assert b" PROCESSED job=a " in err
    assert jobrun("run", "a", *HOURLY, "--", "false", now=SECOND).status == 0


def test_with_a_stale_token_the_data_is_rolled_back(jobrun: Jobrun) -> None:
    """Another holder has been since: its transaction is rolled back whole."""
    steal = (
        "import os, sqlite3; c = sqlite3.connect(os.environ['JOBRUN_LEDGER']);"
        "c.execute('update jobrun_window set token = token + 1'); c.commit(); c.close()\n"
    )
    found = jobrun("run", "a", *HOURLY, "--", PYTHON, "-c", steal + WORK, now=FIRST)
    assert found.status != 0
    assert "jobrun_done" in found.stderr
    assert mine(jobrun) == []


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX: fork, FIFOs")
def test_what_a_failed_try_left_behind_marks_nothing_beside_the_next_one(jobrun: Jobrun) -> None:
    """In one call as over two: its transaction is rolled back, the data is there once."""
    for name in ("go", "said"):
        os.mkfifo(jobrun.folder / name)
    call = ("run", "a", *HOURLY, "--retries", "1", "--retry-delay", "0", "--timeout", "30")
    found = jobrun(*call, "--", PYTHON, "-c", LEFT_BEHIND, WORK, now=FIRST)
    assert found.status == 0, found.stderr
    assert (
        "this run (token 1) is not its holder any more; the transaction was rolled" in found.stdout
    )
    assert mine(jobrun) == [("a:2026-09-04T11:00:00+00:00",)]
    assert jobrun.query("select outcome, token from jobrun_run") == [
        ("failed", 1),
        ("succeeded", 2),
    ]


@shell
@pytest.mark.parametrize("bail", [True, False])
@pytest.mark.parametrize(
    ("key", "token"),
    [("$JOBRUN_KEY", "$JOBRUN_TOKEN - 1"), ("a:unknown", "$JOBRUN_TOKEN"), ("$JOBRUN_KEY", "'x'")],
)
def test_the_shell_never_commits_unmarked_data(
    jobrun: Jobrun, key: str, token: str, bail: bool
) -> None:
    """Stale token, unknown key, a token that is text; without -bail a careless COMMIT follows."""
    found = jobrun("run", "a", *HOURLY, "--", *by_shell(key, token, bail), now=FIRST)
    assert "rolled back" in found.stderr
    assert mine(jobrun) == []


@shell
@pytest.mark.parametrize("token", ["$JOBRUN_TOKEN", "'$JOBRUN_TOKEN'"])
def test_the_shell_marks(jobrun: Jobrun, token: str) -> None:
    """With the token as a number, or as text that is one."""
    found = jobrun("run", "a", *HOURLY, "--", *by_shell(token=token), now=FIRST)
    assert found.status == 0, found.stderr
    assert mine(jobrun) == [("a:2026-09-04T11:00:00+00:00",)]
    assert jobrun.query("select reason from jobrun_window") == [("marked",)]


def test_a_database_of_the_users_own_stays_his(jobrun: Jobrun, tmp_path: Path) -> None:
    """Its journal mode, user_version and tables are as they were; argv is no more than a hash."""
    connection = sqlite3.connect(jobrun.ledger)
    connection.execute("create table orders (id integer primary key)")
    connection.execute("pragma user_version = 42")
    connection.commit()
    connection.close()
    assert jobrun("run", "a", *HOURLY, "--", "echo", "s3cr3t", now=FIRST).status == 0
    assert jobrun.query("pragma user_version") == [(42,)]
    assert jobrun.query("pragma journal_mode") == [("delete",)]
    assert jobrun.query("select count(*) from orders") == [(0,)]
    assert b"s3cr3t" not in jobrun.ledger.read_bytes()
    names = [str(name) for (name,) in jobrun.query("select name from sqlite_master")]
    assert all(name.startswith(("jobrun_", "orders", "sqlite_")) for name in names)
    refused = jobrun("rerun", "a", "2026-09-04T11:00Z", now=SECOND)
    assert refused.status == 2
    assert "only the first word of the last command is on record" in refused.stderr


def test_the_token_and_the_run_are_handed_to_every_command(jobrun: Jobrun) -> None:
    """They grow with each acquisition of the lock."""
    show = ("sh", "-c", "echo $JOBRUN_TOKEN $JOBRUN_RUN_ID")
    assert [jobrun("run", "a", "--", *show).stdout for _ in range(3)] == ["1 1\n", "2 2\n", "3 3\n"]


def test_each_further_try_in_a_call_has_a_token_of_its_own(jobrun: Jobrun) -> None:
    """Its first one and the window after it have the call's; the next call a newer one."""
    fails = ("sh", "-c", 'echo $JOBRUN_TOKEN; [ "$JOBRUN_ATTEMPT" = 2 ]')
    tries = ("--retries", "1", "--retry-delay", "0", "--", *fails)
    windows = ("run", "a", *HOURLY, "--first", "2026-09-04T10:00Z", *tries)
    assert jobrun(*windows, now=FIRST).stdout.split() == ["1", "2", "2", "3"]
    assert jobrun(*windows, now="2026-09-04T13:05:00Z").stdout.split() == ["4", "5"]
    assert jobrun("run", "p", *tries).stdout.split() == ["1", "2"]
    assert jobrun.query("select name, token from jobrun_job") == [("a", 5), ("p", 2)]
    assert jobrun("doctor", now=FIRST).status == 0


def test_the_module_is_there_for_a_plain_python(jobrun: Jobrun) -> None:
    """`import jobrun; jobrun.done` outside of a call says so, and no data is committed."""
    code = (
        "import sqlite3, jobrun\n"
        "connection = sqlite3.connect(':memory:', isolation_level=None)\n"
        "connection.execute('begin'); jobrun.done(connection)"
    )
    found = subprocess.run([PYTHON, "-c", code], env=jobrun.environment, capture_output=True)
    assert found.returncode == 1
    assert b"jobrun" in found.stderr
