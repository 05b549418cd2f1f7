"""Why the best plan over several pools is best, what it leaves out, and what would help where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from planner.base.units import format_percent
from planner.mixed.answer import value_of
from planner.mixed.pool_subsets import Searched
from planner.question.job_pools import JobPool, Pools
from planner.question.request import Request, goodput_over
from planner.schema.plan import Plan, Reasons


def nothing(request: Request, pools: Pools, refused: Sequence[str]) -> str:
    """That no pools, together or alone, have a plan: why each alone has none (`refused`), and what would help."""
    names = " + ".join(f"{p.name}:{p.count}" for p in pools.all)
    limits = request.deadline_s is not None or request.max_cost_usd is not None
    idle = float(goodput_over(request, [(p, float(p.count)) for p in pools.all]).fraction) <= 0
    why = "keeps the limits" if limits else "makes progress between interruptions" if idle else "fits into memory"
    lines = [f"No plan on {names} {why}, neither over several pools nor on one.", *refused]
    if limits:
        lines.append("What would do: a later deadline (--deadline) or a larger budget (--max-cost).")
    return "\n".join(lines)


def reasons(request: Request, pools: Pools, plans: Sequence[Plan], refused: Sequence[str],
            searched: Sequence[Searched]) -> Reasons:  # fmt: skip
    """What limits the best of `plans`, what it leaves of the pools, and how much worse the others are."""
    best = plans[0]
    left = [_left_out(best, pool, _apart(pool, searched)) for pool in pools.all]
    why_not = [text for text in left if text]
    for other in plans[1:]:
        slower = value_of(request, other) / value_of(request, best) - 1.0
        words = {"time": "slower", "energy": "more energy"}.get(request.objective, "dearer")
        unlike = f" (in {other.precision}, #1 in {best.precision})" if other.precision != best.precision else ""
        why_not.append(f"#{other.rank} {_where(other)}: {format_percent(slower)} {words}{unlike}")
    return Reasons(binds=_binds(best), gains={}, why_not=(*why_not, *refused))


def of_given(plan: Plan) -> Reasons:
    """What limits a plan that was given, not searched."""
    return Reasons(binds=_binds(plan), gains={}, why_not=())


def _binds(best: Plan) -> tuple[str, ...]:
    memory, largest = best.prediction.memory, tuple(f"{name} of the step" for name in _largest(best))
    free = 1.0 - memory.total_bytes / memory.capacity_bytes
    left = f"{format_percent(free)} free" if free >= 0.0 else f"{format_percent(-free)} too little"
    scarce = f"memory of stage {memory.stage + 1} ({left})"
    return (scarce, *largest) if free < 0.05 else largest


def _largest(best: Plan) -> list[str]:
    parts = best.prediction.breakdown
    name = max(parts, key=lambda each: parts[each])
    return [f"{name} {format_percent(parts[name] / best.prediction.step_time_s, 0)}"]


def _where(each: Plan) -> str:
    """The pools that a plan uses, by node and count."""
    return " + ".join(f"{p.count:,} x {p.node}{'@' + p.zone if p.zone else ''}" for p in each.cluster.pools)


def _apart(pool: JobPool, searched: Sequence[Searched]) -> str:
    """Why no set of several pools with this one could be searched; empty where one was."""
    if any(len(names) > 1 and pool.name in names for s in searched for names in s.done):
        return ""
    refused = [error for s in searched for names, error in s.errors if len(names) > 1 and pool.name in names]
    return str(refused[0]).splitlines()[0] if refused else ""


def _left_out(best: Plan, pool: JobPool, apart: str) -> str:
    """What the best plan leaves of a pool, in words; empty where it uses all of it."""
    node = pool.cluster.node.id
    named = f"{node}@{pool.zone}" if pool.zone else node
    used = sum(p.count for p in best.cluster.pools if p.node == node and p.zone == pool.zone)
    if used >= pool.count:
        return ""
    many = "all" if not used else f"{pool.count - used:,} of"
    why = (not used and apart) or "they do not improve the best plan found"
    return f"excluded: {many} {pool.count:,} x {named}: {why}"
