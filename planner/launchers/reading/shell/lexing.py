"""A shell script as tokens: words with their quotes, operators, ends of lines, here-documents."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from planner.base.errors import WrongQuestion

_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;|&()\n]")
_REDIRECTION = re.compile(r"\d*(?:<<<|<<-?|<>|>>|>&|<&|>\||[<>])&?|&>>?")
_SUBSTITUTED = re.compile(r"[<>]\(")
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w .-]*>")
"""What a person is to fill in, as examples write it: ``<data path>``. No file of that name is read."""
_ARRAY = re.compile(r"[A-Za-z_]\w*(?:\[[^]\n]*\])?\+?=\(")
_COMMENTED = re.compile(r"""(?:[^'"\\\s]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\s(?!#))*(?:^|\s)#""")
"""A line up to the comment in it: none where a quote stays open."""
_CLOSES = {"(": ")", "{": "}"}
DEEPEST = 60
"""Quotes and substitutions inside each other."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word as written, an operator, or a here-document's body (``kind`` heredoc, or quoted heredoc)."""

    kind: str
    text: str


def tokens(text: str) -> Iterator[Token]:
    """Tokens of a script in order; comments and redirections to files left out.

    Raises:
        WrongQuestion: a quote or a bracket that does not end.
    """
    text = _joined(text.replace("\r\n", "\n"))
    at, waiting, tested = 0, list[tuple[str, bool]](), False
    while at < len(text):
        char = text[at]
        if char == "\n" and waiting:
            yield Token("operator", "\n")
            at += 1
            for mark, quoted in waiting:
                body, at = _document(text, at, mark)
                yield Token("quoted heredoc" if quoted else "heredoc", body)
            waiting = []
        elif char in " \t\r":
            at += 1
        elif char == "#":
            at = _line_end(text, at)
        elif not tested and _SUBSTITUTED.match(text, at):  # `<(command)`, a word
            end = _closed(text, at + 1, 0)
            yield Token("word", text[at:end])
            at = end
        elif not tested and (found := _PLACEHOLDER.match(text, at)) is None and (found := _redirection(text, at)):
            start, at = found.group().lstrip("0123456789"), found.end()
            at += len(text[at:]) - len(text[at:].lstrip(" \t"))
            end = _closed(text, at + 1, 0) if _SUBSTITUTED.match(text, at) else word_end(text, at)
            if start in ("<<", "<<-"):
                mark = text[at:end]
                waiting.append((mark.strip("'\"\\"), mark[:1] in "'\"\\"))
            at = end
        elif text.startswith("((", at):
            end = _closed(text, at, 0)
            yield Token("word", text[at:end])
            at = end
        elif not tested and (found := _OPERATOR.match(text, at)):
            yield Token("operator", found.group())
            at = found.end()
        elif tested and (found := re.compile(r"&&|\|\||[<>()!]").match(text, at)):
            yield Token("word", found.group())
            at = found.end()
        else:
            end = word_end(text, at)
            word = text[at:end]
            tested = word == "[[" or (tested and word != "]]")
            yield Token("word", word)
            at = end


def _redirection(text: str, at: int) -> re.Match[str] | None:
    """A redirection that begins here; digits count only where they begin a word."""
    return _REDIRECTION.match(text, at)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _joined(text: str) -> str:
    """Lines that a backslash continues as one; one at the end of a comment continues nothing."""
    lines = text.split("\n")
    for place, line in enumerate(lines):
        continued = place and lines[place - 1].endswith("\\")
        if not continued and _COMMENTED.match(line):
            lines[place] = line.rstrip("\\")
    return "\n".join(lines).replace("\\\n", " ")


def _document(text: str, at: int, mark: str) -> tuple[str, int]:
    """Body of a here-document, and where the script continues."""
    found = re.compile(rf"^\t*{re.escape(mark)}[ \t]*$", re.MULTILINE).search(text, at)
    return (text[at : found.start()], found.end()) if found else (text[at:], len(text))


def word_end(text: str, at: int) -> int:
    """Where the word that begins at a position ends: at the first blank or operator outside of quotes and brackets."""
    start = at
    while at < len(text):
        char = text[at]
        if char == "(" and _ARRAY.fullmatch(text, start, at + 1):
            at = _closed(text, at, 0)
        elif placeholder := _PLACEHOLDER.match(text, at):
            at = placeholder.end()
        elif char in " \t\r\n;|&()<>":
            break
        else:
            at = skip(text, at, 0)
    return max(at, start + 1)


def skip(text: str, at: int, depth: int) -> int:
    """Behind the character, the quoted string or the substitution that begins at a position.

    Raises:
        WrongQuestion: nested too deeply.
    """
    if depth > DEEPEST:
        raise WrongQuestion("not a command: quotes or substitutions nested too deeply")
    char = text[at]
    if char == "\\":
        return min(at + 2, len(text))
    if char == "'":
        end = text.find("'", at + 1)
        return _ended(end, text, at)
    if char in '"`':
        return _quoted(text, at, depth)
    if char == "$" and text[at + 1 : at + 2] in ("(", "{"):
        return _closed(text, at + 1, depth)
    return at + 1


def _quoted(text: str, at: int, depth: int) -> int:
    mark, start = text[at], at
    at += 1
    while at < len(text):
        if text[at] == mark:
            return at + 1
        inner = text[at] in "\\$" or (mark == '"' and text[at] == "`")
        at = skip(text, at, depth + 1) if inner else at + 1
    return _ended(-1, text, start)


def _closed(text: str, at: int, depth: int) -> int:
    """Behind the bracket that closes the one at a position."""
    opens, start = text[at], at
    closes = _CLOSES[opens]
    level, at = 1, at + 1
    while at < len(text):
        char = text[at]
        if char == "#" and opens == "(" and text[at - 1] in " \t\n":
            at = _line_end(text, at)
            continue
        level += (char == opens) - (char == closes)
        if not level:
            return at + 1
        at = skip(text, at, depth + 1) if char not in (opens, closes) else at + 1
    return _ended(-1, text, start)


def _ended(end: int, text: str, start: int) -> int:
    if end < 0:
        line = text.count("\n", 0, start) + 1
        raise WrongQuestion(f"not a command: {text[start]} in line {line} is not closed")
    return end + 1


def pasted(text: str) -> tuple[str, ...]:
    """Options, or a program and its options, as a log or a page shows them: no shell has a say.

    Raises:
        WrongQuestion: a quote stays open.
    """
    try:
        return tuple(shlex.split(text.replace("\\\n", " "), comments=True))
    except ValueError as error:
        raise WrongQuestion(f"not a command: {error}") from None
