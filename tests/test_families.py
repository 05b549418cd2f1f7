"""Encoders, convolutional networks and recommenders: exact counts, a scalar second opinion, and the published runs."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from planner import catalog as catalogs
from planner.base.errors import WrongQuestion
from planner.base.resources import data
from planner.calibration.fit.least_squares import Fit
from planner.calibration.runs import encoders, other_families
from planner.calibration.runs.measured_run import Run, shape
from planner.calibration.runs.other_families import OtherFrame
from planner.catalog import Catalog
from planner.cost import collective_times, convolution, dlrm
from planner.cost.figures import Array, Device, Network
from planner.cost.other_families import Software
from planner.figures.efficiency import Efficiencies
from planner.models import families
from tests.sources import runs_of
from tests.sweeps import sweep

RUNS = Path(__file__).resolve().parent.parent / "benchmarks" / "data" / "measured_runs.csv"
REACHED = {"encoder": 0.090, "cnn": 0.081, "dlrm": 0.128}
"""MAPE of 5-fold cross-validation by source, from the priors alone."""


@cache
def priors() -> Catalog:
    return catalogs.load(data("hardware_catalog") / "priors")


@cache
def published() -> tuple[Run, ...]:
    return tuple(runs_of(RUNS, priors(), lambda row: row["family"] in other_families.FAMILIES))


@cache
def frame() -> OtherFrame:
    return OtherFrame(priors(), published())


@cache
def found() -> Fit:
    return other_families.fitted(frame(), Efficiencies.of(priors()))


def family_errors(times: Array) -> dict[str, float]:
    rows = other_families.timed(frame())
    relative = np.abs(times / frame().measured[rows] - 1.0)
    kinds = np.array([frame().runs[i].family for i in rows])
    return {kind: float(relative[kinds == kind].mean()) for kind in other_families.FAMILIES}


# ---- shapes ----------------------------------------------------------------------------------------------------------


@sweep(
    ("name", "parameters", "products"),
    [("resnet50", 25_557_032, 4.09e9), ("resnet101", 44_549_160, 7.80e9), ("resnet152", 60_192_808, 11.51e9)],
)
def test_residual_networks_have_their_published_size(name: str, parameters: int, products: float) -> None:
    layers = convolution.layers(families.network(name))
    assert layers.parameters == parameters
    assert float(layers.products.sum()) == pytest.approx(products, rel=0.01)
    assert len(layers.size) == int(name.removeprefix("resnet")) + 4, "four projected shortcuts beside the named layers"


def test_a_step_is_three_forward_passes_but_for_the_first_input_gradient() -> None:
    layers = convolution.layers(families.network("resnet50"))
    first = 2 * 112 * 112 * 64 * 3 * 49
    assert convolution.step_flops(layers, 1.0) == pytest.approx(6 * float(layers.products.sum()) - first)


def test_embedding_bytes_by_hand() -> None:
    model = families.recommender("dlrm-dcnv2")
    assert dlrm.embedding_bytes(model) == 204_184_588 * 128 * 4
    assert sum(model.lookups) == 214
    # 6,912 samples a rank, 26 vectors of 128 elements of 2 bytes each
    assert dlrm.exchange_bytes(model, 2.0, 6912.0) == 6912 * 26 * 128 * 2
    rows = dlrm.DISTINCT * 214 * 128
    moved = dlrm.gather_bytes(model, 2.0, 1.0)
    assert moved.forward == pytest.approx(rows * 4 + 26 * 128 * 2)
    assert moved.backward == pytest.approx(26 * 128 * 2 + 2 * rows * 8)


def test_dense_parameters_by_hand() -> None:
    bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128
    top = 480 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 256 + 256 + 256 + 1
    assert dlrm.interaction_width(families.recommender("dlrm-criteo1tb")) == 480  # 27 * 26 / 2 + 128 + 1
    assert dlrm.dense_parameters(families.recommender("dlrm-criteo1tb")) == bottom + top
    cross = 3 * (2 * 3456 * 512 + 3456)
    over = top + (3456 - 480) * 1024
    assert dlrm.dense_parameters(families.recommender("dlrm-dcnv2")) == bottom + over + cross


def test_embedding_tables_of_the_examples_have_the_size_they_state() -> None:
    for name, size in (("dlrm-small", 15e9), ("dlrm-large", 82e9), ("dlrm-xlarge", 142e9)):
        assert dlrm.embedding_bytes(families.recommender(name)) == pytest.approx(size, rel=0.01)


def test_an_unknown_name_gets_its_neighbours() -> None:
    with pytest.raises(WrongQuestion, match="Did you mean resnet50"):
        families.network("resnet5")
    with pytest.raises(WrongQuestion, match="no recommender"):
        families.recommender("resnet50")


# ---- times -----------------------------------------------------------------------------------------------------------

Columns = tuple[Device, Network, Software, Array, Array]


@cache
def columns(kind: str, model: str) -> tuple[list[Run], Columns]:
    chosen = [run for run in frame().runs if run.family == kind and run.model == model]
    return chosen, other_families.columns(chosen, Efficiencies.of(priors()))


def scalars(record: object, row: int) -> dict[str, float]:
    names = [name for name in dir(record) if not name.startswith("_") and getattr(record, name) is not None]
    return {name: float(np.asarray(getattr(record, name)).reshape(-1)[row]) for name in names}


def product(d: dict[str, float], m: float, n: float, k: float, rate: float, quantisation: float) -> float:
    """Arithmetic of ``(m x k)(k x n)``, seconds."""
    tiles = math.ceil(m / 128) * math.ceil(n / 256)
    waves = math.ceil(tiles / d["compute_units"]) * d["compute_units"] / tiles
    return (
        2
        * m
        * n
        * k
        / rate
        * (1 + d["inner_half"] * rate / d["matrix_rate"] / k)
        * (1 + quantisation * min(waves - 1, 3))
    )


def jitter(net: dict[str, float], s: dict[str, float]) -> float:
    return 1 + s["jitter"] * math.log2(max(net["accelerators"] / min(net["domain"], 8), 1))


def reduced(device_links: Network, row: int, size: float, ranks: float) -> float:
    one = Network(**scalars(device_links, row))
    return float(collective_times.all_reduce(one, size, collective_times.group(one, ranks, 1.0)))


def resnet_seconds(cols: Columns, row: int) -> float:
    d, net, s = (scalars(record, row) for record in cols[:3])
    batch, ranks = cols[3][row], cols[4][row]
    model, b = convolution.layers(families.network("resnet50")), batch / ranks
    forward = backward = 0.0
    rate = d["matrix_rate"] * s["convolution"]
    for i in range(len(model.size)):
        h, cin, cout, kernel, stride = (
            float(x[i]) for x in (model.size, model.channels_in, model.channels_out, model.kernel, model.stride)
        )
        m, k = b * h * h, cin * kernel * kernel
        read = b * cin * (h * min(stride, kernel)) ** 2 * (1 + convolution.IM2COL * (kernel**2 - 1))
        moved = s["element"] * ((read + m * cout) * (1 + 2 * s["transposed"]) + cout * k) / d["memory_rate"]
        forward += max(product(d, m, cout, k, rate, d["quantisation"]), moved) + 2 * s["kernel"]
        if not model.first[i]:
            backward += max(product(d, m, k, cout, rate, d["quantisation"]), moved)
        backward += max(product(d, k, cout, m, rate, 0.0), moved) + 5 * s["kernel"]
        each = b * h * h * cout * s["element"] * s["vector"] / d["memory_rate"]
        forward += each * (3 * model.normalised[i] + model.joined[i])
        backward += each * (5 * model.normalised[i] + model.joined[i])
    reduce = reduced(cols[1], row, 25_557_032 * s["element"], ranks)
    late = max(reduce - s["dp_overlap"] * backward, reduce / len(model.size))
    update = 25_557_032 * 22 / d["memory_rate"]
    return (forward + backward + late) * jitter(net, s) + update + s["step_overhead"]


def recommender_seconds(cols: Columns, row: int, name: str) -> float:
    d, net, s = (scalars(record, row) for record in cols[:3])
    batch, ranks = cols[3][row], cols[4][row]
    model, b, e = families.recommender(name), batch / ranks, s["element"]
    forward = backward = 0.0
    memory = d["memory_rate"]

    def seconds(m: float, n: float, k: float, quantisation: float) -> float:
        return max(product(d, m, n, k, d["matrix_rate"], quantisation), e * (m * k + k * n + m * n) / memory)

    for layer in dlrm.dense_layers(model):
        each = b * layer.outputs * e * s["vector"] / memory
        forward += seconds(b, layer.outputs, layer.inputs, d["quantisation"]) + 2 * each
        backward += seconds(layer.inputs, layer.outputs, b, 0.0) + 3 * each
        if not layer.first:
            backward += seconds(b, layer.inputs, layer.outputs, d["quantisation"])
    vectors = b * 27 * 128 * e
    join = vectors + b * dlrm.interaction_width(model) * e + 3 * model.cross_layers * vectors
    forward, backward = forward + join / memory, backward + 2 * join / memory
    rows = dlrm.DISTINCT * b * sum(model.lookups) * 128
    pooled = b * 26 * 128 * e
    gathers = (rows * 4 + pooled + pooled + 2 * rows * (4 + model.state_bytes)) / (memory * s["gather"])
    links = Network(**scalars(cols[1], row))
    slower = replace(links, scaleup=links.scaleup * s["exchange"], nic=links.nic * s["exchange"])
    once = float(collective_times.all_to_all(slower, pooled * s["crossing"], collective_times.group(links, ranks, 1.0)))
    reduce = reduced(cols[1], row, dlrm.dense_parameters(model) * e, ranks)
    layers = len(dlrm.dense_layers(model))
    late = max(reduce - s["dp_overlap"] * backward, reduce / layers)
    kernels = (6 * layers + 40) * s["kernel"]
    busy = forward + backward + gathers + 2 * once + late + kernels
    update = dlrm.dense_parameters(model) * 18 / memory
    return busy * jitter(net, s) + update + s["step_overhead"]


@pytest.mark.slow
def test_columns_agree_with_a_scalar_second_opinion_on_random_rows() -> None:
    random = np.random.default_rng(7)
    chosen, cols = columns("cnn", "resnet50")
    times = other_families.predict(chosen, Efficiencies.of(priors()))
    for row in random.choice(len(chosen), 12, replace=False):
        assert times[row] == pytest.approx(resnet_seconds(cols, int(row)), rel=1e-9)
    for name in ("dlrm-criteo1tb", "dlrm-dcnv2", "dlrm-large", "dcnv2-small"):
        chosen, cols = columns("dlrm", name)
        times = other_families.predict(chosen, Efficiencies.of(priors()))
        for row in random.choice(len(chosen), min(6, len(chosen)), replace=False):
            assert times[row] == pytest.approx(recommender_seconds(cols, int(row), name), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "model"), [("cnn", "resnet50"), ("dlrm", "dlrm-dcnv2")])
def test_better_parts_are_never_slower(kind: str, model: str) -> None:
    step = other_families.stepper(model, kind)
    _, (device, links, software, batch, ranks) = columns(kind, model)
    base = step(device, links, software, batch, ranks)
    for changed in (
        (replace(device, matrix_rate=2 * device.matrix_rate), links, software),
        (replace(device, memory_rate=2 * device.memory_rate), links, software),
        (device, replace(links, nic=2 * links.nic), software),
        (device, replace(links, scaleup=2 * links.scaleup, scaleup_reduce=2 * links.scaleup_reduce), software),
        (device, links, replace(software, kernel=software.kernel / 2)),
    ):
        faster = step(*changed, batch, ranks)
        assert np.all(faster <= base * (1 + 1e-12))
        assert np.any(faster < base)
    assert np.all(step(device, links, software, 2 * batch, ranks) > base)


@pytest.mark.slow
def test_replicating_frequent_rows_saves_exchange_only_across_ranks() -> None:
    step = other_families.stepper("dlrm-large", "dlrm")
    chosen, (device, links, software, batch, ranks) = columns("dlrm", "dlrm-large")
    base = step(device, links, software, batch, ranks)
    few = step(device, links, replace(software, crossing=0.1 * software.crossing), batch, ranks)
    alone = np.array([run.accelerators == 1 for run in chosen])
    assert np.all(few[~alone] < base[~alone])
    assert np.all(few[alone] == base[alone])


# ---- published runs --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nine_of_ten_rows_that_state_enough_are_covered() -> None:
    enough = [run for run in published() if run.states_enough]
    assert len(enough) == 669
    for kind in other_families.FAMILIES:
        rows = [run for run in enough if run.family == kind]
        covered = [run for run in rows if run.covered and run.measured]
        assert len(covered) >= 0.9 * len(rows) > 0


@pytest.mark.slow
def test_every_row_left_out_says_why() -> None:
    reasons = {run.reason for run in published() if not run.covered}
    assert all("is not in the catalog" in reason or reason == "time to train is no throughput" for reason in reasons)


@pytest.mark.slow
def test_what_a_row_leaves_out_is_said() -> None:
    by_id = {run.id: run for run in published()}
    mlperf = next(run for run in published() if run.source == "mlperf-v3.1" and run.family == "encoder" and run.covered)
    assert mlperf.workload is not None
    assert mlperf.workload.sequence == encoders.REAL_TOKENS
    assert any("tokens a sequence" in said for said in mlperf.inferred)
    assert by_id["nv-deeplearningexamples-056"].inferred == ("batch: 256 per accelerator",)


@pytest.mark.slow
def test_an_encoder_computes_logits_at_masked_positions_only() -> None:
    run = next(run for run in frame().runs if run.family == "encoder")
    assert run.workload is not None
    assert shape(run, None).vocab == pytest.approx(0.15 * 30522)


@pytest.mark.slow
def test_rows_of_one_result_are_fitted_once() -> None:
    fitted = [frame().runs[i] for i in other_families.timed(frame())]
    assert len(fitted) == 396
    assert not any(run.repeated for run in fitted)


@pytest.mark.slow
def test_few_parameters_explain_all_families() -> None:
    assert found().freedom <= 12
    named = {parameter.name: theta for parameter, theta in zip(found().parameters, found().theta, strict=True)}
    assert len(named) == len(found().parameters)
    rows = other_families.timed(frame())
    errors = family_errors(frame().predict(found().efficiencies).time[rows])
    assert all(error <= REACHED[kind] + 0.01 for kind, error in errors.items()), errors


@pytest.mark.slow
@pytest.mark.thorough
def test_sources_left_out_are_predicted_as_well_as_recorded() -> None:
    errors = family_errors(other_families.cross_validated(frame(), Efficiencies.of(priors())))
    assert all(error <= REACHED[kind] + 0.01 for kind, error in errors.items()), errors
    assert all(error <= 0.15 for error in errors.values())


@pytest.mark.slow
def test_folds_keep_sources_whole() -> None:
    sources = [run.source for run in published() if run.covered]
    fold = other_families.folds(sources)
    assert set(fold) == set(sources)
    assert set(fold.values()) == set(range(other_families.FOLDS))
