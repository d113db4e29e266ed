"""What is dead, held or failed, as a person sees it and settles it."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Jobrun, until

NOW = "2026-09-04T12:05:00Z"
LATER = "2026-09-04T12:06:00Z"
HOURLY = ("--every", "1h", "--first", "2026-09-04T09:00Z")
NINE, TEN, ELEVEN = (f"a:2026-09-04T{hour:02}:00:00+00:00" for hour in (9, 10, 11))


@pytest.fixture
def broken(jobrun: Jobrun) -> Jobrun:
    """Of the job a 09:00 is dead, 10:00 processed, 11:00 failed; of k the unit one is dead."""
    fails = ("sh", "-c", 'case "$JOBRUN_KEY" in *T10:*) exit 0;; *T09:*) exit 9;; esac; exit 3')
    more = ("--retries", "2", "--retry-delay", "40m", "--give-up-on", "9", "-q", "--")
    jobrun("run", "a", *HOURLY, "--on-failure", "continue", *more, *fails, now=NOW)
    jobrun("run", "k", "--key", "one", "--max-attempts", "1", "-q", "--", "false", now=LATER)
    return jobrun


def lost(jobrun: Jobrun, *options: str) -> None:
    """A call of the job a that is killed with all its processes."""
    ready = jobrun.folder / "ready"
    waits = ("sh", "-c", "echo > ready; exec sleep 600")
    process = jobrun.start("run", "a", *HOURLY, *options, "--", *waits, now=NOW)
    until(ready.exists, "the command")
    process.kill()
    process.communicate(timeout=20)
    until(lambda: "lost" in jobrun("status", "a", now=LATER).stdout, "its end")


def test_failures_lists_what_is_dead_held_or_failed(broken: Jobrun) -> None:
    """How often, how it ended last, when it is tried again; the newest last."""
    found = broken("failures", now=LATER)
    cells = [line.split("  ") for line in found.stdout.splitlines()[2:5]]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in cells]
    assert [(row[0], *row[2:5]) for row in rows] == [
        ("a", "dead", "1", "exit 9"),
        ("a", "failed", "1", "exit 3"),
        ("k", "dead", "1", "exit 1"),
    ]
    assert "  jobrun retry JOB" in found.stdout
    of_one = broken("failures", "k", now=LATER)
    assert "k:one" in of_one.stdout
    assert NINE[2:] not in of_one.stdout


def test_failures_as_json(broken: Jobrun) -> None:
    """Every column, the last run, and when the next try may be."""
    data = json.loads(broken("failures", "a", "--json", now=LATER).stdout)
    by_key = {row["key"]: row for row in data["failures"]}
    assert sorted(by_key) == [NINE, ELEVEN]
    assert by_key[NINE]["last_run"]["exit_code"] == 9
    assert by_key[NINE]["next_attempt_at"] is None
    assert by_key[ELEVEN]["next_attempt_at"] >= "2026-09-04T12:45:00+00:00"
    assert (data["more"], by_key[ELEVEN]["state"], by_key[ELEVEN]["failures"]) == (
        False,
        "failed",
        1,
    )


def test_failures_check_is_for_monitors(jobrun: Jobrun) -> None:
    """Exit 1 where something is listed, and where there is no ledger; 0 without --check."""
    assert jobrun("failures", "--check").status == 1
    jobrun("run", "p", "--", "true")
    assert jobrun("failures", "--check").status == 0
    jobrun("run", "p", "--key", "x", "--", "false")
    assert [jobrun("failures", *more).status for more in ((), ("--check",))] == [0, 1]
    assert jobrun("failures", "q").status == 2


def test_status_says_what_is_dead(broken: Jobrun) -> None:
    """Beside what fails, until somebody has settled it; `--check` exits 1."""
    found = broken("status", "--check", now=LATER)
    assert found.status == 1
    assert "a  FAILING: exit 3" in found.stdout
    assert "a  DEAD: window 09-04 09:00 - 10:00, 1 failure\n  jobrun failures a" in found.stdout
    assert "k  DEAD: k:one, 1 failure\n" in found.stdout
    assert "k  FAILING" not in found.stdout
    data = {
        job["job"]: job for job in json.loads(broken("status", "--json", now=LATER).stdout)["jobs"]
    }
    assert (data["a"]["dead"], data["a"]["state"], data["k"]["state"]) == (1, "FAILING", "DEAD")
    broken("retry", "a", "--", "true", now=LATER)
    assert "a  " not in broken("status", "--check", now=LATER).stdout


def test_status_and_windows_say_what_is_held(jobrun: Jobrun) -> None:
    """Before a call has said so that it will be, afterwards who decides."""
    lost(jobrun, "--on-lost", "hold")
    assert "the next call holds it for a person" in jobrun("status", now=LATER).stdout
    jobrun("run", "a", *HOURLY, "--on-lost", "hold", "--", "true", now=LATER)
    found = jobrun("status", "--check", now=LATER)
    assert found.status == 1
    assert (
        "a  HELD: the run of window 09-04 09:00 - 10:00 was lost, 2 later windows wait"
        in found.stdout
    )
    assert f'  jobrun retry a    jobrun resolve a {NINE} --note "..."' in found.stdout
    shown = jobrun("windows", "a", now=LATER).stdout
    assert "its run was lost, a person decides: jobrun retry, or resolve" in shown
    assert "h held 1" in shown
    assert "a person decides" in jobrun("failures", now=LATER).stdout


def test_windows_says_how_a_dead_one_ended(broken: Jobrun) -> None:
    """And that nobody tries it any more."""
    shown = broken("windows", "a", now=LATER).stdout
    assert "exit 9, last 09-04 12:05, no further try: jobrun retry" in shown
    assert "exit 3, last 09-04 12:05, next try not before 09-04 12:" in shown
    assert "not complete: 1 to do, 1 given up" in shown


def test_resolve_ends_what_is_dead_or_held(broken: Jobrun) -> None:
    """Finished with a note and by whom; no longer listed; the command does not run again."""
    dry = broken("resolve", "a", NINE, "--note", "sent by hand", "--dry-run", now=LATER)
    assert (dry.status, "what=would-resolve" in dry.stderr) == (0, True)
    found = broken("resolve", "a", NINE, "--note", "sent by hand", now=LATER)
    assert (found.status, f" what=resolved key={NINE} was=dead " in found.stderr) == (0, True)
    row = broken.query("select state, reason from jobrun_window where key = ?", NINE)
    assert row == [("skipped", "resolved")]
    ((detail,),) = broken.query("select detail from jobrun_event where kind = 'resolved'")
    assert str(detail).startswith("it was dead, by ")
    assert str(detail).endswith(": sent by hand")
    assert broken("resolve", "k", "one", "--note", "done", now=LATER).status == 0
    assert "  dead  " not in broken("failures", now=LATER).stdout
    again = broken("retry", "a", NINE, now=LATER)
    assert (again.status, " is skipped: " in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (TEN, "is processed: resolve is for what is dead or held"),
        (ELEVEN, "is failed: resolve is for what is dead or held"),
        ("2026-09-04T08:00Z", "is not on record"),
        ("2026-09-04T08:00", "has no zone"),
    ],
)
def test_resolve_refuses_what_it_is_not_for(broken: Jobrun, when: str, words: str) -> None:
    """Usage, and nothing is changed."""
    before = broken.query("select key, state from jobrun_window order by key")
    found = broken("resolve", "a", when, "--note", "x", now=LATER)
    assert (found.status, words in found.stderr) == (2, True), found.stderr
    assert before == broken.query("select key, state from jobrun_window order by key")


def test_resolve_frees_the_later_windows_of_what_is_held(jobrun: Jobrun) -> None:
    """The watermark passes it, and the next call goes on."""
    lost(jobrun, "--on-lost", "hold")
    call = ("run", "a", *HOURLY, "--on-lost", "hold", "--", "sh", "-c", "echo $JOBRUN_KEY")
    assert jobrun(*call, now=LATER).stdout == ""
    jobrun("resolve", "a", NINE, "--note", "it was sent", now=LATER)
    assert jobrun(*call, now=LATER).stdout.split() == [TEN, ELEVEN]


def test_skip_of_a_dead_one_names_resolve(broken: Jobrun) -> None:
    """It is finished already, and only two verbs change that."""
    found = broken("skip", "a", NINE, "--reason", "x", now=LATER)
    assert (found.status, f"jobrun resolve a {NINE}" in found.stderr) == (2, True)
