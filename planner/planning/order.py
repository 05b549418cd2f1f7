"""The order in which plans are listed: the one to run, then the others, best first, without dominated ones.

The screen, pages, documents and Python all read it: the first plan of a set is the recommended one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from planner.axes.table import (
    ACTIVATION_OFFLOAD,
    ATTENTION_KERNEL,
    GRAPHS,
    OFFLOAD,
    OFFLOAD_OVERLAP,
    PRECISION,
    RANK_ORDER,
)
from planner.axes.values import nodes_of
from planner.schema.plan import Plan
from planner.schema.plan_machines import node_counts
from planner.search import waves
from planner.search.problem import Candidate

TIED = waves.TIED
"""Relative difference of step times within which the order of plans says nothing: so close, measured times are judged
equal, too (calibration/report/prediction_errors.py, APART)."""
CHOSEN_AMONG = 5
"""Best plans among which the one to run is chosen, so that it does not depend on how many are listed."""
DEGREES = ("nodes", "batch", "tp", "pp", "cp", "ep", "etp")
"""What candidates share, besides precision, of which one can dominate another."""
STALLED = {"nanotron": (256, 28, 46)}
"""Runtime -> accelerators from which on most of its published runs with stages waited a quarter of a second and more
longer than predicted at each transfer, for a cause that nobody has found (docs/accuracy-details.md); how many of all
runs."""


def not_dominated(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The candidates that no other of the same machines, batch, precision and degrees beats in time at no more memory.

    Arguments:
        candidates: Best first: whatever beats another stands before it.
    """
    kept: list[Candidate] = []
    ahead: dict[Hashable, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        rivals = ahead[(candidate.options[PRECISION], *(candidate.layout[axis] for axis in DEGREES))]
        if not any(rival.time < candidate.time and rival.memory <= candidate.memory for rival in rivals):
            rivals.append(candidate)
            kept.append(candidate)
    return tuple(kept)


def recommended(plans: Sequence[Plan]) -> int:
    """Place of the plan to run: of the first :data:`CHOSEN_AMONG` the first that needs nothing :func:`seldom_measured`
    and is of no class that :func:`stalls`, or a simpler one of the same question within :data:`TIED` of it; before it,
    the first that was measured and cannot be told from it.

    Arguments:
        plans: Best first.
    """
    listed = plans[:CHOSEN_AMONG]
    proven = [place for place, plan in enumerate(listed) if not (seldom_measured(plan) or stalls(plan))]
    able = proven or [*range(len(listed))]
    first = plans[able[0]]
    most = (1.0 + TIED) * first.money.days
    tied = [place for place in able if question(plans[place]) == question(first) and plans[place].money.days <= most]
    simplest = min(tied, key=lambda place: (kinds(plans[place]), place))
    measured = (place for place, plan in enumerate(plans) if plan.measured and _as_good(plan, plans[simplest]))
    return next(measured, simplest)


def quickest_of_cheapest(plans: Sequence[Plan]) -> int:
    """Place of the quickest plan of those within :data:`TIED` of the fewest accelerator-days, to which money and energy
    are in proportion: nobody waits four times as long for a difference that says nothing.

    Arguments:
        plans: The plan to run on each count of nodes of one kind.
    """
    proven = [place for place, plan in enumerate(plans) if not (seldom_measured(plan) or stalls(plan))]
    spent = {place: _accelerator_days(plans[place]) for place in proven or range(len(plans))}
    most = (1.0 + TIED) * min(spent.values())
    return min((place for place in spent if spent[place] <= most), key=lambda place: plans[place].money.days)


def _accelerator_days(plan: Plan) -> float:
    return plan.cluster.accelerators * plan.money.days


def _as_good(plan: Plan, other: Plan) -> bool:
    """Whether a plan is of the same question as another, and faster or not to be told from it at 80 %."""
    intervals = [one.prediction.intervals.get("step_time_s") for one in (plan, other)]
    half_widths = [math.log(interval.high / interval.low) / 2.0 for interval in intervals if interval is not None]
    apart = math.log(plan.money.days / other.money.days)
    return question(plan) == question(other) and apart <= math.hypot(*half_widths)


def seldom_measured(plan: Plan) -> bool:
    """Whether a plan keeps in host memory what few measured runs keep there: activations, a part of the optimizer
    states, or copies that overlap.
    """
    part = 0.0 < OFFLOAD.value(OFFLOAD.of(plan)) < 1.0
    return part or not (OFFLOAD_OVERLAP.is_neutral(plan) and ACTIVATION_OFFLOAD.is_neutral(plan))


def stalls(plan: Plan) -> str:
    """How many published runs of a plan's class were slower than predicted at each transfer, where most were; else
    empty.
    """
    many, slow, runs = STALLED.get(plan.runtime.name, (math.inf, 0, 0))
    note = f"{slow} of {runs} runs of {plan.runtime.name} like it waited 0.25 s and more longer at each transfer"
    return note if plan.parallelism.pp > 1 and plan.cluster.accelerators >= many else ""


def with_first(place: int, count: int) -> list[int]:
    """All places of a list of so many, one of them first."""
    return [place, *(other for other in range(count) if other != place)]


def question(plan: Plan) -> Hashable:
    """Machines, batch and precision: among plans that share them a step's time alone says which is better."""
    return node_counts(plan.cluster), plan.batch.global_, plan.precision


def kinds(plan: Plan) -> int:
    """How many kinds of parallelism a plan takes besides replicas, unusual places of states and ranks, and graphs and
    kernels that it names: what can go wrong when it is first run.
    """
    cut = plan.parallelism
    degrees = (cut.tp > 1, cut.pp > 1, cut.vpp > 1, cut.cp > 1, cut.ep > 1, cut.zero_stage > 1)
    places = (any(plan.offload.values()) or plan.offloaded is not None, not RANK_ORDER.is_neutral(plan))
    spanned = nodes_of(cut.zero_scope) > 1
    named = (not axis.is_neutral(plan) for axis in (GRAPHS, ATTENTION_KERNEL))
    return sum((*degrees, *places, spanned, *named))
