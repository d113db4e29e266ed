"""Upstreams: the jobs that windows of ours wait for, and whether they have come far enough. Pure.

A window [s, e) may run once an upstream's watermark has reached e and, unless `finished` is enough,
all that the upstream has on record of [s, e) is processed. Only instants are compared, never grids:
so it holds for a day after 24 hours, an hour after its day, and a day of 23 hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import takewhile

from jobrun import lastcall, links, options, rows, schedule, windows
from jobrun.errors import ConfigError, UsageError
from jobrun.instants import iso_z
from jobrun.plans import Skip
from jobrun.rows import Block, JobRow, Source
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.schedule import Grid

NOT_RUN = "not-run"  # below the watermark, and neither a row nor a gap says how it was finished
# Nothing but a person's doing will make these processed.
SPOILED = (rows.DEAD, rows.SKIPPED, rows.GAP, NOT_RUN)
NOT_DONE = (*SPOILED, *rows.UNFINISHED)


class NoValue(Exception):
    """A window has no input to go by; the text says why."""


class Stretch(NamedTuple):
    """Of an upstream's time: what became of it."""

    start: int
    end: int
    state: str  # a window's state, "gap" or "not-run"


class Upstream:
    """One upstream as a call finds it. It is read forward, as windows of ours are asked for."""

    def __init__(self, name: str, wants: str, mark: int | None, source: Source) -> None:
        self.name = name
        self.mark = mark
        self._wants = wants
        self._source = source
        self._clear = (0, 0)  # what was found to be done as it is wanted
        self._asked = 0
        self._rest: Iterator[Block] | None = None
        self._ahead: list[Block] = []
        self._values: dict[str, Mapping[str, str]] = {}

    def hurdle(self, key: str, start: int, end: int) -> Skip | None:
        """Why the window [start, end) can't run yet, as far as this upstream is asked (R44)."""
        reached = self.mark is not None and self.mark >= end
        if reached and self._wants == links.FINISHED:
            return None
        if self._clear[0] <= start and end <= self._clear[1]:
            return None
        known = list(self.stretches(start, end))
        if self._wants == links.PROCESSED:
            spoiled = next((stretch for stretch in known if stretch.state in SPOILED), None)
            if spoiled is not None:
                return self._skip(rows.UPSTREAM_FAILED, key, spoiled)
        unfinished = next((stretch for stretch in known if stretch.state in rows.UNFINISHED), None)
        if reached and unfinished is None:
            return None
        return self._skip(rows.UPSTREAM_PENDING, key, unfinished)

    def _skip(self, reason: str, key: str, stretch: Stretch | None) -> Skip:
        fields: dict[str, object] = {"up": self.name, "watermark": self.mark}
        if stretch is None:
            return Skip(reason, key, fields, self.name)
        fields |= {"up-window": (stretch.start, stretch.end), "state": stretch.state}
        if reason != rows.UPSTREAM_FAILED:
            return Skip(reason, key, fields, self.name)
        whole = self._whole(stretch) if stretch.state == NOT_RUN else stretch
        return Skip(reason, key, fields, self.name, _way_out(self.name, key, whole))

    def _whole(self, stretch: Stretch) -> Stretch:
        """So wide that it begins and ends at boundaries of the upstream's."""
        row = self._source.job(self.name)
        if row is None or row.schedule is None:
            return stretch
        grid = schedule.parse(row.schedule)
        start, end = grid.floor(stretch.start), grid.floor(stretch.end)
        return stretch._replace(start=start, end=end if end == stretch.end else grid.next(end))

    def reach(self, start: int, end: int) -> int:
        """To where in [start, end) nothing is in the way; it is not read beyond."""
        until = start if self.mark is None else min(end, self.mark)
        first = next(self.in_the_way(start, until), None)
        until = until if first is None else max(start, first.start)
        if self._wants == links.PROCESSED:
            self._clear = (start, until)
        return until

    def in_the_way(self, start: int, end: int) -> Iterator[Stretch]:
        """What of [start, end) is not done as it is wanted, in order, read as it is drawn on."""
        if self._wants == links.FINISHED or start >= end:
            return
        read = takewhile(lambda block: block.start < end, self._source.blocks(self.name, start))
        for stretch in self._stretches(start, end, read):
            if stretch.state in NOT_DONE:
                yield stretch

    def stretches(self, start: int, end: int) -> Iterator[Stretch]:
        """What is known of [start, end), in order; what lies above the watermark is to come."""
        return self._stretches(start, end, self._meeting(start, end))

    def _stretches(self, start: int, end: int, blocks: Iterable[Block]) -> Iterator[Stretch]:
        at, settled = start, min(end, self.mark or start)
        for block in blocks:
            if at < min(block.start, settled):
                yield Stretch(at, min(block.start, settled), NOT_RUN)
            yield Stretch(block.start, block.end, block.state)
            at = max(at, block.end)
        if at < settled:
            yield Stretch(at, settled, NOT_RUN)

    def value(self, name: str, start: int, end: int) -> str:
        """What its windows that meet [start, end) have all left by that name. Raises NoValue."""
        at, found = start, set()
        for block in self._meeting(start, end):
            if block.start > at or block.state != rows.PROCESSED:
                break
            at = block.end
            found.add(self._value_of(block.key or "", name))
        if at < end:
            raise NoValue(f"{self.name} has not processed {iso_z(at)} to {iso_z(end)}")
        if len(found) > 1:
            span = f"{iso_z(start)} to {iso_z(end)}"
            raise NoValue(f"its windows of {span} have left {len(found)} different ones")
        return found.pop()

    def _value_of(self, key: str, name: str) -> str:
        if key not in self._values:
            self._values[key] = self._source.values(self.name, key)
        left = self._values[key]
        if name not in left:
            raise NoValue(f'{key} has left no "{name}" ({", ".join(left) or "nothing"})')
        return left[name]

    def _meeting(self, start: int, end: int) -> list[Block]:
        """The blocks that meet [start, end); windows of ours come in order, so it reads on."""
        if self._rest is None or start < self._asked:
            self._rest, self._ahead = self._source.blocks(self.name, start), []
        self._asked = start
        self._ahead = [block for block in self._ahead if block.end > start]
        while not self._ahead or self._ahead[-1].start < end:
            block = next(self._rest, None)
            if block is None:
                break
            if block.end > start:  # of ours there may be some between that nobody asked for
                self._ahead.append(block)
        return list(takewhile(lambda block: block.start < end, self._ahead))


def _way_out(name: str, key: str, stretch: Stretch) -> str:
    """What a person can type: the upstream once more, or our window not at all."""
    span = "--from", iso_z(stretch.start), "--to", iso_z(stretch.end)
    again = options.again("backfill", name, *span)
    if stretch.state == rows.DEAD:
        again = options.again("retry", name, iso_z(stretch.start))
    skip = options.typed("skip", key.partition(":")[0], key)
    return f'{again}; or {skip} --reason "..."; or --after {name}:{links.FINISHED}'


def hurdle(upstreams: Iterable[Upstream], key: str, start: int, end: int) -> Skip | None:
    """Why the window [start, end) can't run yet; first what only a person can change."""
    found = [each.hurdle(key, start, end) for each in upstreams]
    hurdles = [skip for skip in found if skip is not None]
    failed = (skip for skip in hurdles if skip.reason == rows.UPSTREAM_FAILED)
    return next(failed, hurdles[0] if hurdles else None)


def reach(upstreams: Iterable[Upstream], start: int, end: int) -> int:
    """To where in [start, end) none of them keeps ours from running."""
    for each in upstreams:
        end = each.reach(start, end)
    return end


def newest(upstreams: Sequence[Upstream], grid: Grid, start: int, end: int) -> int:
    """Where the newest window of ours in [start, end) ends that none of them keeps from running.

    Mostly it is the last one; what is below is read only where that is not so.
    """
    end = min(end, *(start if each.mark is None else each.mark for each in upstreams))
    last = grid.floor(end)
    if last <= start or not _in_the_way(upstreams, max(start, grid.floor(last - 1)), last):
        return end
    for bad in reversed(_in_the_way(upstreams, start, last)):
        if bad.end <= max(start, grid.floor(last - 1)):
            break
        if bad.start < last:
            last = grid.floor(bad.start)
        if last <= start:
            return start
    return last


def _in_the_way(upstreams: Iterable[Upstream], start: int, end: int) -> list[Stretch]:
    """Of all of them, those that adjoin in one."""
    found: list[Stretch] = []
    each = [upstream.in_the_way(start, end) for upstream in upstreams]
    for stretch in merge(*each, key=lambda stretch: stretch.start):
        if found and stretch.start <= found[-1].end:
            found[-1] = found[-1]._replace(end=max(found[-1].end, stretch.end))
        else:
            found.append(stretch)
    return found


def of(after: Iterable[tuple[str, str]], source: Source) -> tuple[Upstream, ...]:
    """The upstreams by what --after says; one that is not there has done nothing."""
    found = ((name, wants, source.job(name)) for name, wants in after)
    return tuple(Upstream(name, wants, row and row.watermark, source) for name, wants, row in found)


def last_hurdle(row: JobRow, source: Source, start: int, end: int) -> Skip | None:
    """Why the job's window [start, end) can't run yet, by the --after of its last call."""
    text = lastcall.of(row).options.get("--after")
    if not text:
        return None
    try:
        after = links.after(text)
    except UsageError:  # of a newer program
        return None
    key = windows.key(row.name, start)
    for name, _ in after:
        if why := _unknown(source.job(name)):  # its calls are refused
            fields: dict[str, object] = {"up": name, "watermark": None, "state": why}
            return Skip(rows.UPSTREAM_FAILED, key, fields, name, _first_call(name))
    return hurdle(of(after, source), key, start, end)


def check(job: str, after: Iterable[tuple[str, str]], source: Source) -> None:
    """Raises ConfigError for one that has no windows, and for a circle."""
    for name, _ in after:
        _refuse_circle(job, (job, name), source, set())
        if why := _unknown(source.job(name)):
            raise ConfigError(f'job "{job}": --after "{name}" is {why}', _first_call(name))


def _unknown(row: JobRow | None) -> str | None:
    """What is wrong with an upstream that has no windows."""
    if row is not None and row.schedule is not None:
        return None
    return "not on record" if row is None or row.spec is None else "a job without windows"


def _first_call(name: str) -> str:
    status = options.typed("status")
    return f"{name}'s own line, with --every or --cron, has to be called first: {status}"


def _refuse_circle(job: str, path: tuple[str, ...], source: Source, seen: set[str]) -> None:
    """Follow the upstreams, as each was last called, up from the end of `path`."""
    last = path[-1]
    if last == job:
        raise ConfigError(
            f'job "{job}": it would wait for itself: {" --after ".join(path)}',
            f"the others are as last called: {options.typed('show', path[-2])}"
            if len(path) > 2
            else None,
        )
    if last in seen:
        return
    seen.add(last)
    for name in upstreams_of(source.job(last)):
        _refuse_circle(job, (*path, name), source, seen)


def upstreams_of(row: JobRow | None) -> list[str]:
    """The upstreams that a job was last called with; none of what a newer program may have said."""
    text = lastcall.read(row.spec).options.get("--after") if row is not None else None
    return [part.partition(":")[0] for part in text.split(",")] if text else []
