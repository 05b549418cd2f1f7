"""A pool by itself stands before a plan over several that nobody can tell from it and that costs more than it saves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import api
from planner.catalog import load
from planner.mixed.alone_first import is_worth_less
from planner.schema.plan import Plan, PlanSet
from tests.answered_once import answered_once


@answered_once
def lab() -> PlanSet:
    return api.plan("llama3.2-3b", accelerators="A100:4,V100:4", tokens="50B")


def test_one_machine_is_recommended_where_both_cost_twice_as_much_for_nothing_sure() -> None:
    first, both = lab().plans[:2]

    assert [pool.node for pool in first.cluster.pools] == ["p4d.24xlarge"] and len(both.cluster.pools) == 2
    assert both.prediction.step_time_s < first.prediction.step_time_s and lab().differences is not None
    assert not lab().differences[0].distinguishable
    assert any("within the error of predictions" in why for why in lab().reasons.why_not)
    slower = first.prediction.step_time_s / both.prediction.step_time_s
    assert lab().search.gap >= slower - 1.0 and not lab().search.proven_optimal
    assert lab().reasons.other_software is None or lab().reasons.other_software == ()


@pytest.mark.parametrize(
    ("faster", "dearer", "worth_less"),
    [
        (1.04, 2.0, True),
        (1.02, 0.9, True),
        (1.04, 1.0, False),
        (1.25, 1.2, False),
        (1.25, 1.3, True),
        (3.0, 9.0, False),
    ],
)
def test_what_others_add_must_save_more_time_than_it_costs(faster: float, dearer: float, worth_less: bool) -> None:
    """A plan `faster` by a factor at `dearer` times the cost; three times as fast is no error of a prediction."""
    alone, mixed = lab().plans[:2]

    assert is_worth_less(_of(mixed, alone, faster, dearer), alone, load()) == worth_less


def _of(mixed: Plan, alone: Plan, faster: float, dearer: float) -> Plan:
    assert alone.money.usd_total is not None
    money = replace(mixed.money, days=alone.money.days / faster, usd_total=alone.money.usd_total * dearer)
    return replace(mixed, money=money)
