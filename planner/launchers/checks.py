"""``plan_check.py``: a job stops before its first step where its model or its mesh is not the plan's.

Each trainer builds its model elsewhere, so each has a hook of its own: Accelerate's ``prepare`` (1.15.0),
``deepspeed.initialize`` (0.19.8), Megatron-LM's ``GPTModel`` or ``HybridModel`` and ``setup_model_and_optimizer``
(core_v0.16.1 and d98e8a64), which Primus finds when its trainer begins (fd1eeabb), MaxText's ``setup_train_loop`` and
log (e591f30c). Modules that are exported whole (torchtitan's, Megatron-Bridge's) import it and compare by themselves.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from planner.launchers import lora, plan_facts
from planner.launchers.scripts import script
from planner.launchers.target import LaunchJob, Loss
from planner.models.parameters import trained
from planner.schema.model_reading import read
from planner.schema.plan import Plan
from planner.schema.workload import Method

NAME = "plan_check.py"
UNHOOKED = '\ndef hook():\n    """Nothing: what is started compares by itself."""\n\n'
WARN = {"PLAN_CHECK": "warn"}
"""Environment of a job that was changed on purpose: the check reports and continues."""
UNCHECKED_OPTION = re.compile(
    r"--(eval|save|load|log|data|train-iters|lr|learning_rate|tokenizer|exit|async|output|max_steps)"
)
"""Options that change neither the model nor the mesh: what contradicts them leaves the check as it is."""


def planned(plan: Plan, whole: bool) -> dict[str, Any]:
    """What is compared, by the names that the hooks use; None where the launcher's model is counted otherwise.

    Modules of multi-token prediction and scoring heads are in no model's count, and quantised weights come with scales.

    Args:
        plan: What is launched.
        whole: Whether the program builds a model's extra parameters, too, as Transformers does.
    """
    p = plan.parallelism
    workload = plan.workload
    shape = workload.shape
    replicas, shards = plan_facts.mesh(plan)
    extra = shape["extra_parameters"] or shape["extra_parameters_per_layer"]
    other = workload.mtp_layers or workload.task == "reward" or (extra and not whole)
    method = Method(**{**workload.method, "targets": tuple(workload.method.get("targets", ()))})
    return {
        "parameters": None if other or lora.base(plan) == "fp8" else workload.parameters,
        "trained": None if other else trained(read(shape), method),
        **{
            "ranks": plan.cluster.accelerators,
            "tp": p.tp,
            "pp": p.pp,
            "cp": p.cp,
            "dp": p.dp,
            "ep": p.ep,
            "etp": p.etp if shape["moe"] else p.tp,  # Megatron's own, where a model has no experts
        },
        **{"replicas": replicas, "shards": shards, "zero": p.zero_stage},
        **{"vocabulary": shape["vocab"], "width": shape["hidden"] * (1 if shape["tied"] else 2)},
    }


def with_check(plan: Plan, job: LaunchJob, *hooks: str, program: str | None = None) -> LaunchJob:
    """The job with the file in its folder.

    Args:
        plan: What is launched.
        job: The job of its trainer.
        hooks: Each the script ``plan_check_HOOK`` of a library that builds the model, one inside the next; none where
            the exported module compares by itself.
        program: The module that is started, where the command does not name it.
    """
    hooked = "".join(script(f"plan_check_{hook}.py") for hook in hooks) or UNHOOKED
    values = planned(plan, whole=hooks in (("accelerate",), ("deepspeed",)))
    if "deepspeed" in hooks and plan.parallelism.tp * plan.parallelism.pp > 1:
        values["parameters"] = None  # a rank's own part is all that it is given
    listed = "".join(f'    "{name}": {value},\n' for name, value in values.items())
    text = script("plan_check.py", PLANNED=f"{{\n{listed}}}", PROGRAM=str([program] if program else []), HOOK=hooked)
    return replace(job, files={**job.files, NAME: text}, needed=(*job.needed, NAME))


def unchecked(plan: Plan, line: str) -> Loss:
    """What is lost with a trainer that gives no place for a check: what to look for in its log."""
    return Loss(
        "workload.parameters", f"nothing stops another model than the plan's {plan.workload.parameters:,}: {line}"
    )
