"""$JOBRUN_VALUES: the file in which a command leaves values for the windows of other jobs.

    rows=5312
    {"path": "/srv/out/2026-09-04.parquet", "complete": true}

Lines of NAME=VALUE, or of one JSON object each. The command makes the file, in a folder that is
ours alone; what is in it after success is kept with the window, all of it or nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat

from jobrun import kept
from jobrun.errors import JobrunError
from jobrun.kept import MakeFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

MOST_BYTES = 65_536
MOST_NAMES = 1000
LONGEST_NAME = 100

Values = tuple[tuple[str, str], ...]  # by name


class ValuesFile:
    """Of one run. Never raises: `problem` says why there is no file, or nothing of it is kept."""

    def __init__(self, path: str, make_folder: MakeFolder) -> None:
        self.path: str | None = path
        self.problem: str | None = None
        remove(path)  # of another ledger that counted its runs from 1
        try:
            make_folder(os.path.dirname(path))
        except OSError as error:
            self.path = None
            self.problem = f"{path}: {error.strerror or error}"
        except JobrunError as error:  # of the folder's maker
            self.path, self.problem = None, error.message

    def read(self) -> Values:
        """What the command has left, nothing where there is a problem."""
        if self.path is None:
            return ()
        values, self.problem = read(self.path)
        return values

    def remove(self) -> None:
        """Once it is on record: where jobrun is killed before, the next call reads what a command
        has left that had marked its window."""
        if self.path is not None:
            remove(self.path)


def read(path: str) -> tuple[Values, str | None]:
    """What a command has left, and why nothing of it can be kept. Never raises."""
    try:
        return parse(_content(path)), None
    except FileNotFoundError:
        return (), None  # it has left none
    except OSError as error:
        return (), f"can't be read: {error.strerror or error}"
    except ValueError as error:
        return (), str(error)


def remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _content(path: str) -> bytes:
    # Looked at before it is opened: a pipe would block, and to open and close what may be a link
    # to the ledger would drop SQLite's locks on it.
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise ValueError("no plain file any more")
    if status.st_size > MOST_BYTES:
        raise ValueError(f"{status.st_size} bytes, at most {MOST_BYTES}")
    found = kept.read_kept(path) if status.st_size else None
    return b"" if found is None else found.data


def parse(data: bytes) -> Values:
    """Raises ValueError with the number of the line and what is wrong with it."""
    found: dict[str, str] = {}
    for number, line in enumerate(_text(data).split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        try:
            found.update(_object(line) if line.lstrip().startswith("{") else [_pair(line)])
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number}: {error}") from None
    if len(found) > MOST_NAMES:
        raise ValueError(f"{len(found)} names, at most {MOST_NAMES}")
    return tuple(sorted(found.items()))


def _text(data: bytes) -> str:
    # PowerShell's `>` writes UTF-16, and its Out-File a mark before UTF-8.
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"no UTF-8, at byte {error.start}") from None


def _pair(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals:
        raise ValueError("neither NAME=VALUE nor a JSON object")
    return _checked(name.strip(), value)


def _object(line: str) -> list[tuple[str, str]]:
    import json

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no number of JSON")

    # Numbers stay as they are written: 1.10 is no 1.1 to who compares it as text.
    found = json.loads(line, parse_float=str, parse_int=str, parse_constant=refuse)
    return [_checked(name, _as_text(name, value)) for name, value in found.items()]


def _as_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise ValueError(f'"{name}" is neither a text, a number, true nor false')


def _checked(name: str, value: str) -> tuple[str, str]:
    if not is_name(name):
        raise ValueError(f"{name[:LONGEST_NAME]!a} is no name: letters, digits and _ only")
    if not _fits(value):
        raise ValueError(f"the value of {name} can't be one of an environment")
    return name, value


def is_name(text: str) -> bool:
    return text.isascii() and text.isidentifier() and len(text) <= LONGEST_NAME


def _fits(value: str) -> bool:
    """Neither a NUL, which no environment can hold, nor half a character, which no UTF-8 can."""
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)
