"""An open PostgreSQL database: short transactions, one at a time for each job.

Nothing is set for the session: behind a pooler that hands a server's session to another client with
each transaction a setting would be that other client's. What a transaction needs is set in it, what
a value means is in the value: instants are sent with their zone and come back in binary; and every
statement names the schema of the tables, whatever the search path is.

A connection that has gone is made anew, unless it held a lock (lock_postgres.py): then whoever
holds that has to take it again first.

psycopg is loaded with this module, which takes longer than all the rest of a call: only an address
of PostgreSQL loads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache

import psycopg
from psycopg import sql
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_attempts, make_conninfo
from psycopg.pq import Format, TransactionStatus

from jobrun import postgres_address
from jobrun.address import hidden
from jobrun.boottime import boottime
from jobrun.database import PATIENCE, as_text
from jobrun.errors import (
    ConfigError,
    Contradiction,
    DamagedLedger,
    InDoubt,
    JobrunError,
    LedgerError,
    StoreDown,
)
from jobrun.instants import iso
from jobrun.places import name_of
from jobrun.postgres_errors import explained, gone, is_gone, no_schema, not_connected, standby

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn

    from jobrun.database import Parameters

_LOCKS = 0x6A6F6272  # ours, of the two numbers that an advisory lock has
_PAGE = 1000  # rows
_LONG_PAUSE = 600.0  # seconds, as Database.pause: in a file there may be much between two rows
_SINCE_1970 = 946_684_800  # seconds, of PostgreSQL's epoch
# One round trip. Whoever has the lock sees all that those before it have committed: in the default
# isolation each statement sees what is there when it begins.
_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL lock_timeout = {patience};
SET LOCAL idle_in_transaction_session_timeout = {pause};
SELECT set_config('synchronous_commit', 'on', true)
 WHERE current_setting('synchronous_commit') = 'off';
SELECT pg_advisory_xact_lock({locks}, hashtext({schema} || '/' || {job}));
{limit}SELECT CAST(pg_current_xact_id() AS text)
"""

# Of the schema that is named, else the first of the search path: whether a ledger is in it. That is
# told to whoever may not use the schema, too.
_MEET = """
SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision), pg_is_in_recovery(),
       CAST(current_user AS text), CAST(s.name AS text),
       EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                WHERE n.nspname = s.name AND c.relname = 'jobrun_meta')
  FROM (SELECT coalesce(CAST(%s AS name), current_schema()) AS name) AS s
"""

_READ = """
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL idle_in_transaction_session_timeout = {pause}
"""

_RAISE = """
SELECT setval(ids.name, :largest)
  FROM (SELECT CAST(pg_get_serial_sequence(:place, 'id') AS regclass) AS name) AS ids
 WHERE coalesce(pg_sequence_last_value(ids.name), 0) < :largest
"""

# Also where we are stopped between two statements of a pipeline, which is no idleness.
_LIMIT = "SET LOCAL transaction_timeout = {pause};\n"
_HAS_LIMIT = 170_000


class Database:
    """A connection to the server of an address; made anew between transactions, if it is gone.

    `schema` holds the tables, or will: that of the name space, else the first of the search path.
    Whatever is locked on the server is of a job *and* it. `version` is that of the ledger in it, 0
    for none; `role` is who we are there; `skew` is how many milliseconds `clock` is ahead of the
    server's. Raises ConfigError (78) for a standby, and where no schema is there.
    """

    def __init__(
        self,
        address: str,
        namespace: str | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.address = name_of(hidden(address), namespace)
        self._options = postgres_address.read(address, self.address)
        # Seconds that a process which was stopped in a transaction holds up the others.
        self.pause = 15.0
        self.locks = 0  # that its session holds
        self.asked = boottime()  # when it was asked last
        self.connection = self._connect()
        # In a transaction: statements are sent one after another without waiting for answers.
        self._pipeline: psycopg.Pipeline | None = None
        self._entered = ExitStack()
        self._streams = 0  # how many there have been
        self.schema = namespace or ""
        self.role = ""
        self.version = 0
        self.skew: int | None = None
        try:
            self._meet(clock)
        except BaseException:
            self.close()
            raise

    def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Every row of a query."""
        cursor = self._execute(sql, parameters)
        self._answer()
        with self._errors():
            return cursor.fetchall()

    def change(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement that writes; how many rows it changed."""
        cursor = self._execute(sql, parameters)
        self._answer()
        return cursor.rowcount

    def put(self, sql: str, parameters: Parameters = ()) -> None:
        """Send a statement that writes; its answer comes with that to the next question."""
        self._execute(sql, parameters)

    def insert(self, sql: str, parameters: Parameters = ()) -> int:
        """Run an INSERT; the id of its row."""
        return int(self.rows(f"{sql} RETURNING id", parameters)[0][0])

    def stream(
        self, sql: str, parameters: Parameters = ()
    ) -> Generator[tuple[Any, ...], None, None]:
        """The rows of a query, a page at a time; a part of `reading` or of a transaction."""
        self._answer_all()
        self._streams += 1
        with self._errors(), self._alive().cursor(name=f"jobrun_{self._streams}") as cursor:
            cursor.itersize = _PAGE
            cursor.execute(_translated(sql, self.schema), parameters, binary=True)
            yield from cursor

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All that is read in it is of one instant; it holds up nobody but the vacuum."""
        with self._errors():
            self._alive().execute(_READ.format(pause=int(_LONG_PAUSE * 1000)).encode())
        try:
            yield
        finally:
            with suppress(psycopg.Error):  # then the server does
                self.connection.execute("ROLLBACK")

    def as_kept(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """What will be read where these are written."""
        kept = _as_text(values)
        assert isinstance(kept, tuple)
        return kept

    def load(self, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write many rows into a table, ids and all. A part of a transaction."""
        self._answer_all()
        statement = self.statement(f"COPY {table} ({columns}) FROM STDIN")
        try:
            with self._errors(), self._alive().cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        except psycopg.DataError as error:  # a number that is too large for its column
            said = str(error).partition("\n")[0]
            raise Contradiction(f"ledger {self.address}: {said}") from error

    def reserve(self, table: str, largest: int) -> None:
        """From now on no new row of the table gets an id up to `largest`, whoever writes it.

        Who has drawn an id has the table's lock until his row can be seen: under a lock that
        excludes his there is no id that is drawn and not seen.
        """
        with self.writing():
            self.change(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
            place = f"{quoted(self.schema)}.{table}"
            self.rows(_RAISE, {"place": place, "largest": largest})

    def run_script(self, script: str) -> None:
        """All statements of a text, inside a transaction."""
        with self._errors():
            self._alive().execute(script.encode())

    def writing(
        self,
        patience: float = PATIENCE,
        lost: type[JobrunError] = LedgerError,
        job: str | None = None,
        long: bool = False,
    ) -> Transaction:
        """A transaction of one job, or of all there is (None); see database.py."""
        return Transaction(self, patience, job or "", long)

    def close(self) -> None:
        self.connection.close()

    # -- for a transaction ------------------------------------------------------------------------

    def begin(self, patience: float, job: str, long: bool) -> str:
        """Its number."""
        pause = _LONG_PAUSE if long else self.pause
        waits = {"patience": int(patience * 1000), "pause": int(pause * 1000)}
        values: dict[str, object] = {**waits, "locks": _LOCKS, "schema": self.schema, "job": job}
        literals = {name: sql.Literal(value) for name, value in values.items()}
        with self._errors(patience):
            connection = self._alive()
            is_piped = bool(job) and not long
            is_limited = is_piped and connection.info.server_version >= _HAS_LIMIT
            limit = sql.SQL(_LIMIT if is_limited else "").format(**literals)
            cursor = connection.execute(sql.SQL(_BEGIN).format(limit=limit, **literals))
            while cursor.nextset():
                pass
            ((number,),) = cursor.fetchall()
            if is_piped:
                self._pipeline = self._entered.enter_context(_pipeline(self.connection))
        return str(number)

    def commit(self, number: str) -> None:
        """Where the answer is lost the server is asked what became of it: it is never guessed."""
        self.asked = boottime()
        try:
            self.connection.execute("COMMIT")
            self._leave_pipeline()
        except psycopg.Error as error:
            if not is_gone(error):
                raise
            with suppress(psycopg.Error):
                self._leave_pipeline()
            try:
                has_committed = self._has_committed(number)
            except StoreDown as down:
                raise InDoubt(down.message, down.hint) from error
            if not has_committed:
                raise explained(error, self.address, 0, self.rights()) from error

    def roll_back(self) -> None:
        with suppress(psycopg.Error):  # of a statement that nobody waits for any more
            self._leave_pipeline()
        with suppress(psycopg.Error):  # then the server does
            self.connection.execute("ROLLBACK")

    def is_in_transaction(self) -> bool:
        return self.connection.info.transaction_status != TransactionStatus.IDLE

    def _answer(self) -> None:
        """Wait for what was sent."""
        with self._errors():
            if self._pipeline is not None:
                self._pipeline.sync()

    def _answer_all(self) -> None:
        """The rest of the transaction is one statement after another."""
        with self._errors():
            self._leave_pipeline()

    def _leave_pipeline(self) -> None:
        self._pipeline = None
        self._entered.close()

    # -- the connection ---------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            connection = psycopg.connect(
                **self._options,  # type: ignore[arg-type]
                autocommit=True,
                prepare_threshold=None,  # a prepared statement is of one session, see above
            )
        except psycopg.OperationalError as error:
            raise not_connected(error, self.address) from error
        connection.adapters.register_loader("timestamptz", _Instant)
        return connection

    @property
    def backend_pid(self) -> int:
        """The server's process, as the protocol names it: behind a pooler it is another."""
        return self._connected().info.backend_pid

    @property
    def server_version(self) -> int:
        """180001 for 18.1."""
        return self._connected().info.server_version

    def statement(self, text: str, **values: object) -> bytes:
        """As it is sent, with the values in it: what they hold is no part of the statement."""
        literals = {name: sql.Literal(value).as_string(None) for name, value in values.items()}
        return (_translated(text, self.schema).decode() % literals).encode()

    def ways(self) -> list[bytes]:
        """What libpq takes to connect: the server of now first, names resolved already."""
        with self._errors():
            found = [
                make_conninfo(**way).encode()  # type: ignore[arg-type]
                for way in conninfo_attempts(self._options)
            ]
        here = self.connection.info.hostaddr
        return sorted(found, key=lambda way: f"hostaddr={here}".encode() not in way.split())

    def adopt(self, connection: PGconn) -> None:
        """From now on it is this one."""
        self.connection.close()
        self.connection = psycopg.Connection(connection)
        self.connection.autocommit = True
        self.connection.prepare_threshold = None
        self.connection.adapters.register_loader("timestamptz", _Instant)

    def _meet(self, clock: Callable[[], float] | None) -> None:
        """What must be known of the server and its ledger, in one round trip."""
        began = 0.0 if clock is None else clock()
        with self._errors():
            (now, is_standby, self.role, schema, is_there), version = self._ask()
        ended = 0.0 if clock is None else clock()
        if clock is not None:  # it was asked in the middle, more or less
            self.skew = round(((began + ended) / 2 - now) * 1000)
        if is_standby:
            raise standby(self.address)
        if schema is None:
            raise no_schema(self.address)
        self.schema = schema
        if not is_there:  # what was found then is another's, further down the search path
            return
        if isinstance(version, psycopg.Error):
            raise explained(version, self.address, 0, self._rights(is_there=True)) from version
        if version < 0:
            raise DamagedLedger(f"ledger {self.address}: damaged, it does not say its version")
        self.version = version

    def _ask(self) -> tuple[tuple[Any, ...], int | psycopg.Error]:
        """What the server says of itself; the ledger's version, or why it is not to be read."""
        # Not by the schema yet, where that is what is asked for.
        text = "SELECT version FROM jobrun_meta"
        asked = _translated(text, self.schema) if self.schema else text.encode()
        version: int | psycopg.Error = 0
        try:
            with self.connection.pipeline():
                server = self.connection.execute(_MEET, (self.schema or None,))
                ledger = self.connection.execute(asked)
            version = max((found for (found,) in ledger.fetchall()), default=-1)
        except psycopg.errors.UndefinedTable:
            pass
        except psycopg.errors.InsufficientPrivilege as error:
            version = error
        return server.fetchall()[0], version

    def rights(self) -> str:
        """The statements with which its role may do all that a call does."""
        return self._rights(self.version > 0)

    def _rights(self, is_there: bool) -> str:
        schema, role = quoted(self.schema), quoted(self.role)
        if is_there:
            return (
                f"GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE"
                f" ON ALL TABLES IN SCHEMA {schema} TO {role};"
                f" GRANT SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
            )
        return (
            f"CREATE SCHEMA IF NOT EXISTS {schema}; GRANT USAGE, CREATE ON SCHEMA {schema} TO"
            f" {role}; or --namespace with the name of a schema that it may use"
        )

    def _alive(self) -> psycopg.Connection[tuple[Any, ...]]:
        """To ask something."""
        connection = self._connected()
        self.asked = boottime()
        return connection

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self.connection.closed:
            if self.locks:
                raise gone(self.address, "with it the job's lock")
            self._connect_again()
        return self.connection

    def _connect_again(self) -> None:
        """It was let in before, by a primary: what has run is still to be told."""
        try:
            connection = self._connect()
            with self._errors():
                ((is_standby,),) = connection.execute("SELECT pg_is_in_recovery()").fetchall()
            if is_standby:
                connection.close()
                raise standby(self.address)
        except ConfigError as error:
            raise StoreDown(error.message, error.hint) from error
        self.connection = connection

    def _execute(self, statement: str, parameters: Parameters) -> psycopg.Cursor[tuple[Any, ...]]:
        query = _translated(statement, self.schema)
        with self._errors():
            try:
                return self._alive().execute(query, parameters, binary=True)
            except (UnicodeEncodeError, psycopg.DataError) as error:
                if getattr(error, "sqlstate", None) is not None:
                    raise
                return self._alive().execute(query, _as_text(parameters), binary=True)

    def _has_committed(self, number: str) -> bool:
        asked = "SELECT pg_xact_status(CAST(%s AS xid8))"
        with self._errors():
            while True:
                ((status,),) = self._alive().execute(asked, (number,)).fetchall()
                if status != "in progress":  # its session has not noticed yet that we are gone
                    return bool(status == "committed")

    @contextmanager
    def _errors(self, patience: float = PATIENCE) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            meaning = explained(error, self.address, patience, self.rights())
            if meaning is error:
                raise
            raise meaning from error


class Transaction:
    """`with database.writing():` COMMIT at the end, ROLLBACK on an error."""

    def __init__(self, database: Database, patience: float, job: str, long: bool) -> None:
        self._database = database
        self._patience = patience
        self._job = job
        self._long = long
        self._number = ""

    def __enter__(self) -> Transaction:
        try:
            self._number = self._database.begin(self._patience, self._job, self._long)
        except BaseException:
            self.roll_back()
            raise
        return self

    def roll_back(self) -> None:
        if self._database.is_in_transaction():
            self._database.roll_back()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._database.is_in_transaction():
                self._database.commit(self._number)
        finally:
            self.roll_back()


class _Pipeline(psycopg.Pipeline):
    """psycopg's own ends with a Flush after the Sync, and fetches with one. The server takes that
    for a sign of life after which it waits for more, and no longer looks how long we are idle."""

    def _exit_gen(self) -> PQGen[None]:
        return self._sync_gen()


@contextmanager
def _pipeline(connection: psycopg.Connection[tuple[Any, ...]]) -> Iterator[psycopg.Pipeline]:
    """connection.pipeline(), with ours."""
    pipeline = connection._pipeline = _Pipeline(connection)
    try:
        with pipeline:
            yield pipeline
    finally:
        connection._pipeline = None


class _Instant(Loader):
    """`iso` text of whole seconds, whatever zone and style the session has."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return iso(int.from_bytes(data, "big", signed=True) // 1_000_000 + _SINCE_1970)


@cache
def _translated(statement: str, schema: str) -> bytes:
    """The words of psycopg, each table in its schema; PostgreSQL chooses its indexes itself."""
    statement = re.sub(r" INDEXED BY \w+", "", statement)
    statement = re.sub(r":(\w+)", r"%(\1)s", statement).replace("?", "%s")
    place = quoted(schema).replace("%", "%%")
    return re.sub(r"\bjobrun_\w+", lambda table: f"{place}.{table[0]}", statement).encode()


def quoted(name: str) -> str:
    """A name as SQL has it, whatever is in it, a word of SQL's own too."""
    return '"' + name.replace('"', '""') + '"'


def _as_text(parameters: Parameters) -> Parameters:
    """PostgreSQL's text has no NUL besides."""
    parameters = as_text(parameters)
    if isinstance(parameters, dict):
        return {name: _without_nul(value) for name, value in parameters.items()}
    return tuple(map(_without_nul, parameters))


def _without_nul(value: object) -> object:
    return value.replace("\0", "\\x00") if isinstance(value, str) else value
