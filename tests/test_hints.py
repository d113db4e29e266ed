"""Hints are there to be typed: a shell gets the very words, whatever is in a key or a path."""

from __future__ import annotations

import ast
import os
import re
import shlex
import sqlite3
import subprocess

import pytest

from jobrun.options import shell_text
from tests.conftest import PYTHON, ROOT, Jobrun
from tests.scenes import posix

NOW = "2026-09-04T12:05:00Z"
KEYS = ("my file.csv", "$(touch gone)", "a;touch gone", "it's", "{a,b}.csv", "*", "-> é")

EXIT_0, EXIT_3 = (PYTHON, "-c", ""), (PYTHON, "-c", "raise SystemExit(3)")

# What may be put in between the words of a command that is spelled out: it is about no job that is
# on record, and needs no quotes; or it is what the person has typed.
HARMLESS = re.compile(r"close.*|data|run.pid or '-'|__version__|options.shell_text\(argv\)")


def told(text: str) -> list[list[str]]:
    """The commands of the lines that tell some, as a shell would split them."""
    found = re.findall(r"jobrun (?:retry|resolve|skip|explain|rerun) .*", text)
    parts = [part for line in found for part in re.split(r"; else: |    (?=jobrun)", line)]
    return [shlex.split(part) for part in parts]


@posix
@pytest.mark.parametrize("key", KEYS)
def test_the_hint_of_a_dead_unit_can_be_typed(jobrun: Jobrun, key: str) -> None:
    """Pasted into a shell it does what it says, and nothing else."""
    found = jobrun("run", "drop", "--max-attempts", "1", "--key", key, "--", "false", now=NOW)
    (hint,) = told(found.stderr)
    assert hint == ["jobrun", "retry", "drop", f"drop:{key}"]
    line = found.lines[-1].removeprefix("jobrun: hint: ")
    typed = f'jobrun() {{ {shlex.join(jobrun.argv(now=NOW))} "$@"; }}; {line}'
    pasted = subprocess.run(
        ["sh", "-c", typed], env=jobrun.environment, cwd=jobrun.folder, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (pasted.returncode, " what=due " in pasted.stderr) == (0, True)
    assert not (jobrun.folder / "gone").exists()


@posix
@pytest.mark.parametrize("key", KEYS)
def test_what_a_person_may_do_about_a_unit_can_be_typed(jobrun: Jobrun, key: str) -> None:
    """failures, status, explain, and a verb that is refused."""
    jobrun("run", "drop", "--max-attempts", "1", "--key", key, "--", "false", now=NOW)
    name = f"drop:{key}"
    explained = jobrun("explain", "drop", name, now=NOW).stdout
    assert told(explained) == [
        ["jobrun", "retry", "drop", name],
        ["jobrun", "resolve", "drop", name, "--note", "..."],
    ]
    jobrun.change("update jobrun_window set state = 'held'")
    assert told(jobrun("status", "drop", now=NOW).stdout)[1] == [
        "jobrun", "resolve", "drop", name, "--note", "...",
    ]  # fmt: skip
    jobrun.change("update jobrun_window set state = 'failed'")
    assert ["jobrun", "skip", "drop", name, "--reason", "..."] in told(
        jobrun("explain", "drop", name, now=NOW).stdout
    )
    refused = jobrun("resolve", "drop", name, "--note", "x", now=NOW)
    assert told(refused.stderr) == [["jobrun", "explain", "drop", name]]


def test_a_path_and_a_typed_instant_in_a_hint_are_quoted(jobrun: Jobrun) -> None:
    """The ledger that --ledger names, and what --first says."""
    ledger = os.path.realpath(jobrun.folder / "my jobs.db")
    call = ("run", "a", "--every", "1h", "--ledger", ledger, "--first")
    fails = ("--output", "on-failure", "--", "sh", "-c", "echo x; exit 1")
    found = jobrun(*call, "2026-09-04 11:00Z", *fails, now=NOW)
    (hint,) = [line for line in found.lines if "jobrun logs" in line]
    assert shlex.split(hint.partition("hint: ")[2]) == ["jobrun", "logs", "1", "--ledger", ledger]
    other = jobrun(*call, "2026-09-04 10:00Z", "--", "true", now=NOW)
    (hint,) = [line for line in other.lines if "jobrun backfill" in line]
    span = f"--from '2026-09-04 10:00Z' --to 2026-09-04T11:00:00+00:00 --ledger '{ledger}'"
    assert f"jobrun backfill a {span}; " in hint


@pytest.mark.parametrize(
    ("word", "text"),
    [("{start}", "{start}"), ("{a,b}", "'{a,b}'"), ("{1..9}", "'{1..9}'"), ("", "''"),
     ("satış:2026-09-04T11:00:00+00:00", "satış:2026-09-04T11:00:00+00:00")],
)  # fmt: skip
def test_quotes_only_where_a_shell_needs_them(word: str, text: str) -> None:
    """Placeholders and letters of any script stay as they are."""
    assert shell_text([word]) == text


@posix
def test_a_hint_is_about_the_ledger_of_the_call(jobrun: Jobrun) -> None:
    """Typed as it is, the hint of a job in --ledger's acts on that one, not on the default's."""
    other = os.path.realpath(jobrun.folder / "x.db")
    call = ("run", "s", "--every", "1h", "--max-attempts", "1")
    jobrun(*call, "--", "false", now=NOW)
    failed = jobrun(*call, "--ledger", "x.db", "--", "sh", "-c", "exit 1", now=NOW)
    (hint,) = told(failed.stderr)
    key = "s:2026-09-04T11:00:00+00:00"
    assert hint == ["jobrun", "retry", "s", key, "--ledger", other]
    again = jobrun(*hint[1:], now=NOW)
    assert " -- sh -c 'exit 1' in " in again.lines[0]
    assert jobrun.query("select attempts from jobrun_window") == [(1,)]


@posix
@pytest.mark.parametrize(
    "look",
    [("status",), ("failures", "s"), ("explain", "s"), ("plan", "s"), ("show", "1"),
     ("logs", "s:2026-09-04T09:00Z"), ("explain", "s", "s:x"), ("windows", "u"),
     ("forget", "s"), ("retry", "s", "2026-09-04T11:30Z"), ("watermark", "s"),
     ("rerun", "s", "2026-09-04T11:30Z"), ("resolve", "s", "x", "--note", "x")],
)  # fmt: skip
def test_every_command_that_is_told_names_the_ledger_of_the_call(
    jobrun: Jobrun, look: tuple[str, ...]
) -> None:
    """Screens and refusals; where the environment names it, the next call finds it by itself."""
    path = os.path.realpath(jobrun.folder / "x.db")
    where = ("--ledger", path)
    call = ("run", "s", "--every", "1h", "--max-attempts", "1", "--ledger", path)
    jobrun(*call, "--pause-after", "1", "--", "false", now=NOW)
    jobrun("run", "u", "--ledger", path, "--", "false", now=NOW)
    found = jobrun(*look, *where, now=NOW)
    text = found.stdout + found.stderr
    spelled = [line for line in text.splitlines() if re.search(r"\bjobrun [a-z]+ [a-z0-9]", line)]
    parts = [part for line in spelled for part in re.split(r"    (?=jobrun)|; |, or: ", line)]
    assert [part for part in parts if "jobrun" in part and f"--ledger {path}" not in part] == []
    jobrun.environment["JOBRUN_LEDGER"] = path
    named = jobrun(*look, now=NOW)
    assert "--ledger /" not in (named.stdout + named.stderr)


def test_in_a_database_of_ones_own_a_hint_asks_for_the_command(jobrun: Jobrun) -> None:
    """No more than its first word is on record there; a unit of --key is run by its own call."""
    connection = sqlite3.connect(jobrun.ledger)
    connection.execute("create table orders (id)")
    connection.close()
    call = ("--max-attempts", "1", "--", *EXIT_3)
    failed = jobrun("run", "s", "--every", "1h", *call, now=NOW)
    (hint,) = told(failed.stderr)
    key = "s:2026-09-04T11:00:00+00:00"
    assert hint == ["jobrun", "retry", "s", key, "--", "COMMAND"]
    for look in (("status", "s"), ("failures", "s"), ("explain", "s", key)):
        assert " -- COMMAND" in jobrun(*look, now=NOW).stdout
    again = jobrun(*hint[1:-1], *EXIT_0, now=NOW)
    assert (again.status, "PROCESSED" in again.stderr) == (0, True)
    unit = jobrun("run", "u", "--key", "k", *call, now=NOW)
    assert told(unit.stderr) == [["jobrun", "retry", "u", "u:k"]]
    for look in (("status", "u"), ("failures", "u"), ("explain", "u", "u:k")):
        found = jobrun(*look, now=NOW).stdout
        assert ("jobrun retry u" in found, "COMMAND" in found) == (True, False)


@posix
def test_by_hand_a_job_is_that_of_the_ledger_that_was_looked_in(jobrun: Jobrun) -> None:
    """--ledger of the crontab's line was relative to its folder, and that one is another now."""
    call = ("run", "s", "--every", "1h", "--ledger", "x.db", "--", "true")
    jobrun(*call, now=NOW)
    elsewhere = jobrun.folder / "elsewhere"
    elsewhere.mkdir()
    jobrun.environment["JOBRUN_LEDGER"] = str(jobrun.folder / "x.db")
    again = jobrun("rerun", "s", "s:2026-09-04T11:00:00+00:00", now=NOW, cwd=elsewhere)
    assert again.status == 0, again.stderr
    assert not list(elsewhere.iterdir())


def test_no_command_in_a_hint_is_put_together_without_quoting() -> None:
    """`options.typed` makes them: it quotes what needs it, and names the ledger of the call."""
    bare = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {word}"
        for path in sorted((ROOT / "jobrun").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr)
        for word in spelled_out(node)
        if not HARMLESS.fullmatch(word)
    }
    assert bare == set()


def spelled_out(text: ast.JoinedStr) -> list[str]:
    """What is put in between the words of a command of ours, as source."""
    template = "".join(
        str(part.value) if isinstance(part, ast.Constant) else f"\0{ast.unparse(part.value)}\0"
        for part in text.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    )
    commands = re.findall(r"\bjobrun((?: [^\s\0;]+| \0[^\0]*\0)+)", template)
    return [word for command in commands for word in re.findall(r"\0(.*?)\0", command)]
