"""What the case studies share: 1,024 accelerators with figures of any kind, the best plan on them, and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from planner import catalog
from planner.axes.table import PLACEMENT, RECOMPUTE, ZERO
from planner.models.workload import workload
from planner.question.request import Request
from planner.question.search_problem import prepare, problem
from planner.schema.hardware import Cluster
from planner.search.branch_and_bound import Bounded
from planner.search.problem import Candidate
from planner.space.pins import parse_pins

GB = 1e9
ACCELERATORS, POD, BATCH = 1024, 8, 1024
DEGREES = tuple(2**k for k in range(11))
WAIVED = frozenset({"heads_divide", "kv_heads_divide", "hidden_divides", "tp_in_domain"})
"""COMET's model parallelism is a plain split: 160 heads need not divide."""
ZERO_2, ANY_ZERO = "zero=2", "zero=0|1|2|3"
RATES = (32, 64, 128, 256, 512, 1024, 2048)
"""GB/s of expanded memory."""
SIZES = (50, 100, 200, 400, 800, 1600, 3200, 6400)
"""GB of it, an accelerator."""
FACTORS = (0.25, 0.5, 1, 2, 4, 8)
"""Times an A100's peak."""
INTRA, INTER = (75, 150, 300, 600, 1200), (6.25, 12.5, 25, 50, 100)
"""GB/s of an accelerator inside its pod and between pods."""
CATALOG = catalog.load()


@cache
def pods(node: str = "dgx-a100-80gb", memory: float = 80 * GB, **changed: float | str) -> Cluster:
    """1,024 accelerators with that much memory; `changed`: figures of theirs, ``nic``, ``scaleup``, ``compute``."""
    each = CATALOG.node(node).accelerators
    on = catalog.cluster(CATALOG, node, ACCELERATORS // each)
    nic, scaleup, compute = (changed.pop(name, None) for name in ("nic", "scaleup", "compute"))
    part = replace(on.accelerator, memory=memory, **changed)  # type: ignore[arg-type]
    if scaleup is not None:
        part = replace(part, scaleup=replace(part.scaleup, bandwidth=float(scaleup), pair_bandwidth=None))
    if compute is not None:
        part = replace(part, peak={dtype: rate * float(compute) for dtype, rate in part.peak.items()})
    if nic is not None:
        on = replace(on, node=replace(on.node, nics=each, nic_bandwidth=float(nic)))
    return replace(on, accelerator=part, node=replace(on.node, scaleup=None if scaleup else on.node.scaleup))


def best(on: Cluster, pins: str = ZERO_2, *, unlimited: bool = False) -> Candidate | None:
    """The fastest plan of Transformer-1T without stages: model- and data-parallel ranks alone."""
    runtime = CATALOG.runtime("deepspeed")
    asked = Request(
        workload=replace(workload("megatron-1t"), batch=BATCH),
        cluster=on,
        counts=(on.count,),
        batches=(BATCH,),
        runtime=runtime,
        release=runtime.releases[-1],
        pins=parse_pins([f"pp=1 cp=1 {pins}"]),
        waived=WAIVED,
        oom_risk=0.5,
    )
    ready = prepare(CATALOG, asked)
    found = Bounded().search(problem(ready, 1, capacity=math.inf if unlimited else None)).best
    return found[0] if found else None


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def told(found: Candidate | None) -> str:
    """A plan in few words."""
    if found is None:
        return "nothing fits"
    o = found.options
    placed = "" if o[PLACEMENT].name == "none" else f", {o[PLACEMENT].name} expanded"
    return (
        f"MP{found.layout['tp']} DP{found.layout['dp']}, micro-batch {found.layout['micro']}, "
        f"ZeRO {o[ZERO]}, recompute {o[RECOMPUTE].name}{placed}"
    )
