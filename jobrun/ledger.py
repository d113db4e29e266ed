"""The few calls that a ledger must offer.

Every write is one transaction, is made under the job's lock (but `skip`, `pause`, `resume`,
`override`, `note_event`), and shows the token that the lock's acquisition got, or a further try in
it: a writer whose token is no longer the job's is refused (FENCED). A run beside others
(Result.beside) is recorded without the lock, and refused where its window has another token.

Errors: LedgerError (74) unreadable, full, corrupt, newer; Refused (75) busy for longer than the
busy timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from jobrun.rows import (
    Block,
    Claim,
    Claimed,
    EventRow,
    Finished,
    Gap,
    HostRow,
    JobRow,
    Opened,
    Opening,
    Pause,
    Result,
    RunRow,
    Server,
    Setting,
    SkipRow,
    WindowRow,
)

if TYPE_CHECKING:
    from jobrun.exported import Exported, Part, Row, Table
    from jobrun.ledger_import import Taken

# From a watermark to the next boundary of the job's grid; None for a job without windows.
NextBoundary = Callable[[int], int]


class Ledger(Protocol):
    @property
    def address(self) -> str:
        """What a person calls it: the path of the file, or its address."""

    @property
    def created(self) -> bool:
        """Whether this call made it."""

    @property
    def shared(self) -> bool:
        """Whether it lies in a database of the user's own."""

    @property
    def namespace(self) -> str:
        """What the names of its locks on a server have, so that those of other ledgers are others:
        the schema, the name space of a file, or nothing."""

    skew: int | None
    """Milliseconds that this host's clock is ahead of the server's; None: a file has none."""

    # -- reading ---------------------------------------------------------------------------------

    def job(self, name: str) -> JobRow | None: ...

    def jobs(self) -> list[JobRow]:
        """All of them, by name."""

    def overrides(self, job: str) -> str | None:
        """Options that are set on record; read on every way to a command, so this alone."""

    def idle_row(self, job: str) -> tuple[object, ...] | None:
        """What tells that there is nothing to do, see ledger_skip.py."""

    def window(self, job: str, key: str) -> WindowRow | None: ...

    def taken(self, job: str, planned: Mapping[str, int]) -> set[str]:
        """Which of these windows run, or have been claimed since that was the token of their row
        (0: there was none)."""

    def unfinished(self, job: str) -> list[WindowRow]:
        """Running, failed and held windows (not units of --key), oldest first."""

    def blocks(self, job: str, since: int) -> Iterator[Block]:
        """Window rows and gaps that end after `since`, by start; void rows are left out.

        Reads in pages: no statement stays open between two of them.
        """

    def processed(self, job: str, below: int, limit: int) -> list[Block]:
        """The `limit` processed windows nearest below the instant `below`, by start."""

    def count_blocks(self, job: str, since: int, until: int) -> int:
        """How many windows have a row or lie in a gap, of those that start in [since, until)."""

    def open_runs(self, job: str | None = None) -> list[RunRow]:
        """Runs without an outcome, of one job or of all; oldest first."""

    def run(self, run_id: int) -> RunRow | None: ...

    def runs(
        self,
        job: str | None = None,
        key: str | None = None,
        since: int | None = None,
        limit: int = 20,
        until: int | None = None,
        host: str | None = None,
    ) -> list[RunRow]:
        """Newest first; those that started in [since, until)."""

    def windows(self, job: str, since: int, until: int, limit: int = 10_000) -> list[WindowRow]:
        """Rows whose window meets [since, until), by start, void ones included."""

    def keys(self, job: str, limit: int = 100) -> list[WindowRow]:
        """Units that are no windows (--key), newest first."""

    def failures(self, job: str | None = None, limit: int = -1) -> list[WindowRow]:
        """What is dead, held or failed, windows and units of --key, by their last change.

        The `limit` that changed last; -1: all.
        """

    def gaps(self, job: str, since: int, until: int) -> list[Gap]: ...

    def values(self, job: str, key: str) -> dict[str, str]:
        """What the newest run that processed the window has left for other jobs, by name."""

    def skips(self, job: str | None = None, limit: int = 20) -> list[SkipRow]:
        """Newest first, by the last time each was repeated."""

    def events(
        self, job: str | None = None, limit: int = 20, kind: str | None = None
    ) -> list[EventRow]:
        """Newest first."""

    def hosts(self, limit: int = -1) -> list[HostRow]:
        """Who has called, the `limit` (-1: all) that were seen last, newest first."""

    def host(self, name: str) -> HostRow | None: ...

    def skips_about(self, job: str, key: str, since: int, until: int) -> list[SkipRow]:
        """Those of a key, and those of the job as a whole that meet [since, until]; oldest first.

        Not `no-closed-window`, which is about none. At most ABOUT of the key and of the job.
        """

    def events_about(self, job: str, key: str, since: int, until: int) -> list[EventRow]:
        """Those of a key, and those of the job in [since, until]; ABOUT of each, oldest first."""

    def weight(self, run_id: int) -> int | None:
        """How many windows more have failed one after another if this run has: 0 where its window
        counts already; None where it does not count, as by hand."""

    def usual(self, job: str) -> float | None:
        """The median duration, in seconds, of the last successful runs; None before the first."""

    # -- writing, under the job's lock ------------------------------------------------------------

    def open(
        self, opening: Opening, claim: Claim | None, next_boundary: NextBoundary | None
    ) -> Opened | None:
        """Close dead runs, take a token, write what planning decided, claim the first window.

        None where the token read is no longer the job's, or where the job has been paused since
        and the claim is not by hand: plan again. What was lost may itself pause it (Breaker): then
        all is written but the claim, and whoever planned plans again, too.
        """

    def finish(
        self, result: Result, claim: Claim | None, next_boundary: NextBoundary | None
    ) -> Finished:
        """Close the run, mark its window, move the watermark, claim the next window.

        Not the last of these where the job is paused by now, unless the claim is by hand. The run
        itself may pause it, or end such a pause: see Breaker. Nor where others have taken all that
        the claim names (Claim.planned).
        """

    def claim(self, job: str, token: int, claim: Claim) -> Claimed | None:
        """Claim a run that had to wait for its turn, in a call that has claimed before.

        Claim.again takes a new token: what the run before it has left behind, and still lives, is
        refused as it would be after another call's claim. None where another holder has been
        meanwhile, or the job is paused.
        """

    def stand(self, result: Result) -> Pause | None:
        """Of a run that is on record, and was to be made good by its call (Result.goes_on): that it
        is not, so that its failure is one to be told of and, counted already, to be weighed by
        Result.breaker. The pause that this makes.

        Nothing where another holder has been meanwhile: it tells how its own run ends.
        """

    def skip_windows(
        self,
        opening: Opening,
        rows: tuple[tuple[str, int, int], ...],
        next_boundary: NextBoundary | None,
    ) -> Opened | None:
        """By hand: mark (key, start, end) windows as skipped; ranges come as gaps in `opening`."""

    def set_watermark(
        self, opening: Opening, to: int, next_boundary: NextBoundary
    ) -> Opened | None:
        """By hand: up or down; lowering it makes rows and gaps that end after now void."""

    def forget(self, job: str, token: int) -> bool:
        """Every row of the job; False where another holder has been since its token was read."""

    # -- writing, without it ----------------------------------------------------------------------

    def skip(
        self,
        job: str,
        reason: str,
        key: str | None,
        detail: str | None,
        at: int,
        believed: bool = False,
    ) -> bool:
        """Record a skip, folded; tried for a second, then given up (False): it is printed anyway.

        `believed` is whether `at` is of a sound clock, so that the largest clock seen may follow.
        """

    def pause(self, job: str, pause: Pause) -> bool:
        """No further run of the job starts but by hand; False where there is no such job."""

    def resume(self, job: str, by: str, at: int) -> bool:
        """End the pause on record; False where there is none."""

    def note_event(self, job: str, key: str | None, kind: str, detail: str, at: int) -> None:
        """Record what a person did that changes no other row of the job."""

    def override(self, job: str, setting: Setting) -> bool:
        """Set options on record; False where they are no longer what was read."""

    def note_host(self, now: int) -> None:
        """That this host is there: at once. Every call that writes says so anyway."""

    def forget_host(self, host: str) -> bool:
        """False where it has a run that has not ended."""

    # -- to another ledger, from another ledger ---------------------------------------------------

    def exporting(
        self, jobs: Sequence[str]
    ) -> AbstractContextManager[tuple[int, Iterator[tuple[Table, Row]]]]:
        """The largest token of what was forgotten, and all rows of the jobs: as at one instant.

        No job is named: of all.
        """

    def judge_import(self, exported: Exported, part: Part) -> str:
        """What `take_import` would do. Raises UsageError for another history."""

    def take_import(self, exported: Exported, part: Part, used: Collection[int] = ()) -> Taken:
        """Under the job's lock: all that a file has of it or nothing; see ledger_import.py."""

    def keep_token_floor(self, floor: int) -> None:
        """No token up to `floor` is given to a job that is not on record yet."""

    # -- care -------------------------------------------------------------------------------------

    def server(self) -> Server | None:
        """What there is to say of its server; None: it has none."""

    def problems(self) -> list[str]:
        """What a check of the whole ledger finds: integrity, the watermarks, impossible rows."""

    def close(self) -> None: ...
