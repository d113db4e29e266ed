"""The runs of one call, one after another: n windows in n + 1 transactions.

The command of a run is started blocked, then claimed in the ledger with its pid, then let go. Its
end, and the claim of the next one, are one transaction again. So at any moment that a machine can
die there is either no command, or a row that tells which.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobrun import command, placeholders, places, policy, process, rows
from jobrun.ended import AT_INPUT, NOT_STARTED, Ended
from jobrun.errors import (
    EXIT_NOT_RECORDED,
    DamagedLedger,
    JobrunError,
    LedgerError,
    NotRecorded,
    Refused,
)
from jobrun.key_file import Stamp, stamp
from jobrun.output import Output
from jobrun.report import Report
from jobrun.rows import Breaker, Claim, Claimed, Finished, JobRow, Opening, Result
from jobrun.value import NamedTuple
from jobrun.values_file import ValuesFile

if TYPE_CHECKING:
    from jobrun.call import Situation
    from jobrun.job import Job
    from jobrun.plans import Unit
    from jobrun.process import Child
    from jobrun.progress import Progress
    from jobrun.schedule import Grid

FEW = 3  # windows that need no word about how far it is
RECORD_FOR = 600  # seconds that a finished run is tried to be recorded
BUSY_FOR = 10  # seconds of them that other writers may need before it is worth a line


class Running(NamedTuple):
    """A run that is on record, its command blocked: `go` is next."""

    unit: Unit
    child: Child
    claimed: Claimed


class Attempts:
    """Runs the units of a plan; `exit_code` is the first failed one's, `done` how many ran.

    `paused` is whether a pause kept the next one from its turn, `tripped` whether the job made it
    itself, by the last run.
    """

    def __init__(
        self, situation: Situation, grid: Grid | None, file: Stamp | None, row: JobRow | None
    ) -> None:
        self.situation = situation
        self.zone = grid.zone if grid is not None else "UTC"
        self.next_boundary = grid.next if grid is not None else None
        self.file = file  # of --key-file, when its key was made
        self.exit_code = 0
        self.done = 0
        self.paused = self.tripped = False
        self.breaker: Breaker | None = None
        if situation.job.pause_after is not None:
            from jobrun.breaker import breaker_of

            self.breaker = breaker_of(situation.job, grid, situation.call.now)
        self.token = 0
        self.told = row.told if row else None
        self.told_at = row.told_at if row else None

    def run(self, units: tuple[Unit, ...], opening: Opening, on_open: Callable[[], None]) -> bool:
        """Run them in order, as far as they go. False where another holder has been: plan again."""
        running = self._open(units[0], opening)
        if running is None:
            return False
        on_open()
        progress = self._watch(len(units))
        try:
            for following in (*units[1:], None):
                key = running.unit.key or ""
                running = self._attempt(running, following, progress)
                if progress is not None:
                    progress.advance(key)
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

    def _open(self, unit: Unit, opening: Opening) -> Running | None:
        child = self._start()
        try:
            claim = self._claim(unit, child)
            opened = self.situation.ledger.open(opening, claim, self.next_boundary)
        except BaseException:
            child.cancel()
            raise
        if opened is None or opened.claimed is None:
            child.cancel()
            return None
        self.token = opened.token
        return Running(unit, child, opened.claimed)

    def _attempt(
        self, running: Running, following: Unit | None, progress: Progress | None
    ) -> Running | None:
        """One run from `go` to its record; the next one, claimed in the same transaction."""
        run = Run(self, running)
        ended = run.perform(running.child)
        verdict = run.judge(ended)
        self.done += 1
        if ended.survivors:
            run.report.survivors(ended.survivors)
            self._settle(verdict.answer)
            return None
        child, refusal = self._start_next(verdict, running.unit, following)
        told = self._remember(verdict)
        finished, trouble = self._finish(run, ended, verdict, child, following)
        upcoming = None
        if child is not None and following is not None and finished and finished.claimed:
            upcoming = Running(following, child, finished.claimed)
        elif child is not None:
            child.cancel()
        on_record = finished is not None and finished.outcome != rows.FENCED
        self.paused = finished is not None and finished.paused
        self.tripped = finished is not None and finished.tripped is not None
        self._settle(verdict.answer or (0 if on_record else EXIT_NOT_RECORDED))
        if progress is not None:
            progress.hide()
        signals = self.situation.signals
        run.report.ended(ended, verdict, finished, run.output, signals, told or trouble is not None)
        run.tidy(verdict, finished)
        for error in (trouble, refusal):
            if error is not None:
                self.situation.call.lines.error(error)
                self._settle(error.code)
        return upcoming

    def _start(self) -> Child:
        job = self.situation.job
        try:
            return process.start(self.situation.lock.fd, job.stdin or _stdin(job))
        except OSError as error:
            raise Refused(
                f'job "{job.name}": no process for the command: {error.strerror}',
                "fewer processes, or a higher limit (ulimit)",
            ) from None

    def _start_next(
        self, verdict: command.Verdict, unit: Unit, following: Unit | None
    ) -> tuple[Child | None, Refused | None]:
        """The next command, blocked; why there is none must not keep this run from its record."""
        if not self._goes_on(verdict, unit, following):
            return None, None
        try:
            return self._start(), None
        except Refused as error:
            return None, error

    def _goes_on(self, verdict: command.Verdict, unit: Unit, following: Unit | None) -> bool:
        job, situation = self.situation.job, self.situation
        if following is None or situation.signals.received or verdict.outcome == rows.INTERRUPTED:
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
        run: Run,
        ended: Ended,
        verdict: command.Verdict,
        child: Child | None,
        following: Unit | None,
    ) -> tuple[Finished | None, JobrunError | None]:
        """Record the run and claim the next; and why it could not be recorded, or not go on."""
        result = run.result(ended, verdict, self.told, self.told_at)
        if self.breaker is not None:
            result = result._replace(breaker=self.breaker)
        claim = self._claim(following, child) if following and child else None
        try:
            return self._record(run, result, claim)
        except NotRecorded as error:
            return None, error
        except BaseException:
            if child is not None:
                child.cancel()
            raise

    def _record(
        self, run: Run, result: Result, claim: Claim | None
    ) -> tuple[Finished, DamagedLedger | None]:
        """The finishing transaction, tried for ten minutes or until a signal."""
        situation = self.situation
        damage: DamagedLedger | None = None
        began, warned = time.monotonic(), False
        while True:
            try:
                return situation.ledger.finish(result, claim, self.next_boundary), damage
            except NotRecorded as error:
                raise not_recorded(result, error) from None
            except DamagedLedger as error:
                if claim is None:
                    raise not_recorded(result, error) from None
                # It may be of the next window only; this run's record comes before its turn.
                claim, damage = None, error
            except (LedgerError, Refused) as error:
                waited = time.monotonic() - began
                if waited >= RECORD_FOR or situation.signals.received:
                    raise not_recorded(result, error) from None
                if not warned and (waited >= BUSY_FOR or not isinstance(error, Refused)):
                    run.report.unrecorded(error)
                    warned = True
                situation.signals.pause(1.0)


class Run:
    """One run: what its command is given, what its end means."""

    def __init__(self, attempts: Attempts, running: Running) -> None:
        situation = attempts.situation
        self.situation = situation
        self.unit, _, self.claimed = running
        self.token = attempts.token
        self.file = attempts.file
        job, call = situation.job, situation.call
        values = command.values(
            job, self.unit, self.claimed, self.token, attempts.zone, call.ledger
        )
        self.values = values
        self.left = self._values_file()
        if self.left is not None and self.left.path is not None:
            values["values_file"] = self.left.path
        self.environment = {
            **command.environment(call.environ, values),
            # The bytes that were left, whatever this process's locale makes of them.
            **{name: os.fsdecode(value.encode()) for name, value in self.unit.inputs},
        }
        self.report = Report(job, call, self.unit, self.claimed, values, self.environment)
        base = places.run_output(call.ledger, job.name, self.claimed.run_id, self.claimed.started)
        self.output = Output(job.output == "live", base, self._make_folder)

    def _values_file(self) -> ValuesFile | None:
        """Where the command of a window leaves values for other jobs."""
        if self.unit.start is None:
            return None
        path = places.values_file(self.situation.call.ledger, self.claimed.run_id)
        return ValuesFile(path, self._make_folder)

    def _make_folder(self, path: str) -> None:
        places.make_folder(path, self.situation.owner)

    def perform(self, child: Child) -> Ended:
        if self.unit.refusal is not None:
            child.cancel()
            self.output.close()
            return Ended(NOT_STARTED, error=(0, AT_INPUT), detail=self.unit.refusal[0])
        job, signals = self.situation.job, self.situation.signals
        argv = [placeholders.fill(argument, self.values) for argument in job.command]
        marker = {n: self.environment[n] for n in ("JOBRUN_RUN_ID", "JOBRUN_LEDGER")}
        self.report.started(child.pid)
        child.go(argv, self.environment, job.cwd)
        ended = child.wait(signals, job.timeout, job.kill_after, marker, self.output)
        self.output.close()
        return ended

    def judge(self, ended: Ended) -> command.Verdict:
        verdict = command.judge(ended, self.situation.job)
        path = self.situation.job.key_file
        if verdict.outcome != rows.SUCCEEDED or path is None:
            return verdict
        # A file that changed while the command read it was not the file that the key names; one
        # that the command moved away is done with.
        if stamp(path) in (None, self.file):
            return verdict
        lines = self.situation.call.lines
        lines.say("error", f'--key-file "{path}" changed while the command ran')
        return verdict._replace(outcome=rows.FAILED_RUN, exit_code=None, answer=EXIT_NOT_RECORDED)

    def result(
        self, ended: Ended, verdict: command.Verdict, told: str | None, told_at: int | None
    ) -> Result:
        return Result(
            job=self.situation.job.name,
            run_id=self.claimed.run_id,
            token=self.token,
            key=self.unit.key,
            outcome=verdict.outcome,
            exit_code=verdict.exit_code,
            signal=verdict.signal,
            ended=self.situation.call.now(),
            took=ended.took,
            output_bytes=self.output.bytes,
            next_attempt_at=self._next_attempt_at(verdict),
            told=told,
            told_at=told_at,
            values=self.left.take() if self.left is not None else (),
        )

    def _next_attempt_at(self, verdict: command.Verdict) -> int | None:
        """Not sooner than this; an interrupted window is due at once."""
        unit, job = self.unit, self.situation.job
        if unit.start is None or unit.end is None or verdict.outcome == rows.INTERRUPTED:
            return None
        length = unit.end - unit.start
        delay = policy.retry_delay(job.retry_delay, self.claimed.attempt, length)
        return self.claimed.started + delay

    def tidy(self, verdict: command.Verdict, finished: Finished | None) -> None:
        """Old kept output goes, a little of it each time that there is new."""
        processed = verdict.outcome == rows.SUCCEEDED or (finished and finished.marked)
        if processed and self.left is not None and self.left.problem is not None:
            self.report.values_lost(self.left.problem)
        if not self.output.bytes:
            return
        from jobrun.retention import retain

        ledger, call = self.situation.ledger, self.situation.call

        def failed(run_id: int) -> bool:
            row = ledger.run(run_id)
            return row is not None and row.outcome not in (None, rows.SUCCEEDED)

        retain(places.job_output(call.ledger, self.situation.job.name), call.now(), failed)


def not_recorded(result: Result, error: JobrunError) -> NotRecorded:
    what = f"run {result.run_id} of {result.job}" if result.key is None else result.key
    return NotRecorded(
        f'ran but not recorded ({result.outcome}): "{what}": {error.message}',
        "the next call runs it again" if result.key is not None else error.hint,
    )


def _stdin(job: Job) -> str:
    """With windows null; otherwise ours, but no terminal: a command may hang on it unseen."""
    return "null" if job.has_grid or os.isatty(0) else "inherit"
