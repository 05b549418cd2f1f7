"""Run by MaxText's environment: its own pyconfig on the exported file, for the slices that the plan has.

``read_maxtext.py CHECKOUT JOBS ANSWERS``; ``JOBS`` is a JSON list of ``{folder, argv, environment, world, topology,
slices}``.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[1], "src")))
os.environ["JAX_PLATFORMS"] = "cpu"

from answering import answer
from maxtext.common.common_types import DecoderBlockType
from maxtext.configs import pyconfig, types
from maxtext.utils import accelerator_to_spec_map

DEGREES = ("tensor", "context", "expert", "fsdp", "data", "pipeline")


def read(job):
    """What MaxText makes of one job."""
    os.chdir(job["folder"])
    topology = [f"compile_topology={job['topology']}", f"compile_topology_num_slices={job['slices']}"]
    try:
        found = pyconfig._initialize_pydantic(["", *job["argv"], *topology, "log_config=false"])
    except SystemExit as error:
        raise ValueError(f"stopped with {error.code}") from error
    assert isinstance(found, types.MaxTextConfig)
    spec = accelerator_to_spec_map.get_system_characteristics(job["topology"])
    moe = found.num_experts > 1
    latent = str(getattr(found.attention_type, "value", found.attention_type)) == "mla"
    return {
        "topology": spec.topology_name.partition(":")[2],
        "devices": [found.num_target_devices, found.num_slices],
        "mesh": [[getattr(found, f"{where}_{axis}_parallelism") for axis in DEGREES] for where in ("ici", "dcn")],
        "batch": [found.global_batch_size_to_train_on, found.gradient_accumulation_steps],
        "micro": found.num_pipeline_microbatches
        if found.using_pipeline_parallelism
        else found.micro_batch_size_to_train_on,
        "stages": [found.num_layers_per_pipeline_stage, found.num_pipeline_repeats]
        if found.using_pipeline_parallelism
        else None,
        "sequence": found.max_target_length,
        "steps": [found.steps, found.checkpoint_period],
        "context": str(found.context_parallel_strategy),
        "recompute": str(getattr(found.remat_policy, "value", found.remat_policy)),
        "offload": found.optimizer_memory_host_offload,
        "precision": [found.dtype, found.weight_dtype, getattr(found.quantization, "value", found.quantization)],
        "optimizer": str(getattr(found.opt_type, "value", found.opt_type)),
        "block": DecoderBlockType(found.decoder_block).value,
        "layers": found.num_decoder_layers,
        "hidden": found.emb_dim,
        "ffn": found.mlp_dim,
        "heads": [found.num_query_heads, found.num_kv_heads, found.head_dim],
        "activation": list(found.mlp_activations),
        "vocab": found.vocab_size,
        "tied": [found.logits_via_embedding, found.normalize_embedding_logits],
        "epsilon": found.normalization_layer_epsilon,
        "biases": found.attention_bias,
        "qk_norm": found.use_qk_norm,
        "dropout": found.enable_dropout,
        "modules": found.mtp_num_layers,
        "rotary": [str(found.rope_type.value), found.rope_max_timescale, found.rope_use_scale],
        "yarn": [found.rope_factor, found.original_max_position_embeddings, found.beta_fast, found.mscale]
        if found.rope_type.value == "yarn"
        else None,
        "latent": [
            found.q_lora_rank,
            found.kv_lora_rank,
            found.qk_nope_head_dim,
            found.qk_rope_head_dim,
            found.v_head_dim,
        ]
        if latent
        else None,
        "experts": [found.num_experts, found.num_experts_per_tok, found.moe_mlp_dim] if moe else None,
        "shared": [found.shared_experts, found.first_num_dense_layers] if moe else None,
        "balance": found.load_balance_loss_weight if moe else None,
        "router": [found.routed_score_func, found.routed_scaling_factor, found.routed_bias, found.n_routing_groups]
        if latent
        else found.norm_topk_prob
        if moe
        else None,
    }


answer(read)
