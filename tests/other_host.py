"""jobrun on another machine: it has another name, and sees no processes but its own.

python -m tests.other_host HOST SECONDS ARGS     at this instant, or `-`: now
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def run(host: str, now: str, argv: list[str]) -> None:
    from jobrun import call, process
    from tests import frozen

    def of_this_host(look: Callable[..., Any], nothing: object) -> Callable[..., Any]:
        return lambda run, *more: look(run, *more) if run.host == host else nothing

    call.host_name = lambda: host
    process.wrapper_alive = of_this_host(process.wrapper_alive, False)
    process.command_alive = of_this_host(process.command_alive, ())
    if now != "-":
        sys.exit(frozen.run(float(now), argv))
    from jobrun.__main__ import script

    sys.argv[1:] = argv
    script()


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], sys.argv[3:])
