"""Axolotl: ``axolotl.yaml`` (and DeepSpeed's file) for its own training module under torchrun.

Keys: axolotl 0.18.0 (067b021c), src/axolotl/utils/schemas. Engines are chosen as for Accelerate, which it runs on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import accelerate, adapters, deepspeed, plan_facts, quoting, start, trainer_arguments
from planner.launchers.target import LaunchJob, LaunchProgram, Values, by_table
from planner.schema.plan import Plan

NAME = "axolotl.yaml"
_LIGER = ("liger_rope", "liger_rms_norm", "liger_glu_activation", "liger_fused_linear_cross_entropy")


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """``torchrun -m axolotl.cli.train`` with its configuration."""
    options = configuration(plan, values)
    files = {NAME: quoting.yaml(options)}
    if "deepspeed" in options:
        inner = deepspeed.configuration(plan, values["lr"])
        deepspeed.lint(inner, plan.cluster.accelerators, plan.parallelism.tp)
        files[deepspeed.NAME] = json.dumps(inner, indent=2) + "\n"
    return replace(
        job,
        command=(*start.rendezvous(plan, values), LaunchProgram("-m"), "axolotl.cli.train", NAME),
        argv=(NAME,),
        options=options,
        environment={**job.environment, **plan.env},
        files={**job.files, **files},
        needed=(*job.needed, *files),
    )


def configuration(plan: Plan, values: Values) -> dict[str, Any]:
    """The plan as Axolotl's configuration."""
    common = trainer_arguments.arguments(plan, values)
    return {
        "base_model": values["model"],
        **({"reinit_weights": True} if plan.workload.method["kind"] == "pretrain" else {}),
        "datasets": [{"path": values["dataset"], "type": values["dataset-type"]}],
        "sequence_len": plan.workload.sequence,
        "sample_packing": True,
        "pad_to_sequence_len": True,
        "attn_implementation": values["attention"],
        "micro_batch_size": plan.batch.micro,
        "gradient_accumulation_steps": plan.batch.accumulation,
        "bf16": plan.precision == "bf16",
        "fp16": plan.precision == "fp16",
        "gradient_checkpointing": plan.recompute.policy == "full",
        **({"activation_offloading": True} if plan.offloaded and plan.offloaded.activations else {}),
        **_adapters(plan, values),
        **_sharding(plan),
        **_liger(plan),
        "optimizer": common["optim"],
        **{name: common[name] for name in ("learning_rate", "max_steps", "logging_steps", "output_dir", "save_steps")},
        "auto_resume_from_checkpoints": True,
    }


def _adapters(plan: Plan, values: Values) -> dict[str, Any]:
    if not adapters.adapts(plan):
        return {}
    base = adapters.base(plan)
    return {
        "adapter": "qlora" if base == "nf4" else "lora",
        **{"load_in_4bit": base == "nf4", "load_in_8bit": base == "int8"},
        "lora_r": plan.workload.method["rank"],
        "lora_alpha": adapters.alpha(plan, values),
        "lora_dropout": 0.0,
        **({"peft_use_dora": True} if adapters.magnitudes(plan) else {}),
        "lora_target_modules": adapters.modules(plan),
    }


def _sharding(plan: Plan) -> dict[str, Any]:
    engine = accelerate.route(plan)
    if engine == "DEEPSPEED":
        return {"deepspeed": deepspeed.NAME}
    if engine != "FSDP":
        return {}
    replicate, shard = plan_facts.mesh(plan)
    return {
        "dp_replicate_size": replicate,
        "dp_shard_size": shard,
        "fsdp_version": 2,
        "fsdp_config": {
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "cpu_ram_efficient_loading": not adapters.base(plan),
            "offload_params": False,
            "reshard_after_forward": True,
            "state_dict_type": "SHARDED_STATE_DICT",
        },
    }


def _liger(plan: Plan) -> dict[str, Any]:
    if not trainer_arguments.liger(plan):
        return {}
    return {"plugins": ["axolotl.integrations.liger.LigerPlugin"], **dict.fromkeys(_LIGER, True)}


def refuses(plan: Plan) -> Iterator[str]:
    """What its Trainer excludes, and what it takes otherwise than planned."""
    yield from trainer_arguments.refuses(plan)
    engine = accelerate.route(plan)
    if engine == "FSDP" and plan.parallelism.zero_stage == 2:
        yield "zero 2 with FSDP: it cannot keep weights after the forward pass (setup_fsdp_envs)"
    if engine == "MULTI_GPU" and plan.precision != "fp32" and not adapters.adapts(plan):
        yield f"replicas in {plan.precision}: it holds weights in 16 bit alone there (resolve_dtype); plan zero 3"


EXPORTER = by_table("axolotl", emit=emit, refuses=refuses, loses=trainer_arguments.loses_with_own_model)
