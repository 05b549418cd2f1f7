"""Uneven batches: water filling against linear and integer programs, learning online, the noise scale, goodput."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.base.errors import NoAnswer
from planner.base.solver import Problem, total
from planner.rebalancing import Epoch, NodeModel, Nodes, batch_choice, batch_split, nodes, step_time
from planner.rebalancing.batch_split import compute_time, even, sync_start
from tests.sweeps import sweep

REGIMES = ("compute", "communication", "mixed")


def random_nodes(seed: int, n: int, regime: str) -> tuple[Nodes, int]:
    """Nodes of speeds 1 to 4 and a batch, so that the best split is bound by what `regime` says."""
    rng = np.random.default_rng(seed)
    speed = rng.uniform(1, 4, n)
    q, k = rng.uniform(0.2e-3, 0.6e-3, n) * speed, rng.uniform(0.4e-3, 1.2e-3, n) * speed
    s, m = rng.uniform(1e-3, 5e-3, n), rng.uniform(1e-3, 5e-3, n)
    batch = int(rng.integers(32 * n, 256 * n))
    gamma = float(rng.uniform(0.05, 0.4))
    overlapped = {"compute": 0.0, "communication": 10.0, "mixed": float(rng.uniform(0.0, 0.2))}[regime]
    return nodes(q, s, k, m, gamma=gamma, overlapped=overlapped, last=float(rng.uniform(0.001, 0.02))), batch


def program(of: Nodes, batch: int, *, whole: bool) -> float:
    """The least step time by a linear or integer program over the nodes that take part, all subsets tried."""
    best = float("inf")
    for size in range(1, of.n + 1):
        for part in itertools.combinations(range(of.n), size):
            found = _over(of, part, batch, whole)
            best = min(best, found)
    return best


def _over(of: Nodes, part: tuple[int, ...], batch: int, whole: bool) -> float:
    asked = Problem()
    time = asked.continuous("T")
    count = asked.integer if whole else asked.continuous
    b = {i: count(f"b{i}", high=float(of.cap[i])) for i in part}
    asked.minimise(time)
    last, overlapped = float(of.last), float(of.overlapped)
    for i in part:
        q, s, k, m, gamma = (float(getattr(of, name)[i]) for name in ("q", "s", "k", "m", "gamma"))
        asked.constrain((q + k) * b[i] + (s + m + last) <= time, f"compute_{i}")
        communication = (q + gamma * k) * b[i] + (s + gamma * m + overlapped + last)
        asked.constrain(communication <= time, f"communication_{i}")
    asked.constrain(total(b.values()) == batch, "batch")
    return asked.solve(gap=0.0, tolerance=1e-10).objective


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 3), regime=st.sampled_from(REGIMES))
def test_water_filling_is_the_linear_optimum(seed: int, n: int, regime: str) -> None:
    of, batch = random_nodes(seed, n, regime)
    found = batch_split.optimum(of, batch)
    assert float(found.time) == pytest.approx(program(of, batch, whole=False), rel=1e-9)
    assert np.sum(found.batches) == pytest.approx(batch, rel=1e-12)
    assert float(step_time(of, found.batches)) == pytest.approx(float(found.time), rel=1e-9)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), regime=st.sampled_from(REGIMES))
def test_whole_samples_are_the_integer_optimum(seed: int, regime: str) -> None:
    of, _ = random_nodes(seed, 3, regime)
    batch = 5 + seed % 60
    found = batch_split.whole(of, batch)
    assert np.array_equal(found.batches, np.round(found.batches)) and np.sum(found.batches) == batch
    exact = program(of, batch, whole=True)
    assert float(found.time) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("regime", ["compute", "communication"])
def test_bound_nodes_finish_together(regime: str) -> None:
    of, batch = random_nodes(3, 8, regime)
    times = (compute_time if regime == "compute" else sync_start)(of, batch_split.optimum(of, batch).batches)
    assert np.ptp(times) < 1e-9 * np.max(times)


def test_mixed_regime_joins_both() -> None:
    """Compute-bound nodes end together, the others start ``T_o`` before."""
    of = nodes([1e-3, 1e-3], 1e-3, [0.1e-3, 4e-3], 1e-3, gamma=0.2, overlapped=0.05, last=0.01)
    split = batch_split.optimum(of, 100).batches
    behind = (1 - of.gamma) * (of.k * split + of.m)
    assert behind[0] < 0.05 < behind[1]
    assert compute_time(of, split)[1] == pytest.approx(sync_start(of, split)[0] + 0.05, rel=1e-9)


def test_many_batches_and_mixes_at_once() -> None:
    mixes = [random_nodes(seed, 5, "mixed")[0] for seed in range(4)]
    stacked = Nodes(**{f: np.stack([getattr(x, f) for x in mixes])[None] for f in Nodes.__dataclass_fields__})
    sizes = np.array([[60.0], [100.0], [333.0]])
    together = batch_split.optimum(stacked, sizes)
    assert together.batches.shape == (3, 4, 5)
    for i, j in itertools.product(range(3), range(4)):
        alone = batch_split.optimum(mixes[j], sizes[i, 0])
        assert float(together.time[i, j]) == pytest.approx(float(alone.time), rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 12), regime=st.sampled_from(REGIMES))
def test_what_must_hold_of_any_optimum(seed: int, n: int, regime: str) -> None:
    of, batch = random_nodes(seed, n, regime)
    best = float(batch_split.optimum(of, batch).time)
    rng = np.random.default_rng(seed)
    other = rng.dirichlet(np.ones(n)) * batch
    assert best <= float(step_time(of, other)) * (1 + 1e-9)
    assert best <= float(step_time(of, even(of, batch))) * (1 + 1e-9)
    more, _ = random_nodes(seed + 1, 1, regime)
    wider = nodes(*(np.append(getattr(of, f), getattr(more, f)) for f in ("q", "s", "k", "m")),
                  gamma=of.gamma[0], overlapped=of.overlapped, last=of.last)  # fmt: skip
    assert float(batch_split.optimum(wider, batch).time) <= best * (1 + 1e-12)
    capped = nodes(of.q, of.s, of.k, of.m, gamma=of.gamma, overlapped=of.overlapped, last=of.last, cap=batch / n + 1)
    assert float(batch_split.optimum(capped, batch).time) >= best * (1 - 1e-12)
    slower = nodes(*(3 * getattr(of, f) for f in ("q", "s", "k", "m")), gamma=of.gamma,
                   overlapped=3 * of.overlapped, last=3 * of.last)  # fmt: skip
    assert float(batch_split.optimum(slower, batch).time) == pytest.approx(3 * best, rel=1e-9)


def test_identical_nodes_share_evenly_and_a_hopeless_one_is_left_out() -> None:
    alike = nodes(np.full(4, 1e-3), 0.002, 0.002, 0.001)
    assert batch_split.optimum(alike, 100).batches == pytest.approx(np.full(4, 25.0))
    slow_start = nodes([1e-3, 1e-3], [0.0, 9.0], 0.002, 0.001)
    assert batch_split.optimum(slow_start, 100).batches == pytest.approx([100.0, 0.0])
    assert list(batch_split.whole(slow_start, 7).batches) == [7.0, 0.0]


def test_a_batch_beyond_the_caps_has_no_answer() -> None:
    of = nodes([1e-3, 1e-3], 0.0, 1e-3, 0.0, cap=[3.5, 4])
    with pytest.raises(NoAnswer, match="hold 8"):
        batch_split.optimum(of, 9)
    assert list(batch_split.whole(of, 7).batches) == [3.0, 4.0]
    with pytest.raises(NoAnswer, match="whole samples"):
        batch_split.whole(of, 7.5)


@sweep("wrong", [{"q": [-1.0]}, {"gamma": 1.5}, {"q": [0.0], "k": [0.0]}])
def test_impossible_nodes_are_refused(wrong: dict[str, object]) -> None:
    given = {"q": [1.0], "s": 0.0, "k": [1.0], "m": 0.0, **wrong}
    with pytest.raises(ValueError, match="must"):
        nodes(**given)  # type: ignore[arg-type]


# ---- learning --------------------------------------------------------------------------------------------------------


def measured(of: Nodes, batches: np.ndarray, rng: np.random.Generator, steps: int, deviation: float) -> Epoch:
    """An epoch on simulated nodes: every step's times deviate, what is reported are means."""

    def noisy(values: np.ndarray) -> np.ndarray:
        return values * (1 + deviation * rng.standard_normal((steps, of.n)).mean(0))

    load, back = noisy(of.q * batches + of.s), noisy(of.k * batches + of.m)
    ready = of.gamma * back * (1 + deviation * rng.standard_normal((steps, of.n)).mean(0))
    start, end = load + ready, load + back
    returned = max(float(np.max(start) + of.overlapped), float(np.max(end))) + float(of.last)
    began = float(np.max(end))
    return Epoch(
        batches=batches,
        load=load,
        backward=back,
        ready=ready,
        ready_deviation=np.full(of.n, deviation / np.sqrt(steps)),
        synchronising=np.maximum(returned - start, float(of.overlapped + of.last)),
        waiting=returned - np.maximum(end, min(began, returned - float(of.last))),
    )


@sweep("seed", range(8))
def test_a_simulated_cluster_is_learned_in_three_epochs(seed: int) -> None:
    of, batch = random_nodes(seed, 8, "compute")
    rng = np.random.default_rng(seed)
    best = float(batch_split.whole(of, batch).time)
    model = NodeModel(n=of.n)
    times = []
    for _ in range(3):
        split = model.split(batch)
        assert np.sum(split) == batch
        times.append(float(step_time(of, split)))
        model = model.seen(measured(of, split, rng, steps=100, deviation=0.05))
    assert times[2] <= 1.02 * best, times
    assert times[0] > times[2]


def test_without_noise_the_models_are_exact() -> None:
    of, batch = random_nodes(5, 4, "compute")
    model, rng = NodeModel(n=4), np.random.default_rng(0)
    for _ in range(2):
        model = model.seen(measured(of, model.split(batch), rng, steps=1, deviation=0.0))
    found = model.fitted()
    for name in ("q", "s", "k", "m", "gamma"):
        assert getattr(found, name) == pytest.approx(getattr(of, name), rel=1e-6), name
    assert float(found.last) == pytest.approx(float(of.last))


def test_ratios_are_merged_by_their_certainty() -> None:
    one = np.ones(2)
    epoch = Epoch(batches=one, load=one, backward=one, ready=np.array([0.2, 0.8]),
                  ready_deviation=np.array([0.01, 1.0]), synchronising=one, waiting=one)  # fmt: skip
    model = NodeModel(n=2).seen(epoch)
    assert model.fitted().gamma == pytest.approx([0.2, 0.2], abs=1e-3)
    with pytest.raises(ValueError, match="2 nodes measured, 3 known"):
        NodeModel(n=3).seen(epoch)
    with pytest.raises(ValueError, match="nothing"):
        NodeModel(n=3).fitted()


# ---- noise scale -----------------------------------------------------------------------------------------------------


def simulated(batches: list[int], square: float, spread: float, size: int, trials: int) -> tuple[np.ndarray, ...]:
    """Squared norms of Gaussian gradients: of each node and of the weighted whole."""
    rng = np.random.default_rng(7)
    mean = np.full(size, np.sqrt(square / size))
    b = np.array(batches, dtype=float)
    own = mean + rng.standard_normal((trials, len(b), size)) * np.sqrt(spread / size / b)[:, None]
    whole = np.einsum("n,tnd->td", b / b.sum(), own)
    return np.sum(own**2, -1), np.sum(whole**2, -1)


NOISE_CASES = [([4, 8, 16, 36], 1.0, 1000.0), ([4, 60], 1.0, 1000.0), ([1, 2, 3, 4, 6, 8, 12, 28], 4.0, 1000.0)]


@sweep(("batches", "square", "spread"), NOISE_CASES)
@sweep("estimator", [batch_choice.pooled, batch_choice.cannikin])
def test_estimators_are_unbiased(batches: list[int], square: float, spread: float, estimator) -> None:  # type: ignore[no-untyped-def]
    own, whole = simulated(batches, square, spread, size=50, trials=6000)
    found = estimator(batches, own, whole)
    for values, truth in zip(found, (square, spread), strict=True):
        assert abs(values.mean() - truth) < 4.5 * values.std() / np.sqrt(len(values))


@sweep(("batches", "square", "spread"), NOISE_CASES)
def test_pooled_varies_least(batches: list[int], square: float, spread: float) -> None:
    """As in the table of the design notes: pooled <= Cannikin's weights, and equal weights in between."""
    own, whole = simulated(batches, square, spread, size=50, trials=6000)
    pooled, weighted = batch_choice.pooled(batches, own, whole), batch_choice.cannikin(batches, own, whole)
    assert pooled[0].var() <= 1.05 * weighted[0].var()
    assert pooled[1].var() <= 1.05 * weighted[1].var()
    if len(batches) > 2:
        assert pooled[0].var() < 0.7 * weighted[0].var()


def test_equal_batches_make_all_estimators_equal() -> None:
    own, whole = simulated([8, 8, 8, 8], 1.0, 100.0, size=50, trials=50)
    for a, b in zip(batch_choice.pooled([8] * 4, own, whole), batch_choice.cannikin([8] * 4, own, whole), strict=True):
        assert a == pytest.approx(b)


def test_a_node_without_samples_says_nothing_and_one_node_is_not_enough() -> None:
    own, whole = simulated([8, 8], 1.0, 100.0, size=50, trials=5)
    wide = np.concatenate([own, np.zeros((5, 1))], axis=1)
    assert batch_choice.pooled([8, 8, 0], wide, whole)[1] == pytest.approx(batch_choice.pooled([8, 8], own, whole)[1])
    with pytest.raises(ValueError, match="two nodes"):
        batch_choice.pooled([8], own[:, :1], whole)


def test_smoothing_corrects_its_start() -> None:
    smooth = batch_choice.Smoothed()
    assert smooth.scale == 0.0
    for _ in range(3):
        smooth = smooth.seen(2.0, 600.0)
    assert smooth.scale == pytest.approx(300.0)
    assert batch_choice.Smoothed().seen(-1.0, 5.0).scale == float("inf")


# ---- goodput ---------------------------------------------------------------------------------------------------------


def test_efficiency_is_the_form_of_adascale() -> None:
    """gain / scale with ``gain = (S0 + G2) / (S0 / scale + G2)``, S0 the noise at the reference batch."""
    square, spread, reference = 0.7, 90.0, 32.0
    for batch in (32.0, 64.0, 1000.0):
        scale, at_reference = batch / reference, spread / reference
        gain = (at_reference + square) / (at_reference / scale + square)
        assert float(batch_choice.efficiency(batch, reference, spread / square)) == pytest.approx(gain / scale)
        assert float(batch_choice.gain(batch, reference, spread / square)) == pytest.approx(gain)
    assert float(batch_choice.efficiency(640.0, 32.0, np.inf)) == 1.0


def test_the_batch_grows_with_the_noise_and_changes_only_for_a_gain() -> None:
    of, _ = random_nodes(1, 6, "communication")
    small, large = (batch_choice.choose(of, 64, 8192, phi) for phi in (10.0, 1e5))
    assert small.batch < large.batch
    assert np.sum(large.batches) == large.batch
    near = batch_choice.choose(of, 64, 8192, 1e5, current=int(large.batch * 0.97))
    assert near.batch == int(large.batch * 0.97)
    assert batch_choice.choose(of, 64, 8192, 1e5, current=64).batch > 64


def test_an_even_split_brings_no_more() -> None:
    of, _ = random_nodes(2, 6, "compute")
    ours, alike = (batch_choice.choose(of, 64, 4096, 2000.0, split=split) for split in (True, False))
    assert ours.goodput >= alike.goodput
    assert np.ptp(alike.batches) <= 1
