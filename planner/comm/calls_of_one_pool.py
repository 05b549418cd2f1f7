"""The calls of a plan's step, from its document and a catalog, by the cost model that its time comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner import cost
from planner.axes import LAYOUT_AXES, OPTION_AXES
from planner.axes.options import option_values
from planner.axes.values import FULL, NO_RECOMPUTE, SELECTIVE
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog, cluster
from planner.comm import calls_of_several_pools
from planner.cost import calls
from planner.cost.calls import Call
from planner.cost.figures import Grid
from planner.figures import cost_inputs
from planner.figures.efficiency import reached
from planner.figures.profiles import overlay
from planner.figures.profiles import profile as profiles
from planner.schema.hardware import Cluster
from planner.schema.model_reading import read
from planner.schema.plan import Plan
from planner.schema.workload import WITH_ITERATIONS, Method, Optimizer, Workload
from planner.space.cost_grid import Figures, single_grid

CAUSES = ("tp", "cp", "ep", "p2p", "dp")
"""Terms of a breakdown that are communication and nothing else."""


def listed(plan: Plan, catalog: Catalog, where: str = "plan", clusters: Sequence[Cluster] = ()) -> tuple[Call, ...]:
    """Every collective of a step; over several pools, as :class:`~.calls_of_several_pools.PoolCall`.

    Args:
        plan: A verified plan.
        catalog: Where its nodes, fabrics and runtime are looked up.
        where: What messages call the plan.
        clusters: Clusters of the user's own files; a node found there is not looked up.

    Raises:
        WrongQuestion: the plan names what the catalog does not have, or its communication was predicted from other
        figures than the catalog's.
    """
    in_plan = plan.prediction.breakdown
    if calls_of_several_pools.several(plan):
        known = known_of(plan, catalog, where, clusters)
        listed_calls: tuple[Call, ...] = calls_of_several_pools.listed(known)
        _refuse_others(known, where, clusters)
        parts: Mapping[str, object] = {
            cause: sum(c.exposed_s for c in calls_of_several_pools.listed(known) if c.paces and c.cause == cause)
            for cause in CAUSES
        }
    else:
        grid = grid_of(plan, catalog, where, clusters)
        listed_calls, parts = calls.calls(grid), cost.breakdown(grid)
    for cause in CAUSES:
        seconds = float(parts[cause])  # type: ignore[arg-type]
        if not math.isclose(seconds, in_plan.get(cause, 0.0), rel_tol=calls_of_several_pools.SAME, abs_tol=1e-9):
            raise _other(where, f"{cause} takes {in_plan.get(cause, 0.0):.6g} s", f"{seconds:.6g} s", clusters)
    return listed_calls


def _other(where: str, in_plan: str, mine: str, clusters: Sequence[Cluster]) -> WrongQuestion:
    return WrongQuestion(
        f"{where}: {in_plan} in the plan and {mine} by this {'cluster, ' if clusters else ''}catalog and version; "
        "give the catalog that it was made with (--catalog DIR) and the cluster's file, if it was made from one "
        "(--cluster FILE.toml), or make it again (clusterwright plan ... -o FILE)"
    )


def _refuse_others(known: calls_of_several_pools.KnownPlan, where: str, clusters: Sequence[Cluster]) -> None:
    """Raises WrongQuestion where a stage or a group takes another time by this catalog than the plan says."""
    stages, groups = calls_of_several_pools.times(known)
    for i, (g, mine, whole) in enumerate(zip(known.plan.parallelism.groups, stages, groups, strict=True)):
        stage_pairs = zip(g.stages, mine, strict=True)
        pairs = [(f"stage {j + 1} of pipelines {i + 1}", s.time_s, t) for j, (s, t) in enumerate(stage_pairs)]
        for what, in_plan, seconds in (*pairs, (f"a step of pipelines {i + 1}", g.time_s, whole)):
            if not math.isclose(float(seconds), in_plan, rel_tol=calls_of_several_pools.SAME):
                raise _other(where, f"{what} takes {in_plan:.6g} s", f"{float(seconds):.6g} s", clusters)


def known_of(
    plan: Plan, catalog: Catalog, where: str, clusters: Sequence[Cluster] = ()
) -> calls_of_several_pools.KnownPlan:
    """A plan over several pools with the tables it was priced from; arguments as of :func:`listed`.

    Raises:
        WrongQuestion: see :func:`listed`.
    """
    if not plan.parallelism.groups:
        raise WrongQuestion(f"{where}: a plan over several pools that does not state which pipelines use them; "
                            "create it again (clusterwright plan ... -o FILE)")  # fmt: skip
    at = calls_of_several_pools.places(plan, catalog, where, clusters)
    work = _workload(plan)
    axis = catalog.runtime(plan.runtime.name).axes.get("recompute", ("none",))
    able = [p.name for p in (NO_RECOMPUTE, SELECTIVE, FULL) if axis == "any" or p.name in axis]
    return calls_of_several_pools.known(plan, at, [_figures(plan, catalog, place, work) for place in at], able)


def grid_of(plan: Plan, catalog: Catalog, where: str, clusters: Sequence[Cluster] = ()) -> Grid:
    """A plan on one pool as a grid of scalars, SI; arguments as of :func:`listed`.

    Raises:
        WrongQuestion: see :func:`listed`.
    """
    place = place_of(plan, catalog, where, clusters)
    layout = {axis.name: int(axis.of(plan)) for axis in LAYOUT_AXES}
    options = option_values(**{axis.name: axis.value(axis.of(plan)) for axis in OPTION_AXES})
    grid = single_grid(_figures(plan, catalog, place, _workload(plan)), layout, options)
    near = plan.prediction.own_runs
    if near is None:
        return grid
    return replace(grid, stack=replace(grid.stack, whole_step=near.shared_factor * near.near_factor))


def _figures(plan: Plan, catalog: Catalog, place: Cluster, work: Workload) -> Figures:
    """What the cost functions read of a pool."""
    release = plan.runtime.release
    runtime = catalog.runtime(plan.runtime.name).at(release)
    fitted = reached(catalog, place.accelerator, runtime, release)
    profile = profiles.fit(overlay.read(catalog), work, place.accelerator.id, plan.precision)
    return Figures(
        cost_inputs.shape(work, runtime),
        {plan.precision: cost_inputs.device(place.accelerator, fitted.accelerator, plan.precision, release)},
        cost_inputs.network(place, fitted.accelerator),
        cost_inputs.stack(runtime, fitted.runtime, release, place.accelerator),
        place.node.accelerators,
        {} if profile is None else {plan.precision: profile.table},
        expanded=cost_inputs.expansion(place.accelerator, fitted.accelerator, place.node.accelerators),
        uncompiled=fitted.without_compiler(runtime, release, place.accelerator),
    )


def place_of(plan: Plan, catalog: Catalog, where: str = "plan", files: Sequence[Cluster] = ()) -> Cluster:
    """The cluster of a plan on one pool: by the catalog, or that of the one file with the plan's count of nodes.

    Raises:
        WrongQuestion: the catalog has no such node or fabric and no file was given, or the file's are others.
    """
    pool = plan.cluster.pools[0]
    fabric = plan.cluster.fabric.id
    if len(files) > 1:
        raise WrongQuestion(f"{where}: a plan on nodes of one kind; give --cluster once")
    if not files:
        file = "FILE" if ":" in plan.cluster.name else plan.cluster.name
        for kind, name, known in (("node", pool.node, catalog.nodes), ("fabric", fabric, catalog.fabrics)):
            if name not in known:
                raise WrongQuestion(
                    f"{where}: its {kind} {name!r} is not in the catalog; give the cluster's file that the plan was "
                    f"made from (--cluster {file}.toml), or the catalog that has it (--catalog DIR)"
                )
        return cluster(catalog, pool.node, pool.count, fabric)
    (given,) = files
    if fabric != given.fabric.id and fabric in catalog.fabrics:  # The question had --fabric beside its file.
        other = catalog.fabric(fabric)
        wired = replace(given.node, fabric=fabric, nic_bandwidth=other.nic_bandwidth)
        given = replace(given, fabric=other, node=wired)
    pairs = (("node", pool.node, given.node.id), ("accelerator", pool.accelerator, given.accelerator.id))
    for kind, mine, theirs in (*pairs, ("fabric", fabric, given.fabric.id)):
        if mine != theirs:
            raise WrongQuestion(f"{where}: its {kind} is {mine!r}, and --cluster {given.name} has {theirs!r}")
    return replace(given, count=pool.count)


def _workload(plan: Plan) -> Workload:
    """What is trained, from the document alone: the model's record stands in it."""
    w = plan.workload
    method = Method(**{**w.method, "targets": tuple(w.method["targets"])})
    return Workload(
        model=read(w.shape),
        sequence=w.sequence,
        batch=plan.batch.global_,
        tokens=w.tokens,
        method=method,
        optimizer=_optimizer(plan),
        mtp_layers=w.mtp_layers or 0,
        imbalance=w.imbalance,
        task=w.task or "sft",
        texts=w.texts or (),
    )


def _optimizer(plan: Plan) -> Optimizer:
    optimizer = plan.workload.optimizer
    return Optimizer(
        id=optimizer["id"],
        name=optimizer["id"],
        source="the plan",
        state_bytes=optimizer["state_bytes"],
        master_bytes=optimizer["master_bytes"],
        step_bytes=optimizer["step_bytes"],
        **{name: optimizer[name] for name in WITH_ITERATIONS if name in optimizer},
    )
