"""`doctor`: a line a check, and below it what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobrun.checks import FAIL, OK, WARN, Check
from jobrun.instants import iso
from jobrun.screen import BAD, DIM, GOOD, Cell, Line, Screen, head, line
from jobrun.screen import WARN as YELLOW

_STYLES = {OK: GOOD, WARN: YELLOW, FAIL: BAD}


def doctor_screen(ledger: str, checks: Sequence[Check], now: int) -> Screen:
    lines = [part for check in checks for part in _lines(check)]
    data = {"now": iso(now), "checks": [check._asdict() for check in checks]}
    return Screen((head(ledger, now), *lines, _summary(checks)), data)


def _lines(check: Check) -> Iterator[Line]:
    grade = Cell(f"{check.grade:<6}", style=_STYLES[check.grade])
    yield Line((grade, Cell(f"{check.name:<12}{check.found}")))
    if check.hint is not None:
        yield line(f"{'':18}{check.hint}", DIM)


def _summary(checks: Sequence[Check]) -> Line:
    failed, warned = (sum(check.grade == grade for check in checks) for grade in (FAIL, WARN))
    if not failed and not warned:
        return line("all well", GOOD)
    return line(f"{failed} failed, {warned} to look at", BAD if failed else YELLOW)
