"""Calls in a program in Python that is only read: what its own functions return, and what is known of others."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import python_arguments, python_calls
from planner.launchers.reading.python_values import (
    ConstantMethod,
    Named,
    ProgramClass,
    ProgramFunction,
    ProgramObject,
    Scope,
    Unknown,
    plain,
    records,
    size,
)

MOST_STEPS = 200_000
MOST_ROUNDS = 2_000
"""Rounds of a loop."""
DEEPEST = 40
"""Functions inside functions, and modules inside modules."""


_MADE = {"exec", "eval", "compile", "__import__", "globals", "locals"}
"""Python's functions behind which there may be any program."""
_KNOWN_METHODS = {"__init__", "__post_init__", "__repr__", "__str__", "__call__", "__len__", "__hash__", "__eq__"}
"""Methods with a meaning of their own that change nothing unseen."""


@dataclass(frozen=True, slots=True)
class Returned:
    """How a function ends."""

    value: Any


@dataclass(frozen=True, slots=True)
class Maybe:
    """A body of which it is open whether it ends its function, or else its loop, and why."""

    function: bool
    why: str


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
class OutsideCalls:
    """Modules that are followed, and the calls that matter outside of them."""

    known: OutsideFunctions = field(default_factory=OutsideFunctions)
    words: Sequence[str] = ()
    """The words of the command line."""
    environment: dict[str, Any] = field(default_factory=dict)
    started: list[OutsideCall] = field(default_factory=list)
    on_start: Callable[[OutsideCall], None] = lambda started: None
    modules: dict[str, Scope | None] = field(default_factory=dict)
    frames: list[Scope] = field(default_factory=list)
    """Names of the functions and modules that are being followed."""
    steps: int = 0
    depth: int = 0

    def run(self, body: Sequence[ast.stmt], scope: Scope) -> Any:
        """How statements end (:class:`~planner.launchers.reading.python_program.Program`)."""
        raise NotImplementedError

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression (:class:`~planner.launchers.reading.python_expressions.Expressions`)."""
        raise NotImplementedError

    def step(self, many: int = 1) -> None:
        """Counts steps.

        Raises:
            WrongQuestion: there are too many.
        """
        self.steps += many
        if self.steps > MOST_STEPS:
            raise WrongQuestion("a program with too many steps to follow")

    def doubted(self, why: str, follow: Callable[[], Any]) -> Any:
        """What a part returns of which it is open whether it is run: all that it changes is not known after it."""
        before = list(self.reachable())
        result = follow()
        for container, was in before:
            if isinstance(container, list):
                if len(container) != len(was) or not all(map(_unchanged, container, was)):
                    container[:] = [Unknown(why, many=True)]
                continue
            changed = [key for key, value in container.items() if key not in was or not _unchanged(value, was[key])]
            container.update(dict.fromkeys([*changed, *(key for key in was if key not in container)], Unknown(why)))
        return result

    def reachable(self) -> Iterator[tuple[Any, Any]]:
        """(list or mapping, a copy of it) of all that the program can change now."""
        seen: set[int] = set()
        left: list[Any] = [self.environment, *self.frames, *self.modules.values()]
        while left:
            part = left.pop()
            if id(part) in seen or isinstance(part, str | int | float | None | Named | Unknown):
                continue
            seen.add(id(part))
            if isinstance(part, Scope):
                left += [part.names, part.around]
            elif isinstance(part, ProgramObject | ProgramClass):
                left += [part.fields, *part.methods.values()]
            elif isinstance(part, ProgramFunction):
                left += [part.scope, part.defaults, part.words, part.arguments]
            elif isinstance(part, ConstantMethod):
                left.append(part.owner)
            elif isinstance(part, list | dict):
                yield part, part.copy()
            if isinstance(part, list | tuple | set | dict):
                self.step(1 + len(part) // 50)
                left += part.values() if isinstance(part, dict) else part

    def called(self, function: Any, arguments: tuple[Any, ...], words: dict[str, Any]) -> Any:
        """What a call returns."""
        if isinstance(function, ProgramFunction):
            return self.inside(function, arguments, words)
        if isinstance(function, ProgramClass):
            return self.made(function, arguments, words)
        if isinstance(function, ConstantMethod | Named):
            owner = function.owner if isinstance(function, ConstantMethod) else None
            self.step(1 + size([owner, *arguments, *words.values()]) // 50)
            if isinstance(function, ConstantMethod):
                result = python_calls.of_constant(function, arguments, words)
            else:
                if function.name in _MADE:
                    raise WrongQuestion(
                        f"{function.name}() makes a program while it runs: what it does is not in the file"
                    )
                if function.name == "map" and arguments[1:] and isinstance(arguments[0], ProgramFunction):
                    parts = python_calls.items(arguments[1])
                    return (
                        Unknown("map()")
                        if parts is None
                        else [self.called(arguments[0], (part,), {}) for part in parts]
                    )
                result = python_calls.built_in(self.environment, function.name, arguments, words)
                if result is NotImplemented:
                    return self.outside(function.name, arguments, words)
            self.step(1 + size(result) // 50)
            return result
        why = function.why if isinstance(function, Unknown) else "a function that is not known"
        self.touch(why, arguments, words)
        return Unknown(why)

    def inside(self, function: ProgramFunction, arguments: tuple[Any, ...], words: dict[str, Any]) -> Any:
        """What a function of the program returns."""
        if self.depth > DEEPEST:
            self.touch(function.name, arguments, words)
            return Unknown(f"{function.name}: too many functions inside each other")
        scope = Scope(python_arguments.arguments_of(function, arguments, words), function.scope, function.scope.module)
        self.depth += 1
        self.frames.append(scope)
        if isinstance(function.node, ast.Lambda):
            value = self.value(function.node.body, scope)
        else:
            end = self.run(function.node.body, scope)
            value = end.value if isinstance(end, Returned) else None
            value = Unknown(end.why if isinstance(end, Maybe) else end) if isinstance(end, Maybe | str) else value
        self.frames.pop()
        self.depth -= 1
        return value

    def made(self, kind: ProgramClass, arguments: tuple[Any, ...], words: dict[str, Any]) -> ProgramObject:
        """An object of a class of the program."""
        record = ProgramObject(kind.extends or kind.name, dict(kind.fields), methods=kind.methods)
        for name in sorted({name for name in kind.methods if re.fullmatch("__.*__", name)} - _KNOWN_METHODS):
            # Operators and statements call these unseen.
            method = partial(self.inside, kind.methods[name], (record,), {"**": Unknown(name)})
            self.doubted(f"{kind.name}.{name}", method)
            record.changed_by.append(f"{kind.name}.{name}")
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
            changed = self.environment.get("sys.argv")
            return python_arguments.of_parser(owner, name, arguments, words, self.words) if changed is None else changed
        if self.known.itself(name):
            return owner
        if name == "__setattr__" and len(arguments) == 2:
            python_calls.put(owner, *arguments)
            return None
        if not owner.type and name in ("append", "extend"):  # a list that the program does not make itself
            owner.fields |= {item.type.rpartition(".")[2]: item for item in records([*arguments])}
            return None
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
        """Marks what a function received as changed by it; functions that it received may be called."""
        given = [*arguments, *words.values()]
        for record in records(given):
            record.changed_by.append(name)
        for value in given:
            if isinstance(value, dict) and value:
                value.update(dict.fromkeys(value, Unknown(f"{name} may have changed it")))
            elif isinstance(value, list):
                value[:] = [Unknown(f"{name} may have changed it", many=True)]
            elif isinstance(value, ProgramFunction) and self.depth < DEEPEST:
                why = f"{name} may call {value.name}"
                for record in records(self.doubted(why, partial(self.inside, value, (), {"**": Unknown(name)}))):
                    record.changed_by.append(name)


def _unchanged(value: Any, was: Any) -> bool:
    """Whether a value is the one that it was."""
    if value is was:
        return True
    scalar = isinstance(value, str | int | float | Named) and type(value) is type(was)
    return scalar and bool(value == was)
