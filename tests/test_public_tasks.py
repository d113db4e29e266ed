"""Task Scheduler definitions as people have them, with jobrun in front (inputs T1-T6).

What each does to a command is played through here: when it is called, from which folder, with which
stand-in (tests/hosts.py). What is true on Windows alone is in test_process_windows.py.
"""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.conftest import Jobrun, is_alive, until
from tests.hosts import Host
from tests.scenes import HOURLY, Held, at, begin, linux, needs, posix, skips, watermark

pytestmark = posix


@pytest.fixture
def host(jobrun: Jobrun) -> Host:
    return Host(jobrun)


def test_T1_what_a_task_misses_on_battery_is_made_up(host: Host) -> None:
    """resticprofile's export "self backup": every 15 minutes from Monday to Friday, twice a day at
    the weekend, only when logged on and on mains, and no catch-up of the scheduler's own."""
    host.install("resticprofile", '#!/bin/sh\necho "$JOBRUN_WINDOW_START $*"\n')
    begin(host.jobrun, "self", "2026-09-04T16:00Z", "--every", "15m")
    call = ("run", "self", "--every", "15m", "--", "resticprofile", "--no-ansi", "self", "backup")
    friday = host.task(*call, now="2026-09-04T16:15:03Z")
    assert friday.stdout == f"{at('2026-09-04T16:00Z')} --no-ansi self backup\n"
    # The lid was shut until Saturday morning; the next trigger of any kind does the rest.
    saturday = host.task(*call, now="2026-09-05T08:00:00Z")
    starts = [line.split()[0] for line in saturday.stdout.splitlines()]
    first, last = at("2026-09-04T16:15Z"), at("2026-09-05T07:45Z")
    assert (len(starts), starts[0], starts[-1]) == (63, first, last)
    assert watermark(host.jobrun, "self") == at("2026-09-05T08:00Z")


@pytest.mark.parametrize("cwd", [(), ("--cwd", "/")])
def test_T2_a_word_of_the_shell_is_no_program(host: Host, cwd: tuple[str, ...]) -> None:
    """resticprofile's export "twice in one day per month": its command is `echo`, which there is
    built into cmd and no file; that is not success, and the month is not done."""
    monthly = ("--every", "1mo")
    begin(host.jobrun, "twice", "2026-08-01T00Z", *monthly)
    path = {"PATH": str(host.bin)}  # no echo there
    for time in ("03:04", "04:04"):  # both triggers of the day
        now = f"2026-09-01T{time}:00Z"
        call = ("run", "twice", *monthly, *cwd, "--", "echo", "hello")
        found = host.jobrun(*call, now=now, env=path, cwd="/")
        assert (found.status, found.stdout) == (127, "")
        assert f'error: not found: "echo"; searched PATH={host.bin}' in found.stderr
    assert host.runs() == [("not-started", None), ("not-started", None)]
    assert watermark(host.jobrun, "twice") == at("2026-08-01T00Z")


# `cmd.exe /c start /min ...`: detaches, and is done with 0 at once.
START = """#!/bin/sh
shift 3
setsid sh -c 'echo $$ >started; exec sleep 300' >/dev/null 2>&1 </dev/null &
until [ -s started ]; do sleep 0.02; done
"""


@linux
@needs("setsid", "util-linux")
def test_T3_what_start_detaches_is_not_seen_and_not_held(host: Host) -> None:
    """resticprofile's export "random delay": `cmd.exe /c start /min` ends at once with 0, so the
    real code is lost; the lock is free then, and what was started lives on."""
    host.install("cmd.exe", START)
    daily = ("--every", "1d")
    begin(host.jobrun, "delayed", "2026-09-03T00Z", *daily)
    call = ("run", "delayed", *daily, "--cwd", str(host.home), "--", "cmd.exe", "/c", "start",
            "/min", "resticprofile")  # fmt: skip
    found = host.task(*call, now="2026-09-04T12:17:00Z")  # 12:00, and a random delay
    pid = int((host.home / "started").read_text())
    try:
        assert (found.status, is_alive(pid)) == (0, True)
        assert "what=output-left-open" not in found.stderr
        # RestartOnFailure has nothing to do: the same day again is no second run.
        again = host.task(*call, now="2026-09-04T12:47:00Z")
        assert (again.status, host.runs()) == (0, [("succeeded", 0)])
    finally:
        os.kill(pid, signal.SIGKILL)


def test_T3_the_schedulers_retries_do_not_multiply_with_ours(host: Host) -> None:
    """resticprofile's export "random delay": RestartOnFailure starts it again and again; each is
    one call and at most one attempt, and none runs sooner than the retry delay."""
    host.install("resticprofile", code=3)
    daily = ("--every", "1d", "--retry-delay", "1h")
    begin(host.jobrun, "delayed", "2026-09-03T00Z", *daily)
    call = ("run", "delayed", *daily, "--", "resticprofile")
    times = ("12:00", "12:30", "13:00", "13:30")
    codes = [host.task(*call, now=f"2026-09-04T{time}:00Z").status for time in times]
    assert codes == [3, 0, 3, 0]
    assert skips(host.jobrun, "delayed")[-1] == ("retry-later", 2)
    assert host.runs() == [("failed", 3), ("failed", 3)]


def test_T4_a_queue_of_triggers_does_each_window_once(host: Host) -> None:
    """servy's import file: MultipleInstancesPolicy Queue starts what has piled up one after the
    other, from System32, through a launcher that drops the exit code."""
    host.install("wscript.exe", '#!/bin/sh\npwd; printf "<%s>\\n" "$@"\n')
    begin(host.jobrun, "email", "2026-09-04T11:00Z", *HOURLY)
    script = "C:\\Program Files\\Servy\\taskschd\\ServyFailureEmail.vbs"
    call = ("run", "email", *HOURLY, "--", "wscript.exe", script)
    out = [host.task(*call, now=f"2026-09-04T12:05:0{second}Z").stdout for second in range(4)]
    assert out == [f"/\n<{script}>\n", "", "", ""]
    there = host.task("run", "here", "--cwd", str(host.home), "--", "wscript.exe", script)
    assert there.stdout == f"{host.home}\n<{script}>\n"


@linux
@pytest.mark.parametrize("shutdown", ["asked", "cut"])
def test_T5_several_triggers_in_a_second_and_a_shutdown(host: Host, shutdown: str) -> None:
    """vmware-auto-suspend's import file: logging off and shutting down fire within seconds, and the
    shutdown cuts the run; it is not done, and on record as what it was."""
    held = Held(host.jobrun, "suspend", *HOURLY, now="2026-09-04T12:05:00Z")
    call = ("run", "suspend", *HOURLY, "--", "suspend.bat")
    for second in (1, 2):
        tick = host.task(*call, now=f"2026-09-04T12:05:0{second}Z")
        assert (tick.status, " reason=lock-held " in tick.stderr) == (0, True)
    if shutdown == "asked":
        held.wrapper.send_signal(signal.SIGTERM)
        held.wrapper.wait(timeout=60)  # before its input ends: that would end it as well
        assert held.release().status == 143
        assert [row[0] for row in host.runs()] == ["interrupted"]
    else:
        held.wrapper.kill()
        held.wrapper.communicate(timeout=20)
        until(lambda: not is_alive(held.pid), "the command to be gone")
    host.install("suspend.bat", "#!/bin/sh\necho $JOBRUN_ATTEMPT\n")
    printed: list[str] = []

    def runs() -> bool:
        printed.append(host.task(*call, now="2026-09-04T12:07:00Z").stdout)
        return printed[-1] != ""

    until(runs, "the lock to be let go")
    assert printed[-1] == "2\n"
    first = "interrupted" if shutdown == "asked" else "lost"
    assert [row[0] for row in host.runs()] == [first, "succeeded"]


# `cmd.exe` without arguments: reads what it is to do.
SHELL = """#!/bin/sh
while read line; do :; done
echo "end of input"
"""


@pytest.mark.parametrize("options", [HOURLY, ("--stdin", "null")], ids=["windows", "plain"])
def test_T6_a_shell_that_waits_for_input_gets_its_end(host: Host, options: tuple[str, ...]) -> None:
    """craigmar's embedded task: cmd.exe without arguments, no time limit, and not to be killed: it
    would wait for ever, with its lock; here its input is at an end."""
    host.install("cmd.exe", SHELL)
    process = host.jobrun.start(
        "run", "shell", *options, "--", "cmd.exe", now="2026-09-04T12:05:00Z",
        env={"PATH": f"{host.bin}:/usr/bin:/bin"}, stdin=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.wait(30) == 0
    finally:
        process.kill()
        out, _ = process.communicate()
    assert out == b"end of input\n"


@linux
def test_T6_one_that_waits_all_the_same_is_ended(host: Host) -> None:
    """craigmar's embedded task: ExecutionTimeLimit 0 and AllowHardTerminate false leave it to us;
    the next hour's call is not kept from its work."""
    host.install("cmd.exe", "#!/bin/sh\ntrap '' TERM\necho $$\nsleep 300\n")
    limit = ("--timeout", "1", "-k", "1")
    found = host.task("run", "shell", *limit, "--", "cmd.exe")
    assert found.status == 124
    assert not is_alive(found.stdout.strip())
    assert host.runs()[0][0] == "timed-out"
    host.install("cmd.exe", "#!/bin/sh\necho ran\n")
    assert host.task("run", "shell", *limit, "--", "cmd.exe").stdout == "ran\n"
