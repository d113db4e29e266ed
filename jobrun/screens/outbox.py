"""What lies in the outbox, as screens show it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from jobrun.instants import iso
from jobrun.options import typed
from jobrun.outbox import Found
from jobrun.screen import BAD, DIM, Cell, Line, ago, line, plural


def kept_data(found: Found) -> dict[str, object]:
    result = None if found.parcel is None else found.parcel.result
    return {
        "file": found.path,
        "problem": found.problem,
        "run": None if result is None else result.run_id,
        "job": None if result is None else result.job,
        "key": None if result is None else result.key,
        "outcome": None if result is None else result.outcome,
        "ended": None if result is None else iso(result.ended),
    }


def kept_lines(found: Sequence[Found], now: int) -> tuple[Line, ...]:
    """What is wrong there, and the next step."""
    if not found:
        return ()
    head = Line((Cell("outbox: ", style=BAD), Cell(summary(found, now))))
    return (head, line(f"  {step(found)}", DIM))


def summary(found: Sequence[Found], now: int) -> str:
    """`2 runs have ended and are not on record yet, the first 3h ago; 12.json can't be read`"""
    ended = [each.parcel.result.ended for each in found if each.parcel is not None]
    broken = [os.path.basename(each.path) for each in found if each.parcel is None]
    said = []
    if ended:
        verbs = ("has ended and is", "have ended and are")[len(ended) > 1]
        first = ago(min(ended), now)
        said.append(f"{plural(len(ended), 'run')} {verbs} not on record yet, the first {first}")
    if broken:
        said.append(f"{', '.join(broken)} can't be read")
    return "; ".join(said)


def step(found: Sequence[Found]) -> str:
    damaged = next((each for each in found if each.parcel is None), None)
    if damaged is not None and len(found) == 1:
        return f"{damaged.path}: {damaged.problem}; look at it, then remove it"
    return typed("flush")
