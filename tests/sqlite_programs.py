"""Other programs at a ledger's file: SQLite itself, and processes of their own."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from tests.conftest import PYTHON, ROOT

OPEN = """
import sys
from jobrun.ledger_sqlite import open_ledger
"""


def sql(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """What another program does to the file; the rows of the last statement."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            found = connection.execute(statement).fetchall()
    return found


def child(code: str, *argv: object, **options: object) -> subprocess.Popen[str]:
    """Another process of this Python, with pipes."""
    command = [PYTHON, "-c", OPEN + code, *map(str, argv)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    settings = {"cwd": ROOT, "text": True, **streams, **options}
    return subprocess.Popen(command, **settings)  # type: ignore[call-overload,no-any-return]


def end_of(process: subprocess.Popen[str], tell: str = "") -> tuple[int, str]:
    """(status, output) of a child, after a line on its stdin."""
    out, err = process.communicate(tell, timeout=60)
    return process.returncode, out + err
