"""Whoever of the three is killed, and when: nothing of the command outlives the lock."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobrun import tree, tree_proc
from jobrun.rows import RunRow
from tests.conftest import is_alive, make_end, state, until
from tests.driven import Driven, command

if sys.platform == "win32":
    pytest.skip("the guardian is for POSIX", allow_module_level=True)

import fcntl
import termios

ROLES = ("wrapper", "guardian", "command")


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    wrapper = Driven(tmp_path)
    yield wrapper
    wrapper.clean_up()


def kill(*pids: int) -> None:
    """One after another: whom the first takes with it is gone."""
    for pid in pids:
        make_end(pid)


@pytest.mark.parametrize("who", [("wrapper",), ("wrapper", "command"), ("wrapper", "guardian")])
def test_killed_before_go(driven: Driven, who: tuple[str, ...]) -> None:
    """A command that was not let go never runs, whoever is killed."""
    driven.start("touch", str(driven.folder / "ran"), hold=True)
    started = driven.started()
    kill(*(started[role] for role in who))
    driven.ends_with_nothing_left([started[role] for role in ROLES])
    assert not (driven.folder / "ran").exists()


def test_guardian_killed_before_go(driven: Driven) -> None:
    """Without its guardian a command does not start, even where the wrapper lets it go."""
    driven.start("touch", str(driven.folder / "ran"), hold=True)
    started = driven.started()
    kill(started["guardian"])
    until(lambda: not is_alive(started["guardian"]), "the guardian to be gone")
    driven.let_go()
    ended = driven.end()
    assert (ended["cause"], ended["error"][1]) == ("not-started", "guardian")
    assert not (driven.folder / "ran").exists()


def test_command_killed_before_go(driven: Driven) -> None:
    """It is told as what it is: died of the signal."""
    driven.start("true", hold=True)
    kill(driven.started()["command"])
    driven.let_go()
    ended = driven.end()
    assert (ended["cause"], ended["signal"]) == ("exited", signal.SIGKILL)


@pytest.mark.parametrize("kind", ["waits", "ignores", "family"])
def test_wrapper_killed(driven: Driven, kind: str) -> None:
    """kill -9 of the wrapper: the guardian asks, waits, kills, and only then lets the lock go."""
    driven.start(*command(kind, driven.ready), kill_after=0.3)
    pids = driven.tree()
    kill(driven.started()["wrapper"])
    driven.ends_with_nothing_left([*pids, driven.started()["guardian"]])


def test_grace_is_kept_without_the_wrapper(driven: Driven) -> None:
    """A command that cleans up gets its time from the guardian too, and no dead pipe."""
    driven.start(*command("chatters", driven.ready, driven.folder / "said"), kill_after=1000.0)
    pids = driven.tree()
    kill(driven.started()["wrapper"])
    driven.ends_with_nothing_left(pids)
    assert (driven.folder / "said").exists()


def test_wrapper_killed_while_it_stops_the_command(driven: Driven) -> None:
    """The guardian goes on where the wrapper was, on the ladder."""
    driven.start(*command("ignores", driven.ready), kill_after=0.5)
    pids = driven.tree()
    wrapper = driven.started()["wrapper"]
    os.kill(wrapper, signal.SIGTERM)
    kill(wrapper)
    driven.ends_with_nothing_left(pids)


@pytest.mark.parametrize("kind", ["waits", "ignores", "family"])
def test_guardian_killed(driven: Driven, kind: str) -> None:
    """The wrapper ends the tree itself, says interrupted, and lets the lock go after that."""
    driven.start(*command(kind, driven.ready), kill_after=0.3)
    pids = driven.tree()
    kill(driven.started()["guardian"])
    ended = driven.end()
    assert (ended["cause"], ended["our_signal"]) == ("interrupted", signal.SIGTERM)
    driven.ends_with_nothing_left(pids)


def test_command_killed(driven: Driven) -> None:
    """It did not get to end what it had started: that is ended before there can be a second try."""
    driven.start(*command("family", driven.ready), kill_after=0.2)
    pids = driven.tree()
    kill(pids[0])
    ended = driven.end()
    assert (ended["cause"], ended["signal"]) == ("exited", signal.SIGKILL)
    driven.ends_with_nothing_left(pids)


@pytest.mark.parametrize("kind", ["waits", "family"])
def test_wrapper_and_guardian_killed(driven: Driven, kind: str) -> None:
    """Nobody is left to end the command, so the next call has to find it: by what it carries."""
    driven.start(*command(kind, driven.ready))
    pids = driven.tree()
    started = driven.started()
    os.kill(started["wrapper"], signal.SIGSTOP)  # or one of them ends the command
    kill(started["guardian"], started["wrapper"])
    until(lambda: not driven.is_locked(), "the lock")
    row = run_row(started)
    marker = {"JOBRUN_RUN_ID": "7", "JOBRUN_LEDGER": str(driven.folder / "jobrun.db")}
    until(lambda: not tree.wrapper_alive(row), "the wrapper to be gone")
    assert set(tree.command_alive(row, marker)) == set(pids)
    assert set(tree.command_alive(row, {**marker, "JOBRUN_RUN_ID": "8"})) <= set(pids)
    kill(*pids)
    until(lambda: not tree.command_alive(row, marker), "the tree to be gone")


def run_row(started: dict[str, object], **changed: object) -> RunRow:
    empty = RunRow(*(None for _ in RunRow._fields))  # type: ignore[arg-type]
    pids = {"pid": started["wrapper"], "child_pid": started["command"], "birth": started["birth"]}
    return empty._replace(**{**pids, **changed})  # type: ignore[arg-type]


def test_pid_of_another_program_is_not_ours(driven: Driven) -> None:
    """Neither the wrapper nor the command is taken for alive by its number alone."""
    driven.start(*command("waits", driven.ready))
    driven.tree()
    started = driven.started()
    row = run_row(started)
    marker = {"JOBRUN_RUN_ID": "7", "JOBRUN_LEDGER": str(driven.folder / "jobrun.db")}
    assert tree.wrapper_alive(row)
    assert tree.command_alive(row, marker) == (started["command"],)
    boot, own, child = str(started["birth"]).split()
    later = run_row(started, birth=f"{boot} {int(own) + 1} {int(child) + 1}")
    assert not tree.wrapper_alive(later)
    assert tree.command_alive(later, {"JOBRUN_RUN_ID": "nobody's"}) == ()
    rebooted = run_row(started, birth=f"another-boot/pid {own} {child}")
    assert not tree.wrapper_alive(rebooted)
    assert tree.command_alive(rebooted, marker) == ()
    assert not tree.wrapper_alive(run_row(started, birth="no such thing"))


def test_group_of_another_program_is_not_ours(driven: Driven) -> None:
    """Where its leader's number is a later program's, all that is in the group is that one's."""
    driven.start(*command("family", driven.ready))
    pids = driven.tree()
    started = driven.started()
    nobody = {"JOBRUN_RUN_ID": "nobody's"}
    assert set(tree.command_alive(run_row(started), nobody)) == set(pids)
    boot, own, child = str(started["birth"]).split()
    later = run_row(started, birth=f"{boot} {own} {int(child) + 1}")
    assert tree.command_alive(later, nobody) == ()


def test_zombie_is_not_alive() -> None:
    """Where nobody collects them (pid 1 of many containers) the dead keep their pids."""
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert tree_proc.started(process.pid) is not None
        assert tree_proc.alive(process.pid) is None
    finally:
        process.wait()


def test_name_may_hold_parentheses(tmp_path: Path) -> None:
    """/proc/PID/stat is read from its last parenthesis on."""
    program = tmp_path / "a) R (b"
    shutil.copy("/bin/sleep", program)
    process = subprocess.Popen([program, "60"])
    try:
        until(lambda: b"a) R (b" in Path(f"/proc/{process.pid}/stat").read_bytes(), "exec")
        started = tree_proc.started(process.pid)
        assert started is not None
        assert tree_proc.started(os.getpid()) <= started  # type: ignore[operator]
    finally:
        process.kill()
        process.wait()


def test_error_of_ours_ends_the_command(driven: Driven) -> None:
    """An exception in the middle of a run: the guardian ends the tree before we are gone."""
    argv = command("family", driven.ready, "hi")
    driven.start(*argv, mischief="feed_raises", kill_after=0.3)
    pids = driven.tree()
    _, err = driven.process.communicate(timeout=20)
    assert [pid for pid in pids if is_alive(pid)] == []
    assert b"MemoryError: mischief" in err
    driven.ends_with_nothing_left([driven.started()["guardian"]])


def test_killed_as_the_command_begins(driven: Driven) -> None:
    """The guardian knows what marks the tree before the command runs its first instruction."""
    driven.start(*command("leaves_daemon", driven.ready), mischief="dies_once_it_is_told")
    driven.ends_with_nothing_left(driven.tree())


def test_guardian_killed_before_it_says_anything(driven: Driven) -> None:
    """It is told as what it is; there is no errno for it."""
    driven.start("true", mischief="guardian_dies")
    _, err = driven.process.communicate(timeout=20)
    assert b"its guardian was killed before the command was there" in err
    assert not driven.is_locked()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def unread(pid: int) -> int:
    """Bytes that lie in the pipes of a process."""
    total = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(link).startswith("pipe:"):
            fd = os.open(link, os.O_RDONLY | os.O_NONBLOCK)
            total += int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
            os.close(fd)
    return total


def test_command_that_has_ended_before_we_look(driven: Driven) -> None:
    """The guardian's first two reports arrive together: neither is lost."""
    driven.start("true", mischief="reads_late", popen={"stdout": None, "stderr": None})
    wrapper = driven.process.pid
    until(lambda: state(wrapper) == "T", "the wrapper to be stopped")
    until(lambda: children_of(wrapper), "the guardian")
    (guardian,) = children_of(wrapper)
    until(lambda: children_of(guardian), "the command")
    (pid,) = children_of(guardian)
    kill(pid)
    until(lambda: unread(wrapper) > len("0000000003pid-0000000000"), "both reports")
    os.kill(wrapper, signal.SIGCONT)
    ended = driven.end()
    assert (ended["cause"], ended["signal"]) == ("exited", signal.SIGKILL)


def test_error_of_the_guardian_is_no_answer_of_the_command(driven: Driven) -> None:
    """No descriptors are left for its streams: it was not started, and exited with nothing."""
    ended = driven.run("true", mischief="no_files_for_the_command")
    assert (ended["cause"], ended["exit_code"]) == ("not-started", None)
    assert ended["error"] == [errno.EMFILE, "guardian"]


@pytest.mark.parametrize("how", ["signal", "timeout", "end"])
def test_stopped_guardian_puts_nothing_off(driven: Driven, how: str) -> None:
    """Somebody sends it SIGSTOP: limit, signal and the command's own end count all the same."""
    limit = 8.0 if how == "timeout" else None
    driven.start(*command("answers", driven.ready, 5), timeout=limit)
    (pid,) = driven.tree()
    guardian = driven.started()["guardian"]
    os.kill(guardian, signal.SIGSTOP)
    until(lambda: state(guardian) == "T", "the guardian to be stopped")
    if how != "timeout":
        os.kill(pid if how == "end" else driven.started()["wrapper"], signal.SIGTERM)
    ended = driven.end()
    cause = {"signal": "interrupted", "timeout": "timed-out", "end": "exited"}[how]
    assert (ended["cause"], ended["exit_code"]) == (cause, 5)
    driven.ends_with_nothing_left([pid, guardian])


@pytest.mark.parametrize("options", [["-k", "1", "1000"], ["-s", "KILL", "1000"]])
def test_timeout_around_us(driven: Driven, options: list[str]) -> None:
    """timeout(1) kills us, with our group: a second copy can start only when nothing is left."""
    driven.start(*command("ignores", driven.ready), before=("timeout", *options), kill_after=0.3)
    pids = driven.tree()
    driven.process.send_signal(signal.SIGALRM)  # to timeout(1) its time is over
    driven.ends_with_nothing_left(pids)


def test_signal_to_the_whole_group(driven: Driven) -> None:
    """TERM to everything of our group: the guardian is not of it."""
    popen = {"start_new_session": True}
    driven.start(*command("answers", driven.ready, 3), popen=popen)
    pids = driven.tree()
    os.killpg(driven.started()["wrapper"], signal.SIGTERM)
    ended = driven.end()
    assert (ended["cause"], ended["exit_code"]) == ("interrupted", 3)
    driven.ends_with_nothing_left(pids)


def test_guardian_holds_nobody_up(driven: Driven) -> None:
    """Who reads our output sees its end when we are killed, not when the guardian is through."""
    driven.start(*command("ignores", driven.ready), kill_after=15.0)
    pids = driven.tree()
    kill(driven.started()["wrapper"])
    driven.process.communicate(timeout=10)
    assert driven.is_locked()
    driven.ends_with_nothing_left(pids, 40)


UNSHARE = ["unshare", "-pf", "--mount-proc", "--kill-child"]


def can_unshare() -> bool:
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode
    )


@pytest.mark.skipif(not can_unshare(), reason="no pid namespaces here")
def test_as_pid_1_nothing_defunct_is_left(driven: Driven) -> None:
    """In a container orphans become ours: they are collected while the command runs."""
    code = "(true &) ; (true &) ; until ! grep -l '^State:.Z' /proc/[0-9]*/status; do :; done"
    driven.start("sh", "-c", f"sleep 0.1; {code}", before=tuple(UNSHARE), timeout=10.0)
    ended = driven.end()
    assert driven.started()["wrapper"] == 1
    assert (ended["cause"], ended["exit_code"]) == ("exited", 0)


@pytest.mark.skipif(not can_unshare(), reason="no pid namespaces here")
def test_as_pid_1_a_tree_is_ended(driven: Driven) -> None:
    """Zombies that nobody has collected are not taken for survivors."""
    driven.start(
        *command("family", driven.ready), before=tuple(UNSHARE), timeout=2.0, kill_after=0.2
    )
    ended = driven.end()
    assert (ended["cause"], ended["survivors"]) == ("timed-out", [])
