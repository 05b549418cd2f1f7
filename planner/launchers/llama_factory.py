"""LLaMA-Factory: ``llama_factory.yaml``, under the ``accelerate.yaml`` that shards it as the plan does.

Keys: ff6d4d12 (src/llamafactory/hparams), and the Trainer's. It continues from the last checkpoint by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.launchers import accelerate, hf_trainer, quoting, table
from planner.launchers.target import LaunchJob, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

NAME = "llama_factory.yaml"
TABLE = launcher_table("llama-factory")


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """Accelerate's job with LLaMA-Factory's module and its configuration."""
    options = configuration(plan, values)
    job = accelerate.launched(plan, job, values, "llamafactory.launcher", NAME)
    return replace(
        job, argv=(NAME,), options=options, files={**job.files, NAME: quoting.yaml(options)}, needed=(*job.needed, NAME)
    )


def configuration(plan: Plan, values: Values) -> dict[str, Any]:
    """The plan as LLaMA-Factory's arguments."""
    untrained = plan.workload.method["kind"] == "pretrain"
    task = plan.workload.task
    decided = {
        "stage": "pt" if untrained else task or "sft",
        "template": None if untrained else values["template"] or None,
        "packing": None if untrained else task is None,
        "apart": None if untrained else bool(plan.workload.texts) or None,
        "liger_by_trainer": None,
    }
    return table.document(TABLE, hf_trainer.facts(plan, values, decided))


EXPORTER = by_table("llama-factory", emit=emit, refuses=hf_trainer.refuses, loses=hf_trainer.loses_with_own_model)
