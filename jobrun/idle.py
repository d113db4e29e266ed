"""The cheap way out: a call that has nothing to do, told by one read.

cron may call every minute for windows of an hour, so most calls end here, without the lock and
without loading what planning needs. Anything that is not plainly idle is decided under the lock.
"""

from __future__ import annotations

from jobrun import ledger_skip, sqlite_file
from jobrun.errors import JobrunError
from jobrun.instants import from_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jobrun.database import Database
    from jobrun.job import Job
    from jobrun.lines import Lines


def way_out(job: Job, ledger: str, clock: Callable[[], float], lines: Lines) -> bool:
    """Whether the call is idle, by the file `ledger`; then its skip is on record and told.

    Taken only where the schedule and --after are the stored ones, nothing is paused, set, running,
    failed or held, and watermark <= now < next + lag.
    """
    try:
        file, _ = sqlite_file.connect(ledger, create=False)
    except JobrunError:
        return False  # the long way says what is wrong, or makes the ledger
    try:
        return is_told(job, file, clock, lines)
    finally:
        file.close()


def is_told(job: Job, database: Database, clock: Callable[[], float], lines: Lines) -> bool:
    """The same, of a ledger that is open."""
    if job.accept_schedule or job.accept_clock or job.dry_run:
        return False
    try:
        now = int(clock())
        ready = _ready_at(ledger_skip.idle_row(database, job.name), job, now)
        if ready is None:
            return False
        ledger_skip.note_idle(database, job.name, now)
    except JobrunError:
        return False  # the long way says what is wrong
    reason = "no-closed-window"
    lines.idle({"job": job.name, "reason": reason, "next": ready, "at": now})
    return True


def _ready_at(row: tuple[object, ...] | None, job: Job, now: int) -> int | None:
    """The first instant at which a call will find work, if this one finds none."""
    if row is None:
        return None
    schedule, first, watermark, following, paused_at, overrides, spec, unfinished = row
    if schedule != job.schedule or paused_at is not None or overrides is not None or unfinished:
        return None
    if job.first is not None and job.first != first:
        return None
    if watermark is None or following is None or not _waits_for_the_same(job, str(spec or "")):
        return None
    ready = from_iso(str(following)) + job.lag
    return ready if from_iso(str(watermark)) <= now < ready else None


def _waits_for_the_same(job: Job, spec: str) -> bool:
    """Whether --after is that of the last call, as far as can be told without reading all of it.

    Another one may close a circle, and is looked at.
    """
    after = job.given.get("--after")
    return '"--after":' not in spec if after is None else f'"--after": "{after}"' in spec
