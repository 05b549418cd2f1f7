"""Adapters over frozen weights: what is kept for the backward pass, how frozen weights are quantised, who can do it."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from planner import api
from planner.axes.options import option_values
from planner.base.errors import WrongQuestion
from planner.cost import frozen, transformer
from planner.cost.figures import Grid
from planner.cost.layer_activations import layer_activations
from planner.figures import cost_inputs
from planner.launchers.bundle import trainers
from planner.models.parameters import parameters
from planner.models.workload import workload
from planner.schema.plan import Plan
from planner.schema.workload import Method
from planner.space.cost_grid import single_grid
from planner.verify import violations
from tests.altering import altered
from tests.cases import figures
from tests.sweeps import sweep

SMALL = {"seq": 4096, "batch": 4, "tokens": "1M", "top": 1}
GIB = 2**30


def single(model: str, method: str | Method) -> Grid:
    """One sequence of 4,096 tokens on one accelerator, nothing recomputed."""
    layout = dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "micro", "batch", "nodes"), 1)
    options = option_values()
    figs = figures(model, "dgx-h100:1", "megatron-core", method=method, sequence=4096, batch=1)
    return single_grid(figs, layout, options)


def stored(*targets: str) -> float:
    """Bytes that a layer of Llama 3 8B keeps of 4,096 tokens."""
    found = single("llama3-8b", Method(kind="lora", rank=8, targets=targets))  # type: ignore[arg-type]
    return float(layer_activations(found, found.shape.moe_share).full)


def test_autograd_keeps_what_an_adapter_reads_and_nothing_else() -> None:
    """Of 4,096 tokens in 16 bit: a block's input is h wide, what the second product of the MLP reads f."""
    tokens, h, f = 4096, 4096, 14336
    output_alone = stored("o")
    assert stored("q") - output_alone == 2 * tokens * h == stored("q", "k", "v") - output_alone
    assert stored("up") - output_alone == 2 * tokens * h == stored("up", "gate") - output_alone
    assert stored("down") - output_alone == 2 * tokens * f


def test_all_inputs_are_kept_where_every_matrix_is_adapted() -> None:
    whole = single("llama3-8b", "finetune")
    everything = float(layer_activations(whole, whole.shape.moe_share).full)
    assert stored("q", "k", "v", "o", "up", "gate", "down") == everything


def test_experts_keep_no_copies_that_no_adapter_reads() -> None:
    """Mixtral: two experts a token, 4,096 wide; and the block's input, which its router reads."""
    without, with_ = (
        single("mixtral-8x7b", Method(kind="lora", rank=8, targets=targets))
        for targets in (("q",), ("q", "up"))  # type: ignore[arg-type]
    )
    more = layer_activations(with_, 1.0).full - layer_activations(without, 1.0).full
    imbalance = with_.stack.expert_imbalance
    assert float(more) == pytest.approx(2 * 4096 * 4096 * (1 + 2 * imbalance))


def test_a_quantised_weight_takes_four_bits_and_its_scales() -> None:
    """The paper's 0.127 bits of scales a weight; of 8 bit, one fp32 scale a row of 4,096."""
    assert 8 * frozen.bytes_of("nf4", 4096) == pytest.approx(4.127, abs=5e-4)
    assert frozen.bytes_of("int8", 4096) == 1 + 4 / 4096


def test_only_blocks_are_quantised() -> None:
    """Embedding, head and last norm stay in 16 bit."""
    best = api.plan("llama3-8b", "ws-2xrtx4090:1", method="qlora", **SMALL).plans[0]
    counted = parameters(workload("llama3-8b").model)
    ends = counted.embedding + counted.head + counted.final_norm
    quantised = (counted.total - ends) * frozen.bytes_of("nf4", 4096)
    assert best.prediction.memory.parameters_bytes == pytest.approx(quantised + 2 * ends)
    assert best.workload.method["base"] == "nf4" and best.workload.method["rank"] == 16
    assert violations(best) == []


@sweep(
    ("name", "method"),
    [("qwen3-30b-a3b", "lora"), *(("llama3-8b", method) for method in ("lora", "qlora", "qlora:int8"))],
)
def test_what_a_trainer_starts_is_planned_unless_a_runtime_is_named(name: str, method: str) -> None:
    best = api.plan(name, "dgx-h100:1", method=method, **SMALL | {"batch": 8}).plans[0]
    able, why = trainers(best)
    assert {"hf-trainer", "trl", "axolotl", "llama-factory"} <= set(able), why


def test_dequantising_moves_packed_and_16_bit_weights_once_a_pass() -> None:
    plain, packed = (single("llama3-8b", name) for name in ("lora", "qlora"))
    packed = replace(packed, shape=replace(plain.shape, frozen_bytes=0.5, quantised=1.0))
    more = [
        getattr(transformer.layers(packed)[1].parts["vector"], way)
        - getattr(transformer.layers(plain)[1].parts["vector"], way)
        for way in ("forward", "backward")
    ]
    weights = (parameters(workload("llama3-8b").model).total - 2 * 128256 * 4096 - 4096) / 32
    seconds = 2.5 * weights * packed.stack.vector / packed.device.memory_rate
    assert [float(each) for each in more] == pytest.approx([seconds, seconds])


def test_sharded_frozen_weights_have_no_fp32_copy() -> None:
    """FSDP shards trained weights as fp32 masters; frozen ones stay as they were loaded."""
    found = api.plan(
        "llama3-8b", "dgx-h100:1", method="lora", runtime="fsdp2", pin="tp=1,pp=1,cp=1", **SMALL | {"batch": 8}
    )
    m = found.plans[0].prediction.memory
    assert m.parameters_bytes == pytest.approx(2 * parameters(workload("llama3-8b").model).total / 8)
    assert m.optimizer_bytes < 0.1 * GIB and violations(found.plans[0]) == []


def test_logits_in_chunks_are_never_all_there() -> None:
    """3 e t h bytes in place of 12 a logit."""
    whole, chunked = (
        api.estimate(
            "llama3-8b", "ws-2xrtx4090:1", method="qlora", runtime=name, dp=2, recompute="full", batch=2, seq=4096
        )
        for name in ("hf-trainer", "hf-trainer-liger")
    )
    factor = 1.065
    saved = whole[0].prediction.memory.buffers_bytes - chunked[0].prediction.memory.buffers_bytes
    layer = 0.0  # in both
    assert saved > 0 and chunked[0].runtime.chunked_loss is True and whole[0].runtime.chunked_loss is None
    assert saved == pytest.approx(factor * (12 * 4096 * 128256 - max(3 * 2 * 4096 * 4096, layer)), rel=0.2)


@cache
def quantised() -> Plan:
    return api.plan("llama3-8b", "ws-2xrtx4090:1", method="qlora", **SMALL).plans[0]


@sweep("claim", [{"base": "nf4", "kind": "finetune"}, {"base": "int4"}, {"base": "int8"}, {"base": ""}])
def test_a_base_that_does_not_go_with_its_bytes_is_found(claim: dict[str, str]) -> None:
    edited = altered(quantised(), {f"workload.method.{key}": value for key, value in claim.items()})
    assert violations(quantised()) == [] and violations(edited) != []


@sweep("frozen", [{}, {"frozen": "half"}])
def test_a_base_of_weights_that_are_not_frozen_is_found(frozen: dict[str, Any]) -> None:
    stated = quantised().runtime.bytes_per_parameter
    others = {name: size for name, size in stated.items() if name != "frozen"}
    edited = altered(quantised(), {"runtime.bytes_per_parameter": others | frozen})
    assert any("'nf4' and 0 bytes a frozen parameter" in violation.says for violation in violations(edited))


def test_only_some_runtimes_train_on_quantised_weights() -> None:
    with pytest.raises(
        WrongQuestion, match="method='qlora': megatron-core has no nf4 weights; these have it: hf-trainer, hf-"
    ):
        api.plan("llama3-8b", "dgx-h100:1", method="qlora", runtime="megatron-core")
    with pytest.raises(WrongQuestion, match="Did you mean qlora"):
        api.plan("llama3-8b", "dgx-h100:1", method="qlorra")


def test_frozen_bytes_are_none_where_nothing_is_frozen() -> None:
    assert cost_inputs.frozen_bytes(workload("llama3-8b", method="full"), None) == 0.0
    assert cost_inputs.frozen_bytes(workload("llama3-8b", method="lora"), None) == 0.0
