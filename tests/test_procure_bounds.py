"""What is not searched because even its best rate is too dear: the bound holds, and nothing is answered otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from planner.base.errors import NoAnswer
from planner.catalog import load
from planner.procurement import run
from planner.procurement.question.portfolio import Job, Limits, NodeOption, Portfolio
from planner.procurement.run import Depth
from planner.question.reading import PlanOptions

NODES = ("nebius-8x-h100", "p4d.24xlarge", "p3.16xlarge", "nebius-8x-b200", "tpu-v5e-8", "lambda-8x-h100")
SAID = Depth(top=1, marginal=False, sensitivity=False)


def asked(*jobs: tuple[str, dict[str, Any]], budget: float | None = None) -> Portfolio:
    return Portfolio(
        horizon_days=365.0,
        as_of="2026-08-31",
        limits=Limits(budget=budget),
        jobs=tuple(
            Job(name=f"{model}-{n}", model=model, asked=PlanOptions(**more), tokens=2e11, deadline_day=365.0)
            for n, (model, more) in enumerate(jobs)
        ),
        candidates=tuple(
            NodeOption(node=node, ways=(way,), counts=(4,))
            for node in NODES
            for way in ("on-demand", "spot")
            if any(price.basis == way for price in load().node(node).prices)
        ),
    )


@pytest.mark.parametrize(
    "job",
    [
        ("llama3-8b", {}), ("llama3-8b", {"precision": "fp8"}), ("llama3-8b", {"method": "lora", "rank": 8}),
        ("gpt2", {}), ("gpt-oss-20b", {}), ("bert-large", {}),
    ],
)  # fmt: skip
def test_no_plan_costs_less_than_its_bound(job: tuple[str, dict[str, Any]]) -> None:
    known, wanted = load(), asked(job)
    posed = run.pose(known, wanted)
    assert posed.columns
    for c in posed.columns:
        usd = c.days * posed.instance.pools[c.pool].day_usd
        assert 0.05 * usd < posed.speeds.least_usd[c.job][c.pool] < usd, posed.instance.pools[c.pool].id


@pytest.mark.parametrize("budget", [2e3, 6e3])
def test_an_impossible_budget_is_answered_with_fewer_searches(budget: float) -> None:
    known = load()
    wanted = asked(("llama3-8b", {}), ("gpt2", {}), budget=budget)
    few = run.pose(known, wanted)
    full = run.pose(known, wanted, dearest_usd=1e12)
    assert few.speeds.searches < full.speeds.searches
    whole = run.conflict_message(wanted, run.infeasible.conflict(full.lean, run.USUAL))
    with pytest.raises(NoAnswer) as caught:
        run.procure(known, wanted, depth=SAID)
    assert str(caught.value) == whole and "budget" in whole


def test_a_budget_that_suffices_is_answered_alike() -> None:
    known = load()
    free, bounded = (
        run.procure(known, wanted, depth=SAID).alternatives[0]
        for wanted in (asked(("llama3-8b", {})), asked(("llama3-8b", {}), budget=1.2e4))
    )
    assert free.what == bounded.what and free.cost.total_usd == bounded.cost.total_usd
