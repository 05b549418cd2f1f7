"""Plans worth running: the top of the ranking without twins, and what running some of them brought elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from planner.planning import order
from planner.schema.plan import Plan

LOOKED_AT = 300
"""Best plans that a shortlist is taken from: most differ from a better one in recomputation or ZeRO stage only."""
MANY_NODES = 16
"""Nodes from which on the choice is worse: a published sweep has times there that no law explains, up to 100 times the
predicted (docs/learning.md)."""
REGRET = {
    1: {1: 0.008, 2: 0.0002, 3: 0.0, 5: 0.0},
    2: {1: 0.3812, 2: 0.0048, 3: 0.0021, 5: 0.0021},
    MANY_NODES: {1: 0.5316, 2: 0.4542, 3: 0.1753, 5: 0.1722},
}
"""From so many nodes on: how much slower than the best measured plan of a job the best of the first runs of its
shortlist was, on average over published jobs whose lab no fit had seen (benchmarks/learning.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortlistOptions:
    """What a shortlist is to hold."""

    count: int
    able: Callable[[Plan], bool]
    """Whether the launcher starts a plan as it is."""
    measured: Sequence[Plan] = field(default_factory=tuple)
    """Plans that were run: near them, predictions are surest."""


def pick(plans: Sequence[Plan], options: ShortlistOptions) -> list[int]:
    """Places of the plans to run, of a ranking: launchable, not run yet, each with other degrees or another schedule.

    The recommended plan comes first. Among others within :data:`planner.planning.order.TIED` of one another it is the
    nearest to what was measured, then the simplest, then the cheapest.
    """
    families: dict[Hashable, int] = {}
    first = order.recommended(plans)
    for place in order.with_first(first, len(plans)):
        plan = plans[place]
        if plan.measured is None and family(plan) not in families and options.able(plan):
            families[family(plan)] = place
    ordered = [place for tied in _ties(plans, sorted(families.values())) for place in _sorted(plans, tied, options)]
    return sorted(ordered, key=lambda place: place != first)[: options.count]


def family(plan: Plan) -> Hashable:
    """What twins share: machines, batch, precision, degrees, ZeRO stage, and whether stages are interleaved."""
    cut = plan.parallelism
    return (order.question(plan), cut.tp, cut.pp, cut.cp, cut.ep, cut.etp, cut.vpp > 1, cut.zero_stage)


def regret(plans: Sequence[Plan]) -> dict[str, float]:
    """How much slower than the best plan the best of the first few of such a list was: number of runs -> share."""
    nodes = sum(pool.count for pool in plans[0].cluster.pools)
    shares = REGRET[max(fewest for fewest in REGRET if fewest <= nodes)]
    return {str(runs): share for runs, share in shares.items() if runs <= len(plans)}


def _ties(plans: Sequence[Plan], places: Sequence[int]) -> Iterator[list[int]]:
    """Runs of places whose plans are within :data:`planner.planning.order.TIED` of the first of the run."""
    tied: list[int] = []
    for place in places:
        if tied and _time(plans[place]) > (1.0 + order.TIED) * _time(plans[tied[0]]):
            yield tied
            tied = []
        tied.append(place)
    if tied:
        yield tied


def _time(plan: Plan) -> float:
    """Days to train: plans on other machines or with other batches compare by it."""
    return plan.money.days


def _sorted(plans: Sequence[Plan], tied: Sequence[int], options: ShortlistOptions) -> list[int]:
    def key(place: int) -> tuple[float, int, float, int]:
        plan = plans[place]
        near = min((distance(plan, each) for each in options.measured), default=0.0)
        return near, order.kinds(plan), plan.money.usd_total or 0.0, place

    return sorted(tied, key=key)


def distance(first: Plan, second: Plan) -> float:
    """Doublings between two plans, over all degrees and the micro-batch."""
    axes = ("tp", "pp", "vpp", "cp", "ep", "dp")
    pairs = [(getattr(first.parallelism, axis), getattr(second.parallelism, axis)) for axis in axes]
    return sum(abs(math.log2(a / b)) for a, b in [*pairs, (first.batch.micro, second.batch.micro)])
