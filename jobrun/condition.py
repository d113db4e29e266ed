"""`--if EXPR`: a condition on the values that other jobs have left, in Python's own spelling.

It is parsed by Python and worked out here, node by node; nothing of it is ever evaluated as code.
What may stand in it is what `_eval` knows: names of --input, texts and numbers, comparisons, `in`,
`and`, `or`, `not`, + - * / // %, int(), float() and len(). All values are texts: int(rows) > 0.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jobrun.errors import UsageError

LONGEST = 1000  # characters
SHOWN = 200  # of what is wrong
LONGEST_TEXT = 1_000_000  # of what + puts together

_COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_SERIES = (ast.Tuple, ast.List, ast.Set)
_TROUBLE = (TypeError, ValueError, ArithmeticError, RecursionError)


def _number(text: Any) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text[:SHOWN]!r} is no number") from None
    if not math.isfinite(value):  # compares as false with everything: a skip that nobody meant
        raise ValueError(f"{text!r} is no number")
    return value


_CALLS: dict[str, Callable[[Any], Any]] = {"int": int, "float": _number, "len": len}


class CantTell(Exception):
    """The condition has no answer for these values; the text says why."""


def check(text: str, names: Collection[str]) -> None:
    """Raises UsageError, with the part that can't stand there, before anything is touched."""
    if len(text) > LONGEST:
        raise UsageError(f"--if: {len(text)} characters, at most {LONGEST}")
    try:
        _check_truth(_parse(text), names)
    except RecursionError:
        raise UsageError("--if: nested too deeply") from None


def holds(text: str, values: Mapping[str, str]) -> bool:
    """Whether it is true of the values. Raises CantTell. `text` has been checked."""
    try:
        return bool(_eval(_parse(text), values))
    except _TROUBLE as error:
        raise CantTell(f'--if "{text}": {_cut(str(error))}') from None


def _cut(text: str) -> str:
    """A value may be long, and is not for everybody's eyes."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _parse(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on a backslash that is none: that is our user's line
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f'--if "{text}": {reason}', "--if 'int(ROWS) > 0'") from None


# -- what may stand in it --------------------------------------------------------------------------


def _check_truth(node: ast.expr, names: Collection[str]) -> None:
    """What is asked whether it is true must say yes or no: the text "0" would be true."""
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _check_truth(part, names)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check_truth(node.operand, names)
    elif isinstance(node, ast.Compare):
        _check_compare(node, names)
    elif not (isinstance(node, ast.Constant) and isinstance(node.value, bool)):
        _check_value(node, names)
        raise _refused(node, "says neither yes nor no: compare it with something")


def _check_compare(node: ast.Compare, names: Collection[str]) -> None:
    _check_value(node.left, names)
    for operation, right in zip(node.ops, node.comparators, strict=True):
        if type(operation) not in _COMPARES:
            raise _refused(node, "== and != compare, is does not")
        if isinstance(operation, (ast.In, ast.NotIn)) and isinstance(right, _SERIES):
            for each in right.elts:
                _check_value(each, names)
        else:
            _check_value(right, names)


def _check_value(node: ast.expr, names: Collection[str]) -> None:
    if isinstance(node, ast.Constant) and type(node.value) in (str, int, float, bool):
        return
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise _refused(node, "is no name of an --input")
    elif isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
        _check_value(node.operand, names)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        _check_value(node.left, names)
        _check_value(node.right, names)
    elif _is_call(node):
        _check_value(node.args[0], names)  # type: ignore[attr-defined]
    elif isinstance(node, (ast.BoolOp, ast.Compare)):
        _check_truth(node, names)
    else:
        raise _refused(node, "can't stand there: names of --input, texts, numbers, comparisons,"
                             " in, and, or, not, + - * / // %, int() float() len()")  # fmt: skip


def _is_call(node: ast.expr) -> bool:
    """int(x), float(x) or len(x), with nothing else in the brackets."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _CALLS
        and len(node.args) == 1
        and not node.keywords
    )


def _refused(node: ast.expr, rule: str) -> UsageError:
    return UsageError(f'--if: "{ast.unparse(node)}" {rule}', "--if 'int(ROWS) > 0'")


# -- what it means ---------------------------------------------------------------------------------


def _eval(node: ast.expr, values: Mapping[str, str]) -> Any:
    """Only what `check` lets through."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BoolOp):
        among = all if isinstance(node.op, ast.And) else any
        return among(_eval(part, values) for part in node.values)
    if isinstance(node, ast.UnaryOp):
        value = _eval(node.operand, values)
        return not value if isinstance(node.op, ast.Not) else _SIGNS[type(node.op)](value)
    if isinstance(node, ast.BinOp):
        return _calculate(node, _eval(node.left, values), _eval(node.right, values))
    if isinstance(node, ast.Compare):
        return _compare(node, values)
    if isinstance(node, _SERIES):
        return [_eval(each, values) for each in node.elts]
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    return _CALLS[node.func.id](_eval(node.args[0], values))


def _calculate(node: ast.BinOp, left: Any, right: Any) -> Any:
    """Texts are only put together: times a number, or with %, they could fill the memory."""
    texts = isinstance(left, str) or isinstance(right, str)
    if texts and not isinstance(node.op, ast.Add):
        raise TypeError(f"{ast.unparse(node)}: a text is no number; int() or float() makes it one")
    value = _ARITHMETIC[type(node.op)](left, right)
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise ValueError(f"a text of {len(value)} characters, at most {LONGEST_TEXT}")
    return value


def _compare(node: ast.Compare, values: Mapping[str, str]) -> bool:
    left = _eval(node.left, values)
    for operation, comparator in zip(node.ops, node.comparators, strict=True):
        right = _eval(comparator, values)
        beside = right if isinstance(comparator, _SERIES) else [right]
        if any(_is_text(left) != _is_text(each) for each in beside):
            # Never equal, whatever was left: a condition that is always false, or always true.
            raise TypeError(f"{ast.unparse(node)}: a text and a number; int() makes it a number")
        if not _COMPARES[type(operation)](left, right):
            return False
        left = right
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
