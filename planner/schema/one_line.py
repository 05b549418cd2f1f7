"""Records that show themselves on one line, and the long form of any record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from itertools import accumulate
from typing import Any, dataclass_transform

LONG = ("source", "date", "notes", "assumed", "prices")
"""Fields of a record with an id that say where it comes from: ``clusterwright catalog show`` has them."""
MOST = 4
"""Values of a list that are all shown."""
WIDTH = 100
"""Characters of a line."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class OneLine:
    """Base of records: every class below it is a frozen dataclass, made by keywords, whose `repr` is a line.

    The line states what is not left at its default, as far as it fits.

    >>> from planner import node
    >>> node("t4-4")
    <Node: id='t4-4', kind='workstation', provider='OEM', accelerator='T4', accelerators=4, nics=1, ...>
    """

    def __init_subclass__(cls, **given: Any) -> None:
        """Makes the class a dataclass, whose `repr` stays that of its base unless it has one of its own."""
        super().__init_subclass__(**given)
        dataclass(frozen=True, kw_only=True, repr=False)(cls)

    def __repr__(self) -> str:
        stated = [f.name for f in fields(self) if getattr(self, f.name) != _default(f)]  # type: ignore[arg-type]
        parts = [f"{name}={_short(getattr(self, name))}" for name in stated]
        hidden = (*LONG, "name") if "id" in stated else ()
        kept = [part for name, part in zip(stated, parts, strict=True) if name not in hidden]
        ends = accumulate(len(part) + 2 for part in kept)
        shown = [part for part, end in zip(kept, ends, strict=True) if end <= WIDTH] or kept[:1]
        return f"<{type(self).__name__}: {', '.join([*shown, *['...'] * (len(shown) < len(parts))])}>"


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _short(value: object) -> str:
    """A value in a few characters: a record by its id, a table by its keys."""
    if is_dataclass(value):
        return str(getattr(value, "id", f"{type(value).__name__}(...)"))
    if isinstance(value, Mapping | tuple):
        plain = not isinstance(value, Mapping) and len(value) <= MOST and not any(map(is_dataclass, value))
        return repr(value) if plain else f"[{len(value)}]"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def spelled(value: object) -> str:
    """A value with every field of every record in it, as dataclasses spell them: what digests are made of."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{field.name}={spelled(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__qualname__}({inner})"
    if isinstance(value, tuple):
        return f"({', '.join(map(spelled, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {spelled(item)}' for key, item in value.items())}}}"
    return repr(value)
