"""Muon: work on whole matrices, what shards of these hold, who has it, and how Megatron-LM is told."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from planner import api
from planner.base.errors import WrongQuestion
from planner.cost.muon import orthogonal_flops
from planner.figures.muon_matrices import orthogonal_figures
from planner.launchers import EXPORTERS, bundle, parts, reading
from planner.launchers.bundle import refusals
from planner.models.workload import library, workload
from planner.schema.plan import Plan
from planner.verify import violations
from planner.verify.model import largest_tensors
from tests.altering import altered
from tests.launchers.environments import given
from tests.sweeps import sweep
from tests.words import worded

DENSE = "llama3-8b"


@cache
def estimated(name: str, cluster: str, *pins: str, optimizer: str = "muon", batch: int = 256) -> Plan:
    return api.estimate(name, cluster, list(pins), batch=batch, seq=4096, optimizer=optimizer).plans[0]


shared = partial(estimated, DENSE, "dgx-h100:4", "tp=2", "zero=1")
alone = partial(estimated, DENSE, "dgx-h100:4", "tp=2", "pp=2", "zero=0", "recompute=full")
mixture = partial(estimated, "qwen3-30b-a3b", "dgx-h100:4", "ep=8", "zero=1", "recompute=full")


def test_work_of_a_matrix_is_that_of_its_products() -> None:
    """Five times ``X X^T``, its square, and that times X; a product (m x k)(k x n) is 2 m k n."""
    m, n = 24, 40
    x = np.ones((m, n))
    products = 5 * [(x, x.T), (x @ x.T, x @ x.T), (x @ x.T, x)]
    counted = sum(2.0 * a.shape[0] * a.shape[1] * b.shape[1] for a, b in products)
    assert orthogonal_flops(m, n, 5) == orthogonal_flops(n, m, 5) == counted


def test_work_of_a_layer() -> None:
    """Llama 3 8B: queries and output 4,096 square, keys and values 1,024 wide, gate and up as one."""
    found = orthogonal_figures(workload(DENSE, optimizer="muon"))
    square, narrow = orthogonal_flops(4096, 4096, 5), orthogonal_flops(4096, 1024, 5)
    assert found["attention_orthogonal"] == 2 * square + 2 * narrow
    assert found["mlp_orthogonal"] == orthogonal_flops(4096, 28672, 5) + orthogonal_flops(14336, 4096, 5)
    assert found["largest_matrix"] == 4096 * 28672
    assert orthogonal_figures(workload(DENSE)) == {}


@sweep("name", list(library()))
def test_two_counts_of_the_largest_tensor_agree(name: str) -> None:
    work = workload(name, optimizer="muon")
    found = orthogonal_figures(work)
    assert (found["largest_matrix"], found["largest_expert_matrix"]) == largest_tensors(work.model)


def test_states_are_one_momentum_in_blocks_and_two_outside() -> None:
    """Without ZeRO and over two stages: 4 + 4 bytes of a block's parameter, 8 + 4 of embedding or head."""
    held = alone().prediction.memory.by_stage
    assert held is not None
    ends, blocks = 128_256 * 4096, [218_112_000 * stage.layers for stage in alone().parallelism.stages]
    assert held[0].optimizer_bytes == (8 * blocks[0] + 12 * ends) / 2
    assert held[1].optimizer_bytes == (8 * blocks[1] + 12 * (ends + 4096)) / 2


def test_shards_hold_whole_matrices() -> None:
    """On 16 shards a share of the layers is larger than a matrix; on 256 the largest is what every shard has room for,
    which no accelerator holds.
    """
    assert shared().prediction.memory.gradients_bytes == pytest.approx(4 * 8_030_261_248 / 2, rel=1e-12)
    spread = estimated(DENSE, "dgx-h100:32", "zero=1", "recompute=full")
    assert spread.prediction.memory.gradients_bytes == 4 * (256 * 4096 * 28672 + 2 * 128_256 * 4096 + 4096)
    assert spread.prediction.memory.optimizer_bytes > 8 * 4096 * 28672


def test_the_update_takes_its_iterations() -> None:
    """All matrices' products over the reachable rate, once on every tensor-parallel rank."""
    found, plain = (
        estimated(DENSE, "dgx-h100:1", "tp=8", optimizer=name).prediction.breakdown["optimizer"]
        for name in ("muon", "adamw")
    )
    work = orthogonal_figures(workload(DENSE, optimizer="muon"))
    peak = 32 * (work["attention_orthogonal"] + work["mlp_orthogonal"]) / 989.4e12
    assert peak + plain < found < 2 * peak + plain
    half = estimated(DENSE, "dgx-h100:2", "tp=8", "zero=1").prediction.breakdown["optimizer"]
    assert 0.45 * found < half < 0.55 * found


@sweep("made", [shared, alone, mixture])
def test_plans_hold(made: Callable[[], Plan]) -> None:
    assert violations(made()) == []


@pytest.mark.parametrize("field", ["outside_state_bytes", "state_bytes"])
def test_states_that_are_understated_are_found(field: str) -> None:
    optimizer = {**alone().workload.optimizer, field: alone().workload.optimizer[field] - 1.0}
    wrong = replace(alone(), workload=replace(alone().workload, optimizer=optimizer))
    assert "states_follow_from_sharding" in {each.name for each in violations(wrong)}


def test_what_does_not_go_together_is_found() -> None:
    fp16 = replace(shared(), precision="fp16")
    away = altered(shared(), {"offload.optimizer": True})
    deeper = altered(shared(), {"parallelism.zero_stage": 3})
    nodes = altered(shared(), {"parallelism.zero_scope": "node"})
    frozen = altered(shared(), {"workload.method.kind": "freeze", "workload.method.layers": 2})
    for wrong in (fp16, away, deeper, nodes, frozen):
        assert "muon_runs" in {each.name for each in violations(wrong)}


@worded("muon.refused", read=json.loads)
def test_refused_by_name(asked: dict) -> WrongQuestion:
    with pytest.raises(WrongQuestion) as raised:
        api.plan(DENSE, "dgx-h100:4", optimizer="muon", **asked)
    return raised.value


def test_several_pools_are_refused() -> None:
    with pytest.raises(WrongQuestion, match=r"muon'?: with nodes of one kind only"):
        api.plan(DENSE, ["dgx-h100:2", "dgx-a100-80gb:2"], optimizer="muon")


def test_megatron_is_told_and_read_back() -> None:
    script = bundle(shared(), parts("megatron"), given("megatron")).files["start.sh"]
    words = " ".join(script.replace("\\\n", " ").split())
    assert "--optimizer muon --muon-tp-mode duplicated" in words and "--use-distributed-optimizer" in words
    (back,) = reading.plan("megatron", script, ["dgx-h100:4"]).plans.plans
    assert back.workload.optimizer == shared().workload.optimizer and back.prediction == shared().prediction
    old = script.replace("--optimizer muon", "--optimizer dist_muon").replace("--use-distributed-optimizer", "")
    assert reading.plan("megatron", old, ["dgx-h100:4"]).plans.plans[0].parallelism.zero_stage == 1
    with pytest.raises(WrongQuestion, match="--muon-tp-mode: may change"):
        reading.plan("megatron", script.replace("duplicated", "blockwise"), ["dgx-h100:4"])


def test_other_targets_refuse_it() -> None:
    for name, exporter in EXPORTERS.items():
        if exporter.role == "trainer" and name not in ("megatron", "accelerate"):
            assert any("muon" in why for why in refusals(shared(), exporter)) or exporter.runtime is None, name
