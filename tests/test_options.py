"""The one parser of `run`, its values, and what it says to a person who mistypes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrun import job, manual, options, placeholders
from jobrun.errors import UsageError
from jobrun.instants import duration, parse_duration
from jobrun.job import Job


def parse(*argv: str, environ: dict[str, str] | None = None) -> Job:
    return job.parse_run(argv, environ or {})


def refusal(*argv: str, environ: dict[str, str] | None = None) -> tuple[str, str | None]:
    with pytest.raises(UsageError) as caught:
        parse(*argv, environ=environ)
    assert caught.value.code == 2
    return caught.value.message, caught.value.hint


def test_a_plain_call_has_the_documented_defaults() -> None:
    """The defaults of the contract's table, as values."""
    plain = parse("sales", "--", "true")
    assert (plain.mode, plain.schedule, plain.command) == (options.PLAIN, None, ("true",))
    assert (plain.lag, plain.max_windows, plain.kill_after, plain.wait) == (0, 100, 10, 0)
    assert (plain.retry_delay, plain.stuck_after, plain.remind) == (60, 86_400, 3600)
    assert (plain.catch_up, plain.on_failure, plain.output) == ("all", "stop", "live")
    assert (plain.ok_exit, plain.busy_exit, plain.timeout, plain.max_age) == (
        ((0, 0),),
        0,
        None,
        None,
    )


def test_everything_after_the_first_bare_dashes_is_the_command() -> None:
    """Options of the command, and a second --, are its own."""
    found = parse("a", "--timeout", "5m", "--", "kubectl", "exec", "--timeout", "--", "date")
    assert found.timeout == 300
    assert found.command == ("kubectl", "exec", "--timeout", "--", "date")


@pytest.mark.parametrize(
    ("argv", "mode"),
    [
        (["--every", "1h"], options.WINDOWS),
        (["--cron=0 6 * * *"], options.WINDOWS),
        (["--key", "k"], options.KEY),
        (["--key-file", "/x"], options.KEY),
        (["--window", "yesterday"], options.BY_HAND),
        (["--every", "1h", "--window", "yesterday"], options.BY_HAND),
        ([], options.PLAIN),
    ],
)
def test_the_mode_follows_from_the_options(argv: list[str], mode: str) -> None:
    """Nobody names a mode: what is given makes it."""
    assert parse("j", *argv, "--", "true").mode == mode


def test_short_names_and_both_spellings_of_a_value_are_the_same() -> None:
    """-k 5s, --kill-after 5s and --kill-after=5s."""
    for spelling in (["-k", "5s"], ["--kill-after", "5s"], ["--kill-after=5s"]):
        assert parse("j", *spelling, "--", "true").kill_after == 5


def test_big_q_is_quiet_and_output_on_failure() -> None:
    """What chronic does, in one letter."""
    found = parse("j", "-Q", "--", "true")
    assert (found.quiet, found.output) == (True, "on-failure")


@pytest.mark.parametrize(
    ("value", "quiet"), [("1", True), ("yes", True), ("0", False), ("", False)]
)
def test_quiet_may_come_from_the_environment(value: str, quiet: bool) -> None:
    """JOBRUN_QUIET=1 in the crontab's header; 0 and nothing leave it off."""
    assert parse("j", "--", "true", environ={"JOBRUN_QUIET": value}).quiet is quiet


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        (
            ["sales", "--every", "1h", "python3", "etl.py", "--from", "{start}"],
            "no -- before the command",
            "jobrun run sales --every 1h -- python3 etl.py --from {start}",
        ),
        ([], "no -- before the command", "jobrun run JOB -- COMMAND"),
        (["sales", "--"], "no command after --", "jobrun run sales -- COMMAND"),
        (["--", "true"], "no JOB before --", "jobrun run JOB [OPTIONS] -- COMMAND [ARG]..."),
        (
            ["sales", "kubectl", "exec", "--", "date"],
            '"kubectl" stands before --: options end there, the command comes after',
            "a command with a -- of its own needs both: ... -- kubectl ... -- ...",
        ),
        (
            ["sales", "--cron", "0", "6", "*", "*", "*", "--", "true"],
            '--cron 0: 5 fields are needed, this is 1, and "6" "*" follow it unquoted',
            '--cron "0 6 * * *" (double quotes work in sh, cmd.exe and Task Scheduler alike)',
        ),
        (
            ["etl/sales", "--", "true"],
            'JOB "etl/sales": letters, digits, . _ - only; "/" is not',
            "etl-sales",
        ),
        (["../../x", "--", "true"], 'JOB "../../x": letters, digits, . _ - only; "/" is not', "x"),
        ([".x", "--", "true"], 'JOB ".x": a name begins with a letter, a digit or _', None),
        (["", "--", "true"], 'JOB "": a name begins with a letter, a digit or _', None),
        (
            ["a\nb", "--", "true"],
            'JOB "a\\nb": letters, digits, . _ - only; "\\n" is not',
            "a-b",
        ),
        (
            ["x" * 101, "--", "true"],
            f'JOB "{"x" * 20}...": 101 characters, at most 100',
            None,
        ),
        (["j", "--evry", "1h", "--", "true"], 'no option "--evry"', "--every?"),
        (
            ["j", "--nonsense-word", "--", "true"],
            'no option "--nonsense-word"',
            "jobrun run --help lists them",
        ),
        (["½", "--", "true"], 'JOB "½": letters, digits, . _ - only; "½" is not', None),
        (
            ["\u0301a", "--", "true"],
            'JOB "\u0301a": a name begins with a letter, a digit or _',
            None,
        ),
        (
            ["j", "-n", "--", "true"],
            'no option "-n"',
            "jobrun never waits, unless --wait asks for it; the plan alone: --dry-run",
        ),
        (["j", "-z", "--", "true"], 'no option "-z"', "jobrun run --help lists them"),
        (
            ["j", "--timeout", "10000w", "--", "true"],
            '--timeout "10000w": a duration is at most 100 years',
            "--timeout 15m",
        ),
        (
            ["j", "--every", "3000000d", "--", "true"],
            "--every 3000000d: a window of more than ten years",
            "--every 12mo",
        ),
        (["j", "-qv", "--", "true"], 'no option "-qv"', "apart: -q -v"),
        (["j", "-k5s", "--", "true"], 'no option "-k5s"', "apart: -k 5s"),
        (["j", "--quiet=yes", "--", "true"], '--quiet takes no value, "yes" was given', "--quiet"),
        (
            ["j", "--every", "--", "true"],
            "a value is missing: --every N[s|m|h|d|w|mo]",
            None,
        ),
        (
            ["j", "--lag", "5m", "--lag", "6m", "--", "true"],
            '--lag given twice: "5m" and "6m"',
            None,
        ),
        (
            ["j", "--timeout", "1.5h", "--", "true"],
            '--timeout "1.5h": a duration is 90s, 15m, 1h30m, 2d or 1w; a bare number is seconds',
            "--timeout 15m",
        ),
        (
            ["j", "--busy-exit", "300", "--", "true"],
            '--busy-exit "300": a whole number from 0 to 255',
            None,
        ),
        (
            ["j", "--every", "1h", "--max-windows", "0", "--", "true"],
            '--max-windows "0": a whole number from 1 to 1000000000',
            None,
        ),
        (
            ["j", "--ok-exit", "x", "--", "true"],
            '--ok-exit "x": exit codes as 0,3 or 0-7',
            "--ok-exit 0,3",
        ),
        (
            ["j", "--ok-exit", "7-3", "--", "true"],
            '--ok-exit "7-3": 7-3 is no range of exit codes',
            "--ok-exit 0-7",
        ),
        (
            ["j", "--every", "1h", "--catch-up", "lates", "--", "true"],
            '--catch-up "lates": all or latest or merge',
            "--catch-up latest",
        ),
        (["j", "--tz", "Europe/Berlin", "--", "true"],
         "--tz needs --every or --cron or --window", None),
        (["j", "--lag", "5m", "--", "true"], "--lag needs --every or --cron or --window", None),
        (["j", "--key", "k", "--every", "1h", "--", "true"],
         "--every does not go with --key", None),
        (["j", "--key", "k", "--key-file", "f", "--", "true"],
         "--key and --key-file: one of them names the unit of work", None),
        (["j", "--from", "today", "--", "true"], "--from needs backfill", None),
        (
            ["j", "--every", "1h", "--cron", "0 6 * * *", "--", "true"],
            '--every "1h" and --cron "0 6 * * *": one of them makes the grid',
            None,
        ),
        (
            ["j", "--key", "2026-09-04T10:00:00Z", "--", "true"],
            '--key "2026-09-04T10:00:00Z" looks like a window; a key is no instant',
            "--window 2026-09-04T10:00:00Z",
        ),
        (["j", "--key", "a\tb", "--", "true"],
         '--key "a\\tb": 1 to 200 printable characters', None),
        (["j", "--cwd", "", "--", "true"], '--cwd "": a value is needed: DIR', None),
        (
            ["j", "--every", "1h", "--", "etl", "--from", "{start_dat}"],
            "{start_dat} in argument 2 is no placeholder",
            "{start_date}? Braces meant for the command: {{start_dat}}",
        ),
        (
            ["j", "--", "etl", "{start}"],
            "{start} in argument 1 has no value in a plain call (no --every, --cron, --key)",
            "Braces meant for the command: {{start}}",
        ),
    ],
)  # fmt: skip
def test_a_mistake_gets_its_value_the_rule_and_a_next_step(
    argv: list[str], message: str, hint: str | None
) -> None:
    """One line that names the thing, one that can be typed."""
    assert (message, hint) == refusal(*argv)


def test_a_bad_log_format_in_the_environment_is_named() -> None:
    """A variable is as much input as an option."""
    message, _ = refusal("j", "--", "true", environ={"JOBRUN_LOG_FORMAT": "xml"})
    assert message == 'JOBRUN_LOG_FORMAT "xml": text or json'


@pytest.mark.parametrize(
    "name",
    [
        "sales",
        "Sales",
        "été",
        "e\u0301te\u0301",
        "売上",
        "हिन्दी",
        "ไทยที่",
        "a.b_c-d",
        "_x",
        "9",
        "x" * 100,
    ],
)
def test_names_of_any_script_are_jobs(name: str) -> None:
    """Letters of any script, digits, dot, underscore, hyphen."""
    assert parse(name, "--", "true").name == name


def test_a_job_is_frozen() -> None:
    """Options do not change as they travel."""
    with pytest.raises(AttributeError):
        parse("j", "--", "true").lag = 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("45", 45),
        ("0", 0),
    ],
)
def test_durations_read_as_they_are_written(text: str, seconds: int) -> None:
    """The spellings of the contract."""
    assert parse_duration(text, "--lag") == seconds


@given(st.text(max_size=12))
def test_no_text_makes_the_duration_parser_fall_over(text: str) -> None:
    """A number or a UsageError, never anything else."""
    try:
        seconds = parse_duration(text, "--lag")
    except UsageError:
        return
    assert seconds >= 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (1.204, "1.204s"),
        (3000.2, "50m0.2s"),
        (8040, "2h14m"),
        (100_800, "1d4h"),
        (59.9999, "60s"),
    ],
)
def test_durations_are_printed_in_the_same_spelling(seconds: float, text: str) -> None:
    """As the lines of the contract show them."""
    assert duration(seconds) == text


VALUES = {"start": "S", "end": "E", "key": "j:S", "start_date": "D", "ledger": "L", "tz": "Z"}


@pytest.mark.parametrize(
    ("argument", "filled"),
    [
        ("{start}", "S"),
        ("--range={start}/{end}", "--range=S/E"),
        ("{{start}}", "{start}"),
        ("${start}", "${start}"),
        ("echo ${key} ${HOME}", "echo ${key} ${HOME}"),
        ("{print $1}", "{print $1}"),
        ("{}", "{}"),
        ("{{key}}", "{key}"),
        ('{"day": "{start_date}", "n": {}}', '{"day": "D", "n": {}}'),
        ('{"a":{"b":"{key}"}}', '{"a":{"b":"j:S"}}'),
        ("{", "{"),
        ("}{start}{", "}S{"),
        ("{other_word}", "{other_word}"),
        ("{ledger} {tz}", "{ledger} {tz}"),
        ("{{other_word}}", "{{other_word}}"),
        ("{{start_dat}}", "{start_dat}"),
        ("{{ start }}", "{{ start }}"),
        ("%{start}%", "%S%"),
    ],
)
def test_exactly_our_names_are_replaced(argument: str, filled: str) -> None:
    """Shell, awk, find, JSON and templates of others keep their braces."""
    assert placeholders.fill(argument, VALUES) == filled


def test_what_a_placeholder_stands_for_is_not_looked_at_again() -> None:
    """A key that looks like a placeholder stays what it is."""
    assert placeholders.fill("{key}", {"key": "{start}", "start": "S"}) == "{start}"


@given(st.text(alphabet="{}$abkey st", max_size=20))
def test_text_without_our_names_passes_unchanged(text: str) -> None:
    """Plain text replacement: nothing else is touched."""
    if not placeholders.names_in([text]) and "{{" not in text:
        assert placeholders.fill(text, VALUES) == text


def test_run_help_fits_a_screen_of_24_lines() -> None:
    """Plain text, 80 columns, and every option is named in it or behind --all."""
    text = manual.short_help()
    assert len(text.splitlines()) <= 24
    assert max(map(len, text.splitlines())) <= 80
    for name in options.BY_NAME:
        if name not in ("--from", "--to", "--redo", "--parallel"):  # of backfill
            assert name in text, name
    assert all(name in manual.long_help() for name in options.BY_NAME)
