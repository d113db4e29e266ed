"""`--overlap allow` (M9): calls beside each other, each with windows of its own.

Each call's command says what it was started for by a file of that name, which must be new, and goes
on when the test writes to its stdin.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jobrun import places
from jobrun.lock_file import FileLock
from tests.cases import HOURLY
from tests.conftest import PYTHON, Jobrun, Result, is_alive, make_end, open_files, until
from tests.scenes import altered

if sys.platform == "win32":
    pytest.skip("kill -9, /proc", allow_module_level=True)

NOON = "2026-09-04T12:05Z"
ALLOW = ("--overlap", "allow")
# Says `09.1` (hour or key, attempt) with its pid; exits with what it reads.
HOLDS = """
import os, sys
e = os.environ
name = e['JOBRUN_WINDOW_START'][11:13] if 'JOBRUN_WINDOW_START' in e else e.get('JOBRUN_KEY', 'x')
name = f"{name.replace(':', '_')}.{e['JOBRUN_ATTEMPT']}"
if len(sys.argv) > 1:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
draft = f'{name}.{os.getpid()}'
open(draft, 'w').write(str(os.getpid()))
os.link(draft, name)
os.unlink(draft)
sys.exit(int(os.read(0, 1) or b'9'))
"""


class Call:
    """One that runs until it is told how its command is to exit, once for each window."""

    def __init__(self, jobrun: Jobrun, *argv: str, script: str = HOLDS, deaf: bool = False) -> None:
        command = ("--", PYTHON, "-c", script, *(["deaf"] if deaf else []))
        self.process = jobrun.start(
            "run", *argv, "--stdin", "inherit", *command, now=NOON, stdin=subprocess.PIPE
        )

    def tell(self, code: int = 0) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"%d" % code)
        self.process.stdin.flush()

    def end(self, code: int = 0) -> Result:
        """Tell it, and wait for its end."""
        out, err = self.process.communicate(b"%d" % code, timeout=30)
        return Result(self.process.returncode, out.decode(), err.decode())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)


class Calls:
    """All that a test has started; whatever is left at its end is killed."""

    def __init__(self, jobrun: Jobrun) -> None:
        self.jobrun = jobrun
        self.all: list[Call] = []

    def start(self, *argv: str, says: str, script: str = HOLDS, deaf: bool = False) -> Call:
        """A call, up to where its command is there."""
        call = Call(self.jobrun, *argv, script=script, deaf=deaf)
        self.all.append(call)
        until((self.jobrun.folder / says).exists, says)
        return call

    def window(
        self, hour: int, *more: str, attempt: int = 1, cap: int = 1, script: str = HOLDS
    ) -> Call:
        """A call of the job j that does this one, and no other but for a higher cap."""
        argv = ("j", *HOURLY, "--first", "2026-09-04T09:00Z", *ALLOW, "--max-windows", str(cap))
        return self.start(*argv, *more, says=f"{hour:02}.{attempt}", script=script)

    def kill(self, call: Call, name: str) -> None:
        """Until its guardian is gone, and with it what it holds: no command says so."""
        guardian = parent_of(pid_of(self.jobrun, name))
        call.kill()
        until(lambda: not is_alive(guardian), "the guardian's work")

    def end(self) -> None:
        for each in self.all:
            each.kill()
            for stream in (each.process.stdin, each.process.stdout, each.process.stderr):
                if stream is not None:
                    stream.close()
        for path in self.jobrun.folder.glob("*.[1-9]"):
            pid = path.read_text()
            with suppress(FileNotFoundError):  # it is gone
                if path.name in os.listdir(f"/proc/{pid}/cwd"):
                    make_end(pid)


@pytest.fixture
def calls(jobrun: Jobrun) -> Iterator[Calls]:
    """Calls of one job, whose windows of 9, 10 and 11 o'clock are to be done."""
    made = Calls(jobrun)
    yield made
    made.end()


def call(jobrun: Jobrun, *more: str, now: str = NOON) -> Result:
    """One more, whose command prints what it is for."""
    says = "import os; print(os.environ['JOBRUN_KEY'][13:15], os.environ['JOBRUN_ATTEMPT'])"
    return jobrun("run", "j", *HOURLY, *more, "--", PYTHON, "-c", says, now=now)


def watermark(jobrun: Jobrun) -> object:
    ((mark,),) = jobrun.query("select substr(watermark, 12, 2) from jobrun_job where name = 'j'")
    return mark


def outcomes(jobrun: Jobrun) -> list[tuple[object, ...]]:
    """Hour, attempt and outcome of each run."""
    return jobrun.query("select substr(key, 14, 2), attempt, outcome from jobrun_run order by id")


def troubles(jobrun: Jobrun) -> list[object]:
    kinds = "select kind from jobrun_event where kind in ('failed', 'recovered') order by id"
    return [kind for (kind,) in jobrun.query(kinds)]


def pid_of(jobrun: Jobrun, name: str) -> int:
    return int((jobrun.folder / name).read_text())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def slots(jobrun: Jobrun) -> list[str]:
    """The lock files beside the job's."""
    found = Path(places.locks_folder(str(jobrun.ledger))).glob("*.*.lock")
    return sorted(path.name.removeprefix(f"{places.slug('j')}.") for path in found)


# -- windows of its own ----------------------------------------------------------------------------


def test_three_calls_do_three_windows_at_once(jobrun: Jobrun, calls: Calls) -> None:
    """M9: each exactly one, in flight together; they end in any order, the watermark is right."""
    nine, ten, eleven = calls.window(9), calls.window(10), calls.window(11)
    assert [call.process.poll() for call in (nine, ten, eleven)] == [None] * 3
    assert eleven.end().status == 0
    assert watermark(jobrun) == "09"
    assert nine.end().status == 0
    assert watermark(jobrun) == "10"
    assert "PROCESSED job=j" in ten.end().stderr
    assert watermark(jobrun) == "12"
    assert outcomes(jobrun) == [(hour, 1, "succeeded") for hour in ("09", "10", "11")]
    assert "complete" in jobrun("windows", "j", now=NOON).stdout


def test_first_calls_that_come_together(jobrun: Jobrun, calls: Calls) -> None:
    """Eight at one moment on a ledger that is not there yet: eight windows, each by one of them."""
    argv = ("j", *HOURLY, "--first", "2026-09-04T04:00Z", *ALLOW)
    calls.all = [Call(jobrun, *argv) for _ in range(8)]
    names = [f"{hour:02}.1" for hour in range(4, 12)]
    until(lambda: all((jobrun.folder / name).exists() for name in names), "eight commands")
    assert [each.end().status for each in calls.all] == [0] * 8
    assert watermark(jobrun) == "12"
    assert len(outcomes(jobrun)) == 8


def test_one_call_alone_does_all(jobrun: Jobrun) -> None:
    """Oldest first, up to the cap; what is left is said, as ever."""
    found = call(jobrun, "--first", "2026-09-04T07:00Z", "--max-windows", "3", *ALLOW)
    assert found.stdout.splitlines() == ["07 1", "08 1", "09 1"]
    assert "BACKLOG job=j left=2 from=2026-09-04T10:00:00Z" in found.stderr
    found = call(jobrun, "--stop-after", "0", *ALLOW)
    assert found.stdout == "10 1\n"
    assert "BACKLOG job=j left=1 from=2026-09-04T11:00:00Z" in found.stderr
    found = call(jobrun, *ALLOW)
    assert (found.stdout, "BACKLOG" in found.stderr) == ("11 1\n", False)
    assert call(jobrun, *ALLOW).stdout == ""
    assert slots(jobrun) == ["1.lock"]


def test_what_closes_later_is_left_to_later_calls(jobrun: Jobrun, calls: Calls) -> None:
    """R6 for the call that goes on: another has finished what it would do next."""
    nine = calls.window(9)
    assert call(jobrun, *ALLOW).stdout.splitlines() == ["10 1", "11 1"]
    assert call(jobrun, *ALLOW, now="2026-09-04T13:05Z").stdout == "12 1\n"
    assert nine.end().status == 0
    assert watermark(jobrun) == "13"


def test_a_call_goes_on_behind_what_others_do(jobrun: Jobrun, calls: Calls) -> None:
    """After its window it takes the next that nobody has."""
    nine, ten = calls.window(9, cap=9), calls.window(10)
    nine.tell()
    until((jobrun.folder / "11.1").exists, "the next window")
    assert (nine.end().status, ten.end().status) == (0, 0)
    assert len(outcomes(jobrun)) == 3


def test_nothing_is_left_while_all_is_under_way(jobrun: Jobrun, calls: Calls) -> None:
    """The call says what it met, with --busy-exit; the plan says the same and changes nothing."""
    calls.window(9), calls.window(10), calls.window(11)
    found = call(jobrun, "--busy-exit", "7", *ALLOW)
    assert (found.status, found.stdout) == (7, "")
    assert "reason=lock-held key=j:2026-09-04T09:00:00+00:00 holder=" in found.stderr
    plan = call(jobrun, *ALLOW, "--dry-run").stdout
    assert "skip" in plan
    assert "lock-held" in plan
    assert "run " not in [line[:4] for line in plan.splitlines()]
    assert "beside run 1" in jobrun("plan", "j", now=NOON).stdout


def test_a_run_that_lasts_too_long_is_told(jobrun: Jobrun, calls: Calls) -> None:
    """By each call that meets it, whatever else it finds to do."""
    calls.window(9)
    found = call(jobrun, "--stuck-after", "1h", "-q", *ALLOW, now="2026-09-04T13:30Z")
    assert found.stdout.splitlines() == ["10 1", "11 1", "12 1"]
    assert found.stderr.count("what=stuck ") == 1


# -- whoever dies ----------------------------------------------------------------------------------


def test_a_killed_call_is_lost_and_the_others_go_on(jobrun: Jobrun, calls: Calls) -> None:
    """Its window is taken again by the next call, as attempt 2; the others are not touched."""
    nine, ten, eleven = calls.window(9), calls.window(10), calls.window(11)
    calls.kill(ten, "10.1")
    again = calls.window(10, attempt=2)
    assert (eleven.end().status, nine.end().status) == (0, 0)
    found = again.end()
    assert "LOST job=j" in found.stderr
    assert "attempt=2" in found.stderr
    assert watermark(jobrun) == "12"
    assert outcomes(jobrun) == [
        ("09", 1, "succeeded"),
        ("10", 1, "lost"),
        ("11", 1, "succeeded"),
        ("10", 2, "succeeded"),
    ]
    assert slots(jobrun) == ["1.lock", "2.lock", "3.lock"]


def test_a_window_is_left_alone_while_its_guardian_ends_it(jobrun: Jobrun, calls: Calls) -> None:
    """The wrapper is dead, the command ignores TERM: under way, and nothing beside it starts."""
    argv = ("j", *HOURLY, "--first", "2026-09-04T09:00Z", *ALLOW, "-k", "60")
    calls.start(*argv, says="09.1", deaf=True).kill()
    found = call(jobrun, "--max-windows", "1", *ALLOW)
    assert found.stdout == "10 1\n"
    found = call(jobrun, "--max-windows", "1", "--busy-exit", "7")
    assert (found.status, "reason=lock-held" in found.stderr) == (7, True)
    os.kill(pid_of(jobrun, "09.1"), signal.SIGKILL)
    until(lambda: "09 2\n" in call(jobrun, *ALLOW).stdout, "its end")


def test_an_orphan_is_left_alone_and_the_others_go_on(jobrun: Jobrun, calls: Calls) -> None:
    """Wrapper and guardian are dead, the command lives: orphan-alive until it does not."""
    nine = calls.window(9)
    pid = pid_of(jobrun, "09.1")
    nine.process.send_signal(signal.SIGSTOP)
    guardian = parent_of(pid)
    os.kill(guardian, signal.SIGKILL)
    nine.kill()
    until(lambda: not is_alive(guardian), "the guardian's end")
    assert is_alive(pid)
    assert call(jobrun, *ALLOW).stdout.splitlines() == ["10 1", "11 1"]
    found = call(jobrun, "--busy-exit", "7", *ALLOW)
    assert found.status == 7
    assert f"reason=orphan-alive key=j:2026-09-04T09:00:00+00:00 pids={pid} run=1" in found.stderr
    assert "reason=orphan-alive" in call(jobrun).stderr
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid), "its end")
    assert call(jobrun, *ALLOW).stdout == "09 2\n"
    assert watermark(jobrun) == "12"
    assert slots(jobrun) == ["1.lock", "2.lock"]


def test_a_call_that_is_stopped_ends_its_own_run_only(jobrun: Jobrun, calls: Calls) -> None:
    """TERM: interrupted, 143, due at once; the others go on."""
    nine, ten = calls.window(9), calls.window(10)
    nine.process.terminate()
    assert nine.process.wait(20) == 143
    again = calls.window(9, attempt=2)
    assert (ten.end().status, again.end().status) == (0, 0)
    assert ("09", 1, "interrupted") in outcomes(jobrun)


def test_a_run_that_was_taken_for_lost_is_fenced(jobrun: Jobrun, calls: Calls) -> None:
    """Should locks and pids ever lie: the second run holds the window, the first is refused."""
    nine, ten = calls.window(9), calls.window(10)
    jobrun.change("update jobrun_run set slot = 99, birth = 'x 1 1' where id = 1")
    again = calls.window(9, attempt=2)
    found = nine.end()
    assert found.status == 76
    assert "FENCED job=j" in found.stderr
    assert jobrun.query("select state from jobrun_window where key like '%T09%'") == [("running",)]
    assert (again.end().status, ten.end().status) == (0, 0)
    assert outcomes(jobrun)[:1] == [("09", 1, "fenced")]


MARKS = """
import os, sqlite3, sys, jobrun
name = os.environ['JOBRUN_WINDOW_START'][11:13] + '.' + os.environ['JOBRUN_ATTEMPT']
open(name, 'w').write(str(os.getpid()))
os.read(0, 1)
connection = sqlite3.connect(os.environ['JOBRUN_LEDGER'], isolation_level=None, timeout=20)
connection.execute('BEGIN IMMEDIATE')
connection.execute('CREATE TABLE IF NOT EXISTS mine (name TEXT)')
connection.execute('INSERT INTO mine VALUES (?)', (name,))
jobrun.done(connection)
connection.execute('COMMIT')
sys.exit(4)
"""


def test_each_window_is_marked_by_its_own_command(jobrun: Jobrun, calls: Calls) -> None:
    """`jobrun_done` goes by the window's token: other calls' claims do not matter, a later does."""
    nine, ten = calls.window(9, script=MARKS), calls.window(10, script=MARKS)
    jobrun.change("update jobrun_run set slot = 99, birth = 'x 1 1' where id = 1")
    again = calls.window(9, script=MARKS, attempt=2)
    first = nine.end()
    assert first.status == 1
    assert "FENCED job=j" in first.stderr
    assert (ten.end().status, again.end().status) == (4, 4)
    assert sorted(jobrun.query("select name from mine")) == [("09.2",), ("10.1",)]
    assert watermark(jobrun) == "11"


# -- beside other kinds of calls -------------------------------------------------------------------


def test_a_call_that_wants_to_be_alone_withdraws(jobrun: Jobrun, calls: Calls) -> None:
    """Without --overlap allow: lock-held while one of them lives, and nothing by hand either."""
    nine = calls.window(9)
    for argv in ((), ("--window", "2026-09-04T10:00Z")):
        found = call(jobrun, "--busy-exit", "7", *argv)
        assert (found.status, found.stdout) == (7, "")
        assert "reason=lock-held holder=" in found.stderr
    assert "reason=lock-held" in jobrun("rerun", "j", "2026-09-04T08:00Z", now=NOON).stderr
    for verb in (("skip", "j", "2026-09-04T10:00Z"), ("watermark", "j", "--set", "2026-09-04")):
        found = jobrun(*verb, "--reason", "x", now=NOON)
        assert found.status == 75
        assert found.stderr.startswith('jobrun: error: job "j": run 1 is alive (pid ')
        assert "lock is free" not in found.stderr
    assert jobrun("forget", "j", "--yes", now=NOON).status == 75
    assert nine.end().status == 0
    assert call(jobrun).stdout.splitlines() == ["10 1", "11 1"]


KEYED = ("run", "k", "--key")
NINE = "2026-09-04T09:00Z"
# What starts, and what is kept waiting by it: to be alone, or for its own window or key.
WAITS = {
    "alone": ("run", "j", *HOURLY),
    "again": ("rerun", "j", NINE),
    "its key": (*KEYED, "x", *ALLOW),
    "another key, alone": (*KEYED, "y"),
    "nothing else is due": ("run", "j", *HOURLY, *ALLOW),
}


def before(calls: Calls, kind: str) -> Call:
    if "key" in kind:
        return calls.start("k", "--key", "x", *ALLOW, says="k_x.1")
    first = "2026-09-04T11:00Z" if kind == "nothing else is due" else NINE
    once = ("--first", first, *ALLOW, "--max-windows", "1")
    return calls.start("j", *HOURLY, *once, says=f"{first[11:13]}.1")


def wait(jobrun: Jobrun, kind: str, seconds: str) -> subprocess.Popen[bytes]:
    more = ("--wait", seconds, "--", "sh", "-c", "echo $JOBRUN_KEY")
    return jobrun.start(*WAITS[kind], *more, now=NOON)


def until_it_waits(waiting: subprocess.Popen[bytes], jobrun: Jobrun, job: str = "j") -> None:
    """It has had the lock: it is the last that left its note there."""
    path = Path(places.locks_folder(str(jobrun.ledger)), f"{places.slug(job)}.lock")
    until(lambda: f":{waiting.pid} ".encode() in path.read_bytes(), "the note")


@pytest.mark.parametrize("kind", WAITS)
def test_wait_is_over_before_it_withdraws(jobrun: Jobrun, calls: Calls, kind: str) -> None:
    """--wait 1: the whole second, then lock-held."""
    before(calls, kind)
    began = time.monotonic()
    out, err = wait(jobrun, kind, "1").communicate(timeout=30)
    assert time.monotonic() - began > 1
    assert (out, b"reason=lock-held" in err) == (b"", True)


@pytest.mark.parametrize("kind", WAITS)
def test_wait_for_the_end_of_what_runs_beside_others(
    jobrun: Jobrun, calls: Calls, kind: str
) -> None:
    """Then it has its turn, by what there is to do by then."""
    other, waiting = before(calls, kind), wait(jobrun, kind, "30")
    if kind in ("alone", "again"):
        until_it_waits(waiting, jobrun)
    other.tell()
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, b"lock-held" in err) == (0, False)
    does = {"alone": b"10", "again": b"09", "another key, alone": b"k:y"}
    assert does.get(kind, b"") in out
    assert (b"reason=key-exists" in err) == (kind == "its key")


def test_others_work_while_it_waits(jobrun: Jobrun, calls: Calls) -> None:
    """It holds no lock, and comes when the last of them has ended."""
    nine, waiting = calls.window(9), wait(jobrun, "alone", "30")
    until_it_waits(waiting, jobrun)
    ten = calls.window(10)
    assert nine.end().status == 0
    assert waiting.poll() is None
    assert ten.end().status == 0
    out, _ = waiting.communicate(timeout=30)
    assert out == b"j:2026-09-04T11:00:00+00:00\n"


@pytest.mark.parametrize("kind", ["alone", "its key"])
def test_a_signal_ends_the_wait(jobrun: Jobrun, calls: Calls, kind: str) -> None:
    """At once, and the others go on."""
    other, waiting = before(calls, kind), wait(jobrun, kind, "30")
    if kind == "alone":
        until_it_waits(waiting, jobrun)
    else:
        until(lambda: is_reading(waiting.pid, jobrun), "the ledger")
    waiting.terminate()
    out, _ = waiting.communicate(timeout=30)
    assert (waiting.returncode, out) == (128 + signal.SIGTERM, b"")
    assert other.end().status == 0


def is_reading(pid: int, jobrun: Jobrun) -> bool:
    """Its signals are caught before it opens the ledger."""
    return str(jobrun.ledger) in open_files(pid)


def test_beside_a_call_that_is_alone_nothing_starts(jobrun: Jobrun, calls: Calls) -> None:
    """Lock-held at once, as ever: it has the lock as long as it lives."""
    alone = calls.start("j", *HOURLY, "--first", "2026-09-04T09:00Z", says="09.1")
    found = call(jobrun, "--busy-exit", "7", *ALLOW)
    assert (found.status, found.stdout) == (7, "")
    assert "reason=lock-held holder=" in found.stderr
    alone.kill()
    until(lambda: not is_alive(pid_of(jobrun, "09.1")), "the guardian's work")
    until(lambda: call(jobrun, *ALLOW).stdout.startswith("09 2\n"), "the lock")


def test_a_call_that_is_alone_is_seen_without_its_lock_file(jobrun: Jobrun, calls: Calls) -> None:
    """A token taken beside it would refuse it the record of what it has done."""
    alone = calls.start("j", *HOURLY, "--first", "2026-09-04T11:00Z", says="11.1")
    Path(places.locks_folder(str(jobrun.ledger)), f"{places.slug('j')}.lock").unlink()
    found = call(jobrun, *ALLOW, now="2026-09-04T13:05Z")
    assert (found.stdout, "reason=lock-held" in found.stderr) == ("", True)
    assert "PROCESSED job=j" in alone.end().stderr


def test_the_lock_is_free_while_the_commands_run(jobrun: Jobrun, calls: Calls) -> None:
    """Nobody holds a copy of it: not the guardian, not the command."""
    calls.window(9), calls.window(10)
    lock = FileLock(places.locks_folder(str(jobrun.ledger)), "j", str(jobrun.ledger))
    assert lock.acquire()
    lock.release()


def test_stop_stops_all_of_them(jobrun: Jobrun, calls: Calls) -> None:
    """Each is interrupted, and due at once."""
    nine, ten = calls.window(9), calls.window(10)
    assert jobrun("stop", "j", now=NOON).status == 0
    assert (nine.process.wait(20), ten.process.wait(20)) == (143, 143)
    assert call(jobrun, *ALLOW).stdout.splitlines() == ["09 2", "10 2", "11 1"]


@pytest.mark.parametrize("windows", [True, False])
def test_stop_ends_what_nobody_watches_any_more_beside_those_that_live(
    jobrun: Jobrun, calls: Calls, windows: bool
) -> None:
    """Both are named before and after, and both commands are gone."""
    if windows:
        lone, _ = calls.window(9), calls.window(10)
        pids = [pid_of(jobrun, "09.1"), pid_of(jobrun, "10.1")]
    else:
        lone = calls.start("j", *ALLOW, says="x.1")
        (jobrun.folder / "x.1").rename(jobrun.folder / "x.2")
        calls.start("j", *ALLOW, says="x.1")
        pids = [pid_of(jobrun, "x.2"), pid_of(jobrun, "x.1")]
    guardian = parent_of(pids[0])
    os.kill(lone.process.pid, signal.SIGSTOP)  # or it would see the end of its guardian
    os.kill(guardian, signal.SIGKILL)
    lone.kill()
    until(lambda: not is_alive(guardian), "the guardian's end")
    dry = jobrun("stop", "j", "--dry-run", now=NOON)
    assert sorted(re.findall(r"what=would-stop .*run=(\d)", dry.stderr)) == ["1", "2"]
    assert all(map(is_alive, pids))
    found = jobrun("stop", "j", now=NOON)
    assert found.status == 0
    assert [line.split("run=")[1][0] for line in found.lines if "what=stopped" in line] == [
        "2",
        "1",
    ]
    assert not any(map(is_alive, pids))
    said = jobrun.query("select outcome from jobrun_run order by id")
    assert said == [("lost",), ("interrupted",)]


def test_stop_says_what_it_can_not_reach_beside_what_it_has_stopped(
    jobrun: Jobrun, calls: Calls
) -> None:
    """A run of another host, or container, goes on: that is no 0."""
    calls.window(9), calls.window(10)
    jobrun.change("update jobrun_run set host = 'db9', birth = 'other 1 1' where id = 1")
    found = jobrun("stop", "j", now=NOON)
    assert (found.status, "what=stopped" in found.stderr) == (75, True)
    assert 'job "j": run 1 is of host db9' in found.stderr
    assert not is_alive(pid_of(jobrun, "10.1"))


def test_it_can_be_set_on_record(jobrun: Jobrun, calls: Calls) -> None:
    """`set JOB --overlap allow`: for the next calls, whatever their line says."""
    calls.window(9)
    assert jobrun("set", "j", "--overlap", "skip", now=NOON).status == 0
    assert "reason=lock-held" in call(jobrun, *ALLOW).stderr
    assert jobrun("set", "j", "--overlap", "allow", now=NOON).status == 0
    assert call(jobrun).stdout.splitlines() == ["10 1", "11 1"]
    assert jobrun("rerun", "j", "2026-09-04T11:00Z", now=NOON).stdout == ""


# -- what is not a window --------------------------------------------------------------------------


def test_units_with_different_keys(jobrun: Jobrun, calls: Calls) -> None:
    """At once; the same key is lock-held, and key-exists when it is done."""
    one = calls.start("k", "--key", "one", *ALLOW, says="k_one.1")
    two = calls.start("k", "--key", "two", *ALLOW, says="k_two.1")
    argv = ("run", "k", "--key", "two", *ALLOW, "--busy-exit", "7", "--", "echo", "no")
    found = jobrun(*argv, now=NOON)
    assert (found.status, found.stdout) == (7, "")
    assert "reason=lock-held key=k:two holder=" in found.stderr
    assert "run=2" in found.stderr
    assert (one.end().status, two.end(3).status) == (0, 3)
    assert jobrun(*argv, now=NOON).stdout == "no\n"
    assert "reason=key-exists" in jobrun(*argv, now=NOON).stderr


def test_files_at_once(jobrun: Jobrun, calls: Calls) -> None:
    """--key-file: each file once, beside the others."""
    for name in ("a", "b"):
        (jobrun.folder / name).write_text(name)
    running = [
        Call(jobrun, "f", "--key-file", name, *ALLOW) for name in ("a", "b")
    ]  # fmt: skip
    calls.all = running
    until(lambda: len(list(jobrun.folder.glob("f_*.1"))) == 2, "both")
    assert [each.end().status for each in running] == [0, 0]
    found = jobrun("run", "f", "--key-file", "b", *ALLOW, "--", "echo", "no", now=NOON)
    assert "reason=key-exists" in found.stderr


def test_a_file_that_changes_before_its_turn_is_named_as_it_is_then(jobrun: Jobrun) -> None:
    """While others claim, or with --wait: its command is not told another file's key."""
    (jobrun.folder / "in.csv").write_text("one")
    changes = (
        "from pathlib import Path\n"
        "from jobrun.lock_file import FileLock\n"
        "real = FileLock.acquire\n"
        "def acquire(*arguments):\n"
        "    FileLock.acquire = real\n"
        "    Path('in.csv').write_text('another')\n"
        "    return real(*arguments)\n"
        "FileLock.acquire = acquire"
    )
    call = ("run", "f", "--key-file", "in.csv", *ALLOW, "--")
    found = altered(jobrun, changes, *call, "cat", "in.csv", now=NOON)
    assert (found.status, found.stdout) == (0, "another")
    again = jobrun(*call, "echo", "no", now=NOON)
    assert (again.stdout, "reason=key-exists" in again.stderr) == ("", True)


def test_plain_runs(jobrun: Jobrun, calls: Calls) -> None:
    """Beside each other, each on record; a call without --overlap allow does not join them."""
    one = calls.start("p", *ALLOW, says="x.1")
    (jobrun.folder / "x.1").unlink()
    two = calls.start("p", *ALLOW, says="x.1")
    assert "reason=lock-held" in jobrun("run", "p", "--", "echo", "no", now=NOON).stderr
    assert (one.end().status, two.end(5).status) == (0, 5)
    assert jobrun.query("select outcome from jobrun_run") == [("succeeded",), ("failed",)]


# -- with the other options ------------------------------------------------------------------------


def test_a_failure_stops_those_beside_it_too(jobrun: Jobrun, calls: Calls) -> None:
    """R24: under --on-failure stop what is under way ends, nothing new begins; then the retry."""
    nine, ten = calls.window(9, cap=9), calls.window(10, cap=9)
    assert nine.end(3).status == 3
    assert ten.end().status == 0
    assert watermark(jobrun) == "09"
    assert "reason=retry-later" in call(jobrun, *ALLOW).stderr
    assert call(jobrun, *ALLOW, now="2026-09-04T12:15Z").stdout.splitlines() == ["09 2", "11 1"]


def test_no_new_window_runs_before_older_ones_that_failed(jobrun: Jobrun, calls: Calls) -> None:
    """--on-failure stop is an order: the half of a call for new windows is of continue alone."""
    nine, ten = calls.window(9), calls.window(10)
    assert (nine.end(3).status, ten.end(3).status) == (3, 3)
    found = call(jobrun, *ALLOW, "--max-windows", "2", now="2026-09-04T12:45Z")
    assert found.stdout.splitlines() == ["09 2", "10 2"]


def test_a_hole_is_left(jobrun: Jobrun, calls: Calls) -> None:
    """R25: under --on-failure continue; nothing is tried twice by one call."""
    more = ("--on-failure", "continue", "--retry-delay", "0")
    nine = calls.window(9, *more, cap=9)
    nine.tell(3)
    until((jobrun.folder / "10.1").exists, "the next window")
    nine.tell(0)
    until((jobrun.folder / "11.1").exists, "the one after it")
    assert nine.end(0).status == 3
    assert watermark(jobrun) == "09"
    assert call(jobrun, *more, *ALLOW).stdout == "09 2\n"


def test_the_next_try_is_a_later_calls(jobrun: Jobrun, calls: Calls) -> None:
    """--retries: no call waits for it, for without the lock any of those beside it may be first."""
    more = ("--retries", "1", "--retry-delay", "0")
    assert calls.window(9, *more).end(3).status == 3
    dead = calls.window(9, *more, attempt=2).end(3)
    assert (dead.status, "what=dead" in dead.stderr) == (3, True)
    assert call(jobrun, *more, *ALLOW).stdout.splitlines() == ["10 1", "11 1"]
    assert watermark(jobrun) == "12"


def test_what_is_lost_is_held(jobrun: Jobrun, calls: Calls) -> None:
    """--on-lost hold: the one that was killed; the others go on."""
    more = ("--on-lost", "hold", "--on-failure", "continue")
    nine, ten = calls.window(9, *more), calls.window(10, *more)
    calls.kill(nine, "09.1")
    until(lambda: call(jobrun, *more, *ALLOW).stdout == "11 1\n", "the loss")
    assert ten.end().status == 0
    assert "reason=window-held key=j:2026-09-04T09:00" in call(jobrun, *more, *ALLOW).stderr
    assert watermark(jobrun) == "09"


def test_a_job_has_not_recovered_while_what_failed_is_tried_again(
    jobrun: Jobrun, calls: Calls
) -> None:
    """Whatever is processed beside it: one event that it fails, one when nothing does any more."""
    more = ("--on-failure", "continue", "--retry-delay", "0")
    assert calls.window(9, *more).end(3).status == 3
    nine = calls.window(9, *more, attempt=2, cap=2)
    assert call(jobrun, *more, *ALLOW).stdout.splitlines() == ["10 1", "11 1"]
    assert troubles(jobrun) == ["failed"]
    assert nine.end(3).status == 3
    assert troubles(jobrun) == ["failed"]
    assert call(jobrun, *more, *ALLOW).stdout == "09 3\n"
    assert troubles(jobrun) == ["failed", "recovered"]


def test_a_lost_try_of_what_failed_is_no_recovery_either(jobrun: Jobrun, calls: Calls) -> None:
    """The window that was lost is under way again while another is made good."""
    more = ("--on-failure", "continue", "--retry-delay", "0")
    nine, ten = calls.window(9, *more), calls.window(10, *more)
    assert ten.end(3).status == 3
    calls.kill(nine, "09.1")
    again = calls.window(9, *more, attempt=2, cap=9)
    assert call(jobrun, *more, *ALLOW).stdout.splitlines() == ["10 2", "11 1"]
    assert troubles(jobrun) == ["failed"]
    assert again.end().status == 0
    assert troubles(jobrun) == ["failed", "recovered"]


def test_latest_leaves_out_what_is_under_way(jobrun: Jobrun, calls: Calls) -> None:
    """R29: a gap around it, and it is not given up."""
    nine = calls.window(9)
    found = call(jobrun, "--catch-up", "latest", *ALLOW)
    assert found.stdout == "11 1\n"
    assert "2026-09-04T09:00:00" not in found.stderr
    assert nine.end().status == 0
    assert watermark(jobrun) == "12"
    gaps = jobrun.query("select substr(start, 12, 2), windows from jobrun_gap")
    assert gaps == [("10", 1)]


def test_merge_takes_what_has_closed_since(jobrun: Jobrun, calls: Calls) -> None:
    """R29: one window over each stretch that is free."""
    merged = calls.window(9, "--catch-up", "merge")
    found = call(jobrun, "--catch-up", "merge", *ALLOW, now="2026-09-04T14:05Z")
    assert found.stdout == "12 1\n"
    assert merged.end().status == 0
    rows = jobrun.query("select substr(key, 14, 2), windows from jobrun_window order by start")
    assert rows == [("09", 3), ("12", 2)]
    assert watermark(jobrun) == "14"


def test_what_waits_for_another_job_is_told(jobrun: Jobrun, calls: Calls) -> None:
    """R44: at the end of the call, once."""
    jobrun("run", "up", *HOURLY, "--first", "2026-09-04T09:00Z", "--", "true", now=NOON)
    more = ("--first", "2026-09-04T09:00Z", "--after", "up", *ALLOW)
    found = call(jobrun, *more, now="2026-09-04T13:05Z")
    assert found.stdout.splitlines() == ["09 1", "10 1", "11 1"]
    assert found.stderr.count("SKIPPED") == 1
    assert "reason=upstream-pending key=j:2026-09-04T12:00:00+00:00 up=up" in found.stderr


def test_a_pause_keeps_the_next_window_from_its_turn(jobrun: Jobrun, calls: Calls) -> None:
    """It is looked at before each claim."""
    nine = calls.window(9)
    jobrun.change("update jobrun_job set paused_at = '2026-09-04T12:00:00+00:00'")
    assert nine.end().status == 0
    assert outcomes(jobrun) == [("09", 1, "succeeded")]


PROBED = ("--pause-after", "1", "--resume-after", "10m")


@pytest.fixture
def probing(jobrun: Jobrun, calls: Calls) -> Call:
    """Paused by itself until 12:04: the window of 9 is tried, two more are due."""
    argv = ("run", "j", *HOURLY, "--first", "2026-09-04T09:00Z", *PROBED, *ALLOW, "--", "false")
    assert "what=paused" in jobrun(*argv, now="2026-09-04T11:54Z").stderr
    return calls.window(9, *PROBED, "--on-failure", "continue", attempt=2)


def test_one_window_is_probed_whoever_calls(jobrun: Jobrun, probing: Call) -> None:
    """M6: the others say what they met, as the plan does; the probe fails, and it is paused."""
    more = (*PROBED, "--on-failure", "continue", *ALLOW)
    assert "lock-held" in call(jobrun, *more, "--dry-run").stdout
    found = call(jobrun, *more, "--busy-exit", "7")
    assert (found.status, found.stdout) == (7, "")
    assert "reason=lock-held key=j:2026-09-04T09:00:00+00:00 holder=" in found.stderr
    assert probing.end(3).status == 3
    assert "reason=paused until=2026-09-04T12:15:00Z" in call(jobrun, *more).stderr
    assert outcomes(jobrun) == [("09", 1, "failed"), ("09", 2, "failed")]


def test_the_others_go_on_once_the_probe_is_processed(jobrun: Jobrun, probing: Call) -> None:
    """Not before."""
    more = (*PROBED, "--on-failure", "continue", *ALLOW)
    assert call(jobrun, *more).stdout == ""
    assert "what=resumed" in probing.end().stderr
    assert call(jobrun, *more).stdout.splitlines() == ["10 1", "11 1"]


def test_two_that_are_lost_at_once_pause_it(jobrun: Jobrun, calls: Calls) -> None:
    """--pause-after: the call that finds them runs nothing, and lets others have the lock."""
    more = ("--pause-after", "2", "--max-attempts", "1")
    both = [calls.window(9, *more), calls.window(10, *more)]
    for each, name in zip(both, ("09.1", "10.1"), strict=True):
        calls.kill(each, name)
    said: list[Result] = []

    def is_lost() -> bool:
        said.append(call(jobrun, *more, *ALLOW))
        return all(outcome == "lost" for _, _, outcome in outcomes(jobrun)[:2])

    until(is_lost, "the slots")
    assert "".join(each.stdout for each in said[-1:]) == ""
    assert sum(each.stderr.count("WARNING job=j what=paused ") for each in said) == 1
    assert "reason=paused" in said[-1].stderr
    assert "reason=paused" in call(jobrun, *more, *ALLOW).stderr
    assert jobrun.query("select count(*) from jobrun_event where kind = 'paused'") == [(1,)]


def test_a_window_counts_once_also_where_the_earlier_run_ends_later(
    jobrun: Jobrun, calls: Calls
) -> None:
    """--pause-after: two windows have failed, one of them twice."""
    more = ("--on-failure", "continue", "--pause-after", "3", "--retry-delay", "0")
    nine, ten = calls.window(9, *more), calls.window(10, *more)
    assert ten.end(3).status == 3
    assert nine.end(3).status == 3
    again = calls.window(9, *more, attempt=2, cap=2)
    eleven = calls.window(11, *more)
    again.tell(3)
    until(lambda: ("09", 2, "failed") in outcomes(jobrun), "its second failure")
    assert jobrun.query("select failing, paused_at from jobrun_job") == [(2, None)]
    assert "what=paused" in eleven.end(3).stderr
    detail = jobrun.query("select detail from jobrun_event where kind = 'paused'")
    assert detail == [("by jobrun: 3 windows failed",)]


def test_a_schedule_that_changes_meanwhile_is_not_changed_back(
    jobrun: Jobrun, calls: Calls
) -> None:
    """R34: the run that goes by the old one leaves the next boundary to those that have the new."""
    nine = calls.window(9)
    ten = calls.window(10)
    eleven = calls.window(11)
    new = ("--every", "30m", "--accept-schedule", *ALLOW)
    found = jobrun("run", "j", *new, "--", "true", now="2026-09-04T12:35Z")
    assert found.status == 0, found.stderr
    for each in (nine, ten, eleven):
        assert each.end().status == 0
    assert watermark(jobrun) == "12"
    found = jobrun("run", "j", "--every", "30m", *ALLOW, "--", "true", now="2026-09-04T13:05Z")
    assert "boundaries-moved" not in found.stderr
    assert found.stderr.count("PROCESSED") == 1
    assert jobrun.query("select next from jobrun_job") == [("2026-09-04T13:30:00+00:00",)]


def test_what_does_not_go_with_it(jobrun: Jobrun) -> None:
    """What is below a new window may be under way; by hand a call is alone."""
    found = jobrun("run", "j", *HOURLY, *ALLOW, "--lookback", "1", "--", "true")
    assert (found.status, "--lookback with --overlap allow: " in found.stderr) == (2, True)
    found = jobrun("run", "p", *ALLOW, "--retries", "1", "--", "true")
    assert (found.status, "--retries with --overlap allow: " in found.stderr) == (2, True)
    found = jobrun("run", "j", *HOURLY, *ALLOW, "--window", "yesterday", "--", "true")
    assert (found.status, "--overlap does not go with --window" in found.stderr) == (2, True)


def test_again_by_hand_is_alone(jobrun: Jobrun) -> None:
    """`rerun` takes over the line of the crontab, and not this."""
    assert call(jobrun, *ALLOW).stdout == "11 1\n"
    found = jobrun("rerun", "j", "2026-09-04T11:00Z", now=NOON)
    assert (found.status, found.stdout) == (0, "11 2\n")
    assert "--overlap" not in found.stderr


def test_quiet_and_remind(jobrun: Jobrun) -> None:
    """A failure that repeats unchanged is told once, its recovery once."""
    argv = ("run", "j", *HOURLY, *ALLOW, "-q", "--retry-delay", "0", "--")
    told = []
    for what in ("false", "false", "true", "true"):
        said = jobrun(*argv, what, now=NOON).stderr
        told.append([word for word in ("FAILED", "PROCESSED") if word in said])
    assert told == [["FAILED"], [], ["PROCESSED"], []]
