"""Words that the program says, whole, in one file: ``tests/snapshots/words.toml``.

A section belongs to one test, and holds for each case the message that it must get: ``"plan x" = "no model 'x'; ..."``.
The test is a function that makes the message of one case and returns it. ``make goldens`` writes the messages of today
into the file; read the difference before you commit it. A new case is a new key with an empty message.
"""

from __future__ import annotations

import inspect
import json
import os
import tomllib
from collections.abc import Callable, Iterable
from difflib import ndiff
from functools import cache
from pathlib import Path
from typing import Any

from tests.sweeps import sweep

FILE = Path(__file__).with_name("snapshots") / "words.toml"
REGENERATE = "CLUSTERWRIGHT_REGENERATE"
"""Environment variable: write what is said today, in place of comparing with it."""


@cache
def snapshot() -> dict[str, dict[str, str]]:
    """Section -> case -> message."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def worded(section: str, cases: Iterable[str] | None = None, read: Callable[[str], Any] = str) -> Callable[..., Any]:
    """A test that every case of a section gets the message in the file, of a function that returns the message.

    The function takes the case first, which is the key in the file; its further parameters are fixtures. A path below
    ``tmp_path`` stands as ``FOLDER`` in the file.

    Args:
        section: Of the file.
        cases: What must be exactly the section's keys, where they are written down in the test as well.
        read: Makes what the function takes of a key; ``json.loads`` where a case is more than a text.
    """
    stated = snapshot().setdefault(section, {})
    names = list(stated) if cases is None else list(cases)

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        signature = inspect.signature(function)
        first = next(iter(signature.parameters))

        def compare(**given: Any) -> None:
            case = given[first]
            message = str(function(**given | {first: read(case)}))
            if "tmp_path" in given:
                message = message.replace(str(given["tmp_path"]), "FOLDER")
            if os.environ.get(REGENERATE):
                stated[case] = message
                for stale in stated.keys() - set(names):
                    del stated[stale]
                _write()
                return
            assert stated.keys() == set(names), f"[{section}] has other cases than the test; run `make goldens`"
            difference = "\n".join(ndiff(stated[case].splitlines(), message.splitlines()))
            assert message == stated[case], f"{difference}\nrun `make goldens` if this is meant"

        compare.__dict__["__signature__"] = signature
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__", "pytestmark"):
            if hasattr(function, attribute):
                setattr(compare, attribute, getattr(function, attribute))
        test: Callable[..., None] = sweep(first, names)(compare)
        return test

    return decorate


def _write() -> None:
    lines = ["# Made by `make goldens`; see tests/words.py.\n"]
    for section, messages in sorted(snapshot().items()):
        lines.append(f"\n[{_text(section)}]\n")
        lines += [f"{_text(case)} = {_text(message)}\n" for case, message in messages.items()]
    FILE.write_text("".join(lines), encoding="utf-8")


def _text(value: str) -> str:
    """A literal string where TOML allows one, for few need escapes; else a basic string."""
    plain = value.isprintable() and "'" not in value and ("\\" in value or '"' in value)
    return f"'{value}'" if plain else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
