"""torchtitan: a module with the model's shape, and the command line that splits it.

The module is needed because torchtitan knows models, recomputation and 8-bit formats only as Python functions; every
degree and batch is an option. Written against, and tried on, torchtitan 0.3.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import facts, positions, profiles, quoting, start
from planner.launchers.target import EnvironmentSetting, Exporter, LaunchJob, LaunchProgram, Loss, Values
from planner.schema.plan import Plan

MODULE = "plan_config"
FUNCTION = "plan"
CONVERTERS = {"fp8": "Float8LinearConverter", "mxfp8": "MXFP8LinearConverter"}
ROPE = {"llama3": "ComplexRoPE", "qwen3": "CosSinRoPE"}
POLICIES = {"none": None, "selective": "SelectiveAC", "full": "FullAC"}


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The module, and the command of one node."""
    argv = ("--module", MODULE, "--config", FUNCTION, *options(plan, values))
    return replace(
        job,
        command=(*start.rendezvous(plan, values), LaunchProgram("-m"), "torchtitan.train", *argv),
        argv=argv,
        environment={**job.environment, **plan.env, "PYTHONPATH": "."},
        files={**job.files, f"{MODULE}.py": module(plan, values)},
        needed=(*job.needed, f"{MODULE}.py"),
    )


def options(plan: Plan, values: Values) -> Iterator[str]:
    """Dotted options: degrees, batch, schedule, paths."""
    p = plan.parallelism
    replicate, shard = facts.mesh(plan)
    yield from ("--parallelism.data_parallel_replicate_degree", str(replicate))
    yield from ("--parallelism.data_parallel_shard_degree", str(shard))
    yield from ("--parallelism.tensor_parallel_degree", str(p.tp))
    yield from ("--parallelism.context_parallel_degree", str(p.cp))
    yield from ("--parallelism.expert_parallel_degree", str(p.ep))
    if p.zero_stage >= 2:
        yield from ("--parallelism.fsdp_reshard_after_forward", "always" if p.zero_stage == 3 else "never")
    yield from _pipeline(plan)
    if p.pp > 1 or p.ep > 1:
        yield "--training.disable_cuda_graphs"
    yield from ("--training.local_batch_size", str(local_batch(plan)))
    yield from ("--training.global_batch_size", str(plan.batch.global_))
    yield from ("--training.seq_len", str(plan.workload.sequence), "--training.steps", str(facts.steps(plan)))
    yield from ("--training.mixed_precision_param", "float32" if plan.precision == "fp32" else "bfloat16")
    yield "--compile.enable"
    yield from ("--compile.enable_async_tensor_parallel",) if plan.overlap.tp else ()
    yield from ("--hf_assets_path", values["hf-assets-path"], "--dataloader.dataset", values["dataset"])
    yield from ("--checkpoint.enable", "--checkpoint.folder", values["save"])
    yield from ("--checkpoint.interval", str(facts.steps_between_checkpoints(plan)))


def local_batch(plan: Plan) -> int:
    """Sequences of one forward pass of a replica; a pipeline takes all micro-batches of a step at once."""
    return plan.batch.micro * (plan.batch.accumulation if plan.parallelism.pp > 1 else 1)


def _pipeline(plan: Plan) -> Iterator[str]:
    p = plan.parallelism
    yield from ("--parallelism.pipeline_parallel_degree", str(p.pp))
    if p.pp == 1:
        return
    yield from ("--parallelism.pipeline_parallel_schedule", "Interleaved1F1B" if p.vpp > 1 else "1F1B")
    yield from ("--parallelism.pipeline_parallel_microbatch_size", str(plan.batch.micro))
    sizes = facts.chunks(plan)
    if len(set(sizes)) == 1:
        yield from ("--parallelism.pipeline_parallel_layers_per_stage", str(sizes[0]))
        yield from ("--parallelism.pipeline_parallel_first_stage_less_layers", "0")
        yield from ("--parallelism.pipeline_parallel_last_stage_less_layers", "0")


def model_parts(plan: Plan) -> list[list[str]]:
    """Names of the modules of every chunk, in the order of the layers."""
    parts: list[list[str]] = []
    layer = 0
    for size in facts.chunks(plan):
        parts.append([f"layers.{n}" for n in range(layer, layer + size)])
        layer += size
    return [["tok_embeddings", *parts[0]], *parts[1:-1], [*parts[-1], "norm", "lm_head"]]


def module(plan: Plan, values: Values) -> str:
    """The module's text. Only numbers and names of this file go into it; texts of the plan stay in comments."""
    shape, moe = plan.workload.shape, plan.workload.shape["moe"]
    family = _family(shape)
    prefix = family.capitalize()
    uneven = len(set(facts.chunks(plan))) > 1
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


def _family(shape: dict[str, Any]) -> str:
    """Whose blocks the module takes."""
    return "qwen3" if shape["qk_norm"] == "head" or shape["moe"] else "llama3"


def _angles(shape: dict[str, Any], values: Values) -> str:
    """Base and scaling of the rotary positions, as arguments."""
    rope: dict[str, object] = {"theta": positions.base(shape, values)}
    known = positions.rotary(shape) or {"scaling": "none"}
    if known["scaling"] == "llama3" and ROPE[_family(shape)] == "ComplexRoPE":
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


def refuses(plan: Plan) -> Iterator[str]:
    """Shapes that the module cannot build, and meshes that torchtitan has no name for."""
    p, shape = plan.parallelism, plan.workload.shape
    yield from facts.runs_on(plan, "nvidia", "amd")
    yield from facts.stages_fill_pools(plan)
    yield from facts.mesh_is_whole(plan)
    yield from facts.blocks_are_attention(shape)
    plain = (
        shape["activation"] in ("swiglu", None)
        and shape["gated"]
        and shape["norm"] == "rms"
        and not shape["latent"]
        and not facts.window(shape, plan.workload.sequence)
        and not shape["sinks"]
        and shape["norm_place"] == "pre"
        and not shape["norm_offset"]
        and shape["positions"] is None
    )
    biased = shape["qkv_bias"] or shape["output_bias"] or shape["mlp_bias"]
    if (
        not plain
        or biased
        or shape["learned_positions"]
        or shape["norms_per_layer"] != 2
        or shape["qk_norm"]
        in (
            "full",
            "unweighted",
        )
    ):
        yield "the module it needs is written for decoders like Llama 3 and Qwen 3 (gated, RMSNorm, rotary, no biases)"
    moe = shape["moe"]
    if moe and (moe["shared_ffn"] or moe["leading_dense_layers"] or moe["every"] > 1 or moe["router_bias"]):
        yield "the module it needs is written for mixtures like Qwen 3's (in every layer, none shared)"
    if moe and moe["router"] and (moe["router"]["on_input"] or moe["router"]["capacity"] or moe["router"]["z_loss"]):
        yield "its router has no scores on inputs, no capacity and no loss on its outputs"
    if plan.workload.mtp_layers:
        yield "the module it needs has no multi-token prediction"
    if (rotary := positions.rotary(shape)) and (rotary["share"] != 1 or rotary["skips"]):
        yield "the module it needs rotates whole heads of every layer, the model a part of them"
    if p.zero_stage == 0 and (p.tp > 1 or p.cp > 1 or p.pp > 1 or p.ep > 1):
        yield "ZeRO-0 is plain replicas, which do not go with tp, cp, pp or ep"
    if p.schedule == "1f1b" and plan.batch.accumulation < p.pp:
        yield f"torch's 1F1B needs a micro-batch for each of {p.pp} stages, a step has {plan.batch.accumulation}"
    _, shard = facts.mesh(plan)
    if shard * p.cp * p.tp % p.ep:
        yield f"ep {p.ep} does not divide shards x cp x tp = {shard * p.cp * p.tp}"


def loses(plan: Plan) -> Iterator[Loss]:
    """What has no key."""
    yield from facts.other_runtime(plan, ("fsdp2",))
    yield from facts.shape_losses(plan)
    yield from positions.unknown(plan.workload.shape, "1e-5")
    yield from _rotary_losses(plan.workload.shape)
    yield from _router_losses(plan.workload.shape["moe"])
    if plan.workload.shape["extra_parameters"] or plan.workload.shape["extra_parameters_per_layer"]:
        yield Loss("workload.shape.extra_parameters", "not part of the module's model")


def _router_losses(moe: dict[str, Any] | None) -> Iterator[Loss]:
    if not moe:
        return
    router, field = moe["router"], "workload.shape.moe.router"
    balanced = f"experts' biases are moved towards balance instead (load_balance_coeff {BALANCE:g})"
    if router is None:
        yield Loss(field, f"not known of this model: softmax over the chosen experts; {balanced}")
    elif router["balance_loss"]:
        yield Loss(f"{field}.balance_loss", f"torchtitan has no auxiliary loss: {balanced}")


def _rotary_losses(shape: dict[str, Any]) -> Iterator[Loss]:
    known = positions.rotary(shape) or {"scaling": "none"}
    if known["scaling"] == "llama3" and ROPE[_family(shape)] != "ComplexRoPE":
        yield Loss("workload.shape.rotary.scaling", f"{ROPE[_family(shape)]} has no Llama 3 scaling: not stretched")
    if known["scaling"] == "yarn" and known["mscale"] != known["mscale_all_dim"]:
        yield Loss(
            "workload.shape.rotary.mscale", "the module stretches angles only: attention does not grow with them"
        )


EXPORTER = Exporter(
    name="torchtitan",
    title="torchtitan",
    version="0.3.0",
    role="trainer",
    runtime="fsdp2",
    expresses={
        **dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "stages", "pools"), "any"),
        "etp": (1,),
        "zero": (0, 2, 3),
        "zero_scope": ("full", "node"),
        "sequence_parallel": "any",
        "recompute": ("none", "selective", "full"),
        "offload": ("none",),
        "precision": ("bf16", "fp8", "mxfp8", "fp32"),
        "rank_order": ("tp-cp-ep-dp-pp",),
        "method": ("pretrain",),
        "optimizer": ("adamw",),
        "family": ("decoder",),
    },
    settings=(
        EnvironmentSetting("hf-assets-path", "folder with the tokenizer"),
        EnvironmentSetting("save", "folder for checkpoints"),
        EnvironmentSetting("dataset", "data set, by torchtitan's name", "c4"),
        positions.ROTARY,
        EnvironmentSetting("master-port", "port on node 0", "29500"),
        profiles.EXTRA,
    ),
    emit=emit,
    refuses=refuses,
    loses=loses,
    level="validated",
    validated_by="ConfigManager().parse_args and ParallelDims of torchtitan 0.3.0, the module imported",
)

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
