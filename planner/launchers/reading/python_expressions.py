"""Expressions of a program in Python that is only read: their values, and what calls return."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import python_calls
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
    plain,
    records,
    truth,
)

MOST_STEPS = 200_000
MOST_ROUNDS = 2_000
"""Rounds of a loop."""
DEEPEST = 40
"""Functions inside functions, and modules inside modules."""


@dataclass(frozen=True, slots=True)
class Returned:
    """How a function ends."""

    value: Any


@dataclass(frozen=True, slots=True)
class OutsideCall:
    """A call of something that is not here: its name, its arguments and keywords as they were."""

    name: str
    arguments: tuple[Any, ...]
    words: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OutsideFunctions:
    """What is known of functions that are not here.

    Attributes:
        harmless: Whether a function, by its name, changes nothing that it receives.
        itself: Whether a method, by its name, returns its object, as far as a configuration is concerned.
        starts: Whether a function, by its name, is what the configuration is for.
        sets: ProgramFunction -> field of its first argument -> value, ``$1`` for the second argument.
        load: The text of a module by its name with dots; None where it is not at hand.
    """

    harmless: Callable[[str], bool] = lambda name: False
    itself: Callable[[str], bool] = lambda name: False
    starts: Callable[[str], bool] = lambda name: False
    load: Callable[[str], str | None] = lambda name: None
    sets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Expressions:
    """Modules that are followed, and the calls that matter outside of them."""

    known: OutsideFunctions = field(default_factory=OutsideFunctions)
    words: Sequence[str] = ()
    """The words of the command line."""
    environment: Mapping[str, str] = field(default_factory=dict)
    started: list[OutsideCall] = field(default_factory=list)
    on_start: Callable[[OutsideCall], None] = lambda started: None
    modules: dict[str, Scope | None] = field(default_factory=dict)
    doubt: str = ""
    """Why it is open whether the present statement is run at all."""
    steps: int = 0
    depth: int = 0

    def run(self, body: Sequence[ast.stmt], scope: Scope) -> Any:
        """How statements end (:class:`~planner.launchers.reading.python_program.Program`)."""
        raise NotImplementedError

    def store(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Puts a value where an assignment says."""
        raise NotImplementedError

    def loaded(self, name: str) -> Scope | None:
        """The names of a module that is at hand."""
        raise NotImplementedError

    def step(self) -> None:
        """Counts a step.

        Raises:
            WrongQuestion: there are too many.
        """
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise WrongQuestion("a program with too many steps to follow")

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
            return Named(node.id)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        owner = self.value(node.value, scope)
        if isinstance(owner, ProgramObject):
            method = owner.methods.get(node.attr)
            if method is not None and node.attr not in owner.fields:
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
                made += [Unknown(f"line {part.lineno}: {ast.unparse(part):.60}")] if inner is None else inner
            else:
                made.append(self.value(part, scope))
        return made

    def _tuple(self, node: ast.Tuple, scope: Scope) -> tuple[Any, ...]:
        return tuple(self._list(ast.List(node.elts), scope))

    _set = _tuple

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
        return operation(node.op, self.value(node.left, scope), self.value(node.right, scope))

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            holds = truth(value)
            return (value if isinstance(value, Unknown) else Unknown("a truth")) if holds is None else not holds
        return operation(ast.Sub(), 0, value) if isinstance(node.op, ast.USub) else value

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        enough = isinstance(node.op, ast.Or)
        value: Any = None
        for place, part in enumerate(node.values):
            value = self.value(part, scope)
            holds = truth(value)
            if place + 1 < len(node.values) and holds is None:
                rest = [self.value(other, scope) for other in node.values[place + 1 :]]
                decided = not enough and any(truth(other) is False for other in rest)
                return False if decided else Unknown(f"line {node.lineno}: {ast.unparse(node):.60}")
            if holds is enough:
                return value
        return value

    def _compare(self, node: ast.Compare, scope: Scope) -> Any:
        left = self.value(node.left, scope)
        for sign, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part, scope)
            result = operation(sign, left, right)
            if result is not True:
                return result
            left = right
        return True

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        holds = truth(self.value(node.test, scope))
        if holds is None:
            return Unknown(f"line {node.lineno}: {ast.unparse(node):.60}")
        return self.value(node.body if holds else node.orelse, scope)

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Any:
        parts = [self.value(part, scope) for part in node.values]
        unknown = next((part for part in parts if not isinstance(part, str)), None)
        return "".join(parts) if unknown is None and sum(map(len, parts)) < MOST else Unknown(ast.unparse(node)[:60])

    def _formattedvalue(self, node: ast.FormattedValue, scope: Scope) -> Any:
        value = self.value(node.value, scope)
        return str(value) if plain(value) and node.format_spec is None else Unknown(ast.unparse(node.value)[:60])

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
                return Unknown(f"line {node.lineno}: {ast.unparse(node):.60}")
            made.append(self.value(node.elt, inner))
        return made

    _generatorexp = _setcomp = _listcomp

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

    def called(self, function: Any, arguments: tuple[Any, ...], words: dict[str, Any]) -> Any:
        """What a call returns."""
        if isinstance(function, ProgramFunction):
            return self.inside(function, arguments, words)
        if isinstance(function, ProgramClass):
            return self.made(function, arguments, words)
        if isinstance(function, ConstantMethod):
            return python_calls.of_constant(function, arguments, words)
        if isinstance(function, Named):
            built_in = python_calls.built_in(self.environment, function.name, arguments, words)
            return self.outside(function.name, arguments, words) if built_in is NotImplemented else built_in
        why = function.why if isinstance(function, Unknown) else "a function that is not known"
        self.touch(why, arguments, words)
        return Unknown(why)

    def inside(self, function: ProgramFunction, arguments: tuple[Any, ...], words: dict[str, Any]) -> Any:
        """What a function of the program returns."""
        if self.depth > DEEPEST:
            self.touch(function.name, arguments, words)
            return Unknown(f"{function.name}: too many functions inside each other")
        scope = Scope(_arguments(function, arguments, words), function.scope, function.scope.module)
        self.depth += 1
        if isinstance(function.node, ast.Lambda):
            value = self.value(function.node.body, scope)
        else:
            end = self.run(function.node.body, scope)
            value = end.value if isinstance(end, Returned) else None
        self.depth -= 1
        return value

    def made(self, kind: ProgramClass, arguments: tuple[Any, ...], words: dict[str, Any]) -> ProgramObject:
        """An object of a class of the program."""
        record = ProgramObject(kind.extends or kind.name, dict(kind.fields), methods=kind.methods)
        if "__init__" in kind.methods:
            self.inside(kind.methods["__init__"], (record, *arguments), words)
            return record
        names = list(kind.fields) if not kind.extends else []
        record.fields |= dict(zip([*names, *map(str, range(len(arguments)))], arguments, strict=False)) | words
        if "__post_init__" in kind.methods:
            self.inside(kind.methods["__post_init__"], (record,), {})
        return record

    def method(self, owner: ProgramObject, name: str, arguments: tuple[Any, ...], words: dict[str, Any]) -> Any:
        """What a method of an object returns whose class is not here."""
        whole = f"{owner.type}.{name}"
        if owner.type.endswith("ArgumentParser"):
            return python_calls.of_parser(owner, name, arguments, words, self.words)
        if self.known.itself(name):
            return owner
        if self.starts(name, arguments, words):
            return Unknown(name)
        if not self.known.harmless(whole) and not name.startswith("__"):
            owner.changed_by.append(name)
        return self.outside(whole, arguments, words)

    def starts(self, name: str, arguments: tuple[Any, ...], words: dict[str, Any]) -> bool:
        """Whether a function is what the configuration is for: its call is kept, as it is now."""
        if not self.known.starts(name):
            return False
        self.on_start(OutsideCall(name, arguments, words))
        self.started.append(OutsideCall(name, arguments, words))
        return True

    def sets(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Whether a function is known by what it sets, which is then set."""
        values = self.known.sets.get(name)
        if values is None or not arguments or not isinstance(arguments[0], ProgramObject):
            return False
        stated = {key: arguments[1] if value == "$1" and arguments[1:] else value for key, value in values.items()}
        if not all(map(plain, stated.values())):
            return False
        arguments[0].fields.update(stated if None not in stated.values() else {})
        return True

    def outside(self, name: str, arguments: tuple[Any, ...], words: dict[str, Any]) -> Any:
        """What a function returns that is not here: a record of its call, and those that it received are not known."""
        if self.starts(name, arguments, words):
            return Unknown(name)
        if self.sets(name.rpartition(".")[2], arguments):
            return None
        makes = any(part[:1].isupper() for part in name.split("."))  # a class, or what one makes
        if not makes and not self.known.harmless(name):
            self.touch(name.rpartition(".")[2], arguments, words)
        return ProgramObject(name, {**{str(place): value for place, value in enumerate(arguments)}, **words})

    def touch(self, name: str, arguments: tuple[Any, ...], words: dict[str, Any]) -> None:
        """Marks what a function received as changed by it."""
        for record in records([*arguments, *words.values()]):
            record.changed_by.append(name)
        for value in (*arguments, *words.values()):
            if isinstance(value, dict) and value:
                value.update(dict.fromkeys(value, Unknown(f"{name} may have changed it")))


def _arguments(function: ProgramFunction, arguments: tuple[Any, ...], words: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> value of a function's arguments."""
    given = function.node.args
    placed = [name.arg for name in (*given.posonlyargs, *given.args)]
    taken = (*function.arguments, *arguments)
    stated = {**function.words, **words}
    names = [*placed, *(name.arg for name in given.kwonlyargs)]
    why = "**" in stated
    values = {
        name: function.defaults[name]
        if name in function.defaults and not why
        else Unknown(f"{name}, an argument of {function.name}, which is not given")
        for name in names
    }
    values |= dict(zip(placed, taken, strict=False))
    values |= {name: value for name, value in stated.items() if name in names}
    if given.vararg is not None:
        values[given.vararg.arg] = [*taken[len(placed) :]]
    if given.kwarg is not None:
        values[given.kwarg.arg] = {name: value for name, value in stated.items() if name not in names}
    return values
