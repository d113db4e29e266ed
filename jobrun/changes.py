"""What a scheduled call says otherwise than the last one: the schedule, `--first`, `--after`. Pure.

Each change is an event and, where a person may not have meant it, a line.
"""

from __future__ import annotations

from jobrun import consent, options
from jobrun.instants import iso
from jobrun.plans import Note, note
from jobrun.rows import JobRow, Opening, Stored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.job import Job
    from jobrun.schedule import Grid


def compare(
    job: Job, grid: Grid, known: Stored, row: JobRow, settled: int, opening: Opening
) -> tuple[Opening, tuple[Note, ...]]:
    """The opening with the events of it, and what is to be printed.

    `settled` is where the watermark will be after the next writing transaction. Raises ConfigError
    for a schedule that wants consent.
    """
    mark = settled if row.watermark is None else row.watermark
    notes: list[Note] = []
    events = list(opening.events)
    if consent.is_new_schedule(job, grid, known, row, mark, opening.now):
        opening = opening._replace(schedule=grid.text)
        if row.schedule is not None:
            events.append((None, "schedule-changed", consent.change(row.schedule, grid.text)))
            notes.append(
                note("NOTE", job.name, "schedule-changed", was=row.schedule, now_is=grid.text)
            )
    elif row.next is not None and grid.next(mark) != row.next:
        moved = {"was": iso(row.next), "now_is": iso(grid.next(mark))}
        events.append((None, "boundaries-moved", f"{moved['was']} -> {moved['now_is']}"))
        hint = "an update of croniter or of the zone database; the new boundaries are used"
        notes.append(note("WARNING", job.name, "boundaries-moved", hint, **moved))
    if job.first is not None and _is_another_first(job.first, row):
        events.append((None, "first-ignored", job.first))
        notes.append(_first_ignored(job, job.first, mark))
    if (was := _after_was(row)) != (after := job.given.get("--after")):
        # On record even if nothing runs: whoever looks for a circle goes by it.
        events.append((None, "after-changed", f"{was or 'nobody'} -> {after or 'nobody'}"))
    if settled != mark:
        events.append((None, "watermark-settled", f"{iso(mark)} -> {iso(settled)}"))
    return opening._replace(events=tuple(events)), tuple(notes)


def _is_another_first(asked_for: str, row: JobRow) -> bool:
    """Whether it is neither the first `--first` nor that of the last call, which was told so."""
    if asked_for == (row.first or "latest"):
        return False
    from jobrun import lastcall

    return lastcall.read(row.spec).options.get("--first") != asked_for


def _after_was(row: JobRow) -> str | None:
    if row.spec is None or '"--after":' not in row.spec:
        return None  # most jobs; so what reads it is not loaded
    from jobrun import lastcall

    return lastcall.read(row.spec).options.get("--after")


def _first_ignored(job: Job, asked_for: str, mark: int) -> Note:
    start = "A" if asked_for in ("latest", "none") else asked_for
    backfill = options.again("backfill", job.name, "--from", start, "--to", iso(mark))
    skip = options.typed("skip", job.name, "--from", "A", "--to", "B")
    hint = f'older windows: {backfill}; to leave some out: {skip} --reason "..."'
    return note("NOTE", job.name, "first-ignored", hint, asked=asked_for, watermark=mark)
