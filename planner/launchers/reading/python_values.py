"""What a program in Python may hold while it is only read: constants, records, names of what is imported, and what is
not known.

A record stands for any object: what a call of something imported returns, with its keywords as fields. Whoever could
change it without being read here is kept in `changed_by`, and nothing that it holds counts any more.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST = 100_000
"""Characters of a text, items of a list."""
_LARGEST = 1 << 62
DEEPEST = 12
"""Records inside records."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not in the program, and why; in a list it may stand for any number of them (`many`)."""

    why: str
    many: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """Something imported, by its whole name."""

    name: str


@dataclass(eq=False, slots=True)
class ProgramObject:
    """An object: the name of what made it, its fields (arguments without a keyword under their places)."""

    type: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    changed_by: list[str] = field(default_factory=list)
    methods: Mapping[str, ProgramFunction] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class ProgramFunction:
    """A function of the program, with the arguments that it already has."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    defaults: dict[str, Any] = field(default_factory=dict)
    arguments: tuple[Any, ...] = ()
    words: dict[str, Any] = field(default_factory=dict)
    kind: str = ""
    """property, classmethod or staticmethod; nothing for a plain one."""

    @property
    def name(self) -> str:
        """As the program calls it."""
        return "lambda" if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass(eq=False, slots=True)
class ProgramClass:
    """A class of the program: what its objects begin with, and its functions, with those of the classes it extends."""

    name: str
    fields: dict[str, Any]
    methods: dict[str, ProgramFunction]
    extends: str = ""
    """The first class that is imported."""


@dataclass(eq=False, slots=True)
class ConstantMethod:
    """A method of a text, a list or a mapping."""

    owner: Any
    name: str


@dataclass(eq=False, slots=True)
class Scope:
    """Names of a module or a function, and those around it."""

    names: dict[str, Any]
    around: Scope | None = None
    module: str = ""
    shared: dict[str, Scope] = field(default_factory=dict)
    """Names that are kept elsewhere (``global``, ``nonlocal``)."""

    def find(self, name: str) -> Any:
        """The value of a name; None of Python where nobody sets it is told by KeyError.

        Raises:
            KeyError: nobody sets it.
        """
        if name in self.names or self.around is None:
            return self.names[name]
        return self.around.find(name)


_OPERATIONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
TEXT_METHODS = {
    "lower", "upper", "strip", "lstrip", "rstrip", "split", "rsplit", "startswith", "endswith", "join", "title",
    "removeprefix", "removesuffix", "partition", "rpartition", "isdigit", "capitalize", "splitlines", "count", "find",
}  # fmt: skip
"""Methods of texts: none grows beyond what goes in."""


def size(value: Any) -> int:
    """How much a value is when it is written out: items, and texts by their length; up to a little more than MOST."""
    total = 0
    left = [value]
    while left and total <= MOST:
        part = left.pop()
        total += 1 + (len(part) // 10 if isinstance(part, str) else 0)
        if isinstance(part, list | tuple | set | dict):
            if len(part) > MOST:
                return MOST + 1
            left += part.values() if isinstance(part, dict) else part
    return total


def plain(value: Any) -> bool:
    """Whether a value is a constant of Python, or is made of such alone, and is not too large to look at."""
    count = 0
    left = [value]
    while left:
        part = left.pop()
        count += 1
        if isinstance(part, list | tuple | set | dict) and len(part) + count <= MOST:
            left += part.values() if isinstance(part, dict) else part
        elif count > MOST or not (part is None or isinstance(part, bool | int | float | str)):
            return False
    return True


def operation(sign: ast.AST, one: Any, other: Any) -> Any:
    """The result of an operator; unknown where one side is, or where it grows without end."""
    if isinstance(sign, ast.Is | ast.IsNot):
        return _same(one, other, isinstance(sign, ast.Is))
    if isinstance(sign, ast.Eq | ast.NotEq) and isinstance(one, Named) and isinstance(other, Named):
        alike = one == other
        known = alike or one.name.rpartition(".")[0] == other.name.rpartition(".")[0]  # members of one enumeration
        return alike is isinstance(sign, ast.Eq) if known else Unknown(f"{one.name} and {other.name}")
    if isinstance(sign, ast.In | ast.NotIn) and isinstance(other, dict) and plain(one):
        return (one in other) is isinstance(sign, ast.In)
    added = isinstance(sign, ast.Add) and isinstance(one, list) and isinstance(other, list)
    if not added:
        for side in (one, other):
            if not plain(side):
                return side if isinstance(side, Unknown) else Unknown("an operation on what is not known")
    try:
        if _size(sign, one, other) > MOST or type(sign) not in _OPERATIONS:
            return Unknown("a value that grows without end")
        value = _OPERATIONS[type(sign)](one, other)
    except (TypeError, ValueError, ArithmeticError) as error:
        return Unknown(f"{error!s:.60}")
    large = isinstance(value, int | float) and not isinstance(value, bool) and not abs(value) < _LARGEST
    return Unknown("a number that grows without end") if large else value


def _same(one: Any, other: Any, positive: bool) -> Any:
    if isinstance(one, Unknown) or isinstance(other, Unknown) or _placeholder(one) or _placeholder(other):
        return next((side for side in (one, other) if isinstance(side, Unknown)), Unknown("whether it is set"))
    return (one is other or (plain(one) and plain(other) and type(one) is type(other) and one == other)) is positive


def _placeholder(value: Any) -> bool:
    return isinstance(value, ProgramObject) and not value.type


def _size(sign: ast.AST, one: Any, other: Any) -> float:
    """An upper bound of what comes out: characters and items, bits of powers."""
    if isinstance(sign, ast.Mult) and not all(isinstance(side, int | float) for side in (one, other)):
        lengths = [side if isinstance(side, int | float) else len(side) for side in (one, other)]
        return float(abs(lengths[0] * lengths[1]))
    if isinstance(sign, ast.Pow | ast.LShift):
        return float(abs(other)) * (one.bit_length() if isinstance(one, int) else 64) * (MOST / 4096)
    if isinstance(sign, ast.Mod) and isinstance(one, str):  # a width in a template
        longest = max((len(str(part)) for part in (other if isinstance(other, tuple) else (other,))), default=0)
        return MOST + 1.0 if re.search(r"[\d*]", one) else len(one) + one.count("%") * longest
    return sum(len(side) for side in (one, other) if isinstance(side, list | str | tuple))


def truth(value: Any) -> bool | None:
    """Whether a value counts as true; None where that is not known."""
    if isinstance(value, ProgramFunction | ProgramClass | ConstantMethod):
        return True
    if isinstance(
        value, ProgramObject
    ):  # an object is true; what a function returned, or a field nobody set, may be anything
        made = value.type.rpartition(".")[2]
        return True if made[:1].isupper() and not made.isupper() else None
    if isinstance(value, Unknown | Named):
        return None
    return bool(value)


def records(value: Any) -> Iterator[ProgramObject]:
    """Objects in a value, and in those of their fields and in what functions have been given."""
    seen: set[int] = set()
    left = [value]
    while left and len(seen) <= MOST:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, ProgramObject):
            yield part
            left += part.fields.values()
        elif isinstance(part, ProgramFunction):
            left += [*part.arguments, *part.words.values()]
        elif isinstance(part, list | tuple | set | dict):
            left += part.values() if isinstance(part, dict) else part


def flat(value: Any, before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """(key with dots, value) of a record: what made it under ``type``, a function that may have changed it under
    ``changed_by``, records of a list under the names of their classes.
    """
    if isinstance(value, ProgramObject):
        yield from ((f"{before}changed_by", name) for name in value.changed_by)
        if value.type:
            yield f"{before}type", value.type
    for name, part in (value.fields if isinstance(value, ProgramObject) else value).items():
        key = f"{before}{name}"
        if isinstance(part, ProgramObject) or (isinstance(part, dict) and part):
            if depth < DEEPEST:
                yield from flat(part, f"{key}.", depth + 1)
            continue
        if isinstance(part, list | tuple):
            for inner in part:
                if isinstance(inner, ProgramObject) and depth < DEEPEST:
                    yield from flat(inner, f"{key}.{inner.type.rpartition('.')[2]}.", depth + 1)
            many = next((inner for inner in part if isinstance(inner, Unknown) and inner.many), None)
            part = [bare(inner) for inner in part] if many is None else many
        yield key, bare(part)


def bare(value: Any) -> Any:
    """A value for tables: names of what is imported or made as texts."""
    if isinstance(value, Named):
        return value.name
    if isinstance(value, ProgramFunction | ProgramClass):
        return value.name
    if isinstance(value, ProgramObject):
        return value.type or Unknown("an object")
    return value
