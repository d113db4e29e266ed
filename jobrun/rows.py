"""What the ledger holds, as frozen values.

Instants are whole seconds since 1970-01-01T00:00Z. A window is half-open, [start, end).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.upstream import Upstream

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
UNDONE = (FAILED, HELD, DEAD)  # of these a person may want to know

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

# The reason of a dead or held window that a person has settled; and its event.
RESOLVED = "resolved"

# An event, once after `failed`: nothing of the job is failed any longer.
RECOVERED = "recovered"

# An event: a call is refused until a person has a say (78); once, however many there are.
REFUSED = "refused"

# Why a window runs.
NEW = "new"
RETRY = "retry"
RERUN = "rerun"
BACKFILL = "backfill"
LOOKBACK = "lookback"  # done, and again because a new one is about to run
KINDS = (NEW, RETRY, RERUN, BACKFILL, LOOKBACK)

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
UPSTREAM_PENDING = "upstream-pending"
UPSTREAM_FAILED = "upstream-failed"
CONDITION_FALSE = "condition-false"
STORE_DOWN = "store-down"  # never on record
# Nothing was run because it could not be now: these give `--busy-exit`.
BUSY = (
    LOCK_HELD, ORPHAN_ALIVE, PAUSED, CLOCK_BEHIND, RETRY_LATER, WINDOW_HELD, UPSTREAM_PENDING,
    UPSTREAM_FAILED,
)  # fmt: skip
UPSTREAM = (UPSTREAM_PENDING, UPSTREAM_FAILED)


# Whose a pause is that `--pause-after` made. A person's has an `@`: a user may be called jobrun.
BREAKER = "jobrun"


class Pause(NamedTuple):
    """Why a job does not run, since when and until when; `until` None: until it is resumed."""

    at: int
    until: int | None
    by: str | None
    reason: str | None

    @property
    def text(self) -> str:
        """`by anna@db1: source down`"""
        by = f"by {self.by}" if self.by else "on record"
        return f"{by}: {self.reason}" if self.reason else by

    def holds(self, now: int) -> bool:
        return self.until is None or now < self.until

    def is_probed(self, now: int) -> bool:
        """Whether it is the breaker's and its time is over, so that one window may try."""
        return self.by == BREAKER and not self.holds(now)

    def shows(self, now: int) -> bool:
        """Whether the job does not run as ever: a person's pause is nothing once it is over."""
        return self.holds(now) or self.is_probed(now)


# What an event tells of: changes that a person may want to hear about. A closed set.
EVENTS = (
    FAILED, RECOVERED, DEAD, LOST, HELD, "due", RESOLVED, PAUSED, "resumed", "blocked", "orphan",
    "clock-behind", "clock-doubted", "clock-believed", "clock-set-back", "schedule-changed",
    "boundaries-moved", "after-changed", "first-ignored", "watermark-set", "watermark-settled",
    BY_HAND, NOT_LATEST, TOO_OLD, REFUSED, "set", "unset", "stop",
)  # fmt: skip


class JobRow(NamedTuple):
    name: str
    schedule: str | None  # canonical text (schedule.py); None for a job without windows
    first: str | None  # the first `--first` as typed
    watermark: int | None  # end of the unbroken row of finished windows
    next: int | None  # next boundary after the watermark, as computed when it was written
    token: int  # grows with every acquisition of the lock, and every try that follows in a call
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
    paused_by: str | None = None
    failing: int = 0  # windows that failed one after another since the last one processed
    failing_since: int | None = None
    overrides: str | None = None  # options set on record, as JSON
    trouble_since: int | None = None  # an event has told that it fails, none yet that it recovered

    @property
    def pause(self) -> Pause | None:
        """As on record; its time may be over."""
        if self.paused_at is None:
            return None
        return Pause(self.paused_at, self.paused_until, self.paused_by, self.paused_reason)

    def paused(self, pause: Pause) -> JobRow:
        """As it is with that pause."""
        at, until, by, reason = pause
        return self._replace(paused_at=at, paused_until=until, paused_by=by, paused_reason=reason)

    def is_probed(self, now: int) -> bool:
        """Whether the breaker's pause is over, so that one window may try."""
        return self.pause is not None and self.pause.is_probed(now)

    def is_paused(self, now: int) -> bool:
        return self.pause is not None and self.pause.holds(now)

    def shown_pause(self, now: int) -> Pause | None:
        pause = self.pause
        return pause if pause is not None and pause.shows(now) else None


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

    def is_marked_by(self, run: RunRow) -> bool:
        """Whether that run's command has marked it as done (jobrun_done)."""
        is_marked = self.state == PROCESSED and self.reason == MARKED
        return is_marked and self.token == run.token

    def due_at(self, now: int, longest: int) -> int | None:
        """When it may be tried again, where that is later than now.

        More ahead than the longest delay that its job has (fate.py) is no delay of ours: the clock
        was wrong when it failed.
        """
        due = self.next_attempt_at
        is_ahead = self.state == FAILED and due is not None and 0 < due - now <= longest
        return due if is_ahead else None


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
    token: int | None = None


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
    birth: str | None  # boot, pid namespace, start times: tells a process from others of its pid
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
    slot: int | None = None  # which lock beside the job's it holds (overlap.py)
    why: str | None = None  # it could not be started, or lost the lock

    def marker(self, ledger: str) -> dict[str, str]:
        """Variables that its command's environment has, and no other's: see tree.Marker."""
        return {"JOBRUN_RUN_ID": str(self.id), "JOBRUN_LEDGER": ledger}


class SkipRow(NamedTuple):
    id: int
    job: str
    key: str | None
    reason: str
    detail: str | None
    at: int
    times: int  # repeats of the same reason, key and detail are folded
    last_at: int


class ValueRow(NamedTuple):
    """What a window has left for other jobs."""

    job: str
    key: str
    name: str
    value: str


class EventRow(NamedTuple):
    id: int
    at: int
    job: str
    key: str | None
    kind: str
    detail: str | None


FAR = 5000  # milliseconds between two clocks from which on a person is told of it


class HostRow(NamedTuple):
    """A machine that has called."""

    host: str
    first_seen: int
    last_seen: int  # to the minute
    version: str | None  # of jobrun there; None where it was too old to say so
    skew: int | None  # milliseconds that its clock is ahead of the server's; None: a file has none

    @property
    def is_far(self) -> bool:
        """Whether its clock is: windows close by it."""
        return self.skew is not None and abs(self.skew) > FAR


class Server(NamedTuple):
    """What a ledger's server is set to, for the session that was asked."""

    version: str
    number: int  # of the version: 140005
    role: str
    is_superuser: bool
    owner: str  # of the ledger's tables, which a later version changes
    may_change: bool  # whether the role may
    synchronous_commit: str
    fsync: str
    is_direct: bool  # False: a pooler is in between
    missing: str  # what the role may not do with each of the tables: "DELETE, UPDATE"
    rights: str  # the statements that let it


class Setting(NamedTuple):
    """A change of the options that are set on record, and its event."""

    was: str | None  # JobRow.overrides as read
    text: str | None
    kind: str
    detail: str
    at: int


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
    by_hand: bool = False  # then also where the job is paused
    attempt: int = 1  # of a plain run; that of a unit is counted in its row
    slot: int | None = None
    again: bool = False  # the same that its call has just run: under a new token
    # Of a range that several work on: the token of its row when that was planned, 0 for none. One
    # that runs, or has another, is another's; then the first of `instead` that is not is claimed.
    planned: int | None = None
    instead: tuple[Claim, ...] = ()


class Claimed(NamedTuple):
    run_id: int
    attempt: int
    started: int
    failures: int = 0  # of the unit, before this run
    token: int = 0  # that every later write of the run shows
    key: str | None = None


class Skipped(NamedTuple):
    """A window that is finished without a run."""

    key: str
    start: int
    end: int
    reason: str
    partial: bool = False
    windows: int = 1


class Left(NamedTuple):
    """What the command of a run has left for other jobs."""

    run_id: int
    values: tuple[tuple[str, str], ...]


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
    ended: tuple[tuple[str, str], ...] = ()  # (key, reason): rows that are given up
    due: tuple[str, ...] = ()  # keys of units that failed, and may be tried again at once
    skipped: tuple[Skipped, ...] = ()
    lost: tuple[int, ...] = ()  # runs whose processes are gone
    left: tuple[Left, ...] = ()  # by these, kept of those whose command has marked its window
    void: tuple[str, ...] = ()  # keys of unfinished rows that have not closed (unclosed.py)
    fates: tuple[tuple[str, str], ...] = ()  # (key, held or dead) of lost ones that don't run again
    events: tuple[tuple[str | None, str, str], ...] = ()  # (key, kind, detail)
    clock_jump_at: int | None = None  # stored as given: None clears it
    keep_largest_now: bool = False  # a clock that is not believed yet
    resumed_by: str | None = None  # who ends the pause on record; BREAKER: only if its time is over
    breaker: Breaker | None = None  # by which what is lost is weighed


class Opened(NamedTuple):
    token: int
    watermark: int | None
    claimed: Claimed | None  # None also where what was lost has paused the job
    tripped: Pause | None = None  # the breaker has paused it by what was lost
    resumed: Pause | None = None  # ... or has ended that pause by a lost one that is marked
    marked: tuple[int, ...] = ()  # lost runs whose command had marked its window: it is processed


class Breaker(NamedTuple):
    """`--pause-after`: after so many failed windows in a row the job is paused."""

    windows: int
    probe_after: int | None  # `--resume-after`: seconds from a pause to the next try
    # How many windows closed after an instant and wait for one that failed, by what is on record
    # from an instant on; None: nothing waits.
    waiting_since: Callable[[int, Callable[[int], Iterable[Block]]], int] | None


class Failing(NamedTuple):
    """What a breaker goes by, as it is on record."""

    failing: int  # as in JobRow
    since: int | None
    pause: Pause | None


class Fate(NamedTuple):
    """What becomes of a unit after a run. `wait`: seconds after which this call tries it again."""

    is_dead: bool = False
    next_attempt_at: int | None = None
    wait: float | None = None


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
    breaker: Breaker | None = None
    values: tuple[tuple[str, str], ...] = ()  # left for other jobs, kept if the window is processed
    is_dead: bool = False  # its attempts are used up
    goes_on: bool = False  # the call itself tries again: no word yet of a job that fails
    beside: bool = False  # others run beside it: not the job's token guards it, but its window's
    schedule: str | None = None  # the grid it goes by, which another call may have changed since
    why: str | None = None  # it could not be started, or lost the lock


class Finished(NamedTuple):
    outcome: str  # as recorded: the command may have marked itself, or we were fenced
    window_state: str | None
    watermark: int | None
    paused: bool
    claimed: Claimed | None  # of the next window
    marked: bool = False  # the command marked it itself (jobrun_done): processed, whatever its code
    tripped: Pause | None = None  # the breaker has paused the job by this run
    resumed: Pause | None = None  # ... or has ended that pause by it


class Stored(NamedTuple):
    """What planning reads. `blocks` goes to the ledger only as far as it is drawn on."""

    job: JobRow | None
    unfinished: tuple[WindowRow, ...]  # windows only, oldest first
    blocks: Callable[[int], Iterator[Block]]  # those that end after an instant, by start
    processed: Callable[[int, int], list[Block]]  # below an instant the nearest n, by start
    upstreams: tuple[Upstream, ...] = ()  # of a scheduled call
    failures: Callable[[], Sequence[WindowRow]] = tuple  # dead, held, failed; units too
    taken: frozenset[str] = frozenset()  # keys that other calls have under way


class Source(NamedTuple):
    """Where planning reads of other jobs."""

    job: Callable[[str], JobRow | None]
    blocks: Callable[[str, int], Iterator[Block]]  # of a job, those that end after an instant
    values: Callable[[str, str], Mapping[str, str]]  # that a job's window, by its key, has left
