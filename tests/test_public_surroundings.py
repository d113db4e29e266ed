"""What surrounds a command: PATH, folder, arguments, umask, pipes (family S, the second half)."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import crontabs
from tests.conftest import PYTHON, ROOT, Jobrun
from tests.scenes import (
    HOURLY,
    as_user,
    begin,
    error_of,
    hint_of,
    linux,
    needs,
    posix,
    public,
    root,
)

pytestmark = posix

NOW, LATER = "2026-09-04T12:05:00Z", "2026-09-04T12:06:00Z"
FOREIGN = 1001


def sh(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


@pytest.mark.parametrize(
    "given",
    [{}, {"HOME": "/nonexistent"}, {"LANG": "C"}, {"LANG": "tr_TR.UTF-8", "USER": "\u0131"}],
    ids=["nothing", "home", "lang", "turkish"],
)
def test_S10_crons_short_path_is_named(jobrun: Jobrun, given: dict[str, str]) -> None:
    """asifbacchus/MailcowBackup#10, geerlingguy/Ping#46, trick77/nftables-blacklist#36: it worked
    by hand; under cron the program was not on the PATH, and nothing said which PATH that was."""
    bare = {"PATH": "/usr/bin:/bin", **given}
    argv = [PYTHON, "-m", "jobrun", "run", "a", "--ledger", str(jobrun.ledger), "--"]
    options: dict[str, object] = {"env": bare, "cwd": ROOT, "capture_output": True, "timeout": 60}
    missing = subprocess.run([*argv, "borg-of-yours", "--version"], **options)  # type: ignore[call-overload]
    assert missing.returncode == 127
    error = b'jobrun: error: not found: "borg-of-yours"; searched PATH=/usr/bin:/bin\n'
    assert error in missing.stderr
    there = subprocess.run([*argv, "sh", "-c", 'echo "$PATH"'], **options)  # type: ignore[call-overload]
    assert (there.returncode, there.stdout) == (0, b"/usr/bin:/bin\n")


def test_S10_where_it_is_instead_is_hinted(jobrun: Jobrun) -> None:
    """geerlingguy/Ping#46: the program was in /usr/sbin or /usr/local/bin all along."""
    folders = [Path("/usr/local/bin"), Path("/usr/sbin"), Path("/sbin")]
    found = [file for folder in folders if folder.is_dir() for file in folder.iterdir()]
    elsewhere = [
        file
        for file in found
        if file.is_file() and not shutil.which(file.name, path="/usr/bin:/bin")
    ]
    if not elsewhere:
        pytest.skip("every program of this system is in /usr/bin: nothing to be hinted")
    name = elsewhere[0].name
    said = jobrun("run", "a", "--", name, env={"PATH": "/usr/bin:/bin"})
    assert said.status == 127
    assert error_of(said) == f'not found: "{name}"; searched PATH=/usr/bin:/bin'
    assert hint_of(said).endswith(f"/{name} exists: use that, or set PATH= above this crontab line")


def write(path: Path, text: str, mode: int) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def from_a_dead_folder(jobrun: Jobrun, *argv: str, now: str) -> subprocess.CompletedProcess[bytes]:
    """jobrun, started in a folder that has been deleted."""
    script = 'mkdir dead && cd dead && rmdir ../dead && exec "$@"'
    return subprocess.run(
        ["sh", "-c", script, "sh", *jobrun.argv(*argv, now=now)],
        env=jobrun.environment, cwd=jobrun.folder, capture_output=True, timeout=60,
    )  # fmt: skip


@linux
@pytest.mark.parametrize("options", [(), HOURLY, ("--key", "k")], ids=["plain", "windows", "key"])
def test_S12_a_working_directory_that_is_gone_stops_nothing(
    jobrun: Jobrun, options: tuple[str, ...]
) -> None:
    """jobbyphp/jobby#50, xonsh/xonsh#1744: started in a folder that had been deleted, it died of
    getcwd before anything else."""
    found = from_a_dead_folder(jobrun, "run", "a", *options, "--", "echo", "ran", now=NOW)
    assert (found.returncode, found.stdout) == (0, b"ran\n")
    assert b"Traceback" not in found.stderr
    again = from_a_dead_folder(jobrun, "run", "a", *options, "--", "true", now=LATER)
    assert again.returncode == 0
    for screen in (["status"], ["history"], ["show", "a"], ["logs", "a"]):
        shown = from_a_dead_folder(jobrun, *screen, now=LATER)
        assert (shown.returncode, b"Traceback" in shown.stderr) == (0, False)


@linux
@pytest.mark.parametrize("verb", ["run", "status", "history"])
def test_S12_a_relative_ledger_is_then_nowhere(jobrun: Jobrun, verb: str) -> None:
    """xonsh/xonsh#1744: a path that is relative to a folder that is gone; said, no traceback."""
    rest = ("--", "echo", "ran") if verb == "run" else ()
    found = from_a_dead_folder(jobrun, verb, "a", "--ledger", "s.db", *rest, now=NOW)
    assert (found.returncode, found.stdout) == (73, b"")
    error = b'jobrun: error: the ledger "s.db" is relative, and the working directory is gone\n'
    assert error in found.stderr


@linux
@pytest.mark.parametrize(
    ("cwd", "why"),
    [("/nope", "no such file or directory"), ("/etc/passwd", "not a directory"), ("", None)],
)
def test_S13_a_missing_folder_is_not_a_missing_program(
    jobrun: Jobrun, cwd: str, why: str | None
) -> None:
    """abrt/libreport#829: the working directory was missing, and the message said that the command
    was not found."""
    found = jobrun("run", "a", "--cwd", cwd, "--", "touch", "ran")
    if why is None:
        assert found.status == 2
        assert "--cwd" in error_of(found)
    else:
        assert found.status in (126, 127)
        assert error_of(found) == f'--cwd "{cwd}": {why}'
    assert not (jobrun.folder / "ran").exists()


@linux
def test_S13_an_explicit_folder_counts_where_ours_is_gone(jobrun: Jobrun) -> None:
    """letta-ai/letta-code#3238: --cwd was ignored because getcwd had failed first."""
    found = from_a_dead_folder(jobrun, "run", "a", "--cwd", "/", "--", "pwd", now=NOW)
    assert (found.returncode, found.stdout) == (0, b"/\n")


@root
def test_S13_a_folder_that_may_not_be_entered_is_said(jobrun: Jobrun, reachable: Path) -> None:
    """abrt/libreport#829: permission to enter the folder, or to run the program, are two things."""
    shared = public(reachable)
    (shared / "closed").mkdir(0o700)
    argv = (
        "run",
        "a",
        "--ledger",
        f"{shared}/jobrun.db",
        "--cwd",
        f"{shared}/closed",
        "--",
        "true",
    )
    found = as_user(jobrun, FOREIGN, *argv)
    assert found.status == 126
    assert error_of(found) == f'--cwd "{shared}/closed": permission denied'


BACKUP = '#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done; echo "stdin: $(cat)"\n'


@pytest.mark.parametrize(
    ("options", "status", "out"),
    [
        ("--every 1d", 2, b""),
        ("--every 1d --stdin null", 0, b"<--day>\nstdin: \n"),
        ("--stdin null", 0, b"<--day>\nstdin: \n"),
    ],
)
def test_S14_what_a_percent_sign_cuts_off_is_not_fed_to_the_command(
    jobrun: Jobrun, options: str, status: int, out: bytes
) -> None:
    """cronie-crond/cronie#195, DOAJ/doaj#1135, saltstack/salt#15042: an unescaped % in the crontab
    cut the command, and the rest of the line became its stdin."""
    backup = write(jobrun.folder / "backup", BACKUP, 0o755)
    jobrun_line = f"{shlex.join(jobrun.argv('run', 'b', now=NOW))} {options} -- {backup} --day %F"
    (entry,) = crontabs.read(f"0 3 * * * {jobrun_line}").entries
    assert (entry.command.endswith("--day "), entry.stdin) == (True, "F")
    found = subprocess.run(
        ["/bin/sh", "-c", entry.command], input=entry.stdin.encode(), env=jobrun.environment,
        cwd=jobrun.folder, capture_output=True, timeout=60,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (status, out)
    if status:
        assert b"error: stdin has data" in found.stderr
        assert b"a % in a crontab line makes the rest of it stdin: write \\%" in found.stderr
        assert not jobrun.ledger.exists()
    else:
        shown = jobrun("show", "b").stdout
        assert f"command        {backup} --day\n" in shown


def test_S14_no_percent_is_needed(jobrun: Jobrun) -> None:
    """DOAJ/doaj#1135: the day of the window comes by a placeholder, which cron leaves alone."""
    for name in ("placeholders", "environment"):
        assert "%" not in jobrun("help", name).stdout.replace("\\%", "")
    line = "0 3 * * * jobrun run b --every 1d -- backup --day {start_date}"
    assert crontabs.read(line).entries[0].stdin == ""
    found = jobrun("run", "b", "--every", "1d", "--", "echo", "{start_date}", now=NOW)
    assert found.stdout == "2026-09-03\n"


@pytest.mark.parametrize(
    ("umask", "seen", "mode"),
    [
        ("077", "0077", 0o600),
        ("022", "0022", 0o644),
        ("000", "0000", 0o666),
        ("027", "0027", 0o640),
    ],
)
def test_S15_the_umask_is_the_commands_and_not_the_states(
    jobrun: Jobrun, umask: str, seen: str, mode: int
) -> None:
    """perlorg/cpanorg#20, bpeel/notbit#2: cron's umask differs, and files were unreadable for
    others, or writable for all."""
    script = f'umask {umask}; exec "$@"'
    argv = jobrun.argv("run", "a", "--", *sh("umask; touch f; echo err >&2"))
    found = subprocess.run(
        ["sh", "-c", script, "sh", *argv],
        env=jobrun.environment, cwd=jobrun.folder, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert found.stdout.decode() == f"{seen}\n"
    assert (jobrun.folder / "f").stat().st_mode & 0o777 == mode
    state = [jobrun.ledger, Path(f"{jobrun.ledger}.d"), *Path(f"{jobrun.ledger}.d").rglob("*")]
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in state}
    assert modes == {(True, 0o700), (False, 0o600)}


@root
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_S15_a_second_user_is_told(jobrun: Jobrun, reachable: Path, umask: int) -> None:
    """perlorg/cpanorg#20: the second user met files he could not read, as a traceback."""
    where = ("--ledger", f"{public(reachable)}/jobrun.db")
    before = os.umask(umask)
    try:
        assert jobrun("run", "a", *where, "--", "true").status == 0
    finally:
        os.umask(before)
    for call in (("run", "a", *where, "--", "echo", "ran"), ("status", *where)):
        found = as_user(jobrun, FOREIGN, *call)
        assert (found.status, found.stdout) == (74, "")
        assert "it is root's (0600)" in error_of(found)


@needs("bash", "bash")
@pytest.mark.parametrize(
    "pipe", ["history -n 10000", "windows a", "status", "history --json -n 10000"]
)
def test_S16_a_listing_into_head_has_no_traceback(jobrun: Jobrun, pipe: str) -> None:
    """python/mypy#2893: piping the listing into `head` ended in a broken pipe, as a traceback."""
    begin(jobrun, "a", "2026-05-01T00Z", "--every", "1h")
    jobrun.change(
        "insert into jobrun_run (job, attempt, token, host, user, terminal, started, ended, took,"
        " outcome, exit_code) with recursive n(i) as (select 1 union all select i + 1 from n where"
        " i < 10000) select 'a', 1, 1, 'h', 'u', 0, '2026-05-01T00:00:00+00:00',"
        " '2026-05-01T00:00:01+00:00', 1.0, 'succeeded', 0 from n"
    )
    line = f"{shlex.quote(PYTHON)} -m jobrun {pipe} | head -1; echo ${{PIPESTATUS[0]}}"
    found = subprocess.run(
        ["bash", "-c", line], env=jobrun.environment, capture_output=True, timeout=60, check=True
    )
    first, status = found.stdout.decode().splitlines()
    assert str(jobrun.ledger) in first
    assert status in ("0", "141")
    assert found.stderr == b""


def test_S21_arguments_arrive_byte_for_byte(jobrun: Jobrun) -> None:
    """Staubgeborener/Klipper-Backup#133: quotes inside quotes of the crontab line changed the
    arguments; there is no shell of ours in between."""
    words = [b"a b", b"", b'"', b"'", b"$HOME", b";", b"*", b"x\ny", b"\\", b"`id`", b"!", b"~",
             b"%", b"{}", b"--", b"-q", b"#", b"&&", b"\t", b"\xff", "\u0131".encode()]  # fmt: skip
    words += [bytes([byte]) for byte in range(1, 256)]
    code = b"import os, sys; print([os.fsencode(a) for a in sys.argv[1:]])"
    argv = [os.fsencode(word) for word in jobrun.argv("run", "a", "--", PYTHON, "-c")]
    found = subprocess.run(
        [*argv, code, *words], env=jobrun.environment, capture_output=True, check=True, timeout=60
    )
    assert found.stdout.decode() == f"{words!r}\n"
    shown = jobrun("show", "a")
    assert (shown.status, "Traceback" in shown.stderr) == (0, False)


@pytest.mark.parametrize(
    "line",
    ["echo a && echo b", "echo a; echo b", "touch ran | cat", "touch ran", "sh -c 'touch ran'"],
)
def test_S21_a_whole_line_in_one_argument_is_not_half_executed(jobrun: Jobrun, line: str) -> None:
    """Staubgeborener/Klipper-Backup#133: who quotes the whole line means a shell, and is told how
    to have one."""
    found = jobrun("run", "a", "--", line)
    assert (found.status, found.stdout) == (127, "")
    assert error_of(found) == f'not found: "{line}" (one argument with spaces in it)'
    assert "sh -ec " in hint_of(found)
    assert not (jobrun.folder / "ran").exists()
    typed = hint_of(found).split("for a shell's line: -- ")[1]
    again = jobrun("run", "b", "--", *shlex.split(typed))
    assert again.status == 0, "the hint, as one would type it"
