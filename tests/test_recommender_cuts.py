"""Embedding tables cut over ranks, by hand: what the fullest rank holds, reads and sends, and what that takes."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost import collective_times, dlrm
from planner.cost.expanded_memory import Far
from planner.cost.figures import Network
from planner.models import families
from tests.sweeps import sweep
from tests.test_families import columns, jitter, scalars

E, SAMPLES = 2.0, 50.0
WIDTH = 128


def model(tables, lookups, **more):
    """DLRM of MLPerf with other tables: 4 bytes an element, and as many of Adagrad's."""
    base = families.recommender("dlrm-criteo1tb")
    return replace(base, tables=tuple(tables), lookups=tuple(lookups), state_bytes=4, **more)


UNLIKE = model((1000, 70, 20, 10), (1, 1, 30, 100))
"""The largest tables are looked up least."""


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=7), st.integers(1, 3))
def test_dealing_whole_tables_is_near_the_best_there_is(weights, ranks):
    """Heaviest first is within ``4/3 - 1/(3 n)`` of the best of all deals (Graham 1969), and never better."""
    every = itertools.product(range(ranks), repeat=len(weights))
    best = min(
        max(sum(w for w, at in zip(weights, deal, strict=True) if at == r) for r in range(ranks)) for deal in every
    )
    fullest = dlrm.dealt(weights, ranks) * sum(weights) / ranks
    assert best * (1 - 1e-12) <= fullest <= best * (4 / 3 - 1 / (3 * ranks)) * (1 + 1e-12)


def test_the_fullest_rank_holds_what_it_was_dealt():
    row = WIDTH * (4 + 4)
    assert dlrm.rank_bytes(UNLIKE, 4, "even") == dlrm.rank_bytes(UNLIKE, 4, "row") == 275 * row
    assert dlrm.rank_bytes(UNLIKE, 2, "table") == pytest.approx(1000 * row)
    assert dlrm.rank_bytes(UNLIKE, 6, "table") == pytest.approx(1000 * row), "two ranks have none"
    assert dlrm.rank_bytes(UNLIKE, 3, "column") == pytest.approx(1100 * 43 * (4 + 4)), "128 = 43 + 43 + 42"


def test_the_busiest_rank_serves_what_is_looked_up_in_its_tables():
    """On two ranks one has the table of 100 lookups, the other those of 30, 1 and 1."""
    even = dlrm.gather_bytes(UNLIKE, E, SAMPLES, 2)
    for by, share in (("row", 1.0), ("column", 1.0), ("table", 100 / (132 / 2))):
        found = dlrm.gather_bytes(UNLIKE, E, SAMPLES, 2, by)
        assert (found.forward, found.backward) == pytest.approx((even.forward * share, even.backward * share))


def test_the_busiest_rank_sends_the_vectors_of_its_tables():
    """Four tables on three ranks: one serves two, for the samples of all three."""
    assert dlrm.exchange_bytes(UNLIKE, E, SAMPLES, 3, "even") == SAMPLES * 4 * WIDTH * E
    assert dlrm.exchange_bytes(UNLIKE, E, SAMPLES, 3, "table") == pytest.approx(3 * SAMPLES * 2 * WIDTH * E)
    assert dlrm.exchange_bytes(UNLIKE, E, SAMPLES, 3, "column") == pytest.approx(3 * SAMPLES * 4 * 43 * E)
    partial = 1 + 1 + 3 + 3  # of three ranks, as many as the lookups may fall on
    assert dlrm.exchange_bytes(UNLIKE, E, SAMPLES, 3, "row") == SAMPLES * partial * WIDTH * E


def test_indices_go_to_every_rank_that_has_columns():
    once = 8 * SAMPLES * 132
    ways = {by: dlrm.index_bytes(UNLIKE, SAMPLES, 3, by) for by in ("even", "table", "row", "column")}
    assert ways == {"even": 0.0, "table": once, "row": once, "column": 3 * once}


# ---- seconds ---------------------------------------------------------------------------------------------------------


@cache
def ground():
    """Scalars of a published run: device, network, software, batch, ranks; and what waiting for the slowest adds."""
    chosen, (device, network, software, batch, ranks) = columns("dlrm", "dlrm-criteo1tb")
    row = next(i for i, run in enumerate(chosen) if run.accelerators > 8)
    net, soft = scalars(network, row), scalars(software, row)
    one = (type(device)(**scalars(device, row)), Network(**net), type(software)(**soft))
    return (*one, float(batch[row]), float(ranks[row])), jitter(net, soft)


@pytest.mark.slow
def test_indices_are_sent_once():
    """Rows of one-hot tables on as many ranks bring what even cuts bring, but for the exchange of indices."""
    of = model([1000] * 26, [1] * 26)
    (device, network, software, batch, ranks), waits = ground()
    by_row, evenly = (
        float(dlrm.step_time(of, device, network, software, batch, dlrm.TableCut(ranks, by))) for by in ("row", "even")
    )
    links = replace(network, scaleup=network.scaleup * software.exchange, nic=network.nic * software.exchange)
    sent = 8.0 * batch / ranks * 26
    wanted = float(collective_times.all_to_all(links, sent, collective_times.group(network, ranks, 1.0)))
    assert by_row - evenly == pytest.approx(waits * wanted, rel=1e-6)


@sweep("share", [0.0, 0.3, 1.0])
def test_a_share_of_the_tables_is_read_where_it_lies(share):
    """Serial: ``(1 - f) / B + f / B_far`` for every byte; concurrent: the longer of the two."""
    (device, network, software, batch, ranks), waits = ground()
    args = (UNLIKE, device, network, software, batch)
    moved = dlrm.gather_bytes(UNLIKE, software.element, batch / ranks)
    size, near, far = moved.forward + moved.backward, device.memory_rate * software.gather, 64e9
    alone = float(dlrm.step_time(*args, dlrm.TableCut(ranks)))
    for concurrent, seconds in (
        (0.0, size * ((1 - share) / near + share / far)),
        (1.0, size * max((1 - share) / near, share / far)),
    ):
        cut = dlrm.TableCut(ranks, far=Far(share, 0.0, far, concurrent))
        found = float(dlrm.step_time(*args, cut))
        assert found - alone == pytest.approx(waits * (seconds - size / near), rel=1e-6, abs=1e-12)
    assert np.isfinite(alone)
