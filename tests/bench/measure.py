"""What the benchmarks share: pairs of calls in turn, their ratios, and the table of them.

Milliseconds of one machine say little about another, and little about the same one an hour later.
So two commands run in turn, A B A B, within the same seconds; what counts is the ratio within each
pair: its median, and its quartiles as the spread.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

CANT = 77
MIB = 1 << 20
STACK_TOOLS = {"flock": "util-linux", "chronic": "moreutils", "timeout": "coreutils"}
HOLD = ("sh", "-c", "echo held; exec cat")
# What would change a call, or keep its bytecode from being used.
_DROPPED = ("JOBRUN_", "JOURNAL_", "PYTHONDONT", "PYTHONPYCACHE", "PYTHONUNBUFFERED")


class Spread(NamedTuple):
    """Of several figures: the median, and the quartiles around it."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f}-{self.high:.2f})"


def spread(figures: Sequence[float]) -> Spread:
    if len(figures) < 2:
        return Spread(figures[0], figures[0], figures[0])
    low, _, high = quantiles(figures, n=4, method="inclusive")
    return Spread(median(figures), low, high)


class Pairs(NamedTuple):
    """Figures that were taken in turn, of the one and of the other."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratio(self) -> Spread:
        return spread([a / b for a, b in zip(self.ours, self.theirs, strict=True)])


def pairs(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> Pairs:
    """So many pairs, and one before them that fills the caches; it counts only if it is alone."""
    taken = [(ours(), theirs()) for _ in range(rounds + 1)][min(rounds, 1) :]
    return Pairs(tuple(a for a, _ in taken), tuple(b for _, b in taken))


class Place:
    """A folder of one measurement, the jobrun that is measured, and what it is called with."""

    def __init__(self, folder: Path, jobrun: Path) -> None:
        self.folder = folder
        self.jobrun = jobrun
        self.python = interpreter_of(jobrun)
        self.ledger = folder / "jobrun.db"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)}
        self.environment = {**kept, "JOBRUN_LEDGER": str(self.ledger), "LC_ALL": "C.UTF-8"}

    def call(self, *argv: str) -> list[str]:
        return [str(self.jobrun), *argv]

    def start(
        self, argv: Sequence[str], out: int = subprocess.DEVNULL, err: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        # close_fds=False: without it the fork of this process is most of what is measured.
        return subprocess.Popen(
            argv,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            close_fds=False,
        )

    def seconds(self, argv: Sequence[str], codes: tuple[int, ...] = (0,)) -> float:
        """How long a whole process takes. Raises Unexpected where it ends in another way."""
        began = time.perf_counter()
        code = self.start(argv).wait()
        took = time.perf_counter() - began
        if code not in codes:
            raise Unexpected(f"{' '.join(argv)}: exit {code}\n{self.output(argv)}")
        return took

    def timer(self, *argv: str, codes: tuple[int, ...] = (0,)) -> Callable[[], float]:
        return lambda: self.seconds(argv, codes)

    def output(self, argv: Sequence[str]) -> str:
        """Everything that it prints."""
        process = self.start(argv, subprocess.PIPE, subprocess.STDOUT)
        return process.communicate()[0].decode("utf-8", "backslashreplace")

    @contextmanager
    def holding(self, *argv: str) -> Iterator[None]:
        """While what was started so holds its lock: it ends with HOLD, which ends with our pipe."""
        holder = subprocess.Popen(
            argv,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            holder.stdout.readline()
            yield
        finally:
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()


class Unexpected(Exception):
    """A call did something else than what was to be measured."""


_PEAK = """
import os, sys, time
from jobrun.__main__ import main
code = main(sys.argv[1:], os.environ, time.time)
with open("/proc/self/status") as status:
    print("VmHWM", *(line.split()[1] for line in status if line.startswith("VmHWM:")))
"""


def peak(place: Place, *argv: str) -> float:
    """MiB that a call takes at its peak, in memory. Raises Unexpected where Linux doesn't tell."""
    last = place.output([place.python, "-c", _PEAK, *argv])[-40:].rpartition("VmHWM ")[2]
    if not last.strip().isdecimal():
        raise Unexpected(f"jobrun {' '.join(argv)}: no VmHWM: {last}")
    return int(last) / 1024


def interpreter_of(script: Path) -> str:
    beside = script.parent / "python"
    return str(beside) if beside.exists() else sys.executable


def stack(lock: str = "stack.lock") -> list[str]:
    """What stands before a command in many crontabs: a lock, quiet, a limit."""
    return ["flock", "-n", lock, "chronic", "timeout", "60"]


# -- what a bench is started with ------------------------------------------------------------------


def parser(description: str, rounds: int) -> argparse.ArgumentParser:
    reader = argparse.ArgumentParser(description=description.partition("\n")[0])
    reader.add_argument("--rounds", type=int, default=rounds, help=f"pairs of each ({rounds})")
    reader.add_argument("--quick", action="store_true", help="next to nothing: does it work at all")
    reader.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    reader.add_argument(
        "--jobrun", type=Path, default=None, help="the console script (that of this interpreter)"
    )
    reader.add_argument(
        "--rivals", type=Path, default=None, help="a venv with cron-wrapper, yacron (PATH)"
    )
    return reader


def rival(given: argparse.Namespace, name: str) -> str | None:
    """A command that is measured where it is found: in the venv of --rivals, or on the PATH."""
    if given.rivals is not None:
        found: Path = given.rivals / "bin" / name
        return str(found) if found.exists() else None
    return shutil.which(name)


def run(given: argparse.Namespace, bench: Callable[[argparse.Namespace, Place], None]) -> int:
    """Look at what is needed, make a folder, measure. Exit 77 where something is missing."""
    if given.quick:
        given.rounds = 0
    jobrun = given.jobrun or installed()
    missing = [f"{tool} ({package})" for tool, package in STACK_TOOLS.items() if not which(tool)]
    if jobrun is None or missing:
        print(f"not here: {', '.join(missing) or 'an installed jobrun: pip install .'}")
        return CANT
    with tempfile.TemporaryDirectory(prefix="jobrun-bench-") as folder:
        place = Place(Path(folder), Path(os.path.abspath(jobrun)))
        print(about(place), flush=True)
        try:
            bench(given, place)
        except Unexpected as unexpected:
            print(f"\nwrong: {unexpected}")
            return 1
        print(f"\nload at the end: {load()}")
    return 0


def which(tool: str) -> str | None:
    return shutil.which(tool)


def installed() -> Path | None:
    """The console script that pip has made beside this interpreter, or the one on the PATH."""
    beside = Path(sys.executable).parent / "jobrun"
    found = str(beside) if beside.exists() else shutil.which("jobrun")
    return Path(found) if found else None


_ABOUT = """
import importlib.util, os, platform, sqlite3, sys
import jobrun
folder = os.path.dirname(jobrun.__file__)
names = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py")]
compiled = all(os.path.exists(importlib.util.cache_from_source(name)) for name in names)
print(jobrun.__version__, platform.python_version(), sqlite3.sqlite_version, int(compiled), folder)
"""


def about(place: Place) -> str:
    """One line on what is measured; its bytecode is made where there is none."""

    def ask() -> list[str]:
        return place.output([place.python, "-c", _ABOUT]).strip().split(maxsplit=4)

    version, python, sqlite, compiled, folder = ask()
    if compiled == "0":
        place.output([place.python, "-m", "compileall", "-q", folder])
        compiled = ask()[3]
    line = f"jobrun {version}, CPython {python}, SQLite {sqlite}, {os.cpu_count()} processors"
    if compiled == "0":
        line += f"\nno bytecode in {folder}, and none can be written: every call compiles anew"
    return f"{line}, load {load()}"


def load() -> str:
    try:
        return f"{os.getloadavg()[0]:.1f}"
    except OSError:
        return "unknown"


# -- the table -------------------------------------------------------------------------------------


class Table:
    """Rows of text under a header; numbers to the right."""

    def __init__(self, title: str, *columns: str) -> None:
        self.title = title
        self._rows: list[tuple[str, ...]] = [columns]

    def add(self, *cells: object) -> None:
        self._rows.append(tuple(str(cell) for cell in cells))

    def show(self, markdown: bool) -> None:
        print(f"\n{self.title}\n")
        print("\n".join(self._markdown() if markdown else self._plain()), flush=True)

    def _markdown(self) -> Iterator[str]:
        header, *rows = self._rows
        rule = ("---",) * len(header)
        for row in (header, rule, *rows):
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"

    def _plain(self) -> Iterator[str]:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        for row in self._rows:
            first, *others = zip(row, widths, strict=True)
            yield "  ".join([first[0].ljust(first[1]), *starmap(_aligned, others)]).rstrip()


def _aligned(cell: str, width: int) -> str:
    return cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width)


def milliseconds(seconds: Sequence[float]) -> str:
    return f"{median(seconds) * 1000:.1f}"


def verdict(figure: float, most: float | None = None, least: float | None = None) -> str:
    """`<= 1.6: yes`; a dash where nothing is wanted."""
    if most is not None:
        return f"<= {most:g}: {'yes' if figure <= most else 'no'}"
    if least is not None:
        return f">= {least:g}: {'yes' if figure >= least else 'no'}"
    return "-"
