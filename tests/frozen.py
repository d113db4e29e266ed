"""Run jobrun with a clock that stands still: `python -m tests.frozen SECONDS ARGV...`.

The real program in a real process, real locks and files; only `time.time` is another. The clock of
a server is said to be the same, or $FROZEN_SKEW milliseconds behind.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from jobrun import ledgers
from jobrun.__main__ import main
from jobrun.ledger import Ledger

open_ledger = ledgers.open_ledger


def _with_its_clock(*arguments: Any, **settings: Any) -> Ledger:
    ledger = open_ledger(*arguments, **settings)
    if ledger.skew is not None:
        ledger.skew = int(os.environ.get("FROZEN_SKEW", "0"))
    return ledger


def run(seconds: float, argv: list[str]) -> int:
    ledgers.open_ledger = _with_its_clock
    return main(argv, os.environ, lambda: seconds)


if __name__ == "__main__":
    code = run(float(sys.argv[1]), sys.argv[2:])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
