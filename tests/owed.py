"""What must hold after each call of a job, whatever the planner thinks (for test_model.py).

It plans nothing. It keeps what was really processed (the commands say so themselves), and states
what a record may look like after a call, given the one before.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from tests.record import Record, Run, Stretch, meets, minus, reach

MINUTE, HOUR, DAY = 60, 3600, 86_400
REFUSED = (2, 75, 78)
NOTED = re.compile('"jobrun_(job|host)"')  # in any case: that the job, and this host, have called
JUMP, BELIEVED_AFTER, JITTER = 31 * DAY, 10 * MINUTE, 5 * MINUTE


class Grid(NamedTuple):
    argv: tuple[str, ...]
    text: str
    step: int
    offset: int = 0

    def floor(self, instant: int) -> int:
        return instant - (instant - self.offset) % self.step

    def next(self, instant: int) -> int:
        return self.floor(instant) + self.step


class Asked(NamedTuple):
    """One call, as the model needs to know it. `gives_up` is whether it may leave windows out."""

    verb: str
    now: int
    grid: Grid
    lag: int = 0
    cap: int = 100
    on_failure: str = "stop"
    catch_up: str = "all"
    max_age: int | None = None
    retry_delay: int = 60
    first: int | str = "latest"
    consents: bool = False  # --accept-schedule
    accepts: bool = False  # --accept-clock
    redo: str = "none"
    target: Stretch | None = None  # by hand: what may be left out
    set_to: int | None = None  # watermark --set
    gives_up: bool = False


def unchanged(before: Record, after: Record) -> bool:
    """But for its being told, once an episode, and that the job was called: that takes a token."""
    told = [
        line
        for line in after.dump
        if ("'clock-behind'" in line or "'refused'" in line) and line not in before.dump
    ]
    if len(told) > 1:
        return False
    kept, now = (
        [line for line in record.dump if line not in told and not NOTED.search(line)]
        for record in (before, after)
    )
    return kept == now and (before.mark, before.schedule) == (after.mark, after.schedule)


class Owed:
    """`done`: what commands did, their end on record. `due`: when a failed one may run again."""

    def __init__(self) -> None:
        self.done: dict[int, int] = {}
        self.units: set[str] = set()  # keys of --key that are done
        self.bounds: dict[str, Stretch] = {}
        self.tries: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.due: dict[str, int] = {}
        self.origin: int | None = None  # from there on every window is owed
        self.seen: int | None = None  # the largest clock that was believed
        self.jumped_at: int | None = None

    # -- every call --------------------------------------------------------------------------------

    def check(self, asked: Asked, before: Record, after: Record, status: int) -> None:
        started = list(after.runs[len(before.runs) :])
        if status in REFUSED:
            assert unchanged(before, after), "a refused call changed something"
            return
        if asked.verb not in ("plain", "key"):
            before = self._take_back(asked, before)
        self._begin(asked, before, after)
        doubted = self._doubts(asked)
        if asked.verb == "run":
            self._in_turn(asked, before, after, started, doubted)
        for run in started:
            self._count(asked, run)
        self._left_out(asked, before, after, started)
        self._mark(asked, before, after)
        assert self.done == after.done
        assert {row.key: self.tries[row.key] for row in after.windows} == {
            row.key: row.attempts for row in after.windows
        }
        assert self.bounds.keys() <= {row.key for row in after.windows}

    def _take_back(self, asked: Asked, before: Record) -> Record:
        """The record without what failed or died on a clock ahead and has not closed by now.

        It is as if it had never been, but for its tries. Not while the watermark is ahead, too.
        """
        if before.mark is not None and before.mark > asked.now:
            return before
        void = [row for row in before.unfinished if row.end > asked.now + JITTER]
        for row in void:
            self.bounds.pop(row.key, None)  # `--set` has forgotten it
            self.due.pop(row.key, None)
        return before._replace(windows=tuple(row for row in before.windows if row not in void))

    def _begin(self, asked: Asked, before: Record, after: Record) -> None:
        """R32: where a job without a watermark begins. Only `--set` makes anything forgotten."""
        if asked.set_to is not None:
            if before.mark is None or asked.set_to < before.mark:
                self.origin = asked.set_to
            if before.mark is not None and asked.set_to < before.mark:
                self._forget_after(asked.now)
        elif before.mark is None and after.mark is not None:
            newest_end = asked.grid.floor(asked.now - asked.lag)
            words = {"latest": asked.grid.floor(newest_end - 1), "none": newest_end}
            self.origin = words[asked.first] if isinstance(asked.first, str) else asked.first

    def _forget_after(self, now: int) -> None:
        self.done = {start: end for start, end in self.done.items() if end <= now}
        for key in [key for key, (_, end) in self.bounds.items() if end > now]:
            del self.bounds[key]
            self.due.pop(key, None)

    def _count(self, asked: Asked, run: Run) -> None:
        """A start: never of what is processed, unless asked for; its bounds are for good."""
        if run.key is None:  # a plain run
            assert run.attempt == 1
            return
        self.tries[run.key] += 1
        assert run.attempt == self.tries[run.key]
        if run.start is None or run.end is None:
            assert run.key not in self.units
            self.units |= {run.key} if run.outcome == "succeeded" else set()
            return
        stretch = (run.start, run.end)
        assert stretch[0] < stretch[1] <= asked.now - asked.lag, f"{run.key} had not closed"
        assert self.bounds.setdefault(run.key, stretch) == stretch
        if run.start in self.done:
            assert asked.verb == "rerun" or asked.redo == "all", f"{run.key} was processed"
        others = [(s, e) for s, e in self.done.items() if s != run.start]
        assert not [other for other in others if meets(other, stretch)], "processed twice"
        if run.outcome == "succeeded":
            self.done[run.start] = run.end
        self.failures[run.key] += run.outcome not in ("succeeded", "interrupted")
        times = max(self.failures[run.key], 1) - 1
        delay = min(asked.retry_delay << times, run.end - run.start, HOUR)
        self.due[run.key] = 0 if run.outcome is None else asked.now + delay

    def _left_out(self, asked: Asked, before: Record, after: Record, started: list[Run]) -> None:
        """Nothing is given up that nobody asked to; only its own run, or `--set`, takes it back."""
        if asked.set_to is None:
            ran = [(run.start or 0, run.end or 0) for run in started]
            assert not minus(minus(before.given_up, after.given_up), ran)
        new = minus(after.given_up, before.given_up)
        assert asked.gives_up or not new
        if asked.target is not None:
            assert not minus(new, [asked.target])
        if asked.catch_up == "all" and asked.max_age is not None:
            assert all(end < asked.now - asked.max_age for _, end in new)
        if asked.catch_up == "latest" and asked.max_age is None and new:
            ends = [row.end for row in after.windows if row.end <= asked.now - asked.lag]
            assert max(ends, default=0) > new[-1][1], "the newest was given up"

    def _mark(self, asked: Asked, before: Record, after: Record) -> None:
        """It never passes a hole, is as high as it can be, and only `--set` lowers it."""
        assert not [pair for pair in pairwise(after.blocks) if meets(*pair)]
        if after.mark is None:
            return
        assert self.origin is not None
        assert reach(self.origin, after.blocks) >= after.mark
        since = before.mark if before.mark is not None else self.origin
        if asked.set_to is not None:
            since = asked.set_to
        assert since <= after.mark == reach(since, after.finished)

    def _doubts(self, asked: Asked) -> bool:
        """R40: a clock that jumped more than 31 days ahead, until it is seen to stay there."""
        since = self.jumped_at
        stays = since is not None and BELIEVED_AFTER <= asked.now - since <= JUMP
        if self.seen is None or asked.now - self.seen <= JUMP or asked.accepts or stays:
            self.seen, self.jumped_at = max(self.seen or 0, asked.now), None
            return False
        if since is None or not 0 <= asked.now - since <= JUMP:
            self.jumped_at = asked.now
        return True

    # -- a scheduled call --------------------------------------------------------------------------

    def _in_turn(
        self, asked: Asked, before: Record, after: Record, started: list[Run], doubted: bool
    ) -> None:
        """Oldest first, no hole jumped over, not more than the cap, nothing before it is due."""
        at = self.origin if before.mark is None else before.mark
        assert at is not None
        assert len(started) <= (1 if doubted else asked.cap)
        assert set(before.gaps) == set(after.gaps) or not doubted
        passed = [*before.finished, *minus(after.given_up, before.given_up)]
        holes = [(row.start, row.end) for row in before.unfinished]
        for run in started:
            assert run.start is not None
            assert run.end is not None
            wait = self.due.get(run.key or "", 0) - asked.now
            assert not 0 < wait <= HOUR, f"{run.key} was not due"
            if run.start >= at and (asked.on_failure == "stop" or run.kind == "new"):
                passable = passed if asked.on_failure == "stop" else [*passed, *holes]
                assert reach(at, passable) == run.start, f"{run.key} was not the oldest"
                self._is_window(asked, before, run, at)
            assert run.kind == "retry" or run.start >= at, f"{run.key} is below the watermark"
            if run.outcome == "succeeded" or asked.on_failure == "continue":
                passed.append((run.start, run.end))
        self._share_the_cap(asked, started, at)
        all_well = not doubted and all(run.outcome == "succeeded" for run in started)
        if all_well and len(started) < asked.cap and not after.unfinished:
            assert (after.mark or 0) >= asked.grid.floor(asked.now - asked.lag), "some left"

    def _is_window(self, asked: Asked, before: Record, run: Run, at: int) -> None:
        """One window of the grid, cut only where the mark or something on record cuts it."""
        assert run.start is not None
        assert run.end is not None
        if run.kind != "new":
            return
        edges = {at, *(edge for block in before.blocks for edge in block)}
        assert asked.grid.floor(run.start) == run.start or run.start in edges
        assert asked.grid.floor(run.end) == run.end or run.end in edges
        if asked.catch_up != "merge":
            assert run.end <= asked.grid.next(run.start)

    def _share_the_cap(self, asked: Asked, started: list[Run], at: int) -> None:
        """Each kind oldest first; `continue`: holes before new ones, with half the cap."""
        kinds = [run.kind for run in started]
        if asked.on_failure == "continue":
            assert kinds == sorted(kinds, key=lambda kind: kind != "retry")
            assert kinds.count("retry") <= (asked.cap + 1) // 2
        for kind in ("new", "retry"):
            starts = [run.start or 0 for run in started if run.kind == kind]
            above = [start for start in starts if start >= at]
            assert above == sorted(above)
