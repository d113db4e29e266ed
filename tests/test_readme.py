"""Every block and every table of the README is run or compared: it can't say what is not so.

`python -m tests.test_readme` writes the tables that are made from the program's own data.
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import jobrun as package
from jobrun import errors, manual, options, placeholders, rows
from tests import crontabs
from tests.conftest import EPHEMERAL, PYTHON, ROOT, Jobrun, clean_environment, instant, until

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
DAY = "2026-09-04"  # of the clock in the prompts
NOON = "12:05"  # where a prompt has no clock

posix = pytest.mark.skipif(os.name == "nt", reason="the blocks are for a POSIX shell and terminal")


class Block(NamedTuple):
    line: int
    kind: str
    text: str


def blocks(text: str) -> list[Block]:
    found: list[Block] = []
    inside: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```") and inside is None:
            inside, kind, start = [], line[3:].strip(), number
        elif line.startswith("```"):
            found.append(Block(start, kind, "".join(f"{part}\n" for part in inside or ())))
            inside = None
        elif inside is not None:
            inside.append(line)
    assert inside is None, "a block is not closed"
    return found


BLOCKS = blocks(TEXT)


def of_kind(kind: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind == kind]


SET_UP, TESTS, *MORE_SH = of_kind("sh")
FILE = re.compile(r"# (\S+\.(?:py|sh))\n")


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    """A block that nothing here would run or check has no place in the README."""
    assert {"sh", "bat", "console", "crontab", "python"} == {block.kind for block in BLOCKS}
    assert [block for block in of_kind("python") if not FILE.match(block.text)] == []


# -- a person at a terminal ------------------------------------------------------------------------

PROGRAMS = {
    "jobrun": 'exec "{python}" -m tests.frozen "${{CLOCK:-0}}" "$@"\n',
    # A venv whose pip has nothing to do, since the package under test is there already.
    "python3": 'if [ "$1 $2" = "-m venv" ]; then\n'
    '    for last; do :; done; mkdir -p "$last/bin"\n'
    '    ln -sf {bin}/jobrun {bin}/pip "$last/bin/"; ln -sf {bin}/python3 "$last/bin/python"\n'
    "    exit\n"
    'fi\nexec "{python}" "$@"\n',
    "pip": 'echo "$@" >> {home}/pip.log\n',
}
# The command of the worked example: waits where the gate is shut.
SUMMARY = "#!/bin/sh\n: > working\nif [ -p gate ]; then read -r _ < gate; fi\n"


class Terminal:
    """A folder, a clock, and a shell whose output goes to a terminal, in the order it comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.background: Running | None = None
        programs = folder / "bin"
        programs.mkdir()
        for name, script in PROGRAMS.items():
            text = script.format(python=PYTHON, bin=programs, home=folder)
            (programs / name).write_text(f"#!/bin/sh\n{text}")
            (programs / name).chmod(0o755)
        (folder / "summary").write_text(SUMMARY)
        (folder / "summary").chmod(0o755)
        (folder / "examples").symlink_to(ROOT / "examples")
        self.environment = clean_environment(
            PATH=f"{programs}:{os.environ['PATH']}", HOME=str(folder),
            JOBRUN_HOME=str(folder / "state"), COLUMNS="160", NO_COLOR="1", TERM="xterm",
        )  # fmt: skip

    def run(self, command: str, clock: str | None = None) -> str:
        """What the command prints. `COMMAND &` runs on until `wait`."""
        if command == "wait":
            return self._wait()
        running = Running(self, command.removesuffix("&"), clock)
        if not command.endswith("&"):
            return running.end()
        self.background = running
        return ""

    def start_background(self, command: str, clock: str | None) -> None:
        (self.folder / "working").unlink(missing_ok=True)
        os.mkfifo(self.folder / "gate")
        self.run(command, clock)
        until((self.folder / "working").exists, "the command in the background")

    def _wait(self) -> str:
        assert self.background is not None
        with open(self.folder / "gate", "w") as gate:
            (self.folder / "gate").unlink()
            gate.write("\n")
        return self.background.end()


class Running:
    """A command of the shell, its output on a terminal of its own."""

    def __init__(self, terminal: Terminal, command: str, clock: str | None) -> None:
        import pty

        self.controller, screen = pty.openpty()
        now = {"CLOCK": str(instant(f"{DAY}T{clock}:00+00:00"))} if clock else {}
        self.process = subprocess.Popen(
            ["sh", "-c", command], cwd=terminal.folder, env={**terminal.environment, **now},
            stdin=subprocess.DEVNULL, stdout=screen, stderr=screen,
        )  # fmt: skip
        os.close(screen)

    def end(self) -> str:
        output = b""
        while part := self._read():
            output += part
        self.status = self.process.wait(30)
        os.close(self.controller)
        lines = [line.rstrip() for line in output.decode().splitlines()]
        return "".join(f"{line}\n" for line in lines if EPHEMERAL not in line)

    def _read(self) -> bytes:
        try:
            return os.read(self.controller, 65536)
        except OSError:  # Linux: no process has the terminal open any more
            return b""


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A terminal in an empty folder, with the database that the README's scripts work on."""
    connection = sqlite3.connect(tmp_path / "shop.db")
    with connection:
        connection.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, cents INTEGER)")
        connection.execute("INSERT INTO account (cents) VALUES (100000)")
    connection.close()
    return Terminal(tmp_path)


# -- blocks ---------------------------------------------------------------------------------------

PROMPT = re.compile(r"(?:(\d\d:\d\d))?\$ (.*)\n")


class Step(NamedTuple):
    clock: str
    command: str
    expected: str


def steps(block: Block) -> Iterator[Step]:
    """Each command of a console block with the output that is shown below it."""
    parts = PROMPT.split(block.text)
    assert parts[0] == "", f"README line {block.line}: a console block begins with a prompt"
    for position in range(1, len(parts), 3):
        clock, command, expected = parts[position : position + 3]
        yield Step(clock or NOON, command, expected)


def as_pattern(shown: str) -> str:
    """`…` is any text within a line, on a line of its own any number of lines.

    Two blanks stand for two or more: a column is as wide as its widest value.
    """
    return "".join(_line_pattern(line) for line in shown.splitlines())


def _line_pattern(line: str) -> str:
    if line == "…":
        return "(?:.*\n)*?"
    pattern = re.escape(line).replace("…", ".*?")
    return re.sub(r"(?:\\ ){2,}", "  +", pattern) + "\n"


@posix
@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
def test_the_consoles_show_what_is_printed(terminal: Terminal) -> None:
    """Every command of every console block, in order, on a terminal, to the letter but for `…`."""
    for block in BLOCKS:
        named = FILE.match(block.text)
        if named:
            (terminal.folder / named[1]).write_text(block.text)
        if block.kind == "console":
            for step in steps(block):
                show(terminal, block, step)


def show(terminal: Terminal, block: Block, step: Step) -> None:
    if step.command.endswith("&"):
        terminal.start_background(step.command, step.clock)
        return
    printed = terminal.run(step.command, step.clock)
    where = f"README line {block.line}: {step.command}"
    assert re.fullmatch(as_pattern(step.expected), printed), f"{where}\n{printed}"


@posix
def test_the_first_line_sets_up_and_runs_the_main_job(terminal: Terminal) -> None:
    """Orders, then the roll-up of the newest minute; its last part again has nothing to do."""
    clock = str(time.time())
    printed = terminal.run(f"CLOCK={clock}; export CLOCK; {SET_UP.text}")
    assert "jobrun: PROCESSED job=rollup window=" in printed
    assert (terminal.folder / "pip.log").read_text() == "install .\n"
    connection = sqlite3.connect(terminal.folder / ".venv" / "shop.db")
    try:
        ((count,),) = connection.execute("SELECT orders FROM summary")
    finally:
        connection.close()
    assert count > 0
    last = SET_UP.text.split(" && ")[-1]
    assert "reason=no-closed-window" in terminal.run(f"CLOCK={clock}; export CLOCK; {last}")


@posix
def test_the_second_line_is_the_one_that_ci_runs(terminal: Terminal) -> None:
    """CI takes the line out of the README, and it installs the extra and runs pytest."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    function = re.search(r"^readme_line\(\) \{.*?^\}", script, re.MULTILINE | re.DOTALL)
    assert function is not None
    for number, block in ((1, SET_UP), (2, TESTS)):
        command = f"windows=no; {function[0]}; readme_line {number}"
        found = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
        assert block.text == found.stdout
    create, install, run = TESTS.text.strip().split(" && ")
    assert create == "python3 -m venv .venv"
    assert shlex.split(install) == [".venv/bin/pip", "install", ".[test]"]
    assert shlex.split(run) == [".venv/bin/python", "-m", "pytest", "-n", "auto"]
    assert 'run_line "$(readme_line 2)"' in script


@posix
@pytest.mark.parametrize("block", MORE_SH, ids=lambda block: f"line {block.line}")
def test_the_other_shell_blocks_run(terminal: Terminal, block: Block) -> None:
    """Each runs to its end in a shell that stops at the first failure."""
    if FILE.match(block.text):
        assert FILE.match(block.text)[1] in TEXT.split(block.text)[1]  # type: ignore[index]
        return
    text = block.text.replace("/opt/jobrun", str(terminal.folder / "opt"))
    running = Running(terminal, f"set -e\n{text}", NOON)
    printed = running.end()
    assert running.status == 0, printed


def planned(jobrun: Jobrun, argv: list[str]) -> None:
    """The program takes the call, and plans it."""
    argv.insert(argv.index("--"), "--dry-run")
    result = jobrun(*argv, now=f"{DAY}T{NOON}:00Z")
    assert result.status == 0, f"{argv}: {result.stderr}"


@pytest.mark.parametrize("block", of_kind("crontab"), ids=lambda block: f"line {block.line}")
def test_the_crontab_lines_are_planned(jobrun: Jobrun, block: Block) -> None:
    """cron can read them, and the program knows what each would do."""
    entries = crontabs.read(block.text).entries
    assert entries
    for entry in entries:
        assert entry.stdin == ""
        program, *argv = shlex.split(entry.command)
        assert program == "jobrun"
        planned(jobrun, argv)
        if "--after" in block.text:  # the next line's upstream has to be there
            argv[argv.index("--dry-run") :] = ["--", "sh", "-c", 'echo "rows=5" > "$JOBRUN_VALUES"']
            assert jobrun(*argv, now=f"{DAY}T{NOON}:00Z").status == 0


def as_posix(line: str) -> str:
    """A line for cmd.exe as it would be for sh: folders, quotes, the name of Python."""
    line = (
        line.replace("\\Scripts\\", "/bin/")
        .replace("\\", "/")
        .replace("python -m venv", "python3 -m venv")
    )
    return line.replace(".[test]", "'.[test]'")


def test_the_windows_lines_are_the_same_lines() -> None:
    """The first two, as cmd.exe has them."""
    lines = of_kind("bat")[0].text.splitlines(keepends=True)
    assert [SET_UP.text, TESTS.text] == [as_posix(line) for line in lines]


@pytest.mark.parametrize("block", of_kind("bat")[1:], ids=lambda block: f"line {block.line}")
def test_the_other_windows_lines_are_planned(jobrun: Jobrun, block: Block) -> None:
    """Taken apart as the C runtime does, each is a call that the program understands."""
    for line in block.text.splitlines():
        program, *argv = [
            word.replace('"', "") for word in re.findall(r'(?:[^\s"]|"[^"]*")+', line)
        ]
        assert program == "jobrun"
        planned(jobrun, argv)


# -- tables and words -----------------------------------------------------------------------------


def between(name: str, text: str = TEXT) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert found is not None, f"no <!-- {name} --> in the README"
    return found[1]


def first_words(name: str) -> list[str]:
    """The first column of a table, without its two lines of head."""
    lines = between(name).splitlines()[2:]
    return [line.split("|")[1].strip().strip("`") for line in lines]


MADE: dict[str, Callable[[], str]] = {"options": manual.markdown}


@pytest.mark.parametrize("name", MADE)
def test_the_made_tables_are_up_to_date(name: str) -> None:
    """They are the program's own data: `python -m tests.test_readme` writes them."""
    assert MADE[name]() == between(name)


def test_every_option_that_is_mentioned_exists() -> None:
    """In prose too: a renamed option is renamed everywhere."""
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", prose))
    of_screens = {
        "--mermaid",
        "--check",
        "--at",
        "--json",
        "--set",
        "--reason",
        "--all",
        "--clear",
        "--help",
    }
    of_screens |= {"--note", "--for", "--until", "--kill", "--origin", "--forget"}
    assert mentioned - of_screens <= set(options.BY_NAME)


def test_the_placeholders_are_as_shown(jobrun: Jobrun) -> None:
    """Every name of the table, with the value that the table shows for that day."""
    table = [
        [cell.strip() for cell in line.split("|")[1:4]]
        for line in between("placeholders").splitlines()[2:]
    ]
    shown = {row[0].strip("`{}"): row[2] for row in table if row[0]}
    variables = {row[1].strip("`"): row[2] for row in table if row[1]}
    assert sorted(shown) == sorted(placeholders.NAMES)

    names = [name for name in shown if name != "file"]
    script = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    argv = ("run", "report", "--every", "1day", "--tz", "Europe/Istanbul")
    words = [f"{{{name}}}" for name in names]
    result = jobrun(*argv, "--", PYTHON, "-c", script, *words, now="2026-09-05T12:05:00Z")
    assert result.status == 0, result.stderr

    import json

    values, environment = json.loads(result.stdout)
    for name, value in zip(names, values, strict=True):
        assert shown[name].startswith(f"`{value}`"), f"{name} is {value}"
    ours = {name: value for name, value in environment.items() if name.startswith("JOBRUN_")}
    assert sorted(variables) == sorted(ours)
    for name, text in variables.items():
        assert text.startswith(f"`{ours[name]}`") or name in ("JOBRUN_LEDGER", "JOBRUN_VALUES")


def test_the_skip_reasons_are_the_closed_set() -> None:
    """The README lists each reason of the program, and no other."""
    names = [name for name in vars(rows) if name.isupper()]
    since = names.index("LOCK_HELD")
    reasons = [getattr(rows, name) for name in names[since : names.index("BUSY")]]
    assert sorted(reasons) == sorted(first_words("skip-reasons"))


def test_the_events_are_the_closed_set() -> None:
    """The README lists each event that the program writes, and no other."""
    cells = [line.split("|")[1] for line in between("events").splitlines()[2:]]
    listed = re.findall("`([a-z-]+)`", " ".join(cells))
    assert sorted(listed) == sorted(rows.EVENTS)


def test_the_words_of_the_lines_are_the_closed_set() -> None:
    """STARTED to NOTE, as the design has them."""
    words = "STARTED PROCESSED FAILED INTERRUPTED LOST FENCED SKIPPED BACKLOG WARNING NOTE"
    assert words.split() == first_words("words")


def test_the_exit_codes_are_the_programs() -> None:
    """Each code that errors.py owns has its row."""
    owned = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    listed = {int(word) for word in first_words("exit-codes") if word.isdigit()}
    assert owned - {errors.EXIT_SIGNAL} == listed - {0}


def test_what_the_readme_links_to_is_there() -> None:
    """Relative links lead to files of the project."""
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_the_readme_names_python_and_licence_as_the_package_does() -> None:
    """The versions of Python and the licence are those of pyproject.toml."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'requires-python = ">=3.11"' in project
    assert "Python 3.11 and later" in " ".join(TEXT.split())
    assert 'license = "Apache-2.0"' in project
    assert "Apache-2.0" in TEXT
    assert re.fullmatch(r"\d+\.\d+\.\d+", package.__version__)


def write_tables() -> None:
    """Put the tables that are made from data into the README."""
    text = TEXT
    for name, make in MADE.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{make()}{end}{rest.partition(end)[2]}"
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_tables()
