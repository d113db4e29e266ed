"""The lock: one holder, three answers, a file that nobody else can play with."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobrun import lock_file
from jobrun.errors import UnsafePlace
from jobrun.lock_file import FileLock
from jobrun.signals import Signals
from tests.conftest import PYTHON, ROOT

posix = pytest.mark.skipif(sys.platform == "win32", reason="owners, links and flock are POSIX")
root = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="only root can give files to others"
)

HOLD = """
import os, sys
from jobrun.lock_file import FileLock
lock = FileLock(sys.argv[1], sys.argv[2], sys.argv[3])
held = lock.acquire()
lock.note(f"job={sys.argv[2]} pid={os.getpid()}")
print(held, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A file in the ledger's place: of it the lock knows only the owner."""
    path = tmp_path / "jobrun.db"
    path.touch()
    return path


@pytest.fixture
def folder(ledger: Path) -> Path:
    """Of the lock files; `ready` where the test needs it to be there before."""
    return ledger.parent / "jobrun.db.d" / "locks"


@pytest.fixture
def ready(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True)
    return folder


@pytest.fixture
def lock(ledger: Path, folder: Path) -> Iterator[FileLock]:
    """The lock of the job j, let go at the end."""
    lock = FileLock(str(folder), "j", str(ledger))
    yield lock
    lock.release()


@pytest.fixture
def holder(ledger: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of j until it gets a line."""
    process = subprocess.Popen(
        [PYTHON, "-c", HOLD, str(folder), "j", str(ledger)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.communicate()


def let_go(process: subprocess.Popen[str], when: threading.Event | None = None) -> None:
    if when is not None:
        when.wait(20)
    process.communicate("\n")


# -- one holder ----------------------------------------------------------------------------------


def test_a_free_lock_is_taken(lock: FileLock, folder: Path) -> None:
    """Its folder is made 0700, its file 0600 with the job's name; it stays when it is free."""
    assert lock.acquire()
    assert lock.fd >= 0
    (name,) = os.listdir(folder)
    assert name.startswith("j-")
    assert name.endswith(".lock")
    if os.name == "posix":
        assert (folder / name).stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700
    lock.release()
    assert os.listdir(folder) == [name]


def test_a_held_lock_is_busy_at_once(lock: FileLock, holder: subprocess.Popen[str]) -> None:
    """S1, S3: False, no waiting, no descriptor kept; after the holder it can be had."""
    assert not lock.acquire()
    assert lock.fd == -1
    let_go(holder)
    assert lock.acquire()


def test_a_killed_holder_holds_nothing(lock: FileLock, holder: subprocess.Popen[str]) -> None:
    """The kernel frees it however the process ends: there are no stale locks."""
    holder.kill()
    holder.communicate()
    assert lock.acquire()


def test_another_job_is_not_kept(ledger: Path, folder: Path, holder: subprocess.Popen[str]) -> None:
    """Unrelated jobs never share a lock, nor do names that one filesystem takes for the same."""
    others = [FileLock(str(folder), name, str(ledger)) for name in ("J", "k", "j.", "jj")]
    assert all(other.acquire() for other in others)
    for other in others:
        other.release()


def test_the_file_says_who(lock: FileLock, holder: subprocess.Popen[str]) -> None:
    """One line for people; a longer one before it leaves nothing behind."""
    expected = f"job=j pid={holder.pid}" if os.name == "posix" else ""
    assert lock.holder() == expected
    let_go(holder)
    assert lock.acquire()
    lock.note("job=j\npid=1 " + "x" * 1000)
    lock.note("short")
    assert lock.holder() == ("short" if os.name == "posix" else "")


def test_the_holder_of_a_lock_that_never_was(lock: FileLock) -> None:
    """Nobody."""
    assert lock.holder() == ""


@posix
def test_a_refused_lock_leaves_the_line(lock: FileLock, holder: subprocess.Popen[str]) -> None:
    """The file is never emptied by one who does not hold it."""
    before = Path(lock.path).read_text()
    assert not lock.acquire()
    assert Path(lock.path).read_text() == before


@posix
def test_a_copy_of_the_descriptor_holds_it(ledger: Path, folder: Path, lock: FileLock) -> None:
    """The guardian's copy keeps the lock when the wrapper lets go: release never unlocks."""
    other = FileLock(str(folder), "j", str(ledger))
    assert lock.acquire()
    copy = os.dup(lock.fd)
    lock.release()
    assert not other.acquire()
    os.close(copy)
    assert other.acquire()
    other.release()


@posix
def test_a_command_does_not_inherit_it(lock: FileLock) -> None:
    """L01: a daemon that the command leaves behind holds nothing."""
    assert lock.acquire()
    assert not os.get_inheritable(lock.fd)


# -- waiting -------------------------------------------------------------------------------------


def test_waiting_ends_when_it_is_free(lock: FileLock, holder: subprocess.Popen[str]) -> None:
    """D7: a bounded wait; the lock is had as soon as the holder lets go."""
    asked = threading.Event()
    first = lock._is_free

    def is_free() -> bool:
        asked.set()
        return first()

    lock._is_free = is_free  # type: ignore[method-assign]
    releasing = threading.Thread(target=let_go, args=(holder, asked))
    releasing.start()
    assert lock.acquire(wait=20)
    releasing.join()


def test_waiting_is_bounded(lock: FileLock, holder: subprocess.Popen[str]) -> None:
    """Then it gives up."""
    assert not lock.acquire(wait=0.05)


@posix
def test_a_signal_ends_the_wait(lock: FileLock, holder: subprocess.Popen[str]) -> None:
    """At once, however long it was to be."""
    signals = Signals((signal.SIGTERM,))
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not lock.acquire(wait=1000, signals=signals)
        assert signals.take() == [signal.SIGTERM]
    finally:
        signals.restore()


@posix
def test_a_signal_that_asks_nothing_is_waited_out(
    lock: FileLock, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pid 1 we hear of every orphan: no hot loop, and the news is kept for who asks next."""
    tries: list[FileLock] = []
    first = FileLock._is_free

    def is_free(self: FileLock) -> bool:
        tries.append(self)
        return first(self)

    monkeypatch.setattr(FileLock, "_is_free", is_free)
    signals = Signals((signal.SIGCHLD,))
    try:
        os.kill(os.getpid(), signal.SIGCHLD)
        assert not lock.acquire(wait=0.3, signals=signals)
        assert len(tries) < 20
        assert signals.take() == [signal.SIGCHLD]
    finally:
        signals.restore()


# -- a file that others can play with ------------------------------------------------------------


@posix
def test_a_removed_file_is_made_again(
    lock: FileLock, ledger: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed between the open and the lock, it would be a lock of a file that nobody else sees."""
    removed: list[str] = []
    first = FileLock._is_free

    def is_free(self: FileLock) -> bool:
        if not removed:
            os.unlink(self.path)
            removed.append(self.path)
        return first(self)

    monkeypatch.setattr(FileLock, "_is_free", is_free)
    assert lock.acquire()
    assert os.path.samestat(os.fstat(lock.fd), os.stat(lock.path))


@posix
def test_a_file_that_is_always_replaced(lock: FileLock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, with an error."""
    monkeypatch.setattr(FileLock, "_is_in_place", lambda self: False)
    with pytest.raises(UnsafePlace, match="keeps replacing"):
        lock.acquire()
    assert lock.fd == -1


def unsafe(lock: FileLock) -> str:
    """What the refusal says; a place that can't lock never looks like a busy job."""
    with pytest.raises(UnsafePlace) as caught:
        lock.acquire()
    assert caught.value.code == 73
    assert caught.value.hint
    assert lock.fd == -1
    return caught.value.message


@posix
def test_a_link_in_its_place(lock: FileLock, ready: Path, tmp_path: Path) -> None:
    """Following it would let another user choose the file that we open for writing."""
    os.symlink(tmp_path / "elsewhere", lock.path)
    assert "a link" in unsafe(lock)
    assert not (tmp_path / "elsewhere").exists()


@posix
def test_a_second_name(lock: FileLock, ready: Path, tmp_path: Path) -> None:
    """A hard link is another's file, or will be."""
    (tmp_path / "other").touch()
    os.link(tmp_path / "other", lock.path)
    assert "2 names" in unsafe(lock)


@posix
def test_a_pipe_in_its_place(lock: FileLock, ready: Path) -> None:
    """It is opened without hanging, and refused."""
    os.mkfifo(lock.path)
    assert "not a regular file" in unsafe(lock)


@posix
@pytest.mark.parametrize("mode", [0o1777, 0o770, 0o702])
def test_a_folder_that_others_can_write(lock: FileLock, ready: Path, mode: int) -> None:
    """L06: they could replace lock files; the message names path, owner, own uid and the fix."""
    ready.chmod(mode)
    message = unsafe(lock)
    assert str(ready) in message
    assert f"writable for others (0{mode:o})" in message
    assert f"(uid {os.geteuid()})" in message


@posix
def test_a_link_in_place_of_the_folder(lock: FileLock, folder: Path, tmp_path: Path) -> None:
    """Where it leads another may have chosen."""
    folder.parent.mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    os.symlink(tmp_path / "elsewhere", folder)
    assert "a link, or no folder" in unsafe(lock)


@root
def test_a_file_of_another_user(lock: FileLock, ready: Path) -> None:
    """L06: whoever owns it can open it and hold it for ever."""
    Path(lock.path).touch()
    os.chown(lock.path, 1234, 1234)
    message = unsafe(lock)
    assert "uid 1234" in message
    assert "uid 0" in message


@root
def test_a_folder_of_another_user(lock: FileLock, ready: Path) -> None:
    """He can put any file there."""
    os.chown(ready, 1234, 1234)
    assert "uid 1234" in unsafe(lock)


@root
def test_root_for_anothers_ledger(ledger: Path, folder: Path) -> None:
    """What root makes there is the owner's, who would else be locked out of his own job."""
    os.chown(ledger, 1234, 1234)
    lock = FileLock(str(folder), "j", str(ledger))
    assert lock.acquire()
    assert os.stat(lock.path).st_uid == 1234
    assert folder.stat().st_uid == 1234
    lock.release()


# -- a lock that can't be had --------------------------------------------------------------------


@posix
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_filesystem_without_locks(
    lock: FileLock, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """L07: not supported is no skip: nothing may run, and the message names the error."""
    refuse_to_lock(monkeypatch, number)
    message = unsafe(lock)
    assert "does not support locks" in message
    assert errno.errorcode[number] in message


@posix
@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EIO])
def test_a_lock_that_is_not_permitted(
    lock: FileLock, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Also where portalocker takes EACCES for a held lock: a job would be skipped for ever."""
    refuse_to_lock(monkeypatch, number)
    assert f"not permitted ({errno.errorcode[number]})" in unsafe(lock)


def refuse_to_lock(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(fd: int, flags: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock_file.primitive(), "LOCKER", flock)
