"""Calls of one job, j with windows of an hour, on any ledger: short words for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobrun import rows
from jobrun.instants import HOUR, from_iso, iso
from jobrun.ledger import Ledger
from jobrun.ledger_sqlite import open_ledger
from jobrun.rows import Caller, Claim, Claimed, Finished, JobRow, Opened, Opening, Result

TEN = from_iso("2026-09-04T10:00:00+00:00")
ELEVEN, TWELVE, NOW = TEN + HOUR, TEN + 2 * HOUR, TEN + 2 * HOUR + 300
CALLER = Caller("db1", 4711, "etl", False)

Again = Callable[[], Ledger]


def sqlite(folder: Path) -> Ledger:
    return open_ledger(str(folder / "jobrun.db"), CALLER)


IMPLEMENTATIONS: dict[str, Callable[[Path], Ledger]] = {"sqlite": sqlite}


@contextmanager
def opened(implementation: str, folder: Path) -> Iterator[Again]:
    """Opens one ledger as often as it is called, as so many processes would."""
    ledgers: list[Ledger] = []

    def again() -> Ledger:
        ledgers.append(IMPLEMENTATIONS[implementation](folder))
        return ledgers[-1]

    yield again
    for ledger in ledgers:
        ledger.close()


def hourly(instant: int) -> int:
    """The grid of the tests."""
    return instant - instant % HOUR + HOUR


def claim(start: int, hours: int = 1, **more: Any) -> Claim:
    """The claim of a window of the job j."""
    window = Claim(
        key=f"j:{iso(start)}",
        start=start,
        end=start + hours * HOUR,
        kind=rows.NEW,
        partial=False,
        windows=hours,
        child_pid=4712,
        birth="boot 1 2",
        started=NOW,
    )
    return window._replace(**more)


def result(claimed: Claimed, key: str | None, **more: Any) -> Result:
    """The result of a run of the job j that succeeded."""
    plain = Result(
        job="j",
        run_id=claimed.run_id,
        token=1,
        key=key,
        outcome=rows.SUCCEEDED,
        exit_code=0,
        signal=None,
        ended=NOW + 2,
        took=1.5,
        output_bytes=10,
        next_attempt_at=None,
        told=None,
        told_at=None,
    )
    return plain._replace(**more)


def begin(ledger: Ledger, claimed: Claim | None = None, **more: Any) -> Opened:
    """Open with the token as it is; a new job gets the watermark 10:00."""
    job = ledger.job("j")
    opening = Opening("j", job.token if job else 0, NOW, schedule="every 1h", watermark=TEN)
    opened = ledger.open(opening._replace(**more), claimed, hourly)
    assert opened is not None
    return opened


def run(ledger: Ledger, start: int, outcome: str = rows.SUCCEEDED, **more: Any) -> Finished:
    """One window of one call, from its opening to its end."""
    first = claim(start, **{name: more.pop(name) for name in ("kind", "hours") if name in more})
    opened = begin(ledger, first)
    assert opened.claimed is not None
    ended = {"token": opened.token, "outcome": outcome, "exit_code": int(outcome != rows.SUCCEEDED)}
    return ledger.finish(result(opened.claimed, first.key, **{**ended, **more}), None, hourly)


def state(ledger: Ledger, start: int) -> tuple[str, int, int] | None:
    """(state, attempts, failures) of a window."""
    window = ledger.window("j", f"j:{iso(start)}")
    return None if window is None else (window.state, window.attempts, window.failures)


def watermark(ledger: Ledger) -> int | None:
    return job_row(ledger).watermark


def job_row(ledger: Ledger) -> JobRow:
    """The job, which is there."""
    job = ledger.job("j")
    assert job is not None
    return job
