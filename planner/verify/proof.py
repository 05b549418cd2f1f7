"""Re-derives what a procurement says of itself as a whole: its gap, its order, what binds, what single pools reach.

Nothing here is shared with what made the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from planner.schema.procurement import Alternative, Procurement
from planner.verify import bill


def optimality_is_of_the_first(document: Procurement) -> Iterator[str]:
    """The proof is of the first alternative, ``gap = |value - bound| / |value|``; no alternative beats the bound."""
    sure = document.optimality
    better = -1.0 if document.question.objective == "tokens-per-dollar" else 1.0
    unit = {"time": "d", "cost": "USD", "carbon": "kg"}.get(document.question.objective, "tokens/USD")
    if not document.alternatives:
        yield "there is no alternative"
        return
    if [a.rank for a in document.alternatives] != list(range(1, len(document.alternatives) + 1)):
        yield "alternatives are not ranked from 1"
        return
    if sure.unit != unit:
        yield f"unit is {sure.unit}, and {unit} is that of {document.question.objective}"
    first = document.alternatives[0].value
    cents = {a.rank: _rounding(sure.unit, a) for a in document.alternatives}
    if not math.isclose(sure.value, first, rel_tol=1e-6, abs_tol=cents[1]):
        yield f"value is {sure.value:.9g}, and that of the first alternative {first:.9g}"
    gap = abs(sure.value - sure.bound) / max(abs(sure.value), 1e-9)
    if not math.isclose(sure.gap, gap, rel_tol=1e-6, abs_tol=1e-9):
        yield f"gap is {sure.gap:.6g}, and {gap:.6g} follows from value and bound"
    for a in document.alternatives:
        if better * a.value < better * sure.bound - 1e-6 * abs(sure.bound) - cents[a.rank]:
            yield f"alternative {a.rank} of {a.value:.9g} is better than the bound of {sure.bound:.9g}"
    values = [better * a.value for a in document.alternatives[1:]]
    if any(later < earlier - 1e-6 * abs(earlier) - sum(cents.values()) for earlier, later in pairwise(values)):
        yield "alternatives are not in the order of their values"


def _rounding(unit: str, a: Alternative) -> float:
    """How far an objective in money may be off because each line of a bill is rounded to a cent."""
    cents = bill.CENT * len(a.bill_of_materials)
    if unit == "tokens/USD":
        return abs(a.value) * cents / max(a.cost.total_usd, bill.CENT)
    return cents if unit == "USD" else 0.0


def binding_is_what_binds(document: Procurement) -> Iterator[str]:
    """What binds is what (almost) nothing is left of in the first alternative, and what more of helps."""
    limits = document.question.limits
    gains = {value.limit: value.gain for value in document.marginal_values}
    yield from (f"marginal value of {name}, which is no limit" for name in gains.keys() - limits.keys())
    tight = {c.name for a in document.alternatives[:1] for c in a.constraints if c.binding}
    wanted = tight | {name for name, gain in gains.items() if gain > 0}
    for name in sorted(wanted ^ set(document.binding)):
        yield f"{name} is binding, but not listed" if name in wanted else f"{name} is listed as binding, but is not"


def together_is_no_worse_than_apart(document: Procurement) -> Iterator[str]:
    """What every job on one pool reaches is told where the first alternative joins pools, and beats no bound."""
    joined = any(len(job.pools) > 1 for a in document.alternatives[:1] for job in a.workloads)
    apart = document.apart
    bound = document.optimality.bound
    if (apart is not None) != joined:
        yield f"a job is{'' if joined else ' not'} on several pools, and apart is {apart}"
    if apart is None or apart.value is None:
        return
    better = -1.0 if document.question.objective == "tokens-per-dollar" else 1.0
    cents = sum(_rounding(document.optimality.unit, a) for a in document.alternatives[:1])
    if not math.isfinite(apart.value) or better * apart.value < better * bound - 1e-6 * abs(bound) - cents:
        yield f"apart reaches {apart.value:.9g}, better than the bound of {bound:.9g}"


CHECKS = (optimality_is_of_the_first, binding_is_what_binds, together_is_no_worse_than_apart)
