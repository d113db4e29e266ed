"""The runs of one call, one after another: n windows in n + 1 transactions.

The command of a run is started blocked, then claimed in the ledger with its pid, then let go. Its
end, and the claim of the next one, are one transaction again. So at any moment that a machine can
die there is either no command, or a row that tells which.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from jobrun import command, options, process, report, rows
from jobrun.attempt import Attempt, Running
from jobrun.call import note_holder
from jobrun.errors import (
    EXIT_NOT_RECORDED,
    EXIT_SIGNAL,
    DamagedLedger,
    JobrunError,
    LedgerError,
    NotRecorded,
    Refused,
    StoreDown,
)
from jobrun.instants import iso_z
from jobrun.rows import (
    Breaker,
    Claim,
    Claimed,
    Fate,
    Finished,
    JobRow,
    Opened,
    Opening,
    Result,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Situation
    from jobrun.job import Job
    from jobrun.keeping import Keeping
    from jobrun.key_file import Stamp
    from jobrun.lock import Keeper, Lock
    from jobrun.plans import Unit
    from jobrun.process import Child
    from jobrun.progress import Progress
    from jobrun.schedule import Grid

FEW = 3  # windows that need no word about how far it is
RECORD_FOR = 600  # seconds that a finished run is tried to be recorded
LONGEST_PAUSE = 1.0  # seconds; on Windows no signal ends one
BUSY_FOR = 10  # seconds of them that other writers may need before it is worth a line


class Attempts:
    """Runs the units of a plan; `exit_code` is the first failed one's, `done` how many ran.

    `paused` is whether a pause kept the next one from its turn, `tripped` whether the job made it
    itself, by the last run.
    """

    def __init__(
        self, situation: Situation, grid: Grid | None, file: Stamp | None, row: JobRow | None
    ) -> None:
        self.situation = situation
        self.schedule = grid.text if grid is not None else None
        self.zone = grid.zone if grid is not None else "UTC"
        self.next_boundary = grid.next if grid is not None else None
        self.file = file  # of --key-file, when its key was made
        self.exit_code = 0
        self.done = 0
        self.paused = self.tripped = False
        self.goes_on = False  # whether the last one's end leaves the next its turn
        self.breaker: Breaker | None = None
        if situation.job.pause_after is not None:
            from jobrun.breaker import breaker_of

            self.breaker = breaker_of(situation.job, grid, situation.call.now)
        self.token = 0
        self.untold: Result | None = None  # a failure that this call is to make good
        self.told = row.told if row else None
        self.told_at = row.told_at if row else None

    def run(
        self, units: tuple[Unit, ...], opening: Opening, on_open: Callable[[Opened], None]
    ) -> bool:
        """Run them in order, as far as they go. False where another holder has been, or where what
        was lost has paused the job: plan again.

        `on_open` tells what is on record by then, also where nothing runs.
        """
        opened, running = self._open(units[0], opening)
        if opened is not None:
            on_open(opened)
        if running is None:
            return False
        progress = self._watch(len(units))
        try:
            for unit, following in zip(units, (*units[1:], None), strict=True):
                while running is not None and running.unit.key == unit.key:
                    running = self._attempt(running, following, progress)
                self.done += 1
                if progress is not None:
                    progress.advance(unit.key or "")
                if running is None:
                    break
        finally:
            if progress is not None:
                progress.close()
        return True

    def _watch(self, count: int) -> Progress | None:
        """Many windows on a terminal: a person wants to see how far it is."""
        job, lines = self.situation.job, self.situation.call.lines
        if count <= FEW or lines.json or not lines.on_terminal():
            return None
        from jobrun.progress import Progress

        return Progress(count, live=job.output == "live")

    # -- one run ----------------------------------------------------------------------------------

    def _open(self, unit: Unit, opening: Opening) -> tuple[Opened | None, Running | None]:
        child = self._start()
        try:
            claim = self._claim(unit, child)
            opened = self.situation.ledger.open(opening, claim, self.next_boundary)
        except BaseException:
            child.cancel()
            raise
        if opened is None or opened.claimed is None:
            child.cancel()
            return opened, None
        self.token = opened.token
        return opened, self._claimed(unit, child, opened.claimed)

    def _attempt(
        self, running: Running, following: Unit | None, progress: Progress | None
    ) -> Running | None:
        """One run from `go` to its record; the next one, claimed in the same transaction.

        Where the same unit is to be tried again by this call, it is the next one, after its delay.
        """
        run = Attempt(self.situation, running, self.token, self.zone, self.file, self.schedule)
        ended = run.perform(running.child)
        verdict = run.judge(ended)
        fate = self._bounded(run.fate(verdict), running.unit)
        if ended.survivors:
            run.report.survivors(ended.survivors)
            self._settle(verdict.answer)
            self._stand()
            return None
        repeats = fate.wait is not None
        child, refusal = self._start_next(verdict, running.unit, None if repeats else following)
        told = self._remember(verdict)
        result = run.result(ended, verdict, fate, self.told, self.told_at)
        result = result._replace(breaker=self.breaker)
        finished, trouble = self._finish(run, result, child, following)
        upcoming = None
        if child is not None and following is not None and finished and finished.claimed:
            upcoming = self._claimed(following, child, finished.claimed)
        elif child is not None:
            child.cancel()
        on_record = finished is not None and finished.outcome != rows.FENCED
        self.paused = finished is not None and finished.paused
        self.tripped = finished is not None and finished.tripped is not None
        self.goes_on = on_record and self._goes_on(verdict, running.unit)
        is_marked = finished is not None and finished.marked
        if not repeats or not on_record or is_marked:
            self._settle(verdict.answer or (0 if on_record else EXIT_NOT_RECORDED))
        if progress is not None:
            progress.hide()
        loud = told or trouble is not None
        run.report.ended(ended, verdict, finished, run.output, self.situation.signals, fate, loud)
        run.tidy(verdict, finished)
        for error in (trouble, refusal):
            if error is not None:
                self.situation.call.lines.error(error)
                self._settle(error.code)
        if verdict.outcome == rows.INTERRUPTED and on_record and not is_marked:
            self._stand()
        self.untold = result if repeats and on_record and not is_marked else None
        if not repeats or not on_record:
            return upcoming
        if is_marked:  # whatever it answered: the next one's turn
            is_next = following is not None and self._goes_on(verdict, run.unit)
            return self._claim_later(following) if is_next else None
        again = self._try_again(run, fate, verdict.answer)
        if again is None:
            self._stand()
        return again

    # -- the same again -----------------------------------------------------------------------

    def _bounded(self, fate: Fate, unit: Unit) -> Fate:
        """Without a wait where the call is to end before it is over, or may not be the one that
        tries again: without the lock any call beside it may."""
        job, situation = self.situation.job, self.situation
        if fate.wait is None:
            return fate
        over = time.monotonic() - situation.began + fate.wait
        is_in_time = job.stop_after is None or over < job.stop_after
        # What runs for the sake of a new window must never keep it from its turn; and an input that
        # is missing will not be there before the next plan.
        is_in_vain = unit.kind == rows.LOOKBACK or unit.refusal is not None
        is_alone = situation.slot is None
        if is_in_time and is_alone and situation.signals.received is None and not is_in_vain:
            return fate
        at = fate.next_attempt_at if unit.key is not None else None  # nobody goes on from there
        return fate._replace(wait=None, next_attempt_at=at)

    def _try_again(self, run: Attempt, fate: Fate, answer: int) -> Running | None:
        """Wait, the lock held, and claim once more; or end with the code of what has failed."""
        situation, attempt = self.situation, run.claimed.attempt + 1
        call, signals = situation.call, situation.signals
        until = time.monotonic() + (fate.wait or 0)
        note_holder(
            situation.lock, call, f" attempt={attempt} next={iso_z(fate.next_attempt_at or 0)}"
        )
        loss = self._wait_for_delay(until)
        note_holder(situation.lock, call)
        if signals.received is not None:
            self._settle(EXIT_SIGNAL + signals.received)
            return None
        if self._is_other_file():  # another unit's, which the next call names
            path = situation.job.key_file
            call.lines.say(
                "error", f'--key-file "{path}" is no longer the same file: not tried again'
            )
            self._settle(answer)
            return None
        if loss is not None:
            call.lines.say("error", f"{command.lock_lost(loss)}: not tried again")
            self._settle(answer)
            return None
        unit = run.unit
        if unit.kind == rows.NEW:  # one that a person asked for stays that
            unit = unit._replace(kind=rows.RETRY)
        running = self._claim_later(unit, attempt, again=True)
        if running is None:
            self._settle(answer)
        return running

    def _wait_for_delay(self, until: float) -> str | None:
        """Until that monotonic instant, or no further try is to be; how the lock was lost."""
        signals, keeper = self.situation.signals, self.situation.lock.keeper
        keeping = None if keeper is None else _kept_between_runs(keeper)
        try:
            while signals.received is None and (left := until - time.monotonic()) > 0:
                if self._is_other_file():
                    break
                if keeping is None:
                    signals.pause(min(left, LONGEST_PAUSE))
                elif keeping.pause(signals, min(left, LONGEST_PAUSE)):
                    return keeping.why
        finally:
            if keeper is not None:
                keeper.rest()
        return None

    def _is_other_file(self) -> bool:
        """Whether that of --key-file is no longer the one that the key names."""
        path = self.situation.job.key_file
        if path is None:
            return False
        from jobrun.key_file import stamp

        return stamp(path) != self.file

    def _stand(self) -> None:
        """What failed before is not made good by this call: it is settled only now that it fails,
        and no event has told of it yet."""
        if self.untold is None:
            return
        call, ledger = self.situation.call, self.situation.ledger
        failure = self.untold._replace(token=self.token, ended=call.now())
        try:
            tripped = ledger.stand(failure)
        except JobrunError as error:  # the failure itself is on record
            call.lines.error(error)
            return
        if tripped is not None:
            self.tripped = True
            report.paused(call, failure.job, tripped, failure.run_id)

    def _claim_later(
        self, unit: Unit | None, attempt: int = 1, again: bool = False
    ) -> Running | None:
        """A unit in a transaction of its own; None where another holder has been, or it can't be
        started now."""
        assert unit is not None
        job, ledger = self.situation.job, self.situation.ledger
        try:
            if not self.situation.lock.is_held():
                raise self._lost_lock()
            child = self._start()
            try:
                claim = self._claim(unit, child)._replace(attempt=attempt, again=again)
                claimed = ledger.claim(job.name, self.token, claim)
            except BaseException:
                child.cancel()
                raise
            if claimed is None:
                child.cancel()
                row = ledger.job(job.name)
                self.paused = row is not None and row.is_paused(claim.started) and not claim.by_hand
                return None
        except JobrunError as error:
            self.situation.call.lines.error(error)
            return None
        self.token = claimed.token
        return self._claimed(unit, child, claimed)

    def _claimed(self, unit: Unit, child: Child, claimed: Claimed) -> Running:
        return Running(unit, child, claimed)

    def _lost_lock(self) -> Refused:
        return Refused(
            f'job "{self.situation.job.name}": the lock is lost between two runs',
            "what is left to be done is done by whoever has it by now, or by the next call",
        )

    def _start(self) -> Child:
        return start_blocked(self.situation.job, self.situation.lock)

    def _start_next(
        self, verdict: command.Verdict, unit: Unit, following: Unit | None
    ) -> tuple[Child | None, Refused | None]:
        """The next command, blocked; why there is none must not keep this run from its record."""
        if following is None or not self._goes_on(verdict, unit):
            return None, None
        try:
            return self._start(), None
        except Refused as error:
            return None, error

    def _goes_on(self, verdict: command.Verdict, unit: Unit) -> bool:
        job, situation = self.situation.job, self.situation
        if situation.signals.received or verdict.outcome == rows.INTERRUPTED:
            return False
        # What runs for the sake of a new window, failed or slow, must never keep it from its turn.
        if unit.kind == rows.LOOKBACK:
            return True
        if job.stop_after is not None and time.monotonic() - situation.began >= job.stop_after:
            return False
        if verdict.outcome == rows.SUCCEEDED:
            return True
        return job.on_failure == "continue" and not verdict.is_for_all

    def _claim(self, unit: Unit, child: Child) -> Claim:
        return Claim(
            key=unit.key,
            start=unit.start,
            end=unit.end,
            kind=unit.kind,
            partial=unit.partial,
            windows=unit.windows,
            child_pid=child.pid,
            birth=child.birth,
            started=self.situation.call.now(),
            by_hand=self.situation.job.is_by_hand,
            slot=self.situation.slot,
        )

    # -- its record -------------------------------------------------------------------------------

    def _settle(self, code: int) -> None:
        self.exit_code = self.exit_code or code

    def _remember(self, verdict: command.Verdict) -> bool:
        """Whether this end is to be printed although it may be quiet (`--remind`)."""
        job, now = self.situation.job, self.situation.call.now()
        if verdict.outcome == rows.INTERRUPTED:
            return True
        if verdict.outcome == rows.SUCCEEDED:
            if self.exit_code:  # of a hole, or a look back: what has just been told is not over
                return False
            recovered = self.told is not None
            self.told = self.told_at = None
            return recovered
        what = f"{verdict.outcome} {verdict.answer}"
        recent = self.told_at is not None and 0 <= now - self.told_at < job.remind
        if job.quiet and what == self.told and recent:
            return False
        self.told, self.told_at = what, now
        return True

    def _finish(
        self,
        run: Attempt,
        result: Result,
        child: Child | None,
        following: Unit | None,
    ) -> tuple[Finished | None, JobrunError | None]:
        """Record the run and claim the next; and why it could not be recorded, or not go on."""
        claim = self._claim(following, child) if following and child else None
        try:
            kept = self._put_by(run, result)
            recorded = self._record(run, result, claim, kept)
        except NotRecorded as error:
            return None, error
        except BaseException:
            if child is not None:
                child.cancel()
            raise
        if kept is not None:
            from jobrun import outbox

            outbox.remove(kept)
        return recorded

    def _put_by(self, run: Attempt, result: Result) -> str | None:
        """On this machine's disk, until a server has answered; the path."""
        if self.situation.call.where.is_file:
            return None
        from jobrun import replay

        return replay.put_by(self.situation, run, result)

    def _record(
        self, run: Attempt, result: Result, claim: Claim | None, kept: str | None
    ) -> tuple[Finished, DamagedLedger | Refused | None]:
        """The finishing transaction, tried until a signal, for ten minutes; what is `kept` for no
        longer than nobody else can have the lock."""
        situation = self.situation
        trouble: DamagedLedger | Refused | None = None
        began, warned = time.monotonic(), False
        while True:
            # Also without a claim: what is written is no longer bound to a connection that is lost.
            if not situation.lock.is_held() and claim is not None:
                claim, trouble = None, self._lost_lock()
            try:
                return situation.ledger.finish(result, claim, self.next_boundary), trouble
            except NotRecorded as error:
                raise not_recorded(result, error, kept) from None
            except DamagedLedger as error:
                if claim is None:
                    raise not_recorded(result, error, kept) from None
                # It may be of the next window only; this run's record comes before its turn.
                claim, trouble = None, error
            except (LedgerError, Refused) as error:
                waited = time.monotonic() - began
                is_down = kept is not None and isinstance(error, StoreDown)
                longest = situation.job.ttl if is_down else RECORD_FOR
                if waited >= longest or situation.signals.received:
                    raise not_recorded(result, error, kept) from None
                if not warned and (waited >= BUSY_FOR or not isinstance(error, Refused)):
                    run.report.unrecorded(error)
                    warned = True
                situation.signals.pause(1.0)


def _kept_between_runs(keeper: Keeper) -> Keeping:
    from jobrun.keeping import Keeping

    keeper.guard(None)
    return Keeping(keeper)


def not_recorded(result: Result, error: JobrunError, kept: str | None) -> NotRecorded:
    """`kept` is its file in the outbox."""
    what = f"run {result.run_id} of {result.job}" if result.key is None else result.key
    hint = "the next call runs it again" if result.key is not None else error.hint
    if kept is not None:
        hint = f"kept in {kept}: {options.typed('flush')}, or the next call here, puts it on record"
    return NotRecorded(f'ran but not recorded ({result.outcome}): "{what}": {error.message}', hint)


def start_blocked(job: Job, lock: Lock) -> Child:
    """The job's command, which waits for `go`. Raises Refused (75) where there are no processes."""
    try:
        return process.start(lock.fd, job.stdin or _stdin_of(job), lock.keeper)
    except OSError as error:
        raise Refused(
            f'job "{job.name}": no process for the command: {error.strerror}',
            "fewer processes, or a higher limit (ulimit)",
        ) from None


def _stdin_of(job: Job) -> str:
    """With windows null; otherwise ours, but no terminal: a command may hang on it unseen."""
    return "null" if job.has_grid or os.isatty(0) else "inherit"
