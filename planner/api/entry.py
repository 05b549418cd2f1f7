"""What every Python function checks at its door, and its errors in Python's words."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from planner.api.wording import in_keywords
from planner.base.errors import ClusterwrightError, WrongQuestion, meant, nearest
from planner.question.axis_keywords import GivenAxes
from planner.question.option import LATE, Asked, asked

P = ParamSpec("P")
Q = TypeVar("Q")
R = TypeVar("R")
ARGS = "Args: as declared."
"""Line of a docstring in place of which its record's fields are described."""
MOST = 1e9
"""Where nothing else bounds a number."""


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose arguments are checked against its own annotations, and whose errors name its keywords.

    Flags and keywords are called the same, so that ``--oom-risk 80 %`` becomes ``oom_risk='80 %'`` by rule.

    Raises:
        TypeError: a keyword that the function does not have; the message names the nearest.
        WrongQuestion: an argument of another type than annotated.
    """

    @functools.wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> R:
        hints = _hints(function)
        given, named = _arguments(function.__name__, hints, args, keywords)
        with _in_keywords(hints):
            return function(*given, **named)

    return checked


def asks(record: Callable[P, Q]) -> Callable[[Callable[[Q], R]], Callable[P, R]]:
    """A function of a question's record, as a function of that record's fields: they are its keywords, with their types
    and defaults, and its docstring lists them where it says :data:`ARGS`.

    Raises:
        TypeError: a keyword that the record does not have; the message names the nearest.
        WrongQuestion: a field of another type than declared, or out of its range.
    """

    def decorate(function: Callable[[Q], R]) -> Callable[P, R]:
        name, fields = function.__name__, asked(cast(type, record))

        @functools.wraps(function)
        def checked(*args: P.args, **keywords: P.kwargs) -> R:
            hints = _hints(record)
            given, named = _arguments(name, hints, args, keywords)
            try:
                question = record(*given, **named)
            except TypeError as error:
                raise TypeError(_as_call(name, str(error))) from None
            for field in fields.values():
                if field.option.range is not None:
                    between(field.name, getattr(question, field.name), *field.option.range)
            with _in_keywords(hints):
                return function(question)

        del checked.__dict__["__wrapped__"]
        shown: Any = checked
        shown.__signature__ = _signature(cast(type, record), function.__annotations__["return"])
        checked.__doc__ = (function.__doc__ or "").replace(ARGS, f"Args:\n{_described_fields(fields)}")
        return checked

    return decorate


def _as_call(name: str, message: str) -> str:
    """What Python says of a record's ``__init__``, as it says it of a function, which has no `self` to count."""
    text = re.sub(r"^\S+\.__init__", name, message)
    if "takes" not in text:
        return text
    return re.sub(r"\d+", lambda count: str(int(count[0]) - 1), text, count=3 if "takes from" in text else 2)


def _signature(record: type, returned: object) -> inspect.Signature:
    """The fields of a record as parameters; axes, which are many, as keywords of their typed dictionary."""
    axes = {field.name for field in fields(GivenAxes)} if issubclass(record, GivenAxes) else set()
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if field.positional else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=field.written,
        )
        for field in asked(record).values()
        if field.name not in axes
    ]
    if axes:
        parameters.append(inspect.Parameter("axes", inspect.Parameter.VAR_KEYWORD, annotation="Unpack[Axes]"))
    return inspect.Signature(parameters, return_annotation=returned)


def _described_fields(fields: Mapping[str, Asked]) -> str:
    """What the fields say, as lines of a docstring's list of arguments."""
    return "\n".join(
        textwrap.fill(
            f"{field.name}: {field.option.says}",
            width=120,
            initial_indent=" " * 8,
            subsequent_indent=" " * 12,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for field in fields.values()
    )


@contextlib.contextmanager
def _in_keywords(hints: Mapping[str, Any]) -> Iterator[None]:
    """Says errors in Python's words."""
    try:
        yield
    except ClusterwrightError as error:
        switches = frozenset(name for name, hint in hints.items() if hint is bool)
        error.args = (in_keywords(str(error), switches),)
        raise


def between(name: str, value: float | None, least: float, most: float | None) -> None:
    """Refuses a number that is not from `least` to `most`.

    Raises:
        WrongQuestion: it is not; the message names the keyword.
    """
    most = MOST if most is None else most
    if value is not None and not least <= value <= most:
        raise WrongQuestion(f"{name}={value}: must be from {least:,.0f} to {most:,.0f}")


# ---- arguments -------------------------------------------------------------------------------------------------------


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Parameter -> annotation, of a function or of a question's record, in the order of the signature."""
    if isinstance(function, type):
        hints = get_type_hints(function, localns=_late())
        return {name: hints[name] for name in asked(function)}
    hints = get_type_hints(function)
    hints.pop("return", None)
    return hints


@functools.cache
def _late() -> dict[str, Any]:
    """Types that records name without importing them."""
    from planner.question.axis_keywords import Axes
    from planner.question.given import Launched, Machines, Named, Progress, Source
    from planner.schema.hardware import Node
    from planner.schema.images import ImagePlan
    from planner.schema.study import StudyResult
    from planner.schema.workload import Model

    found = (Axes, ImagePlan, Launched, Machines, Model, Named, Node, Progress, Source, StudyResult)
    return dict(zip(LATE, found, strict=True))


def _arguments(
    name: str, hints: Mapping[str, Any], args: Sequence[object], keywords: Mapping[str, object]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments in plain types, those by position and those by name.

    Raises:
        TypeError: a keyword that is none of the hints'.
        WrongQuestion: an argument of another type.
    """
    for keyword in keywords:
        if keyword not in hints:
            raise TypeError(f"{name}() has no keyword {keyword!r}; {_instead(keyword, hints)}")
    given = [_checked(each, value, hints) for each, value in zip(hints, args, strict=False)]
    named = {each: _checked(each, value, hints) for each, value in keywords.items()}
    return [*given, *args[len(given) :]], named


def _checked(name: str, value: object, hints: Mapping[str, Any]) -> Any:
    """An argument in plain types, if it is of its annotation's."""
    value = plain(value)
    if not _fits(value, hints[name]):
        ranked = isinstance(value, int) and name == "plans" and "rank" in hints
        instead = f"; that is a rank: give the set of plans, and rank={value}" if ranked else ""
        raise WrongQuestion(f"{name}={value!r:.80}: must be {_described(hints[name], value)}{instead}")
    return value


def plain(value: Any) -> Any:
    """Numbers and arrays of NumPy and their like as Python's own."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, int | float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


_DEGREES = {"tensor": "tp", "pipeline": "pp", "data": "dp", "context": "cp", "expert": "ep", "expert_tensor": "etp"}
COUNTED = (
    "nodes",
    "n_nodes",
    "num_nodes",
    "nnodes",
    "gpus_per_node",
    "num_gpus",
    "nproc_per_node",
    "num_gpus_per_node",
)
"""Counts that stand in the name of a cluster here."""
OTHERWISE = {
    **dict.fromkeys(("sequence", "sequence_length", "seq_len", "context", "context_length"), ("seq",)),
    **{
        f"{kind}{end}": (axis,)
        for kind, axis in _DEGREES.items()
        for end in ("_parallel", "_parallel_size", "_model_parallel_size")
    },
    **{f"{axis}{end}": (axis,) for axis in _DEGREES.values() for end in ("_size", "_degree")},
    **dict.fromkeys(("micro_batch", "micro_batch_size", "per_device_train_batch_size"), ("micro",)),
    **dict.fromkeys(("global_batch", "global_batch_size", "batch_size"), ("batch",)),
    **dict.fromkeys(("budget", "max_cost", "max_price", "max_usd"), ("budget", "max_cost")),
    **dict.fromkeys(COUNTED[:4], ("count",)),
    **dict.fromkeys(("folder", "out", "path", "directory"), ("output",)),
    "dtype": ("precision",),
    "framework": ("runtime",),
    "within": ("deadline",),
    "gpus": ("accelerators",),
}
"""What people call a keyword that has another name here: the first that a function has."""


def _instead(name: str, hints: Mapping[str, Any]) -> str:
    """What to write in place of a keyword that a function lacks."""
    from planner.axes import AXES

    if name in COUNTED and "cluster" in hints:
        return 'the number stands in the cluster: cluster="dgx-h100:2"'
    others = OTHERWISE.get(name, ())
    if other := next((each for each in others if each in hints), None):
        return f"did you mean {other}=?"
    if "pin" in hints and (axis := next((each for each in (name, *others) if each in AXES), None)):
        return f'axes are fixed by pin={{"{axis}": ...}}'
    return meant(name, hints, f"there are {', '.join(hints)}").replace("?", "=?")


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of an annotation's type; a bool is no number."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in args)
    if origin is Literal:
        return value in args
    if is_typeddict(hint):
        return isinstance(value, Mapping)
    if origin is not None and issubclass(origin, Callable):  # type: ignore[arg-type]
        return callable(value)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_fits(k, args[0]) and _fits(v, args[1]) for k, v in value.items())
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(args) and all(map(_fits, value, args))
    if origin is not None:
        return isinstance(value, Sequence) and not isinstance(value, str) and all(_fits(v, args[0]) for v in value)
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    return isinstance(value, hint)


def _described(hint: Any, value: object) -> str:
    """An annotation in words, with the nearest of a choice."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_described(each, value) for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is Literal:
        near = nearest(str(value), map(str, get_args(hint)))
        return " or ".join(map(repr, get_args(hint))) + (f"; did you mean {near[0]!r}?" if near else "")
    if get_origin(hint) is tuple:
        return f"({', '.join(_described(each, value) for each in get_args(hint))})"
    if get_origin(hint) is not None:
        return f"{get_origin(hint).__name__} of {_described(get_args(hint)[-1], value)}"
    return str(hint.__name__)
