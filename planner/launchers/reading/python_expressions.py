"""Expressions of a program in Python that is only read: their values, and what calls return."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import python_calls
from planner.launchers.reading.python_outside import MOST_ROUNDS, OutsideCalls
from planner.launchers.reading.python_values import (
    MOST,
    ConstantMethod,
    Named,
    ProgramClass,
    ProgramFunction,
    ProgramObject,
    Scope,
    Unknown,
    operation,
    size,
    truth,
)

_BUILT_IN = frozenset(dir(builtins))


def _distinct(values: Any) -> Any:
    """A set: each once, in their order; unknown where one is."""
    return (
        tuple(dict.fromkeys(values)) if isinstance(values, list) and all(map(_hashable, values)) else Unknown("a set")
    )


def _hashable(value: Any) -> bool:
    return isinstance(value, str | int | float | Named | None)


class Expressions(OutsideCalls):
    """Values of expressions; statements are :class:`~planner.launchers.reading.python_program.Program`'s."""

    def store(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Puts a value where an assignment says."""
        raise NotImplementedError

    def loaded(self, name: str) -> Scope | None:
        """The names of a module that is at hand."""
        raise NotImplementedError

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> ProgramFunction:
        """A function with the values of its defaults."""
        raise NotImplementedError

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression."""
        self.step()
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        return Unknown(f"line {node.lineno}: {ast.unparse(node):.60}") if method is None else method(node, scope)

    def _constant(self, node: ast.Constant, scope: Scope) -> Any:
        return node.value

    def _name(self, node: ast.Name, scope: Scope) -> Any:
        try:
            return scope.find(node.id)
        except KeyError:
            return Named(node.id) if node.id in _BUILT_IN or self.stars else Unknown(f"{node.id} is not in the program")

    @property
    def stars(self) -> bool:
        """Whether names may come from a module that is not here (``from module import *``)."""
        return any(scope is not None and "*" in scope.names for scope in self.modules.values())

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        owner = self.value(node.value, scope)
        if isinstance(owner, ProgramObject):
            method = owner.methods.get(node.attr)
            if method is not None and method.kind != "setter" and node.attr not in owner.fields:
                bound = replace(method, arguments=() if method.kind == "staticmethod" else (owner,))
                return self.called(bound, (), {}) if method.kind == "property" else bound
            return owner.fields.setdefault(node.attr, ProgramObject())
        if isinstance(owner, ProgramClass):
            if node.attr in owner.methods:
                method = owner.methods[node.attr]
                return replace(method, arguments=(owner,)) if method.kind == "classmethod" else method
            return owner.fields.get(node.attr, Unknown(f"{owner.name}.{node.attr}"))
        if isinstance(owner, Named):
            module = self.loaded(owner.name)
            inner = module.names.get(node.attr) if module is not None else None
            return Named(f"{owner.name}.{node.attr}") if inner is None else inner
        return owner if isinstance(owner, Unknown) else ConstantMethod(owner, node.attr)

    def _list(self, node: ast.List, scope: Scope) -> list[Any]:
        made: list[Any] = []
        for part in node.elts:
            if isinstance(part, ast.Starred):
                inner = python_calls.items(self.value(part.value, scope))
                made += [Unknown(f"line {part.lineno}: {ast.unparse(part):.60}", True)] if inner is None else inner
                self.step(1 + len(made) // 50)
            else:
                made.append(self.value(part, scope))
        if len(made) > MOST:
            raise WrongQuestion("a program with a list that grows without end")
        return made

    def _tuple(self, node: ast.Tuple, scope: Scope) -> tuple[Any, ...]:
        return tuple(self._list(ast.List(node.elts), scope))

    def _set(self, node: ast.Set, scope: Scope) -> Any:
        return _distinct(self._list(ast.List(node.elts), scope))

    def _dict(self, node: ast.Dict, scope: Scope) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, part in zip(node.keys, node.values, strict=True):
            value = self.value(part, scope)
            if key is None:
                made |= python_calls.words_of(value)
            else:
                python_calls.put(made, self.value(key, scope), value)
        return made

    def _binop(self, node: ast.BinOp, scope: Scope) -> Any:
        sides = (self.value(node.left, scope), self.value(node.right, scope))
        self.step(1 + size(list(sides)) // 50)
        for side in sides:
            if isinstance(side, ProgramObject) and side.methods and side.changed_by:  # its own operator
                self.touch(side.changed_by[0], sides, {})
        return operation(node.op, *sides)

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            holds = truth(value)
            return (value if isinstance(value, Unknown) else Unknown("a truth")) if holds is None else not holds
        if isinstance(node.op, ast.Invert):
            return ~value if isinstance(value, int) else Unknown("~ of what is not known")
        return operation(ast.Sub(), 0, value) if isinstance(node.op, ast.USub) else value

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        enough = isinstance(node.op, ast.Or)
        value: Any = None
        for place, part in enumerate(node.values):
            value = self.value(part, scope)
            holds = truth(value)
            if place + 1 < len(node.values) and holds is None:
                why = f"line {node.lineno}: {ast.unparse(node):.60}"
                rest = [self.doubted(why, partial(self.value, other, scope)) for other in node.values[place + 1 :]]
                decided = not enough and any(truth(other) is False for other in rest)
                return False if decided else Unknown(why)
            if holds is enough:
                return value
        return value

    def _compare(self, node: ast.Compare, scope: Scope) -> Any:
        left = self.value(node.left, scope)
        for sign, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part, scope)
            self.step(1 + size([left, right]) // 50)
            result = operation(sign, left, right)
            if result is not True:
                return result
            left = right
        return True

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        holds = truth(self.value(node.test, scope))
        if holds is None:
            why = f"line {node.lineno}: {ast.unparse(node):.60}"
            for part in (node.body, node.orelse):
                self.doubted(why, partial(self.value, part, scope))
            return Unknown(why)
        return self.value(node.body if holds else node.orelse, scope)

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Any:
        parts = [self.value(part, scope) for part in node.values]
        unknown = next((part for part in parts if not isinstance(part, str)), None)
        return "".join(parts) if unknown is None and sum(map(len, parts)) < MOST else Unknown(ast.unparse(node)[:60])

    def _formattedvalue(self, node: ast.FormattedValue, scope: Scope) -> Any:
        value = self.value(node.value, scope)
        short = isinstance(value, str | int | float | None) and node.format_spec is None and node.conversion == -1
        return str(value) if short else Unknown(ast.unparse(node.value)[:60])

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        self.store(node.target, value := self.value(node.value, scope), scope)
        return value

    def _lambda(self, node: ast.Lambda, scope: Scope) -> ProgramFunction:
        return self.function(node, scope)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        owner = self.value(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            bounds = [
                None if part is None else self.value(part, scope) for part in (node.slice.lower, node.slice.upper)
            ]
            return python_calls.cut(owner, bounds[0], bounds[1]) if node.slice.step is None else Unknown("a slice")
        return python_calls.item(owner, self.value(node.slice, scope), self.environment)

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> Any:
        made: list[Any] = []
        for inner in self.rounds(node.generators, scope):
            if inner is None:
                why = f"line {node.lineno}: {ast.unparse(node):.60}"
                names = {
                    part.id for loop in node.generators for part in ast.walk(loop.target) if isinstance(part, ast.Name)
                }
                open_scope = Scope(dict.fromkeys(names, Unknown(why)), scope, scope.module)
                self.doubted(why, partial(self.value, node.elt, open_scope))
                return Unknown(why)
            made.append(self.value(node.elt, inner))
        return made

    _generatorexp = _listcomp

    def _setcomp(self, node: ast.SetComp, scope: Scope) -> Any:
        return _distinct(self._listcomp(node, scope))

    def _dictcomp(self, node: ast.DictComp, scope: Scope) -> Any:
        made: dict[Any, Any] = {}
        for inner in self.rounds(node.generators, scope):
            if inner is None:
                return Unknown(f"line {node.lineno}: {ast.unparse(node):.60}")
            python_calls.put(made, self.value(node.key, inner), self.value(node.value, inner))
        return made

    def rounds(self, loops: Sequence[ast.comprehension], scope: Scope) -> Iterator[Scope | None]:
        """The names of every round of a comprehension; None where one is not known."""
        if not loops:
            yield scope
            return
        items = python_calls.items(self.value(loops[0].iter, scope))
        if items is None or len(items) > MOST_ROUNDS:
            yield None
            return
        for item in items:
            self.step()
            inner = Scope({}, scope, scope.module)
            self.store(loops[0].target, item, inner)
            holds = [truth(self.value(test, inner)) for test in loops[0].ifs]
            if None in holds and False not in holds:
                yield None
                return
            if all(holds):
                yield from self.rounds(loops[1:], inner)

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        arguments = self._list(ast.List(node.args, lineno=node.lineno), scope)
        words: dict[str, Any] = {}
        for word in node.keywords:
            value = self.value(word.value, scope)
            words |= python_calls.words_of(value) if word.arg is None else {word.arg: value}
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value, scope)
            if isinstance(owner, ProgramObject) and node.func.attr not in {*owner.fields, *owner.methods}:
                return self.method(owner, node.func.attr, tuple(arguments), words)
        return self.called(self.value(node.func, scope), tuple(arguments), words)
