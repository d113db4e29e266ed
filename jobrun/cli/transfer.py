"""`export` and `import`: a ledger to a file, and a file to a ledger."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any, BinaryIO

from jobrun import __version__, exported, job, places, tables
from jobrun.by_hand import known_job
from jobrun.call import Call
from jobrun.cli import acts
from jobrun.errors import JobrunError, LedgerError, NoLedger, Refused, UsageError
from jobrun.exported import RUN, Exported, Part, Row, Table
from jobrun.ledger import Ledger
from jobrun.ledgers import is_there, open_ledger
from jobrun.options import typed

_PAUSE = 2.0  # seconds between two lines of progress
_PIECE = 1 << 16  # bytes
_NEW, _SAME = "imported", "unchanged"


class _Progress:
    """A line now and then, for a person at a terminal; silent elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._told = time.monotonic()
        self._is_shown = tables.is_terminal(sys.stderr)

    def __call__(self, count: int) -> None:
        if self._is_shown and time.monotonic() - self._told >= _PAUSE:
            self._told = time.monotonic()
            tables.write(f"jobrun: {self._what} {count}\n", sys.stderr)


# -- export ----------------------------------------------------------------------------------------


def export(call: Call, names: Sequence[str]) -> int:
    """The jobs, or all of them, to stdout. Raises UsageError, LedgerError."""
    with closing(open_ledger(call.where)) as ledger, ExitStack() as held:
        jobs = sorted({known_job(ledger, name).name for name in names})
        out = _stdout()
        # Who reads slowly (`| less`) must not keep the database's past alive.
        draft = out if _is_file(out) else held.enter_context(tempfile.TemporaryFile())
        running: list[dict[str, Any]] = []
        with ledger.exporting(jobs) as (floor, rows):
            first = exported.header(call.where, __version__, floor, call.now())
            _write(draft, exported.lines(first, _looked_at(rows, running)))
        if draft is not out:
            draft.seek(0)
            _write(out, iter(lambda: draft.read(_PIECE), b""))
        _warn(call, running)
    return 0


def _looked_at(
    rows: Iterator[tuple[Table, Row]], running: list[dict[str, Any]]
) -> Iterator[tuple[Table, Row]]:
    progress = _Progress("rows read:")
    for count, (table, row) in enumerate(rows, start=1):
        if table is RUN and row[_OUTCOME] is None:
            running.append(dict(zip(RUN.columns, row, strict=True)))
        progress(count)
        yield table, row


def _warn(call: Call, running: Sequence[dict[str, Any]]) -> None:
    """Of runs that have not ended there: where the file is read they never will."""
    for run in running:
        what = {"job": run["job"], "what": "open-run", "key": run["key"]}
        holder = f"{run['host']}:{run['pid']}"
        fields = {**what, "holder": holder, "run": run["id"], "at": call.now()}
        call.lines.event("WARNING", fields)
    if running:
        call.lines.say(
            "hint",
            "in the ledger that it goes to such a run never ends: the next call there takes it for"
            " lost, and runs its window again; jobrun pause, and export when it has ended",
        )


def _stdout() -> BinaryIO:
    if sys.stdout is None:
        raise LedgerError("export: there is no stdout to write to", "jobrun export > FILE")
    return sys.stdout.buffer


def _is_file(out: BinaryIO) -> bool:
    return stat.S_ISREG(os.fstat(out.fileno()).st_mode)


def _write(out: BinaryIO, pieces: Iterator[bytes]) -> None:
    """Raises LedgerError: what is not whole is of no use, and must not look as if it were."""
    try:
        for piece in pieces:
            out.write(piece)
        out.flush()
    except OSError as error:
        if out is sys.stdout.buffer:
            _drop(out)
        gone = "its reader has gone" if error.errno == errno.EPIPE else error.strerror or str(error)
        raise LedgerError(f"export: can't write all of it: {gone}") from error


def _drop(out: BinaryIO) -> None:
    """Or the interpreter would say so once more, when it flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, out.fileno())
    os.close(nowhere)


# -- import ----------------------------------------------------------------------------------------


def import_from(call: Call, file: str, dry_run: bool, ledger_option: str | None) -> int:
    """All jobs of the file; 0, or the code of the first that was refused: the others are done.

    Raises UsageError for a file that can't be read, LedgerError for one that is no whole export.
    """
    with ExitStack() as held:
        source, name = _source(file, held)
        read = Exported(name, source, _Progress(f"{name}, lines read:"))
        _check_names(read)
        if dry_run:
            return _foresee(call, read)
        places.make_state_folder(call.where, ledger_option, call.environ)
        kind = places.filesystem_of(call.where)
        ledger = held.enter_context(
            closing(open_ledger(call.where, create=True, network=kind in places.NETWORK))
        )
        if ledger.created:
            what = {"what": "new-ledger", "ledger": call.ledger, "at": call.now()}
            call.lines.event("NOTE", what)
        code = 0
        for part in read.parts:
            refused = _take(call, ledger, read, part)
            code = code or refused
        ledger.keep_token_floor(read.token_floor)
        return code


def _source(file: str, held: ExitStack) -> tuple[BinaryIO, str]:
    if file == "-":
        if sys.stdin is None:
            raise UsageError("import -: there is no stdin to read from", "jobrun import FILE")
        source: BinaryIO = sys.stdin.buffer
    else:
        try:
            source = held.enter_context(open(file, "rb"))  # noqa: SIM115 - it is
        except OSError as error:
            raise UsageError(
                f"import {file}: {error.strerror or error}", "jobrun export > FILE"
            ) from error
    name = "stdin" if file == "-" else file
    return exported.seekable(source, held.enter_context(tempfile.TemporaryFile())), name


def _check_names(read: Exported) -> None:
    for part in read.parts:
        try:
            job.check_name(part.name)
        except UsageError as error:
            raise LedgerError(f"{read.name}: {error.message}") from None


def _foresee(call: Call, read: Exported) -> int:
    code = 0
    with ExitStack() as held:
        ledger = None
        with suppress(NoLedger):
            if is_there(call.where):
                ledger = held.enter_context(closing(open_ledger(call.where)))
        for part in read.parts:
            try:
                what = ledger.judge_import(read, part) if ledger is not None else _NEW
            except UsageError as error:
                refused = _refuse(call, part, error)
                code = code or refused
                continue
            _tell(call, part, what if what == _SAME else "would-import")
    return code


def _take(call: Call, ledger: Ledger, read: Exported, part: Part) -> int:
    """The exit code. Another history, or a job that is running: the other jobs are no worse."""
    has_lock = False
    try:
        with acts.locked(call, ledger, part.name) as lock:
            acts.refuse_alive(ledger, part.name, call, lock)
            has_lock = True
            taken = ledger.take_import(read, part, _kept(call, read, part))
    except (UsageError, Refused) as error:
        if has_lock and isinstance(error, Refused):  # the ledger's: it is the same for all
            raise
        return _refuse(call, part, error)
    _tell(call, part, taken.what, taken.raised)
    if taken.what != _SAME:
        _warn(call, part.open_runs)
    return 0


def _refuse(call: Call, part: Part, error: JobrunError) -> int:
    call.lines.error(error)
    if isinstance(error, UsageError):  # another history
        forget = typed("forget", part.name)
        call.lines.say("hint", f"{forget}, then import again; or import into another ledger")
    return error.code


def _tell(call: Call, part: Part, what: str, raised: int = 0) -> None:
    fields = {"job": part.name, "what": what, "rows": part.count}
    by = {"run-ids": f"+{raised}"} if raised else {}
    call.lines.event("NOTE", {**fields, **by, "at": call.now()})


def _kept(call: Call, read: Exported, part: Part) -> frozenset[int]:
    """The runs whose output is kept here under their numbers: they were others of this job, before
    it was forgotten, unless the file comes from this very ledger."""
    if read.header.get("source") == call.ledger:
        return frozenset()
    names: list[str] = []
    for _, _, files in os.walk(places.job_output(call.where.beside, part.name)):
        names += files
    stems = {name.partition(".")[0] for name in names}
    return frozenset(int(stem) for stem in stems if stem.isdecimal())


_OUTCOME = RUN.columns.index("outcome")
