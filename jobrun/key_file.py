"""The key of a file: its name and its content, so that the same file is one unit of work."""

from __future__ import annotations

import os
import stat

from jobrun.errors import Refused, UsageError

Stamp = tuple[int, int, int]  # size, modification time in ns, inode


def stamp(path: str) -> Stamp | None:
    """What would change if the file were still being written; None where it is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def check(path: str) -> None:
    """Raises UsageError for what is not there, can't be read, or has no end (a pipe, a device)."""
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
        if regular:
            open(path, "rb").close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f'--key-file "{path}": {reason}') from None
    if not regular:
        raise UsageError(f'--key-file "{path}": not a regular file')


def key(job: str, path: str) -> tuple[str, Stamp]:
    """`JOB:BASENAME:sha256` and the stamp it was true for.

    Raises UsageError for a file that can't be read, Refused (75) for one that changes while it is
    read: half a file would get a key of its own, and the whole one would run as another.
    """
    from hashlib import file_digest

    check(path)
    before = stamp(path)
    with open(path, "rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    if before is None or stamp(path) != before:
        raise Refused(
            f'--key-file "{path}" changed while it was read: it is still being written',
            "write it under another name and rename it when it is whole",
        )
    name = (
        os.path.basename(path)
        .encode("utf-8", "surrogateescape")
        .decode("utf-8", "backslashreplace")
    )
    return f"{job}:{name}:{digest}", before
