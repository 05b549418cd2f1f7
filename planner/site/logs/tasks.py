"""What a log says is trained: a model from the beginning, adapters, by preferences, by rewards (``tasks.toml``)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["task"]
RANKS = {task["cell"]: rank for rank, task in enumerate(_TABLE)}
"""Task -> its place: of several that a log names, the first is what was trained."""
_LINES: list[tuple[str, re.Pattern[str], str]] = [
    (line["word"], re.compile(line["line"]), task["cell"]) for task in _TABLE for line in task["lines"]
]


def named(line: str, known: str = "") -> str:
    """The task that a line names, where it stands before the one that is known; else that one."""
    rank = RANKS.get(known, len(RANKS))
    for word, pattern, task in _LINES:
        if RANKS[task] >= rank:
            break
        if word in line and pattern.search(line):
            return task
    return known
