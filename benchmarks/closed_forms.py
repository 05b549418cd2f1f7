"""Communication by published closed formulas beside ours, case by case: LIBRA's workloads on three networks.

LIBRA: chunks pipelined across dimensions, no latency. ASTRA-sim: the congestion-unaware analytical back end, one
dimension after the other, ``hops latency + bytes / bandwidth`` a message. Both let the messages of an all-to-all pass
a ring's links as if no other were on them (ASTRA-sim's algorithm "direct"); ours does so only in the columns that are
compared. What a plan is charged, links shared, stands beside them, and so does ASTRA-sim's algorithm "ring", which
hands messages on the one way round.

    python benchmarks/closed_forms.py [--json]
"""

from __future__ import annotations

import math
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure
from planner.cost import dimensions
from planner.cost.figures import Dimensions, NetworkDimension

ROOT = Path(__file__).resolve().parent.parent
CASES = tomllib.loads((ROOT / "tests/golden/libra/collectives.toml").read_text(encoding="utf-8"))
LATENCY = 5e-7
"""Seconds of a hop; the source's files state none."""
PIPELINED = 1e9
"""Chunks: so many that the slowest dimension alone counts."""


def network(case: Mapping[str, Any], chunks: float, latency: float = LATENCY) -> Dimensions:
    """A network of the cases as the cost model takes it."""
    along = zip(case["topology"], case["sizes"], case["GBps"], strict=True)
    return Dimensions(tuple(NetworkDimension(t, float(n), rate * 1e9, latency) for t, n, rate in along), chunks)


def groups(workload: Mapping[str, Any], case: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Ranks along each dimension: model-parallel innermost, data-parallel outside of them."""
    inner, outer, left = [], [], workload["tp"]
    for n in case["sizes"]:
        inner.append(min(n, left))
        left = max(1, left // n)
        outer.append(n // inner[-1])
    return inner, outer


# ---- closed forms, written without the cost model --------------------------------------------------------------------


def libra(kind: str, size: float, spans: Sequence[int], rates: Sequence[float]) -> float:
    """Chunks pipelined across dimensions: the slowest dimension's bytes over its bandwidth."""
    slowest = 0.0
    for n, rate in zip(spans, rates, strict=True):
        moved = size * (n - 1) / n * (2 if kind == "all-reduce" else 1)
        slowest = max(slowest, moved / rate)
        size = size if kind == "all-to-all" else size / n
    return slowest


def astra(
    kind: str, size: float, spans: Sequence[int], topology: Sequence[str], rates: Sequence[float], *, ring: bool = False
) -> float:
    """Congestion-unaware: one dimension after the other. `ring`: an all-to-all on a ring hands ``n (n - 1) / 2``
    messages on to the neighbour (the algorithm of that name); else ``n - 1`` go each to their rank ("direct").
    """
    if kind == "all-reduce":
        return 2 * astra("gather", size, spans, topology, rates)
    total = 0.0
    for n, shape, rate in zip(spans, topology, rates, strict=True):
        if shape == "switch":  # recursive halving: half, a quarter, ... of the vector
            total += sum(2 * LATENCY + size / 2**k / rate for k in range(1, round(math.log2(n)) + 1))
        elif shape == "ring":  # messages of an n-th each, one after the other
            messages = n * (n - 1) // 2 if ring and kind == "all-to-all" else n - 1
            total += messages * (LATENCY + size / n / rate)
        else:  # all others at once, each over its own link
            total += (n > 1) * (LATENCY + size / n / (rate / max(n - 1, 1)))
        size = size if kind == "all-to-all" else size / n
    return total


# ---- case by case ----------------------------------------------------------------------------------------------------


def calls(workload: Mapping[str, Any], case: Mapping[str, Any]) -> list[tuple[str, float, int, list[int], int, int]]:
    """Collectives of one iteration: kind, bytes, times, ranks along each dimension, ranks in all, their stride."""
    inner, outer = groups(workload, case)
    found = []
    for of, spans, n, stride in (
        ("model_parallel", inner, workload["tp"], 1),
        ("data_parallel", outer, workload["dp"], workload["tp"]),
    ):
        found += [(kind, float(size), times, spans, n, stride) for kind, size, times in workload[of]]
    return found


def ours(case: Mapping[str, Any], call: tuple[Any, ...], *, pipelined: bool, shared: bool) -> float:
    """Seconds of a call by the cost model."""
    kind, size, times, spans, n, stride = call
    on = network(case, PIPELINED, 0.0) if pipelined else network(case, 1.0)
    found = dimensions.spans(on, float(n), float(stride))
    assert [float(x) for x in found] == spans
    if kind == "all-to-all":
        return times * float(dimensions.all_to_all(on, size, found, shared=shared))
    return times * float(getattr(dimensions, kind.replace("-", "_"))(on, size, found))


def rows() -> list[dict[str, Any]]:
    """One row for each workload on each network, milliseconds of an iteration's communication."""
    found = []
    for case in CASES["network"]:
        rates = [rate * 1e9 for rate in case["GBps"]]
        for workload in CASES["case"]:
            made = calls(workload, case)
            theirs = {
                "libra": sum(times * libra(kind, size, spans, rates) for kind, size, times, spans, _, _ in made),
                "astra": sum(
                    times * astra(kind, size, spans, case["topology"], rates) for kind, size, times, spans, _, _ in made
                ),
            }
            row: dict[str, Any] = {"network": case["name"], "workload": workload["name"]}
            for name, closed in theirs.items():
                mine = sum(ours(case, call, pipelined=name == "libra", shared=False) for call in made)
                row |= {
                    f"{name}_ms": closed * 1e3,
                    f"ours_as_{name}_ms": mine * 1e3,
                    f"off_{name}_percent": 100 * (mine / closed - 1),
                }
            planned = sum(ours(case, call, pipelined=True, shared=True) for call in made)
            found.append(row | {"planned_ms": planned * 1e3})
    return found


def exchanges() -> list[dict[str, Any]]:
    """The all-to-all calls alone, milliseconds on every network: as published and as plans are charged."""
    found = []
    for case in CASES["network"]:
        rates = [rate * 1e9 for rate in case["GBps"]]
        for workload in CASES["case"]:
            for call in (each for each in calls(workload, case) if each[0] == "all-to-all"):
                kind, size, times, spans, _, _ = call
                closed = (kind, size, spans, case["topology"], rates)
                found.append(
                    {
                        "network": case["name"],
                        "workload": workload["name"],
                        "longest_ring": max(
                            [n for n, shape in zip(spans, case["topology"], strict=True) if shape == "ring"], default=0
                        ),
                        "libra_ms": 1e3 * times * libra(kind, size, spans, rates),
                        "planned_pipelined_ms": 1e3 * ours(case, call, pipelined=True, shared=True),
                        "astra_direct_ms": 1e3 * times * astra(*closed),
                        "planned_serial_ms": 1e3 * ours(case, call, pipelined=False, shared=True),
                        "astra_ring_ms": 1e3 * times * astra(*closed, ring=True),
                    }
                )
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Prints both tables."""
    options = measure.arguments(__doc__, argv)
    found, alone = rows(), exchanges()
    measure.show({"cases": found, "exchanges": alone, "machine": measure.machine()}, found, options.json)
    if not options.json:
        print(f"\nAll-to-all alone\n{measure.table(alone)}")


if __name__ == "__main__":
    main()
