"""What is said of a run: its line, why it could not start, what it printed.

Reporting never decides: it returns nothing, and nothing that fails in it changes what is on record.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobrun import command, options, placeholders, rows
from jobrun.ended import LOCK_LOST
from jobrun.errors import EXIT_NOT_RECORDED, JobrunError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.command import Verdict
    from jobrun.job import Job
    from jobrun.output import Output
    from jobrun.plans import Note, Unit
    from jobrun.process import Ended, Signals
    from jobrun.rows import Claimed, Fate, Finished, Pause, RunRow

NOT_RECORDED = "not-recorded"  # an outcome that no row has


class Report:
    """Of one run. `environment` is its command's, `values` what its placeholders stood for.

    The number of one that is on no record is 0.
    """

    def __init__(
        self,
        job: Job,
        call: Call,
        unit: Unit,
        claimed: Claimed,
        values: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> None:
        self.job = job
        self.call = call
        self.unit = unit
        self.claimed = claimed
        self.values = values
        self.environment = environment

    def started(self, pid: int) -> None:
        self.call.lines.event("STARTED", self._fields({}, pid=pid))

    def ended(
        self,
        ended: Ended,
        verdict: Verdict,
        finished: Finished | None,
        output: Output,
        signals: Signals,
        fate: Fate,
        told: bool,
    ) -> None:
        """`finished`: as recorded, None where it could not be; `told`: quiet does not hide it."""
        lines = self.call.lines
        word = _word(verdict, finished)
        if told or not lines.quiet or word == "FENCED":
            details = _details(word, verdict, finished, ended)
            state = finished.window_state if finished is not None else None
            again = self.job.retries and word == "FAILED" and state in (rows.FAILED, None)
            upcoming = fate.next_attempt_at if again else None
            fields = self._fields(details, took=ended.took, next=upcoming)
            lines.event(word, fields, force=told)
            self._explain(ended, verdict, word, output)
            if self.job.output == "on-failure" and verdict.outcome != rows.SUCCEEDED:
                output.show(signals)
        if finished is not None and finished.window_state == rows.DEAD and word == "FAILED":
            dead(self.call, self.job.name, self.unit.key or "", self.claimed.run_id)
        self._notes(ended, output)
        if finished is not None:
            breaker(self.call, self.job.name, finished, self.claimed.run_id)

    def survivors(self, pids: tuple[int, ...]) -> None:
        """Not ended, not ours to end: the next call will say orphan-alive."""
        shown = ",".join(map(str, pids))
        self.call.lines.event("WARNING", self._note("not-ended", key=self.unit.key, pids=shown))

    def unrecorded(self, error: JobrunError) -> None:
        """It is tried again, for some time."""
        note = self._note("not-recorded-yet", key=self.unit.key, cause=error.message)
        self.call.lines.event("WARNING", note)

    def _explain(self, ended: Ended, verdict: Verdict, word: str, output: Output) -> None:
        lines = self.call.lines
        if verdict.outcome == rows.NOT_STARTED:
            error, hint = self.why_not_started(ended)
            lines.say("error", error)
            if hint:
                lines.say("hint", hint)
        elif ended.cause == LOCK_LOST:
            lines.say("error", command.lock_lost(ended.detail))
        elif word == "FAILED" and output.bytes and self.claimed.run_id:
            lines.say("hint", options.typed("logs", str(self.claimed.run_id)))
        if ended.wants_terminal:
            lines.say("hint", "the command wants the terminal: --stdin inherit")

    def why_not_started(self, ended: Ended) -> tuple[str, str | None]:
        """(error, hint)"""
        if self.unit.refusal is not None:
            return self.unit.refusal
        path = command.search_path(self.environment)
        name = placeholders.fill(self.job.command[0], self.values)
        return command.why_not_started(ended, self.job, path, name)

    def _notes(self, ended: Ended, output: Output) -> None:
        lines = self.call.lines
        if ended.left_open is not None:
            note = self._note("output-left-open", pid=ended.left_open or None)
            lines.event("NOTE", note)
        if output.problem:
            lines.event("WARNING", self._note("output-lost", cause=output.problem))
        for stream in output.dropped:
            lines.event("NOTE", self._note("output-dropped", stream=stream))

    def _note(self, what: str, **more: object) -> dict[str, object]:
        job, run = self.job.name, self.claimed.run_id
        return {"job": job, "what": what, **more, "run": run or None, "at": self.call.now()}

    def _fields(self, details: Mapping[str, object], **more: object) -> dict[str, object]:
        unit = self.unit
        return {
            "job": self.job.name,
            "window": None if unit.start is None else (unit.start, unit.end),
            "key": unit.key,
            **details,
            "attempt": self.claimed.attempt,
            **more,
            "windows": unit.windows if unit.windows > 1 else None,
            "run": self.claimed.run_id or None,
            "at": self.call.now(),
        }


def dead(call: Call, job: str, key: str, run: int) -> None:
    """Nobody tries it again: whatever is quiet, a person must hear of it, once."""
    from jobrun.fate import hint

    what = {"job": job, "what": rows.DEAD, "key": key, "run": run, "at": call.now()}
    call.lines.event("WARNING", what)
    call.lines.say("hint", hint(job, key, rows.DEAD))


def breaker(call: Call, job: str, finished: Finished, run: int) -> None:
    """What the end of the run has made of the job's pause."""
    if pause := finished.tripped:
        paused(call, job, pause, run)
    if pause := finished.resumed:
        resumed(call, job, pause, run)


def lost(call: Call, row: RunRow, marked: bool) -> None:
    _tell(call, lost_note(row, marked))


def lost_note(row: RunRow, marked: bool) -> Note:
    """A run that never ended, and whose processes are gone; `marked`: its window is done."""
    window = None if row.start is None or row.end is None else (row.start, row.end)
    fields: dict[str, object] = {"job": row.job, "window": window, "key": row.key}
    fields |= {"outcome": rows.LOST, "state": rows.PROCESSED if marked else None}
    fields |= {"attempt": row.attempt, "run": row.id}
    return "LOST", fields, None


def values_lost(call: Call, job: str, key: str | None, run: int, problem: str) -> None:
    """The window is processed, and other jobs get nothing of it."""
    what = {"job": job, "what": "values-lost", "key": key, "cause": problem}
    call.lines.event("WARNING", {**what, "run": run, "at": call.now()})


def resumed(call: Call, job: str, pause: Pause, run: int | None = None) -> None:
    """By itself: a window that it tried is processed."""
    what = {"what": "resumed", "by": pause.by, "was": pause.text}
    call.lines.event("NOTE", {"job": job, **what, "run": run, "at": call.now()})


def paused(call: Call, job: str, pause: Pause, run: int | None = None) -> None:
    _tell(call, paused_note(job, pause, run))


def paused_note(job: str, pause: Pause, run: int | None = None) -> Note:
    """By the job itself: by the end of a run, or by runs that were found lost."""
    what = {"until": pause.until, "by": pause.by, "why": pause.reason}
    fields: dict[str, object] = {"job": job, "what": rows.PAUSED, **what, "run": run}
    return "WARNING", fields, f"after the repair: {options.typed('resume', job)}"


def _tell(call: Call, told: Note) -> None:
    word, fields, hint = told
    call.lines.event(word, {**fields, "at": call.now()})
    if hint is not None:
        call.lines.say("hint", hint)


def _word(verdict: Verdict, finished: Finished | None) -> str:
    if finished is not None and finished.outcome == rows.FENCED:
        return "FENCED"
    if finished is not None and (finished.marked or verdict.outcome == rows.SUCCEEDED):
        return "PROCESSED"
    return "INTERRUPTED" if verdict.outcome == rows.INTERRUPTED else "FAILED"


def _details(
    word: str, verdict: Verdict, finished: Finished | None, ended: Ended
) -> dict[str, object]:
    if verdict.outcome == rows.SUCCEEDED and finished is None:
        return {"exit": EXIT_NOT_RECORDED, "outcome": NOT_RECORDED}
    if word == "PROCESSED" and verdict.outcome == rows.SUCCEEDED:
        return {"exit": verdict.exit_code or None}
    what = LOCK_LOST if ended.cause == LOCK_LOST else None
    return {"exit": verdict.answer or verdict.exit_code, "outcome": verdict.outcome, "what": what}
