"""`jobrun logs JOB|KEY|RUN [-f] [--stdout|--stderr] [--tail N] [--raw]`"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from jobrun import options, printed, tables
from jobrun.call import this_caller
from jobrun.cli.look import JsonOption, LedgerOption, Look, WhatArgument
from jobrun.cli.target import find
from jobrun.errors import UsageError
from jobrun.ledger import Ledger
from jobrun.lines import Lines
from jobrun.printed import STDERR, STDOUT, Stream
from jobrun.rows import RunRow
from jobrun.screen import Screen
from jobrun.screens.logs import elsewhere, kept_there, logs_data, not_kept, title

PAUSE = 0.2  # seconds between two looks of --follow


def logs(
    ctx: typer.Context,
    what: WhatArgument,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until the run ends.")] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="This stream only.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="This stream only.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", metavar="N", help="The last N lines.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Its bytes, unescaped.")] = False,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """What a run printed: of a job its newest run, of a key its last try."""
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        run = _run(look, rows, what)
        assert rows is not None  # or the run would not have been found
        wanted = {STDOUT: stdout, STDERR: stderr}
        both = printed.streams_of(look.where.beside, run)
        streams = [stream for stream in both if wanted[stream.name] or stdout == stderr]
        if as_json:
            read = [(k, printed.read(k)) for k in streams]
            look.show(Screen((), logs_data(run, read)))
            return 0
        tables.write(title(look.path, run, look.now), sys.stderr)
        there = elsewhere(run, this_caller(), None if look.where.is_file else look.where.name)
        if there is not None and _is_nothing_here(look, run):
            tables.write(kept_there(run), sys.stderr)
            Lines().say("hint", there)
            return 0
        pieces = _follow(look, rows, run, streams) if follow else _read(streams, tail)
        _print(pieces, named=len(streams) > 1, raw=raw)
        if _is_nothing_here(look, run):
            tables.write(not_kept(run), sys.stderr)
    return 0


def _is_nothing_here(look: Look, run: RunRow) -> bool:
    return all(stream.size is None for stream in printed.streams_of(look.where.beside, run))


def _run(look: Look, ledger: Ledger | None, what: str) -> RunRow:
    job, window, run = find(look, ledger, what)
    assert ledger is not None
    if run is None:
        found = ledger.runs(job=job.name, key=window.key if window else None, limit=1)
        if not found:
            raise UsageError(f"{what} has not run yet", options.typed("plan", job.name))
        run = found[0]
    return look.as_it_is(run)


def _read(streams: Sequence[Stream], tail: int | None) -> Iterator[tuple[Stream, bytes]]:
    for stream in streams:
        raw = printed.read(stream)
        yield stream, raw if tail is None else printed.last_lines(raw, max(tail, 0))


def _follow(
    look: Look, ledger: Ledger, run: RunRow, streams: Sequence[Stream]
) -> Iterator[tuple[Stream, bytes]]:
    def over() -> bool:
        now = ledger.run(run.id)
        return now is None or now.outcome is not None or not look.is_alive(now)

    never = threading.Event()
    return printed.follow(streams, over, lambda: never.wait(PAUSE))


def _print(pieces: Iterator[tuple[Stream, bytes]], *, named: bool, raw: bool) -> None:
    """`==> stderr <==` where the stream changes, if both are asked for."""
    before = STDOUT
    for stream, data in pieces if raw else printed.texts(pieces):
        if data and named and stream.name != before:
            tables.write(f"==> {stream.name} <==\n", sys.stdout)
            before = stream.name
        if not tables.write(data, sys.stdout):
            return  # the reader has gone: nothing to follow for
