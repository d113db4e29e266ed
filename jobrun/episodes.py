"""Events that are written once an episode, however many calls meet it. Under the job's lock.

A call every minute would write one a minute: a clock that is wrong for a night, a command that
outlived its wrapper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrun.instants import iso
from jobrun.rows import Opening

if TYPE_CHECKING:
    from jobrun.call import Situation
    from jobrun.plans import Skip
    from jobrun.rows import JobRow, RunRow

CLOCK_BEHIND = "clock-behind"
ORPHAN = "orphan"
BLOCKED = "blocked"  # by an upstream


def clock_behind(situation: Situation, now: int) -> None:
    """The clock is behind what is done already, as no call before this one has seen it.

    While it is, the watermark stays; a call by a sound clock is seen at the watermark or later.
    """
    row = situation.ledger.job(situation.job.name)
    if row is None or row.watermark is None or row.watermark <= now:
        return
    detail = f"watermark={iso(row.watermark)}"
    if row.last_seen >= row.watermark or not _is_told(situation, CLOCK_BEHIND, detail):
        _write(situation, row, now, (None, CLOCK_BEHIND, detail))


def orphan(situation: Situation, run: RunRow, now: int) -> None:
    """A command is alive whose wrapper and guardian are not."""
    row, detail = situation.ledger.job(run.job), f"run={run.id}"
    if row is not None and not _is_told(situation, ORPHAN, detail):
        _write(situation, row, now, (run.key, ORPHAN, detail))


def blocked(situation: Situation, skip: Skip, now: int) -> None:
    """An upstream gave up what a window needs: quiet hides the skips, and nothing else would tell.

    `skip` has a hint; later calls that meet the same only skip.
    """
    call, job = situation.call, situation.job.name
    row, up, window = situation.ledger.job(job), skip.fields["up"], skip.fields["up-window"]
    assert isinstance(window, tuple)
    detail = f"{up} {iso(window[0])}/{iso(window[1])} {skip.fields['state']}"
    if row is None or _is_told(situation, BLOCKED, detail):
        return
    _write(situation, row, now, (skip.key, BLOCKED, detail))
    fields = {"job": job, "what": BLOCKED, "key": skip.key, **skip.fields}
    call.lines.event("WARNING", {**fields, "at": call.now()})
    call.lines.say("hint", skip.hint or "")


def _is_told(situation: Situation, kind: str, detail: str) -> bool:
    last = situation.ledger.events(situation.job.name, kind=kind, limit=1)
    return bool(last) and last[0].detail == detail


def _write(situation: Situation, row: JobRow, now: int, event: tuple[str | None, str, str]) -> None:
    """Nothing else is changed, nor is this clock believed; another holder tells it himself."""
    opening = Opening(
        row.name,
        row.token,
        now,
        events=(event,),
        clock_jump_at=row.clock_jump_at,
        keep_largest_now=True,
    )
    situation.ledger.open(opening, None, None)
