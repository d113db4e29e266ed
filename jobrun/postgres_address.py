"""The address of a PostgreSQL server as libpq takes it, and what is wrong with it by itself.

libpq finds some mistakes only once a server has answered, and psycopg looks names up first. A call
must not take its own mistake for a server that is out of reach, and wait for it.
"""

from __future__ import annotations

import os
import re

import psycopg
from psycopg.conninfo import conninfo_to_dict

from jobrun.address import check, has_secret
from jobrun.errors import ConfigError, UsageError

Options = dict[str, str | int | None]

_DEFAULTS: Options = {
    "connect_timeout": "5",
    "application_name": "jobrun",
    # A server that has gone without a word is noticed after 11 seconds.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "9000",
}
# Whatever the address, the service or the database says.
_OURS: Options = {"client_encoding": "utf8", "replication": None}
_NUMBERS = (
    "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
    "tcp_user_timeout",
)  # fmt: skip
_LARGEST = 2**31 - 1
_LARGEST_PORT = 65_535


def read(address: str, name: str) -> Options:
    """What to connect with. `name` is the address as a person may read it.

    Raises UsageError (2) for what is no address, ConfigError (78) for one that leads nowhere.
    """
    check("--ledger", address)
    try:
        given = conninfo_to_dict(address)
    except (psycopg.ProgrammingError, UnicodeEncodeError) as error:
        # It may be a part of a password that libpq takes for the name of a parameter.
        said = "" if has_secret(address) else f" ({str(error).strip()})"
        raise UsageError(
            f"--ledger {name}: no address of PostgreSQL{said}",
            "--ledger postgresql://user@host/database?NAME=VALUE, with names that libpq knows",
        ) from None
    options = {**_DEFAULTS, **given, **_OURS}
    for word in _NUMBERS:
        if not _is_number(text := str(options.get(word, 0)), -_LARGEST, _LARGEST):
            raise _no_number(name, word, text, f"a whole number up to {_LARGEST}")
    for port in str(given.get("port") or os.environ.get("PGPORT", "")).split(","):
        if port and not _is_number(port, 1, _LARGEST_PORT):
            raise _no_number(name, "port", port, f"a number from 1 to {_LARGEST_PORT}")
    return options


def _is_number(text: str, least: int, largest: int) -> bool:
    digits = re.fullmatch(r"\s*[+-]?[0-9]{1,10}\s*", text)
    return digits is not None and least <= int(text) <= largest


def _no_number(name: str, word: str, text: str, rule: str) -> ConfigError:
    return ConfigError(
        f'ledger {name}: {word} "{text}": {rule}',
        "postgresql://user@host:5432/database?connect_timeout=5",
    )
