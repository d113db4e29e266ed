"""What the screens say, to the letter: of ledgers made through their own calls, as to a pipe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobrun import tables
from jobrun.instants import DAY, HOUR, MINUTE, from_iso
from jobrun.rows import RunRow
from jobrun.screens.history import history_screen
from jobrun.screens.show import job_screen, key_screen, run_screen
from jobrun.screens.status import status_screen
from jobrun.standing import LATE, stand
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


def status(writer: Writer, now: int = NOW, is_alive: Alive = alive, check: bool = False) -> str:
    with writer.open() as ledger:
        found = [stand(ledger, job, now, is_alive) for job in ledger.jobs()]
    return tables.plain(status_screen("/l.db", found, now, check=check))


def state(writer: Writer, now: int, is_alive: Alive = alive) -> str:
    """The word for the only job of the ledger."""
    with writer.open() as ledger:
        return stand(ledger, ledger.jobs()[0], now, is_alive).state


def history(writer: Writer, job: str | None, *, every: bool = False, rows: int = 20) -> str:
    with writer.open() as ledger:
        runs, skips = ledger.runs(job=job, limit=200), ledger.skips(job)
    screen = history_screen("/l.db", runs, skips, NOW, job=job, every=every, rows=rows, more=False)
    return tables.plain(screen)


# -- status -------------------------------------------------------------------------------------


def test_status_says_what_fails_since_when_and_what_to_type(orders: Writer) -> None:
    """The window that fails, how often, what waits behind it, and the next two commands."""
    expected = """\
ledger /l.db  now 2026-09-04T03:07:00+00:00
JOB     STATE    DONE TO                    BEHIND  LAST RUN                              CALLED
orders  FAILING  2026-09-03T22:00:00+00:00  5 (5h)  exit 3 x50 2026-09-04T03:05:01+00:00  2026-09-04T03:05:01+00:00
orders  FAILING: exit 3, 50 failures of window 09-03 22:00 - 23:00, 4 later windows wait
  jobrun logs orders    jobrun explain orders
"""  # noqa: E501
    assert expected == status(orders)


def test_check_prints_what_is_wrong_and_nothing_else(orders: Writer) -> None:
    """A healthy job has no line of its own under --check."""
    orders.job("mirror", NOW)
    orders.run("mirror", None, NOW - 5)
    expected = """\
orders  FAILING: exit 3, 50 failures of window 09-03 22:00 - 23:00, 4 later windows wait
  jobrun logs orders    jobrun explain orders
"""
    assert expected == status(orders, check=True)


def test_a_plain_job_that_fails_counts_its_runs(writer: Writer) -> None:
    """Without windows it is the row of equal ends that counts."""
    writer.job("mirror", NOW)
    writer.run("mirror", None, NOW - 40 * MINUTE)
    for minutes in (30, 20, 10):
        writer.run("mirror", None, NOW - minutes * MINUTE, exit_code=23)
    assert "mirror  FAILING: exit 23 x3 since 09-04 02:37\n" in status(writer)


def test_a_running_job_shows_how_long_and_how_long_it_takes(writer: Writer) -> None:
    """So that a person can tell slow from stuck."""
    writer.job("backup", NOW)
    writer.run("backup", None, NOW - 2 * DAY, took=3 * HOUR + 20 * MINUTE)
    writer.run("backup", None, NOW - 3 * HOUR - 7 * MINUTE, took=None)
    assert "3h07m, mostly 3h20m" in status(writer)
    assert state(writer, NOW) == "running"


def test_a_run_without_end_whose_processes_are_gone_is_lost_at_once(writer: Writer) -> None:
    """No timeout is guessed, and the next step is named (M7)."""
    writer.job("backup", NOW)
    run = writer.run("backup", None, NOW - MINUTE, took=None)
    expected = f"""\
backup  lost: run {run} of 09-04 03:06 has no end and its processes are gone
  jobrun show {run}    jobrun logs {run}
"""
    assert expected == status(writer, is_alive=gone, check=True)


def test_a_run_is_stuck_after_what_its_call_says(writer: Writer) -> None:
    """--stuck-after of the last call is the limit."""
    writer.job("backup", NOW - 3 * HOUR, stuck_after="2h")
    writer.run("backup", None, NOW - 3 * HOUR, took=None)
    assert state(writer, NOW - HOUR) == "running"
    assert "backup  STUCK: run 1 since 09-04 00:07 (3h), holder db1:" in status(writer)


def test_a_job_that_nobody_calls_is_late(writer: Writer) -> None:
    """Its crontab line may be gone: how long it was silent, and how often it was called."""
    writer.job("stock", NOW - DAY)
    for quarter in range(4):
        writer.run("stock", None, NOW - 20 * HOUR - (3 - quarter) * 15 * MINUTE)
    expected = """\
stock  LATE: not called for 20h (was every 15m): is its crontab line there?
  jobrun doctor
"""
    assert state(writer, NOW - 20 * HOUR + 29 * MINUTE) == "ok"
    assert expected == status(writer, check=True)


def test_a_weekend_is_not_late_once_one_is_on_record(writer: Writer) -> None:
    """`*/15 9-17 * * 1-5`: silent from Friday to Monday, as last week."""
    friday = from_iso("2026-08-28T17:45:00+00:00")
    writer.job("office", friday - 3 * HOUR)
    for day in (friday, friday + 3 * DAY, friday + 4 * DAY):
        for quarter in range(8):
            writer.run("office", None, day - (7 - quarter) * 15 * MINUTE)
    assert state(writer, friday + 4 * DAY + 2 * DAY) == "ok"
    assert state(writer, friday + 4 * DAY + 5 * DAY) == LATE


def test_calls_with_nothing_to_do_tell_how_often_it_is_called(writer: Writer) -> None:
    """An hourly job that is called every five minutes is known as every 5m."""
    writer.job("sales", NOW - 3 * HOUR, every="every 1h", watermark=at("09-04 00:00"))
    writer.run("sales", at("09-04 00:00"), at("09-04 01:00"))
    writer.idle("sales", *range(at("09-04 01:05"), at("09-04 01:55") + 1, 5 * MINUTE))
    assert "(was every 5m)" in status(writer, at("09-04 02:30"))


def test_a_paused_job_raises_no_alarm(orders: Writer) -> None:
    """It was paused on purpose: a failure before does not alarm."""
    with orders.open() as ledger:
        ledger._database.change("UPDATE jobrun_job SET paused_at = first_seen")
    assert state(orders, NOW) == "paused"
    assert status(orders, check=True) == ""


def test_a_job_that_has_not_run_is_new(writer: Writer) -> None:
    """`ok` is for what has succeeded."""
    writer.job("sales", NOW, every="every 1h", watermark=at("09-04 03:00"))
    assert state(writer, NOW) == "new"


def test_a_failed_key_is_not_forgotten_for_a_later_success(writer: Writer) -> None:
    """The last run is fine, an earlier unit of work is not."""
    writer.job("drop", NOW)
    writer.run("drop", None, NOW - 20, key="drop:a.csv", exit_code=1)
    writer.run("drop", None, NOW - 10, key="drop:b.csv")
    assert "drop  FAILING: failed, 1 failure of drop:a.csv\n" in status(writer)


# -- history ------------------------------------------------------------------------------------


def test_history_folds_repeats_of_one_window(orders: Writer) -> None:
    """The newest and the oldest of fifty, and between them how many."""
    expected = """\
ledger /l.db  now 2026-09-04T03:07:00+00:00
RUN  WINDOW (UTC)                                          TRY  STARTED                    TOOK  OUTCOME     BY
68   2026-09-03T22:00:00+00:00/2026-09-03T23:00:00+00:00    50  2026-09-04T03:05:01+00:00  0.3s  exit 3      etl cron
...  2026-09-03T22:00:00+00:00/2026-09-03T23:00:00+00:00  2-49  -                             -  exit 3 x48  (--all)
19   2026-09-03T22:00:00+00:00/2026-09-03T23:00:00+00:00     1  2026-09-03T23:00:01+00:00  0.3s  exit 3      etl cron
18   2026-09-03T21:00:00+00:00/2026-09-03T22:00:00+00:00     1  2026-09-03T22:00:01+00:00  4.1s  ok          etl cron
older runs are left out: --limit 40
"""  # noqa: E501
    assert expected == history(orders, "orders", rows=4)


def test_history_of_a_window_that_needed_two_tries_says_who_did_it(orders: Writer) -> None:
    """Killed by signal 9, then done by anna at a terminal."""
    lines = history(orders, "orders").splitlines()
    tries = [line.split("+00:00")[-1].split() for line in lines if "T10:00:00+00:00/" in line]
    assert tries == [["3.9s", "ok", "anna", "tty"], ["1s", "killed", "9", "etl", "cron"]]


def test_history_unfolded_has_each_repeat(orders: Writer) -> None:
    """--all is for counting and for scripts."""
    assert history(orders, "orders", every=True, rows=100).count("exit 3  ") == 50


def test_history_of_all_jobs_names_them_and_lists_the_last_skips(writer: Writer) -> None:
    """Plain runs have no unit; calls that ran nothing stand below."""
    writer.job("mirror", NOW)
    writer.run("mirror", None, at("09-04 03:00"), took=12)
    writer.idle("mirror", at("09-04 03:05"), at("09-04 03:06"))
    expected = """\
ledger /l.db  now 2026-09-04T03:07:00+00:00
RUN  JOB     UNIT  TRY  STARTED                    TOOK  OUTCOME  BY
1    mirror  -       -  2026-09-04T03:00:00+00:00   12s  ok       etl cron

SKIPPED           JOB     KEY  TIMES  LAST (UTC)                 DETAIL
no-closed-window  mirror  -        2  2026-09-04T03:06:00+00:00  -
"""
    assert expected == history(writer, None)


# -- show -----------------------------------------------------------------------------------------


def test_show_of_a_job_has_what_the_last_call_said(orders: Writer) -> None:
    """Options and command as they could be typed again, and what is wrong."""
    orders.job("orders", NOW, every="every 1h", command=("imp", "{start}", "a b"), lag="10m")
    with orders.open() as ledger:
        row = ledger.job("orders")
        assert row is not None
        standing = stand(ledger, row, NOW, alive)
    lines = tables.plain(job_screen("/l.db", standing, [], NOW, "every 1 hour (UTC)")).splitlines()
    assert "state          FAILING" in lines
    assert "options        --lag 10m" in lines
    assert "command        imp {start} 'a b'" in lines
    assert "called by      etl@db1 cron" in lines


def test_show_of_a_key_lists_its_runs(orders: Writer) -> None:
    """State, tries, and the folded history of that window alone."""
    key = "orders:2026-09-03T22:00:00+00:00"
    with orders.open() as ledger:
        row, runs = ledger.window("orders", key), ledger.runs(job="orders", key=key, limit=200)
    assert row is not None
    screen = tables.plain(key_screen("/l.db", row, runs, {}, NOW, HOUR))
    assert "tries          50, of them failed 50\n" in screen
    assert "exit 3 x48" in screen


def test_show_of_a_run_says_who_where_and_when(orders: Writer) -> None:
    """Who did that by hand, on which host, as which process."""
    with orders.open() as ledger:
        run = ledger.run(9)
    assert run is not None
    expected = """\
ledger /l.db  now 2026-09-04T03:07:00+00:00
run            9
job            orders
key            orders:2026-09-03T10:00:00+00:00
window (UTC)   2026-09-03T10:00:00+00:00/2026-09-03T11:00:00+00:00
kind           new
try            2
outcome        ok
exit code      0
started        2026-09-03T11:04:40+00:00
ended          2026-09-03T11:04:43+00:00
took           3.9s
by             anna tty, host db1
processes      jobrun 910, command 4711
token          10
output         0 bytes
  jobrun logs 9
"""
    assert expected == tables.plain(run_screen("/l.db", run, (), NOW))
