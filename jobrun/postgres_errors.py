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
    "42501": (
        LedgerError,
        "the role may not do that",
        "GRANT it what jobrun's tables want, or make a schema for it: CREATE SCHEMA jobrun",
    ),
    "23": (
        Contradiction,
        "damaged, what it holds and what is to be written contradict each other",
        "jobrun doctor looks at all of it",
    ),
    "42P01": (DamagedLedger, *_OTHER_TABLES),
    "42703": (DamagedLedger, *_OTHER_TABLES),
    "53": (Refused, "the server has no room left", "its disk, memory or max_connections"),
    "40": (Refused, "others write at the same moment", "the next call tries again"),
}
_GONE = ("08", "57P", "25P03", "25P04")
_TIMED_OUT = ("25P03", "25P04", "57P05")  # the server is there, and has ended the session
# Where no connection is made there is a text and no code. A server of another language is taken to
# be out of reach, with what it says.
_NOT_LET_IN = (
    "authentication failed", "no password supplied", "no pg_hba.conf entry", "pg_hba.conf rejects",
    "is not permitted to log in", "permission denied for database", "FATAL:  role ",
    "FATAL:  no such user", "certificate", "SSL was required", "does not support SSL",
)  # fmt: skip
_NO_DATABASE = re.compile(r'FATAL: +(database ".*" does not exist|no such database)')


def explained(error: psycopg.Error, address: str, patience: float) -> Exception:
    """The error of ours that says what PostgreSQL means; a bug of ours stays what it is."""
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
    return kind(f"ledger {address}: {rule.format(patience=patience)} ({said}, {code})", hint)


def not_connected(error: psycopg.Error, address: str) -> JobrunError:
    """Of a connection that could not be made: what another try can't mend, or StoreDown."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:  # of an address with several hosts each has its own
        if _NO_DATABASE.search(line):
            return ConfigError(f"ledger {address}: {line}", "createdb, or another --ledger")
        if any(words in line for words in _NOT_LET_IN):
            hint = "psql with the same address; a password belongs into ~/.pgpass"
            return ConfigError(f"ledger {address}: {line}", hint)
    return gone(address, "; ".join(lines[:3]))


def gone(address: str, said: str) -> StoreDown:
    return StoreDown(
        f"ledger {address}: out of reach ({said})",
        "psql with the same address says whether it is the server, the network or the role",
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
