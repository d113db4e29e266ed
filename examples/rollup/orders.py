"""A shop: writes orders into a SQLite file, as they come in. For the roll-ups beside it to work on.

python orders.py shop.db                 for as long as it is let
python orders.py shop.db --minutes 10    those of the last ten minutes, at once, then ends

An order carries the time at which the customer clicked and reaches the database up to two seconds
later: what `--lag` is for. Money is whole cents; a sum of floats is not to the cent.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import time
from collections.abc import Iterator
from decimal import Decimal

PRICES = {"tea": Decimal("3.40"), "coffee": Decimal("12.90"), "cup": Decimal("7.05")}
LATE = 2.0  # seconds

SCHEMA = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS orders (
        id INTEGER PRIMARY KEY,
        at TEXT NOT NULL,         -- 2026-09-04T10:00:00+00:00, as {start} and {end} are
        product TEXT NOT NULL,
        cents INTEGER NOT NULL    -- below zero: a return
    );
    CREATE INDEX IF NOT EXISTS orders_at ON orders (at);
"""


def order(clicked: float) -> tuple[str, str, int]:
    """One order of a moment (seconds since 1970): when, what, how many cents."""
    product = random.choice(list(PRICES))
    quantity = random.choice([1, 1, 1, 2, 3, 12, -1])
    at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(clicked))
    return at, product, int(PRICES[product] * quantity * 100)


def past_orders(minutes: int) -> Iterator[tuple[str, str, int]]:
    now = time.time()
    clicked = now - minutes * 60
    while clicked < now - LATE:
        yield order(clicked)
        clicked += random.uniform(0.1, 2)


def write(connection: sqlite3.Connection, orders: list[tuple[str, str, int]]) -> None:
    with connection:
        connection.executemany("INSERT INTO orders (at, product, cents) VALUES (?, ?, ?)", orders)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write orders into a SQLite file.")
    parser.add_argument("database")
    parser.add_argument("--minutes", type=int, help="write the past, then end")
    arguments = parser.parse_args()

    connection = sqlite3.connect(arguments.database, timeout=30)
    connection.executescript(SCHEMA)
    if arguments.minutes is not None:
        write(connection, list(past_orders(arguments.minutes)))
        return
    while True:
        write(connection, [order(time.time() - random.uniform(0, LATE))])
        time.sleep(random.uniform(0.02, 0.2))


if __name__ == "__main__":
    main()
