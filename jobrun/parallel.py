"""`backfill --parallel N`: one range, N workers, each with one window at a time; on as many hosts
as one likes, that share a ledger.

The range is planned once, under the job's lock, and the workers are copies of the call that has
planned it. Each runs beside the others as a call with `--overlap allow` does (overlap.py), holds a
slot as long as it lives, and draws its next window in the transaction that records its last: the
first of the plan that nobody has taken. Taken is what runs, and what has another token than when it
was planned. So nothing is planned again, and what a window costs is what it costs one call alone.
Such a claim takes no token of the job: the ledger refuses a call beside it what it finds running.

Where nothing is left of the plan a worker looks, under the job's lock, for what others had taken
and have not ended: lost with its host, or interrupted. It does that, too, and else it ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import inf
from mmap import mmap

from jobrun import consent, rows, skips, turn
from jobrun.attempt import Running
from jobrun.attempts import Attempts
from jobrun.errors import EXIT_SIGNAL, JobrunError, Refused, StoreDown, UsageError
from jobrun.ledgers import open_ledger
from jobrun.living import judge_open_runs
from jobrun.overlap import Beside, keeper_of
from jobrun.plans import Plan
from jobrun.rows import RUNNING
from jobrun.stock import Stock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun import command
    from jobrun.attempt import Attempt
    from jobrun.call import Situation
    from jobrun.key_file import Stamp
    from jobrun.living import Judged
    from jobrun.plans import Unit
    from jobrun.process import Child
    from jobrun.rows import Claim, Claimed, Finished, JobRow, Opening, Result
    from jobrun.schedule import Grid
    from jobrun.signals import Signals
    from jobrun.workers import Workers

AHEAD = 16  # windows that a claim names: the first of them that is free is taken
PAGE = 200  # windows that are looked up at once

# What a worker has in place of the situation of the call that it is a copy of.
Enter = Callable[["Signals"], "Situation"]


class Board:
    """What workers tell each other and the call that waits for them: numbers, in shared memory.

    `reached`: of the plan's windows all below this one are taken.
    """

    _STOP, _CODE, _REACHED, _COUNTS = range(4)
    _OUTCOMES = (rows.SUCCEEDED, rows.INTERRUPTED)  # then all others

    def __init__(self, workers: int) -> None:
        each = len(self._OUTCOMES) + 1
        self._each = each
        self._cells = memoryview(mmap(-1, 4 * (self._COUNTS + each * workers))).cast("I")

    @property
    def stopped(self) -> bool:
        return bool(self._cells[self._STOP])

    def stop(self) -> None:
        """No further window is begun."""
        self._cells[self._STOP] = 1

    @property
    def code(self) -> int:
        """Of the first that failed."""
        return self._cells[self._CODE]

    def settle(self, code: int) -> None:
        self._cells[self._CODE] = self._cells[self._CODE] or code

    @property
    def reached(self) -> int:
        return self._cells[self._REACHED]

    def reach(self, index: int) -> None:
        self._cells[self._REACHED] = max(index, self._cells[self._REACHED])

    def count(self, worker: int, outcome: str, is_processed: bool) -> None:
        which = 0 if is_processed else 1 if outcome == rows.INTERRUPTED else 2
        self._cells[self._COUNTS + worker * self._each + which] += 1

    @property
    def counts(self) -> tuple[int, int, int]:
        """Processed, interrupted, failed."""
        cells = self._cells[self._COUNTS :].tolist()
        processed, interrupted, failed = (sum(cells[n :: self._each]) for n in range(self._each))
        return processed, interrupted, failed


def take(situation: Situation, enter: Enter) -> int:
    """One call, from the plan to the exit code. Raises JobrunError where nothing ran.

    `enter` opens, in a worker, what it needs of its own.
    """
    if (situation.job.parallel or 0) > 1 and not hasattr(os, "fork"):
        raise UsageError(
            "--parallel: one call is one worker on Windows", "--parallel 1, and several calls"
        )
    beginning = Beginning(situation)
    code = beginning.take()
    if beginning.stock is None:
        return code
    try:
        return Crew(situation, beginning.stock, enter).run()
    except StoreDown as error:  # of the range something may have run
        raise Refused(error.message, error.hint) from error


class Beginning(Beside):
    """Plans the range; `stock` is None where there is nothing to do, or it is not to be now."""

    stock: Stock | None = None

    def _turn(self) -> int | None:
        situation = self._situation
        job, call, ledger = situation.job, situation.call, situation.ledger
        now = call.now()
        for _ in range(turn.REPLANS):
            turn.hand_in(call, ledger, job.name)
            row = ledger.job(job.name)
            judged = judge_open_runs(ledger, job.name, call, self._gate)
            if (keeper := keeper_of(judged.living)) is not None:
                return skips.alive(situation, keeper)
            if self._tell_orphans(row, judged.living):
                continue
            with turn.told_if_refused(situation, now):
                plan, grid, _ = turn.make_plan(job, ledger, now, judged.lost)
            self._warn_of_stuck(judged.living)
            if not plan.units:
                code = turn.carry_out(situation, row, plan, grid, judged.lost, None)
            else:
                code = self._begin(row, plan, grid, judged)
            if code is not None:
                return code
        raise turn.too_often(job.name)

    def _begin(
        self, row: JobRow | None, plan: Plan, grid: Grid | None, judged: Judged
    ) -> int | None:
        """None where another holder has been: plan again."""
        situation = self._situation
        job, call, ledger = situation.job, situation.call, situation.ledger
        opened = None
        if plan.writes or judged.lost:
            opening = turn.complete(plan.opening, situation, row, judged.lost, grid)
            opened = ledger.open(opening, None, grid.next if grid is not None else None)
            if opened is None:
                return None
        turn.tell(job, call, ledger, plan, judged.lost, opened)
        self.stock = Stock(job.name, grid, plan.units, plan.tokens)
        return 0


# -- the call that waits ---------------------------------------------------------------------------


class Crew:
    """The workers of one call, and what it says of them."""

    def __init__(self, situation: Situation, stock: Stock, enter: Enter) -> None:
        self._situation = situation
        self._stock = stock
        self._enter = enter
        self._number = min(situation.job.parallel or 1, len(stock))
        self._board = Board(self._number)

    def run(self) -> int:
        """The exit code: the first failed window's, 128+n where a signal has ended it."""
        of_workers = self._alone() if self._number == 1 else self._together()
        left = self._tell_end()
        received = self._situation.signals.received
        stopped = EXIT_SIGNAL + received if received else 0
        return self._board.code or stopped or (of_workers if left else 0)

    def _alone(self) -> int:
        return _work(self._situation, self._stock, self._board, 0)

    def _together(self) -> int:
        from jobrun.workers import Workers

        signals = self._situation.signals
        # Each opens its own: no connection can be shared with a copy of its process.
        self._situation.ledger.close()
        workers = Workers(signals, self._be)
        try:
            for number in range(self._number):
                self._start(workers, number)
            code, spare = 0, self._number
            for number, pid, status in workers.ended():
                if status >= 0:
                    code = code or status
                elif spare and not signals.received and not self._board.stopped:
                    spare -= 1
                    self._tell_killed(pid, -status)
                    self._start(workers, number)
                else:
                    code = code or EXIT_SIGNAL - status
            return code
        finally:
            workers.release()

    def _start(self, workers: Workers, number: int) -> None:
        try:
            workers.start(number)
        except OSError as error:
            job = self._situation.job
            raise Refused(
                f'job "{job.name}": no process for worker {number + 1}: {error.strerror}',
                "a smaller --parallel, or a higher limit (ulimit)",
            ) from None

    def _be(self, number: int, signals: Signals) -> int:
        try:
            situation = self._enter(signals)
            try:
                return _work(situation, self._stock, self._board, number)
            finally:
                situation.ledger.close()
        except JobrunError as error:
            self._situation.call.lines.error(error)
            return error.code

    def _tell_killed(self, pid: int, number: int) -> None:
        job, call = self._situation.job, self._situation.call
        fields = {"job": job.name, "what": "worker-killed", "pid": pid, "signal": number}
        call.lines.event("WARNING", {**fields, "at": call.now()})

    def _tell_end(self) -> int:
        """What has become of the range, by whomever; how many windows are left."""
        job, call = self._situation.job, self._situation.call
        processed, interrupted, failed = self._board.counts
        count, left = len(self._stock), 0
        if processed + failed != count:
            left = self._count_left()
        counts = {
            "processed": processed,
            "failed": failed,
            "interrupted": interrupted,
            "elsewhere": max(0, count - processed - failed - left),
            "left": left,
        }
        present = {name: number for name, number in counts.items() if number}
        fields = {"job": job.name, "what": "backfilled", "windows": count, **present}
        call.lines.event("NOTE", {**fields, "at": call.now()})
        shown = ", ".join(f"{number} {name}" for name, number in present.items())
        call.lines.say("hint", f"{count} window{'' if count == 1 else 's'}: {shown}")
        return left

    def _count_left(self) -> int:
        """Of the plan: what nobody has taken, and what has been taken and has no end."""
        call, name, stock = self._situation.call, self._situation.job.name, self._stock
        ledger = open_ledger(call.where, to_read=True)
        try:
            known = (row for row in ledger.unfinished(name) if row.state == RUNNING or is_left(row))
            left = {row.key for row in known if stock.find(row.key, row.start) is not None}
            for index in range(0, len(stock), PAGE):
                planned = stock.planned(stock.ahead(index, PAGE))
                left |= planned.keys() - ledger.taken(name, planned)
            return len(left)
        finally:
            ledger.close()


def _work(situation: Situation, stock: Stock, board: Board, number: int) -> int:
    worker = Worker(situation, stock, board, number)
    try:
        return worker.take()
    finally:
        worker.leave()


def is_left(window: rows.WindowRow) -> bool:
    """Whether nobody saw how its last run ended, or somebody stopped it."""
    return window.state == rows.FAILED and window.reason in (rows.LOST, rows.INTERRUPTED)


# -- a worker --------------------------------------------------------------------------------------


class Worker(Beside):
    """Draws windows until there are none; `number` is its place on the board."""

    def __init__(self, situation: Situation, stock: Stock, board: Board, number: int) -> None:
        super().__init__(situation)
        self._stock = stock
        self._board = board
        self._number = number
        self._lost: dict[str, rows.RunRow] = {}  # those that it has found, by key
        self._over: int | None = None  # the token of the next window, where it is left over

    def _enter(self) -> bool:
        """What has begun is done, however long a call that keeps the lock lasts."""
        return self._gate.acquire(inf, self._situation.signals)

    def _withdraw(self) -> int:
        return EXIT_SIGNAL + (self._situation.signals.received or 0)

    def _turn(self) -> int | None:
        """A window, and then those that can be claimed without the lock; None: look again."""
        situation = self._situation
        job, call, ledger = situation.job, situation.call, situation.ledger
        for _ in range(turn.REPLANS):
            turn.hand_in(call, ledger, job.name)
            row = ledger.job(job.name)
            judged = judge_open_runs(ledger, job.name, call, self._gate, situation.slot)
            self._lost.update({run.key: run for run in judged.lost if run.key is not None})
            plan = self._plan_next(row, judged)
            if plan.units:
                work = self._run(row, plan, self._stock.grid, None, judged)
                if work is not None:
                    return self._answer() if self._is_done(work) else None
            elif judged.lost:  # once that is on record, it may be ours
                turn.carry_out(situation, row, plan, self._stock.grid, judged.lost, None)
            else:
                return self._answer()
        raise turn.too_often(job.name)

    def _is_done(self, work: Attempts) -> bool:
        return not work.goes_on or self._board.stopped

    def _answer(self) -> int:
        """What has failed is on the board."""
        received = self._situation.signals.received
        return EXIT_SIGNAL + received if received else 0

    def _plan_next(self, row: JobRow | None, judged: Judged) -> Plan:
        situation = self._situation
        job, ledger = situation.job, situation.ledger
        opening = consent.begin(job.name, row, situation.call.now())
        self._over = None
        unit = None if self._board.stopped else self._first_free() or self._left_over()
        plan = Plan(opening, () if unit is None else (unit,))
        if not judged.lost:
            return plan
        _, fates = turn.after_loss(job, ledger, turn.stored(ledger, job.name), judged.lost)
        return turn.tell_loss(plan, fates)

    def _first_free(self) -> Unit | None:
        """Of the plan; it may be taken a moment later."""
        stock, board, ledger = self._stock, self._board, self._situation.ledger
        while page := stock.ahead(board.reached, PAGE):
            taken = ledger.taken(self._situation.job.name, stock.planned(page))
            for index in page:
                if stock.key(index) not in taken:
                    board.reach(index)
                    return stock.unit(index)
            board.reach(page.stop)
        return None

    def _left_over(self) -> Unit | None:
        """What others had taken, and have not ended."""
        job, ledger, stock = self._situation.job, self._situation.ledger, self._stock
        lost = (ledger.window(job.name, key) for key in self._lost)
        for window in (*ledger.unfinished(job.name), *lost):
            if window is None or window.key in self._tried:
                continue
            index = stock.find(window.key, window.start)
            if index is not None and (is_left(window) or self._is_lost_again(window)):
                self._over = window.token
                return stock.unit(index)
        return None

    def _is_lost_again(self, window: rows.WindowRow) -> bool:
        """Whether it was being done again: then it has stayed processed, whatever became of it."""
        run = self._lost.get(window.key)
        is_its = run is not None and window.token == run.token and not window.is_marked_by(run)
        return window.state == rows.PROCESSED and is_its

    def _attempts(
        self, situation: Situation, grid: Grid | None, stamp: Stamp | None, row: JobRow | None
    ) -> Attempts:
        return Share(situation, grid, row, self._stock, self._board, self._number, self._over)


class Share(Attempts):
    """The runs of a worker, as long as its plan has windows that nobody has taken.

    `over`: the token of the only one, where that is left over from others.
    """

    def __init__(
        self,
        situation: Situation,
        grid: Grid | None,
        row: JobRow | None,
        stock: Stock,
        board: Board,
        number: int,
        over: int | None,
    ) -> None:
        super().__init__(situation, grid, None, row)
        self._stock = stock
        self._board = board
        self._number = number
        self._over = over
        self._ahead: Sequence[int] = ()  # of the stock: the first that is free comes next

    def run(
        self,
        units: tuple[Unit, ...],
        opening: Opening,
        on_open: Callable[[rows.Opened], None],
    ) -> bool:
        (unit,) = units
        self._ahead = (self._index(unit.key, unit.start),)
        if self._over is None:
            self._ahead = self._look_ahead() or self._ahead
        opened, running = self._open(unit, opening)
        if opened is not None:
            on_open(opened)
        if running is None:
            return False
        while running is not None:
            self.done += 1
            running = self._attempt(running, unit, None)  # or another, see _claim
        return True

    def _look_ahead(self) -> Sequence[int]:
        return self._stock.ahead(self._board.reached, AHEAD)

    def _index(self, key: str | None, start: int | None) -> int:
        index = self._stock.find(key, start)
        assert index is not None  # what is not of the stock is not run
        return index

    def _start_next(
        self, verdict: command.Verdict, unit: Unit, following: Unit | None
    ) -> tuple[Child | None, Refused | None]:
        if verdict.outcome in rows.FAILURES and not self._goes_on(verdict, unit):
            self._board.stop()
        self._ahead = self._look_ahead()
        return super()._start_next(verdict, unit, following if self._ahead else None)

    def _goes_on(self, verdict: command.Verdict, unit: Unit) -> bool:
        return super()._goes_on(verdict, unit) and not self._board.stopped

    def _claim(self, unit: Unit, child: Child) -> Claim:
        planned = self._stock.planned(self._ahead)
        if self._over is not None:
            planned, self._over = {unit.key or "": self._over}, None
        units = map(self._stock.unit, self._ahead)
        claims = (super(Share, self)._claim(each, child) for each in units)
        first, *others = (each._replace(planned=planned[each.key or ""]) for each in claims)
        return first._replace(instead=tuple(others))

    def _claimed(self, unit: Unit, child: Child, claimed: Claimed) -> Running:
        index = next(each for each in self._ahead if self._stock.key(each) == claimed.key)
        self._board.reach(index + 1)
        return super()._claimed(self._stock.unit(index), child, claimed)

    def _settle(self, code: int) -> None:
        """An interrupted window is no failed one: others may do it."""
        super()._settle(code)
        if self.situation.signals.received is None:
            self._board.settle(code)

    def _finish(
        self, run: Attempt, result: Result, child: Child | None, following: Unit | None
    ) -> tuple[Finished | None, JobrunError | None]:
        finished, trouble = super()._finish(run, result, child, following)
        is_processed = finished is not None and (
            finished.outcome == rows.SUCCEEDED or finished.marked
        )
        self._board.count(self._number, result.outcome, is_processed)
        return finished, trouble
