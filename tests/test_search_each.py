"""One search for many node counts finds what a search for each count finds."""

from dataclasses import replace

import pytest

from planner.api import Asked, request
from planner.errors import ClusterwrightError
from planner.question import prepare, problem
from planner.search.bounded import Bounded
from planner.search.each import best_of_each


@pytest.mark.parametrize(
    ("model", "cluster", "objective"),
    [
        ("llama3-8b", "dgx-h100:1..8", "time"),
        ("llama3-8b", "ws-2xrtx4090:1", "time"),
        ("gpt-oss-20b", "p4d.24xlarge:2..8", "energy"),
        ("llama3-70b", "dgx-a100-80gb:1..6", "time"),
    ],
)
def test_each_count_has_the_plan_that_it_has_alone(model: str, cluster: str, objective: str) -> None:
    known, asked = request(model, cluster, Asked(objective=objective))
    together = best_of_each(problem(prepare(known, asked), 1))
    for count in asked.counts:
        try:
            alone = Bounded().search(problem(prepare(known, replace(asked, counts=(count,))), 1)).best
        except ClusterwrightError:
            alone = ()
        if not alone:
            assert count not in together
            continue
        found = together[count]
        assert (found.value, found.time, found.memory) == (alone[0].value, alone[0].time, alone[0].memory)
        assert (found.layout, found.options) == (alone[0].layout, alone[0].options)
