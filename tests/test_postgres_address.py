"""What is wrong with the address of a PostgreSQL ledger: told at once, no outage to wait for."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from jobrun.errors import ConfigError, StoreDown, UsageError
from jobrun.ledger_postgres import open_ledger
from jobrun.postgres_errors import not_connected
from tests import servers
from tests.conftest import PYTHON, Jobrun, is_alive, until
from tests.cut import cable
from tests.scenes import posix

pytestmark = posix

RUN = ("run", "sales", "--every", "1h", "--on-store-down", "run", "--", "echo", "ran")
NOW = "2026-09-04T12:05Z"
PAGE = "libpq-connect.html"
# The first line that matches counts: whoever has no password is nobody the rest holds for.
RULES = """\
host all jr_secret all scram-sha-256
host all jr_rejected all reject
"""


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Postgres]:
    """One whose roles are not all let in, and that tests may stop."""
    with servers.own_postgres() as made:
        rules = made.data / "pg_hba.conf"
        rules.write_text(RULES + rules.read_text())
        query(
            made.address,
            "SELECT pg_reload_conf()",
            "CREATE ROLE jr_secret LOGIN PASSWORD 'right'",
            "CREATE ROLE jr_rejected LOGIN",
            "CREATE ROLE jr_away NOLOGIN",
            "CREATE ROLE jr_crowd LOGIN CONNECTION LIMIT 0",
            "CREATE ROLE jr_out LOGIN",
            "CREATE DATABASE private",
            "REVOKE CONNECT ON DATABASE private FROM public",
            "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
            "CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0",
        )
        yield made


def query(address: str, *statements: str) -> None:
    with closing(psycopg.connect(address, autocommit=True)) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.mark.parametrize(
    ("words", "said", "right"),
    [
        ("service=nope", 'service "nope" not found', "~/.pg_service.conf"),
        ("port=99999", 'port "99999"', "from 1 to 65535"),
        ("port=abc", 'port "abc"', "from 1 to 65535"),
        ("port=0", 'port "0"', "from 1 to 65535"),
        ("host=a,b&port=1,2,3", "could not match 3 port numbers to 2 hosts", PAGE),
        ("hostaddr=nowhere", 'network address "nowhere"', PAGE),
        ("connect_timeout=abc", 'connect_timeout "abc"', "whole number"),
        ("connect_timeout=", 'connect_timeout ""', "whole number"),
        ("connect_timeout=1e9", 'connect_timeout "1e9"', "whole number"),
        ("keepalives=abc", 'keepalives "abc"', "whole number"),
        ("keepalives_idle=5s", 'keepalives_idle "5s"', "whole number"),
        ("keepalives_idle=99999999", "TCP_KEEPIDLE", PAGE),
        ("keepalives_count=99999999999", 'keepalives_count "99999999999"', "up to 2147483647"),
        ("tcp_user_timeout=abc", 'tcp_user_timeout "abc"', "whole number"),
        ("sslmode=foo", 'sslmode value: "foo"', "verify-ca or verify-full"),
        ("sslmode=require", "does not support SSL", "psql takes the same address"),
        ("sslnegotiation=direct", "weak sslmode", "psql takes the same address"),
        ("sslcertmode=foo", 'sslcertmode value: "foo"', "disable, allow or require"),
        ("ssl_min_protocol_version=foo", 'value: "foo"', PAGE),
        ("gssencmode=foo", 'gssencmode value: "foo"', "disable, prefer or require"),
        ("channel_binding=foo", 'channel_binding value: "foo"', "disable, prefer or require"),
        ("channel_binding=require", "channel binding required", "psql with the same address"),
        ("require_auth=foo", 'require_auth value: "foo"', PAGE),
        ("require_auth=scram-sha-256", "authentication method", "psql with the same address"),
        ("load_balance_hosts=foo", 'load_balance_hosts value: "foo"', "disable or random"),
        ("target_session_attrs=foo", 'attrs value: "foo"', "read-write"),
        ("target_session_attrs=read-only", "session is not read-only", "read-write"),
        ("target_session_attrs=standby", "not in hot standby mode", "read-write"),
        ("options=-x", "invalid command-line argument", "?options=-c"),
        ("options=-csearch_path", "-c search_path requires a value", "?options=-c"),
        ("options=-cnope%3D1", 'unrecognized configuration parameter "nope"', "?options=-c"),
        ("options=-clock_timeout%3Dx", 'value for parameter "lock_timeout"', "?options=-c"),
        ("options=-cmax_connections%3D5", "cannot be changed", "?options=-c"),
        ("options=-crole%3Dnope", 'role "nope" does not exist', "psql with the same address"),
        ("user=jr_secret", "no password supplied", "~/.pgpass"),
        ("user=jr_secret&password=wrong", "password authentication failed", "~/.pgpass"),
        ("user=jr_rejected", "pg_hba.conf rejects connection", "psql with the same address"),
        ("user=jr_away", "not permitted to log in", "psql with the same address"),
        ("user=jr_out&dbname=private", "permission denied for database", "psql with the"),
        ("user=nobody9", 'role "nobody9" does not exist', "psql with the same address"),
        ("dbname=nope", 'database "nope" does not exist', "createdb"),
    ],
)
def test_a_mistake_is_no_outage(
    server: servers.Postgres, words: str, said: str, right: str
) -> None:
    """78: what is wrong, and what would be right."""
    with pytest.raises(ConfigError) as caught:
        open_ledger(f"{server.address}?{words}")
    assert said in caught.value.message
    assert "out of reach" not in caught.value.message
    assert right in f"{caught.value.message} {caught.value.hint}"
    assert "wrong" not in caught.value.message


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("connection is bad: local user with ID 12345 does not exist", "postgresql://user@host"),
        ("FATAL:  SSL connection is required. Please specify SSL options.", "sslcert="),
        ("FATAL:  SSL required", "sslcert="),
        ("SSL error: tlsv1 alert unknown ca", "sslcert="),
        ('"min_protocol_version" is greater than "max_protocol_version"', PAGE),
    ],
)
def test_a_mistake_that_no_server_here_tells(said: str, right: str) -> None:
    """Of a user without a name, and of servers in a cloud."""
    error = not_connected(psycopg.OperationalError(f"connection failed: {said}"), "db1")
    assert isinstance(error, ConfigError), error
    assert right in (error.hint or "")


def test_what_a_pooler_does_not_take(server: servers.Postgres) -> None:
    """78, with the pooler's setting."""
    with servers.pgbouncer(server.address, pool_mode="transaction") as address:
        open_ledger(address).close()
        with pytest.raises(ConfigError, match="unsupported startup parameter") as caught:
            open_ledger(f"{address}?options=-cidle_session_timeout%3D5000")
        assert "ignore_startup_parameters" in (caught.value.hint or "")


@pytest.mark.parametrize("words", ["service=nope", "sslmode=foo", "connect_timeout=abc"])
@pytest.mark.parametrize("verb", [RUN, ("status",), ("doctor",)])
def test_a_mistake_from_outside(
    jobrun: Jobrun, server: servers.Postgres, verb: tuple[str, ...], words: str
) -> None:
    """Nothing runs without a record for it, and every command says it alike."""
    jobrun.environment |= {
        "JOBRUN_LEDGER": f"{server.address}?{words}",
        "JOBRUN_HOME": str(jobrun.folder),
    }
    found = jobrun(*verb, now=NOW)
    told = found.stdout if verb == ("doctor",) else found.stderr
    assert (found.status, "ran" in found.stdout) == (1 if verb == ("doctor",) else 78, False)
    assert words.partition("=")[0] in told
    assert "Traceback" not in found.stderr
    assert "reason=store-down" not in found.stderr


def test_an_address_that_is_no_text(jobrun: Jobrun) -> None:
    """2: it came from a file of another encoding."""
    found = jobrun("run", "sales", "--ledger", "postgresql://db1/caf\udce9", "--", "true")
    assert (found.status, "no address" in found.stderr) == (2, True), found


def test_a_mistake_in_the_environment(jobrun: Jobrun, postgres: str) -> None:
    """libpq reads that, too: 78 alike."""
    place = postgres.rpartition("@")[2].partition(":")[0]
    jobrun.environment |= {
        "JOBRUN_LEDGER": f"postgresql://postgres@{place}/postgres",
        "JOBRUN_HOME": str(jobrun.folder),
    }
    for name, value in (("PGPORT", "abc"), ("PGSSLMODE", "foo")):
        found = jobrun(*RUN, now=NOW, env={name: value})
        assert (found.status, f'"{value}"' in found.stderr) == (78, True), found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("user=jr_crowd", "too many connections for role"),
        ("port=1", "Connection refused"),
        ("host=/nowhere", "No such file or directory"),
        ("host=/certificate", "No such file or directory"),
        ("host=certificate.invalid", "certificate.invalid"),
        ("host=no-such-host.invalid", "no-such-host.invalid"),
    ],
)
def test_what_another_try_may_mend(server: servers.Postgres, words: str, said: str) -> None:
    """75: it may have room, be there, or be known, at the next call."""
    with pytest.raises(StoreDown, match="out of reach") as caught:
        open_ledger(f"{server.address}?{words}")
    assert said in caught.value.message


def test_a_server_that_shuts_down(server: servers.Postgres) -> None:
    """75 as well: it answers, and will be back."""
    number = server.pid
    with closing(psycopg.connect(server.address)):  # for which it waits
        os.kill(number, signal.SIGTERM)
        until(lambda: "shutting down" in why_not(server.address), "the end of its welcome")
    until(lambda: not is_alive(number), "the end of the server")
    server.start()


def why_not(address: str) -> str:
    """Why it is out of reach; nothing where it is not."""
    try:
        open_ledger(address).close()
    except StoreDown as error:
        return error.message
    return ""


def test_who_is_no_longer_let_in_after_a_run(server: servers.Postgres) -> None:
    """The address was right when the call began: its run is still to be put on record, 75."""
    query(server.address, "CREATE SCHEMA jr_leaver", "CREATE ROLE jr_leaver LOGIN")
    query(server.address, "GRANT ALL ON SCHEMA jr_leaver TO jr_leaver")
    address = server.address.replace("postgres@", "jr_leaver@")
    with closing(open_ledger(address)) as ledger:
        query(
            server.address,
            "ALTER ROLE jr_leaver NOLOGIN",
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE usename = 'jr_leaver'",
        )
        for said in ("out of reach", "not permitted to log in"):
            with pytest.raises(StoreDown, match=said):
                ledger.jobs()
        query(server.address, "ALTER ROLE jr_leaver LOGIN")
        assert ledger.jobs() == []


def test_files_of_certificates(server: servers.Postgres, tmp_path: Path) -> None:
    """One that is not there, is none, or is another's: 78; over a cable that speaks TLS."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    for name in ("server", "other"):
        subprocess.run(
            ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:prime256v1", "-keyout", tmp_path / f"{name}.key",
             "-out", tmp_path / f"{name}.pem", "-subj", f"/CN={name}"],
            check=True, capture_output=True,
        )  # fmt: skip
    (tmp_path / "none.pem").write_text("not one\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    context.set_alpn_protocols(["postgresql"])
    with cable(server.address, context) as (_, near):
        checked = f"{near}?sslnegotiation=direct&sslmode=verify-ca&sslrootcert={tmp_path}"
        open_ledger(f"{checked}/server.pem").close()
        for words in (
            "/missing.pem", "/none.pem", "/other.pem", "/server.pem&sslmode=verify-full",
            f"/server.pem&sslcert={tmp_path}/other.pem&sslkey={tmp_path}/missing.key",
            f"/server.pem&sslcert={tmp_path}/none.pem&sslkey={tmp_path}/other.key",
        ):  # fmt: skip
            with pytest.raises(ConfigError, match=r"certificate|private key") as caught:
                open_ledger(f"{checked}{words}")
            assert "sslrootcert=" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://anna:hu%zzsh@db1/x", "postgresql://anna:hush@[db1/x",
        "postgresql://anna:hu sh@db1/x",
    ],
)  # fmt: skip
def test_what_is_no_address_does_not_tell_its_password(address: str) -> None:
    """2; libpq says it word for word."""
    with pytest.raises(UsageError, match="no address") as caught:
        open_ledger(address)
    told = f"{caught.value.message} {caught.value.hint}"
    assert not [part for part in ("hu%zz", "hush", "hu sh") if part in told]


@pytest.mark.parametrize(
    "address", ["postgresql://anna:hu@sh@db1/x", "postgresql://anna:9/h@db1/x"]
)
def test_a_password_that_is_not_written_as_one(address: str) -> None:
    """2, with how: libpq would take a part of it for the server's name."""
    with pytest.raises(UsageError, match="an @ in it") as caught:
        open_ledger(address)
    assert "%40" in (caught.value.hint or "")


@pytest.mark.parametrize("database", ["postgres?client_encoding=latin1", "bytes", "latin"])
def test_names_in_any_script(jobrun: Jobrun, server: servers.Postgres, database: str) -> None:
    """Whatever the address and the database have for their text; what a database can't hold is
    said (78)."""
    address = server.address.removesuffix("postgres") + database
    jobrun.environment |= {"JOBRUN_LEDGER": address, "JOBRUN_HOME": str(jobrun.folder)}
    found = jobrun("run", "işlem", "--", "true")
    if database == "latin":
        assert (found.status, "createdb --encoding UTF8" in found.stderr) == (78, True), found
    else:
        assert (found.status, "işlem" in jobrun("status").stdout) == (0, True), found


WITHOUT_LIBPQ = """
import ctypes.util, sys
sys.modules["psycopg_c"] = sys.modules["psycopg_binary"] = None
ctypes.util.find_library = lambda name: None
from jobrun.__main__ import script; script()
"""


@pytest.mark.parametrize(("verb", "status"), [(RUN, 78), (("status",), 78), (("doctor",), 1)])
def test_psycopg_without_libpq(on_postgres: Jobrun, verb: tuple[str, ...], status: int) -> None:
    """78, and what to install."""
    done = subprocess.run(
        [PYTHON, "-c", WITHOUT_LIBPQ, *verb],
        env=on_postgres.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done
    told = done.stdout + done.stderr
    assert "psycopg finds no libpq" in told
    assert "pip install 'psycopg[binary]'" in told
    assert "Traceback" not in told
