"""After a failure: again, spaced, counted and bounded over calls, crashes and reboots."""

from __future__ import annotations

import os
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from jobrun import fate, places
from jobrun import job as jobs
from jobrun.instants import from_iso, iso_z
from tests.conftest import PYTHON, Jobrun, Result, instant, is_alive, until
from tests.scenes import HOLD, Held, altered, linux, until_free

NOW = "2026-09-04T12:05:00Z"
HOURLY = ("--every", "1h")
KEY = "a:2026-09-04T11:00:00+00:00"
SHORTLY = ("--retries", "1", "--retry-delay", "0")
# Says which attempt it is; fails as long as the attempt is below the argument, with 10 + attempt.
UNTIL = (
    "sh",
    "-c",
    'echo "$JOBRUN_ATTEMPT $JOBRUN_KIND"; [ "$JOBRUN_ATTEMPT" -ge $1 ] || exit 1$JOBRUN_ATTEMPT',
    "sh",
)


def later(seconds: int) -> str:
    return iso_z(int(instant(NOW)) + seconds)


def state(jobrun: Jobrun, key: str = KEY) -> tuple[object, ...]:
    (row,) = jobrun.query("select state, attempts, failures from jobrun_window where key = ?", key)
    return row


def events(jobrun: Jobrun) -> list[object]:
    return [kind for (kind,) in jobrun.query("select kind from jobrun_event order by id")]


def next_of(found: Result) -> int:
    """Seconds from NOW to the `next=` of a line."""
    (text,) = [word[5:-1] for word in found.stderr.split() if word.startswith("next=")]
    return from_iso(f"{text}+00:00") - int(instant(NOW))


def outcomes(jobrun: Jobrun) -> list[tuple[object, ...]]:
    return jobrun.query("select attempt, outcome from jobrun_run order by id")


# -- in the call -----------------------------------------------------------------------------------


def test_a_short_delay_is_waited_for_in_the_call(jobrun: Jobrun) -> None:
    """Attempts and kinds as they are; exit 0 in the end, and no event: it made it good itself."""
    call = ("run", "a", *HOURLY, "--retries", "2", "--retry-delay", "0", "--", *UNTIL, "3")
    found = jobrun(*call, now=NOW)
    assert (found.status, found.stdout) == (0, "1 new\n2 retry\n3 retry\n")
    words = [line.split()[1] for line in found.lines if "attempt=" in line]
    assert words == ["FAILED", "FAILED", "PROCESSED"]
    assert state(jobrun) == ("processed", 3, 2)
    assert events(jobrun) == []
    assert jobrun.query("select watermark from jobrun_job") == [("2026-09-04T12:00:00+00:00",)]


def test_the_delay_is_never_shorter_than_asked(jobrun: Jobrun) -> None:
    """Measured by the command itself, from its end to its next start; nor much longer, where the
    machine is not busy with others: one time of three."""
    clock = ("sh", "-c", "date +%s.%N; exit 3")
    took: list[tuple[float, float]] = []
    while len(took) < 3 and not (took and took[-1][0] < 2.5 and took[-1][1] < 4.5):
        job = f"a{len(took)}"
        found = jobrun("run", job, *HOURLY, "--retries", "2", "--retry-delay", "1s", "--", *clock)
        first, second, third = map(float, found.stdout.split())
        took.append((second - first, third - second))
    assert min(each[0] for each in took) >= 1
    assert min(each[1] for each in took) >= 2
    assert took[-1][0] < 2.5
    assert took[-1][1] < 4.5


def test_used_up_in_the_call(jobrun: Jobrun) -> None:
    """The code is the last attempt's; dead is one event, and a WARNING that quiet does not hide."""
    call = ("run", "a", *HOURLY, "-q", "--retries", "2", "--retry-delay", "0", "--", *UNTIL, "9")
    found = jobrun(*call, now=NOW)
    assert found.status == 13
    assert state(jobrun) == ("dead", 3, 3)
    assert f" WARNING job=a what=dead key={KEY} " in found.stderr
    assert found.lines[-1] == f"jobrun: hint: jobrun retry a {KEY}"
    assert events(jobrun) == ["failed", "dead"]


def test_R28_a_dead_window_lets_later_ones_run(jobrun: Jobrun) -> None:
    """Finished for the watermark; told once, and no call touches it again."""
    call = ("run", "a", *HOURLY, "--first", "2026-09-04T09:00Z", "--max-attempts", "1", "-v", "--")
    fails_at_ten = ("sh", "-c", 'case "$JOBRUN_KEY" in *T10:*) exit 3;; esac')
    first = jobrun(*call, *fails_at_ten, now=NOW)
    assert (first.status, first.stderr.count("what=dead")) == (3, 1)
    second = jobrun(*call, *fails_at_ten, now=NOW)
    assert (second.status, second.stderr.count("PROCESSED"), "dead" in second.stderr) == (
        0,
        1,
        False,
    )
    assert "reason=no-closed-window" in jobrun(*call, *fails_at_ten, now=NOW).stderr
    states = jobrun.query("select state from jobrun_window order by start")
    assert states == [("processed",), ("dead",), ("processed",)]
    assert jobrun.query("select watermark from jobrun_job") == [("2026-09-04T12:00:00+00:00",)]
    assert events(jobrun) == ["failed", "dead", "recovered"]


def test_the_next_window_has_its_turn_in_the_same_call(jobrun: Jobrun) -> None:
    """After one that its second attempt has processed; with `continue` after a dead one too."""
    fails_once = ("sh", "-c", 'echo "$JOBRUN_KEY"; [ "$JOBRUN_ATTEMPT" = 2 ]')
    first = ("--first", "2026-09-04T10:00Z", "--retries", "1", "--retry-delay", "0", "-q")
    found = jobrun("run", "a", *HOURLY, *first, "--", *fails_once, now=NOW)
    assert found.status == 0
    assert [line[13:15] for line in found.stdout.split()] == ["10", "10", "11", "11"]
    found = jobrun(
        "run", "b", *HOURLY, *first, "--on-failure", "continue", "--",
        "sh", "-c", 'echo "$JOBRUN_KEY"; exit 3', now=NOW,
    )  # fmt: skip
    assert (found.status, len(found.stdout.split())) == (3, 4)
    assert jobrun.query("select state from jobrun_window where job = 'b'") == [("dead",)] * 2


def waiting(jobrun: Jobrun, *more: str) -> subprocess.Popen[bytes]:
    """A call that has failed once and waits a minute for its second attempt."""
    options = (*HOURLY, "--retries", "3", "--retry-delay", "1m", *more)
    process = jobrun.start("run", "a", *options, "--", *UNTIL, "2", now=NOW)
    lock = Path(places.locks_folder(str(jobrun.ledger))) / f"{places.slug('a')}.lock"
    until(lambda: lock.exists() and b" attempt=2 " in lock.read_bytes(), "the wait")
    return process


def test_R03_a_call_during_the_wait_says_what_is_waited_for(jobrun: Jobrun) -> None:
    """Lock-held, with the attempt and when it is; nothing runs beside it."""
    process = waiting(jobrun)
    found = jobrun("run", "a", *HOURLY, "--busy-exit", "9", "--", *UNTIL, "2", now=later(5))
    assert found.status == 9
    assert " reason=lock-held " in found.stderr
    assert f":{process.pid} attempt=2 next=2026-09-04T12:06:" in found.stderr
    assert found.stdout == ""
    for argv in (("plan", "a"), ("retry", "a", "--dry-run")):
        plan = jobrun(*argv, now=later(5)).stdout
        assert ("lock-held" in plan, "lock: held by run 1, " in plan) == (True, True), plan
        assert "retry-later" not in plan
    process.kill()
    process.communicate(timeout=20)
    assert "retry-later" in jobrun("plan", "a", now=later(5)).stdout


def test_kill_9_during_the_wait_loses_nothing(jobrun: Jobrun) -> None:
    """The delay holds for the calls after it; then the attempts are counted on."""
    process = waiting(jobrun)
    process.kill()
    process.communicate(timeout=20)
    call = ("run", "a", *HOURLY, "--retries", "3", "--", *UNTIL, "2")
    early = jobrun(*call, now=later(59))
    assert f" reason=retry-later key={KEY} " in early.stderr
    assert 60 <= next_of(early) <= 75
    found = jobrun(*call, now=later(75))
    assert (found.status, found.stdout) == (0, "2 retry\n")
    assert state(jobrun) == ("processed", 2, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait(jobrun: Jobrun, number: int) -> None:
    """Exit 128+n at once; the window is due when it was, and the lock is free."""
    process = waiting(jobrun)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert state(jobrun) == ("failed", 1, 1)
    found = jobrun("run", "a", *HOURLY, "--", *UNTIL, "2", now=later(5))
    assert "reason=retry-later" in found.stderr


def test_stop_after_bounds_the_wait(jobrun: Jobrun) -> None:
    """What would come too late is left to a later call."""
    options = (*HOURLY, "--retries", "3", "--retry-delay", "30s", "--stop-after", "10s")
    found = jobrun("run", "a", *options, "--", *UNTIL, "2", now=NOW)
    assert found.status == 11
    assert 30 <= next_of(found) <= 38
    again = jobrun("run", "a", *options, "--", *UNTIL, "2", now=later(38))
    assert (again.status, again.stdout) == (0, "2 retry\n")


def test_another_holder_during_the_wait_goes_before(jobrun: Jobrun) -> None:
    """Its token is newer: the call that waited starts nothing, and ends with its failure."""
    options = (*HOURLY, "--retries", "3", "--retry-delay", "2s")
    process = jobrun.start("run", "a", *options, "--", *UNTIL, "9", now=NOW)
    until(lambda: jobrun.ledger.exists() and _waits(jobrun), "the failure")
    jobrun.change("update jobrun_job set token = token + 1")
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (11, b"1 new\n")
    assert jobrun.query("select count(*) from jobrun_run where outcome is null") == [(0,)]
    assert events(jobrun) == []  # how it goes on is the other's to tell


def _waits(jobrun: Jobrun) -> bool:
    try:
        return bool(jobrun.query("select 1 from jobrun_window where next_attempt_at is not null"))
    except Exception:  # the tables are not there yet
        return False


def test_what_marked_itself_is_not_tried_again(jobrun: Jobrun) -> None:
    """Processed whatever it answered; the next window has its turn."""
    marks = (
        "import os, sqlite3, jobrun; c = sqlite3.connect(os.environ['JOBRUN_LEDGER'], timeout=30,"
        " isolation_level=None); c.execute('BEGIN IMMEDIATE'); jobrun.done(c); c.execute('COMMIT');"
        " raise SystemExit(4)"
    )
    options = ("--first", "2026-09-04T10:00Z", "--on-failure", "continue", "--retries", "3")
    found = jobrun(
        "run", "a", *HOURLY, *options, "--retry-delay", "0", "--", "python3", "-c", marks, now=NOW
    )
    assert found.status == 4
    assert outcomes(jobrun) == [(1, "failed"), (1, "failed")]
    assert jobrun.query("select distinct state from jobrun_window") == [("processed",)]


# -- over calls ------------------------------------------------------------------------------------


def test_R03_a_long_delay_is_kept_by_the_calls_after_it(jobrun: Jobrun) -> None:
    """Ticks before it say when; each attempt comes at its time, six of them, then it is dead."""
    call = ("run", "a", *HOURLY, "--retries", "5", "--retry-delay", "90s", "--", *UNTIL, "9")
    at = 0
    for number in range(1, 6):
        failed = jobrun(*call, now=later(at))
        assert failed.status == 10 + number
        due = next_of(failed)
        asked = 90 * 2 ** (number - 1)
        assert asked <= due - at <= asked * 5 / 4 + 1
        early = jobrun(*call, now=later(due - 1))
        assert (early.status, next_of(early), early.stdout) == (0, due, "")
        assert " reason=retry-later " in early.stderr
        at = due
    assert "what=dead" in jobrun(*call, now=later(at)).stderr
    assert state(jobrun) == ("dead", 6, 6)
    helped = jobrun("run", "--help", "--all").stdout
    assert "--retries N\n      try again so often, then the window is dead" in helped


def test_R04_jobs_that_fail_together_come_again_apart(jobrun: Jobrun) -> None:
    """Twenty in one second: the delays grow, are bounded and spread, each attempt has its row."""
    names = [f"job{number}" for number in range(20)]
    call = ("--retries", "3", "--retry-delay", "2m", "-q", "--", "false")

    def all_at_once(now: str) -> list[int]:
        processes = [jobrun.start("run", name, *HOURLY, *call, now=now) for name in names]
        assert [process.wait(60) for process in processes] == [1] * 20
        for process in processes:
            process.communicate()
        rows = jobrun.query("select next_attempt_at from jobrun_window")
        return [from_iso(str(text)) - int(instant(now)) for (text,) in rows]

    jobrun("run", "other", "--", "true")  # makes the ledger
    first, second = all_at_once(NOW), all_at_once(later(150))
    assert all(120 <= seconds <= 151 for seconds in first)
    assert all(240 <= seconds <= 301 for seconds in second)
    assert len(set(first)) > 8
    assert len(set(second)) > 8
    assert jobrun.query("select count(*) from jobrun_run where job <> 'other'") == [(40,)]


def test_backoff_survives_a_reboot(jobrun: Jobrun) -> None:
    """Between attempts, and in the middle of one: they are counted, spaced and bounded as asked."""
    options = (*HOURLY, "--retries", "3", "--retry-delay", "2m")
    first = jobrun("run", "a", *options, "--", *UNTIL, "9", now=NOW)
    due = next_of(first)
    assert 120 <= due <= 151
    # The machine is off over the second attempt's time, and comes back in the middle of it.
    ready = jobrun.folder / "ready"
    waits = ("sh", "-c", 'echo "$JOBRUN_ATTEMPT $$" > ready; exec sleep 600')
    process = jobrun.start("run", "a", *options, "--", *waits, now=later(due + 3000))
    until(lambda: ready.exists() and ready.read_text().endswith("\n"), "the second attempt")
    attempt, pid = ready.read_text().split()
    assert attempt == "2"
    process.kill()
    process.communicate(timeout=20)
    until(lambda: not is_alive(pid), "the end of its command")
    until_free(jobrun.ledger, "a")
    # It is lost, which counts; the third is due at once, the fourth after the third's delay.
    third = jobrun("run", "a", *options, "--", *UNTIL, "9", now=later(due + 3060))
    assert "LOST" in third.stderr
    assert third.stdout == "3 retry\n"
    spaced = next_of(third) - (due + 3060)
    assert 480 <= spaced <= 601
    early = jobrun("run", "a", *options, "--", *UNTIL, "9", now=later(due + 3060 + 479))
    assert "reason=retry-later" in early.stderr
    last = jobrun("run", "a", *options, "--", *UNTIL, "9", now=later(due + 3060 + spaced))
    assert (last.stdout, "what=dead" in last.stderr) == ("4 retry\n", True)
    assert outcomes(jobrun) == [(1, "failed"), (2, "lost"), (3, "failed"), (4, "failed")]


def test_a_delay_of_a_clock_that_was_wrong_is_none(jobrun: Jobrun) -> None:
    """The longest delay of the job is the bound: more ahead of now can't be one of its own."""
    options = (*HOURLY, "--retries", "9", "--retry-delay", "2h", "--retry-max-delay", "4h")
    assert 7200 <= next_of(jobrun("run", "a", *options, "--", *UNTIL, "2", now=NOW)) <= 9001
    early = jobrun("run", "a", *options, "--", *UNTIL, "2", now=later(7199))
    assert "reason=retry-later" in early.stderr
    jobrun.change("update jobrun_window set next_attempt_at = '2026-09-04T20:00:00+00:00'")
    assert jobrun("run", "a", *options, "--", *UNTIL, "2", now=later(7200)).stdout.startswith(
        "2 retry\n"
    )


def test_max_attempts_alone_bounds_what_is_tried_as_before(jobrun: Jobrun) -> None:
    """By later calls, from the start of the attempt, without a wait in the call."""
    call = ("run", "a", *HOURLY, "--max-attempts", "2", "--", *UNTIL, "9")
    assert jobrun(*call, now=NOW).status == 11
    assert "reason=retry-later" in jobrun(*call, now=later(59)).stderr
    assert "what=dead" in jobrun(*call, now=later(60)).stderr
    assert state(jobrun) == ("dead", 2, 2)


def test_a_lost_run_counts(jobrun: Jobrun) -> None:
    """What takes its machine down with it is not run for ever; later windows run at once."""
    call = ("run", "a", *HOURLY, "--max-attempts", "1", "--")
    lose(jobrun, *call[2:-1])
    found = jobrun(*call, *UNTIL, "1", now="2026-09-04T13:05:00Z")
    assert found.status == 0
    assert [line.split()[1] for line in found.lines] == ["LOST", "WARNING", "hint:", "PROCESSED"]
    assert f" what=dead key={KEY} " in found.stderr
    assert state(jobrun) == ("dead", 1, 1)
    assert events(jobrun) == ["lost", "dead"]


def lose(jobrun: Jobrun, *options: str, now: str = NOW, fails: str = "none") -> None:
    """A call of the job a that is killed with its command; it fails first for that key."""
    ready = jobrun.folder / "ready"
    waits = f'[ "$JOBRUN_KEY" != {fails} ] || exit 1; echo $$ > ready; exec sleep 600'
    process = jobrun.start("run", "a", *options, "--", "sh", "-c", waits, now=now)
    until(lambda: ready.exists() and ready.read_text().endswith("\n"), "the command")
    process.kill()
    process.communicate(timeout=20)
    until(lambda: not is_alive(ready.read_text().strip()), "the command's end")
    until_free(jobrun.ledger, "a")


def test_interrupted_does_not_count(jobrun: Jobrun) -> None:
    """A window that was stopped by a signal is due at once, whatever the bound."""
    call = ("run", "a", *HOURLY, "--max-attempts", "1", "--")
    process = jobrun.start(*call, "sh", "-c", "echo ready; exec sleep 600", now=NOW)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert state(jobrun) == ("failed", 1, 0)
    assert jobrun(*call, *UNTIL, "2", now=NOW).stdout == "2 retry\n"


# -- which codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "codes", "command", "dies"),
    [
        ("--give-up-on", "2,64-78", ("sh", "-c", "exit 65"), True),
        ("--give-up-on", "2,64-78", ("sh", "-c", "exit 1"), False),
        ("--give-up-on", "127", ("no-such-program",), True),
        ("--retry-on", "75", ("sh", "-c", "exit 75"), False),
        ("--retry-on", "75", ("sh", "-c", "exit 1"), True),
        ("--retry-on", "124,137", ("sh", "-c", "kill -9 $$"), False),
    ],
)
def test_codes_decide(
    jobrun: Jobrun, option: str, codes: str, command: tuple[str, ...], dies: bool
) -> None:
    """As jobrun answers them: one that is final makes the window dead at once."""
    call = ("run", "a", *HOURLY, "--retries", "3", "--retry-delay", "2m", option, codes, "--")
    jobrun(*call, *command, now=NOW)
    assert state(jobrun) == ("dead" if dies else "failed", 1, 1)


def test_a_final_code_ends_the_retries_of_a_plain_call(jobrun: Jobrun) -> None:
    """And no window is there to be dead."""
    call = ("run", "p", "--retries", "3", "--retry-delay", "0", "--give-up-on", "12", "--")
    found = jobrun(*call, *UNTIL, "9", now=NOW)
    assert (found.status, found.stdout, "dead" in found.stderr) == (12, "1 \n2 \n", False)


# -- plain calls and units of --key ----------------------------------------------------------------


def test_a_plain_call_tries_again_itself(jobrun: Jobrun) -> None:
    """Attempts are numbered, each has its row; the next call begins anew."""
    call = ("run", "p", "--retries", "2", "--retry-delay", "0", "--", *UNTIL, "3")
    assert (jobrun(*call).status, jobrun(*call).stdout) == (0, "1 \n2 \n3 \n")
    assert [attempt for attempt, _ in outcomes(jobrun)] == [1, 2, 3] * 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--retry-delay", "10s"), "--retry-delay needs --retries"),
        (("--retries", "2", "--retry-delay", "2m"), "waits a minute at the most"),
        (("--retries", "2", "--retry-max-delay", "1h"), "waits a minute at the most"),
        (("--max-attempts", "2"), "--max-attempts needs"),
        (("--on-lost", "hold"), "--on-lost needs"),
        (("--key", "k", "--retry-on", "1", "--give-up-on", "2"), "one of them"),
        (("--key", "k", "--retry-delay", "2m", "--retry-max-delay", "1m"), "is less than"),
        (("--retries", "-1"), "a whole number from 0"),
    ],
)
def test_what_can_not_be_kept_is_refused(jobrun: Jobrun, argv: tuple[str, ...], words: str) -> None:
    """Usage, before anything is touched."""
    found = jobrun("run", "p", *argv, "--", "true")
    assert (found.status, words in found.stderr) == (2, True), found.stderr
    assert not jobrun.ledger.exists()


def test_a_plain_calls_delay_is_a_minute_at_the_most() -> None:
    """Doubled up to there, whatever the count."""
    job = jobs.parse_run(["p", "--retries", "9", "--retry-delay", "20s", "--", "true"], {})
    assert [fate.delay(job, n, None) for n in (1, 2, 3, 9)] == [20, 40, 60, 60]


def test_a_unit_of_key_is_tried_again_by_its_next_call(jobrun: Jobrun) -> None:
    """Not before its delay; dead it says so; without any of these options at once, as ever."""
    call = ("run", "k", "--key", "one", "--retries", "1", "--retry-delay", "2m", "--")
    due = next_of(jobrun(*call, *UNTIL, "9", now=NOW))
    assert 120 <= due <= 151
    early = jobrun(*call, *UNTIL, "9", now=later(due - 1))
    assert (next_of(early), " reason=retry-later key=k:one " in early.stderr) == (due, True)
    assert "what=dead" in jobrun(*call, *UNTIL, "9", now=later(due)).stderr
    assert state(jobrun, "k:one") == ("dead", 2, 2)
    after = jobrun(*call, *UNTIL, "1", now=later(due))
    assert (after.status, after.stdout) == (0, "")
    assert " reason=key-exists key=k:one state=dead " in after.stderr
    plain = ("run", "k", "--key", "two", "--", *UNTIL, "2")
    assert (jobrun(*plain, now=NOW).status, jobrun(*plain, now=NOW).stdout) == (11, "2 retry\n")


@pytest.mark.parametrize("gone", [False, True])
def test_another_file_is_not_tried_under_the_key_of_the_one_that_failed(
    jobrun: Jobrun, gone: bool
) -> None:
    """It came during the wait: the call ends with its failure, the next one names what is there."""
    file = jobrun.folder / "in.csv"
    file.write_text("one\n")
    call = ("run", "a", "--key-file", "in.csv", "--retries", "2", "--retry-delay", "1m", "--")
    process = jobrun.start(*call, "sh", "-c", "cat in.csv; exit 3", now=NOW)
    lock = Path(places.locks_folder(str(jobrun.ledger))) / f"{places.slug('a')}.lock"
    until(lambda: lock.exists() and b" attempt=2 " in lock.read_bytes(), "the wait")
    other = jobrun.folder / "new"
    other.write_text("another\n")
    if gone:
        file.unlink()
    else:
        other.replace(file)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (3, b"one\n")
    assert err.count(b'error: --key-file "in.csv" is no longer the same file: not tried again') == 1
    assert (outcomes(jobrun), events(jobrun)) == ([(1, "failed")], ["failed"])
    if gone:
        other.replace(file)
    found = jobrun(*call, "cat", "in.csv", now=NOW)
    assert (found.status, found.stdout) == (0, "another\n")
    assert jobrun.query("select count(distinct key) from jobrun_window") == [(2,)]


def test_the_same_file_is_tried_again(jobrun: Jobrun) -> None:
    """In the call, as a window is; one that the command itself has rewritten is another one."""
    file = jobrun.folder / "in.csv"
    file.write_text("one\n")
    call = ("run", "a", "--key-file", "in.csv", *SHORTLY, "--", "sh", "-c")
    script = 'cat in.csv; [ "$JOBRUN_ATTEMPT" = 2 ]'
    assert jobrun(*call, script, now=NOW).stdout == "one\n" * 2
    file.write_text("another\n")
    rewrites = jobrun(*call, "cat in.csv; echo more >> in.csv", now=NOW)
    assert (rewrites.status, rewrites.stdout) == (76, "another\n")


# -- lost, and a person decides --------------------------------------------------------------------


def test_on_lost_hold_waits_for_a_person(jobrun: Jobrun) -> None:
    """Said once, quiet or not; later windows wait behind it, and each call says so."""
    options = (*HOURLY, "--on-lost", "hold", "-q", "--busy-exit", "9")
    lose(jobrun, *options)
    call = ("run", "a", *options, "--", *UNTIL, "1")
    found = jobrun(*call, now="2026-09-04T13:05:00Z")
    assert (found.status, found.stdout) == (9, "")
    assert [line.split()[1] for line in found.lines] == ["LOST", "WARNING", "hint:"]
    assert f'jobrun resolve a {KEY} --note "..."; else: jobrun retry a {KEY}' in found.lines[2]
    assert state(jobrun) == ("held", 1, 1)
    assert events(jobrun) == ["lost", "held"]
    loud = tuple(word for word in call if word != "-q")
    again = jobrun(*loud, now="2026-09-04T13:06:00Z")
    assert again.lines == [
        f"jobrun: SKIPPED job=a reason=window-held key={KEY} at=2026-09-04T13:06:00Z"
    ]


def test_on_lost_hold_of_a_unit(jobrun: Jobrun) -> None:
    """Its next call runs nothing; a mail is not sent twice unless a person says so."""
    lose(jobrun, "--key", "mail", "--on-lost", "hold")
    call = ("run", "a", "--key", "mail", "--on-lost", "hold", "--", *UNTIL, "1")
    for _ in range(2):
        found = jobrun(*call, now=NOW)
        assert (found.stdout, "reason=window-held key=a:mail" in found.stderr) == ("", True)
    assert state(jobrun, "a:mail") == ("held", 1, 1)
    assert jobrun("skip", "a", "a:mail", "--reason", "it was sent", now=NOW).status == 0
    assert state(jobrun, "a:mail") == ("skipped", 1, 1)


def test_the_plan_says_what_a_lost_run_comes_to(jobrun: Jobrun) -> None:
    """Before a call has said so: held, or dead and the next window."""
    lose(jobrun, *HOURLY, "--on-lost", "hold")
    held = jobrun("plan", "a", now="2026-09-04T13:05:00Z").stdout
    assert f"skip  {KEY}  window-held" in held
    jobrun.change("update jobrun_job set spec = replace(spec, '\"--on-lost\": \"hold\"',"
                  " '\"--max-attempts\": \"1\"')")  # fmt: skip
    dead = jobrun("plan", "a", "--json", now="2026-09-04T13:05:00Z").stdout
    assert '"runs_in_all": 1' in dead
    assert '"start": "2026-09-04T12:00:00+00:00"' in dead
    assert '"what": "dead"' in dead


# -- events ----------------------------------------------------------------------------------------


def test_a_job_that_fails_is_one_event_and_its_recovery_one(jobrun: Jobrun) -> None:
    """However often it fails; with a hole left by `continue` it has not recovered."""
    call = ("run", "a", *HOURLY, "--first", "2026-09-04T10:00Z", "--on-failure", "continue", "--")
    fails_at_ten = ("sh", "-c", 'case "$JOBRUN_KEY" in *T10:*) exit 3;; esac')
    for minutes in (0, 10, 30):
        jobrun(*call, *fails_at_ten, now=later(minutes * 60))
    assert events(jobrun) == ["failed"]
    jobrun(*call, "true", now=later(3600))
    jobrun(*call, "true", now=later(7200))
    assert events(jobrun) == ["failed", "recovered"]
    assert jobrun.query("select detail from jobrun_event") == [
        ("exit 3, run=1",),
        ("succeeded, run=5",),
    ]
    jobrun("run", "p", "--", "false")
    jobrun("run", "p", "--", "false")
    jobrun("run", "p", "--", "true")
    assert events(jobrun)[2:] == ["failed", "recovered"]


def test_a_failure_whose_wait_is_ended_is_told_of(jobrun: Jobrun) -> None:
    """By a signal the call never makes it good: one event, and one when a later call has."""
    process = waiting(jobrun)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert events(jobrun) == ["failed"]
    assert jobrun.query("select key, detail from jobrun_event") == [(KEY, "exit 11, run=1")]
    jobrun("run", "a", *HOURLY, "--", *UNTIL, "2", now=later(75))
    assert events(jobrun) == ["failed", "recovered"]


def test_a_plain_failure_whose_wait_is_stopped_is_told_of(jobrun: Jobrun) -> None:
    """FAILING says the screen, and so do the events."""
    retries = ("--retries", "2", "--retry-delay", "1m")
    process = jobrun.start("run", "a", *retries, "--", "false", now=NOW)
    lock = Path(places.locks_folder(str(jobrun.ledger))) / f"{places.slug('a')}.lock"
    until(lambda: lock.exists() and b" attempt=2 " in lock.read_bytes(), "the wait")
    assert jobrun("stop", "a", now=later(5)).status == 0
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert sorted(map(str, events(jobrun))) == ["failed", "stop"]


def test_a_failure_whose_next_try_is_paused_is_told_of(jobrun: Jobrun) -> None:
    """A pause during the wait: the try does not begin, the failure stands."""
    options = (*HOURLY, "--retries", "3", "--retry-delay", "8s")
    process = jobrun.start("run", "a", *options, "--", *UNTIL, "9", now=NOW)
    until(lambda: jobrun.ledger.exists() and _waits(jobrun), "the failure")
    assert jobrun("pause", "a", now=NOW).status == 0
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (11, b"1 new\n")
    assert events(jobrun) == ["paused", "failed"]


# Fails with 3, then holds.
THEN_HOLDS = ("sh", "-c", '[ "$JOBRUN_ATTEMPT" != 1 ] || exit 3; exec "$@"', "sh", *HOLD)


def stop_it(jobrun: Jobrun, held: Held, how: str) -> None:
    """To its end; a command whose stdin ends first would succeed."""
    if how == "stop":
        assert jobrun("stop", "a", now=NOW).status == 0
    elif how == "TERM":
        held.wrapper.send_signal(signal.SIGTERM)
    else:
        stat = Path(f"/proc/{held.pid}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    held.wrapper.wait(20)


@pytest.mark.parametrize("how", ["stop", "TERM", pytest.param("guardian", marks=linux)])
def test_a_failure_whose_next_try_is_stopped_is_told_of(jobrun: Jobrun, how: str) -> None:
    """The call does not make it good; one event of the failure, and one when a later call has."""
    held = Held(jobrun, "a", *HOURLY, *SHORTLY, command=THEN_HOLDS, now=NOW)
    stop_it(jobrun, held, how)
    held.release()
    assert outcomes(jobrun) == [(1, "failed"), (2, "interrupted")]
    failed = "select key, detail from jobrun_event where kind = 'failed'"
    assert jobrun.query(failed) == [(KEY, "exit 3, run=1")]
    jobrun("run", "a", *HOURLY, "--", "true", now=later(75))
    assert [kind for kind in events(jobrun) if kind != "stop"] == ["failed", "recovered"]


def test_a_plain_failure_whose_next_try_is_stopped_is_told_of(jobrun: Jobrun) -> None:
    """As one of a window."""
    held = Held(jobrun, "a", *SHORTLY, command=THEN_HOLDS, now=NOW)
    stop_it(jobrun, held, "TERM")
    assert held.release().status == 128 + signal.SIGTERM
    assert events(jobrun) == ["failed"]


def test_a_failure_whose_next_try_does_not_end_is_told_of(jobrun: Jobrun) -> None:
    """Something of it survives the ladder: the call ends, and the run is left as it is."""
    survives = (
        "from jobrun.attempt import Attempt\n"
        "real = Attempt.perform\n"
        "def perform(self, child):\n"
        "    alive = (1,) if self.claimed.attempt == 2 else ()\n"
        "    return real(self, child)._replace(survivors=alive)\n"
        "Attempt.perform = perform"
    )
    found = altered(jobrun, survives, "run", "a", *HOURLY, *SHORTLY, "--", "false", now=NOW)
    assert " what=not-ended " in found.stderr
    assert outcomes(jobrun) == [(1, "failed"), (2, None)]
    assert events(jobrun) == ["failed"]


def test_what_marked_itself_before_it_was_stopped_has_not_failed(jobrun: Jobrun) -> None:
    """The second try has made it good, and nothing is told."""
    marks = (
        "import os, sqlite3, jobrun; c = sqlite3.connect(os.environ['JOBRUN_LEDGER'], timeout=30,"
        " isolation_level=None); c.execute('BEGIN IMMEDIATE'); jobrun.done(c); c.execute('COMMIT');"
        f"{HOLD[2]}"
    )
    command = (*THEN_HOLDS[:4], PYTHON, "-uc", marks)
    held = Held(jobrun, "a", *HOURLY, *SHORTLY, command=command, now=NOW)
    stop_it(jobrun, held, "TERM")
    assert " PROCESSED job=a " in held.release().stderr
    assert events(jobrun) == []


# -- stopping what hangs ---------------------------------------------------------------------------


def test_R01_a_timeout_leaves_nothing_behind(jobrun: Jobrun) -> None:
    """The shell and its child are gone, the run is `timed-out`, the next call gets the lock."""
    script = "echo $$ >> pids; sleep 999 & echo $! >> pids; wait; true"
    found = jobrun("run", "a", "--timeout", "4", "--kill-after", "1", "--", "sh", "-c", script)
    assert (found.status, outcomes(jobrun)) == (124, [(1, "timed-out")])
    pids = (jobrun.folder / "pids").read_text().split()
    assert [is_alive(pid) for pid in pids] == [False, False]
    assert jobrun("run", "a", "--", "true").status == 0


# -- the arithmetic --------------------------------------------------------------------------------


def test_the_delays_of_retries_grow_and_are_capped() -> None:
    """Doubled up to --retry-max-delay, an hour by default, never below the first."""

    def delays(*options: str) -> list[int | None]:
        job = jobs.parse_run(["j", "--every", "10m", *options, "--", "true"], {})
        return [fate.delay(job, number, 600) for number in (1, 2, 3, 9, 99)]

    assert delays() == [60, 120, 240, 600, 600]
    assert delays("--retries", "3") == [60, 120, 240, 3600, 3600]
    assert delays("--retries", "3", "--retry-max-delay", "3m") == [60, 120, 180, 180, 180]
    assert delays("--retries", "3", "--retry-delay", "2h") == [7200] * 5
    assert delays("--retry-delay", "5m", "--retry-max-delay", "2h") == [300, 600, 1200, 7200, 7200]


def test_jitter_adds_up_to_a_quarter_and_is_the_same_each_time() -> None:
    """From the key and the number of the failure."""
    drawn = [fate.jitter("j", f"j:{n}", 1, 120) for n in range(200)]
    assert 0 <= min(drawn) < 3
    assert 27 < max(drawn) < 30
    assert drawn == [fate.jitter("j", f"j:{n}", 1, 120) for n in range(200)]
    each = [fate.jitter("j", "j:1", number, 120) for number in range(1, 6)]
    assert all(one != other for one, other in pairwise(each))


# -- retry, by hand --------------------------------------------------------------------------------


@pytest.fixture
def broken(jobrun: Jobrun) -> Jobrun:
    """Of the job a 09:00 is dead, 10:00 processed, 11:00 failed and to be tried much later."""
    call = ("run", "a", *HOURLY, "--first", "2026-09-04T09:00Z", "--on-failure", "continue")
    fails = ("sh", "-c", 'case "$JOBRUN_KEY" in *T10:*) exit 0;; *T09:*) exit 9;; esac; exit 3')
    more = ("--retries", "2", "--retry-delay", "30m", "--give-up-on", "9", "-q", "--")
    jobrun(*call, *more, *fails, now=NOW)
    return jobrun


SHOW = ("sh", "-c", 'echo "$JOBRUN_WINDOW_START $JOBRUN_KIND $JOBRUN_ATTEMPT"')


def test_retry_runs_what_failed_or_is_dead_now(broken: Jobrun) -> None:
    """Oldest first, whatever the delay, with the options of the last call; the failures of a dead
    one count anew."""
    found = broken("retry", "a", "--", *SHOW, now=later(60))
    assert found.status == 0
    assert found.stdout == (
        "2026-09-04T09:00:00+00:00 retry 2\n2026-09-04T11:00:00+00:00 retry 2\n"
    )
    assert broken.query("select distinct state from jobrun_window") == [("processed",)]
    assert broken.query("select failures from jobrun_window order by start") == [(0,), (0,), (1,)]
    again = broken("retry", "a", "--", *SHOW, now=later(60))
    assert (again.status, again.stdout) == (0, "")
    assert " NOTE job=a what=nothing-failed " in again.stderr


def test_retry_of_one(broken: Jobrun) -> None:
    """By its key or its start; what is processed is not for it."""
    found = broken("retry", "a", "2026-09-04T09:00Z", "--", *SHOW, now=later(60))
    assert found.stdout == "2026-09-04T09:00:00+00:00 retry 2\n"
    refused = broken("retry", "a", "a:2026-09-04T10:00:00+00:00", "--", *SHOW, now=later(60))
    assert (refused.status, " is processed: " in refused.stderr) == (2, True)
    assert "hint: jobrun rerun a a:2026-09-04T10:00:00+00:00" in refused.stderr
    off = broken("retry", "a", "2026-09-04T10:30Z", now=later(60))
    assert (off.status, off.stdout) == (2, "")


def test_a_retry_that_fails_is_bounded_anew(broken: Jobrun) -> None:
    """A dead window has all of its attempts again; it goes on being tried by scheduled calls."""
    found = broken("retry", "a", "2026-09-04T09:00Z", "--", "sh", "-c", "exit 3", now=later(60))
    assert found.status == 3
    assert state(broken, "a:2026-09-04T09:00:00+00:00") == ("failed", 2, 1)
    spec = (
        "run",
        "a",
        *HOURLY,
        "--retries",
        "2",
        "--retry-delay",
        "30m",
        "--on-failure",
        "continue",
    )
    calls = [broken(*spec, "--", *SHOW, now=later(hours * 3600)) for hours in (1, 2)]
    assert "2026-09-04T09:00:00+00:00 retry 3\n" in calls[0].stdout


def test_retry_dry_run_changes_nothing(broken: Jobrun) -> None:
    """The plan of that very call."""
    found = broken("retry", "a", "--dry-run", now=later(60))
    assert found.stdout.count("  retry  ") == 2
    assert state(broken, "a:2026-09-04T09:00:00+00:00") == ("dead", 1, 1)


def test_retry_frees_what_is_held(jobrun: Jobrun) -> None:
    """A person has said so: it runs, and the later ones after it."""
    lose(jobrun, *HOURLY, "--on-lost", "hold")
    held = ("run", "a", *HOURLY, "--on-lost", "hold", "--", *SHOW)
    assert "reason=window-held" in jobrun(*held, now=later(3600)).stderr
    found = jobrun("retry", "a", "--", *SHOW, now=later(3600))
    assert found.stdout == "2026-09-04T11:00:00+00:00 retry 2\n"
    assert jobrun(*held, now=later(3600)).stdout == "2026-09-04T12:00:00+00:00 new 1\n"


@pytest.mark.parametrize("options", [("--on-lost", "hold"), ("--max-attempts", "1")])
def test_retry_before_a_call_has_said_what_a_lost_run_comes_to(
    jobrun: Jobrun, options: tuple[str, ...]
) -> None:
    """A person has decided: it runs, and nothing is told of held or dead."""
    lose(jobrun, *HOURLY, *options)
    found = jobrun("retry", "a", "--", *SHOW, now=later(60))
    assert found.stdout == "2026-09-04T11:00:00+00:00 retry 2\n"
    assert "WARNING" not in found.stderr
    assert state(jobrun)[0] == "processed"
    assert events(jobrun) == ["lost"]


@pytest.mark.parametrize(
    ("options", "comes_to"), [(("--on-lost", "hold"), "held"), (("--max-attempts", "1"), "dead")]
)
def test_a_lost_run_that_has_no_turn_in_the_retry_is_told(
    jobrun: Jobrun, options: tuple[str, ...], comes_to: str
) -> None:
    """The retry ends at a window before it: held or dead, with one event and one WARNING."""
    call = ("run", "a", *HOURLY, "--on-failure", "continue", *options)
    assert jobrun(*call, "--first", "2026-09-04T11:00Z", "--", "false", now=NOW).status == 1
    lose(jobrun, *call[2:], now="2026-09-04T13:05:00Z", fails=KEY)
    found = jobrun("retry", "a", "--on-failure", "stop", "--", "false", now=later(3900))
    lost = "a:2026-09-04T12:00:00+00:00"
    assert (found.status, state(jobrun, lost)) == (1, (comes_to, 1, 1))
    assert found.stderr.count(f" WARNING job=a what={comes_to} key={lost} ") == 1
    assert f"jobrun retry a {lost}" in found.stderr
    told = jobrun.query("select kind from jobrun_event where key = ? order by id", lost)
    assert told == [("lost",), (comes_to,)]


def test_retry_of_units_makes_them_due(jobrun: Jobrun) -> None:
    """Their command is not the job's last one: each runs with its own next call, and it says so."""
    call = ("run", "k", "--key", "one", "--retries", "1", "--retry-delay", "10m", "--")
    jobrun(*call, *UNTIL, "9", now=NOW)
    jobrun("run", "k", "--key", "two", "--max-attempts", "1", "--", "false", now=NOW)
    plan = jobrun("retry", "k", "--dry-run", now=later(1))
    assert [line.split()[0] for line in plan.stdout.splitlines()].count("due") == 2
    found = jobrun("retry", "k", now=later(1))
    assert (found.status, found.stdout, found.stderr.count("what=due")) == (0, "", 2)
    assert state(jobrun, "k:two") == ("failed", 1, 0)
    assert jobrun(*call, *UNTIL, "1", now=later(2)).stdout == "2 retry\n"
    one = jobrun("retry", "k", "two", now=later(1))
    assert "what=due key=k:two" in one.stderr
    unknown = jobrun("retry", "k", "one", now=later(1))
    assert (unknown.status, 'no unit "one"' in unknown.stderr) == (2, True)
    command = jobrun("retry", "k", "--", "true", now=later(1))
    assert (command.status, "each for its own call" in command.stderr) == (2, True)
