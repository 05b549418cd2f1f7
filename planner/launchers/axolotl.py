"""Axolotl: ``axolotl.yaml`` (and DeepSpeed's file) for its own training module under torchrun.

Keys: axolotl 0.18.0 (067b021c), src/axolotl/utils/schemas. Engines are chosen as for Accelerate, which it runs on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import accelerate, checks, deepspeed, hf_trainer, lora, plan_facts, quoting, table, torchrun
from planner.launchers.target import LaunchJob, LaunchProgram, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

NAME = "axolotl.yaml"
TABLE = launcher_table("axolotl")


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """``torchrun -m axolotl.cli.train`` with its configuration."""
    options = configuration(plan, values)
    files = {NAME: quoting.yaml(options)}
    files |= deepspeed.with_file(plan, values) if "deepspeed" in options else {}
    job = checks.with_check(plan, job, "accelerate")
    return replace(
        job,
        command=(*torchrun.rendezvous(plan, values), LaunchProgram(checks.NAME), "axolotl.cli.train", NAME),
        argv=(NAME,),
        options=options,
        environment={**job.environment, **plan.env},
        files={**job.files, **files},
        needed=(*job.needed, *files),
    )


def configuration(plan: Plan, values: Values) -> dict[str, Any]:
    """The plan as Axolotl's configuration."""
    sharded = accelerate.route(plan) == "FSDP"
    rows = "completion" if plan.workload.method["kind"] == "pretrain" else "chat_template"
    replicas, shards = plan_facts.mesh(plan)
    decided = {
        "mesh.replicas": replicas if sharded else None,
        "mesh.shards": shards if sharded else None,
        "loaded_by_one": not lora.base(plan) if sharded else None,
        "offloaded": bool(plan.offload.get("weights")) if sharded else None,
        "job.datasets": [{"path": values["dataset"], "type": values["dataset-type"] or rows}],
    }
    return table.nested(table.document(TABLE, hf_trainer.facts(plan, values, decided)))


def refuses(plan: Plan) -> Iterator[str]:
    """What its Trainer excludes, and what it takes otherwise than planned."""
    yield from hf_trainer.refuses(plan)
    engine = accelerate.route(plan)
    if engine == "FSDP" and plan.parallelism.zero_stage == 2:
        yield "zero 2 with FSDP: it cannot keep weights after the forward pass (setup_fsdp_envs)"
    if engine == "MULTI_GPU" and plan.precision != "fp32" and not lora.adapts(plan):
        yield f"replicas in {plan.precision}: it holds weights in 16 bit alone there (resolve_dtype); plan zero 3"


EXPORTER = by_table("axolotl", emit=emit, refuses=refuses, loses=hf_trainer.loses_with_own_model)
