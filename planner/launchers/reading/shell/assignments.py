"""What commands of a script do to its variables; what only a shell could follow is left open."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from planner.launchers.reading.shell.expansion import Expander, Value
from planner.launchers.reading.shell.lexing import tokens
from planner.launchers.reading.shell.syntax import ASSIGNED, Body, Command

Values = Mapping[str, Value]
UNSEEN = "$(:only-a-shell-knows)"
"""Value of a variable that a command sets in a way that is not followed."""
DECLARES = {"export", "declare", "local", "readonly", "typeset"}
_SET_BY_DEFAULT = re.compile(r"\"?\$\{(?P<name>[A-Za-z_]\w*):?=.*\}\"?", re.DOTALL)
_COMPUTED = re.compile(
    r"([A-Za-z_]\w*)\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|([A-Za-z_]\w*)(?:\+\+|--)|(?:\+\+|--)([A-Za-z_]\w*)"
)
_ELEMENT = re.compile(r"([A-Za-z_]\w*)\[[^]]*\]\+?=.*", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")


def placed(arguments: Sequence[str]) -> Values:
    """Variables that arguments of a script or a function are."""
    places: dict[str, Value] = {str(place): word for place, word in enumerate(arguments, 1)}
    return {**places, "@": tuple(arguments), "*": " ".join(arguments), "#": str(len(arguments))}


def assigned(found: re.Match[str], values: Values, defaults: dict[str, str]) -> Values:
    """Variables behind ``NAME=value``, ``NAME+=value`` or ``NAME=(words)``."""
    name, text = found["name"], found["value"]
    filled = Expander(values, defaults=defaults)
    value: Value
    if text.startswith("(") and text.endswith(")"):
        written = [token.text for token in tokens(text[1:-1]) if token.kind == "word"]
        value = tuple(word for raw in written for word in filled.fields(raw))
    else:
        value = filled.text(text)
    before = values.get(name, ()) if found["more"] else ()
    if isinstance(value, tuple):
        value = (*((before,) if isinstance(before, str) else before), *value)
    elif isinstance(before, str):
        value = before + value
    return {**values, name: value}


def defaulted(words: Iterable[str], values: Values, defaults: dict[str, str]) -> Values:
    """Variables behind ``: "${X:=y}"``, which sets where nothing has."""
    for word in words:
        if default := _SET_BY_DEFAULT.fullmatch(word):
            values = {**values, default["name"]: Expander(values, defaults=defaults).text(word)}
    return values


def declared(words: Iterable[str], values: Values, defaults: dict[str, str]) -> Values | None:
    """Variables behind ``export`` and its like; None where only a shell knows what it declares."""
    for word in words:
        text = Expander(values, defaults=defaults).text(word)
        if plain := ASSIGNED.fullmatch(word):
            values = assigned(plain, values, defaults)
        elif word[:1] in "$`" and "=" not in word and not _NAME.fullmatch(text):
            return None
        elif quoted := ASSIGNED.fullmatch(text):  # export "TP"=4
            values = {**values, quoted["name"]: quoted["value"]}
    return values


def unseen(raw: Sequence[str]) -> list[str]:
    """Names that a command sets in a way that is not followed: ``((N*=2))``, ``read``, ``A[1]=x`` and their like."""
    first = raw[0] if raw else ""
    if first.startswith("((") or first == "let":
        return [name for word in raw for names in _COMPUTED.findall(word) for name in names if name]
    if element := _ELEMENT.fullmatch(first):
        return [element[1]]
    if first in ("read", "mapfile", "readarray"):
        return [word for word in raw[1:] if _NAME.fullmatch(word)]
    return [raw[2].strip("\"'")] if first == "printf" and raw[1:2] == ["-v"] and raw[2:] else []


def locals_of(body: Body) -> set[str]:
    """Variables that a function keeps to itself."""
    inner = (words for statement in body for words in _commands(statement) if words[:1] in (("local",), ("declare",)))
    return {match[0] for words in inner for word in words[1:] if (match := _NAME.match(word))}


def _commands(statement: object) -> Iterable[tuple[str, ...]]:
    if isinstance(statement, Command):
        yield statement.words
    for _, inner in getattr(statement, "parts", ()):
        for part in inner:
            yield from _commands(part)
    for part in getattr(statement, "body", ()):
        yield from _commands(part)
