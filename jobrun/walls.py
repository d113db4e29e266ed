"""Wall readings of a zone, and the instants that they stand for.

A reading can be missing (the clocks went forward over it) or come twice (they went back). Two
aware datetimes of one zone compare by their readings and ignore that, so nothing here is compared,
sorted or kept before it is an instant. Days are ordinals, as in `date.toordinal`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from jobrun.errors import UsageError
from jobrun.instants import MINUTE

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
