"""Levers: the waves find what an enumeration of every lever finds, and say what they left out."""

from functools import cache
from itertools import product
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

from planner import cost
from planner.axes.options import OptionValues
from planner.question.search_problem import Prepared, legal_rows, levers_of, prepare, problem, wave
from planner.search import waves
from planner.search.branch_and_bound import Bounded
from planner.search.problem import Candidate
from planner.space import levers
from planner.space.cost_grid import single_grid
from tests.cases import CATALOG, request
from tests.sweeps import sweep

EVERY = (*levers.FASTER, *levers.LEANER)
PRICE = next(price for price in CATALOG.node("p5.48xlarge").prices if price.basis == "on-demand")
HELD = "cp=1 micro=1|2 tp=1|2|4|8 pp=1|2|4 rank_order=tp-cp-ep-dp-pp zero=1 dp_overlap=on"
FEW = {
    "dense": ("llama2-7b", "dgx-h100:1", "tp_overlap=off sequence_parallel=off|on vpp=1|2|4"),
    "dense on old nodes": ("llama2-7b", "dgx-a100-40gb:1", "tp_overlap=off vpp=1|2"),
    "larger": ("llama3-8b", "dgx-h100:2", "tp_overlap=on vpp=1"),
    "mixture": ("olmoe-1b-7b", "dgx-h100:1", "ep=1|8 etp=1 vpp=1 pp=1 tp=1 activation_offload=none|expert_fc1+moe_act"),
    "mixture, narrow": ("mixtral-8x7b", "dgx-h100:2", "ep=1|8 etp=1 tp=2 vpp=1 activation_offload=none"),
}
"""Small questions: model, cluster, and pins that leave levers and a few layouts free."""
SPREAD = {
    "dense on eight nodes": ("llama3-8b", "dgx-h100:8", "tp=1|4 pp=1|2 vpp=1 micro=1 recompute=none|full"),
    "dense on six nodes": ("llama3-8b", "dgx-a100-40gb:6", "tp=2 pp=1|3 vpp=1 zero=0|1 dp_overlap=off|on"),
    "gathered": ("llama3-8b", "dgx-h100:12", "zero=1|3 tp=1 pp=1", "fsdp2"),
    "gathered mixture": ("qwen3-30b-a3b", "dgx-h100:8", "zero=3 tp=1 pp=1 ep=1|16", "fsdp2"),
}
"""Questions where several nodes of many can share a copy, likewise; and the runtime, where it is not Megatron."""


class Enumerated(NamedTuple):
    """Every candidate of a question with all levers: what it is worth by each objective, its seconds and its bytes."""

    value: dict[str, np.ndarray]
    time: np.ndarray
    memory: np.ndarray


OBJECTIVES = ("time", "cost", "energy")


@cache
def asked(name: str, batch: int, release: str, objective: str, deadline_s: float | None = None) -> Prepared:
    model, cluster, pins, *runtime = (FEW | SPREAD)[name]
    held = " ".join(pin for pin in HELD.split() if pin.partition("=")[0] + "=" not in pins)
    return prepare(
        CATALOG,
        request(
            model,
            cluster,
            runtime=runtime[0] if runtime else "megatron-core",
            release=release,
            batches=(batch,),
            pins=f"{held} {pins}",
            objective=objective,
            price=PRICE,
            deadline_s=deadline_s,
        ),
    )


@cache
def enumerated(name: str, batch: int, release: str) -> Enumerated:
    """All of them at once, without waves or bounds."""
    everything = {}
    for objective in OBJECTIVES:
        prepared = asked(name, batch, release, objective)
        free = levers_of(prepared)
        everything[objective] = wave(prepared, legal_rows(prepared), free.pins(prepared.request.pins, free.added))
    columns = []
    for index, block in enumerate(everything["time"].blocks):
        step = cost.evaluate(everything["time"].grid(index))
        time = np.broadcast_to(step.time, block.shape)
        values = [time * whole.targets[index].weight for whole in everything.values()]
        columns.append((*values, time, np.broadcast_to(step.memory, block.shape)))
    *values, time, memory = (np.concatenate([part.ravel() for part in parts]) for parts in zip(*columns, strict=True))
    return Enumerated(dict(zip(everything, values, strict=True)), time, memory)


def searched(prepared: Prepared, capacity: float, budget: float = np.inf) -> tuple[float, waves.LeverSearch]:
    """The base space's best, and what levers bring."""
    base = Bounded().search(problem(prepared, 1, capacity=capacity)).best
    known = base[0].value if base else np.inf
    with mock.patch.object(waves, "BUDGET", budget):
        found = waves.search(
            lambda rows, pins: wave(prepared, rows, pins, capacity),
            legal_rows(prepared),
            prepared.request.pins,
            levers_of(prepared),
            base[0] if base else None,
        )
    return known, found


def better(found: waves.LeverSearch) -> list[Candidate]:
    """What the levers brought."""
    return [candidate for candidate in (found.device, found.host) if candidate]


SHARES = (0.35, 0.5, 0.65, 0.8, 1.0)
CASES = [
    (name, batch, release, objective, SHARES[(index + shift) % len(SHARES)], limited)
    for index, (name, batch, release) in enumerate(product(FEW, (16, 64, 256), ("2026.06", "2025.05")))
    for limited, objective, shift in (
        *product((False,), OBJECTIVES, (0, 2, 4)),
        *product((True,), OBJECTIVES[1:], (1,)),
    )
]
"""Every question by every objective within shares of the accelerator's memory, some with a deadline."""
LATE = 0.02
"""Of the candidates that fit, the share that a deadline leaves."""


@pytest.mark.slow
@sweep(("name", "batch", "release", "objective", "share", "limited"), CASES, every=53, ci=17)
def test_waves_find_what_an_enumeration_of_all_levers_finds(name, batch, release, objective, share, limited):
    """The best of a whole search is the optimum; where few entries end it, the optimum is not below what is told."""
    prepared = asked(name, batch, release, objective)
    every = enumerated(name, batch, release)
    values = every.value[objective]
    capacity = share * prepared.request.cluster.accelerator.memory
    fits = every.memory <= prepared.within(capacity)
    if limited and fits.any():
        deadline_s = float(np.quantile(every.value["time"][fits], LATE, method="lower")) * (1 + 1e-9)
        prepared = asked(name, batch, release, objective, deadline_s)
        fits &= every.value["time"] <= deadline_s
    known, found = searched(prepared, capacity)
    least = float(values[fits].min()) if fits.any() else np.inf
    best = min([known, *(candidate.value for candidate in better(found))])
    assert best == pytest.approx(least, rel=1e-12) or (not np.isfinite(best) and not np.isfinite(least))
    assert found.least_left == np.inf
    _, stopped = searched(prepared, capacity, FEW_ENTRIES)
    at_best = min([known, *(candidate.value for candidate in better(stopped))])
    assert min(at_best, stopped.least_left) <= least * (1 + 1e-12) and at_best >= least * (1 - 1e-12)
    for candidate in better(found):
        options: OptionValues = candidate.options
        alone = cost.evaluate(single_grid(prepared.figures, candidate.layout, options))
        assert float(alone.time) == pytest.approx(candidate.time, rel=1e-12)
        assert float(alone.memory) <= prepared.within(capacity)


@sweep(
    ("name", "batch", "objective", "share"),
    [
        (name, batch, objective, share)
        for index, (name, batch) in enumerate(product(SPREAD, (192, 384, 768)))
        for objective, share in zip(OBJECTIVES, np.roll((0.2, 0.35, 0.9), index), strict=True)
    ],
    every=6,
    ci=3,
)
def test_copies_of_every_count_of_nodes_are_searched(name, batch, objective, share):
    """The best with copies that all ranks, a node or any divisor of the nodes share is the least of an enumeration."""
    prepared, every = asked(name, batch, "", objective), enumerated(name, batch, "")
    capacity = float(share) * prepared.request.cluster.accelerator.memory
    fits = every.memory <= prepared.within(capacity)
    known, found = searched(prepared, capacity)
    best = min([known, *(candidate.value for candidate in better(found))])
    assert best == (pytest.approx(every.value[objective][fits].min(), rel=1e-12) if fits.any() else np.inf)
    assert found.least_left == np.inf


FEW_ENTRIES = 20_000
"""Of arrays, which leave most of these questions unanswered."""


@sweep("budget", [0, 1_000, 5_000])
def test_what_a_budget_leaves_out_is_bounded(budget):
    """No candidate that was left out is better than the bound that is told."""
    case = ("dense on old nodes", 64, "2026.06", "time")
    prepared, every = asked(*case), enumerated(*case[:3])
    capacity = 0.5 * prepared.request.cluster.accelerator.memory
    known, found = searched(prepared, capacity, budget)
    least = float(every.value["time"][every.memory <= prepared.within(capacity)].min())
    best = min([known, *(candidate.value for candidate in better(found))])
    assert min(best, found.least_left) <= least <= best
    assert found.least_left < best


def test_levers_are_those_of_the_release_and_of_axes_that_no_pin_holds():
    prepared = asked("mixture", 64, "2026.06", "time")
    assert set(levers_of(prepared).added) == set(EVERY) - {"activation_offload", "zero_scope"}
    assert levers_of(asked("dense on six nodes", 192, "", "time")).added["zero_scope"] == ("nodes:2", "nodes:3")
    older = levers_of(asked("mixture", 64, "2025.05", "time"))
    assert "graphs" not in older.added and "selective:layernorm+moe_act" in older.added["recompute"]
