"""Events to lines: everything that jobrun prints of a call, on stderr, one write an event.

    jobrun: PROCESSED job=sales window=2026-…/2026-… key=… attempt=1 took=1.204s run=8124 at=…

The words are a closed set. A value with a blank, a quote, `=`, a control character or a surrogate
is a JSON string, so that a line splits at blanks. With `--log-format json` the same fields come as
one object a line, numbers as numbers.
"""

from __future__ import annotations

import os
import sys

from jobrun.instants import duration, iso, iso_z

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobrun.errors import JobrunError
    from jobrun.job import Job

# syslog priorities, as the journal reads them in front of a line
_PRIORITY = {
    "FAILED": 3, "INTERRUPTED": 4, "LOST": 3, "FENCED": 3, "WARNING": 4, "error": 3, "hint": 6,
}  # fmt: skip
# What quiet hides: lines about nothing special. Never what failed, was lost, given up or changed.
_NOTHING_SPECIAL = ("STARTED", "PROCESSED", "SKIPPED", "BACKLOG")
_DURATIONS = ("took", "held", "lag", "closes-in")
_INSTANTS = ("at", "since", "next", "from", "last", "until", "now", "watermark", "done-to")
_PLAIN = frozenset(map(chr, range(0x21, 0x7F))) - set('"=')


class Lines:
    """Where and how lines are printed. A stderr that is missing or broken never makes it fail."""

    def __init__(
        self,
        descriptor: int = 2,
        log_format: str = "text",
        quiet: bool = False,
        verbose: bool = False,
    ) -> None:
        self.descriptor = descriptor
        self.json = log_format == "json"
        self.quiet = quiet
        self.verbose = verbose
        self.encoding = getattr(sys.stderr, "encoding", None) or "utf-8"

    def follow(self, job: Job) -> None:
        """From here on as the options of the call say."""
        self.json = job.log_format == "json"
        self.quiet = job.quiet
        self.verbose = job.verbose

    def event(self, word: str, fields: Mapping[str, object], force: bool = False) -> None:
        """Print one event; fields that are None are left out. `force` overrides quiet."""
        if self.quiet and not force and word in _NOTHING_SPECIAL:
            return
        if word == "STARTED" and not (self.verbose or self.json):
            return
        present = {name: value for name, value in fields.items() if value is not None}
        self._write(word, self._object(word, present) if self.json else _text(word, present))

    def idle(self, fields: Mapping[str, object]) -> None:
        """The line of a call with nothing to do: cron shall not mail it."""
        if self.verbose or self.json or (not self.quiet and self.on_terminal()):
            self.event("SKIPPED", fields)

    def error(self, error: JobrunError) -> None:
        self.say("error", error.message)
        if error.hint:
            self.say("hint", error.hint)

    def say(self, word: str, text: str) -> None:
        """An `error:` or `hint:` line; the text on one line, whatever came into it."""
        text = "".join(c if c.isprintable() or c == " " else ascii(c)[1:-1] for c in text)
        self._write(word, self._object(word, {"text": text}) if self.json else f"{word}: {text}")

    def on_terminal(self) -> bool:
        try:
            return os.isatty(self.descriptor)
        except OSError:
            return False

    def _object(self, word: str, fields: Mapping[str, object]) -> str:
        import json

        return json.dumps({"v": 1, "word": word, **{n: _json(n, v) for n, v in fields.items()}})

    def _write(self, word: str, text: str) -> None:
        line = text if self.json else f"jobrun: {text}"
        data = f"{self._priority(word)}{line}\n".encode(self.encoding, "backslashreplace")
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
        except OSError:
            pass  # nobody is left to tell

    def _priority(self, word: str) -> str:
        # systemd sets JOURNAL_STREAM=device:inode of the stream that goes to the journal.
        stream = os.environ.get("JOURNAL_STREAM")
        if not stream or self.json:
            return ""
        try:
            status = os.fstat(self.descriptor)
        except OSError:
            return ""
        ours = stream == f"{status.st_dev}:{status.st_ino}"
        return f"<{_PRIORITY.get(word, 6)}>" if ours else ""


def _text(word: str, fields: Mapping[str, object]) -> str:
    return " ".join([word, *(f"{name}={_value(name, value)}" for name, value in fields.items())])


def _value(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return f"{iso(value[0])}/{iso(value[1])}"
    if name in _DURATIONS and isinstance(value, (int, float)):
        return duration(value)
    if name in _INSTANTS and isinstance(value, int):
        return iso_z(value)
    return quoted(str(value))


def quoted(text: str) -> str:
    """The text as a value of a line: as it is, or as a JSON string."""
    if text and _PLAIN.issuperset(text):
        return text
    if text and all(c.isprintable() and c not in ' "=' for c in text):
        return text  # letters of any script; a surrogate is not printable
    import json

    return json.dumps(text, ensure_ascii=not text.isprintable())


def _json(name: str, value: object) -> object:
    if isinstance(value, tuple):
        return _value(name, value)
    if name in _INSTANTS and isinstance(value, int):
        return iso_z(value)
    return value
