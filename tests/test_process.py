"""A command from start to end: exit codes, signals, limits, what it is given."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import is_alive, until
from tests.driven import Driven, command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and groups")


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    wrapper = Driven(tmp_path)
    yield wrapper
    wrapper.clean_up()


@pytest.mark.parametrize("code", [0, 1, 2, 75, 124, 126, 127, 128, 143, 255])
def test_exit_code_is_passed_on(driven: Driven, code: int) -> None:
    """What the command answers is told as it is, our own codes included."""
    ended = driven.run("sh", "-c", f"exit {code}")
    assert (ended["cause"], ended["exit_code"], ended["signal"]) == ("exited", code, None)


@pytest.mark.parametrize("number", [1, 2, 3, 6, 9, 11, 15])
def test_death_by_signal_is_no_exit_code(driven: Driven, number: int) -> None:
    """A command that a signal killed has no exit code."""
    ended = driven.run("sh", "-c", f"ulimit -c 0; kill -{number} $$")
    assert (ended["cause"], ended["exit_code"], ended["signal"]) == ("exited", None, number)


def script(path: Path, text: str, mode: int) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("nowhere-to-be-found", 2),
        ("/nowhere/to-be-found", 2),
        ("", 2),
        ("/tmp", 13),
        ("{folder}/not-executable", 13),
        ("{folder}/no-interpreter", 8),
        ("{folder}/lost-interpreter", 2),
        ("{folder}/not-executable/below", 20),
    ],
)
def test_what_cannot_be_started(driven: Driven, what: str, error: int) -> None:
    """The errno is that of exec, and nothing is said to have run."""
    script(driven.folder / "not-executable", "#!/bin/sh\n", 0o644)
    script(driven.folder / "no-interpreter", "echo hi\n", 0o755)
    script(driven.folder / "lost-interpreter", "#!/nowhere/sh\n", 0o755)
    ended = driven.run(what.format(folder=driven.folder))
    assert (ended["cause"], ended["error"]) == ("not-started", [error, "exec"])
    assert (ended["exit_code"], ended["signal"]) == (None, None)


def test_command_is_looked_up_after_the_change_of_folder(driven: Driven) -> None:
    """A relative command is relative to --cwd."""
    script(driven.folder / "here", "#!/bin/sh\npwd\n", 0o755)
    ended = driven.run("./here", cwd=str(driven.folder))
    assert ended["stdout"].decode() == f"{driven.folder}\n"


def test_missing_folder_is_not_a_missing_command(driven: Driven) -> None:
    """The stage tells a missing working directory from a missing program."""
    ended = driven.run("true", cwd="/nowhere/at/all")
    assert (ended["cause"], ended["error"]) == ("not-started", [2, "cwd"])


def test_too_long_a_line_is_told(driven: Driven) -> None:
    """An argument beyond what exec takes, and beyond what a pipe holds."""
    ended = driven.run("true", padding=3_000_000)
    assert (ended["cause"], ended["error"]) == ("not-started", [7, "exec"])


def test_arguments_and_environment_arrive_byte_for_byte(driven: Driven) -> None:
    """No shell, no splitting, bytes that are no text included."""
    odd = ["a b", "", '"', "$HOME", ";", "*", "x\ny", "\udcff", "é"]
    code = "import sys, os; print(list(map(os.fsencode, sys.argv[1:])))"
    ended = driven.run(sys.executable, "-c", code, *odd)
    assert ended["stdout"].decode() == f"{list(map(os.fsencode, odd))}\n"


def test_output_is_passed_on_apart_and_unchanged(driven: Driven) -> None:
    """Bytes that are no text, no newline at the end, stdout and stderr each on its own."""
    ended = driven.run("sh", "-c", r"printf 'ok\377\376\r'; printf 'no newline' >&2; printf R=1")
    assert (ended["stdout"], ended["stderr"]) == (b"ok\xff\xfe\rR=1", b"no newline")
    assert ended["bytes"] == 18


def test_command_has_three_descriptors(driven: Driven) -> None:
    """Neither the lock's nor any of our pipes reaches the command."""
    assert driven.run(*command("descriptors"))["stdout"] == b"[0, 1, 2]\n"


def test_command_has_plain_signals(driven: Driven) -> None:
    """Nothing blocked, nothing ignored: not SIGPIPE either, which Python ignores for itself."""
    out = driven.run("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")["stdout"].decode()
    assert [line.split()[1] for line in out.splitlines()] == ["0" * 16, "0" * 16]


def test_command_has_the_signal_mask_that_we_were_given(driven: Driven) -> None:
    """What the caller had blocked stays blocked, for us and for the command."""

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGCHLD))

    ended = driven.run("grep", "^SigBlk", "/proc/self/status", popen={"preexec_fn": block})
    blocked = 1 << signal.SIGUSR1 - 1 | 1 << signal.SIGCHLD - 1
    assert ended["stdout"].split()[1] == b"%016x" % blocked


def test_what_was_ignored_stays_ignored(driven: Driven) -> None:
    """Under nohup the command goes on when the terminal hangs up, and so do we."""
    driven.start(*command("waits", driven.ready), before=("nohup",))
    pids = driven.tree()
    os.kill(driven.started()["wrapper"], signal.SIGHUP)
    os.kill(pids[0], signal.SIGHUP)
    os.kill(driven.started()["wrapper"], signal.SIGTERM)
    ended = driven.end()
    assert (ended["our_signal"], ended["signal"]) == (signal.SIGTERM, signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_signal_is_passed_on_and_interrupts(driven: Driven, number: int) -> None:
    """The command says goodbye and exits 0: the run is interrupted all the same."""
    driven.start(*command("answers", driven.ready, 0))
    driven.tree()
    os.kill(driven.started()["wrapper"], number)
    ended = driven.end()
    assert (ended["cause"], ended["our_signal"], ended["exit_code"]) == ("interrupted", number, 0)
    assert ended["stdout"] == b"bye\n"


def test_second_signal_kills(driven: Driven) -> None:
    """Who asks twice, does not wait for the grace."""
    driven.start(*command("ignores", driven.ready), kill_after=1000.0)
    pids = driven.tree()
    wrapper = driven.started()["wrapper"]

    def ask_until_dead() -> bool:
        os.kill(wrapper, signal.SIGINT)
        return not is_alive(pids[0])

    until(ask_until_dead, "the second signal to be taken for one")
    ended = driven.end()
    assert (ended["cause"], ended["our_signal"], ended["signal"]) == ("interrupted", 2, 9)
    assert ended["times"] >= 2


def test_same_signal_at_once_is_one_request(driven: Driven) -> None:
    """timeout(1) signals us twice, alone and with its group: the command keeps its grace."""
    driven.start(*command("answers", driven.ready, 5), kill_after=1000.0)
    driven.tree()
    wrapper = driven.started()["wrapper"]
    for _ in range(3):
        os.kill(wrapper, signal.SIGTERM)
    assert driven.end()["exit_code"] == 5


@pytest.mark.parametrize("days", [24, 26, 366])
def test_limit_of_many_days(driven: Driven, days: int) -> None:
    """More milliseconds than poll takes at once."""
    ended = driven.run("sh", "-c", "exit 3", timeout=days * 86_400.0)
    assert (ended["cause"], ended["exit_code"]) == ("exited", 3)


@pytest.mark.parametrize("kind", ["ignores", "family"])
def test_timeout_ends_the_whole_tree(driven: Driven, kind: str) -> None:
    """TERM at the limit, KILL after the grace, for those too that left the group."""
    driven.start(*command(kind, driven.ready), timeout=6.0, kill_after=0.2)
    pids = driven.tree()
    ended = driven.end()
    assert (ended["cause"], ended["our_signal"]) == ("timed-out", signal.SIGTERM)
    assert ended["survivors"] == []
    driven.ends_with_nothing_left(pids)


def test_timed_out_whatever_it_answers(driven: Driven) -> None:
    """A command that answers TERM with 0 has timed out."""
    ended = driven.run(*command("answers", driven.ready, 0), timeout=5.0)
    assert (ended["cause"], ended["exit_code"]) == ("timed-out", 0)


def test_descendant_without_environment_is_found(driven: Driven) -> None:
    """Its parent is of the tree, and so is it."""
    driven.start(*command("forgets_environment", driven.ready), kill_after=0.2)
    pids = driven.tree()
    os.kill(driven.started()["wrapper"], signal.SIGTERM)
    driven.end()
    driven.ends_with_nothing_left(pids)


@pytest.mark.parametrize(
    "prefix", [["timeout", "60"], ["chronic"], ["setsid", "-w"], ["sh", "-mc"]]
)
def test_programs_in_between(driven: Driven, prefix: list[str]) -> None:
    """What leaves the group with the command's own process does not leave the tree."""
    inner = command("waits", driven.ready)
    argv = [*prefix, " ".join(inner) + " & wait"] if prefix[0] == "sh" else [*prefix, *inner]
    driven.start(*argv, kill_after=0.5)
    pids = driven.tree()
    os.kill(driven.started()["wrapper"], signal.SIGTERM)
    assert driven.end()["cause"] == "interrupted"
    driven.ends_with_nothing_left(pids)


def test_daemon_that_holds_the_output_is_left_alone(driven: Driven) -> None:
    """A second more is read, then it is noted; it lives and does not hold the lock."""
    driven.start(*command("leaves_daemon", driven.ready))
    _, daemon = driven.tree()
    ended = driven.end()
    assert (ended["cause"], ended["exit_code"], ended["left_open"]) == ("exited", 0, daemon)
    assert ended["stdout"] == b"done\n"
    assert not driven.is_locked()
    assert is_alive(daemon)


def test_cancelled_command_never_runs(driven: Driven) -> None:
    """It ends unrun, and so does its guardian."""
    driven.start("touch", str(driven.folder / "ran"), cancel=True)
    started = driven.started()
    driven.end()
    driven.ends_with_nothing_left([started["guardian"], started["command"]])
    assert not (driven.folder / "ran").exists()


def test_null_stdin_is_empty(driven: Driven) -> None:
    """A command that reads what nobody will ever write ends at once."""
    ended = driven.run(*command("reads_stdin"), popen={"stdin": -1})
    assert ended["stdout"] == b"b''\n"


def test_inherited_stdin_is_ours(driven: Driven) -> None:
    """`jobrun run import -- psql < dump.sql` reads the file."""
    (driven.folder / "in").write_bytes(b"data")
    with open(driven.folder / "in", "rb") as source:
        ended = driven.run(*command("reads_stdin"), stdin="inherit", popen={"stdin": source})
    assert ended["stdout"] == b"b'data'\n"


@pytest.mark.parametrize("missing", [(0,), (1,), (0, 1, 2)])
def test_started_without_standard_streams(driven: Driven, missing: tuple[int, ...]) -> None:
    """None of our descriptors becomes somebody's standard output."""
    closing = " ".join(f"{fd}>&-" for fd in missing)
    kept = driven.folder / "kept"
    driven.start(
        "sh", "-c", "echo out; echo err >&2; exit 4", base=str(kept),
        before=("sh", "-c", f'exec "$@" {closing}', "sh"),
    )  # fmt: skip
    ended = driven.end()
    assert ended["exit_code"] == 4
    assert ended["dropped"] == []  # what was never there is not broken
    assert kept.with_suffix(".out").read_bytes() == b"out\n"
    assert kept.with_suffix(".err").read_bytes() == b"err\n"
