"""Files of ``planner/`` that spell each option axis, and the median: what it costs to know of an axis.

``python -m benchmarks.axes_spelt`` counts as ``grep -rlw AXIS planner`` does, Python apart from launchers' tables.
Words that are also something else (precision, recompute, zero, offload, schedule, sequence_parallel) are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

from planner.axes import OPTION_AXES

PLANNER = Path(__file__).resolve().parent.parent / "planner"
COMMON_WORDS = ("precision", "recompute", "sequence_parallel", "zero", "offload", "schedule")


def files_with(word: str, suffix: str) -> int:
    """Files of a kind in which a word stands by itself."""
    whole = re.compile(rf"\b{word}\b")
    return sum(bool(whole.search(path.read_text(encoding="utf-8"))) for path in PLANNER.rglob(f"*{suffix}"))


def main() -> None:
    """Prints a line for each axis, and the median."""
    names = [axis.name for axis in OPTION_AXES if axis.name not in COMMON_WORDS]
    counts = {name: (files_with(name, ".py"), files_with(name, ".toml")) for name in names}
    for name, (python, tables) in counts.items():
        print(f"{name:20} {python:3} files of Python, {tables:2} tables")
    print(f"median of {len(names)}: {median(python for python, _ in counts.values()):g} files of Python, "
          f"{median(sum(pair) for pair in counts.values()):g} with tables")  # fmt: skip


if __name__ == "__main__":
    main()
