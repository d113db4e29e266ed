"""The lock on a Redis server: who is killed, stopped or cut off loses it in time, not before."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jobrun import redis_address
from jobrun.boottime import boottime
from jobrun.errors import ConfigError, JobrunError, Refused, UsageError
from jobrun.lock_redis import LOOK, PATIENCE, RedisLock, settings
from tests import servers
from tests.conftest import Jobrun, Unwilling, until
from tests.cut import cable
from tests.holding import holding
from tests.redis_calls import ask, is_settled

KEY = "jobrun:::sales"


def a_lock(address: str, ttl: float = 30, job: str = "sales", **more: Any) -> RedisLock:
    where = redis_address.read(address, {})
    lock = RedisLock(where, job, "db1:4711 since 12:05", ttl=ttl, kill_after=ttl / 6, **more)
    made.append(lock)
    return lock


made: list[RedisLock] = []


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    yield
    while made:
        made.pop().release()


# -- who has it -----------------------------------------------------------------------------------


def test_one_has_it_and_the_others_hear_who(redis: str) -> None:
    """Refused at once, and free at once."""
    first, second = a_lock(redis), a_lock(redis)
    assert first.acquire()
    assert not second.acquire(signals=Unwilling())
    assert second.holder() == "db1:4711 since 12:05"
    assert first.is_held()
    first.release()
    assert ask(redis, "EXISTS", KEY) == 0
    assert second.acquire()
    assert not first.is_held()
    second.release()


def test_jobs_slots_and_name_spaces_are_apart(redis: str) -> None:
    """Whatever stands in their names."""
    names: list[dict[str, Any]] = [
        {}, {"job": "sales}:"}, {"job": "1:sales"}, {"slot": 1}, {"slot": 11},
        {"namespace": "staging"}, {"namespace": "staging", "slot": 1}, {"job": "verkäufe\udcff"},
    ]  # fmt: skip
    locks = [a_lock(redis, **name) for name in names]
    assert [lock.acquire() for lock in locks] == [True] * len(names)
    assert len(ask(redis, "KEYS", "*")) == len(names)


def test_what_is_given_back_is_ones_own(redis: str) -> None:
    """A key that another has by now is left to him."""
    lock = a_lock(redis)
    assert lock.acquire()
    ask(redis, "SET", KEY, "other - db2:1")
    lock.release()
    assert ask(redis, "GET", KEY) == "other - db2:1"


def test_a_wait_ends_with_a_signal(redis: str) -> None:
    """As of the lock in a file."""

    class Asked:
        received: int | None = None

        def pause(self, seconds: float) -> None:
            self.received = signal.SIGTERM

    assert a_lock(redis).acquire()
    assert not a_lock(redis).acquire(60, Asked())


def test_who_only_looks_takes_nothing(redis: str) -> None:
    """Free is what nobody has, or a dead holder, after a second look."""
    lock = a_lock(redis)
    assert lock.is_free()
    with holding(redis) as held:
        assert not lock.is_free()
        held.process.kill()
        held.process.wait()
        assert lock.is_free()
    assert ask(redis, "GET", KEY).split()[2].startswith("db1:")


# -- who is gone ----------------------------------------------------------------------------------


def test_a_holder_that_is_killed_is_missed(redis: str) -> None:
    """Long before its key expires."""
    with holding(redis) as held:
        held.process.kill()
        assert a_lock(redis).acquire(20)


def test_a_call_that_does_not_wait_looks_twice_at_a_dead_holder(redis: str) -> None:
    """And it takes a second look's time."""
    with holding(redis) as held:
        held.process.kill()
        held.process.wait()
        began = time.monotonic()
        assert a_lock(redis).acquire(0)
        assert time.monotonic() - began >= LOOK


def test_a_holder_that_comes_back_between_two_looks_keeps_it(redis: str) -> None:
    """One that was away for a moment only was found twice, but not twice running."""
    lock = a_lock(redis)
    assert lock.acquire()
    keeper = lock.keeper
    ask(redis, "CLIENT", "KILL", "TYPE", "pubsub")

    class Back:
        received: int | None = None
        pauses = 0

        def pause(self, seconds: float) -> None:
            self.pauses += 1
            if self.pauses == 2:
                assert keeper.is_confirmed()

    assert not a_lock(redis).acquire(0, Back())
    assert lock.is_held()


def test_a_holder_that_is_stopped_has_it_until_its_key_expires(redis: str) -> None:
    """Not sooner, since it counts as listening; it hears of its loss as soon as it goes on."""
    ttl, kill_after = 6, 2
    with holding(redis, ttl, kill_after) as held:
        held.stop()
        rival = a_lock(redis)
        assert rival.acquire(60)
        taken = boottime()
        held.go_on()
        end = held.end()
        assert end.why.endswith("taken by db1:4711 since 12:05")
        assert taken >= end.until + kill_after
        assert rival.is_held()


def test_a_holder_that_was_stopped_without_a_rival_takes_it_again(redis: str) -> None:
    """Nobody has had it since."""
    with holding(redis, 5, 1) as held:
        held.stop()
        until(lambda: not ask(redis, "EXISTS", KEY), "the end of the key")
        held.go_on()
        until(lambda: ask(redis, "EXISTS", KEY), "the key")
        assert held.is_kept()


@pytest.mark.parametrize(("ttl", "kill_after"), [(6, 1), (30, 10), (60, 20), (600, 5)])
def test_a_pause_of_half_the_ttl_is_survived(redis: str, ttl: float, kill_after: float) -> None:
    """Right before the server is asked, too."""
    lock = RedisLock(redis_address.read(redis, {}), "sales", "db1:1", ttl, kill_after)
    made.append(lock)
    assert lock.acquire()
    lock.keeper.guard(1)
    assert lock.keeper.until - lock.keeper.due >= ttl / 2


def test_who_may_not_listen_has_it_until_its_key_expires(redis: str) -> None:
    """Its presence can't be seen, and is not missed either."""
    ask(redis, "ACL", "SETUSER", "cron", "on", ">s3cret", "resetchannels", "~jobrun:*", "+@all")
    address = redis.replace("//", "//cron:s3cret@")
    lock = a_lock(address)
    assert lock.acquire()
    assert not a_lock(redis).acquire()
    assert lock.is_held()


# -- a connection that breaks ---------------------------------------------------------------------


def test_a_connection_that_is_killed_is_made_anew(redis: str) -> None:
    """The lock is not lost for a moment, and the guardian gets another socket to keep."""
    with holding(redis) as held:
        for _ in range(3):
            ask(redis, "CLIENT", "KILL", "TYPE", "pubsub")
            held.hears_again()
        assert not a_lock(redis).acquire(0)
        assert ask(redis, "PUBSUB", "NUMPAT") == 0
        assert held.is_kept()


def test_what_a_server_forgot_is_written_anew(redis: str) -> None:
    """As after a restart of one that keeps nothing on disk."""
    lock = a_lock(redis)
    assert lock.acquire()
    socket = lock.keeper.held_fd
    ask(redis, "FLUSHALL")
    ask(redis, "CLIENT", "KILL", "TYPE", "pubsub")
    assert lock.is_held()
    assert ask(redis, "EXISTS", KEY) == 1
    assert lock.keeper.held_fd != socket


def test_after_a_restart_its_holder_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that keeps nothing on disk gives nothing away in its first seconds."""
    with servers.valkey() as address:
        lock = a_lock(address)
        assert lock.acquire()
    port = address.rpartition(":")[2].partition("/")[0]
    with servers.valkey("--port", port), monkeypatch.context() as patched:
        patched.setattr("jobrun.lock_redis.SETTLED", 3600)  # however long this takes
        rival = a_lock(address)

        class Back:
            received: int | None = None
            pauses = 0

            def pause(self, seconds: float) -> None:
                self.pauses += 1
                if self.pauses == 2:
                    assert lock.is_held()

        back = Back()
        assert not rival.acquire(0, back)
        assert back.pauses >= 2
        assert lock.is_held()
        lock.release()
        patched.undo()
        until(lambda: is_settled(address), "a server that gives something away")
        assert rival.acquire(0)
        rival.release()


@pytest.mark.parametrize("file", ["no", "yes"])
def test_what_a_server_that_is_killed_knows_afterwards(file: str) -> None:
    """With an append-only file who holds what; without one nothing. The holder keeps it anyway."""
    options = ("--appendonly", file, "--appendfsync", "always")
    with servers.own_valkey(*options) as server, holding(server.address) as held:
        value = ask(server.address, "GET", KEY)
        held.stop()  # or it would tell the server anew
        server.kill()
        server.start()
        assert ask(server.address, "GET", KEY) == (value if file == "yes" else None)
        held.go_on()
        held.hears_again()
        assert ask(server.address, "GET", KEY) == value
        assert not a_lock(server.address).acquire()
        assert held.is_kept()


def test_a_cut_is_noticed_and_nothing_waits_for_it(redis: str) -> None:
    """A question that is not answered is given up, and asked anew until it is too late."""
    ttl, kill_after = 10, 3
    with cable(redis) as (wire, near), holding(near, ttl, kill_after) as held:
        wire.is_cut = True
        cut = boottime()
        end = held.end()
        assert end.until - 1 <= end.at < cut + ttl - 2
        assert end.why.startswith("redis://127.0.0.1")
        assert "no answer within 2 s" in end.why
        assert end.longest < 0.75 * PATIENCE


def test_a_cut_that_ends_in_time_costs_nothing(redis: str) -> None:
    """The command goes on under the same lock."""
    with cable(redis) as (wire, near), holding(near, 20, 7) as held:
        wire.is_cut = True
        until(lambda: wire.dropped, "a question")
        wire.is_cut = False
        held.hears_again()
        assert held.is_kept()


def test_a_question_that_is_waited_for_is_given_up_in_time(redis: str) -> None:
    """Between two windows, and at the end: once."""
    with cable(redis) as (wire, near):
        lock = a_lock(near)
        assert lock.acquire()
        wire.is_cut = True
        began = time.monotonic()
        assert not lock.is_held()
        given_up = time.monotonic()
        lock.release()
        assert given_up - began < 2 * PATIENCE
        assert time.monotonic() - given_up < PATIENCE


def test_answers_come_in_any_pieces(redis: str) -> None:
    """A byte at a time, too."""
    with cable(redis) as (wire, near):
        wire.at_once = 1
        lock = a_lock(near.replace("/0", "/1"))
        assert lock.acquire()
        assert lock.is_held()
        lock.release()
        assert ask(near, "ECHO", "verkäufe\r\n") == "verkäufe\r\n"


def test_an_answer_from_before_a_stop_is_no_word_of_now(redis: str) -> None:
    """A question is dated by when it was sent."""
    lock = a_lock(redis)
    assert lock.acquire()
    keeper = lock.keeper
    long_ago = boottime() - 100
    keeper.on_time(boottime() + 60)  # sends
    keeper._asked = long_ago
    keeper.guard(2)
    assert keeper.until > boottime() + 10


def test_whatever_happens_to_connections_one_has_it_at_a_time(redis: str) -> None:
    """Four that take turns as fast as they can, all their connections killed ten times a second."""
    inside: list[int] = []
    turns: list[int] = []
    end = threading.Event()

    def takes_turns(number: int) -> None:
        lock = a_lock(redis)
        while not end.is_set():
            with suppress(Refused):  # its connection was killed before it had asked
                if not lock.acquire(5):
                    continue
                inside.append(number)
                turns.append(number if inside == [number] and lock.is_held() else -1)
                inside.remove(number)
                lock.release()

    four = [threading.Thread(target=takes_turns, args=(number,)) for number in range(4)]
    for each in four:
        each.start()
    deadline = time.monotonic() + 60
    while len(turns) < 6 and time.monotonic() < deadline:
        ask(redis, "CLIENT", "KILL", "TYPE", "pubsub")
        end.wait(0.1)
    end.set()
    for each in four:
        each.join()
    assert -1 not in turns
    assert len(turns) >= 6


# -- a server that can't be had -------------------------------------------------------------------


def test_a_server_that_is_not_there(redis: str) -> None:
    """75: nothing ran, a later call may."""
    with cable(redis) as (wire, near):
        wire.close()
        for address in (near, "redis://nowhere.invalid:1", "unix:///no/such.sock"):
            with pytest.raises(Refused, match=r"lock \w+://.*: out of reach \(.+\)"):
                a_lock(address).acquire()


def test_a_server_that_does_not_answer(redis: str) -> None:
    """75 after two seconds, however long one would wait for the lock."""
    with cable(redis) as (wire, near):
        wire.is_cut = True
        began = time.monotonic()
        with pytest.raises(Refused, match="no answer within 2 s"):
            a_lock(near).acquire(60)
        assert time.monotonic() - began < 30


def test_a_server_that_is_not_redis(postgres: str) -> None:
    """Nor anything like it."""
    port = postgres.rpartition(":")[2].partition("/")[0]
    with pytest.raises(Refused, match=r"not Redis's|closed the connection|no answer"):
        a_lock(f"redis://127.0.0.1:{port}").acquire()


def test_who_is_not_let_in_hears_what_to_do(redis: str) -> None:
    """78; the password is not told."""
    ask(redis, "ACL", "SETUSER", "clerk", "on", ">s3cret", "~other:*", "+@all")
    for user, said in (("clerk:wrong", "WRONGPASS"), ("clerk:s3cret", "NOPERM")):
        with pytest.raises(ConfigError, match=said) as raised:
            a_lock(redis.replace("//", f"//{user}@")).acquire()
        assert user.partition(":")[2] not in raised.value.message
        assert raised.value.hint


@pytest.mark.parametrize("word", ["ssl_ca_certs", "ssl_certfile"])
def test_a_file_for_tls_that_is_none(tmp_path: Path, word: str) -> None:
    """78, and which: no server need be there."""
    (tmp_path / "none.pem").write_text("not one\n")
    for name in ("missing.pem", "none.pem"):
        given = f"{word}={tmp_path / name}"
        with pytest.raises(ConfigError, match=given) as raised:
            a_lock(f"rediss://127.0.0.1:1/0?{given}").acquire()
        assert "ssl_ca_certs=" in (raised.value.hint or "")


def test_a_database_that_the_server_has_not(redis: str) -> None:
    """78: it will not have it at the next call."""
    with pytest.raises(ConfigError, match="DB index is out of range") as raised:
        a_lock(redis.replace("/0", "/9999")).acquire()
    assert "16" in (raised.value.hint or "")


def test_a_password_may_stand_in_the_environment(redis: str) -> None:
    """As redis-cli has it."""
    ask(redis, "ACL", "SETUSER", "anna", "on", ">s3cret", "~*", "&*", "+@all")
    address = redis.replace("//", "//anna@")
    where = redis_address.read(address, {"REDISCLI_AUTH": "s3cret"})
    lock = RedisLock(where, "sales", "", ttl=30, kill_after=1)
    made.append(lock)
    assert lock.acquire()
    assert "s3cret" not in where.name


@pytest.mark.parametrize(
    ("address", "name", "place"),
    [
        ("redis://h", "redis://h:6379/0", ("h", 6379, 0)),
        ("redis://u:p%40@h:1/2", "redis://u@h:1/2", ("h", 1, 2)),
        ("redis://:p@h?db=3", "redis://h:6379/3", ("h", 6379, 3)),
        ("redis://[::1]:7/", "redis://[::1]:7/0", ("::1", 7, 0)),
        ("rediss://h/1?ssl_cert_reqs=none", "rediss://h:6379/1", ("h", 6379, 1)),
        ("unix:///run/r.sock?db=4&password=p", "unix:///run/r.sock?db=4", ("/run/r.sock", 0, 4)),
    ],
)
def test_addresses_are_those_of_redis_py(
    address: str, name: str, place: tuple[object, ...]
) -> None:
    """And shown without a password."""
    found = redis_address.read(address, {})
    assert (found.name, (found.host, found.port, found.db)) == (name, place)


@pytest.mark.parametrize(
    "address",
    [
        "redis://", "redis://h:x/0", "redis://h/sales", "redis://h?max_connections=3",
        "redis://h?ssl_certfile=x", "rediss://h?ssl_cert_reqs=optional", "unix://run/x", "unix://",
        "memcached://h", "redis://[h",
    ],
)  # fmt: skip
def test_other_addresses_are_refused(address: str) -> None:
    """2, with examples of right ones."""
    with pytest.raises(UsageError, match="--lock") as raised:
        redis_address.read(address.replace("//h", "//u:s3cret@h"), {})
    assert "s3cret" not in raised.value.message
    assert "redis://host" in (raised.value.hint or "")


def test_a_socket_of_a_file(redis: str, tmp_path: Path) -> None:
    """On the machine of the server itself."""
    with servers.valkey("--unixsocket", "valkey.sock", "--unixsocketperm", "777") as address:
        folder = ask(address, "CONFIG", "GET", "dir")[1]
        lock = a_lock(f"unix://{folder}/valkey.sock?db=1")
        assert lock.acquire()
        assert lock.is_held()
        lock.release()  # before the server ends


def test_over_tls_the_server_shows_who_it_is(redis: str, tmp_path: Path) -> None:
    """rediss://; what nobody vouches for is not spoken to, unless that is asked for."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    key, shown = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-keyout", key, "-out", shown, "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown, key)
    with cable(redis, context) as (wire, near):
        plain = near.replace("redis://127.0.0.1", "rediss://localhost")
        for trusting in (f"?ssl_ca_certs={shown}", "?ssl_cert_reqs=none"):
            lock = a_lock(plain + trusting)
            assert lock.acquire()
            ask(redis, "CLIENT", "KILL", "TYPE", "pubsub")
            assert lock.is_held()
            lock.release()
        for address in (plain, near.replace("redis://", "rediss://") + f"?ssl_ca_certs={shown}"):
            with pytest.raises(ConfigError, match=r"(?i)certificate") as raised:
                a_lock(address).acquire()
            assert "ssl_ca_certs=" in (raised.value.hint or "")
        assert wire.taken == 6


# -- how it is set --------------------------------------------------------------------------------


def test_what_a_server_is_set_to_is_told(redis: str) -> None:
    """What it does not tell is not guessed."""
    found = settings(redis_address.read(redis, {}))
    assert found == {
        "role": "master", "cluster": "0", "appendonly": "no", "maxmemory-policy": "noeviction",
    }  # fmt: skip
    ask(redis, "ACL", "SETUSER", "dumb", "on", ">x", "~*", "&*", "+@all", "-config")
    found = settings(redis_address.read(redis.replace("//", "//dumb:x@"), {}))
    assert (found["role"], found["appendonly"]) == ("master", None)


def test_doctor_looks_at_the_server(redis: str, jobrun: Jobrun) -> None:
    """What it forgets, or throws away, is who holds a lock."""

    def doctor(address: str = redis) -> list[list[str]]:
        found = jobrun("doctor", "--json", env={"JOBRUN_LOCK": address})
        checks = json.loads(found.stdout)["checks"]
        return [[check["grade"], check["found"]] for check in checks if check["name"] == "redis"]

    forgets = "appendonly is off: a restart forgets who holds which lock"
    assert doctor() == [["WARN", f"{redis}: {forgets}"]]
    ask(redis, "CONFIG", "SET", "appendonly", "yes")
    assert doctor() == [["ok", redis]]
    ask(redis, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    ((grade, found),) = doctor()
    assert (grade, found.endswith(": maxmemory-policy")) == ("WARN", True)
    ask(redis, "CONFIG", "SET", "maxmemory-policy", "noeviction", "appendonly", "no")
    ask(redis, "REPLICAOF", "127.0.0.1", 1)
    assert [grade for grade, _ in doctor()] == ["FAIL", "WARN"]
    with pytest.raises(Refused, match=r"READONLY|MASTERDOWN"):
        a_lock(redis).acquire()
    ask(redis, "REPLICAOF", "NO", "ONE")
    ask(redis, "ACL", "SETUSER", "dumb", "on", ">x", "~*", "&*", "+@all", "-config")
    ((grade, found),) = doctor(redis.replace("//", "//dumb:x@"))
    assert (grade, found.partition("does not tell ")[2]) == ("WARN", "appendonly, maxmemory-policy")
    ((grade, found),) = doctor("redis://nowhere.invalid")
    assert (grade, "out of reach" in found) == ("FAIL", True)


def test_every_error_of_it_is_one_for_people(redis: str) -> None:
    """None is of redis_wire's own kind."""
    ask(redis, "CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(JobrunError, match="OOM"):
            a_lock(redis).acquire()
    finally:
        ask(redis, "CONFIG", "SET", "maxmemory", "0")
