"""Whatever is typed: an exit code of the contract, one line that says why, and nothing changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from unicodedata import category

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

if sys.platform == "win32":
    pytest.skip("calls are forks of the test", allow_module_level=True)

import typer

from jobrun import cli, job, options, schedule, windows
from jobrun.errors import JobrunError, UsageError
from jobrun.instants import iso, parse_duration
from tests.fuzzed import LONG, NOW, QUICK, Place

# -- words -----------------------------------------------------------------------------------------

# Bytes of an argument that are no text come as surrogates (U+DC80 to U+DCFF).
LETTERS = st.one_of(
    st.characters(exclude_characters="\0/", exclude_categories=["Cs"]),
    st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF, categories=["Cs"]),
    st.sampled_from("{}%=:-#*,. \n\t\x1b\u202e²٣"),
)
TEXTS = st.text(LETTERS, max_size=12)
WORDS = (
    "0 1 5 255 256 -1 1h 15m 1h30m 1d 1mo 7h 90s 1w latest none all merge stop continue null"
    " inherit live json text failed 0,3 0-7 7-0 ² ٣ 1e9 0x10 today yesterday one hello"
    " {start} {nope} {strat} {{key}} UTC Europe/Berlin Nowhere/None UTC\n ../etc"
    " 2026-09-04T10:00Z 2026-09-04T10:00 2026-09-04 2026-02-30 0001-01-01 9999-12-31T23:59:59Z"
    " 2026-09-04T10:00:00+23:59 2026-09-04T10:00:00.5Z 1970-01-01T00:00Z 9997-12-31"
    " sales:2026-09-04T10:00:00+00:00 sales:nope fails:2026-09-04T11:00:00+00:00 files:one"
    " 99999999999999999999 9223372036854775808 99999999999w 9999999999999999999w 999999999w"
    " 36500d 36501d 31d"
    " 1,² 0,٣ 3-² 2026-09-04T10:00-00:00 -- - --help \udcff \u202e é .."
)
KNOWN = (
    *WORDS.split(" "),
    "",
    "9" * 5000,
    "9" * 5000 + "w",
    "1w" * 3000,
    "0," * 3000,
    "x" * 300,
    "0 2 * * *",
    "0 0 29 2 *",
)
VALUES = st.sampled_from(KNOWN) | TEXTS
JOBS = st.sampled_from(["sales", "sales", "fails", "night", "files", "plain", "new", "salse", "1"])


def near(names: list[str]) -> st.SearchStrategy[str]:
    """A name with a letter too many, too few, or another one."""

    def miss(name: str, at: int, letter: str) -> str:
        at %= len(name)
        return name[:at] + letter + name[at + (len(letter) != 1) :]

    return st.builds(miss, st.sampled_from(names), st.integers(0, 30), st.sampled_from(["", "x"]))


def pieces(names: list[str]) -> st.SearchStrategy[list[str]]:
    name = st.one_of(st.sampled_from(names), st.sampled_from(names), near(names))
    return st.one_of(
        st.builds(lambda n, v: [n, v], name, VALUES),
        st.builds(lambda n, v: [f"{n}={v}"], name, VALUES),
        name.map(lambda n: [n]),
        VALUES.map(lambda v: [v]),
        JOBS.map(lambda j: [j]),
    )


COMMANDS = st.sampled_from([["true"], ["false"], ["true", "{start}"], ["true", "\udcff"], []])


@st.composite
def runs(draw: st.DrawFn) -> tuple[str, ...]:
    """A line of run, rerun or backfill: mostly with what it needs, and more."""
    verb = draw(st.sampled_from(["run", "run", "rerun", "backfill"]))
    more = draw(st.lists(pieces(sorted(options.BY_NAME)), max_size=4))
    words = [verb, *draw(st.lists(JOBS, min_size=1, max_size=1) | st.just([]))]
    base: list[list[str]] = {
        "run": [["--every", "1h"], ["--cron", "0 * * * *"], ["--key", "k"], []],
        "rerun": [["2026-09-04T11:00Z"], ["yesterday"], []],
        "backfill": [["--from", "2026-09-04T09:00Z", "--to", "2026-09-04T11:00Z"], []],
    }[verb]
    words += draw(st.sampled_from(base))
    for piece in more:
        words += piece
    dashes = draw(st.sampled_from([["--"], ["--"], ["--"], []]))
    return (*words, *dashes, *draw(COMMANDS))


def screens() -> dict[str, list[str]]:
    """The names of each screen command's options."""
    group = typer.main.get_command(cli.app)
    commands = getattr(group, "commands", {})
    return {
        name: [o for p in command.params for o in p.opts if o.startswith("-")] or ["--ledger"]
        for name, command in commands.items()
        if name not in options.USAGE
    }


SCREENS = screens()


@st.composite
def looks(draw: st.DrawFn) -> tuple[str, ...]:
    verb = draw(st.sampled_from(sorted(SCREENS)))
    words = [verb, *draw(st.lists(JOBS, min_size=1, max_size=1) | st.just([]))]
    for piece in draw(st.lists(pieces(SCREENS[verb]), max_size=4)):
        words += piece
    return tuple(words)


# -- whole calls -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.remove()


def asks_for_json(argv: tuple[str, ...]) -> bool:
    """As its parser reads the line: in `--ledger --json` it is the name of a file."""
    verb, *words = argv
    if verb not in SCREENS or "--json" not in words or {"--help", "-h"} & set(words):
        return False
    command = getattr(typer.main.get_command(cli.app), "commands", {})[verb]
    return command.make_context(verb, words).params.get("as_json") is True


def check_call(place: Place, argv: tuple[str, ...]) -> None:
    answer = place.try_out(argv)
    if answer.status == 0 and asks_for_json(argv):
        json.loads(answer.out)


BASES = (
    ("run", "sales", "--every", "1h"),
    ("run", "new", "--every", "1d"),
    ("run", "files", "--key", "two"),
    ("rerun", "sales", "2026-09-04T11:00Z"),
    ("backfill", "sales", "--from", "2026-09-04T09:00Z", "--to", "2026-09-04T11:00Z"),
)


@pytest.mark.parametrize("base", BASES, ids=["windows", "new", "key", "rerun", "backfill"])
def test_each_option_with_each_value(place: Place, base: tuple[str, ...]) -> None:
    """Each is read, or refused; some of those that are read are called with, too."""
    good = []
    for name, value in product(sorted(options.BY_NAME), KNOWN):
        words = [*base[1:], f"{name}={value}", "--", "true"]
        try:
            if base[0] == "run":
                job.parse_run(words, {})
            else:
                job.parse_by_hand(base[0], options.read_line(words), {}, [], {})
        except UsageError:
            pass
        else:
            good += [(base[0], *words)] if name not in ("--wait", "-w", "--ledger") else []
    for argv in good[BASES.index(base) :: 17]:
        check_call(place, argv)


@pytest.mark.parametrize("verb", sorted(SCREENS))
def test_each_screen_with_each_word(place: Place, verb: str) -> None:
    """Whatever is asked for: a job, a key, a run, an instant, nothing that could be meant."""
    more = ("--reason", "no") if verb in ("skip", "watermark") else ()
    names = [name for name in SCREENS[verb] if name not in ("--ledger", "-f", "--follow")]
    begins = sorted(SCREENS).index(verb) % 3  # every third word, and each with some screens
    for at, word in enumerate(KNOWN[begins::3]):
        option = names[at % len(names)] if names else "--json"
        turns = (
            (verb, word, *more),
            (verb, "sales", word, *more),
            (verb, "sales", f"{option}={word}"),
        )
        check_call(place, turns[at % 3])
        if len(word) > 20:
            check_call(place, turns[0])


@settings(QUICK, max_examples=60)
@given(argv=runs())
def test_arguments_of_a_run(place: Place, argv: tuple[str, ...]) -> None:
    """It runs or is refused in one line; refused, it has changed nothing."""
    check_call(place, argv)


@settings(QUICK, max_examples=60)
@given(argv=looks())
def test_arguments_of_a_screen(place: Place, argv: tuple[str, ...]) -> None:
    """The same for what looks, and for what a person changes by hand."""
    check_call(place, argv)


@pytest.mark.long
@settings(LONG, max_examples=500)
@given(argv=runs() | looks())
def test_many_arguments(place: Place, argv: tuple[str, ...]) -> None:
    """More of them."""
    check_call(place, argv)


# -- values ----------------------------------------------------------------------------------------


@settings(QUICK, max_examples=200)
@given(argv=runs())
def test_a_line_is_a_job_or_a_usage_error(argv: tuple[str, ...]) -> None:
    """Reading it raises nothing else, and what was read can be told in words."""
    try:
        read = job.parse_run(argv[1:], {})
    except UsageError:
        return
    assert read.name
    assert read.command


@settings(QUICK, max_examples=200)
@given(name=st.text(LETTERS, max_size=110))
def test_job_names(name: str) -> None:
    """Letters with their marks, digits, `.`, `_`, `-`, at most 100; else it is told why."""
    kinds = ["L" if c in "._-" else category(c) for c in name]
    good = 0 < len(name) <= 100 and all(kind[0] in "LM" or kind == "Nd" for kind in kinds)
    good = good and name[0] not in ".-" and kinds[0][0] != "M"
    try:
        job.check_name(name)
    except UsageError:
        assert not good
    else:
        assert good


@settings(QUICK, max_examples=300)
@given(text=VALUES | st.from_regex(r"\A([0-9]{1,7}[smhdw]){1,3}\Z"))
def test_durations(text: str) -> None:
    """Their parts add up; anything else is refused."""
    try:
        seconds = parse_duration(text, "--lag")
    except UsageError:
        return
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
    number, total = "", 0
    for letter in text:
        total += int(number) * units[letter] if letter in units else 0
        number = "" if letter in units else number + letter
    assert total + int(number or 0) == seconds


@settings(QUICK, max_examples=300)
@given(
    text=VALUES
    | st.datetimes(datetime(1971, 1, 1), datetime(9990, 1, 1)).map(
        lambda d: f"{d:%Y-%m-%dT%H:%M}Z"
    ),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia"]),
)
def test_instants(text: str, zone: str) -> None:
    """Read as Python reads them, and printed again as they were meant; else a usage error."""
    try:
        instant = windows.parse_when(text, zone, NOW, "sales")
    except UsageError:
        return
    assert windows.parse_when(iso(instant), zone) == instant
    if text.endswith("Z"):
        assert datetime.fromisoformat(text).timestamp() == instant


# -- schedules -------------------------------------------------------------------------------------

EVERY = st.one_of(
    VALUES,
    st.builds(
        lambda n, unit: f"{n}{unit}",
        st.integers(0, 10**10),
        st.sampled_from(["s", "m", "minutes", "h", "hour", "d", "w", "mo", "month", "y", "ms"]),
    ),
)


@settings(QUICK, max_examples=200)
@given(
    every=st.none() | EVERY,
    cron=st.none() | VALUES,
    anchor=st.none() | VALUES,
    tz=st.none() | VALUES,
    instant=st.integers(1_000_000_000, 4_000_000_000),
)
def test_schedules(
    every: str | None, cron: str | None, anchor: str | None, tz: str | None, instant: int
) -> None:
    """A grid that encloses every instant and has one text, or a usage error."""
    try:
        text = schedule.canonical(every, cron, anchor, tz)
        grid = schedule.parse(text)
    except UsageError:
        return
    assert grid.text == text
    assert grid.describe()
    try:
        low, high = grid.floor(instant), grid.next(instant)
    except JobrunError:
        return
    assert low <= instant < high
    assert grid.floor(high) == high
    assert grid.floor(high - 1) == low


def values_of(low: int, high: int, most: int = 99) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field as it is written, and what it holds; no number above `most` is named."""

    def listed(values: list[int]) -> tuple[str, frozenset[int]]:
        return ",".join(map(str, values)), frozenset(values)

    def ranged(bounds: list[int], step: int) -> tuple[str, frozenset[int]]:
        first, last = sorted(bounds)
        text = f"{first}-{last}" + (f"/{step}" if step > 1 else "")
        return text, frozenset(range(first, last + 1, step))

    numbers = st.integers(low, min(high, most))
    return st.one_of(
        st.just(("*", frozenset(range(low, high + 1)))),
        st.lists(numbers, min_size=1, max_size=3, unique=True).map(listed),
        st.builds(
            ranged, st.lists(numbers, min_size=2, max_size=2, unique=True), st.integers(1, 7)
        ),
        st.integers(2, 9).map(lambda n: (f"*/{n}", frozenset(range(low, high + 1, n)))),
    )


@settings(QUICK, max_examples=80)
@given(
    fields=st.tuples(
        values_of(0, 59), values_of(0, 23), values_of(1, 31, 28), values_of(1, 12), values_of(0, 6)
    ),
    start=st.datetimes(datetime(2001, 1, 1), datetime(2090, 1, 1)),
)
def test_cron_fires_when_its_fields_say_so(
    fields: tuple[tuple[str, frozenset[int]], ...], start: datetime
) -> None:
    """Against the days up to the next boundary, and every minute of that, one by one."""
    texts = [text for text, _ in fields]
    minutes, hours, days, months, weekdays = (values for _, values in fields)
    both = texts[2][0] == "*" or texts[4][0] == "*"

    def is_day(day: datetime) -> bool:
        in_month, in_week = day.day in days, day.isoweekday() % 7 in weekdays
        return day.month in months and (in_month and in_week if both else in_month or in_week)

    grid = schedule.parse(schedule.canonical(None, " ".join(texts), None, None))
    start = start.replace(second=0, microsecond=0, tzinfo=UTC)
    day = start.replace(hour=0, minute=0)
    fires: list[datetime] = []
    while not fires:
        if is_day(day):
            fires = [
                moment
                for hour in sorted(hours)
                for minute in sorted(minutes)
                if (moment := day.replace(hour=hour, minute=minute)) > start
            ]
        day += timedelta(days=1)
        assume(day - start < timedelta(days=3000))
    at = int(start.timestamp())
    for moment in fires:
        at = grid.next(at)
        assert datetime.fromtimestamp(at, UTC) == moment
        assert grid.floor(at) == at


@settings(QUICK, max_examples=300)
@given(
    expression=st.text("0123456789*,-/ @LW#?HRabcdefjlnoprstuvmy", max_size=25)
    | st.lists(
        st.text("0123456789*,-/#LWmonfri", min_size=1, max_size=5), min_size=5, max_size=5
    ).map(" ".join)
)
def test_cron_expressions(expression: str) -> None:
    """Two boundaries, or a usage error with a reason and something to type."""
    reason: str | None = None
    try:
        grid = schedule.parse(schedule.canonical(None, expression, None, None))
    except UsageError as refusal:
        reason = refusal.message
    else:
        first = grid.next(NOW)
        assert NOW < first < grid.next(first)
    assert reason is None or reason.startswith("--cron ")
