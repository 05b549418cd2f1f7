"""What one search costs against the number of accelerators: it follows the layouts, not the accelerators.

The search is the one behind ``clusterwright plan``: the whole default space of DGX H100 nodes, the best five plans and
the front of step time against memory.

    python benchmarks/scaling.py [--json] [--tiny]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure
from benchmarks.spaces import posed
from planner.question.plan_options import PlanOptions
from planner.question.reading import request
from planner.search.branch_and_bound import Bounded

NODE, PER_NODE = "dgx-h100", 8
MODELS = {"llama3.1-405b": 4096, "deepseek-v3": 16384}
"""Model -> global batch in sequences: powers of two, so that every count of accelerators has layouts."""
EXPONENTS = range(6, 18)
"""Accelerators, as powers of two."""


def measured(model: str, accelerators: int, runs: int) -> dict[str, object]:
    """One search's size and cost."""
    asked = PlanOptions(batch=str(MODELS[model]))
    question = request(model, f"{NODE}:{accelerators // PER_NODE}", asked)
    seconds, found = measure.median_cpu_seconds(lambda: Bounded(front=True).search(posed(question)), runs)
    return {
        "model": model,
        "accelerators": accelerators,
        "layouts": sum(block.height for block in posed(question).blocks),
        "candidates": found.candidates,
        "feasible": found.feasible,
        "costed": found.costed,
        "cpu_s": seconds,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measures both models over all counts and prints what was found."""
    options = measure.arguments(__doc__, argv)
    counts = [2**i for i in (EXPONENTS[:2] if options.tiny else EXPONENTS)]
    rows = [measured(model, count, 1 if options.tiny else 3) for model in MODELS for count in counts]
    measure.show({"searches": rows, "machine": measure.machine()}, rows, options.json)


if __name__ == "__main__":
    main()
