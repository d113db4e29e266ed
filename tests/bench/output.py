"""How fast output goes through, and how large jobrun gets meanwhile.

    python tests/bench/output.py [--rounds N] [--mebibytes N] [--markdown]

`jobrun run -- cat FILE` beside `cat FILE`, in turn, both into a pipe whose other end is read. Then
the memory of jobrun for a little output and for much.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.measure import (
    MIB,
    Place,
    Table,
    Unexpected,
    pairs,
    parser,
    peak,
    run,
    spread,
    stack,
    verdict,
)

CHUNK = 1 << 17


def measure(given: Namespace, place: Place) -> None:
    size = 4 if given.quick else given.mebibytes
    file = place.folder / "output"
    with file.open("wb") as out:
        for _ in range(size):
            out.write(os.urandom(MIB))
    speed(given, place, file, size)
    memory(given, place, size)


def speed(given: Namespace, place: Place, file: Path, size: int) -> None:
    cat = ["cat", str(file)]
    title = f"{size} MiB of `cat` into a pipe that is read"
    table = Table(title, "through", "MiB/s", "cat alone", "ratio (quartiles)", "wanted")
    for label, argv, least in (
        ("jobrun run", place.call("run", "out", "-q", "--", *cat), 0.4),
        ("flock, chronic, timeout", [*stack(), *cat], None),
    ):
        # As speeds, so that larger is faster.
        taken = pairs(
            lambda argv=argv: size / drained(place, argv, size * MIB),  # type: ignore[misc]
            lambda: size / drained(place, cat, size * MIB),
            given.rounds,
        )
        ours, theirs = (f"{spread(figures).middle:.0f}" for figures in taken)
        wanted = verdict(taken.ratio.middle, least=least)
        table.add(label, ours, theirs, taken.ratio, wanted)
    table.show(given.markdown)


def drained(place: Place, argv: list[str], size: int) -> float:
    """Seconds until all of its output has been read here. Raises Unexpected if some is missing."""
    began = time.perf_counter()
    process = place.start(argv, out=subprocess.PIPE)
    assert process.stdout is not None
    descriptor, got = process.stdout.fileno(), 0
    if argv[0] != str(place.jobrun) and "chronic" in argv:
        size = 0  # it prints nothing where all went well
    while data := os.read(descriptor, CHUNK):
        got += len(data)
    code = process.wait()
    process.stdout.close()
    if (got, code) != (size, 0):
        raise Unexpected(f"{' '.join(argv)}: exit {code}, {got} bytes of {size}")
    return time.perf_counter() - began


def memory(given: Namespace, place: Place, size: int) -> None:
    table = Table("memory of jobrun at its peak", "output", "MiB")
    for mebibytes in (0, size):
        command = ("head", "-c", f"{mebibytes}M", "/dev/zero")
        table.add(f"{mebibytes} MiB", f"{peak(place, 'run', 'big', '-q', '--', *command):.1f}")
    table.show(given.markdown)


if __name__ == "__main__":
    reader = parser(__doc__ or "", rounds=7)
    reader.add_argument("--mebibytes", type=int, default=350, help="of output (350)")
    sys.exit(run(reader.parse_args(), measure))
