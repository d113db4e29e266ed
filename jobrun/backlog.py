"""The backlog of a job as a plan sees it, and what of it is given up. Pure.

What `--max-age` and `--catch-up latest` leave out becomes a gap: one row, however many windows. A
window that was tried is never inside a gap; where it is given up, its own row says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobrun import options, rows, windows
from jobrun.instants import iso
from jobrun.plans import Note, note
from jobrun.rows import GAP, Block, Gap, Stored, WindowRow
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.schedule import Grid

FEW = 3  # windows that are named one by one
COUNTED_IN_GAP = 1_000_000  # of cron's windows so many are counted in a gap


class Backlog(NamedTuple):
    """What a plan is made from, once it is settled where it starts."""

    job: Job
    grid: Grid
    known: Stored
    mark: int  # the watermark, after all finished blocks that adjoin it
    now: int
    gaps: tuple[Gap, ...] = ()  # given up by this call
    ended: tuple[str, ...] = ()  # keys of failed windows that it gives up, oldest first

    @property
    def ready(self) -> int:
        """What has ended by then is closed."""
        return self.now - self.job.lag

    @property
    def is_probe(self) -> bool:
        """Whether this call tries the oldest window only, to see if the job may go on."""
        row = self.known.job
        return self.job.pause_after is not None and row is not None and row.is_probed(self.now)

    @property
    def reach(self) -> int:
        """So far, from the watermark on, no upstream is in the way of what has closed."""
        if not self.known.upstreams:
            return self.ready
        from jobrun import upstream

        return upstream.reach(self.known.upstreams, self.mark, self.ready)

    @property
    def newest(self) -> int:
        """Where the newest window ends that has closed, and has no upstream in its way."""
        if not self.known.upstreams:
            return self.ready
        from jobrun import upstream

        return upstream.newest(self.known.upstreams, self.grid, self.mark, self.ready)

    @property
    def under_way(self) -> str | None:
        """The key of the oldest window that another call has under way."""
        unfinished = self.known.unfinished
        return next((row.key for row in unfinished if row.key in self.known.taken), None)

    @property
    def span(self) -> tuple[int, int]:
        return self.mark, self.ready

    @property
    def unfinished(self) -> dict[str, WindowRow]:
        """By key, oldest first; without those that are given up, or that others have under way."""
        left_out = self.known.taken.union(self.ended)
        return {row.key: row for row in self.known.unfinished if row.key not in left_out}

    def blocks(self, since: int) -> Iterator[Block]:
        """What is on record, and what this call gives up."""
        if not self.gaps:
            return self.known.blocks(since)
        from heapq import merge

        given_up = (Block(gap.start, gap.end, GAP, None, None) for gap in self.gaps)
        later = (block for block in given_up if block.end > since)
        return merge(self.known.blocks(since), later, key=lambda block: block.start)


def give_up_old(backlog: Backlog, oldest: int) -> Backlog:
    """Gaps over what ended before `oldest`; a window that was tried never ages out."""
    old = min(oldest - 1, backlog.ready)
    found = []
    for start, until, _ in windows.stretches(backlog.mark, old, backlog.blocks(backlog.mark)):
        end = windows.closed_end(backlog.grid, start, until, old)
        if end > start:
            found.append(_gap(backlog, start, end, rows.TOO_OLD))
    return backlog._replace(gaps=tuple(found))


def give_up_all_but_newest(backlog: Backlog) -> Backlog:
    """Gaps over all but the newest closed window; older failed ones are ended by their own row.

    The newest that its upstreams let run: one that is still to wait, or that one of them has given
    up, stands for no other.
    """
    reach = backlog.newest
    free: list[tuple[int, int]] = []
    tried: list[str] = []
    newest: str | None = None
    for start, until, block in windows.stretches(backlog.mark, reach, backlog.blocks(backlog.mark)):
        end = windows.closed_end(backlog.grid, start, until, reach)
        if end > start:
            free.append((start, end))
            newest = None
        if block is not None and block.end <= reach:
            newest = block.key or GAP
            is_taken = block.key in backlog.known.taken
            if block.key and block.state in (rows.FAILED, rows.RUNNING) and not is_taken:
                tried.append(block.key)
    if free and newest is None:
        start, end = free.pop()
        free.append((start, max(start, backlog.grid.floor(end - 1))))
    gaps = [_gap(backlog, start, end, rows.NOT_LATEST) for start, end in free if start < end]
    ended = tuple(key for key in tried if key != newest)
    return backlog._replace(gaps=(*backlog.gaps, *gaps), ended=ended)


def _gap(backlog: Backlog, start: int, end: int, reason: str) -> Gap:
    number = windows.count(backlog.grid, start, end, COUNTED_IN_GAP)
    return Gap(start, end, number, reason, at=backlog.now)


def events_of(backlog: Backlog) -> Iterator[tuple[str | None, str, str]]:
    for gap in backlog.gaps:
        number = "many" if gap.windows is None else gap.windows
        yield None, gap.reason, f"{number} windows, {iso(gap.start)} to {iso(gap.end)}"
    for key in backlog.ended:
        yield key, rows.NOT_LATEST, "had failed; a newer window has closed"


def notes_of(backlog: Backlog) -> Iterator[Note]:
    name = backlog.job.name
    for gap in backlog.gaps:
        more: dict[str, object] = {"window": (gap.start, gap.end), "windows": gap.windows}
        if gap.reason == rows.TOO_OLD:
            yield note("WARNING", name, rows.TOO_OLD, **more)
        else:  # as asked for by `--catch-up latest`: quiet hides it
            yield "SKIPPED", {"job": name, "reason": gap.reason, **more}, None
    yield from _ended_notes(name, backlog.ended)


def _ended_notes(name: str, ended: tuple[str, ...]) -> Iterator[Note]:
    """Each by its key, as long as they are few; a night of failed minutes is one line."""
    if len(ended) <= FEW:
        for key in ended:
            again = options.again("rerun", name, key)
            yield note("WARNING", name, rows.NOT_LATEST, again, key=key)
    else:
        more = {"windows": len(ended), "first": ended[0], "last": ended[-1]}
        yield note("WARNING", name, rows.NOT_LATEST, options.typed("windows", name), **more)
