"""Options of the second day, two at a time: what one leaves, the other has to understand."""

from __future__ import annotations

import json
import os
import re
import signal
from itertools import takewhile

import pytest

from tests.conftest import PYTHON, Jobrun, is_alive, until

DAY = "2026-09-04T"
HOURLY = ("--every", "1h")
TEN, ELEVEN = f"{DAY}10:00:00+00:00", f"{DAY}11:00:00+00:00"
posix = pytest.mark.skipif(os.name == "nt", reason="kills as POSIX does")


def at(time: str) -> str:
    return f"{DAY}{time}Z"


def told(jobrun: Jobrun, what: str, now: str, job: str = "j") -> list[tuple[str, str]]:
    """Of explain's table: what, how."""
    shown = jobrun("explain", job, what, now=now)
    assert shown.status == 0, shown.stderr
    cells = [re.split(" {2,}", line) for line in shown.stdout.splitlines()]
    return [(each[1], each[2]) for each in cells if len(each) == 4 and each[0].startswith(DAY)]


def field(jobrun: Jobrun, what: str, label: str, now: str, job: str = "j") -> list[str]:
    """Of explain's lines below the table those of one label."""
    lines = jobrun("explain", job, what, now=now).stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith(f"{label} "))
    rest = takewhile(lambda line: line.startswith(" " * 15), lines[first + 1 :])
    return [line[15:] for line in (lines[first], *rest)]


def lost_and_held(jobrun: Jobrun, job: str = "j") -> None:
    """The run of 10 o'clock died with its wrapper; the next call holds the window."""
    ready = jobrun.folder / "ready"
    call = ("run", job, *HOURLY, "--on-lost", "hold", "--wait", "20s", "--")
    waits = (PYTHON, "-m", "tests.children", "waits", str(ready))
    running = jobrun.start(*call, *waits, now=at("11:01"))
    until(ready.exists, "the command")
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=20)
    until(lambda: not is_alive(int(ready.read_text())), "the end of the command")
    assert "reason=window-held" in jobrun(*call, "true", now=at("11:05")).stderr


# -- lines -----------------------------------------------------------------------------------------


def test_next_stands_after_what_every_FAILED_line_has(jobrun: Jobrun) -> None:
    """The order of fields is a contract: exit, outcome, attempt, took, what more there is, run."""
    call = ("run", "j", *HOURLY, "--retries", "1", "--retry-delay", "5m", "--")
    line = jobrun(*call, "false", now=at("11:05")).lines[-1]
    names = " ".join(word.partition("=")[0] for word in line.split()[2:])
    assert names == "job window key exit outcome attempt took next run at"


# -- the breaker -----------------------------------------------------------------------------------


def test_what_comes_after_a_dead_window_waits_for_nothing(jobrun: Jobrun) -> None:
    """--max-attempts x --pause-after: one that is dead is in nobody's way, so the ones behind it
    count when they have failed themselves."""
    call = ("run", "j", "--every", "1m", "--max-attempts", "2", "--pause-after", "2", "--")
    paused = []
    for minute in ("01", "02", "03", "04"):
        found = jobrun(*call, "false", now=at(f"12:{minute}"))
        paused.append("what=paused" in found.stderr)
    # At :02 the second try, dead: one window has failed, and the next one has its turn at :03.
    assert paused == [False, False, True, False]
    states = jobrun.query("select state, failures from jobrun_window order by start")
    assert states == [("dead", 2), ("failed", 1)]
    reason = "3 windows failed or wait for one that did"  # 12:00, 12:01, and 12:02 behind it
    assert jobrun.query("select paused_reason from jobrun_job") == [(reason,)]


# -- dead, held, and what waits for it -------------------------------------------------------------


def test_a_window_behind_an_upstream_that_gave_up_is_no_calls_to_do(jobrun: Jobrun) -> None:
    """--max-attempts x --after: explain names what is in the way and what to type."""
    assert jobrun("run", "up", *HOURLY, "--", "true", now=at("10:05")).status == 0
    after = ("run", "j", *HOURLY, "--after", "up", "--", "true")
    assert jobrun(*after, now=at("10:06")).status == 0
    up = ("run", "up", *HOURLY, "--max-attempts", "1", "--", "false")
    assert jobrun(*up, now=at("11:05")).status == 1
    assert "upstream-failed" in jobrun(*after, now=at("11:06")).stderr
    now = at("11:07")
    assert field(jobrun, at("10:00"), "next", now)[0].startswith("no call, before a person")
    assert f"jobrun retry up {at('10:00:00')}" in field(jobrun, at("10:00"), "do", now)[-1]
    assert jobrun("retry", "up", "--", "true", now=at("11:08")).status == 0
    assert field(jobrun, at("10:00"), "next", at("11:09"))[0].startswith("the next call")


@posix
def test_what_waits_for_a_held_window_waits_for_a_person(jobrun: Jobrun) -> None:
    """--on-lost hold: the story in its order, and no promise of a next call."""
    lost_and_held(jobrun)
    found = [what for what, _ in told(jobrun, at("10:00"), at("12:01"))]
    assert found == ["closed", "run 1, try 1", "lost", "held", "skipped"]
    assert field(jobrun, at("11:00"), "next", at("12:01"))[0].startswith("no call, before a person")
    status = jobrun("status", now=at("12:01")).stdout
    assert "was lost, 1 later window waits\n" in status


def test_retry_and_resolve_inside_a_merged_window_name_it(jobrun: Jobrun) -> None:
    """--catch-up merge x retry: what lies inside is no window of its own, nor is it done."""
    assert jobrun("run", "j", *HOURLY, "--", "true", now=at("09:05")).status == 0
    merge = ("run", "j", *HOURLY, "--catch-up", "merge", "--max-attempts", "1", "--", "false")
    assert jobrun(*merge, now=at("12:05")).status == 1
    key = f"j:{DAY}09:00:00+00:00"
    for argv, hint in (
        (("retry", "j", at("10:00"), "--", "true"), f"jobrun retry j {key}"),
        (("resolve", "j", at("11:00"), "--note", "x"), f'jobrun resolve j {key} --note "..."'),
    ):
        found = jobrun(*argv, now=at("12:06"))
        assert found.status == 2
        assert f"lies inside {key}, which ends {at('12:00:00')}" in found.lines[-2]
        assert found.lines[-1] == f"jobrun: hint: {hint}"
    assert jobrun("retry", "j", key, "--", "true", now=at("12:07")).status == 0


def test_a_backfill_says_that_what_it_leaves_is_dead(jobrun: Jobrun) -> None:
    """key-exists alone reads as done: as with --key the state is said, where it is another."""
    call = ("run", "j", *HOURLY, "--max-attempts", "1", "--")
    assert jobrun(*call, "true", now=at("10:05")).status == 0
    assert jobrun(*call, "false", now=at("11:05")).status == 1
    span = ("--from", at("09:00"), "--to", at("11:00"), "--", "true")
    lines = jobrun("backfill", "j", *span, now=at("11:06")).lines
    done, dead = (line.partition(" at=")[0] for line in lines if "reason=key-exists" in line)
    assert done.endswith(f" key=j:{DAY}09:00:00+00:00")
    assert dead.endswith(f" key=j:{TEN} state=dead")


def test_a_watermark_that_is_set_below_dead_windows_stays_above_them(jobrun: Jobrun) -> None:
    """watermark --set x dead: R28, only retry or resolve changes them; the dry run knows it."""
    call = ("run", "j", *HOURLY, "--max-attempts", "1", "--")
    assert jobrun(*call, "true", now=at("10:05")).status == 0
    for hour in ("11", "12"):
        assert jobrun(*call, "false", now=at(f"{hour}:05")).status == 1
    lower = ("watermark", "j", "--set", at("10:00"), "--reason", "again")
    (dry,) = jobrun(*lower, "--dry-run", now=at("12:06")).lines
    (done,) = jobrun(*lower, now=at("12:06")).lines
    assert " what=would-set-watermark watermark=2026-09-04T12:00:00Z " in dry
    assert " what=watermark-set watermark=2026-09-04T12:00:00Z " in done
    assert jobrun.query("select state from jobrun_window order by start") == [
        ("processed",),
        ("dead",),
        ("dead",),
    ]


def test_a_unit_that_is_due_again_has_not_failed_so_often(jobrun: Jobrun) -> None:
    """retry x --key: status says that it is due, not that it failed 0 times."""
    call = ("run", "j", "--key", "a", "--max-attempts", "1", "--")
    assert jobrun(*call, "false", now=at("10:00")).status == 1
    assert jobrun("retry", "j", now=at("10:01")).status == 0
    lines = jobrun("status", now=at("10:02")).stdout.splitlines()
    assert "j  FAILING: j:a is due, its next call runs it" in lines


def test_an_interrupted_window_is_due_and_has_not_failed(jobrun: Jobrun) -> None:
    """stop x status: what is interrupted does not count, and is the next call's to do."""
    ready = jobrun.folder / "ready"
    waits = (PYTHON, "-m", "tests.children", "waits", str(ready))
    running = jobrun.start("run", "j", *HOURLY, "--", *waits, now=at("11:05"))
    until(ready.exists, "the command")
    assert jobrun("stop", "j", now=at("11:06")).status == 0
    running.communicate(timeout=20)
    lines = jobrun("status", now=at("11:07")).stdout.splitlines()
    due = "interrupted, window 09-04 10:00 - 11:00 is due, the next call runs it"
    assert f"j  FAILING: {due}" in lines


def test_a_job_whose_upstream_was_forgotten_is_blocked(jobrun: Jobrun) -> None:
    """forget x --after: its calls are refused (78), so no screen may say that it just waits."""
    after = ("run", "j", *HOURLY, "--after", "up", "--", "true")
    assert jobrun("run", "up", *HOURLY, "--", "true", now=at("11:05")).status == 0
    assert jobrun(*after, now=at("11:06")).status == 0
    assert jobrun("forget", "up", "--yes", now=at("11:07")).status == 0
    check = jobrun("status", "--check", now=at("12:04"))
    assert (check.status, check.stdout.splitlines()[0]) == (1, "j  BLOCKED: up: not on record")
    assert jobrun(*after, now=at("12:05")).status == 78
    check = jobrun("status", "--check", now=at("12:06"))
    assert (check.status, check.stdout.split(":")[0]) == (1, "j  REFUSED")
    assert ': job "j": --after "up" is not on record\n' in check.stdout
    assert field(jobrun, at("11:00"), "upstream", at("12:06")) == ["up: not on record"]
    assert jobrun("run", "up", *HOURLY, "--", "true", now=at("12:07")).status == 0
    assert jobrun(*after, now=at("12:08")).status == 0
    assert jobrun("status", "--check", now=at("12:09")).status == 0


def test_what_failed_in_a_paused_job_is_not_the_next_calls_to_do(jobrun: Jobrun) -> None:
    """pause x failures: the same word as windows has for it."""
    assert jobrun("run", "j", *HOURLY, "--", "false", now=at("11:05")).status == 1
    assert jobrun("failures", now=at("11:07")).stdout.count("the next call\n") == 1
    assert jobrun("pause", "j", now=at("11:07")).status == 0
    assert jobrun("failures", now=at("11:08")).stdout.count("a call after the pause\n") == 1
    assert "next try by a call after the pause" in jobrun("windows", "j", now=at("11:08")).stdout


@pytest.mark.parametrize(("mode", "waits"), [("skip", True), ("allow", False)])
def test_what_runs_beside_a_window_is_not_waited_for(
    jobrun: Jobrun, mode: str, waits: bool
) -> None:
    """--overlap x explain: another window at work is in the way of the later ones, or it is not."""
    ready = jobrun.folder / "ready"
    call = ("run", "j", *HOURLY, "--overlap", mode, "--first", at("09:00"), "--")
    runs = (PYTHON, "-m", "tests.children", "waits", str(ready))
    running = jobrun.start(*call, *runs, now=at("11:05"))
    until(ready.exists, "the command")
    screen = jobrun("explain", "j", at("10:00"), now=at("11:06")).stdout
    assert ("waits for " in screen) == waits
    assert jobrun("stop", "j", now=at("11:07")).status == 0
    running.communicate(timeout=20)


# -- what keeps a command from its start -----------------------------------------------------------


def test_why_a_command_could_not_be_started_is_on_record(jobrun: Jobrun) -> None:
    """It left no output that tells: a missing input, a program that is not there."""
    assert jobrun("run", "up", *HOURLY, "--", "true", now=at("11:05")).status == 0
    needs = ("run", "j", *HOURLY, "--after", "up", "--input", "ROWS=up.rows", "--", "true")
    assert jobrun(*needs, now=at("11:06")).status == 78
    why = f'--input ROWS=up.rows: up:{TEN} has left no "rows" (nothing)'
    assert field(jobrun, at("10:00"), "why", at("11:07")) == [why]
    assert jobrun("run", "k", *HOURLY, "--", "no-such-program", now=at("11:08")).status == 127
    (why,) = field(jobrun, at("10:00"), "why", at("11:09"), job="k")
    assert why.startswith('not found: "no-such-program"')
    shown = json.loads(jobrun("show", "3", "--json", now=at("11:09")).stdout)
    assert (shown["outcome"], shown["why"]) == ("not-started", why)


def test_verbs_print_the_lines_that_are_asked_for(jobrun: Jobrun) -> None:
    """JOBRUN_LOG_FORMAT is of every line, also of those that no `run` has printed."""
    assert jobrun("run", "j", *HOURLY, "--", "true", now=at("11:05")).status == 0
    for argv in (("pause", "j"), ("resume", "j"), ("set", "j", "--lag", "5m"), ("stop", "j")):
        line = jobrun(*argv, now=at("11:06"), env={"JOBRUN_LOG_FORMAT": "json"}).lines[0]
        assert json.loads(line)["job"] == "j"


# -- conditions ------------------------------------------------------------------------------------


def test_what_a_condition_leaves_out_is_on_record_each_time(jobrun: Jobrun) -> None:
    """--if: every skip is on record, the one of a rerun too, which changes nothing else."""
    leave = ("sh", "-c", 'echo rows=0 > "$JOBRUN_VALUES"')
    assert jobrun("run", "up", *HOURLY, "--", *leave, now=at("11:05")).status == 0
    inputs = ("--after", "up", "--input", "ROWS=up.rows", "--if", "int(ROWS) > 0")
    assert jobrun("run", "j", *HOURLY, *inputs, "--", "true", now=at("11:06")).status == 0
    how = ("skipped", "condition-false: int(ROWS) > 0")
    assert told(jobrun, at("10:00"), at("11:07"))[1:] == [how]
    skips = json.loads(jobrun("skips", "j", "--json", now=at("11:07")).stdout)["skips"]
    assert [(each["key"], each["reason"], each["times"]) for each in skips] == [
        (f"j:{TEN}", "condition-false", 1)
    ]
    assert jobrun("rerun", "j", at("10:00"), now=at("11:08")).status == 0
    assert jobrun.query("select times from jobrun_skip") == [(2,)]
