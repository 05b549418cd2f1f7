"""The calls of a plan's step, from its document and a catalog, by the cost model that its time comes from."""

from __future__ import annotations

import math
from dataclasses import replace

from planner import binding, cost
from planner.catalog import Catalog, cluster
from planner.cost import calls
from planner.cost.calls import Call
from planner.cost.figures import Grid
from planner.efficiency import reached
from planner.errors import WrongQuestion
from planner.profiles import overlay
from planner.profiles import profile as profiles
from planner.schema.hardware import Cluster
from planner.schema.plan import Plan
from planner.schema.workload import Method, Optimizer, Workload
from planner.space.axes import RANK_ORDERS, Options, Placement, Sharding, TensorMode, recompute
from planner.space.grid import Figures, single_grid
from planner.verify.model import read

CAUSES = ("tp", "cp", "ep", "p2p", "dp")
"""Terms of a breakdown that are communication and nothing else."""
_SAME = 1e-6
"""Relative: what a plan's own breakdown may differ by before it counts as another catalog's."""


def listed(plan: Plan, catalog: Catalog, where: str = "plan", own: Cluster | None = None) -> tuple[Call, ...]:
    """Every collective of a step of the plan, whose cluster is the catalog's or that of a file (`own`).

    Raises:
        WrongQuestion: the plan is over several pools, names what the catalog does not have, or its communication was
        predicted from other figures than the catalog's.
    """
    grid = grid_of(plan, catalog, where, own)
    told = plan.prediction.breakdown
    parts = cost.breakdown(grid)
    for cause in CAUSES:
        seconds = parts[cause]
        if not math.isclose(float(seconds), told.get(cause, 0.0), rel_tol=_SAME, abs_tol=1e-9):
            raise WrongQuestion(
                f"{where}: {cause} takes {told.get(cause, 0.0):.6g} s in the plan and {float(seconds):.6g} s by this "
                f"{'cluster, ' if own else ''}catalog and version; give the catalog that it was made with "
                "(--catalog DIR) and the cluster's file, if it was made from one (--cluster FILE.toml), or make it "
                "again (clusterwright plan ... -o FILE)"
            )
    return calls.calls(grid)


def grid_of(plan: Plan, catalog: Catalog, where: str, own: Cluster | None = None) -> Grid:
    """The plan as figures, one scalar each.

    Raises:
        WrongQuestion: see :func:`listed`.
    """
    if len(plan.cluster.pools) != 1 or plan.parallelism.groups:
        raise WrongQuestion(f"{where}: a plan over several pools; calls are listed of plans on nodes of one kind")
    place, options = place_of(plan, catalog, where, own), _options(plan)
    runtime, release = catalog.runtime(plan.runtime.name), plan.runtime.release
    fitted = reached(catalog, place.accelerator, runtime, release)
    work = _workload(plan)
    profile = profiles.fit(overlay.read(catalog), work, place.accelerator.id, plan.precision)
    figures = Figures(
        binding.shape(work),
        {plan.precision: binding.device(place.accelerator, fitted.accelerator, plan.precision, release)},
        binding.network(place, fitted.accelerator),
        binding.stack(runtime, fitted.runtime, release),
        place.node.accelerators,
        {} if profile is None else {plan.precision: profile.table},
        expanded=binding.expansion(place.accelerator, fitted.accelerator, place.node.accelerators),
    )
    return single_grid(figures, _layout(plan), options)


def place_of(plan: Plan, catalog: Catalog, where: str = "plan", own: Cluster | None = None) -> Cluster:
    """The cluster of a plan on one pool: by the catalog, or that of a file with the plan's count of nodes.

    Raises:
        WrongQuestion: the catalog has no such node or fabric and no file was given, or the file's are others.
    """
    pool, fabric = plan.cluster.pools[0], plan.cluster.fabric.id
    if own is None:
        file = "FILE" if plan.cluster.name == f"{pool.node}:{pool.count}" else plan.cluster.name
        for kind, name, known in (("node", pool.node, catalog.nodes), ("fabric", fabric, catalog.fabrics)):
            if name not in known:
                raise WrongQuestion(
                    f"{where}: its {kind} {name!r} is not in the catalog; give the cluster's file that the plan was "
                    f"made from (--cluster {file}.toml), or the catalog that has it (--catalog DIR)"
                )
        return cluster(catalog, pool.node, pool.count, fabric)
    if fabric != own.fabric.id and fabric in catalog.fabrics:  # The question had --fabric beside its file.
        other = catalog.fabric(fabric)
        wired = replace(own.node, fabric=fabric, nic_bandwidth=other.nic_bandwidth)
        own = replace(own, fabric=other, node=wired)
    pairs = (("node", pool.node, own.node.id), ("accelerator", pool.accelerator, own.accelerator.id))
    for kind, mine, theirs in (*pairs, ("fabric", fabric, own.fabric.id)):
        if mine != theirs:
            raise WrongQuestion(f"{where}: its {kind} is {mine!r}, and --cluster {own.name} has {theirs!r}")
    return replace(own, count=pool.count)


def _layout(plan: Plan) -> dict[str, int]:
    p = plan.parallelism
    degrees = {name: getattr(p, name) for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")}
    return degrees | {"micro": plan.batch.micro, "batch": plan.batch.global_, "nodes": plan.cluster.pools[0].count}


def _options(plan: Plan) -> Options:
    p = plan.parallelism
    return Options(
        precision=plan.precision,
        recompute=recompute(plan.recompute.policy),
        tensor=TensorMode(p.sequence_parallel, plan.overlap.tp),
        sharding=Sharding(p.zero_stage, p.zero_scope, plan.overlap.dp),
        p2p_overlap=plan.overlap.p2p,
        pp_inner=p.rank_order == RANK_ORDERS[1],
        placement=Placement(**plan.placement) if plan.placement else Placement(),
        offload=bool(plan.offload.get("optimizer")),
    )


def _workload(plan: Plan) -> Workload:
    """What is trained, from the document alone: the model's record stands in it."""
    w = plan.workload
    method = Method(kind=w.method["kind"], rank=w.method["rank"], targets=tuple(w.method["targets"]))
    return Workload(
        model=read(w.shape),
        sequence=w.sequence,
        batch=plan.batch.global_,
        tokens=w.tokens,
        method=method,
        optimizer=_optimizer(plan),
        mtp_layers=w.mtp_layers or 0,
    )


def _optimizer(plan: Plan) -> Optimizer:
    said = plan.workload.optimizer
    return Optimizer(
        id=said["id"],
        name=said["id"],
        source="the plan",
        state_bytes=said["state_bytes"],
        master_bytes=said["master_bytes"],
        step_bytes=said["step_bytes"],
    )
