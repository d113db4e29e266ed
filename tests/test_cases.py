"""The cases of the window rules through real processes: the plan of each call, then the call.

`run --dry-run` must say exactly what the call then does, and change nothing.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from datetime import datetime

import pytest

from jobrun import job as jobs
from jobrun import options, schedule
from jobrun.instants import iso
from jobrun.ledger_sqlite import open_ledger
from jobrun.rows import Opening
from tests.cases_windows import CASES, PARTIAL, Call, Case, Span
from tests.conftest import PYTHON, Jobrun, Result

# What a command sees, a line a run; fails for the starts that the case names.
COMMAND = (
    "import os; e = os.environ; start = e['JOBRUN_WINDOW_START'];"
    "print(start, e['JOBRUN_WINDOW_END'], e['JOBRUN_PARTIAL'], e['JOBRUN_ATTEMPT']);"
    "raise SystemExit(3 if start in e['FAILS'].split() else 0)"
)


def at(text: str) -> str:
    return iso(int(datetime.fromisoformat(f"{text}+00:00").timestamp()))


def seed(jobrun: Jobrun, case: Case) -> None:
    """The state that the case begins with: through the ledger's own calls, rows behind its back."""
    if case.watermark is None:
        return
    line = options.read_line(case.stored or case.argv)
    given = {
        n: t for n, t in line.options.items() if n in ("--every", "--cron", "--tz", "--anchor")
    }
    text = jobs.make(case.job, options.WINDOWS, given, ["true"], {}).schedule
    assert text is not None
    mark = int(datetime.fromisoformat(at(case.watermark)).timestamp())
    seen = int(datetime.fromisoformat(at(case.seen or case.calls[0].now)).timestamp())
    with closing(open_ledger(str(jobrun.ledger))) as ledger:
        opening = Opening(case.job, 0, seen, schedule=text, first="latest", watermark=mark)
        ledger.open(opening, None, schedule.parse(text).next)
    for row in case.rows:
        insert_row(jobrun, case.job, at(row.start), at(row.end), row.state, row.attempts)
    jobrun.change("update jobrun_job set watermark = ? where watermark <> ?", iso(mark), iso(mark))


def insert_row(jobrun: Jobrun, job: str, start: str, end: str, state: str, attempts: int) -> None:
    values = (job, f"{job}:{start}", start, end, state, attempts, start)
    jobrun.change(
        'insert into jobrun_window (job, key, start, "end", state, attempts, failures, windows,'
        " partial, token, changed_at) values (?, ?, ?, ?, ?, ?, 0, 1, 0, 1, ?)",
        *values,
    )
    if state == "running":
        jobrun.change(
            "insert into jobrun_run (job, key, kind, attempt, token, host, pid, user, terminal,"
            " started) values (?, ?, 'new', 1, 1, 'gone', 1, 'x', 0, ?)",
            job,
            f"{job}:{start}",
            end,
        )


def argv_of(case: Case, call: Call, *more: str) -> tuple[str, ...]:
    argv = call.argv or case.argv
    command = ("--", PYTHON, "-c", COMMAND)
    if argv[0] == "watermark":
        return (argv[0], case.job, *argv[1:])
    verb, rest = (argv[0], argv[1:]) if argv[0] in ("rerun", "backfill") else ("run", argv)
    return (verb, case.job, *rest, *more, *command)


def snapshot(jobrun: Jobrun) -> list[str]:
    if not jobrun.ledger.exists():
        return []
    with closing(sqlite3.connect(jobrun.ledger)) as connection:
        return list(connection.iterdump())


def expected(spans: tuple[Span, ...]) -> list[tuple[str, str, bool]]:
    return [(at(span[0]), at(span[1]), span[2:] == (PARTIAL,)) for span in spans]


def check_plan(jobrun: Jobrun, case: Case, call: Call, now: str) -> None:
    """The plan names the windows that will be tried, and writes nothing."""
    before = snapshot(jobrun)
    found = jobrun(*argv_of(case, call, "--dry-run", "--log-format", "json"), now=now)
    assert before == snapshot(jobrun)
    assert call.status in (found.status, 3), found.stderr
    if found.status:
        return
    plan = json.loads(found.stdout)
    runs = [(run["start"], run["end"], run["partial"]) for run in plan["runs"]]
    # A failure stops what was planned behind it.
    tried = expected(call.windows)
    assert tried == runs[: len(tried)]
    assert call.fails or len(tried) == len(runs)
    if call.reason is not None and not case.lock_is_held:
        assert call.reason in [skip["reason"] for skip in plan["skips"]]


def check_call(jobrun: Jobrun, case: Case, call: Call, now: str) -> None:
    gaps = gap_rows(jobrun)
    fails = {"FAILS": " ".join(at(start) for start in call.fails)}
    found = jobrun(*argv_of(case, call), now=now, env=fails, timeout=120)
    assert call.status == found.status, found.stderr
    ran = [tuple(line.split()) for line in found.stdout.splitlines()]
    if (call.argv or case.argv)[0] != "watermark":
        wanted = [(a, b, str(int(partial))) for a, b, partial in expected(call.windows)]
        assert wanted == [run[:3] for run in ran]
        attempts = call.attempts or (1,) * len(wanted)
        assert [str(n) for n in attempts] == [run[3] for run in ran]
    check_words(call, found, jobrun)
    check_record(jobrun, case, call, gaps)


def check_words(call: Call, found: Result, jobrun: Jobrun) -> None:
    assert "Traceback" not in found.stderr
    if call.reason is not None:
        reasons = jobrun.query("select reason from jobrun_skip order by last_at desc, id desc")
        assert (call.reason,) in reasons
    for words in call.says:
        assert words in found.stderr
    assert (f" left={call.left} " in found.stderr) == (call.left is not None)


def check_record(jobrun: Jobrun, case: Case, call: Call, before: set[tuple[object, ...]]) -> None:
    if call.status == 2 and case.watermark is None:
        assert not jobrun.ledger.exists()
        return
    mark = None if call.watermark is None else at(call.watermark)
    assert [(mark,)] == (jobrun.query("select watermark from jobrun_job") or [(None,)])
    wanted = {(at(start), at(end), count) for start, end, count in call.gaps}
    assert wanted == gap_rows(jobrun) - before
    for start in call.given_up:
        key = f"{case.job}:{at(start)}"
        state = jobrun.query("select state, reason from jobrun_window where key = ?", key)
        assert state == [("skipped", "not-latest")]
    assert jobrun.query("select count(*) from jobrun_run where outcome is null") == [(0,)]


def gap_rows(jobrun: Jobrun) -> set[tuple[object, ...]]:
    if not jobrun.ledger.exists():
        return set()
    return set(jobrun.query('select start, "end", windows from jobrun_gap where void = 0'))


@pytest.mark.parametrize("case", [c for c in CASES if not c.lock_is_held], ids=lambda c: c.id)
def test_case(jobrun: Jobrun, case: Case) -> None:
    """Windows, bounds, attempts, watermark, gaps, reason and exit code, as planned and run."""
    seed(jobrun, case)
    for call in case.calls:
        now = f"{call.now}Z"
        if (call.argv or case.argv)[0] not in ("watermark",):
            check_plan(jobrun, case, call, now)
        check_call(jobrun, case, call, now)


@pytest.mark.parametrize("case", [c for c in CASES if c.lock_is_held], ids=lambda c: c.id)
def test_case_with_the_lock_held(jobrun: Jobrun, case: Case) -> None:
    """A second call while the first runs."""
    seed(jobrun, case)
    (call,) = case.calls
    hold = (PYTHON, "-uc", "import sys; print('ready'); sys.stdin.read()")
    first = jobrun.start(
        "run", case.job, *case.argv, "--stdin", "inherit", "--", *hold,
        now=f"{call.now}Z", stdin=subprocess.PIPE,
    )  # fmt: skip
    assert first.stdout is not None
    assert first.stdout.readline() == b"ready\n"
    found = jobrun(*argv_of(case, call), now=f"{call.now}Z")
    assert call.status == found.status
    assert f"reason={call.reason} " in found.stderr
    first.communicate(timeout=30)
