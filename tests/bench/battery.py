"""What becomes of a command behind jobrun, and behind what else may stand before it in a crontab.

    python tests/bench/battery.py [--markdown] [--rivals VENV]

One table: a row for each thing that can happen, a column for each wrapper that is found here. `yes`
is what a person would want of it, by the rule in the code beside the row; `-` where a wrapper has
no such thing. Exit 0: everything is `yes` for jobrun. 1: not.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.measure import MIB, Place, Table, Unexpected, parser, rival, run, stack, which

SECONDS = 20.0  # for anything that should happen at once
SMALL = 100  # MiB; whoever needs more keeps the output in memory

# One program for every start: with a file `hold` it stays until it is told to end and the gate is
# opened, without one it notes that it ran.
CHILD = """
import os, signal
if not os.path.exists("hold"):
    open("ran", "w").close()
    os._exit(0)
os.unlink("hold")
def end(number, frame):
    open("told", "w").close()
    with open("gate") as gate:
        gate.read()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
with open("ready.new", "w") as ready:
    ready.write(str(os.getpid()))
os.rename("ready.new", "ready")
while True:
    signal.pause()
"""


class Wrapper(NamedTuple):
    name: str
    before: tuple[str, ...]
    locks: bool
    one_argument: bool = False  # takes the command as one text, for a shell

    def argv(self, *command: str) -> list[str]:
        return [*self.before, *((shlex.join(command),) if self.one_argument else command)]


class Cell(NamedTuple):
    right: bool | None  # None: it has no such thing
    what: str

    def __str__(self) -> str:
        return "-" if self.right is None else f"{'yes' if self.right else 'no'}: {self.what}"


NONE = Cell(None, "")


def wrappers(given: Namespace, place: Place) -> Iterator[Wrapper]:
    yield Wrapper("jobrun", (*place.call("run", "job", "-q"), "--"), True)
    yield Wrapper("flock, chronic, timeout", tuple(stack("lock")), True)
    yield Wrapper("flock", ("flock", "-n", "lock"), True)
    yield Wrapper("chronic", ("chronic",), False)
    yield Wrapper("timeout", ("timeout", "60"), False)
    if which("run-one"):
        yield Wrapper("run-one", ("run-one",), True)
    if which("lockf"):
        yield Wrapper("lockf", ("lockf", "-t", "0", "lock"), True)
    cronwrap = rival(given, "cronwrap")
    if cronwrap:
        yield Wrapper("cronwrap (cron-wrapper)", (cronwrap, "-l"), True, one_argument=True)


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> bool:
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.02)
    return True


class Trial:
    """One wrapper in a folder of its own."""

    def __init__(self, wrapper: Wrapper, place: Place, folder: Path) -> None:
        folder.mkdir()
        self.wrapper = wrapper
        self.folder = folder
        self.place = Place(folder, place.jobrun)
        (folder / "child.py").write_text(CHILD)
        os.mkfifo(folder / "gate")

    def run(self, *command: str) -> tuple[int, bytes, bytes]:
        """Exit code, stdout, stderr; -1 where it does not come back."""
        argv = self.wrapper.argv(*command)
        process = self.place.start(argv, subprocess.PIPE, subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=SECONDS)
            code = process.returncode
            return code if code >= 0 else 128 - code, out, err  # as a shell tells it
        except subprocess.TimeoutExpired:
            process.kill()
            return (-1, b"", b"")

    # -- a child that stays, and a second start ---------------------------------------------------

    @contextlib.contextmanager
    def holding(self) -> Iterator[subprocess.Popen[bytes]]:
        """While a child stays; whatever is left of it at the end is killed."""
        (self.folder / "hold").touch()
        process = self.place.start(self.wrapper.argv(sys.executable, "child.py"))
        if not until((self.folder / "ready").exists):
            raise Unexpected(f"{self.wrapper.name}: its command does not start")
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS)
            process.kill()
            process.wait()

    @property
    def child(self) -> int:
        return int((self.folder / "ready").read_text())

    def told(self) -> bool:
        """Whether it was asked to end."""
        return (self.folder / "told").exists()

    def starts(self) -> bool:
        """Whether a start now runs its command."""
        ran = self.folder / "ran"
        ran.unlink(missing_ok=True)
        self.run(sys.executable, "child.py")
        return ran.exists()

    def ends_at_the_gate(self) -> bool:
        """Let it through, where it waits there by now."""
        with contextlib.suppress(OSError):
            os.close(os.open(self.folder / "gate", os.O_WRONLY | os.O_NONBLOCK))
        return not lives(self.child)


def lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


# -- the rows --------------------------------------------------------------------------------------


def exit_code(trial: Trial) -> list[Cell]:
    code, _, _ = trial.run("sh", "-c", "exit 3")
    return [Cell(code == 3, f"{code}")]


def killed(trial: Trial) -> list[Cell]:
    code, _, _ = trial.run("sh", "-c", "kill -9 $$")
    return [Cell(code == 128 + 9, f"{code}")]


def not_found(trial: Trial) -> list[Cell]:
    code, _, err = trial.run("no-such-command")
    said = "named" if b"no-such-command" in err else "not named"
    return [Cell(code == 127 and said == "named", f"{code}, {said}")]


def second_start(trial: Trial) -> list[Cell]:
    with trial.holding():
        runs = trial.starts()
        code, _, _ = trial.run(sys.executable, "child.py")
    return [Cell(not runs, "runs too" if runs else f"does not run, exit {code}")]


def stopped(trial: Trial, number: int) -> list[Cell]:
    """A signal to the wrapper alone, and to nobody else: its child, the lock with it and after."""
    with trial.holding() as process:
        os.kill(process.pid, number)
        until(lambda: trial.told() or process.poll() is not None)
        told = until(trial.told, 2)
        held = not trial.starts()
        still = lives(trial.child)
        if told:
            until(trial.ends_at_the_gate)
        ended = not lives(trial.child)
        if not ended:
            os.kill(trial.child, signal.SIGKILL)
        child = Cell(ended, "is ended" if ended else "lives on")
        if not trial.wrapper.locks:
            return [child, NONE, NONE]
        free = until(trial.starts, 5)
    meanwhile = Cell(held and still, "held" if held else "free: a second copy")
    return [child, meanwhile, Cell(free, "free" if free else "still held")]


def left_behind(trial: Trial) -> list[Cell]:
    """A daemon that is started and left: it lives, the wrapper ends, the next start runs."""
    daemon = "sleep 60 & echo $! > daemon"
    began = time.monotonic()
    process = trial.place.start(trial.wrapper.argv("sh", "-c", daemon), subprocess.PIPE)
    file = trial.folder / "daemon"
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    comes_back = until(lambda: process.poll() is not None, 5)
    took = time.monotonic() - began
    pid = int(file.read_text())
    alive = lives(pid)
    next_runs = trial.starts() if comes_back else False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    process.wait(SECONDS)
    assert process.stdout is not None
    process.stdout.close()
    if not comes_back:
        return [Cell(False, "waits for it")]
    what = f"{'it lives' if alive else 'it is killed'}, back after {took:.1f} s"
    what += "" if next_runs else ", the next start does not run"
    return [Cell(alive and next_runs, what)]


def much_output(trial: Trial, mebibytes: int) -> list[Cell]:
    """All of it comes, and the wrapper stays small. It fails, or chronic would say nothing."""
    command = ("sh", "-c", f"head -c {mebibytes}M /dev/zero; exit 3")
    process = trial.place.start(trial.wrapper.argv(*command), subprocess.PIPE)
    assert process.stdout is not None
    got, peak, looked = 0, 0, 0.0
    while data := os.read(process.stdout.fileno(), MIB):
        got += len(data)
        if time.monotonic() - looked > 0.02:
            peak, looked = max(peak, largest(process.pid)), time.monotonic()
    process.stdout.close()
    process.wait(SECONDS)
    size = peak / 1024
    whole = got == mebibytes * MIB
    return [Cell(whole and size < SMALL, f"{got / MIB:.0f} MiB, {size:.0f} MiB of memory")]


def largest(pid: int) -> int:
    """KiB at the peak of the largest process from `pid` down, without the command's own."""
    names = ("sh", "head")
    sizes = [memory(each) for each in (pid, *descendants(pid))]
    return max((size for name, size in sizes if name not in names), default=0)


def descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def memory(pid: int) -> tuple[str, int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return "", 0
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return fields.get("Name", "").strip(), int(fields.get("VmHWM", "0").split()[0])


def every_byte(trial: Trial) -> list[Cell]:
    """Bytes that are no text come as they are, on the stream that they were written to."""
    program = r"printf 'a\377\000\r\nb'; printf '\376\r\n' >&2; exit 3"
    _, out, err = trial.run("sh", "-c", program)
    right = out == b"a\xff\x00\r\nb" and b"\xfe\r\n" in err
    return [Cell(right, "unchanged" if right else "changed, or on the other stream")]


def arguments(trial: Trial) -> list[Cell]:
    given = ("a  b", ";$HOME", '"quoted"', "it's", "", "*", "\\n")
    _, out, _ = trial.run("sh", "-c", r"""printf '%s\n' "$@"; exit 3""", "sh", *given)
    right = out.decode().split("\n")[:-1] == list(given)
    return [Cell(right, "as given" if right else "changed")]


# -- all of it -------------------------------------------------------------------------------------


def rows(given: Namespace) -> list[tuple[tuple[str, ...], Callable[[Trial], list[Cell]]]]:
    mebibytes = 8 if given.quick else 200
    after = ("the lock as long as it lives", "the lock after that")
    return [
        (("exit code 3",), exit_code),
        (("killed by signal 9",), killed),
        (("command not found",), not_found),
        (("a second start while it runs",), second_start),
        (("TERM to the wrapper: the command", *after), lambda t: stopped(t, signal.SIGTERM)),
        (("KILL to the wrapper: the command", *after), lambda t: stopped(t, signal.SIGKILL)),
        (("exit 0, a daemon left behind",), left_behind),
        ((f"{mebibytes} MiB of output",), lambda t: much_output(t, mebibytes)),
        (("bytes that are no text",), every_byte),
        (('arguments with blanks and ;$"',), arguments),
    ]


def measure(given: Namespace, place: Place) -> None:
    found = list(wrappers(given, place))
    if given.quick:
        found = [wrapper for wrapper in found if wrapper.name in ("jobrun", "flock")]
    table = Table("behind each wrapper", "what happens", *(wrapper.name for wrapper in found))
    wrong = []
    for number, (names, happens) in enumerate(rows(given)):
        columns = [
            happens(Trial(wrapper, place, place.folder / f"{number}-{column}"))
            for column, wrapper in enumerate(found)
        ]
        for name, cells in zip(names, zip(*columns, strict=True), strict=True):
            table.add(name, *cells)
            wrong += [] if cells[0].right else [name]
    table.show(given.markdown)
    if wrong:
        raise Unexpected(f"not as wanted for jobrun: {', '.join(wrong)}")


if __name__ == "__main__":
    sys.exit(run(parser(__doc__ or "", rounds=1).parse_args(), measure))
