"""Missed runs: what people reported of other tools, each as a test of its own (family M)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.conftest import Jobrun, make_end, until
from tests.scenes import (
    HOURLY,
    SHOW,
    Held,
    at,
    begin,
    linux,
    planned,
    posix,
    skips,
    states,
    watermark,
)

pytestmark = posix

DAY = "2026-05-01T"
# Runs alone or fails: two at once would meet in the folder.
ALONE = ("sh", "-c", "mkdir busy && echo $JOBRUN_KEY && rmdir busy")


def hours(text: str) -> list[str]:
    """`06 07` of the keys that commands have printed."""
    return [key.split("T")[1][:2] for key in text.split()]


def test_M01_a_backlog_is_worked_off_in_order_capped_and_never_in_parallel(jobrun: Jobrun) -> None:
    """dagucloud/dagu#1180, node-schedule/node-schedule#431: after a downtime all that was missed
    fired in one burst."""
    begin(jobrun, "a", f"{DAY}00Z", *HOURLY)
    call = ("run", "a", *HOURLY, "--max-windows", "10", "--", *ALONE)
    found = jobrun(*call, now="2026-05-02T12:05:00Z")
    assert found.status == 0
    assert found.stdout.split() == [f"a:{at(f'{DAY}{hour:02d}Z')}" for hour in range(10)]
    assert watermark(jobrun) == at(f"{DAY}10Z")
    assert found.lines[-1].startswith("jobrun: BACKLOG job=a left=26 from=2026-05-01T10:00:00Z at=")
    second = jobrun(*call, now="2026-05-02T12:06:00Z")
    assert hours(second.stdout) == [f"{hour}" for hour in range(10, 20)]
    assert " left=16 from=2026-05-01T20:00:00Z " in second.lines[-1]


def test_M02_more_than_a_hundred_missed_windows_stop_nothing(jobrun: Jobrun) -> None:
    """kubernetes/kubernetes#81557, elemental-lf/benji#108: after 100 missed start times the
    scheduler gave up for good, and backups were absent for 73 days."""
    minutely = ("--every", "1m")
    begin(jobrun, "a", f"{DAY}08:19Z", *minutely)
    found = jobrun("run", "a", *minutely, "--", "echo", "ran", now=f"{DAY}10:00:30Z")
    assert (found.status, found.stdout) == (0, "ran\n" * 100)
    assert found.lines[-1].startswith("jobrun: BACKLOG job=a left=1 from=2026-05-01T09:59:00Z at=")
    behind = jobrun("status", now=f"{DAY}10:00:30Z").stdout.splitlines()[-1].split()
    assert behind[:5] == ["a", "ok", at(f"{DAY}09:59Z"), "1", "(1m)"]
    assert jobrun("run", "a", *minutely, "-q", "--", "echo", "ran", now=f"{DAY}10:00:40Z") == (
        0,
        "ran\n",
        "",
    )
    assert watermark(jobrun) == at(f"{DAY}10Z")


@pytest.mark.parametrize(
    ("options", "left", "behind"),
    [
        (("--every", "1m"), "525597", "525597 (364d23h)"),
        (("--cron", "* * * * *"), "10000+", "10000+ (364d23h)"),
        (("--every", "1h"), "8757", "8757 (364d21h)"),
        (("--every", "1d"), "362", "362 (362d)"),
    ],
)
def test_M02_a_year_behind_is_no_end_and_is_seen(
    jobrun: Jobrun, options: tuple[str, ...], left: str, behind: str
) -> None:
    """elemental-lf/benji#108: nobody was told how far behind the job was, because nothing ran."""
    begin(jobrun, "a", f"{DAY}00Z", *options)
    now = "2027-05-01T00:00:00Z"
    cap = ("--max-windows", "3", "--accept-clock")
    found = jobrun("run", "a", *options, *cap, "--", *SHOW, now=now)
    assert found.status == 0
    assert len(found.stdout.splitlines()) == 3
    assert f" BACKLOG job=a left={left} from=" in found.lines[-1]
    assert behind in jobrun("status", now=now).stdout


@pytest.mark.parametrize(
    ("catch_up", "ran", "gaps"),
    [
        ("all", ["06", "07", "08", "09"], []),
        ("latest", ["09"], [(at(f"{DAY}06Z"), at(f"{DAY}09Z"), 3, "not-latest")]),
        ("merge", ["06"], []),
    ],
)
@pytest.mark.parametrize("grid", [HOURLY, ("--cron", "0 * * * *"), ("--cron", "@hourly")])
def test_M04_nothing_that_was_missed_vanishes_without_a_row(
    jobrun: Jobrun, grid: tuple[str, ...], catch_up: str, ran: list[str], gaps: list[object]
) -> None:
    """HangfireIO/Hangfire#1891, neochaotic/leoflow#129: after 15 minutes of downtime one run
    happened, and the other slots were nowhere."""
    begin(jobrun, "a", f"{DAY}06Z", *grid)
    call = ("run", "a", *grid, "--catch-up", catch_up, "--", *SHOW)
    found = jobrun(*call, now=f"{DAY}10:05:00Z")
    assert (found.status, hours(found.stdout)) == (0, ran)
    assert watermark(jobrun) == at(f"{DAY}10Z")
    assert jobrun.query('select start, "end", windows, reason from jobrun_gap') == gaps
    rows = jobrun.query("select sum(windows) from jobrun_window where state = 'processed'")
    assert rows == [(4 - 3 * len(gaps),)]
    assert ("not-latest" in jobrun("windows", "a", now=f"{DAY}10:05:00Z").stdout) is bool(gaps)


@pytest.mark.parametrize(
    ("grid", "now", "later", "start"),
    [
        (HOURLY, f"{DAY}10:05:00Z", f"{DAY}11:00:00Z", f"{DAY}10Z"),
        (("--every", "1d"), f"{DAY}10:05:00Z", "2026-05-02T00:00:00Z", f"{DAY}00Z"),
        (("--cron", "30 9 * * *"), f"{DAY}10:05:00Z", "2026-05-02T09:30:00Z", f"{DAY}09:30Z"),
    ],
)
def test_M05_none_of_the_old_ones_means_none(
    jobrun: Jobrun, grid: tuple[str, ...], now: str, later: str, start: str
) -> None:
    """quartz-scheduler/quartz#239: the policy said "do nothing" about misfires, and several old
    triggers fired at once on start."""
    call = ("run", "a", *grid, "--first", "none", "-v", "--", *SHOW)
    for _ in range(2):
        found = jobrun(*call, now=now)
        assert (found.status, found.stdout) == (0, "")
        assert f" SKIPPED job=a reason=no-closed-window next={later} at={now}" in found.lines[-1]
    assert skips(jobrun) == [("no-closed-window", 2)]
    assert jobrun(*call, now=later).stdout == f"a:{at(start)}\n"


def test_M05_old_windows_are_skipped_by_hand_with_one_row(jobrun: Jobrun) -> None:
    """quartz-scheduler/quartz#239: who wants none of what was missed says so once, and it is on
    record that somebody did."""
    begin(jobrun, "a", f"{DAY}06Z", *HOURLY)
    stretch = ("--from", f"{DAY}06:00Z", "--to", f"{DAY}10:00Z", "--reason", "moved house")
    assert jobrun("skip", "a", *stretch, now=f"{DAY}10:05:00Z").status == 0
    call = ("run", "a", *HOURLY, "-v", "--", *SHOW)
    found = jobrun(*call, now=f"{DAY}10:05:00Z")
    assert (found.status, found.stdout) == (0, "")
    assert " reason=no-closed-window next=2026-05-01T11:00:00Z " in found.lines[-1]
    assert jobrun.query('select start, "end", windows, reason, detail from jobrun_gap') == [
        (at(f"{DAY}06Z"), at(f"{DAY}10Z"), 4, "by-hand", "moved house")
    ]
    assert hours(jobrun(*call, now=f"{DAY}11:00:00Z").stdout) == ["10"]


@pytest.mark.parametrize(
    ("grid", "start"),
    [
        (HOURLY, f"{DAY}09Z"),
        (("--every", "15m"), f"{DAY}09:45Z"),
        (("--every", "1d"), "2026-04-30T00Z"),
        (("--every", "1w"), "2026-04-20T00Z"),
        (("--every", "1mo"), "2026-04-01T00Z"),
        (("--cron", "0 2 * * 1-5"), "2026-04-30T02Z"),
        (("--every", "1h", "--lag", "10m"), f"{DAY}08Z"),
    ],
)
def test_M06_a_first_call_runs_the_newest_closed_window_only(
    jobrun: Jobrun, grid: tuple[str, ...], start: str
) -> None:
    """apache/airflow#9485: with an empty database and no catch-up, one old run nobody wanted
    started on the first activation."""
    call = ("run", "a", *grid, "-v", "--", *SHOW)
    first = jobrun(*call, now=f"{DAY}10:05:00Z")
    assert (first.status, first.stdout) == (0, f"a:{at(start)}\n")
    assert " NOTE job=a what=first-run first=latest days=UTC ledger=" in first.stderr
    second = jobrun(*call, now=f"{DAY}10:05:00Z")
    assert (second.status, second.stdout) == (0, "")
    assert " reason=no-closed-window next=" in second.stderr
    assert jobrun.query("select count(*) from jobrun_window") == [(1,)]


@linux
@pytest.mark.parametrize("options", [(), ("--catch-up", "merge")], ids=["all", "merge"])
@pytest.mark.parametrize("killed", [["wrapper", "command"], ["guardian", "wrapper", "command"]])
def test_M08_switched_off_in_the_middle_is_not_done(
    jobrun: Jobrun, killed: list[str], options: tuple[str, ...]
) -> None:
    """systemd-cron/systemd-cron#12: the stamp was written at the start, the machine was switched
    off, and the job counted as done."""
    begin(jobrun, "a", f"{DAY}08Z", *HOURLY)
    held = Held(jobrun, "a", *HOURLY, *options, now=f"{DAY}10:05:00Z")
    parent = Path(f"/proc/{held.pid}/stat").read_text().rpartition(")")[2].split()[1]
    pids = {"wrapper": held.wrapper.pid, "command": held.pid, "guardian": int(parent)}
    assert watermark(jobrun) == at(f"{DAY}08Z")
    os.kill(held.wrapper.pid, signal.SIGSTOP)
    for name in killed:
        make_end(pids[name])
    held.wrapper.communicate(timeout=20)
    assert watermark(jobrun) == at(f"{DAY}08Z")
    assert states(jobrun) == {at(f"{DAY}08Z"): "running"}
    call = ("run", "a", *HOURLY, *options, "--", "sh", "-c", "echo $JOBRUN_KEY $JOBRUN_ATTEMPT")
    printed: list[str] = []

    def is_redone() -> bool:
        printed.append(jobrun(*call, now=f"{DAY}10:06:00Z").stdout)
        return printed[-1] != ""

    until(is_redone, "the lock to be let go")
    redone = [f"a:{at(f'{DAY}08Z')} 2\n", f"a:{at(f'{DAY}09Z')} 1\n"]
    assert printed[-1] == (redone[0] if options else "".join(redone))
    assert jobrun.query("select outcome from jobrun_run order by id limit 1") == [("lost",)]
    assert watermark(jobrun) == at(f"{DAY}10Z")


FAILS = "echo $JOBRUN_KEY; case $JOBRUN_START_DATE:$JOBRUN_WINDOW_START in *T{}:*) exit 3;; esac"


@pytest.mark.parametrize("failing", ["03", "00", "05", "0[0-4]", "0[135]"])
def test_M10_a_hole_in_the_middle_is_filled_and_never_hidden(jobrun: Jobrun, failing: str) -> None:
    """apache/airflow#19461: the catch-up looked complete and had holes in the middle."""
    begin(jobrun, "a", f"{DAY}00Z", *HOURLY)
    call = ("run", "a", *HOURLY, "--on-failure", "continue", "--")
    first = jobrun(*call, "sh", "-c", FAILS.format(failing), now=f"{DAY}06:05:00Z")
    assert first.status == 3
    assert hours(first.stdout) == ["00", "01", "02", "03", "04", "05"]
    found = states(jobrun)
    holes = [start[11:13] for start, state in found.items() if state == "failed"]
    assert all(state in ("failed", "processed") for state in found.values())
    assert watermark(jobrun) == at(f"{DAY}{holes[0]}Z")
    shown = jobrun("windows", "a", now=f"{DAY}06:06:00Z").stdout
    assert shown.splitlines()[-1] == f"not complete: {len(holes)} to do"
    second = jobrun(*call, *SHOW, now=f"{DAY}07:05:00Z")
    assert (second.status, hours(second.stdout)) == (0, [*holes, "06"])
    assert watermark(jobrun) == at(f"{DAY}07Z")
    assert jobrun("windows", "a", now=f"{DAY}07:06:00Z").stdout.splitlines()[-1] == "complete"


def test_M11_a_window_is_cut_at_its_end_and_not_at_now(jobrun: Jobrun) -> None:
    """databrickslabs/overwatch#948: the cut was "now", and a record that came seconds after it was
    in no window at all."""
    begin(jobrun, "a", f"{DAY}08Z", *HOURLY)
    show = ("sh", "-c", "echo $JOBRUN_WINDOW_START $JOBRUN_WINDOW_END")
    lagging = ("--lag", "10m", "-v")
    steps = [
        ("09:59:59.9", (), [("08", "09")]),
        ("10:00:00.2", (), [("09", "10")]),
        ("11:05:00", lagging, []),
        ("11:09:59.9", lagging, []),
        ("11:10:00", lagging, [("10", "11")]),
    ]
    for time, options, expected in steps:
        found = jobrun("run", "a", *HOURLY, *options, "--", *show, now=f"{DAY}{time}Z")
        assert found.status == 0
        bounds = [line.split() for line in found.stdout.splitlines()]
        wanted = [[at(f"{DAY}{start}Z"), at(f"{DAY}{end}Z")] for start, end in expected]
        assert bounds == wanted
        assert (" reason=no-closed-window " in found.stderr) is (expected == [])


@pytest.mark.parametrize("grid", [("--every", "1d"), ("--cron", "@daily")])
@pytest.mark.parametrize("time", ["00:00:00", "09:00:00", "23:59:59"])
def test_M13_a_laptop_that_slept_makes_up_at_the_next_call_of_any_kind(
    jobrun: Jobrun, time: str, grid: tuple[str, ...]
) -> None:
    """systemd/systemd#24984: suspended over the fire time, the missed run was noticed at the next
    regular time only."""
    begin(jobrun, "a", f"{DAY}00Z", *grid)
    found = jobrun("run", "a", *grid, "--", *SHOW, now=f"2026-05-04T{time}Z")
    days = [f"a:{at(f'2026-05-0{day}T00Z')}" for day in (1, 2, 3)]
    assert (found.status, found.stdout.split()) == (0, days)
    assert planned(jobrun, *grid, now=f"2026-05-04T{time}Z") == [
        (at("2026-05-03T00Z"), at("2026-05-04T00Z"))
    ]


@pytest.mark.parametrize("meets", [0, 1, 2])
def test_M14_ticks_during_a_long_call_lose_nothing_and_do_nothing_twice(
    jobrun: Jobrun, meets: int
) -> None:
    """gjcarneiro/yacron#77, kubernetes/website#11512: while a long run went on each tick was
    refused, and elsewhere counted as missed."""
    minutely = ("--every", "1m")
    begin(jobrun, "a", f"{DAY}10:00Z", *minutely)
    step = ("sh", "-c", "echo $$; read line")
    held = Held(jobrun, "a", *minutely, command=step, now=f"{DAY}10:03:00Z")
    assert held.wrapper.stdin is not None
    assert held.wrapper.stdout is not None
    for _ in range(meets):  # on to the window that the ticks shall meet
        held.wrapper.stdin.write(b"\n")
        held.wrapper.stdin.flush()
        held.wrapper.stdout.readline()
    for time in ("10:04:00", "10:05:00"):
        tick = jobrun("run", "a", *minutely, "--", "echo", "ran", now=f"{DAY}{time}Z")
        assert (tick.status, tick.stdout) == (0, "")
        assert f" reason=lock-held holder={os.uname().nodename}:{held.wrapper.pid} " in tick.stderr
    held.wrapper.stdin.write(b"\n" * (3 - meets))
    held.wrapper.stdin.flush()
    assert held.release().status == 0
    assert skips(jobrun)[-1] == ("lock-held", 2)
    last = jobrun("run", "a", *minutely, "--", *SHOW, now=f"{DAY}10:05:30Z")
    assert [key[-14:-9] for key in last.stdout.split()] == ["10:03", "10:04"]
    done = jobrun.query(
        "select key, count(*) from jobrun_run where outcome = 'succeeded' group by key"
    )
    assert done == [(f"a:{at(f'{DAY}10:0{minute}Z')}", 1) for minute in range(5)]
