"""Unlike pools in one job: how long the search takes, how sure it is, and what uneven plans bring.

Three parts: the shapes of Sailor's published problems (SOSP 2025: OPT-350M, batch 1,024, A100-40GB and V100-16GB, four
to a node) with its search times beside ours, 10,000 accelerators in six pools, and small mixtures against an even split
and against the best pool alone. All from the catalog; prices per accelerator-hour are those of Sailor's repository.

    python benchmarks/mixed.py [--json] [--tiny]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks import measure
from planner import planning as one_pool
from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import Catalog, load
from planner.mixed import batch_shares, prepared_pools, run
from planner.question import pools as pooled
from planner.question.job_pools import JobPool, Pools
from planner.question.plan_options import PlanOptions
from planner.question.request import Request
from planner.question.several_pools import pooled_request
from planner.rebalancing import image_split
from planner.schema.hardware import Price
from planner.schema.plan import PlanSet
from planner.space.pins import Bound, Pins

SAILOR_USD = {"A100-SXM4-40GB": 3.673385, "V100-SXM2-16GB": 2.859998}
"""Per accelerator-hour, the constants of eth-easl/sailor."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question over several pools."""

    name: str
    model: str
    batch: int
    pools: tuple[tuple[str, int, int, str], ...]
    """(accelerator, how many, per node, zone)."""
    usd: bool = False
    step_usd: float | None = None
    """Most that a step may cost."""
    step_s: float | None = None
    """Longest step."""
    objective: str = "time"
    sailor_s: float | None = None
    """What Sailor's own search took on this shape, wall seconds on a machine like this one."""


def _sailor(name: str, a100: int, v100: int, seconds: float) -> Problem:
    pools = (("A100-SXM4-40GB", a100, 4, ""), ("V100-SXM2-16GB", v100, 4, ""))
    return Problem(f"Sailor {name}", "opt-350m", 1024, pools, sailor_s=seconds)


_ZONES = tuple((part, 128, 4, zone) for zone in ("a", "b") for part in ("A100-SXM4-40GB", "V100-SXM2-16GB"))
PROBLEMS = (
    _sailor("32 + 96", 32, 96, 1.25),
    _sailor("80 + 240", 80, 240, 4.12),
    _sailor("128 + 384", 128, 384, 8.21),
    Problem("Sailor 2 zones, <= $1.2 a step", "opt-350m", 1024, _ZONES, usd=True, step_usd=1.2, sailor_s=48.3),
    Problem(
        "Sailor 2 zones, least $ at >= 0.2 steps/s",
        "opt-350m",
        1024,
        _ZONES,
        usd=True,
        step_s=5.0,
        objective="cost",
        sailor_s=0.79,
    ),
    Problem(
        "10,000 accelerators, 6 pools",
        "llama3-70b",
        4096,
        (
            ("H100-SXM5-80GB", 2000, 8, ""),
            ("A100-SXM4-80GB", 2000, 8, ""),
            ("A100-SXM4-40GB", 2000, 8, ""),
            ("V100-SXM2-32GB", 2000, 8, ""),
            ("A40", 1000, 8, ""),
            ("L40S", 1000, 8, ""),
        ),
    ),
)
SMALL = (("A100-SXM4-40GB", 4, 4, ""), ("V100-SXM2-16GB", 4, 4, ""), ("RTX-6000", 8, 4, ""))
"""The mixture of Cannikin's larger testbed as it is remembered, unverified."""
MIXTURES = tuple(Problem(f"4 A100 + 4 V100 + 8 RTX 6000, {model}", model, batch, SMALL)
                 for model, batch in (("bert-large", 256), ("gpt2-xl", 256), ("gpt2-medium", 256)))  # fmt: skip


def posed(each: Problem) -> tuple[Catalog, Request, Pools]:
    """The question of a problem."""
    first = pooled_nodes(each)
    known, wanted, _ = pooled_request(each.model, first[:1], PlanOptions(batch=str(each.batch)))
    pools = []
    for part, count, per_node, zone in each.pools:
        cluster, *_ = pooled.of_accelerators(known, f"{part}:{per_node}", None, "us")
        price = None
        if each.usd:
            price = Price(basis="on-demand", usd=SAILOR_USD[part] * per_node, date="2025", source="eth-easl/sailor")
        name = f"{part}{'@' + zone if zone else ''}"
        whole = replace(cluster, count=count // per_node)
        pools.append(JobPool(name=name, cluster=whole, price=price, sold_as=cluster.node.id, zone=zone))
    steps = wanted.workload.tokens / (each.batch * wanted.workload.sequence)
    wanted = replace(
        wanted,
        cluster=pools[0].cluster,
        objective=each.objective,
        max_cost_usd=None if each.step_usd is None else each.step_usd * steps,
        deadline_s=None if each.step_s is None else each.step_s * steps,
    )
    return known, wanted, Pools(tuple(pools))


def pooled_nodes(each: Problem) -> tuple[str, ...]:
    """A cluster of the catalog that holds the first pool's accelerator, to ask the question with."""
    known = load()
    return tuple(f"{n}:1" for part, *_ in each.pools[:1] for n, node in known.nodes.items() if node.accelerator == part)


def even_split(known: Catalog, wanted: Request, pools: Pools, batch: int) -> float | None:
    """Seconds of the best step in which all accelerators work on equal shares, cut alike on every pool."""
    try:
        prepared = prepared_pools.prepare(known, wanted, pools, batch)
    except NoAnswer:
        return None
    setting, kinds = prepared.setting, prepared.setting.kinds
    everything = range(len(pools.all))
    network = setting.network_of(tuple(everything))
    straggler_factor = batch_shares.straggler_factor_on(setting, network)
    depth = np.array([c[0][1] if len(c) == 1 else 0 for c in prepared.chains])[kinds.chain]
    have = np.array(setting.offer.nodes) * np.array(setting.offer.per_node)
    best = np.inf
    for tp, pp in {(t, d) for t, d in zip(kinds.tp, depth, strict=True) if d}:
        replicas = have // (tp * pp)
        each = batch / replicas.sum() if replicas.all() else np.inf
        times = []
        for pool in everything:
            rows = np.flatnonzero((kinds.tp == tp) & (depth == pp) & (kinds.usage[:, pool] > 0))
            rows = rows[kinds.width[rows] <= replicas[pool]]
            if not len(rows) or not np.isfinite(each):
                times.append(np.inf)
                continue
            of = kinds.taken(rows)
            in_all = float(replicas.sum())
            replicas_per_domain = batch_shares.neighbours(in_all, float(replicas.min()))
            shown = batch_shares.reductions(setting, of, everything, in_all, replicas_per_domain, spans_pools=True)
            steps = np.ceil(each * of.width / of.samples)
            times.append(float(np.min(batch_shares.kind_time(setting, of, straggler_factor, steps, shown))))
        best = min(best, max(times))
    return best if np.isfinite(best) else None


def single(known: Catalog, wanted: Request, pools: Pools, precision: str) -> float | None:
    """Seconds of the best step of one pool alone in the same precision: 16-bit formats are not predicted alike."""
    pins = Pins({**wanted.pins.bounds, "precision": Bound((precision,))})
    found = []
    for pool in pools.all:
        asked = replace(wanted, cluster=pool.cluster, counts=(pool.count,), pins=pins, objective="time",
                        max_cost_usd=None, deadline_s=None, top=1)  # fmt: skip
        try:
            found.append(one_pool.plan(known, asked).plans[0].prediction.step_time_s)
        except (NoAnswer, WrongQuestion):
            continue
    return min(found, default=None)


def solved(each: Problem) -> dict[str, object]:
    """One problem's answer, how long it took, and what simpler plans would take."""
    known, wanted, pools = posed(each)
    started, wall = time.process_time(), time.perf_counter()
    found: PlanSet = run.plan(known, replace(wanted, top=100), pools)
    cpu, wall = time.process_time() - started, time.perf_counter() - wall
    best = found.plans[0]
    step = best.prediction.step_time_s
    alone = [p.prediction.step_time_s for p in found.plans if not p.parallelism.groups]
    alike = single(known, wanted, pools, best.precision)
    even = even_split(known, wanted, pools, each.batch) if each.objective == "time" else None
    hourly = best.money.usd_per_hour
    return {
        "name": each.name,
        "cpu_s": round(cpu, 2),
        "wall_s": round(wall, 2),
        "sailor_wall_s": each.sailor_s,
        "step_s": step,
        "steps_per_s": 1.0 / step,
        "usd_per_step": hourly * step / 3600 if hourly and each.usd else None,
        "gap": found.search.gap,
        "used": {p.accelerator + ("@" + p.zone if p.zone else ""): p.count * p.accelerators_per_node
                 for p in best.cluster.pools},
        "even_step_s": even,
        "best_pool_step_s": min(alone, default=None),
        "precision": best.precision,
        "best_pool_alike_s": alike,
        "below_even": None if even is None else 1.0 - step / even,
        "below_best_pool": None if alike is None else 1.0 - step / alike,
        "breakdown": best.prediction.breakdown,
    }  # fmt: skip


def images(batch: int = 1024) -> dict[str, object]:
    """ResNet-50 by uneven data parallelism on the small mixture, against even shares and the best pool alone.

    In fp16 on all pools. The breakdown is of the slowest accelerator.
    """
    known, _, pools = posed(replace(MIXTURES[0], batch=256))
    started = time.process_time()
    found = image_split.plan(image_split.ImageTraining(known, "resnet50"), pools, batch)
    cpu = time.process_time() - started
    assert found.even_step_s is not None and found.best_pool_step_s is not None
    return {
        "name": "4 A100 + 4 V100 + 8 RTX 6000, resnet50",
        "precision": found.precision,
        "cpu_s": round(cpu, 2),
        "step_s": found.step_time_s,
        "gap": 0.0,
        "used": {p.name: [p.accelerators, float(p.images)] for p in found.pools},
        "even_step_s": found.even_step_s,
        "best_pool_step_s": found.best_pool_step_s,
        "best_pool_alike_s": found.best_pool_step_s,
        "below_even": 1.0 - found.step_time_s / found.even_step_s,
        "below_best_pool": 1.0 - found.step_time_s / found.best_pool_step_s,
        "breakdown": found.breakdown,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Solves all problems and prints what was found."""
    options = measure.arguments(__doc__, argv)
    problems = MIXTURES[:1] if options.tiny else (*PROBLEMS, *MIXTURES)
    rows = [solved(each) for each in problems]
    if not options.tiny:
        rows.append(images())
    columns = ("name", "precision", "cpu_s", "wall_s", "sailor_wall_s", "step_s", "usd_per_step", "gap", "below_even",
               "below_best_pool")  # fmt: skip
    measure.show(
        {"problems": rows, "machine": measure.machine()},
        [{name: row.get(name) for name in columns} for row in rows],
        options.json,
    )


if __name__ == "__main__":
    main()
