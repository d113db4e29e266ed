"""A lock of several machines that is lost, or whose wrapper is: the command does not outlive it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobrun.boottime import boottime
from tests.conftest import PYTHON, ROOT, Jobrun, is_alive, open_files, state, until
from tests.driven import Driven, command

if sys.platform == "win32":
    pytest.skip("its socket is handed to a guardian", allow_module_level=True)

from tests.keeper_double import Server, Session

LOST = "the server closed the session (57P05)"
SILENT = "no answer from its server in time"


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    wrapper = Driven(tmp_path)
    yield wrapper
    wrapper.clean_up()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as made:
        yield made


def keeper(
    server: Server, every: float = 0.2, patience: float = 20, adopts: str = ""
) -> list[object]:
    return [server.path, every, patience, adopts]


def begun(driven: Driven, server: Server) -> tuple[list[int], Session]:
    """The command's processes, and its session, which was answered until they were there."""
    session = server.session()
    while not driven.ready.exists():
        session.answer(1)
    return driven.tree(), session


def pid_of(driven: Driven, role: str) -> int:
    return int(driven.started()[role])


def ends_after(session: Session, pids: list[int]) -> None:
    """The held socket is closed, and not before the last of these is dead."""
    until(lambda: not session.is_open(), "the held socket to be closed")
    assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.parametrize("kind", ["waits", "ignores", "family"])
def test_lost_lock_ends_the_command(driven: Driven, server: Server, kind: str) -> None:
    """TERM, the grace, KILL; and it is told how the lock was lost."""
    driven.start(*command(kind, driven.ready), keeper=keeper(server), kill_after=0.3)
    pids = driven.tree()
    server.session().close()
    ended = driven.end()
    assert (ended["cause"], ended["detail"]) == ("lock-lost", LOST)
    assert ended["our_signal"] == signal.SIGTERM
    driven.ends_with_nothing_left(pids)


def test_lost_whatever_the_command_answers(driven: Driven, server: Server) -> None:
    """It says goodbye and exits 0, and is lost all the same."""
    driven.start(*command("answers", driven.ready, 0), keeper=keeper(server))
    driven.tree()
    server.session().close()
    ended = driven.end()
    assert (ended["cause"], ended["exit_code"], ended["stdout"]) == ("lock-lost", 0, b"bye\n")


def test_silent_server_ends_the_command_in_time(driven: Driven, server: Server) -> None:
    """Nobody says that the lock is lost: our own deadline must do. The command is asked once."""
    asked = driven.folder / "asked"
    argv = command("counts", driven.ready, asked)
    earliest = boottime() + 3.0
    driven.start(
        *argv, keeper=keeper(server, patience=5.0), kill_after=0.5, mischief="speaks_early"
    )
    pids, _ = begun(driven, server)
    ended = driven.end()
    assert (ended["cause"], ended["detail"]) == ("lock-lost", SILENT)
    assert boottime() > earliest
    assert asked.read_text() == "TERM\n"
    driven.ends_with_nothing_left(pids)


def test_answered_pings_put_the_deadline_off(driven: Driven, server: Server) -> None:
    """Five of them: the command runs for longer than its lock lasts without."""
    driven.start(*command("answers", driven.ready, 5), keeper=keeper(server, 1.0, 4.0))
    (pid,), session = begun(driven, server)
    session.answer(5)
    os.kill(pid, signal.SIGTERM)
    ended = driven.end()
    assert (ended["cause"], ended["exit_code"]) == ("exited", 5)
    assert ended["took"] > 4.0
    assert ended["rested"]
    until(lambda: not session.is_open(), "the socket to be closed with the wrapper")


@pytest.mark.parametrize("kind", ["waits", "ignores", "family"])
def test_stopped_wrapper_is_no_reason_to_go_on(driven: Driven, server: Server, kind: str) -> None:
    """The guardian ends the command at the deadline; continued, we know that it was its doing."""
    driven.start(*command(kind, driven.ready), keeper=keeper(server, patience=3.0), kill_after=0.3)
    pids, session = begun(driven, server)
    wrapper = pid_of(driven, "wrapper")
    os.kill(wrapper, signal.SIGSTOP)
    until(lambda: not any(map(is_alive, pids)), "the command to be dead")
    assert state(wrapper) == "T"
    assert session.is_open()
    os.kill(wrapper, signal.SIGCONT)
    ended = driven.end()
    assert ended["cause"] == "lock-lost"
    assert re.fullmatch(r"this process was stopped for \d+\.\d s", ended["detail"])
    assert ended["signal"] == (signal.SIGTERM if kind != "ignores" else signal.SIGKILL)


def test_continued_wrapper_does_not_ask_again(driven: Driven, server: Server) -> None:
    """The guardian has asked in its place: the command has its grace, and hears of it once."""
    asked = driven.folder / "asked"
    argv = command("counts", driven.ready, asked)
    driven.start(*argv, keeper=keeper(server, patience=3.0), kill_after=1.0)
    pids, _ = begun(driven, server)
    wrapper = pid_of(driven, "wrapper")
    os.kill(wrapper, signal.SIGSTOP)
    until(asked.exists, "the guardian to ask")
    os.kill(wrapper, signal.SIGCONT)
    assert driven.end()["cause"] == "lock-lost"
    assert asked.read_text() == "TERM\n"
    driven.ends_with_nothing_left(pids)


def test_stopped_wrapper_that_is_killed_then(driven: Driven, server: Server) -> None:
    """The grace that the guardian gave goes on; the socket is held until the command is dead."""
    asked = driven.folder / "asked"
    argv = command("counts", driven.ready, asked)
    driven.start(*argv, keeper=keeper(server, patience=3.0), kill_after=1.0)
    pids, session = begun(driven, server)
    wrapper = pid_of(driven, "wrapper")
    os.kill(wrapper, signal.SIGSTOP)
    until(asked.exists, "the guardian to ask")
    os.kill(wrapper, signal.SIGKILL)
    ends_after(session, pids)
    assert asked.read_text() == "TERM\n"


def test_wrapper_stopped_while_it_ends_the_command(driven: Driven, server: Server) -> None:
    """It has asked and can't kill: the guardian does, as long after the deadline as the grace."""
    asked = driven.folder / "asked"
    argv = command("counts", driven.ready, asked)
    driven.start(*argv, keeper=keeper(server, patience=3.0), kill_after=4.0)
    pids, session = begun(driven, server)
    wrapper = pid_of(driven, "wrapper")
    os.kill(wrapper, signal.SIGTERM)
    until(asked.exists, "the command to be asked")
    assert session.is_open()  # what it has said by now is read
    session.answer(2)  # in between it has told the guardian
    os.kill(wrapper, signal.SIGSTOP)
    until(lambda: not any(map(is_alive, pids)), "the command to be dead")
    assert state(wrapper) == "T"
    os.kill(wrapper, signal.SIGCONT)
    assert driven.end()["cause"] == "interrupted"
    assert asked.read_text() == "TERM\n"


def test_what_a_good_end_leaves_is_left_alone(driven: Driven, server: Server) -> None:
    """A daemon is none of the guardian's business, deadline or not, once the command has ended."""
    patience = 4.0
    driven.start(*command("leaves_daemon", driven.ready), keeper=keeper(server, patience=patience))
    pid, daemon = driven.tree()
    wrapper = pid_of(driven, "wrapper")
    os.kill(wrapper, signal.SIGSTOP)
    late = boottime() + patience
    until(lambda: not is_alive(pid), "the command to end")
    until(lambda: boottime() > late, "the deadline")
    os.kill(wrapper, signal.SIGCONT)
    ended = driven.end()
    assert (ended["cause"], ended["exit_code"], ended["left_open"]) == ("exited", 0, daemon)
    assert is_alive(daemon)


def test_command_that_ended_in_time_keeps_its_answer(driven: Driven, server: Server) -> None:
    """It ended while we were stopped, and before the deadline: the lock was its own until then."""
    driven.start(*command("answers", driven.ready, 7), keeper=keeper(server))
    (pid,) = driven.tree()
    wrapper = pid_of(driven, "wrapper")
    session = server.session()
    os.kill(wrapper, signal.SIGSTOP)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not is_alive(pid), "the command to end")
    until(lambda: state(pid_of(driven, "guardian")) == "S", "the guardian to have said so")
    session.close()
    os.kill(wrapper, signal.SIGCONT)
    ended = driven.end()
    assert (ended["cause"], ended["exit_code"]) == ("exited", 7)


@pytest.mark.parametrize("kind", ["ignores", "family"])
def test_killed_wrapper_leaves_the_socket_held(driven: Driven, server: Server, kind: str) -> None:
    """The server sees its end only once the command is dead, with its grandchildren."""
    driven.start(*command(kind, driven.ready), keeper=keeper(server), kill_after=0.3)
    pids = driven.tree()
    session = server.session()
    os.kill(pid_of(driven, "wrapper"), signal.SIGKILL)
    ends_after(session, pids)
    until(lambda: not is_alive(pid_of(driven, "guardian")), "the guardian's end")


def test_guardian_that_lets_the_socket_go_would_be_seen(driven: Driven, server: Server) -> None:
    """The test above can fail: without the guardian's hold the command outlives the lock."""
    driven.start(
        *command("ignores", driven.ready), keeper=keeper(server), kill_after=5.0,
        mischief="guardian_lets_go",
    )  # fmt: skip
    (pid,) = driven.tree()
    session = server.session()
    os.kill(pid_of(driven, "wrapper"), signal.SIGKILL)
    until(lambda: not session.is_open(), "the held socket to be closed")
    assert is_alive(pid)


@pytest.mark.parametrize("adopts", ["same", "other"])
def test_readopted_lock_is_held_by_its_new_socket(
    driven: Driven, server: Server, adopts: str
) -> None:
    """The command goes on, untouched; from then on the guardian holds the new one."""
    driven.start(
        *command("ignores", driven.ready), keeper=keeper(server, adopts=adopts), kill_after=0.3
    )
    pids = driven.tree()
    old = server.session()
    old.answer(1)
    old.close()
    new = server.session()
    assert new.line() == "7"
    new.answer(2)
    assert all(map(is_alive, pids))
    os.kill(pid_of(driven, "wrapper"), signal.SIGKILL)
    ends_after(new, pids)


def test_guardian_keeps_no_socket_of_the_past(driven: Driven, server: Server) -> None:
    """However often the lock is taken anew, one is held."""
    driven.start(*command("waits", driven.ready), keeper=keeper(server, adopts="other"))
    driven.tree()
    guardian = pid_of(driven, "guardian")
    before = sockets_of(guardian)
    session = server.session()
    for _ in range(3):
        session.answer(1)
        session.close()
        session = server.session()
        assert session.line() == "7"
    session.answer(2)
    until(lambda: len(sockets_of(guardian)) == len(before), "the old sockets to be closed")
    assert sockets_of(guardian) != before


def sockets_of(pid: int) -> set[str]:
    return {link for link in open_files(pid) if link.startswith("socket:")}


def test_stopped_guardian_hears_no_stale_deadline(driven: Driven, server: Server) -> None:
    """Continued after the deadline that it knew, it goes by the newest."""
    driven.start(*command("answers", driven.ready, 5), keeper=keeper(server, 0.5, 3.0))
    (pid,), session = begun(driven, server)
    guardian = pid_of(driven, "guardian")
    os.kill(guardian, signal.SIGSTOP)
    session.answer(8)
    os.kill(guardian, signal.SIGCONT)
    session.answer(3)
    os.kill(pid, signal.SIGTERM)
    ended = driven.end()
    assert (ended["cause"], ended["exit_code"]) == ("exited", 5)


def test_guardian_killed(driven: Driven, server: Server) -> None:
    """Nothing can be told to it any more, and we survive that: interrupted, as ever."""
    driven.start(
        *command("ignores", driven.ready), keeper=keeper(server, adopts="other"), kill_after=0.5
    )
    pids = driven.tree()
    os.kill(pid_of(driven, "guardian"), signal.SIGKILL)
    server.session().close()
    assert server.session().line() == "7"
    assert driven.end()["cause"] == "interrupted"
    driven.ends_with_nothing_left(pids)


def test_first_cause_stays(driven: Driven, server: Server) -> None:
    """A command that was ended for its limit has timed out, whatever becomes of its lock then."""
    asked = driven.folder / "asked"
    argv = command("counts", driven.ready, asked)
    driven.start(*argv, keeper=keeper(server), timeout=4.0, kill_after=2.0)
    pids = driven.tree()
    until(asked.exists, "the limit")
    server.session().close()
    assert driven.end()["cause"] == "timed-out"
    assert asked.read_text() == "TERM\n"
    driven.ends_with_nothing_left(pids)


@pytest.mark.parametrize("how", ["lost", "late"])
def test_command_whose_lock_is_lost_before_never_runs(
    driven: Driven, server: Server, how: str
) -> None:
    """The session ended, or its time was over, between the claim and the command's turn."""
    patience = 20.0 if how == "lost" else 0.0
    driven.start(
        "touch", str(driven.folder / "ran"), keeper=keeper(server, patience=patience), hold=True
    )
    driven.started()
    session = server.session()
    if how == "lost":
        session.close()
    driven.let_go()
    ended = driven.end()
    assert (ended["cause"], ended["detail"]) == ("lock-lost", LOST if how == "lost" else SILENT)
    assert not (driven.folder / "ran").exists()
    driven.ends_with_nothing_left([pid_of(driven, "command"), pid_of(driven, "guardian")])


def test_command_has_three_descriptors(driven: Driven, server: Server) -> None:
    """Neither the socket nor what is shared with the guardian reaches the command."""
    ended = driven.run(*command("descriptors"), keeper=keeper(server))
    assert ended["stdout"] == b"[0, 1, 2]\n"


# -- on record ---------------------------------------------------------------------------------

CALL = """
import sys
from jobrun.lock_file import FileLock
from tests import frozen
from tests.keeper_double import Double
FileLock.keeper = Double(sys.argv[2], 0.2, 20, "")
sys.exit(frozen.run(float(sys.argv[1]), sys.argv[3:]))
"""
NOW = "1788523500"  # 2026-09-04T12:05Z


class Call:
    """`jobrun run a ARGV…` with a keeper; `session` is its server's."""

    def __init__(self, jobrun: Jobrun, server: Server, *argv: str, life: str = "waits") -> None:
        ready = jobrun.folder / "ready"
        inner = command(life, ready)
        self.process = subprocess.Popen(
            [PYTHON, "-c", CALL, NOW, server.path, "run", "a", *argv, "--", *inner],
            env=jobrun.environment, cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.session = server.session()
        until(ready.exists, "the command")

    def end(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err.decode()


def test_lost_lock_is_on_record_and_said(jobrun: Jobrun, server: Server) -> None:
    """Who is woken by it reads why; the window is due again, and nothing of it counts as failed."""
    call = Call(jobrun, server, "--every", "1h", "-q")
    call.session.close()
    status, err = call.end()
    assert status == 76
    line, error = err.splitlines()[-2:]
    assert line.startswith("jobrun: INTERRUPTED job=a ")
    assert " exit=76 outcome=interrupted what=lock-lost " in line
    assert error == f"jobrun: error: lost the lock: {LOST}"
    found = jobrun.query("SELECT outcome, signal, why FROM jobrun_run")
    assert found == [("interrupted", signal.SIGTERM, f"lost the lock: {LOST}")]
    state = "SELECT state, attempts, failures, next_attempt_at FROM jobrun_window"
    assert jobrun.query(state) == [("failed", 1, 0, None)]


def test_no_further_window_without_the_lock(jobrun: Jobrun, server: Server) -> None:
    """The next ones are left to the next call, whoever makes it."""
    call = Call(jobrun, server, "--every", "1h", "--first", "2026-09-04T08:00Z", "-q")
    call.session.close()
    assert call.end()[0] == 76
    assert jobrun.query("SELECT count(*) FROM jobrun_run") == [(1,)]


def test_delay_before_a_further_try_keeps_the_lock(jobrun: Jobrun, server: Server) -> None:
    """Nothing runs in it, and the server hears of us all the same; lost, nothing is tried again."""
    call = Call(jobrun, server, "--retries", "1", "--retry-delay", "1m", "-q", life="fails")
    call.session.answer(3)
    until(lambda: jobrun.query("SELECT outcome FROM jobrun_run") == [("failed",)], "the record")
    call.session.answer(3)
    call.session.close()
    status, err = call.end()
    assert status == 3
    assert f"jobrun: error: lost the lock: {LOST}: not tried again" in err.splitlines()
    assert jobrun.query("SELECT count(*) FROM jobrun_run") == [(1,)]
