"""What is not searched because even its best rate is too dear: the bound holds, and nothing is answered otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from planner.base.errors import NoAnswer
from planner.catalog import load
from planner.procurement import run
from planner.procurement.program import infeasible
from planner.procurement.question.portfolio import Job, Limits, NodeOption, Portfolio
from planner.procurement.run import Depth
from planner.procurement.throughput.bounds import EVERYTHING, Reach
from planner.question.plan_options import PlanOptions
from tests.sweeps import sweep

NODES = ("nebius-8x-h100", "p4d.24xlarge", "p3.16xlarge", "nebius-8x-b200", "tpu-v5e-8", "lambda-8x-h100")
SAID = Depth(top=1, marginal=False, sensitivity=False)


def asked(
    *jobs: tuple[str, dict[str, Any]], budget: float | None = None, deadline: float = 365.0, buy: tuple[int, ...] = (),
    nodes: tuple[str, ...] = NODES,
) -> Portfolio:  # fmt: skip
    return Portfolio(
        horizon_days=365.0,
        as_of="2026-08-31",
        limits=Limits(budget=budget),
        jobs=tuple(
            Job(name=f"{model}-{n}", model=model, asked=PlanOptions(**more), tokens=2e11, deadline_day=deadline,
                given_deadline=deadline < 365.0)
            for n, (model, more) in enumerate(jobs)
        ),
        candidates=tuple(
            NodeOption(node=node, ways=(way,), counts=(4,))
            for node in nodes
            for way in ("on-demand", "spot")
            if any(price.basis == way for price in load().node(node).prices)
        )
        + tuple(NodeOption(node="hgx-h100", ways=("buy",), counts=buy) for _ in buy[:1]),
    )  # fmt: skip


@sweep(
    "job",
    [
        ("llama3-8b", {}), ("llama3-8b", {"precision": "fp8"}), ("llama3-8b", {"method": "lora", "rank": 8}),
        ("gpt2", {}), ("gpt-oss-20b", {}), ("bert-large", {}),
    ],
    every=3,
)  # fmt: skip
def test_no_plan_costs_less_than_its_bound(job: tuple[str, dict[str, Any]]) -> None:
    known, wanted = load(), asked(job)
    posed = run.pose(known, wanted)
    assert posed.whole.columns
    for c in posed.whole.columns:
        usd = c.days * posed.instance.pools[c.pool].day_usd
        assert 0.05 * c.days < posed.speeds.least.days[c.job][c.pool] < c.days
        assert 0.05 * usd < posed.speeds.least.usd(c.job, c.pool) < usd, posed.instance.pools[c.pool].id


@pytest.mark.slow
@sweep(
    ("budget", "deadline", "buy"),
    [(2e3, 365.0, ()), (6e3, 365.0, ()), (6e3, 5.0, (1, 8)), (6e3, 2.0, (1, 8)), (None, 1.0, ())],
    ci=2,
)
def test_what_is_impossible_is_answered_with_fewer_searches(
    budget: float | None, deadline: float, buy: tuple[int, ...]
) -> None:
    known = load()
    wanted = asked(("llama3-8b", {}), ("gpt2", {}), budget=budget, deadline=deadline, buy=buy)
    few, full = run.pose(known, wanted), run.pose(known, wanted, reach=EVERYTHING)
    assert len(few.whole.columns) < len(full.whole.columns) or deadline < 3.0  # nothing is in time, so all is looked at
    whole = run.conflict_message(wanted, infeasible.conflict(full.lean, run.USUAL))
    with pytest.raises(NoAnswer) as caught:
        run.procure(known, wanted, depth=SAID)
    assert str(caught.value) == whole and ("budget" if budget and deadline > 3.0 else "deadline") in whole


@pytest.mark.slow
@pytest.mark.parametrize("budget", [2e4, 4e3])
def test_what_is_late_or_too_dear_is_searched_where_it_is_a_remedy(budget: float) -> None:
    """In time are only machines that are bought; cheaper ones would do with more time, or for some of the work."""
    known = load()
    wanted = asked(("llama3-8b", {}), budget=budget, deadline=4.5, buy=(8,), nodes=("p4d.24xlarge", "tpu-v5e-8"))
    few, full = run.pose(known, wanted), run.pose(known, wanted, reach=EVERYTHING)
    assert len(few.whole.columns) < len(full.whole.columns)
    whole = run.conflict_message(wanted, infeasible.conflict(full.lean, run.USUAL))
    with pytest.raises(NoAnswer) as caught:
        run.procure(known, wanted, depth=SAID)
    assert str(caught.value) == whole and "of the work" in whole and ("deadline" in whole) == (budget > 1e4)


@pytest.mark.slow
def test_a_larger_reach_searches_only_what_it_adds() -> None:
    known = load()
    wanted = asked(("llama3-8b", {}), budget=6e3, deadline=3.0, buy=(1, 8))
    posed = run.pose(known, wanted)
    made = posed.speeds.searches
    assert run.pose(known, wanted, reach=Reach(usd=6e3, late_usd=0.0), known=posed).speeds.searches == made
    whole = run.pose(known, wanted, reach=EVERYTHING, known=posed)
    assert whole.speeds.searches > made
    assert sorted(map(repr, whole.whole.columns)) == sorted(
        map(repr, run.pose(known, wanted, reach=EVERYTHING).whole.columns)
    )


@pytest.mark.slow
def test_a_budget_that_suffices_is_answered_alike() -> None:
    known = load()
    free, bounded = (
        run.procure(known, wanted, depth=SAID).alternatives[0]
        for wanted in (asked(("llama3-8b", {})), asked(("llama3-8b", {}), budget=1.2e4))
    )
    assert free.what == bounded.what and free.cost.total_usd == bounded.cost.total_usd
