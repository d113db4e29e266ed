"""`set` and `unset`: options on record that win over the crontab's, with who, when and why.

Written without the job's lock, in one transaction: a job that runs for hours must be reachable. The
call that is under way goes on with what it began with; the next one reads them before anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from jobrun import job as jobs
from jobrun import lastcall, overrides, process
from jobrun.by_hand import known_job, mode_of
from jobrun.call import Call
from jobrun.errors import Refused, UsageError
from jobrun.job import Job
from jobrun.ledger import Ledger
from jobrun.ledgers import open_ledger
from jobrun.options import BY_NAME
from jobrun.overrides import Fitted, Override
from jobrun.rows import JobRow, Setting

TRIES = 5  # another person may set another option at the same moment

Options = dict[str, Override]


def apply(job: Job, call: Call, text: str) -> Job:
    """The call with what is set on record, as far as it belongs to its mode and fits its line.

    Raises UsageError where what does not fit must not be left out.
    """
    known = overrides.read(text)
    fitted = overrides.fit(job.name, job.mode, job.given, known)
    overrides.refuse_unsafe(job.name, fitted, known)
    # Set to off is more than not given: the environment does not make it quiet either.
    is_said = "--quiet" in fitted.used
    environ = {**call.environ, "JOBRUN_QUIET": ""} if is_said else call.environ
    this = jobs.make(job.name, job.mode, fitted.options, job.command, environ, job.given)
    call.lines.follow(this)
    _tell_misfits(call, this, fitted, known)
    if this.verbose and fitted.used:
        shown = ", ".join(overrides.shown(name, each.value) for name, each in fitted.used.items())
        fields = {"job": job.name, "what": "set-on-record", "options": shown, "at": call.now()}
        call.lines.event("NOTE", fields)
    return this


def _tell_misfits(call: Call, job: Job, fitted: Fitted, known: Options) -> None:
    for name, problem in fitted.misfits.items():
        option, by = overrides.shown(name, known[name].value), known[name].by
        fields = {"job": job.name, "what": "override-ignored", "option": option, "by": by}
        call.lines.event("WARNING", {**fields, "cause": problem.message, "at": call.now()})
        call.lines.say("hint", overrides.unset(job.name, name))


def set_option(
    call: Call, name: str, word: str, value: str | None, reason: str | None, dry_run: bool
) -> int:
    """From the next call on, whatever its crontab line says."""
    option = overrides.option_named(word)
    text = overrides.text_of(option, value)
    by = f"{call.caller.user}@{call.caller.host}"
    wanted = Override(text, by, call.now(), reason)

    def change(ledger: Ledger, row: JobRow, known: Options) -> Options:
        before = known.get(option.long)
        if before is not None and before.value == text and reason in (None, before.reason):
            return known  # who has set it, and when, stays
        return {**known, option.long: wanted}

    return _write(call, name, option.long, change, "set" if not dry_run else "would-set", reason)


def unset_option(call: Call, name: str, word: str, reason: str | None, dry_run: bool) -> int:
    """What the crontab's line says holds again. Whatever is on record can go: also what a newer
    jobrun has set."""
    option = overrides.long_name(word)

    def change(ledger: Ledger, row: JobRow, known: Options) -> Options:
        if option not in known:
            overrides.option_named(word)
        return {other: each for other, each in known.items() if other != option}

    return _write(call, name, option, change, "unset" if not dry_run else "would-unset", reason)


def _check(ledger: Ledger, row: JobRow, option: str, known: Options, changed: Options) -> None:
    """By the parser of a call, with the options of the last one. Raises UsageError.

    What did not fit before, since the line is another now, is in the way of no change: else what
    is wrong could not be put right step by step.
    """
    mode, line = mode_of(ledger, row), lastcall.read(row.spec).options
    before = overrides.misfits(row.name, mode, line, known)
    for name, problem in overrides.misfits(row.name, mode, line, changed, option).items():
        if name == option:
            raise problem
        if name not in before:
            raise UsageError(
                f"{overrides.shown(name, changed[name].value)}, set on record, would not fit any"
                f" more: {problem.message}",
                f"first: {overrides.unset(row.name, name)}",
            )


def _write(
    call: Call,
    name: str,
    option: str,
    change: Callable[[Ledger, JobRow, Options], Options],
    what: str,
    reason: str | None,
) -> int:
    """Read, change, compare and set: what somebody else has set meanwhile is kept."""
    with closing(open_ledger(call.where)) as ledger:
        for _ in range(TRIES):
            row = known_job(ledger, name)
            known = overrides.read(row.overrides)
            changed = change(ledger, row, known)
            if changed == known:
                _tell_unchanged(call, name, option, known)
                return 0
            _check(ledger, row, option, known, changed)
            fields = _fields(row, option, known, changed, reason)
            setting = _setting(call, row, changed, what, fields)
            if what.startswith("would-") or ledger.override(name, setting):
                _tell(call, name, what, fields)
                _tell_running(call, ledger, name)
                return 0
    raise Refused(f'job "{name}": others set options {TRIES} times meanwhile', "again, now")


def _fields(
    row: JobRow, option: str, known: Options, changed: Options, reason: str | None
) -> dict[str, object]:
    """The option as it will be, and as it was."""
    line = lastcall.read(row.spec).options

    def value(found: Options) -> str | None:
        setting = found.get(option)
        return line.get(option) if setting is None else setting.value

    return {
        "option": _shown(option, value(changed)),
        "was": _shown(option, value(known)),
        "why": reason,
    }


def _shown(option: str, value: str | None) -> str:
    """With its default, where it has one and nothing else is said."""
    default = BY_NAME[option].default if option in BY_NAME else ""
    return overrides.shown(option, value or default or None)


def _setting(
    call: Call, row: JobRow, changed: Options, kind: str, fields: dict[str, object]
) -> Setting:
    by = f"by {call.caller.user}@{call.caller.host}"
    why = f": {fields['why']}" if fields["why"] else ""
    detail = f"{fields['option']} (was {fields['was']}) {by}{why}"
    return Setting(row.overrides, overrides.write(changed), kind, detail, call.now())


def _tell_unchanged(call: Call, name: str, option: str, known: Options) -> None:
    found = known.get(option)
    if found is None:
        _tell(call, name, "not-set", {"option": option})
    else:
        fields: dict[str, object] = {
            "option": _shown(option, found.value),
            "by": found.by,
            "why": found.reason,
        }
        _tell(call, name, "set-already", fields)


def _tell(call: Call, name: str, what: str, fields: dict[str, object]) -> None:
    call.lines.event("NOTE", {"job": name, "what": what, **fields, "at": call.now()})


def _tell_running(call: Call, ledger: Ledger, name: str) -> None:
    for run in ledger.open_runs(name):
        if process.wrapper_alive(run):
            call.lines.say("hint", f"run {run.id} goes on with what it began with")
