"""Forms of instants and durations, and tables as a pipe and as a terminal gets them."""

from __future__ import annotations

import io
import json

import pytest

from jobrun import tables
from jobrun.instants import from_iso
from jobrun.screen import BAD, Cell, Line, Screen, Table, about, ago, line, moment, span
from tests.ledgers import at

NOW = at("09-04 03:07")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.31, "0.3s"), (4, "4s"), (12.7, "12s"), (120, "2m"), (250, "4m10s"),
        (3600, "1h"), (11_220, "3h07m"), (86_400, "1d"), (100_800, "1d4h"),
    ],
)  # fmt: skip
def test_a_duration_at_a_glance(seconds: float, text: str) -> None:
    """Two units at the most, and none that is zero."""
    assert text == about(seconds)


def test_instants_have_their_year_where_it_is_another() -> None:
    """A date without a year is of this one; a day's window has both dates."""
    assert moment(NOW, NOW) == "09-04 03:07"
    assert moment(from_iso("2025-12-31T23:00:00+00:00"), NOW) == "2025-12-31 23:00"
    assert span(at("09-03 23:00"), at("09-04 03:00"), NOW) == "09-03 23:00 - 03:00"
    assert span(at("09-03 00:00"), at("09-04 00:00"), NOW) == "09-03 00:00 - 09-04 00:00"


def test_a_clock_that_went_back_gives_no_negative_age() -> None:
    """The last call may be in the future."""
    assert ago(NOW + 5, NOW) == "just now"


def a_table(*rows: tuple[str, str]) -> Screen:
    cells = tuple((Cell(left), Cell(right)) for left, right in rows)
    return Screen((Table(("JOB", ">N"), cells),), {})


def test_piped_columns_stand_two_blanks_apart_and_no_cell_has_two() -> None:
    """So a row can be taken apart exactly; what is empty is a dash."""
    assert tables.plain(a_table(("a  b", "10"), ("", "1"))) == "JOB   N\na b  10\n-     1\n"


def test_names_in_wide_letters_keep_the_columns_straight() -> None:
    """A CJK letter takes two places on a terminal, a combining accent none."""
    table = a_table(("日本", "1"), ("abcd", "2"), ("e\u0301tat", "3"))
    assert tables.plain(table) == "JOB   N\n日本  1\nabcd  2\ne\u0301tat  3\n"


def test_no_character_of_a_name_reaches_the_terminal_as_a_command() -> None:
    """Escape, newline and right-to-left override are shown as escapes."""
    text = tables.plain(Screen((Line((Cell("a\x1b[2J\nb\u202ec"),)),), {}))
    assert text == "a\\x1b[2J\\nb\\u202ec\n"


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal, and keeps what was written."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        raw = self.buffer.getvalue()  # type: ignore[attr-defined]
        return raw.decode()  # type: ignore[no-any-return]


def paint(screen: Screen) -> str:
    terminal = Terminal()
    tables.show(screen, "/l.db", out=terminal)
    return terminal.text()


FAILED = Screen(
    (
        line("ledger /l.db"),
        Table(("JOB", "STATE", "AT"), ((Cell("a"), Cell("F", style=BAD), Cell("09-04", "2026")),)),
    ),
    {"jobs": ["a\udcff"]},
)


def test_a_pipe_gets_the_full_forms() -> None:
    """A terminal the short ones, in the same words."""
    assert tables.plain(FAILED) == "ledger /l.db\nJOB  STATE  AT\na    F      2026\n"


def test_without_colour_a_terminal_shows_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colour repeats what letters say: with NO_COLOR there is no escape and every letter."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    lines = [text.rstrip() for text in paint(FAILED).splitlines()]
    assert lines == ["ledger /l.db", "JOB  STATE  AT", "a    F      09-04"]


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is bold and red."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[1;31mF" in paint(FAILED)


def test_json_is_one_document_in_one_line() -> None:
    """With the version and the ledger first, and fit for any stream."""
    text = tables.document(FAILED, "/l.db")
    assert text == '{"v": 1, "ledger": "/l.db", "jobs": ["a\\udcff"]}\n'
    assert json.loads(text)["v"] == 1
