"""`logs`: the line about the run; its output speaks for itself."""

from __future__ import annotations

from collections.abc import Sequence

from jobrun.options import shell_text, typed
from jobrun.printed import Stream
from jobrun.rows import LOST, Caller, RunRow
from jobrun.screen import moment, span
from jobrun.screens.runs import outcome, run_data, took


def title(ledger: str, run: RunRow, now: int) -> str:
    """On stderr, so that stdout has the output and nothing else."""
    unit = "" if run.key is None else f" {run.key.partition(':')[2]}"
    if run.start is not None and run.end is not None:
        unit = f" {span(run.start, run.end, now)}"
    when = f"{moment(run.started, now, seconds=True)} UTC"
    how = f"{outcome(run)}, {took(run, now)}"
    return f"ledger {ledger}  run {run.id}: {run.job}{unit}, {when}, {how}\n"


def elsewhere(run: RunRow, caller: Caller, server: str | None) -> str | None:
    """How to read what a run has printed where it is not kept here: as whoever ran it, there.

    What is kept of a ledger on a `server` (its address; None: in a file) lies in the state folder
    of the user who ran it.
    """
    if not run.output_bytes and run.outcome not in (None, LOST):  # there is none
        return None
    logs, is_ours = ("logs", str(run.id)), run.user == caller.user
    if run.host != caller.host:
        return f"on {run.host}{'' if is_ours else f', as {run.user}'}: {typed(*logs)}"
    if server is not None and not is_ours:  # sudo hands no $JOBRUN_LEDGER on
        return f"{shell_text(('sudo', '-u', run.user, '-H'))} {typed(*logs, '--ledger', server)}"
    return None


def kept_there(run: RunRow) -> str:
    return f"what it printed is not here: it is kept where it ran, on {run.host}\n"


def not_kept(run: RunRow) -> str:
    if run.output_bytes:
        return (
            f"{run.output_bytes} bytes are no longer kept"
            " (the last 100 runs of a job are, failures for 30 days)\n"
        )
    return "it printed nothing\n" if run.outcome is not None else "it has printed nothing yet\n"


def logs_data(run: RunRow, read: Sequence[tuple[Stream, bytes]]) -> dict[str, object]:
    """Bytes that are no UTF-8 are escaped; the paths lead to all of them."""
    streams = {
        stream.name: {"path": stream.path, "text": raw.decode("utf-8", "backslashreplace")}
        for stream, raw in read
        if stream.size is not None
    }
    return {"run": run_data(run), **streams}
