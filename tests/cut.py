"""A network that can be cut: what goes through it is dropped then, and neither side is told."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Cable:
    """Forwards to a server, from a port of its own."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._tls = tls  # to end it here, for a server that has none
        self._to = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._open: list[socket.socket] = []
        self.is_cut = False
        self.at_once = 65536  # bytes
        self.taken = 0  # connections
        self.dropped = 0  # bytes
        self._in_thread(self._take_connections)

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def close(self) -> None:
        for end in (self._listening, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _take_connections(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.taken += 1
            self._in_thread(self._join, near)

    def _join(self, near: socket.socket) -> None:
        # ValueError: closed by `close` while it was about to be waited for.
        closed = suppress(OSError, ValueError)
        with closed, socket.create_connection(self._to) as far, self._own(near) as end:
            self._open += [end, far]
            while self._forward(end, far):
                pass

    def _own(self, near: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(near, server_side=True) if self._tls is not None else near

    def _forward(self, near: socket.socket, far: socket.socket) -> bool:
        """What has come on either side, to the other; False where one has ended."""
        ready = [near] if isinstance(near, ssl.SSLSocket) and near.pending() else None
        for source in ready or select.select([near, far], [], [])[0]:
            data = source.recv(self.at_once)
            if self.is_cut:
                self.dropped += len(data)
            elif data:
                (far if source is near else near).sendall(data)
            if not data:
                return False
        return True

    def _in_thread(self, what: object, *arguments: object) -> None:
        threading.Thread(target=what, args=arguments, daemon=True).start()  # type: ignore[arg-type]


@contextmanager
def cable(address: str, tls: ssl.SSLContext | None = None) -> Iterator[tuple[Cable, str]]:
    """A cable to the server at the address, and the address of its near end."""
    place = urlsplit(address)
    assert place.hostname is not None
    assert place.port is not None
    laid = Cable(place.hostname, place.port, tls)
    try:
        yield laid, address.replace(f":{place.port}", f":{laid.port}")
    finally:
        laid.close()
