"""What machines.py measures, a function a row."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg

from jobrun.instants import MINUTE
from tests import servers
from tests.bench import fleet
from tests.bench.machines_scene import (
    FIRST,
    Bench,
    Seen,
    death_of,
    poll_often,
    span,
)
from tests.conftest import until

FENCED = 76

# -- once in a slot --------------------------------------------------------------------------------


def slots(bench: Bench, options: Sequence[str], address: str, count: int) -> Counter[int]:
    """Three hosts are called in each slot, the last 100 ms late; a run takes 20 ms. How many slots
    had how many runs."""
    hosts = bench.hosts(address, "alpha", "beta", "gamma")
    bench._jobs += 1
    journal, job = bench.folder / f"slots{bench._jobs}", f"slots{bench._jobs}"
    for slot in range(1, count + 1):
        now = float(FIRST + slot * MINUTE + 3)
        text = f"echo {slot} >>{journal}; sleep 0.02"
        argv = ["run", job, *options, "--", "sh", "-c", text]
        pids = [host.call(argv, lambda now=now: now) for host in hosts[:2]]  # type: ignore[misc]
        time.sleep(0.1)
        pids.append(hosts[2].call(argv, lambda now=now: now))  # type: ignore[misc]
        for pid in pids:
            os.waitpid(pid, 0)
    runs = Counter(journal.read_text().split())
    return Counter(runs[str(slot)] for slot in range(1, count + 1))


def once_in_a_slot(bench: Bench, *more: str) -> Seen:
    found = slots(bench, ["--every", "1m", *more], bench.server().address, bench.times(200, 5))
    return Seen(set(found) == {1}, f"runs: slots {dict(found)}")


def lock_alone(bench: Bench) -> Seen:
    """Without windows there is only the lock."""
    found = slots(bench, [], bench.server().address, bench.times(200, 5))
    return Seen(max(found) > 1, f"runs: slots {dict(found)}")


# -- what the others wait for ----------------------------------------------------------------------


def after_kill(bench: Bench, lock: Sequence[str], count: int, low: float, high: float) -> Seen:
    address, took = bench.server().address, []
    for _ in range(count):
        scene = bench.scene(address, lock)
        scene.hold()
        scene.challenge()
        killed = scene.strike(signal.SIGKILL)
        took.append(scene.taken_over() - killed)
        scene.outcome(scene.holder), scene.outcome(scene.rival)
    return Seen(low <= min(took) and max(took) < high, span(took))


def stopped(bench: Bench, lock: Sequence[str], count: int) -> Seen:
    """The command ends while its wrapper is stopped; all at once, so that it takes one time."""
    address = bench.server().address
    scenes = [
        bench.scene(address, [*lock, "--lock-ttl", "5s", "--kill-after", "1s"], "sleep 1.5")
        for _ in range(count)
    ]
    for scene in scenes:
        scene.hold()
        scene.strike(signal.SIGSTOP)
        scene.since = time.time()
    for scene in scenes:
        scene.challenge()
    took = [scene.taken_over() - scene.since for scene in scenes]
    rivals = Counter(scene.outcome(scene.rival) for scene in scenes)
    time.sleep(max(0.0, scenes[-1].since + 8 - time.time()))
    for scene in scenes:
        scene.strike(signal.SIGCONT)
    codes = Counter(scene.outcome(scene.holder) for scene in scenes)
    accepted = Counter(scene.accepted() for scene in scenes)
    right = codes == {FENCED: count} and rivals == {0: count} and accepted == {1: count}
    what = f"rival {span(took)}; old fenced {codes[FENCED]} of {count}, new accepted {rivals[0]}"
    return Seen(right and max(took) <= 5.2, what)


def stopped_alone(bench: Bench, lock: Sequence[str]) -> Seen:
    scene = bench.scene(
        bench.server().address, [*lock, "--lock-ttl", "5s", "--kill-after", "1s"], "sleep 1.5"
    )
    scene.hold()
    scene.strike(signal.SIGSTOP)
    time.sleep(8)
    scene.strike(signal.SIGCONT)
    code = scene.outcome(scene.holder)
    return Seen((code, scene.accepted()) == (0, 1), f"exit {code}, {scene.accepted()} accepted")


def cut(bench: Bench, ttl: int, count: int) -> Seen:
    address, took, overlap, dead = bench.server().address, [], [], []
    for _ in range(count):
        scene = bench.scene(address, ["--lock-ttl", f"{ttl}s", "--kill-after", "1s"])
        scene.hold()
        scene.challenge()
        scene.a.cut()
        since = time.time()
        died = death_of(scene.command)
        began = scene.taken_over()
        scene.a.mend()
        took.append(began - since)
        dead.append(died - since)
        overlap.append(max(0.0, died - began))
        scene.outcome(scene.holder), scene.outcome(scene.rival)
    right = max(took) <= ttl + 0.1 and max(overlap) == 0 and max(dead) <= ttl - 1.5 + 1
    return Seen(right, f"command dead {span(dead)}, rival {span(took)}, overlap {max(overlap):.2f}")


# -- the command does not outlive its lock ---------------------------------------------------------

GRANDCHILD = "sleep 60 & echo $! >child; wait"
STUBBORN = "trap '' TERM; echo $$ >child; while :; do sleep 1; done"


def orphaned(bench: Bench, command: str, count: int, before: Callable[[], None]) -> list[float]:
    """kill -9 of the wrapper: how long two commands ran at once, and how long the first one did."""
    address, overlap, dead = bench.server().address, [], []
    for _ in range(count):
        options = ["--lock-ttl", "6s", "--kill-after", "1s"]
        scene = bench.scene(address, options, command)
        scene.hold(before)
        until(lambda scene=scene: (scene.a.folder / "child").exists(), "its child")  # type: ignore[misc]
        child = int((scene.a.folder / "child").read_text() or scene.command)
        scene.challenge()
        killed = scene.strike(signal.SIGKILL)
        died = death_of(scene.command, child)
        overlap.append(max(0.0, died - scene.taken_over()))
        dead.append(died - killed)
        scene.outcome(scene.holder), scene.outcome(scene.rival)
    return [max(overlap), max(dead)]


def killed(bench: Bench) -> Seen:
    count = bench.times(10)
    plain = orphaned(bench, GRANDCHILD, count, poll_often)
    stubborn = orphaned(bench, STUBBORN, count, poll_often)
    right = plain[0] == stubborn[0] == 0 and max(plain[1], stubborn[1]) < 1.2
    what = f"dead after {plain[1] * 1000:.0f} ms at most, one that ignores TERM {stubborn[1]:.2f} s"
    return Seen(right, f"{what}; overlap {max(plain[0], stubborn[0]):.2f} s")


def let_socket_go() -> None:
    """A guardian that does not keep the lock's socket."""
    from jobrun import hold

    poll_often()
    hold.Hold.needed = property(lambda self: {self.receiver})  # type: ignore[assignment, method-assign]


def killed_without_socket(bench: Bench) -> Seen:
    overlap, _ = orphaned(bench, STUBBORN, bench.times(4, 1), let_socket_go)
    return Seen(overlap > 0, f"overlap {overlap:.2f} s")


def wrapper_stopped(bench: Bench) -> Seen:
    address, dead, overlap = bench.server().address, [], []
    for command in (GRANDCHILD, STUBBORN)[: bench.times(2, 1)]:
        scene = bench.scene(address, ["--lock-ttl", "6s", "--kill-after", "1s"], command)
        scene.hold()
        scene.challenge()
        since = scene.strike(signal.SIGSTOP)
        died = death_of(scene.command)
        overlap.append(max(0.0, died - scene.taken_over()))
        dead.append(died - since)
        scene.outcome(scene.rival)
        scene.strike(signal.SIGCONT)
        scene.outcome(scene.holder)
    right = max(dead) <= 5.6 and max(overlap) == 0
    return Seen(right, f"dead after {span(dead)}, overlap {max(overlap):.2f} s")


# -- lost and found --------------------------------------------------------------------------------

WAITS = "until [ -e go ]; do sleep 0.02; done"
_SESSION = (
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'jobrun alpha%%'"
    " AND state IS NOT NULL"
)


def session(address: str) -> int | None:
    """The server's process that holds the lock; None: there is none, or no server."""
    with contextlib.suppress(psycopg.OperationalError):
        for (pid,) in fleet.query(address, _SESSION):
            return int(pid)
    return None


def found_again(bench: Bench, disturb: Callable[[servers.Postgres], float], count: int) -> Seen:
    """The lock is lost by `disturb`, which tells since when it can be had again."""
    server, took, right = bench.server(), [], True
    for _ in range(count):
        scene = bench.scene(server.address, ["--lock-ttl", "6s", "--kill-after", "1s"], WAITS)
        scene.hold()
        token, before = scene.token(), session(server.address)
        since = disturb(server)
        until(lambda before=before: session(server.address) not in (None, before), "the lock")  # type: ignore[misc]
        took.append(max(0.0, time.time() - since))
        (scene.a.folder / "go").touch()
        code = scene.outcome(scene.holder)
        right = right and (code, scene.token(), scene.accepted()) == (0, token, 1)
    return Seen(right and max(took) < 1.5, f"again after {span(took)}, command untouched: {right}")


def end_session(server: servers.Postgres) -> float:
    asked = _SESSION.replace("SELECT pid", "SELECT pg_terminate_backend(pid)")
    fleet.query(server.address, asked)
    return time.time()


def restart(how: signal.Signals) -> Callable[[servers.Postgres], float]:
    def disturb(server: servers.Postgres) -> float:
        server.stop(how)
        server.start()
        return time.time()

    return disturb


def server_down(bench: Bench) -> Seen:
    server = bench.server()
    scene = bench.scene(server.address, ["--lock-ttl", "6s", "--kill-after", "1s"])
    scene.hold()
    server.stop()
    since = time.time()
    dead = death_of(scene.command) - since
    code = scene.outcome(scene.holder)
    kept = list(scene.a.folder.glob("*.d/outbox/*.json"))
    server.start()
    again = scene.outcome(scene._call(scene.a))
    runs = [outcome for _, _, outcome in scene.runs()]
    right = code == FENCED and len(kept) == 1 and 3.5 <= dead <= 5.6
    what = f"cancelled after {dead:.1f} s, exit {code}, {len(kept)} in the outbox;"
    return Seen(right and again == 0, f"{what} then on record: {', '.join(map(str, runs))}")


def pauses(bench: Bench) -> Seen:
    scene = bench.scene(bench.server().address, ["--lock-ttl", "6s", "--kill-after", "1s"], WAITS)
    scene.hold()
    for _ in range(bench.times(5, 1)):
        scene.strike(signal.SIGSTOP)
        time.sleep(3)
        scene.strike(signal.SIGCONT)
        time.sleep(1)
    (scene.a.folder / "go").touch()
    code = scene.outcome(scene.holder)
    return Seen((code, scene.accepted()) == (0, 1), f"exit {code}, {len(scene.runs())} run")


def standby(bench: Bench) -> Seen:
    server = bench.server()
    scene = bench.scene(server.address, [], WAITS)
    scene.hold()
    scene.challenge()
    # One that is being asked in this very moment has one, for a millisecond.
    asked = (
        "SELECT count(*), count(backend_xmin) FILTER (WHERE state <> 'active'"
        " OR clock_timestamp() - query_start > interval '100 milliseconds') FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND application_name LIKE 'jobrun%%'"
    )
    until(lambda: fleet.query(server.address, asked)[0][0] == 2, "the standby")
    samples = []
    deadline = time.monotonic() + bench.times(60, 3)
    fleet.query(server.address, "CREATE TABLE t AS SELECT generate_series(1, 1000) AS n")
    while time.monotonic() < deadline:
        samples += fleet.query(server.address, asked)
        time.sleep(0.05)
    fleet.query(server.address, "DELETE FROM t")
    fleet.query(server.address, "VACUUM t")
    ((pages,),) = fleet.query(server.address, "SELECT pg_relation_size('t')")
    (scene.a.folder / "go").touch()
    scene.outcome(scene.holder), scene.outcome(scene.rival)
    held = sum(xmin for _, xmin in samples)
    right = held == 0 and pages == 0 and min(count for count, _ in samples) == 2
    return Seen(right, f"{len(samples)} samples, {held} with a snapshot; VACUUM left {pages} bytes")


def stop_inside() -> None:
    """A holder that is stopped in the middle of its last transaction."""
    from jobrun.ledger_sql import SqlLedger

    real = SqlLedger._before

    def before(self: SqlLedger, result: object) -> object:
        SqlLedger._before = real  # type: ignore[method-assign]
        os.kill(os.getpid(), signal.SIGSTOP)
        return real(self, result)  # type: ignore[arg-type]

    SqlLedger._before = before  # type: ignore[method-assign, assignment]


def inside_a_transaction(bench: Bench) -> Seen:
    scene = bench.scene(bench.server().address, ["--lock-ttl", "5s", "--kill-after", "1s"], "true")
    scene.hold(stop_inside)
    until(lambda: Path(f"/proc/{scene.holder}/stat").read_text().rpartition(")")[2][1] == "T", "it")
    since = time.time()
    scene.challenge()
    took = scene.taken_over() - since
    scene.strike(signal.SIGCONT)
    codes = scene.outcome(scene.holder), scene.outcome(scene.rival)
    return Seen(
        took <= 5.2 and codes == (FENCED, 0), f"rival after {took:.1f} s, exit codes {codes}"
    )
