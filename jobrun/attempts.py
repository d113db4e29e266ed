"""The runs of one call, one after another: n windows in n + 1 transactions.

The command of a run is started blocked, then claimed in the ledger with its pid, then let go. Its
end, and the claim of the next one, are one transaction again. So at any moment that a machine can
die there is either no command, or a row that tells which.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from jobrun import command, placeholders, places, policy, process, rows
from jobrun.errors import EXIT_NOT_RECORDED, EXIT_SIGNAL, LedgerError, NotRecorded, Refused
from jobrun.key_file import Stamp, stamp
from jobrun.output import Output
from jobrun.rows import Claim, Claimed, Finished, Opening, Result

if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.job import Job
    from jobrun.ledger import Ledger
    from jobrun.policy import Unit
    from jobrun.process import Child, Ended, Signals
    from jobrun.progress import Progress

FEW = 3  # windows that need no word about how far it is
RECORD_FOR = 600  # seconds that a finished run is tried to be recorded


class Frame(NamedTuple):
    """What all runs of a call share."""

    job: Job
    call: Call
    ledger: Ledger
    lock: int  # the lock's descriptor, for the guardian
    signals: Signals
    zone: str
    next_boundary: Callable[[int], int] | None
    stamp: Stamp | None  # of the file of --key-file
    began: float  # monotonic
    owner: tuple[int, int] | None  # of what is made beside the ledger, where it is not us


class Attempts:
    """Runs the units of a plan; `exit_code` is that of the first that failed."""

    def __init__(self, frame: Frame, told: str | None, told_at: int | None) -> None:
        self.frame = frame
        self.exit_code = 0
        self.done = 0
        self.token = 0
        self.told = told
        self.told_at = told_at
        self.progress: Progress | None = None

    def run(self, units: tuple[Unit, ...], opening: Opening, on_open: Callable[[], None]) -> bool:
        """Run them in order, as far as they go. False where another holder has been: plan again."""
        frame = self.frame
        child = self._start()
        try:
            claim = self._claim(units[0], child)
            opened = frame.ledger.open(opening, claim, frame.next_boundary)
        except BaseException:
            child.cancel()
            raise
        if opened is None or opened.claimed is None:
            child.cancel()
            return False
        on_open()
        self.token = opened.token
        self._run_claimed(units, child, opened.claimed)
        return True

    def _run_claimed(self, units: tuple[Unit, ...], child: Child, claimed: Claimed) -> None:
        self.progress = self._watch(len(units))
        try:
            for unit, following in zip(units, (*units[1:], None), strict=True):
                next_child, next_claimed = self._attempt(unit, child, claimed, following)
                if self.progress is not None:
                    self.progress.advance(unit.key or "")
                if next_child is None or next_claimed is None:
                    return
                child, claimed = next_child, next_claimed
        finally:
            if self.progress is not None:
                self.progress.close()

    def _watch(self, count: int) -> Progress | None:
        """Many windows on a terminal: a person wants to see how far it is."""
        lines = self.frame.call.lines
        if count <= FEW or lines.json or not lines.on_terminal():
            return None
        from jobrun.progress import Progress

        return Progress(count, live=self.frame.job.output == "live")

    def _attempt(
        self, unit: Unit, child: Child, claimed: Claimed, following: Unit | None
    ) -> tuple[Child | None, Claimed | None]:
        """One run from `go` to its record; the next one's command and claim, where it goes on."""
        frame = self.frame
        run = _Run(frame, unit, claimed, self.token)
        ended = run.perform(child)
        verdict = run.verdict(ended)
        self.done += 1
        if ended.survivors:
            self._tell_survivors(run, ended, verdict)
            return None, None
        next_child = self._start() if self._goes_on(verdict, following) else None
        claim = self._claim(following, next_child) if following and next_child else None
        printed = self._remember(verdict)
        try:
            finished = self._record(run.result(ended, verdict, self.told, self.told_at), claim)
        except NotRecorded as error:
            if next_child:
                next_child.cancel()
            run.report(ended, verdict, None, True)
            self._settle(verdict.answer)
            self._settle(EXIT_NOT_RECORDED)
            frame.call.lines.error(error)
            return None, None
        if next_child and finished.claimed is None:
            next_child.cancel()
            next_child = None
        if self.progress is not None:
            self.progress.hide()
        self._settle(run.report(ended, verdict, finished, printed))
        return next_child, finished.claimed

    def _start(self) -> Child:
        job = self.frame.job
        try:
            return process.start(self.frame.lock, job.stdin or _stdin(job))
        except OSError as error:
            raise Refused(
                f'job "{job.name}": {error.strerror}', "fewer processes, or a higher limit (ulimit)"
            ) from None

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
            started=self.frame.call.now(),
        )

    def _goes_on(self, verdict: command.Verdict, following: Unit | None) -> bool:
        job, frame = self.frame.job, self.frame
        if following is None or frame.signals.received or verdict.outcome == rows.INTERRUPTED:
            return False
        if job.stop_after is not None and time.monotonic() - frame.began >= job.stop_after:
            return False
        if verdict.outcome == rows.SUCCEEDED:
            return True
        # A command that can't be started fails for each window alike.
        return job.on_failure == "continue" and verdict.outcome != rows.NOT_STARTED

    def _settle(self, code: int) -> None:
        self.exit_code = self.exit_code or code

    def _remember(self, verdict: command.Verdict) -> bool:
        """Whether this end is to be printed although it may be quiet (`--remind`)."""
        job, now = self.frame.job, self.frame.call.now()
        if verdict.outcome == rows.INTERRUPTED:
            return True
        if verdict.outcome == rows.SUCCEEDED:
            recovered = self.told is not None
            self.told = self.told_at = None
            return recovered
        what = f"{verdict.outcome} {verdict.answer}"
        recent = self.told_at is not None and 0 <= now - self.told_at < job.remind
        if job.quiet and what == self.told and recent:
            return False
        self.told, self.told_at = what, now
        return True

    def _record(self, result: Result, claim: Claim | None) -> Finished:
        """The finishing transaction, tried for ten minutes or until a signal."""
        frame = self.frame
        deadline = time.monotonic() + RECORD_FOR
        warned = False
        while True:
            try:
                return frame.ledger.finish(result, claim, frame.next_boundary)
            except (LedgerError, Refused) as error:
                if time.monotonic() >= deadline or frame.signals.received:
                    raise not_recorded(result, error) from None
                if not warned:
                    self._warn_unrecorded(result, error)
                    warned = True
                frame.signals.pause(1.0)

    def _warn_unrecorded(self, result: Result, error: LedgerError | Refused) -> None:
        fields = {"job": result.job, "what": "not-recorded-yet", "key": result.key}
        fields["cause"] = error.message
        self.frame.call.lines.event(
            "WARNING", {**fields, "run": result.run_id, "at": self.frame.call.now()}
        )

    def _tell_survivors(self, run: _Run, ended: Ended, verdict: command.Verdict) -> None:
        """The row stays running with its pid, so that the next call says orphan-alive."""
        pids = ",".join(map(str, ended.survivors))
        fields = {
            "job": self.frame.job.name,
            "what": "not-ended",
            "key": run.unit.key,
            "pids": pids,
        }
        self.frame.call.lines.event(
            "WARNING", {**fields, "run": run.claimed.run_id, "at": self.frame.call.now()}
        )
        self._settle(verdict.answer)


def not_recorded(result: Result, error: LedgerError | Refused) -> NotRecorded:
    what = f"run {result.run_id} of {result.job}" if result.key is None else result.key
    return NotRecorded(
        f'ran but not recorded ({result.outcome}): "{what}": {error.message}',
        "the next call runs it again" if result.key is not None else error.hint,
    )


class _Run:
    """One run: its values, its output, its lines."""

    def __init__(self, frame: Frame, unit: Unit, claimed: Claimed, token: int) -> None:
        self.frame = frame
        self.unit = unit
        self.claimed = claimed
        self.token = token
        self.started = frame.call.now()
        ledger = frame.call.ledger
        self.values = command.values(frame.job, unit, claimed, token, frame.zone, ledger)
        self.environment = command.environment(frame.call.environ, self.values)
        base = places.run_output(ledger, frame.job.name, claimed.run_id, self.started)
        self.output = Output(
            frame.job.output == "live", base, lambda path: places.make_folder(path, frame.owner)
        )

    def perform(self, child: Child) -> Ended:
        job, frame = self.frame.job, self.frame
        argv = [placeholders.fill(argument, self.values) for argument in job.command]
        frame.call.lines.event("STARTED", self._fields({"pid": child.pid}))
        marker = {n: self.environment[n] for n in ("JOBRUN_RUN_ID", "JOBRUN_LEDGER")}
        child.go(argv, self.environment, job.cwd)
        ended = child.wait(frame.signals, job.timeout, job.kill_after, marker, self.output)
        self.output.close()
        return ended

    def verdict(self, ended: Ended) -> command.Verdict:
        verdict = command.judge(ended, self.frame.job)
        path = self.frame.job.key_file
        if verdict.outcome != rows.SUCCEEDED or path is None:
            return verdict
        # A file that changed while the command read it was not the file that the key names; one
        # that the command moved away is done with.
        if stamp(path) in (None, self.frame.stamp):
            return verdict
        self.frame.call.lines.say("error", f'--key-file "{path}" changed while the command ran')
        return verdict._replace(outcome=rows.FAILED_RUN, answer=EXIT_NOT_RECORDED)

    def result(
        self, ended: Ended, verdict: command.Verdict, told: str | None, told_at: int | None
    ) -> Result:
        return Result(
            job=self.frame.job.name,
            run_id=self.claimed.run_id,
            token=self.token,
            key=self.unit.key,
            outcome=verdict.outcome,
            exit_code=verdict.exit_code,
            signal=verdict.signal,
            started=self.started,
            ended=self.frame.call.now(),
            took=ended.took,
            output_bytes=self.output.bytes,
            next_attempt_at=self._next_attempt_at(verdict),
            told=told,
            told_at=told_at,
        )

    def _next_attempt_at(self, verdict: command.Verdict) -> int | None:
        """Not sooner than this; an interrupted window is due at once."""
        unit, job = self.unit, self.frame.job
        if unit.start is None or unit.end is None or verdict.outcome == rows.INTERRUPTED:
            return None
        length = unit.end - unit.start
        return self.started + policy.retry_delay(job.retry_delay, self.claimed.attempt, length)

    def report(
        self, ended: Ended, verdict: command.Verdict, finished: Finished | None, printed: bool
    ) -> int:
        """Print how it ended; the exit code that it gives the call."""
        lines = self.frame.call.lines
        word = _word(verdict, finished)
        details: dict[str, object] = {}
        if word != "PROCESSED" or verdict.outcome != rows.SUCCEEDED or verdict.exit_code:
            details["exit"] = verdict.answer or verdict.exit_code
            details["outcome"] = verdict.outcome
        if finished is None or not lines.quiet or printed or word in ("FENCED", "INTERRUPTED"):
            lines.event(word, self._fields(details, ended.took), force=printed)
            self._explain(ended, verdict, word)
        self._notes(ended)
        self._tidy()
        return EXIT_NOT_RECORDED if word == "FENCED" else verdict.answer

    def _explain(self, ended: Ended, verdict: command.Verdict, word: str) -> None:
        frame, lines = self.frame, self.frame.call.lines
        if verdict.outcome == rows.NOT_STARTED:
            path = command.search_path(self.environment)
            name = placeholders.fill(frame.job.command[0], self.values)
            error, hint = command.why_not_started(ended, frame.job, path, name)
            lines.say("error", error)
            if hint:
                lines.say("hint", hint)
        elif word == "FAILED" and self.output.bytes:
            where = f" --ledger {frame.job.ledger}" if frame.job.ledger else ""
            lines.say("hint", f"jobrun logs {self.claimed.run_id}{where}")
        if ended.wants_terminal:
            lines.say("hint", "the command wants the terminal: --stdin inherit")
        if frame.job.output == "on-failure" and verdict.outcome != rows.SUCCEEDED:
            self.output.show()

    def _notes(self, ended: Ended) -> None:
        lines = self.frame.call.lines
        if ended.left_open is not None:
            pid = ended.left_open or None
            lines.event("NOTE", self._note("output-left-open", pid=pid), force=True)
        if self.output.problem:
            lines.event("WARNING", self._note("output-lost", cause=self.output.problem))

    def _tidy(self) -> None:
        """Old kept output goes, a little of it each time that there is new."""
        if not self.output.bytes:
            return
        from jobrun.retention import retain

        ledger = self.frame.ledger

        def failed(run_id: int) -> bool:
            row = ledger.run(run_id)
            return row is not None and row.outcome not in (None, rows.SUCCEEDED)

        folder = places.job_output(self.frame.call.ledger, self.frame.job.name)
        retain(folder, self._at(), failed)

    def _note(self, what: str, **more: object) -> dict[str, object]:
        job = self.frame.job.name
        return {"job": job, "what": what, **more, "run": self.claimed.run_id, "at": self._at()}

    def _at(self) -> int:
        return self.frame.call.now()

    def _fields(self, details: dict[str, object], took: float | None = None) -> dict[str, object]:
        unit = self.unit
        return {
            "job": self.frame.job.name,
            "window": None if unit.start is None else (unit.start, unit.end),
            "key": unit.key,
            "windows": unit.windows if unit.windows > 1 else None,
            **details,
            "attempt": self.claimed.attempt,
            "took": took,
            "run": self.claimed.run_id,
            "at": self._at(),
        }


def _word(verdict: command.Verdict, finished: Finished | None) -> str:
    if finished is not None and finished.outcome == rows.FENCED:
        return "FENCED"
    if verdict.outcome == rows.SUCCEEDED or (finished is not None and finished.marked):
        return "PROCESSED"
    return "INTERRUPTED" if verdict.outcome == rows.INTERRUPTED else "FAILED"


def _stdin(job: Job) -> str:
    """With windows null; otherwise ours, but no terminal: a command may hang on it unseen."""
    return "null" if job.has_grid or os.isatty(0) else "inherit"


def interrupted(signals: Signals) -> int:
    """The exit code of a call that a signal stopped before or between its runs; 0 without one."""
    return EXIT_SIGNAL + signals.received if signals.received else 0
