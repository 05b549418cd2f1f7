"""Networks of up to four dimensions: within 5 % of LIBRA's and ASTRA-sim's closed forms, case by case."""

import math
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import closed_forms
from benchmarks.closed_forms import CASES, network
from planner import verify
from planner.base.errors import WrongQuestion
from planner.cost import collective_times, dimensions, network_bill
from planner.cost.figures import Dimensions, NetworkDimension
from planner.planning import document
from planner.planning.run import plan
from planner.schema import hardware
from planner.search.branch_and_bound import Bounded
from tests.cases import CATALOG, cluster, figures, prepared, problem_of, request
from tests.sweeps import sweep

TOPOLOGIES = ("ring", "switch", "fully-connected", "torus")

# ---- closed forms, written without the code under test ---------------------------------------------------------------


@sweep("row", closed_forms.rows(), ids=lambda row: f"{row['network']}-{row['workload']}")
def test_communication_agrees_with_the_closed_forms(row):
    """Case by case, with the algorithm that they take: every message of an all-to-all has its way to itself."""
    for name in ("libra", "astra"):
        assert row[f"ours_as_{name}_ms"] == pytest.approx(row[f"{name}_ms"], rel=0.05)
    assert row["planned_ms"] >= row["ours_as_libra_ms"]


def test_an_all_to_all_on_a_ring_is_charged_for_what_its_links_carry():
    """Between the closed formula in which messages are alone (LIBRA's, ASTRA-sim's "direct") and that in which they go
    one way round (ASTRA-sim's "ring"): links share them, and they go the shorter way."""
    found = {row["network"]: row for row in closed_forms.exchanges()}
    assert found["pods of 8"]["planned_serial_ms"] == pytest.approx(found["pods of 8"]["astra_direct_ms"])
    for name in ("4D", "3D"):
        row = found[name]
        assert row["astra_direct_ms"] < row["planned_serial_ms"] < row["astra_ring_ms"]
    # 16 on a ring: a link carries 4 S, the slowest link of the closed formula 31/32 S.
    assert found["3D"]["planned_pipelined_ms"] / found["3D"]["libra_ms"] == pytest.approx(4 / (31 / 32), rel=1e-3)


def loaded(shape, n):
    """Bytes on the busiest rank's links over its send buffer, every message on a shortest way, ties shared."""
    sides = (n,) if shape == "ring" else (math.isqrt(n),) * 2
    total = 0.0
    for place in range(n):
        left, hops = place, 0
        for side in sides:
            left, along = divmod(left, side)
            hops += min(along, side - along)
        total += hops
    return total / n  # all ranks are alike, so the load of all links is spread over them evenly


@sweep(
    ("topology", "hops"),
    [
        ("ring", {1: 0, 2: 1, 8: 7}),
        ("switch", {1: 0, 2: 2, 8: 6}),
        ("fully-connected", {1: 0, 2: 1, 3: 1, 8: 1}),
        ("torus", {1: 0, 4: 2, 16: 6}),
    ],
)
def test_hops_of_the_smallest_groups(topology, hops):
    along = NetworkDimension(topology, 16.0, 1.0, 0.0)
    assert {n: float(dimensions.steps(along, float(n))) for n in hops} == hops


def test_a_fat_tree_is_not_oversubscribed_unless_asked():
    assert (
        network_bill.fat_tree(512, 8, 64)
        == network_bill.fat_tree(512, 8, 64, 1.0)
        != network_bill.fat_tree(512, 8, 64, 2.0)
    )


@sweep(("shape", "n"), [("ring", n) for n in (1, 2, 3, 4, 5, 8, 16)] + [("torus", n) for n in (4, 9, 16, 25, 64)])
def test_links_carry_what_is_counted_message_by_message(shape, n):
    assert float(dimensions.carried(NetworkDimension(shape, float(n), 1.0, 0.0), float(n))) == pytest.approx(
        loaded(shape, n)
    )


HOPS = {"ring": lambda n: n - 1, "switch": lambda n: 2 * math.log2(n), "torus": lambda n: 2 * (math.sqrt(n) - 1)}
HOPS["fully-connected"] = lambda n: int(n > 1)


@sweep("n", [1, 4, 16, 64])
@sweep("topology", TOPOLOGIES)
def test_hops_one_after_the_other(topology, n):
    """Of messages that weigh nothing: round a ring, up and down a switch, straight over a mesh, along a torus."""
    made = Dimensions((NetworkDimension(topology, float(n), 1e30, 1e-6),), 4.0)
    hops = HOPS[topology](n) * 1e-6
    for call, times in ((dimensions.gather, 1), (dimensions.all_reduce, 2), (dimensions.all_to_all, 1)):
        assert float(call(made, 1.0, (float(n),))) == pytest.approx(times * hops, abs=1e-20)
        assert float(call(made, 0.0, (float(n),))) == 0.0
    once = {"switch": 2e-6}.get(topology, 1e-6) if n > 1 else 0.0
    assert float(dimensions.send(made, 1.0, (float(n),))) == pytest.approx(once, abs=1e-20)
    assert float(dimensions.send(made, 0.0, (float(n),))) == 0.0


def test_a_group_that_is_larger_than_the_network_loses_no_ranks():
    made = Dimensions((NetworkDimension("switch", 8.0, 1e9, 0.0), NetworkDimension("ring", 4.0, 1e9, 0.0)))
    assert [float(x) for x in dimensions.spans(made, 64.0, 1.0)] == [8.0, 8.0]
    assert [float(x) for x in dimensions.spans(made, 16.0, 4.0)] == [2.0, 8.0]


# ---- properties ------------------------------------------------------------------------------------------------------

sizes = st.sampled_from([1, 2, 4, 8, 16])
along = st.lists(st.tuples(st.sampled_from(TOPOLOGIES), sizes, st.floats(1e9, 1e12)), min_size=1, max_size=4)


@given(along=along, size=st.floats(1e3, 1e10), chunks=st.integers(1, 64), data=st.data())
def test_more_bandwidth_is_never_slower_and_a_gather_is_half_a_reduction(along, size, chunks, data):
    made = Dimensions(tuple(NetworkDimension(t, float(n), rate, 1e-6) for t, n, rate in along), float(chunks))
    which = data.draw(st.integers(0, len(along) - 1))
    wider = tuple(replace(d, rate=d.rate * (2 if i == which else 1)) for i, d in enumerate(made.along))
    n = float(math.prod(x for _, x, _ in along))
    spans = dimensions.spans(made, n, 1.0)
    for call in (dimensions.all_reduce, dimensions.gather, dimensions.all_to_all, dimensions.send):
        assert float(call(replace(made, along=wider), size, spans)) <= float(call(made, size, spans)) * (1 + 1e-12)
    reduce, gather = (float(call(made, size, spans)) for call in (dimensions.all_reduce, dimensions.gather))
    assert reduce == pytest.approx(2 * gather)
    if n == 1:
        assert reduce == 0.0


@given(along=along, data=st.data())
def test_ranks_are_neither_lost_nor_counted_twice(along, data):
    made = Dimensions(tuple(NetworkDimension(t, float(n), rate, 0.0) for t, n, rate in along))
    every = math.prod(x for _, x, _ in along)
    stride = 2 ** data.draw(st.integers(0, int(math.log2(every))))
    n = 2 ** data.draw(st.integers(0, int(math.log2(every // stride))))
    spans = dimensions.spans(made, float(n), float(stride))
    assert math.prod(float(x) for x in spans) == n
    shards = 2 ** data.draw(st.integers(0, int(math.log2(n))))
    within, across = dimensions.part(spans, float(shards))
    assert math.prod(float(x) for x in within) == shards
    assert math.prod(float(x) for x in across) == n / shards


# ---- clusters --------------------------------------------------------------------------------------------------------


def dimensional(on="dgx-h100:4", **more):
    """Pods of 8 and a ring of what is left."""
    joined = cluster(on)
    inner = hardware.Dimension(topology="switch", size=8, bandwidth=450e9, latency=1e-6)
    outer = hardware.Dimension(topology="ring", bandwidth=50e9, latency=2e-6)
    return replace(joined, fabric=replace(joined.fabric, **{"dimension1": inner, "dimension2": outer} | more))


def test_a_group_finds_its_dimensions():
    found = figures("llama2-7b", dimensional(), "megatron-core").network
    assert [d.size for d in found.dimensions.along] == [8.0, 4.0]
    tensor, data = collective_times.group(found, 4.0, 1.0), collective_times.group(found, 8.0, 4.0)
    assert [float(x) for x in tensor.spans] == [4.0, 1.0]
    assert [float(x) for x in data.spans] == [2.0, 4.0]
    joined = collective_times.product(tensor, data)
    assert [float(x) for x in joined.spans] == [8.0, 4.0]


def test_a_plan_on_dimensions_is_found_and_says_them():
    made = plan(CATALOG, request("llama2-7b", dimensional(), batches=(64,), pins="cp=1 micro=1"))
    told = made.plans[0].cluster.fabric.dimensions
    assert [(d.topology, d.size) for d in told] == [("switch", 8), ("ring", 4)]
    assert document.dump(made.plans[0])["cluster"]["fabric"]["dimensions"][1]["bytes_per_s"] == 50e9
    assert made.reasons.gains["dimension 2 bandwidth"] <= 0.0


@cache
def on_dimensions():
    return plan(CATALOG, request("llama2-7b", dimensional(), batches=(64,), pins="tp=2 cp=1 micro=1")).plans[0]


@sweep(
    ("changed", "said"),
    [
        (lambda d: d[:1], "8 places for 32 accelerators"),
        (lambda d: d * 3, "a network of 6 dimensions"),
        (lambda d: (replace(d[0], topology="star"), d[1]), "no topology 'star'"),
    ],
)
def test_a_plan_on_other_dimensions_is_found_out(changed, said):
    made = on_dimensions()
    assert not verify.violations(made)
    fabric = replace(made.cluster.fabric, dimensions=changed(made.cluster.fabric.dimensions))
    wrong = replace(made, cluster=replace(made.cluster, fabric=fabric))
    assert any(said in str(violation) for violation in verify.violations(wrong))


def test_a_faster_outer_dimension_is_never_slower():
    def best(rate):
        outer = hardware.Dimension(topology="switch", bandwidth=rate)
        problem = problem_of("llama2-7b", dimensional(dimension2=outer), batches=(64,), pins="cp=1 micro=1..2")
        return Bounded().search(problem).best[0].time

    times = [best(rate) for rate in (1e9, 1e10, 1e11)]
    assert times == sorted(times, reverse=True)


@sweep(
    ("changes", "said"),
    [
        ({"dimension1": None}, "no dimension below it"),
        ({"dimension1": hardware.Dimension(topology="ring", bandwidth=1e9)}, "only the outermost dimension"),
        ({"dimension2": hardware.Dimension(topology="ring", size=3, bandwidth=1e9)}, "8 x 3 = 24 places for 32"),
    ],
)
def test_dimensions_that_cannot_be(changes, said):
    with pytest.raises(WrongQuestion, match=said):
        prepared("llama2-7b", dimensional(**changes), batches=(64,))


# ---- money -----------------------------------------------------------------------------------------------------------


def test_prices_of_bandwidth_are_libras():
    """USD per GB/s: links 2, 4, 4, 7.8; a switch 13 or 18 and a NIC 31.6 beside its link."""
    assert network_bill.dimension_usd("switch", "inter-pod", 3, 1, 10e9) == pytest.approx(1722.0)
    assert network_bill.dimension_usd("ring", "inter-chiplet", 4, 1, 100e9) == pytest.approx(2 * 4 * 50 * 2.0)
    assert network_bill.dimension_usd("fully-connected", "inter-package", 8, 2, 70e9) == pytest.approx(
        2 * 56 * 10 * 4.0
    )
    assert network_bill.dimension_usd("switch", "inter-node", 8, 1, 1e9) == pytest.approx(8 * 17.0)
    assert network_bill.dimension_usd("ring", "inter-pod", 1, 5, 1e9) == 0.0
    case = CASES["network"][0]
    tiers = ("inter-chiplet", "inter-package", "inter-node", "inter-pod")
    each = 4096 * 125 * (2.0 + 4.0 + 4.0 + 7.8 + 18.0 + 31.6)
    along = network(case, 1.0).along
    prices = [
        network_bill.dimension_usd(d.topology, tier, int(d.size), 4096 // int(d.size), d.rate)
        for d, tier in zip(along, tiers, strict=True)
    ]
    assert sum(prices) == pytest.approx(each)
