"""What a call does once it holds the job's lock: judge, plan, run, record.

Also what others read and plan by: the screens and the commands by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from jobrun import (
    consent,
    lastcall,
    living,
    options,
    placeholders,
    places,
    policy,
    report,
    rows,
    schedule,
)
from jobrun.attempts import Attempts
from jobrun.errors import EXIT_SIGNAL, ConfigError, JobrunError, Refused, UsageError
from jobrun.living import Living
from jobrun.plans import Plan, Skip, Unit
from jobrun.rows import Breaker, JobRow, Left, Opened, Opening, RunRow, Source, Stored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call, Situation
    from jobrun.job import Job
    from jobrun.key_file import Stamp
    from jobrun.ledger import Ledger
    from jobrun.schedule import Grid

    Named = tuple[str, Stamp | None]

NOTHING = Stored(None, (), lambda since: iter(()), lambda below, limit: [])
REPLANS = 5  # another holder between our read and our write, although we hold the lock


def take(situation: Situation, named: Named | None = None) -> int:
    """From the plan to the exit code; `named` is the unit of --key-file, where that was read before
    the lock was taken. Raises JobrunError where nothing ran."""
    while (code := _take(situation, named)) is None:
        pass  # what was in its way has ended
    return code


def _take(situation: Situation, named: Named | None) -> int | None:
    job, call, ledger = situation.job, situation.call, situation.ledger
    now = call.now()
    for _ in range(REPLANS):
        hand_in(call, ledger, job.name)
        # The token is read first: a run that opens after the look for runs has taken another.
        row = ledger.job(job.name)
        judged = living.judge_open_runs(ledger, job.name, call, situation.lock)
        if judged.living:
            return _withdraw(situation, judged.living)
        with told_if_refused(situation, now):
            named = _as_it_is(job, named)
            plan, grid, stamp = make_plan(job, ledger, now, judged.lost, named=named)
        code = carry_out(situation, row, plan, grid, judged.lost, stamp)
        if code is not None:
            return code
    raise too_often(job.name)


def _as_it_is(job: Job, named: Named | None) -> Named | None:
    """None where the file is no longer the one that was read."""
    if named is None or job.key_file is None:
        return None
    from jobrun.key_file import stamp

    return named if stamp(job.key_file) == named[1] else None


def hand_in(call: Call, ledger: Ledger, job: str) -> None:
    """What this machine has kept for a server, before a run of the job is taken for lost."""
    if not call.where.is_file and places.has_outbox(call.where.beside):
        from jobrun import replay

        replay.hand_in(call, ledger, job)


@contextmanager
def told_if_refused(situation: Situation, now: int) -> Iterator[None]:
    """Where nothing can be planned: that is on record before it is raised."""
    try:
        yield
    except (Refused, ConfigError) as error:
        from jobrun import episodes

        episodes.refused(situation, error, now)
        raise


def _withdraw(situation: Situation, beside: Sequence[Living]) -> int | None:
    """The exit code of a call that is to be alone and is not; None where one of the others has
    ended within --wait, and the lock is held again."""
    if situation.job.wait:
        from jobrun import outwait

        if outwait.can_wait(situation, beside):
            situation.lock.unlock()
            if outwait.until_ended(situation, [each.run for each in beside]):
                return outwait.lock_again(situation)
            if situation.signals.received:
                return EXIT_SIGNAL + situation.signals.received
    from jobrun import skips

    return skips.alive(situation, beside[0])


def too_often(job: str) -> Refused:
    return Refused(
        f'job "{job}": another holder wrote {REPLANS} times while this one held the lock',
        "jobrun doctor tests the lock",
    )


def stored(ledger: Ledger, job: str, taken: frozenset[str] = frozenset()) -> Stored:
    """What planning reads of a job; `taken` are the keys that others have under way."""
    return Stored(
        ledger.job(job),
        tuple(ledger.unfinished(job)),
        lambda since: ledger.blocks(job, since),
        lambda below, limit: ledger.processed(job, below, limit),
        failures=lambda: ledger.failures(job),
        taken=taken,
    )


def make_plan(
    job: Job,
    ledger: Ledger,
    now: int,
    lost: Sequence[RunRow] = (),
    taken: frozenset[str] = frozenset(),
    named: Named | None = None,
) -> tuple[Plan, Grid | None, Stamp | None]:
    """What this call is to do, whatever its mode; `lost` are the runs that nobody saw end, `taken`
    the keys that others have under way, `named` is its own of --key, where that is known."""
    known, fates = after_loss(job, ledger, stored(ledger, job.name, taken), lost)
    plan, grid, stamp = _make_plan(job, ledger, known, now, fates, named)
    return tell_loss(plan, fates), grid, stamp


def after_loss(
    job: Job, ledger: Ledger, known: Stored, lost: Sequence[RunRow]
) -> tuple[Stored, Mapping[str, str]]:
    """The record as it is once the runs are given up for lost; which windows are held or dead then.

    Whoever writes `Opening.lost` plans on the one, and writes and tells the other (`tell_loss`).
    """
    if not any(run.key for run in lost):
        return known, {}
    from jobrun import fate

    found = [ledger.window(job.name, run.key) for run in lost if run.key]
    running = [row for row in found if row is not None and row.state == rows.RUNNING]
    fates = fate.after_loss(job, running)
    return fate.as_they_will_be(known, running, fates), fates


def tell_loss(plan: Plan, fates: Mapping[str, str]) -> Plan:
    if not fates:
        return plan
    from jobrun import fate

    return fate.tell_loss(plan, fates)


def _make_plan(
    job: Job,
    ledger: Ledger,
    known: Stored,
    now: int,
    fates: Mapping[str, str],
    named: Named | None,
) -> tuple[Plan, Grid | None, Stamp | None]:
    if job.mode in options.NO_UNITS:
        return plan_plain(job, known, now), None, None
    if job.mode == options.KEY:
        return plan_key(job, ledger, known, now, fates, named or name_unit(job))
    if job.mode == options.RETRY and (known.job is None or known.job.schedule is None):
        from jobrun import asked_again

        return asked_again.plan_units(job, known, now), None, None
    _refuse_plain(job, ledger, known)
    grid = grid_of(job, known)
    source = Source(ledger.job, ledger.blocks, ledger.values)
    return plan_windows(job, grid, known, source, now), grid, None


def _refuse_plain(job: Job, ledger: Ledger, known: Stored) -> None:
    """A window by hand would put a schedule on record; units of --key may stand beside windows."""
    row = known.job
    is_called = row is not None and row.spec is not None and row.schedule is None
    if job.mode == options.BY_HAND and is_called and not ledger.keys(job.name, limit=1):
        raise UsageError(
            f'job "{job.name}" is called without --every or --cron: it has no windows, and with'
            " one of them on record its own line would be refused",
            "another JOB for what has windows; for this one: jobrun run without --window",
        )


def grid_of(job: Job, known: Stored) -> Grid:
    """The grid that the call names, or the stored one where it is by hand."""
    text = job.schedule
    row = known.job
    if job.mode != options.WINDOWS and row is not None and row.schedule is not None:
        if text not in (None, row.schedule):
            raise UsageError(
                f'job "{job.name}" is on record with "{row.schedule}", not "{text}"',
                "by hand the grid on record is used: leave --every, --cron and --tz away",
            )
        text = row.schedule
    if text is None:
        raise UsageError(
            f'job "{job.name}" has no schedule on record',
            "--every 1h or --cron EXPR says which windows there are",
        )
    return schedule.parse(text)


def plan_windows(job: Job, grid: Grid, known: Stored, source: Source, now: int) -> Plan:
    """A scheduled call waits for its upstreams; what is asked for by hand takes what is there."""
    if not job.after:
        return policy.plan_call(job, grid, known, now)
    from jobrun import upstream

    upstreams = upstream.of(job.after, source)
    if job.mode == options.WINDOWS:
        upstream.check(job.name, job.after, source)
        known = known._replace(upstreams=upstreams)
    plan = policy.plan_call(job, grid, known, now)
    if not job.inputs and job.condition is None:
        return plan
    from jobrun import inputs

    return inputs.hand_over(plan, job, upstreams)


def plan_first(job: Job, now: int) -> Plan:
    """What a call with windows does where there is no ledger yet."""
    nobody = Source(lambda name: None, lambda name, since: iter(()), lambda name, key: {})
    return plan_windows(job, grid_of(job, NOTHING), NOTHING, nobody, now)


def plan_plain(job: Job, known: Stored, now: int) -> Plan:
    """Locked and recorded, nothing more; refused where the job has windows to keep in order."""
    row = known.job
    if row is not None and row.schedule is not None:
        raise UsageError(
            f'job "{job.name}" has windows ("{row.schedule}"): a call without --every or --cron'
            " would do none of them",
            "the options of its crontab line, or another JOB",
        )
    halt = policy.paused(consent.begin(job.name, row, now), row)
    return halt or policy.single(job.name, known, now, Unit(None, None, None, None))


def name_unit(job: Job) -> Named:
    """The key of a unit that is no window, and of a file how it was when its key was made."""
    if job.key_file is not None:
        from jobrun import key_file

        return key_file.key(job.name, job.key_file)
    assert job.key is not None
    return job.key, None


def plan_key(
    job: Job, ledger: Ledger, known: Stored, now: int, fates: Mapping[str, str], named: Named
) -> tuple[Plan, Grid | None, Stamp | None]:
    """One unit that is no window: skipped where its key is done with, or not to be tried now."""
    if halt := policy.paused(consent.begin(job.name, known.job, now), known.job):
        return halt, None, None
    key, stamp = named
    if key in known.taken:
        return policy.skipped(job.name, known, now, Skip(rows.LOCK_HELD, key, {})), None, None
    row = ledger.window(job.name, key)
    state = None if row is None else fates.get(key, row.state)
    skip = None
    if state in rows.FINISHED:
        skip = Skip(rows.KEY_EXISTS, key, {"state": None if state == rows.PROCESSED else state})
    elif state == rows.HELD:
        skip = Skip(rows.WINDOW_HELD, key, {})
    elif row is not None and (due := policy.due_at(job, row, now)) is not None:
        skip = Skip(rows.RETRY_LATER, key, {"next": due})
    if skip is not None:
        return policy.skipped(job.name, known, now, skip), None, None
    kind = rows.NEW if row is None else rows.RETRY
    return policy.single(job.name, known, now, Unit(key, None, None, kind)), None, stamp


def carry_out(
    situation: Situation,
    row: JobRow | None,
    plan: Plan,
    grid: Grid | None,
    lost: list[RunRow],
    stamp: Stamp | None,
) -> int | None:
    """Write and run what was planned. None where another holder has been, or where what was lost
    has paused the job: plan again.

    `row` is the job's as it was before anything else was read.
    """
    job, call, ledger = situation.job, situation.call, situation.ledger
    opening = complete(plan.opening, situation, row, lost, grid)
    following = grid.next if grid is not None else None
    if not plan.units:
        opened = None
        if plan.writes or lost:
            opened = ledger.open(opening, None, following)
            if opened is None:
                return None
        tell(job, call, ledger, plan, lost, opened)
        _tell_backlog(situation, plan.left_text, plan.left_from)
        from jobrun import skips

        return skips.planned(situation, plan)
    work = Attempts(situation, grid, stamp, row)
    if situation.signals.received:
        return EXIT_SIGNAL + situation.signals.received

    def on_open(opened: Opened) -> None:
        tell(job, call, ledger, plan, lost, opened)

    if not work.run(plan.units, opening, on_open):
        return None
    try:
        return end(situation, plan, work)
    except JobrunError as error:  # what has run is on record
        call.lines.error(error)
        return work.exit_code or error.code


def tell(
    job: Job,
    call: Call,
    ledger: Ledger,
    plan: Plan,
    lost: Sequence[RunRow],
    opened: Opened | None,
) -> None:
    """What was found and decided, once it is on record."""
    for left_out in plan.opening.skipped:  # one that was done before has no other record of it
        ledger.skip(job.name, left_out.reason, left_out.key, job.condition, plan.opening.now)
    for run in lost:
        _tell_lost(call, run, opened is not None and run.id in opened.marked)
    _tell_notes(job, call, plan)
    if opened is not None and opened.tripped is not None:
        report.paused(call, job.name, opened.tripped)
    if opened is not None and opened.resumed is not None:
        report.resumed(call, job.name, opened.resumed)


def _tell_lost(call: Call, run: RunRow, is_marked: bool) -> None:
    from jobrun import values_file

    report.lost(call, run, is_marked)
    path = places.values_file(call.where.beside, run.id)
    problem = values_file.read(path)[1] if is_marked else None
    if problem is not None:
        report.values_lost(call, run.job, run.key, run.id, problem)
    values_file.remove(path)


def give_up(opening: Opening, call: Call, lost: Sequence[RunRow]) -> Opening:
    """With the runs that are lost, and what their commands have left for other jobs."""
    if not lost:
        return opening
    from jobrun import values_file

    windows = (run.id for run in lost if run.start is not None)
    paths = ((run_id, places.values_file(call.where.beside, run_id)) for run_id in windows)
    left = tuple(Left(run_id, values_file.read(path)[0]) for run_id, path in paths)
    return opening._replace(lost=tuple(run.id for run in lost), left=left)


def complete(
    opening: Opening,
    situation: Situation,
    row: JobRow | None,
    lost: list[RunRow],
    grid: Grid | None,
) -> Opening:
    """The policy's opening, with what only the call knows."""
    job, call = situation.job, situation.call
    token = row.token if row is not None else 0
    breaker = breaker_of_loss(job, call, opening, lost, grid)
    opening = opening._replace(token=token, spec=_spec(situation, row), breaker=breaker)
    return give_up(opening, call, lost)


def _spec(situation: Situation, row: JobRow | None) -> str | None:
    """What is kept of the call; None: nothing is new.

    A call by hand, or of a unit beside a job's windows, is not what `rerun` and `plan` go by. But
    its lock is the one to ask for what it runs (machines.py); in a file that is this machine's.
    """
    job, call = situation.job, situation.call
    has_windows = row is not None and row.schedule is not None
    lock = None if job.lock is None else _hidden(job.lock)
    if job.mode == options.WINDOWS or (not job.has_grid and not has_windows):
        folder, shared = places.working_folder(), situation.ledger.shared
        return lastcall.write(job, call.caller, call.now(), folder, shared, lock)
    if call.where.is_file:
        return None
    return lastcall.with_lock(None if row is None else row.spec, lock)


def _hidden(lock: str) -> str:
    from jobrun.address import hidden

    return hidden(lock)


def breaker_of_loss(
    job: Job, call: Call, opening: Opening, lost: Sequence[RunRow], grid: Grid | None
) -> Breaker | None:
    """What the runs that are lost are weighed by; None: they only count."""
    # On a clock that is doubted, too: a pause until a year ahead would stay.
    if not lost or job.pause_after is None or opening.keep_largest_now:
        return None
    from jobrun.breaker import breaker_of

    return breaker_of(job, grid, call.now)


def end(situation: Situation, plan: Plan, work: Attempts) -> int:
    """The exit code; what of the plan is left is said."""
    job = situation.job
    if situation.signals.received:
        return work.exit_code or EXIT_SIGNAL + situation.signals.received
    rest = [unit for unit in plan.units[work.done :] if unit.kind != rows.LOOKBACK]
    left = plan.left_text if plan.left is None else plan.left + len(rest)
    if work.tripped:  # and told
        return work.exit_code
    if work.paused:
        from jobrun import skips

        skips.paused(situation, left)
        return work.exit_code
    # A failure that stops the call is what is to be said, not what it keeps from its turn.
    if work.exit_code and job.on_failure == "stop":
        return work.exit_code
    _tell_backlog(situation, left, rest[0].start if rest else plan.left_from)
    if plan.skips and not rest and job.mode in (options.WINDOWS, options.RETRY):
        from jobrun import skips

        skips.planned(situation, plan)
    return work.exit_code


def _tell_backlog(situation: Situation, left: int | str | None, since: int | None) -> None:
    if left:
        fields = {"job": situation.job.name, "left": left, "from": since}
        situation.call.lines.event("BACKLOG", {**fields, "at": situation.call.now()})


def _tell_notes(job: Job, call: Call, plan: Plan) -> None:
    for word, fields, hint in plan.notes:
        ledger = call.ledger if fields.get("what") == "first-run" else None
        call.lines.event(word, {**fields, "ledger": ledger, "at": call.now()})
        if hint:
            call.lines.say("hint", hint)
        if ledger is not None:
            _tell_no_window(job, call)


def _tell_no_window(job: Job, call: Call) -> None:
    """To a person, at the first run: what names no window runs n times for n windows."""
    if job.catch_up == "latest" or placeholders.names_window(job.command):
        return
    if not call.lines.on_terminal():
        return
    call.lines.event("NOTE", {"job": job.name, "what": "no-window", "at": call.now()})
    call.lines.say(
        "hint",
        "the command gets no {start} or {end}: after an outage of n windows it runs n times"
        " (--catch-up latest: once), unless it reads JOBRUN_WINDOW_START",
    )
