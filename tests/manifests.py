"""Manifests of Kubernetes: as much of YAML as they need, and nothing that a reader has to guess.

Mappings and sequences by indentation, scalars in double quotes or plain, lists of JSON's, comments.
"""

from __future__ import annotations

import json
import re
from typing import Any

_KEY = re.compile(r"([A-Za-z][\w./-]*):(?: +(.*))?")
_PLAIN = re.compile(r"[^\s\"'\[\]{}&*!|>%@`#,][^\"#]*|-+[\w-]*")
_Lines = list[tuple[int, int, str]]  # number, indentation, text


def documents(text: str) -> list[Any]:
    """Raises ValueError, naming the line, for what is not of this kind."""
    found: list[_Lines] = [[]]
    for number, line in enumerate(text.splitlines(), 1):
        if line == "---":
            found.append([])
        elif "\t" in line:
            raise ValueError(f"line {number}: a tab")
        elif line.strip() and not line.lstrip().startswith("#"):
            found[-1].append((number, len(line) - len(line.lstrip()), line.strip()))
    return [_whole(lines) for lines in found]


def _whole(lines: _Lines) -> Any:
    value = _block(lines)
    if lines:
        raise ValueError(f"line {lines[0][0]}: indented otherwise than what is above")
    return value


def _block(lines: _Lines) -> Any:
    """What begins here; its lines are taken away."""
    indent = lines[0][1]
    made: Any = [] if lines[0][2].startswith("- ") else {}
    while (
        lines and lines[0][1] == indent and lines[0][2].startswith("- ") == isinstance(made, list)
    ):
        number, _, text = lines.pop(0)
        if isinstance(made, list):
            made.append(_item(lines, number, indent + 2, text[2:].lstrip()))
            continue
        found = _KEY.fullmatch(text)
        if found is None or found[1] in made:
            raise ValueError(f"line {number}: no key, or one that is there already")
        made[found[1]] = _value(lines, number, indent, found[2])
    return made


def _item(lines: _Lines, number: int, indent: int, text: str) -> Any:
    if not _KEY.fullmatch(text):
        return _scalar(number, text)
    lines.insert(0, (number, indent, text))
    return _block(lines)


def _value(lines: _Lines, number: int, indent: int, text: str | None) -> Any:
    if text:
        return _scalar(number, text)
    if not lines or lines[0][1] <= indent:
        raise ValueError(f"line {number}: a key without a value")
    return _block(lines)


def _scalar(number: int, text: str) -> Any:
    if text[0] in '"[':
        return json.loads(text)
    if not _PLAIN.fullmatch(text) or ": " in text:
        raise ValueError(f"line {number}: to be put in quotes")
    return int(text) if text.isdigit() else text
