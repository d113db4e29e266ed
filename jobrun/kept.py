"""What is kept of a command's output: of each stream the first and the last 256 KiB, in a file.

    everything                                       up to 512 KiB
    head, "[jobrun: N bytes left out]", tail         beyond

The file can be read at any moment, also after kill -9: it grows by appending, and where that would
be too much a shorter one takes its place by rename.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable

from jobrun.errors import JobrunError
from jobrun.value import NamedTuple

HEAD = 262_144
TAIL = 262_144
_MARK = b"\n[jobrun: %d bytes left out]\n"
_MARK_BEGINS, _MARK_ENDS = _MARK.split(b"%d")

# Not for the command, not through a link, bytes as they are.
_CAREFULLY = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOINHERIT", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
)
_RENAMES = 20 if sys.platform == "win32" else 0

MakeFolder = Callable[[str], object]


class Kept(NamedTuple):
    data: bytes  # with the mark in its place
    left_out: int  # bytes; 0 where nothing is missing


def read_kept(path: str) -> Kept | None:
    """None where there was no output, or what was kept is gone by now. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | _CAREFULLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(fd, "rb") as file:
        data = file.read()
    return Kept(data, _left_out(data))


def _left_out(data: bytes) -> int:
    if not data.startswith(_MARK_BEGINS, HEAD):
        return 0
    begin = HEAD + len(_MARK_BEGINS)
    digits, ends, _ = data[begin : begin + 64].partition(_MARK_ENDS)
    return int(digits) if ends and digits.isdigit() else 0


def make_private_folder(path: str) -> None:
    os.makedirs(path, 0o700, exist_ok=True)


class Keeper:
    """Writes one such file; it appears with the first byte. Never raises: `problem` says why not.

    `feed` only remembers; `save` brings the file up to date, and has to be called where it is
    `full`. From then on no more is remembered than the tail is long, and a piece.
    """

    def __init__(self, path: str, make_folder: MakeFolder = make_private_folder) -> None:
        self.problem: str | None = None
        self._path = path
        self._make_folder = make_folder
        self._fd = -1
        self._total = 0  # bytes fed
        self._size = 0  # of the file
        self._tail_at = HEAD  # where the tail begins in the file
        self._news: list[bytes] = []
        self._news_size = 0
        self._closed = False
        self._skipped = False  # some news was too old to matter before it was saved
        for left in (path, _draft(path)):  # of another ledger that counted its runs from 1
            _remove(left)

    @property
    def unsaved(self) -> bool:
        return bool(self._news)

    @property
    def full(self) -> bool:
        """More than the head and the tail is remembered, and the head is in no file yet."""
        return self._news_size >= HEAD + TAIL

    def feed(self, data: bytes) -> None:
        self._total += len(data)
        if self.problem is None and not self._closed:
            self._news.append(data)
            self._news_size += len(data)
            # Not before the head is in the file: it is what would be skipped.
            while self._size >= HEAD and self._news_size - len(self._news[0]) >= TAIL:
                self._news_size -= len(self._news.pop(0))
                self._skipped = True

    def save(self) -> bytes:
        """Returns what could not be kept."""
        if not self._news:
            return b""
        data = b"".join(self._news)
        self._news, self._news_size = [], 0
        return b"" if self._attempt(self._write, data) else data

    def close(self) -> None:
        """The file is what it is from now on, whoever still feeds us."""
        self.save()
        self._closed = True
        if self._fd >= 0:
            if self._size > self._tail_at + TAIL:
                self._attempt(self._shorten, b"")
            os.close(self._fd)
            self._fd = -1

    def read(self) -> Kept | None:
        return read_kept(self._path)

    def _attempt(self, write: Callable[[bytes], None], data: bytes) -> bool:
        if self.problem is None:
            try:
                write(data)
            except OSError as error:
                self.problem = f"{self._path}: {error.strerror or error}"
            except JobrunError as error:  # of the folder's maker
                self.problem = error.message
        return self.problem is None

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            self._make_folder(os.path.dirname(self._path))
            self._fd = create(self._path)
        if self._skipped or self._size + len(data) > self._tail_at + 2 * TAIL:
            self._shorten(data)
        else:
            self._append(data)

    def _append(self, data: bytes) -> None:
        write_all(self._fd, data)
        self._size += len(data)

    def _shorten(self, data: bytes) -> None:
        """A new file of head, mark and tail, where `data` is what has come since."""
        if self._size < HEAD:
            self._append(data[: HEAD - self._size])
        mark = _MARK % (self._total - HEAD - TAIL)
        whole = self._read_at(0, HEAD) + mark + self._last(data)
        os.close(self._fd)
        self._fd = -1
        _replace(self._path, whole)
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | _CAREFULLY)
        self._size, self._tail_at, self._skipped = len(whole), HEAD + len(mark), False

    def _last(self, data: bytes) -> bytes:
        missing = TAIL - len(data)
        if missing <= 0:
            return data[-TAIL:]
        return self._read_at(self._size - missing, missing) + data

    def _read_at(self, place: int, size: int) -> bytes:
        os.lseek(self._fd, place, os.SEEK_SET)
        return os.read(self._fd, size)


def create(path: str) -> int:
    """A new, empty file, 0600, whose owner is the folder's. Raises OSError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | _CAREFULLY
    fd = os.open(path, flags, 0o600)
    if sys.platform != "win32" and os.geteuid() == 0:
        # Made by root for another's ledger: theirs, as the folder is.
        folder = os.stat(os.path.dirname(path) or ".")
        if folder.st_uid != 0:
            os.fchown(fd, folder.st_uid, folder.st_gid)
    return fd


def _replace(path: str, data: bytes) -> None:
    """At any moment there is the old file or the new one."""
    draft = _draft(path)
    try:
        fd = create(draft)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
        _rename(draft, path)
    except OSError:
        _remove(draft)
        raise


def _draft(path: str) -> str:
    return f"{path}.new"


def _rename(draft: str, path: str) -> None:
    for _ in range(_RENAMES):
        # On Windows it is refused as long as a reader (`logs -f`) has the old file open.
        with contextlib.suppress(PermissionError):
            os.replace(draft, path)
            return
        time.sleep(0.005)
    os.replace(draft, path)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
