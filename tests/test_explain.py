"""`explain`, `skips`, `events`: why is this window as it is, asked at three in the morning."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable

import pytest

from tests.conftest import PYTHON, Jobrun, is_alive, until

DAY = "2026-09-04T"
KEY = "sales:2026-09-04T10:00:00+00:00"
WINDOW = "2026-09-04T10:00:00+00:00/2026-09-04T11:00:00+00:00"
HOURLY = ("run", "sales", "--every", "1h", "--stdin", "null", "--")
FAIL = ("sh", "-c", 'echo reading; echo "no such table: orders" >&2; exit 3')
posix = pytest.mark.skipif(os.name == "nt", reason="kills as POSIX does")


def call(jobrun: Jobrun, at: str, *command: str) -> int:
    return jobrun(*HOURLY, *command, now=f"{DAY}{at}Z").status


def explain(jobrun: Jobrun, what: str, at: str = "12:07:00", job: str = "sales") -> str:
    """The screen as a pipe gets it; users, hosts and pids are not of this story."""
    shown = jobrun("explain", job, what, now=f"{DAY}{at}Z")
    assert shown.status == 0, shown.stderr
    text = shown.stdout.replace(str(jobrun.ledger), "L")
    text = re.sub(r"\S+@\S+ pid \d+, (cron|tty)", "WHO", text)
    return re.sub(r" after <?[\d.]+s", "", text)


def rows(screen: str) -> list[tuple[str, ...]]:
    """Of the table: time of day, what, how."""
    found = [re.split(" {2,}", line) for line in screen.splitlines()]
    told = [cells for cells in found if len(cells) == 4 and cells[0].endswith("+00:00")]
    return [(at[11:19], what, how) for at, what, how, _ in told]


def killed_with_its_wrapper(jobrun: Jobrun, at: str, meanwhile: Callable[[], None]) -> None:
    """kill -9 of jobrun while its command runs: nobody is left to say what became of it."""
    ready = jobrun.folder / "ready"
    running = jobrun.start(
        *HOURLY, PYTHON, "-m", "tests.children", "waits", str(ready), now=f"{DAY}{at}Z"
    )
    until(ready.exists, "the command")
    command = int(ready.read_text())
    meanwhile()
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=20)
    until(lambda: not is_alive(command), "the end of the command")


@pytest.fixture
def sales(jobrun: Jobrun) -> Jobrun:
    """One window that failed, was lost, skipped, retried, given up by hand, and run again."""
    assert call(jobrun, "11:01:00", *FAIL) == 3
    assert call(jobrun, "11:01:30", *FAIL) == 0  # retry-later
    killed_with_its_wrapper(
        jobrun, "11:10:00", lambda: assert_skipped(jobrun, "11:11:00", "11:12:00")
    )
    # The guardian lets the lock go when it has seen the command's end.
    lost = jobrun(*HOURLY[:-1], "--wait", "20s", "--", *FAIL, now=f"{DAY}11:15:00Z")
    assert (lost.status, "LOST" in lost.stderr) == (3, True)
    reason = ("--reason", "the source is down")
    assert jobrun("skip", "sales", KEY, *reason, now=f"{DAY}11:20:00Z").status == 0
    assert jobrun("rerun", "sales", KEY, "--", "true", now=f"{DAY}11:30:00Z").status == 0
    return jobrun


def assert_skipped(jobrun: Jobrun, *at: str) -> None:
    for instant in at:
        assert "reason=lock-held" in jobrun(*HOURLY, "true", now=f"{DAY}{instant}Z").stderr


@posix
def test_explain_tells_the_whole_story_of_a_window_in_order_of_time(sales: Jobrun) -> None:
    """Closed, failed, skipped, lost by a kill -9, retried, given up, rerun: to the letter."""
    held = r"lock-held: \S+ run 2, x2 until 2026-09-04T11:12:00\+00:00"
    screen = re.sub(held, "HELD", explain(sales, KEY))
    lines = [re.sub(" {2,}", "  ", line) for line in screen.splitlines()]
    expected = f"""\
ledger L  now 2026-09-04T12:07:00+00:00
{KEY}  processed
AT (UTC)  WHAT  HOW  BY
2026-09-04T11:00:00+00:00  closed  {WINDOW}  -
2026-09-04T11:01:00+00:00  run 1, try 1  exit 3  WHO
2026-09-04T11:01:30+00:00  skipped  retry-later  -
2026-09-04T11:10:00+00:00  run 2, try 2  lost: nobody saw its end  WHO
2026-09-04T11:11:00+00:00  skipped  HELD  -
2026-09-04T11:15:00+00:00  lost  run=2  -
2026-09-04T11:15:00+00:00  run 3, try 3  exit 3  WHO
2026-09-04T11:20:00+00:00  by-hand  skipped: the source is down  -
2026-09-04T11:30:00+00:00  run 4, try 4, rerun  ok  WHO
do  jobrun rerun sales {KEY}
"""
    assert expected.splitlines() == lines


@posix
def test_explain_as_json_has_the_same_story_with_all_that_the_rows_have(sales: Jobrun) -> None:
    """In the same order, each with what it is, and runs as `history` has them."""
    story = json.loads(sales("explain", "sales", KEY, "--json", now=f"{DAY}12:07:00Z").stdout)
    assert (story["key"], story["state"], story["attempts"]) == (KEY, "processed", 4)
    assert story["failures"] == 3
    told = [(entry["at"][11:19], entry["what"]) for entry in story["story"]]
    assert told == [
        ("11:00:00", "closed"),
        ("11:01:00", "run"),
        ("11:01:30", "skip"),
        ("11:10:00", "run"),
        ("11:11:00", "skip"),
        ("11:15:00", "event"),
        ("11:15:00", "run"),
        ("11:20:00", "event"),
        ("11:30:00", "run"),
    ]
    assert [entry["outcome"] for entry in story["story"] if entry["what"] == "run"] == [
        "failed", "lost", "failed", "succeeded",
    ]  # fmt: skip


def test_explain_of_a_failed_window_says_what_waits_what_comes_and_what_to_type(
    jobrun: Jobrun,
) -> None:
    """The last words of its command, how many wait for it, when it is tried again."""
    for at in ("10:01:00", "10:02:00", "10:05:00", "10:10:00", "10:20:00", "12:30:00"):
        assert call(jobrun, at, *FAIL) == 3
    expected = """\
ledger L  now 2026-09-04T12:31:00+00:00
sales:2026-09-04T09:00:00+00:00    FAILED, will be tried again
AT (UTC)                   WHAT             HOW                                                  BY
2026-09-04T10:00:00+00:00  closed           2026-09-04T09:00:00+00:00/2026-09-04T10:00:00+00:00  -
2026-09-04T10:01:00+00:00  run 1, try 1     exit 3                                   WHO
...                        4 tries between  exit 3 each                                          -
2026-09-04T12:30:00+00:00  run 6, try 6     exit 3                                   WHO
last words     no such table: orders    (jobrun logs 6)
waits for it   2 windows, 2026-09-04T10:00:00+00:00/2026-09-04T12:00:00+00:00
next           the next call (every 5m so far), not before 2026-09-04T13:02:00+00:00
do             jobrun retry sales sales:2026-09-04T09:00:00+00:00
               jobrun skip sales sales:2026-09-04T09:00:00+00:00 --reason "..."
"""
    found = explain(jobrun, f"{DAY}09:00Z", "12:31:00")
    assert re.sub(" {2,}", "  ", expected) == re.sub(" {2,}", "  ", found)


def test_explain_without_a_window_takes_the_one_that_needs_a_look(jobrun: Jobrun) -> None:
    """What status names: the oldest that is not finished, one that is dead, the first that waits;
    else the last that ran."""
    call(jobrun, "10:01:00", "true")
    nine = jobrun("explain", "sales", now=f"{DAY}10:59:59Z").stdout
    assert "sales:2026-09-04T09:00:00+00:00    processed\n" in nine
    assert f"{KEY}    pending\n" in jobrun("explain", "sales", now=f"{DAY}11:00:00Z").stdout
    call(jobrun, "11:01:00", *FAIL)
    assert f"{KEY}    FAILED" in jobrun("explain", "sales", now=f"{DAY}11:02:00Z").stdout
    jobrun.change(
        "update jobrun_window set state = 'dead', next_attempt_at = null where key = ?", KEY
    )
    assert f"{KEY}    dead" in jobrun("explain", "sales", now=f"{DAY}12:02:00Z").stdout


def test_a_window_that_waits_tells_for_which(jobrun: Jobrun) -> None:
    """It has no row yet: what held it up is told by the runs of the earlier one."""
    call(jobrun, "10:01:00", *FAIL)
    call(jobrun, "11:05:00", *FAIL)
    screen = explain(jobrun, f"{DAY}10:59Z", "11:06:00")
    nine = "2026-09-04T09:00:00+00:00/2026-09-04T10:00:00+00:00"
    assert f"{KEY}    pending\n" in screen
    assert rows(screen) == [
        ("11:00:00", "closed", WINDOW),
        ("11:05:00", "held up", f"by {nine}: exit 3"),
    ]
    assert f"waits for      {nine}, failed\n" in screen
    assert "               jobrun explain sales sales:2026-09-04T09:00:00+00:00\n" in screen


@pytest.mark.parametrize(
    ("at", "title", "line"),
    [
        ("12:30Z", "open", "next           the next call, not before 2026-09-04T13:00:00+00:00"),
        ("08:00Z", "before the first window of this job", "--from 2026-09-04T08:00:00Z --to T"),
        ("10:00Z", "skipped: not-latest", "given up"),
    ],
)
def test_a_window_without_a_run_has_a_story_too(
    jobrun: Jobrun, at: str, title: str, line: str
) -> None:
    """Open, given up in a gap, or never asked for."""
    latest = ("--catch-up", "latest", "--first", f"{DAY}09:00Z")
    jobrun(*HOURLY[:-1], *latest, "--", "true", now=f"{DAY}12:05:00Z")
    screen = explain(jobrun, f"{DAY}{at}")
    assert f"sales:2026-09-04T{at[:2]}:00:00+00:00    {title}\n" in screen
    assert line in screen


def test_explain_of_a_unit_of_key_takes_the_key_as_given_or_as_printed(jobrun: Jobrun) -> None:
    """It has no window: its runs, and what was skipped."""
    for at in ("12:00:00", "12:01:00"):
        jobrun("run", "drop", "--key", "a.csv", "--", "true", now=f"{DAY}{at}Z")
    screen = explain(jobrun, "a.csv", job="drop")
    assert screen == explain(jobrun, "drop:a.csv", job="drop")
    assert rows(screen) == [
        ("12:00:00", "run 1, try 1", "ok"),
        ("12:01:00", "skipped", "key-exists"),
    ]
    missing = jobrun("explain", "drop", "b.csv", now=f"{DAY}12:07:00Z")
    assert (missing.status, 'of key "b.csv"' in missing.stderr) == (2, True)


def test_kinds_and_reasons_that_explain_does_not_know_are_told(jobrun: Jobrun) -> None:
    """Those of its key, and those of the job while it was waiting; not what came later."""
    call(jobrun, "10:01:00", "true")
    jobrun.foreign_events = ("frozen-event", "molten-event", "later")
    skip = "INSERT INTO jobrun_skip (job, key, reason, detail, at, times, last_at) VALUES"
    event = "INSERT INTO jobrun_event (at, job, key, kind, detail) VALUES"
    for minute, key, word in (("11:02", None, "frozen"), ("11:03", KEY, "molten")):
        at = f"{DAY}{minute}:00+00:00"
        jobrun.change(f"{skip} ('sales', ?, ?, 'up=x', ?, 1, ?)", key, word, at, at)
        jobrun.change(f"{event} (?, 'sales', ?, ?, 'by anna')", at, key, f"{word}-event")
    call(jobrun, "11:05:00", "true")
    jobrun.change(f"{event} (?, 'sales', NULL, 'later', 'x')", f"{DAY}11:30:00+00:00")
    assert rows(explain(jobrun, KEY))[1:] == [
        ("11:02:00", "skipped", "frozen: up=x"),
        ("11:02:00", "frozen-event", "by anna"),
        ("11:03:00", "skipped", "molten: up=x"),
        ("11:03:00", "molten-event", "by anna"),
        ("11:05:00", "run 2, try 1", "ok"),
    ]


def test_many_skips_of_one_reason_are_one_row(jobrun: Jobrun) -> None:
    """A night of held locks, a holder each, must not hide the runs."""
    call(jobrun, "10:01:00", "true")
    for minute in range(1, 9):
        at = f"{DAY}11:{minute:02}:00+00:00"
        jobrun.change(
            "INSERT INTO jobrun_skip (job, reason, detail, at, times, last_at)"
            " VALUES ('sales', 'lock-held', ?, ?, 1, ?)",
            f"db1:{minute}", at, at,
        )  # fmt: skip
    assert rows(explain(jobrun, KEY))[1:] == [
        ("11:01:00", "skipped", f"lock-held: 8 different ones, x8 until {DAY}11:08:00+00:00")
    ]


def test_a_story_that_is_too_long_says_so(jobrun: Jobrun) -> None:
    """What is read is bounded, and where the rest is to be found is said."""
    call(jobrun, "11:01:00", "true")
    jobrun.change(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 1001)"
        " INSERT INTO jobrun_event (at, job, key, kind, detail)"
        f" SELECT '{DAY}11:02:00+00:00', 'sales', '{KEY}', 'set', i FROM n"
    )
    screen = explain(jobrun, KEY)
    assert (len(rows(screen)), "the oldest 1000 are shown" in screen) == (1002, True)


def test_skips_lists_what_did_not_run(jobrun: Jobrun) -> None:
    """Newest first, repeats folded; all jobs with their names, or one."""
    call(jobrun, "11:01:00", *FAIL)
    for at in ("11:01:10", "11:01:20"):
        call(jobrun, at, *FAIL)
    jobrun("run", "drop", "--key", "k", "--", "true", now=f"{DAY}11:02:00Z")
    jobrun("run", "drop", "--key", "k", "--", "true", now=f"{DAY}11:03:00Z")
    every = jobrun("skips", now=f"{DAY}12:00:00Z").stdout.splitlines()
    assert every[1].split() == ["SKIPPED", "JOB", "KEY", "TIMES", "LAST", "(UTC)", "DETAIL"]
    assert [line.split()[:4] for line in every[2:]] == [
        ["key-exists", "drop", "drop:k", "1"],
        ["retry-later", "sales", KEY, "2"],
    ]
    assert jobrun("skips", "sales", "-n", "1", now=f"{DAY}12:00:00Z").stdout.count("\n") == 3
    found = json.loads(jobrun("skips", "sales", "--json").stdout)
    assert [(skip["reason"], skip["times"]) for skip in found["skips"]] == [("retry-later", 2)]


def test_events_lists_what_changed(jobrun: Jobrun) -> None:
    """Newest first, and the oldest are left out with a word."""
    call(jobrun, "11:01:00", "true")
    for hour in (13, 14):
        when = ("--from", f"{DAY}{hour - 2}:00Z", "--to", f"{DAY}{hour - 1}:00Z")
        jobrun("skip", "sales", *when, "--reason", f"no {hour}", now=f"{DAY}{hour}:01:00Z")
    found = jobrun("events", "sales", now=f"{DAY}15:00:00Z").stdout.splitlines()
    assert [line[:25] for line in found[2:]] == [f"{DAY}{hour}:01:00+00:00" for hour in (14, 13)]
    assert [line.partition("skipped: ")[2] for line in found[2:]] == ["no 14", "no 13"]
    cut = jobrun("events", "-n", "1", now=f"{DAY}15:00:00Z").stdout.splitlines()
    assert cut[1].split()[:4] == ["EVENT", "(UTC)", "JOB", "KIND"]
    assert cut[-1] == "older events are left out: --limit 10"
    assert len(json.loads(jobrun("events", "--json").stdout)["events"]) == 2


def test_the_story_of_a_window_that_waited_for_another_job_and_for_a_person(
    jobrun: Jobrun,
) -> None:
    """Upstream late, then paused, resumed, done: each by what its own part has written."""

    def called(at: str, name: str, *after: str) -> None:
        jobrun("run", name, "--every", "1h", *after, "--", "true", now=f"{DAY}{at}Z", input=b"")

    after = ("--after", "up")
    called("11:01", "up")
    called("11:02", "sales", *after)
    for at in ("12:01", "12:03"):
        called(at, "sales", *after)
    jobrun("pause", "sales", "--reason", "source down", now=f"{DAY}12:05Z")
    called("12:06", "sales", *after)
    waiting = explain(jobrun, f"{DAY}11:00Z")
    assert "next           the job is paused " in waiting
    assert "do             jobrun resume sales\n" in waiting
    called("12:10", "up")
    jobrun("resume", "sales", now=f"{DAY}12:15Z")
    called("12:20", "sales", *after)
    told = rows(explain(jobrun, f"{DAY}11:00Z", "12:30:00"))
    assert [(at[:5], what, how.partition(":")[0].partition(" ")[0]) for at, what, how in told] == [
        ("12:00", "closed", "2026-09-04T11"),
        ("12:01", "skipped", "upstream-pending"),
        ("12:05", "paused", "by"),
        ("12:06", "skipped", "paused"),
        ("12:15", "resumed", "by"),
        ("12:20", "run 4, try 1", "ok"),
    ]


def next_of(screen: str) -> str:
    """What the screen says is next; nothing where it says nothing."""
    found = [line[15:] for line in screen.splitlines() if line.startswith("next  ")]
    return found[0] if found else ""


@posix
@pytest.mark.parametrize(
    ("options", "fate", "following"),
    [
        ((), "the next call runs it again", "the next call"),
        (
            ("--on-lost", "hold"),
            "the next call holds it for a person",
            "no call, before a person has looked at the one that is held",
        ),
        (
            ("--max-attempts", "1"),
            "its attempts are used up, the next call makes it dead",
            "no call, its attempts are used up",
        ),
        (
            ("--retries", "1", "--retry-delay", "5m"),
            "the next call runs it again",
            "the next call",
        ),
    ],
)
def test_what_becomes_of_a_lost_window_is_said_alike_and_as_it_will_be(
    jobrun: Jobrun, options: tuple[str, ...], fate: str, following: str
) -> None:
    """By explain and by status, as the options of the last call have it."""
    argv = (*HOURLY[:-1], *options, "--")
    ready = jobrun.folder / "ready"
    waits = ("sh", "-c", "echo > ready; exec sleep 600")
    running = jobrun.start(*argv, *waits, now=f"{DAY}11:10:00Z")
    until(ready.exists, "the command")
    running.kill()
    running.communicate(timeout=20)
    until(lambda: "lost" in jobrun("status", now=f"{DAY}11:20:00Z").stdout, "its end")
    assert f"processes are gone; {fate}\n" in jobrun("status", now=f"{DAY}11:20:00Z").stdout
    screen = explain(jobrun, KEY, "11:20:00")
    assert f"{KEY}    lost, {fate}\n" in screen
    assert next_of(screen).startswith(following)
    jobrun("pause", "sales", now=f"{DAY}11:21:00Z")
    paused = jobrun("status", now=f"{DAY}11:22:00Z").stdout
    assert fate.replace("the next call runs", "a call after the pause runs") in paused


def test_a_window_behind_another_one_is_next_when_that_is(jobrun: Jobrun) -> None:
    """Not at the next call, while the one before it is not to be tried yet."""
    delay = (*HOURLY[:-1], "--retry-delay", "30m", "--")
    jobrun(*delay, *FAIL, now=f"{DAY}11:55:00Z")
    screen = explain(jobrun, f"{DAY}11:00Z", "12:05:00")
    assert next_of(screen) == f"the next call, not before {DAY}12:25:00+00:00"
    assert next_of(explain(jobrun, f"{DAY}11:00Z", "12:30:00")) == "the next call"


@posix
def test_a_window_behind_one_that_runs_is_next_after_it(jobrun: Jobrun) -> None:
    """The next call would only be told that the lock is held."""
    screens: list[str] = []
    killed_with_its_wrapper(
        jobrun, "11:10:00", lambda: screens.append(explain(jobrun, f"{DAY}11:00Z", "12:05:00"))
    )
    assert next_of(screens[0]) == "once the one before it has ended, which is running"


def test_a_window_that_an_upstream_keeps_from_its_turn_has_no_next(jobrun: Jobrun) -> None:
    """Its own, or that of one before it, which is begun first."""

    def called(at: str, name: str, *options: str, command: str = "true") -> None:
        jobrun("run", name, "--every", "1h", *options, "--", command, now=f"{DAY}{at}Z")

    called("10:01", "up")
    called("10:02", "sales", "--after", "up")
    called("11:01", "up", "--max-attempts", "1", command="false")
    called("11:02", "sales", "--after", "up")
    called("12:01", "up")
    for window in (f"{DAY}10:00Z", f"{DAY}11:00Z"):
        screen = explain(jobrun, window, "12:05:00")
        assert "upstream       up: dead 09-04 10:00 - 11:00\n" in screen
        assert next_of(screen) == "no call, before a person has looked at the upstream"
    called("12:10", "late", "--after", "up")
    called("13:05", "late", "--after", "up")
    waiting = jobrun("explain", "late", f"{DAY}12:00Z", now=f"{DAY}13:06Z").stdout
    assert next_of(waiting) == "a call once the upstream is as far"
