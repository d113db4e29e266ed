"""The screen of windows, to the letter: the strip, what is not processed, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobrun import picture, schedule, tables
from jobrun.instants import DAY, HOUR, MINUTE, from_iso
from jobrun.rows import Gap, Opening, RunRow
from jobrun.screens.windows import keys_screen, windows_screen
from tests.ledgers import Writer, at, write_orders

NOW = at("09-04 03:07")
Alive = Callable[[RunRow], bool]


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "jobrun.db")


@pytest.fixture
def orders(writer: Writer) -> Writer:
    write_orders(writer)
    return writer


def alive(run: RunRow) -> bool:
    return True


def gone(run: RunRow) -> bool:
    return False


def windows(
    writer: Writer, job: str, since: int | None = None, now: int = NOW, is_alive: Alive = alive
) -> str:
    with writer.open() as ledger:
        row = ledger.job(job)
        assert row is not None
        grid = schedule.parse(row.schedule or "")
        seen = picture.take(ledger, row, grid, since, now, is_alive, now)
    screen = windows_screen("/l.db", seen, now, lambda t: schedule.local(t, grid.zone)[:2])
    return tables.plain(screen)


def test_windows_of_an_hourly_job_stand_a_day_a_row(orders: Writer) -> None:
    """The strip, what is not processed and why, and the verdict."""
    expected = """\
ledger /l.db  now 2026-09-04T03:07:00+00:00
orders  every 1 hour (UTC)    2026-09-03 03:00 to 2026-09-04 03:00 UTC
       00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23
09-03            #  #  #  #  #  #  #  r  #  #  #  #  #  #  #  #  s  s  #  F  .
09-04   .  .  .
# processed 16   r after a retry 1   s skipped 2   F failed 1   . pending 4
WINDOW (UTC)                                         STATE    TRIES  WHY
2026-09-03T19:00:00+00:00/2026-09-03T21:00:00+00:00  skipped      0  2 windows, by-hand: source down
2026-09-03T22:00:00+00:00/2026-09-03T23:00:00+00:00  failed      50  exit 3, last 09-04 03:05, next try by the next call
2026-09-03T23:00:00+00:00/2026-09-04T03:00:00+00:00  pending      0  4 windows behind 09-03 22:00
not complete: 5 to do, 2 given up
"""  # noqa: E501
    assert expected == windows(orders, "orders")


def test_windows_that_are_all_done_are_complete(writer: Writer) -> None:
    """One word to look for; the windows before the job's first are not asked for."""
    writer.job("sales", NOW, every="every 1h", watermark=at("09-04 01:00"))
    for hour in (1, 2):
        writer.run("sales", at(f"09-04 0{hour}:00"), at(f"09-04 0{hour + 1}:00"))
    assert windows(writer, "sales", NOW - DAY).endswith("# processed 2\ncomplete\n")


def test_days_stand_a_month_a_row_by_the_calendar_of_the_zone(writer: Writer) -> None:
    """The day of Istanbul that begins at 21:00 UTC on the 31st is the 1st."""
    first = from_iso("2026-08-30T21:00:00+00:00")
    writer.job("report", first, every="every 1d tz=Europe/Istanbul", watermark=first)
    for day in range(3):
        writer.run("report", first + day * DAY, first + day * DAY + DAY)
    now = first + 4 * DAY + HOUR
    expected = """\
         1   5    10   15   20   25   30
2026-08                                #
2026-09  ##.
# processed 3   . pending 1
"""
    assert expected in windows(writer, "report", now=now)


def test_minutes_stand_an_hour_a_row(writer: Writer) -> None:
    """Rows begin at the full hour, so that the same minutes stand below each other."""
    first = at("09-04 02:58")
    writer.job("beat", first, every="every 1m", watermark=first)
    for minute in range(8):
        writer.run("beat", first + minute * MINUTE, first + minute * MINUTE + 61)
    expected = f"09-04 02:00  {' ' * 58}##\n09-04 03:00  ######.\n"
    assert expected in windows(writer, "beat")


def test_a_million_windows_are_a_bounded_screen(writer: Writer) -> None:
    """The newest thousand as letters, one row for what is pending, and the count of them all."""
    first = NOW - 1_000_000 * MINUTE
    writer.job("beat", first, every="every 1m", watermark=first)
    screen = windows(writer, "beat")
    assert "(the newest 1000 of 1000000 windows; earlier ones: --until 2026-09-03T10:27" in screen
    assert screen.endswith("not complete: 1000000 to do\n")
    assert len(screen.splitlines()) < 30


def test_a_merged_window_fills_its_place(writer: Writer) -> None:
    """One row of the ledger stands for three letters."""
    first = at("09-04 00:00")
    writer.job("bill", first, every="every 1h", watermark=first)
    with writer.open() as ledger:
        ledger._database.change(
            "INSERT INTO jobrun_window (job, key, start, end, state, attempts, failures, windows,"
            " partial, token, changed_at) VALUES ('bill', 'bill:2026-09-04T00:00:00+00:00',"
            " '2026-09-04T00:00:00+00:00', '2026-09-04T03:00:00+00:00', 'processed', 1, 0, 3, 0, 1,"
            " '2026-09-04T03:00:00+00:00')"
        )
    assert windows(writer, "bill").endswith("09-04   #  #  #\n# processed 3\ncomplete\n")


def test_a_window_whose_run_is_gone_is_lost(writer: Writer) -> None:
    """The next call will run it again; until then it is to do."""
    writer.job("sales", NOW, every="every 1h", watermark=at("09-04 02:00"))
    writer.run("sales", at("09-04 02:00"), at("09-04 03:00"), took=None)
    assert "L lost 1\n" in windows(writer, "sales", is_alive=gone)
    assert "R running 1\n" in windows(writer, "sales")


def test_windows_that_nothing_blocks_wait_for_the_next_call(writer: Writer) -> None:
    """A failure holds nobody up under --on-failure continue."""
    first = at("09-04 01:00")
    writer.job("score", first, every="every 1h", watermark=first, on_failure="continue")
    writer.run("score", first, first + HOUR, exit_code=1, next_attempt_at=NOW + HOUR)
    screen = windows(writer, "score")
    assert "exit 1, last 09-04 02:00, next try not before 09-04 04:07\n" in screen
    assert "pending      0  1 window for the next call\n" in screen


def test_void_windows_are_told(writer: Writer) -> None:
    """A clock that was a year ahead has left a window of the future behind."""
    writer.job("sales", NOW, every="every 1h", watermark=at("09-04 02:00"))
    writer.run("sales", at("09-04 02:00"), at("09-04 03:00"))
    ahead = at("09-04 03:00") + 365 * DAY
    missed = Gap(at("09-04 03:00"), ahead, 365 * 24, "not-latest")
    writer.job("sales", ahead + HOUR, every="every 1h", gaps=(missed,))
    writer.run("sales", ahead, ahead + HOUR)
    with writer.open() as ledger:
        row = ledger.job("sales")
        assert row is not None
        nothing = Opening("sales", row.token, NOW)
        ledger.set_watermark(nothing, at("09-04 03:00"), schedule.parse("every 1h").next)
    told = "1 window void since the clock or the watermark was set back; each runs in its turn"
    assert f"\n{told}\n" in windows(writer, "sales")


def test_units_of_key_are_listed(writer: Writer) -> None:
    """There is no strip of what is no window."""
    writer.job("drop", NOW)
    writer.run("drop", None, at("09-04 03:00"), key="drop:a.csv", took=2)
    with writer.open() as ledger:
        screen = keys_screen("/l.db", "drop", ledger.keys("drop"), NOW, 100)
    expected = """\
ledger /l.db  now 2026-09-04T03:07:00+00:00
KEY         STATE      TRIES  CHANGED (UTC)
drop:a.csv  processed      1  2026-09-04T03:00:02+00:00
"""
    assert expected == tables.plain(screen)
