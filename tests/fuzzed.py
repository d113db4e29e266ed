"""What the fuzz tests share: a ledger with something of everything, and the contract of a call."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests import forked
from tests.conftest import clean_environment
from tests.forked import Answer

NOW = 1_788_523_500  # 2026-09-04T12:05:00Z
REFUSED = (2, 73, 74, 75, 78)
# What a call may exit with where its commands are `true` and `false`; 124 is a --timeout.
CONTRACT = {0, 1, *REFUSED, 76, 124, 126, 127}

QUICK = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
LONG = settings(QUICK)

HISTORY = (
    ("run", "sales", "--every", "1h", "--first", "2026-09-04T06:00Z", "--", "echo", "{start}"),
    ("run", "fails", "--every", "1h", "--", "false"),
    ("run", "night", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--", "true"),
    ("run", "files", "--key", "one", "--", "true"),
    ("run", "plain", "--", "echo", "hello"),
    # A gap and its event; a skip.
    ("run", "late", "--every", "1h", "--first", "2026-09-04T06:00Z", "--catch-up", "latest", "--",
     "true"),
    ("run", "night", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--", "true"),
)  # fmt: skip


State = tuple[list[str], list[str]]  # rows, files


class Place:
    """A folder with a ledger, as it is before each example."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="jobrun-fuzz-", dir=forked.folder_in_memory()))
        self.original = self.folder / "original"
        self.here = self.folder / "here"
        self.ledger = self.here / "jobrun.db"
        self.environ = clean_environment(JOBRUN_LEDGER=str(self.ledger), COLUMNS="200")
        self.here.mkdir(mode=0o700)
        for argv in HISTORY:
            assert self(*argv).status in (0, 1)
        self.here.rename(self.original)
        self.restore()
        self.pristine = self.state()

    def __call__(self, *argv: str) -> Answer:
        return forked.jobrun(argv, self.environ, NOW, folder=str(self.here))

    def try_out(self, argv: tuple[str, ...]) -> Answer:
        """One call that begins with everything as it was; refused, it must have left it so.

        But for one event that tells of it, and that the job was called.
        """
        answer = self(*argv)
        check_contract(argv, answer)
        after = self.state() if self.ledger.exists() else None
        if after != self.pristine:
            self.restore()
            if answer.status in REFUSED:
                assert after is not None, (argv, answer)
                assert is_told_only(self.pristine, after), (argv, answer)
        return answer

    def restore(self) -> None:
        shutil.rmtree(self.here, ignore_errors=True)
        shutil.copytree(self.original, self.here)
        self.here.chmod(0o700)

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def state(self) -> State:
        """What is on record, and which files there are; not the locks, which may be taken."""
        with closing(sqlite3.connect(self.ledger)) as connection:
            rows = list(connection.iterdump())
        return rows, sorted(str(path) for path in self.here.rglob("*") if path.suffix != ".lock")


def is_told_only(before: State, after: State) -> bool:
    """Whether no more than a refusal is on record: an event, and that the job was called."""
    gone, new = (
        sorted(set(one[0]) - set(other[0])) for one, other in ((before, after), (after, before))
    )
    jobs = [line for line in new if line.startswith('INSERT INTO "jobrun_job"')]
    told = [line for line in new if "'refused'" in line or "'clock-behind'" in line]
    is_a_call = len(jobs) == len(gone) == 1 and gone[0].startswith('INSERT INTO "jobrun_job"')
    return before[1] == after[1] and is_a_call and len(told) <= 1 and new == sorted(jobs + told)


def check_contract(argv: tuple[str, ...], answer: Answer) -> None:
    """An exit code that is documented, no traceback; refused: one error, a hint at the most."""
    assert b"Traceback" not in answer.err, answer.err.decode("utf-8", "backslashreplace")
    assert answer.status in CONTRACT, (argv, answer)
    if answer.status not in REFUSED:
        return
    json = [line for line in answer.lines if line.startswith("{")]
    lines = [
        line for line in answer.lines if line.startswith(("jobrun: error: ", "jobrun: hint: "))
    ]
    if not json:
        errors = [line for line in lines if line.startswith("jobrun: error: ")]
        assert len(errors) == 1, (argv, answer)
