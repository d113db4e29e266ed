"""A clock that was ahead for some calls, and is right again: no job stops without a word.

What failed or died on it had not closed; it is void, and its time is due as if it had not been.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.conftest import Jobrun, until
from tests.test_requirements import hold

HOURLY, DAILY = ("--every", "1h"), ("--every", "1d")
BEFORE, AHEAD, NOW = "2026-09-04T10:05:00Z", "2026-09-24T10:05:00Z", "2026-09-04T13:05:00Z"
DONE, FAILS = ("--", "true"), ("--", "false")
STATES = 'select start, "end", state, attempts from jobrun_window order by start'
MERGED = ("2026-09-04T10:00:00+00:00/2026-09-24T10:00:00+00:00", 480)

Row = tuple[str, str, str, int]


def hours(*of: tuple[int, str, int]) -> list[Row]:
    """Windows of an hour on 2026-09-04 that start then, each with its state and its tries."""
    return [(at(hour), at(hour + 1), state, tries) for hour, state, tries in of]


def at(hour: int) -> str:
    return f"2026-09-04T{hour:02}:00:00+00:00"


def rows(jobrun: Jobrun) -> Sequence[tuple[object, ...]]:
    return jobrun.query(STATES)


def watermark(jobrun: Jobrun) -> object:
    return jobrun.query("select watermark from jobrun_job")[0][0]


@pytest.fixture
def ahead(jobrun: Jobrun) -> Jobrun:
    """Done to 10:00; then, on a clock 20 days ahead, the rest as one window failed."""
    assert jobrun("run", "a", *HOURLY, *DONE, now=BEFORE).status == 0
    assert jobrun("run", "a", *HOURLY, "--catch-up", "merge", *FAILS, now=AHEAD).status == 1
    assert rows(jobrun)[1] == (at(10), "2026-09-24T10:00:00+00:00", "failed", 1)
    return jobrun


def told(line: str, span: str, windows: int, now: str) -> bool:
    """The WARNING, as it is printed."""
    start = span.partition("/")[0]
    return line == (
        f"jobrun: WARNING job=a what=clock-set-back window={span} key=a:{start}"
        f" windows={windows} now={now} at={now}"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), hours((9, "processed", 1), (10, "processed", 2), (11, "processed", 1),
                   (12, "processed", 1))),
        (("--on-failure", "continue"), hours((9, "processed", 1), (10, "processed", 2),
                                             (11, "processed", 1), (12, "processed", 1))),
        (("--catch-up", "merge"), [*hours((9, "processed", 1)),
                                   (at(10), at(13), "processed", 2)]),
        (("--max-windows", "1"), hours((9, "processed", 1), (10, "processed", 2))),
    ],
)  # fmt: skip
def test_a_merged_window_of_the_clock_ahead_is_void(
    ahead: Jobrun, options: tuple[str, ...], expected: list[Row]
) -> None:
    """It stopped the job for 20 days, in silence: now what has closed runs, quiet or not."""
    found = ahead("run", "a", *HOURLY, "-q", *options, *DONE, now=NOW)
    assert found.status == 0
    assert told(found.lines[0], *MERGED, NOW)
    assert found.lines[1].startswith("jobrun: hint: tried on a clock that was ahead of this one, ")
    assert [line.split()[1] for line in found.lines[2:]] == ["PROCESSED"]  # its recovery
    assert expected == rows(ahead)
    assert expected[-1][1] == watermark(ahead)
    again = ahead("run", "a", *HOURLY, *DONE, now="2026-09-04T14:05:00Z")
    assert again.status == 0
    assert watermark(ahead) == at(14)
    assert "clock-set-back" not in again.stderr


def test_latest_takes_the_newest_of_it(ahead: Jobrun) -> None:
    """The others are given up as they would have been, in one gap."""
    found = ahead("run", "a", *HOURLY, "--catch-up", "latest", *DONE, now=NOW)
    assert found.status == 0
    assert told(found.lines[0], *MERGED, NOW)
    assert ahead.query('select start, "end", windows, void from jobrun_gap') == [
        (at(10), at(12), 2, 0)
    ]
    assert rows(ahead)[-1] == (at(12), at(13), "processed", 1)
    assert watermark(ahead) == at(13)


def test_it_fails_again_within_what_has_closed(ahead: Jobrun) -> None:
    """Its tries and failures go on counting, and now it waits for no more than its delay."""
    assert ahead("run", "a", *HOURLY, *FAILS, now=NOW).status == 1
    assert rows(ahead) == hours((9, "processed", 1), (10, "failed", 2))
    assert ahead.query("select failures, windows from jobrun_window where state = 'failed'") == [
        (2, 1)
    ]
    waits = ahead("run", "a", *HOURLY, *DONE, now="2026-09-04T13:06:00Z")
    assert " reason=retry-later " in waits.stderr
    assert ahead("run", "a", *HOURLY, *DONE, now="2026-09-04T13:08:00Z").status == 0
    assert watermark(ahead) == at(13)


def test_a_day_that_failed_before_it_was_over(jobrun: Jobrun) -> None:
    """A single window, by a clock 20 hours ahead: once, when it has closed."""
    assert jobrun("run", "a", *DAILY, *DONE, now=BEFORE).status == 0
    assert jobrun("run", "a", *DAILY, *FAILS, now="2026-09-05T06:05:00Z").status == 1
    day = "2026-09-04T00:00:00+00:00/2026-09-05T00:00:00+00:00"
    found = jobrun("run", "a", *DAILY, *DONE, now=BEFORE)
    assert found.status == 0
    assert told(found.lines[0], day, 1, BEFORE)
    assert rows(jobrun)[1] == (*day.split("/"), "void", 1)
    silent = jobrun("run", "a", *DAILY, *DONE, now="2026-09-04T11:05:00Z")
    assert (silent.status, silent.stderr) == (0, "")
    assert jobrun("status", "--check", now="2026-09-04T11:05:00Z").status == 1
    assert jobrun("run", "a", *DAILY, *DONE, now="2026-09-05T00:05:00Z").status == 0
    assert rows(jobrun)[1] == (*day.split("/"), "processed", 2)
    assert jobrun("status", "--check", now="2026-09-05T00:06:00Z").status == 0


def test_a_run_that_died_on_the_clock_ahead(jobrun: Jobrun) -> None:
    """It is lost, and its window void: what has closed of it runs."""
    assert jobrun("run", "a", *HOURLY, *DONE, now=BEFORE).status == 0
    process = hold(jobrun, "a", *HOURLY, "--catch-up", "merge", now=AHEAD)
    process.kill()
    process.communicate()
    until(lambda: "lock: free" in jobrun("plan", "a", now=NOW).stdout, "the guardian to end")
    found = jobrun("run", "a", *HOURLY, "--wait", "20", *DONE, now=NOW)
    assert found.status == 0
    assert found.lines[0].startswith("jobrun: LOST job=a ")
    assert told(found.lines[1], *MERGED, NOW)
    assert rows(jobrun) == hours(
        (9, "processed", 1), (10, "processed", 2), (11, "processed", 1), (12, "processed", 1)
    )
    assert jobrun.query("select outcome from jobrun_run order by id limit 2") == [
        ("succeeded",),
        ("lost",),
    ]


def test_what_was_processed_around_it_is_not_done_again(jobrun: Jobrun) -> None:
    """Two stretches about a window that was run by hand: the first succeeds, the second fails."""
    assert jobrun("run", "a", *HOURLY, *DONE, now=BEFORE).status == 0
    by_hand = ("--window", "2026-09-04T11:00Z")
    assert jobrun("run", "a", *HOURLY, *by_hand, *DONE, now="2026-09-04T12:05:00Z").status == 0
    only_ten = ("--", "sh", "-c", f'[ "$JOBRUN_WINDOW_START" = {at(10)} ]')
    assert jobrun("run", "a", *HOURLY, "--catch-up", "merge", *only_ten, now=AHEAD).status == 1
    found = jobrun("run", "a", *HOURLY, *DONE, now="2026-09-04T13:05:00Z")
    span = f"{at(12)}/2026-09-24T10:00:00+00:00"
    assert told(found.lines[0], span, 478, NOW)
    assert rows(jobrun) == hours(*((hour, "processed", 1) for hour in (9, 10, 11)),
                                 (12, "processed", 2))  # fmt: skip


def test_what_lies_ahead_as_a_whole_is_void_too(jobrun: Jobrun) -> None:
    """By hand on the clock ahead: nobody waits for it, and it is done when it has closed."""
    assert jobrun("run", "a", *HOURLY, *DONE, now=BEFORE).status == 0
    far = ("--window", "2026-09-24T09:00Z")
    assert jobrun("run", "a", *HOURLY, *far, *FAILS, now=AHEAD).status == 1
    found = jobrun("run", "a", *HOURLY, *DONE, now="2026-09-04T11:05:00Z")
    span = "2026-09-24T09:00:00+00:00/2026-09-24T10:00:00+00:00"
    assert told(found.lines[0], span, 1, "2026-09-04T11:05:00Z")
    assert watermark(jobrun) == at(11)
    assert jobrun("status", "--check", now="2026-09-04T11:06:00Z").status == 0


@pytest.mark.parametrize("minutes", [1, 5])
def test_a_clock_that_was_corrected_by_minutes_is_no_news(jobrun: Jobrun, minutes: int) -> None:
    """The row stays as it is, for these minutes."""
    assert jobrun("run", "a", *HOURLY, *DONE, now=BEFORE).status == 0
    assert jobrun("run", "a", *HOURLY, *FAILS, now="2026-09-04T11:00:00Z").status == 1
    early = jobrun("run", "a", *HOURLY, *DONE, now=f"2026-09-04T10:{60 - minutes}:00Z")
    assert early.status == 0
    assert [line.split()[3] for line in early.lines] == ["reason=retry-later"]
    assert rows(jobrun) == hours((9, "processed", 1), (10, "failed", 1))


def test_a_gap_of_the_clock_ahead_is_no_silence_either(jobrun: Jobrun) -> None:
    """It moved the watermark: 75 and the repair, which gives up nothing of it (R38, R39)."""
    assert jobrun("run", "a", *HOURLY, *DONE, now=BEFORE).status == 0
    assert jobrun("run", "a", *HOURLY, "--catch-up", "latest", *FAILS, now=AHEAD).status == 1
    found = jobrun("run", "a", *HOURLY, *DONE, now=NOW)
    assert found.status == 75
    verb = ("watermark", "a", "--set", "2026-09-04T10:00:00Z", "--reason", "clock")
    assert f"jobrun {' '.join(verb[:4])} --reason" in found.stderr
    assert jobrun(*verb, now=NOW).status == 0
    assert jobrun("run", "a", *HOURLY, *DONE, now=NOW).status == 0
    assert watermark(jobrun) == at(13)
    assert jobrun.query("select count(*) from jobrun_window where state = 'processed'") == [(4,)]


def test_what_the_command_marked_itself_stays_done(jobrun: Jobrun) -> None:
    """Processed is processed, on whatever clock: 75 and the repair, nothing is run twice."""
    assert jobrun("run", "a", *HOURLY, *DONE, now=BEFORE).status == 0
    mark = (
        "import os, sqlite3, sys, jobrun;"
        "c = sqlite3.connect(os.environ['JOBRUN_LEDGER'], isolation_level=None);"
        "c.execute('BEGIN IMMEDIATE'); jobrun.done(c); c.execute('COMMIT'); sys.exit(1)"
    )
    marks = ("--catch-up", "merge", "--", "python3", "-c", mark)
    env = {"PATH": jobrun.environment["PATH"]}
    assert jobrun("run", "a", *HOURLY, *marks, now=AHEAD, env=env).status == 1
    assert rows(jobrun)[1][2:] == ("processed", 1)
    assert jobrun("run", "a", *HOURLY, *DONE, now=NOW).status == 75
    assert rows(jobrun)[1][2:] == ("processed", 1)


def test_every_screen_tells_the_same(ahead: Jobrun) -> None:
    """What status and windows count, plan and a dry run list, and the call does."""
    call = ("run", "a", *HOURLY)
    assert ahead("status", "--check", now=NOW).status == 1
    status = json.loads(ahead("status", "--json", now=NOW).stdout)
    assert status["jobs"][0]["behind"] == {"windows": 3, "seconds": 10800}
    seen = json.loads(ahead("windows", "a", "--json", now=NOW).stdout)
    assert seen["to_do"] == 3
    planned = json.loads(ahead("plan", "a", "--json", now=NOW).stdout)
    (merged,) = planned["runs"]
    assert (merged["start"], merged["end"], merged["windows"]) == (at(10), at(13), 3)
    assert planned["notes"][0]["what"] == "clock-set-back"
    dry = json.loads(ahead(*call, "--dry-run", "--log-format=json", *DONE, now=NOW).stdout)
    assert [run["start"] for run in dry["runs"]] == [at(10), at(11), at(12)]
    assert rows(ahead)[1][2] == "failed"
    found = ahead(*call, *DONE, now=NOW)
    assert [line.split()[1] for line in found.lines] == ["WARNING", "hint:", *["PROCESSED"] * 3]
    assert ahead("status", "--check", now=NOW).status == 0
    assert ahead("windows", "a", now=NOW).stdout.endswith("\ncomplete\n")
    shown = ahead("show", "a", now=NOW).stdout
    assert "void: 2026-09-04T10:00:00Z to 2026-09-24T10:00:00Z" in shown


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (("skip", "a", "2026-09-04T10:00Z", "--reason", "no"),
         hours((9, "processed", 1), (10, "skipped", 1))),
        (("skip", "a", "--from", "2026-09-04T10:00Z", "--to", "2026-09-04T11:00Z", "--reason=no"),
         [*hours((9, "processed", 1)), (at(10), "2026-09-24T10:00:00+00:00", "void", 1)]),
        (("watermark", "a", "--set", "2026-09-04T11:00Z", "--reason", "no"),
         [*hours((9, "processed", 1)), (at(10), "2026-09-24T10:00:00+00:00", "void", 1)]),
        (("run", "a", *HOURLY, "--window", "2026-09-04T10:00Z", *DONE),
         hours((9, "processed", 1), (10, "processed", 2))),
        (("rerun", "a", "2026-09-04T10:00Z", *DONE),
         hours((9, "processed", 1), (10, "processed", 2))),
    ],
)  # fmt: skip
def test_by_hand_it_is_in_nobodys_way(
    ahead: Jobrun, verb: tuple[str, ...], expected: list[Row]
) -> None:
    """What it kept was refused by one verb, and open to another."""
    found = ahead(*verb, now=NOW)
    assert found.status == 0
    assert any(told(line, *MERGED, NOW) for line in found.lines)
    assert expected == rows(ahead)
    assert watermark(ahead) == at(11)
    assert ahead("run", "a", *HOURLY, *DONE, now=NOW).status == 0
    assert watermark(ahead) == at(13)
    assert ahead.query("select max(windows) from jobrun_window where state <> 'void'") == [(1,)]
    assert ahead("doctor", now=NOW).stdout.count("FAIL") == 0


def test_a_range_that_has_not_closed_is_not_done_again(jobrun: Jobrun) -> None:
    """Done to 20:00 by a clock that was ahead: what is open by the right one is not run."""
    assert jobrun("run", "a", *HOURLY, *DONE, now=BEFORE).status == 0
    late = ("--catch-up", "latest")
    assert jobrun("run", "a", *HOURLY, *late, *DONE, now="2026-09-04T20:05:00Z").status == 0
    before = rows(jobrun)
    reach = ("--from", "2026-09-04T12:00Z", "--to", "2026-09-04T15:00Z")
    refused = jobrun("backfill", "a", *reach, now=NOW)
    assert (refused.status, refused.lines[1:]) == (2, [
        "jobrun: error: --to 2026-09-04T15:00Z is after now, 2026-09-04T13:05:00Z",
        "jobrun: hint: --to 2026-09-04T13:00:00Z",
    ])  # fmt: skip
    assert rows(jobrun) == before
    closed = jobrun(
        "backfill", "a", "--from", "2026-09-04T12:00Z", "--to", "2026-09-04T13:00Z", now=NOW
    )
    assert closed.status == 0
    assert hours((12, "processed", 1))[0] in rows(jobrun)


# What was tried on the clock ahead may be in any state; by the right one it has not closed.
OPEN_KEY = "a:2026-09-24T09:00:00+00:00"
NOT_CLOSED = "jobrun: SKIPPED job=a reason=not-closed key="


def test_retry_does_not_run_what_is_void(ahead: Jobrun) -> None:
    """It said that it is void, ran it up to the day ahead, and the job stood until then."""
    found = ahead("retry", "a", *DONE, now=NOW)
    assert found.status == 0
    assert told(found.lines[1], *MERGED, NOW)
    assert " NOTE job=a what=nothing-failed " in found.lines[3]
    assert (watermark(ahead), rows(ahead)[1][2:]) == (at(10), ("void", 1))
    assert ahead("run", "a", *HOURLY, *DONE, now=NOW).status == 0
    assert watermark(ahead) == at(13)


def test_retry_runs_what_has_closed_of_what_failed(jobrun: Jobrun) -> None:
    """Hours that failed on the right clock, and on one that was ahead: only the former run."""
    call = ("run", "a", *HOURLY, "--on-failure", "continue", "--max-windows", "30", *FAILS)
    assert jobrun(*call, now=BEFORE).status == 1
    assert jobrun(*call, now="2026-09-04T15:05:00Z").status == 1
    assert [row[2:] for row in rows(jobrun)] == [("failed", 2)] + [("failed", 1)] * 5
    found = jobrun("retry", "a", "2026-09-04T14:00Z", *DONE, now=NOW)
    assert (found.status, found.lines[-1]) == (
        0,
        f"{NOT_CLOSED}a:{at(14)} next=2026-09-04T15:00:00Z at={NOW}",
    )
    assert jobrun("retry", "a", *DONE, now=NOW).status == 0
    states = [state for _, _, state, _ in rows(jobrun)]
    assert states == ["processed"] * 4 + ["void"] * 2
    assert watermark(jobrun) == at(13)


@pytest.mark.parametrize("state", ["held", "dead"])
@pytest.mark.parametrize("when", [(), (OPEN_KEY,)])
def test_retry_does_not_run_what_is_held_or_dead_and_not_closed(
    ahead: Jobrun, state: str, when: tuple[str, ...]
) -> None:
    """A person decides about it, but not before its time."""
    ahead.change(
        "insert into jobrun_window (job, key, start, \"end\", state, attempts, failures, windows,"
        " partial, token, changed_at) values ('a', ?, ?, ?, ?, 1, 1, 1, 0, 1, ?)",
        OPEN_KEY, OPEN_KEY[2:], MERGED[0].partition("/")[2], state, at(9),
    )  # fmt: skip
    ahead.change("delete from jobrun_window where start = ?", at(10))
    found = ahead("retry", "a", *when, *DONE, now=NOW)
    line = f"{NOT_CLOSED}{OPEN_KEY} next=2026-09-24T10:00:00Z at={NOW}"
    assert (found.status, found.lines[-1]) == (0, line)
    assert (rows(ahead)[1][2:], watermark(ahead)) == ((state, 1), at(10))


def test_retry_waits_for_the_lag_too(jobrun: Jobrun) -> None:
    """It has grown since the window failed: what `rerun` says, and beside what does run."""
    call = ("run", "a", *HOURLY, "--on-failure", "continue", "--first", "2026-09-04T11:00Z")
    assert jobrun(*call, *FAILS, now=NOW).status == 1
    found = jobrun("retry", "a", "--lag", "30m", *DONE, now=NOW)
    assert [line.split()[1] for line in found.lines[-2:]] == ["PROCESSED", "SKIPPED"]
    assert found.lines[-1] == f"{NOT_CLOSED}a:{at(12)} next=2026-09-04T13:30:00Z at={NOW}"
    assert [row[2:] for row in rows(jobrun)] == [("processed", 2), ("failed", 1)]
