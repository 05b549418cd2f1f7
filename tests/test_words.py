"""What a user reads is plain English in the field's terms, and a public class name means one class.

A user reads help, reports, messages, README and docs. The banned words had a private meaning in this project or are
former labels of reports; each comes with what to write instead. Code (between backticks) may keep its names.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.sources import page_script, syntax

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = sorted((ROOT / "planner").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TRANSCRIPTS = sorted((ROOT / "tests" / "golden" / "transcripts").glob("*.txt"))

BANNED = {
    r"unlike": "heterogeneous, mixed, different",
    r"alike": "identical, the same",
    r"told": "report, state, distinguish",
    r"(?:is|are|be|was|were) had": "available",
    r"deals?|dealt|dealing": "split, distribute",
    r"beside": "in addition to, next to, with",
    r"rooms?|houses?": "package, module, level",
    r"scenes?": "subproblem",
    r"starters?": "scheduler, launcher",
    r"wants?": "require",
    r"that progress": "proceed",
    r"(?:goes|go) on": "continue",
    r"one's own": "your own, owned",
    r"node-hours of": "quantity x unit price",
    r"mends?|mended": "fix, suggested fix",
    r"10 % more": "sensitivity (+10 %)",
    r"runs out with a chance": "OOM probability",
    r"not read in any source": "unverified defaults",
    r"near-duplicates folded": "equivalent variants grouped",
    r"most progress": "best goodput",
    r"(?:may|might|would) fetch|fetches": "resale value",
    r"taken back": "preempted",
    r"exactly planned|planned exactly": "precomputed plans",
    r"buys nothing": "shadow prices are zero",
    r"images each": "per-GPU batch",
    r"model(?:ed|ing)|optimiz(?:ed?|ing)|utiliz(?:ed?|ation)|synchroniz(?:ed?|es|ing|ation)|behaviors?|neighbors?": (
        "British spelling: modelled, optimised, utilisation, synchronised, neighbour (optimizer is the field's word)"
    ),
}
"""Words as regular expressions, whole words in any case -> what to write."""
LABELS = {
    "Binds": "Bottleneck, Limited by",
    "More of": "Shadow prices",
    "Starts": "Launchers",
    "Together": "Single pools",
}
"""Former labels at the start of a report's line -> what they are now."""
SHARED_NAMES = {"Constraint": "a limit in the document of a plan (schema), and a row of a linear program (solver)"}
"""Public class names that may be defined twice -> why."""

PRIVATE_NAMES = {
    "told": "what it is (note, reason, message, chosen, ...)",
    "said": "what it is (options, stated, flags, text, ...)",
    "unsaid": "what is left to whom",
    "beside": "what it is (other_pools, traffic, temporary, ...)",
}
"""Names that say nothing of what they hold -> what to call it."""
_WORDS = {word: re.compile(rf"\b(?:{word})\b", re.IGNORECASE) for word in BANNED}
_LABELS = {label: re.compile(rf"^{label} {{2,}}\S") for label in LABELS}
_CODE = re.compile(r"`[^`]*`")


def banned(line: str) -> Iterator[str]:
    """Every banned word of a line, with what to write instead."""
    prose = _CODE.sub("``", line)
    yield from (f"{found[0]!r}: write {BANNED[word]}" for word, x in _WORDS.items() if (found := x.search(prose)))
    yield from (f"{label!r}: write {LABELS[label]}" for label, x in _LABELS.items() if x.search(line))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield f"{path.relative_to(ROOT)}:{number}", line


def _sentences(path: Path) -> Iterator[tuple[str, str]]:
    """Where and what: string literals of several words, without docstrings: messages and reports."""
    documentation = {id(node.value) for node in ast.walk(syntax(path)) if isinstance(node, ast.Expr)}
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            if " " in node.value.strip():
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def _found(texts: Iterator[tuple[str, str]]) -> list[str]:
    return [f"{where}: {problem}: {text.strip()[:80]}" for where, text in texts for problem in banned(text)]


def test_the_check_finds_words_and_labels_and_spares_code() -> None:
    assert list(banned("Unlike pools stand beside each other")) == [
        "'Unlike': write heterogeneous, mixed, different",
        "'beside': write in addition to, next to, with",
    ]
    assert list(banned("Binds     memory")) == ["'Binds': write Bottleneck, Limited by"]
    assert not list(banned("besides, `alike` still works; the constraint binds"))


def test_pages_are_plain() -> None:
    assert not _found(line for page in [*PAGES, *TRANSCRIPTS] for line in _lines(page))


def test_help_is_plain() -> None:
    assert not _found(
        (name, line) for name, text in page_script("generate").all_commands() for line in text.splitlines()
    )


def test_messages_and_reports_are_plain() -> None:
    assert not _found(sentence for path in PACKAGE for sentence in _sentences(path))


def _names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every function, class, parameter, variable and attribute that is defined."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def test_names_say_what_they_name() -> None:
    assert {name for _, name in _names(ast.parse("class A: told = 1\ndef f(said): _beside = 2"))} == {
        "A", "told", "f", "said", "_beside",
    }  # fmt: skip
    assert not [
        f"{path.relative_to(ROOT)}:{line}: {name}: write {PRIVATE_NAMES[plain]}"
        for path in PACKAGE
        for line, name in _names(syntax(path))
        if (plain := name.strip("_").lower()) in PRIVATE_NAMES
    ]


def test_a_public_class_name_means_one_class() -> None:
    defined = defaultdict(list)
    for path in PACKAGE:
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: paths for name, paths in defined.items() if len(paths) > 1 and name not in SHARED_NAMES}
    assert not twice
    assert all(len(defined[name]) > 1 for name in SHARED_NAMES), "drop what is unique again"
