"""The values of a call are what typing.NamedTuple would make of them."""

from __future__ import annotations

import pickle
import subprocess
import typing
from collections.abc import Callable
from typing import Any

import pytest

from jobrun import value
from tests.conftest import PYTHON, ROOT


class Ours(value.NamedTuple):
    """With a method and a default."""

    name: str
    size: int = 3

    def twice(self) -> int:
        return self.size * 2


class Theirs(typing.NamedTuple):
    name: str
    size: int = 3


UNCHECKED: Any = Ours  # the type checker would refuse what is tried with it


def test_it_is_the_tuple_that_typing_would_make() -> None:
    """Fields, defaults, order, equality, hash, copies and patterns are the same."""
    ours, theirs = Ours("a"), Theirs("a")
    assert tuple(ours) == tuple(theirs) == ("a", 3)
    assert hash(theirs) == hash(ours)
    assert Ours._fields == Theirs._fields == Ours.__match_args__
    assert Theirs._field_defaults == Ours._field_defaults
    assert theirs._asdict() == ours._asdict()
    assert Ours._make(["b", 1]) == ours._replace(name="b", size=1) == Ours(size=1, name="b")
    assert Ours.__doc__ == "With a method and a default."
    assert ours.twice() == 6
    assert repr(ours) == "Ours(name='a', size=3)"
    assert type(ours._replace(size=4)) is Ours
    assert pickle.loads(pickle.dumps(ours)) == ours


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: UNCHECKED(),
        lambda: UNCHECKED("a", 1, 2),
        lambda: UNCHECKED("a", name="b"),
        lambda: UNCHECKED("a", weight=1),
        lambda: UNCHECKED("a")._replace(weight=1),
    ],
)
def test_wrong_fields_are_refused(wrong: Callable[[], object]) -> None:
    """A field that is missing, unknown or given twice is a TypeError, as with a function."""
    with pytest.raises(TypeError):
        wrong()


def test_nothing_can_be_changed() -> None:
    """Neither a field nor anything beside the fields."""
    ours = Ours("a")
    for name in ("name", "weight"):
        with pytest.raises(AttributeError):
            setattr(ours, name, "b")


def test_a_call_defines_its_values_without_typing() -> None:
    """That is what it is for: typing's take longer than the rest of a module."""
    code = "import jobrun.rows, sys; assert 'typing' not in sys.modules"
    subprocess.run([PYTHON, "-c", code], cwd=ROOT, check=True)
