"""`lead NAME -- DAEMON` (D4): one of several runs its daemon, and never two at any moment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PYTHON, Jobrun, is_alive, make_end, until

if sys.platform == "win32":
    pytest.skip("flock, /proc", allow_module_level=True)

NOW = "2026-09-04T12:05Z"
# Fails where another one lives; says its pid in a file of its token; ends with the code of `end`.
DAEMON = """
import fcntl, os, select, signal, sys
only = open('only', 'w')
fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
open('draft', 'w').write(str(os.getpid()))
os.rename('draft', 'leads.' + os.environ['JOBRUN_TOKEN'])
while not os.path.exists('end'):
    select.select([], [], [], 0.02)
sys.exit(int(open('end').read() or 0))
"""


class Lead:
    """A call of `lead`; its lines are in a file."""

    def __init__(self, jobrun: Jobrun, number: int, *options: str, deaf: bool = False) -> None:
        self.path = jobrun.folder / f"lines.{number}"
        daemon = ("--", PYTHON, "-c", DAEMON, *(["deaf"] if deaf else []))
        with self.path.open("w") as lines:
            self.process = jobrun.start(
                "lead", "hub", *options, *daemon, now=NOW, stderr=lines, stdout=lines
            )

    @property
    def lines(self) -> str:
        return self.path.read_text()

    def says(self, text: str, times: int = 1) -> None:
        until(lambda: self.lines.count(text) >= times, f"{text} in {self.lines}")

    def looks(self, times: int = 3) -> None:
        """Until it has woken up so often."""
        before = self._switches()
        until(lambda: self._switches() >= before + times, "its looks")

    def _switches(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (x for x in status.splitlines() if x.startswith("voluntary_ctxt_switches"))
        return int(line.split()[1])

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


class Leads:
    def __init__(self, jobrun: Jobrun) -> None:
        self.jobrun = jobrun
        self.all: list[Lead] = []

    def start(self, *options: str, deaf: bool = False) -> Lead:
        self.all.append(Lead(self.jobrun, len(self.all), *options, deaf=deaf))
        return self.all[-1]

    def two(self, *options: str, deaf: bool = False) -> tuple[Lead, Lead, int]:
        """One that leads, one that stands by, and the pid of the daemon."""
        first = self.start(*options, deaf=deaf)
        pid = self.daemon(1)
        second = self.start(*options, deaf=deaf)
        second.says("what=standby")
        return first, second, pid

    def daemon(self, token: int) -> int:
        """The pid of the one with this token, once it is there."""
        path = self.jobrun.folder / f"leads.{token}"
        until(path.exists, path.name)
        return int(path.read_text())

    def pids(self) -> list[int]:
        return [int(path.read_text()) for path in self.jobrun.folder.glob("leads.*")]


@pytest.fixture
def leads(jobrun: Jobrun) -> Iterator[Leads]:
    made = Leads(jobrun)
    yield made
    for each in made.all:
        each.process.kill()
        each.process.wait(20)
    for pid in made.pids():
        make_end(pid)


def runs(jobrun: Jobrun) -> list[tuple[object, ...]]:
    return jobrun.query("select token, outcome, exit_code from jobrun_run order by id")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_one_leads_and_one_stands_by(leads: Leads) -> None:
    """Each says so once; a standby leaves nothing on record, and TERM ends it."""
    first, second, _ = leads.two()
    assert "NOTE job=hub what=leads token=1 run=1 at=" in first.lines
    assert f"NOTE job=hub what=standby holder={os.uname().nodename}:{first.process.pid} since=" in (
        second.lines
    )
    second.looks()
    assert second.lines.count("\n") == 1
    assert second.end() == 143
    assert leads.jobrun.query("select count(*) from jobrun_skip") == [(0,)]
    assert first.end() == 143
    assert runs(leads.jobrun) == [(1, "interrupted", None)]


def test_a_killed_leader_is_followed(leads: Leads) -> None:
    """kill -9 of the wrapper: its guardian ends the daemon, then the other leads."""
    first, second, pid = leads.two()
    first.process.kill()
    assert leads.daemon(2) != pid
    assert "LOST job=hub" in second.lines
    assert "what=leads token=2 run=2" in second.lines
    assert second.end() == 143
    assert runs(leads.jobrun) == [(1, "lost", None), (2, "interrupted", None)]


def test_a_daemon_that_ignores_term_is_not_joined_by_another(leads: Leads) -> None:
    """The guardian keeps the lock for the grace, and until it has killed it."""
    first, second, pid = leads.two("-k", "1", deaf=True)
    first.process.kill()
    leads.daemon(2)
    assert not is_alive(pid)
    assert second.process.poll() is None


def test_an_orphaned_daemon_is_not_joined_by_another(leads: Leads) -> None:
    """Wrapper and guardian are dead, the lock is free: the standby sees that it lives."""
    first, second, pid = leads.two()
    first.process.send_signal(signal.SIGSTOP)
    os.kill(parent_of(pid), signal.SIGKILL)
    first.process.kill()
    second.says(f"what=standby holder={os.uname().nodename}:{first.process.pid} pids={pid} run=1")
    second.looks()
    assert is_alive(pid)
    assert second.lines.count("pids=") == 1
    assert leads.pids() == [pid]
    os.kill(pid, signal.SIGKILL)
    leads.daemon(3)  # what was found of the orphan has a token of its own


def test_a_stopped_leader_leads_on(leads: Leads) -> None:
    """kill -STOP, on one machine: its lock stays held, so nobody follows."""
    first, second, pid = leads.two()
    first.process.send_signal(signal.SIGSTOP)
    second.looks()
    first.process.send_signal(signal.SIGCONT)
    assert leads.pids() == [pid]
    assert first.end() == 143
    leads.daemon(2)


@pytest.mark.parametrize(("says", "code"), [("0", 0), ("7", 7)])
def test_it_ends_with_its_daemon(leads: Leads, says: str, code: int) -> None:
    """With its exit code; the next one leads."""
    first, second, _ = leads.two()
    draft = leads.jobrun.folder / "end.new"
    draft.write_text(says)
    draft.rename(leads.jobrun.folder / "end")
    assert first.process.wait(20) == code
    assert second.process.wait(20) == code
    assert [row[0] for row in runs(leads.jobrun)] == [1, 2]


def test_it_ends_where_its_daemon_is_killed(leads: Leads) -> None:
    """kill -9 of the daemon: 137, and the standby leads."""
    first, _, pid = leads.two()
    os.kill(pid, signal.SIGKILL)
    assert first.process.wait(20) == 137
    leads.daemon(2)


def test_stop_ends_the_daemon_and_its_lead(leads: Leads) -> None:
    """`jobrun stop hub`: whoever stands by takes over."""
    first, _, _ = leads.two()
    found = leads.jobrun("stop", "hub", now=NOW)
    assert (found.status, "what=stopped" in found.stderr) == (0, True)
    assert first.process.wait(20) == 143
    leads.daemon(2)


def test_nobody_leads_while_the_job_is_paused(leads: Leads) -> None:
    """A pause keeps who stands by from its turn until it is over; said once."""
    leads.jobrun("run", "hub", "--", "true", now=NOW)
    leads.jobrun("pause", "hub", "--reason", "moved", now=NOW)
    one = leads.start()
    one.says("what=standby reason=paused")
    one.looks()
    assert one.lines.count("what=standby") == 1
    assert leads.pids() == []
    leads.jobrun("resume", "hub", now=NOW)
    one.says("what=leads")


def test_a_daemon_that_runs_for_weeks_is_no_trouble(leads: Leads) -> None:
    """Neither STUCK while it runs nor LATE when it has ended."""
    first, second, _ = leads.two()
    later = leads.jobrun("status", "--check", now="2026-10-20T12:00Z")
    assert (later.status, later.stdout) == (0, "")
    assert "running" in leads.jobrun("status", now="2026-10-20T12:00Z").stdout
    second.end(), first.end()
    for _ in range(3):
        one = leads.start()
        one.says("what=leads")
        one.end()
    assert leads.jobrun("status", "--check", now="2026-12-20T12:00Z").stdout == ""


def test_a_look_names_the_way_it_is_run(leads: Leads) -> None:
    """`rerun hub` can't: each call of lead runs it."""
    one = leads.start("-k", "3")
    leads.daemon(1)
    one.end()
    found = leads.jobrun("rerun", "hub", "today", now=NOW)
    told = "each call runs it: jobrun lead hub --kill-after 3 -- "
    assert (found.status, told in found.stderr) == (2, True), found


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (("hub",), "no -- before the command"),
        (("hub", "--"), "no command after --"),
        (("--", "true"), "no JOB before --"),
        (("hub", "--timeout", "5", "--", "true"), "--timeout does not go with lead"),
        (("hub", "--wait", "5", "--", "true"), "--wait does not go with lead"),
        (("hub", "--every", "1h", "--", "true"), "--every does not go with lead"),
        (("windows", "--", "true"), 'job "windows" has windows'),
    ],
)
def test_what_can_not_be_led(jobrun: Jobrun, argv: tuple[str, ...], error: str) -> None:
    """Exit 2, nothing runs."""
    jobrun("run", "windows", "--every", "1h", "--", "true", now=NOW)
    found = jobrun("lead", *argv, now=NOW)
    assert (found.status, error in found.stderr) == (2, True), found.stderr
    assert "jobrun run" not in found.stderr
