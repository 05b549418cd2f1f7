"""Run by Megatron-LM's environment: its own parser and validator on jobs. ``read_megatron.py CHECKOUT JOBS ANSWERS``.

``JOBS`` is a JSON list of ``{argv, environment, world, older}``. Nothing is started: functions that ask CUDA for its
generation are replaced, and what only exists on a GPU is switched off.
"""

import os
import sys
import typing

import typing_extensions
from answering import answer

if not hasattr(typing, "override"):
    typing.override = typing_extensions.override  # newer checkouts need Python 3.12

NEEDS_GPU = ("--moe-permute-fusion",)
"""Switches that validation refuses without Transformer Engine, which a CPU does not have."""
OFF_GPU = ["--transformer-impl", "local", "--no-rope-fusion", "--no-persist-layer-norm"]


def off_gpu(argv):
    """What is switched off; activations in host memory go with Transformer Engine's blocks alone."""
    return OFF_GPU if "--fine-grained-activation-offloading" not in argv else OFF_GPU[2:]


def read(job, arguments, torch):
    """What Megatron makes of one job."""
    from megatron.core import utils
    from megatron.core.num_microbatches_calculator import (
        destroy_num_microbatches_calculator,
        get_num_microbatches,
        init_num_microbatches_calculator,
    )

    arguments.get_device_arch_version = lambda: 9 if job["older"] else 10
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    utils._te_version = utils.PkgVersion("2.10")  # asked for before the formats of 4 and 8 bit; not installed here
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(job["world"]), **job["environment"]})
    sys.argv = ["pretrain_gpt.py", *(word for word in job["argv"] if word not in NEEDS_GPU), *off_gpu(job["argv"])]
    args = arguments.parse_args(ignore_unknown_args=job.get("more", False))  # a program may add its own
    arguments.validate_args(args, {})
    config = arguments.core_transformer_config_from_args(args)
    destroy_num_microbatches_calculator()
    init_num_microbatches_calculator(0, None, args.global_batch_size, args.micro_batch_size, args.data_parallel_size)
    return {
        "tp": args.tensor_model_parallel_size,
        "pp": args.pipeline_model_parallel_size,
        "vpp": args.virtual_pipeline_model_parallel_size or 1,
        "cp": args.context_parallel_size,
        "ep": args.expert_model_parallel_size,
        "etp": args.expert_tensor_parallel_size,
        "dp": args.data_parallel_size,
        "world": args.world_size,
        "micro": args.micro_batch_size,
        "global": args.global_batch_size,
        "accumulation": get_num_microbatches(),
        "sequence_parallel": args.sequence_parallel,
        "distributed_optimizer": args.use_distributed_optimizer,
        "instances": args.num_distributed_optimizer_instances,
        "fsdp": args.data_parallel_sharding_strategy if args.use_megatron_fsdp else None,
        "recompute": [config.recompute_granularity, config.recompute_method, config.recompute_num_layers],
        "modules_again": config.recompute_modules,
        "dispatcher": [config.moe_token_dispatcher_type, config.moe_flex_dispatcher_backend]
        if args.num_experts
        else None,
        "layers": config.num_layers,
        "hidden": config.hidden_size,
        "ffn": config.ffn_hidden_size,
        "heads": config.num_attention_heads,
        "groups": config.num_query_groups,
        "experts": config.num_moe_experts,
        "gated": config.gated_linear_unit,
        "biases": [config.add_bias_linear, config.add_qkv_bias],
        "softmax": config.softmax_type,
        "epsilon": config.layernorm_epsilon,
        "angles": [args.rotary_base, args.rotary_percent, args.use_rope_scaling, args.rope_scaling_factor],
        "yarn": [config.rotary_scaling_factor, config.mscale, config.mscale_all_dim]
        if args.multi_latent_attention
        else None,
        "bf16": config.bf16,
        "fp16": config.fp16,
        "wide_gradients": args.accumulate_allreduce_grads_in_fp32,
        "fp8": config.fp8,
        "fp8_recipe": config.fp8_recipe,
        "fp4": config.fp4,
        "sequence": args.seq_length,
        "vocab": args.vocab_size,
        "tied": not args.untie_embeddings_and_output_weights,
        "overlap": [args.overlap_grad_reduce, args.overlap_param_gather, args.overlap_p2p_comm, args.tp_comm_overlap],
        "pp_inner": args.use_tp_pp_dp_mapping,
        "offload": args.optimizer_cpu_offload,
        "chunks": chunks(config.pipeline_model_parallel_layout),
        "modules": config.mtp_num_layers or 0,
        "moe_layers": config.moe_layer_freq if isinstance(config.moe_layer_freq, list) else None,
        "windows": config.window_attn_skip_freq
        if isinstance(getattr(config, "window_attn_skip_freq", None), list)
        else None,
        "window": list(config.window_size) if config.window_size else None,
        "model": model(args, config),
    }


def model(args, config):
    """Everything of the model that the configuration holds, by its own names."""
    found = {name: getattr(config, name, None) for name in MODEL}
    function = getattr(config.activation_func, "__name__", str(config.activation_func))
    coefficient = config.moe_aux_loss_coeff
    return found | {
        "activation_func": function,
        "moe_aux_loss_coeff": coefficient[0] if isinstance(coefficient, list) else coefficient,
        "position_embedding_type": args.position_embedding_type,
        "max_position_embeddings": args.max_position_embeddings,
        "rotary_base": args.rotary_base,
        "rotary_percent": args.rotary_percent,
        "padded_vocab_size": args.padded_vocab_size if hasattr(args, "padded_vocab_size") else None,
        "cp_comm_type": config.cp_comm_type,
    }


MODEL = (
    *("activation_func_clamp_value", "glu_linear_offset", "gated_linear_unit", "bias_activation_fusion"),
    *("normalization", "layernorm_epsilon", "layernorm_zero_centered_gamma", "qk_layernorm", "qk_l2_norm"),
    *("add_bias_linear", "add_qkv_bias", "softmax_type", "no_rope_freq", "kv_channels", "hidden_dropout"),
    *("attention_dropout", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"),
    *("multi_latent_attention", "num_moe_experts", "moe_router_topk", "moe_ffn_hidden_size", "moe_layer_freq"),
    *("moe_shared_expert_intermediate_size", "moe_shared_expert_gate", "moe_router_score_function"),
    *("moe_router_pre_softmax", "moe_router_num_groups", "moe_router_group_topk", "moe_router_topk_scaling_factor"),
    *("moe_router_enable_expert_bias", "moe_router_bias_update_rate", "moe_router_load_balancing_type"),
    *("moe_z_loss_coeff", "moe_expert_capacity_factor", "moe_apply_probs_on_input", "moe_router_dtype"),
    *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups"),
    *("rotary_scaling_factor", "mscale", "mscale_all_dim"),
)


def chunks(layout):
    """Layers of every chunk in the order of the layers, where a layout says them."""
    if layout is None:
        return None
    stages, chunked = layout.pipeline_model_parallel_size, layout.virtual_pipeline_model_parallel_size
    return [
        sum(t.name in ("decoder", "mtp") for t in layout.layout[s][c]) for c in range(chunked) for s in range(stages)
    ]


sys.path.insert(0, sys.argv[1])
import torch  # noqa: E402
from megatron.training import arguments  # noqa: E402

answer(read, arguments, torch)
