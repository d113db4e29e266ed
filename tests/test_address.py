"""No address is told with its password: whatever is in it, wherever it stands."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

if sys.platform == "win32":
    pytest.skip("calls are forks of the test", allow_module_level=True)

from jobrun import address, places, redis_address
from jobrun.errors import UsageError
from tests import forked, servers
from tests.conftest import clean_environment
from tests.fuzzed import NOW, QUICK

psycopg = pytest.importorskip("psycopg", reason=servers.INSTALL)

from psycopg.conninfo import conninfo_to_dict  # noqa: E402
from psycopg.pq import Conninfo  # noqa: E402

# -- what is shown --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://db1/ledger", "postgresql://db1/ledger"),
        ("postgresql://anna:p%40s@db1:5433/ledger", "postgresql://anna@db1:5433/ledger"),
        ("postgresql://:secret@db1/", "postgresql://db1/"),
        ("postgresql://anna:a:b,c'd&e=f@[::1]:1,db2/x", "postgresql://anna@[::1]:1,db2/x"),
        ("postgresql:///x?user=anna&password=s&host=/run", "postgresql:///x?user=anna&host=/run"),
        ("postgresql:///x?pass%77ord=s&sslmode=require", "postgresql:///x?sslmode=require"),
        ("postgresql:///x?oauth_client_secret=s&sslpassword=s&passfile=p",
         "postgresql:///x?passfile=p"),
        ("postgresql:///x?passwd=s&Password=s", "postgresql:///x"),
        ("postgresql://db1:1/x?user=anna@corp", "postgresql://db1:1/x?user=anna@corp"),
        ("postgresql://anna:s@db1?user=anna@corp", "postgresql://anna@db1?user=anna@corp"),
        ("postgresql://a,b:5433/x", "postgresql://a,b:5433/x"),
        ("postgresql://a/x?namespace=staging", "postgresql://a/x?namespace=staging"),
        ("redis://u:s@h:1/2?password=s&db=3", "redis://u@h:1/2?db=3"),
        ("--ledger=postgresql://anna:s@db1/x", "--ledger=postgresql://anna@db1/x"),
        ("postgresql://anna:s/s@db1/x", "postgresql://..."),
        ("postgresql://anna:s@s@db1/x", "postgresql://..."),
        ("host=db1 password = s", "..."), ("dbname=jobs host=db1", "..."),
        ("postgres:/anna:s@db1/x", "..."), ("anna:s@db1", "..."),
        ("/srv/a:b@c.db", "/srv/a:b@c.db"), ("C:\\jobs\\jobrun.db", "C:\\jobs\\jobrun.db"),
    ],
)  # fmt: skip
def test_an_address_is_shown_without_what_is_secret(text: str, shown: str) -> None:
    """It stands in every screen and many lines; a path is shown as it is."""
    assert address.hidden(text) == shown


def test_each_parameter_of_libpq_is_known() -> None:
    """What libpq itself hides, and the keys that let in as a password does, are the secret ones."""
    options = {each.keyword.decode(): each.dispchar for each in Conninfo.get_defaults()}
    keys = {"scram_client_key", "scram_server_key"}
    secret = {name for name, how in options.items() if how == b"*"} | keys & options.keys()
    assert secret <= address.SECRET
    assert options.keys() - secret <= address.SHOWN
    assert not address.SHOWN & address.SECRET


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:s3/cr@h/db", "postgresql://u:s3@cr@h/db", "postgresql://u:s3#cr@h/db",
        "postgresql://u:s3?cr@h/db", "postgresql://u:s3[cr@h/db", "postgresql://u:s3 cr@h/db",
        "postgresql://u:s3%zz@h/db", "postgresql://u:s3%00@h/db", "postgresql://u:s3cr/db",
        "postgresql://h/db?password=s3&cr", "postgresql://u:s3\ncr@h/db",
        "postgresql://h?password=s3@cr", "postgresql://h:1?user=a@cr@b&password=s3",
        "postgresql://h?user=a@b&password=s3", "postgresql://u:1?user=s3@h/db",
        "redis://u:s3/cr@h/0", "redis://u:s3@cr@h/0", "redis://:s3#cr@h/0", "redis://:s3cr",
        "unix://:s3/cr@/run/redis.sock", "redis://h/0?password=s3#cr",
    ],
)  # fmt: skip
def test_one_in_doubt_is_refused_and_not_shown(text: str) -> None:
    """2: what is wrong, and how a password is written; nothing of the address."""
    for option in ("--ledger", "JOBRUN_LEDGER"):
        with pytest.raises(UsageError, match=f"{option}: no address that can be read") as raised:
            address.check(option, text)
        told = f"{raised.value.message} {raised.value.hint}"
        assert "/ is written %2F" in told
        assert "s3" not in told
        assert "cr@" not in told


@pytest.mark.parametrize("text", ["host=db1 dbname=jobs", "dbname = jobs", "service=jobs"])
def test_what_psql_takes_besides_is_no_file(text: str, tmp_path: Path) -> None:
    """2: a ledger of that name here would be another on each machine."""
    with pytest.raises(UsageError, match="neither a path of a file nor an address"):
        places.ledger_path(text, {})
    assert places.ledger_path(f"{tmp_path}/{text}", {}).endswith(text)


@pytest.mark.parametrize(
    ("text", "said", "right"),
    [
        ("postgresql://u:p[q@h/db", "a [ or ] in it", "[ %5B"),
        ("postgresql://u:p]q@h/db", "a [ or ] in it", "] %5D"),
        ("postgresql://u:p q@h/db", "a blank", "a blank %20"),
        ("postgresql://u@[::1/db", "no host and port", "postgresql://user@host/database"),
    ],
)
def test_how_it_is_written_instead(text: str, said: str, right: str) -> None:
    """Of that very character."""
    with pytest.raises(UsageError, match=re.escape(said)) as raised:
        address.check("--ledger", text)
    assert right in (raised.value.hint or "")


PASSWORDS = st.text(
    st.one_of(
        st.sampled_from("/@#?&=:%[]+,;'\"\\ \t\n"),
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    ),
    min_size=1,
    max_size=8,
)
PLACES = (
    "postgresql://anna:{}@db1/jobs", "postgresql://:{}@db1:1,db2:2/jobs?sslmode=require",
    "postgresql://db1/jobs?password={}", "postgresql:///jobs?password={}&user=anna",
    "postgresql://anna:{}@/jobs?namespace=staging&host=/run",
    "postgresql://db1/jobs?pass%77ord={}&port=1", "postgresql://db1:1?user=anna&password={}",
    "redis://anna:{}@db1/0", "redis://:{}@db1:1", "redis://db1/0?password={}&db=1",
    "rediss://anna:{}@db1/0?ssl_cert_reqs=none", "unix://:{}@/run/r.sock?db=1",
)  # fmt: skip


@QUICK
@given(st.sampled_from(PLACES), PASSWORDS)
def test_what_is_not_refused_is_read_as_it_was_meant(form: str, password: str) -> None:
    """By its client, so that what is hidden is all of it; written percent-encoded none is refused.

    But for what nobody can tell from another parameter.
    """
    text = form.format(quote(password, safe=""))
    assert address.hidden(text) == address.hidden(form.format("x"))
    assert password_of(text) == password
    raw = form.format(password)
    with suppress(UsageError, psycopg.ProgrammingError):
        address.check("--ledger", raw)
        if "&" not in password:
            assert address.hidden(raw) == address.hidden(form.format("x"))
            assert password_of(raw) in (unquote(password), unquote(password.replace("+", " ")))


def password_of(text: str) -> str | None:
    if text.startswith("postgresql:"):
        return str(conninfo_to_dict(places.find(text, {"JOBRUN_HOME": "/x"}).address)["password"])
    return redis_address.read(text, {}).password


# -- whoever tells of it --------------------------------------------------------------------------

PARTS = ("Hu5h", "Qu1et", "S3ntry")
NASTY = [*"/@#?&=:%[]+,;'\"\\ \n", "%zz", "%2F", "://", "@h/", "\udcff", "\u212a", "\u2100"]
LEDGERS = (
    "postgresql://anna:{}@127.0.0.1:1/jobs", "postgres://:{}@127.0.0.1:1",
    "postgresql://127.0.0.1:1/jobs?password={}", "postgresql://127.0.0.1:1/j?sslpassword={}&a=b",
    "postgresql://127.0.0.1:1/jobs?pass%77ord={}", "postgresql://127.0.0.1:1/jobs?passwd={}",
    "postgresql://anna:{}@127.0.0.1:1/jobs?namespace=staging", "postgresql:/anna:{}@127.0.0.1/jobs",
    "mysql://anna:{}@127.0.0.1:1/jobs", "host=127.0.0.1 port=1 password={}",
    "POSTGRESQL://anna:{}@127.0.0.1:1/jobs", "anna:{}@127.0.0.1/jobs",
    "postgresql://127.0.0.1:1?user=anna@corp&password={}",
)  # fmt: skip
LOCKS = (
    "redis://anna:{}@127.0.0.1:1/0", "redis://127.0.0.1:1/0?password={}", "redis://:{}",
    "redis://127.0.0.1:1?pass%77ord={}", "unix://:{}@/nowhere.sock?db=1", "memcached://:{}@h",
    "rediss://anna:{}@127.0.0.1:1/0?ssl_cert_reqs=none", "redis:/:{}@127.0.0.1:1",
    ":{}@127.0.0.1:1",
)  # fmt: skip
RUN = ("run", "sales", "--every", "1h")
TYPED: tuple[tuple[str, ...], ...] = (
    (*RUN, "--ledger", "ADDRESS", "--", "true"), (*RUN, "--ledger=ADDRESS", "--", "true"),
    (*RUN, "--ledger", "ADDRESS", "true"), (*RUN, "--ledger", "ADDRESS", "--"),
    (*RUN, "--ledger", "ADDRESS", "--ledger", "x", "--", "true"), (*RUN, "ADDRESS", "--", "true"),
    (*RUN, "--ledger", "ADDRESS", "--tz", "Nowhere", "--dry-run", "--", "true"),
    (*RUN, "--ledger", "ADDRESS", "--log-format", "json", "--on-store-down", "run", "--", "true"),
    ("run", "ADDRESS", "--", "true"), ("ADDRESS",), ("ADDRESS", "--", "true"),
    ("status", "ADDRESS"), ("status", "--ledger", "ADDRESS"), ("status", "--legder", "ADDRESS"),
    ("import", "ADDRESS"), ("import", "nothing", "--ledger", "ADDRESS"),
    ("doctor", "--ledger", "ADDRESS"), ("doctor", "--json", "--ledger", "ADDRESS"),
    ("export", "--ledger", "ADDRESS"),
    ("logs", "ADDRESS"), ("show", "sales", "--ledger", "ADDRESS"), ("stop", "sales", "ADDRESS"),
    ("rerun", "sales", "ADDRESS"), ("rerun", "sales", "today", "--ledger", "ADDRESS", "--"),
    ("backfill", "sales", "--ledger", "ADDRESS"), ("set", "sales", "--ledger", "ADDRESS"),
    ("pause", "sales", "--ledger", "ADDRESS", "--until", "x"), ("flush", "--ledger", "ADDRESS"),
    ("plan", "sales", "--ledger", "ADDRESS"), ("hosts", "--ledger", "ADDRESS"),
    ("help", "ADDRESS"), ("watermark", "sales", "--set", "ADDRESS"),
)  # fmt: skip
AROUND: tuple[tuple[str, ...], ...] = (
    (*RUN, "--", "env"), (*RUN, "--dry-run", "--", "true"), ("status",), ("status", "--json"), (),
    ("doctor",), ("plan", "sales"), ("export",), ("flush",), ("rerun", "sales", "yesterday"),
    ("run", "plain", "-v", "--log-format", "json", "--", "env"), ("stop", "sales"), ("hosts",),
)  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Where a ledger lies that knows the job."""
    environ = clean_environment(JOBRUN_LEDGER=str(tmp_path / "jobrun.db"))
    assert forked.jobrun((*RUN, "-q", "--", "true"), environ, NOW).status == 0
    return tmp_path


def tell(here: Path, argv: tuple[str, ...], **environment: str) -> str:
    """All that a call prints, and all that it leaves behind."""
    environ = clean_environment(
        **{"JOBRUN_LEDGER": str(here / "jobrun.db"), "JOBRUN_HOME": str(here), **environment}
    )
    environ = {name: text for name, text in environ.items() if not name.startswith("PG")}
    answer = forked.jobrun(argv, environ, NOW, folder=str(here))
    assert answer.status in (0, 1, 2, 73, 74, 75, 76, 78), (argv, answer)
    assert b"Traceback" not in answer.err, answer
    left = [os.fsencode(path) for path in here.rglob("*")]
    left += [path.read_bytes() for path in here.rglob("*") if path.is_file()]
    return b"\0".join([answer.out, answer.err, *left]).decode("utf-8", "surrogateescape")


def calls_with(form: str, text: str) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """As it may be typed and given: (arguments, environment).

    What does not even look like an address, or is no text, is one only where one is wanted.
    """
    option, variable = ("--lock", "JOBRUN_LOCK") if form in LOCKS else ("--ledger", "JOBRUN_LEDGER")
    for argv in TYPED:
        if ("://" in form and text.isprintable()) or "--ledger" in argv:
            words = [word.replace("--ledger", option).replace("ADDRESS", text) for word in argv]
            yield tuple(words), {}
    for argv in AROUND:
        yield argv, {variable: text}


@pytest.mark.parametrize("nasty", NASTY)
def test_no_output_has_a_part_of_a_password(here: Path, nasty: str) -> None:
    """Of a ledger or a lock, typed or in the environment, right or wrong: in no line, no file."""
    step = 3 if nasty == "/" else 11
    for n, form in enumerate((*LEDGERS, *LOCKS)):
        text = form.format(nasty.join(PARTS))
        for argv, environment in list(calls_with(form, text))[n % step :: step]:
            said = tell(here, argv, **environment)
            for part in PARTS:
                assert part not in said, (form, argv, environment, said[:2000])
