"""Print a screen: with rich on a terminal, else one row a line, never wrapped.

Both say the same. A pipe gets the full forms, and columns that stand two blanks apart (no cell
holds two blanks in a row), so that `awk -F '  +'` takes them apart exactly.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence

from jobrun.screen import Cell, Line, Screen, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import Console
    from rich.text import Text

VERSION = 1  # of the JSON documents


def show(screen: Screen, ledger: str, *, as_json: bool = False, out: TextIO | None = None) -> None:
    """Write the screen to stdout, or to `out`."""
    out = out or sys.stdout
    if as_json:
        write(document(screen, ledger), out)
    elif is_terminal(out):
        try:
            _paint(screen, out)
        except OSError as error:
            _drop(out, error)
    else:
        write(plain(screen), out)


def document(screen: Screen, ledger: str) -> str:
    """One JSON document in one line; ASCII, so that a name with a broken byte can't break it."""
    return json.dumps({"v": VERSION, "ledger": ledger, **screen.data}) + "\n"


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def write(data: str | bytes, out: TextIO | None) -> bool:
    """Write all of it; what the stream's encoding lacks becomes `\\u....`.

    False where the reader has gone (`| head -1`), or there is none (pythonw): that is no error.
    """
    if out is None:
        return False
    raw = data
    if isinstance(raw, str):
        raw = raw.encode(out.encoding or "ascii", "backslashreplace")
    try:
        out.buffer.write(raw)
        out.buffer.flush()
    except OSError as error:
        _drop(out, error)
        return False
    return True


def _drop(out: TextIO, error: OSError) -> None:
    """The reader is gone: from here on nothing is written.

    Without this the interpreter would say so, once more, when it flushes at its end.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, out.fileno())
    os.close(nowhere)
    if error.errno not in (errno.EPIPE, errno.EINVAL):  # EINVAL: the same on Windows
        write(f"jobrun: error: can't write all of it: {error.strerror or error}\n", sys.stderr)


# -- piped ----------------------------------------------------------------------------------------


def plain(screen: Screen) -> str:
    return "".join(f"{text}\n" for part in screen.parts for text in _plain_part(part))


def _plain_part(part: Line | Table) -> Iterator[str]:
    if isinstance(part, Line):
        yield printable("".join(_full(cell) for cell in part.cells)).rstrip()
        return
    titles = [title.removeprefix(">") for title in part.titles]
    rows = [titles, *([_one_blank(_full(cell)) for cell in row] for row in part.rows)]
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    right = [title.startswith(">") for title in part.titles]
    for row in rows:
        yield "  ".join(map(_padded, row, widths, right)).rstrip()


def _padded(text: str, size: int, right: bool) -> str:
    blanks = " " * (size - width(text))
    return blanks + text if right else text + blanks


def _full(cell: Cell) -> str:
    return cell.text if cell.full is None else cell.full


def _one_blank(text: str) -> str:
    return " ".join(printable(text).split()) or "-"


def printable(text: str) -> str:
    """Control, format and bidirectional characters as escapes: a file's name can hold any of them,
    and none may move the cursor or hide what stands beside it."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or "\ud800" <= c <= "\udfff" else c.encode("unicode_escape").decode()
        for c in text
    )


def width(text: str) -> int:
    """Columns on a terminal: names may be in any script."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


# -- on a terminal --------------------------------------------------------------------------------


def _paint(screen: Screen, out: TextIO) -> None:
    # rich takes 40 ms to load: a pipe does without it.
    from rich.console import Console

    console = Console(file=out, highlight=False, markup=False, emoji=False)
    if console.no_color:  # rich would still write bold and dim
        console = Console(file=out, color_system=None, highlight=False, markup=False, emoji=False)
    for part in screen.parts:
        if isinstance(part, Line):
            console.print(_text(part.cells), soft_wrap=True)
        else:
            _paint_table(part, console)


def _paint_table(table: Table, console: Console) -> None:
    from rich.table import Table as RichTable

    rich = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in table.titles:
        rich.add_column(
            title.removeprefix(">"),
            justify="right" if title.startswith(">") else "left",
            overflow="fold",
        )
    for row in table.rows:
        rich.add_row(*(_text([cell]) for cell in row))
    console.print(rich)


def _text(cells: Sequence[Cell]) -> Text:
    from rich.text import Text

    text = Text()
    for cell in cells:
        text.append(printable(cell.text), style=cell.style)
    return text
