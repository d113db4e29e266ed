"""jobrun on another machine, or in a container: it has a name, and sees no processes but its own.

python -m tests.other_host HOST SECONDS ARGS     at this instant, or `-`: now

`web@1` and `web@2` are two of one name.
"""

from __future__ import annotations

import sys


def be(host: str) -> None:
    """In this process: pids are those of another boot."""
    from jobrun import call, tree_proc

    call.host_name = lambda: name_of(host)
    tree_proc.boot = lambda: host


def name_of(host: str) -> str:
    return host.partition("@")[0]


def run(host: str, now: str, argv: list[str]) -> None:
    from tests import frozen

    be(host)
    if now != "-":
        sys.exit(frozen.run(float(now), argv))
    from jobrun.__main__ import script

    sys.argv[1:] = argv
    script()


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], sys.argv[3:])
