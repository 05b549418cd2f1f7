"""What Megatron-LM has to hold of a model, by its library's record: a table apart from the exporter's."""

from typing import Any

Values = dict[str, Any]
FUNCTIONS = {"swiglu": "silu", "clamped-swiglu": "quick_gelu", "squared-relu": "squared_relu"}
BALANCES = {"none": "none", "batch": "aux_loss", "sequence": "seq_aux_loss"}


def of_record(shape: Values, sequence: int) -> Values:
    """Megatron's fields by those of a library's record."""
    biased = shape["qkv_bias"] and shape["output_bias"]
    window = shape["rotary"] or {"skips": 0, "share": 1.0, "base": 500_000.0}
    angles = {} if shape["learned_positions"] or shape["positions"] == "none" else window
    return {
        "num_layers": shape["layers"],
        "hidden_size": shape["hidden"],
        "ffn_hidden_size": shape["ffn"],
        "num_attention_heads": shape["heads"],
        "num_query_groups": shape["heads"] if shape["latent"] else shape["kv_heads"],
        "kv_channels": shape["hidden"] // shape["heads"] if shape["latent"] else shape["head_dim"],
        "activation_func": FUNCTIONS.get(shape["activation"], "gelu"),
        "activation_func_clamp_value": 7.0 if shape["activation"] == "clamped-swiglu" else None,
        "glu_linear_offset": 1.0 if shape["activation"] == "clamped-swiglu" else 0.0,
        "gated_linear_unit": shape["gated"],
        "bias_activation_fusion": shape["activation"] not in ("squared-relu", "gelu"),
        "normalization": {"rms": "RMSNorm", "layer": "LayerNorm"}[shape["norm"]],
        "layernorm_epsilon": shape["norm_epsilon"] or 1e-5,
        "layernorm_zero_centered_gamma": shape["norm_offset"],
        "qk_layernorm": shape["qk_norm"] == "head" or bool(shape["latent"]),
        "qk_l2_norm": shape["qk_norm"] == "unweighted",
        "add_bias_linear": biased,
        "add_qkv_bias": shape["qkv_bias"],
        "softmax_type": "learnable" if shape["sinks"] else "vanilla",
        "no_rope_freq": ([0, 0, 0, 1] * shape["layers"])[: shape["layers"]] if angles.get("skips") else None,
        "hidden_dropout": 0.1 if shape["dropout"] else 0.0,
        "attention_dropout": 0.1 if shape["dropout"] else 0.0,
        "position_embedding_type": "none" if shape["positions"] == "none" else "rope" if angles else "learned_absolute",
        "max_position_embeddings": max(shape["learned_positions"], sequence),
        "rotary_base": angles.get("base", 10_000),
        "rotary_percent": angles.get("share", 1.0),
        "cp_comm_type": "p2p",
        "padded_vocab_size": None,
        **of_latents(shape),
        **of_experts(shape["moe"], shape["layers"]),
    }


def of_latents(shape: Values) -> Values:
    latent, rotary = shape["latent"], shape["rotary"] or {}
    names = {"q_lora_rank": "query_rank", "kv_lora_rank": "kv_rank", "qk_head_dim": "nope_dim"}
    names |= {"qk_pos_emb_head_dim": "rope_dim", "v_head_dim": "value_dim"}
    found = {name: (latent[mine] or None) if latent else None for name, mine in names.items()}
    yarn = rotary.get("scaling") == "yarn"
    stretched = {"rotary_scaling_factor": ("factor", 1.0), "mscale": ("mscale", 1.0)}
    stretched |= {"mscale_all_dim": ("mscale_all_dim", 0.0)}
    grown = {n: (rotary[mine] if yarn else usual) if latent else None for n, (mine, usual) in stretched.items()}
    return {"multi_latent_attention": bool(latent), **found, **grown}


def of_experts(moe: Values | None, layers: int) -> Values:
    moe = moe or {"experts": None, "experts_per_token": 2, "ffn": None, "shared_ffn": 0, "shared_gate": False}
    router = moe.get("router") or {"score": "softmax", "normalised": True, "scaling": 1.0, "groups": 1, "bias_rate": 0}
    body = [n - moe["leading_dense_layers"] for n in range(layers)] if moe["experts"] else []
    mixed = [int(n >= 0 and n % moe["every"] == moe["every"] - 1) for n in body]
    grouped = router["groups"] > 1
    return {
        "num_moe_experts": moe["experts"],
        "moe_router_topk": moe["experts_per_token"],
        "moe_ffn_hidden_size": moe["ffn"],
        "moe_layer_freq": 1 if all(mixed) else mixed,
        "moe_shared_expert_intermediate_size": moe["shared_ffn"] or None,
        "moe_shared_expert_gate": moe["shared_gate"],
        "moe_router_score_function": router["score"],
        "moe_router_pre_softmax": router["score"] == "softmax" and not router["normalised"],
        "moe_router_num_groups": router["groups"] if grouped else None,
        "moe_router_group_topk": router["groups_per_token"] if grouped else None,
        "moe_router_topk_scaling_factor": router["scaling"] if router["scaling"] != 1 else None,
        "moe_router_enable_expert_bias": router["bias_rate"] > 0,
        "moe_router_bias_update_rate": router["bias_rate"] or 0.001,
        "moe_router_load_balancing_type": BALANCES[router.get("balance", "batch")],
        "moe_aux_loss_coeff": router.get("balance_loss", 0.0),
        "moe_z_loss_coeff": router.get("z_loss") or None,
        "moe_expert_capacity_factor": router.get("capacity"),
        "moe_apply_probs_on_input": router.get("on_input", False),
        "moe_router_dtype": "fp32" if moe["experts"] else None,
    }
