"""Keeps a lock of a PostgreSQL connection while a command runs, without ever waiting.

    IDLE      the lock is ours; at `due` the server is asked, which is a word of ours to it as well
    ASKED     ... and has not answered yet
    LOST      the connection is gone; at `due` a new one is begun
    BEGUN     a new connection is being made
    TAKING    ... and was asked for the lock

That a socket is readable does not mean that it is lost: a notification, a reload of the server's
settings make it so too. It is lost when libpq says so, or when the server has said goodbye, which
libpq hands over as a notice before it sees the end.

Until `until` the lock may be lost and found: the command goes on. What the server has seen of us
last was sent no earlier than the question that it has answered last; from then it counts, and so do
we, less what it takes to end the command.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Protocol

import psycopg
from psycopg.pq import ConnStatus, ExecStatus, PGconn, PollingStatus

from jobrun.boottime import boottime

if TYPE_CHECKING:
    from psycopg.pq import abc

    from jobrun.postgres_database import Database

IDLE, ASKED, LOST, BEGUN, TAKING = range(5)

MARGIN = 0.5  # seconds to end a command, besides --kill-after
AGAIN = 0.1  # seconds from one try to take the lock again to the next
_ATTEMPT = 2.0  # seconds for one of them
_ANSWER = 1.0  # seconds that an answer may take when nobody needs it any more
_LAST = 0.1  # seconds before `until` in which the word that is there counts
_NEVER = float("inf")
_GOODBYE = "57P"  # how codes begin with which the server ends a session

Rows = list[tuple[str | None, ...]]


class Bond(Protocol):
    """What binds a lock to a connection."""

    def question(self) -> bytes:
        """A statement that is word of us, and says whether the lock is ours."""

    def other_word(self) -> float:
        """When anything else was sent that keeps the lock as well, by boottime()."""

    def is_ours(self, answer: Rows) -> bool: ...

    def demand(self, backend_pid: int, run_id: int) -> bytes:
        """Statements that take the lock on a new connection."""

    def taken(self, answer: Rows) -> bool:
        """False: not now. Raises Taken where another has it for good."""


class Taken(Exception):
    """Whoever has the lock now has taken our run for lost."""


class Keeper:
    def __init__(self, database: Database, bond: Bond, ttl: float, kill_after: float) -> None:
        self.lost: str | None = None
        self.until = _NEVER
        self.adopted = 0
        self._database = database
        self._bond = bond
        self._allowance = ttl - kill_after - MARGIN
        # So often that the command survives it if we are stopped for half of the time.
        self._interval = max(ttl / 10, min(ttl / 3, ttl / 2 - kill_after - 1))
        self._state = IDLE
        self._new: abc.PGconn | None = None
        self._ways: list[bytes] = []
        self._run_id = 0
        self._sent = 0.0
        self._heard = 0.0  # when that was sent which the server has answered last
        self._due = _NEVER
        self._wants_write = False
        self._why = ""
        self._rows: Rows = []

    def hold(self, asked: float) -> None:
        """The lock has just been taken, on the database's connection; it was asked for then."""
        self._state, self.lost, self._why, self._heard = IDLE, None, "", asked
        self._ways = self._database.ways()
        self.adopted += 1
        self._database.connection.add_notice_handler(self._noticed)

    def let_go(self) -> None:
        """Watch no more."""
        self._drop_new()
        self._due = self.until = _NEVER

    # -- while a command runs ---------------------------------------------------------------------

    def guard(self, run_id: int | None) -> None:
        """Asks first, and waits for the answer, where nobody has for a while: nothing runs yet."""
        self._run_id = run_id or 0
        if boottime() >= self._word + self._interval:
            self.take_again(_ANSWER)
        self._count_from(self._word)

    @property
    def fd(self) -> int:
        return -1 if self._state == LOST or self.lost is not None else _socket(self._connection)

    @property
    def held_fd(self) -> int:
        return _socket(self._database.connection.pgconn)

    @property
    def wants_write(self) -> bool:
        return self._wants_write

    @property
    def due(self) -> float:
        return min(self._due, self.until) if self.lost is None else _NEVER

    def on_ready(self) -> None:
        if self.lost is not None:
            return
        try:
            if self._state == BEGUN:
                self._go_on_connecting()
            elif self._state != LOST:
                self._listen()
        except psycopg.OperationalError as error:
            self._cut(_first_line(error))
        except Taken as error:
            self._lose(str(error))

    def on_time(self, now: float) -> None:
        if self.lost is None and now >= self.until - _LAST:
            self._lose(f"no word from the server: {self._why or 'it does not answer'}")
        if now < self.due:
            return
        try:
            if self._state == IDLE:
                self._send(self._bond.question(), ASKED)
            elif self._state == LOST:
                self._begin()
            elif self._state != ASKED:
                self._cut("no answer to a new connection")
        except psycopg.OperationalError as error:
            self._cut(_first_line(error))

    def rest(self) -> None:
        self._due = self.until = _NEVER
        if self._state == ASKED:
            limit = boottime() + _ANSWER
            while self._state == ASKED and (left := limit - boottime()) > 0:
                self.wait(left)
            if self._state == ASKED:
                self._cut("no answer")
        self._drop_new()
        self._due = _NEVER

    def wait(self, seconds: float) -> None:
        """Until there is something to do, at most so long; and do it. Only where nothing runs."""
        patience = max(0.0, min(seconds, self.due - boottime()))
        if self.fd < 0:
            select.select([], [], [], patience)
        else:
            write = [self.fd] if self._wants_write else []
            select.select([self.fd] if not write else [], write, [], patience)
        self.on_ready()
        self.on_time(boottime())

    def take_again(self, patience: float) -> bool:
        """Whether the lock is ours, or ours again after its connection was lost."""
        self.rest()
        limit = boottime() + patience
        self._due = boottime()
        self.on_time(self._due)
        while self._state != IDLE and self.lost is None and (left := limit - boottime()) > 0:
            self.wait(left)
        self.rest()
        return self._state == IDLE and self.lost is None

    # -- the connection that there is -------------------------------------------------------------

    @property
    def _connection(self) -> abc.PGconn:
        return self._database.connection.pgconn if self._new is None else self._new

    def _send(self, statement: bytes, state: int) -> None:
        self._sent, self._rows = boottime(), []
        self._connection.send_query(statement)
        self._state, self._due = state, _NEVER if state == ASKED else self._sent + _ATTEMPT
        self._flush()

    def _flush(self) -> None:
        self._wants_write = self._connection.flush() != 0

    def _listen(self) -> None:
        connection = self._connection
        connection.consume_input()
        while connection.notifies():
            pass
        if self._wants_write:
            self._flush()
        if self._state == IDLE:
            if connection.status != ConnStatus.OK or self._why:
                self._cut(self._why or "closed by the server")
        elif self._read_all(connection):
            self._hear()

    def _read_all(self, connection: abc.PGconn) -> bool:
        """Whether the answer is whole."""
        while not connection.is_busy():
            result = connection.get_result()
            if result is None:
                return True
            if result.status == ExecStatus.TUPLES_OK:
                self._rows += _rows_of(result)
            elif result.status != ExecStatus.COMMAND_OK:
                raise psycopg.OperationalError(result.get_error_message())
        return False

    def _hear(self) -> None:
        if self._state == ASKED:
            if not self._bond.is_ours(self._rows):
                raise Taken("another call has it")
            self._answered(self._sent)
        elif self._bond.taken(self._rows):
            assert self._new is not None
            self._database.adopt(self._new)
            self._new = None
            self._database.connection.add_notice_handler(self._noticed)
            self.adopted += 1
            self._answered(self._sent)
        else:
            self._cut("another session has the lock")

    def _answered(self, sent: float) -> None:
        self._state, self._why, self._heard = IDLE, "", sent
        self._count_from(sent)

    @property
    def _word(self) -> float:
        return max(self._heard, self._bond.other_word())

    def _count_from(self, word: float) -> None:
        self.until, self._due = word + self._allowance, word + self._interval

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if (notice.sqlstate or "").startswith(_GOODBYE):
            self._why = f"{notice.message_primary}, {notice.sqlstate}"

    # -- a new one --------------------------------------------------------------------------------

    def _cut(self, why: str) -> None:
        """The connection is gone, or that which was to take its place."""
        now, self._why = boottime(), self._why or why
        was_held = self._new is None
        self._drop_new()
        if was_held:
            self._database.connection.close()
        self._state, self._due = LOST, now if was_held else now + AGAIN
        self._wants_write = False

    def _begin(self) -> None:
        self._ways.append(way := self._ways.pop(0))
        self._new = PGconn.connect_start(way)
        if self._new.status == ConnStatus.BAD:
            raise psycopg.OperationalError(self._new.get_error_message())
        self._state, self._due, self._wants_write = BEGUN, boottime() + _ATTEMPT, True

    def _go_on_connecting(self) -> None:
        assert self._new is not None
        status = self._new.connect_poll()
        self._wants_write = status == PollingStatus.WRITING
        if status == PollingStatus.FAILED:
            raise psycopg.OperationalError(self._new.get_error_message())
        if status == PollingStatus.OK:
            self._new.nonblocking = 1
            demand = self._bond.demand(self._new.backend_pid, self._run_id)
            self._send(demand, TAKING)

    def _lose(self, why: str) -> None:
        self._drop_new()
        self.lost = f"{why} ({self._why})" if self._why and self._why not in why else why
        self._database.connection.close()

    def _drop_new(self) -> None:
        if self._new is not None:
            self._new.finish()
            self._new = None
            self._state = LOST


def _socket(connection: abc.PGconn) -> int:
    try:
        return connection.socket
    except psycopg.OperationalError:  # it has none any more
        return -1


def _rows_of(result: abc.PGresult) -> Rows:
    return [
        tuple(_text(result.get_value(row, column)) for column in range(result.nfields))
        for row in range(result.ntuples)
    ]


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]
