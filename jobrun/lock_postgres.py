"""A job's lock among machines: an advisory lock of the session that the ledger lies behind.

It is the ledger's own connection that holds it: what is written over it is written by the holder.
The server frees it at once when the holder's end of the connection closes, and after `ttl` seconds
where it hears nothing: `idle_session_timeout`, which every user may set for a session of his own.

That is only set, and the lock only taken, where the session is ours alone. The protocol tells a
client which process serves it; behind a pooler the one that answers is another. All of it is one
statement, so that a session that is not ours is left as it was.

Where calls take it in both ways (lock_lease.py), one by its session and another by a lease, each
looks for the other's once it has its own: they may both withdraw, but never both run.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from hashlib import sha256

from jobrun.boottime import about, boottime
from jobrun.errors import ConfigError, JobrunError
from jobrun.postgres_keeper import Bond, Keeper, Rows, Taken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.lock import Interruption
    from jobrun.postgres_database import Database

# Seconds, more or less by a fifth, so that those who wait don't ask all at once.
POLL = 1.0
POLL_AT_FIRST, AT_FIRST = 0.1, 30.0
AFTER_A_LOSS = 1.5  # seconds in which whoever had the lock may take it again
TAKE_AGAIN = 1.0  # seconds
# How a session that holds a lock calls itself, before host/pid: a colon would be a parameter's.
_NAME = "jobrun "
_FIRST_VERSION = 140_000  # that has idle_session_timeout

_TAKE = """
WITH session AS MATERIALIZED (
    SELECT CASE WHEN pg_backend_pid() = {pid} AND NOT pg_is_in_recovery()
                THEN pg_try_advisory_lock({key}) END AS got
)
SELECT pg_backend_pid(), CAST(got AS text),
       (SELECT to_char(backend_start AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')
          FROM pg_stat_activity WHERE pid = pg_backend_pid()),
       CASE WHEN got THEN CAST(CAST(set_config('idle_session_timeout', '{ttl}', false)
                                    AS interval) = interval '{ttl} milliseconds' AS text) END,
       CASE WHEN got THEN set_config('application_name', :who, false) END
  FROM session
"""

# What is left of the session before it would keep the lock until its time is over.
_DEMAND = """
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE pid = {before}
   AND to_char(backend_start AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS') = '{since}';
{take};
{leases};
{run};
COMMIT
"""

# What has become of the run, and whose the newest one is that is under way.
RUN = """
SELECT outcome, (SELECT o.host FROM jobrun_run AS o WHERE o.job = r.job AND o.outcome IS NULL
                  ORDER BY o.id DESC LIMIT 1)
  FROM jobrun_run AS r WHERE r.id = {run}
"""

# Whoever may see the session sees what it calls itself; others see that there is one.
SESSIONS = """
SELECT a.application_name FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND CAST(l.classid AS bigint) = :high AND CAST(l.objid AS bigint) = :low
"""
LEASES = """
SELECT 'jobrun ' || host FROM jobrun_lock WHERE name = :name AND expires > clock_timestamp()
"""

# Where one of its processes crashes the server ends all sessions and goes on under the same
# postmaster; what it has counted begins anew then.
_IS_SETTLED = """
SELECT clock_timestamp() - greatest(pg_postmaster_start_time(), stats_reset) > interval '3 seconds'
  FROM pg_stat_bgwriter
"""

# What is set for the session is for as long as it holds a lock.
_LET_GO = "SELECT pg_advisory_unlock({key})"
_RESET = "; RESET idle_session_timeout; RESET application_name"


class ServerLock(Bond):
    """The lock of a job, or one of those beside it (`slot`, counted from 1).

    `who` is what others are told of its holder; `ttl` and `kill_after` are seconds.
    """

    def __init__(
        self,
        database: Database,
        job: str,
        who: str,
        ttl: float,
        kill_after: float,
        slot: int | None = None,
    ) -> None:
        self._who = who.replace(":", "/")
        self._ttl = ttl
        self._database = database
        # No job's name has a colon: `etl.1` is one.
        self._name = job if slot is None else f"{job}:{slot}"
        self._is_taken = False
        self.keeper = Keeper(database, self, ttl, kill_after)

    def acquire(self, wait: float = 0.0, signals: Interruption | None = None) -> bool:
        """Never twice: one release would leave it held."""
        assert not self._is_taken, self._name
        begun = boottime()
        connection = self._database.connection
        while not self._try():
            waited = boottime() - begun
            left = wait - waited
            pause = about(POLL_AT_FIRST if waited < AT_FIRST else POLL)
            if connection is not self._database.connection:
                connection, pause = self._database.connection, AFTER_A_LOSS
            if left <= 0 or (signals is not None and _interrupted(signals, min(pause, left))):
                return False
        return True

    def is_free(self) -> bool:
        return not self._holders(f"{SESSIONS} UNION ALL {LEASES}")

    def holder(self) -> str:
        for name in self._holders(f"{SESSIONS} UNION ALL {LEASES}"):
            if name and name.startswith(_NAME):
                return name.removeprefix(_NAME).replace("/", ":")
        return ""

    @abstractmethod
    def _try(self) -> bool:
        """Take it now, if nobody has it."""

    def _holders(self, asked: str) -> list[str | None]:
        key = self._number() & (2**64 - 1)
        values = {"high": key >> 32, "low": key & 0xFFFF_FFFF, "name": self._name}
        return [name for (name,) in self._database.rows(asked, values)]

    def _number(self) -> int:
        text = f"jobrun:{self._database.schema}/{self._name}"
        digest = sha256(text.encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big", signed=True)


class SessionLock(ServerLock):
    # The server's process that holds it, and since when there is one.
    _session: tuple[int, str] = (0, "")

    def is_held(self) -> bool:
        """What is written over its connection is proof enough where that is there."""
        if not self._is_taken:
            return False
        if self.keeper.lost is None and not self._database.connection.closed:
            return True
        if self.keeper.take_again(TAKE_AGAIN):
            return True
        self._let_go()
        return False

    def is_settled(self) -> bool:
        ((is_settled,),) = self._database.rows(_IS_SETTLED)
        return bool(is_settled)

    def release(self) -> None:
        if not self._is_taken:
            return
        self._let_go()
        if not self._database.connection.closed:
            reset = "" if self._database.locks else _RESET
            with suppress(JobrunError):  # then it is free as well
                self._database.run_script(_LET_GO.format(key=self._number()) + reset)

    def _let_go(self) -> None:
        self._is_taken = False
        self._database.locks -= 1
        self.keeper.let_go()

    def _try(self) -> bool:
        self._check_version()
        taking = self._take(self._database.backend_pid)
        ((pid, got, since, is_set, _),) = self._database.rows(taking, {"who": _NAME + self._who})
        if got is None:
            raise self._no_session(pid)
        if got != "true":
            return False
        self._is_taken = True
        self._database.locks += 1
        self._session, self._database.pause = (pid, since), self._ttl
        if is_set != "true":
            self.release()
            raise _ignored(self._database.address)
        if self._holders(LEASES):
            self.release()
            return False
        self.keeper.hold(self._database.asked)
        return True

    # -- for its keeper ---------------------------------------------------------------------------

    def question(self) -> bytes:
        return b"SELECT pg_backend_pid()"

    def other_word(self) -> float:
        return self._database.asked

    def is_ours(self, answer: Rows) -> bool:
        return answer == [(str(self._session[0]),)]

    def demand(self, backend_pid: int, run_id: int) -> bytes:
        before, since = self._session
        text = _DEMAND.format(
            before=before,
            since=since,
            take=self._take(backend_pid),
            leases=LEASES,
            run=RUN.format(run=run_id),
        )
        return self._database.statement(text, who=_NAME + self._who, name=self._name)

    def taken(self, answer: Rows) -> bool:
        """Its rows: how many sessions were ended, how the lock is, leases, the run."""
        _, (pid, got, since, is_set, _), *rest = answer
        for outcome, host in (row for row in rest if len(row) == 2):
            if outcome == "lost":
                raise taken_over(host)
        if any(len(row) == 1 for row in rest):
            return False
        if got != "true" or is_set != "true" or pid is None or since is None:
            return False
        self._session = (int(pid), since)
        return True

    # -- what is asked ----------------------------------------------------------------------------

    def _take(self, pid: int) -> str:
        return _TAKE.format(pid=pid, key=self._number(), ttl=int(self._ttl * 1000))

    def _check_version(self) -> None:
        version = self._database.server_version
        if version < _FIRST_VERSION:
            raise ConfigError(
                f"ledger {self._database.address}: PostgreSQL {version // 10_000} keeps the lock of"
                " a machine that was stopped or cut off for ever",
                "--lock lease; or PostgreSQL 14 and later",
            )

    def _no_session(self, pid: int) -> JobrunError:
        address, ours = self._database.address, self._database.backend_pid
        if pid == ours:
            return ConfigError(
                f"ledger {address}: a standby, whose locks the primary does not know",
                "the primary's address: postgresql://a,b/db?target_session_attrs=read-write",
            )
        return ConfigError(
            f"ledger {address}: a connection pooler is in between (the connection is of process"
            f" {ours}, process {pid} answers): it hands a session's lock to other clients",
            "the server's own port in the address; or --lock lease, with which a host that crashes"
            " keeps the lock for --lock-ttl",
        )


def taken_over(host: str | None) -> Taken:
    return Taken(f"{'another call' if host is None else f'host {host}'} has taken over")


def _ignored(address: str) -> JobrunError:
    return ConfigError(
        f"ledger {address}: the server ignores idle_session_timeout, so that it would keep the lock"
        " of a machine that was stopped or cut off for ever",
        "--lock lease",
    )


def _interrupted(signals: Interruption, seconds: float) -> bool:
    signals.pause(seconds)
    return signals.received is not None
