"""Files of a script's own folder that it reads in its midst: ``source ./a.sh``, ``sed s/STAGE/1/ template.json``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from planner.launchers.reading.shell.expansion import open_variable
from planner.models.files import read_text

LARGEST = 1_000_000
"""Bytes of a file that is read: patterns and parsers take seconds for more."""


def text_of(name: str, folder: Path | None) -> str | None:
    """The text of a file that is sourced; None where it is not there, or lies elsewhere.

    Args:
        name: As the script writes it; a beginning that only a shell knows (``$(dirname $0)/``) is the script's folder.
        folder: The script's; None: there is none.
    """
    plain = name.rpartition(")/")[2].rpartition("}/")[2] if open_variable(name) else name
    plain = plain.partition("/")[2] if plain.startswith("$") else plain
    if folder is None or not plain or open_variable(plain) or Path(plain).is_absolute():
        return None
    path = folder / plain
    inside = path.is_file() and folder.resolve() in path.resolve().parents and path.stat().st_size < LARGEST
    return read_text(path) if inside else None


def substituted(words: Sequence[str], before: Iterable[str], folder: Path | None) -> str | None:
    """What ``sed s/A/B/ template.json`` makes of a file, or without one of the last of the texts `before` it."""
    rule = re.fullmatch(r"s([/|#])(\w+)\1(.*)\1g?", words[1]) if len(words) > 1 else None
    if rule is None:
        return None
    text = text_of(words[2], folder) if len(words) > 2 else next(reversed([*before]), None)
    return None if text is None else text.replace(rule[2], rule[3])
