"""The address of a server, as it may be shown and kept: without what is secret in it.

    scheme://[user[:password]@]host[:port][,host...][/path][?name=value&...]

Where a reserved character of a password is written as it is, each client finds another password in
the text: psql takes the first `@`, urllib the last. So such a text is refused, and nothing of it is
shown: what looks like the host may be the password's end.
"""

from __future__ import annotations

from jobrun.errors import UsageError

# libpq's of PostgreSQL 18. Of other parameters those are shown that are known to be no secret.
SECRET = frozenset(
    ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
)
_OF_LIBPQ = (
    "service servicefile user passfile channel_binding connect_timeout dbname host hostaddr port"
    " client_encoding options application_name fallback_application_name keepalives keepalives_idle"
    " keepalives_interval keepalives_count tcp_user_timeout ssl sslmode sslnegotiation"
    " sslcompression sslcert sslkey sslcertmode sslrootcert sslcrl sslcrldir sslsni sslkeylogfile"
    " requirepeer require_auth min_protocol_version max_protocol_version"
    " ssl_min_protocol_version ssl_max_protocol_version gssencmode krbsrvname gsslib gssdelegation"
    " replication target_session_attrs load_balance_hosts oauth_issuer oauth_client_id oauth_scope"
)
_OF_REDIS = "db username ssl_ca_certs ssl_certfile ssl_keyfile ssl_cert_reqs"
SHOWN = frozenset(f"{_OF_LIBPQ} {_OF_REDIS} namespace".split())

_NOTHING = "..."


def hidden(word: str) -> str:
    """A text for an address as it may be shown: without its secrets, one in doubt not at all.

    A path, or a word of ours, stays as it is. `--ledger=` may stand before it.
    """
    before, scheme, rest = _apart(word)
    is_option = before.startswith("--") and before.endswith("=")
    if is_askew(word) or (before and not is_option):
        return _NOTHING
    if not scheme:
        return word
    if _doubt(rest) is not None:
        return f"{before}{scheme}{_NOTHING}"
    user, at, host, tail = _parts(rest)
    path, _, query = tail.partition("?")
    shown = "&".join(part for part in query.split("&") if _name(part) in SHOWN)
    name = user.partition(":")[0]
    return f"{before}{scheme}{name}{at if name else ''}{host}{path}{'?' if shown else ''}{shown}"


def has_secret(address: str) -> bool:
    """Whether there is one in it; where that can't be told there is."""
    rest = _apart(address)[2]
    user, _, _, tail = _parts(rest)
    names = map(_name, tail.partition("?")[2].split("&"))
    return _doubt(rest) is not None or ":" in user or not SECRET.isdisjoint(names)


def check(option: str, address: str) -> None:
    """Raises UsageError, without the text, for one that may be read in two ways, or in none."""
    _, scheme, rest = _apart(address)
    found = _doubt(rest)
    if found is not None:
        right = "postgresql://user@host/database" if "postgres" in scheme else "redis://host:6379/0"
        raise UsageError(
            f"{option}: no address that can be read for certain ({found})",
            f"{right}; of a password / is written %2F, @ %40, : %3A, # %23, ? %3F, & %26, % %25,"
            " [ %5B, ] %5D, a blank %20",
        )


def is_askew(text: str) -> bool:
    """Whether a server is meant, in a way that we take none: `postgres:/db1`, `anna:secret@db1`,
    or libpq's other form, `host=db1 dbname=jobs`."""
    if "://" in text or text.startswith(("/", ".", "~")) or text[1:3] in (":\\", ":/"):
        return False
    small = text.lower().replace(" ", "")
    beginnings = ("postgres:", "postgresql:", "redis:", "rediss:", "host=", "dbname=", "service=")
    return small.startswith(beginnings) or "password=" in small or "@" in text.partition(":")[2]


def _apart(word: str) -> tuple[str, str, str]:
    """`--ledger=`, `postgresql://`, and the rest; the first two are empty where there is none."""
    if "://" not in word:
        return "", "", word
    import re

    found = re.search(r"[A-Za-z][A-Za-z0-9+.-]*://", word)
    if found is None:
        return "", "", word
    return word[: found.start()], found[0], word[found.end() :]


def _parts(rest: str) -> tuple[str, str, str, str]:
    """User and password, `@`, hosts, and what follows; without a user the first two are empty."""
    end = min((rest.index(mark) for mark in "/?#" if mark in rest), default=len(rest))
    return *rest[:end].rpartition("@"), rest[end:]


def _name(parameter: str) -> str:
    """As the client reads it."""
    from urllib.parse import unquote

    return unquote(parameter.partition("=")[0])


def _doubt(rest: str) -> str | None:
    """What keeps the text behind the scheme from being read in one way only."""
    import re

    user, _, hosts, tail = _parts(rest)
    path, _, query = tail.partition("?")
    parameters = [each for each in query.split("&") if each]
    strange = "".join(each for each in parameters if _name(each) not in SECRET | SHOWN)
    if not rest.isprintable() or " " in rest:
        return "a blank or a control character in it"
    if re.search(r"%(?![0-9A-Fa-f]{2})|%00", rest):
        return "a % in it without the two hex digits of a character"
    if "#" in rest:
        return "a # in it"
    if "@" in user or ("@" in path + strange and ":" in user + hosts) or _is_libpq_elsewhere(rest):
        return "an @ in it that is not the one before the host"
    if re.search(r"[\[\]]", user):
        return "a [ or ] in it that is not around the number of a host"
    if not all(map(_is_place, hosts.split(","))):
        return "no host and port where they should be"
    if not all("=" in each for each in parameters):
        return "a parameter behind its ? is no NAME=VALUE"
    return None


def _is_libpq_elsewhere(rest: str) -> bool:
    """libpq takes an `@` behind a `?` as well for the one before the host, if no `/` is before."""
    before, at, _ = rest.partition("/")[0].partition("@")
    return bool(at) and before != _parts(rest)[0]


def _is_place(host: str) -> bool:
    import re

    return re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*)(:\d*)?", host) is not None
