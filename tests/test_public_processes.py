"""Running a command: what people reported of other tools, each as a test (family S)."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import Jobrun, is_alive, start_on_terminal
from tests.scenes import (
    HOURLY,
    Held,
    at,
    begin,
    error_of,
    field,
    linux,
    needs,
    posix,
    watermark,
)

pytestmark = posix

NOW, LATER = "2026-09-04T12:05:00Z", "2026-09-04T12:06:00Z"
FOREIGN = 1001


def sh(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


def run_columns(jobrun: Jobrun) -> list[tuple[object, ...]]:
    return jobrun.query("select outcome, exit_code, signal from jobrun_run order by id")


@linux
@pytest.mark.parametrize(
    "left",
    ["sleep 300 2>/dev/null &", "sleep 300 >/dev/null &", "sleep 300 &", "(sleep 300 &);",
     "setsid sleep 300 &"],
    ids=["stdout", "stderr", "both", "twice", "session"],
)  # fmt: skip
def test_S01_a_grandchild_that_holds_the_output_is_no_timeout(jobrun: Jobrun, left: str) -> None:
    """python/cpython#76116, python/cpython#82388: the command had ended, something in the
    background had its stdout, and the wrapper waited and reported a timeout."""
    found = jobrun("run", "a", "--timeout", "20", "--", *sh(f"{left} echo done"))
    (note,) = (line for line in found.lines if "what=output-left-open" in line)
    pid = int(field(note, "pid"))
    try:
        assert (found.status, found.stdout) == (0, "done\n")
        assert run_columns(jobrun) == [("succeeded", 0, None)]
        assert is_alive(pid)
        assert Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x00300\x00"
    finally:
        os.kill(pid, signal.SIGKILL)


# Its background job says that it is there, then waits; INT and QUIT it can't hear, as sh has it.
GOODBYE = """
trap "echo bye; exit {}" TERM INT HUP QUIT
sh -c 'echo $1; exec sleep 300' sh $$ & wait
"""


@linux
@pytest.mark.parametrize(("shell", "code"), [("sh", 0), ("bash", 7)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_S03_a_signal_to_the_wrapper_reaches_the_script(
    jobrun: Jobrun, number: signal.Signals, shell: str, code: int
) -> None:
    """aptible/supercronic#62, AnalogJ/scrutiny#597: SIGTERM did not reach the script, and stopping
    the container took the whole grace period."""
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    begin(jobrun, "a", "2026-09-04T10:00Z", *HOURLY)
    heard_by_all = number in (signal.SIGTERM, signal.SIGHUP)
    grace = ("-k", "60" if heard_by_all else "1")
    command = (shell, "-c", GOODBYE.format(code))
    held = Held(jobrun, "a", *HOURLY, *grace, command=command, now=NOW)
    began = time.monotonic()
    held.wrapper.send_signal(number)
    ended = held.release()
    assert time.monotonic() - began < 30
    assert (ended.status, ended.stdout) == (128 + number, "bye\n")
    (line,) = (line for line in ended.lines if " INTERRUPTED " in line)
    assert field(line, "exit") == str(128 + number)
    assert run_columns(jobrun) == [("interrupted", code, None)]
    assert watermark(jobrun) == at("2026-09-04T10Z")
    assert not is_alive(held.pid)


FATAL = [
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT,
    signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGUSR1, signal.SIGSEGV, signal.SIGUSR2,
    signal.SIGPIPE, signal.SIGALRM, signal.SIGTERM, signal.SIGXCPU, signal.SIGSYS,
]  # fmt: skip


@pytest.mark.parametrize("number", FATAL)
def test_S05_a_command_killed_by_a_signal_is_128_and_the_number(
    jobrun: Jobrun, number: signal.Signals
) -> None:
    """sipyourdrink-ltd/bernstein#1398, envoyproxy/envoy#22762: a negative code was passed on, and
    the wrapper exited with 247 or 241."""
    found = jobrun("run", "a", "--", *sh(f"ulimit -c 0; kill -{int(number)} $$"))
    assert found.status == 128 + number
    assert run_columns(jobrun) == [("killed", None, int(number))]
    assert f" exit={128 + number} outcome=killed " in found.stderr


@pytest.mark.parametrize("code", [128, 129, 137, 143, 241, 247, 255])
def test_S05_a_code_that_looks_like_a_signal_is_a_code(jobrun: Jobrun, code: int) -> None:
    """envoyproxy/envoy#22762: a shell between says 137 for its own child, and on record that is a
    code, no signal."""
    found = jobrun("run", "a", "--", *sh(f"exit {code}"))
    assert found.status == code
    assert run_columns(jobrun) == [("failed", code, None)]


@pytest.mark.parametrize(
    "options", [(*HOURLY,), ("--stdin", "null"), ("--key", "k", "--stdin", "null")]
)
def test_S07_a_command_that_reads_waits_for_nobody(
    jobrun: Jobrun, options: tuple[str, ...]
) -> None:
    """whamcloud/integrated-manager-for-lustre#232, cloudflare/sandbox-sdk#141: an unattended
    command waited for input for ever; here its pipe stays open, and it ends all the same."""
    process = jobrun.start(
        "run", "a", *options, "--timeout", "60", "--", "cat", stdin=subprocess.PIPE, now=NOW
    )
    assert process.stdin is not None
    try:
        assert process.wait(30) == 0
        out, _ = process.communicate()
    finally:
        process.kill()
    assert out == b""


@pytest.mark.parametrize("options", [(), HOURLY, ("--key", "k")], ids=["plain", "windows", "key"])
def test_S07_a_terminal_is_not_handed_on_unasked(jobrun: Jobrun, options: tuple[str, ...]) -> None:
    """cloudflare/sandbox-sdk#141: started by hand, the command took what was typed for its
    input."""
    master, terminal = pty.openpty()
    try:
        os.write(master, b"typed\n")
        found = jobrun("run", "a", *options, "--", "cat", stdin=terminal, now=NOW)
    finally:
        os.close(master)
        os.close(terminal)
    assert (found.status, found.stdout) == (0, "")


def write(path: Path, text: str, mode: int) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("kind", ["script", "folder", "data", "on-the-path"])
@pytest.mark.parametrize("options", [(), ("--on-failure", "continue")], ids=["stop", "continue"])
def test_S09_what_cant_be_executed_is_said_and_not_tried_again(
    jobrun: Jobrun, kind: str, options: tuple[str, ...]
) -> None:
    """CSSS/csss-site#658: the script lacked its execute bit, and a Python traceback came instead of
    a message."""
    folder = jobrun.folder / "bin"
    folder.mkdir()
    script = write(folder / "job.sh", "#!/bin/sh\necho ran\n", 0o644)
    data = write(folder / "data", "\x7fELF, but no program\n", 0o755)
    command, says = {
        "script": (script, f'not executable: "{script}"'),
        "folder": (str(folder), f'not executable: "{folder}" is a folder'),
        "data": (data, f'can\'t start "{data}": its first line is no #!'),
        "on-the-path": ("job.sh", f'not executable: "{script}"'),
    }[kind]
    begin(jobrun, "a", "2026-09-04T10:00Z", *HOURLY)
    call = ("run", "a", *HOURLY, *options, "--", command)
    found = jobrun(*call, now=NOW, env={"PATH": f"{folder}:/usr/bin:/bin"})
    assert (found.status, found.stdout) == (126, "")
    assert error_of(found) == says
    assert run_columns(jobrun) == [("not-started", None, None)]
    assert watermark(jobrun) == at("2026-09-04T10Z")


@linux
def test_S18_a_session_that_closes_ends_the_run_with_it(jobrun: Jobrun) -> None:
    """watchexec/watchexec#957, hanslub42/rlwrap#171: the terminal hung up, and the wrapper died
    without its job."""
    argv = jobrun.argv("run", "a", "--", *sh("echo $$; exec sleep 300"))
    pid, terminal = start_on_terminal(argv, jobrun.folder, jobrun.environment)
    screen = b""
    while not screen.rstrip().split(b"\n")[-1].isdigit():
        screen += os.read(terminal, 4096)
    command = int(screen.split()[-1])
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert not is_alive(command)
    assert run_columns(jobrun) == [("interrupted", None, int(signal.SIGHUP))]
    assert jobrun("run", "a", "--", "echo", "ran").stdout == "ran\n"


@linux
@needs("nohup", "coreutils")
def test_S18_under_nohup_a_hang_up_is_nothing(jobrun: Jobrun) -> None:
    """hanslub42/rlwrap#171: started with nohup it shall go on, and so shall its command."""
    process = subprocess.Popen(
        ["nohup", *jobrun.argv("run", "a", "--", *sh("echo $$; read line; echo still here"))],
        env=jobrun.environment, cwd=jobrun.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    command = int(process.stdout.readline())
    for pid in (process.pid, command):
        os.kill(pid, signal.SIGHUP)
    out, _ = process.communicate(b"\n", timeout=60)
    assert (process.returncode, out) == (0, b"still here\n")
    assert run_columns(jobrun) == [("succeeded", 0, None)]


UNSHARE = ("unshare", "-pf", "--mount-proc", "--kill-child")
# Leaves a grandchild behind; the last one of all waits until nothing defunct is left.
LEAVES = """
(sleep 0.05 >/dev/null 2>&1 &)
[ $JOBRUN_WINDOW_END = 2026-05-01T01:40:00+00:00 ] || exit 0
until ! grep -qs '^State:.Z' /proc/[0-9]*/status; do sleep 0.05; done
echo clean
"""


@linux
@needs("unshare", "util-linux")
def test_S19_as_pid_1_a_hundred_windows_leave_nothing_defunct(jobrun: Jobrun) -> None:
    """aptible/supercronic#88: in a container the wrapper waited on, or collected, what was not its
    own, and later runs never started."""
    if subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a pid namespace: root, or sysctl kernel.unprivileged_userns_clone=1")
    begin(jobrun, "a", "2026-05-01T00Z", "--every", "1m")
    call = jobrun.argv(
        "run", "a", "--every", "1m", "--timeout", "30", "--", *sh(LEAVES), now="2026-05-01T01:40Z"
    )
    found = subprocess.run(
        [*UNSHARE, *call], env=jobrun.environment, cwd=jobrun.folder, capture_output=True,
        stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (0, b"clean\n")
    assert jobrun.query("select pid, outcome, count(*) from jobrun_run group by 1, 2") == [
        (1, "succeeded", 100)
    ]
