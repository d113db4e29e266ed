"""The processes that a command consists of, and whether they are still alive.

A pid alone proves nothing: it may belong to a later process. So each run is recorded with its
*birth*: the boot it belongs to and when its two processes started, as the kernel counts it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from jobrun import tree_group, tree_proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from jobrun.rows import RunRow

    class Tree(Protocol):
        def members(self) -> tuple[int, ...]:
            """Pids of those that are alive; a zombie is not."""

        def send(self, number: int) -> None:
            """Signal them, whoever can be signalled."""

        def ask(self, number: int) -> bool:
            """The same, so that a stopped process hears it too."""

        def kill(self) -> None: ...


Marker = Mapping[str, str]  # variables that every process of the tree has in its environment

_HAS_PROC = os.path.exists("/proc/self/stat")


def tree_of(pid: int, marker: Marker, spare: tuple[int, ...] = ()) -> Tree:
    """The tree of the command `pid`, which leads a process group and is there now.

    Ourselves, pid 1 and those in `spare` are never part of it.
    """
    if not _HAS_PROC:
        return tree_group.GroupTree(pid)
    return tree_proc.ProcTree(pid, tree_proc.started(pid) or 0, marker, spare)


def birth(pid: int) -> str:
    """Of this process and its child `pid`, as one line for the ledger."""
    if not _HAS_PROC:
        return tree_group.birth()
    own, child = tree_proc.started(os.getpid()), tree_proc.started(pid)
    return f"{tree_proc.boot()} {own or 0} {child or 0}"


def is_here(run: RunRow, host: str) -> bool:
    """Whether this run's processes can be looked up from here, be they alive or not.

    Containers and machines may share a name, and a machine may be renamed: the birth tells.
    `host`, the name of this one, does only where the birth names neither.
    """
    if not _HAS_PROC or run.birth is None:
        return run.host == host
    return _parts(run.birth)[0] == tree_proc.boot()


def wrapper_alive(run: RunRow) -> bool:
    """Whether the jobrun that recorded this run, here, still lives."""
    if run.pid is None or run.birth is None:
        return False
    if not _HAS_PROC:
        return tree_group.born(run.pid, run.birth)
    boot, own, _ = _parts(run.birth)
    return boot == tree_proc.boot() and tree_proc.alive(run.pid) == own


def ask_wrapper(run: RunRow, number: int) -> bool:
    """Signal the jobrun that recorded this run, also where it is stopped; False where it is gone.

    Raises PermissionError. On Linux the process is taken hold of before its birth is compared, so
    that the signal can't reach a later one with its pid.
    """
    if run.pid is None:
        return False
    if not hasattr(os, "pidfd_open"):
        if not wrapper_alive(run):
            return False
        os.kill(run.pid, number)
        os.kill(run.pid, signal.SIGCONT)
        return True
    try:
        process = os.pidfd_open(run.pid)
    except OSError:
        return False
    try:
        if not wrapper_alive(run):
            return False
        signal.pidfd_send_signal(process, number)
        signal.pidfd_send_signal(process, signal.SIGCONT)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True


def left_of(run: RunRow, marker: Marker) -> Tree | None:
    """The tree of a run whose wrapper is gone; None where nothing of it is alive here."""
    if run.child_pid is None or run.birth is None or not command_alive(run, marker):
        return None
    if not _HAS_PROC:
        return tree_group.GroupTree(run.child_pid)
    return tree_proc.ProcTree(run.child_pid, _parts(run.birth)[2], marker)


def command_alive(run: RunRow, marker: Marker) -> tuple[int, ...]:
    """Pids that are left of this run's tree, here."""
    if run.child_pid is None or run.birth is None:
        return ()
    if not _HAS_PROC:
        alive = tree_group.born(run.child_pid, run.birth)
        return (run.child_pid,) if alive else ()
    boot, _, start = _parts(run.birth)
    if boot != tree_proc.boot():
        return ()
    return tree_proc.ProcTree(run.child_pid, start, marker).members()


def _parts(text: str) -> tuple[str, int, int]:
    try:
        boot, own, child = text.split()
        return boot, int(own), int(child)
    except ValueError:  # recorded on a system of another kind
        return "", 0, 0
