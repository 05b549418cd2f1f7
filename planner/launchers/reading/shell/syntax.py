"""Tokens of a shell script as statements: commands, branches, loops, functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from planner.base.errors import WrongQuestion
from planner.launchers.reading.shell.lexing import Token, tokens

DEEPEST = 40
"""Branches and loops inside each other."""


@dataclass(frozen=True, slots=True)
class Command:
    """Words as written; what stands in a here-document behind them."""

    words: tuple[str, ...]
    document: str | None = None
    literal: bool = False
    """Whether the here-document's variables stay as they are."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The first part whose condition holds is run; a condition of None always does."""

    parts: tuple[tuple[Body | None, Body], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """The first part is run that has a pattern of the word."""

    word: str
    parts: tuple[tuple[tuple[str, ...], Body], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """``for name in words``, or ``while condition`` (name and words None)."""

    body: Body
    name: str | None = None
    words: tuple[str, ...] = ()
    condition: Body = ()
    until: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A body under a name."""

    name: str
    body: Body


@dataclass(frozen=True, slots=True)
class Subshell:
    """A body whose variables are gone behind it."""

    body: Body


Statement = Command | Branch | Case | Loop | Function | Subshell
Body = tuple[Statement, ...]
ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<more>\+?)=(?P<value>.*)", re.DOTALL)


def parsed(text: str) -> Body:
    """Statements of a script.

    Raises:
        WrongQuestion: it cannot be a script.
    """
    reader = _Reader([*tokens(text)])
    body = reader.body(())
    if reader.left():
        raise WrongQuestion(f"not a command: {reader.peek().text!r:.20} has no beginning")
    return body


class _Reader:
    """Position in the tokens; every method returns what begins there and moves behind it."""

    def __init__(self, found: list[Token]) -> None:
        self.tokens, self.at, self.depth = found, 0, 0

    def left(self) -> bool:
        return self.at < len(self.tokens)

    def peek(self) -> Token:
        return self.tokens[self.at] if self.left() else Token("end", "")

    def take(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def blanks(self) -> None:
        while self.peek().kind.endswith("heredoc") or (self.peek().kind, self.peek().text) == ("operator", "\n"):
            self.at += 1

    def expect(self, *texts: str) -> str:
        self.blanks()
        if self.peek().text not in texts:
            raise WrongQuestion(f"not a command: {' or '.join(texts)} is missing before {self.peek().text!r:.20}")
        return self.take().text

    def body(self, ends: tuple[str, ...]) -> Body:
        """Statements up to a word or operator that ends them, which is not taken."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise WrongQuestion("not a command: branches nested too deeply")
        found: list[Statement] = []
        while self.left():
            token = self.peek()
            if token.text in ends and token.kind != "heredoc":
                break
            if token.kind != "word" and token.text != "(":
                if token.text in (")", ";;", ";&", ";;&"):
                    break
                self.at += 1
                continue
            found.append(self.listed())
        self.depth -= 1
        return tuple(found)

    def listed(self) -> Statement:
        """Statements joined by && and ||: each holds back the next."""
        left: Statement = self.statement()
        while self.peek().text in ("&&", "||"):
            both = self.take().text == "&&"
            self.blanks()
            if self.peek().kind != "word" and self.peek().text != "(":
                break
            right = self.statement()
            left = Branch((((left,), (right,)),)) if both else Branch((((left,), ()), (None, (right,))))
        return left

    def statement(self) -> Statement:
        token = self.peek()
        known: dict[str, Callable[[], Statement]] = {
            **{"if": self.branch, "case": self.case, "for": self.each, "select": self.each},
            **{"while": self.repeated, "until": self.repeated, "{": self.group, "(": self.group},
            "function": self.function,
        }
        if token.text in known:
            return known[token.text]()
        following = [each.text for each in self.tokens[self.at + 1 : self.at + 3]]
        return self.function() if following == ["(", ")"] else self.command()

    def command(self) -> Command:
        words = []
        while self.peek().kind == "word":
            words.append(self.take().text)
        ahead = self.at  # a here-document stands behind the end of the line
        while ahead < len(self.tokens) and not self.tokens[ahead].kind.endswith("heredoc"):
            if self.tokens[ahead].text == "\n":
                ahead += 1
                break
            ahead += 1
        if ahead < len(self.tokens) and self.tokens[ahead].kind.endswith("heredoc"):
            return Command(tuple(words), self.tokens[ahead].text, self.tokens[ahead].kind.startswith("quoted"))
        return Command(tuple(words))

    def branch(self) -> Branch:
        parts: list[tuple[Body | None, Body]] = []
        word = self.take().text
        while word != "fi":
            condition = None
            if word != "else":
                condition = self.body(("then",))
                self.expect("then")
            parts.append((condition, self.body(("elif", "else", "fi"))))
            word = self.expect("elif", "else", "fi")
        return Branch(tuple(parts))

    def case(self) -> Case:
        self.take()
        word = self.take().text
        self.expect("in")
        parts: list[tuple[tuple[str, ...], Body]] = []
        self.blanks()
        while self.peek().text != "esac":
            if not self.left():
                raise WrongQuestion("not a command: esac is missing")
            patterns = []
            while self.left() and (text := self.take().text) != ")":
                if text not in ("(", "|", "\n"):
                    patterns.append(text)
            parts.append((tuple(patterns), self.body(("esac",))))
            while self.peek().text in (";;", ";&", ";;&", "\n"):
                self.at += 1
        self.take()
        return Case(word, tuple(parts))

    def each(self) -> Loop:
        self.take()
        name, words = self.take().text, []
        if self.peek().text == "in":
            self.take()
            while self.peek().kind == "word":
                words.append(self.take().text)
        while self.peek().text in (";", "\n"):
            self.at += 1
        return Loop(self.done(), name, tuple(words))

    def repeated(self) -> Loop:
        until = self.take().text == "until"
        condition = self.body(("do",))
        return Loop(self.done(), condition=condition, until=until)

    def done(self) -> Body:
        self.expect("do")
        body = self.body(("done",))
        self.expect("done")
        return body

    def group(self) -> Statement:
        closes = {"{": "}", "(": ")"}[self.take().text]
        body = self.body((closes,))
        self.expect(closes)
        return Subshell(body) if closes == ")" else Branch(((None, body),))

    def function(self) -> Function:
        name = self.take().text
        if name == "function":
            name = self.take().text
        while self.peek().text in ("(", ")", "\n"):
            self.at += 1
        body = self.statement() if self.left() else Command(())
        return Function(name, (body,))


def assigned_names(body: Body) -> Iterator[str]:
    """Variables that the script sets somewhere: where it has not, they are empty.

    One that it makes of its own former value (``TP=$TP``) is somebody else's.
    """
    for statement in body:
        if isinstance(statement, Command):
            for word in statement.words:
                found = ASSIGNED.fullmatch(word)
                if found and not re.search(rf"\$(\{{{found['name']}\}}|{found['name']}\b)", found["value"]):
                    yield found["name"]
        elif isinstance(statement, Branch | Case):
            for test, inner in statement.parts:
                yield from assigned_names((*(test if isinstance(statement, Branch) and test else ()), *inner))
        else:
            yield from assigned_names(statement.body)


def is_check(statement: object) -> bool:
    """Whether a branch only ends a script where something is missing: it is no choice between several."""
    return isinstance(statement, Branch) and (len(statement.parts) == 1 or not statement.parts[0][1])
