"""What `--after` and `--input` say: whom a window waits for, and what it gets from there."""

from __future__ import annotations

from jobrun import options
from jobrun.errors import UsageError
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

PROCESSED = "processed"
FINISHED = "finished"


def after(text: str) -> tuple[tuple[str, str], ...]:
    """(upstream, processed or finished) in the order given. Raises UsageError."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, colon, wants = part.partition(":")
        if not name or (colon and wants not in (PROCESSED, FINISHED)):
            raise UsageError(
                f'--after "{part}": JOB, JOB:{PROCESSED} or JOB:{FINISHED}',
                f"--after {name or 'JOB'}",
            )
        if found.setdefault(name, wants or PROCESSED) != (wants or PROCESSED):
            raise UsageError(f'--after "{text}": "{name}" twice, and not the same of it')
    return tuple(found.items())


class Input(NamedTuple):
    """The environment variable `name` is the value `key` of the job `up`."""

    name: str
    up: str
    key: str


def inputs(text: str, ups: Collection[str]) -> tuple[Input, ...]:
    """`NAME=UP.KEY,...`, each UP one of --after. Raises UsageError."""
    found: dict[str, Input] = {}
    for part in text.split(","):
        name, _, source = part.partition("=")
        up, _, key = source.rpartition(".")
        if not (_is_name(name) and up and _is_name(key)):
            raise UsageError(f'--input "{part}": NAME=JOB.KEY, names of letters, digits and _',
                             "--input ROWS=extract.rows")  # fmt: skip
        if name.startswith("JOBRUN_"):
            raise UsageError(f'--input "{part}": names that begin with JOBRUN_ are jobrun\'s own')
        if up not in ups:
            hint = options.shell_text(("--after", up, "--input", part))
            raise UsageError(f'--input "{part}" needs --after {up}', hint)
        if found.setdefault(name, Input(name, up, key)) != Input(name, up, key):
            raise UsageError(f'--input "{text}": "{name}" twice')
    return tuple(found.values())


def _is_name(text: str) -> bool:
    return text.isascii() and text.isidentifier()
