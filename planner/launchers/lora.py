"""Low-rank adapters as PEFT names them, over weights that bitsandbytes may hold in 4 or 8 bit.

Modules: huggingface/transformers 5.23.0, models/*/modeling_*.py; peft 0.21.2, LoraConfig. Its expert layers are one
tensor each (integrations/moe.py), to which ``target_modules`` does not reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.launchers.target import Loss, Values
from planner.models.parameters import trained
from planner.schema.model_reading import read
from planner.schema.plan import Plan
from planner.schema.workload import Method

_USUAL = {name: (f"{name}_proj",) for name in ("q", "k", "v", "o", "up", "down", "gate")}
_LATENT = _USUAL | {"q": ("q_a_proj", "q_b_proj"), "k": ("kv_a_proj_with_mqa",), "v": ("kv_b_proj",)}
_OPT = _USUAL | {"o": ("out_proj",), "up": ("fc1",), "down": ("fc2",)}
FUSED = ("gpt", "mpt", "grok", "bert", "t5", "vit")
"""How ids begin of models whose products are one matrix for several targets, or which Transformers has not."""
NARROW = 2.0
"""Bytes of a weight in 16 bit."""


def adapts(plan: Plan) -> bool:
    """Whether the plan trains adapters."""
    return str(plan.workload.method["kind"]) == "lora"


def base(plan: Plan) -> str:
    """``nf4``, ``int8``, or empty: how the frozen weights are held."""
    return str(plan.workload.method.get("base") or "")


def magnitudes(plan: Plan) -> bool:
    """Whether the plan trains magnitudes beside them (DoRA)."""
    return bool(plan.workload.method.get("magnitude"))


def modules(plan: Plan) -> list[str]:
    """Names of the linear layers that carry adapters."""
    named = _named(plan)
    return [module for target in plan.workload.method["targets"] for module in named[target]]


def _named(plan: Plan) -> Mapping[str, tuple[str, ...]]:
    shape = plan.workload.shape
    if shape["latent"]:
        return _LATENT if shape["latent"]["query_rank"] else _LATENT | {"q": ("q_proj",)}
    if plan.workload.model.startswith("opt"):
        return _OPT
    return _USUAL


def trainable(plan: Plan) -> int:
    """Parameters of all adapters, magnitudes among them."""
    method = plan.workload.method
    return trained(read(plan.workload.shape), Method(**{**method, "targets": tuple(method["targets"])}))


def alpha(plan: Plan, values: Values) -> int:
    """The scale: what is set, or twice the rank."""
    return int(values["lora-alpha"] or 2 * plan.workload.method["rank"])


def facts(plan: Plan, values: Values) -> dict[str, object]:
    """What tables say of adapters; nothing of a plan without."""
    if not adapts(plan):
        return {}
    return {
        "adapters.any": True,
        "adapters.rank": plan.workload.method["rank"],
        "adapters.alpha": alpha(plan, values),
        "adapters.modules": modules(plan),
        "adapters.listed": ",".join(modules(plan)),
        "adapters.parameters": trainable(plan),
        "adapters.magnitudes": magnitudes(plan) or None,
        "adapters.base": base(plan) or None,
        "adapters.held": base(plan) or "wide",
        "adapters.task": plan.workload.task,
    }


def refuses(plan: Plan) -> Iterator[str]:
    """Adapters that PEFT cannot put where the plan has them, and quantised weights that cannot be sharded."""
    if not adapts(plan):
        return
    shape, model = plan.workload.shape, plan.workload.model
    if model.startswith(FUSED) and not model.startswith("gpt-oss"):
        yield f"adapters: {model} has one matrix for several of the planned targets there"
    if shape["moe"] and {"up", "down", "gate"} & set(plan.workload.method["targets"]):
        yield "adapters of experts: PEFT reaches linear layers, experts are one tensor (--method lora adapts attention)"
    if base(plan) == "int8" and plan.parallelism.zero_stage:
        yield "weights in 8 bit cannot be sharded by FSDP or ZeRO (those in 4 bit can: qlora)"


def wide(plan: Plan) -> Iterator[Loss]:
    """Accelerate holds what FSDP2 shards in 32 bit (accelerate/utils/fsdp_utils.py, fsdp2_prepare_model)."""
    narrow = plan.runtime.bytes_per_parameter["parameters"] == NARROW
    if adapts(plan) and not base(plan) and plan.precision != "fp32" and narrow:
        more = NARROW * plan.workload.parameters / plan.parallelism.dp_shard / 2**30
        yield Loss("workload.method", f"Accelerate shards frozen weights in 32 bit: {more:.1f} GiB more than predicted")
