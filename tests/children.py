"""Small programs run as commands: `python -m tests.children NAME ARGUMENT...`.

Each that waits says when it is ready, by a file that appears whole: its pids, one a line.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def say(path: str, *what: object) -> None:
    """Appears at once and whole."""
    draft = f"{path}.draft"
    Path(draft).write_text("".join(f"{item}\n" for item in what))
    os.replace(draft, path)


def wait_for_ever() -> NoReturn:
    while True:
        signal.pause()


def child(life: Callable[[], object], session: bool = False, group: bool = False) -> int:
    """A process that lives this life; for ever, unless the life ends it."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        if session:
            os.setsid()
        if group:
            os.setpgid(0, 0)
        life()
        os.write(told, b".")
        wait_for_ever()
    os.read(ready, 1)
    return pid


def deaf() -> None:
    for number in ASKING:
        signal.signal(number, signal.SIG_IGN)


def plain() -> None:
    pass


def waits(ready: str) -> None:
    """Dies of the first signal."""
    say(ready, os.getpid())
    wait_for_ever()


def ignores(ready: str) -> None:
    """Only KILL ends it."""
    deaf()
    say(ready, os.getpid())
    wait_for_ever()


def counts(ready: str, asked: str) -> None:
    """Only KILL ends it; writes down what else it was sent."""

    def note(number: int, frame: FrameType | None) -> None:
        with open(asked, "a") as file:
            file.write(f"{signal.Signals(number).name.removeprefix('SIG')}\n")

    for number in ASKING:
        signal.signal(number, note)
    say(ready, os.getpid())
    wait_for_ever()


def answers(ready: str, code: str) -> None:
    """Exits with this code when it is asked to stop."""

    def leave(number: int, frame: FrameType | None) -> None:
        print("bye", flush=True)
        os._exit(int(code))

    for number in ASKING:
        signal.signal(number, leave)
    say(ready, os.getpid())
    wait_for_ever()


def fails(ready: str) -> None:
    say(ready, os.getpid())
    sys.exit(3)


def chatters(ready: str, said: str) -> None:
    """Says more than a pipe holds when it is asked to stop, then that it has."""

    def leave(number: int, frame: FrameType | None) -> None:
        for _ in range(64):
            os.write(1, b"x" * 65_536)
        say(said, "all of it")
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    say(ready, os.getpid())
    wait_for_ever()


def family(ready: str, text: str = "") -> None:
    """Children in its group, in a group and in a session of their own; one is deaf."""
    pids = [child(plain), child(plain, group=True), child(plain, session=True), child(deaf)]
    say(ready, os.getpid(), *pids)
    os.write(1, text.encode())
    wait_for_ever()


def leaves_daemon(ready: str) -> None:
    """Ends well; a daemon goes on and has the output open."""
    say(ready, os.getpid(), child(plain, session=True))
    print("done", flush=True)


def forgets_environment(ready: str) -> None:
    """A descendant in a session of its own whose environment tells nothing."""

    def forget() -> None:
        code = "import sys, signal; from tests.children import say, wait_for_ever; import os\n"
        code += "say(sys.argv[1], os.getppid(), os.getpid()); wait_for_ever()"
        os.execve(sys.executable, [sys.executable, "-c", code, ready], {"PYTHONPATH": os.getcwd()})

    if os.fork() == 0:
        os.setsid()
        forget()
    wait_for_ever()


def descriptors() -> None:
    """Those that are open, but the one that lists them."""
    names = os.listdir("/proc/self/fd")
    print(sorted(int(name) for name in names if os.path.exists(f"/proc/self/fd/{name}")))


def floods(megabytes: str) -> None:
    block = b"x" * 1_048_576
    for _ in range(int(megabytes)):
        os.write(1, block)


def prints_then_waits(ready: str, text: str) -> None:
    os.write(1, text.encode())
    waits(ready)


def reads_terminal(ready: str) -> None:
    """A line from the terminal, whatever its stdin is."""
    say(ready, os.getpid())
    with open("/dev/tty", "rb", buffering=0) as terminal:
        line = terminal.readline()
    say(f"{ready}.read", line.decode())


def reads_stdin() -> None:
    print(repr(sys.stdin.buffer.read()), flush=True)


def main(name: str, *arguments: str) -> None:
    globals()[name](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
