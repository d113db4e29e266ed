"""`jobrun hosts [--forget HOST]`"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Annotated

import typer

from jobrun import options
from jobrun.call import Call
from jobrun.cli.look import DryRunOption, JsonOption, LedgerOption, LimitOption, Look, a_call
from jobrun.errors import Refused, UsageError
from jobrun.ledger import Ledger
from jobrun.ledgers import open_ledger
from jobrun.screens.hosts import Machine, hosts_screen


def hosts(
    ctx: typer.Context,
    forget: Annotated[
        str | None, typer.Option("--forget", metavar="HOST", help="It has gone for good.")
    ] = None,
    limit: LimitOption = 50,
    dry_run: DryRunOption = False,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """Which machines have called: since when, last, with which jobrun and clock, what is open."""
    if forget is not None:
        _forget(a_call(ctx, ledger), forget, dry_run)
        return 0
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        if rows is None:
            look.nothing_yet({"hosts": []})
            return 0
        found = _machines(rows, limit + 1)
        look.show(hosts_screen(look.path, found, look.now, limit))
    return 0


def _machines(ledger: Ledger, limit: int) -> list[Machine]:
    open_runs = Counter(run.host for run in ledger.open_runs())
    return [
        Machine(row, open_runs[row.host], next(iter(ledger.runs(host=row.host, limit=1)), None))
        for row in ledger.hosts(limit)
    ]


def _forget(call: Call, name: str, dry_run: bool) -> None:
    """Its runs stay on record. It comes back with its next call."""
    with closing(open_ledger(call.where)) as ledger:
        row = ledger.host(name)
        if row is None:
            known = [host.host for host in ledger.hosts()]
            close = options.nearest(name, known, 3)
            raise UsageError(
                f'no host "{name}" in {ledger.address}', f"{close}?" if close else _list()
            )
        open_runs = [run for run in ledger.open_runs() if run.host == name]
        if open_runs or not (dry_run or ledger.forget_host(name)):
            runs = ", ".join(f"{run.id} of {run.job}" for run in open_runs[:3]) or "one"
            raise Refused(
                f"host {name} has a run that has not ended: {runs}",
                "the next call of that job finds out what became of it, and says so",
            )
    what = "would-forget-host" if dry_run else "host-forgotten"
    call.lines.event("NOTE", {"what": what, "host": name, "last": row.last_seen, "at": call.now()})


def _list() -> str:
    return f"{options.typed('hosts')} lists them"
