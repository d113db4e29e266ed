"""Add one window of orders to a turnover that only grows: exactly once, whatever dies when.

jobrun run turnover --every 1minute --lag 5s --ledger shop.db -- \\
    python rollup_once.py shop.db {start} {end}

Adding can't be repeated, so the window is marked as done in the transaction that adds: jobrun's
ledger lies in the same database. Killed before COMMIT, nothing was added and the window runs again;
killed after it, the window is done, and jobrun knows.
"""

from __future__ import annotations

import sqlite3
import sys

import jobrun

TABLES = (
    "CREATE TABLE IF NOT EXISTS summary (start TEXT, end TEXT, orders INTEGER, cents INTEGER)",
    "CREATE TABLE IF NOT EXISTS turnover (product TEXT PRIMARY KEY, cents INTEGER NOT NULL)",
)

ROLL_UP = """
    INSERT INTO summary (start, end, orders, cents)
    SELECT :start, :end, count(*), coalesce(sum(cents), 0)
    FROM orders WHERE at >= :start AND at < :end
"""

ADD = """
    INSERT INTO turnover (product, cents)
    SELECT product, sum(cents) FROM orders WHERE at >= :start AND at < :end GROUP BY product
    ON CONFLICT (product) DO UPDATE SET cents = cents + excluded.cents
"""


def main(database: str, start: str, end: str) -> None:
    window = {"start": start, "end": end}
    connection = sqlite3.connect(database, timeout=30, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    for table in TABLES:
        connection.execute(table)
    connection.execute(ROLL_UP, window)
    connection.execute(ADD, window)
    jobrun.done(connection)  # the last statement before COMMIT
    connection.execute("COMMIT")


if __name__ == "__main__":
    main(*sys.argv[1:])
