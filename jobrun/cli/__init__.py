"""Every command but `run`, as Typer has them: one file each, thin.

What takes the options of `run` is read by the table of options.py (`jobrun.__main__` sends it
there); here those verbs are pass-throughs, so that completion and `--help` know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import typer

from jobrun import options
from jobrun.cli import (
    doctor,
    events,
    explain,
    export,
    failures,
    flush,
    forget,
    graph,
    guide,
    history,
    hosts,
    import_file,
    logs,
    pause,
    plan,
    resolve,
    resume,
    set_option,
    show,
    skip,
    skips,
    status,
    stop,
    unset_option,
    watermark,
    windows,
)
from jobrun.cli.look import LedgerCommand, Outside
from jobrun.errors import EXIT_SIGNAL, UsageError

app = typer.Typer(
    name="jobrun",
    help="One copy at a time, every window once, what was missed is made up.",
    epilog="jobrun without anything prints a guide; jobrun help TOPIC says more.",
    # rich's boxes take 40 ms and a wide screen, and a traceback of ours shall be a plain one.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PASSED_THROUGH = {
    "run": "Run a command for what is left to do.",
    "rerun": "One window again.",
    "retry": "What failed, is dead or is held, now.",
    "backfill": "The windows of a range that are not processed.",
    "lead": "A command that one of several callers runs, for as long as it lives.",
}


@app.callback()
def root(version: guide.VersionOption = False) -> None:
    """Options of `jobrun` itself."""


def _elsewhere(ctx: typer.Context) -> None:
    """Never reached: jobrun.__main__ sends these to the parser of options.py."""


for _name, _help in _PASSED_THROUGH.items():
    app.command(
        _name,
        help=_help,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(_elsewhere)

app.command("status")(status.status)
app.command("history")(history.history)
app.command("windows")(windows.windows)
app.command("logs")(logs.logs)
app.command("show")(show.show)
app.command("explain")(explain.explain)
app.command("skips")(skips.skips)
app.command("failures")(failures.failures)
app.command("events")(events.events)
app.command("plan")(plan.plan)
app.command("graph")(graph.graph)
app.command("hosts")(hosts.hosts)
app.command("doctor")(doctor.doctor)
app.command("skip")(skip.skip)
app.command("resolve")(resolve.resolve)
app.command("watermark")(watermark.watermark)
app.command("stop")(stop.stop)
# An option's name is a word here.
_WORDS = {"ignore_unknown_options": True}
app.command("set", context_settings=_WORDS)(set_option.set_option)
app.command("unset", context_settings=_WORDS)(unset_option.unset_option)
app.command("pause")(pause.pause)
app.command("resume")(resume.resume)
app.command("flush")(flush.flush)
app.command("forget")(forget.forget)
app.command("export")(export.export)
app.command("import")(import_file.import_file)
app.command("help")(guide.topic)
for _command in app.registered_commands:
    _command.cls = LedgerCommand


def main(argv: list[str], clock: Callable[[], float], environ: Mapping[str, str]) -> int:
    """Run one command that looks; `argv` without the program's name. Returns the exit code.

    Raises JobrunError; Typer's own usage errors come as UsageError.
    """
    if not argv and "_JOBRUN_COMPLETE" not in environ:
        return guide.guide(environ)
    if argv and argv[0] in options.USAGE:
        return guide.verb_help(argv)
    command = typer.main.get_command(app)
    _check_command(argv)
    try:
        code: int | None = command.main(
            argv,
            prog_name="jobrun",
            standalone_mode=False,
            # Typer would expand ~, %VAR% and globs in every argument there.
            windows_expand_args=False,
            obj=Outside(clock, environ),
        )
    except typer.TyperException as error:
        raise _usage_error(error) from None
    except typer.Abort:
        return EXIT_SIGNAL + 2
    return code or 0


def _check_command(argv: list[str]) -> None:
    """An unknown first word: most likely a JOB, and `run` forgotten."""
    names = [command.name or "" for command in app.registered_commands]
    if not argv or argv[0].startswith("-") or argv[0] in names:
        return
    close = options.nearest(argv[0], names)
    hint = f"jobrun {close}" if close else "jobrun --help lists them"
    if "--" in argv:
        hint = f"jobrun run {options.shell_text(argv)}"
    raise UsageError(f'no command "{argv[0]}"', hint)


def _usage_error(error: typer.TyperException) -> UsageError:
    """Typer's message as one of ours: two lines, and the next thing to type."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "jobrun"
    option = getattr(error, "option_name", None)
    likely = getattr(error, "possibilities", None)
    message = error.format_message().rstrip(".")
    if likely is not None or message.startswith("No such option"):
        hint = f"{path} {likely[0]}" if likely else f"{path} --help"
        return UsageError(f'{path}: no option "{option}"', hint)
    return UsageError(f"{path}: {message[:1].lower()}{message[1:]}", f"{path} --help")
