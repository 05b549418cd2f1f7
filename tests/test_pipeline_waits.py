"""What a stage waits for on a link between pools, against a pipeline event by event."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from planner.mixed import layer_split, pipelines, prepared_pools
from planner.question.plan_options import PlanOptions
from planner.question.several_pools import pooled_request
from tests.one_forward_one_backward import program, seconds
from tests.sweeps import sweep


def test_the_second_opinion_by_hand() -> None:
    assert program(2, 0, 2) == [
        ("F", 0), ("giveF", 0), ("F", 1), ("giveF", 1), ("takeB", 0), ("B", 0), ("takeB", 1), ("B", 1)
    ]  # fmt: skip
    # One stage; two without a link (M + stages - 1 rounds); one micro-batch there and back over two links.
    assert seconds([1.0], [2.0], [], 5) == 15.0
    assert seconds([1.0, 1.0], [2.0, 2.0], [0.0], 4) == 15.0
    assert seconds([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [0.5, 0.25], 1) == 10.5


def stage_seconds(own: list[float], links: list[float]) -> list[float]:
    """By the planner: every stage on a pool of its own."""
    places = [(i, i, "", 0) for i in range(len(own))]
    hops = [np.zeros(1), *(np.array([2.0 * each]) for each in links), np.zeros(1)]
    return [each + float(pipelines._waited(places, hops, i)[0]) for i, each in enumerate(own)]


@sweep("depth", [6, 2, 3, 4], every=4, ci=2)
def test_the_slowest_stage_paces_as_it_does_event_by_event(depth: int) -> None:
    """Each further micro-batch takes what the slowest stage computes and waits for: on average within 0.1 %."""
    rng, errors = random.Random(depth), []
    for _ in range(40):
        own = [rng.uniform(0.2, 1.0) for _ in range(depth)]
        links = [rng.choice([0.003, 0.03, 0.1, 0.3]) * rng.uniform(0.5, 1.5) for _ in range(depth - 1)]
        share = rng.uniform(0.3, 0.5)
        passes = [[part * each for each in own] for part in (share, 1.0 - share)]
        each = (seconds(*passes, links, 30) - seconds(*passes, links, 20)) / 10
        errors.append(max(stage_seconds(own, links)) / each - 1.0)
    assert max(map(abs, errors)) < 0.03 and np.mean(np.abs(errors)) < 0.001


def test_a_slow_link_costs_the_stage_before_it_half_and_the_one_behind_it_all() -> None:
    own, link = [0.8, 0.3], 0.2
    assert stage_seconds(own, [link]) == pytest.approx([1.0, 0.7])
    assert stage_seconds(own[::-1], [link]) == pytest.approx([0.5, 1.2])
    for stages in (own, own[::-1]):
        passes = [[0.4 * each for each in stages], [0.6 * each for each in stages]]
        each = (seconds(*passes, [link], 30) - seconds(*passes, [link], 20)) / 10
        assert each == pytest.approx(max(stage_seconds(stages, [link])))


def test_leading_dense_layers_take_what_their_stage_s_policy_makes_of_them() -> None:
    """Kept or computed again: what they add to the first stage is a policy's own, not the least of all."""
    known, wanted, pools = pooled_request("deepseek-v2-lite", ("dgx-h100:1", "dgx-a100-80gb:1"), PlanOptions())
    of = prepared_pools.prepare(known, wanted, pools, wanted.batches[-1])
    chain = ((0, 1), (1, 1))
    rows = pipelines.rows_of(chain, of.tables)
    found, table = pipelines.chain_costs(chain, rows, of.tables, of.links), of.tables[0]
    assert np.all(np.ptp(table.leading[rows[0]], axis=-1) > 0), "policies differ"
    for policy in range(len(table.policies)):
        extra = found.fixed[:, 0, policy] - found.fixed[:, 0, 0]
        assert np.allclose(extra, (table.leading[:, policy] - table.leading[:, 0])[rows[0]])
    assert np.all(found.fixed[:, 1] == found.fixed[:, 1, :1])


def test_within_a_pool_transfers_are_priced_as_in_one_cluster() -> None:
    """The slower side, once: what the efficiencies of one cluster were fitted with."""
    known, wanted, pools = pooled_request("gpt2-medium", ("ws-4xrtx6000:2", "t4-4:2"), PlanOptions(batch="64"))
    of = prepared_pools.prepare(known, wanted, pools, wanted.batches[-1])
    chain = ((0, 2), (1, 2))
    rows = pipelines.rows_of(chain, of.tables)
    stages, at = pipelines.places(chain), slice(0, 50)
    hops = pipelines._hops(stages, rows, of.tables, of.links)
    first, link, last = (np.broadcast_to(hop, rows[0].shape)[at] for hop in hops[1:4])
    expected: list[Any] = [first, first + link / 2, last + link, last]
    for i, seconds_waited in enumerate(expected):
        assert np.allclose(pipelines._waited(stages, hops, i)[at], seconds_waited)
    assert np.all(link > 0) and isinstance(
        pipelines.chain_costs(chain, rows, of.tables, of.links), layer_split.StageCosts
    )
