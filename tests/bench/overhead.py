"""What jobrun costs in front of a command, beside what stands there in many crontabs.

    python tests/bench/overhead.py [--rounds N] [--markdown] [--rivals VENV]

Whole processes, in turn: a run of `true`, a call that meets a held lock, a call with nothing to do,
each beside `flock -n L chronic timeout 60 true`. Then what a run is made of, and what would remain
of it if jobrun itself took no time.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.measure import (
    HOLD,
    Place,
    Table,
    milliseconds,
    pairs,
    parser,
    rival,
    run,
    stack,
    verdict,
)

ONE = ("--max-windows", "1", "-q")  # there are always more: each call has one to run
BESIDE_STACK = "beside `flock -n L chronic timeout 60 true`"
# Imported by the call, by the first word of the module's name; what is in no group is Python's own.
GROUPS = {
    "portalocker": "portalocker",
    "sqlite3": "sqlite3",
    "_sqlite3": "sqlite3",
    "datetime": "sqlite3",
    "_datetime": "sqlite3",
    "jobrun": "jobrun",
}


def measure(given: argparse.Namespace, place: Place) -> None:
    compare(given, place)
    take_apart(given, place)


def compare(given: argparse.Namespace, place: Place) -> None:
    table = Table(BESIDE_STACK, "call", "ms", "the stack", "ratio (quartiles)", "wanted")
    windows = (
        "run",
        "minutely",
        "--every",
        "1s",
        "--first",
        "2026-01-01T00:00Z",
        *ONE,
        "--",
        "true",
    )
    idle = ("run", "monthly", "--every", "1mo", "--", "true")
    busy = ("run", "busy", "--", "true")
    calls: list[tuple[str, list[str], float | None]] = [
        ("jobrun: a run of `true`", place.call("run", "plain", "--", "true"), 1.6),
        ("jobrun: a window of `true`", place.call(*windows), 1.6),
        ("jobrun: the lock is held", place.call(*busy), 1.3),
        ("jobrun: nothing to do", place.call(*idle), 0.8),
        ("python -c pass", [place.python, "-c", "pass"], None),
        ("flock -n L true", ["flock", "-n", "bare.lock", "true"], None),
    ]
    cronwrap = rival(given, "cronwrap")
    if cronwrap:
        calls.append(("cronwrap -l true (cron-wrapper)", [cronwrap, "-l", "true"], None))
    place.seconds(place.call(*idle))  # the first call has a window, those after it have none
    with place.holding(*place.call("run", "busy", "--", *HOLD)):
        for label, argv, most in calls:
            theirs = place.timer(*stack(), "true")
            taken = pairs(place.timer(*argv), theirs, given.rounds)
            ours, beside = milliseconds(taken.ours), milliseconds(taken.theirs)
            table.add(label, ours, beside, taken.ratio, verdict(taken.ratio.middle, most))
    table.show(given.markdown)


# -- what a run is made of -------------------------------------------------------------------------


def take_apart(given: argparse.Namespace, place: Place) -> None:
    """The parts are measured one by one, so they don't add up to the digit."""
    times = 1 if given.quick else 15
    whole = place.timer(*place.call("run", "plain", "-q", "--", "/bin/true"))
    total = median(whole() for _ in range(times)) * 1000
    start = median(place.seconds([place.python, "-c", "pass"]) for _ in range(times)) * 1000
    groups = imports(place, times)
    parts = floor_parts(place)
    table = Table("a run of `true`, taken apart", "part", "ms", "share", "why it is there")
    rows = [("the interpreter starts and ends", start, "Python; site-packages of the venv")]
    rows += [(f"imports: {name}", ms, WHY[name]) for name, ms in groups.items()]
    rows += [
        ("two forks, an exec", parts["forks"], "the guardian, the command; pages that are copied"),
        ("two commits", parts["commits"], "the claim and the end, each synced; open and close"),
        ("the exit", parts["exit"], "the memory is given back; no tear-down"),
    ]
    for label, ms, why in rows:
        table.add(label, f"{ms:.1f}", f"{ms / total:.0%}", why)
    rest = total - sum(ms for _, ms, _ in rows)
    table.add("the rest", f"{max(rest, 0):.1f}", f"{max(rest, 0) / total:.0%}", "what jobrun does")
    table.add("a run", f"{total:.1f}", "100%", "")
    table.show(given.markdown)
    floor = sum(ms for label, ms, _ in rows if label != "imports: jobrun")
    print(
        f"\nThe floor, with nothing of jobrun's own: {floor:.0f} ms, {floor / total:.0%} of a run."
        "\nAbove it stand the modules of jobrun that a run needs, and what they do. Below it leads"
        "\nonly another interpreter, or one that is running already: a daemon."
    )


WHY = {
    "jobrun": "options, ledger, lock, plan, process, lines",
    "portalocker": "the lock",
    "sqlite3": "the ledger; with datetime",
    "Python": "re, enum, signal, contextlib, ...: what the others import",
}


def imports(place: Place, times: int) -> dict[str, float]:
    """Milliseconds of loading modules, by group, without those that every interpreter loads."""
    bare = _import_times(place, ["-c", "pass"])
    call = place.call("run", "plain", "-q", "--", "/bin/true")
    fastest: dict[str, int] = {}
    for _ in range(times):
        for name, took in _import_times(place, call).items():
            fastest[name] = min(took, fastest.get(name, took))
    found = dict.fromkeys(WHY, 0.0)
    for name, took in fastest.items():
        if name not in bare:
            found[GROUPS.get(name.partition(".")[0], "Python")] += took / 1000
    return found


def _import_times(place: Place, argv: list[str]) -> dict[str, int]:
    """By module, microseconds in itself, from `-X importtime`."""
    found = {}
    for line in place.output([place.python, "-X", "importtime", *argv]).splitlines():
        own, _, rest = line.removeprefix("import time:").partition("|")
        if line.startswith("import time:") and own.strip().isdecimal():
            found[rest.rpartition("|")[2].strip()] = int(own)
    return found


def floor_parts(place: Place) -> dict[str, float]:
    """Milliseconds of what is not ours to save: see floor.py."""
    program = str(Path(__file__).with_name("floor.py"))
    lines = place.output([place.python, program]).splitlines()
    ended = time.monotonic()
    parts = {name: float(seconds) for name, seconds in (line.split() for line in lines)}
    return {
        "forks": parts["forks"] * 1000,
        "commits": parts["commits"] * 1000,
        "exit": (ended - parts["end"]) * 1000,
    }


if __name__ == "__main__":
    sys.exit(run(parser(__doc__ or "", rounds=40).parse_args(), measure))
