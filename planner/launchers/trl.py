"""TRL's supervised fine-tuning: ``sft.yaml`` for its own script, under the ``accelerate.yaml`` that shards it.

Keys: trl 1.16.0 (scripts/sft.py: ScriptArguments, SFTConfig, ModelConfig), the Trainer's of transformers 5.23.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import accelerate, hf_trainer, lora, quoting, table
from planner.launchers.target import LaunchJob, Loss, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

TABLE = launcher_table("trl")


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """Accelerate's job with TRL's script and its configuration."""
    task = plan.workload.task or "sft"
    name, options = f"{task}.yaml", configuration(plan, values)
    argv = ("--config", name)
    job = accelerate.launched(plan, job, values, f"trl.scripts.{task}", *argv)
    return replace(
        job, argv=argv, options=options, files={**job.files, name: quoting.yaml(options)}, needed=(*job.needed, name)
    )


def configuration(plan: Plan, values: Values) -> dict[str, Any]:
    """The plan as TRL's arguments."""
    decided = {
        "held": plan.precision if lora.adapts(plan) else "fp32",
        "stored": plan.precision if lora.base(plan) == "nf4" else None,
        "packed": None if plan.workload.task else "texts" if plan.workload.texts else "stream",
    }
    return table.document(TABLE, hf_trainer.facts(plan, values, decided))


def loses(plan: Plan) -> Iterator[Loss]:
    """What is the model's own, and what its trainer does otherwise."""
    yield from hf_trainer.loses_with_own_model(plan)
    yield Loss("money.goodput", "continues after a stop only with --set extra-args='--resume_from_checkpoint true'")
    if plan.workload.task:
        yield Loss("workload.sequence", "pairs are not packed: answers are padded to the longest of their batch")
    if not hf_trainer.liger(plan):
        yield Loss("prediction.memory", "its loss takes logits in chunks, which needs less memory than predicted")
    if lora.base(plan):
        yield Loss("workload.optimizer", "it trains adapters on quantised weights in 16 bit, without a copy in 32")


EXPORTER = by_table("trl", emit=emit, refuses=hf_trainer.refuses, loses=loses)
