"""A program in Python read as what it builds: its syntax tree is followed, nothing is ever run.

Followed are assignments, functions and classes of the files given, branches on known values, loops over known lists,
``argparse`` with its defaults. All else is not known, and says why. A branch on what is not known leaves everything
unknown that it sets, and a function that is not here leaves every record unknown that it receives.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import python_calls
from planner.launchers.reading.python_expressions import Expressions
from planner.launchers.reading.python_outside import DEEPEST, MOST_ROUNDS, Maybe, Returned
from planner.launchers.reading.python_values import (
    ConstantMethod,
    Named,
    ProgramClass,
    ProgramFunction,
    ProgramObject,
    Scope,
    Unknown,
    flat,
    operation,
    size,
    truth,
)

_BREAK = "break"
_CONTINUE = "continue"


class Program(Expressions):
    """Modules that are followed, and the calls that matter outside of them."""

    def module(self, text: str, name: str = "__main__") -> Scope:
        """Names of a module behind its last statement.

        Raises:
            WrongQuestion: it is no Python, or never ends.
        """
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise WrongQuestion(f"no Python: {error!s:.120}") from None
        scope = Scope(
            {"__name__": "__main__" if name == "__main__" else name, "__file__": Unknown("a path")}, None, name
        )
        self.modules[name] = scope
        self.frames.append(scope)
        try:
            self.run(body, scope)
        except (RecursionError, MemoryError):
            raise WrongQuestion("no Python that ends: functions or sums without end") from None
        self.frames.pop()
        return scope

    def run(self, body: Sequence[ast.stmt], scope: Scope) -> Any:
        """Statements one after the other; how they end, where not behind the last.

        Raises:
            WrongQuestion: a statement that is not followed.
        """
        for place, statement in enumerate(body):
            self.step()
            name = type(statement).__name__.lower()
            method = getattr(self, f"_{name}", None)
            if method is None and name != "pass":
                raise WrongQuestion(f"line {statement.lineno}: {name} is not followed")
            end = None if method is None else method(statement, scope)
            if isinstance(end, Maybe):
                return self.maybe(end, self.doubted(end.why, partial(self.run, body[place + 1 :], scope)))
            if end is not None:
                return end
        return None

    def maybe(self, *ends: Any) -> Maybe | None:
        """How bodies end of which it is open whether they are run."""
        known = [end for end in ends if isinstance(end, Maybe)]
        why = next((end.why for end in known), "")
        function = any(isinstance(end, Returned) for end in ends) or any(end.function for end in known)
        return (
            Maybe(function, why)
            if function or known or {_BREAK, _CONTINUE}.intersection(filter(_is_word, ends))
            else None
        )

    def _assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.value(node.value, scope)
        for target in node.targets:
            self.store(target, value, scope)

    def _annassign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.store(node.target, self.value(node.value, scope), scope)

    def _augassign(self, node: ast.AugAssign, scope: Scope) -> None:
        before = self.value(_loaded(node.target), scope)
        more = self.value(node.value, scope)
        if isinstance(before, list) and isinstance(node.op, ast.Add):  # the same list, by whatever name
            python_calls.of_constant(ConstantMethod(before, "extend"), (more,), {})
        elif isinstance(before, dict) and isinstance(node.op, ast.BitOr):
            python_calls.of_constant(ConstantMethod(before, "update"), (more,), {})
        else:
            self.step(1 + size([before, more]) // 50)
            self.store(node.target, operation(node.op, before, more), scope)

    def _expr(self, node: ast.Expr, scope: Scope) -> None:
        self.value(node.value, scope)

    def _return(self, node: ast.Return, scope: Scope) -> Returned:
        return Returned(None if node.value is None else self.value(node.value, scope))

    def _raise(self, node: ast.Raise, scope: Scope) -> str:
        return f"line {node.lineno} ends it: {ast.unparse(node):.60}"

    def _break(self, node: ast.Break, scope: Scope) -> str:
        return _BREAK

    def _continue(self, node: ast.Continue, scope: Scope) -> str:
        return _CONTINUE

    def _assert(self, node: ast.Assert, scope: Scope) -> None:
        self.value(node.test, scope)

    def _global(self, node: ast.Global, scope: Scope) -> None:
        module = self.modules.get(scope.module)
        scope.shared |= {} if module is None else dict.fromkeys(node.names, module)

    def _nonlocal(self, node: ast.Nonlocal, scope: Scope) -> None:
        for name in node.names:
            outer = scope.around
            while outer is not None and name not in outer.names:
                outer = outer.around
            scope.shared |= {} if outer is None else {name: outer}

    def _delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                scope.names[target.id] = Unknown(f"{target.id}, which was deleted")
            else:
                self.store(target, Unknown("what was deleted"), scope)

    def _if(self, node: ast.If, scope: Scope) -> Any:
        holds = truth(self.value(node.test, scope))
        if holds is None and _ends(node.body):  # a check
            holds = False
        if holds is None and node.orelse and _ends(node.orelse):
            holds = True
        if holds is not None:
            return self.run(node.body if holds else node.orelse, scope)
        return self.bodies(f"line {node.lineno}, if {ast.unparse(node.test):.60}", [node.body, node.orelse], scope)

    def bodies(self, why: str, bodies: Sequence[Sequence[ast.stmt]], scope: Scope) -> Maybe | None:
        """How bodies end of which it is open which is run."""
        end = self.maybe(*(self.doubted(why, partial(self.run, body, scope)) for body in bodies))
        return None if end is None else Maybe(end.function, end.why or why)

    def _for(self, node: ast.For, scope: Scope) -> Any:
        items = python_calls.items(self.value(node.iter, scope))
        why = f"line {node.lineno}, for {ast.unparse(node.iter):.60}"
        if items is None or len(items) > MOST_ROUNDS:
            self.store(node.target, Unknown(why), scope)
            return _of_loop(self.bodies(why, [node.body, node.orelse], scope))
        for place, item in enumerate(items):
            self.store(node.target, item, scope)
            end = self.run(node.body, scope)
            if isinstance(end, Maybe):
                rest = [ast.For(node.target, ast.Constant(None), node.body, node.orelse, lineno=node.lineno)]
                others = len(items) - place - 1
                return _of_loop(self.maybe(end, *(self.bodies(end.why, [rest], scope) for _ in range(min(others, 1)))))
            if end == _BREAK:
                return None
            if end is not None and end != _CONTINUE:
                return end
        return self.run(node.orelse, scope)

    _asyncfor = _for

    def _while(self, node: ast.While, scope: Scope) -> Any:
        if truth(self.value(node.test, scope)) is False:
            return self.run(node.orelse, scope)
        return _of_loop(self.bodies(f"line {node.lineno}, while {ast.unparse(node.test):.60}", [node.body], scope))

    def _try(self, node: ast.Try | ast.TryStar, scope: Scope) -> Any:
        """The body, and under doubt what its handlers do; one that goes on leaves the body's end open, too."""
        imports = all(isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass) for statement in node.body)
        goes_on = [part for part in node.handlers if not _ends(part.body) and not isinstance(part.body[-1], ast.Return)]
        why = f"line {node.lineno}, try"
        whole = [*node.body, *node.orelse]
        known = imports or not goes_on or all("Interrupt" in ast.unparse(part.type or ast.Name("")) for part in goes_on)
        end = self.run(whole, scope) if known else self.bodies(why, [whole], scope)
        for part in () if imports else node.handlers:
            if part.name:
                scope.names[part.name] = Unknown(f"{why}: an error")
            end = end or self.bodies(why, [part.body], scope)
        if imports:  # a package that is not there: what the body imports stands, all else is open
            names = {
                alias.asname or alias.name.partition(".")[0]
                for part in node.body
                for alias in getattr(part, "names", ())
            }
            kept = {name: scope.names[name] for name in names if name in scope.names}
            for part in node.handlers:
                self.bodies(why, [part.body], scope)
            scope.names |= kept
        last = self.run(node.finalbody, scope)
        return end if last is None else last

    _trystar = _try

    def _match(self, node: ast.Match, scope: Scope) -> Any:
        self.value(node.subject, scope)
        for case in node.cases:
            for part in ast.walk(case.pattern):
                if isinstance(part, ast.MatchAs | ast.MatchStar) and part.name:
                    self.store(ast.Name(part.name), Unknown(f"line {node.lineno}, match"), scope)
        return self.bodies(f"line {node.lineno}, match", [case.body for case in node.cases], scope)

    def _with(self, node: ast.With, scope: Scope) -> Any:
        swallows = False
        for item in node.items:
            value = self.value(item.context_expr, scope)
            swallows |= "suppress" in ast.unparse(item.context_expr)
            if item.optional_vars is not None:
                self.store(item.optional_vars, value, scope)
        return self.bodies(f"line {node.lineno}, with", [node.body], scope) if swallows else self.run(node.body, scope)

    _asyncwith = _with

    def _functiondef(self, node: ast.FunctionDef, scope: Scope) -> None:
        made: Any = self.function(node, scope)
        for decorator in reversed(node.decorator_list):
            name = ast.unparse(decorator)
            if _DECORATORS.fullmatch(name) or name.endswith(".setter"):
                continue
            wrapper = self.value(decorator, scope)
            made = (
                self.called(wrapper, (made,), {}) if isinstance(wrapper, ProgramFunction) else Unknown(f"@{name:.60}")
            )
        scope.names[node.name] = made

    _asyncfunctiondef = _functiondef

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> ProgramFunction:
        """A function with the values of its defaults."""
        given = node.args
        placed = [*given.posonlyargs, *given.args]
        defaults = {
            name.arg: self.value(value, scope)
            for name, value in zip(placed[len(placed) - len(given.defaults) :], given.defaults, strict=True)
        }
        defaults |= {
            name.arg: self.value(value, scope)
            for name, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
            if value is not None
        }
        decorators = [] if isinstance(node, ast.Lambda) else [ast.unparse(part) for part in node.decorator_list]
        kind = next((name for name in ("property", "classmethod", "staticmethod") if name in decorators), "")
        kind = "setter" if any(name.endswith(".setter") for name in decorators) else kind
        return ProgramFunction(node, scope, defaults, kind=kind)

    def _classdef(self, node: ast.ClassDef, scope: Scope) -> None:
        made = ProgramClass(node.name, {}, {})
        for base in reversed([self.value(part, scope) for part in node.bases]):
            if isinstance(base, ProgramClass):
                if "__init_subclass__" in base.methods:
                    self.doubted(
                        f"{base.name}.__init_subclass__",
                        partial(self.inside, base.methods["__init_subclass__"], (), {}),
                    )
                made = replace(
                    made, fields={**made.fields, **base.fields}, methods={**made.methods, **base.methods},
                    extends=base.extends or made.extends,
                )  # fmt: skip
            elif isinstance(base, Named):
                made = replace(made, extends=base.name)
        inner = Scope({}, scope, scope.module)
        self.run(node.body, inner)
        assigned = {name: value for name, value in inner.names.items() if not isinstance(value, ProgramFunction)}
        methods = {
            name: replace(value, scope=scope)
            for name, value in inner.names.items()
            if isinstance(value, ProgramFunction)
        }
        fields = {
            part.target.id: Unknown(f"{part.target.id} of {node.name}, which is not given")
            for part in node.body
            if isinstance(part, ast.AnnAssign) and part.value is None and isinstance(part.target, ast.Name)
        }
        order = [
            part.target.id
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        ]
        ordered = {name: assigned[name] if name in assigned else fields[name] for name in order}
        others = [name for part in node.decorator_list if not _DECORATORS.fullmatch(name := ast.unparse(part))]
        scope.names[node.name] = (
            Unknown(f"@{others[0]:.60}")
            if others
            else replace(made, fields={**made.fields, **ordered, **assigned}, methods={**made.methods, **methods})
        )

    def _import(self, node: ast.Import, scope: Scope) -> None:
        for part in node.names:
            name = part.name if part.asname else part.name.partition(".")[0]
            scope.names[part.asname or name] = Named(name)

    def _importfrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        name = node.module or ""
        if node.level:
            above = scope.module.split(".")[: -node.level]
            name = ".".join([*above, *([name] if name else [])])
        module = self.loaded(name)
        for part in node.names:
            if part.name == "*":
                scope.names |= {"*": None} if module is None else module.names
            elif module is not None and part.name in module.names:
                scope.names[part.asname or part.name] = module.names[part.name]
            else:
                scope.names[part.asname or part.name] = Named(f"{name}.{part.name}")

    def loaded(self, name: str) -> Scope | None:
        """The names of a module that is at hand."""
        if name not in self.modules:
            text = self.known.load(name) if self.depth < DEEPEST else None
            self.modules[name] = None
            if text is not None:
                self.depth += 1
                self.module(text, name)
                self.depth -= 1
        return self.modules[name]

    def store(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Puts a value where an assignment says."""
        if isinstance(target, ast.Tuple | ast.List):
            values = python_calls.items(value)
            starred = any(isinstance(part, ast.Starred) for part in target.elts)
            whole = values is not None and len(values) == len(target.elts) and not starred
            for place, part in enumerate(target.elts):
                name = ast.unparse(part)
                part = part.value if isinstance(part, ast.Starred) else part
                self.store(part, values[place] if whole and values else Unknown(f"{name}, of several"), scope)
        elif isinstance(target, ast.Name):
            scope.shared.get(target.id, scope).names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, scope)
            if isinstance(owner, Named) and f"{owner.name}.{target.attr}" == "sys.argv":
                self.environment["sys.argv"] = Unknown("sys.argv, which the program changes")
            methods = owner.methods if isinstance(owner, ProgramObject) else {}
            if "__setattr__" in methods:
                self.inside(methods["__setattr__"], (owner, target.attr, value), {})
            elif target.attr in methods and methods[target.attr].kind == "setter":
                self.inside(methods[target.attr], (owner, value), {})
            elif isinstance(owner, ProgramObject | ProgramClass):
                owner.fields[target.attr] = value
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value, scope)
            if isinstance(owner, Named) and owner.name == "os.environ":
                owner = self.environment
            slice_of = isinstance(target.slice, ast.Slice) and isinstance(owner, list)
            if slice_of:
                owner[:] = [Unknown(f"line {target.lineno}, a part of a list", many=True)]
            else:
                python_calls.put(owner, self.value(target.slice, scope), value)


_DECORATORS = re.compile(
    r"(\w+\.)*(property|classmethod|staticmethod|dataclass|wraps|lru_cache|cache|override|abstractmethod|record|overload|"
    r"final|no_grad|inference_mode|command|option|argument|group|main|factory|register\w*|cached_property|contextmanager)"
    r"(\(.*\))?",
    re.DOTALL,
)
"""Decorators behind which a function is what it was."""


def _is_word(end: Any) -> bool:
    return isinstance(end, str)


def _of_loop(end: Maybe | None) -> Maybe | None:
    """How a loop ends whose body may end so: breaks stay in it."""
    return end if end is not None and end.function else None


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether statements end in an error."""
    last = body[-1]
    exits = isinstance(last, ast.Expr) and re.match(r"((sys|os)\._?exit|exit|quit|parser\.error)\(", ast.unparse(last))
    return isinstance(last, ast.Raise) or bool(exits)


def _loaded(target: ast.expr) -> ast.expr:
    """The target of ``+=`` as a value."""
    return ast.parse(ast.unparse(target), mode="eval").body


def values(text: str) -> dict[str, Any]:
    """Key with dots -> value of what a configuration in Python assigns at its top level.

    Raises:
        WrongQuestion: it is no Python, or never ends.
    """
    names = Program().module(text).names
    made = {
        name: value for name, value in names.items() if not isinstance(value, Named | ProgramFunction | ProgramClass)
    }
    pairs = {key: value for key, value in flat(made) if not key.startswith("__")}
    return {
        key: f"not in the file: {value.why}" if isinstance(value, Unknown) else value for key, value in pairs.items()
    }
