"""The windows of a planned range, packed: 30 bytes each. Pure.

Whoever runs commands is copied for each of them, and a copy takes the longer the more there is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from jobrun import windows
from jobrun.plans import Unit
from jobrun.rows import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.schedule import Grid


class Stock:
    """Units by start, each with the token of its row when it was planned; 0 where it had none."""

    def __init__(
        self, job: str, grid: Grid | None, units: Sequence[Unit], tokens: Mapping[str, int]
    ) -> None:
        self.grid = grid
        self._job = job
        self._starts = array("q", (unit.start or 0 for unit in units))
        self._ends = array("q", (unit.end or 0 for unit in units))
        self._windows = array("q", (unit.windows for unit in units))
        self._tokens = array("q", (tokens.get(unit.key or "", 0) for unit in units))
        self._kinds = bytes(KINDS.index(unit.kind or "") for unit in units)
        self._partial = bytes(unit.partial for unit in units)
        self._more = {n: unit for n, unit in enumerate(units) if unit.inputs or unit.refusal}

    def __len__(self) -> int:
        return len(self._starts)

    def key(self, index: int) -> str:
        return windows.key(self._job, self._starts[index])

    def unit(self, index: int) -> Unit:
        if index in self._more:
            return self._more[index]
        start, end, kind = self._starts[index], self._ends[index], KINDS[self._kinds[index]]
        partial, stands_for = bool(self._partial[index]), self._windows[index]
        return Unit(self.key(index), start, end, kind, partial, stands_for)

    def ahead(self, index: int, limit: int) -> range:
        """So many from there on, as far as there are."""
        return range(min(index, len(self)), min(index + limit, len(self)))

    def planned(self, indices: Sequence[int]) -> dict[str, int]:
        """Their tokens, by key."""
        return {self.key(index): self._tokens[index] for index in indices}

    def find(self, key: str | None, start: int | None) -> int | None:
        """Where the window with that key has its place; None where it has none."""
        index = bisect_left(self._starts, start or 0)
        return index if index < len(self) and self.key(index) == key else None
