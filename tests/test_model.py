"""Random histories of one job against a short statement of what must hold after each call.

Scheduled calls with random options, calls by hand, failures, kills between claim and record, clocks
that jump, schedules that change: real calls on a real ledger, judged by `owed.py`.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

if sys.platform == "win32":
    pytest.skip("calls are forks of the test", allow_module_level=True)

from jobrun.instants import iso, iso_z
from jobrun.ledger_sqlite import open_ledger
from tests import forked, record
from tests.conftest import clean_environment
from tests.fates import CODES, FAILING, FATES, KILLED_ONES, WELL, Fate
from tests.forked import KILLED, Answer
from tests.owed import DAY, HOUR, JITTER, MINUTE, REFUSED, Asked, Grid, Owed
from tests.record import Record, Run, minus
from tests.scenes import until_free

NOON = 1_788_523_500  # 2026-09-04T12:05:00Z
GRIDS = (
    Grid(("--every", "1h"), "every 1h", HOUR),
    Grid(("--every", "30m"), "every 30m", 30 * MINUTE),
    Grid(("--every", "2h"), "every 2h", 2 * HOUR),
    Grid(("--every", "1d"), "every 1d", DAY),
    Grid(("--cron", "15 */2 * * *"), "cron 15 */2 * * *", 2 * HOUR, 15 * MINUTE),
)


class Planned(NamedTuple):
    status: int
    runs: list[tuple[Any, ...]]
    gaps: set[tuple[str, str]]


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "--catch-up": st.sampled_from(["all", "latest", "merge"]),
        "--on-failure": st.sampled_from(["stop", "continue"]),
        "--max-windows": st.integers(1, 5),
        "--lag": st.sampled_from([0, 600, HOUR, 3 * HOUR]),
        "--max-age": st.sampled_from([90 * MINUTE, 5 * HOUR, 2 * DAY]),
        "--retry-delay": st.sampled_from([0, 600]),
        "--first": st.sampled_from(["latest", "none", -6, -2, 3]),
        "--accept-clock": st.just(True),
        "--accept-schedule": st.just(True),
    },
)
LATER = st.sampled_from([0, MINUTE, 11 * MINUTE, HOUR, 3 * HOUR, DAY])
SKEWS = [0, -2 * MINUTE, -5 * HOUR, 20 * DAY, 45 * DAY, 400 * DAY]
BACK = st.integers(-1, 7)  # windows before the newest closed one


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="jobrun-model-", dir=forked.folder_in_memory()))
        self.ledger = self.folder / "jobrun.db"
        self.log = self.folder / "log"
        self.environ = clean_environment(JOBRUN_LEDGER=str(self.ledger), LOG=str(self.log))
        self.clock, self.skew = NOON, 0
        self.owed = Owed()
        self.record = Record()
        self.grid = GRIDS[0]

    def teardown(self) -> None:
        try:
            if self.record.schedule is not None:
                self.heal()
        finally:
            shutil.rmtree(self.folder)

    @property
    def now(self) -> int:
        return self.clock + self.skew

    @property
    def on_record(self) -> Grid | None:
        """The grid that calls by hand are of."""
        return next((grid for grid in GRIDS if grid.text == self.record.schedule), None)

    # -- calls -------------------------------------------------------------------------------------

    def call(self, argv: tuple[str, ...], fate: Fate = WELL) -> Answer:
        self.log.write_text("")
        fails = " ".join(map(str, sorted(fate.fails)))
        environ = {**self.environ, "FAILS": fails, "ENDING": fate.ending}
        hook = fate.kill.hook if fate.kill else lambda: None
        answer = forked.jobrun(argv, environ, self.now, hook)
        if answer.status == KILLED:
            until_free(self.ledger, "j")
        assert b"Traceback" not in answer.err, answer.err.decode()
        return answer

    def act(self, asked: Asked, argv: tuple[str, ...], fate: Fate = WELL) -> list[Run]:
        """Make a call and judge it. Returns what it started."""
        before = self.record
        answer = self.call(argv, fate)
        self.record = after = record.read(self.ledger, "j")
        started = list(after.runs[len(before.runs) :])
        self.status = answer.status
        self.check_log(started, fate)
        self.owed.check(asked, before, after, answer.status)
        if answer.status not in REFUSED and answer.status != KILLED:
            failed = any(run.outcome != "succeeded" for run in started)
            assert answer.status == (CODES[fate.ending] if failed else 0), answer.lines
            if asked.verb not in ("skip", "watermark"):
                assert all(run.outcome for run in after.runs), "a run without an end"
        if self.ledger.exists():
            with closing(open_ledger(str(self.ledger), create=False)) as ledger:
                assert ledger.problems() == []
        return started

    def check_log(self, started: list[Run], fate: Fate) -> None:
        """Each command saw its own window, and none ran that is not on record."""
        blocked = self.status == KILLED and fate.kill is not None and fate.kill.is_blocked
        ran = [
            " ".join(map(str, (run.id, run.key or "-", *bounds(run), run.attempt, run.token)))
            for run in started
            if fate.ending != "missing" and not (blocked and run.outcome is None)
        ]
        assert ran == self.log.read_text().splitlines()

    # -- rules -------------------------------------------------------------------------------------

    @initialize(grid=st.sampled_from(GRIDS))
    def begins(self, grid: Grid) -> None:
        self.grid = grid

    @rule(later=LATER)
    def calls(self, later: int) -> None:
        """What cron does, all day."""
        self.scheduled(later, {}, WELL)

    @rule(later=LATER, given=OPTIONS)
    def calls_in_another_way(self, later: int, given: dict[str, Any]) -> None:
        self.scheduled(later, given, WELL)

    @rule(later=LATER, given=OPTIONS, fate=FAILING, goes_on=st.booleans())
    def calls_that_fail(self, later: int, given: dict[str, Any], fate: Fate, goes_on: bool) -> None:
        if goes_on:
            given = {**given, "--on-failure": "continue", "--max-windows": 5}
        self.scheduled(later, given, fate)

    @rule(later=LATER, given=OPTIONS, fate=KILLED_ONES)
    def calls_that_are_killed(self, later: int, given: dict[str, Any], fate: Fate) -> None:
        self.scheduled(later, given, fate)

    @rule(grid=st.sampled_from(GRIDS), later=LATER, consents=st.booleans(), fate=FATES)
    def another_schedule(self, grid: Grid, later: int, consents: bool, fate: Fate) -> None:
        """Somebody edits the crontab."""
        old, self.grid = self.grid, grid
        self.scheduled(later, {"--accept-schedule": True} if consents else {}, fate)
        if self.status == 78:
            self.grid = old
        self.scheduled(self.grid.step, {}, WELL)

    @rule(skew=st.sampled_from(SKEWS), stays=st.booleans(), given=OPTIONS, fate=FATES)
    def another_clock(self, skew: int, stays: bool, given: dict[str, Any], fate: Fate) -> None:
        """It is off by so much, for one call or from here on."""
        self.skew = skew
        self.scheduled(0, given, fate)
        self.skew = skew if stays else 0

    def scheduled(self, later: int, given: dict[str, Any], fate: Fate, plans: bool = True) -> None:
        self.clock += later
        given = {"--max-windows": 6, **given}
        first = given.get("--first", "latest")
        if isinstance(first, int):
            first = self.grid.floor(self.now) + first * self.grid.step
        asked = Asked(
            "run", self.now, self.grid,
            lag=given.get("--lag", 0),
            cap=given["--max-windows"],
            on_failure=given.get("--on-failure", "stop"),
            catch_up=given.get("--catch-up", "all"),
            max_age=given.get("--max-age"),
            retry_delay=given.get("--retry-delay", 60),
            first=first,
            accepts="--accept-clock" in given,
            gives_up=given.get("--catch-up") == "latest" or "--max-age" in given,
        )  # fmt: skip
        if "--first" in given:
            given = {**given, "--first": first if isinstance(first, str) else iso_z(first)}
        words = [w for n, v in given.items() for w in ((n,) if v is True else (n, str(v)))]
        argv = ("run", "j", *self.grid.argv, *words)
        before = self.record
        planned = self.plan((*argv, "--dry-run", "--log-format", "json")) if plans else None
        started = self.act(asked, (*argv, "--", *fate.command), fate)
        self.check_refusal(asked, before, "--accept-schedule" in given, started)
        if planned is not None:
            self.check_plan(planned, before, started)

    def plan(self, argv: tuple[str, ...]) -> Planned:
        answer = self.call((*argv, "--", "true"))
        assert self.record.dump == record.read(self.ledger, "j").dump
        if answer.status:
            return Planned(answer.status, [], set())
        told = json.loads(answer.out)
        runs = [(r["key"], r["start"], r["end"], r["kind"]) for r in told["runs"]]
        return Planned(0, runs, {(gap["start"], gap["end"]) for gap in told["gaps"]})

    def check_plan(self, planned: Planned, before: Record, started: list[Run]) -> None:
        """R47: the plan told exactly what was done, as far as it went."""
        if planned.status:
            assert planned.status == self.status
            return
        ran = [(run.key, _text(run.start), _text(run.end), run.kind) for run in started]
        assert planned.runs[: len(ran)] == ran
        if all(run.outcome == "succeeded" for run in started):
            assert len(planned.runs) == len(ran)
        new = set(self.record.gaps) - set(before.gaps)
        assert planned.gaps == {(iso(start), iso(end)) for start, end in new}

    def check_refusal(
        self, asked: Asked, before: Record, consents: bool, started: list[Run]
    ) -> None:
        """Refused for a clock far behind the watermark or a schedule that changed, never else."""
        assert self.status != 2
        other = before.mark is not None and before.schedule != asked.grid.text
        behind = 0 if before.mark is None else before.mark - asked.now
        is_first = before.mark == self.owed.origin  # which may lie ahead
        assert self.status == 75 or is_first or behind <= JITTER
        assert self.status != 75 or behind > JITTER
        assert self.status != 78 or (other and not consents)
        if other and not consents and self.status == 0 and started:
            assert len(started) == 1
            assert before.mark == asked.grid.floor(before.mark or 0)

    @rule(back=BACK, fate=FATES, own=st.booleans())
    def window(self, back: int, fate: Fate, own: bool) -> None:
        """`run --window`: though its turn has not come."""
        grid = (self.on_record if own else None) or self.grid
        start = grid.floor(self.now) - (back + 1) * grid.step
        end = start + grid.step
        known = self.record
        words = (*grid.argv, "--window", iso_z(start), "--retry-delay", "60", "--", *fate.command)
        started = self.act(Asked("window", self.now, grid), ("run", "j", *words), fate)
        is_plain = known.schedule is None and not known.units and bool(known.runs)
        if known.schedule not in (None, grid.text) or is_plain:
            assert self.status == 2
        elif end > self.now or known.done.get(start) == end:
            assert not started
            assert self.status == 0
        elif minus([(start, end)], known.blocks) == [(start, end)] and start != known.mark:
            assert [(start, end)] == [(run.start, run.end) for run in started]

    @rule(back=BACK, given=st.sampled_from([{"--catch-up": "latest"}, {"--max-age": HOUR}]))
    def window_amid_what_is_given_up(self, back: int, given: dict[str, Any]) -> None:
        """What has run by hand is inside no gap: there is one on either side."""
        self.clock += 6 * self.grid.step
        self.window(back, WELL, own=True)
        self.scheduled(0, given, WELL)

    @precondition(lambda self: self.on_record is not None)
    @rule(back=BACK, fate=FATES)
    def rerun(self, back: int, fate: Fate) -> None:
        """Processed or not, again."""
        grid = self.on_record or self.grid
        rows = self.record.windows
        start = grid.floor(self.now) - (back + 1) * grid.step
        if rows and back < len(rows):
            start = rows[-1 - back].start
        row = next((row for row in rows if row.start == start), None)
        words = (iso_z(start), "--lag", "0", "--retry-delay", "60", "--", *fate.command)
        started = self.act(Asked("rerun", self.now, grid), ("rerun", "j", *words), fate)
        if row is not None and row.end <= self.now:
            assert [(row.start, row.end)] == [(run.start, run.end) for run in started]

    @precondition(lambda self: self.on_record is not None)
    @rule(
        back=st.integers(0, 7),
        count=st.integers(1, 4),
        redo=st.sampled_from(["none", "failed", "all"]),
        on_failure=st.sampled_from(["stop", "continue"]),
        fate=FATES,
    )
    def backfill(self, back: int, count: int, redo: str, on_failure: str, fate: Fate) -> None:
        """A range below the watermark."""
        grid = self.on_record or self.grid
        end = grid.floor(min(self.now, self.record.mark or self.now)) - back * grid.step
        start = end - count * grid.step
        words: list[str] = ["--from", iso_z(start), "--to", iso_z(end), "--redo", redo]
        words += ["--lag", "0", "--on-failure", on_failure, "--retry-delay", "60"]
        asked = Asked("backfill", self.now, grid, redo=redo)
        started = self.act(asked, ("backfill", "j", *words, "--", *fate.command), fate)
        starts = [run.start or 0 for run in started]
        assert starts == sorted(starts)
        if self.status == 0:
            assert not minus([(start, end)], self.record.done.items())
            assert redo != "all" or not minus(
                [(start, end)], [(r.start or 0, r.end or 0) for r in started]
            )

    @precondition(lambda self: self.on_record is not None)
    @rule(back=BACK, count=st.integers(0, 3))
    def skip(self, back: int, count: int) -> None:
        """Finished by hand: one window, or a range."""
        grid = self.on_record or self.grid
        start = grid.floor(self.now) - (back + 1) * grid.step
        end = start + max(count, 1) * grid.step
        row = next((row for row in self.record.windows if row.start == start), None)
        if count == 0 and row is not None:
            end = row.end
        when = ("--from", iso_z(start), "--to", iso_z(end)) if count else (iso_z(start),)
        done = [d for d in self.record.done.items() if record.meets(d, (start, end))]
        asked = Asked("skip", self.now, grid, target=(start, end), gives_up=True)
        self.act(asked, ("skip", "j", *when, "--reason", "no"))
        if end > self.now or (count and done):
            assert self.status == 2
        elif self.status == 0 and count:
            assert not minus([(start, end)], self.record.finished)

    @precondition(lambda self: self.on_record is not None)
    @rule(back=BACK)
    def set_watermark(self, back: int) -> None:
        """The only way down."""
        grid = self.on_record or self.grid
        to = grid.floor(self.now) - back * grid.step
        mark = to if self.record.mark is None else self.record.mark
        target = (min(mark, to), max(mark, to))
        asked = Asked("watermark", self.now, grid, target=target, set_to=to, gives_up=True)
        closed = [row for row in self.record.unfinished if row.end <= self.now + JITTER]
        cuts = to > mark and any(row.start < to < row.end for row in closed)
        self.act(asked, ("watermark", "j", "--set", iso_z(to), "--reason", "no"))
        assert self.status == (2 if to > self.now or cuts else 0)

    @rule(name=st.sampled_from(["a", "b", None]), fate=FATES)
    def beside_windows(self, name: str | None, fate: Fate) -> None:
        """A unit of --key, once; or a plain call, but not of a job that has windows. Twice."""
        refused = name is None and self.record.schedule is not None
        words = () if name is None else ("--key", name)
        verb = "plain" if name is None else "key"
        argv = ("run", "j", *words, "--", *fate.command)
        for _ in range(2):
            is_done = f"j:{name}" in self.owed.units
            started = self.act(Asked(verb, self.now, self.grid), argv, fate)
            assert (self.status == 2) == refused
            assert len(started) == (0 if refused or is_done else 1)

    # -- the end -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """The clock is right, nothing fails: a few calls and everything is accounted for."""
        self.skew = 0
        self.clock += 2 * HOUR
        if self.record.mark is not None and self.record.mark > self.now:
            self.set_watermark(0)
        everything: dict[str, Any] = {"--catch-up": "merge", "--max-windows": 100}
        everything |= {"--accept-schedule": True, "--accept-clock": True}
        self.scheduled(0, everything, WELL, plans=False)
        assert self.status == 0
        assert not self.record.unfinished
        assert self.record.mark is not None
        assert self.record.mark >= self.grid.floor(self.now)


def bounds(run: Run) -> tuple[str, str]:
    return _text(run.start), _text(run.end)


def _text(instant: int | None) -> str:
    return "-" if instant is None else iso(instant)


QUICK = settings(
    max_examples=40, stateful_step_count=12, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
LONG = settings(QUICK, max_examples=60, stateful_step_count=20)


def test_histories() -> None:
    """Whatever happens to a job, each window is accounted for, and none is done twice unasked."""
    run_state_machine_as_test(Histories, settings=QUICK)


@pytest.mark.long
def test_many_histories() -> None:
    """The same, longer."""
    run_state_machine_as_test(Histories, settings=LONG)
