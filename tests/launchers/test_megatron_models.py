"""Megatron-LM builds the model that the library has: every field that its configuration holds of one, compared.

Twice, by tables of their own: with the library's record, and with what the model's config.json states, every key of it.
Nothing here runs unless Megatron-LM is at hand: ``make test-launchers MEGATRON_LM=DIR``.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from planner import api
from planner.launchers import megatron_hybrid, parts
from planner.launchers.bundle import refusals
from planner.models.workload import library, model
from planner.schema.plan import Plan
from tests.launchers.environments import ask, checkout, export, python
from tests.launchers.megatron_fields import of_record

Values = dict[str, Any]


def plans() -> dict[str, Plan]:
    """A plan on one node for every model that can be written for Megatron, as if all were as large."""
    (exporter,) = parts("megatron")
    whole = api.estimate("llama3-8b", "dgx-h100:1", ["tp=1"], runtime="megatron-core").plans[0]
    found = {}
    for name in library():
        shape = model(name)
        workload = replace(whole.workload, model=name, name=name, shape=asdict(shape), sequence=shape.sequence)
        (stage,) = whole.parallelism.stages
        held = replace(whole.parallelism, stages=(replace(stage, layers=shape.layers),))
        plan = replace(whole, workload=workload, parallelism=held)
        if megatron_hybrid.is_one(workload.shape) and not Path(checkout(), megatron_hybrid.PROGRAMS[0]).exists():
            continue
        if not [*refusals(plan, exporter)]:
            found[name] = plan
    return found


def built(made: dict[str, Plan], folder: Path) -> dict[str, Values]:
    """What Megatron builds of each."""
    python("megatron")
    jobs = [export(plan, "megatron", folder / name) for name, plan in made.items()]
    answers = ask("megatron", jobs, folder, checkout())
    for name, answer in zip(made, answers, strict=True):
        assert "error" not in answer, f"{name}: {answer['error']}"
    return {name: answer["values"]["model"] for name, answer in zip(made, answers, strict=True)}


def test_megatron_builds_the_librarys_models(tmp_path: Path) -> None:
    made = plans()
    assert len(made) >= 60
    for name, values in built(made, tmp_path).items():
        assert values == of_record(made[name].workload.shape, made[name].workload.sequence), name


# ---- by what config.json states --------------------------------------------------------------------------------------

DATA = json.loads((Path(__file__).parent.parent / "data" / "huggingface_configs.json").read_text(encoding="utf-8"))
SAME = {
    **dict.fromkeys(("hidden_size", "n_embd"), "hidden_size"),
    **dict.fromkeys(("num_hidden_layers", "n_layer"), "num_layers"),
    **dict.fromkeys(("num_attention_heads", "n_head"), "num_attention_heads"),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), "num_moe_experts"),
    **dict.fromkeys(("router_aux_loss_coef", "aux_loss_alpha"), "moe_aux_loss_coeff"),
    "num_key_value_heads": "num_query_groups",
    "head_dim": "kv_channels",
    "num_experts_per_tok": "moe_router_topk",
    "moe_intermediate_size": "moe_ffn_hidden_size",
    "kv_lora_rank": "kv_lora_rank",
    "q_lora_rank": "q_lora_rank",
    "qk_rope_head_dim": "qk_pos_emb_head_dim",
    "qk_nope_head_dim": "qk_head_dim",
    "v_head_dim": "v_head_dim",
    "use_qk_norm": "qk_l2_norm",
    "routed_scaling_factor": "moe_router_topk_scaling_factor",
    "n_group": "moe_router_num_groups",
    "topk_group": "moe_router_group_topk",
    "n_positions": "max_position_embeddings",
}
ELSEWHERE = {"model_type", "vocab_size", "tie_word_embeddings", "sliding_window", "max_position_embeddings"}
"""Held by other arguments of Megatron, which test_validators compares; windows are wider than the sequences here."""


def stated(config: Values) -> Values:
    """Megatron's fields by those of a config.json; a key that no line knows is an error."""
    found: Values = {}
    experts = next((config[k] for k in ("num_local_experts", "num_experts", "n_routed_experts") if k in config), None)
    for key, value in config.items():
        if key in SAME:
            found[SAME[key]] = None if (key, value) in (("n_group", 1), ("topk_group", 1)) else value
        elif key in ("intermediate_size", "intermediate_size_mlp"):
            wide = key == "intermediate_size_mlp" or "intermediate_size_mlp" not in config
            found["ffn_hidden_size" if wide else "moe_ffn_hidden_size"] = value
            if experts and wide and "moe_intermediate_size" not in config and "intermediate_size_mlp" not in config:
                found["moe_ffn_hidden_size"] = value
        elif key == "n_shared_experts":
            found["moe_shared_expert_intermediate_size"] = value * config["moe_intermediate_size"]
        elif key == "first_k_dense_replace":
            found["moe_layer_freq"] = [0] * value + [1] * (config["num_hidden_layers"] - value)
        elif key in ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"):
            pattern = ([0] * (value - 1) + [1]) * (config["num_hidden_layers"] // value)
            found.setdefault("moe_layer_freq", 1 if value == 1 else pattern)
        elif key == "norm_topk_prob":
            found["moe_router_pre_softmax"] = not value
        elif key == "topk_method":
            found["moe_router_enable_expert_bias"] = value == "noaux_tc"
        elif key == "seq_aux":
            found["moe_router_load_balancing_type"] = "seq_aux_loss" if value else "aux_loss"
        else:
            assert key in ELSEWHERE or (key, value) == ("mlp_only_layers", []), key
    if found.get("moe_router_topk_scaling_factor") == 1:
        found["moe_router_topk_scaling_factor"] = None
    if "kv_lora_rank" in found:
        found.pop("kv_channels", None)
    return found


def test_megatron_builds_what_config_json_states(tmp_path: Path) -> None:
    made = {name: plan for name, plan in plans().items() if name in DATA["models"]}
    assert len(made) >= 15
    for name, values in built(made, tmp_path).items():
        config = DATA["models"][name]["config"]
        expected = stated(config.get("text_config", config))
        assert {key: values[key] for key in expected} == expected, name
