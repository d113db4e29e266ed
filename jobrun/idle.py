"""The cheap way out: a call that has nothing to do, told by one read.

cron may call every minute for windows of an hour, so most calls end here, without the lock and
without loading what planning needs. Anything that is not plainly idle is decided under the lock.
"""

from __future__ import annotations

from jobrun import ledger_skip, sqlite_file
from jobrun.errors import JobrunError
from jobrun.instants import from_iso

_REASON = "no-closed-window"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jobrun.job import Job
    from jobrun.ledger import Ledger
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
        return _is_told(
            job,
            lambda: ledger_skip.idle_row(file, job.name),
            lambda now: ledger_skip.note_idle(file, job.name, now),
            clock,
            lines,
        )
    finally:
        file.close()


def way_out_of(job: Job, ledger: Ledger, clock: Callable[[], float], lines: Lines) -> bool:
    """The same, by a ledger that is open."""
    return _is_told(
        job,
        lambda: ledger.idle_row(job.name),
        lambda now: ledger.skip(job.name, _REASON, None, None, now, believed=True),
        clock,
        lines,
    )


def _is_told(
    job: Job,
    read: Callable[[], tuple[object, ...] | None],
    note: Callable[[int], object],
    clock: Callable[[], float],
    lines: Lines,
) -> bool:
    if job.accept_schedule or job.accept_clock or job.dry_run:
        return False
    try:
        now = int(clock())
        ready = _ready_at(read(), job, now)
        if ready is None:
            return False
        note(now)
    except JobrunError:
        return False  # the long way says what is wrong
    lines.idle({"job": job.name, "reason": _REASON, "next": ready, "at": now})
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
