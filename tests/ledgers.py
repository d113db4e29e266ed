"""A ledger with a history, made through its own calls, for tests of what is read from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jobrun import schedule
from jobrun.instants import HOUR, MINUTE, from_iso, iso
from jobrun.ledger_sqlite import SqliteLedger, open_ledger
from jobrun.rows import FAILED_RUN, KILLED, SUCCEEDED, Caller, Claim, Gap, Opening, Result


def at(text: str) -> int:
    """`09-04 03:07` or `09-04 03:07:05` of 2026, UTC."""
    day, clock = text.split(" ")
    return from_iso(f"2026-{day}T{clock if clock.count(':') == 2 else clock + ':00'}+00:00")


class Writer:
    """Writes what calls of jobrun would have written; each call has a process id of its own."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._pid = 900

    @contextmanager
    def open(self, user: str = "etl", terminal: bool = False) -> Iterator[SqliteLedger]:
        self._pid += 1
        ledger = open_ledger(self.path, Caller("db1", self._pid, user, terminal))
        try:
            yield ledger
        finally:
            ledger.close()

    def job(
        self,
        name: str,
        now: int,
        *,
        every: str | None = None,
        watermark: int | None = None,
        gaps: tuple[Gap, ...] = (),
        command: tuple[str, ...] = ("true",),
        **options: str,
    ) -> None:
        """A call that writes and runs nothing. Options as `on_failure="continue"`."""
        given = {f"--{option.replace('_', '-')}": text for option, text in options.items()}
        spec: dict[str, object] = {
            "options": given,
            "command": list(command),
            "cwd": "/srv",
            "user": "etl",
        }
        spec |= {"host": "db1", "terminal": False, "at": now}
        with self.open() as ledger:
            opening = Opening(
                name,
                _token(ledger, name),
                now,
                spec=json.dumps(spec),
                schedule=every,
                watermark=watermark,
                gaps=gaps,
            )
            assert ledger.open(opening, None, _next(every)) is not None

    def run(
        self,
        name: str,
        start: int | None,
        started: int,
        *,
        took: float | None = 1.2,
        exit_code: int | None = 0,
        outcome: str | None = None,
        signal: int | None = None,
        key: str | None = None,
        kind: str | None = "new",
        user: str = "etl",
        terminal: bool = False,
        next_attempt_at: int | None = None,
    ) -> int:
        """A call that runs one window, key or plain command; without `took` it does not end."""
        with self.open(user, terminal) as ledger:
            row = ledger.job(name)
            next_boundary = _next(row.schedule if row else None)
            end = next_boundary(start) if next_boundary and start is not None else None
            unit = f"{name}:{iso(start)}" if start is not None else key
            kind = kind if unit is not None else None
            claim = Claim(unit, start, end, kind, False, 1, 4711, "birth", started)
            opening = Opening(name, _token(ledger, name), started)
            opened = ledger.open(opening, claim, next_boundary)
            assert opened is not None
            assert opened.claimed is not None
            if took is not None:
                how = outcome or _outcome(exit_code, signal)
                result = Result(
                    job=name,
                    run_id=opened.claimed.run_id,
                    token=opened.token,
                    key=unit,
                    outcome=how,
                    exit_code=exit_code,
                    signal=signal,
                    ended=started + int(took),
                    took=took,
                    output_bytes=0,
                    next_attempt_at=next_attempt_at,
                    told=None,
                    told_at=None,
                )
                ledger.finish(result, None, next_boundary)
            return opened.claimed.run_id

    def idle(self, name: str, *instants: int) -> None:
        """Calls that found no closed window."""
        with self.open() as ledger:
            for instant in instants:
                assert ledger.skip(name, "no-closed-window", None, None, instant)


def write_orders(writer: Writer) -> None:
    """An hourly job: two windows given up, one that needed two tries, one that fails for ever."""
    first = at("09-03 03:00")
    writer.job("orders", first, every="every 1h", watermark=first)
    for start in range(first, at("09-03 19:00"), HOUR):
        if start == at("09-03 10:00"):
            writer.run("orders", start, start + HOUR, took=1, exit_code=None, signal=9)
            writer.run("orders", start, start + HOUR + 280, user="anna", terminal=True, took=3.9)
        else:
            writer.run("orders", start, start + HOUR + 1, took=4.1)
    gap = Gap(at("09-03 19:00"), at("09-03 21:00"), 2, "by-hand", "source down")
    writer.job("orders", at("09-03 21:02"), every="every 1h", gaps=(gap,))
    writer.run("orders", at("09-03 21:00"), at("09-03 22:00:01"), took=4.1)
    for attempt in range(50):
        started = at("09-03 23:00:01") + attempt * 5 * MINUTE
        writer.run("orders", at("09-03 22:00"), started, took=0.3, exit_code=3, kind="retry")


def _outcome(exit_code: int | None, signal: int | None) -> str:
    if signal is not None:
        return KILLED
    return FAILED_RUN if exit_code else SUCCEEDED


def _token(ledger: SqliteLedger, name: str) -> int:
    row = ledger.job(name)
    return row.token if row is not None else 0


def _next(text: str | None) -> Callable[[int], int] | None:
    return schedule.parse(text).next if text is not None else None
