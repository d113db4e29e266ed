"""The three standard streams, as descriptors."""

from __future__ import annotations

import os


def fill() -> None:
    """Open /dev/null on what was closed when we started (`>&-`, some daemons).

    Otherwise the next file opened, the ledger say, would be somebody's standard output.
    """
    fd = 0
    while fd <= 2:
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)
