"""Whatever a command prints: it is passed on byte for byte, kept within bounds, and read back."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if sys.platform == "win32":
    pytest.skip("calls are forks of the test", allow_module_level=True)

from jobrun.kept import HEAD
from tests.fuzzed import LONG, QUICK, Place

COPY = 'cat "$OUT"; cat "$ERR" >&2'
BOUND = 2 * HEAD  # of what is kept: a head and a tail
MARK = 200  # bytes that may say what was left out
# Short ones of any bytes; what a terminal obeys; more than is kept.
BYTES = st.one_of(
    st.binary(max_size=300),
    st.lists(
        st.sampled_from([b"\x1b[2J", b"\x9b", b"\r", b"\0", b"\xff", b"\xc3", b"\n", b"a" * 90]),
        max_size=20,
    ).map(b"".join),
    st.builds(
        lambda seed, size: (seed * (size // len(seed) + 1))[:size],
        st.binary(min_size=1, max_size=50),
        st.sampled_from([4096, 65_536, 65_537, BOUND - 1, BOUND, BOUND + 1, BOUND + 70_000]),
    ),
)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.remove()


def ours(err: bytes) -> bytes:
    """Without the word on where the ledger of the tests lies."""
    return err.partition(b"\n")[2] if b" what=ephemeral-ledger " in err[:200] else err


def check_output(place: Place, out: bytes, err: bytes) -> None:
    for name, data in (("OUT", out), ("ERR", err)):
        path = place.folder / name
        path.write_bytes(data)
        place.environ[name] = str(path)
    answer = place("run", "plain", "-q", "--", "sh", "-c", COPY)
    assert out == answer.out
    assert err == ours(answer.err)
    for stream, data in (("--stdout", out), ("--stderr", err)):
        kept = place("logs", "plain", "--raw", stream).out
        if len(data) <= BOUND:
            assert data == kept
        else:
            assert len(kept) <= BOUND + MARK
            assert data[: HEAD // 2] == kept[: HEAD // 2]
            assert data[-HEAD // 2 :] == kept[-HEAD // 2 :]
    shown = place("logs", "plain").out.decode()
    assert not [c for c in shown if not c.isprintable() and c not in "\n\t"]


@settings(QUICK, max_examples=15)
@given(out=BYTES, err=BYTES)
def test_output(place: Place, out: bytes, err: bytes) -> None:
    """Both streams, apart; a terminal gets nothing that it would obey."""
    check_output(place, out, err)


@pytest.mark.long
@settings(LONG, max_examples=80)
@given(out=BYTES, err=BYTES)
def test_much_output(place: Place, out: bytes, err: bytes) -> None:
    """More of it."""
    check_output(place, out, err)
