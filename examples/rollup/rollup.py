"""One summary row for one window of orders. May be run again: it writes the same row again.

jobrun run rollup --every 1minute --lag 5s -- python rollup.py shop.db {start} {end}

This is what to write wherever it can be had: a command that may run twice for one window needs
nothing from jobrun but the window, and is right with any ledger and any database.
"""

from __future__ import annotations

import sqlite3
import sys

SUMMARY = """
    CREATE TABLE IF NOT EXISTS summary (
        start TEXT PRIMARY KEY,
        end TEXT NOT NULL,
        orders INTEGER NOT NULL,
        cents INTEGER NOT NULL
    )
"""

FORGET = "DELETE FROM summary WHERE start = :start"

ROLL_UP = """
    INSERT INTO summary (start, end, orders, cents)
    SELECT :start, :end, count(*), coalesce(sum(cents), 0)
    FROM orders WHERE at >= :start AND at < :end
"""


def main(database: str, start: str, end: str) -> None:
    window = {"start": start, "end": end}
    connection = sqlite3.connect(database, timeout=30, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(SUMMARY)
    connection.execute(FORGET, window)
    connection.execute(ROLL_UP, window)
    connection.execute("COMMIT")


if __name__ == "__main__":
    main(*sys.argv[1:])
