"""A process that holds a job's lock on a PostgreSQL server, and says what becomes of it.

python -m tests.holder ADDRESS TTL [RUN]   holds; on "lost" it ends, on end of file it releases
"""

from __future__ import annotations

import select
import sys

from jobrun.boottime import boottime
from jobrun.lock_postgres import SessionLock
from jobrun.postgres_database import Database


def hold(address: str, ttl: float, run: int) -> None:
    database = Database(address)
    lock = SessionLock(database, "sales", "db1:4711", ttl, kill_after=ttl / 6)
    assert lock.acquire(20)
    keeper = lock.keeper
    keeper.guard(run)
    adopted = keeper.adopted
    print("held", database.backend_pid, flush=True)
    while keeper.lost is None and not select.select([0], [], [], 0)[0]:
        keeper.wait(0.05)
        if keeper.adopted != adopted:
            adopted = keeper.adopted
            print("again", database.backend_pid, flush=True)
    print(
        "end", keeper.lost, keeper.lost is not None and boottime() >= keeper.until - 0.1, flush=True
    )
    lock.release()


if __name__ == "__main__":
    hold(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
