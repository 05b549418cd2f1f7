"""What a point of a study is worth, draws and costs, counted by hand; and which points nothing beats, whichever way."""

import math
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import api, catalog
from planner.base.errors import NoAnswer
from planner.study import run
from planner.study.answer import pareto
from planner.study.program import optuna_samplers, optuna_trials, trial_storage
from planner.study.program.clusters import Clusters
from planner.study.program.evaluation import Evaluator
from tests.designing import TINY, Tried, study, whole
from tests.sweeps import sweep
from tests.test_recommended import WITHOUT_LEVERS

known = cache(catalog.load)

# ---- several workloads -----------------------------------------------------------------------------------------------

JOBS = {"llama3-8b": ("64", 1.0), "gpt2-medium": ("512", 3.0), "mistral-7b": ("128", 0.5)}
MIX = (
    """
objectives = ["performance-per-dollar", "step-time", "cost", "energy"]
[base]
node = "dgx-h100"
count = 1
[axes]
"accelerator.memory" = ["80 GiB", "160 GiB"]
"""
    + "".join(
        f'[[workloads]]\nmodel = "{model}"\nbatch = {batch}\nweight = {weight}\npins = ["cp=1", "micro=1"]\n'
        for model, (batch, weight) in JOBS.items()
    )
    + '[costs]\naccelerator = "$3,000"\nnode = "$20,000"\n'
)
CAPITAL = 8 * 3000.0 + 20000.0


UNNAMED = "recompute=none|selective|block:0.25|block:0.5|block:0.75|full"
"""No module is recomputed by its name: points are plans without levers."""


@pytest.mark.slow
def test_objectives_of_several_workloads_are_their_weighted_means():
    """Each from the plan that ``clusterwright plan`` makes: model FLOP/s are ``MFU peak accelerators``."""
    asked = study(MIX)
    evaluator = Evaluator(known(), asked)
    usd_per_hour = evaluator.clusters.hourly_usd(asked.values((0,)))
    peak = known().accelerators["H100-SXM5-80GB"].peak["bf16"]
    worth: dict[str, list[float]] = {name: [] for name in asked.objectives}
    for model, (batch, _) in JOBS.items():
        plan = api.plan(model, "dgx-h100:1", batch=batch, pin=("cp=1", "micro=1", WITHOUT_LEVERS, UNNAMED)).plans[0]
        assert plan.energy.energy_j is not None
        worth["performance-per-dollar"].append(plan.prediction.mfu * peak * 8 / CAPITAL)
        worth["step-time"].append(plan.prediction.step_time_s)
        worth["cost"].append(plan.money.days * 24 * usd_per_hour / plan.workload.tokens * 1e6)
        worth["energy"].append(plan.energy.energy_j / plan.workload.tokens)
    weights = np.array([weight for _, weight in JOBS.values()])
    found = evaluator.one((0,)).objectives
    for name, each in worth.items():
        assert found[name] == pytest.approx(float(np.average(each, weights=weights)), rel=1e-9), name


@pytest.mark.slow
def test_rented_nodes_are_worth_their_rent():
    """Performance per dollar of an hour, and an hour at the catalog's price."""
    text = MIX.replace("dgx-h100", "p5.48xlarge").replace(', "energy"', "")  # its watts are not known
    asked = study(text.split("[costs]")[0])
    evaluator = Evaluator(known(), asked)
    rent = next(p.usd for p in known().nodes["p5.48xlarge"].prices if p.basis == "on-demand")
    assert evaluator.clusters.hourly_usd(asked.values((0,))) == rent
    bought = Evaluator(known(), study(text)).one((0,)).objectives
    found = evaluator.one((0,)).objectives["performance-per-dollar"]
    assert found == pytest.approx(bought["performance-per-dollar"] * CAPITAL / rent)


@pytest.mark.slow
def test_a_limit_on_an_objective_is_on_its_weighted_mean():
    cost = Evaluator(known(), study(MIX)).one((0,)).objectives["cost"]
    limit = '[[constraints]]\nof = "cost"\nat_most = {}\n[costs]'
    for share, kept in ((1.01, True), (0.99, False)):
        asked = study(MIX.replace("[costs]", limit.format(cost * share)))
        assert Evaluator(known(), asked).one((0,)).feasible is kept


def test_of_several_that_do_not_fit_the_largest_says_by_how_much():
    short = {}
    job = TINY[TINY.index("[[workloads]]") : TINY.index("[costs]")]
    for models in (("llama3-8b",), ("mistral-7b",), ("llama3-8b", "mistral-7b"), ("mistral-7b", "llama3-8b")):
        text = TINY.replace('"24 GiB"', '"4 GiB"').replace(job, "".join(job.replace("llama3-8b", m) for m in models))
        short[models] = Evaluator(known(), study(text)).one((0, 0, 0, 0)).violations["memory"]
    ours, theirs, *joined = short.values()
    assert 0 < min(ours, theirs) < max(ours, theirs) and joined == [max(ours, theirs)] * 2


# ---- watts and dollars -----------------------------------------------------------------------------------------------

POWERED = """
objectives = ["energy", "cost"]
[base]
node = "dgx-h100"
accelerators = 32
region = "us"
[axes]
"node.accelerators" = [8, 16]
"accelerator.peak.bf16" = ["989 TFLOP/s", "1189 TFLOP/s"]
"fabric.nic_bandwidth" = ["50 GB/s", "100 GB/s"]
"node.nics" = [8, 16]
[[workloads]]
model = "llama3-8b"
batch = 64
pins = ["cp=1", "micro=1", "recompute=none"]
[costs]
accelerator = "$3,000"
node = "$20,000"
[costs.per]
"accelerator.memory" = "$50 per GiB"
"fabric.nic_bandwidth" = "$40 per GB/s"
"node.nics" = "$900 each"
[power]
"accelerator.peak.bf16" = "0.5 W per TFLOP/s"
"fabric.nic_bandwidth" = "0.3 W per GB/s"
"""
NODE_W, PUE, SHARE = 10200.0, 1.25, 0.75


@sweep("place", list(np.ndindex(2, 2, 2, 2)))
def test_watts_and_dollars_of_pods_and_their_network(place):
    """A pod of 16 draws what two of 8 do; more compute draws in every accelerator, a faster network in every port."""
    asked = study(POWERED)
    pod, fast, wide, many = place
    here = Clusters(known(), asked)
    values = asked.values(place)
    accelerators, nodes = 32, (4, 2)[pod]
    ports = nodes * (16 if many else 8)
    watts = NODE_W * accelerators / 8 + accelerators * 0.5 * 200.0 * fast + ports * 0.3 * 50.0 * wide
    assert here.power(values) == pytest.approx(watts * SHARE * PUE)
    usd = accelerators * (3000.0 + 50.0 * 80.0) + nodes * 20000.0 + ports * 40.0 * (50.0 + 50.0 * wide)
    assert here.capital(values) == pytest.approx(usd + 900.0 * ports)
    found = here.cluster(values)
    assert found.node.nic_bandwidth == found.fabric.nic_bandwidth == (100e9 if wide else 50e9)


def test_joules_are_the_watts_of_the_whole_cluster():
    asked = study(POWERED)
    evaluator = Evaluator(known(), asked)
    for place in ((0, 0, 0, 0), (1, 1, 1, 1)):
        values, found = asked.values(place), evaluator.one(place).objectives
        seconds = found["cost"] / 1e6 * 3600 / evaluator.clusters.hourly_usd(values)
        assert found["energy"] == pytest.approx(seconds * evaluator.clusters.power(values))


def test_prices_of_the_catalog_are_those_of_the_base_and_rates_count_from_it_on():
    """$375,000 for eight accelerators, as much for each in a larger pod, and a rate for what a figure has beyond."""
    text = POWERED.split("[costs]")[0] + '[costs]\nbasis = "purchase"\n[costs.per]\n'
    asked = study(text + '"accelerator.peak.bf16" = "$10 per TFLOP/s"\n"node.nics" = "$900 each"\n')
    here = Clusters(known(), asked)
    for pod, fast, many in np.ndindex(2, 2, 2):
        values = asked.values((pod, fast, 0, many))
        ports = (4, 2)[pod] * (16 if many else 8) - 32  # beyond one for each accelerator, as the base has
        assert here.capital(values) == pytest.approx(375e3 * 4 + 32 * 10.0 * 200.0 * fast + 900.0 * ports)


def test_an_owned_hour_pays_for_the_watts_of_its_place():
    """``kW load PUE (USD/kWh) / availability`` more where electricity is dearer; 0.75 and 97 % unless stated."""
    axis = '"region.electricity" = ["$0.05/kWh", "$0.25/kWh"]\n"region.pue" = [1.1, 1.6]\n'
    asked = study(POWERED.replace('"node.nics" = [8, 16]\n', axis))
    here = Clusters(known(), asked)
    for pue, place in ((1.1, 0), (1.6, 1)):
        cheap, dear = (here.hourly_usd(asked.values((1, 0, 0, price, place))) for price in (0, 1))
        assert dear - cheap == pytest.approx(NODE_W * 4 / 1e3 * 0.75 * pue * 0.20 / 0.97)


# ---- fronts ----------------------------------------------------------------------------------------------------------

POINTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)


@given(POINTS)
def test_the_share_of_a_front_is_that_of_cells_between_the_best_and_the_worst(points):
    costs = np.array(points, dtype=float)
    low, high = costs.min(axis=0).astype(int), costs.max(axis=0).astype(int)
    if np.any(low == high):
        return  # of one objective: below
    cells = [(x, y) for x in range(low[0], high[0]) for y in range(low[1], high[1])]
    covered = [c for c in cells if any(p[0] <= c[0] and p[1] <= c[1] for p in points)]
    of = pareto.undominated(costs)
    assert pareto.share(costs[of], costs) == pytest.approx(len(covered) / len(cells))


def test_what_all_points_share_is_no_side_of_the_box():
    flat = np.array([[2.0, 7.0], [4.0, 7.0], [3.0, 7.0]])
    assert pareto.share(flat[:1], flat) == 1.0
    assert pareto.share(flat[2:], flat) == pytest.approx(0.5)
    assert pareto.share(flat[:1], flat[:1]) == 1.0


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12))
def test_a_front_is_told_by_its_first_objective(points):
    costs = np.array(points, dtype=float)
    told = [tuple(row) for row in costs[pareto.undominated(costs)]]
    assert told == sorted(set(told))


BOTH_WAYS = TINY.replace('["cost"]', '["performance-per-dollar", "step-time"]').replace(
    "[costs]", '[[constraints]]\nof = "cost"\nat_most = 0.08\n[costs]', 1
)


def test_more_for_a_dollar_is_better_and_more_seconds_are_worse():
    found = whole(BOTH_WAYS)
    kept = [t.objectives for t in found.trials if t.feasible]
    assert 2 < len(kept) < sum(bool(t.objectives) for t in found.trials)
    pairs = sorted({(t["performance-per-dollar"], t["step-time"]) for t in kept}, reverse=True)
    unbeaten = [p for p in pairs if not any(q[0] >= p[0] and q[1] <= p[1] and q != p for q in pairs)]
    told = [(p.objectives["performance-per-dollar"], p.objectives["step-time"]) for p in found.pareto]
    assert told == unbeaten
    worth, seconds = zip(*pairs, strict=True)
    assert found.best[0].objectives["performance-per-dollar"] == max(worth)
    assert found.best[-1].objectives["step-time"] == min(seconds)
    area, before = 0.0, max(seconds)
    for value, time in unbeaten:  # slices of the box, from the most for a dollar on
        area += (before - time) * (value - min(worth))
        before = time
    box = (max(worth) - min(worth)) * (max(seconds) - min(seconds))
    assert found.hypervolume == pytest.approx(area / box)


def test_trials_go_where_there_is_more_for_a_dollar():
    asked = study(TINY.replace('["cost"]', '["performance-per-dollar"]'))
    notes: list[str] = []
    optuna_trials.quiet()
    found = trial_storage.opened(trial_storage.storage(None), asked, {}, 0, "memory", resume=False)
    optuna_trials.run(found, Evaluator(known(), asked), 20, 0, lambda n, note: notes.append(note), lambda: True)
    assert [d.name for d in found.directions] == ["MAXIMIZE"]
    done = [t for t in found.get_trials() if t.user_attrs["outcome"]["objectives"]]
    best = max(t.values[0] for t in done)
    assert notes[-1] == f"best {best:,.4g}"
    none = [t.values[0] for t in found.get_trials() if not t.user_attrs["outcome"]["objectives"]]
    assert none and max(none) < min(t.values[0] for t in done), "what trains nothing is worth least"


@sweep("way", ["enumerated", "bounded", "trials"], every=3)
def test_what_costs_nothing_has_no_performance_for_a_dollar(way):
    """Prices that fall to nothing on the way down an axis, and prices of nothing everywhere."""
    base = TINY[: TINY.index("[costs]")].replace('["cost"]', '["performance-per-dollar"]')
    falling = study(base + '[costs]\n[costs.per]\n"accelerator.memory" = "$90,000 per GiB"\n')
    found = run.design(known(), falling, run.How(way=way, explained=True))
    assert all(math.isfinite(value) for point in found.best for value in point.objectives.values())
    assert found.search.regret_at_most is None or math.isfinite(found.search.regret_at_most)
    nothing = [each for each in found.trials if "costs nothing" in each.why]
    assert (way == "bounded" or nothing) and not any(each.feasible for each in nothing)
    free = study(base + '[costs]\naccelerator = "$0"\nnode = "$0"\n')
    with pytest.raises(NoAnswer, match="costs nothing, so that it has no performance-per-dollar"):
        run.design(known(), free, run.How(way=way))


def test_sweeps_go_around_the_largest_where_more_is_better():
    asked, points = study(), [(0, 0, 0, 0), (2, 2, 1, 1)]
    tried = Tried(points, lambda p: float(sum(p)))
    for direction, best in (("MAXIMIZE", points[1]), ("MINIMIZE", points[0])):
        tried.directions = [SimpleNamespace(name=direction)]
        only = optuna_samplers.KnownPoints(lambda p, best=best: sum(a != b for a, b in zip(p, best, strict=True)) == 1)
        assert optuna_samplers.swept(asked, tried, 1, only) is not None


def test_no_front_of_what_breaks_a_limit():
    with pytest.raises(NoAnswer):
        whole(BOTH_WAYS.replace("0.08", "0.001"))


def test_what_is_asked_of_a_place_is_asked_of_no_other() -> None:
    """Two workloads of one model that ask for unlike things."""
    job = TINY[TINY.index("[[workloads]]") : TINY.index("[costs]")]
    text = TINY.replace(job, job + job.replace("batch = 64", "batch = 128"))
    times: Any = [Evaluator(known(), study(TINY.replace("= 64", b))).one((2, 2, 1, 1)) for b in ("= 64", "= 128")]
    joined = Evaluator(known(), study(text)).one((2, 2, 1, 1))
    assert joined.candidates == tuple(each.candidates[0] for each in times)
    assert joined.candidates[0].layout["batch"] == 64 and joined.candidates[1].layout["batch"] == 128
