"""The error of the difference of two plans: what they share cancels."""

from dataclasses import replace

import numpy as np
import pytest

from planner import catalog
from planner.calibration.fit.evidence import Pairs, held
from planner.figures import conformal_intervals, plan_differences
from planner.figures.plan_differences import APART, BY_DISTANCE
from planner.planning import comparison
from planner.schema.plan import Interval
from tests.launchers.spread import Case, plan

STEP = {"matrix": 6.0, "tp": 3.0, "bubble": 1.0}


def made(sources: int = 20, pairs: int = 300) -> Pairs:
    """Pairs whose residuals are normal of standard deviation 0.05 + 0.3 d, d from 0 to 0.5."""
    rng = np.random.default_rng(1)
    apart = rng.uniform(0.0, 0.5, sources * pairs)
    names = np.repeat([f"source {n}" for n in range(sources)], pairs)
    return Pairs(rng.normal(0.0, 0.05 + 0.3 * apart), apart, names)


def test_distance_is_symmetric_and_the_part_that_is_of_other_causes() -> None:
    """Shares 0.6, 0.3, 0.1 and 0.5, 0.25, 0, 0.25: half of 0.1 + 0.05 + 0.1 + 0.25."""
    other = {"matrix": 10.0, "tp": 5.0, "recompute": 5.0}
    assert plan_differences.distance(STEP, other) == pytest.approx(0.25)
    assert plan_differences.distance(other, STEP) == plan_differences.distance(STEP, other)
    assert plan_differences.distance(STEP, {"cp": 1.0}) == pytest.approx(1.0)
    assert plan_differences.distance(STEP, {cause: 2.0 * s for cause, s in STEP.items()}) == pytest.approx(0.0)


def test_fit_finds_the_terms_that_pairs_were_made_of() -> None:
    """80 % of a normal variable lie within 1.28 standard deviations; 21/20 of 80 % within 1.41."""
    every = made()
    known = plan_differences.fitted(every.residual, every.apart, every.source)
    assert known[APART].half == pytest.approx(1.41 * 0.05, rel=0.15)
    assert known[BY_DISTANCE].half == pytest.approx(1.41 * 0.3, rel=0.1)


def test_intervals_hold_the_pairs_of_a_source_left_out() -> None:
    assert 0.78 < np.mean(list(held(made()).values())) < 0.9


def test_a_source_of_many_pairs_counts_as_one_of_few() -> None:
    """Of 20 sources one repeats its pairs a hundred times."""
    every = made(pairs=100)
    rows = np.concatenate([np.arange(len(every.apart)), np.tile(np.arange(100), 100)])
    known, more = (
        plan_differences.fitted(pairs.residual, pairs.apart, pairs.source)
        for pairs in (every, Pairs(every.residual[rows], every.apart[rows], every.source[rows]))
    )
    assert more[APART].half == pytest.approx(known[APART].half, rel=0.02)


def test_few_sources_make_no_fit() -> None:
    every = made(sources=3)
    assert plan_differences.fitted(every.residual, every.apart, every.source) == {}
    assert plan_differences.half_width({}, 0.1) is None


def test_the_shipped_terms_make_near_plans_surer_than_far_ones() -> None:
    known = conformal_intervals.read(catalog.load())
    near, far = (plan_differences.half_width(known, apart) for apart in (0.01, 0.5))
    assert near is not None and far is not None and 0.0 < near < far


def test_identical_plans_differ_by_nothing() -> None:
    one = plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "zero=0"))
    found = comparison.compare(one, one)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high, found.distinguishable) == (1.0, 1.0, False)
    assert comparison.faster(found) == "the same"


def test_plans_that_share_no_machine_err_independently() -> None:
    one = plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "zero=0"))
    other = replace(one, runtime=replace(one.runtime, name="other"))
    found = comparison.compare(one, other)
    interval = one.prediction.intervals["step_time_s"]
    assert found.interval is not None
    ratio = interval.high / interval.low
    assert found.interval.high / found.interval.low == pytest.approx(ratio ** (2.0**0.5))


def test_a_difference_is_said_with_its_interval_or_called_indistinguishable() -> None:
    far, near = Interval(low=1.1, high=1.1 * 1.44, basis=""), Interval(low=0.9, high=0.9 * 1.21, basis="")
    words = ("slower", "faster")
    assert comparison.in_words(far, *words) == "32.0 % slower (80 %: 10.0 to 58.4 %)"
    assert comparison.in_words(near, *words) == "not distinguishable (-1.0 ± 10 %)"
    faster = Interval(low=0.5, high=0.72, basis="")
    assert comparison.in_words(faster, *words) == "40.0 % faster (80 %: 28.0 to 50.0 %)"
