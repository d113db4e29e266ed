"""A network that is cut for real: a machine in a network namespace of its own, whose packets are
dropped both ways without a word."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.conftest import is_alive, until
from tests.scenes import Held

pytest.importorskip("psycopg", reason=servers.INSTALL)

from tests.machines import HOURLY, NOW, SHORT, Machine, runs

HERE, THERE = "10.213.77.1", "10.213.77.2"


class Namespace:
    """A network of one machine, beside ours: packets to and from it go over one cable."""

    def __init__(self) -> None:
        self.name = f"jobrun{os.getpid()}"
        self._cable = f"jr{os.getpid()}"

    def make(self) -> None:
        for line in (
            f"ip netns add {self.name}",
            f"ip link add {self._cable} type veth peer name eth0 netns {self.name}",
            f"ip addr add {HERE}/30 dev {self._cable}",
            f"ip link set {self._cable} up",
            f"ip -n {self.name} addr add {THERE}/30 dev eth0",
            f"ip -n {self.name} link set eth0 up",
        ):
            done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"{line}: {done.stderr.strip()}")

    def remove(self) -> None:
        for line in (f"ip link del {self._cable}", f"ip netns del {self.name}"):
            subprocess.run(line.split(), capture_output=True, check=False)

    def cut(self) -> None:
        for chain in ("INPUT", "OUTPUT"):
            line = f"ip netns exec {self.name} iptables -A {chain} -j DROP"
            subprocess.run(line.split(), capture_output=True, check=True)

    def mend(self) -> None:
        line = f"ip netns exec {self.name} iptables -F"
        subprocess.run(line.split(), capture_output=True, check=True)


class Far(Machine):
    """A machine in a namespace."""

    def __init__(self, folder: Path, host: str, address: str, namespace: Namespace) -> None:
        super().__init__(folder, host, address)
        self._namespace = namespace

    def argv(self, *argv: str, now: str | None = None) -> list[str]:
        return ["ip", "netns", "exec", self._namespace.name, *super().argv(*argv, now=now)]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux makes a network namespace")
    for tool in ("ip", "iptables"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} cuts the network: apt install iproute2 iptables")
    namespace = Namespace()
    try:
        namespace.make()
        yield namespace
    finally:
        namespace.remove()


@pytest.fixture
def server() -> Iterator[servers.Postgres]:
    everybody = "host all all 0.0.0.0/0 trust"
    with servers.own_postgres(everybody, listen_addresses="*") as server:
        yield server


@pytest.fixture
def near(tmp_path: Path, server: servers.Postgres) -> Iterator[Machine]:
    near = Machine(tmp_path / "near", "near", server.address)
    yield near
    near.end()


@pytest.fixture
def far(tmp_path: Path, server: servers.Postgres, namespace: Namespace) -> Iterator[Far]:
    address = server.address.replace("127.0.0.1", HERE)
    far = Far(tmp_path / "far", "far", address, namespace)
    yield far
    far.end()


def test_a_machine_that_is_cut_off(near: Machine, far: Far, namespace: Namespace) -> None:
    """Its command is dead before another machine begins."""
    assert near("run", "other", "--", "true").status == 0
    held = Held(far, "sales", *HOURLY, *SHORT, now=NOW)
    second = near.start("run", "sales", *HOURLY, "--wait", "60s", "--", "true", now=NOW)
    waits = "SELECT count(*) > 1 FROM pg_stat_activity WHERE application_name LIKE 'jobrun%'"
    until(lambda: near.rows(waits) == [(True,)], "the other machine")
    namespace.cut()
    assert second.wait(90) == 0
    assert not is_alive(held.pid)
    namespace.mend()
    assert held.wrapper.wait(20) == 76
    assert runs(near)[1:] == [("far", 1, "fenced"), ("near", 2, "succeeded")]
