"""JOB|KEY|RUN: which of the three a word means."""

from __future__ import annotations

from typing import NamedTuple

from jobrun import options
from jobrun.cli.look import Look
from jobrun.errors import UsageError
from jobrun.ledger import Ledger
from jobrun.rows import JobRow, RunRow, WindowRow


class Target(NamedTuple):
    """A job; with `window` one unit of its work; with `run` one attempt."""

    job: JobRow
    window: WindowRow | None = None
    run: RunRow | None = None


def find(look: Look, ledger: Ledger | None, word: str) -> Target:
    """A job's name wins, so that a job called 2026 can be reached. Raises UsageError."""
    if ledger is None or (":" not in word and not _is_number(word)):
        return Target(look.job(ledger, word))
    row = ledger.job(word)
    if row is not None:
        return Target(row)
    return _key(look, ledger, word) if ":" in word else _run(look, ledger, int(word))


def _is_number(word: str) -> bool:
    """Of a run: one that SQLite can count to."""
    return word.isascii() and word.isdecimal() and len(word) < 19


def _key(look: Look, ledger: Ledger, key: str) -> Target:
    job = look.job(ledger, key.partition(":")[0])
    window = ledger.window(job.name, key)
    if window is None:
        raise UsageError(
            f'nothing is on record of key "{key}" in {look.path}',
            options.typed("windows", job.name),
        )
    return Target(job, window)


def _run(look: Look, ledger: Ledger, run_id: int) -> Target:
    run = ledger.run(run_id)
    if run is None:
        raise UsageError(f"no run {run_id} in {look.path}", options.typed("history"))
    return Target(look.job(ledger, run.job), None, run)
