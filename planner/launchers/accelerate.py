"""Hugging Face Accelerate: ``accelerate.yaml`` for ``accelerate launch`` and a script of one's own.

ZeRO-3 and ZeRO-2 become FSDP2, with or without resharding after the forward pass; ZeRO-1, anything that offloads the
optimizer alone, and what was planned for DeepSpeed becomes DeepSpeed; ZeRO-0 plain replicas. Keys: accelerate 1.15.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers import checks, deepspeed, plan_facts, quoting, table
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Shell, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

NAME = "accelerate.yaml"
ACCUMULATION = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
TABLE = launcher_table("accelerate")


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The configuration (and DeepSpeed's), and ``accelerate launch`` on one node."""
    job = launched(plan, job, values, values["script"])
    return replace(job, environment={**job.environment, ACCUMULATION: str(plan.batch.accumulation)})


def launched(plan: Plan, job: LaunchJob, values: Values, *program: str) -> LaunchJob:
    """The same for any program, a file or a module, that the plan's engine carries, with its arguments."""
    job = checks.with_check(plan, job, "accelerate")
    files = deepspeed.with_file(plan, values) if route(plan) == "DEEPSPEED" else {}
    settings = configuration(plan, values)
    lint(settings, plan.cluster.accelerators)
    files[NAME] = quoting.yaml(settings)
    return replace(
        job,
        command=(
            *("accelerate", "launch", "--config_file", NAME, "--machine_rank", Shell("$NODE_RANK")),
            *("--main_process_ip", Shell("$MASTER_ADDR"), "--main_process_port", values["master-port"]),
            *(LaunchProgram(checks.NAME), *program),
        ),
        environment={**job.environment, **plan.env},
        files={**job.files, **files},
        needed=(*job.needed, *files),
    )


def route(plan: Plan) -> str:
    """Which of Accelerate's engines carries the plan."""
    p = plan.parallelism
    alone = plan.offload.get("optimizer") and not plan.offload.get("weights")
    if plan.runtime.name == "deepspeed" or p.zero_stage == 1 or alone:
        return "DEEPSPEED"
    if p.zero_stage >= 2:
        return "FSDP"
    return "MULTI_GPU"


def configuration(plan: Plan, values: Values) -> dict[str, Any]:
    """The plan as an Accelerate configuration."""
    p = plan.parallelism
    engine = route(plan)
    sharded = _sharded(plan, values) if engine == "FSDP" else {}
    decided = {
        "engine": engine,
        "mixed": None if engine == "DEEPSPEED" else plan.precision,
        "all_nodes": plan_facts.nodes(plan),
        "built_in_shards": p.zero_stage == 3 if engine == "DEEPSPEED" else None,
        **{f"fsdp.{name}": value for name, value in sharded.items()},
    }
    return table.nested(table.document(TABLE, table.plan_says(plan, values, decided)))


def _sharded(plan: Plan, values: Values) -> dict[str, Any]:
    """What FSDP2 is told: what is wrapped is a class of one's own, or what a model of Transformers names.

    Only rank 0 loads such a model and sends it on, unless it is quantised (accelerate/utils/fsdp_utils.py skips
    ``Params4bit``).
    """
    p = plan.parallelism
    replicas, shards = plan_facts.mesh(plan)
    block = values.get("layer-class")
    return {
        "block": block,
        "loaded_by_one": None if block else not plan.workload.method.get("base"),
        "resharded": p.zero_stage == 3,
        "offloaded": bool(plan.offload.get("weights")),
        "checkpointing": plan.recompute.policy == "full",
        "replicas": replicas,
        "shards": shards,
        "tp": p.tp,
        "cp": p.cp,
    }


def lint(settings: Mapping[str, Any], world: int, where: str = NAME) -> None:
    """Accelerate compares neither number with the degrees.

    Raises:
        WrongQuestion: processes that are not the product of the degrees or the size of the cluster.
    """
    processes = settings.get("num_processes", world)
    if processes != world:
        raise WrongQuestion(f"{where}: num_processes is {processes}, the cluster has {world} accelerators")
    sizes = settings.get("parallelism_config")
    if not sizes:
        return
    product = 1
    for name, size in sizes.items():
        product *= size if name.endswith("_size") else 1
    if product != processes:
        raise WrongQuestion(f"{where}: the degrees of parallelism_config make {product} processes, not {processes}")
    prefix = "parallelism_config_"
    if (
        sizes[f"{prefix}dp_replicate_size"] > 1
        and sizes[f"{prefix}dp_shard_size"] == 1
        and sizes[f"{prefix}tp_size"] > 1
    ):
        raise WrongQuestion(f"{where}: replicas without shards do not go with tensor parallelism")


def refuses(plan: Plan) -> Iterator[str]:
    """What the chosen engine excludes."""
    p, engine = plan.parallelism, route(plan)
    yield from plan_facts.runs_on(plan, "nvidia", "amd", "intel")
    yield from plan_facts.stages_fill_pools(plan)
    if plan_facts.per_node(plan) is None:
        yield "every node needs as many accelerators (num_processes is divided by num_machines)"
    if engine != "FSDP" and (p.tp > 1 or p.cp > 1):
        yield f"tensor and context parallelism go with FSDP2 (ZeRO-2 or 3), not with {engine}"
    if p.cp_algorithm not in (None, "p2p"):
        yield f"its context parallelism is a ring, the model's attention needs {p.cp_algorithm}"
    if engine == "DEEPSPEED":
        yield from deepspeed.refuses(plan)
    if engine == "FSDP":
        yield from plan_facts.mesh_is_whole(plan)
        replicate, shard = plan_facts.mesh(plan)
        if replicate > 1 and shard == 1 and p.tp > 1:
            yield "replicas without shards do not go with tensor parallelism"


def loses(plan: Plan) -> Iterator[Loss]:
    """What is the script's."""
    yield from plan_facts.other_runtime(plan, ("fsdp2", "fsdp", "deepspeed", "pytorch-ddp"))
    yield from plan_facts.own_script_losses(plan)
    yield Loss("workload", "model, data and sequence length are the script's")
    if route(plan) != "DEEPSPEED":
        yield Loss("batch.micro", f"the script's data loader has to give {plan.batch.micro} sequences at a time")
    if plan.recompute.policy != "none" and route(plan) != "FSDP":
        yield Loss("recompute", "switched on in the script (model.gradient_checkpointing_enable())")


EXPORTER = by_table("accelerate", emit=emit, refuses=refuses, loses=loses)
