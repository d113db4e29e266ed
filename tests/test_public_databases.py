"""The ledger as a database: what people reported of other tools, each as a test (family D)."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from jobrun import places
from tests.conftest import Jobrun, is_alive, open_files, until
from tests.scenes import (
    HOURLY,
    Held,
    altered,
    as_user,
    at,
    begin,
    error_of,
    fill,
    hint_of,
    linux,
    posix,
    public,
    root,
    small_disk,
    states,
    watermark,
)

pytestmark = posix

NOW, LATER = "2026-09-04T12:05:00Z", "2026-09-04T12:07:00Z"
ALICE, BOB = 1001, 1002
LOOKING = [["status"], *([verb, "a"] for verb in ("history", "windows", "show", "logs", "plan"))]
VERBS = [["run", "a", "--", "touch", "ran"], ["run", "a", *HOURLY, "--", "touch", "ran"], *LOOKING]
verbs = pytest.mark.parametrize("argv", VERBS, ids=lambda argv: "-".join(argv[:3]))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@linux
@pytest.mark.parametrize("kind", ["deferred", "immediate", "exclusive"])
@pytest.mark.parametrize("options", [(), HOURLY, ("--key", "k")], ids=["plain", "windows", "key"])
def test_D01_a_write_of_another_is_waited_for_at_the_start(
    jobrun: Jobrun, options: tuple[str, ...], kind: str
) -> None:
    """my8100/scrapydweb#42, mayswind/ezbookkeeping#662: two jobs at midnight; one got "database is
    locked" at once, and its work was not done."""
    jobrun("run", "b", "--", "true")
    with closing(sqlite3.connect(jobrun.ledger, isolation_level=None)) as other:
        other.execute(f"begin {kind}")
        other.execute("update jobrun_meta set version = version")
        process = jobrun.start("run", "a", *options, "--", "echo", "ran", now=NOW)
        until(lambda: str(jobrun.ledger) in open_files(process.pid), "it to open the ledger")
        assert process.poll() is None
        other.execute("commit")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"ran\n")
    assert b"locked" not in err
    assert jobrun.query("select outcome from jobrun_run where job = 'a'") == [("succeeded",)]


@linux
def test_D01_a_write_of_another_is_waited_for_at_the_end(jobrun: Jobrun) -> None:
    """mayswind/ezbookkeeping#662: the work was done, and its record failed on a locked database."""
    begin(jobrun, "a", "2026-09-04T11Z", *HOURLY)
    held = Held(jobrun, "a", *HOURLY, now=NOW)
    with closing(sqlite3.connect(jobrun.ledger, isolation_level=None)) as other:
        other.execute("begin immediate")
        os.kill(held.pid, signal.SIGCONT)
        assert held.wrapper.stdin is not None
        held.wrapper.stdin.close()
        held.wrapper.stdin = None
        until(lambda: not is_alive(held.pid), "the command to end")
        assert held.wrapper.poll() is None
        other.execute("commit")
    ended = held.release()
    assert (ended.status, "locked" in ended.stderr) == (0, False)
    assert watermark(jobrun) == at("2026-09-04T12Z")


@linux
@pytest.mark.parametrize("options", [(), HOURLY], ids=["plain", "windows"])
def test_D03_a_full_disk_before_the_run(
    jobrun: Jobrun, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """quartz-scheduler/quartz#956: the disk under the database filled, triggers stopped, and did
    not go on when there was room again."""
    with small_disk(tmp_path / "disk", "320k") as disk:
        where = ("--ledger", str(disk / "jobrun.db"))
        assert jobrun("run", "a", *options, *where, "--", "true", now=NOW).status == 0
        make_room = fill(disk)
        for _ in range(2):
            full = jobrun(
                "run", "a", *options, *where, "--", "touch", "ran", now="2026-09-04T14:05:00Z"
            )
            assert full.status == 74
            assert ": no room left to write (" in error_of(full)
            assert not (jobrun.folder / "ran").exists()
        make_room()
        after = jobrun(
            "run", "a", *options, *where, "--", "echo", "ran", now="2026-09-04T14:06:00Z"
        )
        assert (after.status, after.stdout) == (0, "ran\n" * (2 if options else 1))


@linux
def test_D03_a_new_ledger_on_a_full_disk(jobrun: Jobrun, tmp_path: Path) -> None:
    """quartz-scheduler/quartz#956: nothing half made is left that a later call would trip over."""
    with small_disk(tmp_path / "disk", "256k") as disk:
        where = ("--ledger", str(disk / "jobrun.db"))
        make_room = fill(disk)
        full = jobrun("run", "a", *where, "--", "touch", "ran")
        assert full.status == 74
        assert not (jobrun.folder / "ran").exists()
        assert [path.name for path in disk.iterdir()] == ["filler"]
        make_room()
        assert jobrun("run", "a", *where, "--", "echo", "ran").stdout == "ran\n"


@linux
def test_D03_a_disk_that_fills_while_the_command_runs(jobrun: Jobrun, tmp_path: Path) -> None:
    """quartz-scheduler/quartz#956: what was done is recorded once there is room, by the same call,
    which says what it waits for."""
    with small_disk(tmp_path / "disk", "512k") as disk:
        jobrun.ledger = disk / "jobrun.db"
        where = ("--ledger", str(jobrun.ledger))
        begin(jobrun, "a", "2026-09-04T11Z", *HOURLY, *where)
        with (jobrun.folder / "err").open("wb") as err:
            process = jobrun.start(
                "run", "a", *HOURLY, *where, "--stdin", "inherit", "--",
                "sh", "-c", "echo ready; read line", now=NOW, stdin=subprocess.PIPE, stderr=err,
            )  # fmt: skip
            assert process.stdout is not None
            process.stdout.readline()
            make_room = fill(disk)
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            said = jobrun.folder / "err"
            until(lambda: "what=not-recorded-yet" in said.read_text(), "the warning", 40)
            assert process.poll() is None
            make_room()
            process.communicate(timeout=60)
        assert process.returncode == 0
        assert said.read_text().count("what=not-recorded-yet") == 1
        assert watermark(jobrun) == at("2026-09-04T12Z")


@root
@pytest.mark.parametrize("argv", VERBS[1:], ids=lambda argv: argv[0])
def test_D05_who_only_looks_leaves_nothing_that_locks_the_owner_out(
    jobrun: Jobrun, reachable: Path, argv: list[str]
) -> None:
    """phpLiteAdmin/pla#33, stalwartlabs/stalwart#660, svandragt/lamb#831: another user only read,
    left -wal and -shm of his own, and the owner could no longer write."""
    folder = public(reachable)
    folder.chmod(0o777)
    ledger = folder / "s.db"
    where = ("--ledger", str(ledger))
    owners = as_user(jobrun, ALICE, "run", "a", *where, "--", "true")
    assert owners.status == 0, owners.stderr
    ledger.chmod(0o644)
    before = digest(ledger)
    found = as_user(jobrun, BOB, argv[0], *argv[1:2], *where, *argv[2:])
    assert (found.status, found.stdout) == (74, "")
    said = f"ledger {ledger}: not readable and writable from here, it is "
    assert error_of(found).startswith(said)
    assert digest(ledger) == before
    assert {path.stat().st_uid for path in folder.rglob("*")} == {ALICE}
    again = as_user(jobrun, ALICE, "run", "a", *where, "--", "echo", "ran")
    assert (again.status, again.stdout) == (0, "ran\n"), again.stderr


CONTENTS = [
    b"x" * 200, b"x", b"x" * 5000, b"\n", b"{}" * 300, b"SQLite format 3\0" + b"\xff" * 4096,
]  # fmt: skip


@verbs
@pytest.mark.parametrize("content", CONTENTS, ids=lambda c: f"{c[:3]!r}x{len(c)}")
def test_D07_a_file_that_is_no_database_is_left_alone(
    jobrun: Jobrun, content: bytes, argv: list[str]
) -> None:
    """piskvorky/sqlitedict#149, home-assistant/core#43723: malformed after a power loss, and then
    overwritten, or a traceback."""
    jobrun.ledger.write_bytes(content)
    found = jobrun(*argv)
    assert (found.status, found.stdout) == (74, "")
    assert str(jobrun.ledger) in error_of(found)
    hint = hint_of(found)
    assert f"mv {jobrun.ledger} " in hint or "mv it aside" in hint
    assert "watermark" in hint
    assert jobrun.ledger.read_bytes() == content
    assert not (jobrun.folder / "ran").exists()
    assert [path.name for path in jobrun.folder.iterdir()] == ["jobrun.db"]


NETWORK = """
from jobrun import places
places.filesystem = lambda path: {!r}
"""


@pytest.mark.parametrize("options", [(), HOURLY], ids=["plain", "windows"])
@pytest.mark.parametrize("kind", places.NETWORK)
def test_D09_a_network_filesystem_is_never_silent(
    jobrun: Jobrun, kind: str, options: tuple[str, ...]
) -> None:
    """superseriousbusiness/gotosocial#3360, SMI/dicompixelanon#17: write-ahead logging on NFS and
    SMB gave I/O errors, and later damage; a ledger that was moved there is brought back from it."""
    if kind == places.NETWORK[0]:
        jobrun("run", "b", "--", "true")
        assert jobrun.query("pragma journal_mode") == [("wal",)]
    call = ("run", "a", *options, "-q", "--", "echo", "ran")
    found = altered(jobrun, NETWORK.format(kind), *call, now=NOW)
    assert (found.status, found.stdout) == (0, "ran\n")
    (warning,) = (line for line in found.lines if " WARNING " in line)
    assert f" what=network-filesystem filesystem={kind} " in warning
    assert jobrun.query("pragma journal_mode") == [("delete",)]


@pytest.mark.parametrize("options", [(), HOURLY], ids=["plain", "windows"])
@pytest.mark.parametrize("kind", ["nfs4", "cifs"])
def test_D10_a_ledger_that_another_host_uses_over_the_network_is_refused(
    jobrun: Jobrun, kind: str, options: tuple[str, ...]
) -> None:
    """grantjenks/python-diskcache#218, anomalyco/opencode#14970: several hosts shared one SQLite
    file over NFS, and destroyed it."""
    begin(jobrun, "a", "2026-09-04T11Z", *HOURLY)
    name = "a" if options else "b"
    if not options:
        jobrun("run", "b", "--", "true", now="2026-09-04T11:01:00Z")
    jobrun.change(
        "insert into jobrun_run (job, attempt, token, host, pid, user, terminal, started)"
        " values (?, 1, 1, 'db-of-yours', 1, 'x', 0, '2026-09-04T11:00:00+00:00')",
        name,
    )
    dump = "select * from jobrun_run"
    before = jobrun.query(dump), states(jobrun)
    call = ("run", name, *options, "--", "touch", "ran")
    found = altered(jobrun, NETWORK.format(kind), *call, now=NOW)
    assert found.status == 74
    assert "is on a network filesystem, and run " in error_of(found)
    assert " of host db-of-yours has not ended" in error_of(found)
    assert (jobrun.query(dump), states(jobrun)) == before
    assert not (jobrun.folder / "ran").exists()


@linux
@pytest.mark.parametrize(
    "column", ["host = 'old-name'", "birth = 'boot-of-then/pid:[1] 3 4'"], ids=["name", "boot"]
)
def test_D10_a_host_that_was_renamed_or_started_again_is_no_other(
    jobrun: Jobrun, column: str
) -> None:
    """Its run is lost, for `status`, `stop` and the next call: nobody else could have it."""
    jobrun("run", "a", "--", "true", now=NOW)
    jobrun.change(
        f"update jobrun_run set {column}, ended = null, outcome = null, took = null,"
        " exit_code = null, output_bytes = null"
    )
    nfs = NETWORK.format("nfs4")
    assert "lost" in altered(jobrun, nfs, "status", "a", now=NOW).stdout
    assert "what=not-running" in altered(jobrun, nfs, "stop", "a", now=NOW).stderr
    found = altered(jobrun, nfs, "run", "a", "--", "echo", "ran", now=NOW)
    assert (found.status, found.stdout, "LOST job=a" in found.stderr) == (0, "ran\n", True)


REMOVED = {
    "removed": "rm -f jobrun.db jobrun.db-wal jobrun.db-shm",
    "moved": "mv jobrun.db elsewhere.db",
    "replaced": "cp jobrun.db new.db; mv new.db jobrun.db",
    "emptied": "rm -f jobrun.db*; : >jobrun.db",
}


@pytest.mark.parametrize("how", REMOVED)
@pytest.mark.parametrize("options", [HOURLY, ("--key", "k"), ()], ids=["windows", "key", "plain"])
def test_D11_a_ledger_that_is_gone_at_the_end_is_not_success(
    jobrun: Jobrun, options: tuple[str, ...], how: str
) -> None:
    """WiseLibs/better-sqlite3#1237: the database was deleted while the program ran; it went on
    inserting into nothing, without an error."""
    call = ("run", "a", *options, "--", "sh", "-c", f"{REMOVED[how]} 2>/dev/null; true")
    found = jobrun(*call, now=NOW)
    assert found.status == 76
    key = {HOURLY: f"a:{at('2026-09-04T11Z')}", ("--key", "k"): "a:k", (): "run 1 of a"}[options]
    (error,) = (line for line in found.lines if line.startswith("jobrun: error: "))
    assert f'ran but not recorded (succeeded): "{key}": ' in error
    assert "deleted or replaced" in error


@verbs
def test_D13_a_newer_ledger_is_left_alone(jobrun: Jobrun, argv: list[str]) -> None:
    """andpor/react-native-sqlite-storage#555, quodeq/quodeq#577: an older program opened a newer
    schema, and crashed, or did silent damage."""
    jobrun("run", "a", "--", "true")
    jobrun.change("update jobrun_meta set version = 999")
    with closing(sqlite3.connect(jobrun.ledger)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    before = digest(jobrun.ledger)
    found = jobrun(*argv)
    assert (found.status, found.stdout) == (74, "")
    assert "written by a newer jobrun (999 > " in error_of(found)
    assert "--ledger PATH" in hint_of(found)
    assert digest(jobrun.ledger) == before
    assert not (jobrun.folder / "ran").exists()
