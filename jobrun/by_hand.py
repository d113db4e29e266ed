"""`rerun` and `backfill`: windows again, with the options and the command of the last call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from jobrun import job as jobs
from jobrun import lastcall, options, places
from jobrun.errors import UsageError
from jobrun.job import Job
from jobrun.lastcall import LastCall
from jobrun.ledger import Ledger
from jobrun.ledger_sqlite import open_ledger
from jobrun.rows import JobRow

# What a person at a prompt does not want from the crontab's line: silence, and its way to wait.
_NOT_BY_HAND = ("--quiet", "-Q", "--output", "--wait", "--busy-exit", "--stdin", "--log-format")


def parse(verb: str, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[Job, str | None]:
    """The job of `rerun JOB WHEN` or `backfill JOB --from A --to B`; and what it took over."""
    line = options.read_line(argv)
    check_words(verb, line)
    path = places.ledger_path(line.options.get("--ledger"), environ)
    last = last_call(path, line.words[0])
    this = _job(verb, line, last, environ)
    return this, _taken_over(line, last, this)


def _taken_over(line: options.Line, last: LastCall, this: Job) -> str | None:
    """What comes from the last call, as it could be typed."""
    kept = [
        word
        for name, text in _kept(last).items()
        if name not in line.options
        for word in ([name] if options.BY_NAME[name].kind == options.FLAG else [name, text])
    ]
    command = [] if line.command else ["--", *this.command]
    folder = "" if "--cwd" in line.options or this.cwd is None else f" in {this.cwd}"
    if not kept and not command and not folder:
        return None
    return f"from the last call: {options.shell_text([*kept, *command])}{folder}"


def check_words(verb: str, line: options.Line) -> None:
    wanted = 2 if verb == "rerun" else 1
    if len(line.words) != wanted:
        what = "JOB and WHEN" if verb == "rerun" else "JOB"
        found = " ".join(f'"{word}"' for word in line.words) or "nothing"
        raise UsageError(f"{verb} takes {what} before --; {found} was given", options.USAGE[verb])
    missing = [
        name for name in ("--from", "--to") if verb == "backfill" and name not in line.options
    ]
    if missing:
        raise UsageError(f"backfill needs {' and '.join(missing)}", options.USAGE[verb])


def last_call(path: str, name: str) -> LastCall:
    """What is on record of the job's last call. Raises UsageError for a job that is not there."""
    jobs.check_name(name)
    if not os.path.exists(path):
        raise UsageError(
            f"no ledger at {path} yet", "--ledger PATH, or the user whose jobs they are"
        )
    ledger = open_ledger(path, create=False)
    try:
        return lastcall.of(known_job(ledger, name))
    finally:
        ledger.close()


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
    return jobs.parse_by_hand(verb, line, kept, last.command, {**environ, "JOBRUN_QUIET": ""})


def _kept(last: LastCall) -> dict[str, str]:
    return {name: text for name, text in last.options.items() if name not in _NOT_BY_HAND}
