"""Words of a script with its variables put in; what only a shell knows stays as it is written."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.base.errors import WrongQuestion
from planner.launchers.reading.shell import counts
from planner.launchers.reading.shell.lexing import skip, word_end

Value = str | tuple[str, ...]
LARGEST = 1_000_000
"""Characters of a word with its variables put in: those of a variable may name others again and again."""
MOST_DIGITS = 18
_PARAMETER = re.compile(r"(?P<name>[A-Za-z_]\w*|[0-9]{1,3}|[@*#?])(?P<index>\[[^]]*\])?(?P<rest>.*)", re.DOTALL)
_DEFAULT = re.compile(r"(?P<colon>:?)(?P<kind>[-=+])(?P<word>.*)", re.DOTALL)
_INNER = r"\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)"
_WORDS = re.compile(rf"(?:\${_INNER}|`[^`]*`|\S)+")
"""Words of a value: what it leaves to another command is one, with its blanks."""
_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    ast.Mod: lambda a, b: a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
}
"""As a shell computes with whole numbers: division goes towards zero."""


@dataclass(slots=True)
class Expander:
    """Puts variables into words.

    Attributes:
        values: What the script has set.
        unset: What stands for a plain variable that it has not; None leaves the variable as it is written.
        defaults: Filled with the variables that the script leaves to others, and the default that was taken.
    """

    values: Mapping[str, Value]
    unset: str | None = None
    defaults: dict[str, str] = field(default_factory=dict)

    def text(self, raw: str) -> str:
        """A word as one text, as an assignment takes it."""
        return " ".join(self.fields(raw, split=False))

    def fields(self, raw: str, *, split: bool = True) -> list[str]:
        """A word as the words that a command gets; none where it is an empty variable.

        Raises:
            WrongQuestion: more than a million characters.
        """
        found: list[str] = []
        current: str | None = None
        at = 0
        for piece, quoted, many in self._pieces(raw, 0):
            at += sum(map(len, piece))
            if at > LARGEST:
                raise WrongQuestion("not a command: its variables make more than a million characters")
            whole = [*piece] if many or quoted or not split else _split(piece[0])
            for number, part in enumerate(whole):
                if number:
                    found += [current or ""]
                    current = None
                if quoted or part or not split:
                    current = (current or "") + part
        return found if current is None else [*found, current]

    def _pieces(self, raw: str, depth: int) -> list[tuple[tuple[str, ...], bool, bool]]:
        """(texts, whether they are kept whole, whether they are several words) of a word, from left to right."""
        found: list[tuple[tuple[str, ...], bool, bool]] = []
        at = 0
        while at < len(raw):
            end = skip(raw, at, depth)
            part = raw[at:end]
            if part[0] == "'":
                found.append(((part[1:-1],), True, False))
            elif part[0] == '"':
                found += self._quoted(part[1:-1], depth)
            elif part[0] == "\\":
                found.append(((part[1:],), True, False))
            elif part[0] == "$":
                end, texts, many = self._variable(raw, at, depth)
                if many:
                    found.append((tuple(word for text in texts for word in text.split()), False, True))
                else:
                    found.append((texts or ("",), texts == (raw[at:end],), False))
            else:
                found.append(((part,), True, False))
            at = end
        return found

    def _quoted(self, text: str, depth: int) -> list[tuple[tuple[str, ...], bool, bool]]:
        """What stands between double quotes; an array in them is a word for each of its elements."""
        found: list[tuple[tuple[str, ...], bool, bool]] = [(("",), True, False)]
        at = 0
        while at < len(text):
            piece: tuple[tuple[str, ...], bool, bool]
            if text.startswith("\\\n", at):
                piece = (("",), True, False)
                at += 2
            elif text[at] == "\\" and text[at + 1 : at + 2] in ("$", '"', "\\", "`"):
                piece, at = ((text[at + 1],), True, False), at + 2
            elif text[at] in "$`":
                end, texts, many = self._variable(text, at, depth)
                if many and not texts and text == text[at:end]:
                    return []
                piece, at = (texts or ("",), True, many), end
            else:
                end = next((i for i in range(at + 1, len(text)) if text[i] in "\\$`"), len(text))
                piece, at = ((text[at:end],), True, False), end
            found.append(piece)
        return found

    def _variable(self, text: str, at: int, depth: int) -> tuple[int, tuple[str, ...], bool]:
        """(end, values, whether they are several words) of the variable at a position; itself where it is not known."""
        if bare := re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?])").match(text, at):
            return bare.end(), *self._value(bare[1], "", bare.group())
        end = skip(text, at, depth)
        raw = text[at:end]
        if raw.startswith("$((") and raw.endswith("))"):
            return end, (self._computed(raw),), False
        if summed := re.fullmatch(r"\$\(\s*expr\s+(.*)\)", raw, re.DOTALL):
            return end, (self._computed(f"$(({summed[1].replace(chr(92), '')}))", raw),), False
        if raw.startswith("${") and (found := _PARAMETER.fullmatch(raw[2:-1])):
            if found["rest"]:
                return end, *self._defaulted(found, raw, depth)
            return end, *self._value(found["name"], found["index"] or "", raw)
        if raw.startswith(("$(", "`")):
            words = counts.listed(raw)
            number = counts.counted(raw, words and self.text(words), self.values, self.defaults)
            return end, (raw if number is None else number,), False
        return end, (raw,), False

    def _value(self, name: str, index: str, raw: str) -> tuple[tuple[str, ...], bool]:
        value = self.values.get(name)
        if index in ("[@]", "[*]") or name in "@*":
            if value is None:
                return (raw,), False
            words = value if isinstance(value, tuple) else (value,)
            several = index == "[@]" or name == "@"
            return (words if several else (" ".join(words),)), several
        if value is None:
            return (raw if self.unset is None or name.isdigit() else self.unset,), False
        if isinstance(value, str):
            return (value,) if not index else (raw,), False
        if not value:
            return ("",), False
        place = index[1:-1] or "0"
        return ((value[int(place)] if place.isdigit() and int(place) < len(value) else raw),), False

    def _defaulted(self, found: re.Match[str], raw: str, depth: int) -> tuple[tuple[str, ...], bool]:
        """``${X:-y}``, ``${X:=y}`` and ``${X:+y}``; other forms stay as they are."""
        default = _DEFAULT.fullmatch(found["rest"])
        if default is None:
            return (raw,), False
        value = self.values.get(found["name"])
        empty = value is None or (default["colon"] and (value == () or (isinstance(value, str) and not given(value))))
        if default["kind"] == "+":
            return ("",) if empty else (self._inner(default["word"]),), False
        if not empty:
            return self._value(found["name"], found["index"] or "", raw)
        word = self._inner(default["word"])
        self.defaults.setdefault(found["name"], word)
        return (word,), False

    def _inner(self, word: str) -> str:
        """The word of a default: blanks in it are its own."""
        parts, at = [], 0
        while at < len(word):
            if word[at] in " \t\n;|&()<>":
                parts.append(word[at])
                at += 1
            else:
                end = word_end(word, at)
                parts.append(self.text(word[at:end]))
                at = end
        return "".join(parts)

    def _computed(self, raw: str, left: str | None = None) -> str:
        """``$(( ... ))``; where a variable in it is not known itself, or what it is `left` as."""
        plain = Expander(self.values, self.unset, self.defaults)

        def put(found: re.Match[str]) -> str:
            value = plain._value(found.group(), "", "?")[0]
            return value[0] if value and value[0].strip() else "?"

        inner = plain.text(f'"{raw[3:-2]}"')
        text = re.sub(r"[A-Za-z_]\w*", put, inner) if not re.search(r"\$", inner) else "?"
        number = computed(text)
        return (left or raw) if number is None else str(number)


def computed(text: str) -> int | None:
    """A sum of whole numbers as a shell computes it; None where it is none."""
    if not re.fullmatch(rf"(?:\d{{1,{MOST_DIGITS}}}|[-+*/%()\s])+", text) or "**" in text or len(text) > 500:
        return None
    try:
        return _sum(ast.parse(re.sub(r"\b0+(?=\d)", "", text.strip().replace("/", "//")), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _sum(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_sum(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_sum(node.left), _sum(node.right))
    raise ValueError(ast.dump(node))


def _split(text: str) -> list[str]:
    """A value as an unquoted variable gives it: blanks at an end separate it from what is written there."""
    words = _WORDS.findall(text) if "$(" in text or "`" in text else text.split()
    if not words:
        return ["", ""] if text else [""]
    return [*([""] if text[0].isspace() else []), *words, *([""] if text[-1].isspace() else [])]


def given(text: str) -> str:
    """A text without the arguments (``$1``) that the script is started without."""
    return re.sub(r"\$(\d|\{\d\})", "", text)


def open_variable(word: str) -> bool:
    """Whether something in a word is left to the shell."""
    return bool(re.search(r"\$[A-Za-z_{(0-9@*#?]|`", word))


def holds_options(word: str) -> bool:
    """Whether a word is a variable, not set in the script, that by its name holds options."""
    return bool(re.fullmatch(r"\$\{?\w*(ARGS|ARGUMENTS|OPTIONS|OPTS|FLAGS|CONFIG)\w*(\[[@*]\])?\}?", word))
