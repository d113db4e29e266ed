"""Death at every step of every kind of call: what is on record afterwards is what must be."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

import pytest

if sys.platform != "linux":
    pytest.skip("subreaper, pidfd and /proc are Linux's", allow_module_level=True)

from tests.crash_kinds import BY_NAME
from tests.crashes import Loops, loops
from tests.trials import Trap

pytestmark = pytest.mark.skipif(not shutil.which("flock"), reason="needs flock (util-linux)")

# The guardian's and the blocked command's steps are the same whatever window they are for.
ROLES = [(kind, role) for kind in BY_NAME for role in ("sql", "wrapper")]
ROLES += [
    (kind, "guardian") for kind in ("first-run", "catch-up", "beside", "marks", "floods", "plain")
]
ROLES += [("first-run", "command"), ("continues", "command")]
INTRUDED = (
    "first-run",
    "catch-up",
    "merge",
    "latest",
    "beside",
    "window",
    "key",
    "migration",
    "lost",
)
# The short series.
FEW = (
    "no-ledger", "catch-up", "stops", "locked", "merge", "beside", "key", "skip", "marks", "lost",
    "dies", "tries-again", "holds",
)  # fmt: skip
STRIDE = 37


@pytest.fixture(scope="module")
def loop() -> Iterator[Loops]:
    """A loop by the name of its kind."""
    with loops() as made:
        yield made


@pytest.fixture
def loop_of(loop: Loops) -> Loops:
    """The same, where what the kind needs is there."""

    def found(kind: str) -> object:
        if kind == "marks" and not shutil.which("sqlite3"):
            pytest.skip("needs the sqlite3 shell")
        return loop(kind)

    return found  # type: ignore[return-value]


@pytest.mark.parametrize("kind", FEW)
def test_death_now_and_then(loop_of: Loops, kind: str) -> None:
    """The long series below, thinned."""
    for role in ("sql", "wrapper", "guardian"):
        series = loop_of(kind).series(Trap(role), deaths=1, stride=STRIDE)
        assert [line for wrong in series for line in wrong] == []


@pytest.mark.long
@pytest.mark.parametrize(("kind", "role"), ROLES)
def test_death_at_every_step(loop_of: Loops, kind: str, role: str) -> None:
    """Killed at its first step, its second, and so on until it survives."""
    found = loop_of(kind).series(Trap(role), deaths=1)
    print(len(found), "steps")
    assert [line for wrong in found for line in wrong] == []
    assert found


@pytest.mark.long
@pytest.mark.parametrize("kind", INTRUDED)
def test_another_call_at_every_step(loop_of: Loops, kind: str) -> None:
    """The lock file is deleted and a whole call made in between: all the same once, and no more."""
    found: list[list[str]] = []
    for role in ("sql", "wrapper"):
        found += loop_of(kind).series(Trap(role, what="intrude"), deaths=0)
    print(len(found), "steps")
    assert [line for wrong in found for line in wrong] == []
