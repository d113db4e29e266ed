"""Whom tests/bench/kill.py hits, with what, and how it finds them: never anybody else's process."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

from tests.bench.kill_calls import PHASES

WITH_CHILD = PHASES[3:7]
WRAPPER, GUARDIAN, COMMAND = "wrapper", "guardian", "command"


class Strike(NamedTuple):
    name: str
    targets: tuple[str, ...]  # hit one after another, in random order
    # KILL, TERM, pause (STOP, later CONT), both (STOP, later KILL), unlock (a pause, no lock file)
    what: str
    weight: int

    @property
    def is_kill(self) -> bool:
        return self.what in ("KILL", "TERM", "both")

    @property
    def first(self) -> int:
        return {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM}.get(self.what, signal.SIGSTOP)

    @property
    def then(self) -> int | None:
        """What follows on a stop."""
        return {"KILL": None, "TERM": None, "both": signal.SIGKILL}.get(self.what, signal.SIGCONT)

    @property
    def phases(self) -> tuple[str, ...]:
        """Where it is worth while."""
        if self.what == "unlock":
            return ("planning", "blocked")
        if self.targets == (WRAPPER,):
            return PHASES
        return (*WITH_CHILD, "alone") if self.targets == (GUARDIAN,) else WITH_CHILD


STRIKES = (
    Strike("kill wrapper", (WRAPPER,), "KILL", 26),
    Strike("kill guardian", (GUARDIAN,), "KILL", 13),
    Strike("kill command", (COMMAND,), "KILL", 13),
    Strike("kill wrapper, guardian", (WRAPPER, GUARDIAN), "KILL", 7),
    Strike("kill wrapper, command", (WRAPPER, COMMAND), "KILL", 5),
    Strike("kill guardian, command", (GUARDIAN, COMMAND), "KILL", 5),
    Strike("kill all three", (WRAPPER, GUARDIAN, COMMAND), "KILL", 3),
    Strike("stop, kill wrapper", (WRAPPER,), "both", 4),
    Strike("term wrapper", (WRAPPER,), "TERM", 7),
    Strike("term guardian", (GUARDIAN,), "TERM", 2),
    Strike("term command", (COMMAND,), "TERM", 3),
    Strike("pause wrapper", (WRAPPER,), "pause", 3),
    Strike("pause guardian", (GUARDIAN,), "pause", 3),
    Strike("pause command", (COMMAND,), "pause", 3),
    # A tidy-up removes the lock file under a call that sleeps: the lock lies from then on.
    Strike("remove lock file", (WRAPPER,), "unlock", 5),
)


class Seen(NamedTuple):
    pid: int
    parent: int
    alive: bool


def _stat(pid: str) -> Seen | None:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return None
    return Seen(int(pid), int(fields[1]), fields[0] not in "ZX")


def descendants() -> dict[int, Seen]:
    """Every process that comes from this one, alive or a zombie. Ours alone can be hit."""
    table = [seen for pid in os.listdir("/proc") if pid.isdecimal() and (seen := _stat(pid))]
    found: dict[int, Seen] = {}
    more = {os.getpid()}
    while more:
        young = {seen.pid: seen for seen in table if seen.parent in more and seen.pid not in found}
        found |= young
        more = set(young)
    return found


def variables(pid: int) -> dict[str, str]:
    """Its environment since exec; nothing where it is gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            entries = os.fsdecode(environ.read()).split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def commands_of(number: int) -> list[int]:
    """Pids of all that belongs to the commands of the call of this number, after exec."""
    return [
        seen.pid
        for seen in descendants().values()
        if seen.alive and _is_command(variables(seen.pid), number)
    ]


def _is_command(found: dict[str, str], number: int) -> bool:
    return found.get("CALL") == str(number) and "JOBRUN_RUN_ID" in found


def hit(pid: int, number: int) -> bool:
    """Signal a process of ours; False where it is gone, or its pid is somebody else's by now."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        seen = descendants().get(pid)  # after the open: what was found is what is signalled
        if seen is None or not seen.alive:
            return False
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True


def end_all() -> None:
    """Kill all that is left of us, however it stands."""
    for pid in descendants():
        hit(pid, signal.SIGKILL)


def collect() -> Iterator[tuple[int, int]]:
    """(pid, status) of every child, or adopted orphan, that has ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            yield pid, os.waitstatus_to_exitcode(status)


def told(pid: int) -> str:
    """What a process that should be gone is, for a person."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            words = line.read().replace(b"\0", b" ").decode(errors="replace")
        with open(f"/proc/{pid}/status") as status:
            state = next(row for row in status if row.startswith("State")).split()[1]
        with open(f"/proc/{pid}/wchan") as place:
            return f"{pid} ({state} in {place.read()}): {words}"
    except (OSError, StopIteration):
        return str(pid)
