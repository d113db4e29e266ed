"""What is told once an episode, however many calls meet it: by events, under the job's lock, or by
the row of a host.

A call every minute would write one a minute: a clock that is wrong for a night, a command that
outlived its wrapper.
"""

from __future__ import annotations

from contextlib import suppress

from jobrun import lastcall, options
from jobrun.errors import ConfigError, JobrunError
from jobrun.instants import iso
from jobrun.rows import REFUSED, Opening

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call, Situation
    from jobrun.job import Job
    from jobrun.ledger import Ledger
    from jobrun.plans import Skip
    from jobrun.rows import JobRow, RunRow

    Event = tuple[str | None, str, str]

CLOCK_BEHIND = "clock-behind"
ORPHAN = "orphan"
BLOCKED = "blocked"  # by an upstream


def refused(situation: Situation, error: JobrunError, now: int) -> None:
    """Nothing could be planned. That the job was called is on record nevertheless."""
    row = situation.ledger.job(situation.job.name)
    if row is None:
        return
    if not isinstance(error, ConfigError):
        if _is_behind(row, now):
            _write(situation, row, now, _clock_behind(situation, row))
    elif not situation.job.is_by_hand:
        last = lastcall.refusal(row, situation.ledger)
        is_told = last is not None and last.detail == error.gist
        _write(situation, row, now, None if is_told else (None, REFUSED, error.gist))


def clock_behind(situation: Situation, now: int) -> None:
    """The clock is behind what is done already; no more than told, the skip is another row."""
    row = situation.ledger.job(situation.job.name)
    if row is not None and _is_behind(row, now):
        event = _clock_behind(situation, row)
        if event is not None:
            _write(situation, row, now, event)


def _is_behind(row: JobRow, now: int) -> bool:
    return row.watermark is not None and row.watermark > now


def _clock_behind(situation: Situation, row: JobRow) -> Event | None:
    """As no call before this one has seen it.

    While it is, the watermark stays; a call by a sound clock is seen at the watermark or later.
    """
    assert row.watermark is not None
    detail = f"watermark={iso(row.watermark)}"
    is_told = row.last_seen < row.watermark and _is_told(situation, CLOCK_BEHIND, detail)
    return None if is_told else (None, CLOCK_BEHIND, detail)


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


def clock_skew(ledger: Ledger, job: Job, call: Call) -> None:
    """This host's clock is far from the server's: its windows close at another time than those of
    other hosts. Told by the first call that finds it so, of whatever job."""
    known = ledger.host(call.caller.host)
    if ledger.skew is None or (known is not None and known.is_far):
        return
    with suppress(JobrunError):  # it keeps nothing from running
        ledger.note_host(call.now())
    skew = f"{ledger.skew / 1000:+.1f}s"
    fields = {"job": job.name, "what": "clock-skew", "host": call.caller.host, "skew": skew}
    call.lines.event("WARNING", {**fields, "at": call.now()})
    call.lines.say("hint", f"windows close by this host's clock: NTP; {options.typed('hosts')}")


def _is_told(situation: Situation, kind: str, detail: str) -> bool:
    last = situation.ledger.events(situation.job.name, kind=kind, limit=1)
    return bool(last) and last[0].detail == detail


def _write(situation: Situation, row: JobRow, now: int, event: Event | None) -> None:
    """Nothing else is changed, nor is this clock believed; another holder tells it himself."""
    opening = Opening(
        row.name,
        row.token,
        now,
        events=() if event is None else (event,),
        clock_jump_at=row.clock_jump_at,
        keep_largest_now=True,
    )
    situation.ledger.open(opening, None, None)
