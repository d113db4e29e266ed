"""`lead NAME -- DAEMON`: one of those that call it runs its command, for the life of the process.

The others stand by: each asks for the job's lock about once a second, and has nothing on record. So
a leader that ends, however that comes, is followed within that time, and never sooner than its
command has ended: its guardian holds the lock as long, and of a command that has lost both a
standby knows by its process. A leader whose lock is lost ends its command and stands by again.
"""

from __future__ import annotations

import os
import time

from jobrun import episodes, locks, options, places, rows, turn
from jobrun.attempts import Attempts
from jobrun.boottime import about
from jobrun.call import Situation, note_holder
from jobrun.errors import EXIT_SIGNAL, JobrunError, LedgerError, Refused, StoreDown
from jobrun.ledgers import open_ledger
from jobrun.living import Living, judge_open_runs
from jobrun.plans import Plan
from jobrun.run import as_set, tell_ledger
from jobrun.signals import Signals, catch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.attempt import Attempt
    from jobrun.call import Call
    from jobrun.job import Job
    from jobrun.ledger import Ledger
    from jobrun.lock import Lock
    from jobrun.plans import Unit
    from jobrun.process import Child
    from jobrun.rows import Finished, Opened, Result

POLL = 1.0  # seconds
AFTER_A_LOSS = 1.5  # seconds more, in which a leader that has lost its server too may be back


def lead(job: Job, call: Call) -> int:
    """Stand by, lead, and so on; the exit code: of the command once that has ended by itself,
    128+n where a signal ends it. Raises JobrunError where it can never lead."""
    locks.check(job, call)
    places.make_state_folder(call.where, job.ledger, call.environ)
    signals = catch()
    try:
        candidate = Candidate(job, call, signals)
        try:
            return candidate.run()
        finally:
            candidate.leave()
    finally:
        signals.restore()


class Candidate:
    def __init__(self, job: Job, call: Call, signals: Signals) -> None:
        self._given = job
        self._job = job  # with what is set on record
        self._call = call
        self._signals = signals
        self._ledger: Ledger | None = None
        self._was_open = False
        self._told = ""  # why it does not lead, as it was said last

    def run(self) -> int:
        while True:
            pause = POLL
            try:
                code = self._try()
            except (Refused, LedgerError) as error:
                # Whoever has led, or stood by, waits for a server that fails over; a call that has
                # found nothing but a broken one is wrong.
                if not (self._was_open or isinstance(error, Refused)):
                    raise
                self._lose_ledger(error)
                code, pause = None, POLL + AFTER_A_LOSS
            if code is not None:
                return code
            self._pause(pause)
            if self._signals.received:
                return EXIT_SIGNAL + self._signals.received

    def leave(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def _pause(self, seconds: float) -> None:
        """So long, more or less: those who wait don't all ask at once."""
        until = time.monotonic() + about(seconds)
        while self._signals.received is None and (left := until - time.monotonic()) > 0:
            self._signals.pause(left)

    def _try(self) -> int | None:
        """The exit code; None: not now."""
        ledger = self._ledger or self._open()
        lock = locks.of(self._job.name, self._call, ledger, self._job)
        if not lock.acquire():
            self._stand_by(*lock.holder().split()[:3])
            return None
        try:
            note_holder(lock, self._call)
            if self._call.where.is_file:  # another one may be in its place by now
                ledger = self._open()
            return self._lead(ledger, lock)
        finally:
            lock.release()

    @property
    def _owner(self) -> str:
        return self._call.where.owner

    def _open(self) -> Ledger:
        self.leave()
        call = self._call
        kind = places.filesystem_of(call.where)
        network = kind in places.NETWORK
        self._ledger = open_ledger(
            call.where, call.caller, create=True, network=network, clock=call.clock
        )
        options.name_command(self._ledger.shared)
        self._job = as_set(self._given, call, self._ledger.overrides(self._given.name))
        if not self._was_open:
            self._was_open = True
            tell_ledger(self._ledger, self._job, call, kind)
        return self._ledger

    # -- what is said, once as long as it stays so ------------------------------------------------

    def _stand_by(self, holder: str = "", *since: str) -> None:
        """Named by who leads; in the moment in which that is not known yet nothing is said."""
        told = " ".join((holder, *since))
        if holder and told != self._told:
            self._tell_standby(told, holder=holder, since=since[-1] if since else None)

    def _tell_standby(self, told: str, **why: object) -> None:
        self._told = told
        fields = {"job": self._job.name, "what": "standby", **why, "at": self._call.now()}
        self._call.lines.event("NOTE", fields)

    def _lose_ledger(self, error: JobrunError) -> None:
        # A server that goes down says so in other words at each look: cut off, refused, starting.
        told = rows.STORE_DOWN if isinstance(error, StoreDown) else error.message
        if told != self._told:
            self._told = told
            self._call.lines.error(error)
        try:
            self.leave()
        except JobrunError:  # it is gone
            self._ledger = None

    def _meet(self, situation: Situation, living: Living) -> None:
        """One that should be alone is not: mostly a command whose wrapper and guardian are dead."""
        run, pids = living
        told = f"run {run.id}"
        if told == self._told:
            return
        if pids:
            episodes.orphan(situation, run, self._call.now())
        shown = ",".join(map(str, pids)) or None
        self._tell_standby(told, holder=f"{run.host}:{run.pid}", pids=shown, run=run.id)

    # -- with the lock ----------------------------------------------------------------------------

    def _lead(self, ledger: Ledger, lock: Lock) -> int | None:
        job, call, signals = self._job, self._call, self._signals
        owner = places.other_owner(os.stat(self._owner))
        situation = Situation(job, call, ledger, lock, signals, time.monotonic(), owner)
        for _ in range(turn.REPLANS):
            turn.hand_in(call, ledger, job.name)
            row = ledger.job(job.name)
            judged = judge_open_runs(ledger, job.name, call, lock)
            if judged.living:
                self._meet(situation, judged.living[0])
                return None
            plan, _, _ = turn.make_plan(job, ledger, call.now(), judged.lost)
            if not plan.units:
                self._stay_out(plan)
                return None
            tenure = Tenure(situation, None, None, row)
            if signals.received:
                return EXIT_SIGNAL + signals.received

            def on_open(
                opened: Opened, plan: Plan = plan, lost: list[rows.RunRow] = judged.lost
            ) -> None:
                turn.tell(job, call, ledger, plan, lost, opened)
                self._begin(opened)

            opening = turn.complete(plan.opening, situation, row, judged.lost, None)
            if tenure.run(plan.units, opening, on_open):
                return self._end(tenure)
        raise turn.too_often(job.name)

    def _stay_out(self, plan: Plan) -> None:
        """The job is paused: whoever leads goes on, nobody follows."""
        for skip in plan.skips:
            if self._told != skip.fold:
                self._tell_standby(skip.fold or "", reason=skip.reason, **skip.fields)

    def _begin(self, opened: Opened) -> None:
        if opened.claimed is not None:
            self._told = "leads"
            fields = {"job": self._job.name, "what": "leads", "token": opened.token}
            more = {"run": opened.claimed.run_id, "at": self._call.now()}
            self._call.lines.event("NOTE", {**fields, **more})

    def _end(self, tenure: Tenure) -> int | None:
        received = self._signals.received
        if tenure.is_over and not received:
            return None
        return tenure.exit_code or (EXIT_SIGNAL + received if received else 0)


class Tenure(Attempts):
    """The time of a leader; `is_over`: it is another's turn, or that of nobody for now."""

    is_over = False

    def _finish(
        self, run: Attempt, result: Result, child: Child | None, following: Unit | None
    ) -> tuple[Finished | None, JobrunError | None]:
        is_lost = result.outcome == rows.INTERRUPTED and result.why is not None
        finished, trouble = super()._finish(run, result, child, following)
        self.is_over = is_lost or (finished is not None and finished.outcome == rows.FENCED)
        return finished, trouble
