"""A process that holds a job's lock on a Redis server, and says what becomes of it.

python -m tests.holder_redis ADDRESS TTL     holds; on "lost" it ends, at the end of its input
                                             it releases
"""

from __future__ import annotations

import os
import select
import sys

from jobrun.boottime import boottime
from jobrun.lock_redis import RedisLock
from jobrun.redis_address import read


def hold(address: str, ttl: float) -> None:
    lock = RedisLock(read(address, {}), "sales", f"db1:{os.getpid()}", ttl=ttl, kill_after=ttl / 6)
    assert lock.acquire(20)
    keeper = lock.keeper
    keeper.guard(1)
    print("held", flush=True)
    adopted, longest = 0, 0.0
    while keeper.lost is None:
        reading = [0] if keeper.fd < 0 or keeper.wants_write else [0, keeper.fd]
        writing = [keeper.fd] if keeper.wants_write else []
        ready, writable, _ = select.select(
            reading, writing, [], max(0.0, min(1.0, keeper.due - boottime()))
        )
        if 0 in ready:
            break
        began = boottime()
        if ready or writable:
            keeper.on_ready()
        if boottime() >= keeper.due:
            keeper.on_time(boottime())
        longest = max(longest, boottime() - began)
        if keeper.adopted != adopted:
            adopted = keeper.adopted
            print("again", flush=True)
    print("end", keeper.lost, flush=True)
    print("longest", longest, flush=True)
    lock.release()


if __name__ == "__main__":
    hold(sys.argv[1], float(sys.argv[2]))
