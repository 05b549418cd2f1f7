"""CUDA graphs: what they launch and hold, where they go, what starts them."""

from dataclasses import replace
from typing import Literal

import pytest

from planner import api
from planner.base.errors import WrongQuestion
from planner.launchers import bundle, parts, reading
from planner.schema.plan import Plan
from planner.verify import violations
from tests.launchers.environments import given
from tests.sweeps import sweep

DENSE, MIXTURE = ("llama3-8b", "tp=2 pp=2 micro=1 zero=1"), ("qwen3-30b-a3b", "ep=8 pp=2 micro=1 zero=1")


def estimated(case: tuple[str, str], more: str) -> Plan:
    model, pins = case
    return api.estimate(model, "dgx-h100:2", [*pins.split(), *more.split()], batch=64, runtime="megatron-core").plans[0]


def test_a_layer_of_modules_has_its_input_twice() -> None:
    """By hand: 16 layers on the first of 2 stages, 2 micro-batches in flight, 8,192 tokens of 4,096 over tp 2."""
    plain, captured, whole = (estimated(DENSE, f"graphs={name}") for name in ("none", "modules", "full"))
    more = captured.prediction.memory.activations_bytes - plain.prediction.memory.activations_bytes
    assert 1.0 <= more / (16 * 2 * 8192 * 4096 * 2 / 2) < 1.5  # the allocator's blocks on top
    assert captured.prediction.memory.graph_inputs_bytes == pytest.approx(more)
    assert replace(whole.prediction.memory, graph_inputs_bytes=None) == plain.prediction.memory
    assert (plain.graphs, captured.graphs, whole.graphs) == (None, "modules", "full")
    assert not violations(captured) and not violations(whole)


def test_what_the_host_launched_slowly_is_faster() -> None:
    plain, captured = (estimated(MIXTURE, f"graphs={name}") for name in ("none", "modules"))
    assert captured.prediction.breakdown["launch"] < plain.prediction.breakdown["launch"]
    assert captured.prediction.step_time_s < plain.prediction.step_time_s


def test_what_cannot_be_captured_is_refused_and_found() -> None:
    for case, more, told in (
        (MIXTURE, "graphs=full", "a whole step goes without experts"),
        (DENSE, "graphs=modules recompute=full", "does not go with graphs=modules"),
        (MIXTURE, "graphs=modules recompute=selective:moe", "does not go with graphs=modules"),
        (DENSE, "graphs=modules activation_offload=core_attn", "does not go with graphs=modules"),
    ):
        with pytest.raises(WrongQuestion, match=told):
            estimated(case, more)
    with pytest.raises(WrongQuestion, match=r"since 2025\.10"):
        api.estimate("llama3-8b", "dgx-h100:2", ["graphs=full"], batch=64, runtime="megatron-core@2025.05")
    with pytest.raises(WrongQuestion, match="hai-llm cannot do that"):
        api.estimate("deepseek-v2-lite", "dgx-h100:2", ["graphs=modules"], batch=64, runtime="hai-llm")
    wrong = replace(estimated(MIXTURE, "graphs=modules"), graphs="full")
    assert "graphs_capture" in {violation.name for violation in violations(wrong)}


def test_modules_leave_shards_whose_exchanges_overlap() -> None:
    """Megatron-FSDP stops there (core_v0.18.0, mcore_fsdp_adapter.py), and captures a whole step."""
    whole = api.estimate("llama3-8b", "dgx-h100:2", ["micro=1", "zero=3", "graphs=full"], batch=64).plans[0]
    assert whole.graphs == "full" and not violations(whole)
    with pytest.raises(WrongQuestion, match="does not go with graphs=modules while experts' exchanges overlap"):
        estimated(("qwen3-30b-a3b", "ep=8 micro=1 zero=2"), "graphs=modules ep_overlap=on")
    beside = estimated(("qwen3-30b-a3b", "ep=8 micro=1 zero=1"), "graphs=modules ep_overlap=on")
    sharded = replace(beside, parallelism=replace(beside.parallelism, zero_stage=2))
    assert "graphs_capture" in {violation.name for violation in violations(sharded)}


def test_dropout_is_not_drawn_again_in_a_graph() -> None:
    """GPT-2 has dropout; attention recomputed in a graph would need its random numbers again."""
    pins = ["micro=1", "zero=1", "graphs=modules"]
    plan = api.estimate("gpt2", "dgx-h100:1", [*pins, "recompute=none"], batch=64, runtime="megatron-core").plans[0]
    with pytest.raises(WrongQuestion, match="it does not go with graphs=modules"):
        api.estimate("gpt2", "dgx-h100:1", [*pins, "recompute=selective"], batch=64, runtime="megatron-core")
    wrong = replace(plan, recompute=replace(plan.recompute, policy="selective", selective=True))
    assert not violations(plan) and "graphs_capture" in {violation.name for violation in violations(wrong)}


@sweep("edited", [("modules", "full"), ("modules", None), ("full", "modules"), ("full", None)])
def test_verify_finds_other_graphs_than_memory_has(edited: tuple[str, Literal["modules", "full"] | None]) -> None:
    wrong = replace(estimated(DENSE, f"graphs={edited[0]}"), graphs=edited[1])
    assert {violation.name for violation in violations(wrong)} == {"graphs_hold_their_inputs"}


@sweep(("case", "name"), [(DENSE, "modules"), (DENSE, "full"), (MIXTURE, "modules")])
def test_megatron_starts_them_and_is_read_back(case: tuple[str, str], name: str) -> None:
    plan = estimated(case, f"graphs={name}")
    made = bundle(plan, parts("megatron"), given("megatron")).files["start.sh"]
    assert ("--cuda-graph-scope full_iteration" in made) == (name == "full")
    assert ("NCCL_GRAPH_REGISTER=0" in made) == (name == "modules")
    found = reading.plan("megatron", made, ["dgx-h100:2"]).plans.plans[0]
    assert found.graphs == name and found.prediction.step_time_s == plan.prediction.step_time_s


@pytest.mark.parametrize(("overlap", "scope"), [("off", "moe_preprocess mlp"), ("on", "moe_preprocess")])
def test_dense_layers_stay_out_where_exchanges_overlap(overlap: str, scope: str) -> None:
    """Megatron stops there (transformer_config.py: scope on mlp is not supported with that overlap)."""
    plan = estimated(("deepseek-v2-lite", "ep=8 micro=1 zero=1"), f"graphs=modules ep_overlap={overlap}")
    assert f"{scope} \\\n" in bundle(plan, parts("megatron"), given("megatron")).files["start.sh"]
