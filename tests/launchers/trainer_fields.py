"""What the programs on Hugging Face's Trainer have to make of a plan's files: read off the plan alone."""

from collections.abc import Callable
from typing import Any

from planner.launchers import accelerate, plan_facts
from planner.models.parameters import trained
from planner.schema.model_reading import read
from planner.schema.plan import Plan
from planner.schema.workload import Method

Values = dict[str, Any]
WIDE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def engine(plan: Plan) -> Values:
    """The Trainer's arguments, and how Accelerate shards."""
    p, route = plan.parallelism, accelerate.route(plan)
    sharded, zero = route == "FSDP", route == "DEEPSPEED"
    return {
        "micro": plan.batch.micro,
        "accumulation": plan.batch.accumulation,
        "precision": "no" if plan.precision == "fp32" else plan.precision,
        "optimizer": "adamw_torch",
        "rate": 1e-4,
        "steps": [plan_facts.steps(plan), plan_facts.steps_between_checkpoints(plan)],
        "recompute": plan.recompute.policy == "full",
        "fsdp": [2, p.zero_stage == 3, not method(plan).base] if sharded else None,
        "mesh": [p.dp // p.dp_shard, p.dp_shard, plan.cluster.accelerators] if sharded else None,
        "zero": p.zero_stage if zero else None,
        "global": plan.batch.global_ if zero else None,
    }


def method(plan: Plan) -> Method:
    """What of the model is trained."""
    return Method(**{**plan.workload.method, "targets": tuple(plan.workload.method["targets"])})


def modules(plan: Plan) -> list[str]:
    """Linear layers with adapters, as the classes of Transformers that are tried here call them."""
    opt = {"o": ["out_proj"], "up": ["fc1"], "down": ["fc2"]}
    latent = {"k": ["kv_a_proj_with_mqa"], "v": ["kv_b_proj"]}
    own = opt if plan.workload.model.startswith("opt") else latent if plan.workload.shape["latent"] else {}
    return [module for target in method(plan).targets for module in own.get(target, [f"{target}_proj"])]


def adapters(plan: Plan) -> list[Any] | None:
    """Rank, scale, dropout and sorted modules."""
    found = method(plan)
    return [found.rank, 2 * found.rank, 0.0, sorted(modules(plan))] if found.kind == "lora" else None


def bits(plan: Plan) -> int | None:
    """Of a frozen weight."""
    return {"nf4": 4, "int8": 8}.get(method(plan).base)


def of_hf_trainer(plan: Plan) -> Values:
    """``hf-trainer``."""
    shape, found = plan.workload.shape, method(plan)
    adapted = found.kind == "lora"
    return {
        "job": {
            "model_name_or_path": "/given/model",
            "block_size": plan.workload.sequence,
            "model_layers": shape["layers"],
            "model_hidden": shape["hidden"],
            "model_vocab": shape["vocab"],
            "model_untrained": found.kind == "pretrain",
            "train_file": "/given/train-file",
            "mock_data": False,
            "lora_rank": found.rank,
            "lora_alpha": 2 * found.rank,
            "lora_target": ",".join(modules(plan)),
            "lora_parameters": trained(read(shape), found) if adapted else 0,
            "lora_magnitudes": found.magnitude,
            "quantization_bit": bits(plan) or 0,
            "quantization_fp8": found.base == "fp8",
            "trained_layers": found.layers,
        },
        **engine(plan),
    }


def of_trl(plan: Plan) -> Values:
    """``trl``."""
    return {
        "model": "/given/model",
        "data": "/given/dataset",
        "sequence": plan.workload.sequence,
        "packed": [True, "bfd", "flash_attention_2"] if plan.workload.texts else [True, "wrapped", None],
        "dtype": WIDE[plan.precision] if method(plan).kind == "lora" else "float32",
        "liger": plan.runtime.name == "hf-trainer-liger",
        "adapters": adapters(plan),
        "bits": bits(plan),
        "scales": ["nf4", True, WIDE[plan.precision]] if bits(plan) == 4 else None,
        **engine(plan),
    }


def of_llama_factory(plan: Plan) -> Values:
    """``llama-factory``."""
    kind = method(plan).kind
    again = plan.recompute.policy == "full" and accelerate.route(plan) != "FSDP"
    return {
        "model": "/given/model",
        "untrained": kind == "pretrain",
        "stage": ["pt" if kind == "pretrain" else "sft", "lora" if kind == "lora" else "full"],
        "data": [["/given/dataset"], "data"],
        "sequence": plan.workload.sequence,
        "packed": [True, True, "fa2"] if plan.workload.texts else [True, False, "auto"],
        "dtype": "None" if plan.precision == "fp32" else WIDE[plan.precision],
        "liger": plan.runtime.name == "hf-trainer-liger",
        "adapters": adapters(plan),
        "bits": bits(plan),
        "scales": ["nf4", True] if bits(plan) == 4 else None,
        "again": [again, again],
        **engine(plan),
    }


def of_axolotl(plan: Plan) -> Values:
    """``axolotl``."""
    own = engine(plan)
    kind, sharded = method(plan).kind, own["fsdp"] is not None
    del own["global"]
    return {
        **own,
        "model": "/given/model",
        "untrained": kind == "pretrain",
        "data": ["/given/dataset", "completion" if kind == "pretrain" else "chat_template"],
        "sequence": plan.workload.sequence,
        "packed": [True, True, "flash_attention_2"],
        "dtype": WIDE[plan.precision],
        "goes on": True,
        "adapters": adapters(plan),
        "method": None if kind != "lora" else "qlora" if bits(plan) == 4 else "lora",
        "bits": bits(plan),
        "fsdp": ["2", "true"] if sharded else None,
        "mesh": own["mesh"][:2] if sharded else None,
        "liger": plan.runtime.name == "hf-trainer-liger",
    }


EXPECTED: dict[str, Callable[[Plan], Values]] = {
    "hf-trainer": of_hf_trainer,
    "trl": of_trl,
    "llama-factory": of_llama_factory,
    "axolotl": of_axolotl,
}
