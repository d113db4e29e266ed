"""What becomes of a window whose run failed or was lost: again and when, dead, or held. Pure.

Loaded only where something has failed: most calls never need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from jobrun import options, rows
from jobrun.instants import HOUR
from jobrun.job import LONGEST_WAIT
from jobrun.plans import Plan, note
from jobrun.rows import Block, Fate, Stored, WindowRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.lastcall import LastCall


# A unit that was given such a key on purpose is told to be tried again with a command too much.
_AS_OF_WINDOWS = re.compile(r"[^:]+:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def after_failure(
    job: Job,
    key: str | None,
    length: int | None,
    failures: int,
    answer: int,
    started: int,
    ended: float,
) -> Fate:
    """The unit's fate at its `failures`th failure; `answer` is jobrun's exit code for the run.

    `length` of the window in seconds, None for what is no window. With `--retries` the delay counts
    from the end of the run, so that a long one is not followed by the next at once; without it from
    the start, so that a call a minute later is not in vain.
    """
    if is_final(job, failures, answer):
        return Fate(is_dead=key is not None)
    seconds = delay(job, failures, length)
    if not job.retries:
        return Fate(next_attempt_at=None if seconds is None else started + seconds)
    assert seconds is not None
    late = seconds + jitter(job.name, key, failures, seconds)
    waits = failures <= job.retries and seconds <= LONGEST_WAIT
    return Fate(next_attempt_at=ceil(ended) + ceil(late), wait=late if waits else None)


def limit(job: Job) -> int | None:
    """After so many failures a unit is dead; None: never."""
    return _limit(job.max_attempts, job.retries)


def _limit(max_attempts: int | None, retries: int) -> int | None:
    if max_attempts is not None:
        return max_attempts
    return retries + 1 if retries else None


def is_final(job: Job, failures: int, answer: int | None = None) -> bool:
    """Whether it is not tried again. A lost run has no answer: it only counts."""
    most = limit(job)
    if most is not None and failures >= most:
        return True
    if answer is None:
        return False
    if job.retry_on is not None:
        return not _is_among(answer, job.retry_on)
    return job.give_up_on is not None and _is_among(answer, job.give_up_on)


def _is_among(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= code <= high for low, high in ranges)


def delay(job: Job, failures: int, length: int | None) -> int | None:
    """Seconds to the next attempt, doubled with each failure; None: at once (R24).

    At most `--retry-max-delay`; without it an hour and, without `--retries`, the window's length.
    """
    if length is None and not (job.retries or "--retry-delay" in job.given):
        return None  # a unit of --key, as long as nobody asks for a delay
    return min(job.retry_delay << min(max(failures, 1) - 1, 32), _longest(job, length))


def _longest(job: Job, length: int | None) -> int:
    if job.retry_max_delay is not None:
        return job.retry_max_delay
    if job.mode in options.NO_UNITS:
        return LONGEST_WAIT
    if job.retries or length is None:
        return max(HOUR, job.retry_delay)
    return min(length, HOUR)


def jitter(job: str, key: str | None, failures: int, seconds: int) -> float:
    """Up to a quarter of the delay: jobs that fail together don't come again together.

    From a checksum and not by chance, so that whoever computes it gets the same.
    """
    from zlib import crc32

    drawn = crc32(f"{key or job} {failures}".encode("utf-8", "surrogateescape"))
    return seconds * drawn / 2**34


def longest_delay(job: Job) -> int:
    """More than this ahead is no delay of the job's, but a clock that was wrong when it failed."""
    longest = max(HOUR, job.retry_delay, job.retry_max_delay or 0)
    return longest + longest // 4 + 2 if job.retries else longest


def longest_on_record(last: LastCall) -> int:
    """The same, as the last call of the job had it."""
    longest = max(last.seconds(name, HOUR) for name in ("--retry-delay", "--retry-max-delay"))
    longest = max(HOUR, longest)
    return longest + longest // 4 + 2 if last.options.get("--retries", "0") != "0" else longest


# -- runs that nobody saw end ----------------------------------------------------------------------


def after_loss(job: Job, running: Sequence[WindowRow]) -> dict[str, str]:
    """By key, which of the rows of lost runs are held or dead now; the others are due at once.

    A lost run is a failure without an exit code.
    """
    fates = {row.key: _after_loss(job.on_lost, limit(job), row) for row in running}
    return {key: state for key, state in fates.items() if state != rows.FAILED}


def after_loss_on_record(last: LastCall, row: WindowRow) -> str:
    """What the next call makes of the row, if it is as the last one: failed is due at once."""
    most = _limit(last.number("--max-attempts"), last.number("--retries") or 0)
    return _after_loss(last.options.get("--on-lost"), most, row)


def _after_loss(on_lost: str | None, most: int | None, row: WindowRow) -> str:
    if on_lost == "hold":
        return rows.HELD
    return rows.DEAD if most is not None and row.failures + 1 >= most else rows.FAILED


def as_they_will_be(
    known: Stored, running: Sequence[WindowRow], fates: Mapping[str, str]
) -> Stored:
    """What planning is to read: the record as the opening of this call leaves it."""
    if not fates:
        return known
    settled = [row._replace(state=fates[row.key]) for row in running if row.key in fates]
    changed = (row._replace(state=fates.get(row.key, row.state)) for row in known.unfinished)

    def blocks(since: int) -> Iterator[Block]:
        for block in known.blocks(since):
            yield block._replace(state=fates.get(block.key or "", block.state))

    unfinished = tuple(row for row in changed if row.state in rows.UNFINISHED)
    return known._replace(
        unfinished=unfinished, blocks=blocks, failures=lambda: [*known.failures(), *settled]
    )


def tell_loss(plan: Plan, fates: Mapping[str, str]) -> Plan:
    """Written and said with the plan, whatever else it is: a person must hear of it.

    Unless it is the person who has it tried again now: the first unit is claimed in the transaction
    that writes it, the later ones may never have their turn.
    """
    name = plan.opening.job
    again = {unit.key for unit in plan.units[:1]} | set(plan.opening.due)
    told = [(key, state) for key, state in fates.items() if key not in again]
    events = tuple((key, state, "its run was lost") for key, state in told)
    notes = tuple(
        note("WARNING", name, state, hint(name, key, state), key=key) for key, state in told
    )
    # That the watermark moves over what is dead now is no finding.
    others = (event for event in plan.opening.events if event[1] != "watermark-settled")
    opening = plan.opening._replace(fates=tuple(fates.items()), events=(*events, *others))
    return plan._replace(opening=opening, notes=(*notes, *plan.notes))


def hint(name: str, key: str, state: str) -> str:
    """What a person can do about what is dead or held."""
    again = options.again("retry", name, key, is_unit=not _AS_OF_WINDOWS.fullmatch(key))
    if state == rows.DEAD:
        return again
    resolve = options.typed("resolve", name, key)
    return f'if it did its work: {resolve} --note "..."; else: {again}'
