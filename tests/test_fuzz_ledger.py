"""Whatever lies where the ledger should: it works, or is refused in one line and left as it was."""

from __future__ import annotations

import os
import random
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if sys.platform == "win32":
    pytest.skip("calls are forks of the test", allow_module_level=True)

from tests import forked
from tests.damage import unguarded
from tests.fuzzed import LONG, NOW, QUICK, REFUSED, Place, check_contract

CALLS = (
    ("run", "sales", "--every", "1h", "--", "true"),
    ("run", "sales", "--every", "30m", "--accept-schedule", "--", "true"),
    ("run", "fails", "--every", "1h", "--", "true"),
    ("run", "new", "--every", "1h", "--", "true"),
    ("run", "files", "--key", "two", "--", "true"),
    ("run", "plain", "--", "true"),
    ("run", "sales", "--every", "1h", "--dry-run", "--", "true"),
    ("rerun", "sales", "2026-09-04T11:00Z"),
    ("backfill", "sales", "--from", "2026-09-04T08:00Z", "--to", "2026-09-04T10:00Z"),
    ("skip", "fails", "2026-09-04T11:00Z", "--reason", "no"),
    ("watermark", "sales"),
    ("watermark", "sales", "--set", "2026-09-04T09:00Z", "--reason", "no"),
    ("status",),
    ("status", "--check", "--json"),
    ("history",),
    ("windows", "sales"),
    ("logs", "sales"),
    ("show", "1"),
    ("show", "sales"),
    ("plan", "sales"),
    ("doctor",),
    ("forget", "sales", "--yes"),
)
TOLD = {
    b"clock-behind",
    b"orphan",
    b"schedule-changed",
    b"refused",
}  # before a call is refused, too


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.remove()


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def rows_of(data: bytes) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
    """What a ledger of these bytes holds: its events, and every other row.

    Of a job not what tells of the call: that it was there, and its schedule, which wanted consent.
    """
    of_call = {"token", "last_seen", "schedule", "next", "spec"}
    jobs = ", ".join(set(TABLES["jobrun_job"].split()) - of_call)
    chosen = {**dict.fromkeys(TABLES, "*"), "jobrun_job": jobs, "jobrun_event": "id, kind"}
    found: dict[str, set[tuple[Any, ...]]] = {}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(data[:18] + b"\1\1" + data[20:])  # as if it had never had a WAL
        connection.text_factory = bytes
        for table, columns in chosen.items():
            try:
                rows = connection.execute(f"select {columns} from {table}").fetchall()
            except sqlite3.DatabaseError as error:
                rows = [(str(error),)]
            found[table] = {(table, *row) for row in rows}
    return found.pop("jobrun_event"), set().union(*found.values())


def is_told_only(before: bytes, after: bytes) -> bool:
    """A call may put on record how it began before it meets what it is refused for, and no more."""
    (events, found), (more, left) = rows_of(before), rows_of(after)
    return found == left and events < more and {kind for *_, kind in more - events} <= TOLD


def check_calls(
    place: Place,
    damage: Callable[[Path], None],
    calls: list[tuple[str, ...]],
) -> None:
    """A ledger that is damaged so, and what calls make of it."""
    place.restore()
    damage(place.ledger)
    for argv in calls:
        before = content(place.ledger)
        answer = forked.jobrun(argv, place.environ, NOW + 3600, folder=str(place.here))
        check_contract(argv, answer)
        after = content(place.ledger)
        if answer.status in REFUSED and before != after:
            assert before is not None, (argv, answer)
            assert after is not None, (argv, answer)
            assert is_told_only(before, after), (argv, answer)


def write(data: bytes, suffix: str = "") -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        Path(f"{path}{suffix}").write_bytes(data)

    return damage


def truncated(length: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, min(length, path.stat().st_size))


def flipped(seed: int, count: int) -> Callable[[Path], None]:
    """Bits of bytes that hold anything: the empty half of a page tells nothing."""

    def damage(path: Path) -> None:
        chance = random.Random(seed)
        data = bytearray(path.read_bytes())
        places = [at for at, byte in enumerate(data) if byte]
        for at in chance.sample(places, count):
            data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(data))

    return damage


def another_database(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("create table mine (a); insert into mine values (1)")


def foreign(*statements: str) -> Callable[[Path], None]:
    """Something of ours that is not as we made it."""

    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(";".join(statements))

    return damage


def spec(text: str) -> Callable[[Path], None]:
    return foreign(f"update jobrun_job set spec = '{text}'")


def replaced_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def beside(suffix: str, data: bytes) -> Callable[[Path], None]:
    return write(data, suffix)


SHAPES = {
    "empty": write(b""),
    "a byte": write(b"\0"),
    "text": write(b"hello\n" * 300),
    "header only": write(b"SQLite format 3\0" + bytes(600)),
    "folder": replaced_by(os.mkdir),
    "fifo": replaced_by(os.mkfifo),
    "socket": replaced_by(a_socket),
    "device": replaced_by(lambda path: os.symlink("/dev/null", path)),
    "itself": replaced_by(lambda path: os.symlink(path, path)),
    "nowhere": replaced_by(lambda path: os.symlink("/nowhere/at/all", path)),
    "another database": another_database,
    "a view of that name": foreign(
        "drop table jobrun_meta", "create view jobrun_meta as select 1 as version, 1 as own_file"
    ),
    "no version": foreign("delete from jobrun_meta"),
    "newer": foreign("update jobrun_meta set version = 99"),
    "a version of text": foreign("update jobrun_meta set version = 'x'"),
    "no windows": foreign("pragma foreign_keys = off", "drop table jobrun_window"),
    "no runs": foreign("drop table jobrun_run"),
    "no index": foreign("drop index jobrun_window_unfinished", "drop index jobrun_run_open"),
    "other columns": foreign("alter table jobrun_job rename column watermark to mark"),
    "no jobs": foreign("pragma foreign_keys = off", "delete from jobrun_job"),
    "no instants": foreign(
        "update jobrun_job set watermark = '????-??-??T??:??:??+00:00', next = null"
        " where watermark is not null"
    ),
    "no instants of windows": foreign(
        "pragma ignore_check_constraints = on", "update jobrun_window set changed_at = 'then'",
        "update jobrun_run set started = 'then'",
        "update jobrun_job set largest_now = 'x', last_seen = ''",
    ),
    "no schedule": foreign("update jobrun_job set schedule = 'every now and then'"),
    "an unknown zone": foreign("update jobrun_job set schedule = 'every 1d tz=No/Where'"),
    "a spec that is none": foreign("update jobrun_job set spec = '[{]'"),
    "a spec of other types": spec('{"options": [1], "command": {"a": 1}, "at": "x", "cwd": 3}'),
    "options that are none": spec('{"options": {"--nope": 1, "--lag": "x"}, "command": ["true"]}'),
    "bytes in text": foreign(
        "update jobrun_job set told = cast(x'ff00fe' as text), told_at = first_seen"
    ),
    "bytes in names": foreign(
        "pragma foreign_keys = off",
        "update jobrun_job set name = cast(x'ff41' as text) where name = 'plain'",
    ),
    "blobs": foreign("update jobrun_job set first = x'ff00', spec = x'00'"),
    "a wal of rubbish": beside("-wal", bytes(range(256)) * 64),
    "a wal that begins well": beside("-wal", bytes.fromhex("377f0682002de218") + bytes(4000)),
    "an index of rubbish": beside("-shm", bytes(range(256)) * 128),
    "a journal of rubbish": beside("-journal", bytes(range(256)) * 64),
    "a journal that begins well": beside(
        "-journal", bytes.fromhex("d9d505f920a163d7") + bytes(4000)
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_no_ledger(place: Place, shape: str) -> None:
    """A folder, a pipe, another's database, rubbish beside it: 73 or 74, or it works."""
    for argv in CALLS[list(SHAPES).index(shape) % 3 :: 3]:
        check_calls(place, SHAPES[shape], [argv])


CHOSEN = st.lists(st.sampled_from(CALLS), min_size=2, max_size=4, unique=True)
# Where a header, a page, or what holds the schema ends, and in between.
LENGTHS = st.sampled_from([1, 15, 16, 99, 100, 511, 512, 4095, 4096, 4097, 8192]) | st.integers(
    1, 200_000
)


@settings(QUICK, max_examples=20)
@given(length=LENGTHS, calls=CHOSEN)
def test_truncated(place: Place, length: int, calls: list[tuple[str, ...]]) -> None:
    """Cut off anywhere."""
    check_calls(place, truncated(length), calls)


@settings(QUICK, max_examples=30)
@given(seed=st.integers(0, 2**32), count=st.sampled_from([1, 1, 2, 8, 100]), calls=CHOSEN)
def test_flipped(place: Place, seed: int, count: int, calls: list[tuple[str, ...]]) -> None:
    """A few bits of it are others."""
    check_calls(place, flipped(seed, count), calls)


# -- values ----------------------------------------------------------------------------------------

TABLES = {
    "jobrun_job": "name schedule first watermark next token paused_at paused_until largest_now"
    " clock_jump_at told told_at first_seen last_seen spec",
    "jobrun_window": "job key start end state attempts failures windows partial next_attempt_at"
    " token reason changed_at",
    "jobrun_gap": "job start end windows reason detail at void",
    "jobrun_run": "job key kind attempt token host pid child_pid birth user terminal started ended"
    " took outcome exit_code signal output_bytes why",
    "jobrun_skip": "job key reason detail at times last_at",
    "jobrun_event": "at job key kind detail",
}
COLUMNS = [(table, column) for table, names in TABLES.items() for column in names.split()]
OTHERS = [
    None, "", "x", -1, 2**63 - 1, 1e300, b"\xff\0", "2026-99-04T10:00:00+00:00",
    "2026-09-04 10:00:00+00:00", "2026-09-04T10:00:00+00:00", "9999-12-31T23:59:59+00:00",
    "running", "processed", "void", "succeeded", "lost",
]  # fmt: skip


def other_value(column: tuple[str, str], value: object) -> Callable[[Path], None]:
    """What another hand has put there, in every row where nothing else is in the way."""

    def damage(path: Path) -> None:
        with unguarded(path) as connection:
            connection.execute(f'update or ignore {column[0]} set "{column[1]}" = ?', (value,))

    return damage


def turned(column: tuple[str, str], at: int, bit: int) -> Callable[[Path], None]:
    """One bit of one character is another, in every row."""

    def turn(value: Any) -> Any:
        if not isinstance(value, str) or not value:
            return value
        place = at % len(value)
        return value[:place] + chr(ord(value[place]) ^ 1 << bit) + value[place + 1 :]

    def damage(path: Path) -> None:
        with unguarded(path) as connection:
            connection.create_function("turned", 1, turn)
            name = f'"{column[1]}"'
            connection.execute(f"update or ignore {column[0]} set {name} = turned({name})")

    return damage


COLUMN = st.sampled_from(COLUMNS)
WORDS = st.sampled_from(
    [("jobrun_window", "state"), ("jobrun_run", "outcome"), ("jobrun_run", "kind")]
    + [c for c in COLUMNS if c[1] in ("watermark", "next", "start", "end", "started", "changed_at")]
)
VALUES = st.builds(other_value, COLUMN, st.sampled_from(OTHERS)) | st.builds(
    turned, WORDS | COLUMN, st.integers(0, 30), st.integers(0, 6)
)


@settings(QUICK, max_examples=30)
@given(damage=VALUES, calls=CHOSEN)
def test_values(place: Place, damage: Callable[[Path], None], calls: list[tuple[str, ...]]) -> None:
    """States, outcomes, instants and all else are others than a call can have written."""
    check_calls(place, damage, calls)


@pytest.mark.long
@settings(LONG, max_examples=400)
@given(
    damage=st.builds(truncated, LENGTHS)
    | st.builds(flipped, st.integers(0, 2**32), st.integers(1, 30))
    | VALUES,
    calls=CHOSEN,
)
def test_much_damage(
    place: Place, damage: Callable[[Path], None], calls: list[tuple[str, ...]]
) -> None:
    """More of both."""
    check_calls(place, damage, calls)
