"""Exact search is exact: the bounded search, the exhaustive one and plain loops find the same."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from planner import cost
from planner.axes.options import DIMENSIONS
from planner.axes.table import PRECISION, RECOMPUTE
from planner.cost.nearness import RunConfiguration, weighed
from planner.figures.own_runs import NearRuns
from planner.planning import answer
from planner.question import reading
from planner.question.plan_options import PlanOptions
from planner.question.search_problem import prepare, problem
from planner.search import branch_and_bound, costing
from planner.search.branch_and_bound import Bounded, RowQueue, Survey, lower_bound, quick_bound, survey
from planner.search.costing import Exhaustive, rows_of
from planner.search.problem import SearchProblem, decode
from planner.space.cost_grid import single_grid
from tests import enumeration, oracle, towers
from tests.cases import CATALOG, problem_of, request
from tests.sweeps import sweep
from tests.test_compressed import flash

PRICE = next(price for price in CATALOG.node("p5.48xlarge").prices if price.basis == "on-demand")
FEW = "cp=1|2 micro=1|2|4"
COARSE = "cp=1 micro=1..4 recompute=none|block:0.5|full"
SHARED = "tp=1|2 pp=1 micro=1 ep=1|8 recompute=none|full cp_algorithm=none|p2p|all_gather|a2a|a2a+p2p"
OFFLOADED = "tp=1|2 pp=1|2 micro=1 ep=8 recompute=none|selective|full offload=none|optimizer|optimizer:0.5"
OFFLOADED += (
    " graphs=none|modules|full offload_overlap=off|on activation_offload=none|core_attn+attn_proj|expert_fc1+moe_act"
)

# A limit that names a space is the median of that space's values: what about half of the candidates keep. Of every
# three, `make test` asks the first whether all searches agree, and the last whether bounds hold: each class is met.
SPACES = {
    "dense": (("llama2-7b", "dgx-a100-40gb:2"), {"batches": (64,), "pins": FEW}),
    "dense, nothing folded": (("llama2-7b", "dgx-a100-40gb:2"), {"batches": (64,), "pins": FEW, "fold": False}),
    "uneven layers": (("llama2-7b", "dgx-a100-40gb:3"), {"batches": (48,), "pins": FEW}),
    "dispatched": (
        ("mixtral-8x7b", "dgx-h100:2"),
        {"batches": (16,), "pins": "pp=1 micro=1|2 ep=1|8 ep_overlap=off|on dispatcher=none|alltoall|allgather|deepep"},
    ),
    "unfused": (("megatron-22b", "dgx-a100-80gb:4"), {"batches": (64,), "release": "2022"}),
    "shared sequences": (
        ("deepseek-v2-lite", "dgx-h100:2"),
        {"batches": (16,), "pins": SHARED, "trained": {"sequence": 65536}},
    ),
    "fsdp2": (("llama3-8b", "dgx-h100:4"), {"batches": (128,), "runtime": "fsdp2"}),
    "weights in host memory": (
        ("llama3-8b", "dgx-h100:2"),
        {"batches": (64,), "runtime": "deepspeed", "pins": "pp=1 offload=none|optimizer|optimizer+weights"},
    ),
    "pinned": (
        ("llama3-70b", "dgx-h100:16"),
        {"batches": (256,), "pins": "tp=4|8 pp=2..8 cp=1 micro=1..4 recompute=none|block:0.3"},
    ),
    "weights apart": (
        ("llama2-7b", "mi300x-8:2"),
        {"batches": (64,), "runtime": "primus", "pins": "pp=2.. recompute=none offload=none"},
    ),
    "budget": (
        ("llama3-8b", "dgx-h100:4"),
        {"batches": (64,), "counts": (1, 2, 4), "price": PRICE, "max_cost_usd": "cost", "pins": COARSE},
    ),
    "counts": (("llama3-8b", "dgx-h100:3"), {"batches": (32, 64), "counts": (1, 2, 3), "pins": COARSE}),
    "deadline": (("llama2-7b", "dgx-a100-40gb:2"), {"batches": (64,), "pins": FEW, "deadline_s": "dense"}),
    "own runs": (
        ("llama3-8b", "dgx-h100:4"),
        {
            "batches": (64,),
            "counts": (1, 4),
            "pins": f"precision=bf16|fp8 {COARSE}",
            "objective": "cost",
            "price": PRICE,
        },
    ),
    "cost": (
        ("llama3-8b", "dgx-h100:4"),
        {"batches": (64,), "counts": (1, 2, 4), "objective": "cost", "price": PRICE, "pins": COARSE},
    ),
    "behind a tower": ((towers.model("qwen2.5-vl-7b", "4@896"), "dgx-h100:2"), {"batches": (32,), "pins": "cp=1 ep=1"}),
    "compressed, four streams": (
        (flash(num_hidden_layers=4, compress_ratios=[4, 128] * 2, n_routed_experts=16), "dgx-h100:2"),
        {"batches": (32,), "pins": "micro=1..2"},
    ),
    "energy, not folded": (
        ("llama3-8b", "dgx-h100:4"),
        {"batches": (64,), "counts": (1, 4), "objective": "energy", "pins": COARSE, "fold": False},
    ),
    "latent": (("deepseek-v2-lite", "dgx-h100:2"), {"batches": (64,), "pins": "cp=1|2 micro=1|2"}),
    "offloaded": (("mixtral-8x7b", "dgx-h100:2"), {"batches": (16,), "pins": OFFLOADED}),
    "mixture": (("mixtral-8x7b", "dgx-h100:4"), {"batches": (32,), "pins": "cp=1 pp=1|2|4 micro=1..2"}),
    "precisions": (("llama3-8b", "dgx-h100:2"), {"batches": (32,), "pins": "precision=bf16|fp8 recompute=selective"}),
    "no replicas": (("llama3-70b", "dgx-h100:1"), {"batches": (8,), "pins": "dp=1 cp=1"}),
    "behind a trained tower": (
        (towers.model("qwen2.5-vl-7b", "4@896", True), "dgx-h100:2"),
        {"batches": (32,), "pins": "cp=1 ep=1"},
    ),
    "deepspeed": (("gpt2-xl", "dgx-v100:2"), {"batches": (32,), "runtime": "deepspeed"}),
}
OWN_RUNS = weighed(
    RunConfiguration(
        model=np.array(["4096x14336x32", "4096x14336x32", "8192x28672x64"]),
        generation=np.array(["hopper", "hopper", "ampere"]),
        precision=np.array(["bf16", "fp8", "bf16"]),
        recompute=np.array(["none", "full", "selective"]),
        accelerators=np.array([8.0, 32.0, 64.0]),
        tp=np.array([1.0, 4.0, 8.0]),
        pp=np.array([1.0, 2.0, 4.0]),
        cp=np.array([1.0, 1.0, 2.0]),
        ep=np.array([1.0, 1.0, 1.0]),
        micro=np.array([1.0, 2.0, 1.0]),
    ),
    np.array([0.4, -0.5, 0.2]),
    np.full(3, 0.05),
)
"""Of a site, far enough from what is predicted to change the order of plans."""


@cache
def space(name: str) -> SearchProblem:
    arguments, more = SPACES[name]
    limits = {key: median(more[key]) for key in ("deadline_s", "max_cost_usd") if key in more}
    found = problem_of(*arguments, **(more | limits))
    if name != "own runs":
        return found
    return replace(found, figures=replace(found.figures, own=NearRuns(OWN_RUNS, "4096x14336x32", "hopper")))


def median(name: str) -> float:
    all_of = everything(name)
    return float(np.median(all_of.value[all_of.fits]))


@dataclass(frozen=True)
class Everything:
    """Every candidate of a problem as columns."""

    value: np.ndarray
    time: np.ndarray
    memory: np.ndarray
    block: np.ndarray
    flat: np.ndarray
    allowed: np.ndarray
    """Fits, and keeps within the limits."""
    fits: np.ndarray


@cache
def everything(name: str) -> Everything:
    problem, columns = space(name), []
    for index, (block, target) in enumerate(zip(problem.blocks, problem.targets, strict=True)):
        found = cost.evaluate(problem.grid(index))
        time = np.broadcast_to(found.time, block.shape)
        memory = np.broadcast_to(found.memory, block.shape)
        fits = memory <= problem.capacity
        allowed = fits & (time <= target.limit)
        value = time * target.weight
        own = np.full(block.size, index)
        flat = np.arange(block.size)
        columns.append((*(c.ravel() for c in (value, time, memory)), own, flat, allowed.ravel(), fits.ravel()))
    value, time, memory, own, flat, allowed, fits = (np.concatenate(c) for c in zip(*columns, strict=True))
    return Everything(value, time, memory, own, flat, allowed, fits)


def place(candidate):
    return candidate.value, candidate.time, candidate.memory, candidate.block, candidate.flat


def best_by_sorting(name: str) -> list[tuple]:
    """All candidates by value, block, place, but for those that one before them of the same degrees and precision
    is as lean as; of near-duplicates the first; the first 20.
    """
    problem, all_of = space(name), everything(name)
    order = np.lexsort((all_of.flat, all_of.block, all_of.value))
    found, seen, leanest = [], set(), {}
    for i in order[all_of.allowed[order]]:
        row = (float(all_of.value[i]), float(all_of.time[i]), float(all_of.memory[i]))
        candidate = decode(problem, int(all_of.block[i]), int(all_of.flat[i]), *row)
        kind = (*candidate.layout.values(), candidate.options)
        if problem.fold:
            degrees = [candidate.layout[a] for a in ("nodes", "batch", "tp", "pp", "cp", "ep", "etp")]
            alike = (*degrees, candidate.options[PRECISION])
            if leanest.get(alike, np.inf) <= candidate.memory:
                continue
            leanest[alike] = candidate.memory
            kind = (*alike, candidate.options[RECOMPUTE])
        if kind not in seen:
            seen.add(kind)
            found.append(place(candidate))
        if len(found) == problem.top:
            break
    return found


@sweep("name", SPACES, every=3, ci=2)
def test_bounded_exhaustive_and_sorted_are_one(name):
    problem = space(name)
    slow, fast = Exhaustive().search(problem), Bounded().search(problem)
    assert [place(c) for c in slow.best] == best_by_sorting(name)
    assert fast.best == slow.best
    assert slow.best
    assert fast.candidates == slow.candidates == slow.costed == everything(name).value.size
    assert fast.feasible == slow.feasible == np.count_nonzero(everything(name).fits)
    assert fast.costed <= slow.costed
    assert fast.proven
    assert slow.proven


def test_limits_bind_where_they_are_meant_to():
    for name in ("deadline", "budget"):
        all_of = everything(name)
        assert 0 < np.count_nonzero(all_of.allowed) < np.count_nonzero(all_of.fits)
    # Of so many candidates the best keep any limit that lets them live; the worst would not.
    assert everything("deadline").value.max() > median("dense")
    leanest = Bounded(front=True).search(space("deadline")).front[-1]
    assert leanest.value <= median("dense")
    assert leanest.memory > Bounded(front=True).search(space("dense")).front[-1].memory


def test_pruning_prunes():
    problem = space("pinned")
    assert Bounded().search(replace(problem, top=5)).costed < problem.candidates


@pytest.mark.slow
@sweep(
    ("name", "chunk", "batch"),
    [
        ("no replicas", 1, 1),
        ("counts", 1000, 1),
        ("cost", 1, 2000),
        ("budget", 3000, 4000),
        ("mixture", 5000, 3000),
        ("dense, nothing folded", 20000, 9000),
    ],
    ci=2,
)
def test_the_size_of_chunks_changes_nothing(monkeypatch, name, chunk, batch):
    problem = space(name)
    slow, fast = Exhaustive().search(problem), Bounded(front=True).search(problem)
    monkeypatch.setattr(costing, "CHUNK", chunk)
    monkeypatch.setattr(branch_and_bound, "_CANDIDATES_PER_BATCH", batch)
    again = Exhaustive().search(problem)
    assert again == slow
    again = Bounded(front=True).search(problem)
    assert replace(again, costed=0) == replace(fast, costed=0)


@pytest.mark.slow
def test_where_nothing_fits_the_leanest_is_told_whatever_the_chunks(monkeypatch):
    problem = replace(space("dense"), capacity=1e9)
    slow, fast = Exhaustive().search(problem), Bounded(front=True).search(problem)
    for found in (slow, fast):
        assert (found.best, found.front, found.feasible) == ((), (), 0)
        assert found.closest is not None
        assert found.closest.memory == everything("dense").memory.min()
    assert slow.closest == fast.closest
    for chunk in (3000, 9000):
        monkeypatch.setattr(costing, "CHUNK", chunk)
        assert Exhaustive().search(problem).closest == slow.closest
        assert Bounded().search(problem).closest == slow.closest


def test_no_row_beats_another_of_its_degrees_in_time_and_memory() -> None:
    """DeepSeek-V2-Lite: recomputed attention takes longer and frees nothing where scores are never kept."""
    leanest: dict[tuple[int, ...], float] = {}
    rows = Bounded().search(space("latent")).best
    for row in rows:
        degrees = tuple(row.layout[axis] for axis in ("tp", "pp", "cp", "ep", "etp"))
        assert row.memory < leanest.get(degrees, np.inf)
        leanest[degrees] = row.memory
    assert len(leanest) < len(rows)


# ---- ties ------------------------------------------------------------------------------------------------------------


def test_ties_go_to_the_earlier_block_option_and_row():
    """Switches change nothing in some layouts: then only the declared order decides."""
    problem = replace(space("pinned"), fold=False, top=60)
    for strategy in (Exhaustive(), Bounded()):
        found = [(c.value, c.block, c.flat) for c in strategy.search(problem).best]
        assert len({value for value, _, _ in found}) < 40
        assert found == sorted(found)


def test_switches_that_cost_nothing_tie_and_the_plainest_wins():
    problem = space("no replicas")
    found = Bounded().search(replace(problem, fold=False)).best
    equal = [c for c in found if c.time == found[0].time and c.layout == found[0].layout]
    assert min((c.block, c.flat) for c in equal) == (found[0].block, found[0].flat)


# ---- the front -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@sweep("name", SPACES, ci=2)
def test_the_front_is_what_nothing_dominates(name):
    all_of = everything(name)
    at = np.flatnonzero(all_of.allowed)
    value, memory = all_of.value[at], all_of.memory[at]
    found = Bounded(front=True).search(space(name)).front
    assert found
    for candidate in found:
        better = (value <= candidate.value) & (memory <= candidate.memory)
        assert not np.any(better & ((value < candidate.value) | (memory < candidate.memory))), candidate
    # Whoever is not on it is dominated by, or equal to, someone who is.
    covered = np.zeros(len(at), dtype=bool)
    for candidate in found:
        covered |= (candidate.value <= value) & (candidate.memory <= memory)
    assert covered.all()
    # Of equals the first by block and place.
    for candidate in found:
        equal = at[(value == candidate.value) & (memory == candidate.memory)]
        first = min((int(all_of.block[i]), int(all_of.flat[i])) for i in equal)
        assert first == (candidate.block, candidate.flat)


@pytest.mark.parametrize(
    ("model", "on", "options"),
    [
        ("mixtral-8x7b", "dgx-h100:2", PlanOptions(batch="32", price="$2/h")),
        ("llama3-8b", "dgx-a100-80gb:1", PlanOptions(batch="64", objective="energy", runtime="any")),
    ],
)
def test_a_point_of_the_front_says_what_its_plan_says(model: str, on: str, options: PlanOptions) -> None:
    prepared = prepare(*reading.request(model, on, options))
    found = Bounded(front=True).search(problem(prepared, 1)).front
    assert len({candidate.memory for candidate in found}) > 3
    for candidate in found:
        whole = answer.plan(prepared, candidate, 1)
        assert answer.front_point_of(prepared, candidate) == answer.front_point(whole)


# ---- the bound -------------------------------------------------------------------------------------------------------


@sweep("name", reversed(SPACES), every=3, ci=2)
def test_no_candidate_is_below_its_bound(name):
    problem = space(name)
    for index, block in enumerate(problem.blocks):
        grid = problem.grid(index)
        bound = lower_bound(grid, cost.passes(grid).least(tuple(DIMENSIONS).index("cp_algorithm")))
        found = cost.evaluate(grid)
        least = np.broadcast_to(found.time, block.shape).reshape(-1, block.height).min(axis=0)
        quick = quick_bound(costing.table(problem, index))
        assert np.all(quick <= bound) and np.all(bound <= least)
        assert np.all(quick > 0.2 * least)
        # The survey knows which candidates fit: its bound is that of those, and closer.
        known, target = survey(problem, index, costing.table(problem, index)), problem.targets[index]
        memory = np.broadcast_to(found.memory, block.shape).reshape(-1, block.height)
        times = np.broadcast_to(found.time, block.shape).reshape(-1, block.height)
        allowed = (memory <= problem.capacity) & (times <= target.limit)
        assert np.all(known.value <= np.where(allowed, times * target.weight, np.inf).min(axis=0))
        assert np.all(known.value >= bound * target.weight)
        assert np.all(known.memory == memory.min(axis=0))


# ---- plain loops -----------------------------------------------------------------------------------------------------

SPANNING = "zero_scope=full|node|nodes:2|nodes:3"
COUNTED = [
    (("llama2-7b", "dgx-a100-40gb:2"), {"batches": (16,), "pins": "recompute=none|block:0.5"}),
    (("llama2-7b", "dgx-a100-40gb:3"), {"batches": (12, 24), "counts": (1, 3), "pins": "recompute=none offload=none"}),
    (("megatron-22b", "dgx-a100-80gb:3"), {"batches": (12,), "release": "2022"}),
    (("mixtral-8x7b", "dgx-h100:2"), {"batches": (16,), "pins": "recompute=full|block:0.5"}),
    (("llama3-8b", "dgx-h100:2"), {"batches": (64,), "runtime": "fsdp2"}),
    (("mpt-7b", "dgx-a100-40gb:2"), {"batches": (64,), "runtime": "fsdp"}),
    (("llama2-7b", "mi300x-8:1"), {"batches": (24,), "runtime": "primus", "pins": "recompute=none micro=1..2"}),
    (("deepseek-v2-lite", "dgx-h100:2"), {"batches": (64,), "pins": "micro=1..2 recompute=full|none"}),
    (("mixtral-8x7b", "dgx-a100-40gb:2"), {"batches": (16,), "runtime": "deepspeed"}),
    (("llama3-70b", "dgx-h100:8"), {"batches": (64,), "pins": "tp=8 pp=1..8 vpp=1..5 micro=1|2 zero=0..1"}),
    (("t5-large", "dgx-a100-40gb:1"), {"batches": (64,), "pins": "rank_order=tp-cp-ep-dp-pp"}),
    (("llama2-7b", "dgx-a100-40gb:1"), {"batches": (64,), "pins": "rank_order=tp-cp-ep-pp-dp"}),
    (("deepseek-v2-lite", "dgx-h100:2"), {"batches": (16,), "pins": SHARED, "trained": {"sequence": 65536}}),
    (("llama3-8b", "dgx-h100:4"), {"batches": (32,), "pins": SHARED, "trained": {"sequence": 65536}}),
    (("mixtral-8x7b", "dgx-h100:2"), {"batches": (16,), "pins": OFFLOADED}),
    (("llama4-maverick", "dgx-h100:1"), {"batches": (8,), "pins": "micro=1 ep=1|8 recompute=none offload=none"}),
    (("llama3-8b", "dgx-h100:6"), {"batches": (96,), "runtime": "fsdp2", "pins": f"micro=1 cp=1|2 {SPANNING}"}),
    (("deepseek-v2-lite", "dgx-h100:4"), {"batches": (64,), "pins": f"micro=1 vpp=1 recompute=none {SPANNING}"}),
]


def key(layout: dict, options) -> tuple:
    return (*(layout[axis] for axis in sorted(layout)), options)


@sweep(("asked", "more"), COUNTED, every=2, ci=2)
def test_the_space_holds_exactly_what_the_rules_let_through(asked, more):
    if "zero=0..1" in more.get("pins", ""):
        more = more | {"pins": more["pins"].replace("zero=0..1", "zero=0|1")}
    problem = problem_of(*asked, **more)
    question = request(*asked, **more)
    expected = [(way, tuple(enumeration.options(question, way))) for way in enumeration.layouts(question)]
    assert problem.candidates == sum(len(options) for _, options in expected)
    drawn = {
        key({axis: int(column[row]) for axis, column in block.rows.items()}, block.axes.at(place))
        for block in problem.blocks
        for row in range(block.height)
        for place in np.ndindex(*block.axes.shape)
        if hash(place) % 7 == row % 7
    }
    every = {key(way, o) for way, options in expected for o in options}
    assert len(every) == problem.candidates
    assert drawn <= every


SMALL = (("llama2-7b", "dgx-a100-40gb:1"), {"batches": (8,), "pins": "micro=1..2 vpp=1|2 offload=none"})


@cache
def small_by_plain_loops() -> list[tuple]:
    """Every candidate that fits, fastest first."""
    asked, more = SMALL
    question, problem = request(*asked, **more), problem_of(*asked, **more)
    ranked = []
    for way in enumeration.layouts(question):
        for options in enumeration.options(question, way):
            found = oracle.cost(oracle.plan(single_grid(problem.figures, way, options)))
            if found.memory <= problem.capacity:
                ranked.append((found.time, found.memory, way, options))
    return sorted(ranked, key=lambda row: row[0])


@pytest.mark.slow
@sweep("fold", [True, False])
def test_the_best_of_plain_loops_over_the_scalar_model(fold):
    asked, more = SMALL
    problem, fitting = problem_of(*asked, **more, fold=fold), len(small_by_plain_loops())
    kept, seen, leanest = [], set(), {}
    for time, memory, way, options in small_by_plain_loops():
        degrees = tuple(way[axis] for axis in ("tp", "pp", "cp", "ep", "etp"))
        if fold and leanest.get(degrees, np.inf) <= memory:
            continue
        leanest[degrees] = memory
        kind = (degrees, options[RECOMPUTE]) if fold else key(way, options)
        if kind not in seen:
            seen.add(kind)
            kept.append(time)
    found = Bounded().search(problem)
    assert found.feasible == fitting
    assert len(found.best) == min(20, len(kept)) > 5
    for candidate, time in zip(found.best, kept, strict=False):
        assert candidate.time == pytest.approx(time, rel=1e-12)
        one = oracle.cost(oracle.plan(single_grid(problem.figures, candidate.layout, candidate.options)))
        assert (candidate.time, candidate.memory) == pytest.approx((one.time, one.memory), rel=1e-12)


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_own_runs_change_which_plan_is_best() -> None:
    shifted = space("own runs")
    plain = replace(shifted, figures=replace(shifted.figures, own=None))
    here, there = Bounded().search(shifted).best, Bounded().search(plain).best
    assert [key(c.layout, c.options) for c in here] != [key(c.layout, c.options) for c in there]
    factors = {round(here_.time / float(cost.evaluate(single_grid(plain.figures, here_.layout, here_.options)).time), 3)
               for here_ in here}  # fmt: skip
    assert len(factors) > 3
    for each in here:
        assert each.time == pytest.approx(
            float(cost.evaluate(single_grid(shifted.figures, each.layout, each.options)).time), rel=1e-12
        )


@pytest.mark.parametrize("sums_in_fp32_below", [0, 2])
def test_pricing_distinct_micro_batches_once_changes_nothing(sums_in_fp32_below):
    # Where gradients are summed in fp32, a micro-batch depends on the stage of ZeRO; else blocks share it.
    problem = space("mixture")
    stack = replace(problem.figures.stack, fp32_sums_below_zero=sums_in_fp32_below)
    problem = replace(problem, figures=replace(problem.figures, stack=stack))
    tables = costing.tables(problem)
    for index, block in enumerate(problem.blocks):
        rows = np.arange(0, block.height, 5)
        by_table = costing.cost(tables[index], rows)
        directly = cost.evaluate(rows_of(problem.grid(index), rows))
        np.testing.assert_array_equal(by_table.time, directly.time)
        np.testing.assert_array_equal(by_table.memory, directly.memory)


def test_progress_is_told_of_every_candidate():
    told = []
    Exhaustive().search(space("deepspeed"), told.append)
    assert sum(told) == space("deepspeed").candidates


def test_a_row_whose_bound_ties_with_the_worst_kept_is_still_costed() -> None:
    # Its cost may equal its bound, and then the tie-break may prefer it to the one kept.
    values = np.array([2.0, 1.0, 3.0, 2.0])
    waiting = RowQueue(space("no replicas"), [Survey(values, np.ones(4), 4, None)])
    seen: list[int] = []
    while len(rows := waiting.next_batch(2.0, None)[1]):
        seen.extend(rows.tolist())
    assert sorted(seen) == [0, 1, 3]


def test_every_candidate_is_counted_once_for_the_bar() -> None:
    """What a bar shows as done adds up to all candidates: else the time that is left is a guess."""
    where, asked = SPACES["counts"]
    question = problem_of(*where, **asked)
    told: list[int] = []
    Bounded().search(question, told.append)
    assert sum(told) == question.candidates


def test_a_search_that_is_asked_to_end_bounds_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each block those rows are bounded that promise most."""
    question = space("dense")
    whole = Bounded().search(question)
    monkeypatch.setattr(costing, "rows_per_chunk", lambda block: 1)
    monkeypatch.setattr(branch_and_bound.stopping, "asked", lambda: True)
    stopped = Bounded(stops=True).search(question)
    assert whole.proven and not stopped.proven
    assert stopped.least_left <= whole.best[0].value <= stopped.best[0].value
    assert Bounded().search(question) == whole, "others are not asked"
