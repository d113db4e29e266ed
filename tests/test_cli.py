"""The commands that look, from outside: arguments in, stdout, stderr and exit code out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobrun import command, errors, placeholders, rows
from jobrun.options import BY_NAME, LEAD
from jobrun.screens.guide import ENVIRONMENT, EXIT_CODES, GUIDE, PLACEHOLDERS, SKIP_REASONS, TOPICS
from tests.conftest import Jobrun
from tests.orphans import orphaned
from tests.scenes import Held, linux, posix

WaitFor = Callable[[Callable[[], bool], str], None]
NOON = "2026-09-04T12:05Z"
LOOKING = ("status", "history", "windows", "logs", "show", "explain", "skips", "events", "plan")
OF_A_JOB = ("windows", "logs", "show", "explain", "plan")


@pytest.fixture
def sales(jobrun: Jobrun) -> Jobrun:
    """Two hours of a job are done, by two calls."""
    argv = ("run", "sales", "--every", "1h", "--lag", "5m", "-q", "--", "echo", "{start}")
    for now in ("2026-09-04T11:05Z", NOON):
        assert jobrun(*argv, now=now).status == 0
    return jobrun


# -- usage ----------------------------------------------------------------------------------------


def test_a_bare_call_prints_a_guide_and_is_no_success(jobrun: Jobrun) -> None:
    """In a crontab it shall not pass for work done."""
    result = jobrun()
    assert result == (2, "", f"{GUIDE}ledger {jobrun.ledger}\n")


@pytest.mark.parametrize(
    ("argv", "error", "hint"),
    [
        (["stauts"], 'no command "stauts"', "jobrun status"),
        (["sales", "--", "./x", "a b"], 'no command "sales"', "jobrun run sales -- ./x 'a b'"),
        (["status", "--chek"], 'jobrun status: no option "--chek"', "jobrun status --check"),
        (["windows"], "jobrun windows: missing argument 'JOB'", "jobrun windows --help"),
        (["help", "crontabs"], 'no topic "crontabs"', "jobrun help crontab"),
        (
            ["history", "-n", "many"],
            "jobrun history: invalid value for '--limit' / '-n': 'many' is not a valid int range",
            "jobrun history --help",
        ),
    ],
)
def test_a_mistake_is_two_lines(jobrun: Jobrun, argv: list[str], error: str, hint: str) -> None:
    """What is wrong and the next thing to type; no box, no traceback."""
    expected = f"jobrun: error: {error}\njobrun: hint: {hint}\n"
    assert jobrun(*argv) == (2, "", expected)


def test_a_name_that_is_nearly_right_is_offered(sales: Jobrun) -> None:
    """The ledger is named, and how many jobs it knows."""
    for verb in LOOKING:
        result = sales(verb, "slaes")
        assert result.status == 2
        error, hint = result.lines
        assert error == f'jobrun: error: no job "slaes" in {sales.ledger} (1 job)'
        assert hint.startswith("jobrun: hint: sales?")


@pytest.mark.parametrize("verb", LOOKING)
def test_looking_makes_no_ledger(jobrun: Jobrun, verb: str) -> None:
    """A job that can't be there is a mistake; nothing at all is not."""
    result = jobrun(verb, *(["sales"] if verb in OF_A_JOB else []))
    assert result.status == (2 if verb in OF_A_JOB else 0)
    assert f"no ledger at {jobrun.ledger} yet" in result.stdout + result.stderr
    assert list(jobrun.folder.iterdir()) == []


def test_the_hint_to_a_ledger_that_is_not_there_is_what_helps(jobrun: Jobrun) -> None:
    """A run makes the ledger, but not the folder of one that was named."""
    hint = jobrun("status").lines[-1]
    assert hint.startswith("jobrun: hint: jobrun run makes it")
    folder = jobrun.folder / "missing"
    result = jobrun("status", env={"JOBRUN_LEDGER": str(folder / "jobrun.db")})
    assert result.lines == [f"jobrun: hint: mkdir -m 700 -p {folder}"]
    assert jobrun("status", "--ledger", str(folder / "jobrun.db")).lines == result.lines


def test_help_knows_every_command(jobrun: Jobrun) -> None:
    """Those that Typer does not run, too."""
    listed = jobrun("--help").stdout
    for verb in (
        "run",
        "rerun",
        "backfill",
        *LOOKING,
        "doctor",
        "skip",
        "stop",
        "set",
        "unset",
        "watermark",
        "forget",
    ):
        assert f"\n  {verb} " in listed
        assert jobrun(verb, "--help").stdout.startswith(f"Usage: jobrun {verb} ")


def test_help_of_lead_names_each_of_its_options(jobrun: Jobrun) -> None:
    """Those of the table that belong to it, and no other."""
    told = jobrun("lead", "--help").stdout
    names = {word.strip(",") for word in told.partition("Options: ")[2].split("(")[0].split()}
    wanted = {"/".join(option.names): LEAD in option.modes for option in BY_NAME.values()}
    assert names == {name for name, is_its_own in wanted.items() if is_its_own}
    assert {"--lock", "--lock-ttl"} <= names


def test_completion_offers_commands(jobrun: Jobrun) -> None:
    """As a shell asks for it."""
    asked = {"_JOBRUN_COMPLETE": "complete_bash", "COMP_WORDS": "jobrun hi", "COMP_CWORD": "1"}
    assert jobrun(env=asked).stdout.split() == ["history"]


def test_completion_offers_jobs(sales: Jobrun) -> None:
    """Those of the default ledger."""
    asked = {"_JOBRUN_COMPLETE": "complete_bash", "COMP_WORDS": "jobrun logs s", "COMP_CWORD": "2"}
    assert sales(env=asked).stdout.split() == ["sales"]


# -- the topics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_fits_a_screen(jobrun: Jobrun, name: str) -> None:
    """24 lines of 80 columns."""
    shown = jobrun("help", name).stdout
    assert shown == TOPICS[name]
    assert len(shown.splitlines()) <= 24
    assert max(map(len, shown.splitlines())) <= 80


def test_the_topics_name_all_there_is() -> None:
    """Placeholders, skip reasons, exit codes and variables, as the program has them."""
    for name in placeholders.NAMES:
        assert f"{{{name}}}" in PLACEHOLDERS
    reasons = (
        rows.LOCK_HELD, rows.ORPHAN_ALIVE, rows.KEY_EXISTS, rows.NO_CLOSED_WINDOW, rows.NOT_CLOSED,
        rows.NOT_LATEST, rows.TOO_OLD, rows.BY_HAND, rows.RETRY_LATER, rows.WINDOW_HELD,
        rows.PAUSED, rows.CLOCK_BEHIND,
    )  # fmt: skip
    assert [line.split()[0] for line in SKIP_REASONS.splitlines()[:12]] == list(reasons)
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    for code in codes - {errors.EXIT_SIGNAL}:
        assert f"\n{code:5d}  " in EXIT_CODES
    for variable, _ in command._VARIABLES:
        assert variable in ENVIRONMENT.split()


# -- screens --------------------------------------------------------------------------------------


def test_status_of_what_two_calls_did(sales: Jobrun) -> None:
    """As a pipe gets it, at the instant it is asked."""
    took = sales.query("SELECT took FROM jobrun_run ORDER BY id DESC LIMIT 1")[0][0]
    assert isinstance(took, float)
    result = sales("status", now="2026-09-04T12:10Z")
    state = result.stdout.splitlines()[2].split()
    assert result.stdout.startswith(f"ledger {sales.ledger}  now 2026-09-04T12:10:00+00:00\nJOB ")
    assert state[:4] == ["sales", "ok", "2026-09-04T12:00:00+00:00", "-"]
    assert state[-2:] == ["2026-09-04T12:05:00+00:00"] * 2


def test_check_is_silent_where_all_is_well_and_1_where_not(sales: Jobrun) -> None:
    """For a monitor: exit code and the lines that matter."""
    assert sales("status", "--check", now="2026-09-04T12:10Z") == (0, "", "")
    assert sales("run", "bad", "-q", "--", "false", now="2026-09-04T12:10Z").status == 1
    result = sales("status", "--check", now="2026-09-04T12:11Z")
    assert result.status == 1
    assert result.stdout.startswith("bad  FAILING: exit 1 at 09-04 12:10\n")


def test_a_monitor_that_looks_at_the_wrong_place_is_not_content(jobrun: Jobrun) -> None:
    """A second ledger that nobody knew of is one of the ways to lose jobs."""
    assert jobrun("status", "--check").status == 1


@pytest.mark.parametrize("verb", [*LOOKING, "doctor"])
def test_each_screen_is_one_json_document(sales: Jobrun, verb: str) -> None:
    """With its version and the ledger."""
    result = sales(verb, *(["sales"] if verb in OF_A_JOB else []), "--json", now=NOON)
    read = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert (read["v"], read["ledger"]) == (1, str(sales.ledger))


@pytest.mark.parametrize("verb", [*LOOKING, "doctor", "help"])
def test_a_reader_that_has_gone_is_no_error(sales: Jobrun, verb: str) -> None:
    """`| head -1`: no traceback, and the exit code stays what it is."""
    argument = "exit-codes" if verb == "help" else "sales"
    argv = [verb] if verb == "doctor" else [verb, argument]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        process = sales.start(*argv, now=NOON, stdout=writer)
        _, err = process.communicate(timeout=60)
    finally:
        os.close(writer)
    assert b"Traceback" not in err
    assert b"Broken" not in err
    assert process.returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_said(sales: Jobrun) -> None:
    """What could not be written is no secret, and no traceback."""
    with open("/dev/full", "wb") as full:
        process = sales.start("status", now=NOON, stdout=full)
        _, err = process.communicate(timeout=60)
    assert err == b"jobrun: error: can't write all of it: No space left on device\n"


def test_a_stream_that_lacks_a_letter_gets_an_escape(jobrun: Jobrun) -> None:
    """A name in another script can be printed anywhere."""
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    assert jobrun("run", "satış", "-q", "--", "true", env=ascii_only).status == 0
    assert "\nsat\\u0131\\u015f  ok " in jobrun("status", env=ascii_only).stdout
    assert "\nsatış  ok " in jobrun("status", env={"PYTHONIOENCODING": "utf-8"}).stdout


def test_a_job_a_key_and_a_run_are_told_apart(sales: Jobrun) -> None:
    """And a job whose name is a number can be reached."""
    assert sales("run", "2", "-q", "--", "true", now=NOON).status == 0
    key = "sales:2026-09-04T11:00:00+00:00"
    shown = {word: sales("show", word).stdout.splitlines()[1] for word in ("sales", key, "2", "1")}
    assert shown == {
        "sales": "job            sales",
        key: f"key            {key}",
        "2": "job            2",
        "1": "run            1",
    }
    assert sales("show", "99").lines[0] == f"jobrun: error: no run 99 in {sales.ledger}"
    assert sales("show", "sales:x").status == 2


def test_history_since_an_instant(sales: Jobrun) -> None:
    """Only what began at or after it."""
    result = sales("history", "sales", "--since", "2026-09-04T12:00Z", now=NOON)
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["RUN", "2"]


def test_windows_of_a_stretch_and_of_a_job_without(sales: Jobrun) -> None:
    """--last ends at the last window that is ready; a plain job has none."""
    result = sales("windows", "sales", "--last", "2h", now=NOON)
    assert result.stdout.splitlines()[-3:] == [
        "09-04 " + " " * 32 + "#  #",
        "# processed 2",
        "complete",
    ]
    assert sales("run", "plain", "-q", "--", "true", now=NOON).status == 0
    assert sales("windows", "plain").lines[0] == "jobrun: error: plain has no windows"


# -- plan -----------------------------------------------------------------------------------------


def test_plan_says_what_the_next_call_does(sales: Jobrun) -> None:
    """With the options and the command of the last one, at an instant of one's choice."""
    expected = f"""\
ledger {sales.ledger}  now 2026-09-04T14:05:00+00:00
sales  every 1 hour (UTC), lag 5m, catch-up all, at most 100 a call
"""
    tail = """\
done to 2026-09-04 12:00 UTC
DO   WINDOW (UTC)                                         WHY  COMMAND
run  2026-09-04T12:00:00+00:00/2026-09-04T13:00:00+00:00  new  echo 2026-09-04T12:00:00+00:00
run  2026-09-04T13:00:00+00:00/2026-09-04T14:00:00+00:00  new  echo 2026-09-04T13:00:00+00:00
next call that finds more: 2026-09-04 15:05 UTC.  lock: free
"""
    before = sales.ledger.read_bytes()
    result = sales("plan", "sales", "--at", "2026-09-04T14:05Z", now=NOON)
    assert result.status == 0
    assert result.stdout.startswith(expected)
    assert result.stdout.endswith(tail)
    assert before == sales.ledger.read_bytes()


def test_a_dry_run_changes_nothing(jobrun: Jobrun) -> None:
    """No ledger is made for it, and a command without its window is told."""
    argv = ("run", "sales", "--every", "1day", "--dry-run", "--", "restic", "backup")
    result = jobrun(*argv, now=NOON)
    assert (
        "run  2026-09-03T00:00:00+00:00/2026-09-04T00:00:00+00:00  new  restic backup\n"
        in result.stdout
    )
    assert "note: COMMAND names no {start} or {end};" in result.stdout
    assert list(jobrun.folder.iterdir()) == []


def test_plan_sees_that_calls_come_late(jobrun: Jobrun) -> None:
    """A call at :00 and a lag of ten minutes: each window waits for fifty."""
    argv = ("run", "sales", "--every", "1h", "--lag", "10m", "-q", "--", "true", "{start}")
    for hour in range(12, 18):
        assert jobrun(*argv, now=f"2026-09-04T{hour}:00Z").status == 0
    late = "note: its runs begin 50m after their window is ready: call it more often\n"
    assert late in jobrun("plan", "sales", now="2026-09-04T18:00Z").stdout


CALL = ("run", "a", "--every", "1h", "--first", "2026-09-04T09:00Z")


@posix
@pytest.mark.parametrize(
    "argv",
    [
        ("plan", "a"),
        (*CALL, "--dry-run", "--", "true"),
        ("retry", "a", "--dry-run"),
        ("rerun", "a", "2026-09-04T09:00Z", "--dry-run"),
        ("backfill", "a", "--from", "2026-09-04T09:00Z", "--to", "2026-09-04T10:00Z", "--dry-run"),
    ],
)
def test_R47_while_the_job_runs_the_plan_says_that_the_call_is_skipped(
    jobrun: Jobrun, argv: tuple[str, ...]
) -> None:
    """As the call itself: lock-held, by which run; nothing would be run or tried again."""
    assert jobrun(*CALL, "--", "true", now="2026-09-04T10:05Z").status == 0
    assert jobrun(*CALL, "--", "false", now="2026-09-04T11:05Z").status == 1
    held = Held(jobrun, "a", *CALL[2:], now=NOON)
    shown = jobrun(*argv, now=NOON)
    assert shown.status == 0, shown.stderr
    words = [line.split()[:3] for line in shown.stdout.splitlines()]
    assert ["skip", "-", "lock-held"] in words
    assert "run" not in [line[0] for line in words]
    assert "lock: held by run 3, " in shown.stdout
    if "--dry-run" in argv:
        called = jobrun(*(word for word in argv if word != "--dry-run"), now=NOON)
        assert (called.stdout, "reason=lock-held" in called.stderr) == ("", True)
    held.release()
    assert "lock: free" in jobrun(*argv, now=NOON).stdout


@linux
def test_R47_while_a_command_lives_on_without_its_wrapper_the_plan_says_so(jobrun: Jobrun) -> None:
    """orphan-alive, whether the call would wait for the lock or not."""
    with orphaned(jobrun, *CALL[2:], now=NOON):
        for more in ((), ("--wait", "1s")):
            shown = jobrun(*CALL, *more, "--dry-run", "--", "true", now=NOON).stdout
            assert "skip  a:2026-09-04T09:00" in shown
            assert "orphan-alive" in shown
            called = jobrun(*CALL, *more, "--", "true", now=NOON).stderr
            assert "reason=orphan-alive key=a:2026-09-04T09:00" in called


@posix
def test_a_call_that_waits_or_comes_later_leaves_what_runs_now(jobrun: Jobrun) -> None:
    """--wait, and --at: it has its turn once that has ended, and does not run it again."""
    held = Held(jobrun, "a", *CALL[2:], "--max-windows", "1", now=NOON)
    waits = jobrun(
        *CALL, "--wait", "1h", "--log-format", "json", "--dry-run", "--", "true", now=NOON
    )
    later = jobrun("plan", "a", "--json", "--at", "2026-09-04T13:05Z", now=NOON)
    for found in (waits, later):
        data = json.loads(found.stdout)
        assert data["runs"][0]["start"] == "2026-09-04T10:00:00+00:00"
        assert (data["runs"][0]["kind"], data["holder"]) == ("new", 1)
    held.release()


# -- logs -----------------------------------------------------------------------------------------


def test_logs_of_a_job_are_its_newest_run(sales: Jobrun) -> None:
    """stdout has what the command printed; what run it was goes to stderr."""
    result = sales("logs", "sales", now=NOON)
    assert result.stdout == "2026-09-04T11:00:00+00:00\n"
    assert result.stderr.startswith(f"ledger {sales.ledger}  run 2: sales 09-04 11:00 - 12:00, ")
    assert sales("logs", "sales:2026-09-04T10:00:00+00:00").stdout == "2026-09-04T10:00:00+00:00\n"
    assert sales("logs", "1").stdout == "2026-09-04T10:00:00+00:00\n"


def test_logs_are_harmless_unless_raw(jobrun: Jobrun) -> None:
    """Both streams with a line between them, or one, or its very bytes."""
    program = "printf 'a\\033[2J\\377\\nb\\n'; printf 'oops' >&2"
    jobrun("run", "noisy", "-q", "--output", "on-failure", "--", "sh", "-c", program)
    assert jobrun("logs", "noisy").stdout == "a\\x1b[2J\\xff\nb\n==> stderr <==\noops"
    assert jobrun("logs", "noisy", "--stderr").stdout == "oops"
    assert jobrun("logs", "noisy", "--stdout", "--tail", "1").stdout == "b\n"
    process = jobrun.start("logs", "noisy", "--stdout", "--raw")
    assert process.communicate(timeout=60)[0] == b"a\x1b[2J\xff\nb\n"


def test_logs_say_when_there_is_nothing(jobrun: Jobrun) -> None:
    """Nothing printed is another thing than no longer kept."""
    jobrun("run", "still", "-q", "--", "true")
    assert jobrun("logs", "still").lines[-1] == "it printed nothing"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a named pipe")
def test_following_ends_with_the_run(jobrun: Jobrun, tmp_path: Path, wait_for: WaitFor) -> None:
    """What comes is shown as it comes, and the rest when the run has ended."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program = f"echo one; read line < {gate}; echo two"
    running = jobrun.start("run", "slow", "-q", "--", "sh", "-c", program)
    wait_for(lambda: jobrun.kept(1) == b"one\n", "the first line to be kept")
    following = jobrun.start("logs", "slow", "-f")
    assert following.stdout is not None
    assert following.stdout.readline() == b"one\n"
    gate.write_text("\n")
    assert following.communicate(timeout=60)[0] == b"two\n"
    running.communicate(timeout=60)
    assert (running.returncode, following.returncode) == (0, 0)


# -- doctor ---------------------------------------------------------------------------------------


def test_doctor_tries_the_lock_and_checks_the_ledger(sales: Jobrun) -> None:
    """Two processes, one lock; the rows and the watermark."""
    result = sales("doctor", now=NOON)
    assert result.status == 0
    assert (
        "ok    lock        held: a second process is refused; free: it gets it\n" in result.stdout
    )
    assert f"ok    ledger      {sales.ledger}: whole, 1 job\n" in result.stdout


def test_doctor_fails_where_the_ledger_is_none(jobrun: Jobrun) -> None:
    """And says what to do; all else is looked at, too."""
    jobrun.ledger.write_bytes(b"garbage" * 1000)
    result = jobrun("doctor")
    assert result.status == 1
    assert "\nFAIL  ledger      " in result.stdout
    assert "\nok    versions    " in result.stdout


def test_doctor_sees_a_clock_that_went_back(sales: Jobrun) -> None:
    """A call has seen a later one."""
    assert "\nWARN  clock " in sales("doctor", now="2026-09-03T12:00Z").stdout
