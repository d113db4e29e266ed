"""What a ledger needs of the database that it lies in.

All that is written into a ledger is SQL that SQLite and PostgreSQL read alike, so that there is one
record of what a call means. Where their words differ it takes those that both know: `CASE` for the
larger of two values, a column after its table's name where a row is put in the place of another.

Parameters are `:name` and a dict, or `?` and a tuple. Instants go in and come out as `iso` text,
truth as True and False or 1 and 0.

This module is on the idle way.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from contextlib import AbstractContextManager
    from typing import Any, Protocol, TypeAlias

    from jobrun.errors import JobrunError

    Parameters: TypeAlias = tuple[object, ...] | dict[str, Any]

    class Transaction(Protocol):
        def roll_back(self) -> None:
            """Nothing of it is written; what follows in it is not run."""

    class Database(Protocol):
        @property
        def address(self) -> str:
            """What a person calls it: the path of the file, or its address."""

        def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
            """Every row of a query."""

        def change(self, sql: str, parameters: Parameters = ()) -> int:
            """Run a statement that writes; how many rows it changed."""

        def put(self, sql: str, parameters: Parameters = ()) -> None:
            """Run a statement that writes, where nobody asks how many rows it has changed.

            Part of a transaction. What is wrong with it may be told by the next call.
            """

        def insert(self, sql: str, parameters: Parameters = ()) -> int:
            """Run an INSERT into a table with an id; the id of its row."""

        def stream(
            self, sql: str, parameters: Parameters = ()
        ) -> Generator[tuple[Any, ...], None, None]:
            """The rows of a query, a page at a time; a part of `reading` or of a transaction."""

        def reading(self) -> AbstractContextManager[None]:
            """All that is read in it is of one instant; for as short as may be."""

        def as_kept(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
            """What will be read where these are written."""

        def load(self, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
            """Write many rows into a table, ids and all. A part of a transaction."""

        def reserve(self, table: str, largest: int) -> None:
            """From now on no new row of the table gets an id up to `largest`, whoever writes it."""

        def writing(
            self,
            patience: float = ...,
            lost: type[JobrunError] = ...,
            job: str | None = None,
            long: bool = False,
        ) -> AbstractContextManager[Transaction]:
            """A transaction. No other of the same job has begun and not ended.

            `patience`: seconds that it waits for others; `lost` is the error for a ledger that has
            gone in the meantime; `long`: how long it takes depends on what is on record, or in a
            file. Raises Refused where the others take longer.
            """

        def close(self) -> None: ...


PATIENCE = 30.0  # seconds that a write waits for other writers


def as_text(parameters: Parameters) -> Parameters:
    """Arguments and names that are no text enter with \\xNN in place of each such byte."""
    if isinstance(parameters, dict):
        return {name: _escaped(value) for name, value in parameters.items()}
    return tuple(map(_escaped, parameters))


def _escaped(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a pair, from Windows
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
