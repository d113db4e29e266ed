"""The last call of a job, as its row in the ledger keeps it: options, command, who made it.

A row of an older or newer program may lack any of it: what is missing is empty, never an error.
"""

from __future__ import annotations

from jobrun.errors import UsageError
from jobrun.instants import parse_duration
from jobrun.options import BY_NAME, KEY, LEAD, WINDOWS
from jobrun.rows import REFUSED, Caller, JobRow
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobrun.job import Job
    from jobrun.ledger import Ledger
    from jobrun.rows import EventRow


class LastCall(NamedTuple):
    # As typed, by long name: "--lag" -> "10m". --lock also where it was $JOBRUN_LOCK's; none is the
    # default.
    options: dict[str, str]
    command: tuple[str, ...]
    whole: bool  # whether `command` is all of it; in a user's own database it is the first word
    cwd: str | None
    user: str | None
    host: str | None
    terminal: bool
    at: int | None
    leads: bool = False  # it was `jobrun lead`: once, for weeks

    def seconds(self, option: str, default: int) -> int:
        """The value of an option that is a duration."""
        try:
            return parse_duration(self.options[option], option)
        except (KeyError, UsageError):
            return default

    def number(self, option: str) -> int | None:
        """The value of an option that is a whole number; None where it is not given."""
        text = self.options.get(option, "")
        return int(text) if text.isdecimal() else None

    def around(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """The environment of a call by hand. $JOBRUN_LOCK is another one than the crontab's, and is
        taken only where no call is on record."""
        return environ if self.at is None else {**environ, "JOBRUN_LOCK": ""}

    @property
    def caller(self) -> str | None:
        """`etl@db1`"""
        return f"{self.user}@{self.host}" if self.user and self.host else self.user


def write(
    job: Job, caller: Caller, now: int, cwd: str | None, shared: bool, lock: str | None
) -> str:
    """The text of JobRow.spec; in a `shared` database no more than a hash of the command.

    `lock` is what holds the call's, without a password; None: the default.
    """
    typed = {name: text for name, text in job.given.items() if BY_NAME[name].kept}
    if "--ledger" in typed:
        from jobrun.address import hidden

        typed["--ledger"] = hidden(typed["--ledger"])
    spec: dict[str, object] = {
        "options": _locked(typed, lock),
        "command": job.command[:1] if shared else job.command,
        "cwd": cwd,
        "user": caller.user,
        "host": caller.host,
        "terminal": caller.terminal,
        "at": now,
    }
    if job.mode == LEAD:
        spec["leads"] = True
    if shared:
        spec["hash"] = _hash(job.command)
    return encoded(spec)


def with_lock(spec: str | None, lock: str | None) -> str | None:
    """The text of JobRow.spec with the lock of a call that is not kept; None: it has that one."""
    kept = _object(spec)
    options = kept.get("options")
    before: dict[str, object] = options if isinstance(options, dict) else {}
    after = _locked(before, lock)
    return None if after == before else encoded({**kept, "options": after})


def _locked(options: Mapping[str, object], lock: str | None) -> dict[str, object]:
    others = {name: text for name, text in options.items() if name != "--lock"}
    return others if lock is None else {**others, "--lock": lock}


def encoded(value: object) -> str:
    """As json.dumps. Every call writes, few read: to load what reads takes 1 of a call's 50 ms."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        pairs = (f"{_quoted(name)}: {encoded(each)}" for name, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(encoded, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def _quoted(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'  # nearly always; to load what quotes the rest takes 0.2 ms
    try:
        from _json import encode_basestring_ascii  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from json.encoder import encode_basestring_ascii
    return str(encode_basestring_ascii(text))


def _hash(command: tuple[str, ...]) -> str:
    from hashlib import sha256

    return sha256("\0".join(command).encode("utf-8", "surrogateescape")).hexdigest()


def of(row: JobRow | None, mode: str | None = None) -> LastCall:
    """The job's last call as it would be now: with the options that are set on record, and fit.

    `mode` of its calls: for one without windows only the ledger knows it (by_hand.mode_of).
    """
    last = read(row.spec if row is not None else None)
    if row is None or row.overrides is None:
        return last
    from jobrun import overrides

    mode = mode or (WINDOWS if row.schedule is not None else KEY)
    known = overrides.read(row.overrides)
    return last._replace(options=overrides.fit(row.name, mode, last.options, known).options)


def refusal(row: JobRow, ledger: Ledger) -> EventRow | None:
    """Why the last calls are refused, where they are: none since that event has been taken."""
    taken = max([read(row.spec).at or 0, *(s.last_at for s in ledger.skips(row.name, limit=1))])
    if taken >= row.last_seen:  # most jobs: no need to look through all of their events
        return None
    found = ledger.events(row.name, kind=REFUSED, limit=1)
    # Not of a clock that was ahead.
    return next((event for event in found if taken <= event.at <= row.last_seen), None)


def read(spec: str | None) -> LastCall:
    """From the text of JobRow.spec."""
    kept = _object(spec)
    options, command, at = kept.get("options"), kept.get("command"), kept.get("at")
    return LastCall(
        options={k: str(v) for k, v in options.items()} if isinstance(options, dict) else {},
        command=tuple(map(str, command)) if isinstance(command, list) else (),
        whole="hash" not in kept,
        cwd=_text(kept, "cwd"),
        user=_text(kept, "user"),
        host=_text(kept, "host"),
        terminal=kept.get("terminal") is True,
        at=at if isinstance(at, int) else None,
        leads=kept.get("leads") is True,
    )


def _object(spec: str | None) -> dict[str, object]:
    import json

    try:
        kept = json.loads(spec or "{}")
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}


def _text(kept: dict[str, object], name: str) -> str | None:
    value = kept.get(name)
    return value if isinstance(value, str) else None
