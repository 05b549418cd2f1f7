"""Stages of models whose layers are of several kinds: where they are cut, what they hold and take, one by one."""

from dataclasses import replace
from itertools import accumulate, combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api, cost
from planner.axes.options import option_values
from planner.axes.values import recompute
from planner.catalog import load
from planner.cost import data_parallel, flops, pipeline, stage_memory, transformer
from planner.cost.figures import Pattern, by_kind
from planner.cost.products import LayerPart
from planner.figures import cost_inputs
from planner.models import blocks
from planner.models.workload import library, workload
from planner.search.branch_and_bound import Bounded
from planner.search.costing import Exhaustive
from planner.space.cost_grid import single_grid
from planner.verify import violations
from tests.altering import altered
from tests.answered_once import answered_once
from tests.cases import figures, problem_of
from tests.sweeps import sweep

HYBRIDS = ("nemotron3-nano-30b-a3b", "qwen3-next-80b-a3b", "jamba-v0.1")
OTHERS = ("gemma3-27b", "glm5.2", "gpt-oss-120b", "kimi-linear-48b-a3b", "llama4-maverick")


def every_cut(layers: int, chunks: int):
    for ends in combinations(range(1, layers), chunks - 1):
        yield [end - start for start, end in pairwise((0, *ends, layers))]


def loads(work, sizes, head):
    ends = [0, *accumulate(sizes)]
    found = [sum(work[start:end]) for start, end in pairwise(ends)]
    return [*found[:-1], found[-1] + head]


def best_cut(work, chunks, head, last):
    """Of every cut: the one whose busiest chunk has least, then least squares."""
    able = [sizes for sizes in every_cut(len(work), chunks) if sizes[-1] >= last]
    least = min(max(loads(work, sizes, head)) for sizes in able)
    return least, min(
        sum(x * x for x in loads(work, sizes, head)) for sizes in able if max(loads(work, sizes, head)) <= least
    )


@settings(deadline=None, max_examples=150, derandomize=True)
@given(
    work=st.lists(st.integers(1, 20), min_size=4, max_size=10),
    chunks=st.integers(1, 4),
    head=st.integers(0, 40),
    last=st.integers(1, 1),
)
def test_a_cut_is_the_best_of_all(work, chunks, head, last):
    sizes = pipeline.by_work(tuple(map(float, work)), chunks, float(head), last)
    assert sum(sizes) == len(work) and len(sizes) == chunks and min(sizes) > 0 and sizes[-1] >= last
    found = loads(work, sizes, head)
    assert (max(found), sum(x * x for x in found)) == best_cut(work, chunks, head, last)


@sweep("name", HYBRIDS)
@sweep("pp", [1, 2, 3])
def test_hybrids_are_cut_by_work(name, pp):
    shape = cost_inputs.shape(workload(name), load().runtime("megatron-core"))
    work = [shape.pattern.work[kind] for kind in shape.pattern.order]
    found = loads(work, pipeline.chunk_sizes(shape, pp, 1), shape.pattern.head)
    assert max(found) == pytest.approx(best_cut(work, pp, shape.pattern.head, 1)[0], rel=1e-12)


DIFFERENT = [name for name, model in library().items() if blocks.differ(model, workload(name).sequence)]


@sweep("name", DIFFERENT)
def test_kinds_are_what_the_model_is_the_mean_of(name):
    """Parameters and work of all layers, kind by kind."""
    asked, runtime = workload(name), load().runtime("megatron-core")
    whole, mean = cost_inputs.shape(asked, runtime), cost_inputs.shape(asked, runtime, mean=True)
    each = [whole.pattern.kinds[kind] for kind in whole.pattern.order]
    assert sum(kind.attention_parameters for kind in each) / len(each) == pytest.approx(mean.attention_parameters)
    body = whole.layers - whole.leading_dense
    assert sum(kind.moe_share for kind in each) == pytest.approx(body * mean.moe_share)
    work, ending = flops.token_work(mean), mean.streams**2 * mean.hidden * (mean.streams > 1)
    kinds = sum(whole.pattern.work[kind] for kind in whole.pattern.order)
    assert kinds + ending == pytest.approx(work.products + work.scores + work.states, rel=1e-9)


def grids(name, runtime="megatron-core"):
    known = figures(name, "dgx-h100:16", runtime)
    for pp, vpp, micro, policy, zero in (
        (1, 1, 1, "none", 1),
        (2, 1, 2, "full", 1),
        (4, 1, 1, "selective", 0),
        (4, 2, 1, "none", 1),
        (8, 1, 1, "block:0.5", 1),
        (8, 2, 2, "none", 0),
    ):
        layout = {"tp": 2, "pp": pp, "vpp": vpp, "cp": 1, "ep": 2, "etp": 1, "dp": 4, "micro": micro}
        options = option_values(
            recompute=recompute(policy),
            sequence_parallel=True,
            tp_overlap=True,
            zero=zero,
            dp_overlap=True,
            p2p_overlap=vpp > 1,
        )
        yield single_grid(known, layout | {"batch": 4 * micro * 4 * pp, "nodes": pp}, options)


@sweep("name", [*HYBRIDS, *OTHERS], every=4, ci=2)
@sweep("runtime", ["megatron-core", "fsdp2", "nanotron", "megatron-core@2024"], every=3)
def test_every_stage_is_priced_by_what_it_holds(name, runtime):
    """One stage after the other, layer by layer, however the runtime cuts them."""
    runtime, _, release = runtime.partition("@")
    for grid in grids(name, runtime) if not release else (replace(g, shape=old(name)) for g in grids(name, runtime)):
        if grid.layout.vpp > 1 and grid.shape.head_layers:
            continue
        pattern, pp, vpp = grid.shape.pattern, int(grid.layout.pp), int(grid.layout.vpp)
        sizes, order, stages = pipeline.chunk_sizes(grid.shape, pp, vpp), list(pattern.order), [[] for _ in range(pp)]
        for chunk, size in enumerate(sizes):
            stages[chunk % pp] += [order.pop(0) for _ in range(size)]
        assert not order and [len(own) for own in stages] == pipeline.stage_layers(grid.shape, grid.layout)
        agree(grid, stages)


def old(name):
    return cost_inputs.shape(workload(name), load().runtime("megatron-core").at("2024"))


def agree(grid, stages):
    """Its time and memory are those of stages given as lists of kinds."""
    priced, pp = cost.passes(grid), len(stages)
    times = [pipeline.layer_time(grid, layer) for layer in priced.layers]
    embedding, head = priced.ends
    seconds = [sum(times[kind].forward + times[kind].backward for kind in own) for own in stages]
    seconds[0] += embedding.forward + embedding.backward
    seconds[-1] += head.forward + head.backward
    s = pipeline.stages(grid, priced.layers, priced.ends)
    seconds = [float(each + s.transfer) for each in seconds]
    steps = float(pipeline.micro_batches(grid.layout))
    expected = steps * max(seconds) + (sum(seconds) - max(seconds)) / float(grid.layout.vpp)
    assert float(pipeline.flow(grid, s).time) == pytest.approx(expected, rel=1e-12)
    breakdown = cost.breakdown(grid)
    assert sum(map(float, breakdown.values())) == pytest.approx(float(cost.evaluate(grid).time), rel=1e-12)

    kinds, (kept, comes) = by_kind(grid), stage_memory.of_layers(grid)
    found = stage_memory.stages(grid, s.split)
    every = (found[0], *stage_memory.middle_stages(grid, pipeline.inner_stages(grid.shape, grid.layout)), found[-1])
    for index, own in enumerate(stages):
        held = every[index if pp > 1 else 0]
        activations = float(stage_memory.in_flight(grid, float(index))) * sum(float(kept[kind].kept) for kind in own)
        outside = float(grid.shape.dropout) * (index == 0)
        assert outside or float(held.activations) == pytest.approx(
            activations * float(grid.stack.activation_factor), rel=1e-12
        )
        parts = [data_parallel._blocks(kinds[kind], 1.0, 0.0) for kind in own]
        ends = {0: grid.shape.embedding_parameters, pp - 1: grid.shape.head_parameters + grid.shape.final_parameters}
        if pp > 1 and not float(grid.stack.gathers_working_copy) and not float(grid.stack.fp32_sums_below_zero):
            dense = sum(float(part[0]) for part in parts) + float(ends.get(index, 0.0)) / float(grid.layout.tp)
            spread = sum(float(part[1]) for part in parts)
            assert float(held.parameters) == pytest.approx((dense + spread) * 2.0, rel=1e-9)
    largest = max(float(each.total) for each in every[: pp if pp > 1 else 1])
    assert float(cost.evaluate(grid).memory) == pytest.approx(largest, rel=1e-12)
    assert float(comes.layer) >= max(float(each.again) for each in kept)


@pytest.mark.slow
@sweep(("name", "on"), [("nemotron3-nano-4b", "dgx-h100:2"), ("qwen3.5-9b", "dgx-h100:2"), ("gemma3-4b", "dgx-h100:1")])
def test_the_bounded_search_finds_what_the_exhaustive_one_does(name, on):
    problem = problem_of(name, on)
    one, other = Bounded().search(problem), Exhaustive().search(problem)
    assert [(x.time, x.memory, x.layout, x.options) for x in one.best] == [
        (x.time, x.memory, x.layout, x.options) for x in other.best
    ]
    assert any(row > 1 for block in problem.blocks for row in block.rows["pp"])


def test_layers_of_one_kind_named_twice_are_priced_as_one():
    found = figures("llama3-8b", "dgx-h100:4", "megatron-core")
    found = replace(found, shape=replace(found.shape, placed_head=0.0))
    twice = Pattern(kinds=(found.shape, found.shape), order=(0, 1) * 16)
    layout = {"tp": 2, "pp": 4, "vpp": 2, "cp": 1, "ep": 1, "etp": 1, "dp": 4, "micro": 1, "batch": 64, "nodes": 4}
    options = option_values(
        recompute=recompute("selective"),
        sequence_parallel=True,
        tp_overlap=True,
        zero=1,
        dp_overlap=True,
        p2p_overlap=True,
    )
    one, other = (
        cost.evaluate(single_grid(replace(found, shape=shape), layout, options))
        for shape in (found.shape, replace(found.shape, pattern=twice))
    )
    assert float(other.time) == pytest.approx(float(one.time), rel=1e-12)
    assert float(other.memory) == pytest.approx(float(one.memory), rel=1e-12)


@pytest.mark.parametrize(("name", "launched"), [("nemotron3-nano-4b", 20.0), ("jamba-v0.1", 40.0)])
def test_a_layer_launches_the_kernels_of_what_it_holds(name, launched):
    """Of Nemotron's layers each is a mixer or an MLP, of Jamba's both."""
    grid = next(grids(name))
    for own in by_kind(grid):
        late = transformer.launched_late(own, LayerPart(0.0, 0.0), 0.0)
        assert float(late.forward) == launched * grid.device.launch


@answered_once
def hybrid(vpp: int):
    pins = ("tp=2", "pp=4", f"vpp={vpp}", "recompute=none")
    return api.plan("nemotron3-nano-30b-a3b", "dgx-h100:4", pin=pins, top=1).plans[0]


def moved(one: int, other: int):
    """Three layers of one chunk to another."""
    return lambda given: tuple(n - 3 * (i == one) + 3 * (i == other) for i, n in enumerate(given))


@pytest.mark.parametrize("vpp", [1, 3])
def test_stages_are_derived_again_from_the_document(vpp):
    plan = hybrid(vpp)
    assert not violations(plan) and plan.runtime.cuts_by_work and not plan.runtime.places_head
    if vpp == 1:
        said = {"parallelism.stages.0.layers": lambda n: n + 6, "parallelism.stages.3.layers": lambda n: n - 6}
    else:
        said = {"parallelism.stages.1.chunks": moved(0, 2)}
    found = {each.name for each in violations(altered(plan, said))}
    assert "layers_are_dealt" in found and "stages_are_those_of_the_plan" in found
    emptied = {"parallelism.stages.2.chunks": lambda _: (1, 2)}
    assert "layers_are_dealt" in {each.name for each in violations(altered(plan, emptied))}


def test_states_of_a_stage_follow_from_the_kinds_it_holds():
    """Another stage's are refused, though all stages have as many layers."""
    plan = hybrid(3)
    held = plan.prediction.memory.by_stage
    other = replace(held[1], parameters_bytes=held[2].parameters_bytes * 1.001)
    changed = altered(plan, {"prediction.memory.by_stage.1": other})
    assert "stages_are_those_of_the_plan" in {each.name for each in violations(changed)}
