"""What is kept of a call is JSON, although the module of that name is not loaded for it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from jobrun import lastcall

TEXTS = st.text(st.characters(codec=None, exclude_categories=()))
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(),
    lambda values: st.lists(values) | st.dictionaries(TEXTS, values),
)


@given(VALUES)
def test_it_is_what_json_would_write(value: object) -> None:
    """Also for half of a surrogate pair, which is how bytes that are no text come in."""
    assert json.dumps(value) == lastcall.encoded(value)


def test_a_command_is_a_list() -> None:
    """Tuples are lists, as for json."""
    assert lastcall.encoded({"command": ("echo", "a b")}) == '{"command": ["echo", "a b"]}'
