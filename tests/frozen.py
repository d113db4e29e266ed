"""Run jobrun with a clock that stands still: `python -m tests.frozen SECONDS ARGV...`.

The real program in a real process, real locks and files; only `time.time` is another.
"""

from __future__ import annotations

import os
import sys

from jobrun.__main__ import main


def run(seconds: float, argv: list[str]) -> int:
    return main(argv, os.environ, lambda: seconds)


if __name__ == "__main__":
    code = run(float(sys.argv[1]), sys.argv[2:])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
