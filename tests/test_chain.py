"""A chain of jobs in a crontab: each window right, once, in order, with its own values (M4)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import PYTHON, ROOT, Jobrun

if sys.platform == "win32":
    pytest.skip("thousands of calls in one process, in a folder in memory", allow_module_level=True)

from tests.forked import folder_in_memory

MONDAY = datetime(2026, 8, 31, tzinfo=UTC)
CALLS = timedelta(minutes=5)
DAYS = [(MONDAY + timedelta(days=n)).date().isoformat() for n in range(7)]

# Every call is the program's own main(), with its locks, ledger and real commands; only the
# interpreter is not started 6,048 times, and the clock is that of the call.
DRIVER = """
import json, os, sys
from jobrun.__main__ import main
for now, argv in json.load(sys.stdin):
    os.environ["NOW"] = str(now)
    status = main(argv, os.environ, lambda: now)
    print(json.dumps([now, argv[1], status]))
"""

# A line for each try that came to its end, as `job day what-it-got`; a day is broken while a file
# named after it and the job lies in the folder.
STEP = """
set -e
test ! -e "$FOLDER/broken-$JOBRUN_JOB-$JOBRUN_START_DATE" || exit 3
case $JOBRUN_JOB in
extract) printf 'rows=%s\\n' "${JOBRUN_START_DATE#????-??-}" > "$JOBRUN_VALUES"; got=- ;;
transform) printf '{"doubled": "%s%s"}\\n' "$ROWS" "$ROWS" > "$JOBRUN_VALUES"; got=$ROWS ;;
report) got=$SUM ;;
esac
echo "$JOBRUN_JOB $JOBRUN_START_DATE $got" >> "$FOLDER/log"
"""

DAILY = ("--every", "1day", "--first", DAYS[0], "-q")
JOBS = {
    "extract": (*DAILY, "--lag", "30m"),
    "transform": (*DAILY, "--after", "extract", "--input", "ROWS=extract.rows"),
    "report": (*DAILY, "--after", "transform", "--input", "SUM=transform.doubled"),
}


class Week:
    """A crontab with three lines, every five minutes."""

    def __init__(self, folder: Path) -> None:
        self.jobrun = Jobrun(folder)
        (folder / "step").write_text(STEP)
        self.answers: list[tuple[int, str, int]] = []

    @property
    def log(self) -> list[str]:
        path = self.jobrun.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def until(self, end: datetime, since: datetime, *off: str) -> None:
        """Calls of all jobs but those that are off; the order in which cron makes them changes."""
        script = []
        at, turn = since, 0
        while at < end:
            names = [*JOBS][turn % 3 :] + [*JOBS][: turn % 3]
            for name in names:
                if name not in off:
                    argv = ["run", name, *JOBS[name], "--", "sh", str(self.jobrun.folder / "step")]
                    script.append((int(at.timestamp()), argv))
            at, turn = at + CALLS, turn + 1
        environment = {**self.jobrun.environment, "FOLDER": str(self.jobrun.folder)}
        found = subprocess.run(
            [PYTHON, "-c", DRIVER], input=json.dumps(script), env=environment, cwd=ROOT,
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        assert "Traceback" not in found.stderr
        self.answers += [tuple(json.loads(line)) for line in found.stdout.splitlines()]

    def breaks(self, job: str, day: str) -> Path:
        broken = self.jobrun.folder / f"broken-{job}-{day}"
        broken.touch()
        return broken


@pytest.fixture
def week() -> Iterator[Week]:
    """In memory: it is about what runs when, not about the disk."""
    with TemporaryDirectory(prefix="jobrun-week-", dir=folder_in_memory()) as folder:
        yield Week(Path(folder))


@pytest.mark.long
def test_M4_a_week_of_three_jobs_called_every_five_minutes(week: Week) -> None:
    """M4: 6,000 calls. Each day right, once, in order; values of the same window; nothing early."""
    thursday, friday = MONDAY + timedelta(days=3), MONDAY + timedelta(days=4)
    week.until(thursday, MONDAY)
    assert week.log == expected(DAYS[:2])
    # Wednesday's extract fails from Thursday 00:30 to 09:00, its transform once more after that.
    extract, transform = week.breaks("extract", DAYS[2]), week.breaks("transform", DAYS[2])
    week.until(thursday + timedelta(hours=9), thursday)
    assert week.log == expected(DAYS[:2])
    extract.unlink()
    week.until(thursday + timedelta(hours=10), thursday + timedelta(hours=9))
    assert week.log == [*expected(DAYS[:2]), f"extract {DAYS[2]} -"]
    transform.unlink()
    week.until(friday, thursday + timedelta(hours=10))
    assert week.log == expected(DAYS[:3])
    # On Friday nobody calls the extract before 14:00.
    week.until(friday + timedelta(hours=14), friday, "extract")
    assert week.log == expected(DAYS[:3])
    week.until(MONDAY + timedelta(days=8), friday + timedelta(hours=14))
    assert week.log == expected(DAYS)
    check_record(week)


def expected(days: list[str]) -> list[str]:
    """Of each day: the extract, then the transform with its rows, then the report with theirs."""
    return [
        line
        for day in days
        for line in (
            f"extract {day} -",
            f"transform {day} {day[8:]}",
            f"report {day} {day[8:] * 2}",
        )
    ]


def check_record(week: Week) -> None:
    """Each window processed, with what it left; every skip for the reason that was true."""
    jobrun = week.jobrun
    states = jobrun.query("select job, state, count(*) from jobrun_window group by job, state")
    assert states == [(job, "processed", 7) for job in sorted(JOBS)]
    values = jobrun.query("select substr(key, -25, 10), value from jobrun_value where name='rows'")
    assert values == [(day, day[8:]) for day in DAYS]
    failed = jobrun.query(
        "select job, count(*) from jobrun_run where outcome <> 'succeeded' group by job"
    )
    assert [job for job, _ in failed] == ["extract", "transform"]
    reasons = jobrun.query(
        "select distinct reason from jobrun_skip where job = 'report' order by 1"
    )
    assert reasons == [("no-closed-window",), ("upstream-pending",)]
    late = jobrun.query(
        "select times from jobrun_skip where job = 'transform' and reason = 'upstream-pending'"
        " and key like ?", f"%:{DAYS[3]}%",
    )  # fmt: skip
    assert late == [(14 * 12,)]  # from 00:00 to 13:55 on Friday
    assert {status for _, _, status in week.answers} == {0, 3}
    assert len(week.answers) == 3 * 8 * 288 - 14 * 12


def test_M4_a_join_a_condition_and_values_from_two_jobs(jobrun: Jobrun) -> None:
    """M4: two extracts, a report after both with a value of each, an alert if there is need."""
    now = "2026-09-04T00:05Z"
    left = 'echo "n=$N" > "$JOBRUN_VALUES"'
    day = ("--every", "1day")
    report = (
        "run", "report", *day, "--after", "shop,web", "--input", "SHOP=shop.n,WEB=web.n",
        "--", "sh", "-ec", 'echo "total=$((SHOP + WEB))" | tee "$JOBRUN_VALUES"',
    )  # fmt: skip
    alert = (
        "run", "alert", *day, "--after", "report", "--input", "TOTAL=report.total",
        "--if", "int(TOTAL) < 100", "--", "sh", "-c", 'echo "only $TOTAL"',
    )  # fmt: skip
    assert jobrun("run", "shop", *day, "--", "sh", "-c", left, now=now, env={"N": "40"}).status == 0
    assert jobrun(*report, now=now).status == 78
    assert jobrun("run", "web", *day, "--", "sh", "-c", left, now=now, env={"N": "2"}).status == 0
    assert jobrun(*report, now=now).stdout == "total=42\n"
    assert jobrun(*alert, now=now).stdout == "only 42\n"

    later = "2026-09-05T00:05Z"
    jobrun("run", "shop", *day, "--", "sh", "-c", left, now=later, env={"N": "400"})
    assert "upstream-pending" in jobrun(*report, now=later).stderr
    jobrun("run", "web", *day, "--", "sh", "-c", left, now=later, env={"N": "20"})
    assert jobrun(*report, now=later).stdout == "total=420\n"
    quiet = jobrun(*alert, now=later)
    assert (quiet.status, quiet.stdout) == (0, "")
    assert "reason=condition-false" in quiet.stderr
