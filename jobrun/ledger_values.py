"""From what SQLite returns to rows of ours; what no row can be is damage, told by table and value.

SQLite gives back whatever lies in the file. A bit that has turned, or a hand in the file, leaves a
state that is none, an instant that is none, NULL where there must be a value, two values that can't
be true together. The schema refuses such rows when they are written; here they are refused when
they are read, so that nobody who is given a row has to doubt it.

What a column may hold follows from how its field is declared in rows.py.
"""

from __future__ import annotations

import math

from jobrun.errors import DamagedLedger
from jobrun.instants import from_iso, iso
from jobrun.rows import (
    GAP,
    KINDS,
    LOST,
    OUTCOMES,
    STATES,
    Block,
    EventRow,
    Gap,
    HostRow,
    JobRow,
    RunRow,
    SkipRow,
    ValueRow,
    WindowRow,
)
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    from jobrun.database import Database, Parameters

    Row = TypeVar("Row", bound=NamedTuple)
    Check = Callable[[Any], Any]  # from a column's value to its field's; raises _Impossible

HINT = "put a copy back; jobrun doctor looks at all of it"
_PAGE = 1000
_SHOWN = 60  # characters of a value
_LARGEST = 2**62  # one more can still be added

_INSTANTS = frozenset({
    "watermark", "next", "paused_at", "paused_until", "largest_now", "clock_jump_at", "told_at",
    "first_seen", "last_seen", "start", "end", "next_attempt_at", "changed_at", "started", "ended",
    "at", "last_at", "failing_since", "trouble_since",
})  # fmt: skip
_WORDS: dict[tuple[type[NamedTuple], str], tuple[str, ...]] = {
    (WindowRow, "state"): STATES,
    (Block, "state"): (*STATES, GAP),
    (RunRow, "outcome"): OUTCOMES,
    (RunRow, "kind"): KINDS,
}
# Its table, its key there, and the column that tells a person which row it is.
_TABLES: dict[type[NamedTuple], tuple[str, str, str]] = {
    JobRow: ("jobrun_job", "name", "name"),
    WindowRow: ("jobrun_window", "job, key", "key"),
    Gap: ("jobrun_gap", "id", "start"),
    RunRow: ("jobrun_run", "id", "id"),
    SkipRow: ("jobrun_skip", "id", "id"),
    EventRow: ("jobrun_event", "id", "id"),
    ValueRow: ("jobrun_value", "job, key, name", "key"),
    HostRow: ("jobrun_host", "host", "host"),
}


class _Impossible(Exception):
    """A column, and the rule that its value breaks."""

    def __init__(self, column: str, rule: str) -> None:
        super().__init__(column, rule)
        self.column = column
        self.rule = rule


def rows_of(
    database: Database, kind: type[Row], sql: str, parameters: Parameters = ()
) -> list[Row]:
    """The rows of a query that asks for the fields of `kind`, in their order.

    Raises DamagedLedger for the first that can't be: file, table, row, column and value.
    """
    found = []
    for raw in database.rows(sql, parameters):
        try:
            found.append(_row(kind, raw))
        except _Impossible as wrong:
            raise damaged(database, _told(kind, raw, wrong)) from None
    return found


def damaged(database: Database, what: str) -> DamagedLedger:
    return DamagedLedger(f"ledger {database.address}: damaged: {what}", HINT)


def columns(kind: type[NamedTuple]) -> str:
    """The fields of a row are its table's columns; `end` is a word of SQL's."""
    return ", ".join(f'"{name}"' for name in kind._fields)


def impossible_rows(database: Database) -> Iterator[str]:
    """All rows of all tables, looked at as if they were read: a line for each that can't be."""
    for kind, (table, key, _) in _TABLES.items():
        asked = columns(kind)
        if kind is RunRow:  # its bounds are its window's
            asked = asked.replace('"start", "end"', "NULL, NULL")
        for raw in _all(database, f"SELECT {key}, {asked} FROM {table}", key):
            try:
                _row(kind, raw)
            except _Impossible as wrong:
                yield _told(kind, raw, wrong)


def _all(database: Database, select: str, key: str) -> Iterator[tuple[Any, ...]]:
    """In pages, so that a million rows fit; the key's columns, which come first, are left out."""
    width, where = key.count(",") + 1, ""
    last: tuple[Any, ...] = ()
    seen = set()
    while page := database.rows(f"{select} {where} ORDER BY {key} LIMIT {_PAGE}", last):
        yield from (row[width:] for row in page)
        last = page[-1][:width]
        if last in seen:  # the order of a damaged file may lead in a circle
            return
        seen.add(last)
        where = f"WHERE ({key}) > ({', '.join('?' * width)})"


def _told(kind: type[NamedTuple], raw: tuple[Any, ...], wrong: _Impossible) -> str:
    values = dict(zip(kind._fields, raw, strict=True))
    if kind is Block:
        kind = Gap if values["state"] == GAP else WindowRow
    table, _, name = _TABLES[kind]
    value = _shown(values[wrong.column])
    return f"{table}, row {_shown(values[name])}: {wrong.column} is {value}, {wrong.rule}"


def _shown(value: object) -> str:
    text = "NULL" if value is None else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _row(kind: type[Row], raw: tuple[Any, ...]) -> Row:
    row = kind._make([check(value) for check, value in zip(_checks(kind), raw, strict=True)])
    if kind in _CONSISTENT:
        _CONSISTENT[kind](row)
    return row


# -- a value ---------------------------------------------------------------------------------------

_made: dict[type[NamedTuple], list[Check]] = {}


def _checks(kind: type[NamedTuple]) -> list[Check]:
    if kind not in _made:
        declared = kind.__annotations__
        _made[kind] = [_check(kind, name, declared[name]) for name in kind._fields]
    return _made[kind]


def _check(kind: type[NamedTuple], column: str, declared: str) -> Check:
    type_, _, nullable = declared.partition(" | ")
    if words := _WORDS.get((kind, column)):
        convert, rule = _one_of(words), f"none of {', '.join(words)}"
    else:
        convert, rule = _CONVERSIONS["instant" if column in _INSTANTS else type_]
    if column in ("exit_code", "skew"):
        convert = _signed  # Windows has negative exit codes

    def check(value: Any) -> Any:
        if value is None and nullable:
            return None
        try:
            return convert(value)
        except _Other:
            raise _Impossible(column, rule) from None

    return check


class _Other(ValueError):
    """Not what the column may hold."""


def rule_of(declared: str) -> Callable[[object], str | None]:
    """What is wrong with a value that has not been written yet; None where nothing is.

    `declared`: `instant`, `str`, `int`, `signed`, `float`, `bool`; with a `?` it may be NULL.
    """
    convert, rule = _CONVERSIONS[declared.rstrip("?")]
    is_nullable = declared.endswith("?")

    def broken(value: object) -> str | None:
        if value is None and is_nullable:
            return None
        try:
            convert(value)
        except _Other:
            return rule
        return None

    return broken


def _one_of(words: tuple[str, ...]) -> Check:
    def convert(value: Any) -> Any:
        if value not in words:
            raise _Other
        return value

    return convert


def _instant(value: Any) -> int:
    """SQL compares them as text: an instant in another spelling than `iso` has is none."""
    if not isinstance(value, str) or value[19:] != "+00:00" or value[4:19:3] != "--T::":
        raise _Other
    try:
        return from_iso(value)
    except DamagedLedger:
        raise _Other from None


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise _Other
    return value


def _signed(value: Any) -> Any:
    if not isinstance(value, int) or abs(value) >= _LARGEST:
        raise _Other
    return value


def _count(value: Any) -> Any:
    if _signed(value) < 0:
        raise _Other
    return value


def _seconds(value: Any) -> Any:
    if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise _Other
    return value


def _truth(value: Any) -> bool:
    if value not in (0, 1):
        raise _Other
    return bool(value)


_CONVERSIONS: dict[str, tuple[Check, str]] = {
    "instant": (_instant, "no instant"),
    "str": (_text, "no text"),
    "int": (_count, "no number that can stand there"),
    "signed": (_signed, "no number that can stand there"),
    "float": (_seconds, "no number of seconds"),
    "bool": (_truth, "neither 0 nor 1"),
}


# -- the values of a row, held against each other --------------------------------------------------


def _hold(is_true: bool, column: str, rule: str) -> None:
    if not is_true:
        raise _Impossible(column, rule)


def _job(row: JobRow) -> None:
    _hold((row.told is None) == (row.told_at is None), "told_at", "unlike told")
    schedule = row.schedule or ("every " if row.watermark is None else "")
    _hold(schedule.startswith(("every ", "cron ")), "schedule", "no schedule")
    if row.next is not None:
        above = row.watermark is not None and row.watermark < row.next
        _hold(above, "next", "not above the watermark")


def _window(row: WindowRow) -> None:
    key = f"{row.job}:" if row.start is None else f"{row.job}:{iso(row.start)}"
    own = row.key == key or (row.start is None and row.key.startswith(key))
    _hold(own, "key", "not that of its job and start")
    _hold_bounds(row.start, row.end)
    _hold(row.failures <= row.attempts, "failures", "more than attempts")


def _block(row: Block) -> None:
    own = row.key is None if row.state == GAP else (row.key or "").endswith(f":{iso(row.start)}")
    _hold(own, "key", "not that of its start")
    _hold_bounds(row.start, row.end)


def _gap(row: Gap) -> None:
    _hold_bounds(row.start, row.end)


def _run(row: RunRow) -> None:
    endless = row.outcome in (None, LOST)
    _hold((row.ended is None) == endless, "ended", f"with outcome {_shown(row.outcome)}")
    _hold_bounds(row.start, row.end)


def _hold_bounds(start: int | None, end: int | None) -> None:
    if start is None or end is None:
        _hold(start == end, "end", "unlike start")
    else:
        _hold(start < end, "end", "not after start")


_CONSISTENT: dict[type[NamedTuple], Check] = {
    JobRow: _job,
    WindowRow: _window,
    Block: _block,
    Gap: _gap,
    RunRow: _run,
}
