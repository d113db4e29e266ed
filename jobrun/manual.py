"""The help of `run` and the README's table of options, made from the table of options.py."""

from __future__ import annotations

from jobrun.options import GROUPS, USAGE


def short_help() -> str:
    """`run --help`: one screen of 24 lines, 80 columns; the rest is behind --all."""
    return """\
Usage: jobrun run JOB [OPTIONS] -- COMMAND [ARG]...        (more: --help --all)
One copy at a time, every window once, what was missed is made up.
WHICH WINDOWS (not when: cron or Task Scheduler decides when)
  --every N[s|m|h|d|w|mo]   fixed grid: 15m, 1hour, 1day, 1month
  --cron EXPR               grid between the instants of a 5-field expression
  --tz ZONE                 zone of days, --cron and {start_date} [UTC]
  --lag DUR                 a window is ready this long after its end [0]
  --first --anchor
WHAT WAS MISSED     --catch-up --max-windows --max-age --stop-after
                    --on-failure --lookback --accept-schedule --accept-clock
AFTER A FAILURE     --retries --retry-delay --retry-max-delay --max-attempts
                    --retry-on --give-up-on --on-lost --pause-after
                    --resume-after
WHAT COMES FIRST    --after --input --if
ONE PIECE OF WORK   --key --key-file --window --dry-run
THE COMMAND         --timeout -k --kill-after --ok-exit -C --cwd --stdin
                    --output
LOCK AND EXIT       --wait --overlap --busy-exit --stuck-after --lock --lock-ttl
WHAT IS PRINTED     -q --quiet, -Q (output too), --remind, -v --verbose,
                    --log-format --ledger --namespace --on-store-down
COMMAND may use {start} {end} {start_date} {last_date} {key} ...
Exit: the command's; 0 done or nothing to do; 2 usage; 124 timed out;
126 not executable; 127 not found; 73-78 jobrun's own.
More: jobrun help placeholders|exit-codes|skip-reasons|environment|crontab
"""


def long_help() -> str:
    """`run --help --all`: one line an option, at most 80 columns wide where it can be."""
    lines = [f"Usage: {USAGE['run']}"]
    for title, options in GROUPS:
        lines += ["", title]
        for option in options:
            left = "  " + f"{', '.join(option.names)} {option.value}".rstrip()
            default = f" [{option.default}]" if option.default else ""
            lines.append(f"{left}\n{'':6}{option.help}{default}")
    lines += ["", "Durations: 90s 15m 1h30m 2d 1w; a bare number is seconds."]
    lines += ["Instants: 2026-09-04T10:00Z, with an offset, a date, yesterday, today, a key."]
    return "\n".join(lines) + "\n"


def names_of(mode: str) -> str:
    """The options that belong to it, as lines of text."""
    from textwrap import fill

    names = ["/".join(each.names) for _, group in GROUPS for each in group if mode in each.modes]
    return fill(", ".join(names), 90, break_on_hyphens=False)


def markdown() -> str:
    """The README's table of options."""
    lines = ["| option | meaning | default |", "| --- | --- | --- |"]
    for title, options in GROUPS:
        lines.append(f"| *{title.split(' (')[0].lower()}* | | |")
        for option in options:
            shown = "/".join(option.names) + (f" {option.value}" if option.value else "")
            shown = shown.replace("|", "\\|")
            default = f"`{option.default}`" if option.default else ""
            lines.append(f"| `{shown}` | {option.help} | {default} |")
    return "\n".join(lines) + "\n"
