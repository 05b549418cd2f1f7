"""Hugging Face's Trainer: ``train.py``, its arguments, and the ``accelerate.yaml`` that shards it as the plan does.

The arguments that all programs on the Trainer share (TRL, LLaMA-Factory, Axolotl) come first, then its own script.

Arguments: ``TrainingArguments`` of transformers 5.23.0 and the few of the script, which are called as in Transformers'
own ``run_clm.py``. Engines are those of :mod:`planner.launchers.accelerate`; adapters are PEFT's 0.21.2, quantised
weights bitsandbytes' 0.50.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launchers import accelerate, deepspeed, lora, plan_facts, table
from planner.launchers.scripts import script
from planner.launchers.target import LaunchJob, Loss, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

RUNTIMES = ("hf-trainer", "hf-trainer-liger", "fsdp2", "fsdp", "deepspeed", "pytorch-ddp")
"""Plans for these take the time and memory there that was predicted."""
OPTIMIZERS: Mapping[str, list[str]] = launcher_table("trainer-arguments").head["optimizers"]
"""Optimizer -> the Trainer's words for it, the usual one first."""
PAGED = ("paged-adamw", "paged-adam-8bit")
"""Optimizers of bitsandbytes in unified memory."""
EMBEDDING_STATES = 6.0
"""Bytes that states of an embedding's parameter take more than of others: 8 in place of 2 (transformers, trainer.py,
create_optimizer, where bitsandbytes is told to keep them in 32 bit)."""
OWN_MODEL = Loss(
    "workload.shape", "the model is what its config.json says; the job stops where its parameters are others"
)


def facts(plan: Plan, values: Values, decided: Mapping[str, Any]) -> table.Facts:
    """What tables of the family say, of a plan and its job; what a program says itself (`decided`) leads."""
    engine = accelerate.route(plan)
    method = plan.workload.method
    common = {
        "checkpointing": plan.recompute.policy == "full" and engine != "FSDP",
        "engine": engine,
        "examples": plan.batch.micro // plan_facts.sequences_per_example(plan),
        "liger": liger(plan),
        "liger_by_trainer": liger(plan) or None,
        "optim": _optimizer(plan),
        "trained_layers": method["layers"] if method["kind"] == "freeze" else None,
        **lora.facts(plan, values),
    }
    return table.plan_says(plan, values, {**common, **decided})


def _optimizer(plan: Plan) -> str:
    """AdamW in 8 bit of bitsandbytes, or of torchao where parameters are shards, which the former does not take."""
    optimizer = plan.workload.optimizer["id"]
    sharded = optimizer == "adam-8bit" and accelerate.route(plan) == "FSDP"
    return "adamw_torch_8bit" if sharded else OPTIMIZERS[optimizer][0]


def liger(plan: Plan) -> bool:
    """Whether the plan counts on fused kernels and a loss in chunks."""
    return plan.runtime.name == "hf-trainer-liger"


def refuses(plan: Plan) -> Iterator[str]:
    """What the engines exclude, what adapters cannot be put on, and what no model of Transformers has."""
    yield from accelerate.refuses(plan)
    yield from lora.refuses(plan)
    if (carried := plan.workload.shape.get("recurrence")) and carried["kind"] == "rwkv7":
        yield "its models are Transformers', which has no RWKV-7 (flash-linear-attention has)"
    if plan.workload.mtp_layers:
        yield "its models have no modules of multi-token prediction"
    if plan.workload.optimizer["id"] in PAGED and accelerate.route(plan) == "FSDP":
        own = plan.workload.optimizer["id"]
        yield f"FSDP with optimizer {own}: bitsandbytes takes no shards; plan zero 0, or adam-8bit"
    if plan.workload.optimizer["id"] != "adamw" and accelerate.route(plan) == "DEEPSPEED":
        yield f"DeepSpeed with optimizer {plan.workload.optimizer['id']}: it brings its own AdamW; plan zero 0, 2 or 3"


def trainer_loses(plan: Plan) -> Iterator[Loss]:
    """What every program on the Trainer leaves to Accelerate, or holds otherwise than predicted."""
    yield from plan_facts.other_runtime(plan, RUNTIMES)
    yield from plan_facts.shape_losses(plan)
    if accelerate.route(plan) == "FSDP":
        yield from lora.wide(plan)
    if plan.workload.optimizer["id"] in PAGED:
        yield Loss("prediction.memory", "where it is short, states move to host memory and back; predicted without")
    if _optimizer(plan) in ("adamw_bnb_8bit", "paged_adamw_8bit") and not lora.adapts(plan):
        more = EMBEDDING_STATES * plan.workload.shape["vocab"] * plan.workload.shape["hidden"] / 2**30
        yield Loss("prediction.memory", f"states of the embedding stay in 32 bit, {more:.1f} GiB more than predicted")
    if accelerate.route(plan) == "DEEPSPEED":
        yield from deepspeed.gathered_inside(plan)


def loses_with_own_model(plan: Plan) -> Iterator[Loss]:
    """As :func:`trainer_loses`, where the program builds the model from its own config.json."""
    yield from trainer_loses(plan)
    yield OWN_MODEL
    if plan.workload.shape["moe"]:
        yield Loss("workload.shape.moe.router", "experts are balanced with the model's own loss, if any")


NAME = "train.py"
TABLE = launcher_table("hf-trainer")


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """Accelerate's job with a script that is written here, too, and all that it is told."""
    options = table.settings(TABLE, facts(plan, values, {}))
    argv = tuple(word for name, value in options for word in (f"--{name}", _word(value)))
    job = accelerate.launched(plan, job, values, NAME, *argv)
    return replace(job, argv=argv, files={**job.files, NAME: script("hf_trainer.py")}, needed=(*job.needed, NAME))


def _word(value: object) -> str:
    return "true" if value is True else str(value)


def loses(plan: Plan) -> Iterator[Loss]:
    """What is the model's own, or left to Accelerate."""
    yield from trainer_loses(plan)
    yield Loss("workload.shape", "the model's own config.json; the job stops where sizes or parameters differ")


EXPORTER = by_table("hf-trainer", emit=emit, refuses=refuses, loses=loses)
