"""A sweep of a thousand configurations by `evaluate_many`, side by side with single calls of `estimate`.

Two sweeps of two models: a product of degrees, micro-batches, recomputation and ZeRO stages, and as many drawn at
random over the levers, of which about half are not legal. CPU seconds of the whole call; single calls are timed on
some configurations of the same sweep, at the same distances; `off` is by how much their figures differ at most.

    python benchmarks/many_configurations.py [--json] [--tiny]
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import clusterwright as cw
from benchmarks import measure
from planner.schema.listings import EvaluatedConfiguration

JOBS = (("llama3-70b", "dgx-h100:32"), ("deepseek-v3", "dgx-h100:64"))
MANY, TINY, SINGLE = 1000, 40, 20
"""Configurations of a sweep, at a small size, and those that are estimated by themselves."""
LEVERS: dict[str, Sequence[object]] = {
    "micro": (1, 2, 4),
    "vpp": (1, 2, 4),
    "zero": (0, 1, 2),
    "recompute": ("none", "full", "selective", "selective:layernorm+moe_act"),
    "graphs": ("none", "modules", "full"),
    "dispatcher": ("none", "deepep", "alltoall"),
    "schedule": ("zbv", "dualpipe-v"),
    "precision": ("bf16", "fp8"),
    "offload": ("none", "optimizer"),
    "cp": (1, 2),
}


def regular(mixture: bool) -> list[str]:
    """A product of what one would try first."""
    experts = (8, 16, 32) if mixture else (1,)
    degrees = product((1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4, 8), ("none", "selective", "full"), (0, 1), experts)
    every = [f"tp={t} pp={p} micro={m} recompute={r} zero={z} ep={e}" for t, p, m, r, z, e in degrees]
    return [every[n * len(every) // MANY] for n in range(MANY)]


def drawn(mixture: bool) -> list[str]:
    """Degrees, and each lever with a chance of a quarter."""
    dice = random.Random(1)
    sweep = []
    for _ in range(MANY):
        words = [f"tp={dice.choice((1, 2, 4, 8))}", f"pp={dice.choice((1, 2, 4, 8, 16))}"]
        words += [f"ep={dice.choice((8, 16, 64))}"] if mixture else []
        words += [f"{axis}={dice.choice(values)}" for axis, values in LEVERS.items() if dice.random() < 0.25]
        sweep.append(" ".join(words))
    return sweep


def figures(model: str, cluster: str, settings: str) -> tuple[float, float] | str:
    """Seconds and bytes of one configuration by itself, or the reason why there are none."""
    try:
        prediction = cw.estimate(model, cluster, settings)[0].prediction
    except cw.ClusterwrightError as error:
        return str(error)
    return prediction.step_time_s, prediction.memory.total_bytes


def off(one: EvaluatedConfiguration, by_itself: tuple[float, float] | str) -> float:
    """Relative difference of the figures at most; infinite where only one of the two is refused, or otherwise."""
    if one.reason is not None or isinstance(by_itself, str):
        return 0.0 if one.reason == by_itself else math.inf
    pairs = zip((one.step_time_s or 0.0, one.memory_bytes or 0.0), by_itself, strict=True)
    return max(abs(together / alone - 1.0) for together, alone in pairs)


def measured(model: str, cluster: str, name: str, sweep: Sequence[str]) -> dict[str, Any]:
    """CPU seconds of a sweep together, and milliseconds of a single call."""
    seconds, together = measure.median_cpu_seconds(lambda: cw.evaluate_many(model, cluster, sweep))
    places = range(0, len(sweep), max(1, len(sweep) // SINGLE))
    single, alone = measure.cpu_seconds(lambda: [figures(model, cluster, sweep[n]) for n in places])
    return {
        "model": model,
        "sweep": name,
        "configurations": len(sweep),
        "legal": sum(each.reason is None for each in together),
        "together_s": round(seconds, 3),
        "together_ms_each": round(1e3 * seconds / len(sweep), 2),
        "single_ms_each": round(1e3 * single / len(places), 1),
        "off": max(off(together[n], by_itself) for n, by_itself in zip(places, alone, strict=True)),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints what was found."""
    options = measure.arguments(__doc__, argv)
    rows = []
    for model, cluster in JOBS:
        figures(model, cluster, "tp=8")  # imports what is imported late
        for name, sweep in (("product", regular(cw.model(model).moe is not None)),
                            ("drawn", drawn(cw.model(model).moe is not None))):  # fmt: skip
            rows.append(measured(model, cluster, name, sweep[:TINY] if options.tiny else sweep))
    document = {"machine": measure.machine(), "rows": rows}
    measure.show(document, rows, options.json)


if __name__ == "__main__":
    main()
