"""Every and Cron: the boundaries between windows. Pure.

A grid is a pure function of its text and of the zone database: no starting point, no clock. Windows
of a fixed length are integer arithmetic; days, weeks, months and cron expressions are readings of a
wall clock (`walls.py`).

croniter is imported here only, for `--cron` only, and is given naive midnights: what it says about
days of the calendar is right, what it says about changing clocks is not asked for.

This module is on the idle way: it imports nothing at the top that a bare interpreter has not.
"""

from __future__ import annotations

from jobrun.errors import UsageError
from jobrun.instants import DAY, HOUR, MINUTE, WEEK, iso, iso_z

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from jobrun.walls import Days

    class Grid(Protocol):
        """Boundaries in strictly increasing order; instants are whole seconds."""

        @property
        def text(self) -> str:
            """Canonical: equal schedules have equal texts."""

        @property
        def zone(self) -> str:
            """The name of the zone of its days, "UTC" where none was given."""

        def next(self, t: int, /) -> int:
            """The smallest boundary above t."""

        def floor(self, t: int, /) -> int:
            """The largest boundary that is not above t."""

        def count(self, a: int, b: int, limit: int | None = None, /) -> int | None:
            """How many windows end in (a, b]; None where they are more than `limit`."""

        def describe(self) -> str:
            """For people: every 1 hour (UTC)."""


_UNITS = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "week", "weeks"),
    "mo": ("mo", "month", "months"),
}
_SECONDS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY, "w": WEEK}
LONGEST = 3653 * DAY  # of a window: ten years; beyond it is a slip of the hand
_MONDAY = 4 * DAY  # 1970-01-05


# -- from options to text --------------------------------------------------------------------------


def canonical(every: str | None, cron: str | None, anchor: str | None, tz: str | None) -> str:
    """The text of a schedule: `every 1h`, `every 1d tz=Europe/Istanbul`, `cron 0 2 * * *`.

    Exactly one of `every` and `cron` is given. Raises UsageError for what the spelling shows;
    `parse` finds the rest.
    """
    if cron is not None and every is None:
        if anchor is not None:
            raise UsageError(f'--anchor "{anchor}" goes with --every, not with --cron')
        from jobrun import expression

        return f"cron {expression.normal(cron)}{_zone_text(tz)}"
    if every is None or cron is not None:
        raise UsageError("exactly one of --every and --cron makes the grid", "--every 1h")
    number, unit = _split_every(every)
    if unit in ("d", "w", "mo"):
        if anchor is not None:
            rule = "days, weeks and months have a start of their own"
            raise UsageError(
                f'--anchor "{anchor}" with --every {every}: {rule}', "without --anchor"
            )
        return f"every {number}{unit}{_zone_text(tz)}"
    if tz is not None and tz != "UTC":
        hint = f"without --tz; or a day of that zone: --every 1d --tz {tz}"
        raise UsageError(f'--tz "{tz}" with --every {every}: elapsed time has no zone', hint)
    return f"every {number}{unit}{_anchor_text(every, number * _SECONDS[unit], anchor)}"


def _zone_text(tz: str | None) -> str:
    return "" if tz in (None, "UTC") else f" tz={tz}"


def _split_every(text: str) -> tuple[int, str]:
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    word = text[len(digits) :]
    unit = next((unit for unit, words in _UNITS.items() if word in words), None)
    if not digits or unit is None or len(digits) > 9:
        raise _bad_every(text)
    if int(digits) == 0:
        raise UsageError(f"--every {text}: a window has a length", f"--every 1{unit}")
    if int(digits) * _SECONDS.get(unit, 0) > LONGEST:
        raise UsageError(f"--every {text}: a window of more than ten years", "--every 12mo")
    if unit == "mo" and 12 % int(digits):
        rule = "the months of a year must divide by it"
        raise UsageError(f"--every {text}: {rule}", "--every 1mo, 2mo, 3mo, 4mo, 6mo or 12mo")
    return int(digits), unit


def _bad_every(text: str) -> UsageError:
    from jobrun.instants import parse_duration

    hint = "--every 15m, 1hour, 1day, 1week or 1month (1m is one minute)"
    rule = "one whole number and one unit of s m h d w mo"
    if text.endswith("ms") or text.startswith("0."):
        rule = "one second is the least; a whole number and one unit of s m h d w mo"
    try:
        seconds = parse_duration(text, "--every")
    except UsageError:
        return UsageError(f"--every {text}: {rule}", hint)
    for unit in ("d", "h", "m", "s"):
        if seconds and seconds % _SECONDS[unit] == 0:
            hint = f"--every {seconds // _SECONDS[unit]}{unit}"
            break
    return UsageError(f"--every {text}: {rule}", hint)


def _anchor_text(every: str, length: int, anchor: str | None) -> str:
    if anchor is None and DAY % length:
        rule = "it does not divide a day, so the grid needs an instant to start from"
        hint = f"--every {every} --anchor 2026-09-01T00:00Z"
        if length % DAY == 0:
            hint = f"--every {length // DAY}d, or {hint}"
        raise UsageError(f"--every {every}: {rule}", hint)
    if anchor is None:
        return ""
    from jobrun.windows import parse_when

    instant = parse_when(anchor, "UTC", option="--anchor")
    if instant % length == 0 and DAY % length == 0:
        return ""  # the grid that it has anyhow
    return f" anchor={iso(instant)}"


# -- from text to grid -----------------------------------------------------------------------------


def parse(text: str) -> Grid:
    """The grid of a canonical text. Raises UsageError: unknown zone, never fires."""
    kind, _, rest = text.partition(" ")
    rest, _, tz = rest.partition(" tz=")
    if kind == "cron":
        return _parse_cron(text, rest, tz or "UTC")
    rest, _, anchor = rest.partition(" anchor=")
    number, unit = _split_every(rest)
    if unit == "mo" or tz:
        return _parse_calendar(text, number, unit, tz or "UTC")
    from jobrun.instants import from_iso

    start = _MONDAY if unit == "w" else 0
    return Every(text, number, unit, from_iso(anchor) if anchor else start)


def _parse_calendar(text: str, number: int, unit: str, tz: str) -> Grid:
    from jobrun.walls import Walls, load_zone

    said = f"every {_count(number, unit)} ({tz})"
    return Walls(text, tz, load_zone(tz), _days_of_unit(number, unit), (0,), False, said)


def _days_of_unit(number: int, unit: str) -> Days:
    if unit == "mo":
        return lambda first, last: _first_days(number, first, last)
    length = number * (7 if unit == "w" else 1)
    origin = 719_163 + (4 if unit == "w" else 0)  # 1970-01-01, or the Monday after it
    return lambda first, last: range(first + (origin - first) % length, last + 1, length)


def _first_days(number: int, first: int, last: int) -> Iterable[int]:
    """The first day of each month that a grid of so many months begins in."""
    from datetime import date

    months = range(date.fromordinal(first).year * 12, date.fromordinal(last).year * 12 + 12, number)
    for month in months:
        day = date(month // 12, month % 12 + 1, 1).toordinal()
        if first <= day <= last:
            yield day


def _parse_cron(text: str, expr: str, tz: str) -> Grid:
    from croniter import croniter  # type: ignore[import-untyped]

    from jobrun import expression
    from jobrun.walls import EARLIEST, LATEST, Walls, load_zone

    zone = load_zone(tz)
    fields = expr.split(" ")
    together = expression.days_together(fields)
    try:
        (minutes, hours, *_), _ = croniter.expand(f"{fields[0]} {fields[1]} * * *")
    except (
        Exception
    ) as error:  # besides its own errors it raises bare ValueError, AttributeError ...
        raise UsageError(f'--cron "{expr}": croniter can\'t read it: {error}') from None
    days = _days_of_cron(" ".join(["0", "0", *fields[2:]]), together != "both")
    if len(list(_first(days(EARLIEST, LATEST), 2))) < 2:
        rule = "never fires: there is no such day in any year"
        raise UsageError(f'--cron "{expr}": {rule}', 'the last day of a month: --cron "0 0 L * *"')
    minute_of_day = tuple(
        60 * hour + minute for hour in _all(hours, 24) for minute in _all(minutes, 60)
    )
    said = f"cron {expr} ({tz})"
    if together:
        said += f", on days that match {together} of the day fields"
    return Walls(text, tz, zone, days, minute_of_day, len(_all(hours, 24)) == 24, said)


def _all(values: list[int | str], size: int) -> list[int]:
    """The values of a field as croniter gives them; it says `*` for all."""
    return list(range(size)) if "*" in values else sorted(int(value) for value in values)


def _first(days: Iterable[int], count: int) -> Iterable[int]:
    from itertools import islice

    return islice(days, count)


def _days_of_cron(expr: str, either: bool) -> Days:
    """The days of an expression, by croniter: naive midnights, one object an enumeration."""

    def days(first: int, last: int) -> Iterable[int]:
        from datetime import datetime, timedelta

        from croniter import croniter

        start = datetime.fromordinal(first) - timedelta(minutes=1)
        try:
            midnights = croniter(expr, start, ret_type=datetime, day_or=either)
            while (day := midnights.get_next(datetime).toordinal()) <= last:
                yield day
        except (ValueError, OverflowError):
            return  # none within 50 years, or before the year 10000

    return days


def _count(number: int, unit: str) -> str:
    name = _UNITS[unit][-1]
    return f"{number} {name if number > 1 else name[:-1]}"


# -- windows of a fixed length ---------------------------------------------------------------------


class Every:
    """Windows of a fixed length: boundaries are anchor + k * length."""

    __slots__ = ("_anchor", "_length", "_said", "text", "zone")

    def __init__(self, text: str, number: int, unit: str, anchor: int) -> None:
        self.text = text
        self.zone = "UTC"
        self._length = number * _SECONDS[unit]
        self._anchor = anchor
        self._said = f"every {_count(number, unit)} (UTC)"
        if anchor % self._length and unit != "w":
            self._said += f" from {iso_z(anchor)}"

    def next(self, t: int) -> int:
        return self.floor(t) + self._length

    def floor(self, t: int) -> int:
        return t - (t - self._anchor) % self._length

    def count(self, a: int, b: int, limit: int | None = None) -> int:
        """Arithmetic, so exact however many they are."""
        return max(0, (self.floor(b) - self.floor(a)) // self._length)

    def describe(self) -> str:
        return self._said


# -- the calendar of a zone ------------------------------------------------------------------------


def local(instant: int, tz: str | None) -> tuple[str, str, str]:
    """The date, month and hour on a wall of that zone: 2026-09-04, 2026-09, 10."""
    if tz in (None, "UTC"):
        text = iso(instant)
    else:
        from jobrun.walls import load_zone, reading

        text = reading(instant, load_zone(tz)).isoformat()
    return text[:10], text[:7], text[11:13]
