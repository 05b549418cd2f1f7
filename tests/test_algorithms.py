"""Collectives by algorithm and protocol: closed forms, published figures, and what must hold whatever the links."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost import collective_times, nccl_algorithms
from planner.cost.collective_times import CollectiveGroup, group
from planner.cost.figures import Network
from planner.cost.nccl_algorithms import OPERATIONS, CollectiveLibrary, Protocol, busiest, least, shared, times, under
from tests.networks import groups, networks
from tests.sweeps import sweep

ANY = settings(deadline=None, max_examples=25, derandomize=True)
SLACK = 1e-9
every_operation = sweep("op", OPERATIONS)
sizes = st.floats(1.0, 1e11)


def links(**given) -> Network:
    """Eight accelerators a node, 100 and 10 GB/s, no latencies."""
    figures = dict(
        accelerators=1024.0,
        domain=8.0,
        scaleup=100e9,
        scaleup_reduce=100e9,
        pair=100e9,
        mesh=0.0,
        bridged=0.0,
        scaleup_latency=0.0,
        nic=10e9,
        nic_latency=0.0,
        spine=1.0,
        leaf=1024.0,
        base=0.0,
        pipelining=0.0,
    )
    return Network(**{**figures, **given})


def plain(network: Network, **given) -> CollectiveLibrary:
    """One protocol that uses the links as they are."""
    protocol = Protocol(
        name="Simple",
        base=network.base,
        step=network.scaleup_latency,
        hop=network.nic_latency,
        rate=network.scaleup,
        ramp=network.pipelining,
        far_ramp=network.pipelining,
    )
    return CollectiveLibrary(protocols=dict.fromkeys(OPERATIONS, (protocol,)), **given)


def seconds(network: Network, op: str, size: float, g: CollectiveGroup, **given) -> dict[str, float]:
    found = times(network, op, size, g, plain(network, **given))
    return {algorithm: float(value) for (algorithm, _), value in found.items()}


# ---- worked examples -------------------------------------------------------------------------------------------------


@sweep(
    ("ranks", "direct", "ring", "halving", "server"),
    [(8, 17.93, 18.17, 18.01, 163.62), (32, 19.85, 21.05, 20.01, 654.38), (128, 20.33, 25.37, 20.57, 2617.38)],
)
def test_gradients_of_resnet_50_over_ten_gigabytes_a_second(ranks, direct, ring, halving, server):
    network = links(domain=1.0, nic_latency=20e-6)
    found = seconds(network, "all-reduce", 102.24e6, group(network, float(ranks), 1.0))
    named = [found[name] * 1e3 for name in ("direct_two_phase", "ring", "halving_doubling", "parameter_server")]
    assert named == pytest.approx([direct, ring, halving, server], abs=0.005)


@pytest.mark.parametrize(("op", "expected"), [("all-reduce", (7.8, 10.2, 15.0)), ("all-gather", (7.2, 8.4, 10.8))])
def test_small_rings_with_the_constants_of_nccl(op, expected):
    network = links(base=6.6e-6, scaleup_latency=0.6e-6)
    for ranks, microseconds in zip((2, 4, 8), expected, strict=True):
        found = times(network, op, 1e-3, group(network, float(ranks), 1.0))
        assert found["ring", "LL"] * 1e6 == pytest.approx(microseconds, abs=1e-6)


def test_adding_switches_begin_above_four_ranks_on_hopper_and_blackwell():
    # Bus rates of 8 ranks published for H200 (ring 366, NVLS 473 GB/s) and B200 (682, 838), 4 GiB and more.
    for ring, adding, first in ((366e9, 473e9, 5), (682e9, 838e9, 5)):
        network = links(scaleup=ring, scaleup_reduce=adding)
        for ranks in range(2, 9):
            found = times(network, "all-reduce", 16 * 2.0**30, group(network, float(ranks), 1.0))
            assert (found["nvls", "Simple"] < found["ring", "Simple"]) == (ranks >= first)
        bus = 2 * 7 / 8 * 16 * 2.0**30 / found["nvls", "Simple"]
        assert bus == pytest.approx(adding)


@sweep(
    ("nodes", "inside", "adding", "port", "bus"),
    [(2, 235, 235, 6.25, 79.7), (2, 367, 480, 50, 637.5), (4, 680, 840, 50, 387.5)],
)
def test_nodes_in_pairs_are_reduced_beyond_the_rate_of_their_ports(nodes, inside, adding, port, bus):
    # With two nodes a tree crosses once each way: the bus rate may be 15/8 of the ports', with more it may not.
    share = 0.85 if port < 50 else 1.0
    network = links(scaleup=inside * 1e9, scaleup_reduce=adding * 1e9, nic=port * 1e9 * share)
    n = 8.0 * nodes
    found = times(network, "all-reduce", 16 * 2.0**30, group(network, n, 1.0))
    best = min(float(found[name, "Simple"]) for name in ("ring", "tree", *(["nvls_tree"] if adding > inside else [])))
    assert 2 * (n - 1) / n * 16 * 2.0**30 / best / 1e9 == pytest.approx(min(bus, 480 * 1.05), rel=0.1)


# ---- closed forms ----------------------------------------------------------------------------------------------------


@ANY
@given(data=st.data(), size=sizes)
def test_step_formulas_are_these_algorithms(data, size):
    network = replace(data.draw(networks()), mesh=0.0)
    network = replace(network, scaleup_reduce=network.scaleup)
    g = data.draw(groups(network))
    found = {op: seconds(network, op, size, g) for op in OPERATIONS}
    assert found["all-gather"]["ring"] == pytest.approx(collective_times.gather(network, size, g))
    assert found["reduce-scatter"]["ring"] == pytest.approx(collective_times.gather(network, size, g))
    assert found["all-to-all"]["direct"] == pytest.approx(collective_times.all_to_all(network, size, g))
    assert found["all-reduce"]["ring"] == pytest.approx(collective_times.ring_all_reduce(network, size, g))


@ANY
@given(ranks=st.integers(2, 4096), size=sizes)
def test_without_latency_direct_is_as_fast_as_a_ring(ranks, size):
    network = links(domain=1.0)
    found = seconds(network, "all-reduce", size, group(network, float(ranks), 1.0))
    assert found["direct_two_phase"] == pytest.approx(found["ring"])
    assert found["rings_2d"] == pytest.approx(found["ring"])


@ANY
@given(ranks=st.integers(2, 4096), size=sizes, hop=st.floats(1e-7, 1e-3))
def test_direct_never_loses_to_a_ring_or_a_server_and_waits_twice(ranks, size, hop):
    network = links(domain=1.0, nic_latency=hop)
    found = seconds(network, "all-reduce", size, group(network, float(ranks), 1.0))
    assert found["direct_two_phase"] <= found["ring"] * (1 + SLACK)
    assert found["direct_two_phase"] <= found["parameter_server"] * (1 + SLACK)
    small = seconds(network, "all-reduce", 1e-9, group(network, float(ranks), 1.0))
    assert small["direct_two_phase"] == pytest.approx(2 * hop)


def test_latencies_by_number_of_steps():
    network = links(scaleup_latency=1.0, nic_latency=100.0, base=1e4)
    inside, across = group(network, 8.0, 1.0), group(network, 64.0, 1.0)
    near = {k: v - 1e4 for k, v in seconds(network, "all-reduce", 1e-3, inside, switch=1.0, switch_step=7.0).items()}
    far = {k: v - 1e4 for k, v in seconds(network, "all-reduce", 1e-3, across, in_network=True).items()}
    expected = {"ring": 14, "tree": 14, "halving_doubling": 6, "nvls": 7, "direct_two_phase": 2, "parameter_server": 2}
    assert near == pytest.approx(expected, abs=0.01)
    assert far == pytest.approx(
        {
            "ring": 2 * (56 + 700),
            "tree": 2 * (7 + 300),
            "halving_doubling": 2 * (3 + 300),
            "rings_2d": 2 * (7 + 700),
            "hierarchical": 2 * (7 + 300),
            "collnet_chain": 2 * (7 + 100),
            "direct_two_phase": 200,
            "parameter_server": 200,
        },
        abs=0.01,
    )


def test_rings_inside_domains_and_across_them():
    """By hand, twice each way: 7/8 of 1 GB at 400 GB/s inside, then half of an eighth at 50 GB/s beyond."""
    network = links(scaleup=400e9, nic=50e9)
    found = seconds(network, "all-reduce", 1e9, group(network, 16.0, 1.0))
    assert found["rings_2d"] == pytest.approx(2 * (7 / 8 / 400 + 1 / 2 / 8 / 50), rel=1e-6)


def test_groups_that_share_links_share_all_of_their_rates():
    network = links(scaleup=400e9, scaleup_reduce=480e9, pair=100e9, nic=50e9)
    found = shared(network, 2.0, 5.0)
    assert (found.scaleup, found.scaleup_reduce, found.pair, found.nic) == (200e9, 240e9, 50e9, 10e9)


def test_a_scatter_and_a_gather_make_an_all_reduce():
    network = links(scaleup_latency=1e-6, nic_latency=1e-5)
    for ranks in (2, 6, 8, 24, 64):
        g = group(network, float(ranks), 1.0)
        once, both = (seconds(network, op, 1e8, g) for op in ("reduce-scatter", "all-reduce"))
        for name in set(once) & set(both):
            assert both[name] == pytest.approx(2 * once[name]), name


def test_an_adding_fabric_halves_what_ports_send():
    network = links(nic=5e9)
    g = group(network, 512.0, 1.0)
    found = seconds(network, "all-reduce", 1e9, g, in_network=True)
    assert found["ring"] / found["collnet_chain"] == pytest.approx(2 * 511 / 512)
    assert "collnet_chain" not in seconds(network, "all-reduce", 1e9, g)


def test_only_what_leaves_a_leaf_meets_the_spine():
    wide, narrow = links(leaf=64.0), links(leaf=64.0, spine=0.25)
    inside, across = group(wide, 64.0, 1.0), group(wide, 128.0, 1.0)
    for op in ("all-reduce", "all-gather"):
        assert seconds(narrow, op, 1e9, inside) == seconds(wide, op, 1e9, inside)
        slower, before = seconds(narrow, op, 1e9, across), seconds(wide, op, 1e9, across)
        assert slower["ring"] == pytest.approx(4 * before["ring"])
        # 16 nodes below two leaves: one half of S / 64 crosses, less than the 7/8 of S / 8 that stays below them.
        assert slower["hierarchical"] == pytest.approx(before["hierarchical"])


def test_parallel_aggregated_trees_want_one_rank_a_domain():
    network = links(nic_latency=14e-6, base=8e-6)
    assert "pat" not in seconds(network, "all-gather", 1e6, group(network, 64.0, 1.0))
    found = seconds(network, "all-gather", 1e-3, group(network, 64.0, 8.0))
    assert found["pat"] == pytest.approx(8e-6 + 6 * 14e-6 / 3.5 + 64 * 2.8e-6)


def test_an_uneven_exchange_counts_its_busiest_rank():
    even = np.full((4, 4), 25.0)
    assert busiest(even) == pytest.approx(100.0)
    skewed = even.copy()
    skewed[:, 2] = 50.0
    assert busiest(skewed) == pytest.approx(150.0 * 4 / 3)
    assert busiest(skewed) == busiest(skewed.T)
    many = np.stack([even, skewed])
    assert busiest(many).shape == (2,)


# ---- properties ------------------------------------------------------------------------------------------------------


@every_operation
@ANY
@given(data=st.data(), size=sizes, factor=st.floats(1.0, 1e3))
def test_more_bytes_take_longer_and_links_are_never_outrun(op, data, size, factor):
    network = data.draw(networks())
    g = data.draw(groups(network))
    library = replace(nccl_algorithms.generic(network), in_network=data.draw(st.booleans()))
    small, large = times(network, op, size, g, library), times(network, op, size * factor, g, library)
    assert small.keys() == large.keys()
    for name in small:
        assert np.isfinite(small[name])
        assert small[name] <= large[name] * (1 + SLACK), name
        assert (small[name] > 0) == (g.n > 1), name
        adds = name[0] in ("nvls", "nvls_tree", "collnet_chain")
        assert small[name] >= least(network, op, size, g, adds) * (1 - SLACK), name


@every_operation
@ANY
@given(data=st.data(), size=sizes, factor=st.floats(1.0, 16.0), nic=st.booleans())
def test_sharing_links_never_helps(op, data, size, factor, nic):
    network = data.draw(networks())
    g = data.draw(groups(network))
    library = plain(network, switch=network.scaleup)
    narrow = shared(network, **{"nic" if nic else "domain": factor})
    alone = times(network, op, size, g, library)
    for name, value in times(narrow, op, size, g, plain(narrow, switch=narrow.scaleup)).items():
        assert value >= alone[name] * (1 - SLACK)
        assert value <= factor * alone[name] * (1 + SLACK)


@every_operation
def test_arrays_are_priced_as_their_elements(op):
    network = links(base=5e-6, scaleup_latency=1e-6, nic_latency=8e-6, scaleup_reduce=140e9, leaf=32.0, spine=0.5)
    bytes_, ranks = np.array([1e3, 1e6, 1e9])[:, None], np.array([1.0, 2.0, 8.0, 16.0, 48.0, 512.0])
    for stride in (1.0, 8.0):
        table = times(network, op, bytes_, group(network, ranks, stride))
        assert all(value.shape == (3, 6) for value in table.values())
        for column, n in enumerate(ranks):
            for row, size in enumerate(bytes_[:, 0]):
                one = times(network, op, float(size), group(network, float(n), stride))
                for name, value in table.items():
                    assert value[row, column] == pytest.approx(float(one.get(name, np.inf))), (name, size, n)


def test_few_ranks_lose_rate_and_one_rank_a_domain_does_not():
    network = links()
    protocol = replace(plain(network).protocols["all-gather"][0], few=0.5)
    rates = [under(network, protocol, group(network, n, 1.0)).scaleup for n in (1.0, 2.0, 8.0)]
    assert rates == pytest.approx([100e9, 75e9, 93.75e9])


def test_every_nccl_algorithm_is_priced():
    network = links(scaleup_reduce=140e9)
    found = set()
    for op in OPERATIONS:
        library = replace(nccl_algorithms.generic(network), in_network=True)
        for g in (group(network, 8.0, 1.0), group(network, 64.0, 1.0), group(network, 8.0, 8.0)):
            found |= {name for name, _ in times(network, op, 1e6, g, library)}
    assert set(nccl_algorithms.NCCL_ALGORITHMS) <= found


def test_no_such_operation():
    network = links()
    with pytest.raises(KeyError):
        times(network, "all-shuffle", 1.0, group(network, 2.0, 1.0))
