"""What the ledger holds, as frozen values.

Instants are whole seconds since 1970-01-01T00:00Z. A window is half-open, [start, end).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jobrun.instants import HOUR
from jobrun.value import NamedTuple

# The states of a window. No row and no gap means pending.
RUNNING = "running"
PROCESSED = "processed"
FAILED = "failed"  # will be tried again
DEAD = "dead"  # attempts used up: finished, listed until a person looks
SKIPPED = "skipped"
HELD = "held"
VOID = "void"  # ended after now when watermark or clock was set back; listed, in nobody's way
FINISHED = (PROCESSED, SKIPPED, DEAD)
UNFINISHED = (RUNNING, FAILED, HELD)
STATES = (*UNFINISHED, *FINISHED, VOID)
GAP = "gap"  # stands where a block is no window but a gap

# The outcomes of a run. None means that it is running, or was when its host died.
SUCCEEDED = "succeeded"
FAILED_RUN = "failed"
TIMED_OUT = "timed-out"
KILLED = "killed"
NOT_STARTED = "not-started"
INTERRUPTED = "interrupted"
LOST = "lost"
FENCED = "fenced"
FAILURES = (FAILED_RUN, TIMED_OUT, KILLED, NOT_STARTED, LOST)
OUTCOMES = (SUCCEEDED, *FAILURES, INTERRUPTED, FENCED)

# The reason of a processed window that its own command marked (jobrun_done).
MARKED = "marked"

# Why a window runs.
NEW = "new"
RETRY = "retry"
RERUN = "rerun"
BACKFILL = "backfill"
KINDS = (NEW, RETRY, RERUN, BACKFILL, "lookback")  # the last is reserved

# Why a window, or a whole call, does not run.
LOCK_HELD = "lock-held"
ORPHAN_ALIVE = "orphan-alive"
KEY_EXISTS = "key-exists"
NO_CLOSED_WINDOW = "no-closed-window"
NOT_CLOSED = "not-closed"
NOT_LATEST = "not-latest"
TOO_OLD = "too-old"
BY_HAND = "by-hand"
RETRY_LATER = "retry-later"
WINDOW_HELD = "window-held"
PAUSED = "paused"
CLOCK_BEHIND = "clock-behind-watermark"
# Nothing was run because it could not be now: these give `--busy-exit`.
BUSY = (LOCK_HELD, ORPHAN_ALIVE, PAUSED, CLOCK_BEHIND, RETRY_LATER, WINDOW_HELD)


class JobRow(NamedTuple):
    name: str
    schedule: str | None  # canonical text (schedule.py); None for a job without windows
    first: str | None  # the first `--first` as typed
    watermark: int | None  # end of the unbroken row of finished windows
    next: int | None  # next boundary after the watermark, as computed when it was written
    token: int  # grows with every acquisition of the lock
    paused_at: int | None
    paused_until: int | None
    paused_reason: str | None
    largest_now: int  # the largest clock reading seen
    clock_jump_at: int | None  # first call that saw the clock more than 31 days ahead
    told: str | None  # the failure that was printed last (`--remind`), None after a success
    told_at: int | None
    first_seen: int
    last_seen: int
    spec: str | None  # options, command and caller of the last call, as JSON

    def is_paused(self, now: int) -> bool:
        return self.paused_at is not None and (self.paused_until is None or now < self.paused_until)


class WindowRow(NamedTuple):
    job: str
    key: str
    start: int | None  # None for a unit that is no window (--key)
    end: int | None
    state: str
    attempts: int  # starts
    failures: int  # starts that count as failures; interrupted ones do not
    windows: int  # 1, or how many a merged window stands for
    partial: bool  # a seam after a schedule change
    next_attempt_at: int | None
    token: int
    reason: str | None
    changed_at: int

    def due_at(self, now: int) -> int | None:
        """When it may be tried again, where that is later than now.

        More than an hour ahead is no delay of ours (R24): the clock was wrong when it failed.
        """
        due = self.next_attempt_at
        return due if self.state == FAILED and due is not None and 0 < due - now <= HOUR else None


class Gap(NamedTuple):
    """A range that was given up: finished for the watermark, one row however many windows."""

    start: int
    end: int
    windows: int | None  # how many; None where counting would be slow
    reason: str
    detail: str | None = None
    at: int = 0
    void: bool = False  # as a window's state: kept and listed, in nobody's way


class Block(NamedTuple):
    """A stretch of time that a window row or a gap takes up."""

    start: int
    end: int
    state: str  # a window's state, or GAP
    key: str | None
    next_attempt_at: int | None
    windows: int = 1  # as of a WindowRow
    partial: bool = False


class RunRow(NamedTuple):
    id: int
    job: str
    key: str | None  # None for a plain run
    kind: str | None
    attempt: int
    token: int
    host: str
    pid: int | None
    child_pid: int | None
    birth: str | None  # boot id and start times, to tell a process from a later one with its pid
    user: str
    terminal: bool
    started: int
    ended: int | None
    took: float | None  # seconds, monotonic
    outcome: str | None
    exit_code: int | None
    signal: int | None
    output_bytes: int | None
    start: int | None  # the window's bounds, joined in
    end: int | None


class SkipRow(NamedTuple):
    id: int
    job: str
    key: str | None
    reason: str
    detail: str | None
    at: int
    times: int  # repeats of the same reason, key and detail are folded
    last_at: int


class EventRow(NamedTuple):
    id: int
    at: int
    job: str
    key: str | None
    kind: str
    detail: str | None


class Caller(NamedTuple):
    """Who makes the call: kept with each run."""

    host: str
    pid: int
    user: str
    terminal: bool


class Claim(NamedTuple):
    """One run that is about to start: its command exists, blocked, with a pid and a birth."""

    key: str | None
    start: int | None
    end: int | None
    kind: str | None
    partial: bool
    windows: int
    child_pid: int
    birth: str
    started: int


class Claimed(NamedTuple):
    run_id: int
    attempt: int
    started: int


class Opening(NamedTuple):
    """What the first writing transaction of a call does before it claims anything."""

    job: str
    token: int  # as read; another value by now means that another holder has been: plan again
    now: int
    spec: str | None = None
    schedule: str | None = None  # to be stored (first run, or consent)
    first: str | None = None
    watermark: int | None = None  # to be set where there is none (first run)
    gaps: tuple[Gap, ...] = ()
    ended: tuple[tuple[str, str], ...] = ()  # (key, reason): failed rows that are given up
    lost: tuple[int, ...] = ()  # runs whose processes are gone
    void: tuple[str, ...] = ()  # keys of unfinished rows that have not closed (unclosed.py)
    events: tuple[tuple[str | None, str, str], ...] = ()  # (key, kind, detail)
    clock_jump_at: int | None = None  # stored as given: None clears it
    keep_largest_now: bool = False  # a clock that is not believed yet


class Opened(NamedTuple):
    token: int
    watermark: int | None
    claimed: Claimed | None


class Result(NamedTuple):
    """How a run ended, for the record."""

    job: str
    run_id: int
    token: int
    key: str | None
    outcome: str
    exit_code: int | None
    signal: int | None
    ended: int
    took: float
    output_bytes: int
    next_attempt_at: int | None  # of the window, where it failed
    told: str | None  # to be stored: what has been printed about failures
    told_at: int | None


class Finished(NamedTuple):
    outcome: str  # as recorded: the command may have marked itself, or we were fenced
    window_state: str | None
    watermark: int | None
    paused: bool
    claimed: Claimed | None  # of the next window
    marked: bool = False  # the command marked it itself (jobrun_done): processed, whatever its code


class Stored(NamedTuple):
    """What planning reads. `blocks` goes to the ledger only as far as it is drawn on."""

    job: JobRow | None
    unfinished: tuple[WindowRow, ...]  # windows only, oldest first
    blocks: Callable[[int], Iterator[Block]]  # those that end after an instant, by start
