"""What a run printed, as `logs` reads it: where it lies, its end, what a terminal may get of it."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from jobrun import places
from jobrun.kept import HEAD, read_kept
from jobrun.rows import RunRow

STDOUT, STDERR = "stdout", "stderr"
_SUFFIX = {STDOUT: ".out", STDERR: ".err"}
_DECODER = codecs.getincrementaldecoder("utf-8")


class Stream(NamedTuple):
    """One stream of a run. `size` in bytes; None: no file, since nothing came or it was removed."""

    name: str
    path: str
    size: int | None


def streams_of(beside: str, run: RunRow) -> tuple[Stream, Stream]:
    base = places.run_output(beside, run.job, run.id, run.started)
    out, err = (Stream(name, base + end, _size(base + end)) for name, end in _SUFFIX.items())
    return out, err


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def read(stream: Stream) -> bytes:
    """What is kept of it, with a mark where something was left out; bounded by kept.py."""
    kept = read_kept(stream.path)
    return b"" if kept is None else kept.data


def last_lines(raw: bytes, count: int) -> bytes:
    lines = raw.splitlines(keepends=True)
    return b"".join(lines[-count:]) if count else b""


def texts(pieces: Iterable[tuple[Stream, bytes]]) -> Iterator[tuple[Stream, str]]:
    """Pieces as text that is harmless to a terminal; a letter may lie across two of them."""
    decoders: dict[str, codecs.IncrementalDecoder] = {}
    for stream, raw in pieces:
        decoder = decoders.setdefault(stream.name, _DECODER("backslashreplace"))
        yield stream, harmless(decoder.decode(raw))


def harmless(text: str) -> str:
    """Text that can't move a cursor, clear a screen or set a title, whatever a command printed.

    Control characters become escapes (`\\x1b`); of a line that was overwritten again and again (a
    progress bar) the last state is left, as on a screen.
    """
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join("".join(map(_harmless, line)) for line in lines)


def _harmless(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    return character.encode("unicode_escape").decode()


def follow(
    streams: Sequence[Stream], over: Callable[[], bool], pause: Callable[[], object]
) -> Iterator[tuple[Stream, bytes]]:
    """What is added to the streams, as it comes, until `over`; then the rest."""
    tails = [(stream, Tail(stream.path)) for stream in streams]
    last = False
    while True:
        news = [(stream, raw) for stream, tail in tails if (raw := tail.read())]
        yield from news
        if last:
            return
        last = over()  # asked before the last reading, so that nothing falls between
        if not last and not news:
            pause()


class Tail:
    """What has been added to a kept file since the last reading.

    The file may be replaced by a shorter one meanwhile (head, mark, tail): the place is counted in
    bytes of the stream, not of the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = 0
        self._state: tuple[int, int, int] | None = None

    def read(self) -> bytes:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return b""
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        kept = read_kept(self._path) if state != self._state else None
        if kept is None:
            return b""
        self._state, before = state, self._seen
        if not kept.left_out:
            self._seen = len(kept.data)
            return kept.data[before:]
        mark_ends = kept.data.index(b"\n", HEAD + 1) + 1
        cut_ends = HEAD + kept.left_out
        self._seen = cut_ends + len(kept.data) - mark_ends
        if before < cut_ends:
            return kept.data[min(before, HEAD) :]
        return kept.data[mark_ends + before - cut_ends :]
