"""The servers that the tests bring with them: that they are there, alone, and gone afterwards."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests import servers
from tests.conftest import PYTHON, ROOT, until


def answers(address: str) -> bool:
    """Whether somebody listens there."""
    place = urlsplit(address)
    try:
        socket.create_connection((place.hostname or "", place.port or 0)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_postgresql_server_of_a_version_that_we_promise(postgres: str) -> None:
    """As any user, root too, it is there, and the user of its tests may do everything."""
    psycopg = pytest.importorskip("psycopg", reason=servers.INSTALL)
    with closing(psycopg.connect(postgres)) as connection:
        ((version, all_of_it),) = connection.execute(
            "SELECT current_setting('server_version_num')::int, rolsuper"
            "  FROM pg_roles WHERE rolname = current_user"
        ).fetchall()
    assert version >= 180000
    assert all_of_it is True


@pytest.mark.parametrize("server", [servers.postgres, servers.valkey])
def test_a_server_is_gone_after_its_tests(server: object) -> None:
    """With its folder; and it does not keep anybody waiting."""
    begun = time.monotonic()
    with server() as address:  # type: ignore[operator]
        assert answers(address)
        took = time.monotonic() - begun
    assert not answers(address)
    assert took < 10  # under a second on a machine that has nothing else to do


HOLD = """
from tests import servers
with servers.postgres() as address:
    print(address, flush=True)
    input()
"""


@pytest.mark.usefixtures("postgres")
def test_a_server_does_not_outlive_a_test_run_that_is_killed() -> None:
    """Nothing of ours goes on running."""
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)  # the server's user has to find its own folder in it
    holder = subprocess.Popen(
        [PYTHON, "-c", HOLD],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": folder},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    address = holder.stdout.readline().strip()
    assert answers(address)
    holder.kill()
    holder.communicate()
    until(lambda: not answers(address), f"the end of {address}")
    shutil.rmtree(folder, ignore_errors=True)
