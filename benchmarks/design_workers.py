"""What every point of a study costs, against their number and the workers that share them.

CPU seconds of all processes together, and seconds on the clock, which say little where other work shares the cores:
`shared` is the CPU time of one process over that of all workers, the most that they can gain for each of them.

    python benchmarks/design_workers.py [--json] [--tiny]
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure
from benchmarks.design_search import STUDIES, study
from planner import catalog as catalogs
from planner.study import run

VALUES = {"100": (2, 2, 2, 2, 3), "1,000": (4, 4, 4, 4, 2), "10,000": (6, 6, 6, 6, 3)}
"""Values of the five figures, for each order of magnitude; times three pods."""
WORKERS = (1, 2)


def measured(values: Sequence[int], workers: int) -> dict[str, Any]:
    """One enumeration of the study of two workloads, in joules a token."""
    given = STUDIES[2]
    axes = dict(given["axes"])
    figures = [path for path in axes if path != "node.accelerators"]
    axes |= {path: {**axes[path], "points": n} for path, n in zip(figures, values, strict=True)}
    asked = study({**given, "axes": axes}, tiny=False)
    before, started = _cpu(), time.perf_counter()
    how = run.How(way="enumerated", workers=workers, explained=False)
    found = run.design(catalogs.load(), asked, how)
    return {
        "points": len(found.trials),
        "workers": workers,
        "cpu_s": round(_cpu() - before, 1),
        "wall_s": round(time.perf_counter() - started, 1),
    }


def _cpu() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints what was found."""
    options = measure.arguments(__doc__, argv)
    sizes = [(2, 2, 2, 2, 2)] if options.tiny else list(VALUES.values())
    rows: list[dict[str, Any]] = []
    for values in sizes:
        alone, *more = (measured(values, workers) for workers in WORKERS)
        rows += [{**row, "shared": round(alone["cpu_s"] / row["cpu_s"], 2)} for row in (alone, *more)]
    measure.show({"rows": rows, "machine": measure.machine(), "load": round(os.getloadavg()[0], 1)}, rows, options.json)


if __name__ == "__main__":
    main()
