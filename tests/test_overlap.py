"""Communication beside compute: what hides is bounded, growing bytes never help, and cutting finer is never free."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner import cost
from planner.cost import attention, collective_times, experts, micro_batch, pipeline, transformer
from planner.cost.evaluate import terms
from planner.cost.figures import Grid
from planner.cost.products import LayerPart
from planner.space.cost_grid import single_grid
from tests.sweeps import sweep
from tests.test_cost_properties import _plain, at_most, grids, nothing_moved, with_layout, with_options
from tests.test_oracle import FAMILIES, figures_of

PATIENT = settings(deadline=None, max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck))
every_family = sweep("name", FAMILIES, every=3, ci=2)
every_mixture = sweep("name", [name for name in FAMILIES if figures_of(name).shape.experts > 0])
SECONDS, SHARE = st.floats(0.0, 1e3), st.floats(0.0, 1.0)
TINY = 1e-12


def network(grid: Grid, factor: float, *names: str) -> Grid:
    return replace(
        grid, network=replace(grid.network, **{name: getattr(grid.network, name) / factor for name in names})
    )


# ---- the law ---------------------------------------------------------------------------------------------------------


@given(SECONDS, SECONDS, SHARE)
def test_no_more_hides_than_there_is_work_or_than_was_sent_early(seconds, window, share):
    hidden = collective_times.hidden(seconds, window, share)
    assert 0 <= hidden <= window
    assert hidden <= share * seconds <= seconds


@given(SECONDS, st.floats(-10.0, 0.0), SHARE, SHARE)
def test_nothing_hides_beside_nothing(seconds, window, share, toll):
    assert collective_times.shown(seconds, window, share, toll) == seconds


@given(st.lists(SECONDS, min_size=2, max_size=2), SECONDS, SHARE, SHARE)
def test_more_bytes_never_show_less(pair, window, share, toll):
    less, more = (collective_times.shown(seconds, window, share, toll) for seconds in sorted(pair))
    assert less <= more + TINY * max(pair)


@given(SECONDS, SECONDS, SHARE, SHARE)
def test_hiding_costs_its_toll(seconds, window, share, toll):
    shown = collective_times.shown(seconds, window, share, toll)
    hidden = collective_times.hidden(seconds, window, share)
    assert toll * hidden <= shown + TINY * seconds
    assert shown <= seconds * (1 + TINY)


def test_the_law_by_hand():
    """10 s of which 8 are sent early: beside 5 s five hide, beside 20 s eight, each at a tenth of the machine."""
    assert collective_times.shown(10.0, 5.0, 0.8, 0.1) == pytest.approx(5.0 + 0.5)
    assert collective_times.shown(10.0, 20.0, 0.8, 0.1) == pytest.approx(2.0 + 0.8)


# ---- plans: bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@every_family
@PATIENT
@given(data=st.data(), factor=st.floats(1.0, 16.0))
def test_no_step_is_faster_where_more_bytes_move(name, data, factor):
    """All bytes over some kind of link (which is as good as a slower link), and those of gradients and parameters."""
    grid = data.draw(grids(name))
    links = data.draw(st.sampled_from([("nic",), ("scaleup", "scaleup_reduce", "pair")]))
    at_most(cost.evaluate(grid).time, cost.evaluate(network(grid, factor, *links)).time)
    both = network(grid, factor, "nic", "scaleup", "scaleup_reduce", "pair")
    at_most(cost.evaluate(grid).time, cost.evaluate(both).time)
    stack = grid.stack
    wires = {"gradient_wire": stack.gradient_wire * factor, "parameter_wire": stack.parameter_wire * factor}
    at_most(cost.evaluate(grid).exposed, cost.evaluate(replace(grid, stack=replace(stack, **wires))).exposed)


# ---- plans: windows --------------------------------------------------------------------------------------------------


def body(grid: Grid) -> dict[str, LayerPart]:
    return transformer.layers(grid)[1].parts


def hides_at_most(shown: LayerPart, alone: LayerPart, window: LayerPart) -> None:
    for way in ("forward", "backward"):
        hidden = float(getattr(alone, way)) - float(getattr(shown, way))
        assert -TINY * float(getattr(alone, way)) <= hidden
        assert hidden <= float(getattr(window, way)) * (1 + 1e-9) + TINY * float(getattr(alone, way))


@every_family
@PATIENT
@given(data=st.data(), slower=st.sampled_from([1.0, 30.0]))
def test_within_a_layer_no_more_hides_than_the_work_beside_it(name, data, slower):
    """Tensor parallelism beside products, context parallelism beside attention, experts beside another micro-batch's
    opposite pass: also where links are so slow that there is far more to hide.
    """
    grid = network(data.draw(grids(name)), slower, "nic", "scaleup", "scaleup_reduce", "pair")
    grid = with_options(grid, tp_overlap=True, ep_overlap=True)
    found = body(grid)
    open_ = body(replace(grid, stack=replace(grid.stack, tp_overlap=0.0, cp_overlap=0.0, ep_overlap=0.0)))
    kernel = attention.kernel(grid)
    work = found["matrix"] + kernel + found["vector"]
    hides_at_most(found["tp"], open_["tp"], found["matrix"])
    hides_at_most(found["cp"], open_["cp"], kernel.scaled(1.0 - 1.0 / grid.layout.cp))
    hides_at_most(found["ep"], open_["ep"], LayerPart(work.backward, work.forward))


@pytest.mark.slow
@every_family
@PATIENT
@given(data=st.data(), slower=st.sampled_from([1.0, 30.0]))
def test_between_stages_and_replicas_no_more_hides_than_passes_last(name, data, slower):
    grid = network(data.draw(grids(name)), slower, "nic", "scaleup", "scaleup_reduce", "pair")
    # A pass that copies activations to the host is longer than its layers, and transfers hide behind the copies, too.
    grid = nothing_moved(grid)
    # Buckets are cut where communication overlaps: each has a call's latency that one call for all does not have.
    whole = replace(grid.stack, bucket_bytes=0.0, bucket_parameters=0.0, bucket_parameters_per_rank=0.0)
    grid = replace(grid, stack=whole)
    on, off = (with_options(grid, dp_overlap=value, p2p_overlap=value) for value in (True, False))
    one, other = terms(on), terms(off)
    layer = transformer.layers(grid)[1]
    passed = other.stages.transfer - one.stages.transfer
    assert -TINY <= passed <= grid.layout.vpp * (layer.forward + layer.backward) * (1 + 1e-9)
    # At most every micro-batch's passes, forward and backward, on the first stage.
    beside = pipeline.micro_batches(grid.layout) * (one.flow.forward + one.flow.backward) * grid.stack.dp_overlap
    assert -TINY <= other.exposed - one.exposed <= beside * (1 + 1e-9)


# ---- plans: cutting finer --------------------------------------------------------------------------------------------


@pytest.mark.slow
@every_family
@PATIENT
@given(data=st.data())
def test_splitting_a_sequence_at_equal_tokens_a_rank_never_pays(name, data):
    """Two ranks that share two sequences, against one sequence each: as many tokens, products and replicas.

    Where stages stand between replicas, those of a sequence stand nearer: its reductions are left out then.
    """
    grid = data.draw(grids(name))
    assume(grid.layout.dp % 2 == 0)
    split = with_layout(grid, cp=2 * grid.layout.cp, dp=grid.layout.dp / 2, micro=2 * grid.layout.micro)
    assert np.isclose(micro_batch.tokens(split), micro_batch.tokens(grid))
    one, two = cost.evaluate(grid), cost.evaluate(split)
    at_most(one.steady, two.steady)
    if not grid.options.pp_inner:
        at_most(one.time, two.time)


def test_splitting_a_short_sequence_costs_a_step_that_nothing_else_limits():
    """What made lists fill with twins: one sequence of 8,192 a rank, or two over two ranks."""
    ones, options = _plain("grouped queries")
    grid = single_grid(figures_of("grouped queries"), ones | {"dp": 8, "batch": 64}, options)
    split = with_layout(grid, cp=2, dp=grid.layout.dp / 2, micro=2)
    assert cost.evaluate(split).time > 1.01 * cost.evaluate(grid).time


def bound_by_compute(grid: Grid) -> Grid:
    """As it would be where every product, however small, runs at the full rate, and nothing waits for memory."""
    return replace(grid, device=replace(grid.device, inner_half=0.0, quantisation=0.0, memory_rate=1e30))


@pytest.mark.slow
@every_mixture
@PATIENT
@given(data=st.data())
def test_widening_an_expert_group_never_speeds_a_layer_that_compute_bounds(name, data):
    """What it can gain are larger products and fewer bytes of weights: without them only communication is left."""
    grid = bound_by_compute(data.draw(grids(name)))
    cut = grid.layout
    ranks = cut.tp * cut.cp * cut.dp
    assume(ranks % (2 * cut.ep * cut.etp) == 0 and grid.shape.experts % (2 * cut.ep) == 0)
    one, wider = (transformer.layers(with_layout(grid, ep=ep))[1] for ep in (cut.ep, 2 * cut.ep))
    at_most(one.forward + one.backward, wider.forward + wider.backward)
    at_most(one.parts["ep"].forward, wider.parts["ep"].forward)


# ---- experts' exchanges ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@every_mixture
@PATIENT
@given(data=st.data())
def test_exchanges_that_overlap_never_take_longer_and_hide_only_beside_another_micro_batch(name, data):
    """What hides is given back by the passes that run alone: with as many micro-batches as stages, all of it. (Copies
    of activations hide behind passes, too, and less behind shorter ones.)
    """
    grid = with_options(nothing_moved(data.draw(grids(name))), recompute_layers=0.0, p2p_overlap=False)
    on, off = (with_options(grid, ep_overlap=value) for value in (True, False))
    at_most(cost.evaluate(on).time, cost.evaluate(off).time)
    at_most(cost.evaluate(off).memory, cost.evaluate(on).memory)
    each = grid.layout.dp * grid.layout.micro * grid.layout.pp
    few_on, few_off = (with_layout(each_of, batch=each) for each_of in (on, off))
    assert float(terms(few_on).flow.time) == pytest.approx(float(terms(few_off).flow.time))


@every_mixture
def test_without_the_option_nothing_runs_beside_exchanges(name):
    grid = single_grid(figures_of(name), *_plain(name))
    grid = with_layout(grid, ep=2, dp=2)
    exchanged = experts.exchange(grid) * grid.shape.moe_share
    assert body(grid)["ep"].forward == pytest.approx(exchanged)


def test_a_plain_all_to_all_sends_every_copy():
    """Of four copies over two nodes about 1.875 domains are meant: a dispatcher that forwards sends 0.46875 of them."""
    grid = with_layout(single_grid(figures_of("windows"), *_plain("windows")), ep=16, dp=16)
    plain, once = (replace(grid, stack=replace(grid.stack, dispatch_once=value)) for value in (0.0, 1.0))
    slow = [network(each, 1e6, "nic") for each in (plain, once)]
    sent = 0.46875 / float(grid.network.dispatch_nic)
    assert experts.dispatch(slow[1]).seconds / experts.dispatch(slow[0]).seconds == pytest.approx(sent, rel=1e-3)


# ---- gpt-oss's experts -----------------------------------------------------------------------------------------------


def test_biased_experts_move_what_their_kernels_read_and_write():
    """One copy of 2,880 inner and outer elements of two bytes: clamps 46,080 and bias 34,560 bytes forward."""
    grid = single_grid(figures_of("windows"), *_plain("windows"))
    grid = replace(grid, options=replace(grid.options, dispatcher=1.0))
    copies, rate = experts.routed_copies(grid), grid.device.memory_rate / grid.stack.vector
    found = experts.unfused_kernels(grid)
    assert found.forward == pytest.approx(copies * (46_080 + 34_560) / rate)
    assert found.backward == pytest.approx(copies * (57_600 + 46_080) / rate)
    fused = experts.unfused_kernels(replace(grid, options=replace(grid.options, dispatcher=experts.ONCE_PER_DOMAIN)))
    assert fused.forward == pytest.approx(copies * (46_080 + 80_640) / rate), "probabilities are in 32 bit"
    assert fused.backward == pytest.approx(copies * (57_600 + 115_200) / rate)
    clamps = experts.unfused_kernels(replace(grid, shape=replace(grid.shape, biased_experts=0.0)))
    assert clamps.forward == pytest.approx(copies * 46_080 / rate)
    sums = experts.unfused_kernels(replace(grid, shape=replace(grid.shape, clamped_experts=0.0)))
    assert sums.forward == pytest.approx(copies * 34_560 / rate)


@pytest.mark.parametrize(("low_precision", "fused"), [(0.0, False), (1.0, True)])
def test_only_8_bit_products_fuse_biased_experts(low_precision, fused):
    grid = single_grid(figures_of("windows"), *_plain("windows"))
    grid = replace(
        grid, device=replace(grid.device, low_precision=low_precision), stack=replace(grid.stack, fused_experts=1.0)
    )
    assert (experts.unfused_kernels(grid).forward == 0.0) == fused
