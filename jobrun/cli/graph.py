"""`jobrun graph [--mermaid]`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from jobrun import network, tables
from jobrun.cli.look import JsonOption, LedgerOption, Look
from jobrun.errors import UsageError
from jobrun.screens.graph import graph_screen, mermaid


def graph(
    ctx: typer.Context,
    as_mermaid: Annotated[
        bool, typer.Option("--mermaid", help="A flowchart, for what draws Mermaid.")
    ] = False,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> int:
    """Which jobs come after which (--after), as they were last called, and what they wait for."""
    if as_mermaid and as_json:
        raise UsageError("--mermaid and --json: one of them is the form")
    look = Look(ctx, ledger, as_json)
    with look.ledger() as rows:
        if rows is None:
            look.nothing_yet({"jobs": []})
            return 0
        found = network.take(rows, look.now)
        if as_mermaid:
            tables.write(mermaid(found), sys.stdout)
        else:
            look.show(graph_screen(look.path, found, look.now))
    return 0
