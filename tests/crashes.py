"""What must hold after a call of jobrun died, or met an error, at any of its steps.

A kind of call (crash_kinds.py) is made on a copy of the same ledger again and again, disturbed at
another step each time (trials.py); the undisturbed calls after it must bring everything to where
it would be without that.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from jobrun import places
from jobrun.ledger_sqlite import SqliteLedger
from jobrun.sqlite_database import Database
from tests.conftest import PYTHON, ROOT, clean_environment
from tests.crash_kinds import BY_NAME, Call, Kind
from tests.trials import Request, Trap

# Exit codes for what is wrong with the world: places, ledger, not now, not recorded.
ERRORS = {73, 74, 75, 76}


class Ending(NamedTuple):
    status: int | None
    steps: int
    sprung: int
    err: str

    @property
    def too_early(self) -> bool:
        """What is left of the call before was still ending."""
        return (
            "reason=lock-held" in self.err
            or "is running" in self.err
            or ("reason=orphan-alive" in self.err)
        )


class Parent:
    """The warm parent of tests/trials.py."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [PYTHON, "-m", "tests.trials"],
            cwd=ROOT,
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def attempt(self, request: Request) -> Ending:
        answer = self._ask(request._asdict())
        err = Path(request.folder, "err").read_text(errors="backslashreplace")
        return Ending(**answer, err=err)

    def settle(self) -> bool:
        return bool(self._ask({})["settled"])

    def close(self) -> None:
        self._process.communicate(timeout=20)

    def _ask(self, what: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


# -- what is on record ----------------------------------------------------------------------------


class Record(NamedTuple):
    """The ledger, as far as it must be the same whatever happened on the way."""

    jobs: tuple[Any, ...] = ()  # name, schedule, watermark
    windows: tuple[Any, ...] = ()  # key, state
    gaps: tuple[Any, ...] = ()  # start, end of what lies in gaps


class Stay(NamedTuple):
    """What a death found, and what must not change any more."""

    processed: frozenset[str]
    started: Counter[str]
    tokens: dict[str, int]


def query(ledger: Path, sql: str) -> list[tuple[Any, ...]]:
    """Nothing where there is no ledger yet."""
    if not ledger.exists():
        return []
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def record(ledger: Path) -> Record:
    return Record(
        tuple(query(ledger, "SELECT name, schedule, watermark FROM jobrun_job ORDER BY name")),
        tuple(query(ledger, "SELECT key, state FROM jobrun_window ORDER BY key")),
        tuple(
            joined(query(ledger, 'SELECT start, "end" FROM jobrun_gap WHERE NOT void ORDER BY 1'))
        ),
    )


def joined(gaps: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Adjoining gaps as one."""
    begin = end = None
    for start, until in gaps:
        if start != end:
            if begin is not None:
                yield begin, end
            begin = start
        end = until
    if begin is not None:
        yield begin, end


class Scene:
    """A folder with a ledger, and the calls that are made on it."""

    def __init__(self, parent: Parent, folder: Path, kind: Kind) -> None:
        self.parent = parent
        self.folder = folder
        self.kind = kind
        self.ledger = folder / "jobrun.db"

    def make(self, call: Call, trap: Trap | None = None, **more: Any) -> Ending:
        settings: dict[str, Any] = {"mutant": self.kind.mutant, **more}
        argv = call.argv
        trap = trap or Trap()
        return self.parent.attempt(
            Request(str(self.folder), argv, call.now, list(trap), **settings)
        )

    def prepare(self) -> None:
        """The ledger that the call will find."""
        for call in self.kind.before:
            found = self.make(call, mutant="")
            assert found.status == call.status, found.err
        if self.kind.lost:
            self.make(self.kind.call, Trap(at=1, of="UPDATE jobrun_job SET told"))
        assert self.parent.settle()

    @contextmanager
    def held(self) -> Iterator[None]:
        """The lock, in the hands of another where the kind wants it."""
        if not self.kind.locked:
            yield
            return
        name = Path(places.locks_folder(str(self.ledger))) / f"{places.slug('a')}.lock"
        with open(name, "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def recover(self, mutant: str = "") -> list[str]:
        """The undisturbed calls; the first comes at once, whatever is still ending then."""
        wrong: list[str] = []
        for call in self.kind.then:
            found = self.make(call, mutant=mutant or self.kind.mutant)
            if found.too_early:
                if not self.parent.settle():
                    wrong.append("something is left of the call that died")
                found = self.make(call, mutant=mutant or self.kind.mutant)
            if found.status not in (call.status, call.or_status) or "Traceback" in found.err:
                wrong.append(f"then: {call.line}: {found.status}: {found.err}")
        if not self.parent.settle():
            wrong.append("something is left in the end")
        return wrong + list(self._strays())  # before anybody else opens the ledger

    # -- reading ----------------------------------------------------------------------------------

    def said(self, word: str) -> Iterator[tuple[str, str]]:
        """(key, attempt) of every command that started, or was done."""
        witness = self.folder / "witness"
        for line in witness.read_text().splitlines() if witness.exists() else ():
            what, key, attempt, *_ = line.split(" ")
            if what == word:
                yield key, attempt

    def started(self) -> Counter[str]:
        return Counter(key for key, _ in self.said("start"))

    def stay(self) -> Stay:
        """Read right after a death."""
        processed = (
            "SELECT key FROM jobrun_window WHERE state = 'processed'"
            " UNION SELECT key FROM jobrun_run WHERE outcome = 'succeeded' AND key IS NOT NULL"
        )
        tokens = dict(query(self.ledger, "SELECT name, token FROM jobrun_job"))
        keys = frozenset(key for (key,) in query(self.ledger, processed))
        return Stay(keys, self.started(), tokens)

    # -- judging ----------------------------------------------------------------------------------

    def wrong(
        self, stay: Stay, expected: Record, usual: Counter[str], deaths: int
    ) -> Iterator[str]:
        """Everything that does not hold in the end, a line each."""
        found = record(self.ledger)
        if found != expected:
            yield f"on record: {found}, expected {expected}"
        yield from self._runs_wrong(stay, usual, deaths)
        yield from self._rows_wrong(stay)
        # Not opened as usual: a program that is a migration ahead may have left it.
        with closing(SqliteLedger(Database(str(self.ledger)), False, None)) as ledger:
            yield from ledger.problems()

    def _strays(self) -> Iterator[str]:
        """Files that nobody removes; a draft of kept output goes with its run (retention.py)."""
        ours = {"jobrun.db", "jobrun.db.d", "witness", "busy", "out", "err", "intruder"}
        ours |= {path.name for path in self.folder.glob("busy.*")}
        beside = r".*/locks/[^/]+\.lock|.*/output/[^/]+/\d{4}-\d\d/\d+\.(out|err)(\.new)?"
        yield from (f"stray: {path}" for path in self.folder.iterdir() if path.name not in ours)
        for path in Path(f"{self.ledger}.d").rglob("*"):
            if path.is_file() and not re.fullmatch(beside, str(path)):
                yield f"stray: {path}"

    def lies(self, found: Ending, stay: Stay) -> Iterator[str]:
        """What a call that met an error says, against the contract and what is on record."""
        usual = {0, self.kind.call.status}
        if found.status not in usual | ERRORS or "Traceback" in found.err:
            yield f"exit {found.status}: {found.err}"
        lines = found.err.splitlines()
        errors = [line for line in lines if line.startswith("jobrun: error: ")]
        if found.status in ERRORS - usual and not (
            len(errors) == 1 and lines[lines.index(errors[0]) + 1].startswith("jobrun: hint: ")
        ):
            yield f"exit {found.status} without an error and its hint: {found.err}"
        for key in re.findall(r"PROCESSED .* key=(\S+)", found.err):
            if key not in stay.processed:
                yield f"{key} is told as processed, and is not on record"
        for key, _ in self.said("done"):
            if found.status == 0 and key and key not in stay.processed:
                yield f"exit 0, but {key} ran and is not on record"

    def _runs_wrong(self, stay: Stay, usual: Counter[str], deaths: int) -> Iterator[str]:
        if (self.folder / "twice").exists():
            yield "two commands at once"
        started, done = self.started(), {key for key, _ in self.said("done")}
        for key, times in started.items():
            if times > usual[key] + deaths:
                yield f"{key or 'the command'} ran {times} times, {deaths} deaths"
            if key in stay.processed and times > stay.started[key] and not self.kind.by_hand:
                yield f"{key} was on record as processed, and ran again"
        attempts = Counter((key, attempt) for key, attempt in self.said("start") if key)
        yield from (f"{key} attempt {n} ran {t} times" for (key, n), t in attempts.items() if t > 1)
        if query(self.ledger, "SELECT 1 FROM sqlite_master WHERE name = 'mine'"):
            marked = Counter(key for (key,) in query(self.ledger, "SELECT key FROM mine"))
            yield from (f"{key}: its data is there {n} times" for key, n in marked.items() if n > 1)
            done |= marked.keys()
        processed = "SELECT key FROM jobrun_window WHERE state = 'processed'"
        for (key,) in query(self.ledger, processed):
            if key not in done:
                yield f"{key} is on record as processed, its command never came to its end"

    def _rows_wrong(self, stay: Stay) -> Iterator[str]:
        open_ = query(self.ledger, "SELECT id FROM jobrun_run WHERE outcome IS NULL")
        running = query(self.ledger, "SELECT key FROM jobrun_window WHERE state = 'running'")
        yield from (f"left running: {row}" for row in open_ + running)
        last: dict[str, tuple[int, str | None, str | None, int | None]] = {}
        for job, key, token, pid, child, birth, slot in query(
            self.ledger,
            "SELECT job, key, token, pid, child_pid, birth, slot FROM jobrun_run ORDER BY id",
        ):
            before, of, tried, by = last.get(job, (0, None, None, None))
            # Pids come again after some 30,000 processes, which is soon here; births do not.
            call = f"{pid} {birth.split()[1]}" if birth is not None else of
            # One a call; each further try of the same has its own, and each claim beside others.
            # The same child is the same try, claimed again where nobody could tell that it was.
            is_same = call == of and (key != tried or child == by) and slot is None
            if token < before or (birth is not None and (token == before) != is_same):
                yield f"{job}: token {token} of {call}, {key} after {before} of {of}, {tried}"
            last[job] = token, call, key, child
        for name, token in query(self.ledger, "SELECT name, token FROM jobrun_job"):
            if token < stay.tokens.get(name, 0):
                yield f"{name}: token {token} after {stay.tokens[name]}"


class Loop:
    """One kind of call, disturbed at its first step, its second, and so on until it survives."""

    def __init__(self, parents: list[Parent], folder: Path, kind: Kind) -> None:
        self.kind = kind
        self._parents = parents
        self._folder = folder / kind.name
        self._numbers = count()
        self._template = self._folder / "template"
        self._template.mkdir(parents=True)
        Scene(parents[0], self._template, kind).prepare()
        scene = self._scene(parents[0])
        with scene.held():
            found = scene.make(kind.call)
        wrong = scene.recover()
        self._expected, self._usual = record(scene.ledger), scene.started()
        wrong += scene.wrong(scene.stay(), self._expected, self._usual, 0)
        assert (found.status, wrong) == (kind.call.status, []), (found, wrong)

    def disturb(
        self, trap: Trap, deaths: int | None = None, mutant: str = "", by: int = 0
    ) -> tuple[Ending, list[str]]:
        """The call with this trap, the calls after it, and what does not hold.

        `deaths`: how often more than usual a command may run; None where the call itself says it.
        `by`: which of the parents makes the calls.
        """
        scene, kind = self._scene(self._parents[by]), self.kind
        intruder = kind.then[0].argv if trap.what == "intrude" else None
        with scene.held():
            found = scene.make(kind.call, trap, intruder=intruder, mutant=mutant or kind.mutant)
        stay = scene.stay()
        wrong = [] if found.status is not None else [f"the call did not end: {found.err}"]
        if deaths is None:
            wrong += scene.lies(found, stay)
            deaths = int("not recorded" in found.err)
        wrong += scene.recover(mutant)
        wrong += scene.wrong(stay, self._expected, self._usual, deaths)
        if not wrong:
            shutil.rmtree(scene.folder)
        return found, [f"{kind.name} {trap}: {line}" for line in wrong]

    def series(
        self, trap: Trap, deaths: int | None = None, mutant: str = "", stride: int = 1
    ) -> list[list[str]]:
        """The trap at its first step, at the one a stride further, …; of each what was wrong."""

        def part(by: int) -> list[list[str]]:
            steps = []
            for place in count(1 + by * stride, stride * len(self._parents)):
                found, wrong = self.disturb(trap._replace(at=place), deaths, mutant, by)
                if found.sprung or wrong:
                    steps.append(wrong)
                if not found.sprung:
                    break
            return steps

        with ThreadPoolExecutor(len(self._parents)) as pool:
            return [wrong for steps in pool.map(part, range(len(self._parents))) for wrong in steps]

    def _scene(self, parent: Parent) -> Scene:
        """The ledger as the call finds it, in a folder of its own."""
        folder = self._folder / str(next(self._numbers))
        shutil.copytree(self._template, folder)
        return Scene(parent, folder, self.kind)


Loops = Callable[[str], Loop]


@contextmanager
def loops() -> Iterator[Loops]:
    """Loops by the name of their kind, with a warm parent for each of two cores.

    In memory where that can be had: the fsync of a disk is slow, and nothing here needs it.
    """
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        ExitStack() as stack,
    ):
        parents = [Parent() for _ in range(min(2, os.cpu_count() or 1))]
        for parent in parents:
            stack.callback(parent.close)
        yield lru_cache(None)(lambda name: Loop(parents, Path(folder), BY_NAME[name]))
