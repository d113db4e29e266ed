"""Between jobrun and a PostgreSQL server: passes everything on, until the network is cut.

It reads the messages that pass, so that the cut comes at the COMMIT of the transaction in which a
run ends, or begins: before the server has it, or once the server has done it and before it can say
so.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

BEFORE, AFTER = "before", "after"
ENDS_A_RUN, BEGINS_A_RUN = b"SET outcome = $", b".jobrun_run (job, "


class Side(NamedTuple):
    client: socket.socket
    server: socket.socket


class Cutter:
    """`cut`: where, in the transaction that has the words of `at`; None lets everything pass. After
    a cut nobody gets through until `mend`."""

    def __init__(self, address: str, cut: str | None = None, at: bytes = ENDS_A_RUN) -> None:
        place = urlsplit(address)
        self._server = (place.hostname or "", place.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        more = "&" if place.query else "?"
        plain = f"{address}{more}sslmode=disable&gssencmode=disable"
        self.address = plain.replace(f":{place.port}/", f":{port}/")
        self.cut = cut
        self.at = at
        self.happened = threading.Event()
        self._sides: list[Side] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def mend(self) -> None:
        self.cut = None
        self.happened.clear()

    def sever(self) -> None:
        """Every connection ends, and no new one is made."""
        self.happened.set()
        for side in self._sides:
            for end in side:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._sides.clear()

    def close(self) -> None:
        self.sever()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.happened.is_set():
                    client.close()
                    continue
                side = Side(client, socket.create_connection(self._server))
                self._sides.append(side)
                watch = Watch(self, side)
                for pump in (watch.forth, watch.back):
                    threading.Thread(target=pump, daemon=True).start()


class Watch:
    """One connection."""

    def __init__(self, cutter: Cutter, side: Side) -> None:
        self._cutter = cutter
        self._client, self._server = side
        self._is_at = self._is_committing = False

    def forth(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._server.sendall(_take(self._client, b""))  # who it is, before any other message
            while True:
                message = _take(self._client, _exactly(self._client, 1))
                self._is_at |= self._cutter.at in message
                if self._is_at and message[:1] in b"PQ" and b"COMMIT" in message:
                    if self._cutter.cut == BEFORE:
                        self._cutter.sever()
                    self._is_committing = True
                self._server.sendall(message)
        self._server.close()

    def back(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                message = _take(self._server, _exactly(self._server, 1))
                is_done = message.startswith(b"C") and b"COMMIT" in message
                if is_done and self._is_committing and self._cutter.cut == AFTER:
                    self._cutter.sever()
                self._client.sendall(message)
        self._client.close()


def _take(end: socket.socket, kind: bytes) -> bytes:
    """A message: its kind, its length, which counts itself, and so many bytes."""
    length = _exactly(end, 4)
    return kind + length + _exactly(end, struct.unpack("!i", length)[0] - 4)


def _exactly(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = end.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


@contextmanager
def cutter(address: str, cut: str | None = None, at: bytes = ENDS_A_RUN) -> Iterator[Cutter]:
    made = Cutter(address, cut, at)
    try:
        yield made
    finally:
        made.close()
