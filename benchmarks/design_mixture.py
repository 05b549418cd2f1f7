"""What a point of a large mixture's study takes: CPU milliseconds, and the most memory beyond the imported program.

DeepSeek-V3 on 2,048 accelerators, 960 points: six sizes of memory, four rates of it, five of the scale-up links and
eight of the NICs.

    python benchmarks/design_mixture.py [--json] [--tiny]
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure
from benchmarks.design_search import COSTS, _range, study
from planner import catalog as catalogs
from planner.study import run

STUDY: dict[str, Any] = {
    "name": "deepseek-v3 on 2,048, 960 points",
    "objectives": ["cost"],
    "base": {"node": "dgx-h100", "count": 256},
    "workloads": [{"model": "deepseek-v3"}],
    "axes": {
        "accelerator.memory": ["64 GiB", "80 GiB", "96 GiB", "141 GiB", "192 GiB", "288 GiB"],
        "accelerator.memory_bandwidth": _range("2 TB/s", "8 TB/s", 4),
        "node.scaleup_bandwidth": _range("150 GB/s", "1200 GB/s", 5),
        "fabric.nic_bandwidth": _range("100 Gbit/s", "1600 Gbit/s", 8),
    },
    "costs": COSTS,
}
TINY: dict[str, Any] = {
    **STUDY,
    "name": "mixtral-8x7b on 16, 4 points",
    "base": {"node": "dgx-h100", "count": 2},
    "workloads": [{"model": "mixtral-8x7b", "batch": 64, "pins": ["cp=1", "vpp=1", "micro=1"]}],
    "axes": {"accelerator.memory": ["80 GiB", "192 GiB"], "fabric.nic_bandwidth": ["100 Gbit/s", "400 Gbit/s"]},
}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(tiny: bool) -> dict[str, Any]:
    """The study, searched as it chooses by itself."""
    asked = study(TINY if tiny else STUDY, tiny=False)
    known = catalogs.load()
    before = _peak_mb()
    seconds, found = measure.cpu_seconds(lambda: run.design(known, asked, run.How(explained=False)))
    return {
        "study": asked.name,
        "points": asked.size,
        "method": found.search.method,
        "cpu_s": round(seconds, 2),
        "point_ms": round(1e3 * seconds / asked.size, 2),
        "more_mb": round(_peak_mb() - before, 1),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints what was found."""
    options = measure.arguments(__doc__, argv)
    machine = measure.machine() | {"load": round(os.getloadavg()[0], 1)}
    rows = [measured(options.tiny)]
    measure.show({"machine": machine, "rows": rows}, rows, options.json)


if __name__ == "__main__":
    main()
