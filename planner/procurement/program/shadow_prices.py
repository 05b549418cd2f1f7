"""Shadow prices of limits: what more of each would bring.

An integer program has no duals: each limit is moved by its usual step, and the program is solved again.
"""

from __future__ import annotations

from planner.procurement.answer.document import SCALES, UNITS
from planner.procurement.program.infeasible import reaching
from planner.procurement.program.instance import (
    Limit,
    ProcureInstance,
    ProcureVariant,
    ProgramSolution,
    Settings,
    limits,
    moved,
)
from planner.procurement.program.solve import best
from planner.procurement.throughput.bounds import LARGEST_STEP
from planner.question.values import DAYS_PER_MONTH
from planner.schema.procurement import MarginalValue

STEPS = {"USD": 1e5, "W": 5e4, "d": DAYS_PER_MONTH, "kg": 1e4}
"""$100k, 50 kW, a month, 10 t; one of what is counted."""

MOST_LEFT = 0.5
"""Share of a budget below which what an answer pays leaves most of it."""
SOONER = 0.01
"""Share of the days by which an earlier end is worth naming."""


def soonest(instance: ProcureInstance, first: ProgramSolution, settings: Settings) -> ProgramSolution | None:
    """The earliest completion within the budget; None unless the first answer leaves most of that and ends later."""
    budget = instance.asked.limits.budget
    if budget is None or instance.asked.objective in ("time", "tokens") or first.use["budget"] > budget * MOST_LEFT:
        return None
    earliest = best(instance, ProcureVariant(), "time", settings)
    return earliest if earliest is not None and earliest.done < first.done * (1 - SOONER) else None


def marginal_values(instance: ProcureInstance, first: ProgramSolution, settings: Settings) -> tuple[MarginalValue, ...]:
    """The shadow price of every limit, in the order of the limits."""
    return tuple(_marginal_value(instance, first, limit, settings) for limit in limits(instance.asked, instance.pools))


def step(limit: Limit) -> float:
    """How far a limit is moved: its unit's usual step, at most a quarter of it."""
    usual = STEPS.get(limit.unit, 1.0)
    return usual if limit.unit == "" else min(usual, LARGEST_STEP * limit.value) or usual


def _marginal_value(
    instance: ProcureInstance, first: ProgramSolution, limit: Limit, settings: Settings
) -> MarginalValue:
    objective = instance.asked.objective
    by = step(limit)
    if objective == "tokens" and limit.name == "horizon":
        instance = reaching(instance, limit.value + by)  # what is bought is there as long
    again = best(instance, moved(ProcureVariant(), limit.name, limit.value + by), objective, settings)
    gain = 0.0 if again is None else first.value - again.value
    # What lies within the gap of either answer is no gain.
    worth = gain if gain > 2 * settings.gap * abs(first.value) else 0.0
    return MarginalValue(
        limit=limit.name,
        step=by,
        unit=limit.unit,
        gain=worth * abs(SCALES.get(objective, 1.0)),
        gain_unit=UNITS[objective],
    )
