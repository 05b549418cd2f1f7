"""What the benchmarks share: CPU seconds, peak memory, what the machine is, and a plain table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Value = TypeVar("Value")
LOOP = compile("s = 0\nfor i in range(5_000_000): s += i * i", "loop", "exec")
"""The plain Python loop, run at module level, that tells how fast the machine is."""


def machine() -> dict[str, object]:
    """Cores, the seconds of a plain Python loop, and versions: what figures from two machines are compared by."""
    import numpy

    return {
        "cores": os.cpu_count(),
        "loop_s": round(cpu_seconds(lambda: exec(LOOP, {}))[0], 3),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
    }


def cpu_seconds(work: Callable[[], Value]) -> tuple[float, Value]:
    """CPU seconds of one call in this process, and what it returned."""
    started = time.process_time()
    value = work()
    return time.process_time() - started, value


def median_cpu_seconds(work: Callable[[], Value], runs: int = 3) -> tuple[float, Value]:
    """The median over some calls, and what the last one returned."""
    taken = [cpu_seconds(work) for _ in range(runs)]
    return statistics.median(seconds for seconds, _ in taken), taken[-1][1]


def peak_bytes(work: Callable[[], object]) -> int:
    """Most bytes allocated at a time during one call, beyond what was there before (numpy's arrays included)."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def parser(purpose: str | None) -> argparse.ArgumentParser:
    """The options of every benchmark; some add their own."""
    found = argparse.ArgumentParser(description=purpose)
    found.add_argument("--json", action="store_true", help="print a JSON document instead of a table")
    found.add_argument("--tiny", action="store_true", help="the same at a size that only shows that it runs")
    return found


def arguments(purpose: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    return parser(purpose).parse_args(argv)


def show(document: Mapping[str, Any], rows: Sequence[Mapping[str, object]], as_json: bool) -> None:
    """Prints the document, or its rows as a table below a line about the machine."""
    if as_json:
        print(json.dumps(document, indent=1))
        return
    print(", ".join(f"{name} {value}" for name, value in document["machine"].items()), end="\n\n")
    print(table(rows))


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Records as aligned text, one a line, below the names of their fields."""
    cells = [list(rows[0]), *[[_cell(value) for value in row.values()] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        [
            text.rjust(width) if i else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in cells
    ]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
