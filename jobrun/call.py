"""One call of jobrun: who makes it, from where, with which clock; and what is kept of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from jobrun.job import Job
from jobrun.lines import Lines
from jobrun.options import BY_NAME
from jobrun.rows import Caller


class Call(NamedTuple):
    """`clock` returns seconds since 1970-01-01T00:00Z and is the only clock that a call reads."""

    environ: Mapping[str, str]
    clock: Callable[[], float]
    lines: Lines
    ledger: str  # its real path
    caller: Caller

    def now(self) -> int:
        return int(self.clock())


def this_caller() -> Caller:
    return Caller(host_name(), os.getpid(), _user_name(), _on_terminal())


def host_name() -> str:
    if sys.platform == "win32":
        import socket

        return socket.gethostname()
    return os.uname().nodename


def _user_name() -> str:
    if sys.platform == "win32":
        return os.getlogin()
    from jobrun.places import user_name

    return user_name(os.getuid())


def _on_terminal() -> bool:
    for descriptor in (0, 2):
        try:
            if os.isatty(descriptor):
                return True
        except OSError:
            pass
    return False


def write_spec(job: Job, call: Call, shared: bool) -> str:
    """This call as JSON, for `lastcall.py`; in a `shared` database only a hash of the command."""
    import json

    command = list(job.command)
    kept = {name: text for name, text in job.given.items() if BY_NAME[name].kept}
    spec: dict[str, object] = {"options": kept, "command": command, "cwd": _folder()}
    if shared:
        spec["command"] = command[:1]
        spec["hash"] = _hash(command)
    caller = call.caller
    spec |= {
        "user": caller.user,
        "host": caller.host,
        "terminal": caller.terminal,
        "at": call.now(),
    }
    return json.dumps(spec)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it has been deleted
        return None


def _hash(command: list[str]) -> str:
    from hashlib import sha256

    return sha256("\0".join(command).encode("utf-8", "surrogateescape")).hexdigest()
