"""Layers to different stages: what the planner finds, and the dynamic program of the tests, against every deal."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.mixed.layer_split import StageCosts, split_layers, stage_times
from tests.layer_splits import best_split, one

LAYERS = 9


def random_stages(seed: int, pipelines: int = 4, stages: int = 3) -> StageCosts:
    """Stages of which each later policy is slower and roomier; the first must hold some layers."""
    rng = np.random.default_rng(seed)
    each = np.sort(rng.uniform(1, 4, (pipelines, stages, 2)), axis=-1)
    room = np.sort(rng.integers(0, LAYERS + 1, (pipelines, stages, 2)), axis=-1).astype(float)
    least = np.ones(stages, dtype=np.int64)
    least[0] = rng.integers(1, 3)
    return StageCosts(each, room, rng.uniform(0, 2, (pipelines, stages, 2)), least)


def every_deal(of: StageCosts) -> list[tuple[float, float]]:
    """(slowest, total) of every deal of all layers that fits, of the first pipeline."""
    found = []
    stages = of.fixed.shape[1]
    for layers in itertools.product(range(1, LAYERS + 1), repeat=stages):
        if sum(layers) == LAYERS and all(n >= low for n, low in zip(layers, of.least, strict=True)):
            times, _ = stage_times(of, np.array([layers]))
            if np.all(np.isfinite(times)):
                found.append((float(times.max()), float(times.sum())))
    return found


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), micro_batches=st.integers(1, 40))
def test_the_dynamic_program_finds_the_best_of_all_deals(seed: int, micro_batches: int) -> None:
    of = one(random_stages(seed), 0)
    known = every_deal(of)
    if not known:
        with pytest.raises(ValueError, match="do not fit"):
            best_split(of, LAYERS, micro_batches)
        return
    dealt, time = best_split(of, LAYERS, micro_batches)
    assert time == pytest.approx(min((micro_batches - 1) * slow + total for slow, total in known), rel=1e-12)
    assert dealt.sum() == LAYERS
    times, _ = stage_times(of, dealt[None])
    assert (micro_batches - 1) * times.max() + times.sum() == pytest.approx(time, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_many_pipelines_at_once_have_the_fastest_slowest_stage(seed: int) -> None:
    of = random_stages(seed, pipelines=5)
    found = split_layers(of, LAYERS)
    for index in range(5):
        known = every_deal(one(of, index))
        best = min((slow for slow, _ in known), default=float("inf"))
        assert found.slowest[index] == pytest.approx(best, rel=1e-9)
        if known:
            assert found.layers[index].sum() == LAYERS
            times, _ = stage_times(one(of, index), found.layers[index : index + 1])
            assert times.sum() == pytest.approx(found.total[index])


def test_like_stages_share_evenly() -> None:
    of = StageCosts(np.ones((1, 3, 1)), np.full((1, 3, 1), 9.0), np.zeros((1, 3, 1)), np.ones(3, dtype=np.int64))
    assert split_layers(of, LAYERS).layers.tolist() == [[3, 3, 3]]
    assert best_split(of, LAYERS, 8)[0].tolist() == [3, 3, 3]
