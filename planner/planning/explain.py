"""Why the best plan is best: what binds, what more of anything would bring, why others lost; and what would fit."""

from __future__ import annotations

import math
from dataclasses import replace

from planner import cost
from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.base.units import format_bytes, format_percent, format_risk, format_seconds, format_usd
from planner.catalog import Catalog, cluster
from planner.cost import hierarchy, memory, pipeline
from planner.cost.figures import Grid
from planner.models.parameters import parameters
from planner.models.workload import workload
from planner.planning import answer
from planner.question.prepared import Prepared, prepare, problem
from planner.question.request import Request
from planner.schema.plan import FrontPoint, Plan, Reasons
from planner.schema.workload import Workload
from planner.search.bounded import Bounded
from planner.search.problem import Candidate, SearchResult
from planner.space.axes import Pins
from planner.space.grid import single_grid

_DAY = 86400.0
MORE = 0.1
"""How much more of a resource a gain is quoted for."""

_RESOURCES = {
    "matrix FLOP/s": ("device", ("matrix_rate", "matrix_rate_16", "attention_rate")),
    "memory bandwidth": ("device", ("memory_rate",)),
    "scale-up bandwidth": ("network", ("scaleup", "scaleup_reduce", "pair")),
    "NIC bandwidth": ("network", ("nic",)),
    "expanded bandwidth": ("expanded", ("rate",)),
}


def scaled(grid: Grid, resource: str, factor: float) -> Grid:
    """The grid with `factor` times as much of one resource."""
    part, names = _RESOURCES[resource]
    record = getattr(grid, part)
    return replace(grid, **{part: replace(record, **{name: getattr(record, name) * factor for name in names})})


def gains(prepared: Prepared, best: Candidate) -> dict[str, float]:
    """Relative change of the best plan's step time with 10 % more of each resource; of memory, by searching again."""
    grid = single_grid(prepared.figures, best.layout, best.options)
    there = [name for name, (part, _) in _RESOURCES.items() if getattr(grid, part) is not None]
    found = {name: float(cost.evaluate(scaled(grid, name, 1 + MORE)).time) / best.time - 1.0 for name in there}
    if (network := grid.network.dimensions) is not None:
        for i, each in enumerate(network.along):
            faster = (*network.along[:i], replace(each, rate=each.rate * (1 + MORE)), *network.along[i + 1 :])
            wider = replace(grid, network=replace(grid.network, dimensions=replace(network, along=faster)))
            found[f"dimension {i + 1} bandwidth"] = float(cost.evaluate(wider).time) / best.time - 1.0
    own = prepared.request.cluster.accelerator.memory
    roomier = Bounded().search(problem(prepared, 1, capacity=own * (1 + MORE))).best
    if roomier:
        found["memory"] = min(roomier[0].value / best.value - 1.0, 0.0)
    return dict(sorted(found.items(), key=lambda item: item[1]))


def reasons(prepared: Prepared, found: SearchResult, plans: tuple[Plan, ...]) -> Reasons:
    """What binds the best plan, what more would bring, and why the others lost."""
    best = found.best[0]
    gained = gains(prepared, best)
    return Reasons(binds=_binds(plans[0], gained), gains=gained, why_not=_why_not(prepared.request.objective, plans))


def _binds(best: Plan, gained: dict[str, float]) -> tuple[str, ...]:
    told = []
    held = best.prediction.memory
    limit = next(k.limit for k in best.constraints if k.name == "memory")
    free = limit - held.total_bytes
    where = f"memory of stage {held.stage + 1}" if best.parallelism.pp > 1 else "memory"
    left = f"{format_bytes(free)} free of the {format_bytes(limit)} usable at this OOM risk"
    if free < 0.05 * limit or gained.get("memory", 0.0) < -0.005:
        told.append(f"{where} ({left if free >= 0 else f'{format_bytes(-free)} over'})")
    told += [f"{c.name}" for c in best.constraints if c.binding and c.name in ("expanded memory", "deadline", "budget")]
    parts = best.prediction.breakdown
    largest = max(parts, key=lambda name: parts[name])
    told.append(f"{largest} ({format_percent(parts[largest] / best.prediction.step_time_s, 0)} of the step)")
    return tuple(told)


def remedies(catalog: Catalog, request: Request, best: Candidate) -> tuple[str, ...]:
    """Each single axis that, left free, lets a pinned configuration fit: its value and what it does to the step
    time.
    """
    told = []
    for axis in ("recompute", "zero", "offload", "placement", "micro", "sequence_parallel", "cp", "pp", "tp", "ep"):
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
        "placement": options.placement.name,
        "sequence_parallel": "on" if options.tensor.sequence_parallel else "off",
    }
    return switches.get(axis) or str(candidate.layout[axis])


def _why_not(objective: str, plans: tuple[Plan, ...]) -> tuple[str, ...]:
    """For each other plan: how much worse, and on as many nodes the cause that grew most."""
    best = plans[0]
    told = []
    for other in plans[1:]:
        words, mine, theirs = _compared(objective, best, other)
        line = f"#{other.rank} {_difference(best, other)}: {format_percent(theirs / mine - 1.0)} {words}"
        if other.cluster.accelerators == best.cluster.accelerators:
            line += _grown(best, other)
        told.append(line)
    return tuple(told)


def _compared(objective: str, best: Plan, other: Plan) -> tuple[str, float, float]:
    """What the other plan has more of, and how much of it each takes for all tokens."""
    if objective != "time" and best.money.usd_total is not None and other.money.usd_total is not None:
        # All nodes are of one kind: energy goes with money.
        return "more energy" if objective == "energy" else "dearer", best.money.usd_total, other.money.usd_total
    return "slower", best.money.days, other.money.days


def _grown(best: Plan, other: Plan) -> str:
    """The cause that takes most more time than in the best plan, per step of the best plan's batch."""
    mine, theirs = best.prediction.breakdown, other.prediction.breakdown
    scale = best.batch.global_ / other.batch.global_
    grown = {name: theirs.get(name, 0.0) * scale - mine.get(name, 0.0) for name in sorted(mine.keys() | theirs.keys())}
    cause = max(grown, key=lambda name: grown[name])
    name = cause.upper() if len(cause) == 2 else cause
    return f"; {name} +{format_seconds(grown[cause])} a step" if grown[cause] > 0 else ""


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


def overflowing(prepared: Prepared, placed: Candidate) -> str:
    """That a placement is more than the expanded memory holds."""
    grid = single_grid(prepared.figures, placed.layout, placed.options)
    held = memory.stages(grid, pipeline.split(grid.shape, grid.layout))
    most, there = max(float(stage.expanded.total) for stage in held), float(hierarchy.room(grid))
    return (
        f"placement={placed.options.placement.name} puts {format_bytes(most)} into expanded memory, and there are "
        f"{format_bytes(there)} for each accelerator at --oom-risk {format_risk(prepared.request.oom_risk)}."
    )


# ---- nothing fits ----------------------------------------------------------------------------------------------------


def nothing_fits(catalog: Catalog, prepared: Prepared, found: SearchResult) -> str:
    """What binds when no plan is feasible, and the smallest change that would help."""
    request = prepared.request
    if found.feasible:
        return _beyond_limits(catalog, request)
    w, accelerator, asked = request.workload, request.cluster.accelerator, request.cluster
    closest = found.closest
    lines = [
        f"No plan fits into memory: {w.model.name} on {asked.count:,} x {asked.node.id} "
        f"({asked.accelerators:,} x {format_bytes(accelerator.memory)} = "
        f"{format_bytes(asked.accelerators * accelerator.memory)}{_states(w)})."
    ]
    if closest is not None:
        over = closest.memory - prepared.usable
        leaves = f"--oom-risk {format_risk(request.oom_risk)} leaves {format_bytes(prepared.usable)}"
        degrees = " ".join(f"{a.upper()}{closest.layout[a]}" for a in ("tp", "pp", "cp", "ep") if closest.layout[a] > 1)
        options = closest.options
        lines.append(
            f"Closest (over by {format_bytes(over)} per accelerator; {leaves}): {degrees or 'DP only'} "
            f"ZeRO-{options.sharding.zero}, recompute {options.recompute.name}"
            f"{', optimizer offloaded' if options.offload else ''}."
        )
    fixes = _what_fits(catalog, request) or ["nothing near: neither more nodes nor larger ones, nor less to train"]
    return "\n".join([*lines, f"What would fit: {'; or '.join(fixes)}."])


def _states(workload: Workload) -> str:
    """What must be held however it is cut, where all of the model is trained."""
    if workload.method.kind == "lora":
        return ""
    per_parameter = 2.0 + workload.optimizer.state_bytes + workload.optimizer.master_bytes
    held = parameters(workload.model).total * per_parameter
    return f"; weights and {workload.optimizer.id} states alone are {format_bytes(held)}"


def _beyond_limits(catalog: Catalog, request: Request) -> str:
    """Plans fit into memory and break a limit: the least that each limit, or the question, must give."""
    limits = [
        f"a deadline of {format_seconds(request.deadline_s)}" if request.deadline_s is not None else "",
        f"a budget of {format_usd(request.max_cost_usd)}" if request.max_cost_usd is not None else "",
    ]
    ways = [*_later(catalog, request), *_dearer(catalog, request)]
    if not ways:
        # Neither limit can be kept alone.
        fastest = _least(catalog, replace(request, max_cost_usd=None, deadline_s=None), "time")
        cheapest = _least(catalog, replace(request, max_cost_usd=None, deadline_s=None), "cost")
        if fastest and cheapest:
            ways = list(dict.fromkeys((_paid(fastest), _paid(cheapest))))
    for count in _growing(request.cluster.count):
        if _least(catalog, _on(request, count), request.objective):
            ways.append(_nodes(request, count))
            break
    told = f"\nWhat would do: {'; or '.join(ways)}." if ways else ""
    return f"No plan keeps {' and '.join(limit for limit in limits if limit)}.{told}"


def _later(catalog: Catalog, request: Request) -> list[str]:
    if request.deadline_s is None:
        return []
    point = _least(catalog, replace(request, deadline_s=None), "time")
    kept = " within the budget" if request.max_cost_usd is not None else ""
    return (
        [f"{format_seconds(point.days * _DAY)} at the fastest{kept} (--deadline '{_days_up(point.days)}')"]
        if point
        else []
    )


def _dearer(catalog: Catalog, request: Request) -> list[str]:
    if request.max_cost_usd is None:
        return []
    point = _least(catalog, replace(request, max_cost_usd=None), "cost")
    if point is None or point.usd_total is None:
        return []
    kept = " within the deadline" if request.deadline_s is not None else ""
    return [f"{format_usd(point.usd_total)} at the cheapest{kept} (--max-cost '${math.ceil(point.usd_total):,}')"]


def _paid(point: FrontPoint) -> str:
    flags = f"--deadline '{_days_up(point.days)}' --max-cost '${math.ceil(point.usd_total or 0.0):,}'"
    return f"{format_seconds(point.days * _DAY)} and {format_usd(point.usd_total or 0.0)} ({flags})"


def _days_up(days: float) -> str:
    """A duration as a flag takes it, rounded up so that what takes that long keeps it."""
    for unit, each in (("d", 1.0), ("h", 24.0), ("min", 1440.0)):
        if days * each >= 1:
            return f"{math.ceil(days * each * 10) / 10:g} {unit}"
    return f"{math.ceil(days * _DAY)} s"


def _least(catalog: Catalog, request: Request, objective: str) -> FrontPoint | None:
    """The best plan by an objective that keeps the request's limits, if there is one."""
    try:
        prepared = prepare(catalog, replace(request, objective=objective))
    except ClusterwrightError:
        return None
    best = Bounded().search(problem(prepared, 1)).best
    return answer.front_point(prepared, best[0]) if best else None


def _what_fits(catalog: Catalog, request: Request) -> list[str]:
    """More of the same nodes, the same number of larger ones, or training less: what fits first of each."""
    request = replace(request, deadline_s=None, max_cost_usd=None, objective="time")
    found = []
    count = next((n for n in _growing(request.cluster.count) if _least(catalog, _on(request, n), "time")), None)
    found += [_nodes(request, count)] if count else []
    for name in ("dgx-h200", "dgx-b200", "gb200-nvl72"):
        if name not in catalog.nodes or name == request.cluster.node.id:
            continue
        larger = cluster(catalog, name, request.cluster.count)
        if larger.accelerator.memory > request.cluster.accelerator.memory and _least(
            catalog, replace(request, cluster=larger, price=None), "time"
        ):
            found.append(f"{request.cluster.count:,} x {name}")
            break
    return found + _training_less(catalog, request)


def _training_less(catalog: Catalog, request: Request) -> list[str]:
    """Adapters instead of the whole model, or shorter sequences than the model's usual ones."""
    w = request.workload
    if w.method.kind != "lora":
        adapters = workload(w.model, sequence=w.sequence, batch=w.batch, tokens=w.tokens, method="lora")
        if _least(catalog, replace(request, workload=adapters), "time"):
            return ["adapters instead of the whole model (--method lora)"]
    for doublings in range(20, -1, -1):
        length = w.model.sequence * 2**doublings
        if length >= w.sequence:
            continue
        if _least(catalog, replace(request, workload=replace(w, sequence=length)), "time"):
            return [f"sequences of {length:,} tokens (--seq {length})"]
    return []


def _on(request: Request, count: int) -> Request:
    """The request on that many nodes."""
    return replace(request, cluster=replace(request.cluster, count=count), counts=(count,))


def _nodes(request: Request, count: int) -> str:
    node = request.cluster.node.id
    flag = f"count = {count} in the cluster's file" if request.cluster.name else f"--cluster {node}:{count}"
    return f"{count:,} x {node} ({flag})"


def _growing(count: int) -> list[int]:
    """Counts to try beyond the one that does not do, up to 64 times as many."""
    tried = [count * factor for factor in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)]
    return [n for n in tried if n <= 100_000]
