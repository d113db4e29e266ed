"""A call of jobrun in a fork of the harness, which sees how far it is, whatever kills it.

Everything is imported before, so that a call costs what jobrun itself does. It writes its phase
into shared memory, and pauses a little where kills would otherwise hardly ever hit: between plan
and claim, claim and go, go and exec, end and record.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import struct
import sys
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple, NoReturn

from jobrun import guardian, ledger_end, ledger_sql, lock_file, process
from jobrun.__main__ import main
from jobrun.ledger_sql import SqlLedger
from jobrun.ledger_sqlite import SqliteLedger
from jobrun.process_posix import Child
from jobrun.rows import PROCESSED, Claim, Claimed, Opened, Opening
from tests.as_user import import_all
from tests.conftest import PYTHON, ROOT

PHASES = (
    "starting",  # until the lock is asked for; a call from cold is never further for us
    "waiting",  # for the lock
    "planning",  # with the lock
    "blocked",  # the command is there and waits; not yet claimed
    "claimed",  # on record, not yet let go
    "running",
    "ended",  # the command has, the record has not
    "recorded",
)
Function = Callable[..., Any]
_FIELDS = ("phase", "ended", "guardian", "command", "alone")
_PAUSED = 0.35  # of the places where a call may pause
_PAUSE = 0.025  # seconds at most


class Slot:
    """What a call tells while it lives, and after it was killed. Integers in shared memory."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 4 * len(_FIELDS))

    def get(self, field: str) -> int:
        (value,) = struct.unpack_from("I", self._shared, 4 * _FIELDS.index(field))
        return int(value)

    def put(self, field: str, value: int) -> None:
        struct.pack_into("I", self._shared, 4 * _FIELDS.index(field), value)

    @property
    def phase(self) -> str:
        return PHASES[self.get("phase")]

    @phase.setter
    def phase(self, name: str) -> None:
        self.put("phase", PHASES.index(name))


class Clock:
    """A job's clock, and the watermark it has reached: both shared with the calls that run.

    The ledger is not asked for it: who has it locked may be one that the harness has stopped.
    """

    def __init__(self, seconds: int) -> None:
        self._shared = mmap.mmap(-1, 16)
        self.set(seconds)
        self.reach(seconds)

    def set(self, seconds: int) -> None:
        struct.pack_into("q", self._shared, 0, seconds)

    def reach(self, watermark: int) -> None:
        struct.pack_into("q", self._shared, 8, watermark)

    def now(self) -> float:
        return float(self._read()[0])

    @property
    def backlog(self) -> int:
        """Seconds."""
        now, watermark = self._read()
        return now - watermark

    def _read(self) -> tuple[int, int]:
        now, watermark = struct.unpack_from("qq", self._shared, 0)
        return now, watermark


class Order(NamedTuple):
    """One call."""

    number: int
    folder: str
    argv: list[str]
    clock: Clock
    slot: Slot
    seed: str
    mutant: str = ""
    cold: bool = False  # as cron would, in an interpreter of its own
    calm: bool = False  # without pauses

    @property
    def environ(self) -> dict[str, str]:
        ledger = f"{self.folder}/jobrun.db"
        ours = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        return {**ours, "JOBRUN_LEDGER": ledger, "CALL": str(self.number)}

    @property
    def err(self) -> str:
        return f"{self.folder}/{self.number}.err"


def warm_up() -> None:
    from jobrun import sqlite_schema

    import_all()
    lock_file.primitive()
    scripts = sqlite_schema.scripts()
    sqlite_schema.scripts = lambda: scripts


def start(order: Order) -> int:
    """Its pid."""
    ours = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ours)  # it must not take a handler of ours along
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)
    if pid == 0:
        _live(order)
    return pid


def _live(order: Order) -> NoReturn:
    code = 70
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        err = os.open(order.err, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for fd, standard in ((null, 0), (null, 1), (err, 2)):
            os.dup2(fd, standard)
        os.chdir(order.folder)
        if order.cold:
            argv = [PYTHON, "-m", "tests.frozen", str(order.clock.now()), *order.argv]
            os.execve(PYTHON, argv, order.environ)
        if order.mutant:
            MUTANTS[order.mutant]()
        Watch(order).put_in_place()
        code = main(order.argv, order.environ, order.clock.now)
        sys.stderr.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


class Watch:
    """Jobrun's own functions, in this process: with a note of the phase and a pause around."""

    def __init__(self, order: Order) -> None:
        self._slot = order.slot
        self._clock = order.clock
        self._folder = order.folder
        self._calm = order.calm
        self._random = Random(order.seed)

    def put_in_place(self) -> None:
        places: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
            (lock_file.FileLock, "acquire", self._acquire),
            (process, "start", self._start),
            (SqliteLedger, "open", self._open),
            (Child, "wait", self._wait),
            (SqliteLedger, "finish", self._finish),
            (guardian.Guardian, "_end_command", self._alone),
            (guardian, "_become", self._in_a_fork),
            (guardian, "_withdraw", self._in_a_fork),
        )
        for owner, name, around in places:
            setattr(owner, name, around(getattr(owner, name)))

    def _pause(self) -> None:
        if not self._calm and self._random.random() < _PAUSED:
            select.select([], [], [], self._random.random() * _PAUSE)

    def _acquire(self, real: Function) -> Function:
        def acquire(*arguments: Any) -> Any:
            self._slot.phase = "waiting"
            has_it = real(*arguments)
            if has_it:
                self._slot.phase = "planning"
                self._pause()
            return has_it

        return acquire

    def _start(self, real: Function) -> Function:
        def start(*arguments: Any) -> Any:
            child = real(*arguments)
            self._slot.put("guardian", child.guardian_pid)
            self._slot.put("command", child.pid)
            if self._slot.phase == "planning":
                self._slot.phase = "blocked"
            return child

        return start

    def _open(self, real: Function) -> Function:
        def open_(*arguments: Any) -> Any:
            self._pause()
            opened = real(*arguments)
            is_claimed = opened is not None and opened.claimed is not None
            self._slot.phase = "claimed" if is_claimed else "planning"
            self._pause()
            return opened

        return open_

    def _wait(self, real: Function) -> Function:
        def wait(*arguments: Any) -> Any:
            self._slot.phase = "running"
            ended = real(*arguments)
            self._slot.phase = "ended"
            self._slot.put("ended", self._slot.get("ended") + 1)
            self._pause()
            return ended

        return wait

    def _finish(self, real: Function) -> Function:
        def finish(ledger: Any, result: Any, *arguments: Any) -> Any:
            self._pause()
            finished = real(ledger, result, *arguments)
            if finished.watermark is not None:
                self._clock.reach(finished.watermark)
            if finished.window_state == PROCESSED:
                self._say(result.job, f"recorded {result.key} {result.run_id}\n")
            self._slot.phase = "claimed" if finished.claimed else "recorded"
            self._pause()
            return finished

        return finish

    def _say(self, job: str, line: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        journal = os.open(f"{self._folder}/{job}.journal", flags, 0o600)
        os.write(journal, line.encode())
        os.close(journal)

    def _alone(self, real: Function) -> Function:
        def alone(*arguments: Any) -> Any:
            self._slot.put("alone", 1)
            return real(*arguments)

        return alone

    def _in_a_fork(self, real: Function) -> Function:
        def paused(*arguments: Any) -> Any:
            # It must not draw the numbers that its parent draws.
            self._random = Random(f"{self._random.random()} {real.__name__}")
            self._pause()
            return real(*arguments)

        return paused


# -- mutants: jobrun without one of its safeguards -------------------------------------------------


def _replace(module: Any, name: str, old: str, new: str) -> None:
    text = getattr(module, name)
    assert old in text, f"{module.__name__}.{name} has changed: this mutant must follow"
    setattr(module, name, text.replace(old, new))


def no_token() -> None:
    """Whoever writes is believed, whoever has been since."""
    _replace(ledger_sql, "_TAKE_TOKEN", "AND token = :token", "")
    _replace(ledger_end, "_END_WINDOW", "AND token = :token", "")
    SqlLedger._is_holder = lambda *_: True  # type: ignore[method-assign]


def no_guardian() -> None:
    """The command's parent does not hold the lock, and ends when the wrapper does."""
    guard = guardian.guard

    def without_lock(wires: Any, lock_fd: int | None, *arguments: Any) -> NoReturn:
        guard(wires, None, *arguments)

    guardian.guard = without_lock  # type: ignore[assignment]

    def end_alone(self: guardian.Guardian) -> None:
        self._dismissed = True

    guardian.Guardian._end_command = end_alone  # type: ignore[method-assign]


def late_claim() -> None:
    """The command is let go first, its window claimed a moment later. For one job alone."""
    claims: list[Callable[[], object]] = []
    late: Any = SqliteLedger  # what is put in its place is no method, for the type checker
    real_open, real_let_go = late.open, Child._let_go

    def open_(ledger: SqliteLedger, opening: Opening, claim: Claim | None, following: Any) -> Any:
        if claim is None or claim.key is None:
            return real_open(ledger, opening, claim, following)
        claims.append(lambda: real_open(ledger, opening, claim, following))
        window, runs = ledger.window(opening.job, claim.key), ledger.runs(limit=1)
        attempt = 1 + (window.attempts if window else 0)
        run = 1 + (runs[0].id if runs else 0)
        return Opened(opening.token + 1, None, Claimed(run, attempt, claim.started))

    def let_go(child: Child, *arguments: Any) -> None:
        real_let_go(child, *arguments)
        while claims:
            select.select([], [], [], 4 * _PAUSE)
            claims.pop()()

    late.open = open_
    Child._let_go = let_go  # type: ignore[method-assign, assignment]


MUTANTS: dict[str, Callable[[], None]] = {
    "no-token": no_token,
    "no-guardian": no_guardian,
    "late-claim": late_claim,
}
