"""A model layer by layer adds up to what the cost model prices, and moves the bytes that a buffer allows."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.base.errors import WrongQuestion
from planner.catalog import cluster
from planner.commands import command_line
from planner.cost import convolution, dlrm, products, transformer
from planner.cost.expanded_memory import Far
from planner.cost.figures import Device
from planner.cost.operators import traffic
from planner.cost.products import reads
from planner.models import families
from planner.models.workload import library, workload
from planner.planning.by_layer import LayerOptions, grid_of, layered
from tests.cases import CATALOG
from tests.sweeps import sweep

SIZES = st.integers(1, 60_000).map(float)


def part(buffer: float, element: float = 2.0) -> Device:
    made = {name: 1.0 for name in Device.__dataclass_fields__}
    known = {"buffer": buffer, "element": element, "matrix_rate": 1e14, "memory_rate": 1e12, "compute_units": 100.0}
    return Device(**(made | known))


# ---- the buffer ------------------------------------------------------------------------------------------------------


@given(m=SIZES, n=SIZES, k=SIZES, small=st.floats(1e4, 1e8), factor=st.floats(1, 100))
def test_a_buffer_never_hurts_and_nothing_is_read_less_than_once(m, n, k, small, factor):
    least = 2.0 * (m * k + k * n + m * n)
    one, other = (float(traffic(part(size), m, n, k)) for size in (small, small * factor))
    assert one >= other >= least * (1 - 1e-12)
    assert float(traffic(part(math.inf), m, n, k)) == pytest.approx(least, rel=1e-12)


@given(m=SIZES, n=SIZES, k=SIZES, buffer=st.floats(1e4, 1e8), element=st.sampled_from((2.0, 4.0)))
def test_traffic_is_the_least_of_three_tilings(m, n, k, buffer, element):
    a, b, c = element * m * k, element * k * n, element * m * n
    edge = math.sqrt(buffer / element)
    tilings = (
        a + math.ceil(a / buffer) * b + c,
        b + math.ceil(b / buffer) * a + c,
        math.ceil(n / edge) * a + math.ceil(m / edge) * b + c,
    )
    assert float(traffic(part(buffer, element), m, n, k)) == pytest.approx(min(tilings), rel=1e-12)


def test_a_product_takes_its_bytes_or_its_work():
    """Above the ridge time is FLOPs over the rate, below it bytes over bandwidth."""
    device = part(40e6)
    plain = Device(
        **{name: getattr(device, name) for name in Device.__dataclass_fields__}
        | {"inner_half": 0.0, "quantisation": 0.0}
    )
    big, thin = (8192.0, 8192.0, 8192.0), (16.0, 8192.0, 8192.0)
    assert float(products.product_time(plain, *big)) == pytest.approx(2 * 8192.0**3 / 1e14)
    assert float(products.product_time(plain, *thin)) == pytest.approx(float(traffic(plain, *thin)) / 1e12)
    assert [float(x) for x in reads(plain, *thin)] == [1.0, 1.0]


@given(m=SIZES, n=SIZES, k=SIZES, buffer=st.floats(1e4, 1e6))
def test_where_nothing_lies_far_a_product_takes_as_long(m, n, k, buffer):
    """Bytes of expanded memory are taken out of those of the product, however often operands are read."""
    device = part(buffer)
    near = float(products.product_time(device, m, n, k))
    assert float(
        products.product_time(device, m, n, k, products.ProductTraits(far=Far(0.0, 0.0, 1.0, 0.0)))
    ) == pytest.approx(near, rel=1e-9)
    whole = Far(1.0, 1.0, device.memory_rate, 0.0)
    assert float(products.product_time(device, m, n, k, products.ProductTraits(far=whole))) == pytest.approx(
        near, rel=1e-9
    )


# ---- sums ------------------------------------------------------------------------------------------------------------

COMPUTED = ("matrix", "attention", "vector")


@pytest.mark.slow
@sweep("name", sorted(library()))
def test_layers_of_a_transformer_add_up_to_its_cost(name):
    found = layered(CATALOG, name, LayerOptions(dp=2))
    runtime = CATALOG.runtime("megatron-core")
    grid = grid_of(
        CATALOG, workload(name), cluster(CATALOG, "dgx-h100", 1), runtime, runtime.releases[-1], LayerOptions(dp=2), 1
    )
    leading, body = transformer.layers(grid)
    first, rest = float(grid.shape.leading_dense), float(grid.shape.layers - grid.shape.leading_dense)
    head, embedding = transformer.head(grid), transformer.embedding(grid)
    forward = sum(first * leading.parts[x].forward + rest * body.parts[x].forward for x in COMPUTED)
    backward = sum(first * leading.parts[x].backward + rest * body.parts[x].backward for x in COMPUTED)
    ours = [sum(x.count * getattr(x, way).seconds for x in found.layers) for way in ("forward", "inward", "weight")]
    assert ours[0] == pytest.approx(float(forward + head.forward + embedding.forward), rel=1e-9)
    assert ours[1] + ours[2] == pytest.approx(float(backward + head.backward + embedding.backward), rel=1e-9)


@sweep("name", ["resnet50", "resnet101", "resnet152"])
def test_layers_of_a_convolutional_network_add_up(name):
    found = layered(CATALOG, name, LayerOptions(node="dgx-a100-80gb", precision="fp16", micro=64, dp=8))
    rows = convolution.layers(families.network(name))
    assert sum(x.forward.flops for x in found.layers) == pytest.approx(2 * 64 * float(np.sum(rows.products)))
    flops = sum(each.flops for x in found.layers for each in x.passes)
    assert flops == pytest.approx(float(convolution.step_flops(rows, 64)))
    assert len({x.name for x in found.layers}) == len(found.layers) == len(rows.size)
    reduced = sum(x.weight.collective.size for x in found.layers)
    assert reduced == pytest.approx(2 * float(np.sum(rows.weights)))


@pytest.mark.parametrize("name", ["dlrm-criteo1tb", "dlrm-dcnv2"])
def test_layers_of_a_recommender_add_up(name):
    model = families.recommender(name)
    found = layered(CATALOG, name, LayerOptions(node="dgx-a100-80gb", precision="fp16", micro=1024, dp=8))
    dense = [x for x in found.layers if x.forward.flops]
    assert sum(x.forward.flops for x in dense) == pytest.approx(
        sum(2 * 1024 * layer.inputs * layer.outputs for layer in dlrm.dense_layers(model))
    )
    crossing = [
        each.collective
        for x in found.layers
        for each in x.passes
        if each.collective and each.collective.kind == "all-to-all"
    ]
    assert [c.size for c in crossing] == [1024 * 26 * 128 * 2.0] * 2


# ---- tables cut over ranks -------------------------------------------------------------------------------------------


def test_whole_tables_are_dealt_heaviest_first():
    assert dlrm.dealt([4, 3, 3, 2], 2) == pytest.approx(1.0)
    assert dlrm.dealt([5, 1, 1], 2) == pytest.approx(10 / 7)
    assert dlrm.dealt([1], 4) == 4.0


def test_ways_to_cut_tables_keep_their_order():
    model = families.recommender("dlrm-dcnv2")
    total = dlrm.embedding_bytes(model) * 2  # Adagrad: as much again
    for ranks in (1, 8, 64):
        held = {by: dlrm.rank_bytes(model, ranks, by) for by in ("even", "table", "column", "row")}
        assert held["even"] == held["row"] == pytest.approx(total / ranks)
        assert held["table"] >= held["even"] * (1 - 1e-12)
        assert held["column"] == pytest.approx(held["even"])
    sent = {by: dlrm.exchange_bytes(model, 2, 100, 8, by) for by in ("even", "column", "row")}
    assert sent["even"] == sent["column"] < sent["row"] == 100 * 128 * 2 * sum(min(x, 8) for x in model.lookups)


# ---- the command -----------------------------------------------------------------------------------------------------


def test_json_has_what_the_table_has(capsys):
    assert command_line.main(["models", "layers", "llama3-8b", "--tp", "8", "--dp", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["tp"], told["micro"]) == ("model-layers", 8, 1)
    by_name = {layer["name"]: layer for layer in told["layers"]}
    assert by_name["output"]["forward"]["collective"]["bytes"] == 2 * 8192 * 4096
    assert by_name["down"]["weight_gradient"]["collective"]["group"] == "dp"
    assert told["total"]["flops"] == pytest.approx(
        sum(
            layer["count"] * layer[way]["flops"]
            for layer in told["layers"]
            for way in ("forward", "input_gradient", "weight_gradient")
        )
    )


def test_a_wrong_model_says_so():
    with pytest.raises(WrongQuestion, match="Did you mean"):
        layered(CATALOG, "resnet5", LayerOptions())
