"""examples/fencing: a table of the user's own refuses whoever has been replaced meanwhile."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import servers
from tests.conftest import PYTHON, ROOT, Jobrun, clean_environment, until
from tests.ledger_calls import schema_of

if sys.platform == "win32":
    pytest.skip("FIFOs, SIGSTOP", allow_module_level=True)

FENCING = ROOT / "examples" / "fencing"
KEY = "report:2026-09-03T00:00:00+00:00"


class Reports:
    """The command as a run of the window with this token starts it."""

    def __init__(self, folder: Path, command: tuple[str, ...], **environment: str) -> None:
        self.folder = folder
        self.command = command
        self.environment = clean_environment(JOBRUN_KEY=KEY, **environment)

    def start(self, token: int, orders: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, orders], env={**self.environment, "JOBRUN_TOKEN": str(token)},
            cwd=self.folder, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def write(self, token: int, cents: int) -> tuple[int, str]:
        """Its exit code, and what it says."""
        orders = self.folder / f"{token}.txt"
        orders.write_text(f"{cents}\n")
        return ended(self.start(token, orders))

    def rows(self) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.folder / "reports.db")) as connection:
            return connection.execute("SELECT key, cents, fence FROM report").fetchall()


class ReportsOnServer(Reports):
    def rows(self) -> list[tuple[object, ...]]:
        import psycopg

        with closing(psycopg.connect(self.environment["ADDRESS"])) as connection:
            return connection.execute("SELECT key, cents, fence FROM report").fetchall()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=20)
    return process.returncode, said


@pytest.fixture(params=["report.py", "report.sh"])
def reports(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reports]:
    """Both, each with the table that it wants; neither lies in the ledger's database."""
    if request.param == "report.py":
        yield Reports(tmp_path, (PYTHON, str(FENCING / "report.py"), "reports.db"))
        return
    pytest.importorskip("psycopg", reason=servers.INSTALL)
    if not shutil.which("psql"):
        pytest.skip("no psql here: apt install postgresql-client")
    from psycopg.conninfo import conninfo_to_dict

    with schema_of(request.getfixturevalue("postgres")) as address:
        found = conninfo_to_dict(address)
        service = tmp_path / "services.conf"
        service.write_text("\n".join(["[reports]", *(f"{name}={found[name]}" for name in found)]))
        more = {"PGSERVICEFILE": str(service), "ADDRESS": address}
        made = ReportsOnServer(tmp_path, ("sh", str(FENCING / "report.sh")), **more)
        table = ["psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(FENCING / "table.sql")]
        subprocess.run([*table, "service=reports"], env=made.environment, check=True)
        yield made


def test_a_holder_that_was_stopped_writes_nothing_over_the_next_ones(reports: Reports) -> None:
    """STOP, another run of the window with a larger token, CONT: the table refuses its write."""
    slow = reports.folder / "slow.txt"
    os.mkfifo(slow)
    old = reports.start(7, slow)
    orders: list[int] = []

    def reads() -> bool:
        try:
            orders.append(os.open(slow, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    until(reads, "the old holder to read its orders")
    os.kill(old.pid, signal.SIGSTOP)
    assert reports.write(8, 500) == (0, "")
    os.kill(old.pid, signal.SIGCONT)
    os.write(orders[0], b"100\n")
    os.close(orders[0])
    status, said = ended(old)
    assert status != 0
    assert f"{KEY}: a newer run has written it, this one (token 7) has no say" in said
    assert reports.rows() == [(KEY, 500, 8)]


def test_who_is_not_replaced_writes(reports: Reports) -> None:
    """Once more with the same token, and with a larger one."""
    assert [reports.write(token, token * 100)[0] for token in (7, 7, 9, 8)][:3] == [0, 0, 0]
    assert reports.rows() == [(KEY, 900, 9)]


def test_after_a_restore_the_tokens_are_raised(jobrun: Jobrun) -> None:
    """Those of the backup are refused; the statements of the example make them count again."""
    (jobrun.folder / "orders.txt").write_text("500\n")
    command = (PYTHON, str(FENCING / "report.py"), "reports.db", "orders.txt")
    call = ("run", "report", "--every", "1day", "--", *command)
    again = ("rerun", "report", "2026-09-03")
    assert jobrun(*call, now="2026-09-04T00:05Z").status == 0
    backup = jobrun.ledger.read_bytes()
    for _ in range(2):
        assert jobrun(*again, now="2026-09-04T01:05Z").status == 0
    assert not list(jobrun.folder.glob("jobrun.db-wal"))
    jobrun.ledger.write_bytes(backup)
    refused = jobrun(*again, now="2026-09-04T02:05Z")
    assert refused.status == 1
    assert "this one (token 2) has no say" in refused.stderr
    text = (FENCING / "report.py").read_text(encoding="utf-8")
    for statement in re.findall(r"^    (UPDATE .*;)$", text, re.MULTILINE):
        jobrun.change(statement)
    assert jobrun(*again, now="2026-09-04T02:06Z").status == 0
    assert jobrun("doctor", now="2026-09-04T02:06Z").status == 0
    assert jobrun.query("select max(token) from jobrun_run") == [(1_000_003,)]
