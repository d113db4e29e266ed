"""The address of a Redis or Valkey server, in the words that redis-cli and redis-py have for it.

    redis://[user[:password]@]host[:port][/db]      rediss:// is the same over TLS
    unix://[user[:password]@]/path/of/socket[?db=0]

Behind a `?`: db, username, password, and with rediss:// ssl_ca_certs, ssl_certfile, ssl_keyfile
(paths) and ssl_cert_reqs=none, which checks no certificate. Without a password there (on record
none has one) it is that of $JOBRUN_LOCK, where the two are the same but for that; else
$REDISCLI_AUTH, redis-cli's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from jobrun.address import check, has_secret, hidden
from jobrun.errors import UsageError
from jobrun.value import NamedTuple

SCHEMES = ("redis://", "rediss://", "unix://")
PORT = 6379
_WORDS = frozenset(("db", "username", "password"))
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS_WORDS = frozenset((*TLS_FILES, "ssl_cert_reqs"))


class Address(NamedTuple):
    name: str  # as a person calls it: without its password
    host: str  # or the path of a socket
    port: int  # 0: it is a socket's
    db: int
    user: str
    password: str
    tls: Mapping[str, str] | None  # with which settings; None: without

    @property
    def place(self) -> tuple[str, int, int]:
        """Whoever logs in there, and however, meets the same locks."""
        return self.host, self.port, self.db


def read(text: str, environ: Mapping[str, str]) -> Address:
    """Raises UsageError, which does not tell the password either."""
    address = _read(text)
    return address if address.password else address._replace(password=_secret(address, environ))


def _secret(address: Address, environ: Mapping[str, str]) -> str:
    with suppress(UsageError):  # it is not what is asked for
        own = _read(environ.get("JOBRUN_LOCK", ""))
        if own.password and own._replace(password="") == address:
            return own.password
    return environ.get("REDISCLI_AUTH", "")


def _read(text: str) -> Address:
    check("--lock", text)
    try:
        found = urlsplit(text)
        port = found.port or PORT
    except ValueError:  # it would tell of what
        raise _wrong(text, "no host and port where they should be") from None
    words = dict(parse_qsl(found.query, keep_blank_values=True))
    known = _WORDS | _TLS_WORDS if found.scheme == "rediss" else _WORDS
    for word in words.keys() - known:
        unknown = "a parameter" if has_secret(text) else f'"{word}"'
        raise _wrong(text, f"{unknown} is not known there; {', '.join(sorted(known))} are")
    if words.get("ssl_cert_reqs", "required") not in ("required", "none"):
        raise _wrong(text, "ssl_cert_reqs is required or none")
    host, db = _place(text, found, words)
    if not db.isdecimal():
        raise _wrong(text, f'"{db}" is no number of a database')
    tls = {word: value for word, value in words.items() if word in _TLS_WORDS}
    return Address(
        name=_shown(found, host, port, db),
        host=host,
        port=0 if found.scheme == "unix" else port,
        db=int(db),
        user=words.get("username") or unquote(found.username or ""),
        password=words.get("password") or unquote(found.password or ""),
        tls=tls if found.scheme == "rediss" else None,
    )


def _place(text: str, found: SplitResult, words: Mapping[str, str]) -> tuple[str, str]:
    """Host or path, and the database."""
    if found.scheme == "unix":
        path = unquote(found.path)
        if found.hostname or len(path) < 2:
            raise _wrong(text, "three slashes before the path of a socket")
        return path, words.get("db", "0")
    if found.scheme not in ("redis", "rediss"):
        raise _wrong(text, "it begins with redis://, rediss:// or unix://")
    if not found.hostname:
        raise _wrong(text, "there is no host in it")
    return found.hostname, words.get("db") or unquote(found.path).strip("/") or "0"


def _shown(found: SplitResult, host: str, port: int, db: str) -> str:
    user = f"{found.username}@" if found.username else ""
    if found.scheme == "unix":
        return f"unix://{user}{host}?db={int(db)}"
    where = f"[{host}]" if ":" in host else host
    return f"{found.scheme}://{user}{where}:{port}/{int(db)}"


def _wrong(text: str, rule: str) -> UsageError:
    return UsageError(
        f'--lock "{hidden(text)}": {rule}',
        "--lock redis://host:6379/0, --lock rediss://host/0, --lock unix:///run/redis/redis.sock",
    )
