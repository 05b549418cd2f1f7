"""Re-derives a procurement from its document alone: every line of the bill, the cost to the cent (:mod:`.bill`), the
calendar of every machine (:mod:`.calendar`), every limit (:mod:`.offer_limits`), each training plan inside
(:mod:`.calendar`), and what is said of the whole.

Nothing here is shared with what made the answer. Not checked, since a document does not say enough: that a bound is one
and that what more of a limit brings is that much (both take solving again), how much network, storage and input a
cluster needs, and how many racks its nodes fill.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import date
from itertools import pairwise

from planner.schema.procurement import Alternative, Procurement, ProcureOptions
from planner.verify import bill, calendar, offer_limits
from planner.verify.finding import Inconsistent, Violation, findings
from planner.verify.well_formed import LARGEST, beyond, numbers


def optimality_is_of_the_first(document: Procurement) -> Iterator[str]:
    """The proof is of the first alternative, ``gap = |value - bound| / |value|``; no alternative beats the bound."""
    sure = document.optimality
    better = _sign(document)
    units = {"time": "d", "cost": "USD", "carbon": "kg", "tokens": "tokens"}
    unit = units.get(document.question.objective, "tokens/USD")
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
    moving = sure.moving_bound_usd
    if moving is not None and not (sure.unit == "USD" and 0 <= moving <= sure.value * (1 + 1e-6) + cents[1]):
        yield f"with moves nothing costs less than {moving:.9g}, and the value is {sure.value:.9g} {sure.unit}"
    for a in document.alternatives:
        if better * a.value < better * sure.bound - 1e-6 * abs(sure.bound) - cents[a.rank]:
            yield f"alternative {a.rank} of {a.value:.9g} is better than the bound of {sure.bound:.9g}"
    values = [better * a.value for a in document.alternatives[1:]]
    if any(later < earlier - 1e-6 * abs(earlier) - sum(cents.values()) for earlier, later in pairwise(values)):
        yield "alternatives are not in the order of their values"


def _sign(document: Procurement) -> float:
    """-1 where more of the objective is better, else 1."""
    return -1.0 if document.question.objective in ("tokens", "tokens-per-dollar") else 1.0


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
    if (apart is not None) != joined and not document.optimality.stopped:
        yield f"a job is{'' if joined else ' not'} on several pools, and apart is {apart}"
    if apart is None or apart.value is None:
        return
    better = _sign(document)
    cents = sum(_rounding(document.optimality.unit, a) for a in document.alternatives[:1])
    if not math.isfinite(apart.value) or better * apart.value < better * bound - 1e-6 * abs(bound) - cents:
        yield f"apart reaches {apart.value:.9g}, better than the bound of {bound:.9g}"


def fresh_prices_are_no_better_than_all(document: Procurement) -> Iterator[str]:
    """What is reached at prices of the last year stands beside an answer that rests on others, and beats no bound."""
    fresh = document.fresh
    if fresh is None:
        return
    if not any("prices" in reason for a in document.alternatives[:1] for reason in a.rests_on or ()):
        yield "it says what prices of the last year reach, and rests on no others"
    bound = document.optimality.bound
    better = _sign(document)
    cents = sum(_rounding(document.optimality.unit, a) for a in document.alternatives[:1])
    if fresh.value is not None and better * fresh.value < better * bound - 1e-6 * abs(bound) - cents:
        yield f"prices of the last year reach {fresh.value:.9g}, better than the bound of {bound:.9g}"


def whole_budget_buys_an_earlier_day(document: Procurement) -> Iterator[str]:
    """The earliest completion keeps the budget and is before that of the first alternative."""
    soonest = document.soonest
    if soonest is None:
        return
    budget = document.question.limits.get("budget", 0.0)
    if soonest.cash_usd > budget * (1 + 1e-6):
        yield f"the earliest completion costs {soonest.cash_usd:.9g}, and the budget is {budget:.9g}"
    if any(soonest.done_day >= a.done_day for a in document.alternatives[:1]):
        yield f"the earliest completion is on day {soonest.done_day:g}, not before the first alternative"


WHOLE_CHECKS = (
    whole_budget_buys_an_earlier_day,
    optimality_is_of_the_first,
    binding_is_what_binds,
    together_is_no_worse_than_apart,
    fresh_prices_are_no_better_than_all,
)


STALE_DAYS = 365
LONGEST_DAYS = 1e6
LIMITS = ("budget", "capital", "monthly", "power", "racks", "switch_ports", "carbon", "quantity", "deadline", "horizon")
SIGNED = ("slack",)
Check = Callable[[ProcureOptions, Alternative], Iterator[str]]


def question_is_possible(question: ProcureOptions) -> Iterator[str]:
    """The question has a day, and numbers that others can be divided by."""
    for path, number in numbers(question):
        if beyond(number) or number < 0:
            yield f"question.{path} is {number:.3g}"
        elif path.rpartition(".")[2] in ("horizon_days", "life_years", "usd") and not 0 < number < LONGEST_DAYS:
            yield f"question.{path} is {number:g}"
    try:
        date.fromisoformat(question.as_of)
    except ValueError:
        yield f"question.as_of is {question.as_of!r}, which is no date"


def names_are_known(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Every job is somewhere for some time, on pools that there are; what is limited is a job's or a pool's."""
    pools = {pool.id for pool in a.pools}
    jobs = {job.name for job in a.workloads}
    if not jobs or not pools:
        yield "it has no workloads or no pools"
    for job in a.workloads:
        if not job.schedule or not job.pools:
            yield f"{job.name} runs nowhere"
        if job.plan and not job.plan.cluster.pools:
            yield f"{job.name}: its plan is for no nodes"
        yield from (f"{job.name} runs on {s.pool}, which is not come by" for s in job.schedule if s.pool not in pools)
    for name in question.limits:
        kind, _, of = name.partition(":")
        if kind not in LIMITS or (kind == "deadline" and of not in jobs):
            yield f"{name} is no limit of anything here"


def numbers_are_possible(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Nothing is negative but a slack, nothing is not a number, and what is divided by is above 0."""
    for pool in a.pools:
        for name in ("count", "copies", "pue"):
            if getattr(pool, name) <= 0:
                yield f"{pool.id}: {name} is {getattr(pool, name):g}"
    for path, number in numbers(a):
        if beyond(number):
            yield f"{path} is beyond {LARGEST:g}"
        elif path.endswith(("_day", "_days")) and number > LONGEST_DAYS:
            yield f"{path} is {number:g}"
        elif number < 0 and path.rpartition(".")[2] not in SIGNED:
            yield f"{path} is {number:g}"


def value_is_of_the_objective(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """The value is what the question minimises: cost, last day, carbon; or tokens, in all or over cost."""
    tokens = sum(job.tokens_per_s * calendar.days_worked(job) * 86400 for job in a.workloads)
    ratio = tokens / a.cost.total_usd if a.cost.total_usd else None
    if (a.tokens_per_usd is None) != (ratio is None) or (
        ratio and not math.isclose(a.tokens_per_usd or 0, ratio, rel_tol=1e-6)
    ):
        yield f"tokens_per_usd is {a.tokens_per_usd}, and {ratio} follows"
    values = {"cost": a.cost.total_usd, "time": a.done_day, "carbon": a.carbon_kg, "tokens": tokens}
    wanted = values.get(question.objective, ratio or math.inf)
    if not math.isclose(a.value, wanted, rel_tol=1e-6, abs_tol=bill.CENT):
        yield f"value is {a.value:.9g}, and {wanted:.9g} follows for {question.objective}"


def prices_have_their_age(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """A price is stale if it is older than a year on the question's day, undated, or still to come; none is older than
    the question allows.
    """
    for pool in a.pools:
        most = question.max_price_age_days
        if pool.way != "own" and most is not None and _stale(pool.price_date, question.as_of, most):
            yield f"{pool.id}: the price of {pool.price_date or 'no date'} is older than {most:g} days"
        if pool.way != "own" and pool.stale != _stale(pool.price_date, question.as_of):
            age = "stale" if pool.stale else "not stale"
            yield f"{pool.id}: the price of {pool.price_date or 'no date'} is said to be {age}"


def what_it_rests_on_is_said(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """An answer that old prices, preemptions or a resale value decide says so."""
    if a.rests_on is None:
        return
    stated = "; ".join(a.rests_on)
    owner = question.ownership
    bought = [pool for pool in a.pools if pool.way == "buy"]
    for pool in a.pools:
        old = f"{pool.node} of {pool.price_date or 'no date'}"
        if pool.way != "own" and _stale(pool.price_date, question.as_of) and old not in stated:
            yield f"it does not say that it rests on the price of {old}"
    if ("preemptions" in stated) != any(pool.way == "spot" for pool in a.pools):
        yield f"it rests on {stated or 'nothing'}, and {'no' if 'preemptions' in stated else 'a'} pool is spot"
    resold = question.charge == "amortised" and owner is not None and owner.residual > 0 and bool(bought)
    resold = resold or any(pool.sold_usd is not None for pool in bought)
    if ("resale" in stated) != resold:
        yield f"it rests on {stated or 'nothing'}, and a resale value {'counts' if resold else 'does not count'}"


def _stale(dated: str, as_of: str, most: float = STALE_DAYS) -> bool:
    parts = [int(part) for part in dated.split("-") if part.isdecimal()]
    if not parts or not 1990 <= parts[0] <= 2100:
        return True
    year, month, day = (*parts, 1, 1)[:3]
    try:
        return not 0 <= (date.fromisoformat(as_of) - date(year, month, day)).days <= most
    except ValueError:
        return True


FIRST: tuple[Check, ...] = (numbers_are_possible, names_are_known)
"""What must hold before anything is derived."""
CHECKS: tuple[Check, ...] = (
    *bill.CHECKS,
    *offer_limits.RENT_CHECKS,
    value_is_of_the_objective,
    prices_have_their_age,
    what_it_rests_on_is_said,
    *calendar.CHECKS,
    *calendar.PLACEMENT_CHECKS,
    *offer_limits.CHECKS,
)


def violations(document: Procurement) -> list[Violation]:
    """Everything in a procurement that cannot be; empty for one that holds."""
    broken = [Violation(question_is_possible.__name__, says) for says in question_is_possible(document.question)]
    broken = broken or [violation for a in document.alternatives for violation in _violations_of(document.question, a)]
    return broken + [Violation(check.__name__, says) for check in WHOLE_CHECKS for says in check(document)]


def _violations_of(question: ProcureOptions, a: Alternative) -> Iterator[Violation]:
    from planner.verify import violations as of_plan

    impossible = [
        Violation(check.__name__, f"alternative {a.rank}: {says}") for check in FIRST for says in check(question, a)
    ]
    if impossible:
        yield from impossible
        return
    for v in findings((check.__name__, check(question, a)) for check in CHECKS):
        yield Violation(v.name, f"alternative {a.rank}: {v.says}")
    for job in a.workloads:
        for v in of_plan(job.plan) if job.plan else ():
            yield Violation(v.name, f"alternative {a.rank}, plan of {job.name}: {v.says}")


def keeps(question: ProcureOptions, a: Alternative) -> None:
    """Lets one answer pass that holds and keeps to its question.

    Raises:
        AssertionError: it does not, which is a fault of the program; the message says all that is wrong.
    """
    broken = [str(violation) for violation in _violations_of(question, a)]
    if broken:
        raise AssertionError(f"the answer does not hold: {'; '.join(broken)}")


def check(document: Procurement) -> None:
    """Lets a procurement pass that holds.

    Raises:
        Inconsistent: it does not hold; the message says all that is wrong.
    """
    broken = tuple(violations(document))
    if broken:
        raise Inconsistent(broken)
