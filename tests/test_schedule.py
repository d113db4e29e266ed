"""Boundaries against an oracle that knows nothing of ours: every minute, by the wall clock.

`golden_boundaries.json` holds 200 (schedule, from) -> boundaries. It was made by `python -m
tests.test_schedule`, which writes an entry only where the oracle below agrees with `schedule.py`;
made anew after an update of croniter or tzdata, its diff shows whose windows move.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrun import schedule
from jobrun.instants import DAY, HOUR, iso

if TYPE_CHECKING:
    from jobrun.schedule import Grid

GOLDEN = Path(__file__).with_name("golden_boundaries.json")


def at(text: str) -> int:
    """Seconds of `2026-09-04T10:00`, UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def cron(expression: str, tz: str | None = None) -> Grid:
    return schedule.parse(schedule.canonical(None, expression, None, tz))


def every(text: str, tz: str | None = None, anchor: str | None = None) -> Grid:
    return schedule.parse(schedule.canonical(text, None, anchor, tz))


def boundaries(grid: Grid, start: int, end: int) -> list[int]:
    """Those in (start, end]."""
    found = []
    while (start := grid.next(start)) <= end:
        found.append(start)
    return found


# -- the oracle ----------------------------------------------------------------------------------


class Field:
    """The values of one field, by the plainest reading of crontab(5)."""

    def __init__(self, text: str, low: int, high: int) -> None:
        self.starred = text.startswith("*")
        self.values = set()
        for part in text.split(","):
            span, _, step = part.partition("/")
            first, _, last = span.partition("-")
            if span == "*":
                first, last = str(low), str(high)
            self.values |= set(range(int(first), int(last or first) + 1, int(step or 1)))


class Oracle:
    """A five-field expression of numbers, `*`, lists, ranges and steps; `L` alone as the day."""

    def __init__(self, expression: str) -> None:
        minute, hour, day, month, weekday = expression.split()
        self.last_day = day == "L"
        self.minute, self.hour = Field(minute, 0, 59), Field(hour, 0, 23)
        self.day = Field("*" if self.last_day else day, 1, 31)
        self.month, self.weekday = Field(month, 1, 12), Field(weekday, 0, 6)
        self.free = day == "*" or weekday == "*" or self.last_day
        self.both = self.day.starred or self.weekday.starred

    def matches(self, wall: datetime) -> bool:
        in_day, in_week = (
            wall.day in self.day.values,
            wall.isoweekday() % 7 in {value % 7 for value in self.weekday.values},
        )
        if self.last_day:
            in_day = (wall + timedelta(days=1)).day == 1
        days = in_day and in_week if self.free or self.both else in_day or in_week
        return (
            days
            and wall.minute in self.minute.values
            and wall.hour in self.hour.values
            and wall.month in self.month.values
        )

    def boundaries(self, shown: list[tuple[int, datetime]], start: int) -> list[int]:
        """Those after `start`, of an hour or more of `shown`: instants and what the wall says then.

        Where not every hour is meant, a reading counts when it is first shown, and one that the
        clocks jump over counts at the jump.
        """
        every_hour = self.hour.values == set(range(24))
        found, latest = [], shown[0][1]
        for instant, wall in shown[1:]:
            if every_hour:
                passed = [wall] if wall.second == 0 else []
            else:
                passed = minutes_between(latest, wall)
            if instant > start and any(self.matches(minute) for minute in passed):
                found.append(instant)
            latest = max(latest, wall)
        return found


def wall_at(instant: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(instant, zone).replace(tzinfo=None)


def walls(zone: tzinfo, start: int, end: int) -> list[tuple[int, datetime]]:
    """What the wall says at every minute, and at every second where the clocks are changed."""
    found = [(start, wall_at(start, zone))]
    for minute in range(start - start % 60 + 60, end + 1, 60):
        wall = wall_at(minute, zone)
        if wall - found[-1][1] != timedelta(minutes=1):
            found += [(second, wall_at(second, zone)) for second in range(minute - 59, minute)]
        found.append((minute, wall))
    return found


def minutes_between(shown: datetime, wall: datetime) -> list[datetime]:
    """The whole minutes in (shown, wall]; none where the clock has been there before."""
    minute = shown.replace(second=0) + timedelta(minutes=1)
    found = []
    while minute <= wall:
        found.append(minute)
        minute += timedelta(minutes=1)
    return found


# -- against the oracle --------------------------------------------------------------------------


def some_field(pick: random.Random, low: int, high: int) -> str:
    first = pick.randint(low, high - 1)
    last = pick.randint(first + 1, high)
    step = pick.randint(2, max(2, (high - low) // 2))
    return pick.choice(
        [
            "*",
            str(first),
            f"{first}-{last}",
            f"*/{step}",
            f"{first},{last}",
            f"{first}-{last}/{step}",
        ]
    )


def some_expression(pick: random.Random) -> str:
    minute = pick.choice(["0", "30", str(pick.randint(0, 59)), "*/15", some_field(pick, 0, 59)])
    hour = pick.choice(["*", "*", "0", "2", some_field(pick, 0, 23)])
    day = pick.choice(["*", "*", "1", "L", some_field(pick, 1, 28)])
    weekday = "*" if day == "L" else pick.choice(["*", "*", some_field(pick, 0, 6)])
    month = pick.choice(["*", "*", "*", some_field(pick, 1, 12)])
    return f"{minute} {hour} {day} {month} {weekday}"


@pytest.mark.parametrize("seed", range(12))
def test_sixty_days_of_utc_are_what_crontab_5_says(seed: int) -> None:
    """In UTC the boundaries are the minutes that match, however the two day fields combine."""
    pick = random.Random(seed)
    expression = some_expression(pick)
    start = at("2027-01-01T00:00") + pick.randint(0, 700) * DAY
    want = Oracle(expression).boundaries(walls(UTC, start, start + 60 * DAY), start)
    assert boundaries(cron(expression), start, start + 60 * DAY) == want, expression


TRANSITIONS = (
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),  # half an hour
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Africa/Cairo", "2026-04-23T22:00"),  # no midnight
    ("Africa/Cairo", "2026-10-29T21:00"),  # midnight is reached twice
    ("America/St_Johns", "2006-10-29T02:31"),  # at 00:01, back into the day before
    ("Antarctica/Casey", "2023-03-08T16:00"),  # three hours at once
    ("Antarctica/Troll", "2026-03-29T01:00"),  # two hours
    ("Pacific/Apia", "2011-12-30T10:00"),  # a day that never was
    ("America/Scoresbysund", "2024-03-31T01:00"),
    ("Asia/Kolkata", "2026-02-17T18:30"),
)
EXPRESSIONS = (
    "0 0 * * *", "30 2 * * *", "30 1 * * *", "0 * * * *", "*/20 * * * *", "59 23 * * *",
    "45 23,0,1 * * *", "20 */4 * * *", "0,15,30,45 6-22 * * *", "0 9 * * 1-5", "30 0-12 * * *",
)  # fmt: skip


@pytest.mark.parametrize(("zone", "change"), TRANSITIONS)
def test_changing_clocks_are_what_the_wall_shows(zone: str, change: str) -> None:
    """R14, R15: over gaps, repeats, missing midnights and a missing day, minute by minute."""
    start, end = at(change) - 36 * HOUR, at(change) + 36 * HOUR
    shown = walls(ZoneInfo(zone), start - DAY, end)
    for expression in EXPRESSIONS:
        want = Oracle(expression).boundaries(shown, start)
        assert boundaries(cron(expression, zone), start, end) == want, expression


# -- a pure function of schedule and zone (R16) ---------------------------------------------------


SCHEDULES = (
    "every 1d", "every 3d", "every 1w", "every 2w", "every 1mo", "every 3mo", "cron 0 0 * * *",
    "cron 30 2 * * *", "cron 30 1 * * *", "cron 15 3 * * 1-5", "cron 0 * * * *", "cron 30 * * * *",
    "cron */7 * * * *", "cron 0 */2 * * *", "cron 20 */4 * * *", "cron 59 23 L * *",
    "cron 0 0 1 * 1", "cron 0 12 */10 * 0", "cron 5,35 0-3 * * *", "cron 0 22,23,0,1,2 * * *",
)  # fmt: skip


def transitions(
    zone: tzinfo, first: str = "2024-01-01T00:00", last: str = "2031-01-01T00:00"
) -> list[int]:
    """Every change of a zone's offset, to the second."""

    def offset(instant: int) -> timedelta | None:
        return datetime.fromtimestamp(instant, zone).utcoffset()

    found = []
    for week in range(at(first), at(last), 7 * DAY):
        low, high = week, week + 7 * DAY
        if offset(low) == offset(high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if offset(middle) != offset(low) else (middle, high)
        found.append(high)
    return found


def check_pure(grid: Grid, start: int, end: int) -> None:
    """The same boundaries forward, backward, from anywhere; none twice, none within a second."""
    forward = boundaries(grid, start, end)
    gaps = [above - below for below, above in pairwise(forward)]
    assert all(gap >= 1 for gap in gaps)
    assert len({iso(boundary) for boundary in forward}) == len(forward)
    backward, instant = [], end
    while (instant := grid.floor(instant)) > start:
        backward.append(instant)
        instant -= 1
    assert backward[::-1] == forward
    anew = schedule.parse(grid.text)
    for below, boundary in pairwise([start, *forward]):
        inside = (below + boundary) // 2
        assert anew.next(inside) == boundary
        assert anew.floor(inside) == anew.floor(below)
    assert grid.count(start, end) == len(forward)


@pytest.mark.parametrize("text", SCHEDULES)
def test_boundaries_do_not_depend_on_the_way_to_them(text: str) -> None:
    """Around the changes of the strangest zones."""
    for zone, change in TRANSITIONS:
        grid = schedule.parse(f"{text} tz={zone}")
        check_pure(grid, at(change) - 2 * DAY, at(change) + 2 * DAY)


@pytest.mark.long
def test_boundaries_do_not_depend_on_the_way_in_any_zone() -> None:
    """The same over every zone and every change of its clocks from 2024 to 2030.

    Zones that change at the same instants in the same way are one.
    """
    seen = set()
    for zone in sorted(available_timezones()):
        info = ZoneInfo(zone)
        for change in transitions(info):
            shape = change, wall_at(change - 1, info), wall_at(change, info)
            if shape in seen:
                continue
            seen.add(shape)
            for text in SCHEDULES:
                check_pure(
                    schedule.parse(f"{text} tz={zone}"), change - 30 * HOUR, change + 30 * HOUR
                )
    assert len(seen) > 100


@given(st.integers(min_value=at("2000-01-01T00:00"), max_value=at("2100-01-01T00:00")))
def test_floor_and_next_enclose_every_instant(instant: int) -> None:
    """floor(t) <= t < next(t), and nothing lies between them."""
    for text in ("every 7h anchor=2026-09-01T00:00:00+00:00", "every 1mo tz=Europe/Dublin"):
        grid = schedule.parse(text)
        low, high = grid.floor(instant), grid.next(instant)
        assert low <= instant < high
        assert grid.next(low) == high
        assert grid.floor(high - 1) == low


# -- the golden file -----------------------------------------------------------------------------


def golden_entries() -> list[dict[str, str | list[str]]]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_golden_boundaries_stay_where_they_are() -> None:
    """An update of croniter or tzdata fails here, not at a user's.

    Made anew by `python -m tests.test_schedule`: 200 entries (expression, zone, from), each written
    only after a minute-by-minute reading of the zone's wall clock gave the same boundaries.
    """
    entries = golden_entries()
    assert len(entries) == 200
    for entry in entries:
        grid = cron(str(entry["expression"]), str(entry["zone"]))
        instant = at(str(entry["from"])[:19])
        for want in entry["boundaries"]:
            instant = grid.next(instant)
            assert iso(instant) == want, entry


def make_golden_entries() -> Iterator[dict[str, str | list[str]]]:
    """200 of them, half around changes of the clocks."""
    pick = random.Random(200)
    zones = sorted({zone for zone, _ in TRANSITIONS} | {"UTC", "Asia/Tokyo", "Africa/Casablanca"})
    for number in range(200):
        zone = pick.choice(zones)
        start = at("2024-01-01T00:00") + pick.randint(0, 6 * 365) * DAY + pick.randint(0, 23) * HOUR
        if number % 2 and (changes := transitions(ZoneInfo(zone))):
            start = pick.choice(changes) - pick.randint(1, 30) * HOUR
        expression = some_expression(pick) if number % 3 else pick.choice(EXPRESSIONS)
        days = 2
        found: list[int] = []
        while len(found) < 4 and days < 500:
            shown = walls(ZoneInfo(zone), start - 2 * DAY, start + days * DAY)
            found = Oracle(expression).boundaries(shown, start)[:6]
            days *= 3
        assert found == boundaries(cron(expression, zone), start, found[-1]), (expression, zone)
        yield {
            "expression": expression,
            "zone": zone,
            "from": iso(start),
            "boundaries": [iso(boundary) for boundary in found],
        }


if __name__ == "__main__":
    lines = (json.dumps(entry) for entry in make_golden_entries())
    GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
