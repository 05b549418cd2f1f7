"""From the tables of a file to typed records: pydantic finds every problem, this says it in plain words with its key.

A record is a frozen dataclass whose field types say how a value is read; ``Annotated[float, reads(span)]`` takes what
the function `span` takes. Records of catalogs, models, clusters, portfolios and studies are all read so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, get_args, get_type_hints

from planner.base.errors import ClusterwrightError, did_you_mean

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
Where = tuple[str | int, ...]
"""Keys and places in lists, from the outermost to the value."""
LONGEST = 60
"""Characters of a value that a message shows."""
BOUNDS = {"greater_than": "above", "greater_than_equal": "at least", "less_than": "below", "less_than_equal": "at most"}
KINDS = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be some text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "finite_number": "must be a finite number",
    "tuple_type": "must be a list, as [...]",
    "list_type": "must be a list, as [...]",
}
"""What a value of the wrong type must be."""


class Finding(NamedTuple):
    """One thing that is wrong with a table."""

    where: Where
    reason: str
    value: tuple[object, ...] = ()
    """The value that was given, where one was."""
    names_value: bool = False
    """Whether the reason names it already."""

    @property
    def assigned(self) -> str:
        """``= value: reason`` as it follows a key; the reason alone where no value was given."""
        for value in self.value:
            text = f'"{value}"' if isinstance(value, str) else str(value)
            shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
            return f"= {shown}: {self.reason.removeprefix(repr(value)).lstrip(': ')}"
        return self.reason


class Misfit(ValueError):
    """Everything that is wrong with a table."""

    def __init__(self, *found: Finding) -> None:
        super().__init__("; ".join(finding.reason for finding in found))
        self.found = found


def wrong(reason: str, *where: str | int) -> Misfit:
    """An error of the value at a key below the one that is read."""
    return Misfit(Finding(where, reason))


def record(kind: Callable[..., T], table: object, context: object = None) -> T:
    """The table as a checked record of this kind.

    Args:
        kind: A dataclass, its fields annotated with how they are read.
        table: What a file says, in Python's types.
        context: What readers made by :func:`knows` are given.

    Raises:
        Misfit: every problem of the table, with its key.
    """
    from pydantic import ValidationError

    try:
        checked: T = adapter(kind).validate_python(table, context=context)
        return checked
    except ValidationError as error:
        raise Misfit(*(finding for e in error.errors(include_url=False) for finding in explained(kind, e))) from None


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Pydantic's reader of a record, built once: building takes longer than using."""
    from pydantic import TypeAdapter

    # Looking for pydantic's plugins reads the metadata of every installed package: 20 ms for nothing.
    with _environment("PYDANTIC_DISABLE_PLUGINS", "__all__"):
        return TypeAdapter(kind)


@contextmanager
def _environment(variable: str, value: str) -> Iterator[None]:
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def part(kind: type[T], extended: Any) -> T:
    """The part of a record that the kind which it extends holds."""
    return kind(**{field.name: getattr(extended, field.name) for field in fields(cast("Any", kind))})


# ---- how a field is read ---------------------------------------------------------------------------------------------


def reads(read: Callable[[Any], object]) -> Any:
    """For ``Annotated``: a value is what `read` makes of it, and wrong where that raises."""
    return knows(lambda value, _: read(value))


def knows(read: Callable[[Any, Any], object]) -> Any:
    """As :func:`reads`, of a function that is also given the context, such as the catalog that names stand in."""
    from pydantic import BeforeValidator, ValidationInfo

    def guarded(value: Any, info: ValidationInfo) -> object:
        try:
            return read(value, info.context)
        except (ClusterwrightError, TypeError) as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(guarded)


def keeps(check: Callable[[Any], Iterator[tuple[str, str]]]) -> Any:
    """For ``Annotated``: `check` yields the key and the reason of whatever does not hold of a record as a whole."""
    from pydantic import AfterValidator

    def guarded(value: Any) -> Any:
        if findings := [Finding((key,) if key else (), reason) for key, reason in check(value)]:
            raise Misfit(*findings)
        return value

    return AfterValidator(guarded)


def missing(text: str) -> Any:
    """For ``Annotated``: what to do where a field that must be there is missing, or a list is empty."""
    from pydantic import Field

    return Field(examples=[text])


def listed(value: object) -> list[Any]:
    """A list, or one thing as a list."""
    return value if isinstance(value, list) else [value]


# ---- what is wrong ---------------------------------------------------------------------------------------------------


def explained(kind: Any, error: Mapping[str, Any]) -> Iterator[Finding]:
    """One of pydantic's errors in plain words; several where a whole table was read by a function of its own."""
    where: Where = tuple(error["loc"])
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, Misfit):
        yield from (finding._replace(where=where + finding.where) for finding in raised.found)
    elif error["type"] in ("dataclass_type", "dict_type"):
        yield Finding(where, "expected a table")
    elif error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        yield Finding(where, f"unknown key{did_you_mean(str(where[-1]), keys(_at(kind, where[:-1])))}")
    elif error["type"] in ("missing", "missing_argument", "too_short"):
        text = _metadata(_hints(_at(kind, where[:-1])).get(str(where[-1])), "examples")
        yield Finding(where, f"missing; {text[0]}" if text else "missing")
    else:
        # Which of several values is meant the value itself says, and a list may be written as one value.
        key = where[:-1] if where and isinstance(where[-1], int) else where
        yield Finding(key, str(raised or _reason(error)), (error["input"],), raised is not None)


def keys(kind: Any) -> list[str]:
    """The keys of a record as files write them."""
    return list(_hints(kind))


def _reason(error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    if error["type"] in BOUNDS:
        return f"must be {BOUNDS[error['type']]} {next(iter(context.values())):,.15g}"
    if error["type"] == "literal_error":
        choices = [part.strip("' ") for part in str(context["expected"]).replace(" or ", ", ").split(",")]
        return f"choose {', '.join(choices)}{did_you_mean(str(error['input']), choices)}"
    return KINDS.get(error["type"]) or str(error["msg"]).replace("Input should be", "must be")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Key -> type of a record's fields; nothing of what is no record."""
    if not is_dataclass(kind):
        return {}
    hints = get_type_hints(kind, include_extras=True)
    return {_alias(hints[field.name]) or field.name: hints[field.name] for field in fields(kind)}


def _metadata(hint: Any, name: str) -> Any:
    return next((value for note in getattr(hint, "__metadata__", ()) if (value := getattr(note, name, None))), None)


def _alias(hint: Any) -> str | None:
    alias: str | None = _metadata(hint, "validation_alias") or _metadata(hint, "alias")
    return alias


def _at(kind: Any, where: Where) -> Any:
    """The record that stands at a place of another."""
    for part in where:
        if isinstance(part, str):
            kind = _hints(_record(kind)).get(part)
    return _record(kind)


def _record(hint: Any) -> Any:
    """The record in ``tuple[Annotated[Record, ...], ...] | None``."""
    if is_dataclass(hint):
        return hint
    return next((kind for part in get_args(hint) if (kind := _record(part)) is not None), None)
