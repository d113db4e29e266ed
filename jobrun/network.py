"""Which jobs come after which, as they were last called, and what each of them waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobrun import lastcall, links
from jobrun.errors import UsageError
from jobrun.ledger import Ledger
from jobrun.plans import Skip
from jobrun.rows import JobRow
from jobrun.standing import waits


class Node(NamedTuple):
    name: str
    row: JobRow | None  # None: others come after it, and it is not on record
    after: tuple[tuple[str, str], ...]  # (upstream, processed or finished)
    inputs: tuple[links.Input, ...]
    condition: str | None
    waits: Skip | None  # what its next window waits for, where that has closed


class Network(NamedTuple):
    nodes: tuple[Node, ...]  # upstreams first; only those that come after one, or before one
    alone: int  # how many jobs stand alone


def take(ledger: Ledger, now: int) -> Network:
    known = {row.name: _node(ledger, row, now) for row in ledger.jobs()}
    linked = {name for node in known.values() if node.after for name in (node.name, *_ups(node))}
    nodes = {name: known.get(name) or Node(name, None, (), (), None, None) for name in linked}
    return Network(_in_order(nodes), len(known.keys() - linked))


def _node(ledger: Ledger, row: JobRow, now: int) -> Node:
    last = lastcall.of(row)
    options = last.options
    try:
        after = links.after(options["--after"]) if "--after" in options else ()
        ups = [name for name, _ in after]
        inputs = links.inputs(options["--input"], ups) if "--input" in options else ()
    except UsageError:  # of a newer program
        after, inputs = (), ()
    return Node(
        row.name,
        row,
        after,
        inputs,
        options.get("--if"),
        waits(ledger, row, now - last.seconds("--lag", 0)),
    )


def _ups(node: Node) -> list[str]:
    return [name for name, _ in node.after]


def _in_order(nodes: Mapping[str, Node]) -> tuple[Node, ...]:
    """Each after its upstreams, by name otherwise; a circle, which no call makes, is just cut."""
    found: dict[str, Node] = {}

    def add(name: str, path: Sequence[str]) -> None:
        for up in _ups(nodes[name]):
            if up not in path and up not in found:
                add(up, (*path, up))
        found.setdefault(name, nodes[name])

    for name in sorted(nodes):
        add(name, (name,))
    return tuple(found.values())
