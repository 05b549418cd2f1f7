"""Megatron-Bridge: ``train.py`` starts a recipe of its library with all that the plan says set in it.

Settings are set as Python does: at 067f987d ``run_recipe.py`` takes no ``model.tensor_model_parallel_size=`` where a
recipe's model is a configuration (training/utils/omegaconf_utils.py knows its fields, models/gpt/model_config.py hands
attributes on). Recipes: megatron/bridge/recipes; adapters: megatron/bridge/peft/canonical_lora.py; what overlaps:
megatron/bridge/training/comm_overlap.py, which switches on what it is not told.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import checks, lora, megatron, plan_facts, table, torchrun
from planner.launchers.scripts import script
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

NAME, SETTINGS = "train.py", "bridge.json"
TABLE = launcher_table("megatron-bridge")
RECIPES: dict[str, str] = TABLE.head["recipes"]
"""Model -> how its recipe begins: those whose configuration was read back (of others Bridge has recipes, too)."""
WIDE = 4.0
"""Bytes of a gradient that is reduced in 32 bit."""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """``torchrun ... train.py`` with its settings in a file."""
    options = described(plan, values)
    text = json.dumps(options, indent=2) + "\n"
    job = checks.with_check(plan, job, "megatron")
    return replace(
        job,
        command=(*torchrun.rendezvous(plan, values), LaunchProgram(NAME)),
        options=options["settings"],
        environment={**megatron.performance(plan), **job.environment, **megatron.environment(plan), **plan.env},
        files={**job.files, NAME: script("megatron_bridge.py"), SETTINGS: text},
        needed=(*job.needed, NAME, SETTINGS),
    )


def described(plan: Plan, values: Values) -> dict[str, Any]:
    """What the script reads: recipe, precision, adapters, the model's size, and path -> value in the configuration."""
    shape = plan.workload.shape
    adapting = lora.adapts(plan)
    return {
        "recipe": f"{RECIPES[plan.workload.model]}_pretrain_config",
        "precision": TABLE.head["precisions"][plan.precision],
        "wide_gradients": plan.runtime.bytes_per_parameter["gradient_wire"] == WIDE,
        "adapters": _adapters(plan, values) if adapting else None,
        "model": {"num_layers": shape["layers"], "hidden_size": shape["hidden"], "ffn_hidden_size": shape["ffn"]},
        "overlap": _overlap(plan),
        "settings": table.document(TABLE, _facts(plan, values)),
    }


def measured(plan: Plan, job: LaunchJob, steps: int) -> LaunchJob:
    """The job with so many steps on mock data, nothing evaluated or saved; adapters still need a model's weights."""
    options = json.loads(job.files[SETTINGS])
    options["settings"] |= {
        "train.train_iters": steps,
        "dataset.blend": None,
        "tokenizer.tokenizer_type": "NullTokenizer",
        "tokenizer.tokenizer_model": None,
        "tokenizer.vocab_size": int(plan.workload.shape["vocab"]) - 1,
        "checkpoint.save": None,
        "checkpoint.load": None,
        "validation.eval_iters": 0,
        "logger.log_interval": 1,
    }
    if not lora.adapts(plan):
        options["settings"]["checkpoint.pretrained_checkpoint"] = None
    text = json.dumps(options, indent=2) + "\n"
    return replace(job, options=options["settings"], files={**job.files, SETTINGS: text})


def _adapters(plan: Plan, values: Values) -> dict[str, Any]:
    method = plan.workload.method
    modules = [TABLE.head["modules"][target] for target in method["targets"]]
    return {"target_modules": modules, "dim": method["rank"], "alpha": lora.alpha(plan, values), "dropout": 0.0}


def _overlap(plan: Plan) -> dict[str, bool]:
    """Every switch, for those left out would be set by the degrees."""
    p = plan.parallelism
    sent_beside = p.vpp > 1 and plan.overlap.p2p
    return {
        "tp_comm_overlap": plan.overlap.tp,
        "overlap_p2p_comm": sent_beside,
        "batch_p2p_comm": p.pp > 1 and not sent_beside,
        "overlap_grad_reduce": plan.overlap.dp,
        "overlap_param_gather": plan.overlap.dp and p.zero_stage > 0,
        "overlap_moe_expert_parallel_comm": bool(plan.overlap.ep),
    }


def _facts(plan: Plan, values: Values) -> table.Facts:
    """What settings of the table say, of a plan and its job."""
    p = plan.parallelism
    listed = megatron.has_layout(plan)
    sets = megatron.blend(values["data-path"])
    decided = {
        "pipeline_dtype": "torch.float16" if plan.precision == "fp16" else "torch.bfloat16" if p.pp > 1 else None,
        "vpp": p.vpp if p.vpp > 1 and not listed else None,
        "layout": megatron.layout(plan) if listed else None,
        "cp_algorithm": p.cp_algorithm or "p2p",
        "cp_levels": megatron.context_levels(plan),
        "etp": p.etp if plan.workload.shape["moe"] else None,
        "mtp_layers": plan.workload.mtp_layers or None,
        "captured": megatron.captured(plan) if plan.graphs else (),
        "dispatcher": megatron.dispatcher(plan),
        **megatron.recomputation(plan),
        "offloaded_modules": megatron.offloaded_modules(plan) or None,
        "zero_replicas": plan_facts.replicas(plan) if p.zero_stage else 1,
        "gather_overlap": megatron.gathers_beside(plan),
        "offloaded_share": plan_facts.offloaded_share(plan),
        "started_from": values["load"] if plan.workload.method["kind"] != "pretrain" else None,
        "job.blend": [[prefix for _, prefix in sets], [float(weight) for weight, _ in sets if weight] or None],
    }
    return table.plan_says(plan, values, decided)


def refuses(plan: Plan) -> Iterator[str]:
    """What Megatron refuses, models without a recipe, and adapters that have no module of their own."""
    yield from plan_facts.runs_on(plan, "nvidia")
    if plan.workload.model not in RECIPES:
        yield f"{plan.workload.model} has no recipe that was tried (Llama 2 and 3, Qwen2.5 and Qwen3 do)"
        return
    yield from megatron.refuses(plan)
    if plan.parallelism.zero_stage > 1 and plan.parallelism.rank_order == "tp-cp-ep-pp-dp":
        yield "rank order tp-cp-ep-pp-dp with ZeRO-2 or 3: Megatron-FSDP takes tp-cp-ep-dp-pp alone there"
    if lora.adapts(plan) and plan.workload.shape["latent"]:
        yield "adapters of latent attention: its modules are others than the plan's targets"
    if lora.adapts(plan) and plan.workload.shape["moe"] and {"up", "down", "gate"} & _targets(plan):
        yield "adapters of experts share one module there"


def _targets(plan: Plan) -> set[str]:
    return set(plan.workload.method["targets"])


def loses(plan: Plan) -> Iterator[Loss]:
    """What is the recipe's own."""
    yield from plan_facts.other_runtime(plan, ("megatron-core", "nemo"))
    yield from plan_facts.shape_losses(plan)
    yield Loss("workload.shape", "the recipe's own, of its config.json; train.py stops where others are built")
    if plan.workload.shape["moe"]:
        yield Loss("workload.shape.moe.router", "balanced as the recipe says")


EXPORTER = by_table("megatron-bridge", emit=emit, refuses=refuses, loses=loses)
