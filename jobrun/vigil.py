"""The wrapper's loop, from `go` to the end of a command.

One poll over the command's two pipes, the guardian's reports, the signals, and any stream of ours
that can't take more at the moment. Nothing else blocks, so that no reader, however slow, puts off a
deadline or a signal.

It is over in the good case when the command itself has ended and its pipes are empty; where a
process that it left behind holds them, a second later. Once we have sent a signal, or the command
has died by one, it is over when nothing of the tree is alive, or the ladder is through.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from jobrun import tree_proc
from jobrun.ended import EXITED, INTERRUPTED, LOCK_LOST, NOT_STARTED, UNKNOWN_PID, Ended
from jobrun.poller import Poller
from jobrun.pump import Pump
from jobrun.signals import STOPPING, Signals, put_back
from jobrun.stopping import NEVER, Stopping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.keeping import Keeping
    from jobrun.output import Output
    from jobrun.process_posix import Child

LINGER = 1.0  # seconds to go on reading after the end
_SAVE_EVERY = 0.2  # seconds, while there is never a pause
_PAUSE = 0.02  # seconds; shorter ones are those of a reader that keeps up with a flood
_OVERDUE = 0.2  # seconds from the command's end to its guardian's report of it


class Vigil:
    def __init__(
        self,
        child: Child,
        signals: Signals,
        timeout: float | None,
        kill_after: float,
        output: Output,
        keeping: Keeping | None,
    ) -> None:
        self._child = child
        self._signals = signals
        self._output = output
        deadline = NEVER if timeout is None else child.went + timeout
        self._stopping = Stopping(child.tree, kill_after, deadline)
        self._ladder = self._stopping.ladder
        self._keeping = keeping
        self._poller = Poller() if keeping is None else keeping.poller
        self._pumps = [
            Pump(self._poller, fd, stream)
            for fd, stream in zip(child.sources, (output.out, output.err), strict=True)
        ]
        self._ended = Ended(EXITED)
        self._stopped_by: int | None = None  # SIGTTIN or SIGTTOU
        self._status_known = False
        self._guardian_gone = False
        self._rouse_at = NEVER
        self._stop_reading_at = NEVER
        self._hurry = False  # what our readers have not taken by now is dropped
        self._save_at = 0.0

    def keep(self) -> Ended:
        job_control = {n: self._signals.note(n) for n in (signal.SIGTSTP, signal.SIGCONT)}
        self._poller.when_readable(self._signals.fd, self._hear_signals)
        self._poller.when_readable(self._child.report.fd, self._hear_guardian)
        self._hear_signals()  # one may have come before we were listening
        end = self._watch_for_the_end()
        try:
            while not self._is_over():
                self._turn()
        finally:
            if end >= 0:
                os.close(end)
            for number, old in job_control.items():
                put_back(number, old)
        return self._verdict()

    # -- the loop --------------------------------------------------------------------------------

    def _turn(self) -> None:
        unsaved = self._output.unsaved
        now = time.monotonic()
        patience = self._due() - now
        if unsaved:
            patience = min(patience, 0.0 if now >= self._save_at else _PAUSE)
        if self._keeping is not None:
            patience = min(patience, self._keeping.patience)
        happened = self._poller.turn(patience)
        now = time.monotonic()
        # In every pause, so that what is kept can be read; without pauses a few times a second.
        if unsaved and (not happened or now >= self._save_at):
            self._save()
            self._save_at = now + _SAVE_EVERY
        self._watch_clock(now)
        if self._keeping is not None:
            self._watch_lock(self._keeping, now)

    def _save(self) -> None:
        self._output.save()
        for pump in self._pumps:
            pump.catch_up()

    def _due(self) -> float:
        return min(self._stopping.due, self._rouse_at, self._stop_reading_at)

    def _watch_clock(self, now: float) -> None:
        if now >= self._stopping.deadline and self._status_known:
            self._stopping.deadline = NEVER
            self._hurry_up()
        was_over = self._ladder.over
        self._stopping.watch_clock(now)
        if self._ladder.over and not was_over:
            self._stop_reading_at = now + LINGER
            self._rouse_at = now
        if now >= self._rouse_at:
            self._rouse_guardian(now)
        if now >= self._stop_reading_at:
            self._stop_reading()
            self._hurry = self._ladder.begun

    def _watch_lock(self, keeping: Keeping, now: float) -> None:
        is_ending = self._ladder.begun
        is_safe = self._status_known and not is_ending
        if not keeping.look(is_ending, is_safe):
            return
        self._poller.turn(0.0)  # what has been reported by now, however late we are, came first
        if not (self._ladder.begun or self._status_known):
            self._stopping.stop(LOCK_LOST, signal.SIGTERM, now)

    def _is_over(self) -> bool:
        if self._ladder.begun and not self._ladder.over:
            return False
        if not (self._status_known or self._guardian_gone or self._ladder.survivors):
            return False
        if all(pump.finished for pump in self._pumps):
            self._save()
        return self._hurry or all(pump.finished for pump in self._pumps)

    def _hurry_up(self) -> None:
        self._stop_reading()
        self._hurry = True

    def _stop_reading(self) -> None:
        self._stop_reading_at = NEVER
        for pump in self._pumps:
            if pump.held_open() and not self._ladder.begun:
                self._ended = self._ended._replace(left_open=self._holder(pump.fd))
            pump.finish()

    def _holder(self, fd: int) -> int:
        inode = os.fstat(fd).st_ino
        for candidates in (self._child.tree.members, tree_proc.everyone):
            pid = tree_proc.holder(inode, candidates(), (os.getpid(), self._child.guardian_pid))
            if pid is not None:
                return pid
        return UNKNOWN_PID

    # -- what arrives ----------------------------------------------------------------------------

    def _hear_guardian(self) -> None:
        for what, *rest in self._child.report.take():
            if what == b"failed":
                self._ended = self._ended._replace(error=(int(rest[1]), rest[0].decode()))
            elif what == b"stopped":
                self._command_stopped(int(rest[0]))
            elif what == b"lock-lost" and self._keeping is not None:
                self._keeping.were_stopped()
                self._stopping.join(LOCK_LOST, signal.SIGTERM, time.monotonic())
            else:
                self._command_ended(what, int(rest[0]))
        if self._child.report.ended:
            self._poller.forget(self._child.report.fd)
            self._guardian_gone = True
            if not self._status_known:
                self._stopping.stop(INTERRUPTED, signal.SIGTERM, time.monotonic())

    def _watch_for_the_end(self) -> int:
        """Hear of it from the kernel too, on Linux, where nothing forbids that (seccomp)."""
        end = -1
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                end = os.pidfd_open(self._child.pid)
                self._poller.when_readable(end, lambda: self._has_ended(end))
        return end

    def _has_ended(self, end: int) -> None:
        self._poller.forget(end)
        self._rouse_at = time.monotonic() + _OVERDUE

    def _rouse_guardian(self, now: float) -> None:
        """It would have reported the end, had not somebody stopped it."""
        self._rouse_at = NEVER
        if not (self._status_known or self._guardian_gone):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.guardian_pid, signal.SIGCONT)
            self._rouse_at = now + _OVERDUE

    def _command_ended(self, what: bytes, number: int) -> None:
        self._status_known = True
        self._ended = self._ended._replace(took=self._elapsed())
        if what == b"exited":
            self._ended = self._ended._replace(exit_code=number)
        else:
            self._ended = self._ended._replace(signal=number)
            # It did not get to end what it had started, which would run on beside the next attempt.
            self._ladder.ask(signal.SIGTERM, time.monotonic())
        if self._ladder.begun:
            self._ladder.hasten()
        else:
            self._stop_reading_at = time.monotonic() + LINGER

    def _command_stopped(self, number: int) -> None:
        if self._child.terminal.lent:
            if number == signal.SIGTSTP:  # Ctrl-Z went to it alone
                self._suspend()
        elif number in (signal.SIGTTIN, signal.SIGTTOU):
            self._stopped_by = number
            self._stopping.stop(EXITED, signal.SIGTERM, time.monotonic())

    def _hear_signals(self) -> None:
        for number in self._signals.take():
            if number in STOPPING:
                self._asked_to_stop(number)
            elif number == signal.SIGTSTP:
                self._suspend()
            elif number == signal.SIGCONT:
                self._child.tree.send(signal.SIGCONT)
            elif number == signal.SIGCHLD:
                _collect_orphans()

    def _asked_to_stop(self, number: int) -> None:
        if self._status_known and not self._ladder.begun:
            self._hurry_up()
        else:
            self._stopping.signalled(number, self._signals.times, time.monotonic())

    def _suspend(self) -> None:
        """Stop the tree, then ourselves; from the next line on we have been continued."""
        self._child.terminal.take_back()
        self._child.tree.send(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._child.terminal.lend(self._child.pid)
        self._child.tree.send(signal.SIGCONT)

    # -- the end ---------------------------------------------------------------------------------

    def _verdict(self) -> Ended:
        ended = self._stopping.told(self._ended)
        if not self._status_known:
            ended = ended._replace(took=self._elapsed())
        if ended.error is not None:
            return ended._replace(cause=NOT_STARTED, exit_code=None)
        if ended.cause == LOCK_LOST and self._keeping is not None:
            return ended._replace(detail=self._keeping.why)
        if self._stopped_by is not None:
            return ended._replace(exit_code=None, signal=self._stopped_by, wants_terminal=True)
        if self._child.terminal.lent and ended.signal in (signal.SIGINT, signal.SIGQUIT):
            # It had the terminal, so the Ctrl-C that was meant for both went to it alone.
            return ended._replace(cause=INTERRUPTED, our_signal=ended.signal)
        return ended

    def _elapsed(self) -> float:
        return time.monotonic() - self._child.went


def _collect_orphans() -> None:
    """As pid 1 of a container we inherit what the command leaves behind."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
