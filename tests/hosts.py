"""A machine as cron and Task Scheduler see it: stand-ins for what people have installed.

Paths of the people's machines lie below the test's folder; arguments and shell text stay as given.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from tests import crontabs
from tests.conftest import Jobrun, Result

NOW = "2026-09-04T12:05:00Z"
# Says how it was called, from where, with what on stdin, and exits as FILE.exit says.
STAND_IN = """#!/bin/sh
printf '%s' "${0##*/}"; for a in "$@"; do printf ' <%s>' "$a"; done; echo
exit $(cat "$0.exit" 2>/dev/null || echo 0)
"""


class Host:
    """A machine as cron sees it: a short PATH, a home, stand-ins for what it has installed."""

    def __init__(self, jobrun: Jobrun) -> None:
        self.jobrun = jobrun
        self.folder = jobrun.folder
        self.bin = jobrun.folder / "bin"
        self.bin.mkdir()
        self.home = jobrun.folder / "home" / "app"
        self.home.mkdir(parents=True)

    def install(self, path: str, text: str = STAND_IN, code: int = 0) -> Path:
        """`certbot` on the PATH, or `/usr/local/bin/certbot` below the test's folder."""
        place = self.folder / path.lstrip("/") if "/" in path else self.bin / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o755)
        if code:
            Path(f"{place}.exit").write_text(f"{code}\n")
        return place

    def cron(self, line: str, now: str = NOW, **env: str) -> Result:
        """The line as cron runs it; {HERE} is the test's folder, {JOBRUN} the program."""
        text = line.replace("{HERE}", str(self.folder))
        text = text.replace("{JOBRUN}", shlex.join(self.jobrun.argv(now=now)))
        (entry,) = crontabs.read(text).entries
        kept = ("JOBRUN_LEDGER", "PYTHONPATH")
        environment = {name: self.jobrun.environment[name] for name in kept}
        environment |= {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home), **env}
        found = subprocess.run(
            ["/bin/sh", "-c", entry.command], input=entry.stdin.encode(), env=environment,
            cwd=self.home, capture_output=True, timeout=60,
        )  # fmt: skip
        return Result(found.returncode, found.stdout.decode(), found.stderr.decode())

    def start(self, *argv: str, now: str = NOW) -> subprocess.Popen[bytes]:
        """A task's action, started as Task Scheduler does: no shell, a folder of the system's."""
        path = {"PATH": f"{self.bin}:/usr/bin:/bin"}
        return self.jobrun.start(*argv, now=now, env=path, cwd="/")  # System32, there

    def task(self, *argv: str, now: str = NOW) -> Result:
        process = self.start(*argv, now=now)
        out, err = process.communicate(timeout=60)
        return Result(process.returncode, out.decode(), err.decode())

    def runs(self) -> list[tuple[object, ...]]:
        return self.jobrun.query("select outcome, exit_code from jobrun_run order by id")
