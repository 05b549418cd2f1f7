"""Schedules that compute weight gradients apart: their orders, run event by event, against the formulas."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

import clusterwright as cw
from planner.axes.values import SPLIT_SCHEDULES
from planner.base.errors import WrongQuestion
from planner.cost import pipeline, split_schedules
from planner.cost.evaluate import breakdown, evaluate, passes
from planner.cost.figures import Grid
from planner.report import pass_orders
from planner.report.pass_orders import FOLDED, ORDERS
from planner.report.recommendation import configuration
from planner.schema.plan_layout import SCHEDULES
from planner.schema.plan_prediction import SplitPasses
from planner.space.cost_grid import single_grid
from planner.verify import kernels, violations
from planner.verify.memory import flying_apart
from tests.cases import problem_of
from tests.sweeps import sweep
from tests.words import worded

CHUNKS = {"zero-bubble": (1,), "interleaved-zero-bubble": (2, 3), "zbv": (2,), "dualpipe-v": (2,)}
CASES = [(name, chunks, p, f * p) for name in CHUNKS for chunks in CHUNKS[name] for p in (2, 3, 4, 8) for f in (2, 3)]


@sweep(("name", "chunks", "stages", "count"), CASES)
def test_every_pass_is_done_once(name: str, chunks: int, stages: int, count: int) -> None:
    for rank in range(stages):
        done = Counter(step for steps in ORDERS[name](rank, stages, chunks, count) for step in steps)
        assert done == Counter(product(("forward", "backward", "weight"), range(count), range(chunks)))


def grid(name: str, stages: int, vpp: int, model: str = "llama2-7b") -> Grid:
    """The first plan of 8 ranks a stage and 4 pp micro-batches, as figures."""
    pins = f"tp=8 pp={stages} vpp={vpp} micro=1 schedule={name} recompute=none tp_overlap=off"
    primus = name in ("zero-bubble", "zbv") and model == "llama3-8b"
    runtime, on = (
        ("primus", f"mi300x-8:{stages}") if primus or name == "zero-bubble" else ("fsdp2", f"dgx-h100:{stages}")
    )
    found = problem_of(model, on, batches=(4 * stages,), runtime=runtime, pins=pins)
    block = found.blocks[0]
    layout = {axis: int(column[0]) for axis, column in block.rows.items()}
    return single_grid(found.figures, layout, block.axes.at([0] * len(block.axes.shape)))


def cut(name: str, stages: int, chunks: int) -> SimpleNamespace:
    """What the formulas read of a grid."""
    layout = SimpleNamespace(pp=float(stages), vpp=float(chunks))
    return SimpleNamespace(layout=layout, options=SimpleNamespace(schedule=SPLIT_SCHEDULES[name]))


@sweep(("name", "chunks", "stages", "count"), CASES)
@sweep("times", [(1.0, 1.0, 1.0), (1.0, 1.3, 0.8), (1.0, 1.9, 0.5), (1.0, 1.2, 1.1)])
def test_idle_time_is_that_of_the_events(
    name: str, chunks: int, stages: int, count: int, times: tuple[float, float, float]
) -> None:
    """``end - M (F + I + W)`` of equal ranks, to rounding; the checker's own formula says so, too."""
    f, i, w = times
    given = cut(name, stages, chunks)
    given.layout.dp, given.layout.micro, given.layout.batch = 1.0, 1.0, float(count)
    idle = split_schedules.idle(given, split_schedules.RankPasses(*times), split_schedules.RankPasses(*times))
    works = pass_orders.run([f] * stages, [i + w] * stages, count, chunks=chunks, weight=[w] * stages, name=name)
    assert max(work.end for work in works) - count * sum(times) == pytest.approx(float(idle))
    assert kernels.idle(name, stages, chunks, count, SplitPasses(slowest_s=times, others_s=times)) == pytest.approx(
        idle
    )


def test_published_bubbles() -> None:
    """Qi et al. 2023, table 1 (ZB-H1); AMD's table of ZB1P and ZBV, F = I = W; DeepSeek's of DualPipeV, F = I."""
    for p in (2, 4, 8):
        m, ends = 4 * p, {}
        for name, chunks in (("zero-bubble", 1), ("zbv", 2), ("dualpipe-v", 2)):
            works = pass_orders.run([1.0] * p, [2.0] * p, m, chunks=chunks, weight=[1.0] * p, name=name)
            ends[name] = max(work.end for work in works)
        assert ends["zero-bubble"] - 3 * m == pytest.approx((p - 1) * (1 + 1 - 1))
        assert (ends["zbv"] - 3 * m) / ends["zbv"] == pytest.approx((p - 1) / (p - 1 + 6 * m))
        chunk, pair = 0.5, 1.5  # F = I = W of a chunk; F&B, nothing hidden
        assert ends["dualpipe-v"] - 3 * m == pytest.approx((2 * p / 2 - 1) * (pair + 2 * chunk - 3 * chunk))


@sweep(("name", "chunks", "stages", "count"), CASES)
@sweep("waiting", [0.0, 0.4, 1.0])
def test_what_is_held_is_that_of_the_events(name: str, chunks: int, stages: int, count: int, waiting: float) -> None:
    """Activations until W, and gradients that wait for it; those of the pass at work are no more than passing."""
    given = cut(name, stages, chunks)
    for rank in range(stages):
        live = most = put_off = 0
        for steps in ORDERS[name](rank, stages, chunks, count):
            for kind, *_ in steps:
                live += kind == "forward"
                if kind != "weight":
                    most = max(most, live + waiting * put_off)
                put_off += kind == "backward"
                if kind == "weight":
                    live, put_off = live - 1, put_off - 1
        found = split_schedules.moments(given, float(rank))
        expected = max(float(full) + waiting * float(off) for full, off in found)
        assert most / chunks <= expected + 1e-9
        assert expected <= most / chunks + (waiting + 0.5) / chunks
        assert expected <= flying_apart(name, stages, chunks, rank) if waiting == 1.0 else True


# ---- of plans --------------------------------------------------------------------------------------------------------


def ranks(found: Grid) -> list[tuple[float, float, float]]:
    """F, I and W of every rank in a micro-batch, half of its transfers with either pass, as 1F1B counts them."""
    priced = passes(found)
    s = pipeline.stages(found, priced.layers, priced.ends, priced.weights)
    assert priced.weights is not None
    body, _, head = (float(each) for each in priced.weights)
    seconds = []
    for index, layers in enumerate(pipeline.stage_layers(found.shape, found.layout)):
        ends = [s.embedding] * (index == 0)
        with_head = index == (0 if found.options.schedule >= split_schedules.ZBV else found.layout.pp - 1)
        ends += [s.head] * with_head
        forward = s.transfer / 2.0 + layers * s.layers[1].forward + sum(end.forward for end in ends)
        backward = s.transfer / 2.0 + layers * s.layers[1].backward + sum(end.backward for end in ends)
        weight = layers * body + with_head * head
        seconds.append((float(forward), float(backward - weight), float(weight)))
    return seconds


@sweep("model", ["llama2-7b", "llama3-8b"])
@sweep("stages", [2, 4, 8])
@sweep("name", SPLIT_SCHEDULES)
def test_unequal_ranks_take_about_as_long_as_the_events(name: str, stages: int, model: str) -> None:
    """The ends make ranks unequal: a step is within 2 % of its events, and never below the slowest rank's passes."""
    vpp = 1 if name == "zero-bubble" else 2
    if name == "zero-bubble" and model == "llama3-8b":
        pytest.skip("its head is placed, and leaves stages between unequal")
    found = grid(name, stages, vpp, model)
    each = ranks(found)
    count = int(float(pipeline.micro_batches(found.layout)))
    works = pass_orders.run(
        [f for f, _, _ in each], [i + w for _, i, w in each], count, chunks=vpp, weight=[w for *_, w in each], name=name
    )
    priced = passes(found)
    flow = pipeline.flow(found, pipeline.stages(found, priced.layers, priced.ends, priced.weights))
    assert float(flow.time) == pytest.approx(max(work.end for work in works), rel=0.02)
    assert float(flow.time) >= count * max(map(sum, each))
    assert sum(map(float, breakdown(found).values())) == pytest.approx(float(evaluate(found).time))


@sweep("name", ["interleaved-zero-bubble", "zbv", "dualpipe-v"])
def test_uncompiled_kernels_are_priced(name: str) -> None:
    """torchtitan's schedules fail with compiled blocks: passes take longer than under 1F1B, and logits more memory."""
    split, plain = (grid(each, 4, 2) for each in (name, "interleaved-1f1b"))
    assert (split.options.schedule, plain.options.schedule) == (SPLIT_SCHEDULES[name], 0.0)
    assert split.stack.vector > plain.stack.vector and split.stack.kernels_per_layer > plain.stack.kernels_per_layer
    assert split.stack.logit_bytes > plain.stack.logit_bytes
    assert float(passes(split).layers[1].forward) > float(passes(plain).layers[1].forward)


@worded("schedules.refused", read=json.loads)
def test_what_cannot_be_is_refused_by_name(question: tuple[str, str]) -> WrongQuestion:
    runtime, pin = question
    with pytest.raises(WrongQuestion) as refused:
        cw.plan("llama2-7b", "dgx-h100:2", batch=64, runtime=runtime, pin=pin.split())
    return refused.value


def test_layers_of_several_kinds_are_refused_by_name() -> None:
    with pytest.raises(WrongQuestion, match="layers of one kind, and those of qwen3-next-80b-a3b are of several"):
        cw.plan("qwen3-next-80b-a3b", "dgx-h100:2", batch=64, runtime="fsdp2", pin=["schedule=zbv"])


def test_a_plan_says_its_schedule_as_estimate_takes_it() -> None:
    asked: dict[str, Any] = {"batch": 64, "runtime": "fsdp2"}
    plan = cw.plan("llama2-7b", "dgx-h100:2", pin=["schedule=zbv", "pp=4"], **asked).plans[0]
    said = configuration(plan)
    assert "schedule=zbv" in said.split()
    again = cw.estimate("llama2-7b", "dgx-h100:2", said.split(), **asked).plans[0]
    assert again.parallelism == plan.parallelism
    assert again.prediction.step_time_s == plan.prediction.step_time_s


@sweep("name", SPLIT_SCHEDULES, every=3)
def test_documents_are_checked(name: str) -> None:
    runtime, on = ("primus", "mi300x-8:2") if name == "zero-bubble" else ("fsdp2", "dgx-h100:2")
    plan = cw.plan("llama2-7b", on, batch=64, runtime=runtime, pin=[f"schedule={name}", "pp=4"]).plans[0]
    assert plan.parallelism.schedule == name and not violations(plan)
    cut, stated = plan.parallelism, plan.prediction.passes
    for other in {*SCHEDULES} - {name}:
        assert violations(replace(plan, parallelism=replace(cut, schedule=other))), other
    assert stated is not None
    for edited, broken in (
        (None, "passes_are_of_the_step"),
        (replace(stated, slowest_s=stated.others_s), "passes_are_of_the_step"),
        (replace(stated, others_s=tuple(1.01 * x for x in stated.slowest_s)), "passes_are_of_the_step"),
        (replace(stated, others_s=stated.others_s[::-1]), "bubble_follows_from_passes"),
    ):
        found = violations(replace(plan, prediction=replace(plan.prediction, passes=edited)))
        assert broken in {each.name for each in found}, edited
    few = replace(plan.batch, accumulation=cut.pp - 1)
    assert "schedule_is_named" in {each.name for each in violations(replace(plan, batch=few))}
    again = replace(plan.recompute, policy="full", layers_fraction=1.0)
    assert "schedule_is_named" in {each.name for each in violations(replace(plan, recompute=again))}
    if name in FOLDED:
        longer = replace(cut.stages[0], layers=cut.stages[0].layers + 2)
        shorter = replace(cut.stages[-1], layers=cut.stages[-1].layers - 2)
        moved = replace(cut, stages=(longer, *cut.stages[1:-1], shorter))
        assert "layers_are_dealt" in {each.name for each in violations(replace(plan, parallelism=moved))}
