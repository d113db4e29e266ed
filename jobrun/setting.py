"""`set` and `unset`: options on record that win over the crontab's, with who, when and why.

Written without the job's lock, in one transaction: a job that runs for hours must be reachable. The
call that is under way goes on with what it began with; the next one reads them before anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from jobrun import job as jobs
from jobrun import lastcall, options, overrides, process
from jobrun.by_hand import known_job, mode_of
from jobrun.call import Call
from jobrun.errors import Refused
from jobrun.job import Job
from jobrun.ledger import Ledger
from jobrun.ledger_sqlite import open_ledger
from jobrun.options import Option
from jobrun.overrides import Override
from jobrun.rows import JobRow, Setting

TRIES = 5  # another person may set another option at the same moment

Options = dict[str, Override]


def apply(job: Job, call: Call, text: str) -> Job:
    """The call with what is set on record, as far as it belongs to its mode."""
    found = {
        name: value
        for name, value in overrides.values(text).items()
        if name not in options.BY_NAME or job.mode in options.BY_NAME[name].modes
    }
    given = {**job.given, **found}
    effective = {name: value for name, value in given.items() if value is not None}
    # Set to off is more than not given: the environment does not make it quiet either.
    environ = {**call.environ, "JOBRUN_QUIET": ""} if "--quiet" in found else call.environ
    this = jobs.make(job.name, job.mode, effective, job.command, environ, job.given)
    call.lines.follow(this)
    if this.verbose and found:
        shown = ", ".join(overrides.shown(name, value) for name, value in found.items())
        fields = {"job": job.name, "what": "set-on-record", "options": shown, "at": call.now()}
        call.lines.event("NOTE", fields)
    return this


def set_option(
    call: Call, name: str, word: str, value: str | None, reason: str | None, dry_run: bool
) -> int:
    """From the next call on, whatever its crontab line says."""
    option = overrides.option_named(word)
    text = overrides.text_of(option, value)
    by = f"{call.caller.user}@{call.caller.host}"
    wanted = Override(text, by, call.now(), reason)

    def change(ledger: Ledger, row: JobRow, known: Options) -> Options:
        changed = {**known, option.long: wanted}
        _check(call, ledger, row, changed)
        return changed

    return _write(call, name, option, change, "set" if not dry_run else "would-set", reason)


def unset_option(call: Call, name: str, word: str, reason: str | None, dry_run: bool) -> int:
    """What the crontab's line says holds again."""
    option = overrides.option_named(word)

    def change(ledger: Ledger, row: JobRow, known: Options) -> Options:
        return {other: each for other, each in known.items() if other != option.long}

    return _write(call, name, option, change, "unset" if not dry_run else "would-unset", reason)


def _check(call: Call, ledger: Ledger, row: JobRow, changed: Options) -> None:
    """By the parser of a call, with the options of the last one. Raises UsageError."""
    mode = mode_of(ledger, row)
    last = lastcall.read(row.spec)
    given = overrides.applied(last.options, overrides.write(changed))
    jobs.make(row.name, mode, given, ("true",), call.environ)


def _write(
    call: Call,
    name: str,
    option: Option,
    change: Callable[[Ledger, JobRow, Options], Options],
    what: str,
    reason: str | None,
) -> int:
    """Read, change, compare and set: what somebody else has set meanwhile is kept."""
    with closing(open_ledger(call.ledger, create=False)) as ledger:
        for _ in range(TRIES):
            row = known_job(ledger, name)
            known = overrides.read(row.overrides)
            changed = change(ledger, row, known)
            if changed == known:
                _tell(call, name, "not-set", {"option": option.long})
                return 0
            fields = _fields(row, option, changed.get(option.long), reason)
            setting = _setting(call, row, changed, what, fields)
            if what.startswith("would-") or ledger.override(name, setting):
                _tell(call, name, what, fields)
                _tell_running(call, ledger, name)
                return 0
    raise Refused(f'job "{name}": others set options {TRIES} times meanwhile', "again, now")


def _fields(
    row: JobRow, option: Option, now: Override | None, reason: str | None
) -> dict[str, object]:
    """The option as it will be, and as it was."""
    last, effective = lastcall.read(row.spec), lastcall.of(row).options
    value = now.value if now is not None else last.options.get(option.long)
    was = effective.get(option.long)
    return {"option": _shown(option, value), "was": _shown(option, was), "why": reason}


def _shown(option: Option, value: str | None) -> str:
    """With its default, where it has one and nothing else is said."""
    return overrides.shown(option.long, value or option.default or None)


def _setting(
    call: Call, row: JobRow, changed: Options, kind: str, fields: dict[str, object]
) -> Setting:
    by = f"by {call.caller.user}@{call.caller.host}"
    why = f": {fields['why']}" if fields["why"] else ""
    detail = f"{fields['option']} (was {fields['was']}) {by}{why}"
    return Setting(row.overrides, overrides.write(changed), kind, detail, call.now())


def _tell(call: Call, name: str, what: str, fields: dict[str, object]) -> None:
    call.lines.event("NOTE", {"job": name, "what": what, **fields, "at": call.now()})


def _tell_running(call: Call, ledger: Ledger, name: str) -> None:
    for run in ledger.open_runs(name):
        if process.wrapper_alive(run):
            call.lines.say("hint", f"run {run.id} goes on with what it began with")
