"""A relay between a host and a server: `python tests/bench/relay.py PORT SERVER_PORT`.

Stopped (SIGSTOP) it is a network that is cut without a word: connections stay open, nothing comes
through, a new one is accepted by the kernel and never answered. Continued it goes on where it was.
"""

from __future__ import annotations

import selectors
import socket
import sys


class Relay:
    def __init__(self, port: int, server: int) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", port), backlog=100)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peers: dict[socket.socket, socket.socket] = {}

    def serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._listener:
                    self._accept()
                elif sock in self._peers:  # an earlier one of this turn may have closed it
                    self._pass_on(sock)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._server))
        except OSError:  # the server is down: so are we
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(65536)
            if data:
                self._peers[sock].sendall(data)
                return
        except OSError:
            pass
        for one in (self._peers.pop(sock), sock):
            self._peers.pop(one, None)
            self._selector.unregister(one)
            one.close()


if __name__ == "__main__":
    Relay(int(sys.argv[1]), int(sys.argv[2])).serve()
