"""What every Python function checks at its door, and its errors in Python's words."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from planner.api.wording import in_keywords
from planner.base.errors import ClusterwrightError, WrongQuestion, meant, nearest

P = ParamSpec("P")
R = TypeVar("R")


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose arguments are checked against its own annotations, and whose errors name its keywords.

    Flags and keywords are called the same, so that ``--oom-risk 80 %`` becomes ``oom_risk='80 %'`` by rule.

    Raises:
        TypeError: a keyword that the function does not have; the message names the nearest.
        WrongQuestion: an argument of another type than annotated.
    """

    @functools.wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> R:
        _names(function, keywords)
        hints = _hints(function)
        given = [_checked(name, value, hints) for name, value in zip(hints, args, strict=False)]
        named = {name: _checked(name, value, hints) for name, value in keywords.items()}
        try:
            return function(*given, *args[len(given) :], **named)  # type: ignore[arg-type]
        except ClusterwrightError as error:
            error.args = (in_keywords(str(error), frozenset(n for n, hint in hints.items() if hint is bool)),)
            raise

    return checked


def between(name: str, value: float | None, least: float, most: float) -> None:
    """Refuses a number that is not from `least` to `most`.

    Raises:
        WrongQuestion: it is not; the message names the keyword.
    """
    if value is not None and not least <= value <= most:
        raise WrongQuestion(f"{name}={value}: must be from {least:,.0f} to {most:,.0f}")


# ---- arguments -------------------------------------------------------------------------------------------------------


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Parameter -> annotation; of keywords that stand in a typed dictionary, theirs."""
    found = get_type_hints(function)
    found.pop("return", None)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found |= get_type_hints(get_args(found.pop(parameter.name))[0])
    return found


def _names(function: Callable[..., Any], keywords: Mapping[str, object]) -> None:
    hints = _hints(function)
    for name in keywords:
        if name not in hints:
            raise TypeError(f"{function.__name__}() has no keyword {name!r}; {_instead(name, hints)}")


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
    from planner.space.axes import AXES

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
