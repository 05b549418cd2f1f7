"""Under which conditions a plan holds, as sections of its document: limits that it keeps, and what it assumes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from planner.cost import memory_risk, money
from planner.planning.document.solution import PoolInUse, Solution
from planner.schema import plan as schema

NO_PART_OF_IT = ("host_memory", "local_storage", "l2", "tokens", "batch", "sequence")
"""Assumed fields that no prediction reads, or that the question's own assumptions already name; the first where
nothing lies in host memory."""
NEAR_MEMORY = 0.05
NEAR_LIMIT = 0.02
"""Share of a limit below which what is left of it counts as nothing: of bytes, which differ from run to run; of a
deadline or a budget. Of accelerators nothing may be left."""


def constraints(solution: Solution, memory: schema.MemorySection, run: schema.Money) -> tuple[schema.Constraint, ...]:
    """Memory and accelerators always; expanded and host memory, deadline and budget where there are any."""
    request = solution.request
    offered = sum(pool.cluster.accelerators for pool in solution.question.all)
    listed = [
        _constraint("memory", _usable(solution, memory.capacity_bytes), memory.total_bytes, "B", near=NEAR_MEMORY),
        _constraint("accelerators", offered, solution.accelerators, "", near=0.0),
    ]
    if (there := memory.expanded) is not None:
        limit = _usable(solution, there.capacity_bytes)
        listed.append(_constraint("expanded memory", limit, there.total_bytes, "B", near=NEAR_MEMORY))
    if (host := memory.host) is not None and host.capacity_bytes is not None:
        listed.append(_constraint("host memory", host.capacity_bytes, host.total_bytes, "B", near=NEAR_MEMORY))
    if request.deadline_s is not None:
        listed.append(_constraint("deadline", request.deadline_s, run.days * money.DAY_S, "s", near=NEAR_LIMIT))
    if request.max_cost_usd is not None and run.usd_total is not None:
        listed.append(_constraint("budget", request.max_cost_usd, run.usd_total, "USD", near=NEAR_LIMIT))
    return tuple(listed)


def _usable(solution: Solution, capacity: float) -> float:
    """Bytes that a predicted peak may reach at the risk asked for."""
    return float(memory_risk.usable(capacity, solution.memory_spread.half_width, solution.request.oom_risk))


def _constraint(name: str, limit: float, value: float, unit: str, *, near: float) -> schema.Constraint:
    """A limit counts as binding when no more than the share `near` of it is left."""
    slack = limit - value
    return schema.Constraint(
        name=name, limit=float(limit), value=float(value), slack=float(slack), binding=slack <= near * limit, unit=unit
    )


def assumptions(solution: Solution) -> tuple[schema.Assumption, ...]:
    """What the question left open, links that nobody gave, and what is not known of each pool; each once."""
    request = solution.request
    listed = [schema.Assumption(what=what, why=why, flag=flag) for what, why, flag in request.assumptions]
    listed += _unmeasured(solution)
    listed += _links(solution)
    for each in solution.pools:
        listed += _of_pool(solution, each)
    return tuple(dict.fromkeys(listed))


def _unmeasured(solution: Solution) -> Iterator[schema.Assumption]:
    """Kinds of blocks of which the fits have no run."""
    model = solution.request.workload.model
    for what, kind in (
        ("recurrence", "a recurrence"),
        ("indexer", "sparse attention"),
        ("compressed", "compressed attention"),
    ):
        if getattr(model, what) is not None:
            why = f"no run with {kind} is measured: kernels are priced by equations, at rates of attention and products"
            yield schema.Assumption(what=f"{model.id}.{what}", why=why, flag="calibrate")


def _links(solution: Solution) -> Iterator[schema.Assumption]:
    for one, other in combinations((each.pool for each in solution.pools), 2):
        if frozenset((one.name, other.name)) not in solution.question.given:
            link = solution.question.link(one, other)
            what = f"{link.bandwidth * 8 / 1e9:g} Gbit/s a node between {one.name} and {other.name}"
            yield schema.Assumption(what=what, why=link.basis, flag="--link")


def _of_pool(solution: Solution, used: PoolInUse) -> Iterator[schema.Assumption]:
    """Catalog fields that nobody could read, what is not measured, and an assumed price."""
    request = solution.request
    cluster = used.pool.cluster
    entries = [cluster.node, cluster.accelerator, cluster.fabric, request.runtime, request.workload.model]
    entries += [cluster.region] if cluster.region else []
    hosts = solution.fullest.host is not None
    if hosts and cluster.node.host_memory is None:
        why = "not known: whether what lies in it fits is not checked"
        yield schema.Assumption(what=f"{cluster.node.id}.host_memory", why=why, flag="--catalog")
    for entry in entries:
        for name, why in entry.assumed.items():
            if name not in NO_PART_OF_IT[hosts:]:
                yield schema.Assumption(what=f"{entry.id}.{name}", why=why, flag="--catalog")
    for why in used.efficiency_notes:
        yield schema.Assumption(what="efficiency", why=why, flag="calibrate")
    for why in used.layer_times:
        yield schema.Assumption(what="layer times", why=why, flag="profile import")
    if used.pool.price is not None and used.pool.price.assumed:
        yield schema.Assumption(what="price", why=used.pool.price.assumed, flag="--price")
