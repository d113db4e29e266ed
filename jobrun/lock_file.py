"""A job's lock: an exclusive lock of the operating system on `<ledger>.d/locks/<slug>.lock`.

The file is never removed, so all callers mean the same one, and never truncated before the lock is
held. Release is the close of the descriptor, not an unlock: the guardian of a command has a copy of
it, and an unlock would free the lock under a command that still runs.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType

from jobrun import places
from jobrun.errors import UnsafePlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from jobrun.lock import Interruption
    from jobrun.rows import RunRow

# flock knows no timeout, so waiting is asking again: seldom enough to cost nothing.
FIRST_PAUSE = 0.01  # seconds
LONGEST_PAUSE = 0.25
_REPLACEMENTS = 100
_LINE = 500  # bytes

_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


class FileLock:
    """The lock of one job; `ledger` is the path of the ledger, whose owner may own the file too.

    `slot`: one of the locks beside it, counted from 1.
    """

    def __init__(self, folder: str, job: str, ledger: str, slot: int | None = None) -> None:
        number = "" if slot is None else f".{slot}"
        self.path = os.path.join(folder, f"{places.slug(job)}{number}.lock")
        self._of = folder, job, ledger
        self._folder = folder
        self._owner = os.stat(ledger)
        self._fd = -1

    @property
    def fd(self) -> int:
        return self._fd

    def acquire(self, wait: float = 0.0, signals: Interruption | None = None) -> bool:
        deadline = time.monotonic() + wait
        pause = FIRST_PAUSE
        while not self._try():
            left = deadline - time.monotonic()
            if left <= 0 or _interrupted(signals, min(pause, left)):
                self.release()
                return False
            pause = min(pause * 1.5, LONGEST_PAUSE)
        return True

    def note(self, text: str) -> None:
        if sys.platform == "win32":  # the locked range can't be read there
            return
        line = " ".join(text.split()).encode("utf-8", "backslashreplace")[: _LINE - 1] + b"\n"
        try:
            os.pwrite(self._fd, line, 0)
            os.ftruncate(self._fd, len(line))
        except OSError:  # a full disk: the lock is held all the same
            pass

    def holder(self) -> str:
        if sys.platform == "win32":
            return ""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            return os.pread(fd, _LINE, 0).partition(b"\n")[0].decode("utf-8", "replace")
        finally:
            os.close(fd)

    @property
    def keeper(self) -> None:
        """It is the operating system's, who loses none."""

    def is_held(self) -> bool:
        return self._fd >= 0

    def beside(self, slot: int) -> FileLock:
        return FileLock(*self._of, slot)

    def is_elsewhere(self, run: RunRow) -> bool:
        return False

    def check_others(self, runs: Sequence[RunRow]) -> None:
        """What is on record in a file is of this machine."""

    def unlock(self) -> None:
        if self._fd >= 0 and sys.platform != "win32":  # there nobody has a copy
            primitive().unlock(self._fd)
        self.release()

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _try(self) -> bool:
        """Take it now, if it is free."""
        try:
            for _ in range(_REPLACEMENTS):
                if self._fd < 0:
                    self._fd = self._open()
                if not self._is_free():
                    return False
                if self._is_in_place():
                    return True
                self.release()  # removed or replaced between the open and the lock
        except BaseException:
            self.release()
            raise
        raise UnsafePlace(
            f"lock file {self.path}: another program keeps replacing it",
            "nothing has to tidy up in this folder: lock files stay where they are",
        )

    def _open(self) -> int:
        places.make_folder(self._folder, places.other_owner(self._owner))
        folder = self._open_folder()
        try:
            name = os.path.basename(self.path) if folder is not None else self.path
            fd = os.open(name, _FLAGS, 0o600, dir_fd=folder)
        except OSError as error:
            raise self._cant_open(error) from error
        finally:
            if folder is not None:
                os.close(folder)
        try:
            self._check_file(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _open_folder(self) -> int | None:
        """A descriptor of the folder that was checked: its path may lead elsewhere a moment later.

        None on Windows, which has neither such descriptors nor modes.
        """
        if sys.platform == "win32":
            return None
        try:
            folder = os.open(self._folder, _FOLDER_FLAGS)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise _unsafe(self._folder, "a link, or no folder", "move it away") from error
            raise places.cant_write(self._folder, error) from error
        found = os.fstat(folder)
        reason = None
        if found.st_uid != 0 and not self._is_trusted(found.st_uid):
            reason = _whose(found)
        elif found.st_mode & 0o022:
            reason = f"writable for others (0{stat.S_IMODE(found.st_mode):o}), {_whose(found)}"
        if reason is not None:
            os.close(folder)
            me = places.user_name(os.geteuid())
            raise _unsafe(self._folder, reason, f"chown {me} {self._folder}; chmod 700 it")
        return folder

    def _check_file(self, fd: int) -> None:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise _unsafe(self.path, "not a regular file", "move it away")
        if found.st_nlink > 1:
            raise _unsafe(self.path, f"a file with {found.st_nlink} names", f"rm {self.path}")
        if sys.platform == "win32":
            return
        owner = places.other_owner(self._owner)
        if owner is not None and found.st_uid == 0:
            os.fchown(fd, *owner)  # or the ledger's owner is locked out of his own job
        elif not self._is_trusted(found.st_uid):
            hint = f"chown {places.user_name(os.geteuid())} {self.path}"
            raise _unsafe(self.path, _whose(found), hint)

    def _cant_open(self, error: OSError) -> UnsafePlace:
        if error.errno == errno.ELOOP:
            return _unsafe(self.path, "a link", "move it away")
        return places.cant_write(self.path, error)

    def _is_trusted(self, uid: int) -> bool:
        return sys.platform == "win32" or uid in (os.geteuid(), self._owner.st_uid)

    def _is_free(self) -> bool:
        """Lock it; False if another has it."""
        locker = primitive()
        try:
            locker.lock(self._fd, locker.LockFlags.EXCLUSIVE | locker.LockFlags.NON_BLOCKING)
        except locker.exceptions.LockException as error:
            cause = error.__cause__
            number = cause.errno if isinstance(cause, OSError) else None
            # portalocker takes EACCES for a held lock. On Windows it is; flock never says it of a
            # held one, a security module (AppArmor, SELinux) does when it forbids the call.
            forbidden = number == errno.EACCES and sys.platform != "win32"
            if isinstance(error, locker.exceptions.AlreadyLocked) and not forbidden:
                return False
            raise self._cant_lock(number, error) from error
        return True

    def _cant_lock(self, number: int | None, error: Exception) -> UnsafePlace:
        name = errno.errorcode.get(number, str(number)) if number is not None else str(error)
        if number in _UNSUPPORTED:
            kind = places.filesystem(self._folder) or "its filesystem"
            reason = f"{kind} does not support locks ({name})"
            return _unsafe(self.path, reason, "--ledger PATH on a local disk")
        return _unsafe(self.path, f"locking it is not permitted ({name})", "jobrun doctor")

    def _is_in_place(self) -> bool:
        """Whether the path is still the file that is locked: others lock what the path names."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._fd))


def primitive() -> Any:
    """portalocker's own module of lock functions, without the package around it.

    The package's __init__ loads logging, tempfile, random, json, importlib.metadata and, where it
    is installed, redis: 50 ms of a call in front of every command, for a function of two lines.
    Its types are names for type checkers, and load typing, pathlib and urllib: 7 ms. With stand-ins
    for these while the module loads it is 1 ms, beside enum. Afterwards nothing of them is left in
    sys.modules, so that a later `import portalocker` gets the whole.
    """
    global _primitive
    if _primitive is None:
        _primitive = _load_primitive()
    return _primitive


_primitive: Any = None
_PRIMITIVE = "portalocker.portalocker"


def _load_primitive() -> Any:
    spec = None if "portalocker" in sys.modules else PathFinder.find_spec("portalocker")
    if spec is None or spec.submodule_search_locations is None:  # loaded already; in a zip file
        return import_module(_PRIMITIVE)
    package = ModuleType("portalocker")
    package.__path__ = spec.submodule_search_locations
    try:
        return _load_with({"portalocker": package, **_stand_ins()})
    except Exception:  # a later version does more with its types than to name them
        return import_module(_PRIMITIVE)


def _load_with(stand_ins: dict[str, ModuleType]) -> Any:
    before = set(sys.modules)
    sys.modules.update(stand_ins)
    try:
        return import_module(_PRIMITIVE)
    finally:
        for name in set(sys.modules) - before:
            if name in stand_ins or name.startswith("portalocker."):
                del sys.modules[name]


def _stand_ins() -> dict[str, ModuleType]:
    stand_ins = {}
    for name in ("portalocker.types", "typing"):
        if name not in sys.modules:
            module = stand_ins[name] = ModuleType(name)
            module.__getattr__ = lambda _: _Name  # type: ignore[method-assign]
            module.TYPE_CHECKING = False  # type: ignore[attr-defined]
    return stand_ins


class _Name:
    """Stands for a name of typing: a base class, a part of an annotation, or `cast`, whose value is
    what it is given last."""

    def __new__(cls, *given: Any) -> Any:
        return given[-1]

    def __class_getitem__(cls, _: object) -> type[_Name]:
        return cls


def _interrupted(signals: Interruption | None, seconds: float) -> bool:
    """Wait; True if a signal asks us to stop."""
    if signals is None:
        time.sleep(seconds)
        return False
    signals.pause(seconds)
    return signals.received is not None


def _unsafe(path: str, reason: str, hint: str) -> UnsafePlace:
    return UnsafePlace(f"{path}: {reason}; no lock there is safe", hint)


def _whose(found: os.stat_result) -> str:
    me = os.geteuid()
    return (
        f"it is {places.user_name(found.st_uid)}'s (uid {found.st_uid}), "
        f"you are {places.user_name(me)} (uid {me})"
    )
