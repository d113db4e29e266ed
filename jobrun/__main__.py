"""Arguments, environment and clock in; the exit code out.

`run` goes straight on: options, the idle way, and only then what runs a command. Everything else
goes to the Typer commands in `cli`.
"""

from __future__ import annotations

import os
import sys
import time

from jobrun import job, options, places, streams
from jobrun.errors import EXIT_BUG, EXIT_SIGNAL, JobrunError, UsageError
from jobrun.lines import Lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobrun.job import Job


def main(argv: Sequence[str], environ: Mapping[str, str], clock: Callable[[], float]) -> int:
    """Run one call; `argv` without the program's name. Returns its exit code."""
    verb = argv[0] if argv else ""
    lines = Lines(log_format="json" if environ.get("JOBRUN_LOG_FORMAT") == "json" else "text")
    try:
        if verb in options.USAGE and not _asks_for_help(argv):
            return _run(verb, argv[1:], environ, clock, lines)
        from jobrun import cli

        return cli.main(list(argv), clock, environ)
    except JobrunError as error:
        _hide_secrets(error, argv, environ)
        lines.error(error)
        return error.code
    except KeyboardInterrupt:
        return EXIT_SIGNAL + 2


def _hide_secrets(error: JobrunError, argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Whatever it quotes of what was typed: no address of a server is told with its password."""
    for word in _addresses(argv, environ):
        from jobrun.address import hidden

        shown = hidden(word)
        for form in (str, job.shown, lambda text: options.shell_text((text,))):
            error.message = error.message.replace(form(word), form(shown))
            error.hint = error.hint and error.hint.replace(form(word), form(shown))


def _addresses(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Words that are one, or stand where one is wanted."""
    end = list(argv).index("--") if "--" in argv else len(argv)
    typed = [
        word
        for before, word in zip(("", *argv), argv[:end], strict=False)
        if "://" in word or before in ("--ledger", "--lock")
    ]
    return [*typed, *filter(None, map(environ.get, ("JOBRUN_LEDGER", "JOBRUN_LOCK")))]


def _asks_for_help(argv: Sequence[str]) -> bool:
    end = list(argv).index("--") if "--" in argv else len(argv)
    return any(word in ("--help", "-h") for word in argv[1:end])


def _run(
    verb: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    clock: Callable[[], float],
    lines: Lines,
) -> int:
    this = _read(verb, argv, environ, lines)
    where = places.find(this.ledger, environ, this.namespace)
    options.name_ledger(this.ledger, where.base, this.namespace)
    if this.has_grid:
        refuse_stdin(this)
    if this.mode == options.WINDOWS and where.is_file:
        from jobrun import idle

        if idle.way_out(this, where.address, clock, lines):
            return 0
    from jobrun.call import Call, this_caller

    call = Call(environ, clock, lines, where, this_caller())
    if this.dry_run:
        from jobrun.cli.plan import dry_run

        return dry_run(this, call)
    if this.mode == options.LEAD:
        from jobrun.lead import lead

        return lead(this, call)
    from jobrun.run import run

    return run(this, call)


def _read(verb: str, argv: Sequence[str], environ: Mapping[str, str], lines: Lines) -> Job:
    """The job of the command line; by hand with what is on record of the last call."""
    if verb in ("run", "lead"):
        this = (job.parse_run if verb == "run" else job.parse_lead)(argv, environ)
        lines.follow(this)
        return this
    from jobrun import by_hand

    this, reused = by_hand.parse(verb, argv, environ)
    lines.follow(this)
    if reused:
        lines.say("hint", reused)
    return this


def refuse_stdin(this: Job) -> None:
    """A call with windows gives its command no stdin, so data on it would be lost in silence."""
    if this.stdin is not None or not _data_waits():
        return
    raise UsageError(
        "stdin has data, and a command with windows gets none of it",
        "--stdin null to drop it, --stdin inherit to pass it on;"
        " a % in a crontab line makes the rest of it stdin: write \\%",
    )


def _data_waits() -> bool:
    """Whether stdin is a file or a pipe that has something to read, without reading it."""
    import stat

    try:
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode):
            return os.lseek(0, 0, os.SEEK_CUR) < status.st_size
        if not stat.S_ISFIFO(status.st_mode) or sys.platform == "win32":
            return False
        import fcntl
        import termios

        waiting = fcntl.ioctl(0, termios.FIONREAD, b"\0\0\0\0")
    except OSError:
        return False
    return int.from_bytes(waiting, sys.byteorder) > 0


def script() -> None:
    """The console script: a bug shows its traceback and exits 70."""
    streams.fill()
    _collect_less()
    try:
        code = main(sys.argv[1:], os.environ, time.time)
    except Exception:
        sys.excepthook(*sys.exc_info())
        code = EXIT_BUG
    _leave(code)


def _collect_less() -> None:
    """At Python's 700 objects each module that is loaded is a collection: 1 of a call's 50 ms."""
    import gc

    gc.set_threshold(50_000)


def _leave(code: int) -> None:
    """Exit at once: tearing the interpreter down takes longer than an idle call needs."""
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib would be imported for this alone
            stream.flush()
        except (OSError, AttributeError, ValueError):
            pass  # a reader that has gone (`| head -1`), or no stream at all (pythonw)
    if sys.platform == "win32":
        from jobrun.command_line import signed

        code = signed(code)
    os._exit(code)


if __name__ == "__main__":
    script()
