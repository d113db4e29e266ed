"""`export` and `import`: from SQLite to PostgreSQL and back, nothing lost, nothing twice."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from jobrun import exported, rows
from jobrun.exported import Exported
from jobrun.ledger_reads import Reads
from jobrun.rows import Opening
from tests import ledger_calls as calls
from tests.conftest import Jobrun, Result
from tests.scenes import Held, posix
from tests.test_postgres import query

HOURLY = ("--every", "1h")
VALUES = 'echo "rows=5" > "$JOBRUN_VALUES"'
DAY = "2026-09-04"


def at(clock: str) -> str:
    return f"{DAY}T{clock}Z"


def shell(script: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", script)


def write_history(jobrun: Jobrun) -> None:
    """A ledger with every kind of row, each made by the call that makes it."""

    def call(clock: str, *argv: str, status: int = 0) -> None:
        found = jobrun(*argv, now=at(clock))
        assert found.status == status, (argv, found)

    first = ("--first", at("06:00"))
    # Processed with values, failed, dead, held, lost, skipped, running; merged; given up.
    call("07:05", "run", "sales", *HOURLY, *first, *shell(VALUES))
    call("07:06", "run", "sales", *HOURLY, "--", "true")
    call("08:05", "run", "sales", *HOURLY, *shell("exit 3"), status=3)
    call("07:05", "run", "dead", *HOURLY, *first, "--max-attempts", "1", *shell("exit 4"), status=4)
    call("09:05", "run", "merged", *HOURLY, *first, "--catch-up", "merge", "--", "true")
    call("09:05", "run", "latest", *HOURLY, *first, "--catch-up", "latest", "--", "true")
    call("09:06", "rerun", "latest", at("08:00"), *shell("exit 5"), status=5)
    killed = Held(jobrun, "held", *HOURLY, *first, "--on-lost", "hold", now=at("07:05"))
    killed.wrapper.kill()
    killed.wrapper.communicate()
    call("07:30", "run", "held", *HOURLY, "--on-lost", "hold", "--wait", "20", "--", "true")
    by_hand = ("--reason", "the source is down")
    call("12:05", "skip", "merged", "--from", at("09:00"), "--to", at("11:00"), *by_hand)
    call("12:05", "skip", "merged", at("11:00"), *by_hand)
    call("12:06", "watermark", "merged", "--set", at("10:00"), *by_hand)
    # Taken back while it would still come: void.
    call("12:07", "run", "later", *HOURLY, "--first", at("10:00"), "--", "true")
    call("10:30", "watermark", "later", "--set", at("10:00"), *by_hand)
    # Units of --key, plain, of a name in another script; set, paused; what was forgotten.
    call("12:10", "run", "файл", "--key", "a:b", "--", "true")
    call("12:10", "run", "файл", "--key", "a:b", "--", "true")
    call("12:10", "run", "файл", "--key", "c", *shell("exit 1"), status=1)
    call("12:10", "run", "plain", "--", "/no/such", status=127)
    call("12:11", "run", "plain", "--", "true")
    call("12:12", "set", "sales", "--timeout", "2h", *by_hand)
    call("12:12", "pause", "dead", "--for", "2h", *by_hand)
    call("12:12", "run", "gone", "--", "true")
    call("12:13", "forget", "gone", "--yes")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ledger with every kind of row."""
    folder = tmp_path_factory.mktemp("written")
    write_history(Jobrun(folder))
    return folder


@pytest.fixture
def source(written: Path, tmp_path: Path) -> Jobrun:
    """jobrun on a ledger with every kind of row."""
    (tmp_path / "source").mkdir()
    shutil.copy(written / "jobrun.db", tmp_path / "source" / "jobrun.db")
    return Jobrun(tmp_path / "source")


@pytest.fixture
def target(tmp_path: Path) -> Jobrun:
    """jobrun on a ledger that is not there yet."""
    (tmp_path / "target").mkdir()
    return Jobrun(tmp_path / "target")


def export(jobrun: Jobrun, *jobs: str) -> str:
    found = jobrun("export", *jobs, now=at("13:00"))
    assert (found.status, found.stderr) == (0, "")
    return found.stdout


def import_(jobrun: Jobrun, text: str | bytes, *options: str) -> Result:
    """From stdin."""
    data = text.encode() if isinstance(text, str) else text
    return jobrun("import", "-", *options, input=data, now=at("13:01"))


def came(result: Result) -> dict[str, str]:
    """What the lines say of each job."""
    found = re.findall(r"NOTE job=(\S+) what=(\S+) rows=", result.stderr)
    return dict(found)


def dump(jobrun: Jobrun) -> list[str]:
    """All that is in the file, row for row; but for the hosts, who call the one or the other."""
    others = ('INSERT INTO "sqlite', 'INSERT INTO "jobrun_host')
    with closing(sqlite3.connect(jobrun.ledger)) as connection:
        return sorted(line for line in connection.iterdump() if not line.startswith(others))


def content(text: str) -> list[str]:
    """An export without its first line, which says when and from where."""
    return text.splitlines()[1:]


# -- the way there and back ------------------------------------------------------------------------


def test_a_ledger_with_every_kind_of_row_is_one(source: Jobrun) -> None:
    """What the tests below move has every table, every state and most outcomes."""
    for table in exported.TABLES:
        assert source.query(f"SELECT count(*) FROM {table.in_database}") != [(0,)], table
    states = {state for (state,) in source.query("SELECT DISTINCT state FROM jobrun_window")}
    assert states == {*rows.STATES} - {"running"}
    outcomes = {outcome for (outcome,) in source.query("SELECT DISTINCT outcome FROM jobrun_run")}
    assert outcomes == {"succeeded", "failed", "lost", "not-started"}
    assert source.query("SELECT token_floor FROM jobrun_meta") == [(1,)]


def test_there_and_back(source: Jobrun, on_postgres: Jobrun, target: Jobrun) -> None:
    """SQLite, PostgreSQL, SQLite: each has the same rows as the one before."""
    first = export(source)
    there = import_(on_postgres, first)
    assert (there.status, set(came(there).values())) == (0, {"imported"})
    second = export(on_postgres)
    assert content(second) == content(first)
    assert import_(target, second).status == 0
    assert dump(target) == dump(source)
    assert content(export(target)) == content(first)
    for jobrun in (on_postgres, target):
        assert "damaged" not in jobrun("doctor", now=at("13:02")).stdout


def test_no_password_is_in_the_file(on_postgres: Jobrun) -> None:
    """The first line says where it comes from, as a person may read it."""
    on_postgres("run", "a", "--", "true")
    address = on_postgres.environment["JOBRUN_LEDGER"].replace("postgres@", "postgres:hush@")
    on_postgres.environment["JOBRUN_LEDGER"] = address
    text = export(on_postgres)
    assert json.loads(text.splitlines()[0])["source"].startswith("postgresql://postgres@")
    assert "hush" not in text


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_second_import_changes_nothing(
    source: Jobrun, target: Jobrun, engine: str, request: pytest.FixtureRequest
) -> None:
    """Each job is unchanged, and says so."""
    jobrun = request.getfixturevalue("on_postgres") if engine == "postgres" else target
    text = export(source)
    import_(jobrun, text)
    before = export(jobrun)
    again = import_(jobrun, text)
    assert (again.status, set(came(again).values())) == (0, {"unchanged"})
    assert content(export(jobrun)) == content(before)


def test_into_the_ledger_that_it_comes_from(source: Jobrun) -> None:
    """It is what it is."""
    before = dump(source)
    again = import_(source, export(source))
    assert (again.status, set(came(again).values())) == (0, {"unchanged"})
    assert dump(source) == before


def test_some_jobs(source: Jobrun, target: Jobrun) -> None:
    """Those that are named, each once; one that is not there is an error before a line is out."""
    import_(target, export(source, "plain", "sales", "plain"))
    assert target.query("SELECT name FROM jobrun_job ORDER BY name") == [("plain",), ("sales",)]
    wrong = source("export", "sale")
    assert (wrong.status, wrong.stdout) == (2, "")
    assert "sales" in wrong.stderr


def test_a_dry_run_changes_nothing(source: Jobrun, target: Jobrun) -> None:
    """It says what would come of each job, and makes no ledger."""
    text = export(source)
    foreseen = import_(target, text, "--dry-run")
    assert (foreseen.status, set(came(foreseen).values())) == (0, {"would-import"})
    assert list(target.folder.iterdir()) == []
    import_(target, text)
    assert set(came(import_(target, text, "--dry-run")).values()) == {"unchanged"}


def test_it_goes_on_where_the_old_one_ended(
    target: Jobrun, on_postgres: Jobrun, tmp_path: Path
) -> None:
    """The second half of a morning on the new ledger is what it would be on the old one."""
    show = shell("echo $JOBRUN_KEY $JOBRUN_ATTEMPT $JOBRUN_RUN_ID $JOBRUN_TOKEN; exit $CODE")

    def call(jobrun: Jobrun, clock: str, code: int = 0) -> str:
        argv = ("run", "rates", *HOURLY, "--first", at("08:00"), *show)
        return jobrun(*argv, now=at(clock), env={"CODE": str(code)}).stdout

    def morning(before: Jobrun, move: Callable[[], Jobrun]) -> tuple[list[str], list[str]]:
        told = [call(before, "10:05"), call(before, "11:05", code=1), call(before, "11:05")]
        after = move()
        told += [call(after, "11:30"), call(after, "14:05"), call(after, "14:05")]
        told.append(after("windows", "rates", now=at("14:06")).stdout.partition("\n")[2])
        events = after("events", "rates", "--json", now=at("14:06")).stdout
        return told, json.loads(events)["events"]

    def move() -> Jobrun:
        assert import_(on_postgres, export(target)).status == 0
        return on_postgres

    (tmp_path / "one").mkdir()
    one = Jobrun(tmp_path / "one")
    whole, split = morning(one, lambda: one), morning(target, move)
    assert split == whole
    assert [len(told.splitlines()) for told in whole[0]] == [2, 1, 0, 1, 3, 0, 5]


# -- numbers ---------------------------------------------------------------------------------------


def numbers(jobrun: Jobrun, job: str = "a") -> list[int]:
    """Of the job's runs."""
    sql = f"SELECT id FROM jobrun_run WHERE job = '{job}' ORDER BY id"
    is_file = jobrun.environment["JOBRUN_LEDGER"] == str(jobrun.ledger)
    found = jobrun.query(sql) if is_file else query(jobrun, sql)
    return [int(str(id_)) for (id_,) in found]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_numbers_that_another_job_has(
    target: Jobrun, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """All of the job's are raised, what names a run with them; later ones are above."""
    goal = request.getfixturevalue("on_postgres") if engine == "postgres" else target
    (tmp_path / "old").mkdir()
    old = Jobrun(tmp_path / "old")
    for code in ("0", "1"):
        old("run", "a", "--", "sh", "-c", f"exit {code}", now=at("10:00"))
    goal("run", "b", "--", "true", now=at("10:00"))
    moved = import_(goal, export(old))
    assert (moved.status, "run-ids=+1" in moved.stderr) == (0, True)
    assert numbers(goal) == [2, 3]
    assert "run=3" in goal("events", "a", now=at("11:00")).stdout
    # One of b comes between: what follows in the old ledger is not free in the new one.
    goal("run", "b", "--", "true", now=at("12:00"))
    old("run", "a", "--", "true", now=at("12:00"))
    again = import_(goal, export(old))
    assert (again.status, came(again)) == (0, {"a": "brought-up-to-date"})
    assert (numbers(goal), numbers(goal, "b")) == ([5, 6, 7], [1, 4])
    assert came(import_(goal, export(old))) == {"a": "unchanged"}
    goal("run", "b", "--", "true", now=at("12:30"))
    assert numbers(goal, "b") == [1, 4, 8]


def test_a_number_that_is_taken_meanwhile(
    again: calls.Again, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job's run begins while free numbers are looked for: others are, and none is lost."""
    (tmp_path / "old").mkdir()
    with calls.in_a_file(tmp_path / "old") as old:
        calls.run(old(), calls.TEN)
        calls.run(old(), calls.ELEVEN)
        with old().exporting([]) as (_, rows):
            text = b"".join(exported.lines(dict(HEADER), rows))
    ledger, other = again(), again()
    database: Any = ledger._database  # type: ignore[attr-defined]
    reserve = type(database).reserve
    runs: list[int] = []

    def reserve_late(database: object, table: str, largest: int) -> None:
        if table == "jobrun_run":
            plain = calls.claim(calls.TEN)._replace(key=None, start=None, end=None, kind=None)
            opening = Opening("b", len(runs), calls.NOW)
            opened = other.open(opening, plain, None)
            assert opened is not None
            assert opened.claimed is not None
            runs.append(opened.claimed.run_id)
        reserve(database, table, largest)

    monkeypatch.setattr(type(database), "reserve", reserve_late)
    read = Exported("file", io.BytesIO(text))
    assert ledger.take_import(read, read.parts[0]).what == "imported"
    own = [run.id for run in ledger.runs("j")]
    assert len(runs) > 1
    assert not {*own} & {*runs}
    assert len(own) == 2
    assert ledger.problems() == []


def test_output_that_is_kept_of_other_runs(jobrun: Jobrun, target: Jobrun) -> None:
    """A job was tried on the new ledger, and forgotten: `logs` shows nothing of that as another's;
    in the ledger that the file comes from the same numbers have the same output."""
    jobrun("run", "a", "--", "echo", "ours", now=at("10:00"))
    target("run", "a", "--", "echo", "tried", now=at("10:00"))
    text = export(jobrun)
    for each in (jobrun, target):
        each("forget", "a", "--yes", now=at("10:01"))
        assert import_(each, text).status == 0
    assert jobrun("logs", "1", now=at("11:00")).stdout == "ours\n"
    assert numbers(target) == [2]
    assert target("logs", "2", now=at("11:00")).stdout == ""


def test_tokens_are_given_once(jobrun: Jobrun, target: Jobrun) -> None:
    """Forgotten and imported again the job goes on above all tokens that it ever had there."""
    token = ("--", "sh", "-c", "echo $JOBRUN_TOKEN")
    jobrun("run", "a", *token, now=at("10:00"))
    text = export(jobrun)
    import_(target, text)
    assert [target("run", "a", *token, now=at("10:00")).stdout for _ in range(2)] == ["2\n", "3\n"]
    target("forget", "a", "--yes", now=at("10:01"))
    assert came(import_(target, text)) == {"a": "imported"}
    assert came(import_(target, text)) == {"a": "unchanged"}
    assert target("run", "a", *token, now=at("10:02")).stdout == "4\n"


# -- two histories ---------------------------------------------------------------------------------


def test_the_source_went_on(source: Jobrun, target: Jobrun) -> None:
    """A later export of the same ledger brings the jobs up to date, whatever has happened."""
    import_(target, export(source))
    source("retry", "dead", at("06:00"), "--", "true", now=at("12:20"))
    source("resolve", "held", at("06:00"), "--note", "seen to", now=at("12:20"))
    source("run", "sales", *HOURLY, "--", "true", now=at("12:20"))
    source("rerun", "latest", at("06:00"), "--", "true", now=at("12:20"))  # in a gap
    source("watermark", "sales", "--set", at("07:00"), "--reason", "x", now=at("08:30"))
    source("run", "plain", "--", "true", now=at("12:20"))
    source("resume", "dead", now=at("12:20"))
    again = import_(target, export(source))
    assert again.status == 0, again
    changed = {"dead", "held", "sales", "latest", "plain"}
    assert {job for job, what in came(again).items() if what == "brought-up-to-date"} == changed
    assert dump(target) == dump(source)


CHANGES = {
    "run": ("run", "plain", "--", "true"),
    "skip": ("run", "dead", *HOURLY, "--", "true"),  # it is paused
    "event": ("resume", "dead"),
    "merged:": ("skip", "merged", at("12:00"), "--reason", "x"),
    "token": ("watermark", "plain", "--set", at("07:00"), "--reason", "x"),
}


@pytest.mark.parametrize("row", ["run", "skip", "event", "merged:"])
def test_the_target_went_on(source: Jobrun, target: Jobrun, row: str) -> None:
    """Refused with the first row that the file has not, and what to do; the others are done."""
    text = export(source)
    import_(target, text)
    assert target(*CHANGES[row], now=at("13:05")).status == 0
    before = dump(target)
    source("run", "файл", "--key", "new", "--", "true", now=at("13:06"))
    refused = import_(target, export(source))
    assert refused.status == 2
    job = CHANGES[row][1]
    error, hint = (line for line in refused.lines if "error" in line or "hint" in line)
    assert f'job "{job}" has another history' in error
    assert row in error.partition("stdin: ")[2]
    assert f"jobrun forget {job}" in hint
    assert came(refused) == {
        name: "brought-up-to-date" if name == "файл" else "unchanged"
        for (name,) in source.query("SELECT name FROM jobrun_job")
        if name != job
    }
    kept = [line for line in before if "файл" not in line]
    assert [line for line in dump(target) if "файл" not in line] == kept


def test_both_went_on(jobrun: Jobrun, target: Jobrun) -> None:
    """The same number, and another run: never the one in the place of the other."""
    jobrun("run", "a", "--", "true", now=at("10:00"))
    import_(target, export(jobrun))
    target("run", "a", "--", "true", now=at("10:05"))
    for _ in range(2):
        jobrun("run", "a", "--", "true", now=at("10:06"))
    refused = import_(target, export(jobrun))
    assert (refused.status, f"run 2, started at {DAY}T10:05:00+00:00" in refused.stderr) == (
        2,
        True,
    )
    assert target("forget", "a", "--yes", now=at("10:07")).status == 0
    assert came(import_(target, export(jobrun))) == {"a": "imported"}


def test_a_job_of_the_same_name(jobrun: Jobrun, target: Jobrun) -> None:
    """It began at another time: not the same job."""
    jobrun("run", "a", "--", "true", now=at("10:00"))
    target("run", "a", "--", "true", now=at("10:05"))
    refused = import_(target, export(jobrun), "--dry-run")
    assert (refused.status, "another history" in refused.stderr) == (2, True)


# -- runs that have not ended ----------------------------------------------------------------------


@posix
def test_a_run_at_work(jobrun: Jobrun, target: Jobrun) -> None:
    """Export and import both warn of it; the new ledger's next call takes it for lost."""
    held = Held(jobrun, "a", *HOURLY, now=at("10:05"))
    exporting = jobrun("export", now=at("10:06"))
    assert exporting.status == 0
    warning = f"WARNING job=a what=open-run key=a:{DAY}T09:00:00+00:00"
    assert warning in exporting.stderr
    assert "runs its window again" in exporting.stderr
    held.release()
    moved = import_(target, exporting.stdout)
    assert (moved.status, warning in moved.stderr) == (0, True)
    assert came(import_(target, export(jobrun))) == {"a": "brought-up-to-date"}
    assert target.query("SELECT outcome FROM jobrun_run") == [("succeeded",)]
    assert target("forget", "a", "--yes").status == 0
    assert import_(target, exporting.stdout).status == 0
    later = target("run", "a", *HOURLY, "--", "true", now=at("10:07"))
    assert [line.split()[1] for line in later.lines] == ["LOST", "PROCESSED"]


@posix
def test_the_lock_of_a_server_stays_there(on_postgres: Jobrun, target: Jobrun) -> None:
    """By hand a job takes that of its last call; in a file there is none."""
    on_postgres.environment["JOBRUN_LOCK"] = "lease"
    assert on_postgres("run", "b", "--key", "one", "--", "false", now=at("10:05")).status == 1
    held = Held(on_postgres, "a", *HOURLY, now=at("10:05"))
    exported = on_postgres("export", now=at("10:06")).stdout
    held.release()
    assert import_(target, exported).status == 0
    assert target("plan", "a", now=at("10:07")).status == 0
    units = target("retry", "b", now=at("10:07"))
    assert (units.status, "what=due" in units.stderr) == (0, True), units
    again = target("retry", "a", "--", "true", now=at("10:07"))
    words = [line.split()[1] for line in again.lines]
    assert (again.status, words) == (0, ["hint:", "LOST", "PROCESSED"]), again


@posix
def test_a_job_that_runs_on_the_new_ledger(source: Jobrun, target: Jobrun) -> None:
    """Its lock is held: that one is refused for now, the others are taken in."""
    held = Held(target, "plain", now=at("10:05"))
    moved = import_(target, export(source))
    assert moved.status == 75
    assert 'job "plain" is running' in moved.stderr
    assert "plain" not in came(moved)
    assert len(came(moved)) == len(source.query("SELECT name FROM jobrun_job")) - 1
    held.release()


# -- files that are none ---------------------------------------------------------------------------


def lines_of(*rows: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


HEADER = {"jobrun": "export", "v": 1, "engine": "sqlite", "schema": 2}
END = {"jobrun": "end", "rows": dict.fromkeys(exported.BY_NAME, 0)}


def test_a_part_of_a_file(source: Jobrun, target: Jobrun) -> None:
    """Wherever it was cut: nothing of it is taken in."""
    whole = export(source).encode()
    newline = whole.index(b"\n", len(whole) // 2)
    for length in (newline + 1, newline + 20, whole.rindex(b"\n", 0, -1) + 1):
        cut = import_(target, whole[:length])
        assert cut.status == 74, cut
        assert "part of an export" in cut.stderr or "the file ends in it" in cut.stderr
        assert list(target.folder.iterdir()) == []


def test_lines_are_missing(source: Jobrun, target: Jobrun) -> None:
    """A file from which somebody took lines is not whole."""
    lines = export(source).splitlines(keepends=True)
    events = [line for line in lines if '"table":"event"' not in line]
    found = import_(target, "".join(events))
    assert (found.status, "rows are missing" in found.stderr) == (74, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("hello\n", "line 1: not the first line of an export"),
        ('{"jobrun": "end"}\n', "line 1: not the first line of an export"),
        (lines_of(HEADER) + "{]\n", "line 2: not a line of an export"),
        (lines_of(HEADER) + "[1]\n", "line 2: not a line of an export"),
        (lines_of(HEADER) + "[" * 9000 + "\n", "line 2: not a line of an export"),
        (lines_of(HEADER, {"table": "jobs"}), "line 2: no table of ours"),
        (lines_of(HEADER, {"table": ["a"]}), "line 2: no table of ours"),
        (lines_of(HEADER, {"table": "event", "id": 1}), "line 2: table event without its column"),
        (lines_of(HEADER, END, END), "line 3: something follows the end"),
        (lines_of({**HEADER, "v": 2}), "newer jobrun (format 2 > 1)"),
        (lines_of({**HEADER, "schema": 99}), "newer jobrun (schema 99 > "),
        (lines_of({**HEADER, "engine": "redis"}), "newer jobrun"),
    ],
)  # fmt: skip
def test_what_is_no_export(target: Jobrun, text: str, said: str) -> None:
    """74 with the line, and no ledger is made."""
    found = import_(target, text)
    assert (found.status, said in found.stderr) == (74, True), found
    assert "Traceback" not in found.stderr
    assert list(target.folder.iterdir()) == []


def test_a_file_that_a_shell_has_rewritten(source: Jobrun, target: Jobrun) -> None:
    """PowerShell's > of old makes it UTF-16: said, with another way. Other line ends do no harm."""
    text = export(source)
    found = import_(target, text.encode("utf-16"))
    assert (found.status, "UTF-16" in found.stderr, "cmd /c" in found.stderr) == (74, True, True)
    assert import_(target, text.replace("\n", "\r\n")).status == 0
    assert dump(target) == dump(source)


@pytest.mark.parametrize(
    ("table", "column", "value", "said"),
    [
        ("run", "started", "yesterday", "started is 'yesterday', no instant"),
        ("run", "token", None, "token is None, no number"),
        ("run", "color", 1, "a column 'color' of table run, of a newer jobrun"),
        ("window", "partial", 2, "partial is 2, neither 0 nor 1"),
        ("job", "name", "sale", "a row of job sales that is not below its job"),
        ("window", "state", "done", "contradict each other"),
        ("run", "key", "sales:x", "contradict each other"),
    ],
)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_row_that_can_not_be(
    source: Jobrun, target: Jobrun, engine: str, table: str, column: str, value: object,
    said: str, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """74 with its line, or what the database says of it; nothing of the job is there."""
    goal = request.getfixturevalue("on_postgres") if engine == "postgres" else target
    rows = [json.loads(line) for line in export(source, "sales").splitlines()]
    row = next(row for row in rows if row.get("table") == table)
    row[column] = value
    found = import_(goal, lines_of(*rows))
    assert (found.status, said in found.stderr) == (74, True), found
    assert "sales" not in goal("status", now=at("13:02")).stdout


def test_a_name_that_is_none(jobrun: Jobrun, target: Jobrun) -> None:
    """It could be no job here: no file of its own would have its lock."""
    jobrun("run", "a", "--", "true", now=at("10:00"))
    found = import_(target, export(jobrun).replace('"a"', '"../a"'))
    assert (found.status, "letters, digits" in found.stderr) == (74, True)


def test_a_number_that_is_too_large(jobrun: Jobrun, on_postgres: Jobrun) -> None:
    """A column of PostgreSQL's has fewer digits: told as any other row that can't be."""
    file = Jobrun(jobrun.folder)
    file.environment = {**file.environment, "JOBRUN_LEDGER": str(file.ledger)}
    file("run", "a", "--", "true", now=at("10:00"))
    text = export(file).replace('"failing":0', '"failing":99999999999')
    found = import_(on_postgres, text)
    assert (found.status, "out of range" in found.stderr) == (74, True), found


def test_a_file_that_can_not_be_read(source: Jobrun, target: Jobrun) -> None:
    """2: the call is wrong; and a ledger is no export."""
    for name in ("none.jsonl", "."):
        found = target("import", name)
        assert (found.status, f"import {name}: " in found.stderr) == (2, True)
    assert target("import", str(source.ledger)).status == 74


@posix
def test_a_disk_that_is_full(source: Jobrun) -> None:
    """What was not written whole is an error, not a short file."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with open("/dev/full", "wb") as full:
        found = source("export", stdout=full)
    assert (found.status, "can't write all of it" in found.stderr) == (74, True)
    assert "Traceback" not in found.stderr


# -- text that is none -----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_text_that_not_every_database_has(
    jobrun: Jobrun, target: Jobrun, engine: str, request: pytest.FixtureRequest
) -> None:
    """Bytes that are no text, NUL, halves of a pair: escaped where they can't be kept, once."""
    (target.folder / "old").mkdir()
    old = Jobrun(target.folder / "old")
    goal = request.getfixturevalue("on_postgres") if engine == "postgres" else target
    old("run", "a", "--", "true", "\udcff", now=at("10:00"))
    odd = 'TAB\t nul\0 line\u2028 quote" back\\ \\N {x} %s :y ? 名'
    old.change("UPDATE jobrun_job SET told = ?, told_at = first_seen", odd)
    text = export(old).replace("TAB", "\\ud800TAB")
    assert text.isascii()
    first = import_(goal, text)
    assert came(first) == {"a": "imported"}, first
    assert came(import_(goal, text)) == {"a": "unchanged"}
    (row,) = (json.loads(line) for line in content(export(goal)) if '"table":"job"' in line)
    expected = "\\ud800" + odd
    assert row["told"] == (expected.replace("\0", "\\x00") if engine == "postgres" else expected)


# -- as at one instant -----------------------------------------------------------------------------


def test_an_export_is_of_one_instant(again: calls.Again) -> None:
    """What is written while it reads is in none of its rows, and nobody waits for it."""
    ledger, other = again(), again()
    calls.run(ledger, calls.TEN)
    with ledger.exporting(["j"]) as (_, rows):
        seen = [next(rows)]
        calls.run(other, calls.ELEVEN)
        seen += rows
    assert [table.name for table, _ in seen] == ["job", "window", "run"]
    with ledger.exporting(["j"]) as (_, rows):
        assert [table.name for table, _ in rows].count("run") == 2


def test_every_column_is_exported(again: calls.Again) -> None:
    """A new table or column of the ledger is moved too, or named here with the reason."""
    ledger = again()
    database: Any = ledger._database  # type: ignore[attr-defined]
    assert isinstance(ledger, Reads)
    if ledger.address.startswith("postgresql:"):
        columns = database.rows(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema()"
        )
    else:
        columns = database.rows(
            "SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c"
            " WHERE m.type = 'table' AND m.name LIKE 'jobrun%'"
        )
    known = {(table.in_database, name) for table in exported.TABLES for name in table.columns}
    assert {pair for pair in columns if pair[0] not in STAY} == known


# Its version and whose file it is are a ledger's own; `token_floor` is in the first line. Leases
# are of those who hold them now; hosts are those that this ledger has seen, by its own clock.
STAY = {"jobrun_meta", "jobrun_lock", "jobrun_host"}


@posix
def test_a_reader_that_does_not_read(jobrun: Jobrun) -> None:
    """`export | less`: nobody who writes waits for it, also where the journal is no WAL."""
    jobrun("run", "a", "--", "true", now=at("10:00"))
    add_skips(jobrun, 2000)
    jobrun.change("PRAGMA journal_mode = delete")
    exporting = jobrun.start("export")
    assert exporting.stdout is not None
    assert os.read(exporting.stdout.fileno(), 1) == b"{"  # of what is written once all is read
    assert jobrun("pause", "a", timeout=60).status == 0
    assert b'"paused_at":null' in exporting.communicate(timeout=20)[0]
    assert exporting.returncode == 0


# -- many rows -------------------------------------------------------------------------------------


@pytest.mark.long
@posix
def test_many_rows_fit(jobrun: Jobrun, target: Jobrun) -> None:
    """200,000 rows there and back: in no more memory than a few need."""
    jobrun("run", "a", "--", "true", now=at("10:00"))
    few = memory(jobrun, target, "few")
    add_skips(jobrun, 200_000)
    many = memory(jobrun, target, "many")
    assert max(m - f for m, f in zip(many, few, strict=True)) < 16 * 1024


def add_skips(jobrun: Jobrun, count: int) -> None:
    """As so many calls of `--key` would, each of a key that is done."""
    jobrun.change(
        "WITH RECURSIVE k (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < ?)"
        " INSERT INTO jobrun_skip (job, key, reason, at, times, last_at)"
        " SELECT 'a', 'a:' || n, 'key-exists', first_seen, 1, first_seen FROM k, jobrun_job",
        count,
    )


def memory(source: Jobrun, target: Jobrun, name: str) -> tuple[int, int, int]:
    """KiB at the most, of an export, of its import, and of the same again."""
    file = target.folder / f"{name}.jsonl"
    with file.open("wb") as out:
        exporting = peak(source, "export", stdout=out)
    return exporting, peak(target, "import", str(file)), peak(target, "import", str(file))


def peak(jobrun: Jobrun, *argv: str, **options: Any) -> int:
    process = jobrun.start(*argv, **{"stdout": None, "stderr": None, **options})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss
