"""What the tests from public reports share: a call that is held, other users, small disks.

The reports are of people who run scheduled commands under other tools; each test names its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobrun import places
from tests.conftest import PYTHON, Jobrun, Result, instant

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX: sh, signals, modes")
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux: /proc, namespaces")
root = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="needs root, to act as another user"
)

HOURLY = ("--every", "1h")
# What a command with windows sees of its own.
SHOW = ("sh", "-c", "echo $JOBRUN_KEY")
# Says its pid, then waits until its stdin ends: the test decides when.
HOLD = (PYTHON, "-uc", "import os, sys; print(os.getpid()); sys.stdin.read()")


class Held:
    """A call whose command runs until `release`; `pid` is the command's."""

    def __init__(
        self, jobrun: Jobrun, job: str, *options: str, command: tuple[str, ...] = HOLD,
        now: str | None = None, env: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.wrapper = jobrun.start(
            "run", job, *options, "--stdin", "inherit", "--", *command,
            stdin=subprocess.PIPE, now=now, env=env,
        )  # fmt: skip
        assert self.wrapper.stdout is not None
        self.pid = int(self.wrapper.stdout.readline())

    def end_command(self) -> None:
        """Its stdin ends, and so does that of those that follow it."""
        assert self.wrapper.stdin is not None
        self.wrapper.stdin.close()
        self.wrapper.stdin = None

    def release(self) -> Result:
        """The command's stdin ends, and so does it; what was printed since it was ready."""
        out, err = self.wrapper.communicate(timeout=60)
        return Result(self.wrapper.returncode, out.decode(), err.decode())


def begin(jobrun: Jobrun, job: str, watermark: str, *options: str) -> None:
    """A job on record with this watermark and no run: its first call came at that very instant."""
    found = jobrun("run", job, *options, "--first", watermark, "--", "false", now=watermark)
    assert found.status == 0, found.stderr
    assert jobrun.query("select watermark from jobrun_job where name = ?", job) == [
        (at(watermark),)
    ]


def at(text: str) -> str:
    """An instant as the ledger writes it: `2026-05-01T03Z` is `2026-05-01T03:00:00+00:00`."""
    from jobrun.instants import iso

    return iso(int(instant(text)))


def watermark(jobrun: Jobrun, job: str = "a") -> object:
    ((found,),) = jobrun.query("select watermark from jobrun_job where name = ?", job)
    return found


def states(jobrun: Jobrun, job: str = "a") -> dict[str, str]:
    """The state of each window on record, by the end of its key."""
    rows = jobrun.query("select start, state from jobrun_window where job = ? order by start", job)
    return {str(start): str(state) for start, state in rows}


def skips(jobrun: Jobrun, job: str = "a") -> list[tuple[object, ...]]:
    return jobrun.query("select reason, times from jobrun_skip where job = ? order by id", job)


def planned(jobrun: Jobrun, *options: str, now: str, limit: int = 1000) -> list[tuple[str, str]]:
    """(start, end) of each window that a call with these options would run."""
    more = ("--max-windows", str(limit), "--log-format", "json", "--dry-run")
    found = jobrun("run", "planned", *options, *more, "--", "true", now=now)
    assert found.status == 0, found.stderr
    return [(run["start"], run["end"]) for run in json.loads(found.stdout)["runs"]]


class Changed(Jobrun):
    """jobrun in processes where `code` is run before: what the system is made to answer."""

    def __init__(self, jobrun: Jobrun, code: str) -> None:
        super().__init__(jobrun.folder)
        self.environment = jobrun.environment
        self._program = f"{code}\nimport sys\nfrom tests import frozen\n"
        self._program += "sys.exit(frozen.run(float(sys.argv[1]), sys.argv[2:]))"

    def argv(self, *argv: str, now: str | None = None) -> list[str]:
        at = instant(now or "2026-09-04T12:05:00Z")
        return [PYTHON, "-c", self._program, str(at), *argv]


def altered(jobrun: Jobrun, code: str, *argv: str, now: str | None = None) -> Result:
    """One such call."""
    found = subprocess.run(
        Changed(jobrun, code).argv(*argv, now=now),
        env=jobrun.environment, cwd=jobrun.folder, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=60,
    )  # fmt: skip
    return Result(found.returncode, found.stdout.decode(), found.stderr.decode())


def as_user(jobrun: Jobrun, uid: int, *argv: str, cwd: str = "/", **env: str) -> Result:
    """jobrun as another user, started by root."""
    found = subprocess.run(
        [PYTHON, "-m", "tests.as_user", str(uid), *argv],
        env={**jobrun.environment, **env}, cwd=cwd, capture_output=True,
        stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    err = found.stderr.decode()
    kept = "".join(x for x in err.splitlines(keepends=True) if "ephemeral-ledger" not in x)
    return Result(found.returncode, found.stdout.decode(), kept)


def until_free(ledger: Path, job: str) -> None:
    """Until the guardian of a call that was killed has let the lock go."""
    import fcntl

    path = Path(places.locks_folder(str(ledger))) / f"{places.slug(job)}.lock"
    if path.exists():
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)


def public(reachable: Path) -> Path:
    """A folder that everybody can reach and write, as /tmp is."""
    shared = reachable / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    return shared


def error_of(found: Result) -> str:
    """The one error that was printed; a refusal shows no traceback and no second error."""
    assert "Traceback" not in found.stderr
    (error,) = (line for line in found.lines if line.startswith("jobrun: error: "))
    return error.removeprefix("jobrun: error: ")


def hint_of(found: Result) -> str:
    (hint,) = (line for line in found.lines if line.startswith("jobrun: hint: "))
    return hint.removeprefix("jobrun: hint: ")


def field(line: str, name: str) -> str:
    """`4711` of `… pid=4711 …`."""
    (value,) = (word.partition("=")[2] for word in line.split() if word.startswith(f"{name}="))
    return value


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A filesystem of its own over `folder`, that can be filled."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux, to mount a small tmpfs")
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(folder)]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Callable[[], None]:
    """Fill the disk to its last byte; what is given back makes room again."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                pass
    return filler.unlink


def needs(tool: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(tool), reason=f"needs {tool} (Debian's {package})")
