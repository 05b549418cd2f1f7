"""A program in Python read as what it builds: its syntax tree is followed, nothing is ever run.

Followed are assignments, functions and classes of the files given, branches on known values, loops over known lists,
``argparse`` with its defaults. All else is not known, and says why. A branch on what is not known leaves everything
unknown that it sets, and a function that is not here leaves every record unknown that it receives.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import python_calls
from planner.launchers.reading.python_expressions import Expressions
from planner.launchers.reading.python_outside import DEEPEST, MOST_ROUNDS, Returned
from planner.launchers.reading.python_values import (
    Named,
    ProgramClass,
    ProgramFunction,
    ProgramObject,
    Scope,
    Unknown,
    flat,
    operation,
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
        try:
            self.run(body, scope)
        except RecursionError:
            raise WrongQuestion("no Python that ends: functions or sums without end") from None
        return scope

    def run(self, body: Sequence[ast.stmt], scope: Scope) -> Any:
        """Statements one after the other; how they end, where not behind the last."""
        for statement in body:
            self.step()
            method = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if method is not None and (end := method(statement, scope)) is not None:
                return end
        return None

    def _assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.value(node.value, scope)
        for target in node.targets:
            self.store(target, value, scope)

    def _annassign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.store(node.target, self.value(node.value, scope), scope)

    def _augassign(self, node: ast.AugAssign, scope: Scope) -> None:
        before = self.value(_loaded(node.target), scope)
        self.store(node.target, operation(node.op, before, self.value(node.value, scope)), scope)

    def _expr(self, node: ast.Expr, scope: Scope) -> None:
        self.value(node.value, scope)

    def _return(self, node: ast.Return, scope: Scope) -> Returned:
        value = None if node.value is None else self.value(node.value, scope)
        return Returned(Unknown(self.doubt) if self.doubt else value)

    def _raise(self, node: ast.Raise, scope: Scope) -> Any:
        return None if self.doubt else Returned(Unknown(f"line {node.lineno} ends it: {ast.unparse(node):.60}"))

    def _break(self, node: ast.Break, scope: Scope) -> str | None:
        return None if self.doubt else _BREAK

    def _continue(self, node: ast.Continue, scope: Scope) -> str | None:
        return None if self.doubt else _CONTINUE

    def _global(self, node: ast.Global, scope: Scope) -> None:
        scope.shared.update(node.names)

    def _if(self, node: ast.If, scope: Scope) -> Any:
        holds = truth(self.value(node.test, scope))
        if holds is None and _ends(node.body):  # a check
            holds = False
        if holds is None and node.orelse and _ends(node.orelse):
            holds = True
        if holds is not None:
            return self.run(node.body if holds else node.orelse, scope)
        with_doubt = f"line {node.lineno}, if {ast.unparse(node.test):.60}"
        return self.doubted(with_doubt, [node.body, node.orelse], scope)

    def doubted(self, why: str, bodies: Sequence[Sequence[ast.stmt]], scope: Scope) -> Any:
        """Statements of which it is open whether they are run."""
        before, self.doubt = self.doubt, self.doubt or why
        ends = [self.run(body, scope) for body in bodies]
        self.doubt = before
        return Returned(Unknown(why)) if any(isinstance(end, Returned) for end in ends) else None

    def _for(self, node: ast.For, scope: Scope) -> Any:
        items = python_calls.items(self.value(node.iter, scope))
        if items is None or len(items) > MOST_ROUNDS:
            self.store(node.target, Unknown(f"line {node.lineno}, for {ast.unparse(node.iter):.60}"), scope)
            return self.doubted(f"line {node.lineno}, for {ast.unparse(node.iter):.60}", [node.body], scope)
        for item in items:
            self.store(node.target, item, scope)
            end = self.run(node.body, scope)
            if end == _BREAK:
                return None
            if isinstance(end, Returned):
                return end
        return self.run(node.orelse, scope)

    def _while(self, node: ast.While, scope: Scope) -> Any:
        if truth(self.value(node.test, scope)) is False:
            return self.run(node.orelse, scope)
        return self.doubted(f"line {node.lineno}, while {ast.unparse(node.test):.60}", [node.body], scope)

    def _try(self, node: ast.Try, scope: Scope) -> Any:
        end = self.run([*node.body, *node.orelse], scope)
        return end if end is not None else self.run(node.finalbody, scope)

    def _match(self, node: ast.Match, scope: Scope) -> Any:
        return self.doubted(f"line {node.lineno}, match", [case.body for case in node.cases], scope)

    def _with(self, node: ast.With, scope: Scope) -> Any:
        for item in node.items:
            value = self.value(item.context_expr, scope)
            if item.optional_vars is not None:
                self.store(item.optional_vars, value, scope)
        return self.run(node.body, scope)

    def _functiondef(self, node: ast.FunctionDef, scope: Scope) -> None:
        scope.names[node.name] = self.function(node, scope)

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
        return ProgramFunction(node, scope, defaults, kind=kind)

    def _classdef(self, node: ast.ClassDef, scope: Scope) -> None:
        made = ProgramClass(node.name, {}, {})
        for base in reversed([self.value(part, scope) for part in node.bases]):
            if isinstance(base, ProgramClass):
                made = replace(
                    made, fields={**made.fields, **base.fields}, methods={**made.methods, **base.methods},
                    extends=base.extends or made.extends,
                )  # fmt: skip
            elif isinstance(base, Named):
                made = replace(made, extends=base.name)
        inner = Scope({}, scope, scope.module)
        self.run(node.body, inner)
        assigned = {name: value for name, value in inner.names.items() if not isinstance(value, ProgramFunction)}
        methods = {name: value for name, value in inner.names.items() if isinstance(value, ProgramFunction)}
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
        scope.names[node.name] = replace(
            made, fields={**made.fields, **ordered, **assigned}, methods={**made.methods, **methods}
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
                scope.names |= {} if module is None else module.names
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
            whole = values is not None and len(values) == len(target.elts)
            for place, part in enumerate(target.elts):
                name = ast.unparse(part)
                self.store(part, values[place] if whole and values else Unknown(f"{name}, of several"), scope)
            return
        value = Unknown(self.doubt) if self.doubt else value
        if isinstance(target, ast.Name):
            module = self.modules.get(scope.module) if target.id in scope.shared else None
            (module or scope).names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, scope)
            if isinstance(owner, ProgramObject | ProgramClass):
                owner.fields[target.attr] = value
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value, scope)
            python_calls.put(owner, self.value(target.slice, scope), value)


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether statements end in an error."""
    last = body[-1]
    exits = isinstance(last, ast.Expr) and ast.unparse(last).startswith(("sys.exit", "exit", "parser.error"))
    return isinstance(last, ast.Raise) or exits


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
