"""A shell script as the words of its commands: its own variables put in, nothing ever run."""

from __future__ import annotations

import re
import shlex

from planner.base.errors import WrongQuestion

_QUOTED = r"\"(?:\\.|[^\"\\])*\"|'[^']*'"
_ASSIGNED = re.compile(
    r"(?m)^[ \t]*(?:export[ \t]+|declare[ \t]+(?:-\w+[ \t]+)?)?(?P<name>[A-Za-z_]\w*)(?P<more>\+?)="
    rf"(?P<value>\((?:[^()\"'#]|{_QUOTED}|#[^\n]*)*\)|(?:{_QUOTED}|[^\s;&|\"'()$]|\$\w+|\$\{{\w+\}})*)(?=[\s;]|$)"
)
_EVERY = re.compile(r"\"\$\{(\w+)\[[@*]\]\}\"|\$\{(\w+)\[[@*]\]\}")
_ONE = re.compile(r"\$(?:(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<default>[^{}]*))?\})")
LARGEST = 1_000_000
"""Characters of a script with its variables put in: those of a variable may name others again and again."""


def words(text: str) -> list[str]:
    """Words of a command or of a script with one, comments and line ends left out.

    ``NAME=value``, ``NAME="..."`` and ``NAME=( ... )`` stand where ``$NAME`` or ``${NAME[@]}`` is; a name that the
    script does not set is left as it is.

    Raises:
        WrongQuestion: a quote that does not end, or variables that grow without end.
    """
    known: dict[str, str] = {}

    def assign(found: re.Match[str]) -> str:
        value = found["value"]
        if value.startswith("'") and value.endswith("'"):
            value = value[1:-1]
        elif value.startswith('"') and value.endswith('"'):
            value = _put_in(value[1:-1], known)
        elif value.startswith("("):
            value = _put_in(re.sub(r"(?m)(?:^|(?<=\s))#.*$", "", value[1:-1]), known)
        else:
            value = _put_in(value, known)
        known[found["name"]] = (known.get(found["name"], "") + " " if found["more"] else "") + value
        return ""

    try:
        return shlex.split(_put_in(_ASSIGNED.sub(assign, text.replace("\\\n", " ")), known), comments=True)
    except ValueError as error:
        raise WrongQuestion(f"not a command: {error}") from None


def _put_in(text: str, known: dict[str, str]) -> str:
    def every(found: re.Match[str]) -> str:
        return known.get(found[1] or found[2], found[0])

    def one(found: re.Match[str]) -> str:
        return known.get(found["bare"] or found["braced"], found["default"] or found[0])

    made = _ONE.sub(one, _EVERY.sub(every, text))
    if len(made) > LARGEST:
        raise WrongQuestion("not a command: its variables make more than a million characters")
    return made


def open_variable(word: str) -> bool:
    """Whether something in a word is left to the shell."""
    return bool(re.search(r"\$[A-Za-z_{(]", word))


def holds_options(word: str) -> bool:
    """Whether a word is a variable, not set in the script, that by its name holds options."""
    return bool(re.fullmatch(r"\$\{?\w*(ARGS|ARGUMENTS|OPTIONS|OPTS|FLAGS|CONFIG)\w*(\[[@*]\])?\}?", word))
