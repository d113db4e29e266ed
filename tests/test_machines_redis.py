"""Several machines and one lock on a Redis server: each with a ledger of its own, or one of all."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.conftest import PYTHON, Jobrun, Result, is_alive, line_of, until
from tests.cut import cable
from tests.ledger_calls import schema_of
from tests.machines import HOURLY, LONG, NOW, SHORT, Machine, WatchfulMachine
from tests.redis_calls import ask
from tests.scenes import Held, field, linux

pytestmark = linux


@pytest.fixture
def alpha(tmp_path: Path, redis: str) -> Iterator[Machine]:
    alpha = Machine(tmp_path / "alpha", "alpha", lock=redis)
    yield alpha
    alpha.end()


@pytest.fixture
def beta(tmp_path: Path, redis: str) -> Iterator[Machine]:
    beta = Machine(tmp_path / "beta", "beta", lock=redis)
    yield beta
    beta.end()


@pytest.fixture
def both(tmp_path: Path, redis: str, postgres: str) -> Iterator[tuple[Machine, Machine]]:
    """On one ledger."""
    with schema_of(postgres) as address:
        alpha = Machine(tmp_path / "one", "alpha", address, redis)
        beta = Machine(tmp_path / "two", "beta", address, redis)
        yield alpha, beta
        alpha.end()
        beta.end()


def words(stderr: str) -> list[str]:
    return [line.split()[1] for line in stderr.splitlines() if line.startswith("jobrun: ")]


# -- a ledger each --------------------------------------------------------------------------------


@pytest.mark.parametrize("right", [("--lock-ttl", "24d"), ("--kill-after", "8d")])
def test_the_longest_times(alpha: Machine, right: tuple[str, ...]) -> None:
    """A server counts them."""
    assert alpha("run", "sales", *HOURLY, *right, "--", "true", now=NOW).status == 0


def test_the_second_withdraws(alpha: Machine, beta: Machine) -> None:
    """It names the machine that runs; what it has not done itself is still to be done by it."""
    held = Held(alpha, "sales", *HOURLY, now=NOW)
    second = beta("run", "sales", *HOURLY, "--", "echo", "ran", now=NOW)
    assert (second.status, second.stdout) == (0, "")
    assert "SKIPPED job=sales reason=lock-held" in second.stderr
    assert f"alpha:{held.wrapper.pid}" in second.stderr
    assert held.release().status == 0
    assert beta("run", "sales", *HOURLY, "--", "echo", "ran", now=NOW).stdout == "ran\n"


# Says so where it is not alone; its folder is there as long as it runs.
ALONE = ("sh", "-c", 'mkdir "$0" || exit 9; sleep 0.02; rmdir "$0"')


def test_two_are_never_at_work_at_the_same_moment(
    alpha: Machine, beta: Machine, tmp_path: Path
) -> None:
    """Calls as fast as they come, on both, each waiting for its turn."""
    command = (*ALONE, str(tmp_path / "at-work"))
    calls = [
        machine.start("run", "sales", "--wait", "30s", "-q", "--", *command)
        for machine in (alpha, beta) * 4
    ]
    found = [(call.communicate(timeout=60)[1].decode(), call.returncode) for call in calls]
    assert [status for _, status in found] == [0] * 8, found
    runs = "select count(*) from jobrun_run where outcome = 'succeeded'"
    assert alpha.query(runs) == beta.query(runs) == [(4,)]


def test_without_the_lock_they_are(alpha: Machine, beta: Machine, tmp_path: Path) -> None:
    """The test above can fail."""
    command = ("sh", "-c", 'mkdir "$0" || exit 9; read _; rmdir "$0"', str(tmp_path / "at-work"))
    for machine in (alpha, beta):
        del machine.environment["JOBRUN_LOCK"]
    first = alpha.start("run", "sales", "--stdin", "inherit", "--", *command, stdin=subprocess.PIPE)
    until((tmp_path / "at-work").exists, "the first")
    assert beta("run", "sales", "--", *command).status == 9
    first.communicate(b"\n", timeout=20)


def test_a_wrapper_that_is_killed(alpha: Machine, beta: Machine) -> None:
    """Its command is dead before the other machine begins, a second later and not at its ttl."""
    held = Held(alpha, "sales", *LONG, now=NOW)
    began = time.monotonic()
    held.wrapper.kill()
    second = beta("run", "sales", "--wait", "40s", "--", "echo", "up", now=NOW)
    took = time.monotonic() - began
    assert not is_alive(held.pid)
    assert (second.status, second.stdout) == (0, "up\n")
    assert took > 1.0
    held.wrapper.communicate()


STUBBORN = (
    PYTHON,
    "-uc",
    "import os, signal; signal.signal(15, signal.SIG_IGN); print(os.getpid()); signal.pause()",
)


def test_a_command_that_ignores_term_keeps_the_lock_until_it_is_dead(
    alpha: Machine, beta: Machine
) -> None:
    """Its guardian holds the presence of the wrapper that was killed."""
    held = Held(alpha, "sales", *LONG, "-k", "2s", command=STUBBORN)
    second = beta.start("run", "sales", "--wait", "60s", "--", "echo", "up")
    held.wrapper.kill()
    assert second.stdout is not None
    assert line_of(second.stdout, 60) == b"up\n"
    assert not is_alive(held.pid)
    second.communicate(timeout=20)
    held.wrapper.communicate()


def test_a_wrapper_that_is_stopped(alpha: Machine, beta: Machine) -> None:
    """Its command is dead before the other machine begins; and it says so when it goes on."""
    held = Held(alpha, "sales", *SHORT, now=NOW)
    os.kill(held.wrapper.pid, signal.SIGSTOP)
    second = beta("run", "sales", "--wait", "50s", "--", "echo", "up", now=NOW)
    assert not is_alive(held.pid)
    assert second.stdout == "up\n"
    os.kill(held.wrapper.pid, signal.SIGCONT)
    late = held.release()
    assert (late.status, "what=lock-lost" in late.stderr) == (76, True), late


def test_a_connection_that_is_killed(alpha: Machine, beta: Machine, redis: str) -> None:
    """The command goes on, and nobody else begins."""
    held = Held(alpha, "sales", now=NOW)
    before = ask(redis, "GET", "jobrun:::sales")
    ask(redis, "CLIENT", "KILL", "TYPE", "pubsub")
    until(lambda: ask(redis, "PUBSUB", "CHANNELS"), "its presence")
    assert ask(redis, "GET", "jobrun:::sales") == before
    assert "lock-held" in beta("run", "sales", "--", "true", now=NOW).stderr
    assert held.release().status == 0


def test_a_wrapper_that_is_killed_after_its_connection_was(
    alpha: Machine, beta: Machine, redis: str
) -> None:
    """Its guardian has the new socket: a command that ignores TERM is dead first, as ever."""
    held = Held(alpha, "sales", *LONG, "-k", "2s", command=STUBBORN)
    ask(redis, "CLIENT", "KILL", "TYPE", "pubsub")
    until(lambda: ask(redis, "PUBSUB", "CHANNELS"), "its presence")
    second = beta.start("run", "sales", "--wait", "60s", "--", "echo", "up")
    until(lambda: ask(redis, "CLIENT", "LIST").count("name=jobrun ") > 2, "the second")
    held.wrapper.kill()
    assert second.stdout is not None
    assert line_of(second.stdout, 60) == b"up\n"
    assert not is_alive(held.pid)
    second.communicate(timeout=20)
    held.wrapper.communicate()


def test_a_server_that_is_cut_off(tmp_path: Path, redis: str) -> None:
    """The command is ended in time, and the reason is on record."""
    with cable(redis) as (wire, near):
        alpha = WatchfulMachine(tmp_path / "cut", "alpha", lock=near)
        held = Held(alpha, "sales", "--lock-ttl", "11s", "-k", "5s")
        wire.is_cut = True
        until(lambda: not is_alive(held.pid), "the end of the command")
        assert ask(redis, "PTTL", "jobrun:::sales") > 5000  # milliseconds
        end = held.release()
        assert end.status == 76, end
        assert "lost the lock: " in end.stderr
        assert "no answer" in end.stderr


def test_a_command_that_ends_while_its_server_is_cut_off(tmp_path: Path, redis: str) -> None:
    """It has done its work, and that is on record; the server is not waited for until its ttl."""
    with cable(redis) as (wire, near):
        alpha = Machine(tmp_path / "cut", "alpha", lock=near)
        held = Held(alpha, "sales", *LONG)
        wire.is_cut = True
        end = held.release()
        assert end.status == 0, end
        assert alpha.query("select outcome from jobrun_run") == [("succeeded",)]


def test_name_spaces_are_apart(alpha: Machine, beta: Machine) -> None:
    """Staging does not block production."""
    held = Held(alpha, "sales", now=NOW)
    staging = beta("run", "sales", "--namespace", "staging", "--", "echo", "up", now=NOW)
    assert staging.stdout == "up\n"
    assert held.release().status == 0


def test_a_leader_that_is_killed_is_followed_by_another_machine(
    alpha: Machine, beta: Machine, tmp_path: Path
) -> None:
    """Its daemon is dead before that, one that ignores TERM too."""
    daemon = ("-k", "1s", *LONG, "--", *STUBBORN)
    leader = alpha.start("lead", "hub", *daemon)
    assert leader.stdout is not None
    pid = line_of(leader.stdout, 60)
    with (tmp_path / "lines").open("wb") as lines:
        follower = beta.start("lead", "hub", *daemon, stderr=lines)
    until(lambda: f"holder=alpha:{leader.pid}" in (tmp_path / "lines").read_text(), "a standby")
    leader.kill()
    assert follower.stdout is not None
    assert line_of(follower.stdout, 60) not in (b"", pid)
    assert not is_alive(int(pid))
    leader.communicate()
    follower.terminate()
    follower.communicate(timeout=20)


# -- one ledger -----------------------------------------------------------------------------------


def test_a_machine_that_crashes(both: tuple[Machine, Machine]) -> None:
    """Another one does its window, as the second attempt; a killed command leaves none behind."""
    alpha, beta = both
    held = Held(alpha, "sales", *HOURLY, *LONG, now=NOW)
    assert field(beta("run", "sales", *HOURLY, "--", "true", now=NOW).stderr, "holder") == (
        f"alpha:{held.wrapper.pid}"
    )
    held.wrapper.kill()
    again = beta("run", "sales", *HOURLY, "--wait", "50s", "--", "true", now=NOW)
    assert (again.status, words(again.stderr)) == (0, ["LOST", "PROCESSED"])
    held.wrapper.communicate()


def test_a_machine_that_was_stopped_is_refused_its_result(both: tuple[Machine, Machine]) -> None:
    """The token is the ledger's: what comes late is fenced."""
    alpha, beta = both
    held = Held(alpha, "sales", *HOURLY, *SHORT, now=NOW)
    os.kill(held.wrapper.pid, signal.SIGSTOP)
    again = beta("run", "sales", *HOURLY, "--wait", "50s", "--", "true", now=NOW)
    assert (again.status, words(again.stderr)) == (0, ["LOST", "PROCESSED"])
    os.kill(held.wrapper.pid, signal.SIGCONT)
    late = held.release()
    assert (late.status, "FENCED" in late.stderr) == (76, True)


def test_beside_each_other(both: tuple[Machine, Machine]) -> None:
    """--overlap allow: each has a slot, and a window of its own."""
    alpha, beta = both
    more = (*HOURLY, "--overlap", "allow", "--first", "2026-09-04T10:00Z", "--max-windows", "1")
    held = [Held(machine, "sales", *more, now=NOW) for machine in (alpha, beta)]
    third = alpha("run", "sales", *more, "--", "echo", "ran", now=NOW)
    assert (third.stdout, "lock-held" in third.stderr) == ("", True)
    assert [each.release().status for each in held] == [0, 0]
    assert "processed 2" in alpha("windows", "sales", now=NOW).stdout


def test_a_slot_that_was_lost_while_the_job_was_waited_for(
    both: tuple[Machine, Machine], redis: str
) -> None:
    """A call beside others takes another one for its next window."""
    more = ("--overlap", "allow", "--first", "2026-09-04T10:00Z", *SHORT)
    held = Held(both[0], "sales", *HOURLY, *more, now=NOW)
    (slot,) = ask(redis, "KEYS", "jobrun:*:1:sales")
    job = slot.replace(":1:", "::")
    ask(redis, "SET", job, "other - db9:1 since 12:00")
    held.end_command()
    until(lambda: ask(redis, "SET", slot, "other - db9:1 since 12:00", "NX"), "the slot", 60)
    ask(redis, "DEL", job)
    done = held.release()
    assert (done.status, done.stderr.count("PROCESSED")) == (0, 2)
    taken = both[0].rows("SELECT slot, attempt FROM jobrun_run ORDER BY id")
    assert taken == [(1, 1), (2, 1)]


def test_a_job_that_is_named_as_a_slot_might_be(both: tuple[Machine, Machine]) -> None:
    """It is another job, on the server and in this machine's files."""
    beside = Held(both[0], "etl", *HOURLY, "--overlap", "allow", now=NOW)
    for machine in both:
        assert machine("run", "etl.1", "--", "echo", "ran", now=NOW).stdout == "ran\n"
    assert beside.release().status == 0


def test_several_windows_under_one_lock(both: tuple[Machine, Machine], redis: str) -> None:
    """It is asked for between them, and its loss ends the call."""
    alpha, _ = both
    more = (*HOURLY, "--first", "2026-09-04T09:00Z")
    steals = (
        "sh",
        "-c",
        'test "$JOBRUN_KEY" != "$0" || exec "$@"',
        "sales:2026-09-04T10:00:00+00:00",
    )
    thief = (
        PYTHON,
        "-c",
        f"""
from tests.redis_calls import ask
(key,) = ask({redis!r}, "KEYS", "jobrun:*::sales")
ask({redis!r}, "SET", key, "other - db9:1 since 12:00")
""",
    )
    found = alpha("run", "sales", *more, "--", *steals, *thief, now=NOW)
    assert words(found.stderr).count("PROCESSED") == 2, found.stderr
    assert found.status == 75, found
    assert "lost" in found.stderr


# -- by hand, and by another lock -----------------------------------------------------------------

# 10 is processed by one call and 11 by the next.
TWO = (*HOURLY, "--first", "2026-09-04T10:00Z", "--max-windows", "1")
TEN, ELEVEN = "2026-09-04T10:00Z", "2026-09-04T11:00Z"
REFUSED_BY_HAND: tuple[tuple[str, ...], ...] = (
    ("skip", "sales", ELEVEN, "--reason", "x"),
    ("watermark", "sales", "--set", ELEVEN, "--reason", "x"),
    ("forget", "sales", "--yes"),
)
SKIPPED_BY_HAND: tuple[tuple[str, ...], ...] = (
    ("rerun", "sales", TEN),
    ("retry", "sales"),
    ("backfill", "sales", "--from", "2026-09-04T08:00Z", "--to", TEN),
)


def at_another_lock(machine: Machine, lock: str = "") -> Machine:
    """Without $JOBRUN_LOCK, as in a shell that lacks what the crontab sets; or with this one."""
    machine.environment["JOBRUN_LOCK"] = lock
    return machine


def is_let_alone(held: Held) -> bool:
    end = held.release()
    return (end.status, "PROCESSED job=sales" in end.stderr) == (0, True)


@pytest.mark.parametrize("lock", ["", "session", "redis://nowhere.invalid"])
def test_by_hand_it_is_that_of_the_last_call(both: tuple[Machine, Machine], lock: str) -> None:
    """Whatever the shell says: what runs is let alone, and is on record as processed."""
    alpha, shell = both[0], at_another_lock(both[1], lock)
    assert alpha("run", "sales", *TWO, "--", "true", now=NOW).status == 0
    held = Held(alpha, "sales", *TWO, now=NOW)
    for argv in REFUSED_BY_HAND:
        found = shell(*argv, now=NOW)
        assert (found.status, "its lock is held by alpha:" in found.stderr) == (75, True), found
    for argv in SKIPPED_BY_HAND:
        found = shell(*argv, now=NOW)
        assert (found.status, "reason=lock-held" in found.stderr) == (0, True), found
    assert "running" in shell("status", now=NOW).stdout
    assert is_let_alone(held)


def test_by_hand_the_default_is_that_of_the_last_call_too(both: tuple[Machine, Machine]) -> None:
    """Where the crontab names none and the shell does."""
    alpha, shell = at_another_lock(both[0]), both[1]
    assert alpha("run", "sales", *TWO, "--", "true", now=NOW).status == 0
    held = Held(alpha, "sales", *TWO, now=NOW)
    assert "its lock is held by alpha:" in shell(*REFUSED_BY_HAND[0], now=NOW).stderr
    assert "reason=lock-held" in shell(*SKIPPED_BY_HAND[0], now=NOW).stderr
    assert is_let_alone(held)


def test_by_hand_it_is_that_of_a_window_by_hand(both: tuple[Machine, Machine]) -> None:
    """Which is no call that others go by, but for its lock."""
    alpha, shell = both[0], at_another_lock(both[1])
    held = Held(alpha, "sales", *HOURLY, "--window", TEN, now=NOW)
    found = shell(*REFUSED_BY_HAND[0], now=NOW)
    assert (found.status, "its lock is held by alpha:" in found.stderr) == (75, True), found
    assert is_let_alone(held)


def test_by_hand_it_is_that_of_units_too(both: tuple[Machine, Machine]) -> None:
    """`retry` of a job with --key runs nothing, and takes its lock to make them due."""
    alpha, shell = both[0], at_another_lock(both[1])
    assert alpha("run", "drop", "--key", "one", "--", "false", now=NOW).status == 1
    held = Held(alpha, "drop", "--key", "two", now=NOW)
    found = shell("retry", "drop", now=NOW)
    assert (found.status, "reason=lock-held" in found.stderr) == (0, True), found
    end = held.release()
    assert (end.status, "PROCESSED job=drop" in end.stderr) == (0, True), end


def test_its_password_is_on_no_record(both: tuple[Machine, Machine], redis: str) -> None:
    """By hand it is $JOBRUN_LOCK's, where that is the same server, or $REDISCLI_AUTH."""
    ask(redis, "ACL", "SETUSER", "cron", "on", ">s3@cret", "~jobrun:*", "&jobrun:*", "+@all")
    address = redis.replace("//", "//cron@")
    alpha = at_another_lock(both[0], redis.replace("//", "//cron:s3%40cret@"))
    shell = at_another_lock(both[1])
    assert alpha("run", "sales", *TWO, "--", "true", now=NOW).status == 0
    held = Held(alpha, "sales", *TWO, now=NOW)
    for env in ({"JOBRUN_LOCK": alpha.environment["JOBRUN_LOCK"]}, {"REDISCLI_AUTH": "s3@cret"}):
        found = shell(*REFUSED_BY_HAND[0], now=NOW, env=env)
        assert (found.status, "its lock is held by alpha:" in found.stderr) == (75, True), found
    wrong = {"REDISCLI_AUTH": "wrong"}
    for lock in ("", "redis://cron:s3%40cret@h/0", redis.replace("//", "//cron:wrong@")):
        found = shell(*REFUSED_BY_HAND[0], now=NOW, env={"JOBRUN_LOCK": lock, **wrong})
        assert (found.status, f"error: lock {address}: " in found.stderr) == (78, True), found
        assert "REDISCLI_AUTH" in found.stderr
    for look in (("show", "sales"), ("export",)):
        found = shell(*look, now=NOW)
        assert (address in found.stdout, "cret" in found.stdout) == (True, False), found
    assert is_let_alone(held)
    again = shell(*SKIPPED_BY_HAND[0], now=NOW, env={"REDISCLI_AUTH": "s3@cret"})
    assert f"from the last call: {' '.join(TWO[:2])}" in again.stderr
    assert (again.status, f"--lock {address}" in again.stderr) == (0, True), again


@pytest.mark.parametrize("is_first", [True, False])
def test_by_another_lock_nothing_is_taken_for_lost(
    both: tuple[Machine, Machine], redis: str, is_first: bool
) -> None:
    """78: Redis beside a session, or the other way round. Once that has ended it is another's."""
    alpha, beta = both
    at_another_lock(beta if is_first else alpha)
    held = Held(alpha, "sales", *TWO, now=NOW)
    ours, theirs = ("session", redis) if is_first else (redis, "session")
    beside = ((), ("--overlap", "allow"), ("--window", TEN), ("--dry-run",))
    for options in beside:
        found = beta("run", "sales", *TWO, *options, "--", "echo", "ran", now=NOW)
        assert (found.status, found.stdout) == (78, ""), found
        assert f"goes by the lock {theirs}, and this call by {ours}" in found.stderr
        assert f"JOBRUN_LOCK={theirs}" in found.stderr
    assert is_let_alone(held)
    assert beta("run", "sales", *TWO, "--", "echo", "ran", now=NOW).stdout == "ran\n"
    assert "nothing-failed" in alpha("retry", "sales", now=NOW).stderr


def test_a_session_and_a_lease_are_no_other_lock(both: tuple[Machine, Machine]) -> None:
    """Each sees the other's holder."""
    alpha, beta = at_another_lock(both[0], "lease"), at_another_lock(both[1], "session")
    held = Held(alpha, "sales", *TWO, now=NOW)
    found = beta("run", "sales", *TWO, "--", "echo", "ran", now=NOW)
    assert (found.status, "reason=lock-held" in found.stderr) == (0, True), found
    assert is_let_alone(held)


def test_what_is_dead_blocks_no_other_lock(both: tuple[Machine, Machine]) -> None:
    """Its own is asked, and free."""
    alpha, beta = both[0], at_another_lock(both[1])
    held = Held(alpha, "sales", *TWO, now=NOW)
    held.wrapper.kill()
    held.wrapper.communicate()
    until(lambda: not is_alive(held.pid), "the end of its command")
    assert settled(beta) == ["LOST", "PROCESSED"]


def settled(machine: Machine) -> list[str]:
    """The first words of a call that is not refused: the other lock is known to be free."""
    found: list[Result] = []

    def is_called() -> bool:
        found.append(machine("run", "sales", *TWO, "--", "true", now=NOW))
        return found[-1].status != 78

    until(is_called, "a lock that is free")
    return words(found[-1].stderr)[:2]


def test_what_can_not_be_asked_is_not_taken_for_lost(
    both: tuple[Machine, Machine], redis: str
) -> None:
    """It is said how it is settled: a call with the old lock."""
    alpha, beta = both[0], at_another_lock(both[1])
    call = ("run", "sales", *TWO, "--", "true")
    with cable(redis) as (wire, near):
        held = Held(at_another_lock(alpha, near), "sales", *TWO, now=NOW)
        held.wrapper.kill()
        held.wrapper.communicate()
        wire.is_cut = True
        found = beta(*call, now=NOW)
        assert (found.status, f"lock {near}: out of reach" in found.stderr) == (78, True), found
        assert f"once with JOBRUN_LOCK={near}" in found.stderr
        wire.is_cut = False
        late = beta(*call, "--wait", "20s", now=NOW, env={"JOBRUN_LOCK": near})
        assert words(late.stderr)[:2] == ["LOST", "PROCESSED"], late
        assert beta(*call, now=NOW).status == 0


def test_where_its_server_is_gone_for_good(tmp_path: Path, postgres: str) -> None:
    """An empty one in its place does: no other lock takes what ran for lost before."""
    with servers.own_valkey() as server, schema_of(postgres) as address:
        alpha = Machine(tmp_path / "one", "alpha", address, server.address)
        beta = Machine(tmp_path / "two", "beta", address)
        alpha.crash(Held(alpha, "sales", *TWO, now=NOW))
        server.kill()
        found = beta("run", "sales", *TWO, "--", "true", now=NOW)
        assert (found.status, "an empty one at its address" in found.stderr) == (78, True), found
        server.start()
        assert settled(beta) == ["LOST", "PROCESSED"]


# -- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lock", "status", "said"),
    [
        ("redis://127.0.0.1:1/0", 75, "out of reach (Connection refused)"),
        ("redis://h/sales", 2, '"sales" is no number of a database'),
        ("redis://u:s3cret@h/0", 2, "--lock with a password"),
        ("redis://h/0?password=s3cret", 2, "--lock with a password"),
        ("memcached://h", 2, "session, lease or redis://host"),
        ("sesion", 2, "hint: --lock session"),
        ("session", 2, "is a file, which has none"),
    ],
)
def test_what_is_wrong_is_said(jobrun: Jobrun, lock: str, status: int, said: str) -> None:
    """Nothing runs; where the call is wrong nothing is made either."""
    # `lead` asks again where the server is out of reach.
    for verb in ("run", "lead")[: 1 if status == 75 else 2]:
        found = jobrun(verb, "sales", "--lock", lock, "--", "echo", "ran")
        assert (found.status, found.stdout) == (status, "")
        assert said in found.stderr
        assert "s3cret" not in found.stderr
        assert jobrun.ledger.exists() == (status == 75)


def test_who_is_not_let_in_hears_how(jobrun: Jobrun, redis: str) -> None:
    """78; the password comes from the environment then."""
    ask(redis, "ACL", "SETUSER", "cron", "on", ">s3cret", "~jobrun:*", "&jobrun:*", "+@all")
    call = ("run", "sales", "--lock", redis.replace("//", "//cron@"), "--", "echo", "ran")
    found = jobrun(*call, env={"REDISCLI_AUTH": "wrong"})
    assert (found.status, "WRONGPASS" in found.stderr, "wrong" in found.stderr) == (78, True, False)
    assert "REDISCLI_AUTH" in found.stderr
    assert jobrun(*call, env={"REDISCLI_AUTH": "s3cret"}).stdout == "ran\n"


def test_what_was_run_with_it_is_run_again_with_it(alpha: Machine, beta: Machine) -> None:
    """`rerun` takes over the lock of the last call."""
    address = alpha.environment.pop("JOBRUN_LOCK")
    alpha("run", "sales", *HOURLY, "--lock", address, "--", "true", now=NOW)
    held = Held(beta, "sales", now=NOW)
    found = alpha("rerun", "sales", "2026-09-04T11:00Z", now=NOW)
    assert "lock-held" in found.stderr
    assert held.release().status == 0


def test_an_idle_call_asks_no_server(jobrun: Jobrun) -> None:
    """Nor does a look."""
    jobrun("run", "sales", *HOURLY, "--", "true", now=NOW)
    env: dict[str, Any] = {"JOBRUN_LOCK": "redis://nowhere.invalid"}
    for argv in (("run", "sales", *HOURLY, "--", "true"), ("status",), ("plan", "sales")):
        assert jobrun(*argv, now=NOW, env=env).status == 0
