"""Decisions not to run: recorded, told, and turned into an exit code."""

from __future__ import annotations

from collections.abc import Mapping

from jobrun import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call, Situation
    from jobrun.job import Job
    from jobrun.ledger import Ledger
    from jobrun.living import Living
    from jobrun.plans import Plan


def skip(
    job: Job,
    call: Call,
    ledger: Ledger,
    reason: str,
    key: str | None = None,
    detail: Mapping[str, object] | None = None,
    fold: str | None = None,
    believed: bool = False,
) -> int:
    """Record and print one skip. Returns the exit code.

    `detail` are the fields of the line that tell more; `fold` is what makes two skips the same
    where reason and key are (the holder, say); `believed` is whether the clock was judged under the
    lock and found sound. The record is tried for a second only: the line is printed whether it was
    made or not.
    """
    at = call.now()
    ledger.skip(job.name, reason, key, fold, at, believed)
    fields = {"job": job.name, "reason": reason, "key": key, **(detail or {}), "at": at}
    if reason == rows.NO_CLOSED_WINDOW:
        call.lines.idle(fields)
    else:
        call.lines.event("SKIPPED", fields)
    return job.busy_exit if reason in rows.BUSY else 0


def lock_held(job: Job, call: Call, ledger: Ledger, run: rows.RunRow | None, note: str) -> int:
    """The second copy withdraws: who holds the lock, since when; WARNING where that is too long.

    `run` is the holder's running row; between two windows there is none, and `note`, the line that
    the holder left in the lock file, is all there is: `host:pid since …`, and with `attempt=2
    next=…` what it waits for.
    """
    if run is None:
        words = note.split()
        holder = words[0] if words else None
        waits = {name: value for name, _, value in (word.partition("=") for word in words) if value}
        return skip(job, call, ledger, rows.LOCK_HELD, None, {"holder": holder, **waits}, holder)
    warn_of_stuck(job, call, run)
    detail = holding(call, run)
    return skip(job, call, ledger, rows.LOCK_HELD, None, detail, f"{detail['holder']} run {run.id}")


def alive(situation: Situation, found: Living) -> int:
    """One that should be alone is not; where it has no wrapper any more, that is another reason."""
    job, call, ledger = situation.job, situation.call, situation.ledger
    run, pids = found
    if not pids:
        return lock_held(job, call, ledger, run, "")
    from jobrun import episodes

    episodes.orphan(situation, run, call.now())
    detail = {"pids": ",".join(map(str, pids)), "run": run.id}
    return skip(job, call, ledger, rows.ORPHAN_ALIVE, run.key, detail, f"run {run.id}")


def planned(situation: Situation, plan: Plan) -> int:
    """Those of a plan, once what it writes is on record."""
    job, call, ledger = situation.job, situation.call, situation.ledger
    believed = not plan.opening.keep_largest_now
    code = 0
    for each in plan.skips:
        reason, key, detail, fold, hint = each
        if reason == rows.CLOCK_BEHIND:
            from jobrun import episodes  # few calls have one

            episodes.clock_behind(situation, plan.opening.now)
        code = skip(job, call, ledger, reason, key, detail, fold, believed) or code
        if hint is not None:
            from jobrun import episodes

            episodes.blocked(situation, each, plan.opening.now)
    return code


def paused(situation: Situation, left: int | str | None) -> None:
    """The job was paused while a command ran: this call ends here, whoever asked for it."""
    from jobrun.policy import paused_skip

    job, call, ledger = situation.job, situation.call, situation.ledger
    row = ledger.job(job.name)
    if row is not None and row.pause is not None:
        reason, key, detail, fold, _ = paused_skip(row.pause)
        skip(job, call, ledger, reason, key, {**detail, "left": left}, fold)


def holding(call: Call, run: rows.RunRow) -> dict[str, object]:
    """Who holds it, since when, for how long, with which run."""
    held = max(0, call.now() - run.started)
    return {"holder": f"{run.host}:{run.pid}", "since": run.started, "held": held, "run": run.id}


def warn_of_stuck(job: Job, call: Call, run: rows.RunRow) -> None:
    """That it lasts too long, where it does."""
    if call.now() - run.started > job.stuck_after:
        found = holding(call, run)
        del found["since"]
        stuck = {"job": job.name, "what": "stuck", **found, "at": call.now()}
        call.lines.event("WARNING", stuck)
