"""Bare `jobrun`, `jobrun help TOPIC`, `jobrun run --help`, `jobrun --version`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from jobrun import __version__, manual, options, places, tables
from jobrun.errors import EXIT_USAGE, JobrunError, UsageError
from jobrun.screens.guide import GUIDE, TOPICS


def guide(environ: Mapping[str, str]) -> int:
    """A bare `jobrun` in a crontab is no success: the guide goes to stderr, exit 2."""
    try:
        place = places.find(None, environ).name
    except JobrunError as error:
        place = error.message
    tables.write(f"{GUIDE}ledger {place}\n", sys.stderr)
    return EXIT_USAGE


def topic(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help=", ".join(TOPICS))] = "",
) -> int:
    """More about placeholders, exit-codes, skip-reasons, environment, crontab."""
    if not name:
        tables.write(GUIDE, sys.stdout)
        return 0
    if name not in TOPICS:
        close = options.nearest(name, TOPICS)
        raise UsageError(f'no topic "{name}"', f"jobrun help {close or '|'.join(TOPICS)}")
    tables.write(TOPICS[name], sys.stdout)
    return 0


def verb_help(argv: list[str]) -> int:
    """`run --help [--all]`, and the same for what takes the same options."""
    verb = argv[0]
    if verb == "run":
        text = manual.long_help() if "--all" in argv else manual.short_help()
    else:
        text = f"Usage: {options.USAGE[verb]}\n{_AGAIN[verb]}"
    tables.write(text, sys.stdout)
    return 0


_AGAIN = {
    "rerun": "One window again, whatever became of it; options, command and folder are those of"
    " the last\ncall unless given anew. WHEN: 2026-09-04T10:00Z, a date, yesterday, a key.\n"
    "Options: jobrun run --help --all\n",
    "retry": "What failed, is dead or is held, oldest first: all, or that one; at once, whatever"
    " its delay.\nThe failures of a dead one count anew. Options, command and folder are those of"
    " the last\ncall unless given anew. A unit of --key is made due for its own next call.\n"
    "Options: jobrun run --help --all\n",
    "backfill": "The windows from --from up to --to (half-open), oldest first; processed ones"
    " only with\n--redo. Options, command and folder are those of the last call unless given"
    " anew.\nOptions: jobrun run --help --all\n",
    "lead": "Of all that call this, one runs DAEMON: it leads, the others stand by and take over"
    " once it\nhas ended. It ends with its daemon, and ends it at TERM, or where its lock is lost:"
    " then it\nstands by.\n"
    f"Options: {manual.names_of(options.LEAD)}\n(jobrun run --help --all).\n",
}


def _print_version(wanted: bool) -> None:
    if wanted:
        tables.write(f"jobrun {__version__}\n", sys.stdout)
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
]
