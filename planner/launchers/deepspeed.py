"""DeepSpeed: ``ds_config.json`` and a script of one's own that calls ``deepspeed.initialize``.

Keys and their checks: DeepSpeed 0.19.8.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.axes.values import EVERYWHERE, nodes_of
from planner.base.errors import WrongQuestion, did_you_mean
from planner.launchers import checks, plan_facts, table, torchrun
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

NAME = "ds_config.json"
TABLE = launcher_table("deepspeed")
TOP_LEVEL: list[str] = TABLE.head["keys"]["top_level"]
REMOVED: dict[str, str] = TABLE.head["removed"]
"""Key -> what DeepSpeed no longer has."""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The configuration, and the script with it."""
    settings = configuration(plan, values)
    lint(settings, plan.cluster.accelerators, plan.parallelism.tp * plan.parallelism.pp)
    argv = ("--deepspeed", "--deepspeed_config", NAME)
    job = checks.with_check(plan, job, "deepspeed")
    return replace(
        job,
        command=(*torchrun.rendezvous(plan, values), LaunchProgram(checks.NAME), values["script"], *argv),
        argv=argv,
        environment={**job.environment, **plan.env},
        files={**job.files, NAME: json.dumps(settings, indent=2) + "\n"},
        needed=(*job.needed, NAME),
    )


CLIPPING = 1.0
"""Norm of gradients, as the Trainer clips without DeepSpeed, which clips only where its file says so."""


def configuration(plan: Plan, values: Values) -> dict[str, Any]:
    """The plan as a DeepSpeed configuration."""
    p = plan.parallelism
    decided = {
        "overlapping": plan.overlap.dp if p.zero_stage else None,
        "gathered_inside": p.dp_shard if p.zero_stage == 3 and p.zero_scope != EVERYWHERE else None,
        "partition": "uniform" if p.pp > 1 else None,
        "job.clipping": CLIPPING,
        "job.whole_weights": True if p.zero_stage == 3 else None,  # else a saved model has no weights
    }
    return table.nested(table.document(TABLE, table.plan_says(plan, values, decided)))


def with_file(plan: Plan, values: Values) -> dict[str, str]:
    """The file of a program that DeepSpeed carries under Accelerate.

    Raises:
        WrongQuestion: what DeepSpeed would take without a word.
    """
    settings = configuration(plan, values)
    lint(settings, plan.cluster.accelerators, plan.parallelism.tp)
    return {NAME: json.dumps(settings, indent=2) + "\n"}


def lint(settings: Mapping[str, Any], world: int, model_parallel: int, where: str = NAME) -> None:
    """Refuses what DeepSpeed takes without a word, and what it would only stop at on the cluster.

    Raises:
        WrongQuestion: an unknown or a removed key, or a batch that is not the product of its parts.
    """
    zero = settings.get("zero_optimization", {})
    for key in [*settings, *zero]:
        if key in REMOVED:
            raise WrongQuestion(f"{where}: {key}: {REMOVED[key]} is gone from DeepSpeed")
    for key in settings:
        if key not in TOP_LEVEL:
            hint = did_you_mean(key, TOP_LEVEL, most=1)
            raise WrongQuestion(f"{where}: {key}: no such key, and DeepSpeed would ignore it{hint}")
    if settings.get("bf16", {}).get("enabled") and settings.get("fp16", {}).get("enabled"):
        raise WrongQuestion(f"{where}: bf16 and fp16 are both enabled; keep one")
    if settings.get("pipeline", {}).get("stages", 1) not in (1, "auto") and zero.get("stage", 0) >= 2:
        raise WrongQuestion(f"{where}: pipeline stages go with ZeRO 0 or 1, not {zero['stage']}")
    names = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    sizes = [settings[name] for name in names if isinstance(settings.get(name), int)]
    dp = world // (model_parallel * max(settings.get("sequence_parallel_size", 1), 1))
    if len(sizes) == len(names) and sizes[0] * sizes[1] * dp != sizes[2]:
        raise WrongQuestion(f"{where}: micro-batch {sizes[0]} x accumulation {sizes[1]} x dp {dp} is not {sizes[2]}")


def refuses(plan: Plan) -> Iterator[str]:
    """Combinations that DeepSpeed's engines exclude."""
    p = plan.parallelism
    yield from plan_facts.runs_on(plan, "nvidia", "amd", "intel")
    yield from plan_facts.stages_fill_pools(plan)
    if p.pp > 1 and p.zero_stage >= 2:
        yield f"its pipeline engine goes with ZeRO 0 or 1, not {p.zero_stage}"
    if p.zero_scope != EVERYWHERE and p.zero_stage in (1, 2):
        yield "shards of a node exist for ZeRO-3 only (zero_hpz_partition_size)"


def loses(plan: Plan) -> Iterator[Loss]:
    """What is the script's."""
    p = plan.parallelism
    yield from plan_facts.other_runtime(plan, ("deepspeed",))
    yield from plan_facts.own_script_losses(plan)
    yield Loss("workload", "model, data and sequence length are the script's")
    if p.pp > 1:
        yield Loss("parallelism.pp", "the script has to build its model as a PipelineModule of as many stages")
    if plan.recompute.policy != "none":
        yield Loss("recompute", "switched on in the script: deepspeed.checkpointing.checkpoint around every block")
    yield from gathered_inside(plan)


def gathered_inside(plan: Plan) -> Iterator[Loss]:
    """What is sharded over more ranks than a copy of the weights is gathered from."""
    if nodes := nodes_of(plan.parallelism.zero_scope):
        where = "a node" if nodes == 1 else f"{nodes} nodes"
        yield Loss(
            "parallelism.zero_scope", f"weights are gathered inside {where}; optimizer states stay sharded over all"
        )


EXPORTER = by_table("deepspeed", emit=emit, refuses=refuses, loses=loses)
