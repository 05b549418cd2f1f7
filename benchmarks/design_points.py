"""What a point of a study takes, and what the estimate says of it by which a study is enumerated, bounded or sampled.

Of the studies that ship, of one with many layouts and of four with few, chunks of points are evaluated as an
enumeration does. To their CPU seconds three are fitted, by least squares of relative errors: of a workload at a point,
of a layout that is searched, of a layout of a chunk's spaces: planner/study/program/evaluation.py has them, rounded.
`--write` keeps the figures in benchmarks/data, from which docs/design-studies.md is made (`make docs`).

    python benchmarks/design_points.py [--json] [--tiny] [--write]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks import measure
from benchmarks.design_search import COSTS, ROOT, SHIPPED, STUDIES, figures, study
from planner import catalog as catalogs
from planner.study import run
from planner.study.program import boxes
from planner.study.program.evaluation import Evaluator
from planner.study.question import reading
from planner.study.question.study import Study

DATA = ROOT / "benchmarks" / "data" / "design_points.json"
CHUNKS = 3
"""Of a study, at the same distances: a part of its points may be over a limit and need no search."""
BOXES = 500
"""That are bounded of a study, at least (where there are so many)."""
LARGE: dict[str, Any] = {
    "name": "deepseek-v3 on 2,048, $/token",
    "objectives": ["cost"],
    "base": {"node": "dgx-h100", "count": 256},
    "workloads": [{"model": "deepseek-v3"}],
    "axes": figures(4),
    "costs": COSTS,
}


def studies(tiny: bool) -> list[Study]:
    """What is measured: those without limits, but for one that ships, as points over a limit are not searched."""
    if tiny:
        return [study(each, tiny) for each in STUDIES[3:]]
    known = catalogs.load()
    ship = [reading.read(ROOT / "examples" / "studies" / f"{name}.toml", known) for name in SHIPPED]
    return [*ship, *(study(each, tiny) for each in (LARGE, *STUDIES) if "constraints" not in each)]


def measured(asked: Study) -> dict[str, Any]:
    """CPU seconds of a study's chunks, and what was searched in them."""
    many = min(run.CHUNK, asked.size)
    starts = sorted({(asked.size - many) * (2 * n + 1) // (2 * CHUNKS) for n in range(CHUNKS)})
    rows = [_chunk(asked, [asked.point(start + n) for n in range(many)]) for start in starts]
    found = {name: sum(row[name] for row in rows) for name in rows[0]}
    fresh = Evaluator(catalogs.load(), asked)
    return {
        "study": asked.name,
        "points": asked.size,
        **found,
        "point_ms": round(1e3 * found["cpu_s"] / len(rows) / many, 2),
        "estimate_ms": round(1e3 * fresh.seconds(run.CHUNK), 2),
        **(_boxes(fresh) if boxes.able(asked) else {"box_ms": 0.0, "box_estimate_ms": 0.0}),
    }


def _boxes(evaluator: Evaluator) -> dict[str, float]:
    """Milliseconds of a box, measured on the first ones and estimated."""
    estimate = boxes.BOX_S + evaluator.seconds(boxes.IN_ONE_SPACE)
    seconds, proof = measure.cpu_seconds(lambda: boxes.search(evaluator, BOXES))
    return {"box_ms": round(1e3 * seconds / proof.evaluated, 2), "box_estimate_ms": round(1e3 * estimate, 2)}


def _chunk(asked: Study, points: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    evaluator = Evaluator(catalogs.load(), asked)
    seconds, _ = measure.cpu_seconds(lambda: evaluator.many(points))
    spaces = [space for space in evaluator._spaces.values() if not isinstance(space, str)]
    layouts = [sum(block.height for block in space.prepared.blocks) for space in spaces]
    return {
        "evaluated": len(points) * len(asked.workloads),
        "layouts": sum(layouts),
        "searches": evaluator.searches,
        "searched": sum(n * len(space.found) for n, space in zip(layouts, spaces, strict=True)),
        "cpu_s": round(seconds, 3),
    }


def fitted(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """CPU seconds of a workload at a point, of a layout searched, and of a layout of a chunk's spaces."""
    seconds = np.array([row["cpu_s"] for row in rows])
    counts = np.array([[row[name] for name in ("evaluated", "searched", "layouts")] for row in rows], float)
    found, *_ = np.linalg.lstsq(counts / seconds[:, None], np.ones(len(rows)), rcond=None)
    return {name: float(f"{value:.2g}") for name, value in zip(("POINT_S", "ROW_S", "TABLE_ROW_S"), found, strict=True)}


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints what was found."""
    parser = measure.parser(__doc__)
    parser.add_argument("--write", action="store_true", help="keep the figures that docs/design-studies.md is made of")
    options = parser.parse_args(argv)
    machine = measure.machine() | {"load": round(os.getloadavg()[0], 1)}
    asked = studies(options.tiny)
    measured(asked[-1])  # imports what is imported late
    rows = [measured(each) for each in asked]
    document: dict[str, Any] = {"machine": machine | fitted(rows), "rows": rows}
    if options.write:
        DATA.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    measure.show(document, rows, options.json)


if __name__ == "__main__":
    main()
