"""A keeper whose server is the test: it pings over a socket and is told what becomes of it.

keeper --> server   `?` a ping; after a re-adoption first the run that it is for
keeper <-- server   `!` an answer; the end: the session is closed
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Self

from jobrun.boottime import boottime

NEVER = float("inf")


class Double:
    """Its lock lasts for `patience` seconds after the last answered ping, of one each `every`.

    `adopts`: how it goes on where the session is closed. "" not at all: the lock is lost; "other":
    by a socket of another number; "same": by one of the same number.
    """

    def __init__(
        self, address: str | tuple[str, int], every: float, patience: float, adopts: str
    ) -> None:
        self._address, self._every, self._patience = address, every, patience
        self._adopts = adopts
        self._socket = self._connected()
        self._sent = boottime()
        self._run: int | None = None
        self.due, self.until = NEVER, self._sent + patience
        self.wants_write = False
        self.adopted = 0
        self.lost: str | None = None
        self.rested = False

    def _connected(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX if isinstance(self._address, str) else socket.AF_INET)
        made.connect(self._address)
        made.setblocking(False)
        return made

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    held_fd = fd

    def guard(self, run_id: int | None) -> None:
        self._run = run_id
        self.due = boottime()

    def on_time(self, now: float) -> None:
        if now >= self.due:
            self._sent, self.due = now, now + self._every
            self._send(b"?")

    def on_ready(self) -> None:
        if self.wants_write:
            self.wants_write = False
            self.adopted += 1
            self._send(b"%d\n" % (self._run or 0))
        elif b"!" in self._received():
            self.until = self._sent + self._patience

    def rest(self) -> None:
        self.rested = True

    def close(self) -> None:
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError:
            self._gone()

    def _received(self) -> bytes:
        try:
            data = self._socket.recv(100)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self._gone()
        return data

    def _gone(self) -> None:
        if not self._adopts:
            self.lost = "the server closed the session (57P05)"
            return
        old = self._socket
        if self._adopts == "same":
            old.close()
        self._socket, self.wants_write = self._connected(), True
        old.close()


class Session:
    """One connection of it, at the server."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.settimeout(20)

    def answer(self, times: int) -> None:
        """So many pings, each when it comes."""
        for _ in range(times):
            assert self._connection.recv(1) == b"?"
            self._connection.send(b"!")

    def line(self) -> str:
        data = b""
        while not data.endswith(b"\n"):
            data += self._connection.recv(1)
        return data.decode().strip()

    def is_open(self) -> bool:
        """Whether somebody still has the other end, whatever lies in between."""
        self._connection.setblocking(False)
        try:
            while data := self._connection.recv(100):
                assert data.strip(b"?") == b""
        except BlockingIOError:
            return True
        except ConnectionResetError:
            pass
        finally:
            self._connection.settimeout(20)
        return False

    def close(self) -> None:
        self._connection.close()


class Server:
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "server")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(20)
        self._sessions: list[Session] = []

    def session(self) -> Session:
        """The next one."""
        self._sessions.append(Session(self._listener.accept()[0]))
        return self._sessions[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for session in self._sessions:
            session.close()
