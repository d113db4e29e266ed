"""A process that holds the lock of the job `sales` on a server, and says what becomes of it.

python -m tests.holder ADDRESS TTL KILL_AFTER RUN   see Holder of tests/holding.py
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

from jobrun.boottime import boottime
from jobrun.lock import Keeper, SharedLock


def hold(lock: SharedLock, run: int, backend: Callable[[], int]) -> None:
    """Until the lock is lost or our input ends. `backend`: the server's process, 0 where it is
    no other for each connection."""
    assert lock.acquire(20)
    keeper = lock.keeper
    keeper.guard(run)
    print("held", backend(), flush=True)
    adopted, longest = keeper.adopted, 0.0
    while keeper.lost is None and not _waited(keeper):
        began = boottime()
        keeper.on_ready()
        if boottime() >= keeper.due:
            keeper.on_time(boottime())
        longest = max(longest, boottime() - began)
        if keeper.adopted != adopted:
            adopted = keeper.adopted
            print("again", backend(), flush=True)
    print("end", keeper.until, boottime(), longest, keeper.lost or "", flush=True)
    lock.release()


def _waited(keeper: Keeper) -> bool:
    """Until there is something to do; True: our input has ended."""
    fds = [keeper.fd] if keeper.fd >= 0 else []
    reading, writing = ([], fds) if keeper.wants_write else (fds, [])
    patience = max(0.0, min(1.0, keeper.due - boottime()))
    return 0 in select.select([0, *reading], writing, [], patience)[0]


def main(address: str, ttl: float, kill_after: float, run: int) -> None:
    if address.startswith("redis:"):
        from jobrun.lock_redis import RedisLock
        from jobrun.redis_address import read

        place, who = read(address, {}), f"db1:{os.getpid()}"
        hold(RedisLock(place, "sales", who, ttl=ttl, kill_after=kill_after), run, lambda: 0)
    else:
        from jobrun.lock_postgres import SessionLock
        from jobrun.postgres_database import Database

        database = Database(address)
        database.run_script("LISTEN jobrun")
        lock = SessionLock(database, "sales", "db1:4711", ttl, kill_after)
        hold(lock, run, lambda: database.backend_pid)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
