"""`set` and `unset`: an option changed without the crontab, with who, when and why (M3)."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.conftest import Jobrun, Result
from tests.test_imports import loaded

NOW = "2026-09-04T12:05:00Z"
HOURLY = ("run", "a", "--every", "1h", "--stdin", "null")
SHOW = ("sh", "-c", "echo $JOBRUN_START_DATE $JOBRUN_WINDOWS")
WHO = re.compile(r"[\w.-]+@[\w.-]+")


@pytest.fixture
def hourly(jobrun: Jobrun) -> Jobrun:
    """Called once by its crontab line, which is done to 12:00."""
    line = ("--timeout", "1h", "--first", "2026-09-04T11:00Z")
    assert jobrun(*HOURLY, *line, "--", "true", now=NOW).status == 0
    return jobrun


def origins(jobrun: Jobrun) -> dict[str, dict[str, object]]:
    shown = json.loads(jobrun("show", "a", "--origin", "--json", now=NOW).stdout)
    return {each["option"]: each for each in shown["options"]}


def who(jobrun: Jobrun) -> str:
    ((user, host),) = jobrun.query("SELECT user, host FROM jobrun_run LIMIT 1")
    return f"{user}@{host}"


def test_M3_an_option_is_changed_without_touching_the_crontab(hourly: Jobrun) -> None:
    """set, then the same line of the crontab: it stops after two windows instead of a hundred; who,
    when and why are in events, in show --origin, and gone from the latter with unset."""
    found = hourly("set", "a", "--max-windows", "2", "--reason", "the source is slow", now=NOW)
    expected = 'what=set option="--max-windows 2" was="--max-windows 100" why="the source is slow"'
    assert (found.status, expected in found.stderr) == (0, True)
    later = hourly(*HOURLY, "--", *SHOW, now="2026-09-04T16:05:00Z")
    assert later.stdout.count("2026-09-04 1\n") == 2
    assert " BACKLOG job=a left=2 " in later.stderr

    origin = origins(hourly)["--max-windows"]
    assert origin == {
        "option": "--max-windows", "value": "2", "from": "set", "by": who(hourly),
        "at": "2026-09-04T12:05:00+00:00", "reason": "the source is slow", "line": None,
    }  # fmt: skip
    assert hourly("unset", "a", "max-windows", "--reason", "it is fine again", now=NOW).status == 0
    assert origins(hourly)["--max-windows"]["from"] == "default"
    assert hourly(*HOURLY, "--", *SHOW, now="2026-09-04T16:06:00Z").stdout.count("\n") == 2
    by = f"by {who(hourly)}"
    assert hourly.query("SELECT kind, detail FROM jobrun_event WHERE kind LIKE '%set'") == [
        ("set", f"--max-windows 2 (was --max-windows 100) {by}: the source is slow"),
        ("unset", f"--max-windows 100 (was --max-windows 2) {by}: it is fine again"),
    ]


def test_it_wins_over_what_the_crontab_says(hourly: Jobrun) -> None:
    """A timeout of an hour becomes one of a second."""
    assert hourly("set", "a", "timeout", "1s", now=NOW).status == 0
    found = hourly(*HOURLY, "--timeout", "1h", "--", "cat", "/dev/zero", now="2026-09-04T13:05Z",
                   stdout=subprocess.DEVNULL)  # fmt: skip
    assert (found.status, " outcome=timed-out " in found.stderr) == (124, True)
    assert origins(hourly)["--timeout"]["value"] == "1s"
    spec = json.loads(str(hourly.query("SELECT spec FROM jobrun_job")[0][0]))
    assert spec["options"]["--timeout"] == "1h"  # what was typed stays what was typed


def test_an_idle_call_goes_by_it_too(hourly: Jobrun) -> None:
    """A lag that was set: the window that its line would take is not ready."""
    hourly("set", "a", "--lag", "30m", now=NOW)
    found = hourly(*HOURLY, "-v", "--", "true", now="2026-09-04T13:05:00Z")
    assert "reason=no-closed-window next=2026-09-04T13:30:00Z" in found.stderr
    assert hourly(*HOURLY, "--", *SHOW, now="2026-09-04T13:31:00Z").stdout == "2026-09-04 1\n"


def test_a_call_says_on_v_what_is_set(hourly: Jobrun) -> None:
    """One NOTE; without -v nothing, and nothing else of it."""
    hourly("set", "a", "--stop-after", "1h", now=NOW)
    hourly("set", "a", "--quiet", now=NOW)
    told = 'NOTE job=a what=set-on-record options="--stop-after 1h, --quiet on"'
    assert told in hourly(*HOURLY, "-v", "--", "true", now=NOW).stderr
    assert hourly(*HOURLY, "--", "true", now="2026-09-04T13:05:00Z").stderr == ""


def test_off_is_as_if_it_were_not_given(hourly: Jobrun) -> None:
    """A flag of the line, and its variable; and an option that has a value."""
    quiet = {"JOBRUN_QUIET": "1"}
    hourly("set", "a", "--quiet", "off", now=NOW)
    hourly("set", "a", "--timeout", "off", now=NOW)
    found = hourly(*HOURLY, "-q", "--", "true", now="2026-09-04T13:05:00Z", env=quiet)
    assert " PROCESSED job=a " in found.stderr
    assert origins(hourly)["--timeout"]["value"] == "off"
    assert origins(hourly)["--timeout"]["line"] is None


@pytest.mark.parametrize(
    ("argv", "error", "hint"),
    [
        (("--timeout", "2x"), '--timeout "2x"', ""),
        (("--max-windows", "0"), '--max-windows "0": a whole number from 1', ""),
        (("--timeuot", "2h"), 'no option "--timeuot"', "--timeout?"),
        (("--every", "1d"), "--every can't be set", "change it in the crontab"),
        (("--accept-clock", "on"), "--accept-clock can't be set", "change it in the crontab"),
        (("--timeout",), "a value is missing: --timeout DUR", ""),
        (("--quiet", "yes"), '--quiet "yes": on or off', "--quiet on"),
        (("--catch-up", "al"), '--catch-up "al": all or latest or merge', "--catch-up all"),
    ],
)
def test_what_no_call_would_take_can_not_be_set(
    hourly: Jobrun, argv: tuple[str, ...], error: str, hint: str
) -> None:
    """By the same parser, and nothing is written."""
    found = hourly("set", "a", *argv, now=NOW)
    assert (found.status, error in found.stderr, hint in found.stderr) == (2, True, True)
    assert hourly.query("SELECT overrides FROM jobrun_job") == [(None,)]


def test_an_option_of_windows_is_none_of_a_plain_job(jobrun: Jobrun) -> None:
    """As a call would say; what is set for windows does not disturb a call of another mode."""
    jobrun("run", "p", "--", "true", now=NOW)
    found = jobrun("set", "p", "--max-age", "1d", now=NOW)
    assert (found.status, "--max-age needs --every or --cron" in found.stderr) == (2, True)
    assert jobrun("set", "p", "--timeout", "1h", now=NOW).status == 0
    assert jobrun("run", "p", "--", "true", now=NOW).status == 0


def test_dry_run_changes_nothing(hourly: Jobrun) -> None:
    """It says what would be; so does unset of what is not set."""
    found = hourly("set", "a", "--timeout", "2h", "--dry-run", now=NOW)
    assert 'what=would-set option="--timeout 2h" was="--timeout 1h"' in found.stderr
    assert hourly.query("SELECT overrides FROM jobrun_job") == [(None,)]
    found = hourly("unset", "a", "--timeout", now=NOW)
    assert (found.status, " what=not-set option=--timeout " in found.stderr) == (0, True)
    hourly("set", "a", "--timeout", "2h", now=NOW)
    found = hourly("unset", "a", "--timeout", "--dry-run", now=NOW)
    assert 'what=would-unset option="--timeout 1h" was="--timeout 2h"' in found.stderr
    assert hourly.query("SELECT count(*) FROM jobrun_event WHERE kind LIKE '%set'") == [(1,)]


def test_what_is_set_already_stays_as_it_was_set(hourly: Jobrun) -> None:
    """Who has set it, when and why is kept, and there is no second event; another why is one."""
    assert hourly("set", "a", "--timeout", "2h", "--reason", "slow", now=NOW).status == 0
    before = hourly.query("SELECT overrides FROM jobrun_job")
    for more in ((), ("--reason", "slow"), ("--dry-run",)):
        found = hourly("set", "a", "--timeout", "2h", *more, now="2026-09-04T18:00Z")
        assert (found.status, len(found.lines)) == (0, 1)
        assert ' NOTE job=a what=set-already option="--timeout 2h" by=' in found.stderr
        assert " why=slow at=" in found.stderr
    assert hourly.query("SELECT overrides FROM jobrun_job") == before
    assert "what=set " in hourly("set", "a", "--timeout", "2h", "--reason", "x", now=NOW).stderr
    assert hourly.query("SELECT count(*) FROM jobrun_event WHERE kind = 'set'") == [(2,)]


def test_plan_rerun_and_screens_go_by_what_is_set(hourly: Jobrun) -> None:
    """What they say of the next call must be what it does; what is typed by hand wins."""
    hourly("set", "a", "--lag", "20m", now=NOW)
    hourly("set", "a", "--kill-after", "3s", now=NOW)
    assert "waits for\n" not in hourly("plan", "a", now=NOW).stdout
    planned = hourly("plan", "a", now=NOW).stdout
    assert "with what is set since" in planned
    assert "lag 20m" in planned
    line = hourly(*HOURLY, "--dry-run", "--", "true", now=NOW).stdout
    assert "lag 20m" in line
    shown = hourly("show", "a", now=NOW).stdout
    assert "set on record  --lag 20m, --kill-after 3s    (--origin)\n" in shown
    again = hourly("rerun", "a", "2026-09-04T11:00Z", "--kill-after", "5s", now=NOW)
    assert "--lag 20m" in again.lines[0]
    assert "--kill-after" not in again.lines[0]


def test_a_running_job_can_be_set(hourly: Jobrun) -> None:
    """Without its lock; the run goes on with what it began with, and that is said."""
    later = "2026-09-04T13:05:00Z"
    wait = ("sh", "-c", "echo ready; exec cat")
    running = hourly.start(*HOURLY[:3], "1h", "--stdin", "inherit", "--", *wait, now=later,
                           stdin=subprocess.PIPE)  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    found = hourly("set", "a", "--timeout", "2h", now=later)
    assert (found.status, "hint: run 2 goes on with what it began with" in found.stderr) == (
        0, True,
    )  # fmt: skip
    running.communicate(timeout=20)
    assert running.returncode == 0
    assert origins(hourly)["--timeout"]["value"] == "2h"


def test_two_who_set_at_the_same_moment_both_have_their_way(hourly: Jobrun) -> None:
    """Read, changed, compared and set: neither is lost."""
    options = ("--timeout", "--stop-after", "--remind", "--lag")
    started = [hourly.start("set", "a", option, "1h", now=NOW) for option in options]
    for each in started:
        each.communicate(timeout=20)
        assert each.returncode == 0
    found = {name for name, each in origins(hourly).items() if each["from"] == "set"}
    assert found == set(options)


def test_show_origin_tells_the_three_apart(hourly: Jobrun) -> None:
    """Set by whom and why, said by the crontab's line, the default: to the letter."""
    hourly("set", "a", "--timeout", "2h", "--reason", "slow disk", now=NOW)
    text = WHO.sub("WHO", hourly("show", "a", "--origin", now=NOW).stdout)
    lines = [re.sub(" {2,}", "  ", line) for line in text.splitlines()]
    assert lines[1:3] == ["a", "OPTION  VALUE  FROM"]
    assert "--every  1h  the crontab (WHO, 09-04 12:05)" in lines
    assert "--timeout  2h  set by WHO, 09-04 12:05: slow disk (the last call says 1h)" in lines
    assert "--max-windows  100  default" in lines
    assert hourly("show", "1", "--origin", now=NOW).status == 2


@pytest.mark.skipif(sys.platform == "win32", reason="another launcher")
def test_a_call_without_anything_set_loads_nothing_for_it(jobrun: Jobrun) -> None:
    """The way to a command is as short as before."""
    argv = ("run", "a", "-q", "--", "true")
    assert not loaded(jobrun, *argv) & {"jobrun.setting", "jobrun.overrides", "json"}
    jobrun("set", "a", "--timeout", "1h")
    assert "jobrun.setting" in loaded(jobrun, *argv)


# -- what does not fit the line any more ----------------------------------------------------------

BREAKER = ("--pause-after", "3")


def ignored(found: Result) -> list[str]:
    return [line for line in found.lines if " what=override-ignored " in line]


def test_unset_is_refused_like_set_where_the_line_would_not_fit(jobrun: Jobrun) -> None:
    """It names what is in the way, which can be unset first; then both are gone."""
    line = ("run", "s", "--every", "1h", *BREAKER, "--resume-after", "1h", "--", "true")
    jobrun(*line, now=NOW)
    assert jobrun("set", "s", "resume-after", "off", now=NOW).status == 0
    assert jobrun("set", "s", "pause-after", "off", now=NOW).status == 0
    found = jobrun("unset", "s", "resume-after", now=NOW)
    assert found.status == 2
    assert found.lines == [
        "jobrun: error: --pause-after off, set on record, would not fit any more:"
        " --resume-after needs --pause-after",
        "jobrun: hint: first: jobrun unset s pause-after",
    ]
    assert jobrun(*line, now="2026-09-04T13:05Z").status == 0
    assert jobrun("unset", "s", "pause-after", now=NOW).status == 0
    assert jobrun("unset", "s", "resume-after", now=NOW).status == 0
    assert jobrun.query("SELECT overrides FROM jobrun_job") == [(None,)]


def test_what_the_edited_line_has_no_place_for_is_left_out_and_said(jobrun: Jobrun) -> None:
    """The job goes on at every tick, quiet or not it says what, whose and how to be rid of it; the
    screens tell the same, and other options can be set meanwhile."""
    line = ("run", "s", "--every", "1h", "-q")
    jobrun(*line, *BREAKER, "--", "true", now=NOW)
    assert jobrun("set", "s", "resume-after", "1h", now=NOW).status == 0
    found = jobrun(*line, "--", *SHOW, now="2026-09-04T13:05:00Z")
    assert (found.status, found.stdout) == (0, "2026-09-04 1\n")
    assert found.lines == [
        f'jobrun: WARNING job=s what=override-ignored option="--resume-after 1h" by={who(jobrun)}'
        ' cause="--resume-after needs --pause-after" at=2026-09-04T13:05:00Z',
        "jobrun: hint: jobrun unset s resume-after",
    ]
    later = "2026-09-04T13:06:00Z"
    assert "as last called" in jobrun("plan", "s", now=later).stdout
    assert "--resume-after 1h (does not fit: not used)" in jobrun("show", "s", now=later).stdout
    text = WHO.sub("WHO", jobrun("show", "s", "--origin", now=later).stdout)
    assert (
        "default; --resume-after 1h, set by WHO, 09-04 12:05, does not fit: --resume-after needs"
        " --pause-after"
    ) in text
    assert jobrun("rerun", "s", "2026-09-04T12:00Z", now=later).status == 0
    assert jobrun("set", "s", "timeout", "1h", now=later).status == 0
    assert jobrun("set", "s", "resume-after", "2h", now=later).status == 2
    assert jobrun("set", "s", "pause-after", "3", now=later).status == 0
    assert ignored(jobrun(*line, "--", "true", now="2026-09-04T14:05:00Z")) == []
    assert jobrun("unset", "s", "resume-after", now=later).status == 0
    assert jobrun("unset", "s", "pause-after", now=later).status == 0


def test_a_plain_job_whose_line_has_lost_its_retries_goes_on(jobrun: Jobrun) -> None:
    """The delay between tries that there are none of any more, and what else is set still holds."""
    jobrun("run", "p", "--retries", "2", "--", "true", now=NOW)
    assert jobrun("set", "p", "retry-delay", "30s", now=NOW).status == 0
    assert jobrun("set", "p", "ok-exit", "3", now=NOW).status == 0
    found = jobrun("run", "p", "--", "sh", "-c", "exit 3", now=NOW)
    assert (found.status, len(ignored(found))) == (0, 1)
    dry = jobrun("run", "p", "--dry-run", "--", "true", now=NOW)
    assert (dry.status, len(ignored(dry))) == (0, 1)
    unset = jobrun("unset", "p", "retry-delay", now=NOW)
    assert 'option="--retry-delay 1m" was="--retry-delay 30s"' in unset.stderr
    assert ignored(jobrun("run", "p", "--", "true", now=NOW)) == []


def test_what_is_broken_on_record_can_be_put_right_step_by_step(jobrun: Jobrun) -> None:
    """Two that do not fit: taking away one is refused as little as setting another."""
    line = ("run", "p", "--retries", "2")
    jobrun(*line, "--", "true", now=NOW)
    for name, value in (("retry-delay", "30s"), ("retry-on", "75")):
        assert jobrun("set", "p", name, value, now=NOW).status == 0
    found = jobrun("run", "p", "--", "true", now=NOW)
    assert len(ignored(found)) == 2
    for argv in (("set", "p", "timeout", "1h"), ("unset", "p", "retry-on"),
                 ("unset", "p", "retry-delay")):  # fmt: skip
        assert jobrun(*argv, now=NOW).status == 0
    assert ignored(jobrun("run", "p", "--", "true", now=NOW)) == []


@pytest.mark.parametrize(
    ("before", "after", "name", "value"),
    [
        (("--retries", "2"), ("--retries", "2", "--retry-delay", "30s"), "--retries", "0"),
        (
            ("--every", "1h", "--after", "up", "--input", "ROWS=up.rows"),
            ("--every", "1h", "--after", "up"),
            "--if",
            "int(ROWS) > 0",
        ),
        (("--every", "1h", "--after", "up"), ("--every", "1h"), "--input", "ROWS=up.rows"),
    ],
)
def test_what_keeps_a_command_from_running_is_never_left_out(
    jobrun: Jobrun, before: tuple[str, ...], after: tuple[str, ...], name: str, value: str
) -> None:
    """Refused, and said why and by whom: a run that was not to be can't be taken back."""
    jobrun("run", "up", "--every", "1h", "--", "true", now="2026-09-04T11:05Z")
    jobrun("run", "a", *before, "--", "true", now="2026-09-04T11:06Z")
    assert jobrun("set", "a", name, value, now=NOW).status == 0
    found = jobrun("run", "a", *after, "--", "echo", "RAN", now=NOW)
    assert (found.status, found.stdout) == (2, "")
    assert f", set on record by {who(jobrun)}, does not go with this call: " in found.stderr
    assert f"hint: jobrun unset a {name[2:]}, or the line as it was" in found.stderr


def test_what_may_be_left_out_gives_way_to_what_may_not(jobrun: Jobrun) -> None:
    """--retries 0 and a --retry-delay, each set when it fitted: the command runs once at most."""
    line = ("run", "p", "--retries", "2")
    jobrun(*line, "--", "true", now=NOW)
    assert jobrun("set", "p", "retry-delay", "3s", now=NOW).status == 0
    assert jobrun("run", "p", "--", "true", now=NOW).status == 0
    assert jobrun("set", "p", "retries", "0", now=NOW).status == 0
    found = jobrun(*line, "--", "false", now=NOW)
    assert (found.status, found.stderr.count("FAILED")) == (1, 1)
    assert 'what=override-ignored option="--retry-delay 3s"' in found.stderr
    assert "hint: jobrun unset p retry-delay" in found.stderr
    assert jobrun("unset", "p", "retry-delay", now=NOW).status == 0
    again = jobrun("set", "p", "retry-delay", "3s", now=NOW)
    assert (again.status, "error: --retry-delay needs --retries" in again.stderr) == (2, True)


def test_set_names_what_is_in_its_way(jobrun: Jobrun) -> None:
    """Not what the person wants changed: that is right, once the other is gone."""
    line = ("run", "s", "--every", "1h", "--pause-after", "3", "--", "true")
    jobrun(*line, now=NOW)
    assert jobrun("set", "s", "resume-after", "6h", now=NOW).status == 0
    found = jobrun("set", "s", "pause-after", "off", now=NOW)
    assert (found.status, found.lines[-1]) == (
        2, "jobrun: hint: first: jobrun unset s resume-after",
    )  # fmt: skip
    assert jobrun("unset", "s", "resume-after", now=NOW).status == 0
    assert jobrun("set", "s", "pause-after", "off", now=NOW).status == 0


def test_what_a_newer_jobrun_has_set_is_shown_and_can_be_unset(hourly: Jobrun) -> None:
    """The hint of a call that is refused for it can be typed."""
    newer = {"value": "1", "by": "anna@db1", "at": 1788523500, "reason": None, "until": "then"}
    text = json.dumps({"--newer": newer})
    hourly.change("UPDATE jobrun_job SET overrides = ?", text)
    refused = hourly(*HOURLY, "--", "true", now=NOW)
    assert (refused.status, "hint: jobrun unset a newer" in refused.stderr) == (2, True)
    assert origins(hourly)["--newer"]["misfit"] == "--newer 1"
    unset = hourly("unset", "a", "newer", now=NOW)
    assert (unset.status, 'option="--newer off" was="--newer 1"' in unset.stderr) == (0, True)
    assert hourly(*HOURLY, "--", "true", now=NOW).status == 0
    again = hourly("unset", "a", "newer", now=NOW)
    assert (again.status, 'no option "--newer"' in again.stderr) == (2, True)
