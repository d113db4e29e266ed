"""`graph`: the jobs that come after each other, as a table or as a flowchart for Mermaid."""

from __future__ import annotations

from collections.abc import Iterator

from jobrun.instants import iso
from jobrun.links import FINISHED
from jobrun.network import Network, Node
from jobrun.rows import UPSTREAM_FAILED
from jobrun.screen import (
    BAD,
    DIM,
    NOTHING,
    WARN,
    Cell,
    Line,
    Screen,
    Table,
    boundary_cell,
    head,
    line,
    plural,
)
from jobrun.screens.runs import waits_data, waits_for


def graph_screen(ledger: str, network: Network, now: int) -> Screen:
    parts: list[Line | Table] = [head(ledger, now)]
    if network.nodes:
        titles = ("JOB", "AFTER", "GETS", "DONE TO (UTC)", "WAITS")
        parts.append(Table(titles, tuple(_row(node, now) for node in network.nodes)))
        parts += [line(f"{plural(network.alone, 'job')} alone", DIM)] if network.alone else []
    else:
        parts.append(line("no job comes after another (--after)", DIM))
    data = {"now": iso(now), "jobs": [_data(node) for node in network.nodes]}
    return Screen(tuple(parts), {**data, "alone": network.alone})


def _row(node: Node, now: int) -> tuple[Cell, ...]:
    if node.row is None:
        return Cell(node.name), NOTHING, NOTHING, NOTHING, Cell("not on record", style=BAD)
    waits = NOTHING
    if node.waits is not None:
        failed = node.waits.reason == UPSTREAM_FAILED
        waits = Cell(waits_for(node.waits, now), style=BAD if failed else WARN)
    return (
        Cell(node.name),
        Cell(", ".join(_after(*each) for each in node.after)) if node.after else NOTHING,
        Cell(", ".join(_gets(node))) if node.inputs else NOTHING,
        boundary_cell(node.row.watermark, now),
        waits,
    )


def _after(name: str, wants: str) -> str:
    return f"{name}:{FINISHED}" if wants == FINISHED else name


def _gets(node: Node) -> Iterator[str]:
    for name, up, key in node.inputs:
        yield f"{name}={up}.{key}"
    if node.condition is not None:
        yield f"if {node.condition}"


def _data(node: Node) -> dict[str, object]:
    mark = None if node.row is None else node.row.watermark
    return {
        "job": node.name,
        "on_record": node.row is not None,
        "after": [{"job": name, "wants": wants} for name, wants in node.after],
        "inputs": [each._asdict() for each in node.inputs],
        "if": node.condition,
        "done_to": None if mark is None else iso(mark),
        "waits": None if node.waits is None else waits_data(node.waits),
    }


def mermaid(network: Network) -> str:
    """A flowchart as GitHub draws it. Jobs get numbers: a name may be one of Mermaid's words."""
    numbers = {node.name: f"job{n}" for n, node in enumerate(network.nodes, 1)}
    lines = ["flowchart LR"]
    for node in network.nodes:
        condition = f"\nif {node.condition}" if node.condition is not None else ""
        lines.append(f"    {numbers[node.name]}[{_label(node.name + condition)}]")
    for node in network.nodes:
        for name, wants in node.after:
            arrow = "-.->" if wants == FINISHED else "-->"
            got = [f"{each.name}={each.key}" for each in node.inputs if each.up == name]
            label = f"|{_label(', '.join(got))}|" if got else ""
            lines.append(f"    {numbers[name]} {arrow}{label} {numbers[node.name]}")
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """In quotes, with what would end them or be HTML as Mermaid's entities."""
    for letter, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(letter, entity)
    return '"' + text.replace("\n", "<br/>") + '"'
