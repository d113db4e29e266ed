"""Wall readings of a zone, and the instants that they stand for.

A reading can be missing (the clocks went forward over it) or come twice (they went back). Two
aware datetimes of one zone compare by their readings and ignore that, so nothing here is compared,
sorted or kept before it is an instant. Days are ordinals, as in `date.toordinal`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from jobrun.errors import UsageError
from jobrun.instants import DAY, MINUTE, iso_z

# The ordinals of the days, from the first to the last asked for, that have boundaries.
Days = Callable[[int, int], Iterable[int]]

_EPOCH = 719_163  # 1970-01-01
# Days as ordinals: 1970-01-02 (the C library of Windows has nothing before 1970) and 9998-12-30.
EARLIEST, LATEST = 719_164, 3_651_693
# Days that are looked through for a boundary: doubled, up to 90 years. The longest real distance
# is 40 years, from one fifth Friday in February to the next over 2100.
_SPANS = tuple(2**power for power in range(16))
_CACHED = 8  # spans kept; a plan asks for the same two or three again and again

# Files beside the zones: the host's own zone, and zones that count leap seconds.
_NOT_ZONES = ("localtime", "posixrules", "posix/", "right/")


def load_zone(name: str | None) -> tzinfo:
    """The zone of that IANA name; UTC for None. Raises UsageError with a suggestion."""
    if name is None or name == "UTC":
        return UTC
    try:
        if not name.startswith(_NOT_ZONES):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass  # unknown; no key at all; a folder ("America")
    raise UsageError(f'--tz "{name}": no zone of that name in the IANA database', _like(name))


def _like(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, available_timezones(), 1) or ["Europe/Berlin"]
    return f"--tz {near[0]}"


def reading(instant: int, zone: tzinfo) -> datetime:
    """What the clock on the wall says, without a zone."""
    return datetime.fromtimestamp(instant, zone).replace(tzinfo=None)


def day_of(instant: int, zone: tzinfo) -> int:
    return datetime.fromtimestamp(instant, zone).toordinal()


def all_instants(wall: datetime, zone: tzinfo) -> list[int]:
    """When the wall says so: once, twice, or never."""
    either = {_instant(wall, zone, 0), _instant(wall, zone, 1)}
    return sorted(at for at in either if reading(at, zone) == wall)


def first_instant(wall: datetime, zone: tzinfo) -> int:
    """The first time the wall says so; for a missing reading the first instant after the gap."""
    found = all_instants(wall, zone)
    return found[0] if found else _after_gap(wall, zone)


def start_of_day(day: int, zone: tzinfo) -> int:
    return first_instant(datetime.fromordinal(day), zone)


def instants_of_day(day: int, minutes: tuple[int, ...], zone: tzinfo, repeat: bool) -> list[int]:
    """The instants of a day's readings, given as minutes since 00:00, not always in order.

    With `repeat` a reading that comes twice counts twice and a missing one never; without it each
    reading counts once, as in `first_instant`.
    """
    midnight = datetime.fromordinal(day)
    start = _instant(midnight, zone, 0)
    # Fold 1 at the end: clocks that go back over this midnight repeat readings of this day.
    if _instant(midnight + timedelta(days=1), zone, 1) - start == 1440 * MINUTE:
        return [start + minute * MINUTE for minute in minutes]
    walls = [midnight + timedelta(minutes=minute) for minute in minutes]
    if repeat:
        return [at for wall in walls for at in all_instants(wall, zone)]
    return [first_instant(wall, zone) for wall in walls]


def _instant(wall: datetime, zone: tzinfo, fold: int) -> int:
    return int(wall.replace(tzinfo=zone, fold=fold).timestamp())


def _after_gap(wall: datetime, zone: tzinfo) -> int:
    """Where the clocks go over the missing `wall`: one second before it they say less."""
    before, after = _instant(wall, zone, 1), _instant(wall, zone, 0)
    while after - before > 1:
        middle = (before + after) // 2
        if reading(middle, zone) > wall:
            after = middle
        else:
            before = middle
    return after


class Walls:
    """The grid between readings of a wall clock: days, weeks, months, cron expressions.

    Readings are enumerated a few local days at a time, made instants one by one, and only then
    sorted and searched: `next` and `floor` can't disagree, and don't depend on where one starts.

    `repeat`: a reading that comes twice is two boundaries and a missing one is none (an expression
    for every hour); otherwise each is one (`walls.first_instant`).
    """

    __slots__ = ("_days", "_minutes", "_repeat", "_said", "_spans", "_zone", "text", "zone")

    def __init__(
        self,
        text: str,
        name: str,
        zone: tzinfo,
        days: Days,
        minutes: tuple[int, ...],
        repeat: bool,
        said: str,
    ) -> None:
        self.text = text
        self.zone = name
        self._zone = zone
        self._days = days
        self._minutes = minutes
        self._repeat = repeat
        self._said = said
        self._spans: dict[tuple[int, int], list[int]] = {}

    def next(self, t: int) -> int:
        today = self._day(t)
        for span in _SPANS:
            known = self._between(today - 1, today + span)
            at = bisect_right(known, t)
            # A whole day must lie above it: clocks that go back over a midnight mix two days.
            if at < len(known) and self._day(known[at]) < today + span:
                return known[at]
        raise self._none(t, "after")

    def floor(self, t: int) -> int:
        today = self._day(t)
        for span in _SPANS:
            known = self._between(today - span, today + 1)
            at = bisect_right(known, t)
            if at and self._day(known[at - 1]) > today - span:
                return known[at - 1]
        raise self._none(t, "up to")

    def count(self, a: int, b: int, limit: int | None = None) -> int | None:
        total, at = 0, a
        while at < b and (limit is None or total <= limit):
            day = self._day(at)
            known = self._between(day - 1, day + 33)
            until = min(b, start_of_day(day + 32, self._zone))
            total += bisect_right(known, until) - bisect_right(known, at)
            at = until
        return total if limit is None or total <= limit else None

    def describe(self) -> str:
        return self._said

    def _day(self, t: int) -> int:
        if not 0 <= t < (LATEST - _EPOCH) * DAY:
            raise UsageError(f"{t} s since 1970 is outside the years 1970 to 9998")
        return day_of(t, self._zone)

    def _between(self, first: int, last: int) -> list[int]:
        """The boundaries that the readings of these days give, in order."""
        key = (max(first, EARLIEST), min(last, LATEST))
        known = self._spans.get(key)
        if known is None:
            known = self._enumerate(*key)
            if len(self._spans) >= _CACHED:
                self._spans.clear()
            self._spans[key] = known
        return known

    def _enumerate(self, first: int, last: int) -> list[int]:
        found: set[int] = set()
        for day in self._days(first, last):
            found.update(instants_of_day(day, self._minutes, self._zone, self._repeat))
        return sorted(found)

    def _none(self, t: int, where: str) -> UsageError:
        return UsageError(f'"{self.text}" has no boundary {where} {iso_z(t)}')
