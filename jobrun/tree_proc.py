"""The tree where there is a /proc (Linux).

A process belongs to it by its environment, which also marks those that left the group (`setsid`,
`set -m`, `timeout`), by the command's process group, or by descent from one of these (a program
may overwrite its environment, and a set-uid one does not show it).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping

from jobrun.value import NamedTuple


class Stat(NamedTuple):
    pid: int
    parent: int
    group: int
    start: int  # clock ticks after boot
    alive: bool  # not a zombie


class ProcTree:
    def __init__(
        self, pid: int, start: int, marker: Mapping[str, str], spare: tuple[int, ...] = ()
    ) -> None:
        self._pid = pid
        self._start = start
        self._marks = [os.fsencode(f"\0{name}={value}\0") for name, value in marker.items()]
        self._spare = {1, os.getpid(), *spare}
        self._known: dict[int, int] = {}  # pid and start of all that were ever found

    def members(self) -> tuple[int, ...]:
        return tuple(stat.pid for stat in self._scan())

    def send(self, number: int) -> None:
        members = self._scan()  # first: whose parent dies of the signal is nobody's descendant
        # The whole group in one call: a process that forks meanwhile can't slip through. While the
        # leader is there, if only as a zombie, the group can't be somebody else's.
        leader = _stat(self._pid)
        together = leader is not None and self._is_ours(leader) and leader.group == self._pid
        if together:
            _try(os.killpg, self._pid, number)
        for stat in members:
            if not (together and stat.group == self._pid):
                _try(os.kill, stat.pid, number)

    def ask(self, number: int) -> bool:
        self.send(number)
        self.send(signal.SIGCONT)
        return True

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def _scan(self) -> list[Stat]:
        stats = tuple(_stats())
        leader = next((stat for stat in stats if stat.pid == self._pid), None)
        group_is_ours = leader is None or self._is_ours(leader)
        # Nobody in the tree is older than the command, so that few environments have to be read.
        young = {stat.pid: stat for stat in stats if stat.alive and stat.start >= self._start}
        found = {stat.pid for stat in young.values() if self._belongs(stat, group_is_ours)}
        more = found
        while more:
            more = {stat.pid for stat in young.values() if stat.parent in more} - found
            found = found | more
        members = [young[pid] for pid in sorted(found - self._spare)]
        self._known.update((stat.pid, stat.start) for stat in members)
        return members

    def _belongs(self, stat: Stat, group_is_ours: bool) -> bool:
        if stat.pid == self._pid:
            return self._is_ours(stat)
        # No pid is given again while a group has that number: where its leader, if only as a
        # zombie, is a later process than ours, our group has ended and this is that one's.
        if stat.group == self._pid and group_is_ours:
            return True
        return self._known.get(stat.pid) == stat.start or self._is_marked(stat.pid)

    def _is_ours(self, stat: Stat) -> bool:
        return stat.start == self._start

    def _is_marked(self, pid: int) -> bool:
        environment = b"\0" + _read(f"/proc/{pid}/environ") + b"\0"
        return bool(self._marks) and all(mark in environment for mark in self._marks)


def boot() -> str:
    """Names this boot and this pid namespace: within it, (pid, start) names one process."""
    boot_id = _read("/proc/sys/kernel/random/boot_id").strip().decode()
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{boot_id}/{namespace}"


def started(pid: int) -> int | None:
    """Clock ticks after boot; None where it is gone altogether."""
    stat = _stat(pid)
    return None if stat is None else stat.start


def alive(pid: int) -> int | None:
    """When it started; None where it is gone, or is a zombie that nobody has collected."""
    stat = _stat(pid)
    return stat.start if stat is not None and stat.alive else None


def holder(inode: int, among: tuple[int, ...], but: tuple[int, ...]) -> int | None:
    """The one of these that has this pipe open."""
    others = (pid for pid in among if pid not in but)
    return next((pid for pid in others if f"pipe:[{inode}]" in _open_files(pid)), None)


def everyone() -> tuple[int, ...]:
    try:
        return tuple(int(name) for name in os.listdir("/proc") if name.isdecimal())
    except OSError:  # no such place
        return ()


def _stats() -> Iterator[Stat]:
    for pid in everyone():
        stat = _stat(pid)
        if stat is not None:
            yield stat


def _stat(pid: int) -> Stat | None:
    text = _read(f"/proc/{pid}/stat")
    # The name, in parentheses, may itself hold blanks and parentheses.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    # A leader whose first thread has ended looks like a zombie while the others go on.
    alive = fields[0] not in b"ZXx" or int(fields[17]) > 1
    return Stat(pid, int(fields[1]), int(fields[2]), int(fields[19]), alive)


def _open_files(pid: int) -> set[str]:
    folder = f"/proc/{pid}/fd"
    try:
        return {os.readlink(f"{folder}/{name}") for name in os.listdir(folder)}
    except OSError:  # gone meanwhile, or not ours to look into
        return set()


def _read(path: str) -> bytes:
    """The whole file; nothing where it is gone or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return b"".join(iter(lambda: os.read(fd, 65_536), b""))
    except OSError:
        return b""
    finally:
        os.close(fd)


def _try(kill: Callable[[int, int], None], target: int, number: int) -> None:
    # Gone meanwhile, or not ours: then the next look finds it again.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(target, number)
