"""A shell script as the commands that it may start: its own variables put in, nothing ever run.

Where a branch hangs on what only a shell knows, both ways are followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.launchers.reading.shell import assignments, conditions, counts, slurm_variables, sourced, syntax
from planner.launchers.reading.shell.expansion import Expander, Value
from planner.launchers.reading.shell.lexing import pasted
from planner.launchers.reading.shell.syntax import Body, Branch, Case, Command, Function, Loop, Statement, Subshell

Words = tuple[str, ...]
MOST_WAYS = 64  # through a script's branches
MOST_STEPS = 50_000  # statements on all of them: loops and functions may repeat
DEEPEST = 20  # functions and scripts inside a script
_PASTED = re.compile(r"\s*(--\w|[^\s=]+\.py\s)")
"""Beginning of a text that is options alone, or a program with them."""
_MEANS = re.compile(r"--|-m$|.*\.(ya?ml|py)$")
_INNER = {"bash", "sh", "sbatch", "srun", "qsub"}  # run a here-document; of the first two -c is a script


class Branches(WrongQuestion):
    """A script whose branches leave open what it starts."""


@dataclass(frozen=True, slots=True)
class Script:
    """What a script may start.

    Attributes:
        ways: Commands with options, as their words, one tuple for every way through the branches.
        defaults: Variables that it leaves to others, and its own default for each.
        unread: Files that it would read in its midst.
        ignored: Options, without dashes, that whoever asks leaves out.
        folder: Where files are that its commands name.
        files: Those that stand for what it names.
        went_on: Whether it was read on behind a check of what it is started with, which ended it.
        documents: Texts that it writes: here-documents, and JSON files that commands name where it was run.
    """

    ways: tuple[tuple[Words, ...], ...]
    defaults: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    folder: Path = Path()
    files: tuple[Path, ...] = ()
    went_on: bool = False
    documents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Way:
    """A way through the branches so far."""

    values: Mapping[str, Value]
    commands: tuple[Words, ...] = ()
    ended: str = ""  # by what: exit, break, continue


def script(
    text: str,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Script:
    """Commands of a text: a script, or one command.

    Args:
        text: A shell script, or a command line as a log or a page shows it.
        arguments: What the script is started with; where there are none, ``$1`` is not known.
        environment: Variables that are set before it starts.
        folder: Where it lies, with files that it sources; None: they are not read.

    Raises:
        WrongQuestion: no script, or one that grows without end.
    """
    if _PASTED.match(text):
        return Script(((pasted(text),),))
    reader = _Reader(folder)
    asked = {**counts.of_slurm(environment or {}), **slurm_variables.asked_of_slurm(text)}
    environment = {**asked, **(environment or {})}
    reader.defaults |= {name: value for name, value in asked.items() if re.search(rf"\$\{{?{name}\b", text)}
    body = syntax.parsed(text)
    unset: dict[str, Value] = dict.fromkeys(syntax.assigned_names(body), ())
    begun = [_Way({**unset, **environment, **assignments.placed(arguments)})]
    ways = reader.run(body, begun, 0)
    if went_on := not any(way.commands for way in ways):
        reader.forgiving = True
        ways = reader.run(body, begun, 0)
    commands = tuple(dict.fromkeys(way.commands for way in ways))
    return Script(commands, reader.defaults, tuple(reader.unread), documents=tuple(reader.documents), went_on=went_on)


class _Reader:
    """What is common to all ways: functions, defaults taken, files not read, texts written."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.functions: dict[str, Body] = {}
        self.defaults: dict[str, str] = {}
        self.unread: dict[str, None] = {}
        self.documents: dict[str, None] = {}
        self.steps = 0
        self.forgiving = False

    def run(self, body: Body, ways: Sequence[_Way], depth: int, *over: str) -> list[_Way]:
        """The ways behind some statements; what has ended by one of the words `over` goes on behind them."""
        if depth > DEEPEST:
            raise WrongQuestion("not a command: a function or a script that starts itself")
        for statement in body:
            self.steps += len(ways)
            ways = _distinct(after for way in ways for after in self.step(statement, way, depth))
            if len(ways) > MOST_WAYS or self.steps > MOST_STEPS:
                raise Branches("too many branches to follow; --run-script runs the script in a sandbox instead")
        return [replace(way, ended="") if way.ended in over else way for way in ways]

    def step(self, statement: Statement, way: _Way, depth: int) -> Iterable[_Way]:
        if way.ended:
            return [way]
        if isinstance(statement, Command):
            return self.command(statement, way, depth)
        if isinstance(statement, Function):
            if depth and self.functions.get(statement.name, statement.body) != statement.body:
                raise WrongQuestion(f"{statement.name}: a function that branches define otherwise; keep one of them")
            self.functions[statement.name] = statement.body
            return [way]
        if isinstance(statement, Subshell):
            inside = self.run(statement.body, [way], depth + 1)
            return [replace(after, values=way.values, ended="") for after in inside]
        if isinstance(statement, Loop):
            return self.loop(statement, way, depth)
        return self.branched(statement, statement.parts, way, depth)

    def branched(
        self, statement: Branch | Case, parts: Sequence[tuple[object, Body]], way: _Way, depth: int
    ) -> list[_Way]:
        """The ways through the parts of a branch, from the first that may hold."""
        if not parts:
            return [way]
        (test, body), *rest = parts
        found: list[_Way] = []
        checks = isinstance(statement, Branch) and isinstance(test, tuple)
        tested = self.run(test, [way], depth + 1) if checks else [way]  # type: ignore[arg-type]
        for each in tested:
            known = self.holds(test, statement, each, depth)
            if known is not False:
                asks, self.forgiving = self.forgiving, self.forgiving and syntax.is_check(statement)
                found += self.run(body, [each], depth + 1)
                self.forgiving = asks
            if known is not True:
                found += self.branched(statement, rest, each, depth)
        return found

    def holds(self, test: object, statement: Branch | Case, way: _Way, depth: int) -> bool | None:
        """Whether a part of a branch is run; None where only a shell knows."""
        if way.ended:
            return None
        if isinstance(statement, Case):
            patterns = [str(pattern) for pattern in test] if isinstance(test, tuple) else []
            return conditions.matches(statement.word, patterns, way.values, self.defaults)
        return self.condition(test, way, depth) if isinstance(test, tuple) else True

    def condition(self, body: Body, way: _Way, depth: int) -> bool | None:
        if len(body) == 1 and isinstance(body[0], Command):
            return conditions.holds(body[0].words, way.values, self.defaults)
        if len(body) == 1 and isinstance(body[0], Branch) and depth < DEEPEST:  # a && b, a || b
            parts = [
                (True if test is None else self.condition(test, way, depth + 1), then) for test, then in body[0].parts
            ]
            first, then = parts[0]
            if first is None:
                return None
            if first:
                return self.condition(then, way, depth + 1) if then else True
            return self.condition(parts[1][1], way, depth + 1) if len(parts) > 1 else False
        return None

    def loop(self, statement: Loop, way: _Way, depth: int) -> Iterable[_Way]:
        if statement.name is None:
            known = self.condition(statement.condition, way, depth)
            skipped = known is statement.until and known is not None
            return [way] if skipped else [way, *self.run(statement.body, [way], depth + 1, "break", "continue")]
        ways, over = [way], list[_Way]()
        for item in [word for raw in statement.words for word in self.expander(way).fields(raw)]:
            ways = [replace(after, values={**after.values, statement.name: item}) for after in ways]
            ways = self.run(statement.body, ways, depth + 1, "continue")
            over += [replace(after, ended="") for after in ways if after.ended == "break"]
            ways = [after for after in ways if after.ended != "break"]
        return [*over, *ways]

    def expander(self, way: _Way) -> Expander:
        return Expander(way.values, defaults=self.defaults)

    def command(self, statement: Command, way: _Way, depth: int) -> Iterable[_Way]:
        raw = [*statement.words]
        if raw and raw[0] == ":":
            return [replace(way, values=assignments.defaulted(raw[1:], way.values, self.defaults))]
        if raw and raw[0] in assignments.DECLARES:
            plain = [word for word in raw[1:] if not word.startswith("-")]
            declared = assignments.declared(plain, way.values, self.defaults)
            if declared is None or (raw[0] != "export" and "-n" in raw):
                raise Branches(
                    f"{' '.join(raw):.60}: only a shell knows what it sets; --run-script runs it in a sandbox"
                )
            return [replace(way, values=declared)]
        if hidden := assignments.unseen(raw):
            if raw[0] == "read" and statement.document is not None:
                return [replace(way, values={**way.values, hidden[-1]: self.document(statement, way).strip()})]
            return [replace(way, values={**way.values, **dict.fromkeys(hidden, assignments.UNSEEN)})]
        before = way
        while raw and (found := syntax.ASSIGNED.fullmatch(raw[0])):
            way = replace(way, values=assignments.assigned(found, way.values, self.defaults))
            raw = raw[1:]
        if not raw:
            return [way]
        if way is before:
            return self.started(raw, statement, way, way, depth)
        prefixed = {name for name, value in way.values.items() if before.values.get(name) is not value}
        outer = {name: before.values[name] for name in prefixed & before.values.keys()}
        inside = self.started(raw, statement, before, way, depth)  # what stands before a command is set for it alone
        return [
            replace(after, values={**{n: v for n, v in after.values.items() if n not in prefixed}, **outer})
            for after in inside
        ]

    def started(self, raw: Sequence[str], statement: Command, filled: _Way, way: _Way, depth: int) -> Iterable[_Way]:
        """The ways behind a command whose words are filled with one way's variables, and which sees another's."""
        words = [word for text in raw for word in self.expander(filled).fields(text)]
        if not words:
            return [way]
        if words[0] in ("break", "continue"):
            return [replace(way, ended=words[0])]
        if words[0] in ("exit", "return"):
            return [way if self.forgiving and depth else replace(way, ended="exit")]
        if words[0] == "unset":
            return [replace(way, values={name: value for name, value in way.values.items() if name not in words})]
        if words[0] == "cat" and statement.document is not None:
            self.documents[self.document(statement, way)] = None
        if words[0] == "sed" and (made := sourced.substituted(words, self.documents, self.folder)) is not None:
            self.documents[made] = self.documents.pop(made, None)
        if words[0] in (".", "source") and len(words) > 1:
            if (inner := sourced.text_of(words[1], self.folder)) is not None:
                return self.run(syntax.parsed(inner), [way], depth + 1)
            self.unread[words[1]] = None
            return [way]
        if (inner := self.inner(words, statement, way)) is not None:
            return self.run(syntax.parsed(inner), [way], depth + 1)
        if words[0] in self.functions:
            return self.called(words, way, depth)
        if words[0] in ("echo", "printf", "cat") or not any(map(_MEANS.match, words)):
            return [way]
        return [replace(way, commands=(*way.commands, (*slurm_variables.places(way.values), *words)))]

    def inner(self, words: Sequence[str], statement: Command, way: _Way) -> str | None:
        """The script inside a command: ``eval``, ``bash -c``, or a here-document."""
        if words[0] == "eval":
            return " ".join(words[1:])
        if words[0] == "sbatch" and (wrap := next((word for word in words if word.startswith("--wrap=")), None)):
            return wrap.partition("=")[2]
        shells = [place for place, word in enumerate(words) if word.rpartition("/")[2] in ("bash", "sh")]
        for place in shells:
            options = [at for at in range(place + 1, len(words) - 1) if words[at].startswith("-")]
            if text := next((words[at + 1] for at in options if re.fullmatch(r"-[a-z]*c", words[at])), None):
                return text
        starts = statement.document is not None and _INNER & {word.rpartition("/")[2] for word in words}
        return self.document(statement, way) if starts else None

    def document(self, statement: Command, way: _Way) -> str:
        text = statement.document or ""
        return text if statement.literal else self.expander(way).text('"' + text.replace('"', '\\"') + '"')

    def called(self, words: Sequence[str], way: _Way, depth: int) -> Iterable[_Way]:
        """A function of the script with its arguments, which are gone behind it."""
        local = assignments.locals_of(self.functions[words[0]])
        given = {**dict.fromkeys(local, ()), **assignments.placed(words[1:])}
        kept = {name: value for name, value in way.values.items() if name.isdigit() or name in "@*#" or name in local}
        outer = {name: value for name, value in way.values.items() if name not in kept or name in local}
        inside = self.run(self.functions[words[0]], [replace(way, values={**outer, **given})], depth + 1)
        return [
            replace(
                after, values={**{n: v for n, v in after.values.items() if n not in given}, **kept}, ended=way.ended
            )
            for after in inside
        ]


def _distinct(ways: Iterable[_Way]) -> list[_Way]:
    """Ways that differ; of those that have ended, what they set does not matter."""
    found: dict[object, _Way] = {}
    for way in ways:
        values = () if way.ended else tuple(sorted(way.values.items(), key=lambda item: item[0]))
        found.setdefault((values, way.commands, way.ended), way)
    return [*found.values()]
