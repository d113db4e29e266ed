"""`rerun`, `retry`, `backfill`: again, with the options and the command of the last call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from jobrun import job as jobs
from jobrun import lastcall, options, places
from jobrun.errors import UsageError
from jobrun.job import Job
from jobrun.lastcall import LastCall
from jobrun.ledger import Ledger
from jobrun.ledgers import is_there, open_ledger
from jobrun.rows import FINISHED, UNDONE, JobRow

# What a person at a prompt does not want from the crontab's line: silence, its way to wait.
_NOT_BY_HAND = (
    "--quiet",
    "-Q",
    "--output",
    "--wait",
    "--overlap",
    "--busy-exit",
    "--on-store-down",
    "--stdin",
    "--log-format",
    "--ledger",  # found already, and from elsewhere a relative one is another
    "--namespace",
)


def parse(verb: str, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[Job, str | None]:
    """The job of `rerun JOB WHEN`, `retry JOB`, `backfill JOB ...`; and what it took over."""
    line = options.read_line(argv)
    check_words(verb, line)
    given, namespace = line.options.get("--ledger"), line.options.get("--namespace")
    where = places.find(given, environ, namespace)
    options.name_ledger(given, where.base, namespace)
    last, has_windows = last_call(where, verb, line)
    last = in_its_place(last, where)
    if not has_windows:
        return _retry_of_units(line, last, environ), None
    this = _job(verb, line, last, environ)
    return this, _taken_over(line, last, this)


def _retry_of_units(line: options.Line, last: LastCall, environ: Mapping[str, str]) -> Job:
    """Runs nothing: the last command was of another unit, and only a call knows its own."""
    kept = {name: text for name, text in last.options.items() if name == "--lock"}
    if line.command:
        raise UsageError(
            f"{line.words[0]} has units of --key: retry makes them due, each for its own call",
            options.typed("retry", line.words[0]),
        )
    return jobs.parse_by_hand("retry", line, kept, (), _around(last, environ))


def _taken_over(line: options.Line, last: LastCall, this: Job) -> str | None:
    """What comes from the last call, as it could be typed."""
    taken = {name: text for name, text in _kept(last).items() if name not in line.options}
    kept = _words(taken)
    command = [] if line.command else ["--", *this.command]
    folder = "" if "--cwd" in line.options or this.cwd is None else f" in {this.cwd}"
    if not kept and not command and not folder:
        return None
    return f"from the last call: {options.shell_text([*kept, *command])}{folder}"


def check_words(verb: str, line: options.Line) -> None:
    wanted = {"rerun": (2,), "retry": (1, 2)}.get(verb, (1,))
    if len(line.words) not in wanted:
        what = {"rerun": "JOB and WHEN", "retry": "JOB, or JOB and WHEN,"}.get(verb, "JOB")
        found = " ".join(f'"{word}"' for word in line.words) or "nothing"
        raise UsageError(f"{verb} takes {what} before --; {found} was given", options.USAGE[verb])
    missing = [
        name for name in ("--from", "--to") if verb == "backfill" and name not in line.options
    ]
    if missing:
        raise UsageError(f"backfill needs {' and '.join(missing)}", options.USAGE[verb])


def last_call(where: places.Where, verb: str, line: options.Line) -> tuple[LastCall, bool]:
    """What is on record of the job's last call; False: it has units, which are to be tried again.

    Raises UsageError for a job that is not there, or has nothing that could run again by hand.
    """
    name = line.words[0]
    jobs.check_name(name)
    if not is_there(where):
        raise UsageError(
            f"no ledger at {where.name} yet", "--ledger PATH, or the user whose jobs they are"
        )
    ledger = open_ledger(where)
    try:
        row = known_job(ledger, name)
        if row.schedule is None and verb == "retry":
            return lastcall.read(row.spec), False
        if row.schedule is not None or row.spec is None:  # met a held lock, and has not run yet
            return as_it_would_be(ledger, row), True
        raise _without_windows(ledger, row, line.words[1] if verb == "rerun" else None)
    finally:
        ledger.close()


def _without_windows(ledger: Ledger, row: JobRow, when: str | None) -> UsageError:
    """Also with --every: a schedule on record, and each call of its own line would be refused."""
    last = lastcall.read(row.spec)
    if mode_of(ledger, row) == options.PLAIN:
        command = last.command if last.whole else (*last.command, "...")
        verb = "lead" if last.leads else "run"
        again = options.typed(verb, row.name, *_words(last.options), "--", *command)
        return UsageError(f'job "{row.name}" has no windows', f"each call runs it: {again}")
    key = (when or "KEY").removeprefix(f"{row.name}:")
    unit = ledger.window(row.name, f"{row.name}:{key}")
    if unit is not None and unit.state in UNDONE:
        retry = options.typed("retry", row.name, unit.key)
        return UsageError(f"{unit.key} is no window, but a unit of --key", retry)
    if unit is not None and unit.state in FINISHED:
        key += "-2"
    words = options.typed("run", row.name, "--key", key, "--", "COMMAND")
    if unit is None or unit.state not in FINISHED:
        return UsageError(f'job "{row.name}" has no windows, but units of --key', words)
    return UsageError(f"{unit.key} is {unit.state}: once done, a key does not run again", words)


def _words(given: Mapping[str, str]) -> list[str]:
    """As typed; the ledger is named anyhow, where it must be."""
    return [
        word
        for name, text in given.items()
        if name not in ("--ledger", "--namespace")
        for word in ([name] if options.BY_NAME[name].kind == options.FLAG else [name, text])
    ]


def known_job(ledger: Ledger, name: str) -> JobRow:
    """The job's row. Raises UsageError with the ledger, how many jobs it knows, the nearest."""
    row = ledger.job(name)
    if row is not None:
        return row
    names = [known.name for known in ledger.jobs()]
    close = options.nearest(name, names, 3)
    count = f"{len(names)} job{'' if len(names) == 1 else 's'}"
    raise UsageError(
        f'no job "{name}" in {ledger.address} ({count})',
        f"{close}?" if close else "jobs of another user: sudo -u USER -H jobrun status",
    )


def mode_of(ledger: Ledger, row: JobRow) -> str:
    """Of the job's calls, by what is on record."""
    if row.schedule is not None:
        return options.WINDOWS
    return options.KEY if ledger.keys(row.name, limit=1) else options.PLAIN


def as_it_would_be(ledger: Ledger, row: JobRow) -> LastCall:
    """The last call, with what is set on record. Raises UsageError where a call would refuse it."""
    mode = mode_of(ledger, row)
    if row.overrides is not None:
        from jobrun import overrides

        known, line = overrides.read(row.overrides), lastcall.read(row.spec).options
        overrides.refuse_unsafe(row.name, overrides.fit(row.name, mode, line, known), known)
    return lastcall.of(row, mode)


def in_its_place(last: LastCall, where: places.Where) -> LastCall:
    """In a file there is no lock of a server's; on record it came with an import."""
    if not where.is_file or last.options.get("--lock") not in jobs.LOCKS:
        return last
    kept = {name: text for name, text in last.options.items() if name != "--lock"}
    return last._replace(options=kept)


def as_last_said(ledger: Ledger, row: JobRow, environ: Mapping[str, str]) -> Job:
    """What the options of the last call say, whatever its command is. Raises UsageError."""
    mode = mode_of(ledger, row)
    last = lastcall.of(row, mode)
    given = dict(last.options)
    return jobs.make(row.name, mode, given, ("true",), last.around(environ))


def _job(verb: str, line: options.Line, last: LastCall, environ: Mapping[str, str]) -> Job:
    kept = _kept(last)
    if not line.command and not last.whole:
        raise UsageError(
            "only the first word of the last command is on record here, in a database of your own",
            f"{options.USAGE[verb]}: the command once more after --",
        )
    if not line.command and not last.command:
        raise UsageError(f"no command is on record for {line.words[0]}", options.USAGE[verb])
    if "--cwd" not in line.options and last.cwd:
        kept["--cwd"] = os.path.join(last.cwd, kept["--cwd"]) if "--cwd" in kept else last.cwd
    return jobs.parse_by_hand(verb, line, kept, last.command, _around(last, environ))


def _around(last: LastCall, environ: Mapping[str, str]) -> Mapping[str, str]:
    return {**last.around(environ), "JOBRUN_QUIET": ""}


def _kept(last: LastCall) -> dict[str, str]:
    return {name: text for name, text in last.options.items() if name not in _NOT_BY_HAND}
