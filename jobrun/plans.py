"""What one call is to do, as values: what to write first, what to run, what to leave and why."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from jobrun.rows import Opening
from jobrun.value import NamedTuple

TAKEN = -1  # a token that no row has
COUNTED = 10_000  # of cron's windows so many are counted, then it is "10000+"

# A line to be printed: its word, its fields, and a hint on a line of its own.
Note = tuple[str, Mapping[str, object], str | None]


def note(word: str, job: str, what: str, hint: str | None = None, /, **fields: object) -> Note:
    return word, {"job": job, "what": what, **fields}, hint


class Unit(NamedTuple):
    """One run to be made. Without a key it is a plain one, without bounds no window."""

    key: str | None
    start: int | None
    end: int | None
    kind: str | None
    partial: bool = False
    windows: int = 1
    inputs: tuple[tuple[str, str], ...] = ()  # of --input: variables for its command
    refusal: tuple[str, str | None] | None = None  # why its command can't be started: error, hint


class Skip(NamedTuple):
    reason: str  # one of those in rows.py
    key: str | None
    fields: Mapping[str, object]  # more for its line
    fold: str | None = None  # what else makes two of them the same (skips.skip)
    hint: str | None = None


class Plan(NamedTuple):
    """`units` are tried in this order, each after the one before has ended.

    `opening` is to be written before the first, and also without any where `writes` is true.
    """

    opening: Opening
    units: tuple[Unit, ...] = ()
    skips: tuple[Skip, ...] = ()
    notes: tuple[Note, ...] = ()
    left: int | None = 0  # closed windows that this call leaves to the next; None: above COUNTED
    left_from: int | None = None
    waits: int | None = None  # when the next window closes for us: its end and the lag
    windows: int = 0  # how many a range by hand means
    rows: tuple[tuple[str, int, int], ...] = ()  # (key, start, end) to be marked as skipped
    # Of a range by hand, by key: the token of a window's row, TAKEN where it runs.
    tokens: Mapping[str, int] = MappingProxyType({})

    @property
    def writes(self) -> bool:
        """Whether the opening says anything new."""
        new = self.opening
        texts = new.schedule, new.first, new.watermark, new.resumed_by
        lists = new.gaps, new.ended, new.due, new.skipped, new.void, new.events, self.rows
        return new.keep_largest_now or any(lists) or any(text is not None for text in texts)

    @property
    def left_text(self) -> str | None:
        if self.left is None:
            return f"{COUNTED}+"
        return str(self.left) if self.left else None
