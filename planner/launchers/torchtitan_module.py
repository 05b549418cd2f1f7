"""The Python module that torchtitan reads: the model's shape, its recomputation and its 8-bit formats as code.

Written against, and tried on, torchtitan 0.3.0.
"""

from __future__ import annotations

from typing import Any

from planner.launchers import plan_facts, quoting, rotary_and_norms
from planner.launchers.target import Values
from planner.schema.plan import Plan

CONVERTERS = {"fp8": "Float8LinearConverter", "mxfp8": "MXFP8LinearConverter"}
ROPE = {"llama3": "ComplexRoPE", "qwen3": "CosSinRoPE"}
POLICIES = {"none": None, "selective": "SelectiveAC", "full": "FullAC"}


def model_parts(plan: Plan) -> list[list[str]]:
    """Names of the modules of every chunk, in the order of the layers."""
    parts: list[list[str]] = []
    layer = 0
    for size in plan_facts.chunks(plan):
        parts.append([f"layers.{n}" for n in range(layer, layer + size)])
        layer += size
    return [["tok_embeddings", *parts[0]], *parts[1:-1], [*parts[-1], "norm", "lm_head"]]


def module(plan: Plan, values: Values) -> str:
    """The module's text. Only numbers and names of this file go into it; texts of the plan stay in comments."""
    shape, moe = plan.workload.shape, plan.workload.shape["moe"]
    family = family_of(shape)
    prefix = family.capitalize()
    uneven = len(set(plan_facts.chunks(plan))) > 1
    filled = {
        "ANGLES": _angles(shape, values),
        "EPSILON": repr(shape.get("norm_epsilon") or 1e-5),
        "HEADER": quoting.comments(f"{plan.workload.name}: the model and what torchtitan takes as code."),
        "FAMILY": family,
        "PREFIX": prefix,
        "PARALLELIZE": f"parallelize_{'llama' if family == 'llama3' else family}",
        "ROPE": ROPE[family],
        "CONVERTER_IMPORT": _imported("components.quantization", CONVERTERS.get(plan.precision)),
        "RECOMPUTE_IMPORT": _imported("distributed.activation_checkpoint", POLICIES[plan.recompute.policy]),
        "BLOCKS": ",\n    ".join(_MOE_BLOCKS) if moe else "make_ffn_config",
        "HOOK_IMPORT": ", register_moe_load_balancing_hook" if moe else "",
        "HOOK": "register_moe_load_balancing_hook" if moe else "None",
        "BODY": _moe_body(moe) if moe else _DENSE_BODY,
        "QK_NORM": "norm(HEAD_DIM)" if shape["qk_norm"] == "head" else "None",
        "TYING": str(bool(shape["tied"])),
        "CONVERTERS": f"[{_made(CONVERTERS.get(plan.precision), 'model_compile_enabled=True')}]",
        "RECOMPUTE": _made(POLICIES[plan.recompute.policy]) or "None",
        "PARTS": repr(model_parts(plan)) if uneven else "None",
        "SIZES": _sizes(shape, moe, plan.workload.sequence),
    }
    text = _MODULE
    for name, value in filled.items():
        text = text.replace(f"@{name}@", value)
    return text


def family_of(shape: dict[str, Any]) -> str:
    """Whose blocks the module takes."""
    return "qwen3" if shape["qk_norm"] == "head" or shape["moe"] else "llama3"


def _angles(shape: dict[str, Any], values: Values) -> str:
    """Base and scaling of the rotary positions, as arguments."""
    rope: dict[str, object] = {"theta": rotary_and_norms.base(shape, values)}
    known = rotary_and_norms.rotary(shape) or {"scaling": "none"}
    if known["scaling"] == "llama3" and ROPE[family_of(shape)] == "ComplexRoPE":
        rope |= {"scaling": "llama", "scaling_factor": known["factor"]}
        rope |= {name: known[name] for name in ("low_freq_factor", "high_freq_factor")}
        rope |= {"original_max_position_embeddings": known["original"]}
    elif known["scaling"] == "yarn":
        rope |= {"scaling": "yarn", "rope_factor": known["factor"], "original_seq_len": known["original"]}
        rope |= {name: known[name] for name in ("beta_fast", "beta_slow", "truncate")}
    return ", ".join(f"{name}={value!r}" for name, value in rope.items())


def _sizes(shape: dict[str, Any], moe: dict[str, Any] | None, sequence: int) -> str:
    sizes = {
        "LAYERS": shape["layers"],
        "DIM": shape["hidden"],
        "HEADS": shape["heads"],
        "KV_HEADS": shape["kv_heads"],
        "HEAD_DIM": shape["head_dim"],
        "HIDDEN_DIM": moe["ffn"] if moe else shape["ffn"],
        "VOCAB": shape["vocab"],
        "SEQUENCE": sequence,
    }
    if moe:
        sizes |= {"EXPERTS": moe["experts"], "TOP_K": moe["experts_per_token"]}
    return "\n".join(f"{name} = {int(size)}" for name, size in sizes.items())


def _word(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


BALANCE = 1e-3
"""Step by which torchtitan moves experts' biases towards balance, by default and in its own Qwen 3 configurations."""


def _moe_body(moe: dict[str, Any]) -> str:
    router = moe["router"] or {"score": "softmax", "normalised": True, "scaling": 1.0, "groups": 1, "bias_rate": 0}
    router_options = {
        "score_func": router["score"],
        "route_norm": router["normalised"],
        "route_scale": router["scaling"],
    }
    if router["groups"] > 1:
        router_options |= {"num_expert_groups": router["groups"], "num_limited_groups": router["groups_per_token"]}
    words = "\n".join(f"                {name}={_word(value)}," for name, value in router_options.items())
    return _MOE_BODY.replace("@ROUTER@", words).replace("@BALANCE@", repr(router["bias_rate"] or BALANCE))


def _imported(where: str, name: str | None) -> str:
    return f"from torchtitan.{where} import {name}\n" if name else ""


def _made(name: str | None, settings: str = "") -> str:
    return f"{name}.Config({settings})" if name else ""


_MOE_BLOCKS = ("make_moe_config", "make_routed_experts_config", "make_router_config")

_DENSE_BODY = """        feed_forward=make_ffn_config(
            dim=DIM, hidden_dim=HIDDEN_DIM, w1_param_init=LINEAR, w2w3_param_init=deep(layer)
        ),"""

_MOE_BODY = """        moe=make_moe_config(
            num_experts=EXPERTS,
            router=make_router_config(
                dim=DIM,
                num_experts=EXPERTS,
                gate_param_init=LINEAR,
                top_k=TOP_K,
@ROUTER@
            ),
            load_balance_coeff=@BALANCE@,
            routed_experts=make_routed_experts_config(
                dim=DIM,
                hidden_dim=HIDDEN_DIM,
                num_experts=EXPERTS,
                top_k=TOP_K,
                param_init={
                    "w1_EFD": LINEAR["weight"],
                    "w2_EDF": deep(layer)["weight"],
                    "w3_EFD": LINEAR["weight"],
                },
                comm_backend="standard",
            ),
        ),"""

_MODULE = '''@HEADER@from functools import partial

import torch.nn as nn
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw@HOOK_IMPORT@
@CONVERTER_IMPORT@from torchtitan.config import ParallelismConfig
@RECOMPUTE_IMPORT@from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common import @ROPE@, Embedding, Linear, RMSNorm
from torchtitan.models.common.config_utils import (
    decoder_vocab_size,
    get_attention_config,
    make_gqa_config,
    @BLOCKS@,
)
from torchtitan.models.common.param_init import depth_scaled_std, skip_param_init
from torchtitan.models.@FAMILY@ import @PREFIX@Model, @PARALLELIZE@
from torchtitan.models.@FAMILY@.model import @PREFIX@TransformerBlock
from torchtitan.models.@FAMILY@.state_dict_adapter import @PREFIX@StateDictAdapter
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.trainer import Trainer

@SIZES@

TIED = @TYING@
CONVERTERS = @CONVERTERS@
RECOMPUTE = @RECOMPUTE@
MODEL_PARTS = @PARTS@

LINEAR = {"weight": partial(nn.init.trunc_normal_, std=0.02), "bias": nn.init.zeros_}
EMBEDDING = {"weight": skip_param_init if TIED else partial(nn.init.normal_, std=1.0)}


def deep(layer):
    """Initialisation of the projections that write to the residual stream."""
    return {"weight": partial(nn.init.trunc_normal_, std=depth_scaled_std(0.02, layer)), "bias": nn.init.zeros_}


def norm(width):
    return RMSNorm.Config(normalized_shape=width, eps=@EPSILON@, param_init={"weight": nn.init.ones_})


def block(layer):
    return @PREFIX@TransformerBlock.Config(
        attention_norm=norm(DIM),
        ffn_norm=norm(DIM),
        attention=make_gqa_config(
            dim=DIM,
            n_heads=HEADS,
            n_kv_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            wqkv_param_init=LINEAR,
            wo_param_init=deep(layer),
            inner_attention=get_attention_config("flex"),
            fuse_qkv=True,
            rope=@ROPE@.Config(dim=HEAD_DIM, max_seq_len=SEQUENCE, @ANGLES@),
            qk_norm=@QK_NORM@,
        ),
@BODY@
    )


def model():
    head = DIM**-0.5
    config = @PREFIX@Model.Config(
        dim=DIM,
        vocab_size=VOCAB,
        enable_weight_tying=TIED,
        tok_embeddings=Embedding.Config(num_embeddings=VOCAB, embedding_dim=DIM, param_init=EMBEDDING),
        norm=norm(DIM),
        lm_head=Linear.Config(
            in_features=DIM,
            out_features=VOCAB,
            param_init={
                "weight": partial(nn.init.trunc_normal_, std=head, a=-3 * head, b=3 * head),
                "bias": nn.init.zeros_,
            },
        ),
        layers=[block(layer) for layer in range(LAYERS)],
    )
    for converter in CONVERTERS:
        config = converter.build().convert(config)
    return config


def plan():
    spec = ModelSpec(
        name="@FAMILY@",
        flavor="plan",
        model=model(),
        parallelize_fn=@PARALLELIZE@,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=@HOOK@,
        state_dict_adapter=@PREFIX@StateDictAdapter,
    )
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec))),
        model_spec=spec,
        optimizer=default_adamw(lr=1.0e-4),
        dataloader=HuggingFaceTextDataLoader.Config(),
        parallelism=ParallelismConfig(module_fqns_per_model_part=MODEL_PARTS),
        checkpoint=CheckpointManager.Config(),
        activation_checkpoint=RECOMPUTE,
    )
'''
