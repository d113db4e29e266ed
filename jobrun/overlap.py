"""Calls beside each other (`--overlap allow`), each with windows of its own.

The job's lock is held to judge, plan and claim one window, and let go while its command runs. So
that a run under way can be told from one that died, such a call holds a *slot* as long as it lives:
the first free one of the locks `<slug>.1.lock`, `<slug>.2.lock`, ... Its number stands with its
runs, and its guardian holds it too, as it would the job's.

- Whoever holds the job's lock tries the slots of the runs without an end. Held: under way, leave
  its window alone. Free: as ever, what lives of it by its pid, or lost.
- A run's end is recorded without the lock. It shows its window's token, which no other call has
  changed unless it took the run for lost; windows may end in any order, and the watermark moves up
  over what adjoins it.
- A call without `--overlap allow` holds the job's lock to its end, and starts nothing while a slot
  is held: it and these never run beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from jobrun import episodes, key_file, outwait, process, rows, skips, turn
from jobrun.attempts import Attempts
from jobrun.call import note_holder
from jobrun.errors import EXIT_SIGNAL, JobrunError
from jobrun.living import Judged, Living, judge_open_runs, keys_of
from jobrun.plans import Plan, Skip, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call, Situation
    from jobrun.key_file import Stamp
    from jobrun.rows import JobRow, Opened, RunRow
    from jobrun.schedule import Grid

PATIENCE = 30  # seconds for others that claim: a moment each, but on a slow disk, and many of them


def take(situation: Situation) -> int:
    """One call, from its first plan to the exit code; `situation.lock` is the job's lock.

    Raises JobrunError where nothing ran.
    """
    beside = Beside(situation)
    try:
        return beside.take()
    finally:
        beside.leave()


class Beside:
    """A call: its slot, and what it has done so far."""

    def __init__(self, situation: Situation) -> None:
        self._gate = situation.lock
        self._situation = situation  # with the slot in place of the job's lock, once there is one
        # A large file is read before others are kept waiting.
        self._named = turn.name_unit(situation.job) if situation.job.key_file else None
        self._now: int | None = None  # of the first plan: what closes later is for later calls
        self._waits_for: list[RunRow] = []
        self._tried: set[str | None] = set()
        self._retried = 0
        self._last: tuple[Plan, Attempts] | None = None  # the last window, and what was planned

    def take(self) -> int:
        """Window after window, each planned anew: others may have taken what would be next."""
        try:
            while self._enter():
                try:
                    self._look_at_slot()
                    code = self._turn()
                finally:
                    self._gate.unlock()
                if self._waits_for:
                    code = self._wait()
                if code is not None:
                    return code
            return self._withdraw()
        except JobrunError as error:
            if self._last is None:
                raise
            self._situation.call.lines.error(error)
            return self._last[1].exit_code or error.code

    def leave(self) -> None:
        if self._situation.slot is not None:
            self._situation.lock.release()

    # -- the job's lock ---------------------------------------------------------------------------

    def _enter(self) -> bool:
        """Take it: soon from a call that only claims, after --wait from one that keeps it."""
        job, signals = self._situation.job, self._situation.signals
        if self._gate.acquire(0, signals):
            return True
        wait = job.wait if self._last is not None else outwait.left(self._situation)
        if self._keeper() is None:
            wait = max(wait, PATIENCE)
        return signals.received is None and self._gate.acquire(wait, signals)

    def _look_at_slot(self) -> None:
        """One that expires may be another call's by now: while we waited, nobody kept it."""
        situation = self._situation
        if situation.slot is not None and not situation.lock.is_held():
            situation.lock.release()
            self._situation = situation._replace(lock=self._gate, slot=None)

    def _held(self, plan: Plan, living: list[Living]) -> list[RunRow]:
        """The runs that have what this call is to do, where --wait says to wait for their end."""
        skip = next((each for each in plan.skips if each.reason == rows.LOCK_HELD), None)
        if skip is None or self._last is not None or plan.units:
            return []
        holders = [each for each in living if skip.key in (None, each.run.key)]
        holders = [each for each in holders if outwait.can_wait(self._situation, [each])]
        return [each.run for each in holders]

    def _wait(self) -> int | None:
        """The exit code where a signal ends it; None: once more, as if it had just been called."""
        situation, runs = self._situation, self._waits_for
        self._waits_for = []
        outwait.until_ended(situation, runs)
        if situation.signals.received:
            return EXIT_SIGNAL + situation.signals.received
        self._now = None
        return None

    def _keeper(self) -> RunRow | None:
        """The run of a call without --overlap allow."""
        open_runs = self._situation.ledger.open_runs(self._situation.job.name)
        alone = (run for run in open_runs if run.slot is None)
        return next((run for run in alone if self._is_under_way(run)), None)

    def _is_under_way(self, run: RunRow) -> bool:
        return process.wrapper_alive(run) or self._gate.is_elsewhere(run)

    def _withdraw(self) -> int:
        """It was not to be had."""
        situation = self._situation
        if self._last is not None:
            return self._end(*self._last)
        if situation.signals.received:
            return EXIT_SIGNAL + situation.signals.received
        keeper, note = self._keeper(), self._gate.holder()
        return skips.lock_held(situation.job, situation.call, situation.ledger, keeper, note)

    # -- one window -------------------------------------------------------------------------------

    def _turn(self) -> int | None:
        """Plan, claim, run. The exit code; None where the next window may have its turn."""
        job, call, ledger = self._situation.job, self._situation.call, self._situation.ledger
        now = call.now()
        self._now = self._now or now
        for _ in range(turn.REPLANS):
            turn.hand_in(call, ledger, job.name)
            # The token is read first: a run that opens after the look for runs has taken another.
            row = ledger.job(job.name)
            judged = judge_open_runs(ledger, job.name, call, self._gate, self._situation.slot)
            if (keeper := keeper_of(judged.living)) is not None:
                if self._last is not None:
                    return self._end(*self._last)
                return skips.alive(self._situation, keeper)
            if self._last is None and self._tell_orphans(row, judged.living):
                continue
            plan, grid, stamp = self._plan(judged, now)
            if self._last is not None and (row is None or not plan.units):
                self._last[1].paused = any(skip.reason == rows.PAUSED for skip in plan.skips)
                return self._end(*self._last)
            self._waits_for = self._held(plan, judged.living)
            if self._waits_for:
                return None
            if self._last is None:
                self._warn_of_stuck(judged.living)
            if plan.units:
                work = self._run(row, plan, grid, stamp, judged)
                if work is not None:
                    return self._end(plan, work) if self._is_over(plan, work) else None
            else:
                plan = name_holder(plan, judged.living, call)
                code = turn.carry_out(self._situation, row, plan, grid, judged.lost, stamp)
                if code is not None:
                    return code
        raise turn.too_often(job.name)

    def _plan(self, judged: Judged, now: int) -> tuple[Plan, Grid | None, Stamp | None]:
        job, ledger = self._situation.job, self._situation.ledger
        taken = keys_of(judged.living)
        with turn.told_if_refused(self._situation, now):
            if self._named is not None and key_file.stamp(job.key_file or "") != self._named[1]:
                self._named = turn.name_unit(job)  # it has changed while others were waited for
            plan, grid, stamp = turn.make_plan(job, ledger, now, judged.lost, taken, self._named)
        return plan._replace(units=self._own(plan)), grid, stamp

    def _own(self, plan: Plan) -> tuple[Unit, ...]:
        """What of a plan this call may do: nothing twice, nothing that closed since it began.

        And not only what has failed before, where failures stop nothing: R25 is about a call, whose
        plan is of one turn here.
        """
        job = self._situation.job
        until = (self._now or 0) - job.lag
        units = [
            unit
            for unit in plan.units
            if unit.key not in self._tried and (unit.end is None or unit.end <= until)
        ]
        if job.on_failure == "continue" and self._retried >= (job.max_windows + 1) // 2:
            units.sort(key=lambda unit: unit.kind == rows.RETRY)
        return tuple(units)

    def _run(
        self,
        row: JobRow | None,
        plan: Plan,
        grid: Grid | None,
        stamp: Stamp | None,
        judged: Judged,
    ) -> Attempts | None:
        """The first of the plan; None where another holder has been: plan again."""
        self._take_slot(judged.living)
        situation, unit = self._situation, plan.units[0]
        work = self._attempts(situation, grid, stamp, row)
        work.exit_code = self._last[1].exit_code if self._last else 0
        if situation.signals.received:
            return work

        def on_open(opened: Opened) -> None:
            if opened.claimed is not None:  # or the plan is made again, under the lock
                self._gate.unlock()
            job, call, ledger = situation.job, situation.call, situation.ledger
            turn.tell(job, call, ledger, plan, judged.lost, opened)

        opening = turn.complete(plan.opening, situation, row, judged.lost, grid)
        if not work.run((unit,), opening, on_open):
            return None
        self._tried.add(unit.key)
        self._retried += unit.kind == rows.RETRY
        self._last = plan, work
        return work

    def _attempts(
        self, situation: Situation, grid: Grid | None, stamp: Stamp | None, row: JobRow | None
    ) -> Attempts:
        return Attempts(situation, grid, stamp, row)

    def _take_slot(self, living: list[Living]) -> None:
        """The first that is free, and no orphan's: else it would seem to live as long as we do."""
        situation = self._situation
        if situation.slot is not None:
            return
        orphans = {each.run.slot for each in living}
        for number in count(1):
            lock = self._gate.beside(number)
            if number not in orphans and lock.acquire():
                note_holder(lock, situation.call)
                self._situation = situation._replace(lock=lock, slot=number)
                return

    def _is_over(self, plan: Plan, work: Attempts) -> bool:
        job = self._situation.job
        is_left = len(plan.units) > 1 or plan.left != 0
        is_capped = len(self._tried) >= job.max_windows or plan.opening.keep_largest_now
        return not work.goes_on or not is_left or is_capped

    # -- what is said -----------------------------------------------------------------------------

    def _tell_orphans(self, row: JobRow | None, living: list[Living]) -> bool:
        """Once an episode, as events; whether that has taken the token that was read."""
        situation = self._situation
        for each in living:
            if each.pids:
                episodes.orphan(situation, each.run, situation.call.now())
        now = situation.ledger.job(situation.job.name)
        return row is not None and now is not None and now.token != row.token

    def _warn_of_stuck(self, living: list[Living]) -> None:
        for each in living:
            skips.warn_of_stuck(self._situation.job, self._situation.call, each.run)

    def _end(self, plan: Plan, work: Attempts) -> int:
        """As of any call, but others may have taken meanwhile what was left."""
        job, call, ledger = self._situation.job, self._situation.call, self._situation.ledger
        if job.has_grid and not work.paused and (len(plan.units) > 1 or plan.left != 0):
            try:
                judged = judge_open_runs(ledger, job.name, call, self._gate, by_lock=False)
                taken = keys_of(judged.living)
                left, _, _ = turn.make_plan(job, ledger, call.now(), judged.lost, taken)
                waits = tuple(skip for skip in left.skips if skip.reason in rows.UPSTREAM)
                plan = left._replace(units=(plan.units[0], *self._own(left)), skips=waits)
            except JobrunError:  # another schedule, lock or clock: nothing is ours then
                plan = plan._replace(units=plan.units[:1], left=0)
        return turn.end(self._situation, plan, work)


def keeper_of(living: Sequence[Living]) -> Living | None:
    """A call that means to be alone, its lock file replaced: any token that is taken fences it."""
    return next((each for each in living if each.run.slot is None and not each.pids), None)


def name_holder(plan: Plan, living: Sequence[Living], call: Call) -> Plan:
    """Where what is to be done is under way: the run of it, the oldest where there are more."""
    skip = next((each for each in plan.skips if each.reason == rows.LOCK_HELD), None)
    if skip is None:
        return plan
    run, pids = next(each for each in living if skip.key in (None, each.run.key))
    if pids:
        detail: dict[str, object] = {"pids": ",".join(map(str, pids)), "run": run.id}
        found = Skip(rows.ORPHAN_ALIVE, run.key, detail, f"run {run.id}")
    else:
        held = skips.holding(call, run)
        found = Skip(rows.LOCK_HELD, run.key, held, f"{held['holder']} run {run.id}")
    return plan._replace(skips=(found,))
