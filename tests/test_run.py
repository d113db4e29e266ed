"""Calls from outside: exit codes, lines, environment, bad input. Real processes, real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PYTHON, Jobrun, clean_environment, read_to_end, start_on_terminal

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and modes")
EXIT = "import sys; sys.exit(int(sys.argv[1]))"


def sh(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


@pytest.mark.parametrize("code", [0, 1, 2, 3, 70, 73, 74, 75, 76, 78, 99, 124, 126, 127, 128, 255])
def test_the_commands_exit_code_is_jobruns(jobrun: Jobrun, code: int) -> None:
    """Passed on as it is, also where it looks like one of ours; outcome= tells them apart."""
    found = jobrun("run", "a", "--", PYTHON, "-c", EXIT, str(code))
    assert found.status == code
    if code:
        assert f" FAILED job=a exit={code} outcome=failed attempt=1 " in found.stderr
    assert jobrun.query("select exit_code from jobrun_run") == [(code,)]


@pytest.mark.long
@posix
def test_every_exit_code_from_0_to_255(jobrun: Jobrun) -> None:
    """All of them, none turned into another."""
    for code in range(256):
        assert jobrun("run", "a", "-q", "--", *sh(f"exit {code}")).status == code
    codes = [code for (code,) in jobrun.query("select exit_code from jobrun_run order by id")]
    assert codes == list(range(256))


@posix
@pytest.mark.parametrize("number", [1, 2, 6, 9, 11, 15])
def test_a_command_that_dies_by_a_signal_gives_128_and_its_number(
    jobrun: Jobrun, number: int
) -> None:
    """HUP, INT, ABRT, KILL, SEGV, TERM: the row holds the signal and no exit code."""
    found = jobrun("run", "a", "--", PYTHON, "-c", f"import os; os.kill(os.getpid(), {number})")
    assert found.status == 128 + number
    assert f" exit={128 + number} outcome=killed attempt=1 " in found.stderr
    assert jobrun.query("select exit_code, signal, outcome from jobrun_run") == [
        (None, number, "killed")
    ]


def test_ok_exit_counts_other_codes_as_success(jobrun: Jobrun) -> None:
    """robocopy's 1, restic's 3: recorded as they are, jobrun exits 0."""
    found = jobrun("run", "a", "--ok-exit", "0-3,7", "--", PYTHON, "-c", EXIT, "3")
    assert found.status == 0
    assert " PROCESSED job=a exit=3 " in found.stderr
    assert jobrun("run", "a", "--ok-exit", "0-3,7", "--", PYTHON, "-c", EXIT, "4").status == 4
    assert jobrun("run", "a", "--ok-exit", "3", "--", "true").status == 0


@posix
@pytest.mark.parametrize(
    ("command", "status", "error", "hint"),
    [
        (
            ["cd", "/app"],
            127,
            'not found: "cd" (a word of the shell, not a program)',
            "--cwd /app -- COMMAND, or -- sh -ec 'cd /app && COMMAND'",
        ),
        (
            ["python etl.py --x"],
            127,
            'not found: "python etl.py --x" (one argument with spaces in it)',
            "without the quotes: -- python etl.py --x;"
            " for a shell's line: -- sh -ec 'python etl.py --x'",
        ),
        (
            ["RAILS_ENV=production", "./run.sh"],
            127,
            'not found: "RAILS_ENV=production"',
            "-- env RAILS_ENV=production ./run.sh",
        ),
        (["./nope.sh"], 127, None, None),
        (["nope-nope"], 127, 'not found: "nope-nope"; searched PATH=/usr/bin:/bin', None),
        (["/etc"], 126, 'not executable: "/etc" is a folder', None),
        (["/etc/passwd"], 126, 'not executable: "/etc/passwd"', "chmod +x /etc/passwd"),
        (["job.sh\r"], 127, 'not found: "job.sh\\r"; searched PATH=/usr/bin:/bin', None),
    ],
)
def test_a_command_that_cant_be_started_says_why(
    jobrun: Jobrun, command: list[str], status: int, error: str | None, hint: str | None
) -> None:
    """126 or 127, the name, what was searched, what to type instead; never a traceback."""
    found = jobrun("run", "a", "--", *command, env={"PATH": "/usr/bin:/bin"})
    assert found.status == status
    assert f"exit={status} outcome=not-started" in found.lines[1]
    said = [line.removeprefix("jobrun: error: ") for line in found.lines if "error:" in line]
    hints = [line.removeprefix("jobrun: hint: ") for line in found.lines if "hint:" in line]
    assert len(said) == 1
    if error is not None:
        assert said == [error]
    assert hints == ([hint] if hint else [])
    assert jobrun.query("select outcome from jobrun_run") == [("not-started",)]


@posix
def test_a_script_without_its_first_line_is_hinted(jobrun: Jobrun, tmp_path: Path) -> None:
    """A missing #! is no shell script to the kernel; a missing interpreter is named."""
    script = tmp_path / "job"
    script.write_text("echo hi\n")
    script.chmod(0o755)
    found = jobrun("run", "a", "--", str(script))
    assert found.status == 126
    assert f'error: can\'t start "{script}": its first line is no #!' in found.stderr
    script.write_text("#!/no/such/interpreter\necho hi\n")
    found = jobrun("run", "a", "--", str(script))
    assert found.status == 127
    assert "its first line names /no/such/interpreter, which is not there" in found.stderr


@posix
def test_a_missing_folder_is_not_a_missing_program(jobrun: Jobrun) -> None:
    """--cwd is named, not the command."""
    found = jobrun("run", "a", "--cwd", "/nope", "--", "true")
    assert found.status == 127
    assert 'error: --cwd "/nope": no such file or directory' in found.stderr


@posix
def test_the_command_is_looked_up_after_the_change_of_folder(
    jobrun: Jobrun, tmp_path: Path
) -> None:
    """-C with venv/bin/python, as people write it."""
    (tmp_path / "app").mkdir()
    tool = tmp_path / "app" / "tool"
    tool.write_text("#!/bin/sh\npwd\n")
    tool.chmod(0o755)
    found = jobrun("run", "a", "-C", str(tmp_path / "app"), "--", "./tool")
    assert (found.status, found.stdout) == (0, f"{tmp_path}/app\n")


@posix
def test_arguments_arrive_byte_for_byte(jobrun: Jobrun) -> None:
    """No shell in between: blanks, quotes, dollars, newlines, bytes that are no text."""
    words = [b"a b", b"", b'"', b"$HOME", b";", b"*", b"x\ny", b"\xff\xfe", "é".encode()]
    code = b"import os, sys; print([os.fsencode(a) for a in sys.argv[1:]])"
    argv = [os.fsencode(a) for a in jobrun.argv("run", "a", "--", PYTHON, "-c")]
    found = subprocess.run(
        [*argv, code, *words], env=jobrun.environment, capture_output=True, check=True
    )
    assert found.stdout.decode() == f"{words!r}\n"


@posix
@pytest.mark.parametrize(
    ("command", "out"),
    [
        (["sh", "-c", "echo ${key}x ${HOME}"], "x /h\n"),
        (["echo", "{{key}}"], "{key}\n"),
        (["echo", "{print $1}", "{}"], "{print $1} {}\n"),
        (
            ["echo", '{"from": "{start}", "day": "{start_date}", "n": {windows}}'],
            '{"from": "2026-09-04T10:00:00+00:00", "day": "2026-09-04", "n": 1}\n',
        ),
        (["echo", "{start_z}", "{end_z}"], "2026-09-04T10:00:00Z 2026-09-04T11:00:00Z\n"),
        (["echo", "{start_unix}", "{end_unix}"], "1788516000 1788519600\n"),
        (
            ["echo", "{job}", "{key}", "{slug}", "{kind}", "{attempt}", "{run_id}", "{token}"],
            "a a:2026-09-04T10:00:00+00:00 a_20260904T100000Z new 1 1 1\n",
        ),
        (["echo", "{start_month}", "{start_hour}", "{last_date}"], "2026-09 10 2026-09-04\n"),
    ],
)
def test_placeholders(jobrun: Jobrun, command: list[str], out: str) -> None:
    """What the contract says stands in their place; the command's own braces stay."""
    call = ("run", "a", "--every", "1h", "--", *command)
    assert jobrun(*call, now="2026-09-04T11:30:00Z", env={"HOME": "/h"}).stdout == out


def test_the_environment_of_a_window(jobrun: Jobrun) -> None:
    """Each variable is set; days are those of the job's zone."""
    code = (
        "import json, os;"
        "print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('JOBRUN_')}))"
    )
    found = jobrun(
        "run", "rep", "--every", "1d", "--tz", "Europe/Istanbul", "--", PYTHON, "-c", code,
        now="2026-09-04T00:00:00Z", env={"JOBRUN_KEY": "stale", "JOBRUN_PARTIAL": "stale"},
    )  # fmt: skip
    assert json.loads(found.stdout) == {
        "JOBRUN_JOB": "rep",
        "JOBRUN_KEY": "rep:2026-09-02T21:00:00+00:00",
        "JOBRUN_SLUG": "rep_20260902T210000Z",
        "JOBRUN_KIND": "new",
        "JOBRUN_WINDOW_START": "2026-09-02T21:00:00+00:00",
        "JOBRUN_WINDOW_END": "2026-09-03T21:00:00+00:00",
        "JOBRUN_WINDOWS": "1",
        "JOBRUN_START_DATE": "2026-09-03",
        "JOBRUN_LAST_DATE": "2026-09-03",
        "JOBRUN_TZ": "Europe/Istanbul",
        "JOBRUN_PARTIAL": "0",
        "JOBRUN_ATTEMPT": "1",
        "JOBRUN_RUN_ID": "1",
        "JOBRUN_TOKEN": "1",
        "JOBRUN_LEDGER": str(jobrun.ledger),
        "JOBRUN_VALUES": f"{jobrun.ledger}.d/values/1",
    }


def test_the_environment_of_a_plain_run_has_nothing_stale(jobrun: Jobrun) -> None:
    """What the mode has no value for is removed, so that nested calls can't mislead."""
    code = "import os; print(sorted(k for k in os.environ if k.startswith('JOBRUN_')))"
    stale = dict.fromkeys(
        ("JOBRUN_KEY", "JOBRUN_WINDOW_START", "JOBRUN_KIND", "JOBRUN_TZ", "JOBRUN_VALUES"), "x"
    )
    found = jobrun("run", "a", "--", PYTHON, "-c", code, env=stale)
    names = ["JOBRUN_ATTEMPT", "JOBRUN_JOB", "JOBRUN_LEDGER", "JOBRUN_RUN_ID", "JOBRUN_TOKEN"]
    assert found.stdout == f"{names}\n"


@posix
def test_under_crons_empty_environment_nothing_is_added_but_ours(jobrun: Jobrun) -> None:
    """Python sets LC_CTYPE in itself there; the command must not see it."""
    bare = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(jobrun.folder),
        "JOBRUN_LEDGER": str(jobrun.ledger),
    }
    argv = [PYTHON, "-c", "import sys; from tests import frozen; frozen.run(1.8e9, sys.argv[1:])"]
    found = subprocess.run(
        [*argv, "run", "a", "--", "/usr/bin/env"],
        env={**bare, "PYTHONPATH": clean_environment()["PYTHONPATH"]},
        capture_output=True,
        check=True,
    )
    names = {line.split(b"=")[0].decode() for line in found.stdout.splitlines()}
    assert {n for n in names if not n.startswith("JOBRUN_")} == {"PATH", "HOME", "PYTHONPATH"}


@posix
def test_plain_runs_pipe_without_losing_a_byte(jobrun: Jobrun) -> None:
    """stdin in, stdout out, as a dump and its loader need it."""
    jobrun("run", "b", "--", "true")
    data = os.urandom(3_000_000)
    process = jobrun.start("run", "a", "-q", "--", "cat", stdin=subprocess.PIPE)
    out, err = process.communicate(data, timeout=60)
    assert (process.returncode, out == data, err) == (0, True, b"")


@posix
def test_with_windows_data_on_stdin_is_refused_unless_said(jobrun: Jobrun, tmp_path: Path) -> None:
    """Lost in silence otherwise: a % in a crontab line makes the rest of it stdin."""
    file = tmp_path / "data"
    file.write_text("F\n")
    call = ("run", "a", "--every", "1h")
    with file.open() as stdin:
        found = jobrun(*call, "--", "cat", stdin=stdin)
    assert found.status == 2
    assert "error: stdin has data, and a command with windows gets none of it" in found.stderr
    assert not jobrun.ledger.exists()
    with file.open() as stdin:
        assert jobrun(*call, "--stdin", "null", "--", "cat", stdin=stdin).stdout == ""
    with file.open() as stdin:
        window = ("--window", "2026-09-04T09:00Z")
        assert (
            jobrun(*call, *window, "--stdin", "inherit", "--", "cat", stdin=stdin).stdout == "F\n"
        )


def test_quiet_hides_what_is_nothing_special(jobrun: Jobrun) -> None:
    """PROCESSED and skips are hidden; FAILED is not."""
    jobrun("run", "a", "--", "true")
    assert jobrun("run", "a", "-q", "--", "true").stderr == ""
    jobrun("run", "a", "-q", "--key", "k", "--", "true")
    assert jobrun("run", "a", "-q", "--key", "k", "--", "true").stderr == ""
    assert "FAILED" in jobrun("run", "a", "-q", "--", "false").stderr
    recovered = jobrun("run", "a", "--", "true", env={"JOBRUN_QUIET": "1"})
    assert "PROCESSED" in recovered.stderr
    assert jobrun("run", "a", "--", "true", env={"JOBRUN_QUIET": "1"}).stderr == ""


def test_an_unchanged_failure_is_told_once_an_hour_and_its_end_once(jobrun: Jobrun) -> None:
    """Under quiet: the exit code is the command's each time, the mail is not."""

    def call(minute: int, code: int) -> tuple[int, list[str]]:
        at = f"2026-09-04T{12 + minute // 60}:{minute % 60:02d}:00Z"
        found = jobrun("run", "a", "-q", "--", PYTHON, "-c", EXIT, str(code), now=at)
        return found.status, [line.split()[1] for line in found.lines if "hint" not in line]

    jobrun("run", "b", "--", "true")
    assert call(0, 3) == (3, ["FAILED"])
    assert call(1, 3) == (3, [])
    assert call(2, 4) == (4, ["FAILED"])
    assert call(59, 4) == (4, [])
    assert call(62, 4) == (4, ["FAILED"])
    assert call(63, 0) == (0, ["PROCESSED"])
    assert call(64, 0) == (0, [])


@posix
def test_big_q_does_what_chronic_does(jobrun: Jobrun) -> None:
    """Nothing while all is well; on failure stdout to stdout, stderr to stderr."""
    jobrun("run", "b", "--", "true")
    good = jobrun("run", "a", "-Q", "--", *sh("echo out; echo err >&2"))
    assert (good.status, good.stdout, good.stderr) == (0, "", "")
    bad = jobrun("run", "a", "-Q", "--", *sh("echo out; echo err >&2; exit 3"))
    assert (bad.status, bad.stdout) == (3, "out\n")
    assert bad.lines[0].startswith("jobrun: FAILED job=a exit=3 outcome=failed")
    assert bad.lines[-1] == "err"


def test_json_lines_have_the_same_fields_as_numbers(jobrun: Jobrun) -> None:
    """One object a line, "v":1, numbers as numbers."""
    found = jobrun(
        "run",
        "a",
        "--log-format",
        "json",
        "--",
        PYTHON,
        "-c",
        EXIT,
        "3",
        now="2026-09-04T12:00:00Z",
    )
    lines = [json.loads(line) for line in found.lines]
    assert [line["word"] for line in lines] == ["NOTE", "STARTED", "FAILED"]
    took = lines[2].pop("took")
    assert isinstance(took, float)
    assert lines[2] == {
        "v": 1, "word": "FAILED", "job": "a", "exit": 3, "outcome": "failed", "attempt": 1,
        "run": 1, "at": "2026-09-04T12:00:00Z",
    }  # fmt: skip


@posix
def test_an_interrupted_run_is_no_failure_and_runs_again(jobrun: Jobrun) -> None:
    """TERM to jobrun: passed on, exit 143 whatever the command answers, at once due again."""
    code = (
        "import signal, sys; signal.signal(15, lambda *a: sys.exit(0));"
        "print('ready', flush=True); signal.pause()"
    )
    call = ("run", "a", "--every", "1h", "--")
    process = jobrun.start(*call, PYTHON, "-c", code, now="2026-09-04T12:05:00Z")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143
    assert b" INTERRUPTED job=a " in err
    assert jobrun.query("select state, attempts, failures from jobrun_window") == [("failed", 1, 0)]
    again = jobrun(*call, "true", now="2026-09-04T12:05:01Z")
    assert " attempt=2 " in again.stderr


def test_a_failed_window_waits_its_delay(jobrun: Jobrun) -> None:
    """retry-later names the instant; by hand at once."""
    call = ("run", "a", "--every", "1h")
    jobrun(*call, "--", "false", now="2026-09-04T12:05:00Z")
    early = jobrun(*call, "--busy-exit", "7", "--", "true", now="2026-09-04T12:05:59Z")
    assert early.status == 7
    assert (
        "reason=retry-later key=a:2026-09-04T11:00:00+00:00 next=2026-09-04T12:06:00Z"
        in early.stderr
    )
    by_hand = jobrun(
        *call, "--window", "2026-09-04T11:00Z", "--", "true", now="2026-09-04T12:05:59Z"
    )
    assert "PROCESSED" in by_hand.stderr
    assert " attempt=2 " in by_hand.stderr


def test_stop_after_starts_no_new_window(jobrun: Jobrun) -> None:
    """What is left is said and left to the next call."""
    call = (
        "run",
        "a",
        "--every",
        "1h",
        "--first",
        "2026-09-04T08:00Z",
        "--stop-after",
        "0",
        "--",
        "true",
    )
    found = jobrun(*call, now="2026-09-04T12:05:00Z")
    assert found.status == 0
    assert "BACKLOG job=a left=3 from=2026-09-04T09:00:00Z" in found.stderr


def test_a_plain_call_of_a_job_with_windows_is_refused(jobrun: Jobrun) -> None:
    """It would do none of them and look as if it had."""
    jobrun("run", "a", "--every", "1h", "--", "true")
    found = jobrun("run", "a", "--", "true")
    assert found.status == 2
    assert 'error: job "a" has windows ("every 1h")' in found.stderr


def test_a_changing_file_is_no_unit_of_work(jobrun: Jobrun, tmp_path: Path) -> None:
    """A file that grows while the command reads it is failed, not processed."""
    file = tmp_path / "in.csv"
    file.write_text("a\n")
    code = f"open({str(file)!r}, 'a').write('b')"
    found = jobrun("run", "a", "--key-file", str(file), "--", PYTHON, "-c", code)
    assert found.status == 76
    assert "changed while the command ran" in found.stderr
    assert jobrun.query("select state from jobrun_window") == [("failed",)]
    moved = jobrun(
        "run",
        "a",
        "--key-file",
        str(file),
        "--",
        PYTHON,
        "-c",
        f"import os; os.remove({str(file)!r})",
    )
    assert moved.status == 0
    gone = jobrun("run", "a", "--key-file", str(file), "--", "true")
    assert gone.status == 2
    assert "no such file" in gone.stderr


def test_file_placeholder(jobrun: Jobrun, tmp_path: Path) -> None:
    """{file} is the path of --key-file, as it was given."""
    file = tmp_path / "a b.csv"
    file.write_text("x")
    found = jobrun(
        "run",
        "a",
        "--key-file",
        str(file),
        "--",
        PYTHON,
        "-c",
        "import sys; print(sys.argv[1])",
        "{file}",
    )
    assert found.stdout == f"{file}\n"


def test_a_merged_window_runs_again_as_it_was(jobrun: Jobrun) -> None:
    """Bounds, JOBRUN_WINDOWS, JOBRUN_PARTIAL are those on record, whatever the grid is by now."""
    show = (*sh("echo $JOBRUN_WINDOW_START $JOBRUN_WINDOW_END $JOBRUN_WINDOWS $JOBRUN_PARTIAL"),)
    first = ("--first", "2026-09-04T08:00Z", "--catch-up", "merge")
    merged = jobrun("run", "a", "--every", "1h", *first, "--", *show, now="2026-09-04T12:05:00Z")
    expected = "2026-09-04T08:00:00+00:00 2026-09-04T12:00:00+00:00 4 0\n"
    assert merged.stdout == expected
    daily = ("run", "a", "--every", "1d", "--accept-schedule", "-q", "--", *show)
    jobrun(*daily, now="2026-09-05T00:05:00Z")
    again = jobrun("rerun", "a", "2026-09-04T08:00Z", now="2026-09-05T00:05:00Z")
    assert again.stdout == expected


@posix
@pytest.mark.parametrize(("hours", "bar"), [(3, False), (4, True)])
def test_many_windows_on_a_terminal_show_how_far_it_is(
    jobrun: Jobrun, hours: int, bar: bool
) -> None:
    """Up to three need no word; elsewhere than on a terminal there never is a bar."""
    first = f"2026-09-04T{12 - hours:02}:00Z"
    call = ("run", "a", "--every", "1h", "--first", first, "-Q", "--", "true")
    argv = jobrun.argv(*call, now="2026-09-04T12:05:00Z")
    pid, terminal = start_on_terminal(argv, jobrun.folder, {**jobrun.environment, "TERM": "xterm"})
    screen = read_to_end(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (f"{hours}/{hours}".encode() in screen) == bar


def test_what_cant_be_kept_never_touches_the_command(jobrun: Jobrun) -> None:
    """A folder that is a file, a full disk: a WARNING, and the run is what it is."""
    jobrun("run", "b", "--", "true")
    Path(f"{jobrun.ledger}.d/output").write_text("not a folder")
    found = jobrun("run", "a", "--", *sh("echo out; echo err >&2"))
    assert (found.status, found.stdout) == (0, "out\n")
    assert "WARNING job=a what=output-lost" in found.stderr
    assert jobrun.query("select outcome from jobrun_run where job = 'a'") == [("succeeded",)]
    assert "Traceback" not in jobrun("logs", "a").stderr


def test_a_pipe_or_a_device_is_no_unit_of_work(jobrun: Jobrun) -> None:
    """They have no end: refused before anything is read."""
    pipe = jobrun.folder / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero", "/dev/null", jobrun.folder):
        found = jobrun("run", "a", "--key-file", str(path), "--", "true")
        assert found.status == 2
        assert "not a regular file" in found.stderr
    assert not jobrun.ledger.exists()


def test_what_is_left_is_said_where_failures_leave_holes(jobrun: Jobrun) -> None:
    """BACKLOG with its number, also as a number in JSON."""
    call = ("run", "a", "--every", "1h", "--first", "2026-09-04T06:00Z", "--max-windows", "2")
    go_on = ("--on-failure", "continue", "--log-format", "json", "--", "false")
    found = jobrun(*call, *go_on, now="2026-09-04T12:05:00Z")
    assert found.status == 1
    (backlog,) = [line for line in map(json.loads, found.lines) if line["word"] == "BACKLOG"]
    assert (backlog["left"], backlog["from"]) == (4, "2026-09-04T08:00:00Z")


def test_a_command_that_gets_no_window_is_told_once(jobrun: Jobrun) -> None:
    """To a person, at the first run: after an outage it runs as often as windows were missed."""

    def on_terminal(*argv: str) -> bytes:
        call = jobrun.argv("run", *argv, now="2026-09-04T12:05:00Z")
        pid, terminal = start_on_terminal(call, jobrun.folder, jobrun.environment)
        screen = read_to_end(terminal)
        os.waitpid(pid, 0)
        return screen

    call = ("--every", "1h", "-q", "--", "true")
    assert b"NOTE job=a what=no-window" in on_terminal("a", *call)
    assert b"no-window" not in on_terminal("a", *call)
    assert b"no-window" not in on_terminal("b", "--catch-up", "latest", *call)
    assert b"no-window" not in on_terminal("c", "--every", "1h", "--", "echo", "{start}")
    assert "no-window" not in jobrun("run", "d", *call, now="2026-09-04T12:05:00Z").stderr
