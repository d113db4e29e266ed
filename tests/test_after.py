"""`--after`: windows of a job wait until another has done the same time (R44)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from jobrun import links
from jobrun.errors import UsageError
from tests.conftest import PYTHON, Jobrun, Result

HOURLY = ("--every", "1h")
DAILY = ("--every", "1d")
SHOW = ("--", PYTHON, "-c", "import os; print(os.environ['JOBRUN_WINDOW_START'])")
DAY = "2026-09-04"
FIVE_PAST = f"{DAY}T13:05Z"


@pytest.fixture
def jobrun(tmp_path: Path) -> Iterator[Jobrun]:
    """Calls as forks of the test, where there are forks: most tests here make several."""
    if sys.platform == "win32":
        yield Jobrun(tmp_path)
        return
    from tests.forked import Forked, folder_in_memory

    with TemporaryDirectory(prefix="jobrun-after-", dir=folder_in_memory()) as folder:
        yield Forked(Path(folder))


def hour(text: str) -> str:
    """`10` as the whole hour of that day."""
    return f"{DAY}T{text}:00:00+00:00"


def started(result: Result) -> list[str]:
    """The starts of the windows that ran."""
    return result.stdout.splitlines()


def fields(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def skip_of(result: Result) -> dict[str, str]:
    (line,) = [line for line in result.lines if " SKIPPED " in line]
    return fields(line)


def upstream_at_eleven(jobrun: Jobrun) -> None:
    """T37: `up` is done to 11:00, and 12:00 to 13:00 is processed above a hole."""
    first = ("run", "up", *HOURLY, "--first", f"{DAY}T10:00Z")
    assert jobrun(*first, *SHOW, now=f"{DAY}T11:05Z").status == 0
    above = ("run", "up", *HOURLY, "--window", f"{DAY}T12:00Z")
    assert jobrun(*above, *SHOW, now=FIVE_PAST).status == 0


def after(jobrun: Jobrun, *more: str, job: str = "j", now: str = FIVE_PAST) -> Result:
    argv = ("run", job, *HOURLY, "--first", f"{DAY}T10:00Z", "--after", "up", *more)
    return jobrun(*argv, *SHOW, now=now)


# -- how far the other one is ----------------------------------------------------------------------


@pytest.mark.parametrize("on_failure", ["stop", "continue"])
def test_T37_what_the_upstream_has_done_runs_and_the_rest_waits(
    jobrun: Jobrun, on_failure: str
) -> None:
    """T37, R44: one of three windows; the next waits, with the upstream's watermark; as planned."""
    upstream_at_eleven(jobrun)
    call = ("--on-failure", on_failure)
    plan = json.loads(after(jobrun, *call, "--dry-run", "--log-format", "json").stdout)
    found = after(jobrun, *call)
    assert (found.status, started(found)) == (0, [hour("10")])
    assert skip_of(found) == {
        "job": "j", "reason": "upstream-pending", "key": f"j:{hour('11')}", "up": "up",
        "watermark": f"{DAY}T11:00:00Z", "at": f"{DAY}T13:05:00Z",
    }  # fmt: skip
    assert [run["start"] for run in plan["runs"]] == [hour("10")]
    (skip,) = plan["skips"]
    assert (skip["reason"], skip["up"], skip["watermark"]) == ("upstream-pending", "up", hour("11"))
    assert "BACKLOG" not in found.stderr
    mark = jobrun.query("select watermark from jobrun_job where name = 'j'")
    assert mark == [(hour("11"),)]


def test_a_call_that_only_waits_gives_the_busy_exit(jobrun: Jobrun) -> None:
    """Nothing ran because it could not be now: 0, or what --busy-exit says; folded in one row."""
    upstream_at_eleven(jobrun)
    after(jobrun)
    assert after(jobrun).status == 0
    again = after(jobrun, "--busy-exit", "9")
    assert (again.status, started(again)) == (9, [])
    skips = jobrun.query("select key, reason, detail, times from jobrun_skip where job = 'j'")
    assert skips == [(f"j:{hour('11')}", "upstream-pending", "up", 3)]


def test_what_waits_runs_once_the_upstream_has_come(jobrun: Jobrun) -> None:
    """The hole above 11:00 is filled, and both windows behind it follow in the same call."""
    upstream_at_eleven(jobrun)
    after(jobrun)
    jobrun("run", "up", *HOURLY, *SHOW, now=FIVE_PAST)
    assert started(after(jobrun)) == [hour("11"), hour("12")]
    idle = after(jobrun, "-v")
    assert skip_of(idle)["reason"] == "no-closed-window"


def test_a_cap_leaves_a_backlog_and_no_word_of_the_upstream(jobrun: Jobrun) -> None:
    """What the next call can do is BACKLOG; what it can't is the upstream's."""
    jobrun("run", "up", *HOURLY, "--first", f"{DAY}T09:00Z", *SHOW, now=f"{DAY}T12:05Z")
    capped = after(jobrun, "--max-windows", "1")
    assert started(capped) == [hour("10")]
    assert " BACKLOG job=j left=2 " in capped.stderr
    assert "upstream-pending" not in capped.stderr
    assert started(after(jobrun, "--max-windows", "1")) == [hour("11")]


def test_a_failed_window_is_tried_again_only_while_the_upstream_stands(jobrun: Jobrun) -> None:
    """R44 for holes too: once the upstream's window is given up, ours is not tried again."""
    jobrun("run", "up", *HOURLY, "--first", f"{DAY}T10:00Z", *SHOW, now=f"{DAY}T11:05Z")
    argv = ("run", "j", *HOURLY, "--after", "up", "--on-failure", "continue", "--", "false")
    assert jobrun(*argv, now=f"{DAY}T11:05Z").status == 1
    jobrun.change("update jobrun_window set state = 'skipped' where job = 'up'")
    found = jobrun(*argv, now=FIVE_PAST)
    assert skip_of(found)["reason"] == "upstream-failed"
    assert jobrun.query("select count(*) from jobrun_run where job = 'j'") == [(1,)]


# -- what it gave up ------------------------------------------------------------------------------

GAP = (
    'insert into jobrun_gap (job, start, "end", windows, reason, at, void)'
    " values ('up', ?, ?, 1, 'too-old', ?, 0)"
)


def give_up(jobrun: Jobrun, how: str) -> None:
    """`up` is done to 13:00, and 11:00 to 12:00 is not processed."""
    jobrun("run", "up", *HOURLY, "--first", f"{DAY}T10:00Z", *SHOW, now=FIVE_PAST)
    start = hour("11")
    if how in ("dead", "skipped"):
        jobrun.change(
            "update jobrun_window set state = ? where job = 'up' and start = ?", how, start
        )
        return
    jobrun.change("delete from jobrun_run where key = ?", f"up:{start}")
    jobrun.change("delete from jobrun_window where key = ?", f"up:{start}")
    if how == "gap":
        jobrun.change(GAP, start, hour("12"), start)


@pytest.mark.parametrize("how", ["dead", "skipped", "gap", "not-run"])
def test_what_the_upstream_gave_up_is_said_and_can_be_passed(jobrun: Jobrun, how: str) -> None:
    """R44: upstream-failed with the window and its state; `finished` is content with it."""
    give_up(jobrun, how)
    found = after(jobrun)
    assert (found.status, started(found)) == (0, [hour("10")])
    skip = skip_of(found)
    assert (skip["reason"], skip["up"], skip["state"]) == ("upstream-failed", "up", how)
    assert skip["up-window"] == f"{hour('11')}/{hour('12')}"
    again = f"backfill up --from {DAY}T11:00:00Z --to {DAY}T12:00:00Z"
    again = f"retry up {DAY}T11:00:00Z" if how == "dead" else again
    assert f"hint: jobrun {again}; or jobrun skip j j:{hour('11')} " in found.stderr
    assert after(jobrun, "--busy-exit", "9").status == 9
    finished = jobrun("run", "j", *HOURLY, "--after", "up:finished", *SHOW, now=FIVE_PAST)
    assert started(finished) == [hour("11"), hour("12")]


@pytest.mark.parametrize("how", ["dead", "skipped", "gap", "not-run"])
def test_it_is_told_once_though_quiet_hides_skips(jobrun: Jobrun, how: str) -> None:
    """A WARNING with the hint and an event, at the first call that meets it; another one anew."""
    give_up(jobrun, how)
    first = after(jobrun, "-q")
    assert f" WARNING job=j what=blocked key=j:{hour('11')} up=up " in first.stderr
    assert "jobrun: hint: " in first.stderr
    assert after(jobrun, "-q").stderr == ""
    assert "hint" not in after(jobrun).stderr
    events = "select key, detail from jobrun_event where job = 'j' and kind = 'blocked'"
    told = (f"j:{hour('11')}", f"up {hour('11')}/{hour('12')} {how}")
    assert jobrun.query(events) == [told]
    jobrun("skip", "j", f"j:{hour('11')}", "--reason", "x", now=FIVE_PAST)
    jobrun.change("update jobrun_window set state = 'skipped' where key = ?", f"up:{hour('12')}")
    assert "what=blocked" in after(jobrun, "-q").stderr
    assert len(jobrun.query(events)) == 2


@pytest.mark.parametrize("how", ["dead", "skipped", "gap", "not-run"])
def test_what_the_hint_says_lets_it_go_on(jobrun: Jobrun, how: str) -> None:
    """The upstream's window by hand, typed as it is shown, then ours in its turn."""
    give_up(jobrun, how)
    (hint,) = [line for line in after(jobrun).lines if line.startswith("jobrun: hint: ")]
    typed = hint.removeprefix("jobrun: hint: jobrun ").partition(";")[0]
    assert jobrun(*typed.split(), now=FIVE_PAST).status == 0
    assert started(after(jobrun)) == [hour("11"), hour("12")]


def test_the_hint_is_of_whole_windows_of_the_upstream(jobrun: Jobrun) -> None:
    """Its days are Berlin's and ours are not: only a boundary of its own can be typed."""
    berlin = ("run", "up", "--every", "1d", "--tz", "Europe/Berlin", "--first", "2026-09-02")
    noon = f"{DAY}T12:00Z"
    assert jobrun(*berlin, *SHOW, now=noon).status == 0
    ours = ("run", "j", *DAILY, "--first", "2026-09-01", "--after", "up")
    found = jobrun(*ours, *SHOW, now=noon)
    (hint,) = [line for line in found.lines if line.startswith("jobrun: hint: ")]
    typed = hint.removeprefix("jobrun: hint: jobrun ").partition(";")[0]
    assert typed == "backfill up --from 2026-08-31T22:00:00Z --to 2026-09-01T22:00:00Z"
    assert jobrun(*typed.split(), now=noon).status == 0
    assert started(jobrun(*ours, *SHOW, now=noon)) == [
        f"2026-09-0{d}T00:00:00+00:00" for d in (1, 2)
    ]


def test_ours_can_be_skipped_instead(jobrun: Jobrun) -> None:
    """The other way out: our window not at all."""
    give_up(jobrun, "skipped")
    after(jobrun)
    jobrun("skip", "j", f"j:{hour('11')}", "--reason", "no data", now=FIVE_PAST)
    assert started(after(jobrun)) == [hour("12")]


def test_a_window_that_may_still_be_tried_is_waited_for(jobrun: Jobrun) -> None:
    """A failed one of the upstream is pending, with its state; once it has run, ours follows."""
    jobrun("run", "up", *HOURLY, "--first", f"{DAY}T10:00Z", "--", "false", now=f"{DAY}T11:05Z")
    skip = skip_of(after(jobrun))
    assert (skip["reason"], skip["watermark"]) == ("upstream-pending", f"{DAY}T10:00:00Z")
    assert (skip["state"], skip["up-window"]) == ("failed", f"{hour('10')}/{hour('11')}")
    jobrun("run", "up", *HOURLY, *SHOW, now=FIVE_PAST)
    assert len(started(after(jobrun))) == 3


# -- grids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "start", "end"),
    [
        ("UTC", "2026-09-03T00:00Z", "2026-09-04T00:00Z"),
        ("Europe/Berlin", "2026-03-28T23:00Z", "2026-03-29T22:00Z"),
        ("Europe/Berlin", "2026-10-24T22:00Z", "2026-10-25T23:00Z"),
    ],
    ids=["24 hours", "23 hours", "25 hours"],
)
def test_a_day_waits_for_its_hours(jobrun: Jobrun, zone: str, start: str, end: str) -> None:
    """Daily after hourly, where clocks change too: once the last hour is done, not before."""
    down = ("run", "day", *DAILY, "--tz", zone, "--first", start, "--after", "up", *SHOW)
    up = ("run", "up", *HOURLY, "--first", start, *SHOW)
    ends = datetime.fromisoformat(end)
    soon = (ends + timedelta(minutes=5)).isoformat()
    jobrun(*up, now=(ends - timedelta(minutes=5)).isoformat())
    waiting = skip_of(jobrun(*down, now=soon))
    assert waiting["watermark"] == (ends - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    jobrun(*up, now=soon)
    assert started(jobrun(*down, now=soon)) == [start.replace("Z", ":00+00:00")]


def test_an_hour_waits_for_its_day(jobrun: Jobrun) -> None:
    """Hourly after daily: all the hours of a day at once, when the day is done."""
    jobrun("run", "up", *DAILY, *SHOW, now=f"{DAY}T00:05Z")
    hourly = ("run", "j", *HOURLY, "--first", "2026-09-03T22:00Z", "--after", "up", *SHOW)
    found = jobrun(*hourly, now=f"{DAY}T03:05Z")
    assert started(found) == ["2026-09-03T22:00:00+00:00", "2026-09-03T23:00:00+00:00"]
    assert skip_of(found)["key"] == f"j:{hour('00')}"
    jobrun("run", "up", *DAILY, *SHOW, now="2026-09-05T00:05Z")
    assert len(started(jobrun(*hourly, now="2026-09-05T00:05Z"))) == 24


def test_a_merged_window_of_the_upstream_counts_as_all_of_it(jobrun: Jobrun) -> None:
    """One row over three hours; ours are single hours."""
    merge = ("--first", f"{DAY}T10:00Z", "--catch-up", "merge")
    jobrun("run", "up", *HOURLY, *merge, *SHOW, now=FIVE_PAST)
    assert started(after(jobrun)) == [hour("10"), hour("11"), hour("12")]


@pytest.mark.parametrize("on_failure", ["stop", "continue"])
def test_a_merged_window_of_ours_goes_as_far_as_the_upstream(
    jobrun: Jobrun, on_failure: str
) -> None:
    """R29, R44: what may run does not wait for what may not, or an upstream that is always a little
    behind would keep it for ever; one window for what it has done, one for the rest."""
    upstream_at_eleven(jobrun)
    merge = ("--catch-up", "merge", "--on-failure", on_failure)
    first = after(jobrun, *merge)
    assert started(first) == [hour("10")]
    assert (skip_of(first)["reason"], skip_of(first)["key"]) == (
        "upstream-pending",
        f"j:{hour('11')}",
    )
    assert started(after(jobrun, *merge)) == []
    jobrun("run", "up", *HOURLY, *SHOW, now=FIVE_PAST)
    assert started(after(jobrun, *merge)) == [hour("11")]
    assert jobrun.query("select start, \"end\", windows from jobrun_window where job = 'j'") == [
        (hour("10"), hour("11"), 1),
        (hour("11"), hour("13"), 2),
    ]


def behind(jobrun: Jobrun, now: str) -> None:
    """An upstream that is never as far as the clock."""
    first = ("--first", f"{DAY}T10:00Z", "--lag", "70m")
    assert jobrun("run", "up", *HOURLY, *first, *SHOW, now=f"{DAY}T{now}Z").status == 0


@pytest.mark.parametrize(
    ("catch_up", "each", "late"),
    [("latest", [["10"], ["11"], ["14"]], 2), ("merge", [["10"], ["11"], ["12"]], 0)],
)
def test_behind_an_upstream_with_a_lag_both_kinds_of_catching_up_go_on(
    jobrun: Jobrun, catch_up: str, each: list[list[str]], late: int
) -> None:
    """R29, R31, R44: `latest` is the newest window that the upstream has come to; only older ones
    are given up, and never one that has still to wait."""
    found = []
    for hours in ("12", "13", "16"):
        behind(jobrun, f"{hours}:15")
        call = after(jobrun, "--catch-up", catch_up, now=f"{DAY}T{hours}:16Z")
        found.append([start[11:13] for start in started(call)])
    assert found == each
    gaps = jobrun.query("select start, \"end\", windows from jobrun_gap where job = 'j'")
    assert gaps == ([(hour("12"), hour("14"), late)] if late else [])
    ((mark,),) = jobrun.query("select watermark from jobrun_job where name = 'j'")
    assert mark == hour("15")


def test_latest_gives_up_nothing_while_the_upstream_stands(jobrun: Jobrun) -> None:
    """It has done nothing of it: all waits, and nothing is gone when it comes."""
    upstream_at_eleven(jobrun)
    assert started(after(jobrun, "--catch-up", "latest")) == [hour("10")]
    assert skip_of(after(jobrun, "--catch-up", "latest"))["reason"] == "upstream-pending"
    assert jobrun.query("select * from jobrun_gap") == []
    jobrun("run", "up", *HOURLY, *SHOW, now=FIVE_PAST)
    assert started(after(jobrun, "--catch-up", "latest")) == [hour("12")]


@pytest.mark.parametrize(
    ("catch_up", "runs", "gaps"),
    [
        ("all", ["07", "08"], []),
        ("latest", ["08"], [("07", "08")]),
        ("merge", ["07"], []),
    ],
)
def test_what_the_upstream_gave_up_keeps_nothing_below_it_from_its_turn(
    jobrun: Jobrun, catch_up: str, runs: list[str], gaps: list[tuple[str, str]]
) -> None:
    """R29, R44: its watermark is past the dead window, ours go as far as that one."""
    bad = ("--", "sh", "-c", "case $JOBRUN_KEY in *T09:*) exit 3;; esac")
    first = ("--first", f"{DAY}T06:00Z")
    jobrun("run", "up", *HOURLY, *first, "--max-attempts", "1", *bad, now=f"{DAY}T10:05Z")
    ours = ("run", "j", *HOURLY, *first, "--after", "up", "--catch-up", catch_up)
    assert started(jobrun(*ours, *SHOW, now=f"{DAY}T07:05Z")) == [hour("06")]
    found = jobrun(*ours, *SHOW, now=f"{DAY}T10:06Z")
    assert started(found) == [hour(each) for each in runs]
    (waits,) = [line for line in found.lines if "reason=upstream-failed" in line]
    assert fields(waits)["key"] == f"j:{hour('09')}"
    given_up = jobrun.query("select start, \"end\" from jobrun_gap where job = 'j'")
    assert given_up == [(hour(start), hour(end)) for start, end in gaps]
    ((mark,),) = jobrun.query("select watermark from jobrun_job where name = 'j'")
    assert mark == hour("09")


def test_latest_goes_past_what_the_upstream_gave_up_to_what_it_has_done(jobrun: Jobrun) -> None:
    """The newest window that may run stands for the older ones, that one too."""
    give_up(jobrun, "dead")
    assert started(after(jobrun, "--catch-up", "latest")) == [hour("12")]


def test_resume_with_latest_gives_up_nothing_for_a_window_that_is_still_to_wait(
    jobrun: Jobrun,
) -> None:
    """R29, R44: the newest that the upstream has come to, as a call with --catch-up latest."""
    ours = ("run", "j", *HOURLY, "--first", f"{DAY}T07:00Z", "--after", "up")
    jobrun("run", "up", *HOURLY, "--first", f"{DAY}T07:00Z", *SHOW, now=f"{DAY}T08:05Z")
    assert started(jobrun(*ours, *SHOW, now=f"{DAY}T08:05Z")) == [hour("07")]
    jobrun("run", "up", *HOURLY, *SHOW, now=f"{DAY}T10:05Z")
    jobrun("pause", "j", now=f"{DAY}T14:05Z")
    assert jobrun("resume", "j", "--catch-up", "latest", now=f"{DAY}T14:05Z").status == 0
    gaps = "select start, \"end\", reason from jobrun_gap where job = 'j'"
    assert jobrun.query(gaps) == [(hour("08"), hour("09"), "not-latest")]
    assert started(jobrun(*ours, *SHOW, now=f"{DAY}T14:05Z")) == [hour("09")]


def test_two_upstreams_have_to_come_both(jobrun: Jobrun) -> None:
    """Given twice or with a comma; what a person has to repair is told first."""
    give_up(jobrun, "dead")
    jobrun("run", "slow", *HOURLY, "--first", f"{DAY}T10:00Z", *SHOW, now=f"{DAY}T11:05Z")
    both = ("run", "j", *HOURLY, "--first", f"{DAY}T10:00Z")
    comma = jobrun(*both, "--after", "slow,up", *SHOW, now=FIVE_PAST)
    assert started(comma) == [hour("10")]
    assert (skip_of(comma)["reason"], skip_of(comma)["up"]) == ("upstream-failed", "up")
    twice = (*both, "--after", "slow", "--after", "up:finished")
    assert skip_of(jobrun(*twice, *SHOW, now=FIVE_PAST))["up"] == "slow"
    jobrun("run", "slow", *HOURLY, *SHOW, now=FIVE_PAST)
    assert started(jobrun(*twice, *SHOW, now=FIVE_PAST)) == [hour("11"), hour("12")]


# -- what is refused ------------------------------------------------------------------------------


def test_an_upstream_that_is_not_there_is_refused_before_anything_is_made(jobrun: Jobrun) -> None:
    """78, and no ledger; the same with one, and for a job that has no windows."""
    found = after(jobrun)
    assert (found.status, found.stdout) == (78, "")
    assert 'job "j": --after "up" is not on record' in found.stderr
    assert not jobrun.ledger.exists()
    jobrun("run", "up", "--", "true", now=FIVE_PAST)
    plain = after(jobrun)
    assert plain.status == 78
    assert '--after "up" is a job without windows' in plain.stderr
    assert jobrun.query("select name from jobrun_job") == [("up",)]


def test_a_circle_is_refused_with_its_path(jobrun: Jobrun) -> None:
    """By the options of the last calls; itself is the smallest circle. Nothing is changed."""
    now = f"{DAY}T11:05Z"
    for job, ups in (("a", ()), ("b", ("a",)), ("c", ("b",))):
        more = [word for up in ups for word in ("--after", up)]
        assert jobrun("run", job, *HOURLY, *more, *SHOW, now=now).status == 0
    found = jobrun("run", "a", *HOURLY, "--after", "c", *SHOW, now=FIVE_PAST)
    assert found.status == 78
    assert "it would wait for itself: a --after c --after b --after a" in found.stderr
    itself = jobrun("run", "a", *HOURLY, "--after", "a", *SHOW, now=FIVE_PAST)
    assert itself.status == 78
    assert "it would wait for itself: a --after a" in itself.stderr
    assert jobrun.query("select count(*) from jobrun_run") == [(3,)]


def test_a_circle_of_two_that_both_wait_is_still_seen(jobrun: Jobrun) -> None:
    """A call that only waits puts its new --after on record: else both would wait for ever."""
    for job in "ab":
        jobrun("run", job, *HOURLY, *SHOW, now=f"{DAY}T11:05Z")
    waits = jobrun("run", "a", *HOURLY, "--after", "b", *SHOW, now=FIVE_PAST)
    assert skip_of(waits)["reason"] == "upstream-pending"
    assert jobrun("run", "b", *HOURLY, "--after", "a", *SHOW, now=FIVE_PAST).status == 78
    events = jobrun.query("select kind, detail from jobrun_event where job = 'a'")
    assert events == [("after-changed", "nobody -> b")]


def test_a_circle_is_refused_while_there_is_nothing_to_do_too(jobrun: Jobrun) -> None:
    """Who writes the line tries it once, most likely between two windows."""
    for job, up in (("up", None), ("j", "up")):
        line = ("--after", up) if up else ()
        assert jobrun("run", job, *HOURLY, *line, *SHOW, now=FIVE_PAST).status == 0
    for up in ("j", "j:finished"):
        found = jobrun("run", "up", *HOURLY, "--after", up, *SHOW, now=FIVE_PAST)
        assert found.status == 78
        assert "up --after j --after up" in found.stderr
    assert jobrun("run", "j", *HOURLY, "--after", "up", *SHOW, now=FIVE_PAST).status == 0


def test_each_change_of_after_is_on_record(jobrun: Jobrun) -> None:
    """Also that nobody is waited for any more: then a window runs that was waiting."""
    jobrun("run", "up", *HOURLY, *SHOW, now=FIVE_PAST)
    for clock in ("13:06", "14:07"):
        for line in (("--after", "up"), (), ("--after", "up:finished"), ("--after", "up")):
            jobrun("run", "j", *HOURLY, *line, *SHOW, now=f"{DAY}T{clock}Z")
    kind = "select detail from jobrun_event where kind = 'after-changed' and job = 'j' order by id"
    changes = ["up -> nobody", "nobody -> up:finished", "up:finished -> up"]
    assert [detail for (detail,) in jobrun.query(kind)] == [*changes, *changes]


@pytest.mark.parametrize("text", ["", ",", "up,", ":finished", "up:done", "up:", "up:finished,up"])
def test_what_is_no_list_of_jobs_is_refused(text: str) -> None:
    """A usage error, with the text."""
    with pytest.raises(UsageError):
        links.after(text)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--after", "a/b", "--every", "1h"), 'JOB "a/b"'),
        (("--after", "up"), "--after needs --every or --cron"),
        (("--after", "up", "--key", "k"), "--after does not go with --key"),
    ],
)
def test_it_goes_with_windows_only(jobrun: Jobrun, argv: tuple[str, ...], says: str) -> None:
    """2, before anything is touched."""
    found = jobrun("run", "j", *argv, *SHOW, now=FIVE_PAST)
    assert found.status == 2
    assert says in found.stderr


def test_by_hand_nobody_is_waited_for(jobrun: Jobrun) -> None:
    """A person who names a window means it; the options of the last call say --after."""
    upstream_at_eleven(jobrun)
    after(jobrun)
    window = ("--window", f"{DAY}T11:00Z")
    assert started(after(jobrun, *window)) == [hour("11")]
    assert started(jobrun("rerun", "j", f"{DAY}T10:00Z", now=FIVE_PAST)) == [hour("10")]


# -- what a person sees ----------------------------------------------------------------------------


def test_the_screens_say_what_it_waits_for(jobrun: Jobrun) -> None:
    """`plan` and `windows` name the other job and how far it is, or what it gave up."""
    upstream_at_eleven(jobrun)
    after(jobrun)
    plan = jobrun("plan", "j", now=FIVE_PAST).stdout
    assert "upstream-pending: waits for up, done to 09-04 11:00" in plan
    strip = jobrun("windows", "j", now=FIVE_PAST).stdout
    assert "2 windows: waits for up, done to 09-04 11:00" in strip
    jobrun("run", "up", *HOURLY, "--", "false", now=FIVE_PAST)
    strip = jobrun("windows", "j", now=FIVE_PAST).stdout
    assert "waits for up, done to 09-04 11:00, failed 09-04 11:00 - 12:00" in strip
    jobrun("skip", "up", f"up:{hour('11')}", "--reason", "x", now=FIVE_PAST)
    assert "up: skipped 09-04 11:00 - 12:00" in jobrun("windows", "j", now=FIVE_PAST).stdout
    jobrun("forget", "up", "--yes", now=FIVE_PAST)
    assert "up: not on record" in jobrun("windows", "j", now=FIVE_PAST).stdout


def test_status_and_explain_name_the_other_job(jobrun: Jobrun) -> None:
    """`waits` is no trouble of its own; BLOCKED is, with what to type; explain tells the same."""
    upstream_at_eleven(jobrun)
    after(jobrun)
    status = jobrun("status", now=FIVE_PAST)
    assert "\nj    waits  " in status.stdout
    assert "\nj  waits for up, done to 09-04 11:00\n" in status.stdout
    assert jobrun("status", "j", "--check", now=FIVE_PAST) == (0, "", "")
    told = jobrun("explain", "j", f"j:{hour('11')}", now=FIVE_PAST).stdout
    assert "upstream       waits for up, done to 09-04 11:00" in told
    jobrun("skip", "up", f"up:{hour('11')}", "--reason", "x", now=FIVE_PAST)
    blocked = jobrun("status", "j", "--check", now=FIVE_PAST)
    assert blocked.status == 1
    assert "j  BLOCKED: up: skipped 09-04 11:00 - 12:00" in blocked.stdout
    assert "jobrun backfill up --from" in blocked.stdout
    data = json.loads(jobrun("status", "j", "--json", now=FIVE_PAST).stdout)["jobs"][0]
    assert (data["state"], data["waits"]["state"]) == ("BLOCKED", "skipped")
    assert "up: skipped" in jobrun("explain", "j", f"j:{hour('11')}", now=FIVE_PAST).stdout


# -- the graph -------------------------------------------------------------------------------------


def linked(jobrun: Jobrun) -> None:
    """extract, load after it with a value and a condition, report after both; another job."""
    now = f"{DAY}T11:05Z"
    leave = ("--", "sh", "-c", 'echo "rows=5" > "$JOBRUN_VALUES"')
    jobrun("run", "extract", *HOURLY, *leave, now=now)
    load = ("--after", "extract", "--input", "ROWS=extract.rows", "--if", "int(ROWS) > 3")
    jobrun("run", "load", *HOURLY, *load, "--", "true", now=now)
    both = ("--after", "extract:finished", "--after", "load")
    jobrun("run", "a-report", *HOURLY, *both, "--", "true", now=now)
    jobrun("run", "beat", "--", "true", now=now)


def test_graph_shows_who_comes_after_whom_and_who_waits(jobrun: Jobrun) -> None:
    """Upstreams first; how far each is; jobs that stand alone are counted."""
    linked(jobrun)
    screen = jobrun("graph", now=f"{DAY}T12:05Z").stdout
    lines = [line.split() for line in screen.splitlines()[1:]]
    assert [line[0] for line in lines] == ["JOB", "extract", "load", "a-report", "1"]
    assert "ROWS=extract.rows, if int(ROWS) > 3" in screen
    assert "extract:finished, load" in screen
    assert screen.count("waits for") == 2
    data = json.loads(jobrun("graph", "--json", now=f"{DAY}T12:05Z").stdout)
    load = data["jobs"][1]
    assert load["after"] == [{"job": "extract", "wants": "processed"}]
    assert load["inputs"] == [{"name": "ROWS", "up": "extract", "key": "rows"}]
    assert (load["if"], load["done_to"]) == ("int(ROWS) > 3", hour("11"))
    assert load["waits"]["up"] == "extract"
    assert data["alone"] == 1


def test_graph_as_mermaid(jobrun: Jobrun) -> None:
    """A flowchart; finished is dotted, values are on the arrow, nothing in a label ends it."""
    linked(jobrun)
    found = jobrun("graph", "--mermaid", now=f"{DAY}T12:05Z")
    assert found.stdout == (
        "flowchart LR\n"
        '    job1["extract"]\n'
        '    job2["load<br/>if int(ROWS) #gt; 3"]\n'
        '    job3["a-report"]\n'
        '    job1 -->|"ROWS=rows"| job2\n'
        "    job1 -.-> job3\n"
        "    job2 --> job3\n"
    )


def test_graph_of_what_is_not_there(jobrun: Jobrun) -> None:
    """No ledger, no links, an upstream that was forgotten, two forms at once."""
    assert jobrun("graph", now=FIVE_PAST).status == 0
    jobrun("run", "beat", "--", "true", now=FIVE_PAST)
    assert "no job comes after another" in jobrun("graph", now=FIVE_PAST).stdout
    linked(jobrun)
    jobrun("forget", "extract", "--yes", now=FIVE_PAST)
    assert "not on record" in jobrun("graph", now=FIVE_PAST).stdout
    both = jobrun("graph", "--json", "--mermaid", now=FIVE_PAST)
    assert (both.status, both.stdout) == (2, "")


def test_a_circle_on_record_is_shown_all_the_same(jobrun: Jobrun) -> None:
    """No call makes one; a hand in the ledger, or an older program, may have."""
    linked(jobrun)
    spec = '{"options": {"--every": "1h", "--after": "a-report"}}'
    jobrun.change("update jobrun_job set spec = ? where name = 'extract'", spec)
    lines = jobrun("graph", now=FIVE_PAST).stdout.splitlines()
    assert sorted(line.split()[0] for line in lines[2:5]) == ["a-report", "extract", "load"]
