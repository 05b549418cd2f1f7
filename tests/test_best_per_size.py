"""One search for many node counts finds what a search for each count finds."""

from dataclasses import replace

import numpy as np
import pytest

from planner.base.errors import ClusterwrightError
from planner.question.plan_options import PlanOptions
from planner.question.reading import request
from planner.question.search_problem import prepare, problem
from planner.search.best_per_size import best_of_each, fastest
from planner.search.branch_and_bound import Bounded, survey
from planner.search.costing import table
from tests.sweeps import sweep


@sweep(
    ("model", "cluster", "objective"),
    [
        ("llama3-8b", "dgx-h100:1..8", "time"),
        ("llama3-8b", "ws-2xrtx4090:1", "time"),
        ("gpt-oss-20b", "p4d.24xlarge:2..8", "energy"),
        ("llama3-70b", "dgx-a100-80gb:1..6", "time"),
    ],
    every=4,
    ci=2,
)
def test_each_count_has_the_plan_that_it_has_alone(model: str, cluster: str, objective: str) -> None:
    known, asked = request(model, cluster, PlanOptions(objective=objective))
    together = best_of_each(problem(prepare(known, asked), 1))
    for count in asked.counts:
        try:
            alone = Bounded().search(problem(prepare(known, replace(asked, counts=(count,))), 1)).best
        except ClusterwrightError:
            alone = ()
        if not alone:
            assert (0, count) not in together
            continue
        found = together[0, count]
        assert (found.value, found.time, found.memory) == (alone[0].value, alone[0].time, alone[0].memory)
        assert (found.layout, found.options) == (alone[0].layout, alone[0].options)


@pytest.mark.slow
def test_several_wirings_at_once_are_what_each_is_alone() -> None:
    known, asked = request("llama3-8b", "dgx-h100:2..8", PlanOptions())
    fabrics = [
        replace(asked.cluster.fabric, leaf_nodes=n, oversubscription=o) for n, o in ((32, 1.0), (1, 4.0), (2, 8.0))
    ]
    wired = [replace(asked, cluster=replace(asked.cluster, fabric=fabric)) for fabric in fabrics]
    prepared = [prepare(known, each) for each in wired]
    networks = [each.figures.network for each in prepared]
    together = best_of_each(problem(prepared[0], 1), networks)
    times = set()
    for n, each in enumerate(prepared):
        alone = best_of_each(problem(each, 1))
        for count in asked.counts:
            one, other = together[n, count], alone[0, count]
            assert (one.time, one.memory, one.layout, one.options) == (
                other.time,
                other.memory,
                other.layout,
                other.options,
            )
            times.add(one.time)
    assert len(times) > len(asked.counts)  # thinner networks are slower


@pytest.mark.slow
def test_the_bound_for_several_wirings_is_below_that_of_each() -> None:
    known, asked = request("llama3-70b", "dgx-h100:8..16", PlanOptions())
    prepared = prepare(known, asked)
    thin = replace(asked.cluster.fabric, leaf_nodes=1, oversubscription=8.0, latency=asked.cluster.fabric.latency * 9)
    other = prepare(known, replace(asked, cluster=replace(asked.cluster, fabric=thin)))
    networks = [prepared.figures.network, other.figures.network]
    lower = 0
    for order in (networks, networks[::-1]):
        together = fastest(order)
        whole = problem(prepared, 1)
        for index in range(len(whole.blocks)):
            bounds = [
                survey(posed, index, table(posed, index)).value
                for posed in (replace(whole, figures=replace(whole.figures, network=n)) for n in (together, *order))
            ]
            assert np.all(bounds[0] <= bounds[1]) and np.all(bounds[0] <= bounds[2])
            lower += int(np.count_nonzero(bounds[0] < np.maximum(bounds[1], bounds[2])))
    assert lower  # the wiring matters to some
