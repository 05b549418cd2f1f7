"""The answer to a study: its front, its best points, elasticities, importances, shards merged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.base.errors import NoAnswer, WrongQuestion
from planner.planning import document
from planner.study import merge
from planner.study import run as designing
from planner.study.answer import importance, pareto, per_dollar, sensitivity
from planner.study.program.evaluation import Evaluator
from tests.designing import TINY, TWO, known, study, whole

POINTS = st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=12)


@given(POINTS)
def test_the_hypervolume_is_that_of_the_cells_below(points):
    costs = np.array(points, dtype=float)
    cells = np.stack(np.meshgrid(*[np.arange(7)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    covered = np.any(np.all(costs[None] <= cells[:, None], axis=-1), axis=-1)
    assert pareto.hypervolume(costs, [7.0, 7.0, 7.0]) == pytest.approx(float(np.count_nonzero(covered)))


@given(POINTS)
def test_the_front_is_what_nothing_beats(points):
    costs = np.array(points, dtype=float)
    kept = set(pareto.undominated(costs).tolist())
    for n, point in enumerate(costs):
        beaten = any(np.all(other <= point) and np.any(other < point) for other in costs)
        twin = any(np.array_equal(costs[k], point) for k in kept if k != n)
        assert (n in kept) == (not beaten and not (twin and n not in kept))


@pytest.mark.slow
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


def test_figure_per_dollar_is_the_ratio_of_two_plans():
    """1 % more capital for a figure shortens the step by so many per cent: of two clusters, priced by themselves."""
    evaluator = Evaluator(known(), study())
    answered = whole()
    rows = {(figure.at, figure.axis): figure for figure in answered.per_dollar}

    peak = rows["base", "accelerator.peak.bf16"]
    base = per_dollar.base_values(evaluator)
    ends = [base, {**base, peak.axis: 1.1 * base[peak.axis]}]
    steps = [evaluator.valued([values], [()])[0].candidates[0].time for values in ends]
    usd = [evaluator.clusters.capital(values) for values in ends]

    assert base[peak.axis] == known().accelerator("H100-SXM5-80GB").peak["bf16"]
    assert peak.step == pytest.approx(steps[1] / steps[0] - 1)
    assert peak.usd == pytest.approx(usd[1] - usd[0])
    costs = [evaluator.valued([values], [()])[0].objectives["cost"] for values in ends]
    assert peak.token == pytest.approx(costs[1] / costs[0] - 1), "power and facility are in it, so that it may not pay"
    assert peak.per_percent == pytest.approx(np.log(steps[1] / steps[0]) / np.log(usd[1] / usd[0]))
    ranked = [figure.token / figure.usd for figure in answered.per_dollar if figure.at == "best" and figure.usd]
    assert ranked == sorted(ranked) and len(ranked) > 1


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


@pytest.mark.slow
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
