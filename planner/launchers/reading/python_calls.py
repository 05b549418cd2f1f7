"""Python's own functions, and methods of its constants, on the values of a program that is only read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.launchers.reading.python_values import (
    MOST,
    TEXT_METHODS,
    ConstantMethod,
    Named,
    ProgramClass,
    ProgramFunction,
    ProgramObject,
    Unknown,
    plain,
)

_PURE = {
    "int": int, "float": float, "str": str, "bool": bool, "len": len, "max": max, "min": min, "sum": sum, "abs": abs,
    "round": round, "sorted": sorted, "any": any, "all": all, "math.ceil": math.ceil, "math.floor": math.floor,
    "math.log2": math.log2, "math.sqrt": math.sqrt, "math.prod": math.prod, "set": lambda *a: [*dict.fromkeys(*a)],
    "list": lambda *a: list(*a), "tuple": lambda *a: tuple(*a), "divmod": divmod, "reversed": lambda a: [*reversed(a)],
    "enumerate": lambda *a: [*enumerate(*a)], "zip": lambda *a: [*zip(*a, strict=False)],
    "math.gcd": math.gcd, "math.lcm": math.lcm,
}  # fmt: skip
_TYPES = {"str", "int", "float", "bool", "list", "dict", "tuple", "NoneType"}
_OF_RECORDS = {"list", "tuple", "len", "enumerate", "zip", "reversed"}
"""Functions of lists, whatever is in them."""
_CONFIGS = re.compile(r"(.*\.)?(run|nemo_run|fdl|fiddle)\.(Config|Partial)|(functools\.)?partial")
"""What makes an object of a function or class later: of NeMo-Run, or of Python."""
_UNPICKY = re.compile(
    r"(logging|logger|log|warnings|os|sys|time|json|pprint|pathlib|shutil|subprocess)(\..*)?|print|input|"
    r"((numpy|np)\.)?random\.seed|.*\b(log|logger|logging)\.(debug|info|warn|warning|error|exception|critical|success)"
)
"""Functions that change nothing of a configuration."""


def items(value: Any) -> list[Any] | None:
    """What a loop goes through; None where that is not known."""
    if isinstance(value, list | tuple) and any(isinstance(part, Unknown) and part.many for part in value):
        return None
    return list(value) if isinstance(value, list | tuple | set | dict | str) else None


def words_of(value: Any) -> dict[str, Any]:
    """What ``**`` makes of a value; of one that is not known, a word that stands for all."""
    if isinstance(value, dict):
        return {str(key): part for key, part in value.items()}
    return {"**": value if isinstance(value, Unknown) else Unknown("keywords that are not known")}


def put(owner: Any, key: Any, value: Any) -> None:
    """``owner[key] = value``; a key that is not known may be any."""
    if isinstance(owner, ProgramObject):
        owner.fields[str(key) if plain(key) else "**"] = value
    elif isinstance(owner, dict) and isinstance(key, str | int | float | tuple | bool | None) and plain(key):
        owner[key] = value
    elif isinstance(owner, dict) and isinstance(key, Named):
        owner[key.name] = value
    elif isinstance(owner, dict):
        owner.update(dict.fromkeys(owner, Unknown("a key that is not known was set")))
        owner["**"] = Unknown("a key that is not known was set")
    elif isinstance(owner, list) and isinstance(key, int) and -len(owner) <= key < len(owner):
        owner[key] = value
    elif isinstance(owner, list):
        owner[:] = [Unknown("an item that is not known was set", many=True)]


def item(owner: Any, key: Any, environment: Mapping[str, Any]) -> Any:
    """``owner[key]``."""
    if isinstance(owner, Unknown):
        return owner
    if isinstance(owner, Named) and owner.name == "os.environ" and isinstance(key, str):
        return environment.get(key, Unknown(f"${key}, which is not set (--env {key}=...)"))
    if isinstance(owner, ProgramObject):
        return owner.fields.setdefault(str(key), ProgramObject()) if plain(key) else Unknown("an item")
    if isinstance(owner, Named):  # a generic type, or an enumeration by name
        return Named(f"{owner.name}[{key}]") if isinstance(key, str) else owner
    key = key.name if isinstance(key, Named) else key
    try:
        return owner[key] if not isinstance(owner, list | tuple) or items(owner) is not None else Unknown("an item")
    except (TypeError, KeyError, IndexError):
        return Unknown(f"no item {key!s:.40}")


def cut(owner: Any, start: Any, end: Any) -> Any:
    """``owner[start:end]``."""
    bounds = [bound for bound in (start, end) if bound is not None]
    known = (
        isinstance(owner, list | tuple | str)
        and items(owner) is not None
        and all(isinstance(bound, int) for bound in bounds)
    )
    return owner[start:end] if known else Unknown("a part of what is not known")


def of_constant(bound: ConstantMethod, arguments: tuple[Any, ...], words: Mapping[str, Any]) -> Any:
    """A method of a text, a list or a mapping."""
    owner, name = bound.owner, bound.name
    if isinstance(owner, str) and name == "format":
        return _formatted(owner, arguments, words)
    try:
        if isinstance(owner, str) and name in (*TEXT_METHODS, "replace") and all(map(plain, arguments)):
            parts = items(arguments[0]) or [] if name == "join" and arguments else []
            grown = len(owner) * (1 + len(str(arguments[1]))) if name == "replace" else 0
            grown += sum(len(str(part)) + len(owner) for part in parts)
            return Unknown("a long text") if grown > MOST else getattr(owner, name)(*arguments)
        if isinstance(owner, dict) and name in ("get", "pop") and arguments:
            default = arguments[1] if len(arguments) > 1 else None
            key = arguments[0].name if isinstance(arguments[0], Named) else arguments[0]
            missing = owner.get("**", default)
            value = owner.get(key, missing) if plain(key) else Unknown("a key that is not known")
            if name == "pop" and plain(key):
                owner.pop(key, None)
            return value
        if isinstance(owner, dict) and name in ("items", "keys", "values", "copy"):
            return dict(owner) if name == "copy" else [*getattr(owner, name)()]
        if isinstance(owner, dict) and name in ("update", "setdefault"):
            if name == "setdefault":
                return owner.setdefault(arguments[0], arguments[1] if arguments[1:] else None)
            for more in (*arguments, dict(words)):
                owner.update(words_of(more) if more != {} else {})
            return None
        if isinstance(owner, list) and name in ("append", "extend", "insert", "copy", "index", "count"):
            if name in ("index", "count", "copy"):
                return Unknown(f".{name}()") if items(owner) is None else getattr(owner, name)(*arguments)
            more = items(arguments[0]) if name == "extend" else [arguments[-1]]
            if items(owner) is None or more is None or len(owner) + len(more) > MOST:
                owner[:] = [Unknown("a list of which not all is known", many=True)]
                return None
            return owner.extend(more) if name == "extend" else getattr(owner, name)(*arguments)
    except (TypeError, ValueError, IndexError, KeyError):
        return Unknown(f".{name}() of this")
    if isinstance(owner, list):
        owner[:] = [Unknown(f".{name}() of it", many=True)]
    elif isinstance(owner, dict):
        put(owner, Unknown(f".{name}() of it"), None)
    return Unknown(f".{name}()")


def _formatted(text: str, arguments: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """``"{}-{name}".format(...)`` with texts and numbers, without widths."""
    if len(text) + text.count("{") * max((len(str(part)) for part in (*arguments, *words.values())), default=0) > MOST:
        return Unknown("a long text")
    places = iter(arguments)
    values: list[str] = []
    for part in re.split(r"(\{\w*\})", text):
        if not re.fullmatch(r"\{\w*\}", part):
            values.append(part)
            continue
        value = words.get(part[1:-1]) if part != "{}" else next(places, Unknown(""))
        if not isinstance(value, str | int | float):
            return Unknown(f"{text:.40}")
        values.append(str(value))
    whole = "".join(values)
    return whole if "{" not in whole and len(whole) < MOST else Unknown(f"{text:.40}")


def built_in(environment: dict[str, Any], name: str, arguments: tuple[Any, ...], words: dict[str, Any]) -> Any:
    """What Python's own functions return; NotImplemented for others."""
    if name in _PURE:
        whole = arguments[0] if arguments else None
        if name in ("sum", "math.prod") and not (
            isinstance(whole, list | tuple) and len(whole) < 65 and all(isinstance(part, int | float) for part in whole)
        ):
            return Unknown(f"{name}()")
        if name == "round" and arguments[1:] not in ((), (0,), (1,), (2,), (3,)):
            return Unknown("round()")
        if name == "str" and not isinstance(whole, str | int | float | None):
            return Unknown("str()")
        if any(isinstance(value, list | tuple) and items(value) is None for value in arguments):
            return Unknown(f"{name}() of a list of which not all is known")
        inner = [part for value in arguments for part in (items(value) or [value])]
        known = name in _OF_RECORDS or (all(map(plain, inner)) and plain(words))
        if not known or any(isinstance(value, Unknown | ProgramObject | Named) for value in arguments):
            return next((part for part in inner if isinstance(part, Unknown)), Unknown(f"{name}()"))
        try:
            return _PURE[name](*arguments, **words)  # type: ignore[operator]
        except (TypeError, ValueError, ArithmeticError, OverflowError):
            return Unknown(f"{name}()")
    if name in ("sys.argv.append", "sys.argv.extend", "sys.argv.insert", "sys.argv.remove", "sys.argv.pop"):
        environment["sys.argv"] = Unknown("sys.argv, which the program changes")
        return None
    if name == "range":
        whole = all(isinstance(value, int) and abs(value) <= MOST for value in arguments) and 0 < len(arguments) < 4
        return [*range(*arguments)] if whole and arguments[2:] != (0,) else Unknown("range()")
    if name == "dict":
        return {**(words_of(arguments[0]) if arguments else {}), **words}
    if name.endswith("get_world_size") and not arguments:
        ranks = environment.get("WORLD_SIZE", "")
        return int(ranks) if ranks.isdecimal() else Unknown("the number of ranks, --env WORLD_SIZE=...")
    if name in ("os.environ.setdefault", "os.environ.update", "os.environ.pop"):
        return of_constant(ConstantMethod(environment, name.rpartition(".")[2]), arguments, words)
    if name == "vars" and arguments and isinstance(arguments[0], ProgramObject):
        return arguments[0].fields
    if name in ("os.environ.get", "os.getenv"):
        default = arguments[1] if len(arguments) > 1 else words.get("default")
        return environment.get(str(arguments[0]), default) if arguments else default
    if name in ("hasattr", "getattr", "setattr", "isinstance") and len(arguments) > 1:
        return _reflected(name, *arguments[:3])
    if name in ("cast", "typing.cast") and len(arguments) == 2:
        return arguments[1]
    if name in ("copy.deepcopy", "deepcopy") and arguments:
        return copied(arguments[0], {})
    if name == "copy.copy" and arguments and isinstance(arguments[0], ProgramObject | list | dict):
        return _shallow(arguments[0])
    if name in ("replace", "dataclasses.replace") and arguments and isinstance(arguments[0], ProgramObject):
        made = _shallow(arguments[0])
        made.fields |= words
        return made
    if _CONFIGS.fullmatch(name) and arguments:
        return _configured(name, arguments, words)
    if name in ("logging.getLogger", "logging.getLoggerClass"):
        return Named("logging.logger")
    if _UNPICKY.fullmatch(name):
        return Unknown(f"{name}()")
    if name in ("super",):
        return Unknown("super()")
    return NotImplemented


def _configured(name: str, arguments: tuple[Any, ...], words: dict[str, Any]) -> Any:
    """``run.Config(llm.Llama3Config8B, seq_length=8192)``: a record of what it makes."""
    what, *rest = arguments
    if isinstance(what, ProgramFunction) and name.endswith("partial"):
        return ProgramFunction(
            what.node, what.scope, what.defaults, (*what.arguments, *rest), {**what.words, **words}, what.kind
        )
    fields = {**{str(place): value for place, value in enumerate(rest)}, **words}
    if isinstance(what, ProgramClass):
        return ProgramObject(what.extends or what.name, {**what.fields, **fields}, methods=what.methods)
    if isinstance(what, Named | ProgramFunction):
        return ProgramObject(what.name, fields)
    return ProgramObject(name, fields, [what.why if isinstance(what, Unknown) else name])


def _reflected(name: str, owner: Any, key: Any, value: Any = None) -> Any:
    if name == "setattr":
        put(owner, key, value)
        return None
    if isinstance(owner, ProgramObject) and isinstance(key, str):
        is_set = key in owner.fields
        if name == "hasattr":
            return True if is_set else Unknown(f"whether there is {key}")
        return owner.fields[key] if is_set and name == "getattr" else Unknown(f"the attribute {key}")
    if name == "isinstance" and (plain(owner) or (isinstance(owner, ProgramObject) and owner.type)):
        names = [part.name for part in (items(key) or [key]) if isinstance(part, Named)]
        if plain(owner) or all(part in _TYPES for part in names):
            return type(owner).__name__ in names
    return Unknown(f"{name}()")


def _shallow(value: Any) -> Any:
    """A copy whose parts are the same."""
    if isinstance(value, ProgramObject):
        return ProgramObject(value.type, dict(value.fields), [*value.changed_by], value.methods)
    return value.copy()


def copied(value: Any, known: dict[int, Any]) -> Any:
    """A copy of a value, its objects copied too, each once (`known`)."""
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, ProgramObject):
        made = known[id(value)] = ProgramObject(value.type, {}, [*value.changed_by], value.methods)
        made.fields |= {name: copied(part, known) for name, part in value.fields.items()}
        return made
    if isinstance(value, list):
        parts: list[Any] = known.setdefault(id(value), [])
        parts += [copied(part, known) for part in value]
        return parts
    if isinstance(value, tuple):
        return tuple(copied(part, known) for part in value)
    if isinstance(value, dict):
        pairs: dict[Any, Any] = known.setdefault(id(value), {})
        pairs |= {key: copied(part, known) for key, part in value.items()}
        return pairs
    return value
