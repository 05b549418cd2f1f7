"""What a question's record declares of each field, and the views of it that every way of asking derives.

A record is a dataclass whose fields are ``Annotated[T, Option(...)]``. Its fields are the keywords of a Python function
(:mod:`planner.api.entry`), the flags of a command with their helps and completion (:mod:`planner.commands.options`),
and the arguments that an agent may give (:mod:`planner.commands.agent_tools`). Nothing heavy is imported here.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

LATE = ("Axes", "ImagePlan", "Launched", "Machines", "Model", "Named", "Node", "Progress", "Source", "StudyResult")
"""Types of annotations that take long to import: only who checks a value against them does so."""


@dataclass(frozen=True, slots=True)
class Option:
    """How one field of a question is spelled and described."""

    help: str = ""
    """Of the flag; a field without one has no flag."""
    says: str = ""
    """Of the keyword, in the function's docstring."""
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    """Where the flag is not ``--`` and the field's name."""
    complete: str | tuple[str, ...] = ""
    """What a shell offers: a kind of :mod:`planner.commands.completion`, or the words."""
    range: tuple[float, float | None] | None = None
    """Least and largest value."""
    type: type | None = None
    """What the flag takes, where that does not follow from the field's own type."""
    unset: Any = None
    """The flag's default, where it is not the field's."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A field of a record with all that is derived from it."""

    name: str
    type: Any
    """Evaluated, with ``Any`` for what is imported late."""
    written: str
    """The type as its source says it."""
    default: Any
    """``dataclasses.MISSING`` where the field must be given."""
    positional: bool
    option: Option

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The members of a union, without None."""
        several = get_origin(self.type) in (Union, UnionType)
        return tuple(kind for kind in (get_args(self.type) if several else (self.type,)) if kind is not NoneType)


@functools.cache
def asked(record: type) -> Mapping[str, Asked]:
    """Name -> field of a record in the order of the signature: those that may be given by position come first."""
    hints = get_type_hints(record, localns=dict.fromkeys(LATE, Any), include_extras=True)
    every = [_asked(field, hints[field.name]) for field in fields(record)]
    ordered = sorted(every, key=lambda each: not each.positional)
    return {each.name: each for each in ordered}


def _asked(field: Field[Any], hint: Any) -> Asked:
    declared = hint.__metadata__ if get_origin(hint) is Annotated else ()
    return Asked(
        name=field.name,
        type=get_args(hint)[0] if declared else hint,
        written=_written(str(field.type)),
        default=field.default,
        positional=not field.kw_only,
        option=next((each for each in declared if isinstance(each, Option)), Option()),
    )


def _written(annotation: str) -> str:
    """``str | None`` of ``Annotated[str | None, Option(...)]``."""
    tree = ast.parse(annotation, mode="eval").body
    if isinstance(tree, ast.Subscript) and isinstance(tree.slice, ast.Tuple) and ast.unparse(tree.value) == "Annotated":
        return ast.unparse(tree.slice.elts[0])
    return annotation
