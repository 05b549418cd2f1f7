"""Why the best plan is best: what binds, what more of anything would bring, why others lost; and what would fit."""

from __future__ import annotations

from dataclasses import replace

from planner import cost
from planner.catalog import Catalog
from planner.cost.figures import Grid
from planner.errors import WrongQuestion
from planner.question import Prepared, Request, prepare, problem
from planner.schema.plan import Plan, Reasons
from planner.search.bounded import Bounded
from planner.search.problem import Candidate, Found
from planner.space.axes import Pins
from planner.space.grid import single_grid
from planner.units import format_bytes, format_percent, format_seconds

MORE = 0.1
"""How much more of a resource a gain is quoted for."""

_RESOURCES = {
    "matrix FLOP/s": ("device", ("matrix_rate", "matrix_rate_16", "attention_rate")),
    "memory bandwidth": ("device", ("memory_rate",)),
    "scale-up bandwidth": ("network", ("scaleup", "scaleup_reduce", "pair")),
    "NIC bandwidth": ("network", ("nic",)),
}


def scaled(grid: Grid, resource: str, factor: float) -> Grid:
    """The grid with `factor` times as much of one resource."""
    part, names = _RESOURCES[resource]
    record = getattr(grid, part)
    return replace(grid, **{part: replace(record, **{name: getattr(record, name) * factor for name in names})})


def gains(prepared: Prepared, best: Candidate) -> dict[str, float]:
    """Relative change of the best plan's step time with 10 % more of each resource; of memory, by searching again."""
    grid = single_grid(prepared.figures, best.layout, best.options)
    found = {name: float(cost.evaluate(scaled(grid, name, 1 + MORE)).time) / best.time - 1.0 for name in _RESOURCES}
    memory = prepared.request.cluster.accelerator.memory
    roomier = Bounded().search(problem(prepared, 1, capacity=memory * (1 + MORE))).best
    if roomier:
        found["memory"] = min(roomier[0].value / best.value - 1.0, 0.0)
    return dict(sorted(found.items(), key=lambda item: item[1]))


def reasons(prepared: Prepared, found: Found, plans: tuple[Plan, ...]) -> Reasons:
    """What binds the best plan, what more would bring, and why the others lost."""
    best = found.best[0]
    gained = gains(prepared, best)
    return Reasons(binds=_binds(plans[0], gained), gains=gained, why_not=_why_not(plans))


def _binds(best: Plan, gained: dict[str, float]) -> tuple[str, ...]:
    told = []
    memory = best.prediction.memory
    free = memory.capacity_bytes - memory.total_bytes
    where = f"memory of stage {memory.stage + 1}" if best.parallelism.pp > 1 else "memory"
    told.append(f"{where} ({format_bytes(free)} of {format_bytes(memory.capacity_bytes)} free)")
    told += [f"{c.name}" for c in best.constraints if c.binding and c.name in ("deadline", "budget")]
    parts = best.prediction.breakdown
    largest = max(parts, key=lambda name: parts[name])
    told.append(f"{largest} ({format_percent(parts[largest] / best.prediction.step_time_s, 0)} of the step)")
    return tuple(told)


def shape_of(plan: Plan) -> str:
    """A plan's degrees in one breath: ``TP4 PP4 VPP5 DP8``."""
    p = plan.parallelism
    degrees = (("TP", p.tp), ("PP", p.pp), ("VPP", p.vpp), ("CP", p.cp), ("EP", p.ep), ("ETP", p.etp))
    return " ".join(f"{name}{degree}" for name, degree in degrees if degree > 1) or "DP only"


def remedies(catalog: Catalog, request: Request, best: Candidate) -> tuple[str, ...]:
    """Each single axis that, left free, lets a pinned configuration fit: its value and what it does to the step
    time.
    """
    told = []
    for axis in ("recompute", "zero", "offload", "micro", "sequence_parallel", "cp", "pp", "tp", "ep"):
        freed = Pins({name: bound for name, bound in request.pins.bounds.items() if name != axis})
        try:
            prepared = prepare(catalog, replace(request, pins=freed))
        except WrongQuestion:
            continue
        found = Bounded().search(problem(prepared, 1)).best
        if found:
            change = format_percent(found[0].time / best.time - 1.0)
            told.append(
                f"{axis}={_value(found[0], axis)} would fit ({'' if change.startswith('-') else '+'}{change} time)"
            )
    return tuple(told)


def _value(candidate: Candidate, axis: str) -> str:
    options = candidate.options
    switches = {
        "recompute": options.recompute.name,
        "zero": str(options.sharding.zero),
        "offload": "optimizer" if options.offload else "none",
        "sequence_parallel": "on" if options.tensor.sequence_parallel else "off",
    }
    return switches.get(axis) or str(candidate.layout[axis])


def _why_not(plans: tuple[Plan, ...]) -> tuple[str, ...]:
    """For each other plan: how much slower, and the cause that grew most."""
    told = []
    first = plans[0].prediction
    for other in plans[1:]:
        mine, theirs = first.breakdown, other.prediction.breakdown
        scale = plans[0].batch.global_ / other.batch.global_
        grown = {
            name: theirs.get(name, 0.0) * scale - mine.get(name, 0.0) for name in sorted(mine.keys() | theirs.keys())
        }
        cause = max(grown, key=lambda name: grown[name])
        slower = other.prediction.step_time_s * scale / first.step_time_s - 1.0
        told.append(
            f"#{other.rank} {_difference(plans[0], other)}: {format_percent(slower)} slower; "
            f"{cause} +{format_seconds(grown[cause])} a step"
        )
    return tuple(told)


def _difference(best: Plan, other: Plan) -> str:
    """What is different about the other plan."""
    a, b = best.parallelism, other.parallelism
    pairs = [
        (name.upper(), getattr(a, name), getattr(b, name)) for name in ("tp", "pp", "vpp", "cp", "ep", "etp") if name
    ]
    pairs += [
        ("micro-batch ", best.batch.micro, other.batch.micro),
        ("batch ", best.batch.global_, other.batch.global_),
    ]
    pairs += [("nodes ", best.cluster.pools[0].count, other.cluster.pools[0].count)]
    told = [f"{name}{theirs}" for name, mine, theirs in pairs if mine != theirs]
    if best.recompute != other.recompute:
        told.append(f"recompute {other.recompute.policy}")
    if best.precision != other.precision:
        told.append(other.precision)
    return " ".join(told) or "other switches"


# ---- nothing fits ----------------------------------------------------------------------------------------------------


def nothing_fits(catalog: Catalog, prepared: Prepared, found: Found) -> str:
    """What binds when no plan is feasible, and the smallest change that would help."""
    request = prepared.request
    if found.feasible:
        return _beyond_limits(prepared)
    accelerator, cluster = request.cluster.accelerator, request.cluster
    closest = found.closest
    lines = [
        f"No plan fits: {request.workload.model.name} on {cluster.count} x {cluster.node.id} "
        f"({cluster.accelerators} x {format_bytes(accelerator.memory)})."
    ]
    if closest is not None:
        over = closest.memory - accelerator.memory
        degrees = " ".join(f"{a.upper()}{closest.layout[a]}" for a in ("tp", "pp", "cp", "ep") if closest.layout[a] > 1)
        options = closest.options
        lines.append(
            f"Closest (over by {format_bytes(over)} per accelerator): {degrees or 'DP only'} "
            f"ZeRO-{options.sharding.zero}, recompute {options.recompute.name}"
            f"{', optimizer offloaded' if options.offload else ''}."
        )
    lines += [f"What would fit: {fix}." for fix in [_what_fits(catalog, request)] if fix]
    return "\n".join(lines)


def _beyond_limits(prepared: Prepared) -> str:
    request = prepared.request
    free = replace(request, deadline_s=None, max_cost_usd=None)
    limits = [
        f"a deadline of {format_seconds(request.deadline_s)}" if request.deadline_s is not None else "",
        f"a budget of ${request.max_cost_usd:,.0f}" if request.max_cost_usd is not None else "",
    ]
    from planner import document

    targets = tuple(replace(t, limit=t.limit * 0 + float("inf")) for t in prepared.targets)
    best = Bounded().search(problem(replace(prepared, request=free, targets=targets), 1)).best[0]
    point = document.front_point(replace(prepared, request=free), best)
    paid = f" and ${point.usd_total:,.0f}" if point.usd_total is not None else ""
    return (
        f"No plan keeps {' and '.join(x for x in limits if x)}. "
        f"The best by {request.objective} takes {format_seconds(point.days * 86400)}{paid} "
        f"on {point.accelerators} accelerators: allow that, "
        f"or ask for more nodes (--cluster {request.cluster.node.id}:N..M)."
    )


def _what_fits(catalog: Catalog, request: Request) -> str:
    """More of the same nodes, the same number of larger ones, or training less: what fits first of each."""
    found = []
    node = request.cluster.node.id
    for count in _growing(request.cluster.count):
        if _fits(catalog, replace(request, cluster=replace(request.cluster, count=count), counts=(count,))):
            found.append(f"{count} x {node} (--cluster {node}:{count})")
            break
    for name in ("dgx-h200", "dgx-b200", "gb200-nvl72"):
        larger = catalog.nodes.get(name)
        if larger is None or name == node:
            continue
        part = catalog.accelerator(larger.accelerator)
        if part.memory <= request.cluster.accelerator.memory or larger.fabric is None:
            continue
        cluster = replace(request.cluster, node=larger, accelerator=part, fabric=catalog.fabric(larger.fabric))
        if _fits(catalog, replace(request, cluster=cluster, price=None, objective="time")):
            found.append(f"{request.cluster.count} x {name}")
            break
    if request.workload.method.kind != "lora":
        found.append("or train less of it (--method lora)")
    return "; ".join(found)


def _growing(count: int) -> list[int]:
    """Counts to try beyond the one that does not do: by half as much again, up to 64 times."""
    tried = [count * factor for factor in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)]
    return [n for n in tried if n <= 100_000]


def _fits(catalog: Catalog, request: Request) -> bool:
    """Whether any plan of the request fits into memory."""
    try:
        prepared = prepare(catalog, replace(request, deadline_s=None, max_cost_usd=None))
    except WrongQuestion:
        return False
    return Bounded().search(problem(prepared, 1)).feasible > 0
