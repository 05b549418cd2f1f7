"""Why a question on one pool has no plan, and the smallest change to it that would have one."""

from __future__ import annotations

import math
from dataclasses import replace

from planner.axes.table import OFFLOAD, PLACEMENT, RECOMPUTE, ZERO
from planner.axes.values import WITH_WEIGHTS, offload_name
from planner.base.errors import ClusterwrightError
from planner.base.units import format_bytes, format_risk, format_seconds, format_usd
from planner.catalog import Catalog, cluster
from planner.cost import expanded_memory, pipeline, stage_memory
from planner.models.parameters import parameters
from planner.models.workload import workload
from planner.planning import answer, ranked
from planner.planning.answer import MeasuredRuns
from planner.planning.ranked import Ranking
from planner.question.request import Request
from planner.question.runtimes import default_runtime
from planner.question.search_problem import Prepared, prepare
from planner.schema.plan import FrontPoint
from planner.schema.workload import Workload
from planner.search.problem import Candidate
from planner.space.cost_grid import single_grid
from planner.space.offloading import values_of
from planner.space.pins import Bound, Pins

_DAY = 86400.0
LIGHTER = (("lora", "adapters instead of the whole model"), ("qlora", "adapters over 4-bit weights"))
"""Methods that hold less than training the whole model, the heavier first, and what they are called in advice."""


def overflowing(prepared: Prepared, placed: Candidate) -> str:
    """That a placement is more than the expanded memory holds, or what is offloaded more than the node's own."""
    grid = single_grid(prepared.figures, placed.layout, placed.options)
    held = stage_memory.stages(grid, pipeline.split(grid.shape, grid.layout))
    node = prepared.request.cluster.node
    host = answer.host_memory(node, grid, held)
    if host and host.total_bytes > (host.capacity_bytes or math.inf):
        return (
            f"Host memory of a {node.id} is {format_bytes(host.capacity_bytes or 0.0)}, and what is offloaded to it "
            f"{format_bytes(host.total_bytes)}: of each accelerator {format_bytes(host.optimizer_bytes)} of optimizer "
            f"states and {format_bytes(host.activations_bytes)} of activations. Offload less, shard over more nodes, "
            "or state the host_memory that yours has (--catalog)."
        )
    most, there = max(float(stage.expanded.total) for stage in held), float(expanded_memory.room(grid))
    return (
        f"placement={placed.options[PLACEMENT].name} puts {format_bytes(most)} into expanded memory, and there are "
        f"{format_bytes(there)} for each accelerator at --oom-risk {format_risk(prepared.request.oom_risk)}."
    )


def nothing_fits(catalog: Catalog, prepared: Prepared, ranking: Ranking, runs: MeasuredRuns | None = None) -> str:
    """What binds when no plan is feasible, and the smallest change that would help; with what a site has measured."""
    request, found = prepared.request, ranking.found
    if found.feasible and request.deadline_s is None and request.max_cost_usd is None:
        return "every plan that is predicted to fit has run out of memory at this site; try a lower --oom-risk"
    if found.feasible:
        return _beyond_limits(catalog, request, runs)
    w, accelerator, asked = request.workload, request.cluster.accelerator, request.cluster
    closest = found.closest
    lines = [
        f"No plan fits into memory: {w.model.name} on {asked.count:,} x {asked.node.id} "
        f"({asked.accelerators:,} x {format_bytes(accelerator.memory)} = "
        f"{format_bytes(asked.accelerators * accelerator.memory)}{_states(w)})."
    ]
    if closest is not None and not math.isfinite(closest.memory):
        return overflowing(prepared, closest)
    if closest is not None:
        over = closest.memory - prepared.usable
        leaves = f"--oom-risk {format_risk(request.oom_risk)} leaves {format_bytes(prepared.usable)}"
        degrees = " ".join(f"{a.upper()}{closest.layout[a]}" for a in ("tp", "pp", "cp", "ep") if closest.layout[a] > 1)
        options = closest.options
        lines.append(
            f"Closest (over by {format_bytes(over)} per accelerator; {leaves}): {degrees or 'DP only'} "
            f"ZeRO-{options[ZERO]}, recompute {options[RECOMPUTE].name}"
            f"{', optimizer offloaded' if options[OFFLOAD] else ''}."
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


def _beyond_limits(catalog: Catalog, request: Request, runs: MeasuredRuns | None) -> str:
    """Plans fit into memory and break a limit: the least that each limit, or the question, must give."""
    limits = [
        f"a deadline of {format_seconds(request.deadline_s)}" if request.deadline_s is not None else "",
        f"a budget of {format_usd(request.max_cost_usd)}" if request.max_cost_usd is not None else "",
    ]
    ways = [*_later(catalog, request, runs), *_dearer(catalog, request, runs)]
    if not ways:
        # Neither limit can be kept alone.
        fastest = _least(catalog, replace(request, max_cost_usd=None, deadline_s=None), "time", runs)
        cheapest = _least(catalog, replace(request, max_cost_usd=None, deadline_s=None), "cost", runs)
        if fastest and cheapest:
            ways = list(dict.fromkeys((_paid(fastest), _paid(cheapest))))
    for count in _growing(request.cluster.count):
        if _least(catalog, _on(request, count), request.objective, runs):
            ways.append(_nodes(catalog, request, count))
            break
    suggestion = f"\nWhat would do: {'; or '.join(ways)}." if ways else ""
    return f"No plan keeps {' and '.join(limit for limit in limits if limit)}.{suggestion}"


def _later(catalog: Catalog, request: Request, runs: MeasuredRuns | None) -> list[str]:
    if request.deadline_s is None:
        return []
    point = _least(catalog, replace(request, deadline_s=None), "time", runs)
    kept = " within the budget" if request.max_cost_usd is not None else ""
    return (
        [f"{format_seconds(point.days * _DAY)} at the fastest{kept} (--deadline '{_days_up(point.days)}')"]
        if point
        else []
    )


def _dearer(catalog: Catalog, request: Request, runs: MeasuredRuns | None) -> list[str]:
    if request.max_cost_usd is None:
        return []
    point = _least(catalog, replace(request, max_cost_usd=None), "cost", runs)
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


def _least(catalog: Catalog, request: Request, objective: str, runs: MeasuredRuns | None = None) -> FrontPoint | None:
    """The best plan by an objective that keeps the request's limits, if there is one."""
    try:
        prepared = prepare(catalog, replace(request, objective=objective))
    except ClusterwrightError:
        return None
    ranking = ranked.search(catalog, prepared, runs, top=3)  # with levers, with host memory, without both
    best = [
        plan for _, plan in sorted(zip(ranking.found.best, ranking.plans, strict=True), key=lambda pair: pair[0].value)
    ]
    return answer.front_point(best[0]) if best else None


def _what_fits(catalog: Catalog, request: Request) -> list[str]:
    """More of the same nodes, the same number of larger ones, or training less: what fits first of each."""
    request = replace(request, deadline_s=None, max_cost_usd=None, objective="time")
    found = []
    count = next((n for n in _growing(request.cluster.count) if _least(catalog, _on(request, n), "time")), None)
    found += [_nodes(catalog, request, count)] if count else []
    for name in ("dgx-h200", "dgx-b200", "gb200-nvl72"):
        if name not in catalog.nodes or name == request.cluster.node.id:
            continue
        larger = cluster(catalog, name, request.cluster.count)
        if larger.accelerator.memory > request.cluster.accelerator.memory and _least(
            catalog, replace(request, cluster=larger, price=None), "time"
        ):
            found.append(f"{request.cluster.count:,} x {name}")
            break
    return found + _weights_away(catalog, request) + _training_less(catalog, request)


def _weights_away(catalog: Catalog, request: Request) -> list[str]:
    """Weights in host memory with the optimizer's states, where the runtime keeps them there and no pin says else."""
    away = offload_name(WITH_WEIGHTS)
    if away not in values_of(request.runtime, OFFLOAD.name) or OFFLOAD.name in request.pins:
        return []
    pinned = Pins({**request.pins.bounds, OFFLOAD.name: Bound((away,))})
    fits = _least(catalog, replace(request, pins=pinned), "time")
    return [f"weights in host memory (--pin {OFFLOAD.name}={away})"] if fits else []


def _training_less(catalog: Catalog, request: Request) -> list[str]:
    """Adapters instead of the whole model, or over 4-bit weights, or shorter sequences than the model's usual ones."""
    w = request.workload
    is_light = bool(w.method.base or (w.model.tower and w.model.tower.trained))
    for method, instead in () if is_light else LIGHTER[w.method.kind == "lora" :]:
        adapters = workload(w.model, sequence=w.sequence, batch=w.batch, tokens=w.tokens, method=method, task=w.task)
        if _least(catalog, _adapting(catalog, request, adapters), "time"):
            return [f"{instead} (--method {method})"]
    for doublings in range(20, -1, -1):
        length = w.model.sequence * 2**doublings
        if length >= w.sequence:
            continue
        if _least(catalog, replace(request, workload=replace(w, sequence=length)), "time"):
            return [f"sequences of {length:,} tokens (--seq {length})"]
    return []


def _adapting(catalog: Catalog, request: Request, adapters: Workload) -> Request:
    """The request with adapters; where no runtime was named, with the one that is usual for them."""
    if not any(flag == "--runtime" for *_, flag in request.assumptions):
        return replace(request, workload=adapters)
    runtime = catalog.runtime(default_runtime(catalog, request.cluster.accelerator, adapters))
    release = runtime.releases[-1]
    return replace(request, workload=adapters, runtime=runtime.at(release), release=release)


def _on(request: Request, count: int) -> Request:
    """The request on that many nodes."""
    return replace(request, cluster=replace(request.cluster, count=count), counts=(count,))


def _nodes(catalog: Catalog, request: Request, count: int) -> str:
    node, held = request.cluster.node.id, request.cluster.node.accelerators
    if not request.cluster.name and node in catalog.nodes and held < catalog.nodes[node].accelerators:
        part = request.cluster.accelerator.id  # some of a node's: twice as many are no two nodes
        return f"{count * held:,} x {part} (--accelerators {part}:{count * held})"
    flag = f"count = {count} in the cluster's file" if request.cluster.name else f"--cluster {node}:{count}"
    return f"{count:,} x {node} ({flag})"


def _growing(count: int) -> list[int]:
    """Counts to try beyond the one that does not do, up to 64 times as many."""
    tried = [count * factor for factor in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)]
    return [n for n in tried if n <= 100_000]
