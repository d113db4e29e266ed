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


def test_a_lock_is_put_into_what_is_kept_and_nothing_else_is_touched() -> None:
    """Of a call that is not kept itself; where it is the same there is nothing to write."""
    kept = '{"options": {"--every": "1h"}, "newer": [1, null]}'
    locked = lastcall.with_lock(kept, "redis://h")
    assert locked == '{"options": {"--every": "1h", "--lock": "redis://h"}, "newer": [1, null]}'
    assert lastcall.with_lock(locked, "redis://h") is None
    assert lastcall.with_lock(locked, None) == kept
    assert lastcall.with_lock(None, None) is None


def test_the_lock_of_the_environment_is_for_a_job_of_which_no_call_is_kept() -> None:
    """Of any other it is known, also where it is the default."""
    environ = {"JOBRUN_LOCK": "redis://h", "HOME": "/root"}
    assert lastcall.read(None).around(environ) == environ
    assert lastcall.read('{"at": 1}').around(environ) == {**environ, "JOBRUN_LOCK": ""}
