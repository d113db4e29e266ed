"""`--pause-after`, `--resume-after`: requirement M6, from outside, on a clock that stands still."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jobrun import places
from tests.conftest import PYTHON, Jobrun, Result, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX: sh, signals")

DAY = "2026-09-04"
# Fails for the windows whose hour is in $BAD.
PICKY = ("--", "sh", "-c", 'case "$BAD" in *${JOBRUN_WINDOW_START%%:*}*) exit 3;; esac')
HOLD = (PYTHON, "-uc", "import sys; print('ready'); sys.stdin.read()")


def at(time: str) -> str:
    return f"{DAY}T{time}:00Z"


def bad(*hours: str) -> dict[str, str]:
    return {"BAD": " ".join(f"{DAY}T{hour}" for hour in hours)}


def events(jobrun: Jobrun) -> list[tuple[object, ...]]:
    return jobrun.query(
        "select kind, detail from jobrun_event where kind in ('paused', 'resumed') order by id"
    )


def runs(jobrun: Jobrun) -> list[tuple[object, ...]]:
    return jobrun.query("select key, attempt, outcome from jobrun_run order by id")


def tripped(result: Result) -> bool:
    """Whether the call says that the job has paused itself, with the next step."""
    told = " WARNING job=j what=paused " in result.stderr
    assert told == ("hint: after the repair: jobrun resume j" in result.stderr)
    return told


def called(jobrun: Jobrun, call: tuple[str, ...], *times: str, **env: str) -> list[bool]:
    return [tripped(jobrun(*call, now=time, env=env)) for time in times]


def test_M6_a_job_of_every_minute_is_paused_after_three_windows(jobrun: Jobrun) -> None:
    """The default mode: the first window fails at each try, the third one to close is the last
    straw; one event, one WARNING that quiet does not hide, and nothing runs any more."""
    call = ("run", "j", "--every", "1m", "--pause-after", "3", "--first", at("12:00"), "-q", "--")
    minutes = [at(f"12:{minute:02d}") for minute in range(1, 9)]
    found = called(jobrun, (*call, "false"), *minutes)
    assert found == [False, False, True, False, False, False, False, False]
    assert runs(jobrun) == [("j:2026-09-04T12:00:00+00:00", n, "failed") for n in (1, 2, 3)]
    reason = "3 windows failed or wait for one that did"
    assert events(jobrun) == [("paused", f"by jobrun: {reason}")]
    assert jobrun.query("select paused_at, paused_until, paused_by, paused_reason from jobrun_job")[
        0
    ] == ("2026-09-04T12:03:00+00:00", None, "jobrun", reason)
    assert jobrun.query("select reason, times from jobrun_skip") == [("paused", 5)]


def test_M6_a_daily_job_is_paused_as_surely(jobrun: Jobrun) -> None:
    """Not minutes, not runs: however often the first day is tried, the third day is the last."""
    call = ("run", "j", "--every", "1d", "--pause-after", "3", "--", "false")
    first = ("2026-09-02T00:05:00Z", "2026-09-02T00:10:00Z", "2026-09-02T06:00:00Z")
    second = ("2026-09-02T23:55:00Z", "2026-09-03T00:05:00Z", "2026-09-03T12:00:00Z")
    third = ("2026-09-03T23:55:00Z", "2026-09-04T00:55:00Z", "2026-09-04T02:00:00Z")
    found = called(jobrun, call, *first, *second, *third)
    assert found == [False] * 7 + [True, False]
    assert len(events(jobrun)) == 1
    assert len(runs(jobrun)) == 8


def test_M6_after_a_failed_hour_the_next_ones_run_and_count(jobrun: Jobrun) -> None:
    """--on-failure continue, six windows due: exactly three run, one event, the exit code stays."""
    call = ("run", "j", "--every", "1h", "--on-failure", "continue", "--pause-after", "3")
    found = jobrun(*call, "--first", at("06:00"), "--", "sh", "-c", "exit 3", now=at("12:05"))
    assert found.status == 3
    assert tripped(found)
    assert 'why="3 windows failed"' in found.stderr
    assert "BACKLOG" not in found.stderr
    assert "SKIPPED" not in found.stderr
    keys = [f"j:{DAY}T{hour}:00:00+00:00" for hour in ("06", "07", "08")]
    assert runs(jobrun) == [(key, 1, "failed") for key in keys]
    assert events(jobrun) == [("paused", "by jobrun: 3 windows failed")]


def test_M6_a_window_that_fails_again_and_again_counts_once(jobrun: Jobrun) -> None:
    """Holes that are tried with each call; a processed window in between sets the count to 0."""
    calls = ("run", "j", "--every", "1h", "--on-failure", "continue", "--pause-after", "3")
    call = (*calls, "--retry-delay", "1s", "--first", at("09:00"), *PICKY)
    assert called(jobrun, call, at("10:05"), at("10:10"), at("10:20"), **bad("09")) == [False] * 3
    assert called(jobrun, call, at("11:05"), **bad("09")) == [False]  # 10 is processed
    assert called(jobrun, call, at("12:05"), at("12:20"), **bad("09", "11")) == [False] * 2
    assert jobrun.query("select failing from jobrun_job") == [(2,)]
    assert called(jobrun, call, at("13:05"), **bad("09", "11", "12")) == [True]
    assert events(jobrun) == [("paused", "by jobrun: 3 windows failed")]


def test_M6_tries_within_a_call_are_no_windows(jobrun: Jobrun) -> None:
    """With --retries a window counts once, and a pause waits for the last try."""
    calls = ("run", "j", "--every", "1h", "--on-failure", "continue", "--pause-after", "2")
    retries = ("--retries", "2", "--retry-delay", "0")
    call = (*calls, *retries, "--first", at("06:00"), "--", "false")
    assert called(jobrun, call, at("12:05")) == [True]
    keys = [f"j:{DAY}T{hour}:00:00+00:00" for hour in ("06", "07")]
    assert runs(jobrun) == [(key, n, "failed") for key in keys for n in (1, 2, 3)]
    assert events(jobrun) == [("paused", "by jobrun: 2 windows failed")]


@pytest.mark.parametrize(("limit", "pauses"), [("1", True), ("2", False)])
@pytest.mark.parametrize("when", ["wait", "try"])
def test_M6_a_failure_that_the_call_no_longer_makes_good_is_weighed(
    jobrun: Jobrun, when: str, limit: str, pauses: bool
) -> None:
    """Stopped as it waits for its next try, or in that: the pause is told once, quiet or not."""
    delay = {"wait": "1m", "try": "0"}[when]
    tries = ("--retries", "2", "--retry-delay", delay, "--pause-after", limit, "-q")
    script = '[ "$JOBRUN_ATTEMPT" != 1 ] || exit 3; touch tried; exec sleep 60'
    call = ("run", "j", "--every", "1h", "--first", at("11:00"), *tries)
    process = jobrun.start(*call, "--", "sh", "-c", script, now=at("12:05"))
    lock = Path(places.locks_folder(str(jobrun.ledger))) / f"{places.slug('j')}.lock"
    if when == "wait":
        until(lambda: lock.exists() and b" attempt=2 " in lock.read_bytes(), "the wait")
    else:
        until((jobrun.folder / "tried").exists, "the try")
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143
    assert tripped(Result(143, "", err.decode())) == pauses
    assert events(jobrun) == [("paused", "by jobrun: 1 window failed")] * pauses
    assert jobrun.query("select failing from jobrun_job") == [(1,)]
    before = runs(jobrun)
    jobrun(*call, "--", "true", now=at("12:30"))
    assert (runs(jobrun) == before) == pauses


@pytest.mark.parametrize("schedule", [("--every", "1h"), ("--cron", "0 * * * *")])
def test_windows_that_wait_count_once_they_are_ready(
    jobrun: Jobrun, schedule: tuple[str, str]
) -> None:
    """With a lag a window that has ended does not wait yet; what waited before does not count."""
    calls = ("run", "j", *schedule, "--lag", "10m", "--pause-after", "3", "--first", at("02:00"))
    call = (*calls, "--", "false")
    times = ("10:10", "11:05", "11:12", "12:09", "12:20")
    assert called(jobrun, call, *map(at, times)) == [False, False, False, False, True]
    assert {run[0] for run in runs(jobrun)} == {f"j:{DAY}T02:00:00+00:00"}


def test_windows_that_were_skipped_meanwhile_do_not_wait(jobrun: Jobrun) -> None:
    """The failed one and those behind it are done without: two have failed, and none waits."""
    calls = ("run", "j", "--every", "1h", "--pause-after", "3", "--first", at("10:00"))
    call = (*calls, "--", "false")
    assert called(jobrun, call, at("11:05")) == [False]
    span = ("--from", at("10:00"), "--to", at("14:00"))
    assert jobrun("skip", "j", *span, "--reason", "x", now=at("14:05")).status == 0
    assert called(jobrun, call, at("15:05"), at("16:05")) == [False, True]
    assert events(jobrun) == [("paused", "by jobrun: 3 windows failed or wait for one that did")]


def test_a_person_who_resumes_it_gives_it_as_many_windows_again(jobrun: Jobrun) -> None:
    """The count begins anew, and with it the next pause has an event of its own."""
    call = ("run", "j", "--every", "1h", "--pause-after", "2", "--first", at("09:00"), *PICKY)
    assert called(jobrun, call, at("10:05"), at("11:05"), **bad("09")) == [False, True]
    assert jobrun("status", "--check", now=at("11:10")).status == 1
    assert jobrun("resume", "j", now=at("11:15")).status == 0
    assert called(jobrun, call, at("11:20"), at("12:25"), **bad("09")) == [False, True]
    assert [kind for kind, _ in events(jobrun)] == ["paused", "resumed", "paused"]


HOURLY = ("run", "j", "--every", "1h", "--first", at("09:00"))
PROBED = (*HOURLY, "--pause-after", "2", "--resume-after", "3h")


@pytest.fixture
def probed(jobrun: Jobrun) -> Jobrun:
    """Paused by itself at 11:05, until 14:05."""
    assert called(jobrun, (*PROBED, *PICKY), at("10:05"), at("11:05"), **bad("09")) == [False, True]
    return jobrun


def test_a_probe_that_succeeds_ends_the_pause(probed: Jobrun) -> None:
    """Before its time nothing; then the oldest window alone; the next call does the others."""
    early = probed(*PROBED, "--busy-exit", "9", *PICKY, now=f"{DAY}T14:04:59Z")
    assert early.status == 9
    assert "reason=paused until=2026-09-04T14:05:00Z by=jobrun why=" in early.stderr
    plan = probed("plan", "j", now=at("14:05")).stdout
    assert "a probe, paused since 09-04 11:05, until 09-04 14:05, by jobrun: 2 windows" in plan
    assert plan.count("\nrun  ") == 1
    probe = probed(*PROBED, "-q", *PICKY, now=at("14:05"))
    assert probe.status == 0
    assert " NOTE job=j what=resumed by=jobrun was=" in probe.stderr
    assert runs(probed)[2:] == [(f"j:{DAY}T09:00:00+00:00", 3, "succeeded")]
    assert [kind for kind, _ in events(probed)] == ["paused", "resumed"]
    probed(*PROBED, *PICKY, now=at("14:06"))
    assert len(runs(probed)) == 3 + 4
    assert probed.query("select failing, failing_since, paused_at from jobrun_job") == [
        (0, None, None)
    ]


def test_a_probe_that_fails_pauses_it_again_from_then(probed: Jobrun) -> None:
    """No second event, no second WARNING; the next probe is as long after this one."""
    assert called(probed, (*PROBED, *PICKY), at("14:10"), **bad("09")) == [False]
    assert probed.query("select paused_at, paused_until from jobrun_job") == [
        ("2026-09-04T14:10:00+00:00", "2026-09-04T17:10:00+00:00")
    ]
    assert len(events(probed)) == 1
    assert "reason=paused" in probed(*PROBED, *PICKY, now=at("17:09")).stderr
    assert len(runs(probed)) == 3
    assert "what=resumed" in probed(*PROBED, *PICKY, now=at("17:10")).stderr


def test_the_oldest_is_probed_also_where_the_others_go_on(jobrun: Jobrun) -> None:
    """--on-failure continue: the oldest hole, and no other."""
    calls = (*HOURLY, "--on-failure", "continue", "--pause-after", "2", "--resume-after", "1h")
    call = (*calls, "--max-windows", "5", *PICKY)
    assert called(jobrun, call, at("12:05"), **bad("09", "10")) == [True]
    assert "BACKLOG job=j left=3 " in jobrun(*call, now=at("13:05")).stderr
    assert runs(jobrun)[2:] == [(f"j:{DAY}T09:00:00+00:00", 2, "succeeded")]


def test_without_the_option_the_pause_ends_with_its_time(probed: Jobrun) -> None:
    """--pause-after is gone from the crontab line: no probe, all that is due."""
    call = ("run", "j", "--every", "1h", *PICKY)
    assert "reason=paused" in probed(*call, now=at("14:00")).stderr
    probed(*call, now=at("14:05"))
    assert len(runs(probed)) == 2 + 5
    assert [kind for kind, _ in events(probed)] == ["paused", "resumed"]


def test_what_a_person_tries_by_hand_does_not_count(probed: Jobrun) -> None:
    """A rerun that fails pauses nothing, one that succeeds leaves the pause to the person."""
    probed("resume", "j", now=at("11:10"))
    for _ in range(3):
        again = ("rerun", "j", at("09:00"))
        assert not tripped(probed(*again, now=at("11:11"), env=bad("09")))
    assert probed.query("select failing, paused_at from jobrun_job") == [(0, None)]
    assert called(probed, (*PROBED, *PICKY), at("12:05"), at("13:10"), **bad("09"))[-1]
    assert probed("rerun", "j", at("09:00"), now=at("13:11")).status == 0
    assert probed.query("select paused_by from jobrun_job") == [("jobrun",)]


def test_the_tries_of_a_rerun_are_reruns_and_do_not_count(jobrun: Jobrun) -> None:
    """A processed window that a person ran again in vain made half of a pause."""
    call = ("run", "j", "--every", "1h", "--pause-after", "2", "--retries", "1", "--retry-delay=1s")
    assert jobrun(*call, *PICKY, now=at("12:05")).status == 0
    kind = ("--", "sh", "-c", 'echo "$JOBRUN_KIND $JOBRUN_ATTEMPT"; exit 3')
    found = jobrun("rerun", "j", at("11:00"), *kind, now=at("12:06"))
    assert (found.status, found.stdout) == (3, "rerun 2\nrerun 3\n")
    assert jobrun.query("select failing from jobrun_job") == [(0,)]
    assert called(jobrun, (*call, *PICKY), at("13:05"), BAD=at("12:00")) == [False]
    assert jobrun.query("select failing, paused_at from jobrun_job") == [(1, None)]


def test_what_is_retried_by_hand_does_not_count(jobrun: Jobrun) -> None:
    """Two old dead windows, in vain, and one new one that fails are one failed window."""
    call = ("run", "j", "--every", "1h", "--max-attempts", "1", "--pause-after", "3")
    assert not any(called(jobrun, (*call, *PICKY), at("10:05"), at("11:05"), **bad("09", "10")))
    assert jobrun(*call, *PICKY, now=at("12:05")).status == 0
    by_hand = ("retry", "j", "--on-failure", "continue")
    found = jobrun(*by_hand, *PICKY, now=at("12:06"), env=bad("09", "10"))
    assert found.stderr.count("jobrun: FAILED ") == 2
    assert jobrun.query("select failing, state from jobrun_job, jobrun_window") == [
        (0, "dead"), (0, "dead"), (0, "processed"),
    ]  # fmt: skip
    assert called(jobrun, (*call, *PICKY), at("13:05"), **bad("12")) == [False]
    assert jobrun.query("select failing, paused_at from jobrun_job") == [(1, None)]


def test_a_retry_by_hand_that_is_lost_does_not_count(jobrun: Jobrun) -> None:
    """Whoever finds it; the window counts at its next failure in its turn."""
    call = ("run", "j", "--every", "1h", "--pause-after", "2", "--first", at("09:00"))
    assert called(jobrun, (*call, *PICKY), at("10:05"), **bad("09")) == [False]
    assert jobrun("retry", "j", *PICKY, now=at("10:06")).status == 0
    assert called(jobrun, (*call, *PICKY), at("11:05"), **bad("10")) == [False]
    by_hand = ("retry", "j", "--stdin", "inherit", "--", *HOLD)
    held = jobrun.start(*by_hand, stdin=subprocess.PIPE, now=at("11:10"))
    assert held.stdout is not None
    assert held.stdout.readline() == b"ready\n"
    cleared = "failing = 0, failing_since = null, failing_row = failing_row + 1"
    jobrun.change(f"update jobrun_job set {cleared}")
    held.kill()
    held.communicate(timeout=20)
    until(lambda: "LOST" in jobrun("retry", "j", "--", "false", now=at("11:20")).stderr, "the lock")
    assert jobrun.query("select failing from jobrun_job") == [(0,)]
    assert called(jobrun, (*call, *PICKY), at("11:30"), **bad("10")) == [False]
    assert jobrun.query("select failing from jobrun_job") == [(1,)]


def test_a_lost_run_is_a_failure_too(jobrun: Jobrun) -> None:
    """kill -9: its window counts, the next failure of another hour is the second."""
    call = ("run", "j", "--every", "1h", "--pause-after", "2", "--first", at("09:00"))
    held = jobrun.start(
        *call, "--stdin", "inherit", "--", *HOLD, stdin=subprocess.PIPE, now=at("10:05")
    )
    assert held.stdout is not None
    assert held.stdout.readline() == b"ready\n"
    held.kill()
    held.communicate(timeout=20)
    seen: list[Result] = []

    def again() -> bool:
        seen.append(jobrun(*call, *PICKY, now=at("11:05"), env=bad("09")))
        return "LOST" in seen[-1].stderr

    until(again, "the lock")
    assert jobrun.query("select failing from jobrun_job") == [(1,)]
    assert tripped(jobrun(*call, *PICKY, now=at("12:10"), env=bad("09")))


def lose(jobrun: Jobrun, call: tuple[str, ...], now: str) -> None:
    """A call that is killed while its command runs; its guardian may be at work still."""

    def is_killed() -> bool:
        held = jobrun.start(
            *call, "--stdin", "inherit", "--", *HOLD, stdin=subprocess.PIPE, now=now
        )
        assert held.stdout is not None
        is_ready = held.stdout.readline() == b"ready\n"
        held.kill()
        held.communicate(timeout=20)
        return is_ready

    until(is_killed, "the lock, and a window")


def after_loss(jobrun: Jobrun, call: tuple[str, ...], now: str, *command: str) -> Result:
    """The call that finds it."""
    seen: list[Result] = []

    def found() -> bool:
        seen.append(jobrun(*call, "--", *command, now=now))
        return "LOST" in seen[-1].stderr

    until(found, "the lock")
    return seen[-1]


def test_M6_lost_windows_pause_it_as_surely(jobrun: Jobrun) -> None:
    """kill -9 each hour: after three the next call finds the third lost, and runs nothing."""
    calls = ("run", "j", "--every", "1h", "--first", at("11:00"), "--max-attempts", "1", "-q")
    call = (*calls, "--pause-after", "3", "--busy-exit", "7")
    for time in ("12:05", "13:05", "14:05"):
        lose(jobrun, call, at(time))
    found = after_loss(jobrun, call, at("15:05"), "echo", "no")
    assert (found.status, found.stdout, tripped(found)) == (7, "", True)
    assert found.stderr.count("what=paused") == 1
    assert 'why="3 windows failed"' in found.stderr
    assert found.stderr.count(" LOST ") == found.stderr.count("what=dead") == 1
    keys = [f"j:{DAY}T{hour}:00:00+00:00" for hour in ("11", "12", "13")]
    assert runs(jobrun) == [(key, 1, "lost") for key in keys]
    assert not tripped(jobrun(*call, "--", "echo", "no", now=at("16:05")))
    assert len(runs(jobrun)) == 3
    assert events(jobrun) == [("paused", "by jobrun: 3 windows failed")]


def test_those_that_wait_for_a_lost_one_count_too(jobrun: Jobrun) -> None:
    """One window is lost at each try: the second one that closes is the last straw."""
    call = ("run", "j", "--every", "1h", "--first", at("09:00"), "--pause-after", "2")
    for time in ("10:05", "10:10", "10:15"):
        lose(jobrun, call, at(time))
    found = after_loss(jobrun, call, at("11:05"), "echo", "no")
    assert (found.stdout, tripped(found)) == ("", True)
    assert 'why="2 windows failed or wait for one that did"' in found.stderr
    assert len(events(jobrun)) == 1


def test_a_lost_probe_pauses_it_again_from_then(jobrun: Jobrun) -> None:
    """Found at 11:15: the next one at 12:15; no second event, no second WARNING."""
    call = (*HOURLY, "--pause-after", "1", "--resume-after", "1h")
    assert called(jobrun, (*call, "--", "false"), at("10:05")) == [True]
    lose(jobrun, call, at("11:10"))
    found = after_loss(jobrun, call, at("11:15"), "echo", "no")
    assert (found.stdout, tripped(found)) == ("", False)
    assert "reason=paused until=2026-09-04T12:15:00Z" in found.stderr
    assert "reason=paused" in jobrun(*call, "--", "echo", "no", now=at("11:20")).stderr
    assert len(events(jobrun)) == 1
    assert "what=resumed" in jobrun(*call, "--", "true", now=at("12:15")).stderr
    assert [run[2] for run in runs(jobrun)] == ["failed", "lost", "succeeded"]


def test_a_loss_that_leaves_nothing_to_do_pauses_it_too(jobrun: Jobrun) -> None:
    """There is no run that the pause could keep from its turn; it is told all the same."""
    call = (*HOURLY, "--pause-after", "1", "--max-attempts", "1")
    lose(jobrun, call, at("10:05"))
    found = after_loss(jobrun, call, at("10:10"), "echo", "no")
    assert (found.stdout, tripped(found)) == ("", True)
    assert (found.status, "SKIPPED" in found.stderr) == (0, False)
    assert not tripped(jobrun(*call, "--", "echo", "no", now=at("11:05")))
    assert [run[2] for run in runs(jobrun)] == ["lost"]
    assert len(events(jobrun)) == 1


def test_the_screens_say_that_it_paused_itself(probed: Jobrun) -> None:
    """A monitor that asks status --check must not be content; show says how many failed."""
    found = probed("status", "--check", now=at("12:00"))
    assert found.status == 1
    assert found.stdout.startswith(
        "j  paused: since 09-04 11:05, until 09-04 14:05, by jobrun: 2 w"
    )
    shown = probed("show", "j", now=at("12:00")).stdout
    assert "1 window in a row since 09-04 10:05" in shown
    assert "jobrun resume j" in probed("status", now=at("12:00")).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--every", "1h", "--resume-after", "1h"), "--resume-after needs --pause-after"),
        (("--every", "1h", "--pause-after", "0"), '--pause-after "0"'),
        (("--pause-after", "3"), "--pause-after needs --every or --cron"),
        (("--key", "k", "--pause-after", "3"), "--pause-after does not go with --key"),
    ],
)
def test_where_there_are_no_windows_none_can_fail(
    jobrun: Jobrun, options: tuple[str, ...], message: str
) -> None:
    """2, the option is named."""
    found = jobrun("run", "j", *options, "--", "true")
    assert (found.status, message in found.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "is_probe"),
    [(("--pause-after", "1"), False), (("--pause-after", "1", "--resume-after", "1h"), True)],
    ids=["trips", "probe"],
)
def test_R47_the_plan_foresees_that_what_is_lost_pauses_the_job(
    jobrun: Jobrun, options: tuple[str, ...], is_probe: bool
) -> None:
    """As the call will say it: the loss, the pause, the skip, and no run; nothing is written."""
    call = (*HOURLY, *options)
    if is_probe:  # what is lost then is the probe
        assert called(jobrun, (*call, "--", "false"), at("10:05")) == [True]
    lose(jobrun, call, at("11:10"))
    record = "select * from jobrun_job, jobrun_run, jobrun_window"
    before = jobrun.query(record)
    plan = ("plan", "j")
    until(lambda: "LOST: " in jobrun(*plan, now=at("11:15")).stdout, "the guardian to end")
    for argv in (plan, (*call, "--dry-run", "--", "echo", "no")):
        shown = jobrun(*argv, now=at("11:15")).stdout
        assert ("\nskip " in shown, "\nrun " in shown) == (True, False), shown
        assert "paused" in shown
        assert ("WARNING: what=paused" in shown) == (not is_probe)
    as_data = json.loads(jobrun("plan", "j", "--json", now=at("11:15")).stdout)
    assert (as_data["runs"], as_data["runs_in_all"]) == ([], 0)
    assert [skip["reason"] for skip in as_data["skips"]] == ["paused"]
    assert jobrun.query(record) == before
    found = after_loss(jobrun, call, at("11:15"), "echo", "no")
    assert (found.stdout, "reason=paused" in found.stderr) == ("", True)
    assert tripped(found) == (not is_probe)
    ((why,),) = jobrun.query("select paused_reason from jobrun_job")
    assert as_data["paused"]["reason"] == why
