"""What docs/case-studies.md says of Transformer-1T holds, computed anew; COMET's own figures are not among it."""

import math

import pytest

from docs import case_studies as study
from docs import case_study_recommender as recommender
from tests.sweeps import sweep
from tests.test_golden import ZERO


@sweep("case", ZERO["case"], ids=lambda case: str(case["mp"]))
def test_states_are_the_zero_tables(case):
    for stage in range(4):
        assert study.states(case["mp"], stage) == pytest.approx(case[f"z{stage}_GB"], rel=ZERO["relative_tolerance"])


def times(degrees, **more):
    found = {mp: study.best(study.pods(), f"tp={mp} {study.ZERO_2}", **more) for mp in degrees}
    return {mp: plan.time if plan else math.inf for mp, plan in found.items()}


def test_without_expansion_the_optimum_is_at_64_model_parallel_ranks():
    found = times(study.DEGREES)
    assert min(found, key=lambda mp: found[mp]) == 64
    assert all(math.isinf(found[mp]) for mp in (1, 2, 4, 8, 16, 32))


def test_with_memory_free_the_optimum_stays_in_the_pod():
    found = times(study.DEGREES, unlimited=True)
    assert min(found, key=lambda mp: found[mp]) <= study.POD
    outside = [found[mp] for mp in study.DEGREES if mp >= study.POD]
    assert outside == sorted(outside)


@pytest.mark.parametrize("access", ["serial", "concurrent"])
def test_expanded_memory_gains_and_saturates(access):
    base = study.best(study.pods(), study.ZERO_2)
    by_rate = [study._gain(base, study.ZERO_2, 1600, rate, access) for rate in (64, 256, 1024, 4096)]
    by_size = [study._gain(base, study.ZERO_2, size, 512, access) for size in (100, 400, 1600, 6400)]
    for gains in (by_rate, by_size):
        assert gains == sorted(gains)
        assert gains[0] > 1
        assert gains[-1] / gains[-2] < 1.02


def test_bandwidth_between_pods_matters_more_where_model_parallelism_leaves_the_pod():
    def ratio(pins):
        slow, fast = (study.best(study.pods(nic=rate * study.GB), pins, unlimited=True).time for rate in (12.5, 50))
        return slow / fast

    assert ratio(f"tp=64 {study.ZERO_2}") > ratio(f"tp=8 {study.ZERO_2}") > 1


def test_a_recommender_with_expanded_memory_needs_fewer_ranks():
    alone = recommender.least_ranks(80)
    assert recommender.served(alone // 2).per_rank + recommender.RESERVED > 80
    spilt = 1 - (80 - recommender.RESERVED) / recommender.served(8).per_rank
    slow, fast = (recommender.served(8, spilt=spilt, rate=rate).time for rate in (64, 1024))
    assert slow > fast > recommender.served(8).time


def test_a_recommenders_bandwidth_counts_where_its_vectors_pass():
    """In one pod that inside it alone; beyond, that between pods far more."""

    def gains(ranks):
        base = recommender.served(ranks).time
        return [base / recommender.served(ranks, **more).time for more in ({"scaleup": 600}, {"nic": 50})]

    inside, between = gains(8)
    assert inside > 1.1 and between == 1
    inside, between = gains(64)
    assert between > 1.5 > 1.05 > inside >= 1


def test_a_recommenders_throughput_grows_with_compute_and_levels_off():
    for ranks in recommender.SCALED:
        times = [recommender.served(ranks, compute=factor).time for factor in (0.25, 0.5, 1, 2, 4, 8)]
        assert times == sorted(times, reverse=True)
        assert times[-2] / times[-1] < 1.01 < times[0] / times[1]
