"""A configuration in Python as its values: assignments of constants and calls with keywords, nothing ever run.

A name that is imported stands for itself (``torch.optim.AdamW``). What would have to be run (a loop, a function) has no
value, and is left out with all that is made of it.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from planner.base.errors import WrongQuestion

_SUMS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_LARGEST = 1 << 62
_UNKNOWN = object()


def values(text: str) -> dict[str, Any]:
    """Name -> value of what a file assigns at its top level; a call is a mapping of its keywords, its name as ``type``.

    Raises:
        WrongQuestion: it is no Python.
    """
    try:
        body = ast.parse(text).body
        known: dict[str, Any] = {}
        for statement in body:
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                known[name] = _sum(statement.op, known.get(name, _UNKNOWN), _value(statement.value, known))
            elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                known |= {
                    target.id: _value(statement.value, known) for target in targets if isinstance(target, ast.Name)
                }
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise WrongQuestion(f"no Python: {error!s:.120}") from None
    return {name: value for name, value in known.items() if value is not _UNKNOWN}


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return ast.unparse(node)
    if isinstance(node, ast.List | ast.Tuple):
        return [value for part in node.elts if (value := _value(part, known)) is not _UNKNOWN]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _sum(ast.Sub(), 0, _value(node.operand, known))
    if isinstance(node, ast.BinOp):
        return _sum(node.op, _value(node.left, known), _value(node.right, known))
    if isinstance(node, ast.Dict):
        pairs = [(key, part) for key, part in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)]
        return _known({str(key.value): _value(part, known) for key, part in pairs})
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return _known(
            {
                **({} if name == "dict" else {"type": name}),
                **{word.arg: _value(word.value, known) for word in node.keywords if word.arg},
            }
        )
    return _UNKNOWN


def _known(whole: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in whole.items() if value is not _UNKNOWN}


def _sum(sign: ast.operator, one: Any, other: Any) -> Any:
    """The sum, difference, product or whole quotient of two numbers; no value of what is none, or grows without end."""
    if type(sign) not in _SUMS or not all(isinstance(part, int | float) for part in (one, other)):
        return _UNKNOWN
    if isinstance(sign, ast.FloorDiv) and not other:
        return _UNKNOWN
    total = _SUMS[type(sign)](one, other)
    return total if abs(total) < _LARGEST else _UNKNOWN
