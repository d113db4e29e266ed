"""Ends of runs that a server is to be told, each in a file of its own until it has answered.

    <beside>.d/outbox/<run id>.json

A file is there as a whole or not at all, and outlasts a power cut: it is written under another
name (a draft), synced, renamed, and its folder is synced. What a later version adds to it is left
out here; a file of a later form (`"v": 2`) is left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator

from jobrun import kept
from jobrun.kept import MakeFolder
from jobrun.rows import OUTCOMES, Result, RunRow
from jobrun.value import NamedTuple

VERSION = 1
MOST_BYTES = 4_194_304  # the values of a run are 64 KiB at the most
_SUFFIX, _DRAFT = ".json", ".json.new"
_NONE = type(None)


class Limits(NamedTuple):
    """What a breaker (rows.Breaker) is made from; `stops`: --on-failure stop."""

    windows: int
    resume_after: int | None
    lag: int
    stops: bool


class Parcel(NamedTuple):
    """All that it takes to record the end of a run, and to tell it from another one's."""

    result: Result  # its breaker is made anew, from `limits`
    child_pid: int
    birth: str
    attempt: int
    start: int | None  # the window's bounds
    end: int | None
    limits: Limits | None

    def is_of(self, row: RunRow) -> bool:
        """Whether that is its run: a database made anew counts from 1 again."""
        ours = (self.result.job, self.result.token, self.child_pid, self.birth)
        return ours == (row.job, row.token, row.child_pid, row.birth)


class Found(NamedTuple):
    """A file in the outbox; `parcel` None: it can't be read, `problem` says why."""

    path: str
    parcel: Parcel | None
    problem: str | None = None

    def is_meant(self, job: str | None) -> bool:
        """Whether it is of the job, as may be one that can't be read; None: of any."""
        return job is None or self.parcel is None or self.parcel.result.job == job


def write(folder: str, parcel: Parcel, make_folder: MakeFolder) -> str:
    """The path of its file. Raises OSError, and what `make_folder` does."""
    if not os.path.isdir(folder):
        make_folder(folder)
        _sync(os.path.dirname(folder))
    path = os.path.join(folder, f"{parcel.result.run_id}{_SUFFIX}")
    draft = os.path.join(folder, f"{parcel.result.run_id}{_DRAFT}")
    try:
        fd = kept.create(draft)
        try:
            kept.write_all(fd, _text(parcel))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(draft, path)
    except OSError:
        remove(draft)
        raise
    _sync(folder)
    return path


def remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def look(folder: str) -> Iterator[Found]:
    """All that lies there, oldest run first. Never raises."""
    for _, path in _paths(folder, _SUFFIX):
        try:
            yield Found(path, read(path))
        except FileNotFoundError:  # handed in a moment ago
            continue
        except OSError as error:
            yield Found(path, None, error.strerror or str(error))
        except ValueError as error:
            yield Found(path, None, str(error))


def drafts(folder: str) -> list[tuple[int, str]]:
    """(run id, path) of what is being written, or was when its writer was killed."""
    return _paths(folder, _DRAFT)


def _paths(folder: str, suffix: str) -> list[tuple[int, str]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    numbers = sorted(int(stem) for stem in stems if stem.isdecimal() and stem.isascii())
    return [(number, os.path.join(folder, f"{number}{suffix}")) for number in numbers]


def read(path: str) -> Parcel:
    """Raises OSError, and ValueError with what is wrong with the file."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
        raise ValueError("no file of jobrun's")
    found = kept.read_kept(path)
    if found is None:
        raise FileNotFoundError(path)
    try:
        return _parcel(json.loads(found.data))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"damaged: {error}") from None


def _sync(folder: str) -> None:
    """What was made or renamed in it lasts."""
    if sys.platform == "win32":
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _text(parcel: Parcel) -> bytes:
    limits = None if parcel.limits is None else parcel.limits._asdict()
    result = parcel.result._asdict()
    del result["breaker"]
    whole = {"v": VERSION, **parcel._asdict(), "result": result, "limits": limits}
    return json.dumps(whole, indent=1).encode() + b"\n"


# What each field may be; a number is one that a database can hold.
_RESULT: dict[str, tuple[type, ...]] = {
    "job": (str,),
    "run_id": (int,),
    "token": (int,),
    "key": (str, _NONE),
    "outcome": (str,),
    "exit_code": (int, _NONE),
    "signal": (int, _NONE),
    "ended": (int,),
    "took": (int, float),
    "output_bytes": (int,),
    "next_attempt_at": (int, _NONE),
    "told": (str, _NONE),
    "told_at": (int, _NONE),
    "values": (list,),
    "is_dead": (bool,),
    "goes_on": (bool,),
    "beside": (bool,),
    "schedule": (str, _NONE),
    "why": (str, _NONE),
}
_PARCEL: dict[str, tuple[type, ...]] = {
    "child_pid": (int,),
    "birth": (str,),
    "attempt": (int,),
    "start": (int, _NONE),
    "end": (int, _NONE),
}
_LIMITS: dict[str, tuple[type, ...]] = {
    "windows": (int,),
    "resume_after": (int, _NONE),
    "lag": (int,),
    "stops": (bool,),
}
_YEAR_10000 = 253_402_300_800
_BELOW = dict.fromkeys(("ended", "next_attempt_at", "told_at", "start", "end"), _YEAR_10000)
_BELOW["signal"] = 2**31


def _parcel(found: object) -> Parcel:
    if not isinstance(found, dict):
        raise ValueError("no object")
    version = found.get("v")
    if version != VERSION:
        raise ValueError(f"not of this form but of v {version}")
    result = _fields(found["result"], _RESULT)
    if result["outcome"] not in OUTCOMES:
        raise ValueError(f"outcome {result['outcome']}")
    result["values"] = tuple(_pair(pair) for pair in result["values"])  # type: ignore[attr-defined]
    limits = None
    if found["limits"] is not None:
        limits = Limits(**_fields(found["limits"], _LIMITS))  # type: ignore[arg-type]
    rest = _fields(found, _PARCEL)
    return Parcel(Result(**result), **rest, limits=limits)  # type: ignore[arg-type]


def _fields(found: object, types: dict[str, tuple[type, ...]]) -> dict[str, object]:
    if not isinstance(found, dict):
        raise ValueError("no object")
    return {name: _checked(name, found[name], kinds) for name, kinds in types.items()}


def _checked(name: str, value: object, kinds: tuple[type, ...]) -> object:
    if type(value) not in kinds:
        raise ValueError(f"{name} {value!r}")
    if isinstance(value, (int, float)) and not 0 <= value < _BELOW.get(name, 2**63):
        raise ValueError(f"{name} {value}")
    return value


def _pair(found: object) -> tuple[str, str]:
    if not isinstance(found, list) or [type(each) for each in found] != [str, str]:
        raise ValueError(f"values {found!r}")
    return found[0], found[1]
