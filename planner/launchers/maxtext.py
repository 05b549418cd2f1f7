"""MaxText on TPUs: its trainer with all that a plan says as ``key=value`` over its own ``base.yml``.

On the command line, since a model's file would lead over a file of ours (pyconfig.py, _initialize_pydantic). Keys and
their checks: AI-Hypercomputer/maxtext e591f30c, configs/base.yml and types.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.launchers import maxtext_model, plan_facts, quoting, table, tpu
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

AXES = ("tensor", "context", "expert", "fsdp", "data", "pipeline")
"""Axes of its mesh, innermost first."""
TABLE = launcher_table("maxtext")
CONTEXT = TABLE.options["context_parallel_strategy"].values
"""How context-parallel ranks share a sequence -> its word."""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """One process a host; JAX finds the others by itself."""
    options = table.document(TABLE, _facts(plan, values))
    argv = tuple(f"{key}={_word(value)}" for key, value in options.items())
    return replace(
        job,
        command=("python3", "-m", LaunchProgram("maxtext.trainers.pre_train.train"), *argv),
        argv=argv,
        environment={**job.environment, **plan.env},
    )


def _word(value: object) -> str:
    """As OmegaConf reads it; empty texts and lists in its own way."""
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def degrees(plan: Plan) -> dict[str, int]:
    """Axis of the mesh -> ranks: experts are spread over some of the data-parallel ranks, weights over the rest."""
    p = plan.parallelism
    replicate, shard = plan_facts.mesh(plan)
    return dict(zip(AXES, (p.tp, p.cp, p.ep, max(shard // p.ep, 1), replicate, p.pp), strict=True))


def split(plan: Plan) -> dict[str, tuple[int, int]] | None:
    """Axis -> its ranks inside a slice and over slices, the innermost filling slices first; None where none does."""
    left, found = tpu.chips(plan), {}
    for axis, degree in degrees(plan).items():
        inside = max(n for n in range(1, degree + 1) if degree % n == 0 and left % n == 0)
        found[axis] = (inside, degree // inside)
        left //= inside
    return found if left == 1 else None


def _facts(plan: Plan, values: Values) -> table.Facts:
    """What keys of the table say, of a plan and its job."""
    p = plan.parallelism
    batch = plan.batch
    piped = p.pp > 1
    mesh = split(plan) or {}
    sequences = batch.global_ if piped else batch.micro * p.dp
    decided = {
        **maxtext_model.facts(plan.workload.shape, values),
        "slices": tpu.slices(plan),
        **{f"inside.{axis}": inside for axis, (inside, _) in mesh.items()},
        **{f"over.{axis}": over for axis, (_, over) in mesh.items()},
        "cp_algorithm": (p.cp_algorithm or "p2p") if p.cp > 1 else None,
        "device_batch": sequences / plan.cluster.accelerators,
        "stages.micro_batches": batch.accumulation if piped else None,
        "stages.layers": plan.workload.shape["layers"] // p.pp if piped else None,
        "stages.repeats": 1 if piped else None,
        "whole.accumulation": None if piped else batch.accumulation,
        "mtp": plan.workload.mtp_layers or 0,
        "started_from": values["load"] if plan.workload.method["kind"] == "finetune" else None,
        "job.name": quoting.slug(plan.workload.model),
    }
    return table.plan_says(plan, values, decided)


def refuses(plan: Plan) -> Iterator[str]:
    """What its checks would stop at, and what has no key."""
    p = plan.parallelism
    if not all(tpu.is_one(pool) for pool in plan.cluster.pools):
        yield from plan_facts.runs_on(plan, "google")
        return
    yield from tpu.refuses(plan)
    yield from plan_facts.mesh_is_whole(plan)
    if p.dp % p.ep or (p.zero_stage and plan_facts.mesh(plan)[1] % p.ep):
        yield f"experts over {p.ep} ranks, which do not divide those that share weights"
    elif split(plan) is None:
        yield f"degrees that do not fill slices of {tpu.chips(plan):,} chips"
    if p.cp > 1 and CONTEXT[p.cp_algorithm or "p2p"] == "ring" and plan.workload.sequence % p.cp**2:
        yield f"a ring of {p.cp} ranks needs sequences that divide by {p.cp**2}"
    if p.pp > 1 and plan.batch.accumulation % p.pp:
        yield f"{plan.batch.accumulation} micro-batches for {p.pp} stages: they must divide"
    if p.pp > 1 and plan.workload.shape["moe"] and plan.workload.shape["moe"]["leading_dense_layers"]:
        yield "pipelines with leading dense layers"
    if plan.workload.mtp_layers and p.pp > 1:
        yield "multi-token prediction in a pipeline"
    yield from maxtext_model.refuses(plan.workload.shape, plan.workload.sequence)


def loses(plan: Plan) -> Iterator[Loss]:
    """What the compiler decides, and what its policy computes again."""
    yield from plan_facts.other_runtime(plan, ("maxtext",))
    yield from plan_facts.shape_losses(plan)
    yield from maxtext_model.loses(plan.workload.shape)
    if plan.recompute.policy == "none":
        yield Loss("recompute.policy", "products are kept, norms and functions between them are computed again")
    if plan.overlap.tp or plan.overlap.dp or plan.overlap.p2p:
        yield Loss("overlap", "the compiler decides what overlaps (LIBTPU_INIT_ARGS says more)")


EXPORTER = by_table("maxtext", emit=emit, refuses=refuses, loses=loses)
