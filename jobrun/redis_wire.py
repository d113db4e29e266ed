"""One connection to a Redis or Valkey server, which is never waited for.

    server = Server(address)        looks its name up, which may wait: before a command runs
    wire = server.connect()         on its way; nothing is waited for
    wire.send("GET", "a")           goes out as soon as it can
    replies = wire.turn()           whenever `fd` is ready: what has come since
    replies = wire.wait(1, 2.0)     the same, waiting, where that is allowed

It speaks RESP3, the protocol of Redis 6 and later and of Valkey: there a connection that listens to
a channel may go on asking, so that one socket does for all. redis-py is not used for it: its
synchronous client can neither connect nor log in without waiting, and to import it takes longer
than all the rest of a call.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from jobrun.errors import ConfigError
from jobrun.redis_address import TLS_FILES

if TYPE_CHECKING:
    from ssl import SSLContext

    from jobrun.redis_address import Address

Reply = Any
Endpoint = tuple[int, Any]  # family, and what connect() takes

TLS_HINT = (
    "ssl_ca_certs= is a file of whoever the server's certificate is from, ssl_certfile= and"
    " ssl_keyfile= are ours"
)
_CHUNK = 65536
_LARGEST = 1 << 20  # bytes of one answer; those to our questions are a few hundred
_ON_ITS_WAY = (0, errno.EINPROGRESS, errno.EWOULDBLOCK, getattr(errno, "WSAEWOULDBLOCK", 0))

_CONNECTING, _SHAKING, _OPEN = range(3)


class Fault(Exception):
    """An error that the server answered; its first word is the kind."""

    @property
    def kind(self) -> str:
        return str(self).partition(" ")[0]


class Server:
    """Where one is. Raises OSError where its name is not known, ConfigError (78) where a file for
    TLS can't be read."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.endpoints = _look_up(address)
        self.context = _context(address) if address.tls is not None else None

    def connect(self) -> Wire:
        """A connection on its way. Raises OSError where that is refused at once."""
        return Wire(self)


class Wire:
    """`fd` and `wants_write` say what to wait for before the next `turn`; both may change by it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._left = list(server.endpoints)
        self._state = _CONNECTING
        self._shake_wants_write = False
        self._out = bytearray()
        self._in = bytearray()
        self._socket = self._begin()

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        if self._state == _SHAKING:
            return self._shake_wants_write
        return self._state == _CONNECTING or bool(self._out)

    def log_in(self) -> int:
        """Send what comes before all else; how many answers that gets."""
        address = self._server.address
        who = ("AUTH", address.user or "default", address.password) if address.password else ()
        self.send("HELLO", 3, *who, "SETNAME", "jobrun")
        if address.db:
            self.send("SELECT", address.db)
        return 2 if address.db else 1

    def send(self, *words: str | int) -> None:
        self._out += b"*%d\r\n" % len(words)
        for word in words:
            data = str(word).encode("utf-8", "surrogateescape")
            self._out += b"$%d\r\n%b\r\n" % (len(data), data)

    def turn(self) -> list[Reply]:
        """Do what can be done at once; the answers that are whole by now, a Fault among them.

        Raises OSError where the connection is over, or was not to be had.
        """
        if self._state == _CONNECTING:
            self._see_whether_connected()
        if self._state == _SHAKING:
            self._shake_hands()
        if self._state != _OPEN:
            return []
        self._write()
        ended = self._read()
        replies = list(self._replies())
        if ended and not replies:
            raise ConnectionResetError("the server closed the connection")
        return replies

    def wait(self, count: int, seconds: float) -> list[Reply]:
        """So many answers. Raises OSError, TimeoutError where they take longer."""
        deadline = time.monotonic() + seconds
        replies: list[Reply] = []
        while len(replies := replies + self.turn()) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer within {seconds:g} s")
            wait_for(self.fd, self.wants_write, left)
        return replies

    def close(self) -> None:
        """Our copy of the socket; who has another still holds it."""
        self._socket.close()

    # -- the way there ----------------------------------------------------------------------------

    def _begin(self) -> socket.socket:
        family, place = self._left.pop(0)
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            failed = made.connect_ex(place)
            if failed not in _ON_ITS_WAY:
                raise OSError(failed, os.strerror(failed))
        except OSError:
            made.close()
            if not self._left:
                raise
            return self._begin()
        return made

    def _see_whether_connected(self) -> None:
        failed = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            self._socket.close()
            if not self._left:
                raise OSError(failed, os.strerror(failed))
            self._socket = self._begin()
            return
        try:
            self._socket.getpeername()
        except OSError:
            return
        if self._socket.family != getattr(socket, "AF_UNIX", None):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._state = _OPEN
        if self._server.context is not None:
            self._state = _SHAKING
            self._socket = self._server.context.wrap_socket(
                self._socket,
                server_hostname=self._server.address.host,
                do_handshake_on_connect=False,
            )

    def _shake_hands(self) -> None:
        import ssl

        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            self._socket.do_handshake()
            self._state = _OPEN
        except ssl.SSLWantReadError:
            self._shake_wants_write = False
        except ssl.SSLWantWriteError:
            self._shake_wants_write = True

    # -- what goes and comes ----------------------------------------------------------------------

    def _write(self) -> None:
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except OSError as error:
            if not _is_later(error):
                raise

    def _read(self) -> bool:
        """All that is there; whether that was the end."""
        try:
            while len(self._in) < _LARGEST:
                data = self._socket.recv(_CHUNK)
                if not data:
                    return True
                self._in += data
        except OSError as error:
            if not _is_later(error):
                raise
        return False

    def _replies(self) -> list[Reply]:
        replies, at = [], 0
        try:
            while at < len(self._in):
                reply, at = _parsed(self._in, at)
                if not isinstance(reply, _Push):
                    replies.append(reply)
                elif reply[:1] == ["subscribe"]:  # the answer to SUBSCRIBE
                    replies.append(list(reply))
        except _Short:
            if len(self._in) >= _LARGEST:
                raise ConnectionError("an answer without an end: is it Redis?") from None
        except ValueError:
            said = bytes(self._in[at : at + 40])
            raise ConnectionError(f"an answer that is not Redis's: {said!r}") from None
        del self._in[:at]
        return replies


def wait_for(fd: int, wants_write: bool, seconds: float) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_WRITE if wants_write else selectors.EVENT_READ)
        selector.select(max(0.0, seconds))


def _look_up(address: Address) -> list[Endpoint]:
    if not address.port:
        if sys.platform == "win32":
            raise OSError("Python has no sockets of files on Windows")
        return [(socket.AF_UNIX, address.host)]
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError("no name that a host can have") from None
    return [(family, place) for family, _, _, _, place in found]


def _context(address: Address) -> SSLContext:
    import ssl

    given = address.tls or {}
    try:
        context = ssl.create_default_context(cafile=given.get("ssl_ca_certs"))
        if "ssl_certfile" in given:
            context.load_cert_chain(given["ssl_certfile"], given.get("ssl_keyfile"))
    except OSError as error:  # it does not tell of which
        files = ", ".join(f"{word}={given[word]}" for word in TLS_FILES if word in given)
        raise ConfigError(f"lock {address.name}: {files}: {error}", TLS_HINT) from error
    if given.get("ssl_cert_reqs") == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_later(error: OSError) -> bool:
    """Whether it says no more than: not now."""
    if isinstance(error, BlockingIOError):
        return True
    import ssl

    return isinstance(error, (ssl.SSLWantReadError, ssl.SSLWantWriteError))


# -- RESP3 ----------------------------------------------------------------------------------------


class _Short(Exception):
    """The rest of it has not come yet."""


class _Push(list[Any]):
    """What comes without having been asked for."""


def _parsed(data: bytearray, at: int) -> tuple[Reply, int]:
    """The value that begins there, and where the next one does. Raises ValueError, _Short."""
    end = data.find(b"\r\n", at)
    if end < 0:
        raise _Short
    kind, line, at = chr(data[at]), data[at + 1 : end].decode("utf-8", "surrogateescape"), end + 2
    if kind in "$=!" and int(line) >= 0:
        return _blob(data, at, kind, int(line))
    if kind in "*~>%|" and int(line) >= 0:
        return _many(data, at, kind, int(line))
    if kind in "$*_":
        return None, at
    if kind in ":(":
        return int(line), at
    if kind in "+,":
        return line, at
    if kind == "#":
        return line == "t", at
    if kind == "-":
        return Fault(line), at
    raise ValueError(kind)


def _blob(data: bytearray, at: int, kind: str, size: int) -> tuple[Reply, int]:
    if len(data) < at + size + 2:
        raise _Short
    text = data[at : at + size].decode("utf-8", "surrogateescape")
    return Fault(text) if kind == "!" else text, at + size + 2


def _many(data: bytearray, at: int, kind: str, count: int) -> tuple[Reply, int]:
    """A map is the list of its names and values; an attribute is about what follows it."""
    found = _Push() if kind == ">" else []
    for _ in range(count * 2 if kind in "%|" else count):
        value, at = _parsed(data, at)
        found.append(value)
    return _parsed(data, at) if kind == "|" else (found, at)
