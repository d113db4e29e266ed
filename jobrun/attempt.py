"""One attempt of a unit: what its command is given, and what its end means for the unit."""

from __future__ import annotations

import os

from jobrun import command, placeholders, places, rows
from jobrun.ended import AT_INPUT, LOCK_LOST, NOT_STARTED, Ended
from jobrun.errors import EXIT_NOT_RECORDED
from jobrun.output import Output
from jobrun.report import Report, values_lost
from jobrun.rows import Claimed, Fate, Finished, Result
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Situation
    from jobrun.key_file import Stamp
    from jobrun.plans import Unit
    from jobrun.process import Child
    from jobrun.values_file import ValuesFile


class Running(NamedTuple):
    """A run that is on record, its command blocked: `go` is next."""

    unit: Unit
    child: Child
    claimed: Claimed


class Attempt:
    """`zone` and `schedule` are the job's, `file` that of --key-file when its key was made."""

    def __init__(
        self,
        situation: Situation,
        running: Running,
        token: int,
        zone: str,
        file: Stamp | None,
        schedule: str | None,
    ) -> None:
        self.situation = situation
        self.unit, child, self.claimed = running
        self.process = child.pid, child.birth
        self.token = token
        self.file = file
        self.schedule = schedule
        job, call = situation.job, situation.call
        values = command.values(job, self.unit, self.claimed, token, zone, call.ledger)
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
        run_id, started = self.claimed.run_id, self.claimed.started
        base = places.run_output(call.where.beside, job.name, run_id, started)
        self.output = Output(job.output == "live", base, self._make_folder)

    def _values_file(self) -> ValuesFile | None:
        """Where the command of a window leaves values for other jobs."""
        if self.unit.start is None:
            return None
        from jobrun.values_file import ValuesFile

        path = places.values_file(self.situation.call.where.beside, self.claimed.run_id)
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
        marker = command.marker(self.environment)
        self.report.started(child.pid)
        keeper = self.situation.lock.keeper
        if keeper is not None:
            keeper.guard(self.claimed.run_id)
        try:
            child.go(argv, self.environment, job.cwd)
            ended = child.wait(signals, job.timeout, job.kill_after, marker, self.output)
        finally:
            if keeper is not None:
                keeper.rest()
        self.output.close()
        return ended

    def judge(self, ended: Ended) -> command.Verdict:
        verdict = command.judge(ended, self.situation.job)
        path = self.situation.job.key_file
        if verdict.outcome != rows.SUCCEEDED or path is None:
            return verdict
        from jobrun.key_file import stamp

        # A file that changed while the command read it was not the file that the key names; one
        # that the command moved away is done with.
        if stamp(path) in (None, self.file):
            return verdict
        lines = self.situation.call.lines
        lines.say("error", f'--key-file "{path}" changed while the command ran')
        return verdict._replace(outcome=rows.FAILED_RUN, exit_code=None, answer=EXIT_NOT_RECORDED)

    def fate(self, verdict: command.Verdict) -> Fate:
        """What its end means for the unit; an interrupted one is due at once."""
        if verdict.outcome not in rows.FAILURES:
            return Fate()
        from jobrun.fate import after_failure

        unit, call = self.unit, self.situation.call
        length = None if unit.start is None or unit.end is None else unit.end - unit.start
        failures, started = self.claimed.failures + 1, self.claimed.started
        return after_failure(
            self.situation.job, unit.key, length, failures, verdict.answer, started, call.clock()
        )

    def result(
        self,
        ended: Ended,
        verdict: command.Verdict,
        fate: Fate,
        told: str | None,
        told_at: int | None,
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
            next_attempt_at=fate.next_attempt_at,
            told=told,
            told_at=told_at,
            values=self.left.read() if self.left is not None else (),
            is_dead=fate.is_dead,
            goes_on=fate.wait is not None,
            why=self._why(ended, verdict),
            beside=self.situation.slot is not None,
            schedule=self.schedule,
        )

    def _why(self, ended: Ended, verdict: command.Verdict) -> str | None:
        if ended.cause == LOCK_LOST:
            return command.lock_lost(ended.detail)
        if verdict.outcome != rows.NOT_STARTED:
            return None
        return self.report.why_not_started(ended)[0]

    def tidy(self, verdict: command.Verdict, finished: Finished | None) -> None:
        """Once it is on record: what it has left goes, and old kept output, a little of it each
        time that there is new."""
        if self.left is not None and finished is not None:
            self.left.remove()
        processed = verdict.outcome == rows.SUCCEEDED or (finished and finished.marked)
        if processed and self.left is not None and self.left.problem is not None:
            call, run_id = self.situation.call, self.claimed.run_id
            values_lost(call, self.situation.job.name, self.unit.key, run_id, self.left.problem)
        if not self.output.bytes:
            return
        from jobrun.retention import retain

        ledger, call = self.situation.ledger, self.situation.call

        def failed(run_id: int) -> bool:
            row = ledger.run(run_id)
            return row is not None and row.outcome not in (None, rows.SUCCEEDED)

        retain(places.job_output(call.where.beside, self.situation.job.name), call.now(), failed)
