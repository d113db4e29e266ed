"""What PostgreSQL's errors mean for a ledger, in one line with a next step."""

from __future__ import annotations

import re

import psycopg

from jobrun.errors import (
    ConfigError,
    Contradiction,
    DamagedLedger,
    JobrunError,
    LedgerError,
    Refused,
    StoreDown,
)

_OTHER_TABLES = (
    "damaged, or another program has changed its tables",
    "put a copy back; jobrun doctor looks at all of it",
)

# By the code of an error, or by its class, the first two characters.
_MEANING: dict[str, tuple[type[JobrunError], str, str]] = {
    "55P03": (
        Refused,
        "busy for {patience:.0f} s, another call writes of the same job",
        "the next call tries again; SELECT * FROM pg_locks WHERE locktype = 'advisory'",
    ),
    "57014": (Refused, "a statement was cancelled", "statement_timeout of the role or database"),
    "25006": (
        LedgerError,
        "can't be written, the server is a standby or read-only",
        "the primary's address: postgresql://a,b/db?target_session_attrs=read-write",
    ),
    "42501": (LedgerError, "the role may not do that", "{rights}"),
    "23": (
        Contradiction,
        "damaged, what it holds and what is to be written contradict each other",
        "jobrun doctor looks at all of it",
    ),
    "22P05": (
        ConfigError,
        "its database has no such character",
        "another database: createdb --encoding UTF8 --template template0",
    ),
    "42P01": (DamagedLedger, *_OTHER_TABLES),
    "42703": (DamagedLedger, *_OTHER_TABLES),
    "53": (Refused, "the server has no room left", "its disk, memory or max_connections"),
    "40": (Refused, "others write at the same moment", "the next call tries again"),
}
_GONE = ("08", "57P", "25P03", "25P04")
_TIMED_OUT = ("25P03", "25P04", "57P05")  # the server is there, and has ended the session
# Where no connection is made there is a text and no code; libpq's is English, whatever the system's
# language is. A server of another language is taken to be out of reach, with what it says.
_LIBPQ_PAGE = "https://www.postgresql.org/docs/current/libpq-connect.html says what it may be"
_NO_OTHER_TRY_MENDS = tuple(
    (re.compile(said), hint)
    for said, hint in (
        (
            'FATAL: +(database "" does not exist|no such database)',
            "createdb, or another --ledger",
        ),
        (
            "authentication failed|no password supplied|no pg_hba.conf entry|pg_hba.conf rejects"
            "|is not permitted to log in|permission denied for database|FATAL: +role "
            "|FATAL: +no such user|requirepeer|channel binding required|authentication method requ",
            "psql with the same address; a password belongs into ~/.pgpass",
        ),
        (
            "certificate|private key|alert unknown ca|SSL (was |connection is )?required"
            "|does not support SSL|not compiled in|weak sslmode|GSSAPI encryption required",
            "sslrootcert= is a file of whoever the server's certificate is from, sslcert= and"
            " sslkey= are ours; psql takes the same address",
        ),
        (
            "service file|service specification|definition of service",
            "a [NAME] in ~/.pg_service.conf, or in the file that $PGSERVICEFILE names",
        ),
        (
            "unsupported startup parameter",
            "an address without options=, or ignore_startup_parameters = options of the pooler",
        ),
        (
            "local user with ID",
            "postgresql://user@host/database: who calls has no name on this system",
        ),
        (
            "invalid command-line argument|requires a value|configuration parameter"
            "|value for parameter|FATAL: +parameter .* cannot be changed|denied to set parameter",
            "?options=-csearch_path%3Djobrun sets what the server has for a session, see SHOW ALL",
        ),
        (
            "session is not read-only|not in hot standby mode",
            "target_session_attrs=read-write: a ledger is written",
        ),
        (
            r"invalid \S+ value|invalid integer|invalid port|invalid S\S+ |could not match"
            r"|could not parse network address|path .* too long|setsockopt\(\w+\) failed: Invalid"
            "|is greater than",
            _LIBPQ_PAGE,
        ),
    )
)
_NAMES = re.compile(r"\"[^\"]*\"|\bhost:? '[^']*'")  # a host may be called certificate.example
_WORDS = {
    "channel_binding": "disable, prefer or require",
    "gssencmode": "disable, prefer or require",
    "load_balance_hosts": "disable or random",
    "sslcertmode": "disable, allow or require",
    "sslmode": "disable, allow, prefer, require, verify-ca or verify-full",
    "sslnegotiation": "postgres or direct",
    "target_session_attrs": "read-write",
}


def explained(error: psycopg.Error, address: str, patience: float, rights: str) -> Exception:
    """The error of ours that says what PostgreSQL means; a bug of ours stays what it is.

    `patience`: seconds that were waited for others. `rights`: what grants the role all of them.
    """
    said = str(error).strip().partition("\n")[0]
    code = error.sqlstate or ""
    if code in _TIMED_OUT:
        return StoreDown(
            f"ledger {address}: the server has ended the session ({said}, {code})",
            "a timeout of the role or the database (SHOW ALL); or this process was stopped",
        )
    if is_gone(error):
        return gone(address, said)
    kind, rule, hint = _MEANING.get(code) or _MEANING.get(code[:2]) or (None, "", "")
    if kind is None:
        return error
    rule = rule.format(patience=patience)
    return kind(f"ledger {address}: {rule} ({said}, {code})", hint.format(rights=rights))


def not_connected(error: psycopg.Error, address: str) -> JobrunError:
    """Of a connection that could not be made: what another try can't mend, or StoreDown."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:  # of an address with several hosts each has its own
        without_names = _NAMES.sub('""', line)
        for said, hint in _NO_OTHER_TRY_MENDS:
            if said.search(without_names):
                return ConfigError(f"ledger {address}: {line}", _what_is_right(line) or hint)
    return gone(address, "; ".join(lines[:3]))


def _what_is_right(said: str) -> str | None:
    """Where libpq has a closed set of words."""
    wrong = re.search(r'invalid "?(\w+)"? value', said)
    if wrong is None or wrong[1] not in _WORDS:
        return None
    return f"{wrong[1]}: {_WORDS[wrong[1]]}"


def gone(address: str, said: str) -> StoreDown:
    return StoreDown(
        f"ledger {address}: out of reach ({said})",
        "psql with the same address says whether it is the server, the network or the role",
    )


def standby(address: str) -> ConfigError:
    return ConfigError(
        f"ledger {address}: a standby, where nothing can be written",
        "the primary's address: postgresql://a,b/db?target_session_attrs=read-write",
    )


def no_schema(address: str) -> ConfigError:
    """The search path of the role leads nowhere."""
    return ConfigError(
        f"ledger {address}: no schema for its tables (current_schema() is NULL: none of the search"
        " path is there, or the role may not use it)",
        "--namespace jobrun makes one; or CREATE SCHEMA, GRANT USAGE, ALTER ROLE SET search_path",
    )


def is_gone(error: psycopg.Error) -> bool:
    """Whether the connection is: not made, cut, or ended by the server."""
    code = error.sqlstate or ""
    return code.startswith(_GONE) or (not code and isinstance(error, psycopg.OperationalError))
