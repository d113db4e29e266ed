"""A ledger in memory, for the planner's tests: applies plans as the real one will.

A call is planned from what is stored, opened, and each of its units finished in order; the
watermark moves up over finished rows and gaps that adjoin it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from jobrun import asked, fate, options, policy, rows, schedule, windows
from jobrun import job as jobs
from jobrun.errors import JobrunError, UsageError
from jobrun.instants import HOUR, iso
from jobrun.job import Job
from jobrun.plans import Plan, Unit
from jobrun.rows import Block, Gap, JobRow, Opening, Stored, WindowRow

COMMAND = ("--", "true")


def at(text: str) -> int:
    """Whole seconds of `2026-09-04T10:00`, UTC; a fraction is cut off, as the clock's is."""
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp())


HOURLY, DAILY = ("--every", "1h"), ("--every", "1d")
MIDNIGHT, TEN = at("2026-09-04T00:00"), at("2026-09-04T10:00")
NOON, NOW = at("2026-09-04T12:00"), at("2026-09-04T12:05")


class Outcome(NamedTuple):
    """What one call did."""

    tried: tuple[Unit, ...]
    attempts: tuple[int, ...]
    status: int
    plan: Plan | None
    error: JobrunError | None

    @property
    def reason(self) -> str | None:
        return self.plan.skips[0].reason if self.plan and self.plan.skips else None


class Model:
    """One job. Rows by key, gaps, and the job's own row."""

    def __init__(self, name: str = "j") -> None:
        self.name = name
        self.row: JobRow | None = None
        self.windows: dict[str, WindowRow] = {}
        self.gaps: list[Gap] = []

    # -- what is there before ----------------------------------------------------------------------

    def has_been_called(self, text: str, mark: int, seen: int) -> None:
        """A job with that schedule that is done to `mark`."""
        following = schedule.parse(text).next(mark)
        self.row = JobRow(
            self.name, text, "latest", mark, following, 1, None, None, None, seen, None, None, None,
            mark, seen, None,
        )  # fmt: skip

    def has(self, start: int, end: int, state: str, attempts: int = 1) -> None:
        key = windows.key(self.name, start)
        failures = attempts if state == rows.FAILED else 0
        self.windows[key] = WindowRow(
            self.name, key, start, end, state, attempts, failures, 1, False, None, 1, None, end
        )

    def change(self, **fields: object) -> None:
        """Fields of the job's row."""
        assert self.row is not None
        self.row = self.row._replace(**fields)  # type: ignore[arg-type]

    def failed(self, hour: int, state: str = rows.FAILED, **fields: object) -> str:
        """A failed window of an hour of 2026-09-04; its key."""
        start = MIDNIGHT + hour * HOUR
        self.has(start, start + HOUR, state)
        key = windows.key(self.name, start)
        self.windows[key] = self.windows[key]._replace(**fields)  # type: ignore[arg-type]
        return key

    def stored(self) -> Stored:
        live = [row for row in self.windows.values() if row.state != rows.VOID]
        live.sort(key=lambda row: row.start or 0)
        unfinished = tuple(row for row in live if row.state in rows.UNFINISHED)
        return Stored(
            self.row,
            unfinished,
            lambda since: iter(self._blocks(live, since)),
            lambda below, limit: self._processed(live, below)[-limit:],
        )

    def _processed(self, live: Sequence[WindowRow], below: int) -> list[Block]:
        blocks = self._blocks(live, 0)
        return [b for b in blocks if b.state == rows.PROCESSED and b.start < below]

    def _blocks(self, live: Sequence[WindowRow], since: int) -> list[Block]:
        blocks = [
            Block(
                row.start or 0,
                row.end or 0,
                row.state,
                row.key,
                row.next_attempt_at,
                row.windows,
                row.partial,
            )
            for row in live
        ]
        blocks += [Block(gap.start, gap.end, "gap", None, None) for gap in self.gaps]
        return sorted(block for block in blocks if block.end > since)

    # -- calls -------------------------------------------------------------------------------------

    def call(self, argv: Sequence[str], now: int, fails: Sequence[int] = ()) -> Outcome:
        """`argv` of `run` without JOB and command, or of another verb, which stands first."""
        try:
            if argv[0] == "watermark":
                return self._set_watermark(argv, now)
            job = self._job(argv)
            grid = schedule.parse(self._text(job))
            plan = policy.plan_call(job, grid, self.stored(), now)
        except JobrunError as error:
            return Outcome((), (), error.code, None, error)
        if plan.units or plan.writes:
            self._open(plan.opening, job.schedule or grid.text)
            self.change(spec=json.dumps({"options": job.given}))
        return self._perform(job, grid, plan, now, fails)

    def _job(self, argv: Sequence[str]) -> Job:
        if argv[0] in ("rerun", "backfill"):
            assert self.row is not None
            line = options.read_line([self.name, *argv[1:], *COMMAND])
            return jobs.parse_by_hand(argv[0], line, {}, COMMAND[1:], {})
        return jobs.parse_run([self.name, *argv, *COMMAND], {})

    def _text(self, job: Job) -> str:
        """By hand it is the grid on record."""
        on_record = self.row.schedule if self.row else None
        text = job.schedule if job.mode == options.WINDOWS else on_record or job.schedule
        if text is None:
            raise UsageError("no schedule on record")
        return text

    def _perform(
        self, job: Job, grid: schedule.Grid, plan: Plan, now: int, fails: Sequence[int]
    ) -> Outcome:
        tried, attempts, status = [], [], 0
        for unit in plan.units:
            assert unit.key is not None
            assert unit.start is not None
            failed = unit.start in fails
            attempts.append(self._finish(job, unit, failed, now))
            tried.append(unit)
            self._settle(grid)
            if failed:
                status = status or 3
                if job.on_failure == "stop" and unit.kind != rows.LOOKBACK:
                    break
        if plan.units or plan.writes:
            self._settle(grid)
        return Outcome(tuple(tried), tuple(attempts), status, plan, None)

    def _open(self, opening: Opening, text: str) -> None:
        if self.row is None:
            self.row = JobRow(
                self.name, None, None, None, None, 0, None, None, None, 0, None, None, None,
                opening.now, opening.now, None,
            )  # fmt: skip
        mark = opening.watermark if self.row.watermark is None else self.row.watermark
        self.row = self.row._replace(
            schedule=opening.schedule or self.row.schedule or text,
            first=opening.first or self.row.first,
            watermark=mark,
            token=self.row.token + 1,
            clock_jump_at=opening.clock_jump_at,
            last_seen=opening.now,
        )
        if not opening.keep_largest_now:
            self.row = self.row._replace(largest_now=max(self.row.largest_now, opening.now))
        for key in opening.void:
            self.windows[key] = self.windows[key]._replace(state=rows.VOID)
        self.gaps += opening.gaps
        for key, reason in opening.ended:
            self.windows[key] = self.windows[key]._replace(state=rows.SKIPPED, reason=reason)

    def _finish(self, job: Job, unit: Unit, failed: bool, now: int) -> int:
        assert unit.key is not None
        assert unit.start is not None
        assert unit.end is not None
        before = self.windows.get(unit.key)
        attempt = before.attempts + 1 if before else 1
        failures = (before.failures if before else 0) + failed
        stays = before is not None and before.state == rows.PROCESSED
        length = unit.end - unit.start
        retry = fate.after_failure(job, unit.key, length, attempt, 3, now, now).next_attempt_at
        self.windows[unit.key] = WindowRow(
            self.name, unit.key, unit.start, unit.end,
            rows.FAILED if failed and not stays else rows.PROCESSED,
            attempt, failures, unit.windows, unit.partial, retry if failed else None, 1, None, now,
        )  # fmt: skip
        return attempt

    def _settle(self, grid: schedule.Grid) -> None:
        """R18: upward, over what is finished and adjoins."""
        assert self.row is not None
        mark = self.row.watermark
        if mark is None:
            return
        for block in self.stored().blocks(mark):
            if block.start > mark or block.state in rows.UNFINISHED:
                break
            mark = max(mark, block.end)
        self.row = self.row._replace(watermark=mark, next=grid.next(mark))

    def _set_watermark(self, argv: Sequence[str], now: int) -> Outcome:
        given = dict(zip(argv[1::2], argv[2::2], strict=True))
        assert self.row is not None
        assert self.row.schedule is not None
        grid = schedule.parse(self.row.schedule)
        instant, opening = asked.plan_watermark(
            self.name, grid, self.stored(), now, given["--set"], given["--reason"]
        )
        self._open(opening, self.row.schedule)
        self.row = self.row._replace(watermark=instant, next=grid.next(instant))
        for key, row in self.windows.items():
            if (row.end or 0) > now:
                self.windows[key] = row._replace(state=rows.VOID)
        self.gaps = [gap for gap in self.gaps if gap.end <= now]
        self._settle(grid)
        return Outcome((), (), 0, Plan(opening), None)

    @property
    def watermark(self) -> str | None:
        mark = self.row.watermark if self.row else None
        return None if mark is None else iso(mark)


def spans(units: Sequence[Unit]) -> Iterator[tuple[int, int, bool]]:
    """Start, end and whether it is partial, of units that are windows."""
    for unit in units:
        assert unit.start is not None
        assert unit.end is not None
        yield unit.start, unit.end, unit.partial


def called(mark: int = TEN, text: str = "every 1h", seen: int = NOW) -> Model:
    """A job that has been called before."""
    model = Model()
    model.has_been_called(text, mark, seen)
    return model


def starts(outcome: Outcome) -> list[int]:
    """The hours after the midnight of 2026-09-04 at which what was tried starts."""
    return [(start - MIDNIGHT) // HOUR for start, _, _ in spans(outcome.tried)]


def words(outcome: Outcome) -> list[str]:
    """What the notes of a call are about."""
    assert outcome.plan is not None
    return [str(fields.get("what") or fields.get("reason")) for _, fields, _ in outcome.plan.notes]
