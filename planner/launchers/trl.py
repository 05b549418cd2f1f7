"""TRL's supervised fine-tuning: ``sft.yaml`` for its own script, under the ``accelerate.yaml`` that shards it.

Keys: trl 1.16.0 (scripts/sft.py: ScriptArguments, SFTConfig, ModelConfig), the Trainer's of transformers 5.23.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import accelerate, adapters, quoting, trainer_arguments
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Values, by_table
from planner.schema.plan import Plan

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """Accelerate's job with TRL's script and its configuration."""
    task = plan.workload.task or "sft"
    name, options = f"{task}.yaml", configuration(plan, values)
    argv = ("--config", name)
    job = accelerate.launched(plan, job, values, LaunchProgram("-m"), f"trl.scripts.{task}", *argv)
    return replace(
        job, argv=argv, options=options, files={**job.files, name: quoting.yaml(options)}, needed=(*job.needed, name)
    )


def configuration(plan: Plan, values: Values) -> dict[str, Any]:
    """The plan as TRL's arguments."""
    return {
        "model_name_or_path": values["model"],
        # Trained weights are in 32 bit and computed with in 16; what adapters leave frozen is held as computed with.
        "dtype": _DTYPES[plan.precision] if adapters.adapts(plan) else _DTYPES["fp32"],
        "dataset_name": values["dataset"],
        "max_length": plan.workload.sequence,
        **_packing(plan),
        **({"activation_offloading": True} if plan.offloaded and plan.offloaded.activations else {}),
        **({"bf16": False} if plan.precision != "bf16" else {}),
        **trainer_arguments.arguments(plan, values),
        **_adapters(plan, values),
    }


def _packing(plan: Plan) -> dict[str, Any]:
    """Whole texts, each attended to by itself, which FlashAttention does; without their lengths one stream, cut."""
    if plan.workload.task:
        return {}
    if plan.workload.texts:
        return {"packing": True, "packing_strategy": "bfd", "attn_implementation": "flash_attention_2"}
    return {"packing": True, "packing_strategy": "wrapped"}


def _adapters(plan: Plan, values: Values) -> dict[str, Any]:
    if not adapters.adapts(plan):
        return {}
    quantised: dict[str, dict[str, Any]] = {
        "": {},
        "int8": {"load_in_8bit": True},
        "nf4": {
            **{"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True},
            "bnb_4bit_quant_storage": _DTYPES[plan.precision],
        },
    }
    return {
        "use_peft": True,
        "lora_r": plan.workload.method["rank"],
        "lora_alpha": adapters.alpha(plan, values),
        "lora_dropout": 0.0,
        **({"use_dora": True} if adapters.magnitudes(plan) else {}),
        "lora_target_modules": adapters.modules(plan),
        **({"lora_task_type": "SEQ_CLS", "lora_modules_to_save": ["score"]} if plan.workload.task == "reward" else {}),
        **quantised[adapters.base(plan)],
    }


def loses(plan: Plan) -> Iterator[Loss]:
    """What is the model's own, and what its trainer does otherwise."""
    yield from trainer_arguments.loses_with_own_model(plan)
    yield Loss("money.goodput", "continues after a stop only with --set extra-args='--resume_from_checkpoint true'")
    if plan.workload.task:
        yield Loss("workload.sequence", "pairs are not packed: answers are padded to the longest of their batch")
    if not trainer_arguments.liger(plan):
        yield Loss("prediction.memory", "its loss takes logits in chunks, which needs less memory than predicted")
    if adapters.base(plan):
        yield Loss("workload.optimizer", "it trains adapters on quantised weights in 16 bit, without a copy in 32")


EXPORTER = by_table("trl", emit=emit, refuses=trainer_arguments.refuses, loses=loses)
