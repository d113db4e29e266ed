"""A job's lock on a Redis or Valkey server, for several machines: `--lock redis://host:port/db`.

It is a key that expires, `jobrun:<name space>:<slot>:<job>`, with who holds it as its value. The
holder renews it, and whoever comes asks for it with a script, so that each question is one step.

- A holder that is killed is missed within a second, not when its key expires: it listens to a
  channel of its own as long as it lives, its *presence*. Nobody ever writes there. Who asks twice,
  a second or more apart, and finds the same holder with nobody listening, has the lock. A holder
  that is stopped, or cut off, still counts as listening: it has until its key expires. (One that
  is stopped and whose connection the server closes meanwhile looks like a dead one.)
- The presence is the very connection that renews. The guardian of a command has a copy of its
  socket: the holder is missed only once the command is dead as well.
- A server that has just been started may have forgotten who holds what: it gives nothing away
  until its holders have had the time to come back.
- A connection that breaks is made anew, and the key, where it is still ours or nobody's, taken on:
  the command does not notice.

The fencing token is the ledger's own, and is not counted here: it is the ledger that refuses a
result, in the same transaction, and two counts in two places would have to be held together by
hand. So nothing need last on this server: what it may forget at a restart is who holds what, and
then two may run at the same moment, of whom the ledger accepts one. Where each machine has a ledger
of its own, in a file, none can refuse what another has done: there this lock keeps them apart as
well as it can, and no more.
"""

from __future__ import annotations

import os
import time

from jobrun.boottime import about, boottime
from jobrun.errors import ConfigError, JobrunError, Refused
from jobrun.redis_wire import TLS_HINT, Fault, Reply, Server, Wire, wait_for
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobrun.lock import Interruption
    from jobrun.redis_address import Address

PATIENCE = 2.0  # seconds for a connection, or for an answer
NO_ANSWER = f"no answer within {PATIENCE:g} s"
POLL = 0.05  # seconds between two questions of a call that waits
LOOK = 1.0  # seconds between two looks at a holder that nobody hears of
SETTLED = 3  # seconds that a server is up, before what it does not know of is nobody's
AGAIN = 0.1  # seconds between two attempts to reach a server
LAST_WORD = 0.15  # seconds before the end in which we still say how it was lost
MARGIN = 0.5  # seconds kept back for what our own clocks and processes take
NEVER = float("inf")

# KEYS: the lock. Who holds it, and how many listen to that; nobody, while the server is younger
# than the seconds given, is somebody too.
_SEE = """
local held = redis.call('GET', KEYS[1]) or ''
local listeners = 0
local id, mark = string.match(held, '^(%S+) (%S)')
if mark == '+' then
  listeners = redis.call('PUBSUB', 'NUMSUB', KEYS[1] .. ':alive:' .. id)[2]
elseif held ~= '' then
  listeners = 1
else
  local server = redis.pcall('INFO', 'server')
  local up = type(server) == 'string' and string.match(server, 'uptime_in_seconds:(%d+)')
  listeners = up and tonumber(up) < tonumber(ARGV[1]) and 1 or 0
end
"""
_LOOK = f"{_SEE} return {{held, listeners}}"
# ARGV: those seconds, the value that is to stand there, milliseconds, the value of a holder that
# nobody has heard of for a second. Answers: whether it is ours, who holds it, how many listen.
_ACQUIRE = f"""{_SEE}
if listeners > 0 or (held ~= '' and held ~= ARGV[4]) then
  return {{0, held, listeners}}
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return {{1, held, 0}}
"""
# Answers whether it is ours, and who has it. A key that has expired, or was forgotten, is nobody's:
# taken anew. Else only PEXPIRE, which a server whose memory is full does as well.
_RENEW = """
local held = redis.call('GET', KEYS[1])
if held == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
elseif held then
  return {0, held}
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return {1, ''}
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1
"""


class RedisLock:
    """The lock of one job, or of one of its slots; see lock.SharedLock.

    `who` is what others are told of its holder. `ttl` and `kill_after` are seconds: a holder that
    has heard nothing ends its command so long before its key expires that it is dead by then.
    """

    def __init__(
        self,
        address: Address,
        job: str,
        who: str,
        ttl: float,
        kill_after: float,
        slot: int | None = None,
        namespace: str = "",
    ) -> None:
        self.key = f"jobrun:{namespace}:{'' if slot is None else slot}:{job}"
        self.ttl = ttl
        self._address = address
        self._who = " ".join(who.split())
        self._kill_after = kill_after
        self._holder = ""
        self._keeper: RedisKeeper | None = None

    @property
    def keeper(self) -> RedisKeeper:
        """Of a lock that has been acquired."""
        assert self._keeper is not None
        return self._keeper

    def acquire(self, wait: float = 0.0, signals: Interruption | None = None) -> bool:
        """Take it; False if another holds it for `wait` seconds, or a signal ended the wait.

        A holder that seems to be dead is looked at twice whatever `wait` is, and a server that has
        just been started is given its time. One that is lost while it is waited for is looked for
        as long. Raises Refused (75)
        where the server is out of reach, ConfigError (78) where it can't be a lock's.
        """
        deadline, reached = time.monotonic() + wait, False
        while True:
            try:
                server = Server(self._address)
                wire = server.connect()
                try:
                    lease = Lease(self._address.name, self.key, os.urandom(8).hex(), self._who)
                    lease.enter(wire)
                    reached = True
                    sent = self._take(lease, wire, deadline, signals)
                    if sent is not None:
                        terms = Terms.of(self.ttl, self._kill_after)
                        self._keeper = RedisKeeper(server, wire, lease, terms, sent)
                    return sent is not None
                finally:
                    if self._keeper is None:
                        wire.close()
            except (OSError, Fault) as error:
                meaning = explained(self._address.name, error)
                is_soon = reached and time.monotonic() + AGAIN < deadline
                if not is_soon or not isinstance(meaning, Refused):
                    raise meaning from error
            _pause(AGAIN, signals)
            if signals is not None and signals.received:
                return False

    def _take(
        self, lease: Lease, wire: Wire, deadline: float, signals: Interruption | None
    ) -> float | None:
        """When it was asked for, of `boottime`; None where it was not to be had."""
        doubt = Doubt()
        while True:
            sent = boottime()
            ours, other, listeners = lease.ask(wire, self.ttl, doubt.proved)
            if ours:
                return sent
            self._holder = _who(other)
            doubt.see(other, listeners)
            left = max(deadline, doubt.until) - time.monotonic()
            if left <= 0:
                return None
            _pause(min(left, about(POLL)), signals)
            if signals is not None and signals.received:
                return None

    def is_free(self) -> bool:
        """Whether nobody has it, looked at without taking it; errors as of `acquire`."""
        try:
            wire = Server(self._address).connect()
            try:
                _check(*wire.wait(wire.log_in(), PATIENCE))
                return self._look(wire)
            finally:
                wire.close()
        except (OSError, Fault) as error:
            raise explained(self._address.name, error) from error

    def _look(self, wire: Wire) -> bool:
        doubt = Doubt()
        while True:
            wire.send("EVAL", _LOOK, 1, self.key, SETTLED)
            (answer,) = wire.wait(1, PATIENCE)
            _check(answer)
            held, listeners = answer
            if listeners == 0 and held == doubt.proved:
                return True
            doubt.see(held, listeners)
            if time.monotonic() >= doubt.until:
                return False
            time.sleep(POLL)

    def is_settled(self) -> bool:
        """Before that it is neither given nor called free."""
        return True

    def is_held(self) -> bool:
        """Whether it is still ours, asked of the server; at most PATIENCE seconds."""
        return self._keeper is not None and self._keeper.is_confirmed()

    def holder(self) -> str:
        """Who held it when it was last refused; empty where that was nobody."""
        return self._holder

    def release(self) -> None:
        """Free at once where the server can be reached, else as if we had been killed."""
        if self._keeper is not None:
            self._keeper.end()
            self._keeper = None


class Doubt:
    """Whether what was seen is enough, or has to be looked at again: until `until`, monotonic."""

    def __init__(self) -> None:
        self.until = 0.0
        self._value = ""
        self._since = 0.0

    @property
    def proved(self) -> str:
        """The holder of whom nobody has heard for long enough; empty: there is none."""
        return self._value if self._value and time.monotonic() >= self._since + LOOK else ""

    def see(self, holder: str, listeners: int) -> None:
        now = time.monotonic()
        if holder and listeners:
            self._value, self.until = "", 0.0
        elif not holder:  # a server that has just been started
            self._value, self.until = "", now + LOOK
        elif holder != self._value:
            self._value, self._since, self.until = holder, now, now + LOOK + 2 * POLL


class Terms(NamedTuple):
    """In seconds. `lasts`: how long after a question that was answered the command may run."""

    ttl: float
    lasts: float
    interval: float  # between two questions

    @classmethod
    def of(cls, ttl: float, kill_after: float) -> Terms:
        """Asked so often that a command survives it if we are stopped for half of the time."""
        often = max(ttl / 10, min(ttl / 3, ttl / 2 - kill_after - 1))
        return cls(ttl, ttl - kill_after - MARGIN, often)


class Lease:
    """What is said for one holder: its name on the server, and the questions."""

    def __init__(self, server: str, key: str, name: str, who: str) -> None:
        self.server = server
        self._key = key
        self._name = name
        self._who = who
        self._hears = True

    @property
    def value(self) -> str:
        return f"{self._name} {'+' if self._hears else '-'} {self._who}"

    def enter(self, wire: Wire) -> None:
        """Log in and be present, waiting for it. Raises OSError, Fault.

        Who may not listen to a channel is not present, and says so: its key has to expire.
        """
        count = wire.log_in()
        wire.send("SUBSCRIBE", f"{self._key}:alive:{self._name}")
        *answers, present = wire.wait(count + 1, PATIENCE)
        _check(*answers)
        self._hears = not isinstance(present, Fault)

    def ask(self, wire: Wire, ttl: float, gone: str) -> tuple[bool, str, int]:
        """Whether it is ours now, who has it, how many listen to that."""
        times = int(ttl * 1000)
        wire.send("EVAL", _ACQUIRE, 1, self._key, SETTLED, self.value, times, gone)
        (answer,) = wire.wait(1, PATIENCE)
        _check(answer)
        return bool(answer[0]), str(answer[1]), int(answer[2])

    def enter_again(self, wire: Wire, ttl: float) -> int:
        """The same and a renewal, without waiting: how many answers it gets, that the last."""
        count = wire.log_in()
        if self._hears:
            wire.send("SUBSCRIBE", f"{self._key}:alive:{self._name}")
            count += 1
        return count + self.renew(wire, ttl)

    def renew(self, wire: Wire, ttl: float) -> int:
        wire.send("EVAL", _RENEW, 1, self._key, self.value, int(ttl * 1000))
        return 1

    def give_back(self, wire: Wire) -> int:
        wire.send("EVAL", _RELEASE, 1, self._key, self.value)
        return 1


class RedisKeeper:
    """Holds the lock while a command runs; see lock.Keeper. Its instants are of `boottime`.

    One question is under way at most, and a connection that does not answer it in time is given up
    for a new one. Of an old one the socket stays open until another has taken its place, so that
    `held_fd` never names two of them.
    """

    def __init__(
        self, server: Server, wire: Wire, lease: Lease, terms: Terms, taken: float
    ) -> None:
        self.lost: str | None = None
        self.adopted = 0
        self.until = taken + terms.lasts
        self._server = server
        self._lease = lease
        self._terms = terms
        self._held: Wire = wire  # its socket is the one that the server counts
        self._wire: Wire | None = wire  # the one that is asked; None: it is to be made anew
        self._owed = 0  # answers that are still to come; the renewal's is the last of them
        self._asked = 0.0  # when the question that is under way was sent
        self._next = taken + terms.interval  # when the next one is due
        self._answers = 0
        self._trouble = ""  # what went wrong since the last good answer

    @property
    def fd(self) -> int:
        return -1 if self._wire is None or self.lost else self._wire.fd

    @property
    def wants_write(self) -> bool:
        return self._wire is not None and self._wire.wants_write

    @property
    def held_fd(self) -> int:
        return self._held.fd

    @property
    def due(self) -> float:
        if self.lost:
            return NEVER
        soon = self._asked + PATIENCE if self._owed else self._next
        return min(soon, self.until - LAST_WORD) if self._is_unheard else soon

    @property
    def _is_unheard(self) -> bool:
        """Whether we have asked in good time, and have no answer. Who was stopped has not asked."""
        asked = self._owed > 0 and self._asked < self.until - LAST_WORD
        return asked or bool(self._trouble)

    def guard(self, run_id: int | None) -> None:
        """Asks first, and waits for it, where nobody has for a while: nothing runs yet.

        The run's number is not needed: what counts is whose the key is.
        """
        if self.lost is None and (self._trouble or boottime() >= self._next):
            self.is_confirmed()

    def on_ready(self) -> None:
        if self._wire is not None and not self.lost:
            self._turn(self._wire, boottime())

    def on_time(self, now: float) -> None:
        self.on_ready()  # an answer may have come while we were stopped
        if self.lost:
            return
        if self._owed and now >= self._asked + PATIENCE:
            self._give_up(now, NO_ANSWER)
        if self._is_unheard and now >= self.until - LAST_WORD:
            self.lost = f"{self._lease.server}: {self._trouble or 'no answer'}"
        elif not self._owed and now >= self._next:
            self._ask(now)

    def rest(self) -> None:
        """An answer that is still to come is read with the next one."""

    def is_confirmed(self) -> bool:
        """Ask, and wait for the answer."""
        now, known = boottime(), self._answers
        deadline = now + PATIENCE
        if self._wire is not None and not self._owed:
            self._next = now
        while not self.lost and now < deadline:
            self.on_time(now)
            if self._answers == known:
                self._await(min(self.due, deadline) - now)
            now = boottime()
            if self._answers > known:
                if now < self.until:
                    return True
                known, self._next = self._answers, now  # it had come long ago: we were stopped
        if self._owed:
            self._give_up(now, NO_ANSWER)
        return False

    def _await(self, seconds: float) -> None:
        if self.fd >= 0:
            wait_for(self.fd, self.wants_write, seconds)
            self.on_ready()
        else:
            time.sleep(max(0.0, seconds))

    def end(self) -> None:
        """Give the lock back, and let go of all sockets."""
        try:
            if self._wire is not None and not self.lost:
                self._wire.wait(self._owed + self._lease.give_back(self._wire), PATIENCE)
        except OSError:
            pass
        finally:
            self._drop()
            self._held.close()

    # -- a question, and what comes of it ---------------------------------------------------------

    def _ask(self, now: float) -> None:
        self._asked = now
        try:
            if self._wire is None:
                self._wire = self._server.connect()
                self._owed = self._lease.enter_again(self._wire, self._terms.ttl)
            else:
                self._owed = self._lease.renew(self._wire, self._terms.ttl)
        except OSError as error:
            self._give_up(now, _said(error))
        else:
            self._turn(self._wire, now)

    def _turn(self, wire: Wire, now: float) -> None:
        try:
            replies = wire.turn()
        except OSError as error:
            self._give_up(now, _said(error), at_once=wire is self._held)
            return
        for reply in replies:
            self._owed -= 1
            if isinstance(reply, Fault):
                self._give_up(now, _said(reply))
                return
            if self._owed == 0 and isinstance(reply, list):
                self._hear(wire, reply)

    def _hear(self, wire: Wire, reply: list[Reply]) -> None:
        """The answer to a renewal."""
        if not reply[0]:
            self.lost = f"{self._lease.server}: taken by {_who(reply[1])}"
            return
        self._answers += 1
        self._trouble = ""
        self.until = self._asked + self._terms.lasts
        self._next = self._asked + self._terms.interval
        if wire is not self._held:
            self._held.close()
            self._held = wire
            self.adopted += 1

    def _give_up(self, now: float, trouble: str, at_once: bool = False) -> None:
        self._trouble = trouble
        self._owed = 0
        self._next = now if at_once else now + AGAIN
        self._drop()

    def _drop(self) -> None:
        """The connection that is asked; not yet the socket that is held, see above."""
        if self._wire is not None and self._wire is not self._held:
            self._wire.close()
        self._wire = None


# -- what an answer means -------------------------------------------------------------------------

_WRONG = {
    "NOAUTH": "it wants a password: REDISCLI_AUTH=... in the environment",
    "WRONGPASS": "the user or the password is another: REDISCLI_AUTH=... in the environment",
    "NOPERM": "ACL SETUSER name ~jobrun:* &jobrun:* +@all -@admin, or what of it you like",
    "NOPROTO": "Redis 6 or later, or Valkey",
    "MOVED": "a server that is no cluster: presence is of one server",
    "DB": "redis://host:6379/0: a number below the server's `databases`, which is 16 by default",
}
_UNNAMED = (("unknown command", "NOPROTO"), ("DB index is out of range", "DB"))


def explained(server: str, error: OSError | Fault) -> JobrunError:
    """Refused (75) for what passes, ConfigError (78) for what does not."""
    if isinstance(error, Fault):
        kind = next((kind for said, kind in _UNNAMED if said in str(error)), error.kind)
        if kind in _WRONG:
            return ConfigError(f"lock {server}: {error}", _WRONG[kind])
        return Refused(f"lock {server}: {error}", "the next call tries again")
    if _is_of_a_stranger(error):
        return ConfigError(f"lock {server}: {_said(error)}", TLS_HINT)
    return Refused(
        f"lock {server}: out of reach ({_said(error)})",
        "redis-cli -u with the same address says whether it is the server or the network",
    )


def _is_of_a_stranger(error: OSError) -> bool:
    """Whether it is of a certificate that nobody here vouches for."""
    import ssl

    return isinstance(error, ssl.SSLCertVerificationError)


def settings(address: Address) -> Mapping[str, str | None]:
    """How a server is set, as far as a lock is concerned; None: that is not told us.

    Raises Refused, ConfigError.
    """
    try:
        wire = Server(address).connect()
        try:
            _check(*wire.wait(wire.log_in(), PATIENCE))
            wire.send("INFO", "replication")
            wire.send("INFO", "cluster")
            wire.send("CONFIG", "GET", "appendonly")
            wire.send("CONFIG", "GET", "maxmemory-policy")
            answers = wire.wait(4, PATIENCE)
        finally:
            wire.close()
    except (OSError, Fault) as error:
        raise explained(address.name, error) from error
    role, cluster, *configured = answers
    return {
        "role": _of_info(role, "role"),
        "cluster": _of_info(cluster, "cluster_enabled"),
        "appendonly": _of_config(configured[0]),
        "maxmemory-policy": _of_config(configured[1]),
    }


def _of_info(answer: Reply, name: str) -> str | None:
    if isinstance(answer, Fault):
        return None
    fields = dict(line.partition(":")[::2] for line in str(answer).split("\r\n"))
    return fields.get(name)


def _of_config(answer: Reply) -> str | None:
    return None if isinstance(answer, Fault) or len(answer) < 2 else str(answer[1])


def _check(*answers: Reply) -> None:
    for answer in answers:
        if isinstance(answer, Fault):
            raise answer


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _who(value: str) -> str:
    """Of a key's value: the part that is for people."""
    return value.partition(" ")[2][2:]


def _pause(seconds: float, signals: Interruption | None) -> None:
    if signals is None:
        time.sleep(seconds)
    else:
        signals.pause(seconds)
