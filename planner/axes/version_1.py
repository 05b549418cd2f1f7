"""Values of axes in plans of schema version 1, where they stand in many records."""

from __future__ import annotations

from collections.abc import Callable

from planner.axes.values import ALONE, MemoryPlacement, offload_name
from planner.schema.plan import Plan


def offloaded_share(plan: Plan) -> float:
    """Share of the optimizer states in host memory."""
    return plan.offloaded.optimizer_share if plan.offloaded else float(plan.offload.get("optimizer", False))


STATED: dict[str, Callable[[Plan], int | bool | str]] = {
    "tp": lambda plan: plan.parallelism.tp,
    "pp": lambda plan: plan.parallelism.pp,
    "vpp": lambda plan: plan.parallelism.vpp,
    "cp": lambda plan: plan.parallelism.cp,
    "ep": lambda plan: plan.parallelism.ep,
    "etp": lambda plan: plan.parallelism.etp,
    "dp": lambda plan: plan.parallelism.dp,
    "micro": lambda plan: plan.batch.micro,
    "batch": lambda plan: plan.batch.global_,
    "nodes": lambda plan: sum(pool.count for pool in plan.cluster.pools),
    "precision": lambda plan: plan.precision,
    "recompute": lambda plan: plan.recompute.policy,
    "sequence_parallel": lambda plan: plan.parallelism.sequence_parallel,
    "tp_overlap": lambda plan: plan.overlap.tp,
    "zero": lambda plan: plan.parallelism.zero_stage,
    "zero_scope": lambda plan: plan.parallelism.zero_scope,
    "dp_overlap": lambda plan: plan.overlap.dp,
    "p2p_overlap": lambda plan: plan.overlap.p2p,
    "ep_overlap": lambda plan: bool(plan.overlap.ep),
    "rank_order": lambda plan: plan.parallelism.rank_order,
    "offload": lambda plan: offload_name(offloaded_share(plan)),
    "placement": lambda plan: MemoryPlacement(**plan.placement or {}).name,
    # Documents older than the field share sequences by a ring.
    "cp_algorithm": lambda plan: plan.parallelism.cp_algorithm or ("p2p" if plan.parallelism.cp > 1 else ALONE),
    "offload_overlap": lambda plan: bool(plan.offloaded and plan.offloaded.optimizer_overlap),
    "activation_offload": lambda plan: "+".join(plan.offloaded.activations if plan.offloaded else ()) or ALONE,
    "graphs": lambda plan: plan.graphs or ALONE,
    "schedule": lambda plan: plan.parallelism.schedule,
    "dispatcher": lambda plan: plan.dispatcher or ALONE,
}
"""Axis -> its value in a plan, as :attr:`planner.axes.axis.PlanAxis.of` gives it."""
