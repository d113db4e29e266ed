"""The proof that the crash loop can fail: it must see what is broken on purpose."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

import pytest

if sys.platform != "linux":
    pytest.skip("subreaper, pidfd and /proc are Linux's", allow_module_level=True)

from tests.crashes import Loops, loops
from tests.trials import Trap

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("flock"), reason="needs flock (util-linux)"),
]

# What is broken (tests/mutants.py), by which series of which kind of call it is seen, and how.
SEEN = [
    ("no_token_check", "catch-up", "sql", "intrude", "ran 2 times, 0 deaths"),
    ("go_before_claim", "first-run", "sql", "die", "attempt 1 ran 2 times"),
    ("nobody_is_looked_for", "catch-up", "wrapper", "intrude", "ran 2 times, 0 deaths"),
    ("each_statement_by_itself", "catch-up", "sql", "die", "on record as processed, and ran again"),
    ("lost_runs_stay", "first-run", "sql", "die", "left running"),
    ("marked_at_the_claim", "catch-up", "sql", "die", "its command never came to its end"),
]


@pytest.fixture(scope="module")
def loop() -> Iterator[Loops]:
    """A loop by the name of its kind."""
    with loops() as made:
        yield made


@pytest.mark.parametrize(("mutant", "kind", "role", "what", "how"), SEEN)
def test_what_is_broken_is_seen(
    loop: Loops, mutant: str, kind: str, role: str, what: str, how: str
) -> None:
    """The loop says what does not hold, at the latest at the end of a series."""
    deaths = int(what == "die")
    series = loop(kind).series(Trap(role, what=what), deaths, mutant)
    assert any(how in line for wrong in series for line in wrong)
