"""What every Python function checks at its door, and messages in Python's words instead of the command line's."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from planner.base.errors import ClusterwrightError, WrongQuestion, nearest

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
        _check(function, args, keywords)
        try:
            return function(*args, **keywords)
        except ClusterwrightError as error:
            error.args = (in_keywords(str(error)),)
            raise

    return checked


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


def _check(function: Callable[..., Any], args: Sequence[object], keywords: Mapping[str, object]) -> None:
    hints = _hints(function)
    for name in keywords:
        if name not in hints:
            raise TypeError(f"{function.__name__}() has no keyword {name!r}; {_instead(name, hints)}")
    for name, value in [*zip(hints, args, strict=False), *keywords.items()]:
        if not _fits(value, hints[name]):
            raise WrongQuestion(f"{name}={value!r:.80}: must be {_described(hints[name], value)}")


OTHERWISE = {
    "sequence": "seq",
    "deadline": "within",
    "within": "deadline",
    "global_batch": "batch",
    "gpus": "accelerators",
}
"""What people call a keyword that has another name here."""


def _instead(name: str, hints: Mapping[str, Any]) -> str:
    """What to write in place of a keyword that a function lacks."""
    from planner.space.axes import AXES

    if name == "nodes" and "cluster" in hints:
        return 'the number stands in the cluster: cluster="dgx-h100:2"'
    if "pin" in hints and name in AXES:
        return f'axes are fixed by pin={{"{name}": ...}}'
    if (other := OTHERWISE.get(name)) in hints:
        return f"did you mean {other}=?"
    near = nearest(name, hints)
    return f"did you mean {near[0]}=?" if near else f"there are {', '.join(hints)}"


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


# ---- messages --------------------------------------------------------------------------------------------------------

_FLAG = re.compile(
    r"clusterwright [a-z][^;)`\n]*|"  # a command to type stays one
    r"--(?P<name>[a-z]+(?:-[a-z]+)*)"
    r"(?:[ =](?P<value>'[^']*'|\d[\d.,]* %|(?:[^\s;,()]|,(?=\S))*[^\s;,():](?=[:;,)]|$)"
    r"|(?=\S*[A-Z0-9$=./@])[^\s;,()]+))?",
    re.MULTILINE,
)
"""A flag with what looks like its value: quoted, before punctuation, or no plain word."""


def in_keywords(message: str) -> str:
    """A message with keywords in place of flags.

    >>> in_keywords("--cluster dgx-h100: how many? Write dgx-h100:16")
    "cluster='dgx-h100': how many? Write dgx-h100:16"
    >>> in_keywords("give one (--price '$2.10/h' per accelerator) or another --basis, or ask for less (--seq 4096)")
    "give one (price='$2.10/h' per accelerator) or another basis, or ask for less (seq=4096)"
    """
    return _FLAG.sub(_keyword, message).replace("-o DIR", "output=DIR")


def _keyword(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    if name is None:
        return found[0]
    name = name.replace("-", "_")
    if value is None:
        return name
    return f"{name}={value if value[0] == chr(39) or value.isdecimal() else repr(value)}"
