"""`--if EXPR`: what it means, and that nothing but a condition is let in."""

from __future__ import annotations

import pytest

from jobrun import condition
from jobrun.condition import CantTell
from jobrun.errors import UsageError

TRUE = {"R": "12", "P": "/x/y", "F": "1.5", "OK": "true", "E": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int(R) > 0", True),
        ("int(R) >= 13", False),
        ("0 < int(R) < 13", True),
        ("not int(R) == 12", False),
        ("float(F) * 2 == 3", True),
        ("int(R) // 5 + int(R) % 5 - 1 == 3", True),
        ("int(R) / 24 == 0.5", True),
        ("-int(R) < +1", True),
        ("P == '/x/y' and OK == 'true'", True),
        ("P != '/x/y' or E == ''", True),
        ("'x' in P and 'z' not in P", True),
        ("R in ('11', '12')", True),
        ("int(R) in [11, 13]", False),
        ("OK not in {'false', ''}", True),
        ("len(E) == 0 and len(P) > 3", True),
        ("P + '!' == '/x/y!'", True),
        ("True", True),
        ("  (int(R)\n > 3)", True),
        ("(int(R) > 3) == True", True),
        ("not (E == '') or False", False),
        ("not " * 240 + "True", True),
    ],
)
def test_a_condition_is_true_or_not(text: str, expected: bool) -> None:
    """Python's spelling and meaning, on texts."""
    condition.check(text, TRUE)
    assert condition.holds(text, TRUE) is expected


REFUSED = [
    "R", "int(R)", "R and P", "not R", "'x'", "1", "None", "b'x' == R", "1j == 2", "... == R",
    "__import__('os').system('x') == 0", "open('/etc/passwd') == R", "eval('1') == 1",
    "R.upper() == 'X'", "R[0] == '1'", "R[0:1] == '1'", "(lambda: 1)() == 1", "f'{R}' == 'x'",
    "[x for x in R] == R", "{x for x in R} == R", "{x: 1 for x in R} == R", "any(x for x in R)",
    "R if R == '1' else P", "(x := 1) == 1", "int(*R) == 1", "int(R, base=16) == 1",
    "int(R, 16) == 18", "int() == 1", "max(R, P) == R", "R ** 2 == 4", "2 ** 999999999 > 1",
    "1 << 99999 > 1", "1 | 2 == 3", "~1 == 2", "R @ P == 1", "R is P", "R is not None",
    "X == '1'", "__builtins__ == 1", "R == {'a': 1}", "R == ('a', 'b')", "('a',) + ('b',) == R",
    "await R == 1", "(yield) == 1", "R == `id`", "R ==", "R == '1'; P", "import os", "R = '1'", "",
    "R == '1' if", "(" * 300 + "R" + ")" * 300 + " == 1",
    "R == '" + "x" * 1000 + "'", "R == '\0'", "int is 1", "len == 3",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_condition_is_refused(text: str) -> None:
    """A usage error, before anything is touched; nothing of it is ever run."""
    with pytest.raises(UsageError, match="--if"):
        condition.check(text, TRUE)


@pytest.mark.parametrize(
    "text",
    [
        "R > 3",
        "R == 12",
        "R in (11, 12)",
        "int(P) > 0",
        "float(P) > 0",
        "int(R) / 0 == 1",
        "R * 1000000000 == 'x'",
        "'%999999999d' % int(R) == 'x'",
        "R - P == 1",
        "R + 1 == 13",
        "len(1) == 1",
        "OK == True",
        "float('nan') == 1",
        "float('1e999') > 1",
        "1e308 * 1e308 * int(P) > 1",
        "3 in R",
        "R == 9" + "9" * 900,
    ],
)
def test_a_condition_without_an_answer_says_so(text: str) -> None:
    """Text beside a number is always an error, never quietly false; no text fills the memory."""
    condition.check(text, TRUE)
    with pytest.raises(CantTell):
        condition.holds(text, TRUE)


@pytest.mark.parametrize("text", ["float(LONG) > 0", "int(LONG) > 0", " + ".join(["LONG"] * 40)])
def test_a_long_value_is_neither_told_nor_put_together_without_end(text: str) -> None:
    """What a job has left may be 64 KiB and a secret: an error of it is a line."""
    text = text if ">" in text else f"{text} == ''"
    condition.check(text, ["LONG"])
    with pytest.raises(CantTell) as told:
        condition.holds(text, {"LONG": "x" * 60_000})
    assert len(str(told.value)) < 600


def test_no_warning_of_python_reaches_the_user() -> None:
    """A backslash that is none: warnings are errors in these tests."""
    condition.check(r"R == '\d'", TRUE)
