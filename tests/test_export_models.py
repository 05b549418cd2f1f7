"""What is known of a model reaches the launcher or is refused; what is not known is told."""

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pytest

from planner.launchers import EXPORTERS, bundle, parts
from planner.launchers.bundle import refusals
from planner.models import workload
from planner.schema.plan import Plan
from tests.launchers.environments import given
from tests.launchers.spread import Case, plan

dense = partial(plan, Case("megatron-core", "llama3-8b", "dgx-h100:4", "zero=0"))
sharded = partial(plan, Case("fsdp2", "qwen3-30b-a3b", "dgx-h100:4", "ep=8"))


def of(model: str, **shape: Any) -> Plan:
    """The plan with another model, or with other fields of it."""
    known = workload.model(model)
    put = replace(dense().workload, model=model, shape={**asdict(known), **shape}, sequence=known.sequence)
    return replace(dense(), workload=put)


def written(whole: Plan, target: str = "megatron") -> str:
    return bundle(whole, parts(target), given(target)).files["start.sh"]


def lost(whole: Plan, target: str = "megatron") -> set[str]:
    return {loss.field for loss in bundle(whole, parts(target), given(target)).losses}


def why_not(whole: Plan, target: str = "megatron") -> str:
    return "; ".join(refusals(whole, EXPORTERS[target]))


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("deepseek-v3", ["--moe-router-score-function sigmoid", "--moe-router-topk-scaling-factor 2.5"]),
        ("deepseek-v3", ["--moe-router-num-groups 8", "--moe-router-group-topk 4", "--moe-router-enable-expert-bias"]),
        ("deepseek-v3", ["--moe-router-load-balancing-type seq_aux_loss", "--moe-aux-loss-coeff 0.0001"]),
        (
            "deepseek-v2",
            ["--moe-router-pre-softmax", "--moe-router-topk-scaling-factor 16", "--moe-router-num-groups 8"],
        ),
        ("mixtral-8x7b", ["--moe-router-load-balancing-type aux_loss", "--moe-aux-loss-coeff 0.02"]),
        ("qwen3-30b-a3b", ["--moe-aux-loss-coeff 0.001"]),
        ("llama4-maverick", ["--moe-router-score-function sigmoid", "--moe-apply-probs-on-input", "--no-rope-freq 4"]),
        ("llama4-scout", ["--qk-l2-norm"]),
        ("nemotron4-15b", ["--squared-relu", "--apply-layernorm-1p"]),
        ("gpt-oss-20b", ["--quick-geglu", "--activation-func-clamp-value 7.0", "--softmax-type learnable"]),
        ("mpt-7b", ["--no-bias-gelu-fusion"]),
    ],
)
def test_the_models_own_options_are_written(model: str, options: list[str]) -> None:
    text = written(of(model))
    assert [option for option in options if option not in text] == []


def test_scores_over_the_chosen_experts_are_not_taken_over_all() -> None:
    assert "--moe-router-pre-softmax" not in written(of("mixtral-8x7b"))
    assert "--squared-relu" not in written(of("gpt2"))


@pytest.mark.parametrize(
    ("model", "shape", "why"),
    [
        ("opt-1.3b", {}, "the activation relu has no flag"),
        ("llama3-8b", {"activation": "geglu"}, "the activation geglu has no flag"),
        (
            "gpt2",
            {"qkv_bias": False, "output_bias": False, "mlp_bias": False},
            "GELU by tanh is its kernel with biases",
        ),
        ("llama3-8b", {"norm_place": "post"}, "2 norms a layer, post, have no flag"),
        ("llama3-8b", {"qk_norm": "full"}, "normalises each head, not all heads together"),
        ("mpt-7b", {"positions": "alibi", "learned_positions": 0}, "alibi positions have no flag"),
        ("mpt-7b", {"norm_bias": False}, "LayerNorm without biases has no flag"),
        ("llama4-scout", {"layers": 46}, "--no-rope-freq 4 does not divide 46 layers"),
    ],
)
def test_what_is_known_and_has_no_option_is_refused(model: str, shape: dict[str, Any], why: str) -> None:
    assert why in why_not(of(model, **shape))


def test_chunks_are_refused_only_where_a_sequence_is_longer() -> None:
    scout = of("llama4-scout")
    assert "--window-size" not in written(scout)
    longer = replace(scout, workload=replace(scout.workload, sequence=16384))
    assert "attention within chunks of 8,192 tokens has no flag (--seq 8192 needs none)" in why_not(longer)


@pytest.mark.parametrize(
    ("router", "why"),
    [
        ({"score": "sigmoid", "normalised": False}, "sigmoid scores of several experts are always made to add up to 1"),
        ({"bias_rate": 1e-3}, "biases of experts go with sigmoid scores"),
        ({"on_input": True}, "--moe-apply-probs-on-input goes with one expert a token"),
    ],
)
def test_routers_without_options_are_refused(router: dict[str, Any], why: str) -> None:
    shape = asdict(workload.model("mixtral-8x7b"))
    moe = {**shape["moe"], "router": {**shape["moe"]["router"], **router}}
    assert why in why_not(of("mixtral-8x7b", moe=moe))


def test_what_is_not_known_is_told() -> None:
    assert "workload.shape.activation" in lost(of("llama3-8b", activation=None))
    moe = {**asdict(workload.model("mixtral-8x7b"))["moe"], "router": None}
    assert "workload.shape.moe.router" in lost(of("mixtral-8x7b", moe=moe))
    assert not {"workload.shape.activation", "workload.shape.moe.router"} & lost(of("mixtral-8x7b"))


def test_torchtitan_builds_the_router() -> None:
    module = bundle(sharded(), parts("torchtitan"), given("torchtitan")).files["plan_config.py"]
    assert 'score_func="softmax"' in module
    assert "route_norm=True" in module
    assert "load_balance_coeff=0.001" in module
    assert "workload.shape.moe.router.balance_loss" in lost(sharded(), "torchtitan")
    shape = sharded().workload.shape
    changed = {**shape["moe"], "router": {**shape["moe"]["router"], "normalised": False, "scaling": 2.5}}
    other = replace(sharded(), workload=replace(sharded().workload, shape={**shape, "moe": changed}))
    module = bundle(other, parts("torchtitan"), given("torchtitan")).files["plan_config.py"]
    assert "route_norm=False" in module
    assert "route_scale=2.5" in module


@pytest.mark.parametrize("shape", [{"activation": "geglu"}, {"sinks": True}, {"qk_norm": "unweighted"}])
def test_torchtitans_module_refuses_other_blocks(shape: dict[str, Any]) -> None:
    other = replace(sharded(), workload=replace(sharded().workload, shape={**sharded().workload.shape, **shape}))
    assert "written for decoders like Llama 3 and Qwen 3" in why_not(other, "torchtitan")


@pytest.mark.parametrize(
    ("vendor", "target", "starts"),
    [
        ("Google", "megatron", False),
        ("Intel", "megatron", False),
        ("Intel", "deepspeed", True),
        ("AMD", "megatron", True),
        ("AMD", "nccl-tuner", False),
        ("AWS", "torchtitan", False),
        ("Our own", "megatron", True),
    ],
)
def test_plans_go_where_their_launcher_runs(vendor: str, target: str, starts: bool) -> None:
    pools = tuple(replace(pool, vendor=vendor) for pool in dense().cluster.pools)
    there = replace(dense(), cluster=replace(dense().cluster, pools=pools))
    assert ("it runs on accelerators of" not in why_not(there, target)) == starts
