"""Instants and durations as text and as numbers.

An instant is a whole number of seconds since 1970-01-01T00:00Z: it has no zone to forget and no
fold to ignore, so comparing, sorting and counting can't go wrong. Text is made at the edges only.

This module is on the idle way: it imports nothing that a bare interpreter has not loaded.
"""

from __future__ import annotations

import time

from jobrun.errors import DamagedLedger, UsageError

MINUTE = 60
HOUR = 3600
DAY = 86_400
WEEK = 7 * DAY

LONGEST = 36_525 * DAY  # a hundred years; beyond it is a slip of the hand

_UNITS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY, "w": WEEK}


def iso(instant: int) -> str:
    """The form of keys and of the ledger: 2026-09-04T10:00:00+00:00."""
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(instant))


def iso_z(instant: int) -> str:
    """The form of `at=`: 2026-09-04T10:00:00Z (no `+`, so it is fit for a URL)."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instant))


def from_iso(text: str) -> int:
    """The instant that `iso` wrote; for text of our own, not of a person.

    Raises DamagedLedger for what `iso` did not write: a bit of the ledger has turned.
    """
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (TypeError, ValueError):
        raise DamagedLedger(
            f"the ledger is damaged: {text!r} stands where an instant should",
            "put a copy back; jobrun doctor looks at all of it",
        ) from None


def parse_duration(text: str, option: str, right: str = "15m") -> int:
    """Whole seconds of `90s`, `15m`, `1h30m`, `2d`, `1w`; a bare number is seconds.

    Raises UsageError, naming the option and the value, and how one of it would be `right`.
    """
    total, number = 0, ""
    for character in text:
        if character in "0123456789" and len(number) < 12:  # `int` refuses thousands of them
            number += character
        elif character in _UNITS and number:
            total += int(number) * _UNITS[character]
            number = ""
        else:
            break
    else:
        total += int(number or 0)
        if text and (not number or number == text) and total <= LONGEST:
            return total
    rule = "a duration is 90s, 15m, 1h30m, 2d or 1w; a bare number is seconds"
    if total > LONGEST:
        rule = "a duration is at most 100 years"
    raise UsageError(f'{option} "{text}": {rule}', f"{option} {right}")


def duration(seconds: float) -> str:
    """A duration for people, in the same spelling: 1.204s, 50m0.2s, 2h14m, 3d4h.

    Two units at the most, a third part of a second only where it can matter.
    """
    if seconds < MINUTE:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
    if seconds < HOUR:
        minutes, rest = divmod(seconds, MINUTE)
        return f"{int(minutes)}m{rest:.1f}".removesuffix(".0") + "s"
    if seconds < DAY:
        return f"{int(seconds // HOUR)}h{int(seconds % HOUR // MINUTE)}m"
    return f"{int(seconds // DAY)}d{int(seconds % DAY // HOUR)}h"
