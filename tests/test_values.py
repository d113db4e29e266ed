"""Values that windows leave, `--input` that hands them on, `--if` that asks them."""

from __future__ import annotations

import json
import os
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from jobrun import links, placeholders, values_file
from jobrun.values_file import ValuesFile
from tests.conftest import PYTHON, Jobrun, Result, instant
from tests.scenes import until_free

HOURLY = ("--every", "1h")
TEN, ELEVEN = "2026-09-04T10:00:00+00:00", "2026-09-04T11:00:00+00:00"
NOW, LATER = "2026-09-04T11:05Z", "2026-09-04T11:10Z"
FIRST = ("--first", "2026-09-04T10:00Z")

# Leaves what lies in LEAVES; exits with ENDS.
LEAVE = (
    "import os; e = os.environ; "
    "open(e['JOBRUN_VALUES'], 'ab').write(open(e['LEAVES'], 'rb').read()); "
    "raise SystemExit(int(e.get('ENDS', '0')))"
)
MARK = (
    "import os, sqlite3, jobrun; open(os.environ['JOBRUN_VALUES'], 'w').write('rows=7');"
    "c = sqlite3.connect(os.environ['JOBRUN_LEDGER'], isolation_level=None);"
    "c.execute('BEGIN IMMEDIATE'); jobrun.done(c); c.execute('COMMIT'); raise SystemExit(5)"
)
SHOW = ("--", PYTHON, "-c", "import os; print(ascii(os.environ.get('ROWS')))")


@pytest.fixture
def jobrun(tmp_path: Path) -> Iterator[Jobrun]:
    """Calls as forks of the test, where there are forks."""
    if sys.platform == "win32":
        yield Jobrun(tmp_path)
        return
    from tests.forked import Forked, folder_in_memory

    with TemporaryDirectory(prefix="jobrun-values-", dir=folder_in_memory()) as folder:
        yield Forked(Path(folder))


def leave(
    jobrun: Jobrun, data: bytes, *argv: str, now: str = NOW, ends: int = 0, job: str = "up"
) -> Result:
    """`up` runs its window of 10 o'clock, and leaves these bytes."""
    given = argv or ("run", job, *HOURLY, *FIRST)
    leaves = jobrun.folder / "leaves"
    leaves.write_bytes(data)
    env = {"LEAVES": str(leaves), "ENDS": str(ends)}
    return jobrun(*given, "--", PYTHON, "-c", LEAVE, now=now, env=env)


def down(
    jobrun: Jobrun, *more: str, source: str = "up.rows", now: str = LATER, job: str = "j"
) -> Result:
    argv = ("run", job, *HOURLY, *FIRST, "--after", "up", "--input", f"ROWS={source}")
    return jobrun(*argv, *more, *SHOW, now=now)


def kept(jobrun: Jobrun, job: str = "up") -> dict[object, object]:
    return dict(jobrun.query("select name, value from jobrun_value where job = ?", job))  # type: ignore[arg-type]


def files(jobrun: Jobrun) -> list[Path]:
    """Of $JOBRUN_VALUES, what is still there."""
    return list(Path(f"{jobrun.ledger}.d/values").glob("*"))


def state_of(jobrun: Jobrun, job: str = "j") -> tuple[object, ...]:
    (row,) = jobrun.query("select state, reason, attempts from jobrun_window where job = ?", job)
    return row


# -- what a command leaves -------------------------------------------------------------------------


def test_lines_and_objects_are_kept_with_the_window(jobrun: Jobrun) -> None:
    """NAME=VALUE to the end of the line, JSON with numbers as written; the last one wins."""
    data = b'rows=1\nrows=5312\nnote=a = b  \r\n\n{"path": "/x \xc3\xa9", "n": 1.10, "ok": true}\n'
    assert leave(jobrun, data).status == 0
    expected = {"rows": "5312", "note": "a = b  ", "path": "/x é", "n": "1.10", "ok": "true"}
    assert kept(jobrun) == expected
    assert files(jobrun) == []
    shown = jobrun("show", f"up:{TEN}", "--json", now=NOW)
    assert json.loads(shown.stdout)["values"] == expected
    assert "note=a = b" in jobrun("show", f"up:{TEN}", now=NOW).stdout


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_the_file_is_the_commands_to_make_in_a_private_folder(jobrun: Jobrun) -> None:
    """Not there yet, one a run, beside the ledger; a nested call without windows has none of it."""
    show = "import os; p = os.environ['JOBRUN_VALUES']; print(p, os.path.lexists(p), end=' ');"
    show += "print(oct(os.stat(os.path.dirname(p)).st_mode))"
    found = jobrun("run", "up", *HOURLY, "--", PYTHON, "-c", show, now=NOW)
    assert found.stdout == f"{jobrun.ledger}.d/values/1 False 0o40700\n"
    plain = ("run", "plain", "--", "sh", "-c", "echo ${JOBRUN_VALUES-none}")
    assert jobrun(*plain, now=NOW, env={"JOBRUN_VALUES": "/x"}).stdout == "none\n"
    keyed = ("run", "keyed", "--key", "k", "--", "sh", "-c", "echo ${JOBRUN_VALUES-none}")
    assert jobrun(*keyed, now=NOW).stdout == "none\n"


BROKEN = {
    "no pair": b"rows=1\nhello\n",
    "no name": b"=5\n",
    "a name with a dash": b"my-rows=5\n",
    "a name too long": b"x" * 101 + b"=5\n",
    "broken JSON": b'{"rows": 5\n',
    "nested JSON": b'{"rows": [5]}\n',
    "null": b'{"rows": null}\n',
    "NaN": b'{"rows": NaN}\n',
    "half a character": b'{"rows": "\\ud800"}\n',
    "NUL": b"rows=\0\n",
    "too deep": b'{"a":' * 9000 + b"\n",
    "binary": bytes(range(256)) * 4,
    "a megabyte": b"rows=" + b"x" * 1_000_000,
    "too many": b"".join(b"n%d=1\n" % n for n in range(1001)),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_no_such_file_is_told_and_nothing_of_it_is_kept(
    jobrun: Jobrun, data: bytes
) -> None:
    """The window stays processed, exit 0; a WARNING says what is wrong; who needs it fails."""
    found = leave(jobrun, data)
    assert found.status == 0
    assert " WARNING job=up what=values-lost " in found.stderr
    assert (kept(jobrun), files(jobrun)) == ({}, [])
    assert state_of(jobrun, "up")[0] == "processed"
    assert down(jobrun).status == 78


DONE = {
    "removed": "open(p, 'w').close(); os.unlink(p)",
    "left alone": "pass",
    "blank lines": "open(p, 'w').write('\\n \\n')",
    "replaced by another": "open(p + '.new', 'w').write('rows=5'); os.replace(p + '.new', p)",
    "UTF-16, as PowerShell writes": "open(p, 'w', encoding='utf-16').write('rows=5\\n')",
    "a mark before UTF-8": "open(p, 'w', encoding='utf-8-sig').write('rows=5\\n')",
}


@pytest.mark.parametrize("how", DONE)
def test_what_else_a_command_may_do_with_the_file(jobrun: Jobrun, how: str) -> None:
    """It is the command's: no file, an empty one, another one in its place."""
    code = f"import os; p = os.environ['JOBRUN_VALUES']; {DONE[how]}"
    found = jobrun("run", "up", *HOURLY, "--", PYTHON, "-c", code, now=NOW)
    assert (found.status, "WARNING" in found.stderr) == (0, False)
    assert kept(jobrun).get("rows") == ("5" if "rows=5" in DONE[how] else None)
    assert files(jobrun) == []


MISCHIEF = {
    "a link": "os.symlink(e['JOBRUN_LEDGER'], p)",
    "the ledger": "os.link(e['JOBRUN_LEDGER'], p)",
    "a pipe": "os.mkfifo(p)",
    "a folder": "os.mkdir(p)",
}


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
@pytest.mark.parametrize("how", MISCHIEF)
def test_what_is_no_plain_file_is_not_read(jobrun: Jobrun, how: str) -> None:
    """Not opened either: a pipe would hang, and the ledger's locks would be dropped."""
    code = f"import os; e = os.environ; p = e['JOBRUN_VALUES']; {MISCHIEF[how]}"
    found = jobrun("run", "up", *HOURLY, "--", PYTHON, "-c", code, now=NOW)
    assert found.status == 0
    assert "what=values-lost" in found.stderr
    assert 'cause="no plain file any more"' in found.stderr
    assert jobrun("status", now=NOW).status == 0


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_no_file_can_be_made(jobrun: Jobrun) -> None:
    """The command runs without it, and if it succeeds that is told."""
    leave(jobrun, b"")
    Path(f"{jobrun.ledger}.d/values").rmdir()
    Path(f"{jobrun.ledger}.d/values").write_text("in the way")
    show = ("--", "sh", "-c", "echo ${JOBRUN_VALUES-none}")
    found = jobrun("run", "up", *HOURLY, *show, now="2026-09-04T12:05Z")
    assert (found.status, found.stdout) == (0, "none\n")
    assert "what=values-lost" in found.stderr


def test_a_failed_run_leaves_nothing(jobrun: Jobrun) -> None:
    """Neither values nor a word about a broken file."""
    found = leave(jobrun, b"rows=5\nbroken", ends=3)
    assert (found.status, "WARNING" in found.stderr) == (3, False)
    assert (kept(jobrun), files(jobrun)) == ({}, [])


def test_a_rerun_takes_the_place_and_a_failed_one_does_not(jobrun: Jobrun) -> None:
    """The values are those of the newest run that processed the window, all of them."""
    leave(jobrun, b"rows=1\nold=1")
    rerun = ("rerun", "up", "2026-09-04T10:00Z")
    leave(jobrun, b"rows=2", *rerun, ends=3)
    assert kept(jobrun) == {"rows": "1", "old": "1"}
    leave(jobrun, b"rows=3", *rerun)
    assert kept(jobrun) == {"rows": "3"}
    assert down(jobrun).stdout == "'3'\n"
    leave(jobrun, b"rows=4", *rerun)
    assert jobrun("rerun", "j", "2026-09-04T10:00Z", now=LATER).stdout == "'4'\n"


def test_what_marked_itself_keeps_its_values_whatever_it_exits_with(jobrun: Jobrun) -> None:
    """jobrun_done: the window is processed, so what comes after it gets what was left."""
    found = jobrun("run", "up", *HOURLY, "--", PYTHON, "-c", MARK, now=NOW)
    assert found.status == 5
    assert kept(jobrun) == {"rows": "7"}
    assert down(jobrun).stdout == "'7'\n"


def test_forget_takes_the_values_along(jobrun: Jobrun) -> None:
    """Every row of the job."""
    leave(jobrun, b"rows=1")
    assert jobrun("forget", "up", "--yes", now=NOW).status == 0
    assert jobrun.query("select * from jobrun_value") == []


# A death of jobrun, as by kill -9, at the places between a command's start and its record.
DEATHS = {
    "before it reads": "jobrun.values_file.ValuesFile.read",
    "before the record": "jobrun.ledger_sqlite.SqliteLedger.finish",
    "inside of the record": "jobrun.ledger_sql.keep_values",
}


@pytest.mark.skipif(sys.platform == "win32", reason="calls are forks of the test")
@pytest.mark.parametrize("where", DEATHS)
def test_a_death_before_the_record_loses_no_value(jobrun: Jobrun, where: str) -> None:
    """The run is lost and runs again: its values are kept, once, and no file stays behind."""
    from tests import forked

    def hook() -> None:
        module, _, name = DEATHS[where].rpartition(".")
        owner = pkgutil.resolve_name(module)
        setattr(owner, name, lambda *_: forked.die())

    leaves = jobrun.folder / "leaves"
    leaves.write_bytes(b"rows=5")
    argv = ("run", "up", *HOURLY, *FIRST, "--", PYTHON, "-c", LEAVE)
    environ = {**jobrun.environment, "LEAVES": str(leaves)}
    killed = forked.jobrun(argv, environ, instant(NOW), hook)
    assert killed.status == forked.KILLED, killed.lines
    until_free(jobrun.ledger, "up")
    assert kept(jobrun) == {}
    waits = down(jobrun)
    assert "reason=upstream-pending" in waits.stderr
    assert "state=running" in waits.stderr
    leaves.write_bytes(b"rows=6")
    again = jobrun(*argv, now=LATER, env={"LEAVES": str(leaves)})
    assert " LOST job=up " in again.stderr
    assert " attempt=2 " in again.stderr
    assert (kept(jobrun), files(jobrun)) == ({"rows": "6"}, [])
    assert down(jobrun).stdout == "'6'\n"


@pytest.mark.skipif(sys.platform == "win32", reason="calls are forks of the test")
@pytest.mark.parametrize("where", DEATHS)
def test_a_death_before_the_record_loses_no_value_of_what_is_marked(
    jobrun: Jobrun, where: str
) -> None:
    """The window does not run again: what its command has left is kept by the next call."""
    from tests import forked

    def hook() -> None:
        module, _, name = DEATHS[where].rpartition(".")
        setattr(pkgutil.resolve_name(module), name, lambda *_: forked.die())

    argv = ("run", "up", *HOURLY, *FIRST, "--", PYTHON, "-c", MARK)
    killed = forked.jobrun(argv, jobrun.environment, instant(NOW), hook)
    assert killed.status == forked.KILLED, killed.lines
    until_free(jobrun.ledger, "up")
    assert " LOST job=up " in jobrun(*argv, now=LATER).stderr
    assert (kept(jobrun), files(jobrun)) == ({"rows": "7"}, [])
    assert down(jobrun).stdout == "'7'\n"


# -- what comes after it gets ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["5312", "", "a b", "$(touch /tmp/x) `id` ;'\"{start}%", "é ₺ 売", "x" * 60_000]
)
def test_the_value_comes_as_it_was_left(jobrun: Jobrun, value: str) -> None:
    """In the environment, to the letter, never in an argument or a shell's text."""
    leave(jobrun, f"rows={value}".encode())
    assert down(jobrun).stdout == f"{value!a}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="locales of POSIX")
def test_the_bytes_of_a_value_do_not_depend_on_the_locale(tmp_path: Path) -> None:
    """cron's empty environment, or one of another character set: UTF-8 as it was left."""
    jobrun = Jobrun(tmp_path)
    leave(jobrun, "rows=é₺".encode())
    code = "import os; print(os.environb[b'ROWS'].hex())"
    argv = ("run", "j", *HOURLY, *FIRST, "--after", "up", "--input", "ROWS=up.rows")
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = jobrun(*argv, "--", PYTHON, "-c", code, now=LATER, env=env)
    assert found.stdout == f"{'é₺'.encode().hex()}\n", found.stderr


def test_a_missing_value_fails_the_window_before_it_is_started(jobrun: Jobrun) -> None:
    """78, not-started, an attempt counted, its retry later; the command never ran; then it does."""
    leave(jobrun, b"other=1")
    found = down(jobrun)
    assert (found.status, found.stdout) == (78, "")
    assert " exit=78 outcome=not-started attempt=1 " in found.stderr
    assert f'--input ROWS=up.rows: up:{TEN} has left no "rows" (other)' in found.stderr
    assert state_of(jobrun) == ("failed", "not-started", 1)
    assert "reason=retry-later" in down(jobrun).stderr
    leave(jobrun, b"rows=9", "rerun", "up", "2026-09-04T10:00Z")
    again = down(jobrun, now="2026-09-04T11:20Z")
    assert (again.status, again.stdout) == (0, "'9'\n")
    assert state_of(jobrun) == ("processed", None, 2)


def test_a_missing_value_is_one_windows_trouble(jobrun: Jobrun) -> None:
    """Under `continue` the later windows run: it is no program that can't be started."""
    leave(jobrun, b"other=1")
    leave(jobrun, b"rows=2", "run", "up", *HOURLY, now="2026-09-04T12:05Z")
    found = down(jobrun, "--on-failure", "continue", now="2026-09-04T12:05Z")
    assert (found.status, found.stdout) == (78, "'2'\n")
    states = jobrun.query("select state from jobrun_window where job = 'j' order by start")
    assert states == [("failed",), ("processed",)]


def test_of_several_windows_all_must_have_left_the_same(jobrun: Jobrun) -> None:
    """A day after its hours: one value for all of them, else nobody can say which is meant."""
    argv = ("run", "up", *HOURLY, "--first", "2026-09-03T00:00Z")
    assert leave(jobrun, b"rows=5", *argv, now="2026-09-04T00:05Z").status == 0
    day = ("run", "day", "--every", "1d", "--after", "up", "--input", "ROWS=up.rows")
    assert jobrun(*day, *SHOW, now="2026-09-04T00:05Z").stdout == "'5'\n"
    leave(jobrun, b"rows=6", "rerun", "up", "2026-09-03T07:00Z", now=NOW)
    found = jobrun("rerun", "day", "2026-09-03", now=NOW)
    assert found.status == 78
    assert "have left 2 different ones" in found.stderr
    leave(jobrun, b"", "rerun", "up", "2026-09-03T07:00Z", now=NOW)
    found = jobrun("rerun", "day", "2026-09-03", now=NOW)
    assert 'up:2026-09-03T07:00:00+00:00 has left no "rows" (nothing)' in found.stderr


def test_of_a_longer_window_each_of_ours_gets_its_value(jobrun: Jobrun) -> None:
    """Hours after their day; a merged window of the upstream is one too."""
    leave(jobrun, b"rows=5", "run", "up", "--every", "1d", now="2026-09-04T00:05Z")
    hours = ("run", "j", *HOURLY, "--first", "2026-09-03T22:00Z", "--after", "up")
    found = jobrun(*hours, "--input", "ROWS=up.rows", *SHOW, now="2026-09-04T00:05Z")
    assert found.stdout == "'5'\n'5'\n"
    leave(jobrun, b"rows=1", "run", "up", "--every", "1d", "--catch-up", "merge",
          now="2026-09-07T00:05Z")  # fmt: skip
    found = jobrun(*hours, "--input", "ROWS=up.rows", *SHOW, now="2026-09-04T03:05Z")
    assert found.stdout == "'1'\n" * 3


def test_a_finished_upstream_without_a_value_fails_who_needs_it(jobrun: Jobrun) -> None:
    """`--after up:finished` runs without it, but not in the place of a value."""
    leave(jobrun, b"rows=1")
    jobrun("skip", "up", "--from", "2026-09-04T11:00Z", "--to", "2026-09-04T12:00Z", "--reason",
           "x", now="2026-09-04T12:05Z")  # fmt: skip
    argv = ("run", "j", *HOURLY, *FIRST, "--after", "up:finished", "--input", "ROWS=up.rows")
    found = jobrun(*argv, *SHOW, now="2026-09-04T12:05Z")
    assert (found.status, found.stdout) == (78, "'1'\n")
    assert "up has not processed 2026-09-04T11:00:00Z to 2026-09-04T12:00:00Z" in found.stderr


def test_by_hand_a_window_gets_its_values_too(jobrun: Jobrun) -> None:
    """And fails without them, though it waits for nobody."""
    leave(jobrun, b"rows=1")
    found = down(jobrun, "--window", "2026-09-04T10:00Z")
    assert found.stdout == "'1'\n"
    ahead = down(jobrun, "--window", "2026-09-04T11:00Z", now="2026-09-04T12:05Z")
    assert (ahead.status, ahead.stdout) == (78, "")
    alone = ("run", "k", *HOURLY, "--window", "2026-09-04T10:00Z", "--after", "gone")
    found = jobrun(*alone, "--input", "ROWS=gone.rows", *SHOW, now=NOW)
    assert found.status == 78
    assert "gone has not processed" in found.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--input", "ROWS=up.rows"), "needs --after up"),
        (("--after", "up", "--input", "ROWS=other.rows"), "needs --after other"),
        (("--after", "up", "--input", "ROWS"), "NAME=JOB.KEY"),
        (("--after", "up", "--input", "ROWS=up"), "NAME=JOB.KEY"),
        (("--after", "up", "--input", "1ROWS=up.rows"), "NAME=JOB.KEY"),
        (("--after", "up", "--input", "ROWS=up.my-rows"), "NAME=JOB.KEY"),
        (("--after", "up", "--input", "JOBRUN_KEY=up.rows"), "jobrun's own"),
        (("--after", "up", "--input", "A=up.x,A=up.y"), '"A" twice'),
        (("--after", "up", "--if", "1 > 0"), "--if needs --input"),
    ],
)
def test_inputs_that_are_none_are_refused(jobrun: Jobrun, argv: tuple[str, ...], says: str) -> None:
    """2, before anything is touched."""
    found = jobrun("run", "j", *HOURLY, *argv, *SHOW, now=NOW)
    assert found.status == 2
    assert says in found.stderr
    assert not jobrun.ledger.exists()


def test_a_job_whose_name_has_dots_is_split_at_the_last_one() -> None:
    """`etl.sales.rows` is the value rows of etl.sales."""
    (found,) = links.inputs("ROWS=etl.sales.rows", ["etl.sales"])
    assert found == ("ROWS", "etl.sales", "rows")


def test_the_plan_tells_what_will_fail(jobrun: Jobrun) -> None:
    """R47: the reason stands in the plan, and the plan reads the values as the call does."""
    leave(jobrun, b"other=1")
    argv = ("run", "j", *HOURLY, *FIRST, "--after", "up", "--input", "ROWS=up.rows", "--dry-run")
    text = jobrun(*argv, *SHOW, now=NOW).stdout
    assert "new, fails: --input ROWS=up.rows: " in text
    leave(jobrun, b"rows=1", "rerun", "up", "2026-09-04T10:00Z")
    assert "fails" not in jobrun(*argv, *SHOW, now=NOW).stdout


# -- the condition ---------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_a_condition_that_is_false_skips_the_window_for_good(jobrun: Jobrun, overlap: str) -> None:
    """A row, the watermark moves on, one line; the next call has nothing to do; exit 0."""
    leave(jobrun, b"rows=0")
    found = down(jobrun, "--if", "int(ROWS) > 0", "--busy-exit", "9", "--overlap", overlap)
    assert (found.status, found.stdout) == (0, "")
    assert f" SKIPPED job=j reason=condition-false window={TEN}/{ELEVEN} " in found.stderr
    assert state_of(jobrun) == ("skipped", "condition-false", 0)
    mark = jobrun.query("select watermark from jobrun_job where name = 'j'")
    assert mark == [(ELEVEN,)]
    assert "no-closed-window" in down(jobrun, "--if", "int(ROWS) > 0", "-v").stderr
    assert "condition-false" in jobrun("windows", "j", now=LATER).stdout
    assert "condition-false" in jobrun("show", f"j:{TEN}", now=LATER).stdout


def test_windows_around_one_that_is_left_out_run(jobrun: Jobrun) -> None:
    """In order, as planned; a cap counts what it leaves out too."""
    for hour, rows in (("11", 1), ("12", 0), ("13", 3)):
        leave(jobrun, f"rows={rows}".encode(), "run", "up", *HOURLY, *FIRST,
              now=f"2026-09-04T{hour}:05Z")  # fmt: skip
    now = "2026-09-04T13:05Z"
    only = ("--if", "int(ROWS) > 0")
    argv = ("run", "j", *HOURLY, *FIRST, "--after", "up", "--input", "ROWS=up.rows", *only)
    plan = json.loads(jobrun(*argv, "--dry-run", "--log-format", "json", *SHOW, now=now).stdout)
    assert [run["start"][11:13] for run in plan["runs"]] == ["10", "12"]
    capped = down(jobrun, *only, "--max-windows", "2", now=now)
    assert capped.stdout == "'1'\n"
    assert " BACKLOG job=j left=1 " in capped.stderr
    assert down(jobrun, *only, now=now).stdout == "'3'\n"
    found = jobrun.query("select state from jobrun_window where job = 'j' order by start")
    assert found == [("processed",), ("skipped",), ("processed",)]


def test_a_condition_without_an_answer_fails_and_never_runs(jobrun: Jobrun) -> None:
    """An error, or a value that is missing: 78, an attempt, and the reason."""
    leave(jobrun, b"rows=many")
    found = down(jobrun, "--if", "int(ROWS) > 0")
    assert (found.status, found.stdout) == (78, "")
    assert '--if "int(ROWS) > 0": invalid literal for int()' in found.stderr
    assert state_of(jobrun) == ("failed", "not-started", 1)
    missing = down(jobrun, "--if", "int(ROWS) > 0", source="up.none", job="k")
    assert (missing.status, missing.stdout) == (78, "")


def test_by_hand_the_condition_holds_unless_another_is_given(jobrun: Jobrun) -> None:
    """rerun takes over --if of the last call; `--if True` runs it whatever was left."""
    leave(jobrun, b"rows=0")
    down(jobrun, "--if", "int(ROWS) > 0")
    again = jobrun("rerun", "j", "2026-09-04T10:00Z", now=LATER)
    assert (again.status, again.stdout) == (0, "")
    assert "reason=condition-false" in again.stderr
    forced = jobrun("rerun", "j", "2026-09-04T10:00Z", "--if", "True", now=LATER)
    assert (forced.status, forced.stdout) == (0, "'0'\n")
    assert state_of(jobrun)[0] == "processed"
    never = jobrun("rerun", "j", "2026-09-04T10:00Z", "--if", "False", now=LATER)
    assert "reason=condition-false" in never.stderr
    assert state_of(jobrun)[0] == "processed"


def test_a_look_back_goes_with_a_new_window_only(jobrun: Jobrun) -> None:
    """R43: where the new one is left out, nothing below it runs again."""
    leave(jobrun, b"rows=1")
    only = ("--if", "int(ROWS) > 0", "--lookback", "1")
    assert down(jobrun, *only).stdout == "'1'\n"
    leave(jobrun, b"rows=0", "run", "up", *HOURLY, now="2026-09-04T12:05Z")
    assert down(jobrun, *only, now="2026-09-04T12:05Z").stdout == ""


# -- the parts -------------------------------------------------------------------------------------


def test_the_file_of_another_ledger_is_not_read(tmp_path: Path) -> None:
    """A ledger that counts its runs anew finds no values of an older one's run."""
    path = tmp_path / "values" / "1"
    path.parent.mkdir()
    path.write_text("rows=old")
    file = ValuesFile(str(path), lambda folder: None)
    assert (file.read(), file.problem) == ((), None)
    assert not path.exists()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may do anything")
def test_a_file_that_can_not_be_read_is_told(tmp_path: Path) -> None:
    """Its mode, say."""
    file = ValuesFile(str(tmp_path / "1"), lambda folder: None)
    (tmp_path / "1").write_text("rows=1")
    (tmp_path / "1").chmod(0)
    assert file.read() == ()
    assert "can't be read" in (file.problem or "")


def test_values_are_in_order_of_their_names() -> None:
    """However they were left."""
    assert values_file.parse(b"b=1\na=2\nb=3\n") == (("a", "2"), ("b", "3"))


def test_a_value_is_no_placeholder() -> None:
    """`{ROWS}` in an argument stays what it is."""
    assert placeholders.fill("{ROWS} {values_file}", {"ROWS": "5", "values_file": "/x"}) == (
        "{ROWS} {values_file}"
    )
