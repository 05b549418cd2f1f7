"""The vectorised cost model agrees with a scalar reading of its equations, in every form that it takes."""

from dataclasses import dataclass, fields, replace
from functools import cache
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner import cost
from planner.axes.options import option_values
from planner.axes.table import sharing
from planner.axes.values import MODULES, OFFLOADED, OFFLOADED_MODULES, RANK_ORDERS, WHOLE_MIXTURE, Recompute, recompute
from planner.cost import pipeline
from planner.cost.figures import Grid, Shape, stacked
from planner.schema.plan_layout import CONTEXT_ALGORITHMS
from planner.schema.workload import Model
from planner.search.costing import rows_of
from planner.space.cost_grid import Figures, single_grid
from tests import oracle, towers
from tests.cases import cluster, figures, problem_of
from tests.sweeps import depth, sweep

EXACT = 1e-12
NOTHING = MappingProxyType({})
SEEING = towers.model("qwen2.5-vl-7b", "2@896")


@dataclass(frozen=True)
class Family:
    """A kind of model with a cluster and a runtime that trains it."""

    model: str | Model
    runtime: str
    on: str
    release: str = ""
    precision: str = "bf16"
    fabric: tuple[tuple[str, float], ...] = ()
    trained: tuple[tuple[str, object], ...] = ()

    @property
    def network(self):
        return cluster(self.on, **dict(self.fabric))


FAMILIES = {
    "multi-head": Family("megatron-18.4b", "megatron-core", "dgx-a100-80gb:4"),
    "multi-head, unfused": Family("megatron-18.4b", "megatron-core", "dgx-a100-80gb:4", "2022", "fp16"),
    "grouped queries": Family("llama3-8b", "megatron-core", "dgx-h100:8", precision="fp8"),
    "more ranks than key/value heads": Family("qwen2.5-7b", "fsdp2", "dgx-h100:4"),
    "latent attention, shared and leading": Family("deepseek-v3", "megatron-core", "dgx-h100:32", precision="fp8"),
    "direct queries": Family("deepseek-v2-lite", "megatron-core", "dgx-h200:4"),
    "mixture": Family("mixtral-8x7b", "megatron-core", "dgx-h100:8"),
    "mixture in DeepSpeed": Family("mixtral-8x7b", "deepspeed", "dgx-a100-40gb:8"),
    "every second a mixture": Family("llama4-maverick", "megatron-core", "dgx-b200:16", precision="mxfp8"),
    "windows": Family("gpt-oss-20b", "fsdp2", "dgx-h100:4"),
    "window on all layers": Family("mistral-7b", "fsdp", "dgx-a100-40gb:4"),
    "tied": Family("gpt2", "deepspeed", "dgx-v100:2", precision="fp16"),
    "encoder": Family("bert-large", "megatron-core", "dgx-v100:4", "2021", "fp16"),
    "encoder-decoder": Family("t5-large", "megatron-core", "dgx-a100-40gb:4"),
    "image": Family("vit-b16", "fsdp", "dgx-a100-40gb:2"),
    "adapters": Family("llama2-70b", "fsdp2", "dgx-h100:4", trained=(("method", "lora"),)),
    "adapters in 8 bit": Family(
        "llama2-70b", "megatron-core", "dgx-h100:4", precision="fp8", trained=(("method", "lora"),)
    ),
    "adapters on 4 bit": Family("llama3-8b", "hf-trainer", "ws-8xrtx3090:2", trained=(("method", "qlora"),)),
    "adapters on 4 bit, chunked loss": Family(
        "llama3-8b", "hf-trainer-liger", "ws-2xrtx4090:4", trained=(("method", "qlora:int8"), ("targets", ("q", "v")))
    ),
    "adapters on experts": Family(
        "mixtral-8x7b",
        "megatron-core",
        "dgx-h100:4",
        trained=(("method", "lora"), ("targets", ("q", "up", "gate", "down"))),
    ),
    "oversubscribed": Family(
        "llama3-70b", "megatron-core", "dgx-h100:32", fabric=(("leaf_nodes", 4), ("oversubscription", 3.0))
    ),
    "mixture, oversubscribed": Family(
        "qwen3-30b-a3b", "megatron-core", "dgx-h100:16", fabric=(("leaf_nodes", 2), ("oversubscription", 2.0))
    ),
    "mesh of pair links": Family("llama3-8b", "megatron-core", "mi300x-8:8"),
    "cube of pair links": Family("gpt2-xl", "megatron-core", "dgx-v100:8", "2022", "fp16"),
    "bridged pairs": Family("gpt2-xl", "megatron-core", "quad-rtx6000:8", "2022", "fp16"),
    "no scale-up link": Family("llama3-8b", "megatron-core", "l40s-8:4"),
    "one rack": Family("llama3-70b", "megatron-core", "gb200-nvl72:4"),
    "pod": Family("llama2-7b", "maxtext", "tpu-v5p-4:16"),
    "single precision": Family("gpt2", "megatron-core", "dgx-v100:2", precision="fp32"),
    "single precision, gathered": Family("gpt2", "fsdp2", "dgx-a100-40gb:2", precision="fp32"),
    "whole matrices": Family("llama3-8b", "megatron-core", "dgx-a100-40gb:8", trained=(("optimizer", "muon"),)),
    "whole matrices of experts": Family(
        "deepseek-v2", "megatron-core", "dgx-h100:16", trained=(("optimizer", "muon"),)
    ),
    "behind a tower": Family(SEEING, "megatron-core", "dgx-h100:8", precision="fp8"),
    "behind a tower, adapters": Family(SEEING, "fsdp2", "dgx-h100:2", trained=(("method", "lora"),)),
    "8-bit optimizer": Family("llama3-8b", "megatron-core", "dgx-a100-40gb:2", trained=(("optimizer", "adam-8bit"),)),
}


@cache
def figures_of(name: str) -> Figures:
    family = FAMILIES[name]
    found = figures(
        family.model, family.network, family.runtime, family.release, (family.precision,), **dict(family.trained)
    )
    return replace(found, shape=replace(found.shape, pattern=None))  # several kinds: tests/test_kinds_of_layers.py


def factor(draw, whole: int, most: int) -> int:
    return draw(st.sampled_from([d for d in range(1, min(whole, most) + 1) if whole % d == 0]))


def well_dealt(shape: Shape, pp: int, vpp: int) -> bool:
    """At most one layer short a stage, and the leading dense layers in the stages' first chunks, of which only the last
    that hold any are short.
    """
    layers, leading = int(shape.layers), int(shape.leading_dense)
    if -layers % (pp * vpp) >= pp:
        return False
    dealt = oracle.dealt(SimpleNamespace(shape=shape, layout=SimpleNamespace(pp=pp, vpp=vpp, looped=1.0)))
    first = [own[0] for own in oracle.chunks([0] * leading + [1] * (layers - leading), dealt, vpp)]
    filled = [len(own) for own in first[1:] if 0 in own][:-1]
    return sum(own.count(0) for own in first) == leading and len(set(filled)) <= 1


@st.composite
def candidates(draw, name: str):
    """Any layout that deals out ranks and layers, with any options: more than any runtime allows."""
    family, figures = FAMILIES[name], figures_of(name)
    per_node = figures.accelerators_per_node
    nodes = draw(st.integers(1, family.network.count))
    ranks = nodes * per_node
    layers = int(figures.shape.layers)
    tp = factor(draw, ranks, 16)
    cp = factor(draw, ranks // tp, 8)
    pp = factor(draw, ranks // tp // cp, layers)
    dp = ranks // (tp * cp * pp)
    # Chunks at most one layer short a stage: the rule layers_deal, which the closed form of the stages rests on.
    deals = [v for v in range(1, layers // pp + 1 if pp > 1 else 2) if well_dealt(figures.shape, pp, v)]
    assume(deals)
    vpp = draw(st.sampled_from(deals))
    micro = draw(st.sampled_from((1, 2, 3, 4, 8)))
    experts = int(figures.shape.experts)
    ep = factor(draw, tp * cp * dp, experts) if experts else 1
    etp = factor(draw, tp * cp * dp // ep, 8) if experts else 1
    batch = dp * micro * draw(st.integers(1, 64))
    layout = {"tp": tp, "pp": pp, "vpp": vpp, "cp": cp, "ep": ep, "etp": etp, "dp": dp, "micro": micro}
    policy = draw(st.sampled_from(("none", "selective", "modules", "offloaded", "full", "block:0.25", "block:0.5")))
    named = tuple(draw(st.sets(st.sampled_from(sorted(set(MODULES) - {WHOLE_MIXTURE})))))
    if {"layernorm", "mlp"} <= set(named):
        named = (*named, WHOLE_MIXTURE)
    flag = st.booleans()
    options = option_values(
        precision=family.precision,
        recompute=OFFLOADED
        if policy == "offloaded"
        else Recompute("selective", 0.0, 0.0, named)
        if policy == "modules"
        else recompute(policy),
        sequence_parallel=draw(flag),
        tp_overlap=draw(flag),
        zero=draw(st.integers(0, 3)),
        zero_scope=draw(st.sampled_from(("full", "node", "nodes:2", "nodes:3"))),
        dp_overlap=draw(flag),
        p2p_overlap=draw(flag),
        rank_order=RANK_ORDERS[draw(flag)],
        offload=draw(st.sampled_from((0.0, 0.3, 1.0))),
        ep_overlap=draw(flag),
        offload_overlap=draw(flag),
        activation_offload=(
            draw(st.sampled_from((True, False, False)))
            and draw(st.one_of(st.just(("all",)), st.sets(st.sampled_from(OFFLOADED_MODULES)).map(tuple)))
        )
        or (),
    )
    return layout | {"batch": batch, "nodes": nodes}, options


def agree(found: cost.StepCost, grid: Grid) -> None:
    expected = oracle.cost(oracle.plan(grid))
    assert float(found.time) == pytest.approx(expected.time, rel=EXACT, abs=0)
    assert float(found.memory) == pytest.approx(expected.memory, rel=EXACT, abs=0)


BUCKETS = "bucket_parameters", "bucket_parameters_per_rank"
EXAMPLES = depth(25, 12, 10)


@pytest.mark.slow
@sweep("name", FAMILIES, every=3)
@settings(deadline=None, max_examples=EXAMPLES, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_plans_of_a_family(name, data):
    grid = single_grid(figures_of(name), *data.draw(candidates(name)))
    unread = data.draw(st.sampled_from((0.0, 1.0)))
    launches, bucket = data.draw(st.sampled_from((0.0, 18.0))), data.draw(st.sampled_from((0.0, 26214400.0)))
    sums, whole = data.draw(st.sampled_from((0.0, 2.0))), data.draw(st.sampled_from((0.0, 1.0)))
    counted = dict(zip(BUCKETS, data.draw(st.sampled_from(((0.0, 0.0), (4e7, 1e6), (1e6, 1e6)))), strict=True))
    stack = replace(grid.stack, bucket_bytes=bucket, fp32_sums_below_zero=sums, gather_launches=launches, **counted)
    stack = replace(stack, reduces_whole=whole, broadcasts_shards=data.draw(st.sampled_from((0.0, 1.0))))
    copies = data.draw(st.sampled_from(((0.0, 0.0), (0.0, 1.0), (1.0, 1.0))))
    skips = data.draw(st.sampled_from((0.0, 1.0)))
    stack = replace(stack, copies_gathered=copies[0], copies_gradients=copies[1], skips_last_product=skips)
    way = sharing(data.draw(st.sampled_from(CONTEXT_ALGORITHMS)))
    sent = data.draw(st.sampled_from((0.0, 1.0, 2.0, 3.0)[: 4 if float(grid.layout.etp) == 1 else 3]))
    options = replace(grid.options, dispatcher=sent, **way)
    grid = replace(grid, stack=replace(stack, unread_outputs=unread), options=options)
    agree(cost.evaluate(grid), grid)


@sweep("pp", [2, 4, 8])
@sweep("head", [0.5, 1.0, 2.7])
def test_stages_cut_by_cost(pp, head):
    """A head that counts as so many layers leaves the last stage fewer."""
    figures = figures_of("grouped queries")
    figures = replace(figures, shape=replace(figures.shape, head_layers=head, placed_head=0.0))
    layout = {"tp": 2, "pp": pp, "vpp": 1, "cp": 1, "ep": 1, "etp": 1, "dp": 4, "micro": 1, "batch": 64, "nodes": pp}
    options = option_values(
        precision="fp8", sequence_parallel=True, tp_overlap=True, zero=1, dp_overlap=True, p2p_overlap=True
    )
    grid = single_grid(figures, layout, options)
    agree(cost.evaluate(grid), grid)
    dealt = [len(stage) for stage in oracle.deal(oracle.plan(grid))]
    assert sum(dealt) == 32 and dealt[0] == (32 + head) // pp + 1 and dealt[-1] < 32 // pp


@sweep(("pp", "vpp"), [(2, 1), (4, 1), (8, 1), (8, 2), (4, 4)])
@sweep("head", [0.3, 1.0, 2.7, 9.5])
def test_stages_placed_beside_the_head(pp, vpp, head):
    """The last stage gives up layers while that makes the slowest faster."""
    figures = figures_of("grouped queries")
    figures = replace(figures, shape=replace(figures.shape, layers=61.0, placed_head=head))
    layout = {"tp": 2, "pp": pp, "vpp": vpp, "cp": 1, "ep": 1, "etp": 1, "dp": 4, "micro": 1, "batch": 64, "nodes": pp}
    options = option_values(
        precision="fp8", sequence_parallel=True, tp_overlap=True, zero=1, dp_overlap=True, p2p_overlap=True
    )
    grid = single_grid(figures, layout, options)
    agree(cost.evaluate(grid), grid)
    dealt = [len(stage) for stage in oracle.deal(oracle.plan(grid))]
    assert pipeline.stage_layers(grid.shape, grid.layout) == dealt and sum(dealt) == 61


@pytest.mark.slow
@sweep(("zero", "micro_batches"), [(0, 32), (1, 4)])
@sweep(("layers", "leading"), [(61, 3), (61, 7), (92, 3), (40, 11)])
@sweep("placed", [0.0, 2.7])
def test_leading_layers_beyond_the_first_chunk(zero, micro_batches, layers, leading, placed):
    """They stand on later stages too: every way to cut a model that has some there."""
    figures, seen = figures_of("latent attention, shared and leading"), 0
    shape = replace(figures.shape, layers=float(layers), leading_dense=float(leading), placed_head=placed)
    for pp, vpp in ((a, b) for a in range(2, 33) for b in range(1, layers // a + 1)):
        layout = {"tp": 2, "pp": pp, "vpp": vpp, "cp": 1, "ep": 8, "etp": 1, "dp": 4, "micro": 1}
        layout |= {"batch": 4 * pp * micro_batches, "nodes": pp}
        options = option_values(precision="fp8", recompute=recompute("selective"), sequence_parallel=True, zero=zero)
        grid = single_grid(replace(figures, shape=shape), layout, options)
        if -layers % (pp * vpp) >= pp:
            continue
        assert bool(pipeline.leading_fit(shape, grid.layout)) == well_dealt(shape, pp, vpp)
        stages = oracle.deal(oracle.plan(grid))
        if not any(0.0 in stage for stage in stages[1:]) or not well_dealt(shape, pp, vpp):
            continue
        assert pipeline.leading_by_stage(shape, grid.layout, [len(own) for own in stages]) == [
            own.count(0.0) for own in stages
        ]
        agree(cost.evaluate(grid), grid)
        seen += 1
    assert seen >= 3


def pooled(grids: list[Grid]) -> Grid:
    """Plans of any kind as rows of one table: models, parts, networks and runtimes too are columns."""
    names = [field.name for field in fields(Grid) if field.name not in ("measured", "expanded")]
    return Grid(**{name: stacked([getattr(grid, name) for grid in grids]) for name in names})


@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=15,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_plans_of_all_families_in_one_table(data):
    grids = [single_grid(figures_of(name), *data.draw(candidates(name))) for name in FAMILIES]
    found = cost.evaluate(pooled(grids))
    assert found.time.shape == (len(FAMILIES),)
    for row, grid in enumerate(grids):
        agree(cost.StepCost(found.steady[row], found.exposed[row], found.fixed[row], found.memory[row]), grid)


SPACES = {
    "dense": ("llama2-7b", "dgx-a100-40gb:2", {"batches": (64,)}),
    "unfused": ("megatron-18.4b", "dgx-a100-80gb:3", {"batches": (48,), "release": "2022"}),
    "mixture": ("mixtral-8x7b", "dgx-h100:3", {"batches": (48,), "pins": "precision=bf16|fp8,micro=1..2"}),
    "latent": ("deepseek-v2-lite", "dgx-h100:4", {"batches": (64,), "pins": "micro=1,cp=1..2"}),
    "fsdp2": ("llama3-8b", "dgx-h100:4", {"batches": (64, 128), "runtime": "fsdp2", "counts": (1, 4)}),
    "deepspeed": ("gpt2-xl", "dgx-v100:2", {"batches": (32,), "runtime": "deepspeed"}),
    "pod": ("llama2-7b", "tpu-v5p-4:8", {"batches": (64,), "runtime": "maxtext"}),
}


@pytest.mark.slow
@sweep("name", SPACES, ci=2)
def test_places_of_whole_spaces(name):
    """Of every block, a place for each of twelve draws."""
    model, on, more = SPACES[name]
    problem = problem_of(model, on, **more)
    drawn = np.random.default_rng(7)
    for index, block in enumerate(problem.blocks):
        found = cost.evaluate(problem.grid(index))
        time, memory = (np.broadcast_to(figure, block.shape) for figure in (found.time, found.memory))
        for place in drawn.integers(block.size, size=12):
            *options, row = np.unravel_index(place, block.shape)
            layout = {axis: int(column[row]) for axis, column in block.rows.items()}
            grid = single_grid(problem.figures, layout, block.axes.at([int(i) for i in options]))
            one = cost.evaluate(grid)
            assert (time.flat[place], memory.flat[place]) == (float(one.time), float(one.memory))
            agree(one, grid)


@pytest.mark.slow
def test_candidates_of_a_large_space():
    """Drawn from all of DeepSeek-V3's on 2,048 accelerators, and from those whose stages between hold dense layers."""
    problem = problem_of("deepseek-v3", "dgx-h100:256", batches=(15360,))
    sizes, drawn, between = np.array([block.size for block in problem.blocks]), np.random.default_rng(5), 0
    for index in drawn.choice(len(sizes), size=200, p=sizes / sizes.sum()):
        block = problem.blocks[index]
        *options, row = np.unravel_index(drawn.integers(block.size), block.shape)
        layout = {axis: int(column[row]) for axis, column in block.rows.items()}
        grid = single_grid(problem.figures, layout, block.axes.at([int(i) for i in options]))
        agree(cost.evaluate(grid), grid)
        between += any(0.0 in stage for stage in oracle.deal(oracle.plan(grid))[1:])
    assert between >= 40


@pytest.mark.slow
def test_parts_of_a_table_are_the_whole_table():
    problem = problem_of("mixtral-8x7b", "dgx-h100:2", batches=(32,), pins="micro=1..4")
    for index, block in enumerate(problem.blocks):
        whole = cost.evaluate(problem.grid(index))
        every = np.broadcast_to(whole.time, block.shape)
        rows = np.arange(block.height)[::3]
        some = cost.evaluate(rows_of(problem.grid(index), rows))
        np.testing.assert_array_equal(np.broadcast_to(some.time, (*block.axes.shape, len(rows))), every[..., rows])
