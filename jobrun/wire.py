"""Messages over a pipe: items without a NUL, joined by one, behind their length.

Each message of the guardian is shorter than PIPE_BUF, so two writers on one pipe don't mix.
"""

from __future__ import annotations

import os

_HEADER = 10  # digits
_CHUNK = 65_536


def frame(*items: bytes) -> bytes:
    """At least one item; none holds a NUL."""
    body = b"\0".join(items)
    return b"%0*d" % (_HEADER, len(body)) + body


def send(fd: int, data: bytes) -> bool:
    """Write everything; False where nobody reads any more."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except BrokenPipeError:
        return False
    return True


class Receiver:
    """The messages that arrive at one end of a pipe."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = False  # end of file: the other side is gone
        self._buffer = b""

    def take(self) -> list[list[bytes]]:
        """One read; the messages that are whole by now. Blocks where nothing is there."""
        data = os.read(self.fd, _CHUNK)
        self.ended = not data
        self._buffer += data
        return self._whole()

    def one(self) -> list[bytes] | None:
        """Wait for the first message and read no further; None where the other side is gone.

        What comes behind it stays in the pipe, where a poll finds it. Before the first `take`.
        """
        header = self._exactly(_HEADER)
        body = b"" if self.ended else self._exactly(int(header))
        return None if self.ended else body.split(b"\0")

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size and not self.ended:
            piece = os.read(self.fd, min(size - len(data), _CHUNK))
            self.ended = not piece
            data += piece
        return bytes(data)

    def _whole(self) -> list[list[bytes]]:
        messages = []
        while len(self._buffer) >= _HEADER:
            end = _HEADER + int(self._buffer[:_HEADER])
            if len(self._buffer) < end:
                break
            messages.append(self._buffer[_HEADER:end].split(b"\0"))
            self._buffer = self._buffer[end:]
        return messages
