"""Compare what was rolled up with the orders themselves, to the cent; exit 1 where they differ.

python check.py shop.db
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise

ORDERS = "SELECT count(*), coalesce(sum(cents), 0) FROM orders WHERE at >= ? AND at < ?"
BY_PRODUCT = "SELECT product, sum(cents) FROM orders WHERE at >= ? AND at < ? GROUP BY product"

Row = tuple[str, str, int, int]


def problems(connection: sqlite3.Connection, rows: list[Row]) -> Iterator[str]:
    """What is wrong: a window twice or left out, a row that is not the sum of its orders."""
    for (_, end, *_), (start, *_) in pairwise(rows):
        if start != end:
            yield f"after {end} comes {start}"
    for start, end, *rolled_up in rows:
        truth = connection.execute(ORDERS, (start, end)).fetchone()
        if tuple(rolled_up) != truth:
            yield f"{start}: rolled up {rolled_up}, the orders say {list(truth)}"
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'turnover'").fetchone():
        turnover = dict(connection.execute("SELECT product, cents FROM turnover"))
        truth = dict(connection.execute(BY_PRODUCT, (rows[0][0], rows[-1][1])))
        if turnover != truth:
            yield f"turnover {turnover}, the orders say {truth}"


def main(database: str) -> int:
    connection = sqlite3.connect(database, timeout=30)
    rows = connection.execute("SELECT start, end, orders, cents FROM summary ORDER BY start")
    windows: list[Row] = rows.fetchall()
    found = list(problems(connection, windows))
    for problem in found:
        print(f"wrong: {problem}")
    orders = sum(row[2] for row in windows)
    total = Decimal(sum(row[3] for row in windows)) / 100
    print(f"{len(windows)} windows, {orders} orders, {total:.2f}, {len(found)} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
