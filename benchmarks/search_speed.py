"""How fast the best plans are found and proven, and how fast candidates are costed when none is left out.

Each problem is searched twice: `Exhaustive` computes the time of every candidate, `Bounded` leaves out what an exact
bound excludes. Both run in one process and thread and are timed from enumerating the legal layouts to the answer, in
CPU seconds, as the median of three; peak memory is taken in runs that are not timed. Both must give the same plans,
with near-duplicates folded and without.

    python benchmarks/search_speed.py [--json] [--tiny]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure
from benchmarks.spaces import SPACES, Question, Space, posed, tiny, values
from planner.search.branch_and_bound import Bounded
from planner.search.costing import Exhaustive
from planner.search.problem import SearchResult


def costed(question: Question) -> SearchResult:
    """The answer with every candidate costed."""
    return Exhaustive().search(posed(question))


def proven(question: Question) -> SearchResult:
    """The same answer by the bound."""
    return Bounded().search(posed(question))


def same(full: SearchResult, bounded: SearchResult) -> bool:
    """Whether both ways give the same plans, bit for bit."""
    return full.best == bounded.best and full.feasible == bounded.feasible


def measured(space: Space, runs: int) -> dict[str, object]:
    """One problem's figures."""
    question, unfolded = space.question(), space.question(fold=False)
    full_s, full = measure.median_cpu_seconds(lambda: costed(question), runs)
    proven_s, bounded = measure.median_cpu_seconds(lambda: proven(question), runs)
    return {
        "name": space.name,
        "candidates": full.candidates,
        "feasible": full.feasible,
        "costed": bounded.costed,
        "cpu_s": full_s,
        "candidates_per_cpu_s": round(full.candidates / full_s),
        "proven_top20_cpu_s": proven_s,
        "peak_bytes": max(measure.peak_bytes(partial(way, question)) for way in (costed, proven)),
        "same": same(full, bounded) and same(costed(unfolded), proven(unfolded)),
    }


def axes(space: Space) -> dict[str, object]:
    """What a space was asked for, and the values that occur on each of its axes."""
    return {
        "pins": dict(pin.split("=", 1) for pin in space.pins),
        "batches": space.batches,
        "waived": space.waived,
        "values": values(posed(space.question())),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measures every problem and prints what was found."""
    options = measure.arguments(__doc__, argv)
    spaces = [tiny(space) for space in SPACES] if options.tiny else SPACES
    rows = [measured(space, 1 if options.tiny else 3) for space in spaces]
    document = {
        "problems": rows,
        "same": all(row["same"] for row in rows),
        "axes": {space.name: axes(space) for space in spaces},
        "machine": measure.machine(),
    }
    measure.show(document, rows, options.json)
    if not options.json:
        for space in spaces:
            print(f"\n{space.name}")
            for axis, listed in values(posed(space.question())).items():
                print(f"  {axis}: {', '.join(map(str, listed))}")


if __name__ == "__main__":
    main()
