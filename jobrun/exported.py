"""A ledger as a file: what `export` writes and `import` reads, in JSON lines.

    {"jobrun": "export", "v": 1, "engine": "sqlite", "schema": 2, "source": ..., "at": ..., ...}
    {"table": "job", "name": "sales", ...}      one row a line: a job, then all that is on record of
    {"table": "run", "id": 8, ...}              it, table by table, each in the order of its key
    {"jobrun": "end", "rows": {"job": 1, "run": 1, ...}}

Instants are text, as in the ledger. Every line is ASCII: shells that read a program's output and
write it anew (PowerShell's >) can't change it. The last line tells a whole file from a part of one.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from jobrun.errors import LedgerError
from jobrun.instants import iso
from jobrun.ledger_values import rule_of
from jobrun.value import NamedTuple

if TYPE_CHECKING:
    from jobrun.places import Where

VERSION = 1
_LONGEST = 1 << 26  # bytes of a line: one that is longer is none of ours
_OFTEN = 1000  # lines between two calls of `tick`

Row = tuple[Any, ...]
Tick = Callable[[int], object]  # told the number of the line that is read, now and then


class Table(NamedTuple):
    """`jobrun_NAME`: all of its columns, as they are declared in rows.py, and how many of the
    first ones are the key that orders its rows within a job."""

    name: str
    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    key: int

    @property
    def in_database(self) -> str:
        return f"jobrun_{self.name}"

    @property
    def has_id(self) -> bool:
        return self.columns[0] == "id"

    @property
    def job(self) -> int:
        """Which column has the job's name."""
        return self.columns.index("name" if self.name == "job" else "job")

    @property
    def listed(self) -> str:
        return ", ".join(f'"{name}"' for name in self.columns)


def _table(name: str, key: int, columns: str) -> Table:
    pairs = [column.partition(":") for column in columns.split()]
    return Table(name, tuple(name for name, _, _ in pairs), tuple(kind for *_, kind in pairs), key)


# A row stands below those that it refers to.
TABLES = (
    _table(
        "job",
        1,
        "name:str schedule:str? first:str? watermark:instant? next:instant? token:int"
        " paused_at:instant? paused_until:instant? paused_reason:str? paused_by:str?"
        " largest_now:instant clock_jump_at:instant? told:str? told_at:instant?"
        " first_seen:instant last_seen:instant spec:str? failing:int failing_since:instant?"
        " failing_row:int trouble_since:instant? overrides:str?",
    ),
    _table(
        "window",
        1,
        "key:str job:str start:instant? end:instant? state:str attempts:int failures:int"
        " windows:int partial:bool next_attempt_at:instant? token:int reason:str?"
        " changed_at:instant counted_in:int?",
    ),
    _table(
        "gap",
        1,
        "id:int job:str start:instant end:instant windows:int? reason:str detail:str? at:instant"
        " void:bool",
    ),
    _table(
        "run",
        1,
        "id:int job:str key:str? kind:str? attempt:int token:int host:str pid:int? child_pid:int?"
        " birth:str? user:str terminal:bool started:instant ended:instant? took:float?"
        " outcome:str? exit_code:signed? signal:int? output_bytes:int? why:str? by_hand:bool"
        " slot:int?",
    ),
    _table(
        "skip",
        1,
        "id:int job:str key:str? reason:str detail:str? at:instant times:int last_at:instant",
    ),
    _table("event", 1, "id:int at:instant job:str key:str? kind:str detail:str?"),
    _table("value", 2, "key:str name:str job:str value:str"),
)
JOB, WINDOW, GAP, RUN, SKIP, EVENT, VALUE = TABLES
BY_NAME = {table.name: table for table in TABLES}
WITH_ID = tuple(table for table in TABLES if table.has_id)
_RULES = {table.name: [rule_of(kind) for kind in table.kinds] for table in TABLES}


# -- writing ---------------------------------------------------------------------------------------


def header(where: Where, program: str, token_floor: int, at: int) -> dict[str, object]:
    """`token_floor`: the largest token of a job that was forgotten there."""
    engine = "sqlite" if where.is_file else "postgres"
    return {
        "jobrun": "export",
        "v": VERSION,
        "engine": engine,
        "schema": schema_version(engine),
        "program": program,
        "source": where.name,
        "at": iso(at),
        "token_floor": token_floor,
    }


def schema_version(engine: str) -> int:
    """How many migrations this program has for the engine."""
    folder = os.path.join(os.path.dirname(__file__), "schema", engine)
    return sum(name.endswith(".sql") for name in os.listdir(folder))


def lines(first: dict[str, object], rows: Iterable[tuple[Table, Row]]) -> Iterator[bytes]:
    """The whole file, a line at a time."""
    counts = dict.fromkeys(BY_NAME, 0)
    yield _line(first)
    for table, row in rows:
        counts[table.name] += 1
        yield _line({"table": table.name, **dict(zip(table.columns, row, strict=True))})
    yield _line({"jobrun": "end", "rows": counts})


def _line(content: dict[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


# -- reading ---------------------------------------------------------------------------------------


class Section:
    """The rows of one table of one job: where they begin in the file, how many there are."""

    __slots__ = ("count", "first", "last", "line", "offset")

    def __init__(self, offset: int, line: int, first: Row) -> None:
        self.offset = offset
        self.line = line
        self.count = 0
        self.first = first  # its key
        self.last: Row | None = None


class Part:
    """All that the file has of one job."""

    __slots__ = ("job", "open_runs", "sections")

    def __init__(self, job: Row) -> None:
        self.job = job
        self.sections: dict[str, Section] = {}
        self.open_runs: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        return str(self.job[0])

    @property
    def count(self) -> int:
        """Of rows."""
        return 1 + sum(section.count for section in self.sections.values())

    def ids(self, table: Table) -> tuple[int, int] | None:
        """The smallest and the largest; None where it has no row."""
        section = self.sections.get(table.name)
        if section is None or section.last is None:
            return None
        return section.first[0], section.last[0]


class Exported:
    """A file that has been read from end to end once: it is whole, and every row may stand in it.

    `file` can seek. Raises LedgerError (74) for what is no export, a part of one, or of a newer
    program, naming the line.
    """

    def __init__(self, name: str, file: BinaryIO, tick: Tick = lambda _: None) -> None:
        self.name = name
        self.parts: list[Part] = []
        self.count = 0  # of lines
        self._file = file
        self._tick = tick
        self.header = self._header()
        self._read_all()

    @property
    def token_floor(self) -> int:
        return int(self.header.get("token_floor") or 0)

    def rows(
        self, part: Part, table: Table, as_kept: Callable[[Row], Row] | None = None
    ) -> Iterator[tuple[int, Row]]:
        """The line and the values of each row, in the order of its key.

        `as_kept` is asked where a value has characters that not every database has.
        """
        section = part.sections.get(table.name)
        if section is None:
            return
        self._file.seek(section.offset)
        for line in range(section.line, section.line + section.count):
            if line % _OFTEN == 0:
                self._tick(line)
            raw = self._file.readline(_LONGEST)
            row = self._row(table, self._object(raw, line), line)
            yield line, as_kept(row) if as_kept is not None and b"\\u" in raw else row

    def wrong(self, line: int, what: str, hint: str | None = None) -> LedgerError:
        return LedgerError(f"{self.name}, line {line}: {what}", hint)

    def _header(self) -> dict[str, Any]:
        raw = self._file.readline(_LONGEST)
        if not raw:
            raise LedgerError(f"{self.name}: empty", "jobrun export > FILE")
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise self.wrong(
                1, "UTF-16, a shell has rewritten it", 'cmd /c "jobrun export > file.jsonl"'
            )
        try:
            found = self._object(raw, 1)
        except LedgerError:
            found = {}
        if found.get("jobrun") != "export":
            raise self.wrong(1, "not the first line of an export", "jobrun export > FILE")
        self._refuse_newer(found)
        return found

    def _refuse_newer(self, found: dict[str, Any]) -> None:
        engine = found.get("engine")
        if engine not in ("sqlite", "postgres"):
            raise self.wrong(1, f'an engine "{engine}", written by a newer jobrun', _UPGRADE)
        for what, theirs, ours in (
            ("format", found.get("v"), VERSION),
            ("schema", found.get("schema"), schema_version(engine)),
        ):
            if not isinstance(theirs, int):
                raise self.wrong(1, f"it does not say the version of its {what}")
            if theirs > ours:
                newer = f"written by a newer jobrun ({what} {theirs} > {ours})"
                raise self.wrong(1, newer, _UPGRADE)

    def _read_all(self) -> None:
        counts = dict.fromkeys(BY_NAME, 0)
        line, offset = 1, self._file.tell()
        while raw := self._file.readline(_LONGEST):
            line += 1
            if line % _OFTEN == 0:
                self._tick(line)
            found = self._object(raw, line)
            if found.get("jobrun") == "end":
                self._end(found, counts, line)
                self.count = line
                return
            self._take(found, line, offset)
            counts[found["table"]] += 1
            offset += len(raw)
        raise LedgerError(
            f"{self.name}: its end is missing after line {line}: it is a part of an export only",
            "nothing of it was imported; export again",
        )

    def _end(self, found: dict[str, Any], counts: dict[str, int], line: int) -> None:
        if found.get("rows") != counts:
            raise self.wrong(line, f"rows are missing: it has {counts}, it had {found.get('rows')}")
        if self._file.read(1):
            raise self.wrong(line + 1, "something follows the end of the export")

    def _take(self, found: dict[str, Any], line: int, offset: int) -> None:
        table = BY_NAME.get(str(found.get("table")))
        if table is None:
            raise self.wrong(line, f"no table of ours: {_shown(found.get('table'))}")
        row = self._row(table, found, line)
        self._check_values(table, row, line)
        if table is JOB:
            if self.parts and self.parts[-1].name >= row[0]:
                raise self.wrong(line, f"job {row[0]} is out of order")
            self.parts.append(Part(row))
            return
        if not self.parts or self.parts[-1].name != row[table.job]:
            raise self.wrong(line, f"a row of job {row[table.job]} that is not below its job")
        part, key = self.parts[-1], row[: table.key]
        section = part.sections.get(table.name)
        if section is None:
            last = next(reversed(part.sections), "job")
            if TABLES.index(table) < TABLES.index(BY_NAME[last]):
                raise self.wrong(line, f"a row of table {table.name} is out of order")
            section = part.sections[table.name] = Section(offset, line, key)
        elif line != section.line + section.count or key <= (section.last or ()):
            raise self.wrong(line, f"a row of table {table.name} is out of order")
        section.count += 1
        section.last = key
        if table is RUN and found["outcome"] is None:
            part.open_runs.append(found)

    def _object(self, raw: bytes, line: int) -> dict[str, Any]:
        try:
            found = json.loads(raw.decode())
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            cut = " (the file ends in it)" if not raw.endswith(b"\n") else ""
            raise self.wrong(line, f"not a line of an export{cut}: {_shown(raw)}")
        return found

    def _row(self, table: Table, found: dict[str, Any], line: int) -> Row:
        if len(found) != len(table.columns) + 1:
            for name in found.keys() - {"table", *table.columns}:
                newer = f"a column {_shown(name)} of table {table.name}, of a newer jobrun"
                raise self.wrong(line, newer, _UPGRADE)
        try:
            return tuple([found[name] for name in table.columns])
        except KeyError as missing:
            what = f"table {table.name} without its column {missing.args[0]}"
            raise self.wrong(line, what) from None

    def _check_values(self, table: Table, row: Row, line: int) -> None:
        for place, (broken, value) in enumerate(zip(_RULES[table.name], row, strict=True)):
            rule = broken(value)
            if rule is not None:
                raise self.wrong(line, f"{table.columns[place]} is {_shown(value)}, {rule}")


_UPGRADE = "pip install --upgrade jobrun"


def _shown(value: object) -> str:
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else repr(value)
    text = text.rstrip("\r\n")
    return text if len(text) <= 60 else f"{text[:60]}..."


def seekable(file: BinaryIO, draft: BinaryIO) -> BinaryIO:
    """The file itself, or `draft` with all that comes from a pipe: it is read twice."""
    if file.seekable():
        return file
    while piece := file.read(1 << 20):
        draft.write(piece)
    draft.seek(0, io.SEEK_SET)
    return draft
