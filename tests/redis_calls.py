"""What the tests ask of a Redis server themselves."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from jobrun import redis_address
from jobrun.lock_redis import SETTLED
from jobrun.redis_wire import Fault, Server


def ask(address: str, *words: str | int) -> Any:
    """Past the lock: one question, and its answer."""
    wire = Server(redis_address.read(address, {})).connect()
    with closing(wire):
        count = wire.log_in()
        wire.send(*words)
        answer = wire.wait(count + 1, 5)[-1]
    assert not isinstance(answer, Fault), answer
    return answer


def is_settled(address: str) -> bool:
    uptime = dict(line.partition(":")[::2] for line in ask(address, "INFO", "server").split("\r\n"))
    return int(uptime["uptime_in_seconds"]) >= SETTLED
