"""What a command is given, and what counts as its success or failure.

Policy; how it is run is `process.py`'s.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping

from jobrun import places, rows
from jobrun.ended import (
    AT_CWD,
    AT_EXEC,
    AT_GUARDIAN,
    AT_INPUT,
    INTERRUPTED,
    LOCK_LOST,
    NOT_STARTED,
    TIMED_OUT,
)
from jobrun.errors import (
    EXIT_CONFIG,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_NOT_RECORDED,
    EXIT_SIGNAL,
    EXIT_TIMED_OUT,
)
from jobrun.instants import iso, iso_z
from jobrun.rows import Claimed
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.plans import Unit
    from jobrun.process import Ended

# Set or removed for every command, by name of placeholder or of a value below.
_VARIABLES = (
    ("JOBRUN_JOB", "job"), ("JOBRUN_KEY", "key"), ("JOBRUN_SLUG", "slug"), ("JOBRUN_KIND", "kind"),
    ("JOBRUN_WINDOW_START", "start"), ("JOBRUN_WINDOW_END", "end"), ("JOBRUN_WINDOWS", "windows"),
    ("JOBRUN_START_DATE", "start_date"), ("JOBRUN_LAST_DATE", "last_date"), ("JOBRUN_TZ", "tz"),
    ("JOBRUN_PARTIAL", "partial"), ("JOBRUN_ATTEMPT", "attempt"), ("JOBRUN_RUN_ID", "run_id"),
    ("JOBRUN_TOKEN", "token"), ("JOBRUN_LEDGER", "ledger"), ("JOBRUN_VALUES", "values_file"),
)  # fmt: skip


def values(
    job: Job, unit: Unit, claimed: Claimed, token: int, zone: str, ledger: str
) -> dict[str, str]:
    """What the placeholders and the environment stand for in this run."""
    found = {
        "job": job.name,
        "attempt": str(claimed.attempt),
        "token": str(token),
        "run_id": str(claimed.run_id),
        "ledger": ledger,
    }
    if unit.key is not None:
        found |= {"key": unit.key, "kind": unit.kind or rows.NEW, "slug": places.slug(unit.key)}
    if job.key_file is not None:
        found["file"] = job.key_file
    if unit.start is not None and unit.end is not None:
        found |= _window_values(job.name, unit, unit.start, unit.end, zone)
    return found


def _window_values(name: str, unit: Unit, start: int, end: int, zone: str) -> dict[str, str]:
    from jobrun import schedule, windows

    date, month, hour = schedule.local(start, zone)
    return {
        "start": iso(start),
        "end": iso(end),
        "start_z": iso_z(start),
        "end_z": iso_z(end),
        "start_unix": str(start),
        "end_unix": str(end),
        "start_date": date,
        "start_month": month,
        "start_hour": hour,
        "last_date": schedule.local(end - 1, zone)[0],
        "windows": str(unit.windows),
        "slug": windows.slug(name, start),
        "partial": "1" if unit.partial else "0",
        "tz": zone,
    }


def environment(environ: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """The command's environment: ours set or removed, the rest as it was given to us."""
    given = dict(environ)
    if given.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8") and not _lc_ctype_was_given():
        del given["LC_CTYPE"]
    for variable, name in _VARIABLES:
        given.pop(variable, None)
        if name in found:
            given[variable] = found[name]
    if "://" in given.get("JOBRUN_LOCK", ""):
        from jobrun.address import hidden

        given["JOBRUN_LOCK"] = hidden(given["JOBRUN_LOCK"])
    return given


def marker(environment: Mapping[str, str]) -> dict[str, str]:
    """What nobody but the run's processes has in its environment; from its row: RunRow.marker."""
    return {name: environment[name] for name in ("JOBRUN_RUN_ID", "JOBRUN_LEDGER")}


def _lc_ctype_was_given() -> bool:
    # Under cron's empty environment Python sets LC_CTYPE in itself (PEP 538); a command started
    # with it would sort and compare otherwise than under cron alone.
    try:
        with open("/proc/self/environ", "rb") as block:
            return any(entry.startswith(b"LC_CTYPE=") for entry in block.read().split(b"\0"))
    except OSError:
        return True


class Verdict(NamedTuple):
    outcome: str
    exit_code: int | None  # the command's own
    signal: int | None
    answer: int  # jobrun's exit code for it

    @property
    def is_for_all(self) -> bool:
        """A program that can't be started fails for each window alike; an input is one window's."""
        return self.outcome == rows.NOT_STARTED and self.answer != EXIT_CONFIG


def judge(ended: Ended, job: Job) -> Verdict:
    """What the end of a command means: outcome and exit code of the contract."""
    if ended.cause == NOT_STARTED:
        code = not_started_code(ended)
        return Verdict(rows.NOT_STARTED, None, None, code)
    if ended.cause == INTERRUPTED:
        answer = EXIT_SIGNAL + (ended.our_signal or 15)
        return Verdict(rows.INTERRUPTED, ended.exit_code, ended.signal, answer)
    if ended.cause == LOCK_LOST:
        return Verdict(rows.INTERRUPTED, ended.exit_code, ended.signal, EXIT_NOT_RECORDED)
    if ended.cause == TIMED_OUT:
        return Verdict(rows.TIMED_OUT, ended.exit_code, ended.signal, EXIT_TIMED_OUT)
    if ended.signal is not None:
        return Verdict(rows.KILLED, None, ended.signal, EXIT_SIGNAL + ended.signal)
    code = ended.exit_code or 0
    if job.is_success(code):
        return Verdict(rows.SUCCEEDED, code, None, 0)
    return Verdict(rows.FAILED_RUN, code, None, code)


def not_started_code(ended: Ended) -> int:
    """127 for a program or a folder that is not there, 78 for an input, 126 for whatever else."""
    number, stage = ended.error or (0, AT_EXEC)
    if stage == AT_INPUT:
        return EXIT_CONFIG
    missing = stage != AT_GUARDIAN and number in (errno.ENOENT, errno.ENOTDIR)
    return EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE


def lock_lost(how: str | None) -> str:
    return f"lost the lock: {how}"


_USUAL_PLACES = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/opt/bin:/snap/bin"
_SHELL_WORDS = frozenset(
    "alias bg cd command declare eval exec exit export fg for function if jobs let local read"  # noqa: SIM905
    " return set shift source trap type ulimit umask unset until while [[ { ( ! . :".split()
)


def why_not_started(ended: Ended, job: Job, path: str, command: str) -> tuple[str, str | None]:
    """(error, hint) for a command that can't be started."""
    number, stage = ended.error or (0, AT_EXEC)
    reason = ended.detail or os.strerror(number).lower()
    if stage == AT_GUARDIAN:
        return f'can\'t start "{command}": before it began: {reason}', None
    if stage == AT_CWD:
        return f'--cwd "{job.cwd}": {os.strerror(number).lower()}', None
    if not_started_code(ended) == EXIT_NOT_FOUND:
        return _not_found(command, path, job)
    if number == errno.ENOEXEC:
        return f'can\'t start "{command}": its first line is no #!', f"-- sh {_typed(command)}"
    found = command if os.sep in command else next(iter(_found(command, path)), command)
    if os.path.isdir(found):
        return f'not executable: "{command}" is a folder', None
    if number == errno.EACCES:
        return f'not executable: "{found}"', f"chmod +x {_typed(found)}"
    return f'can\'t start "{command}": {reason}', None


def _typed(*words: str) -> str:
    """The words as a shell reads them: a hint is there to be typed."""
    from shlex import join

    return join(words)


def _not_found(command: str, path: str, job: Job) -> tuple[str, str | None]:
    if command in _SHELL_WORDS:
        rest = _typed(*job.command[1:])
        hint = f"-- sh -ec {_typed(f'{command} {rest}')}"
        if command == "cd":
            folder = rest or "DIR"
            line = _typed(f"cd {folder} && COMMAND")
            hint = f"--cwd {folder} -- COMMAND, or -- sh -ec {line}"
        return f'not found: "{command}" (a word of the shell, not a program)', hint
    if " " in command:
        hint = f"without the quotes: -- {command}; for a shell's line: -- sh -ec {_typed(command)}"
        return f'not found: "{command}" (one argument with spaces in it)', hint
    name, equals, _ = command.partition("=")
    if equals and name.isidentifier():
        rest = _typed(*job.command[1:]) or "COMMAND"
        return f'not found: "{command}"', f"-- env {_typed(command)} {rest}"
    if os.sep in command or "/" in command:
        return _no_such_file(command, job)
    elsewhere = _found(command, _USUAL_PLACES)
    other = elsewhere[0] if elsewhere else None
    hint = f"{other} exists: use that, or set PATH= above this crontab line"
    return f'not found: "{command}"; searched PATH={path}', hint if other else None


def _no_such_file(command: str, job: Job) -> tuple[str, str | None]:
    where = job.cwd or places.working_folder() or "a working folder that is gone"
    relative = "" if os.path.isabs(command) else f" in {where}"
    interpreter = _interpreter(os.path.join(job.cwd or "", command))
    if interpreter:
        return (
            f'can\'t start "{command}": its first line names {interpreter}, which is not there',
            None,
        )
    return f'not found: "{command}"{relative}', None


def _interpreter(path: str) -> str | None:
    """The program that a script's first line names, where the script exists and that is missing."""
    try:
        with open(path, "rb") as script:
            first = script.readline(256)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].split()
    name: str = words[0].decode("utf-8", "backslashreplace") if words else "nothing"
    if first.endswith(b"\r\n"):
        name = ascii(first[2:].rstrip(b"\n").decode("utf-8", "backslashreplace"))[1:-1].strip()
    return name


def _found(command: str, path: str) -> list[str]:
    candidates = (os.path.join(folder, command) for folder in path.split(os.pathsep) if folder)
    return [place for place in candidates if os.path.isfile(place)]


def search_path(environment: Mapping[str, str]) -> str:
    return environment.get("PATH", os.defpath if sys.platform != "win32" else "")
