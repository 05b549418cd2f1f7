"""Expanded memory: placed bytes are where they are said to be and cost what two memories cost; nothing else changes."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import cost, verify
from planner.axes.table import PLACEMENT
from planner.axes.values import NOWHERE, PLACEMENTS, placement
from planner.base.errors import NoAnswer, WrongQuestion
from planner.cost import expanded_memory, pipeline, stage_memory
from planner.cost.expanded_memory import Far
from planner.planning.run import estimate, plan
from planner.question.configuration import configuration
from planner.search.branch_and_bound import Bounded
from planner.search.costing import Exhaustive
from planner.space.cost_grid import single_grid
from tests.cases import CATALOG, cluster, prepared, problem_of, request
from tests.sweeps import sweep

GB = 1e9
SLOW = {"expanded_memory": 500 * GB, "expanded_bandwidth": 100 * GB}
PINS = "cp=1 micro=1..2 recompute=none|full"
rates = st.floats(1e9, 5e12)


def expanded(on="dgx-a100-40gb:2", **more):
    return cluster(on, **(SLOW | more))


def asked(on, pins=PINS, **more):
    return request("llama2-7b", on, batches=(64,), pins=pins, **more)


def grid_of(on, pins="tp=2,pp=1,cp=1,micro=1,recompute=none,zero=1", **more):
    """The best candidate under some pins, as a grid of scalars."""
    ready = prepared("llama2-7b", on, batches=(64,), pins=f"{pins} {more.pop('also', '')}", **more)
    best = Bounded().search(problem_of("llama2-7b", on, batches=(64,), pins=pins, capacity=np.inf)).best[0]
    return ready, best, single_grid(ready.figures, best.layout, best.options)


# ---- formulas --------------------------------------------------------------------------------------------------------


@given(near=rates, far=rates, size=st.floats(1, 1e12), share=st.floats(0, 1))
def test_bandwidth_of_two_memories(near, far, size, share):
    """Serial: 1 / B = (1 - f) / B_LM + f / B_EM. Concurrent: B = min(B_LM / (1 - f), B_EM / f)."""
    serial = 1 / ((1 - share) / near + share / far)
    one = Far(1.0, 0.0, far, 0.0).seconds(near, (1 - share) * size, share * size)
    assert float(one) == pytest.approx(size / serial, rel=1e-9)
    at_once = min(near / (1 - share) if share < 1 else np.inf, far / share if share else np.inf)
    both = Far(1.0, 0.0, far, 1.0).seconds(near, (1 - share) * size, share * size)
    assert float(both) == pytest.approx(size / at_once, rel=1e-9)


def test_update_moves_states_where_they_live():
    """AdamW: 2 (8 + 4) bytes of states and master copy at B_EM, the rest at B_LM."""
    _, _, grid = grid_of(expanded())
    placed = replace(grid, options=replace(grid.options, expanded_optimizer=1.0))
    s, near, far = grid.shape, grid.device.memory_rate, grid.expanded.rate
    states = 2 * (s.state_bytes + s.master_bytes)
    assert float(expanded_memory.update(placed)) == pytest.approx(
        states / far + (s.step_bytes - states) / near, rel=1e-12
    )
    at_once = replace(placed, expanded=replace(placed.expanded, concurrent=1.0))
    expected = max(states / far, (s.step_bytes - states) / near)
    assert float(expanded_memory.update(at_once)) == pytest.approx(expected, rel=1e-12)


def test_update_moves_weights_where_they_live():
    """Half of the weights and gradients at B_EM beside all of the states: what is left is at B_LM."""
    _, _, grid = grid_of(expanded())
    placed = replace(grid, options=replace(grid.options, expanded_optimizer=1.0, expanded_weights=0.5))
    s, near, far = grid.shape, grid.device.memory_rate, grid.expanded.rate
    states = 2 * (s.state_bytes + s.master_bytes)
    rest = (s.step_bytes - states) / 2
    assert rest > 0
    assert float(expanded_memory.update(placed)) == pytest.approx((states + rest) / far + rest / near, rel=1e-12)


@pytest.mark.parametrize(("weights", "asks"), [(0.0, 1), (0.5, 2)])
def test_activations_are_written_once_and_read_once(weights, asks):
    """Serial: ``f K (1 / B_EM - 1 / B_LM)`` more; at once: what of the copy the pass does not hide."""
    _, _, grid = grid_of(expanded())
    late, kept, near, far = 3e-6, 4e9, grid.device.memory_rate, grid.expanded.rate
    options = replace(grid.options, expanded_activations=0.25, expanded_weights=weights)
    placed = replace(grid, options=options, expanded=replace(grid.expanded, latency=late))
    longer = 0.25 * kept * (1 / far - 1 / near) + asks * late
    assert expanded_memory.stash(placed, kept, 1e-3, 9.0) == pytest.approx((longer, longer))
    at_once = replace(placed, expanded=replace(placed.expanded, concurrent=1.0))
    shown = 0.25 * kept / far - 1e-3 + asks * late
    assert expanded_memory.stash(at_once, kept, 1e-3, 9.0) == pytest.approx((shown, asks * late))


def test_what_a_link_gets_of_it_passes_both():
    _, _, grid = grid_of(expanded())
    placed = replace(grid, expanded=replace(grid.expanded, latency=3e-6))
    assert float(expanded_memory.streamed(placed, 5e8)) == pytest.approx(3e-6 + 5e8 / grid.expanded.rate)
    assert float(expanded_memory.streamed(placed, 0.0)) == 0.0


def test_weights_that_are_gathered_are_read_from_local_buffers():
    """A forward product's second operand and a weight gradient's result lie there, but for those of ZeRO 3."""
    _, _, grid = grid_of(expanded())
    for zero, held in ((0.0, 0.25), (1.0, 0.25), (2.0, 0.25), (3.0, 0.0)):
        options = replace(grid.options, expanded_weights=0.25, zero=zero)
        read, written = expanded_memory.of_weights(replace(grid, options=options))
        assert (float(read.second), float(read.result)) == (held, 0.0)
        assert (float(written.second), float(written.result)) == (0.0, held)


@sweep(("scope", "sharers"), [("accelerator", 1), ("node", 8), ("pool", 16)])
def test_a_shared_unit_is_divided(scope, sharers):
    _, _, grid = grid_of(expanded(expanded_scope=scope))
    assert float(expanded_memory.sharers(grid)) == sharers
    assert float(expanded_memory.rate(grid)) == pytest.approx(grid.expanded.rate / sharers)
    assert float(expanded_memory.room(grid)) == pytest.approx(grid.expanded.memory / sharers)


# ---- what does not change --------------------------------------------------------------------------------------------


def test_without_placement_nothing_changes():
    with_it = problem_of("llama2-7b", expanded(), batches=(64,), pins=f"{PINS} placement=none")
    without = problem_of("llama2-7b", "dgx-a100-40gb:2", batches=(64,), pins=PINS)
    ours, theirs = Bounded().search(with_it), Bounded().search(without)
    assert [(c.time, c.memory, c.layout) for c in ours.best] == [(c.time, c.memory, c.layout) for c in theirs.best]
    assert ours.candidates == theirs.candidates


def test_as_fast_a_second_memory_costs_no_time():
    """At equal bandwidth and no latency, one after the other, two memories are one."""
    part = cluster("dgx-a100-40gb:2").accelerator
    _, _, grid = grid_of(expanded(expanded_bandwidth=part.memory_bandwidth))
    shares = {"expanded_optimizer": 1.0, "expanded_weights": 0.5, "expanded_activations": 1.0}
    placed = replace(grid, options=replace(grid.options, **shares))
    assert float(cost.evaluate(placed).time) == pytest.approx(float(cost.evaluate(grid).time), rel=1e-12)


def test_placing_moves_bytes_and_loses_none():
    _, _, grid = grid_of(expanded())
    whole = stage_memory.stages(grid, pipeline.split(grid.shape, grid.layout))[0]
    for each in PLACEMENTS:
        shares = {f"expanded_{kind}": getattr(each, kind) for kind in ("optimizer", "weights", "activations")}
        placed = replace(grid, options=replace(grid.options, **shares))
        held = stage_memory.stages(placed, pipeline.split(grid.shape, grid.layout))[0]
        assert float(held.total + held.expanded.total) == pytest.approx(float(whole.total), rel=1e-12)
        assert float(cost.evaluate(placed).time) >= float(cost.evaluate(grid).time) * (1 - 1e-12)


# ---- properties ------------------------------------------------------------------------------------------------------


def best_time(**more):
    found = Bounded().search(problem_of("llama2-7b", expanded("dgx-a100-40gb:1", **more), batches=(64,), pins=PINS))
    return found.best[0].time


@pytest.mark.slow
def test_more_of_it_is_never_slower():
    faster = [best_time(expanded_bandwidth=rate * GB) for rate in (10, 50, 250, 1000)]
    assert faster == sorted(faster, reverse=True)
    larger = [best_time(expanded_memory=size * GB) for size in (1, 20, 60, 500)]
    assert larger == sorted(larger, reverse=True)
    assert best_time() <= best_time(expanded_latency=1e-3)
    assert best_time(expanded_access="concurrent") <= best_time()


def test_it_opens_what_did_not_fit():
    tight = problem_of("llama2-13b", "dgx-a100-40gb:1", batches=(64,), pins="tp=1 pp=1 cp=1 micro=1 zero=0")
    roomy = problem_of("llama2-13b", expanded("dgx-a100-40gb:1"), batches=(64,), pins="tp=1 pp=1 cp=1 micro=1 zero=0")
    assert not Bounded().search(tight).best
    assert Bounded().search(roomy).best[0].options[PLACEMENT] != NOWHERE


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"expanded_scope": "pool", "expanded_access": "concurrent"}])
def test_bounded_search_finds_what_exhaustive_search_finds(more):
    on = expanded("dgx-a100-40gb:2", expanded_memory=3000 * GB if more else 30 * GB, **more)
    asked = {
        "batches": (32,),
        "counts": (1, 2),
        "pins": "cp=1 micro=1 recompute=none|full placement=weights+activations",
    }
    problem = problem_of("llama2-7b", on, top=50, objective="energy", **asked)
    found = Bounded().search(problem).best
    assert found == Exhaustive().search(problem).best
    for each in found:  # and what each costs alone, whatever other node counts stand in the grid
        alone = cost.evaluate(single_grid(problem.figures, each.layout, each.options))
        assert each.time == pytest.approx(float(alone.time), rel=1e-12)


# ---- plans -----------------------------------------------------------------------------------------------------------


@cache
def made():
    return plan(CATALOG, asked(expanded(), f"{PINS} placement=optimizer+activations:0.5")).plans[0]


@pytest.mark.slow
def test_a_plan_says_what_lies_where():
    found = made()
    there = found.prediction.memory.expanded
    assert found.placement == {"optimizer": 1.0, "weights": 0.0, "activations": 0.5}
    assert there.activations_bytes == pytest.approx(found.prediction.memory.activations_bytes)
    assert found.prediction.memory.optimizer_bytes == 0.0 < there.optimizer_bytes
    assert {k.name for k in found.constraints} >= {"memory", "expanded memory"}


@sweep(
    ("wrong", "said"),
    [
        (lambda p: replace(p, placement=None), "some are missing"),
        (lambda p: replace(p, placement=p.placement | {"weights": 0.5}), "parameters_bytes"),
        (lambda p: replace(p, placement=p.placement | {"activations": 0.6}), "activations_bytes"),
        (lambda p: with_expanded(p, total_bytes=1.0), "expanded total_bytes"),
        (lambda p: with_expanded(p, capacity_bytes=1e15), "expanded capacity_bytes"),
        (lambda p: with_expanded(p, optimizer_bytes=0.0), "expanded optimizer_bytes"),
    ],
)
def test_a_wrong_plan_is_found_out(wrong, said):
    assert not verify.violations(made())
    assert any(said in str(violation) for violation in verify.violations(wrong(made())))


def with_expanded(found, **changes):
    held = found.prediction.memory
    section = replace(held, expanded=replace(held.expanded, **changes))
    return replace(found, prediction=replace(found.prediction, memory=section))


# ---- questions -------------------------------------------------------------------------------------------------------


@sweep("name", ["weight", "weights:0", "weights:2", "weights+weights", "optimizer:", ""])
def test_no_such_placement(name):
    with pytest.raises(WrongQuestion, match="choose none, or optimizer, weights, activations"):
        placement(name)


@sweep("each", PLACEMENTS)
def test_a_placement_is_read_as_it_is_written(each):
    assert placement(each.name) == each


def test_expanded_memory_is_whole():
    with pytest.raises(WrongQuestion, match="needs expanded_bandwidth too"):
        prepared("llama2-7b", cluster("dgx-a100-40gb:1", expanded_memory=1e12), batches=(8,))


def test_what_does_not_fit_there_is_told():
    given = configuration(asked(expanded(expanded_memory=GB)), asked(expanded(), "placement=optimizer").pins)
    with pytest.raises(NoAnswer, match=r"placement=optimizer puts .* into expanded memory, and there are"):
        estimate(CATALOG, replace(asked(expanded(expanded_memory=GB)), pins=given))


def test_there_is_none():
    with pytest.raises(WrongQuestion, match="placement=optimizer"):
        prepared("llama2-7b", "dgx-a100-40gb:1", batches=(8,), pins="placement=optimizer")
