"""The design of a cluster: study files, exact evaluation of points, trials that survive being killed, shards."""

import json
import os
import signal
import subprocess
import sys
import time
import types
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api, catalog, document
from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog.files import FileProblem, TomlDocument, read_document
from planner.commands import main
from planner.question.reading import PlanOptions, request
from planner.question.search_problem import prepare, problem
from planner.search.bounded import Bounded
from planner.search.machines import Machine, best_on_each, on
from planner.study import merge
from planner.study import run as designing
from planner.study.answer import document as answer
from planner.study.answer import front, importance, sensitivity
from planner.study.program import optuna_samplers, optuna_storage
from planner.study.program.evaluation import Evaluator
from planner.study.question import axes as figures
from planner.study.question import reading
from planner.study.question.study import Study

ROOT = Path(__file__).resolve().parent.parent
STUDIES = sorted((ROOT / "examples" / "studies").glob("*.toml"))
known = cache(catalog.load)


def run(*line: str) -> int:
    return main(list(line))


TINY = """
name = "tiny"
objectives = ["cost"]
trials = 20
[base]
node = "dgx-h100"
count = 1
[axes]
"accelerator.memory" = ["24 GiB", "48 GiB", "80 GiB"]
"accelerator.peak.bf16" = { from = "250 TFLOP/s", to = "1000 TFLOP/s", points = 3, log = true }
"node.scaleup_bandwidth" = ["100 GB/s", "450 GB/s"]
"node.accelerators" = [4, 8]
[[workloads]]
model = "llama3-8b"
batch = 64
pins = ["recompute=none|full", "micro=1", "zero=1", "cp=1", "vpp=1", "offload=none"]
[costs]
basis = "purchase"
accelerator = "$3,000"
node = "$20,000"
[costs.per]
"accelerator.memory" = "$50 per GiB"
"accelerator.peak.bf16" = "$14 per TFLOP/s"
"node.scaleup_bandwidth" = "$5 per GB/s"
"""
TWO = TINY.replace('objectives = ["cost"]', 'objectives = ["step-time", "cost"]')


def parsed(text: str) -> TomlDocument:
    import tomllib

    return TomlDocument(Path("study.toml"), text, tomllib.loads(text))


@cache
def study(text: str = TINY) -> Study:
    return reading.study(parsed(text), known())


def wrong(text: str) -> str:
    with pytest.raises(WrongQuestion) as caught:
        reading.study(parsed(text), known())
    return str(caught.value)


# ---- figures and files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("accelerator.memory", "bytes"),
        ("accelerator.memory_bandwidth", "bandwidth"),
        ("accelerator.peak.bf16", "compute"),
        ("node.scaleup_bandwidth", "bandwidth"),
        ("node.accelerators", "count"),
        ("fabric.nic_bandwidth", "bandwidth"),
        ("fabric.oversubscription", "number"),
        ("cluster.count", "count"),
        ("node", "name"),
    ],
)
def test_axes_are_the_catalogs_own_figures(path, kind):
    assert figures.paths()[figures.known(path)] == kind


def test_a_figure_is_changed_where_plans_read_it():
    base = study().base
    plain = figures.built(known(), base, {})
    for path, kind in figures.paths().items():
        before = figures.current(plain, path)
        if kind in ("bytes", "bandwidth", "compute", "power", "time", "number") and before is not None:
            value = float(before) * 0.875 if path.endswith("power") else float(before) * 1.0625
            assert figures.current(figures.built(known(), base, {path: value}), path) == value, path


def test_a_larger_pod_keeps_nics_watts_and_dollars_per_accelerator():
    base = replace(study().base, count=None, accelerators=64)
    small, large = (figures.built(known(), base, {"node.accelerators": n}) for n in (8, 16))
    assert large.accelerators == small.accelerators == 64
    assert large.node.nics == 2 * small.node.nics
    assert large.node.max_power == 2 * small.node.max_power
    assert [p.usd for p in large.node.prices] == [2 * p.usd for p in small.node.prices]


def test_equal_peaks_stay_equal():
    changed = figures.built(known(), study().base, {"accelerator.peak.bf16": 5e14})
    assert changed.accelerator.peak["fp16"] == changed.accelerator.peak["bf16"] == 5e14
    assert changed.accelerator.peak["fp8"] == known().accelerators[changed.accelerator.id].peak["fp8"]


def test_axes_without_quotes_and_ranges():
    text = TINY.replace('"accelerator.memory" = [', "accelerator.memory_bandwidth = [").replace("GiB", "TB/s", 3)
    read = reading.study(parsed(text.replace("[costs.per]", "[costs.per]")), known())
    axis = next(a for a in read.axes if a.path == "accelerator.memory_bandwidth")
    assert axis.values == (24e12, 48e12, 80e12)
    peak = next(a for a in read.axes if a.path == "accelerator.peak.bf16")
    assert peak.values == pytest.approx((2.5e14, 5e14, 1e15))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"accelerator.memory" =', '"accelerator.memroy" =', "did you mean accelerator.memory"),
        ('"accelerator.memory" = [', '"memory" = [', "accelerator.memory"),
        ('to = "1000 TFLOP/s"', 'to = "250 TFLOP/s"', "the range is empty"),
        ('["24 GiB", "48 GiB", "80 GiB"]', "[]", "the axis is empty"),
        ('"24 GiB"', "24", "has no unit"),
        ('"24 GiB"', '"24 GB/s"', "unknown unit"),
        ('"24 GiB"', '"48 GiB"', "appears twice"),
        ("points = 3", "points = 100000", "from 1 to 1,001"),
        ("points = 3, log = true", 'step = "2 PFLOP/s"', "one value is no axis"),
        ("points = 3", 'points = 3, step = "1 TFLOP/s"', "not both"),
        ("count = 1", "count = 1\naccelerators = 8", "either count (nodes) or accelerators"),
        ('node = "dgx-h100"', 'node = "dgx-h10"', "dgx-h100"),
        ('model = "llama3-8b"', 'model = "llama3-8"', "llama3-8b"),
        ('objectives = ["cost"]', 'objectives = ["price"]', "choose step-time"),
        ('objectives = ["cost"]', 'objectives = ["cots"]', "did you mean cost"),
        ('"$50 per GiB"', '"$50"', "per GiB"),
        ('"$50 per GiB"', '"50 W per GiB"', "unknown unit"),
        ("trials = 20", "trials = 0", "from 1"),
        ("trials = 20", "trails = 20", "did you mean trials"),
        ('basis = "purchase"', 'basis = "spot"', "a price of the catalog"),
        ("[costs]", '[[constraints]]\nof = "capital"\nat_most = "$1k"\n[costs]', "no point keeps it"),
        ("[costs]", '[[constraints]]\nof = "captial"\nat_most = "$1k"\n[costs]', "a measure"),
        ("[costs]", '[[constraints]]\nof = "power"\nat_most = "1 kW"\nat_least = "2 kW"\n[costs]', "2.00 kW and at"),
        (
            "[costs]",
            '[[constraints]]\nof = "cost"\nat_most = 1\n[[constraints]]\nof = "cost"\nat_least = 2\n[costs]',
            "contradiction",
        ),
        ("[costs]", '[[constraints]]\nof = "node.accelerators"\nat_least = 9\n[costs]', "no value of the axis"),
        ("[costs]", '[[constraints]]\nof = "power"\n[costs]', "limits nothing"),
        ("[costs]", '[[constraints]]\nof = "fabric.nic_bandwidth"\nat_most = "1 GB/s"\n[costs]', "no axis"),
        ('pins = ["recompute', 'pins = ["recompote', "did you mean recompute"),
        ("batch = 64", "weight = -1", "above 0"),
        ("batch = 64", 'mtp_layers = "1"', "a whole number"),
    ],
)  # fmt: skip
def test_wrong_studies_are_told_with_line_and_key(old, new, says):
    assert old in TINY
    told = wrong(TINY.replace(old, new, 1))
    assert says in told
    assert told.startswith("study.toml:")


def test_every_problem_is_told_at_once():
    told = wrong(TINY.replace('"24 GiB"', "24").replace('"cost"', '"price"').replace("llama3-8b", "llama9"))
    assert len(told.splitlines()) == 3


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_shipped_studies_can_be_read(path):
    problems: list[FileProblem] = []
    assert read_document(path, problems) is not None
    found = reading.read(path, known())
    assert found.size > 1 and found.name == path.stem


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(WrongQuestion):
            reading.read(path, known())


# ---- many machines ---------------------------------------------------------------------------------------------------


@cache
def small_problem(precision: str = "bf16") -> Any:
    asked = PlanOptions(batch="64", pin=("cp=1", "vpp=1|2", "micro=1", "recompute=none|full"), precision=precision)
    return problem(prepare(*request("llama3-8b", "dgx-h100:2", asked, known=known())), 1)


@settings(max_examples=4, deadline=None)
@given(
    data=st.lists(st.tuples(*[st.floats(0.2, 5.0)] * 4, st.floats(0.2, 1.5)), min_size=2, max_size=5),
    precision=st.sampled_from(["bf16", "bf16,fp8"]),
)
def test_many_machines_get_the_plans_of_each_alone(data, precision):
    asked = small_problem(precision)
    machines = []
    for matrix, memory, near, far, capacity in data:
        devices = {
            name: replace(d, matrix_rate=d.matrix_rate * matrix, memory_rate=d.memory_rate * memory)
            for name, d in asked.figures.devices.items()
        }
        network = asked.figures.network
        network = replace(network, scaleup=network.scaleup * near, pair=network.pair * near, nic=network.nic * far)
        machines.append(Machine(devices, network, asked.capacity * capacity))
    for machine, found in zip(machines, best_on_each(asked, machines), strict=True):
        alone = Bounded().search(on(asked, machine)).best
        assert found == (alone[0] if alone else None)


def test_machines_of_unlike_spaces_are_refused():
    asked = small_problem()
    machine = Machine(asked.figures.devices, asked.figures.network, asked.capacity)
    other = replace(machine, network=replace(machine.network, domain=4.0))
    with pytest.raises(ValueError, match="domain"):
        best_on_each(asked, [machine, other])


# ---- evaluation ------------------------------------------------------------------------------------------------------


def test_a_point_is_worth_what_plan_says():
    """The same step, dollars and joules as ``clusterwright plan`` prints for the base cluster."""
    text = """
    objectives = ["step-time", "cost", "energy"]
    [base]
    node = "dgx-h100"
    count = 2
    [axes]
    "accelerator.memory" = ["80 GiB", "160 GiB"]
    [[workloads]]
    model = "llama3-8b"
    batch = 64
    pins = ["cp=1", "micro=1"]
    """
    asked = study(text)
    found = Evaluator(known(), asked).one((0,)).objectives
    plan = api.plan("llama3-8b", "dgx-h100:2", batch="64", pin=("cp=1", "micro=1")).plans[0]
    assert found["step-time"] == plan.prediction.step_time_s
    assert plan.money.usd_total is not None and plan.energy.energy_j is not None
    assert found["cost"] == pytest.approx(plan.money.usd_total / plan.workload.tokens * 1e6, rel=1e-12)
    assert found["energy"] == pytest.approx(plan.energy.energy_j / plan.workload.tokens, rel=1e-12)


def test_one_by_one_and_side_by_side_agree():
    points = [study().point(n) for n in range(study().size)]
    together = Evaluator(known(), study()).many(points)
    alone = Evaluator(known(), study())
    for point, outcome in zip(points, together, strict=True):
        single = alone.one(point)
        assert single.objectives == outcome.objectives
        assert single.candidates == outcome.candidates
        assert single.feasible == outcome.feasible


def test_what_changes_a_price_alone_is_not_searched_again():
    text = TINY.replace('"node.accelerators" = [4, 8]', '"accelerator.tdp" = ["500 W", "700 W"]\nregion = ["us", "no"]')
    asked = study(text.replace('"accelerator.memory" = "$50 per GiB"', '"accelerator.tdp" = "$1 per W"'))
    evaluator = Evaluator(known(), asked)
    found = evaluator.many([asked.point(n) for n in range(asked.size)])
    assert len({outcome.objectives["cost"] for outcome in found if outcome.objectives}) > asked.size // 4
    assert evaluator.searches == 3 * 3 * 2


def test_what_breaks_a_limit_is_not_searched_for():
    asked = replace(study(), constraints=study(_limited("$60k")).constraints)
    evaluator = Evaluator(known(), asked)
    found = [evaluator.one(asked.point(n)) for n in range(asked.size)]
    over = [outcome for outcome in found if outcome.violations["capital at most"] > 0]
    assert over and len(over) < len(found)
    assert evaluator.searches <= len(found) - len(over)
    for outcome in found:
        assert (outcome.measures["capital"] > 6e4) == (outcome.violations["capital at most"] > 0)


def _limited(usd: str) -> str:
    return TINY.replace("[costs]", f'[[constraints]]\nof = "capital"\nat_most = "{usd}"\n[costs]', 1)


def test_a_point_where_nothing_fits_says_by_how_much():
    text = TINY.replace('"24 GiB"', '"4 GiB"')
    outcome = Evaluator(known(), study(text)).one((0, 0, 0, 0))
    assert not outcome.feasible and not outcome.objectives
    assert outcome.violations["memory"] > 0.5 and "memory" in outcome.why


def test_weights_share_the_objective():
    job = TINY[TINY.index("[[workloads]]") : TINY.index("[costs]")]
    both = study(TINY.replace(job, job + job.replace("llama3-8b", "mistral-7b").replace("batch", "weight = 3\nbatch")))
    alone = [replace(both, workloads=(work,)) for work in both.workloads]
    one, other, joined = (Evaluator(known(), s).one((2, 2, 1, 1)).objectives["cost"] for s in (*alone, both))
    assert joined == pytest.approx((one + 3 * other) / 4)


# ---- fronts ----------------------------------------------------------------------------------------------------------

POINTS = st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=12)


@given(POINTS)
def test_the_hypervolume_is_that_of_the_cells_below(points):
    costs = np.array(points, dtype=float)
    cells = np.stack(np.meshgrid(*[np.arange(7)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    covered = np.any(np.all(costs[None] <= cells[:, None], axis=-1), axis=-1)
    assert front.hypervolume(costs, [7.0, 7.0, 7.0]) == pytest.approx(float(np.count_nonzero(covered)))


@given(POINTS)
def test_the_front_is_what_nothing_beats(points):
    costs = np.array(points, dtype=float)
    kept = set(front.undominated(costs).tolist())
    for n, point in enumerate(costs):
        beaten = any(np.all(other <= point) and np.any(other < point) for other in costs)
        twin = any(np.array_equal(costs[k], point) for k in kept if k != n)
        assert (n in kept) == (not beaten and not (twin and n not in kept))


# ---- answers ---------------------------------------------------------------------------------------------------------


@cache
def whole(text: str = TINY) -> Any:
    return designing.design(known(), study(text), designing.How())


def test_small_studies_are_enumerated_and_their_best_is_the_best():
    found = whole()
    evaluator = Evaluator(known(), study())
    values = [evaluator.one(study().point(n)).objectives.get("cost", np.inf) for n in range(study().size)]
    assert found.search.exact and found.search.method == "enumerated" and found.search.tried == study().size
    assert found.best[0].objectives["cost"] == min(values)
    assert [p.objectives["cost"] for p in found.best] == sorted(values)[: len(found.best)]


def test_several_objectives_give_a_front():
    found = whole(TWO)
    feasible = [t.objectives for t in found.trials if t.feasible]
    for point in found.pareto:
        mine = point.objectives
        assert not any(
            all(other[k] <= mine[k] for k in mine) and any(other[k] < mine[k] for k in mine) for other in feasible
        )
    assert found.hypervolume is not None and 0 < found.hypervolume <= 1
    for name in found.question.objectives:
        assert min(each[name] for each in feasible) in [point.objectives[name] for point in found.best]


def test_plans_of_a_point_carry_its_cost():
    point = whole().best[0]
    plan = point.plan[0]
    assert plan.money.usd_total is not None
    assert plan.money.usd_total / plan.workload.tokens * 1e6 == pytest.approx(point.objectives["cost"])
    assert plan.cluster.pools[0].accelerator_memory_bytes == point.axes["accelerator.memory"]


def test_elasticities_are_those_of_the_plan():
    found = {each.axis: each for each in whole().sensitivity}
    evaluator = Evaluator(known(), study())
    best = whole().best[0].axes
    for path in ("accelerator.peak.bf16", "node.scaleup.bandwidth"):
        ends = [{**best, path: best[path] * f} for f in (0.99, 1.01)]
        low, high = (o.objectives["cost"] for o in evaluator.valued(ends, [(), ()]))
        assert found[path].elasticity == pytest.approx(np.log(high / low) / np.log(1.01 / 0.99))
    assert {s.value for s in found["accelerator.memory"].sweep} == set(study().axes[0].values)


def test_the_next_million_is_a_million():
    evaluator, best = Evaluator(known(), study()), whole().best[0].axes
    for each in sensitivity.next_million(evaluator, best):
        if each.basis == "searched again":
            more = evaluator.clusters.capital({**best, each.axis: each.value}) - evaluator.clusters.capital(best)
            assert more == pytest.approx(1e6, rel=1e-6)


def test_importances_of_a_small_study_are_its_functional_anova():
    found = whole()
    shares = found.importance
    assert set(shares) == {axis.path for axis in study().axes}
    together = sum(shares.values()) + sum(each.share for each in found.interactions)
    assert 0.9 < together <= 1 + 1e-9  # what is left takes three axes or more
    assert max(shares, key=lambda path: shares[path]) in ("accelerator.peak.bf16", "node.accelerators")
    assert found.importance_method.startswith("fANOVA, exact") and len(found.interactions) == 6


def test_what_trains_nowhere_is_left_out_of_the_decomposition():
    trained = np.ones((3, 4, 2), dtype=bool)
    trained[0] = False
    trained[1, 3, 1] = False
    assert [places.tolist() for places in importance.complete(trained)] == [[1, 2], [0, 1, 2], [0, 1]]
    assert all(len(places) for places in importance.complete(np.ones((2, 2), dtype=bool)))
    assert not importance.complete(np.zeros((2, 2), dtype=bool))[0].size


def test_a_functional_anova_is_its_closed_form():
    """``f = a x + b y + c x z + d`` with x, y, z independent and of mean 0: parts a^2 Vx, b^2 Vy, c^2 Vx Vz."""
    x, y, z = (np.linspace(-1, 1, n) for n in (3, 4, 5))
    a, b, c = 1.5, -0.7, 2.0
    values = a * x[:, None, None] + b * y[None, :, None] + c * x[:, None, None] * z + 9.0
    parts = [a**2 * np.var(x), b**2 * np.var(y), c**2 * np.var(x) * np.var(z)]
    alone, pairs = importance.decomposed(values)
    assert alone == pytest.approx([parts[0] / sum(parts), parts[1] / sum(parts), 0.0], abs=1e-12)
    assert pairs == pytest.approx({(0, 1): 0.0, (0, 2): parts[2] / sum(parts), (1, 2): 0.0}, abs=1e-12)
    assert importance.decomposed(np.ones((2, 3))) == ([0.0, 0.0], {})


@given(st.integers(0, 2**32 - 1))
def test_a_functional_anova_of_two_axes_leaves_nothing_over(seed):
    alone, pairs = importance.decomposed(np.random.default_rng(seed).normal(size=(3, 4)))
    assert sum(alone) + sum(pairs.values()) == pytest.approx(1.0)


def test_main_effects_of_a_sample_are_near_the_exact_ones():
    grid = [np.linspace(-1, 1, 40)] * 3
    x, y, z = np.meshgrid(*grid, indexing="ij")
    values = x + 0.5 * y + 0.3 * x * z
    exact, _ = importance.decomposed(values)
    errors = []
    for seed in range(8):
        places = np.floor(importance.spread(3, importance.SAMPLED, seed) * 40).astype(int)
        some = values[tuple(places.T)]
        groups = places * importance.GROUPS // 40
        errors.append([importance.explained(groups[:, n], some) - exact[n] for n in range(3)])
    assert np.abs(np.mean(errors, axis=0)).max() < 0.03
    assert np.abs(errors).max() < 0.12


def test_a_study_that_nothing_answers_says_what_is_in_the_way():
    text = TINY.replace("llama3-8b", "llama3-70b").replace('"24 GiB", "48 GiB", "80 GiB"', '"4 GiB", "8 GiB"')
    with pytest.raises(NoAnswer, match="memory"):
        designing.design(known(), study(text), designing.How())


def test_the_closest_of_what_breaks_a_limit_is_a_point_that_trains():
    text = TINY.replace("[costs]", '[[constraints]]\nof = "cost"\nat_most = 0.03\n[costs]', 1)
    with pytest.raises(NoAnswer, match=r"it misses cost at most by 1\d\.\d %"):
        designing.design(known(), study(text), designing.How())


def test_shards_merge_to_the_whole(tmp_path):
    paths = []
    for n in (1, 2, 3):
        part = designing.design(known(), study(TWO), designing.How(shard=(n, 3), explained=False))
        assert not part.search.exact and part.search.shards == (n,)
        paths.append(tmp_path / f"{n}.json")
        paths[-1].write_text(document.as_json(part))
    joined = merge.merge(known(), study(TWO), paths)
    assert joined.search.exact
    assert joined.trials == whole(TWO).trials
    assert joined.pareto == whole(TWO).pareto
    partly = merge.merge(known(), study(TWO), paths[:2], explained=False)
    assert not partly.search.exact and partly.search.shards == (1, 2) and partly.search.of_shards == 3
    with pytest.raises(WrongQuestion, match="appears twice"):
        merge.merge(known(), study(TWO), [paths[0], paths[0]])
    with pytest.raises(WrongQuestion, match="objectives"):
        merge.merge(known(), study(TINY), paths)


# ---- trials ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def searched(monkeypatch):
    """Small studies are searched by trials, not enumerated."""
    monkeypatch.setattr(designing, "SMALL", 0)


def by_trials(text, count, **more):
    how = designing.How(trials=count, explained=False, **more)
    return designing.design(known(), study(text), how)


@pytest.mark.parametrize("text", [TINY, TWO], ids=["TPE", "NSGA-II"])
def test_a_resumed_study_ends_as_one_that_ran_through(searched, tmp_path, text):
    straight = by_trials(text, 16)
    journal = str(tmp_path / "a.journal")
    by_trials(text, 7, storage=journal)
    resumed = by_trials(text, 16, storage=journal, resume=True)
    assert resumed.trials == straight.trials
    assert resumed.best == straight.best


def test_another_seed_tries_other_points(searched):
    assert by_trials(TINY, 8, seed=1).trials != by_trials(TINY, 8).trials


def test_a_changed_study_is_not_resumed(searched, tmp_path):
    journal = str(tmp_path / "a.journal")
    by_trials(TINY, 3, storage=journal)
    with pytest.raises(WrongQuestion, match="--resume continues"):
        by_trials(TINY, 3, storage=journal)
    changed = TINY.replace('"48 GiB"', '"40 GiB"').replace("$14 per", "$15 per")
    with pytest.raises(WrongQuestion, match=r"(?s)changed since.*axes\.accelerator\.memory\.values.*costs\.rates"):
        by_trials(changed, 3, storage=journal, resume=True)
    with pytest.raises(WrongQuestion, match="seed: 0 before, 5 now"):
        by_trials(TINY, 3, storage=journal, resume=True, seed=5)
    with pytest.raises(WrongQuestion, match="holds no study"):
        by_trials(TINY, 3, storage=str(tmp_path / "b.journal"), resume=True)


def test_what_is_no_journal_is_refused_and_left_alone(searched, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a journal\n")
    with pytest.raises(WrongQuestion, match="not a journal"):
        by_trials(TINY, 3, storage=str(path), resume=True)
    assert path.read_text() == "not a journal\n"
    for place in (tmp_path, tmp_path / "no" / "where.journal"):
        with pytest.raises(WrongQuestion, match="folder"):
            by_trials(TINY, 3, storage=str(place))


def test_no_trial_is_spent_on_what_is_known_to_break_a_limit(searched):
    """What a cluster costs is known without a plan; and no point is tried twice while others are left."""
    text = _limited("$110k")
    asked = study(text)
    kept = [n for n in range(asked.size) if Evaluator(known(), asked).allowed(asked.point(n))]
    assert len(kept) == 22
    found = by_trials(text, 20)
    assert all(t.measures["capital"] <= 1.1e5 for t in found.trials)
    assert len({tuple(t.axes.values()) for t in found.trials}) == 20
    several = by_trials(
        text.replace('["cost"]', '["step-time", "cost"]'), 36
    )  # 4 children of NSGA-II after 32 at random
    assert sum(t.measures["capital"] <= 1.1e5 for t in several.trials) >= 22


def test_points_are_alike_where_what_differs_changes_nothing():
    axis = '"accelerator.memory" = ["24 GiB", "48 GiB", "80 GiB"]'
    asked = study(TINY.replace(axis, '"fabric.oversubscription" = [1, 2, 4]\nregion = ["us", "no"]'))
    evaluator, of = Evaluator(known(), asked), {}
    outcomes = evaluator.many([asked.point(number) for number in range(asked.size)])
    for each in outcomes:
        of.setdefault(evaluator.plan_key(each.point), set()).add((each.point[1:], tuple(each.objectives.values())))
    assert len(of) == asked.size // 3  # one node has no spine
    assert all(len(each) == 1 for each in of.values())  # and what a place costs is not alike


class Tried:
    """Trials of a study that is not Optuna's: what proposals look at."""

    def __init__(self, points, worth):
        from optuna.study import StudyDirection
        from optuna.trial import TrialState

        self.directions = [StudyDirection.MINIMIZE]
        axes = study().axes
        self.trials = [
            types.SimpleNamespace(
                number=n, values=[worth(p)], constraints={}, state=TrialState.COMPLETE,
                params={axis.path: place for axis, place in zip(axes, p, strict=True)},
            )
            for n, p in enumerate(points)
        ]  # fmt: skip

    def get_trials(self, deepcopy, states):
        return self.trials


def test_sweeps_find_a_valley_behind_a_ridge_and_pay_for_one_thing_with_another():
    def worth(p):
        return float(sum(p))

    asked = study()
    best = (0, 1, 0, 0)
    found, place = Tried([best], worth), set()
    for seed in range(60):
        params = optuna_samplers.swept(asked, found, seed, optuna_samplers.KnownPoints())
        if params is None:
            break
        here = optuna_samplers.point(asked, params)
        place.add(here)
        found.trials += Tried([here], lambda p: 99.0).trials
    alone = {p for p in place if sum(a != b for a, b in zip(p, best, strict=True)) == 1}
    assert alone == {(1, 1, 0, 0), (2, 1, 0, 0), (0, 0, 0, 0), (0, 2, 0, 0), (0, 1, 1, 0), (0, 1, 0, 1)}
    assert {(1, 2, 0, 0), (1, 0, 0, 0), (1, 1, 1, 0), (0, 1, 1, 1)} <= place
    assert params is None and len(place) == 6 + 9
    only = optuna_samplers.swept(
        asked, Tried([best], worth), 3, optuna_samplers.KnownPoints(lambda p: p == (1, 2, 0, 0))
    )
    assert optuna_samplers.point(asked, only) == (1, 2, 0, 0)


# ---- journals --------------------------------------------------------------------------------------------------------


def whole_with(place, text=TINY, **more):
    how = designing.How(storage=str(place), explained=False, **more)
    return designing.design(known(), study(text), how)


def test_an_enumeration_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    place = tmp_path / "points.journal"
    monkeypatch.setattr(designing, "CHUNK", 5)
    many, seen = Evaluator.many, []

    def stopped(self, points, advance=None):
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(len(points))
        return many(self, points, advance)

    monkeypatch.setattr(Evaluator, "many", stopped)
    with pytest.raises(KeyboardInterrupt):
        whole_with(place)
    with place.open("a") as end:
        end.write('{"number": 15, "outc')  # as if it had been killed while writing
    again = []
    monkeypatch.setattr(Evaluator, "many", lambda self, points: again.append(len(points)) or many(self, points))
    found = whole_with(place, resume=True)
    assert sum(again) == study().size - 15
    assert found.trials == whole().trials and found.search.exact
    assert len(place.read_text().splitlines()) == 1 + study().size
    again.clear()
    assert whole_with(place).trials == found.trials and not sum(again)


def test_an_enumerations_journal_is_held_to_its_question(searched, tmp_path, monkeypatch):
    points, journal, notes = (tmp_path / name for name in ("points.journal", "trials.journal", "notes.txt"))
    by_trials(TINY, 3, storage=str(journal))
    monkeypatch.setattr(designing, "SMALL", 1500)
    whole_with(points)
    notes.write_text("not a journal\n")
    for place, text, more, says in [
        (points, TINY.replace("$14 per", "$15 per"), {}, r"(?s)another study.*costs\.rates"),
        (tmp_path / "none.journal", TINY, {"resume": True}, "leave it out to begin"),
        (journal, TINY, {}, "every point is evaluated; name another"),
        (notes, TINY, {}, "not a journal"),
        ("postgresql://me:secret@host/x", TINY, {}, "--storage postgresql://host/x: every point"),
    ]:
        before = Path(place).read_text() if Path(place).exists() else None
        with pytest.raises(WrongQuestion, match=says):
            whole_with(place, text, **more)
        assert before is None or Path(place).read_text() == before
    monkeypatch.setattr(designing, "SMALL", 0)
    with pytest.raises(WrongQuestion, match="not a journal of a study's trials"):
        by_trials(TINY, 3, storage=str(points))
    lines = points.read_text().splitlines()
    points.write_text("\n".join([lines[0], '{"number": "x", "outcome": {}}', *lines[2:]]) + "\n")
    monkeypatch.setattr(designing, "SMALL", 1500)
    with pytest.raises(WrongQuestion, match=r"points.journal:2: not a line"):
        whole_with(points)


LONG = """
import sys
from pathlib import Path
from planner import catalog
from planner.study import run
from planner.study.question import reading
run.SMALL = 0
study = reading.read(Path(sys.argv[1]), catalog.load())
run.design(catalog.load(), study, run.How(trials=34, storage=sys.argv[2], explained=False))
"""


def test_a_killed_study_loses_at_most_the_trial_it_was_in(searched, tmp_path):
    file, journal = tmp_path / "study.toml", tmp_path / "a.journal"
    file.write_text(TWO)
    worker = subprocess.Popen([sys.executable, "-c", LONG, str(file), str(journal)], cwd=ROOT)
    while not journal.exists() or journal.read_bytes().count(b'"outcome"') < 6:
        assert worker.poll() is None
        time.sleep(0.02)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    with journal.open("ab") as end:
        end.write(b'{"op_code": 4, "wor')  # as if it had been killed while writing
    finished = journal.read_bytes().count(b'"outcome"')
    resumed = by_trials(TWO, finished + 4, storage=str(journal), resume=True)
    straight = by_trials(TWO, finished + 4)
    assert len(resumed.trials) == finished + 4
    # A lost trial's number is not used again; the points are those of a study that ran through.
    assert [t.axes for t in resumed.trials] == [t.axes for t in straight.trials]
    assert resumed.trials[-1].number - straight.trials[-1].number in (0, 1)
    store = optuna_storage.storage(str(journal))
    assert sum(t.state.name == "RUNNING" for t in store.get_all_trials(0)) == 0


def test_two_workers_share_a_journal(searched, tmp_path):
    found = by_trials(TINY, 10, storage=str(tmp_path / "a.journal"), workers=2)
    assert len(found.trials) == 10
    assert found.meta["workers"] == 2
    with pytest.raises(WrongQuestion, match="--storage"):
        by_trials(TINY, 10, workers=2)


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_report_and_a_document(tmp_path, capsys):
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    assert run("design", str(file)) == 0
    said = capsys.readouterr().out
    assert "enumerated exactly" in said and "Next $1M" in said and "Search" in said
    assert run("design", str(file), "--json") == 0
    written = json.loads(capsys.readouterr().out)
    assert written["kind"] == "study" and written["schema_version"] == 1
    assert {"trials", "best", "pareto", "sensitivity", "importance"} <= set(written)
    assert all(len(trial["axes"]) == 4 for trial in written["trials"])
    assert written["best"][0]["plan"][0]["kind"] == "plan"


def test_the_command_refuses_kindly(tmp_path, capsys):
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    for args, says in [
        (["--shard", "4/3"], "--shard 4/3"),
        (["other.toml"], "one study at a time"),
        (["--trials", "0"], "--trials"),
        (["--resume"], "nothing was kept"),
        (["--storage", "postgresql://host/x"], "every point"),
    ]:
        assert run("design", str(file), *args) == 2
        assert says in capsys.readouterr().err
    assert run("design", "merge", str(file)) == 2
    assert "merge what" in capsys.readouterr().err
    assert run("design", "merge", str(file), str(file)) == 2
    assert "a document is JSON" in capsys.readouterr().err


def test_questions_differ_line_by_line():
    before = document.dump(answer.question(study()))
    now = document.dump(answer.question(study(TINY.replace("count = 1", "count = 2"))))
    assert list(optuna_storage.differences(before, now)) == ["base.count: 1 before, 2 now"]
