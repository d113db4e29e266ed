"""Gaps, ranges of time that were given up. Pure."""

from __future__ import annotations

from jobrun.rows import Gap


def carve(gap: Gap, start: int, end: int, windows: int) -> tuple[Gap, ...]:
    """What is left of a gap when [start, end), which holds `windows` windows, gets its own row."""
    before, after = _counts(gap, start, end, windows)
    pieces = (
        gap._replace(end=min(start, gap.end), windows=before),
        gap._replace(start=max(end, gap.start), windows=after),
    )
    return tuple(piece for piece in pieces if piece.start < piece.end)


def _counts(gap: Gap, start: int, end: int, windows: int) -> tuple[int | None, int | None]:
    """How many windows lie before and after; None where only the grid could tell."""
    if gap.windows is None or start < gap.start or end > gap.end:
        return None, None
    left = gap.windows - windows
    if left < 1:
        return None, None
    if start == gap.start or end == gap.end:
        return left, left
    if (end - start) * gap.windows == (gap.end - gap.start) * windows:
        # Windows of one length, as it seems: then time and number go together.
        before, odd = divmod((start - gap.start) * windows, end - start)
        return (before, left - before) if not odd and 0 < before < left else (None, None)
    return None, None
