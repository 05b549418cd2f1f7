"""LLaMA-Factory: ``llama_factory.yaml``, under the ``accelerate.yaml`` that shards it as the plan does.

Keys: ff6d4d12 (src/llamafactory/hparams), and the Trainer's. It continues from the last checkpoint by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.launchers import accelerate, adapters, quoting, trainer_arguments
from planner.launchers.target import LaunchJob, LaunchProgram, Values, by_table
from planner.schema.plan import Plan

NAME = "llama_factory.yaml"


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """Accelerate's job with LLaMA-Factory's module and its configuration."""
    options = configuration(plan, values)
    job = accelerate.launched(plan, job, values, LaunchProgram("-m"), "llamafactory.launcher", NAME)
    return replace(
        job, argv=(NAME,), options=options, files={**job.files, NAME: quoting.yaml(options)}, needed=(*job.needed, NAME)
    )


def configuration(plan: Plan, values: Values) -> dict[str, Any]:
    """The plan as LLaMA-Factory's arguments."""
    kind = plan.workload.method["kind"]
    common = trainer_arguments.arguments(plan, values)
    common["enable_liger_kernel"] = common.pop("use_liger_kernel", False)  # patched before the model is loaded
    return {
        "model_name_or_path": values["model"],
        **({"train_from_scratch": True} if kind == "pretrain" else {}),
        "stage": "pt" if kind == "pretrain" else plan.workload.task or "sft",
        "do_train": True,
        "finetuning_type": kind if kind in ("lora", "freeze") else "full",
        **({"freeze_trainable_layers": plan.workload.method["layers"]} if kind == "freeze" else {}),
        **_adapters(plan, values),
        "dataset": values["dataset"],
        "dataset_dir": values["dataset-dir"],
        "cutoff_len": plan.workload.sequence,
        **({} if kind == "pretrain" else _conversations(plan, values)),
        "disable_gradient_checkpointing": not common["gradient_checkpointing"],
        **common,
    }


def _conversations(plan: Plan, values: Values) -> dict[str, Any]:
    """Packed to the full length; texts are by themselves, and lose a token where that is asked for (data_args.py)."""
    apart = {"neat_packing": True, "flash_attn": "fa2"} if plan.workload.texts else {}
    named = {"template": values["template"]} if values["template"] else {}
    return {**named, "packing": plan.workload.task is None, **apart}


def _adapters(plan: Plan, values: Values) -> dict[str, Any]:
    if not adapters.adapts(plan):
        return {}
    base = adapters.base(plan)
    four = {"quantization_type": "nf4", "double_quantization": True} if base == "nf4" else {}
    return {
        "lora_rank": plan.workload.method["rank"],
        "lora_alpha": adapters.alpha(plan, values),
        "lora_dropout": 0.0,
        **({"use_dora": True} if adapters.magnitudes(plan) else {}),
        "lora_target": ",".join(adapters.modules(plan)),
        **({"quantization_method": "bnb", "quantization_bit": adapters.BITS[base], **four} if base else {}),
    }


EXPORTER = by_table(
    "llama-factory", emit=emit, refuses=trainer_arguments.refuses, loses=trainer_arguments.loses_with_own_model
)
