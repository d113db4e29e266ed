"""On a terminal: who gets it, Ctrl-C, Ctrl-Z, and a command that wants what it has not got."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import is_alive, state, until
from tests.driven import Driven, command

if sys.platform == "win32":
    pytest.skip("POSIX terminals", allow_module_level=True)

import fcntl
import pty
import termios


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    wrapper = Driven(tmp_path)
    yield wrapper
    wrapper.clean_up()


@pytest.fixture
def keyboard(driven: Driven) -> Iterator[int]:
    """Its master side; `on_terminal` uses the other one."""
    master, slave = pty.openpty()
    driven.folder.joinpath("tty").write_text(os.ttyname(slave))
    yield master
    os.close(slave)
    os.close(master)


def on_terminal(driven: Driven) -> dict[str, object]:
    """For Popen: a session of its own whose terminal it is, in the foreground."""
    path = driven.folder.joinpath("tty").read_text()

    def take_terminal() -> None:
        os.setsid()
        terminal = os.open(path, os.O_RDWR)
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        os.dup2(terminal, 0)

    return {"preexec_fn": take_terminal}


def test_ctrl_c_reaches_the_command_through_us(driven: Driven, keyboard: int) -> None:
    """The command is not in the terminal's foreground; it hears of it once, from us."""
    driven.start(*command("answers", driven.ready, 0), popen=on_terminal(driven))
    driven.tree()
    os.write(keyboard, b"\x03")
    ended = driven.end()
    assert (ended["cause"], ended["our_signal"]) == ("interrupted", signal.SIGINT)
    assert (ended["exit_code"], ended["times"]) == (0, 1)


def test_command_that_wants_the_terminal_is_ended(driven: Driven, keyboard: int) -> None:
    """ssh that asks for a password would stand stopped for ever."""
    driven.start(*command("reads_terminal", driven.ready), popen=on_terminal(driven))
    pids = driven.tree()
    ended = driven.end()
    assert (ended["cause"], ended["wants_terminal"]) == ("exited", True)
    assert (ended["exit_code"], ended["signal"]) == (None, signal.SIGTTIN)
    driven.ends_with_nothing_left(pids)


def test_command_is_lent_the_terminal(driven: Driven, keyboard: int) -> None:
    """--stdin inherit: it can read what is typed; afterwards the terminal is ours again."""
    popen = on_terminal(driven)
    driven.start(*command("reads_terminal", driven.ready), stdin="inherit", popen=popen)
    driven.tree()
    os.write(keyboard, b"secret\n")
    ended = driven.end()
    assert (ended["cause"], ended["exit_code"]) == ("exited", 0)
    assert (driven.folder / "ready.read").read_text() == "secret\n\n"


def test_ctrl_c_of_a_command_that_has_the_terminal_interrupts(
    driven: Driven, keyboard: int
) -> None:
    """It was meant for both of us, though it went to the command alone."""
    popen = on_terminal(driven)
    driven.start(*command("waits", driven.ready), stdin="inherit", popen=popen)
    driven.tree()
    os.write(keyboard, b"\x03")
    ended = driven.end()
    assert (ended["cause"], ended["our_signal"]) == ("interrupted", signal.SIGINT)


@pytest.mark.parametrize("stdin", ["null", "inherit"])
def test_ctrl_z_stops_both_and_cont_continues_both(
    driven: Driven, keyboard: int, stdin: str
) -> None:
    """We are really stopped, so that a shell sees it; and go on as if nothing had been."""
    driven.start(*command("answers", driven.ready, 0), stdin=stdin, popen=on_terminal(driven))
    (pid,) = driven.tree()
    wrapper = driven.started()["wrapper"]
    os.write(keyboard, b"\x1a")
    until(lambda: (state(wrapper), state(pid)) == ("T", "T"), "both to be stopped")
    os.kill(wrapper, signal.SIGCONT)
    until(lambda: "T" not in (state(wrapper), state(pid)), "both to go on")
    os.kill(wrapper, signal.SIGTERM)
    assert driven.end()["cause"] == "interrupted"


def test_killed_while_stopped(driven: Driven, keyboard: int) -> None:
    """Ctrl-Z, then kill -9: the stopped command is continued to hear that it is to end."""
    driven.start(*command("answers", driven.ready, 0), popen=on_terminal(driven))
    (pid,) = driven.tree()
    wrapper = driven.started()["wrapper"]
    os.write(keyboard, b"\x1a")
    until(lambda: (state(wrapper), state(pid)) == ("T", "T"), "both to be stopped")
    os.kill(wrapper, signal.SIGKILL)
    driven.ends_with_nothing_left([pid])


def test_terminal_hangs_up(driven: Driven, keyboard: int) -> None:
    """The ssh session closes: HUP for us, who are the leader, and the command goes with us."""
    driven.start(*command("waits", driven.ready), popen=on_terminal(driven))
    (pid,) = driven.tree()
    os.kill(driven.started()["wrapper"], signal.SIGHUP)
    ended = driven.end()
    assert (ended["cause"], ended["our_signal"]) == ("interrupted", signal.SIGHUP)
    assert not is_alive(pid)
