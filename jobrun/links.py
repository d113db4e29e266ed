"""What `--after` says: which other jobs the windows of a job wait for."""

from __future__ import annotations

from jobrun.errors import UsageError

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
