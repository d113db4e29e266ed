"""What a window costs when many are caught up in one call.

    python tests/bench/catchup.py [--rounds N] [--windows N] [--markdown]

A call that makes up a thousand windows of `true`, beside calls that make up one each, in turn: both
as milliseconds per window.
"""

from __future__ import annotations

import sqlite3
import sys
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.measure import (
    Place,
    Table,
    Unexpected,
    milliseconds,
    pairs,
    parser,
    run,
    stack,
    verdict,
)

SINGLE = 20  # of so many windows one is run by a call of its own


def measure(given: Namespace, place: Place) -> None:
    windows = 5 if given.quick else given.windows
    singles = max(windows // SINGLE, 2)

    def caught_up(job: str, count: int) -> list[str]:
        first = ("--first", "2025-01-01T00:00Z", "--max-windows", str(count))
        return place.call("run", job, "--every", "1m", *first, "-q", "--", "true")

    def together() -> float:
        return place.seconds(caught_up("together", windows)) / windows

    def apart() -> float:
        return sum(place.seconds(caught_up("apart", 1)) for _ in range(singles)) / singles

    def beside() -> float:
        command = [*stack(), "true"]
        return sum(place.seconds(command) for _ in range(singles)) / singles

    table = Table(
        f"{windows} windows of `true`", "per window", "ms", "beside", "ratio (quartiles)", "wanted"
    )
    label = f"one call for {windows} windows"
    for name, other, most in (
        ("a call for each", apart, 0.25),
        ("flock, chronic, timeout for each", beside, None),
    ):
        taken = pairs(together, other, given.rounds)
        theirs = f"{milliseconds(taken.theirs)} ({name})"
        wanted = verdict(taken.ratio.middle, most)
        table.add(label, milliseconds(taken.ours), theirs, taken.ratio, wanted)
    table.show(given.markdown)
    check(place, windows * 2 * (given.rounds + 1))


def check(place: Place, windows: int) -> None:
    """What was measured is what ran: raises Unexpected where it is another number."""
    connection = sqlite3.connect(place.ledger)
    done = "SELECT count(*) FROM jobrun_window WHERE job = 'together' AND state = 'processed'"
    ((count,),) = connection.execute(done).fetchall()
    connection.close()
    if count != windows:
        raise Unexpected(f"{count} windows are processed, {windows} were to be")


if __name__ == "__main__":
    reader = parser(__doc__ or "", rounds=3)
    reader.add_argument("--windows", type=int, default=1000, help="in one call (1000)")
    sys.exit(run(reader.parse_args(), measure))
