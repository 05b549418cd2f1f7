"""Plans worth running: the top of the ranking without twins, and what running some of them brought elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from planner.axes.table import RANK_ORDER
from planner.schema.plan import Plan
from planner.schema.plan_machines import node_counts

LOOKED_AT = 300
"""Best plans that a shortlist is taken from: most differ from a better one in recomputation or ZeRO stage only."""
TIED = 0.03
"""Relative difference of step times within which the order of plans says nothing: so close, measured times are judged
equal, too (calibration/report/prediction_errors.py, APART)."""
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

    Among plans within :data:`TIED` of one another the nearest to what was measured comes first, then the simplest, then
    the cheapest.
    """
    families: dict[Hashable, int] = {}
    for place, plan in enumerate(plans):
        if plan.measured is None and family(plan) not in families and options.able(plan):
            families[family(plan)] = place
    ordered = [place for tied in _ties(plans, list(families.values())) for place in _sorted(plans, tied, options)]
    return ordered[: options.count]


def recommended(plans: Sequence[Plan]) -> int:
    """Place of the plan to run: the first, or a simpler one of the same question within :data:`TIED` of it.

    Arguments:
        plans: Ranked plans, best first; where any was measured, the first is the one to run.
    """
    first = plans[0]
    if any(plan.measured for plan in plans):
        return 0
    same = [p for p in plans if _question(p) == _question(first) and _time(p) <= (1.0 + TIED) * _time(first)]
    return plans.index(min(same, key=lambda plan: (kinds(plan), plan.rank)))


def _question(plan: Plan) -> Hashable:
    """What makes a step's time alone say which plan is better."""
    return node_counts(plan.cluster), plan.batch.global_, plan.precision


def family(plan: Plan) -> Hashable:
    """What twins share: machines, batch, precision, degrees, ZeRO stage, and whether stages are interleaved."""
    cut = plan.parallelism
    return (_question(plan), cut.tp, cut.pp, cut.cp, cut.ep, cut.etp, cut.vpp > 1, cut.zero_stage)


def kinds(plan: Plan) -> int:
    """How many kinds of parallelism a plan takes besides replicas, and unusual places of states and ranks: what can go
    wrong when it is first run.
    """
    cut = plan.parallelism
    degrees = (cut.tp > 1, cut.pp > 1, cut.vpp > 1, cut.cp > 1, cut.ep > 1, cut.zero_stage > 1)
    places = (any(plan.offload.values()) or plan.offloaded is not None, not RANK_ORDER.is_neutral(plan))
    return sum((*degrees, *places))


def regret(plans: Sequence[Plan]) -> dict[str, float]:
    """How much slower than the best plan the best of the first few of such a list was: number of runs -> share."""
    nodes = sum(pool.count for pool in plans[0].cluster.pools)
    shares = REGRET[max(fewest for fewest in REGRET if fewest <= nodes)]
    return {str(runs): share for runs, share in shares.items() if runs <= len(plans)}


def _ties(plans: Sequence[Plan], places: Sequence[int]) -> Iterator[list[int]]:
    """Runs of places whose plans are within :data:`TIED` of the first of the run."""
    tied: list[int] = []
    for place in places:
        if tied and _time(plans[place]) > (1.0 + TIED) * _time(plans[tied[0]]):
            yield tied
            tied = []
        tied.append(place)
    if tied:
        yield tied


def _time(plan: Plan) -> float:
    """Days to train: plans on other machines or with other batches compare by it."""
    return plan.money.days


def _sorted(plans: Sequence[Plan], tied: Sequence[int], options: ShortlistOptions) -> list[int]:
    def order(place: int) -> tuple[float, int, float, int]:
        plan = plans[place]
        near = min((distance(plan, each) for each in options.measured), default=0.0)
        return near, kinds(plan), plan.money.usd_total or 0.0, place

    return sorted(tied, key=order)


def distance(first: Plan, second: Plan) -> float:
    """Doublings between two plans, over all degrees and the micro-batch."""
    axes = ("tp", "pp", "vpp", "cp", "ep", "dp")
    pairs = [(getattr(first.parallelism, axis), getattr(second.parallelism, axis)) for axis in axes]
    return sum(abs(math.log2(a / b)) for a, b in [*pairs, (first.batch.micro, second.batch.micro)])
