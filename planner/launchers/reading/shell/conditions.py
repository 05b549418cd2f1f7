"""Tests of a script, answered from its own variables: true, false, or None where only a shell knows."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence

from planner.launchers.reading.shell.expansion import Expander, Value, computed, given, open_variable

_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
}
_JOINED: Mapping[str, bool] = {"||": True, "-o": True, "&&": False, "-a": False}
"""Word between two tests -> whether one of them is enough."""


def holds(words: Sequence[str], values: Mapping[str, Value], defaults: dict[str, str]) -> bool | None:
    """Whether a condition holds: ``[ ... ]``, ``[[ ... ]]``, ``test``, ``true`` or ``false``, words as written."""
    if not words:
        return None
    first, *rest = words
    if first == "!":
        return _not(holds(rest, values, defaults))
    if first in ("true", ":", "false"):
        return first != "false"
    if first in ("[", "[[") and rest and rest[-1] == {"[": "]", "[[": "]]"}[first]:
        return _tested(rest[:-1], values, defaults)
    return _tested(rest, values, defaults) if first == "test" else None


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _tested(words: Sequence[str], values: Mapping[str, Value], defaults: dict[str, str]) -> bool | None:
    for joins in (("||", "-o"), ("&&", "-a")):
        places = [place for place, word in enumerate(words) if word in joins and 0 < place < len(words) - 1]
        if places and "(" not in words:
            enough = _JOINED[words[places[0]]]
            parts = [_tested(words[: places[0]], values, defaults), _tested(words[places[0] + 1 :], values, defaults)]
            return enough if enough in parts else None if None in parts else not enough
    if words and words[0] == "!":
        return _not(_tested(words[1:], values, defaults))
    if len(words) == 1:
        return _tested(["-n", *words], values, defaults)
    if len(words) == 2 and words[0] in ("-n", "-z"):
        return _filled(words[1], values, defaults) is (words[0] == "-n") if _known(words[1], values, defaults) else None
    return _compared(words, values, defaults) if len(words) == 3 else None


def _known(word: str, values: Mapping[str, Value], defaults: dict[str, str]) -> bool:
    return not open_variable(given(Expander(values, "", defaults).text(word)))


def _filled(word: str, values: Mapping[str, Value], defaults: dict[str, str]) -> bool:
    """Whether a word is not empty; a variable that the script has not set is."""
    return bool(given(Expander(values, "", defaults).text(word)))


def _compared(words: Sequence[str], values: Mapping[str, Value], defaults: dict[str, str]) -> bool | None:
    filled = Expander(values, None, defaults)
    left, right = given(filled.text(words[0])), given(filled.text(words[2]))
    if open_variable(left) or open_variable(right):
        return None
    if words[1] in ("=", "==", "!="):
        same = fnmatch.fnmatchcase(left, right) if right else not left
        return same is (words[1] != "!=")
    compare = _COMPARED.get(words[1])
    numbers = computed(left), computed(right)
    return None if compare is None or None in numbers else compare(*[number or 0 for number in numbers])


def matches(word: str, patterns: Sequence[str], values: Mapping[str, Value], defaults: dict[str, str]) -> bool | None:
    """Whether a word has one of the patterns of ``case``."""
    filled = Expander(values, None, defaults)
    text, wanted = given(filled.text(word)), [filled.text(pattern) for pattern in patterns]
    if "*" in wanted:
        return True
    if open_variable(text) or any(map(open_variable, wanted)):
        return None
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in wanted)
