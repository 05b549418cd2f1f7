"""What must hold of the cost model whatever the figures: more of anything never hurts, parts add up, links cost."""

from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner import catalog, cost
from planner.axes.options import option_values
from planner.axes.table import sharing
from planner.axes.values import MODULES
from planner.catalog import Catalog
from planner.cost import (
    attention,
    collective_times,
    data_parallel,
    frozen,
    money,
    pipeline,
    products,
    stage_memory,
    transformer,
)
from planner.cost.calls import calls
from planner.cost.collective_times import group
from planner.cost.evaluate import StepPasses, passes, terms
from planner.cost.figures import Figure, Grid
from planner.cost.layer_activations import layer_activations
from planner.cost.micro_batch import region_bytes
from planner.cost.products import LayerPart
from planner.figures import cost_inputs
from planner.figures.efficiency import Efficiencies
from planner.models.parameters import parameters
from planner.models.workload import library, workload
from planner.question.search_problem import prepare, problem
from planner.search.branch_and_bound import Bounded
from planner.search.problem import Candidate, SearchProblem
from planner.space.cost_grid import Figures, single_grid
from tests.cases import CATALOG, cluster, problem_of, request
from tests.networks import groups, networks
from tests.sweeps import sweep
from tests.test_oracle import FAMILIES, candidates, figures_of

PATIENT = settings(deadline=None, max_examples=4, derandomize=True, suppress_health_check=list(HealthCheck))
every_family = sweep("name", FAMILIES, every=6, ci=2)
SLACK = 1e-12
"""Rounding, relative."""


def at_most(smaller, larger):
    assert smaller <= larger * (1 + SLACK)


@st.composite
def grids(draw, name: str):
    """Hosts have room for all that is moved: beyond that a plan holds infinitely much, which other tests look at."""
    grid = single_grid(figures_of(name), *draw(candidates(name)))
    return replace(grid, network=replace(grid.network, host_memory=np.inf))


def with_options(grid: Grid, **changed) -> Grid:
    return replace(grid, options=replace(grid.options, **{k: float(v) for k, v in changed.items()}))


def with_layout(grid: Grid, **changed) -> Grid:
    return replace(grid, layout=replace(grid.layout, **{k: float(v) for k, v in changed.items()}))


# ---- the optimum -----------------------------------------------------------------------------------------------------

QUESTIONS = {
    "dense": (("llama2-7b", "dgx-a100-40gb:2"), {"batches": (64,), "pins": "micro=1..4 recompute=none|full"}),
    "mixture": (("mixtral-8x7b", "dgx-h100:4"), {"batches": (64,), "pins": "micro=1|2 recompute=none|full"}),
    "oversubscribed": (
        ("llama3-8b", cluster("dgx-h100:4", leaf_nodes=1, oversubscription=3.0)),
        {"batches": (64,), "runtime": "fsdp2"},
    ),
    "mesh": (("llama2-7b", "mi300x-8:2"), {"batches": (32,), "pins": "micro=1|2 cp=1"}),
}


@cache
def asked(name: str) -> SearchProblem:
    arguments, more = QUESTIONS[name]
    return problem_of(*arguments, top=1, **more)


def optimum(problem: SearchProblem, figures: Figures | None = None, capacity: float | None = None) -> Candidate:
    figures = figures or problem.figures
    return Bounded().search(replace(problem, figures=figures, capacity=capacity or problem.capacity)).best[0]


@cache
def best_as_it_is(name: str) -> float:
    return optimum(asked(name)).time


MORE = {
    "scale-up link": ("network", ("scaleup", "scaleup_reduce", "pair")),
    "NICs": ("network", ("nic",)),
    "spine": ("network", ("spine",)),
    "matrix rate": ("device", ("matrix_rate", "matrix_rate_16")),
    "attention rate": ("device", ("attention_rate",)),
    "memory bandwidth": ("device", ("memory_rate",)),
    "host bandwidth": ("device", ("host_bandwidth",)),
}


MUCH = (1.2, 7.0)
"""Factors: one that leaves the best plan what it is, mostly, and one that moves it."""


@pytest.mark.slow
@sweep("question", QUESTIONS, every=2, ci=2)
@sweep("of", MORE, every=3)
@sweep("factor", MUCH, every=2)
def test_more_never_slows_the_optimum(question, of, factor):
    known, (record, names) = asked(question).figures, MORE[of]

    def grown(figures):
        return replace(figures, **{name: getattr(figures, name) * factor for name in names})

    if record == "network":
        figures = replace(known, network=grown(known.network))
    else:
        figures = replace(known, devices={name: grown(device) for name, device in known.devices.items()})
    at_most(optimum(asked(question), figures).time, best_as_it_is(question))


@pytest.mark.slow
@sweep("question", QUESTIONS)
@sweep("factor", MUCH)
def test_more_memory_never_slows_the_optimum(question, factor):
    problem = asked(question)
    at_most(optimum(problem, capacity=problem.capacity * factor).time, best_as_it_is(question))


@pytest.mark.slow
@sweep("of", ["scaleup_latency", "nic_latency", "base"])
@sweep("factor", MUCH)
def test_less_latency_never_slows_the_optimum(of, factor):
    known = asked("mixture").figures
    network = replace(known.network, **{of: getattr(known.network, of) / factor})
    at_most(optimum(asked("mixture"), replace(known, network=network)).time, best_as_it_is("mixture"))


@sweep("question", QUESTIONS)
def test_degrees_multiply_to_the_accelerators(question):
    problem = asked(question)
    for block in problem.blocks:
        rows, ranks = block.rows, block.rows["nodes"] * problem.figures.accelerators_per_node
        assert np.all(rows["tp"] * rows["pp"] * rows["cp"] * rows["dp"] == ranks)
        assert np.all(rows["tp"] * rows["cp"] * rows["dp"] % (rows["ep"] * rows["etp"]) == 0)
        assert np.all(rows["batch"] % (rows["dp"] * rows["micro"]) == 0)


# ---- money -----------------------------------------------------------------------------------------------------------


def cheapest(factor: float) -> tuple[float, Candidate]:
    price = next(p for p in CATALOG.node("p5.48xlarge").prices if p.basis == "on-demand")
    asked_for = request(
        "llama3-8b",
        "dgx-h100:2",
        counts=(1, 2),
        batches=(64,),
        objective="cost",
        price=replace(price, usd=price.usd * factor),
        pins="cp=1 recompute=none",
    )
    found = Bounded().search(problem(prepare(CATALOG, asked_for), 5)).best[0]
    return found.value, replace(found, value=0.0)


@pytest.mark.slow
@sweep("factor", [2.0, 4.0, 0.5])
def test_scaled_prices_scale_the_cost_and_change_no_plan(factor):
    value, candidate = cheapest(1.0)
    assert cheapest(factor) == (value * factor, candidate)


@given(st.floats(1.0, 1e9), st.floats(1.0, 1e5), st.floats(0.01, 1e3), st.sampled_from([2.0, 0.25, 1024.0]))
def test_rent_and_power_are_linear(seconds, nodes, usd, factor):
    assert money.rent(seconds, nodes, usd * factor) == money.rent(seconds, nodes, usd) * factor
    assert money.rent(seconds * factor, nodes, usd) == money.rent(seconds, nodes, usd) * factor
    assert money.power(nodes * factor, 1e4, 0.75, 1.25) == money.power(nodes, 1e4, 0.75, 1.25) * factor
    assert money.electricity(money.JOULES_PER_KWH * factor, usd) == usd * factor


def test_the_order_of_catalog_entries_changes_nothing():
    class Backwards(Catalog):
        def _built(self, kind):
            return dict(reversed(list(super()._built(kind).items())))

    known = request("llama3-8b", "dgx-h100:2", batches=(32,), pins="cp=1")
    backwards = Backwards(CATALOG.layers)
    assert list(backwards.nodes) == list(CATALOG.nodes)[::-1] != list(CATALOG.nodes)
    found = Bounded().search(problem(prepare(CATALOG, known), 20)).best
    again = request("llama3-8b", "dgx-h100:2", batches=(32,), pins="cp=1")
    again = replace(again, runtime=backwards.runtime("megatron-core"))
    assert Bounded().search(problem(prepare(backwards, again), 20)).best == found


# ---- memory ----------------------------------------------------------------------------------------------------------


def nothing_moved(grid: Grid) -> Grid:
    """The plan with all activations on the accelerator: what is recomputed need not be copied either."""
    named = [field.name for field in fields(grid.options) if field.name.startswith("offload_")]
    return with_options(grid, **dict.fromkeys(named, 0.0))


def activations(grid: Grid) -> float:
    return layer_activations(grid, grid.shape.moe_share).kept


def held(grid: Grid) -> float:
    return cost.evaluate(grid).memory


@every_family
@PATIENT
@given(data=st.data())
def test_recomputation_and_sequence_parallelism_save_activations(name, data):
    """Modules by name are for the test of those: no runtime both has them and drops half of all linear layers."""
    grid = with_options(data.draw(grids(name)), **dict.fromkeys(MODULES.values(), 0.0))
    peaks = []
    for share, chosen in ((0, 0), (0, 1), (1, 0)):
        each = with_options(grid, recompute_layers=share, recompute_selective=chosen)
        together, apart = (with_options(each, sequence_parallel=parallel) for parallel in (True, False))
        peaks.append([(activations(g), held(g)) for g in (together, apart)])
        for smaller, larger in zip(*peaks[-1], strict=True):
            at_most(smaller, larger)
    for none, selective, full in zip(*peaks, strict=True):
        at_most(selective[0], none[0])
        at_most(full[0], selective[0])
        at_most(selective[1], none[1])


@every_family
@PATIENT
@given(data=st.data())
def test_a_larger_share_of_recomputed_layers_keeps_less_and_takes_longer(name, data):
    grid = nothing_moved(data.draw(grids(name)))
    less, more = sorted(data.draw(st.tuples(st.floats(0, 1), st.floats(0, 1))))
    before, after = (with_options(grid, recompute_layers=share, recompute_selective=0) for share in (less, more))
    at_most(activations(after), activations(before))
    at_most(cost.evaluate(before).steady, cost.evaluate(after).steady)


@every_family
@PATIENT
@given(data=st.data(), factor=st.integers(2, 8))
def test_activations_are_linear_in_the_micro_batch(name, data, factor):
    grid = data.draw(grids(name))
    larger = with_layout(grid, micro=grid.layout.micro * factor)
    assert activations(larger) == pytest.approx(activations(grid) * factor, rel=1e-12)


def states(grid: Grid) -> float:
    """Of a stage in the middle: blocks only."""
    _, middle, _ = stage_memory.stages(grid, pipeline.split(grid.shape, grid.layout))
    return middle.parameters + middle.gradients + middle.optimizer


@every_family
@PATIENT
@given(tp=st.sampled_from([2, 4, 8]), pp=st.sampled_from([3, 6, 12]))
def test_states_shrink_with_tensor_and_pipeline_parallelism(name, tp, pp):
    plain = single_grid(figures_of(name), *_plain(name))
    figures = replace(plain.shape, layers=float(pp * 4), leading_dense=0.0, placed_head=0.0)
    grid = with_layout(replace(plain, shape=figures), pp=3, batch=1)
    cut = with_layout(grid, tp=tp, etp=tp, pp=pp)
    per_stage = (grid.shape.layers / 3) / (cut.shape.layers / pp)
    assert states(cut) == pytest.approx(states(grid) / tp / per_stage, rel=1e-12)


def _plain(name):
    ones = dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "micro", "batch", "nodes"), 1)
    off = option_values(precision=FAMILIES[name].precision)
    return ones, off


@sweep("model", list(library()))
def test_one_rank_alone_holds_every_parameter(model):
    trained = workload(model)
    plain = single_grid(figures_of("tied"), *_plain("tied"))
    grid = replace(plain, shape=cost_inputs.shape(trained, None))
    held, _, _ = data_parallel.stage_parameters(grid, pipeline.split(grid.shape, grid.layout))
    assert held.dense + held.experts == pytest.approx(parameters(trained.model).total, rel=1e-12)


@every_family
@PATIENT
@given(data=st.data())
def test_a_higher_zero_stage_holds_fewer_states(name, data):
    grid = data.draw(grids(name))

    def first(zero):
        staged = with_options(grid, zero=zero)
        fullest = stage_memory.stages(staged, pipeline.split(grid.shape, grid.layout))[0]
        return fullest.parameters + fullest.gradients + fullest.optimizer

    for zero in range(3):
        at_most(first(zero + 1), first(zero))


@every_family
@PATIENT
@given(data=st.data())
def test_offloading_frees_memory_and_takes_time(name, data):
    grid = data.draw(grids(name))
    here, away = with_options(grid, offload=False), with_options(grid, offload=True)
    at_most(held(away), held(here))
    assert cost.evaluate(away).steady == cost.evaluate(here).steady


# ---- the pipeline ----------------------------------------------------------------------------------------------------


def bubble(grid: Grid) -> float:
    """Relative to the time the slowest stage is busy."""
    parts = cost.breakdown(grid)
    flow = terms(grid).flow
    return parts["bubble"] / (flow.slowest * pipeline.micro_batches(grid.layout))


@every_family
@PATIENT
@given(pp=st.integers(1, 8), rounds=st.integers(1, 8), vpp=st.integers(1, 3))
def test_the_bubble_shrinks_with_micro_batches_and_interleaving(name, pp, rounds, vpp):
    plain = single_grid(figures_of(name), *_plain(name))
    grid = replace(plain, shape=replace(plain.shape, layers=float(pp * 12), leading_dense=0.0))
    # Equal stages: without p2p, which interleaving multiplies.
    grid = with_options(grid, p2p_overlap=True)
    grid = replace(grid, stack=replace(grid.stack, p2p_overlap=1.0))
    # Between workstations a transfer takes longer than the work beside it: so fast a link that all of it hides.
    grid = replace(grid, network=replace(grid.network, nic=1e3 * grid.network.nic))
    grid = with_layout(grid, pp=pp, vpp=vpp if pp > 1 else 1, batch=rounds * pp)
    share = bubble(grid)
    if pp == 1:
        assert abs(share) < SLACK
        return
    assert share > 0
    assert bubble(with_layout(grid, batch=2 * rounds * pp)) == pytest.approx(share / 2, rel=1e-9)
    assert bubble(with_layout(grid, vpp=2 * vpp)) == pytest.approx(share / 2, rel=1e-9)


@settings(derandomize=True, max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 200), st.integers(1, 64), st.integers(1, 8))
def test_every_layer_is_dealt_once(layers, pp, vpp):
    assume(pp * vpp <= layers and -layers % (pp * vpp) < pp)
    shape = replace(figures_of("tied").shape, layers=float(layers), placed_head=0.0)
    layout = replace(single_grid(figures_of("tied"), *_plain("tied")).layout, pp=float(pp), vpp=float(vpp))
    dealt = pipeline.stage_layers(shape, layout)
    assert (len(dealt), sum(dealt)) == (pp, layers)
    assert max(dealt) - min(dealt) <= 1
    split = pipeline.split(shape, layout)
    assert (split.first, split.last if pp > 1 else layers) == (dealt[0], dealt[-1])
    if pp > 2:
        # The second stage holds most micro-batches of those between: it must hold as many layers as any of them.
        assert split.middle == dealt[1] == max(dealt[1:-1])


@settings(derandomize=True, max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.integers(2, 200), st.integers(2, 64), st.floats(0.01, 4.0))
def test_a_head_that_is_counted_leaves_no_layer_undealt(layers, pp, head):
    assume(pp <= layers)
    shape = replace(figures_of("tied").shape, layers=float(layers), head_layers=head, placed_head=0.0)
    layout = replace(single_grid(figures_of("tied"), *_plain("tied")).layout, pp=float(pp), vpp=1.0)
    dealt = pipeline.stage_layers(shape, layout)
    assert (len(dealt), sum(dealt)) == (pp, layers) and min(dealt) >= 0
    split = pipeline.split(shape, layout)
    assert (split.first, split.last) == (dealt[0], dealt[-1])
    assert split.first >= split.middle >= max(dealt[1:-1], default=0)


@settings(derandomize=True, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.integers(2, 200), st.integers(2, 64), st.integers(1, 8), st.floats(0.01, 9.0), st.floats(0.0, 3.0))
def test_a_placed_head_never_slows_the_slowest_stage(layers, pp, vpp, head, more):
    """And a heavier head leaves its stage no more layers."""
    assume(pp * vpp <= layers and -layers % (pp * vpp) < pp)
    shape = replace(figures_of("tied").shape, layers=float(layers), placed_head=head)
    layout = replace(single_grid(figures_of("tied"), *_plain("tied")).layout, pp=float(pp), vpp=float(vpp))
    dealt = pipeline.stage_layers(shape, layout)
    equal = pipeline.stage_layers(replace(shape, placed_head=0.0), layout)
    assert (len(dealt), sum(dealt)) == (pp, layers) and min(dealt) >= vpp
    assert max(*dealt[:-1], dealt[-1] + head) <= max(*equal[:-1], equal[-1] + head)
    assert pipeline.stage_layers(replace(shape, placed_head=head + more), layout)[-1] <= dealt[-1]
    split = pipeline.split(shape, layout)
    assert (split.first, split.last) == (dealt[0], dealt[-1])
    if pp > 2:
        assert split.middle == dealt[1] == max(dealt[1:-1])


# ---- sums ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@every_family
@settings(PATIENT, max_examples=5)
@given(data=st.data())
def test_the_breakdown_adds_up_to_the_step_time(name, data):
    grid = data.draw(grids(name))
    parts = cost.breakdown(grid)
    assert sum(parts.values()) == pytest.approx(cost.evaluate(grid).time, rel=1e-9)
    assert all(seconds >= -1e-12 * cost.evaluate(grid).time for seconds in parts.values()), parts


@every_family
@PATIENT
@given(data=st.data())
def test_everything_is_finite_and_positive(name, data):
    grid = data.draw(grids(name))
    found = cost.evaluate(grid)
    for figure in (found.steady, found.fixed, found.memory, cost.model_flops(grid)):
        assert np.isfinite(figure)
        assert figure > 0
    assert found.exposed >= 0
    ranks = grid.layout.tp * grid.layout.pp * grid.layout.cp * grid.layout.dp
    assert cost.utilisation(cost.model_flops(grid), found.time, grid.device.peak * ranks) < 2


@pytest.mark.slow
def test_the_breakdown_of_whole_spaces():
    problem = asked("mixture")
    for index in range(len(problem.blocks)):
        grid = problem.grid(index)
        total = sum(cost.breakdown(grid).values())
        np.testing.assert_allclose(total, np.broadcast_to(cost.evaluate(grid).time, np.shape(total)), rtol=1e-9)


# ---- collectives -----------------------------------------------------------------------------------------------------


OPERATIONS = {
    "gather": collective_times.gather,
    "all_reduce": collective_times.all_reduce,
    "all_to_all": collective_times.all_to_all,
    "send": lambda network, size, g: collective_times.send(network, size, g.reach / g.n, g.n),
}
COLLECTIVE = settings(deadline=None, max_examples=50, derandomize=True)


@sweep("operation", OPERATIONS)
@COLLECTIVE
@given(data=st.data(), size=st.floats(1.0, 1e11), factor=st.floats(1.0, 100.0))
def test_more_bytes_take_longer(operation, data, size, factor):
    network = data.draw(networks())
    g = data.draw(groups(network))
    time = OPERATIONS[operation]
    at_most(time(network, size, g), time(network, size * factor, g))
    assert (time(network, size, g) > 0) == (g.n > 1)


@pytest.mark.parametrize("operation", OPERATIONS)
@COLLECTIVE
@given(data=st.data(), size=st.floats(1.0, 1e11), factor=st.floats(1.0, 16.0))
@pytest.mark.parametrize("link", ["scaleup", "pair", "nic", "spine"])
def test_a_faster_link_never_slows_a_collective(operation, data, size, factor, link):
    network = data.draw(networks())
    g = data.draw(groups(network))
    names = (link, "scaleup_reduce") if link == "scaleup" else (link,)
    faster = replace(network, **{name: getattr(network, name) * factor for name in names})
    at_most(OPERATIONS[operation](faster, size, g), OPERATIONS[operation](network, size, g))


@COLLECTIVE
@given(data=st.data(), size=st.floats(1.0, 1e11))
def test_an_all_reduce_takes_at_least_a_gather_and_at_most_two(data, size):
    network = data.draw(networks())
    # Without addition in the switch, which halves what an all-reduce moves.
    network = replace(network, scaleup_reduce=network.scaleup)
    g = data.draw(groups(network))
    reduce, gather = (OPERATIONS[name](network, size, g) for name in ("all_reduce", "gather"))
    at_most(reduce, 2 * gather)
    if g.n == g.inside:
        at_most(gather, reduce)


@COLLECTIVE
@given(data=st.data(), size=st.floats(1e9, 1e11))
def test_a_large_all_reduce_takes_at_least_a_gather_across_nodes_too(data, size):
    drawn = data.draw(networks())
    # Bandwidth alone, of a domain that is no slower than its NICs: the tree's latency is another one than the ring's.
    network = replace(drawn, pipelining=0.0, base=0.0, nic_latency=0.0, scaleup_latency=0.0, mesh=0.0)
    network = replace(network, scaleup_reduce=network.scaleup, nic=min(drawn.nic, drawn.scaleup))
    g = data.draw(groups(network))
    at_most(collective_times.gather(network, size, g), collective_times.all_reduce(network, size, g))


@COLLECTIVE
@given(data=st.data(), inner=st.sampled_from([1, 2, 4, 8]), outer=st.integers(1, 64))
def test_a_group_of_groups_is_as_large_and_no_more_inside(data, inner, outer):
    network = data.draw(networks())
    a, b = group(network, float(inner), 1.0), group(network, float(outer), float(inner))
    both = collective_times.product(a, b)
    assert both.n == inner * outer
    assert 1 <= both.inside <= min(both.n, max(network.domain, 1))


def test_crossing_an_oversubscribed_spine_costs():
    known = figures_of("oversubscribed").network
    near, far = group(known, 4.0, 8.0), group(known, 8.0, 8.0)
    assert near.reach == known.leaf < far.reach
    flat = replace(known, spine=1.0)
    for operation in OPERATIONS.values():
        assert operation(known, 1e9, near) == operation(flat, 1e9, near)
        assert operation(known, 1e9, far) > operation(flat, 1e9, far)


@every_family
@PATIENT
@given(data=st.data())
def test_overlap_never_costs(name, data):
    """Apart from the calls that it is cut into."""
    grid = data.draw(grids(name))
    grid = replace(grid, stack=replace(grid.stack, bucket_parameters=0.0))
    for switch in ("dp_overlap", "p2p_overlap", "tp_overlap"):
        on, off = (cost.evaluate(with_options(grid, **{switch: value})).time for value in (True, False))
        at_most(on, off)


@every_family
@PATIENT
@given(data=st.data())
def test_message_sizes(name, data):
    """Traffic is what it says, in any family: activations of a region, gradients of what is trained."""
    grid = data.draw(grids(name))
    tokens = grid.layout.micro * grid.shape.sequence / grid.layout.cp
    element = 4 if FAMILIES[name].precision == "fp32" else 2
    assert region_bytes(grid) == element * tokens * grid.shape.hidden
    whole = data_parallel.gradient_bytes(grid, 1e6)
    each = max(grid.stack.gradient_wire, element)
    assert whole == pytest.approx(1e6 * each * grid.shape.trained, rel=1e-15)


# ---- context parallelism ---------------------------------------------------------------------------------------------


def ring_of(grid: Grid, cp: int) -> Grid:
    """The same plan of one stage, with keys and values going round a ring of so many ranks."""
    options = replace(grid.options, **sharing("p2p"))
    return with_layout(replace(grid, options=options), cp=cp, pp=1, vpp=1)


@every_family
@PATIENT
@given(data=st.data(), cp=st.sampled_from([2, 4, 8]))
def test_a_ring_takes_what_its_bytes_take(name, data, cp):
    """With nothing to hide behind all of it shows: keys and values, cp - 1 times round, twice that backward. Beside a
    kernel without end it still costs the machine what its own kernels hold.
    """
    grid = ring_of(data.draw(grids(name)), cp)
    alone, beside = (
        attention.context_parallel(grid, LayerPart(np.float64(width), np.float64(width))) for width in (0.0, 1e9)
    )
    element = grid.device.element
    size = element * grid.layout.micro * grid.shape.sequence / cp * attention.kv_width(grid)
    fastest = max(float(np.max(rate)) for rate in (grid.network.pair, grid.network.scaleup, grid.network.nic))
    assert np.all(alone.forward >= (cp - 1) * size / fastest)
    assert np.all(alone.forward > 0) and np.all(alone.backward >= 2 * alone.forward * (1 - SLACK))
    assert np.all(beside.forward >= grid.device.collective_share * alone.forward * (1 - SLACK))
    assert np.all(beside.forward > 0)
    assert np.all(cost.breakdown(grid)["cp"] > 0)


@every_family
@PATIENT
@given(data=st.data(), cp=st.sampled_from([1, 2, 4]))
def test_splitting_a_sequence_never_speeds_a_step_of_one_stage(name, data, cp):
    """Half the tokens a rank and twice the passes: no less work, smaller blocks, a longer ring. (With stages, smaller
    passes shorten the bubble.) Nothing moves to host memory, and no exchange hides behind another pass: of smaller
    passes less is copied after the last kernel, and one pass alone has none to hide behind.
    """
    grid = ring_of(with_options(nothing_moved(data.draw(grids(name))), ep_overlap=False), cp)
    layout = grid.layout
    dp = 2.0 * max(1.0, np.floor(layout.batch / layout.micro / 2.0))
    whole = with_layout(grid, dp=dp, batch=dp * layout.micro)
    split = with_layout(whole, cp=2 * cp, dp=dp / 2)
    at_most(cost.evaluate(whole).time, cost.evaluate(split).time)


# ---- attention in narrow heads ---------------------------------------------------------------------------------------


@settings(PATIENT, max_examples=20)
@given(x=st.floats(0.0, 2.0), width=st.integers(16, 512), factor=st.floats(1.0, 4.0))
def test_narrow_heads_cost_more_a_flop_and_never_more_a_score(x, width, factor):
    """A score's exponential does not shrink with its products; heads wider than 128 gain nothing."""
    plain = single_grid(figures_of("tied"), *_plain("tied"))

    def kernel(dim: float) -> Figure:
        device, shape = replace(plain.device, exponentials=x), replace(plain.shape, qk_dim=dim, v_dim=dim)
        found = attention.kernel(replace(plain, device=device, shape=shape))
        return np.array([found.forward, found.backward])

    narrow, wide = kernel(float(width)), kernel(width * factor)
    assert np.all(narrow <= wide * (1 + 1e-12))
    assert np.all(narrow / width >= wide / (width * factor) * (1 - 1e-12))
    if width >= 128:
        assert wide == pytest.approx(narrow * factor, rel=1e-9)


def test_narrow_heads_wait_as_published() -> None:
    """FlashAttention-3 and cuDNN on H100: 1.38 and 1.43 times as long a FLOP at width 64 as at 128."""
    plain = single_grid(figures_of("tied"), *_plain("tied"))
    shape = replace(plain.shape, qk_dim=64.0, v_dim=64.0)
    hopper = replace(plain, shape=shape, device=replace(plain.device, exponentials=0.5))
    hopper = replace(hopper, stack=replace(hopper.stack, attention=1.0))
    assert 1.3 < attention.narrow_heads(hopper).forward < 1.43
    assert attention.narrow_heads(hopper).backward < attention.narrow_heads(hopper).forward


# ---- recomputed modules ----------------------------------------------------------------------------------------------


@every_family
@settings(PATIENT, max_examples=5)
@given(data=st.data())
def test_modules_that_are_recomputed_take_time(name, data):
    """What they keep out of memory is computed again: an activation function at least, and latents' products."""
    grid = data.draw(grids(name))
    named = dict.fromkeys(MODULES.values(), 0.0)
    # Without overlap: a stage that waits hides more of its gradients behind a longer pass.
    options = replace(nothing_moved(grid).options, dp_overlap=0.0)
    chosen = replace(options, recompute_layers=0.0, recompute_selective=1.0, recompute_offloaded=0.0, **named)
    plain = replace(grid, options=chosen, stack=replace(grid.stack, drops_activation=0.0))
    more = replace(plain, options=replace(chosen, **dict.fromkeys(named, 1.0)))
    frozen = grid.shape.weight_gradient == 0  # An adapter's layers keep what adapters read.
    assert frozen or activations(more) < activations(plain)
    least = cost.evaluate(plain).time
    assert cost.evaluate(more).time > least
    for figure in named:
        one = replace(plain, options=replace(chosen, **{figure: 1.0}))
        assert activations(more) <= activations(one) <= activations(plain)
        assert least <= cost.evaluate(one).time
    body = (
        pipeline.layer_time(more, passes(more).layers[1]).again
        - pipeline.layer_time(plain, passes(plain).layers[1]).again
    )
    assert body >= attention.expanding(plain)


@every_family
@settings(PATIENT, max_examples=5)
@given(data=st.data(), drops=st.sets(st.sampled_from(["scores", "activation", "norms", "linear", "kernel"])))
def test_whatever_is_dropped_nothing_is_dropped_twice(name, data, drops):
    """A runtime that drops all of these, and recomputes every module by name, keeps a block's inputs still."""
    grid = data.draw(grids(name))
    flags = {f"drops_{each}": float(each in drops) for each in ("scores", "activation", "norms", "linear", "kernel")}
    named = dict.fromkeys(MODULES.values(), 1.0)
    options = replace(grid.options, recompute_layers=0.0, recompute_selective=1.0, recompute_offloaded=0.0, **named)
    odd = replace(grid, stack=replace(grid.stack, **flags), options=options)
    for moe in (0.0, grid.shape.moe_share):
        found = layer_activations(odd, moe)
        assert 0.0 <= found.kept <= found.full and found.again <= found.full


def test_recomputed_latents_are_those_of_layers_with_attention() -> None:
    """Of layers of which a quarter attends, a quarter of what they expand to is dropped."""
    plain = with_options(single_grid(figures_of("direct queries"), *_plain("direct queries")), recompute_layers=0)

    def dropped(share: float) -> float:
        grid = replace(plain, shape=replace(plain.shape, attention_share=share))
        whole, less = (with_options(grid, recompute_latents=latents) for latents in (0, 1))
        return float(activations(whole) - activations(less))

    assert dropped(0.25) == pytest.approx(0.25 * dropped(1.0)) and dropped(1.0) > 0


# ---- gathers into lists ----------------------------------------------------------------------------------------------


@sweep("dp", [2, 16, 64])
def test_slices_of_a_gather_are_put_together_one_by_one(dp):
    """18 launches a layer and rank, of 5 microseconds: only where states are sharded, and twice for twice the ranks."""
    plain = with_layout(single_grid(figures_of("tied"), *_plain("tied")), dp=dp, batch=64)
    plain = replace(plain, options=replace(plain.options, zero=1.0, zero_nodes=0.0, offload=0.0))
    listed = replace(plain, stack=replace(plain.stack, gather_launches=18.0))
    split = pipeline.split(plain.shape, plain.layout)
    longer = data_parallel.update(listed, split) - data_parallel.update(plain, split)
    ranks = dp * plain.layout.cp
    assert longer == pytest.approx(split.first * 18.0 * ranks * plain.device.launch)
    whole = replace(listed, options=replace(listed.options, zero=0.0))
    assert data_parallel.update(whole, split) == data_parallel.update(replace(whole, stack=plain.stack), split)


# ---- buckets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("zero", "moved"), [(0, "all-reduce"), (1, "reduce-scatter")])
def test_gradients_are_reduced_bucket_by_bucket(zero, moved):
    """As many bytes in more calls, each of which starts anew: of a quarter of a layer, which is the more here."""
    whole = with_layout(single_grid(figures_of("tied"), *_plain("tied")), dp=64, batch=64)
    whole = replace(whole, options=replace(whole.options, zero=float(zero), zero_nodes=0.0, dp_overlap=0.0))
    cut = replace(whole, stack=replace(whole.stack, bucket_bytes=1e6))
    split = pipeline.split(cut.shape, cut.layout)
    held = data_parallel.most_held(cut, split).dense
    count = held / (frozen.block_parameters(cut, 0.0) / 4.0)
    assert float(data_parallel.calls(cut, held, split.first)[0]) == pytest.approx(float(count)) and count > 10
    one, many = ([c for c in calls(grid) if c.op == moved and c.group == "dp"] for grid in (whole, cut))
    assert sum(c.bytes * c.count for c in many) == pytest.approx(sum(c.bytes * c.count for c in one))
    assert sum(c.count for c in many) == pytest.approx(count * sum(c.count for c in one))
    longer = cost.evaluate(cut).exposed - cost.evaluate(whole).exposed
    assert longer > (float(count) - 1.0) * float(whole.network.base) > 0


def test_sharded_gradients_are_reduced_layer_by_layer():
    grid = with_layout(single_grid(figures_of("tied"), *_plain("tied")), dp=64, batch=64)
    grid = replace(grid, stack=replace(grid.stack, bucket_bytes=1e6), options=replace(grid.options, zero=2.0))
    assert data_parallel.calls(grid, 1e9, 24.0) == (24.0, 24.0)


@pytest.mark.parametrize(("dp", "size"), [(8, 40e6), (64, 64e6)])
def test_megatron_s_buckets_grow_with_the_ranks(dp, size):
    """40 million parameters, or a million a rank, where they overlap; gathers are cut likewise."""
    grid = with_layout(single_grid(figures_of("tied"), *_plain("tied")), dp=dp, batch=64)
    grid = replace(grid, stack=replace(grid.stack, bucket_parameters=40e6, bucket_parameters_per_rank=1e6))
    for overlap, count in ((1.0, 1e9 / size), (0.0, 1.0)):
        chosen = replace(grid, options=replace(grid.options, zero=1.0, dp_overlap=overlap))
        assert data_parallel.calls(chosen, 1e9, 24.0) == pytest.approx((count, count))


def test_states_sharded_at_once_hide_nothing():
    """One all-reduce after the passes and one gather after the update (nanotron with ZeRO 1), whatever may overlap."""
    grid = with_layout(single_grid(figures_of("tied"), *_plain("tied")), dp=64, batch=64)
    chosen = replace(grid.options, zero=1.0, zero_nodes=0.0, dp_overlap=1.0)
    grid = replace(grid, stack=replace(grid.stack, bucket_bytes=26214400.0, reduces_whole=1.0), options=chosen)
    found = [c for c in calls(grid) if c.group == "dp"]
    assert [(c.op, c.count) for c in found] == [("all-reduce", 1.0), ("all-gather", 1.0)]
    assert all(c.exposed_s == pytest.approx(c.alone_s) for c in found)
    usual = replace(grid, stack=replace(grid.stack, reduces_whole=0.0))
    assert cost.evaluate(usual).exposed < cost.evaluate(grid).exposed
    for zero in (0.0, 2.0):
        other, same = (replace(each, options=replace(chosen, zero=zero)) for each in (usual, grid))
        assert cost.evaluate(other).time == cost.evaluate(same).time


def test_internevo_sums_whole_buckets_beside_the_pass_and_gathers_beside_nothing():
    """All-reduces of 512 Mi parameters, of which the last shows (hybrid_zero_optim.py); broadcasts after the update."""
    record = catalog.load().runtimes["internevo"]
    grid = with_layout(single_grid(figures_of("tied"), *_plain("tied")), dp=64, batch=64)
    options = replace(grid.options, zero=1.0, zero_nodes=0.0, dp_overlap=1.0)
    stack = replace(grid.stack, bucket_parameters=record.bucket_parameters / 1000, reduces_whole=1.0, dp_overlap=1.0)
    stack = replace(stack, broadcasts_shards=float(record.broadcasts_shards))
    found = {c.op: c for c in calls(replace(grid, stack=stack, options=options)) if c.group == "dp"}
    summed, gathered = found["all-reduce"], found["broadcast"]
    assert float(gathered.count) == 64
    assert record.reduces_whole and summed.exposed_s < summed.alone_s
    assert gathered.exposed_s == pytest.approx(gathered.alone_s)


@pytest.mark.parametrize(("runtime", "counted", "per_rank"), [("megatron-core", 40e6, 1e6), ("nemo", 2.0**27, 0.0)])
def test_runtimes_cut_buckets_as_their_code_does(runtime, counted, per_rank):
    """Megatron-LM: max(40M, 1M a data-parallel rank); recipes of Megatron-Bridge: 128 Mi, however many ranks."""
    record = catalog.load().runtimes[runtime]
    assert (record.bucket_parameters, record.bucket_parameters_per_rank) == (counted, per_rank)


def test_a_large_bucket_is_one_call():
    grid = with_layout(single_grid(figures_of("tied"), *_plain("tied")), dp=64, batch=64)
    grid = replace(grid, stack=replace(grid.stack, bucket_bytes=1e15), options=replace(grid.options, zero=0.0))
    assert data_parallel.calls(grid, 1e9, 24.0) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("runtime", "gathered", "reduced"), [("fsdp2", 4.0, 6.0), ("fsdp", 0.0, 4.0), ("maxtext", 0.0, 0.0)]
)
def test_sharded_parameters_are_copied_as_the_runtimes_code_does(runtime, gathered, reduced):
    """Bytes a parameter: FSDP2 reads and writes 16 bits a gather, reads 16 and writes 32 a reduction; FSDP 1 puts
    16-bit gradients together; XLA's placement is not known. Twice as many micro-batches, twice the copies.
    """
    record = catalog.load().runtimes[runtime]
    stack = {name: float(getattr(record, name)) for name in ("copies_gathered", "copies_gradients")}
    plain = single_grid(figures_of("tied"), *_plain("tied"))
    options = replace(plain.options, zero=3.0, zero_nodes=0.0, dp_overlap=1.0)
    wire = replace(plain.stack, **stack, gradient_wire=record.gradient_wire_bytes, parameter_wire=2.0)
    held = data_parallel.ShardedState(1e9, 0.0)
    for micro_batches in (1.0, 2.0):
        grid = with_layout(replace(plain, options=options, stack=wire), dp=8, batch=8 * micro_batches)
        copied = data_parallel.data_parallel_traffic(grid, held, 24.0, 0.1, 0.2).copied
        moved = 1e9 * (2.0 * gathered + reduced) * micro_batches
        assert float(copied) == pytest.approx(moved / float(grid.device.memory_rate))
    alone = with_layout(grid, dp=1, batch=1)
    assert float(data_parallel.data_parallel_traffic(alone, held, 24.0, 0.1, 0.2).copied) == 0


@pytest.mark.parametrize(
    ("runtime", "skips"), [("fsdp2", 1.0), ("fsdp", 1.0), ("maxtext", 1.0), ("megatron-core", 0.0), ("deepspeed", 0.0)]
)
def test_a_block_is_recomputed_up_to_what_gradients_read(runtime, skips):
    """PyTorch's checkpoints and compilers leave out the projection down; Megatron's and DeepSpeed's run it again."""
    using = Efficiencies.of(catalog.load())
    assert using.runtime((runtime,), "2026", "", "hopper").skips_last_product == skips
    plain = single_grid(figures_of("tied"), *_plain("tied"))
    stack = replace(plain.stack, skips_last_product=skips, vector=1e-12)
    shape, options = replace(plain.shape, ends_in_product=1.0), replace(plain.options, recompute_layers=1.0)
    whole = replace(plain, stack=stack, shape=shape, options=options)
    *_, down = transformer.mlp_shapes(whole, whole.shape.ffn)
    left_out = skips * float(products.trained_product(whole, down).forward)
    *_, body = transformer.layers(whole)
    assert float(body.unread) == pytest.approx(left_out)
    assert float(pipeline.layer_time(whole, body).again) == pytest.approx(float(body.forward) - left_out)
    normed = replace(whole, shape=replace(whole.shape, ends_in_product=0.0))
    assert not np.count_nonzero(transformer.layers(normed)[-1].unread)


def test_a_bound_over_options_leaves_out_the_most_that_any_leaves_out():
    """Recomputing takes no less than the bound at any option: what is taken off it is the largest, all else least."""
    taken_off = np.array([[0.1], [0.3]])
    layer = transformer.Layer(np.array([[2.0], [1.5]]), 1.0, 0.0, {}, unread=taken_off)
    ends = LayerPart(0.0, 0.0)

    (bound,) = StepPasses((layer,), (ends, ends)).least(0).layers

    assert bound.unread.item() == 0.3 and bound.forward.item() == 1.5
    assert (bound.forward - bound.unread <= layer.forward - layer.unread).all()


@pytest.mark.parametrize(
    ("changed", "ends"),
    [({}, 1.0), ({"dropout": True}, 0.0), ({"norm_place": "both"}, 0.0), ({"norm_place": "output"}, 0.0)],
)
def test_what_stands_behind_the_last_product_needs_it(changed, ends):
    asked = workload(library()["llama3-8b"])
    changed = replace(asked, model=replace(asked.model, **changed))
    assert cost_inputs.shape(changed, None).ends_in_product == ends
