"""Messages in Python's words: keywords in place of flags, functions in place of commands."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

_FLAG = re.compile(
    r"clusterwright (?P<command>[a-z][^;)`\n]*)|"
    r"--(?P<name>[a-z]+(?:-[a-z]+)*)"
    r"(?:[ =](?P<value>'[^']*'|\d[\d.,]* %|(?:[^\s;,()]|,(?=\S))*[^\s;,():.](?=:\s|[;,)]|[:.]?$)"
    r"|(?=\S*(?:[A-Z0-9$=/@]|\.\S))[^\s;,()]*[^\s;,().]))?",
    re.MULTILINE,
)
"""A command to type, or a flag with what looks like its value: quoted, before punctuation, or no plain word."""
_VERBOSE = re.compile(r"(?<!\S)-v\b")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_WORD = re.compile(r"'[^']*'|\S+")
_ARGUMENT = re.compile(r".*[A-Z0-9$./=@'].*")
"""What is no plain word is an argument; the sentence goes on at the first that is."""
_LISTS = {
    "models list": "list_models()",
    "catalog list nodes": "list_nodes()",
    "catalog list accelerators": "list_accelerators()",
    "catalog list fabrics": "list_fabrics()",
    "catalog list regions": "list_regions()",
    "catalog list runtimes": "list_runtimes()",
    "catalog list": "list_accelerators()",
    "export --to list": "list_targets()",
}
_FUNCTIONS = ("plan", "estimate", "procure", "design", "explain", "compare", "export", "learn", "validate")
"""Commands that are functions of the same name; the others have none, and are said to be typed in a shell."""


def in_keywords(message: str, switches: Container[str] = ()) -> str:
    """A message with keywords and functions in place of flags and commands; `switches` are those that are on or off.

    >>> in_keywords("--cluster dgx-h100: how many? Write dgx-h100:16")
    "cluster='dgx-h100': how many? Write dgx-h100:16"
    >>> in_keywords("--accelerators A100:8 takes what is usual")
    "accelerators='A100:8' takes what is usual"
    >>> in_keywords("try --batch 18. Or so; or another --seq 8k.")
    "try batch=18. Or so; or another seq='8k'."
    >>> in_keywords("give one (--price '$2.10/h' per accelerator) or another --basis, or ask for less (--seq 4096)")
    "give one (price='$2.10/h' per accelerator) or another basis, or ask for less (seq=4096)"
    >>> in_keywords("choose another (-o DIR), or --force to replace it", {"force"})
    'choose another (output=DIR), or force=True to replace it'
    >>> in_keywords("no such node (clusterwright catalog list nodes); it has none (clusterwright plan ... --top 4)")
    'no such node (list_nodes()); it has none (plan(..., top=4))'
    >>> in_keywords("measure some (clusterwright comm tune -o table.csv)")
    'measure some (in a shell: clusterwright comm tune -o table.csv)'
    """
    worded = _FLAG.sub(lambda found: _reworded(found, switches), message).replace("-o DIR", "output=DIR")
    return _VERBOSE.sub("verbose=True", worded)


def _reworded(found: re.Match[str], switches: Container[str]) -> str:
    if found["command"] is not None:
        return _called(found["command"])
    name, value = found["name"].replace("-", "_"), found["value"]
    if value is None:
        return f"{name}=True" if name in switches else name
    return f"{name}={_literal(value)}"


def _literal(value: str) -> str:
    return value if value[0] == "'" or _NUMBER.fullmatch(value) else repr(value)


def _called(command: str) -> str:
    """A command as the function that does the same, with the prose that follows it."""
    for listing, function in _LISTS.items():
        if command.startswith(listing):
            return function + command[len(listing) :]
    name, _, rest = command.partition(" ")
    if name not in _FUNCTIONS:
        return f"in a shell: clusterwright {command}"
    words = [word[0] for word in _WORD.finditer(rest)]
    written = ".to_json()" if "-o" in words else ""
    arguments = [each for each in _arguments(words) if each != "json=..."]
    return f"{name}({', '.join(arguments)}){written}{''.join(f' {word}' for word in words)}"


def _arguments(words: list[str]) -> Iterator[str]:
    """The arguments that a command's words begin with; they are taken out of the list."""
    while words:
        word = words[0]
        if not (word.startswith("-") or word == ">" or _ARGUMENT.fullmatch(word)):
            return
        words.pop(0)
        value = words.pop(0) if word[0] in "->" and words and _ARGUMENT.fullmatch(words[0]) else "..."
        if word.startswith("--"):
            yield f"{word[2:].replace('-', '_')}={value if value == '...' else _literal(value)}"
        elif word not in ("-o", ">"):
            yield word if word == "..." or word.isupper() else _literal(word)
