"""An error at every step, as SQLite or the system says it: told in a line, nothing made up."""

from __future__ import annotations

import errno
import resource
import shutil
import sys
from collections.abc import Iterator

import pytest

if sys.platform != "linux":
    pytest.skip("subreaper, pidfd and /proc are Linux's", allow_module_level=True)

from tests.conftest import Jobrun
from tests.crashes import Loops, loops
from tests.trials import Trap

pytestmark = pytest.mark.skipif(not shutil.which("flock"), reason="needs flock (util-linux)")

# What SQLite says, and the kinds of calls in which it says that.
SQL = (
    (Trap("sql", what="busy"), "no-ledger catch-up idle locked rerun migration"),
    (Trap("sql", what="full"), "no-ledger catch-up latest skip"),
    (Trap("sql", what="ioerr"), "no-ledger catch-up stops idle locked key plain lost migration"),
    (Trap("sql", what="full", lasting=True), "catch-up idle key"),
    (Trap("sql", what="ioerr", lasting=True), "catch-up plain lost"),
    # It was committed, and that could not be told.
    (Trap("sql", what="late", of="COMMIT"), "no-ledger catch-up stops latest key lost migration"),
)
CASES = [(kind, trap) for trap, kinds in SQL for kind in kinds.split()]
SYSTEM = [
    ("first-run", "wrapper", "EMFILE"),
    ("no-ledger", "wrapper", "EMFILE"),
    ("no-ledger", "wrapper", "ENOSPC"),
    ("no-ledger", "wrapper", "EACCES"),
    ("catch-up", "wrapper", "EIO"),
    ("floods", "wrapper", "EIO"),
    ("floods", "wrapper", "ENOSPC"),
    ("skip", "wrapper", "EMFILE"),
    ("catch-up", "guardian", "EMFILE"),
    ("catch-up", "guardian", "EAGAIN"),
]
STRIDE = 47  # of the short series
LOCK = ("EACCES", "ENOLCK", "EOPNOTSUPP", "EIO")


@pytest.fixture(scope="module")
def loop() -> Iterator[Loops]:
    """A loop by the name of its kind."""
    with loops() as made:
        yield made


def name_of(value: object) -> str:
    """Of a parameter."""
    if isinstance(value, Trap):
        return f"{value.what}{' from there on' if value.lasting else ''}"
    return str(value)


@pytest.mark.parametrize(("kind", "trap"), CASES[::3], ids=name_of)
def test_sqlite_says_an_error_now_and_then(loop: Loops, kind: str, trap: Trap) -> None:
    """The long series below, thinned."""
    stride = 1 if trap.of else STRIDE
    assert [line for wrong in loop(kind).series(trap, stride=stride) for line in wrong] == []


@pytest.mark.long
@pytest.mark.parametrize(("kind", "trap"), CASES, ids=name_of)
def test_sqlite_says_an_error(loop: Loops, kind: str, trap: Trap) -> None:
    """At its first statement, its second, and so on: the contract's code, a line, a hint."""
    found = loop(kind).series(trap)
    print(len(found), "steps")
    assert [line for wrong in found for line in wrong] == []


@pytest.mark.long
@pytest.mark.parametrize(("kind", "role", "number"), SYSTEM)
def test_the_system_says_an_error(loop: Loops, kind: str, role: str, number: str) -> None:
    """Opening, making, listing, renaming, removing, forking, locking: each may fail."""
    found = loop(kind).series(Trap(role, what=number))
    print(len(found), "steps")
    assert [line for wrong in found for line in wrong] == []


@pytest.mark.parametrize("number", ["ENOMEM", "EAGAIN"])
@pytest.mark.parametrize("role", ["wrapper", "guardian"])
@pytest.mark.parametrize("place", [1, 2, 3])
def test_no_process_can_be_had(loop: Loops, role: str, number: str, place: int) -> None:
    """For a guardian or a command, the first or a later one: 75, all else on record."""
    found, wrong = loop("catch-up").disturb(Trap(role, place, number, of="os.fork"))
    assert wrong == []
    assert found.status == 75
    assert "no process for the command" in found.err
    assert found.err.count("PROCESSED") == place - 1


@pytest.mark.parametrize("number", LOCK)
def test_the_lock_can_not_be_had(loop: Loops, number: str) -> None:
    """Not permitted and not supported are no skip: a job would be skipped for ever."""
    found, wrong = loop("first-run").disturb(Trap("wrapper", 1, number, of="fcntl.flock"))
    assert wrong == []
    assert found.status == 73
    assert f"({errno.errorcode[getattr(errno, number)]})" in found.err


@pytest.mark.parametrize("number", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("where", ["kept", "1", "2"])
@pytest.mark.parametrize("lasting", [False, True])
def test_output_that_can_not_be_written(
    loop: Loops, where: str, number: str, lasting: bool
) -> None:
    """Keeping it, passing it on and our own lines: the command and its record know nothing."""
    trap = Trap("wrapper", 1, number, of=f"write {where}", lasting=lasting)
    for kind in ("first-run", "floods"):
        found, wrong = loop(kind).disturb(trap)
        assert wrong == []
        assert found.status == 0
        assert found.sprung > 0
        assert ("what=output-lost" in found.err) == (where == "kept")


@pytest.mark.parametrize("limit", [12, 15, 18, 20, 22, 24, 26, 30])
def test_few_files_may_be_open(jobrun: Jobrun, limit: int) -> None:
    """`ulimit -n`: it runs and is on record, or it is told why not, and nothing has run."""
    ran = jobrun.folder / "ran"
    found = jobrun(
        *("run", "a", "--every", "1h", "--", "touch", str(ran)),
        now="2026-09-04T12:05:00Z",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )
    assert "Traceback" not in found.stderr
    assert found.status in (0, 73, 74, 75)
    assert ran.exists() == (found.status == 0)
    assert ("jobrun: hint: " in found.stderr) == (found.status != 0) or ran.exists()
    assert jobrun("run", "a", "--every", "1h", "--", "true", now="2026-09-04T12:06:00Z").status == 0
    assert jobrun.query("select state, attempts from jobrun_window") == [("processed", 1)]
