"""What residuals are made of: parts that were put in come out, and everything adds up."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs import residuals
from planner import catalog
from planner.calibration.fit.frame import Frame
from planner.figures.efficiency import Efficiencies
from tests.sources import runs_of

RUNS = Path(__file__).resolve().parent.parent / "benchmarks" / "data" / "measured_runs.csv"


@pytest.fixture(scope="module")
def frame():
    known = catalog.load()
    wanted = ("megatron-bridge", "torchtitan", "korthikanti-2022")
    return Frame(known, runs_of(RUNS, known, lambda row: row["source"] in wanted))


@pytest.fixture(scope="module")
def shared(frame):
    using = Efficiencies.of(frame.catalog)
    return residuals.shares(frame, using, frame.predict(using).row)


def chance_shares(chance, runs_, effects):
    drawn = chance.uniform(0.05, 1.0, (runs_, effects))
    return drawn / drawn.sum(axis=1, keepdims=True)


# ---- effects ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_effects_make_up_the_whole_step(shared):
    names, share = shared
    assert share.sum(axis=1) == pytest.approx(1.0)
    assert share.min() >= -1e-12
    assert len(names) == share.shape[1]


def test_every_part_of_a_breakdown_is_an_effect(frame):
    from planner import cost

    parts = cost.breakdown(frame.grid(Efficiencies.of(frame.catalog)))
    assert sorted(parts) == sorted(part for made_of in residuals.EFFECTS.values() for part in made_of)


def test_only_mixtures_suffer_from_uneven_experts(frame, shared):
    names, share = shared
    uneven = share[:, names.index(residuals.IMBALANCE)]
    dense = np.array([run.family == "dense" for run in frame.runs])
    assert np.all(np.abs(uneven[dense]) < 1e-9)


def test_a_factor_on_one_effect_is_found(shared):
    """Times as they would be with slower attention: the residual is put down to attention and its factor comes out."""
    names, share = shared
    attention = names.index("attention")
    residual = -np.log1p(0.2 * share[:, attention])
    effects, rest = residuals.by_effect(residual, names, share)
    assert effects[0].name == "attention"
    assert effects[0].factor == pytest.approx(1.2, abs=0.04)
    assert effects[0].explained > 2 * effects[1].explained
    assert rest < 0.02


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), effects=st.integers(1, 6))
def test_what_effects_explain_adds_up_in_any_order(seed, effects):
    chance = np.random.default_rng(seed)
    share = chance_shares(chance, 30, effects)
    residual = chance.normal(0.05, 0.1, 30)
    names = [f"effect {k}" for k in range(effects)]
    found, rest = residuals.by_effect(residual, names, share)
    assert sum(each.explained for each in found) + rest == pytest.approx(1.0)
    assert all(each.explained >= -1e-12 for each in found)
    order = chance.permutation(effects)
    again, _ = residuals.by_effect(residual, [names[k] for k in order], share[:, order])
    explained = {each.name: each.explained for each in again}
    assert explained == pytest.approx({each.name: each.explained for each in found})


def test_like_effects_share_what_they_explain():
    chance = np.random.default_rng(1)
    share = chance_shares(chance, 40, 2)
    twice = np.column_stack([share[:, 0] / 2, share[:, 0] / 2, share[:, 1]])
    found, _ = residuals.by_effect(-0.3 * share[:, 0], ["a", "b", "c"], twice)
    by_name = {each.name: each.explained for each in found}
    assert by_name["a"] == pytest.approx(by_name["b"])


def test_effects_that_hardly_take_time_are_not_asked_about():
    share = np.tile([0.999, 0.001], (10, 1))
    found, _ = residuals.by_effect(np.full(10, 0.1), ["much", "little"], share)
    assert [each.name for each in found] == ["much"]


# ---- groups ----------------------------------------------------------------------------------------------------------


def made(chance, sources=8, each=30, source=0.1, scatter=0.05, bias=0.0):
    labels = [f"source {i}" for i in range(sources) for _ in range(each)]
    effect = np.repeat(chance.normal(0.0, source, sources), each)
    return bias + effect - effect.mean() + chance.normal(0.0, scatter, sources * each), labels


def test_the_parts_of_a_residual_add_up():
    residual, labels = made(np.random.default_rng(2), bias=0.03)
    other = [str(i % 7) for i in range(len(residual))]
    parts = residuals.by_group(residual, {"source": labels, "model": other})
    assert [part.name for part in parts] == ["all runs", "source", "model", "scatter"]
    assert [part.levels for part in parts] == [1, 8, 7, len(residual)]
    assert sum(part.share for part in parts) == pytest.approx(1.0)


def test_what_sources_share_is_told_from_scatter():
    residual, labels = made(np.random.default_rng(3))
    other = [str(i % 7) for i in range(len(residual))]
    common, source, model, scatter = residuals.by_group(residual, {"source": labels, "model": other})
    between = np.var([residual[np.array(labels) == name].mean() for name in set(labels)]) / np.mean(residual**2)
    assert source.share == pytest.approx(between, abs=0.03)
    assert scatter.size == pytest.approx(0.05, rel=0.1)
    assert common.share < 0.02
    assert abs(model.share) < 0.02


def test_a_bias_of_all_runs_is_told_apart():
    residual, labels = made(np.random.default_rng(4), source=0.0, scatter=0.02, bias=0.1)
    common, source, _ = residuals.by_group(residual, {"source": labels})
    assert common.share == pytest.approx(residual.mean() ** 2 / np.mean(residual**2))
    assert source.share < 0.02


def test_few_runs_are_not_taken_at_their_word():
    """Labels that mean nothing, two runs each: a plain mean of two would explain half of pure noise."""
    residual = np.random.default_rng(5).normal(0.0, 0.1, 120)
    _, pairs, scatter = residuals.by_group(residual, {"pair": [i // 2 for i in range(120)]})
    assert pairs.share < 0.25
    assert scatter.share > 0.75


def test_groups_that_say_nothing_are_left_out():
    residual = np.random.default_rng(6).normal(0.0, 0.1, 12)
    parts = residuals.by_group(residual, {"one": ["a"] * 12, "own": list(range(12))})
    assert [part.name for part in parts] == ["all runs", "scatter"]


# ---- like runs -------------------------------------------------------------------------------------------------------


def test_repeats_are_runs_of_one_configuration(frame):
    same = residuals.repeats(frame.runs, across_releases=False)
    across = residuals.repeats(frame.runs, across_releases=True)
    assert same is not None
    assert across is not None
    assert across.runs > same.runs
    assert 0 < same.error < 0.2


def test_repeats_count_a_pair_by_its_own_difference(frame):
    from dataclasses import replace

    first = next(run for run in frame.runs if run.measured)
    pair = [replace(first, measured=1.0), replace(first, id="again", measured=np.exp(0.1))]
    found = residuals.repeats(pair, across_releases=False)
    assert found == residuals.Repeats(1, 2, pytest.approx(0.05 * np.sqrt(2)))
    newer = [pair[0], replace(pair[1], release="another")]
    assert residuals.repeats(newer, across_releases=False) is None
    assert residuals.repeats(newer, across_releases=True) == found
