"""Write a day's turnover to a table that checks the token: who has been replaced changes nothing.

jobrun run report --every 1day --ledger postgresql://jobrun@db1/jobs -- \\
    python report.py reports.db orders/{start_date}.txt

A lock among machines is lent for a time. A machine that stands still for longer (a VM that is
paused, a network that is cut, a disk that hangs) has lost it without knowing: another one runs the
window, then the first goes on where it stood, and writes. jobrun ends that command as soon as it
can and refuses its result; what it writes elsewhere only that place can refuse.

So each run has a number, JOBRUN_TOKEN, larger than those of all runs of its job before. It goes
along with each write, the row keeps it, and a smaller one changes nothing. The table may be
anywhere; it knows nothing of the ledger. What it takes:

- Check and write are one statement, or one transaction. To look first and write then is the very
  mistake that this is about.
- Who reads, thinks and writes back puts his token there before he reads: from then on nobody older
  changes what he has read.
- A write names JOBRUN_KEY and replaces what is there. The token keeps out who is older, but not who
  died after his write: that window runs again.
- A fence for each key, as here, is right also for runs beside each other (--overlap allow, backfill
  --parallel). What all windows of a job write to (a balance, a stock) has one fence for the job,
  and those runs one at a time.

A ledger that is restored from a backup goes on with the tokens of that day: the table refuses them
until they have caught up. Nothing is lost then, but nothing goes on; and a command from before
the restore that is still at work may pass for a new one. Raise them, by more than there were runs
since, before the first call:

    UPDATE jobrun_job SET token = token + 1000000;
    UPDATE jobrun_meta SET token_floor = token_floor + 1000000;

`export` and `import` take the tokens along.
"""

from __future__ import annotations

import os
import sqlite3
import sys

TABLE = """
    CREATE TABLE IF NOT EXISTS report (
        key    TEXT PRIMARY KEY,
        cents  INTEGER NOT NULL,
        fence  INTEGER NOT NULL  -- the token of whoever wrote it
    )
"""

# PostgreSQL takes it as it is.
WRITE = """
    INSERT INTO report (key, cents, fence) VALUES (:key, :cents, :token)
    ON CONFLICT (key) DO UPDATE SET cents = excluded.cents, fence = excluded.fence
    WHERE report.fence <= excluded.fence
"""


def main(database: str, orders: str) -> None:
    key, token = os.environ["JOBRUN_KEY"], int(os.environ["JOBRUN_TOKEN"])
    with open(orders, encoding="ascii") as lines:
        cents = sum(map(int, lines))  # this takes its time
    connection = sqlite3.connect(database, timeout=30)
    with connection:
        connection.execute(TABLE)
        written = connection.execute(WRITE, {"key": key, "cents": cents, "token": token})
        if written.rowcount != 1:
            sys.exit(f"{key}: a newer run has written it, this one (token {token}) has no say")


if __name__ == "__main__":
    main(*sys.argv[1:])
