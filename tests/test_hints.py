"""Hints are there to be typed: a shell gets the very words, whatever is in a key or a path."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess

import pytest

from jobrun.options import shell_text
from tests.conftest import ROOT, Jobrun
from tests.scenes import posix

NOW = "2026-09-04T12:05:00Z"
KEYS = ("my file.csv", "$(touch gone)", "a;touch gone", "it's", "{a,b}.csv", "*", "-> é")

# In a command that a hint spells out, what needs no quotes: names of jobs, numbers, instants,
# verbs; and what is quoted already.
HARMLESS = re.compile(
    r"(.*\.)?(name|job|id|up|words\[0\]|path\[-2\]|pid or '-'|__version__)|iso_z?\(.*\)|back"
    r"|close.*|data|.*(typed|shell_text)\(.*"
)


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
    ledger = str(jobrun.folder / "my jobs.db")
    call = ("run", "a", "--every", "1h", "--ledger", ledger, "--first")
    fails = ("--output", "on-failure", "--", "sh", "-c", "echo x; exit 1")
    found = jobrun(*call, "2026-09-04 11:00Z", *fails, now=NOW)
    (hint,) = [line for line in found.lines if "jobrun logs" in line]
    assert shlex.split(hint.partition("hint: ")[2]) == ["jobrun", "logs", "1", "--ledger", ledger]
    other = jobrun(*call, "2026-09-04 10:00Z", "--", "true", now=NOW)
    (hint,) = [line for line in other.lines if "jobrun backfill" in line]
    assert " --from '2026-09-04 10:00Z' --to 2026-09-04T11:00:00+00:00; " in hint


@pytest.mark.parametrize(
    ("word", "text"),
    [("{start}", "{start}"), ("{a,b}", "'{a,b}'"), ("{1..9}", "'{1..9}'"), ("", "''"),
     ("satış:2026-09-04T11:00:00+00:00", "satış:2026-09-04T11:00:00+00:00")],
)  # fmt: skip
def test_quotes_only_where_a_shell_needs_them(word: str, text: str) -> None:
    """Placeholders and letters of any script stay as they are."""
    assert shell_text([word]) == text


def test_no_command_in_a_hint_is_put_together_without_quoting() -> None:
    """`options.typed` makes them, where a word of them may be anything."""
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
