"""Whatever is killed, whenever: never two commands at once, nothing left, the window runs again.

Each case kills something of a running call in the way the operating system does, then looks at what
is left, makes a second call and checks the record.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import PYTHON, Jobrun, is_alive, read_to_end, start_on_terminal, until
from tests.scenes import Changed, until_free

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
linux = pytest.mark.skipif(sys.platform != "linux", reason="the tree beyond the group is Linux's")

HOURLY = ("--every", "1h", "-k", "1")
FIRST, SECOND = "2026-09-04T12:05:00Z", "2026-09-04T12:06:00Z"

# Holds a flock of its own on FILE while it runs: two at once would fail, and say so. Appends its
# pid, says ready, and sleeps; a child of its own does the same in another session if asked.
WITNESS = """
import fcntl, os, sys, signal
file = open(sys.argv[1], 'a')
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(sys.argv[1] + '.twice', 'w').close()
mode = sys.argv[2] if len(sys.argv) > 2 else ''
if mode == 'stubborn':
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == 'chatty':
    def bye(*_):
        for n in range(50000): print('bye', n)
        sys.exit(0)
    signal.signal(signal.SIGTERM, bye)
with open(sys.argv[1] + '.pids', 'a') as pids:
    pids.write(f'{os.getpid()}\\n')
print('ready', flush=True)
signal.pause()
"""


class Scene:
    """One running call: its processes, and what may be left of them."""

    def __init__(self, jobrun: Jobrun, *command: str, before: tuple[str, ...] = ()) -> None:
        self.jobrun = jobrun
        self.mark = jobrun.folder / "mark"
        self.witness = jobrun.folder / "witness.py"
        self.witness.write_text(WITNESS)
        argv = jobrun.argv("run", "a", *HOURLY, "--", *self.fill(command), now=FIRST)
        self.wrapper = subprocess.Popen(
            [*before, *argv],
            env=jobrun.environment,
            cwd=jobrun.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.ready()

    def fill(self, command: tuple[str, ...]) -> list[str]:
        words = {"W": f"{PYTHON} {self.witness} {self.mark}", "PYTHON": PYTHON}
        words |= {"WITNESS": str(self.witness), "MARK": str(self.mark)}
        return [word.format_map(words) for word in command]

    def ready(self) -> None:
        assert self.wrapper.stdout is not None
        assert self.wrapper.stdout.readline() == b"ready\n"

    def pids(self) -> list[int]:
        return [int(pid) for pid in Path(f"{self.mark}.pids").read_text().split()]

    @property
    def pid(self) -> int:
        """jobrun's own, also where something else was started before it."""
        ((pid,),) = self.jobrun.query("select pid from jobrun_run order by id desc limit 1")
        assert isinstance(pid, int)
        return pid

    @property
    def guardian(self) -> int:
        ((child,),) = self.jobrun.query("select child_pid from jobrun_run order by id desc limit 1")
        stat = Path(f"/proc/{child}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])

    def end(self, timeout: float = 20) -> tuple[int, bytes, bytes]:
        """The reader of jobrun's stdout must not be kept waiting by anything that is left."""
        out, err = self.wrapper.communicate(timeout=timeout)
        return self.wrapper.returncode, out, err

    def check(self) -> None:
        """Nothing is left, the window runs again, once; the record is whole."""
        until(lambda: not any(is_alive(pid) for pid in self.pids()), "the command to be gone")
        jobrun = self.jobrun
        again: list[str] = []

        def runs() -> bool:
            found = jobrun("run", "a", *HOURLY, "--", "echo", "again", now=SECOND)
            again.append(found.stderr)
            return found.stdout == "again\n"

        until(runs, "the window to run again")
        assert not Path(f"{self.mark}.twice").exists()
        assert jobrun.query("select count(*) from jobrun_run where outcome is null") == [(0,)]
        assert jobrun.query("select state, attempts from jobrun_window") == [("processed", 2)]
        assert jobrun.query("select watermark from jobrun_job") == [("2026-09-04T12:00:00+00:00",)]
        assert jobrun("run", "a", *HOURLY, "--", "echo", "third", now=SECOND).stdout == ""


def kill_wrapper(scene: Scene) -> None:
    os.kill(scene.pid, signal.SIGKILL)


def kill_guardian(scene: Scene) -> None:
    os.kill(scene.guardian, signal.SIGKILL)


def kill_command(scene: Scene) -> None:
    """The direct child: what it started is left behind, and must not be."""
    ((child,),) = scene.jobrun.query("select child_pid from jobrun_run order by id desc limit 1")
    assert isinstance(child, int)
    os.kill(child, signal.SIGKILL)


def term_group(scene: Scene) -> None:
    os.killpg(scene.pid, signal.SIGTERM)


def stop_then_kill(scene: Scene) -> None:
    os.kill(scene.pid, signal.SIGTSTP)
    until(
        lambda: Path(f"/proc/{scene.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T",
        "the stop",
    )
    os.kill(scene.pid, signal.SIGKILL)


KILLS: dict[str, Callable[[Scene], None]] = {
    "wrapper": kill_wrapper,
    "guardian": kill_guardian,
    "command": kill_command,
    "group": term_group,
    "stopped": stop_then_kill,
}
COMMANDS = {
    "simple": ("{PYTHON}", "{WITNESS}", "{MARK}"),
    "stubborn": ("{PYTHON}", "{WITNESS}", "{MARK}", "stubborn"),
    "chatty": ("{PYTHON}", "{WITNESS}", "{MARK}", "chatty"),
    "shell": ("sh", "-c", "{W}; true"),
    "jobcontrol": ("bash", "-c", "set -m; {W} & wait"),
    "setsid": ("setsid", "--wait", "{PYTHON}", "{WITNESS}", "{MARK}"),
    "timeout": ("timeout", "60", "{PYTHON}", "{WITNESS}", "{MARK}"),
    "background": ("sh", "-c", "{W} & wait"),
}


@linux
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kill", KILLS)
def test_kill(jobrun: Jobrun, kill: str, command: str) -> None:
    """Each kind of kill against each kind of command."""
    if command == "jobcontrol" and not shutil.which("bash"):
        pytest.skip("needs bash")
    if command == "setsid" and not shutil.which("setsid"):
        pytest.skip("needs setsid (util-linux)")
    scene = Scene(jobrun, *COMMANDS[command])
    KILLS[kill](scene)
    scene.end()
    scene.check()


@linux
def test_wrapper_and_guardian_killed_together_leave_an_orphan_that_is_seen(jobrun: Jobrun) -> None:
    """Nobody is left to end the command: the next call says orphan-alive, never a second copy."""
    scene = Scene(jobrun, *COMMANDS["simple"])
    guardian = scene.guardian
    os.kill(scene.pid, signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    os.kill(scene.pid, signal.SIGKILL)
    scene.wrapper.wait(20)
    (orphan,) = scene.pids()
    found = jobrun("run", "a", *HOURLY, "--busy-exit", "9", "--", "echo", "second", now=SECOND)
    assert (found.status, found.stdout) == (9, "")
    assert (
        f"reason=orphan-alive key=a:2026-09-04T11:00:00+00:00 pids={orphan} run=1" in found.stderr
    )
    assert is_alive(orphan)
    os.kill(orphan, signal.SIGKILL)
    scene.end()
    scene.check()


@linux
@pytest.mark.parametrize("command", ["simple", "stubborn", "jobcontrol"])
@pytest.mark.parametrize(
    "before", [("timeout", "-k", "1", "1h"), ("timeout", "-s", "KILL", "1h"), ("timeout", "1h")]
)
def test_timeout_around_jobrun(jobrun: Jobrun, before: tuple[str, ...], command: str) -> None:
    """People wrap wrappers: nothing of the tree outlives them."""
    scene = Scene(jobrun, *COMMANDS[command], before=before)
    scene.wrapper.send_signal(signal.SIGALRM)  # to timeout(1) its time is over
    scene.end(30)
    scene.check()


@linux
def test_chronic_and_timeout_inside(jobrun: Jobrun) -> None:
    """`-- chronic timeout 60 X`: X leaves our group and is ended all the same."""
    if not shutil.which("chronic"):
        pytest.skip("needs chronic (Debian's moreutils)")
    scene_mark = jobrun.folder / "mark"
    (jobrun.folder / "witness.py").write_text(WITNESS)
    argv = ("chronic", "timeout", "60", PYTHON, str(jobrun.folder / "witness.py"), str(scene_mark))
    process = jobrun.start("run", "a", *HOURLY, "--", *argv, now=FIRST)
    pids = Path(f"{scene_mark}.pids")
    until(lambda: pids.exists() and pids.read_text().strip(), "the command")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert not is_alive(pids.read_text().strip())


@linux
@pytest.mark.parametrize("keys", [b"\x03", b"\x1c"])
def test_ctrl_c_on_a_terminal(jobrun: Jobrun, keys: bytes) -> None:
    """INT and QUIT from the keyboard: interrupted, 130 or 131, nothing left."""
    screen, status, mark = on_terminal(jobrun, keys)
    assert status == {b"\x03": 130, b"\x1c": 131}[keys]
    assert b"INTERRUPTED" in screen
    assert not is_alive(Path(f"{mark}.pids").read_text().strip())


@linux
def test_a_terminal_that_closes_hangs_up(jobrun: Jobrun) -> None:
    """HUP: 129, the command ended, the lock free."""
    _, status, mark = on_terminal(jobrun, None)
    assert status == 129
    assert not is_alive(Path(f"{mark}.pids").read_text().strip())


def on_terminal(jobrun: Jobrun, keys: bytes | None) -> tuple[bytes, int, Path]:
    """Run the witness on a terminal of its own, type `keys` (None: hang up) once it is ready."""
    mark = jobrun.folder / "mark"
    (jobrun.folder / "witness.py").write_text(WITNESS)
    argv = jobrun.argv(
        "run", "a", *HOURLY, "--", PYTHON, str(jobrun.folder / "witness.py"), str(mark), now=FIRST
    )
    pid, terminal = start_on_terminal(argv, jobrun.folder, jobrun.environment)
    screen = b""
    while b"ready" not in screen:
        screen += os.read(terminal, 4096)
    if keys is None:
        os.close(terminal)
    else:
        os.write(terminal, keys)
        screen += read_to_end(terminal)
    _, status = os.waitpid(pid, 0)
    return screen, os.waitstatus_to_exitcode(status), mark


@linux
def test_a_command_that_wants_the_terminal_is_told_so(jobrun: Jobrun) -> None:
    """It has none: ended, with the option that gives it one."""
    code = "import os; print(os.read(os.open('/dev/tty', os.O_RDWR), 1))"
    argv = jobrun.argv("run", "a", "-k", "1", "--", PYTHON, "-c", code)
    pid, terminal = start_on_terminal(argv, jobrun.folder, jobrun.environment)
    screen = read_to_end(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) != 0
    assert b"wants the terminal: --stdin inherit" in screen


@linux
def test_stdin_inherit_gives_the_terminal_and_takes_it_back(jobrun: Jobrun) -> None:
    """The command reads what is typed; afterwards the shell has its terminal again."""
    code = "print('ready', flush=True); print('got', input())"
    argv = jobrun.argv("run", "a", "--stdin", "inherit", "--", PYTHON, "-c", code)
    pid, terminal = start_on_terminal(argv, jobrun.folder, jobrun.environment)
    screen = b""
    while b"ready" not in screen:
        screen += os.read(terminal, 4096)
    os.write(terminal, b"typed\n")
    screen += read_to_end(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"got typed" in screen


@linux
def test_nohup_stays_ignored(jobrun: Jobrun) -> None:
    """A signal ignored at the start stays so, for the command too."""
    code = "import signal; print(signal.getsignal(1) == signal.SIG_IGN)"
    argv = jobrun.argv("run", "a", "-q", "--", PYTHON, "-c", code)
    script = 'trap "" HUP; exec "$@"'
    found = subprocess.run(
        ["sh", "-c", script, "sh", *argv], env=jobrun.environment, capture_output=True, check=True
    )
    assert found.stdout == b"True\n"


@linux
def test_killed_before_the_claim_nothing_has_run(jobrun: Jobrun) -> None:
    """The command exists, blocked; the wrapper dies: it ends unrun, and nothing is on record."""
    code = """
import os, signal, sys
from jobrun import ledger_sqlite
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
ledger_sqlite.SqliteLedger.open = die
from tests import frozen
frozen.run(float(sys.argv[1]), sys.argv[2:])
"""
    ran = jobrun.folder / "ran"
    argv = [PYTHON, "-c", code, "1788523500", "run", "a", *HOURLY, "--", "touch", str(ran)]
    found = subprocess.run(argv, env=jobrun.environment, capture_output=True)
    assert found.returncode == -9
    until_free(jobrun.ledger, "a")
    again = jobrun("run", "a", *HOURLY, "--", "true", now=FIRST)
    assert "attempt=1" in again.stderr
    assert not ran.exists()


@linux
def test_killed_after_the_command_and_before_its_mark(jobrun: Jobrun) -> None:
    """At least once: the window runs again and the command sees attempt 2."""
    code = """
import os, signal, sys
from jobrun import ledger_sqlite
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
ledger_sqlite.SqliteLedger.finish = die
from tests import frozen
frozen.run(float(sys.argv[1]), sys.argv[2:])
"""
    argv = [PYTHON, "-c", code, "1788523500", "run", "a", *HOURLY, "--", "true"]
    assert subprocess.run(argv, env=jobrun.environment, capture_output=True).returncode == -9
    found: list[str] = []

    def again() -> bool:
        show = ("sh", "-c", "echo $JOBRUN_ATTEMPT")
        found.append(jobrun("run", "a", *HOURLY, "--", *show, now=SECOND).stdout)
        return found[-1] != ""

    until(again, "the guardian to let the lock go")
    assert found[-1] == "2\n"
    assert jobrun.query("select outcome from jobrun_run order by id") == [("lost",), ("succeeded",)]


def test_a_deleted_lock_file_does_not_let_a_second_copy_in(jobrun: Jobrun) -> None:
    """tmpwatch, `rm -f locks/*`: the running row tells that the wrapper is alive."""
    scene = Scene(jobrun, *COMMANDS["simple"])
    for lock in Path(f"{jobrun.ledger}.d/locks").iterdir():
        lock.unlink()
    found = jobrun("run", "a", *HOURLY, "--", "echo", "second", now=SECOND)
    assert (found.status, found.stdout) == (0, "")
    assert "reason=lock-held" in found.stderr
    kill_wrapper(scene)
    scene.end()
    scene.check()


def test_a_fenced_result_is_refused(jobrun: Jobrun) -> None:
    """The token moved while it ran: 76, its result is on record as fenced, nothing else changes."""
    scene = Scene(jobrun, *COMMANDS["chatty"])
    jobrun.change("update jobrun_job set token = token + 1")
    os.kill(scene.pids()[0], signal.SIGTERM)
    status, _, err = scene.end()
    assert status == 76
    assert b" FENCED job=a " in err
    assert jobrun.query("select outcome from jobrun_run") == [("fenced",)]
    assert jobrun.query("select count(*) from jobrun_window where state = 'processed'") == [(0,)]


def test_a_ledger_that_is_deleted_meanwhile_is_76(jobrun: Jobrun) -> None:
    """Inserts into a deleted file succeed; never a plain 0 without a row on disk."""
    found = jobrun(
        "run",
        "a",
        *HOURLY,
        "--",
        "sh",
        "-c",
        f"rm -f {jobrun.ledger}*; rm -f {jobrun.ledger}-*",
        now=FIRST,
    )
    assert found.status == 76
    assert "a:2026-09-04T11:00:00+00:00" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_signal_ends_the_attempts_to_record(jobrun: Jobrun) -> None:
    """The ledger stays locked after the command: tried until a signal, then 76 with the key."""
    scene_code = (
        "import sqlite3, sys, os;"
        "c = sqlite3.connect(os.environ['JOBRUN_LEDGER'], isolation_level=None);"
        "c.execute('begin immediate'); print('ready', flush=True); sys.stdin.read()"
    )
    jobrun("run", "b", "--", "true")
    command = (PYTHON, "-uc", "import sys; print('ready'); sys.stdin.read()")
    call = ("run", "a", "--stdin", "inherit", *HOURLY, "--", *command)
    process = jobrun.start(*call, now=FIRST, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    blocker = subprocess.Popen(
        [PYTHON, "-c", scene_code],
        env=jobrun.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert blocker.stdout is not None
    assert blocker.stdout.readline() == b"ready\n"
    process.stdin.close()
    process.stdin = None
    err: list[bytes] = []
    assert process.stderr is not None
    while b"not-recorded-yet" not in b"".join(err):
        err.append(process.stderr.readline())
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 76
    assert b"a:2026-09-04T11:00:00+00:00" in rest
    blocker.communicate(timeout=20)


def test_forty_contenders_one_runs(jobrun: Jobrun) -> None:
    """40 calls of one job at once: one runs, 39 skip rows, no error."""
    jobrun("run", "b", "--", "true")
    hold = (PYTHON, "-uc", "import sys; print('ready'); sys.stdin.read()")
    holder = jobrun.start(
        "run", "a", "--stdin", "inherit", "--", *hold, now=FIRST, stdin=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    # All of them write at once: on a busy machine that takes longer than a skip is tried for.
    patient = Changed(jobrun, "from jobrun import ledger_skip; ledger_skip.PATIENCE = 60.0")
    others = [patient.start("run", "a", "--", "echo", "ran", now=FIRST) for _ in range(39)]
    ends = [process.communicate(timeout=60) for process in others]
    assert {process.returncode for process in others} == {0}
    assert {out for out, _ in ends} == {b""}
    assert all(b"reason=lock-held" in err for _, err in ends)
    holder.communicate(timeout=20)
    assert jobrun.query("select reason, sum(times) from jobrun_skip") == [("lock-held", 39)]


def test_forty_at_the_same_moment(jobrun: Jobrun) -> None:
    """Nobody holds it before: each window is done once all the same."""
    log = jobrun.folder / "log"
    command = ("sh", "-c", f"echo x >> {log}")
    calls = [
        jobrun.start("run", "a", "--every", "1h", "--", *command, now=FIRST) for _ in range(40)
    ]
    ends = [process.communicate(timeout=60) for process in calls]
    assert {process.returncode for process in calls} == {0}, ends
    assert log.read_text() == "x\n"
    assert jobrun.query("select state, attempts from jobrun_window") == [("processed", 1)]


def test_sixty_jobs_in_one_second_on_a_new_ledger(jobrun: Jobrun) -> None:
    """60 first callers of one ledger: 60 processed, no "database is locked"."""
    results: list[tuple[int, bytes]] = []

    def call(number: int) -> None:
        process = jobrun.start("run", f"job{number}", "--every", "1h", "--", "true", now=FIRST)
        _, err = process.communicate(timeout=120)
        results.append((process.returncode, err))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [status for status, _ in results] == [0] * 60, [e for s, e in results if s]
    assert sum(b"what=new-ledger" in err for _, err in results) == 1
    assert jobrun.query("select count(*) from jobrun_window where state = 'processed'") == [(60,)]
