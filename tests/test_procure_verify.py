"""The second opinion on ``clusterwright procure``: what holds passes, and what is wrong with an answer is found."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from planner.catalog import load
from planner.procurement import run
from planner.procurement.question import reading
from planner.procurement.run import Depth
from planner.schema.procurement import Procurement
from planner.verify import Inconsistent
from planner.verify import procurement as verify
from planner.verify.bill import HIRED
from tests.altering import altered
from tests.procuring_lab import answered, lab
from tests.sweeps import sweep


def test_an_answer_passes_its_second_opinion(home: Path) -> None:
    verify.check(answered(home))


def _broken(found: Procurement) -> dict[str, Procurement]:
    """The answer with one thing wrong, by what finds it."""
    first = found.alternatives[0]
    others = first.bill_of_materials[1:]
    line, job, pool = first.bill_of_materials[0], first.workloads[0], first.pools[0]

    def with_first(**changes: Any) -> Procurement:
        return replace(found, alternatives=(replace(first, **changes), *found.alternatives[1:]))

    def with_job(**changes: Any) -> Procurement:
        return with_first(workloads=(replace(job, **changes), *first.workloads[1:]))

    stretch = job.schedule[0]
    limits = {**found.question.limits, "budget": first.cost.cash_usd - 1.0}
    return {
        "bill_adds_up": with_first(
            bill_of_materials=(replace(line, usd=line.usd + 0.02), *first.bill_of_materials[1:])
        ),
        "charge_is_as_asked": with_first(cost=replace(first.cost, charged_usd=5.0)),
        "bill_has_what_is_used": with_first(bill_of_materials=(replace(line, count=line.count * 1.01), *others)),
        "jobs_are_done": with_job(tokens=job.tokens * 2),
        "plans_fit_their_pools": with_first(pools=(replace(pool, count=pool.count + 1), *first.pools[1:])),
        "machines_do_one_thing_at_a_time": with_job(schedule=(stretch, stretch)),
        "limits_hold": replace(found, question=replace(found.question, limits=limits)),
        "totals_are_sums": with_first(carbon_kg=first.carbon_kg + 1),
        "numbers_are_possible": with_first(power_w=-1.0),
        "checkpoints_are_spaced_best": with_job(
            plan=replace(
                job.plan,
                money=replace(job.plan.money, goodput=replace(job.plan.money.goodput, checkpoint_interval_s=1.0)),
            )
        ),
    }


@sweep(
    "name",
    [
        "bill_adds_up",
        "charge_is_as_asked",
        "bill_has_what_is_used",
        "jobs_are_done",
        "plans_fit_their_pools",
        "machines_do_one_thing_at_a_time",
        "limits_hold",
        "totals_are_sums",
        "numbers_are_possible",
        "checkpoints_are_spaced_best",
    ],
)
def test_the_second_opinion_finds_what_is_wrong(home: Path, name: str) -> None:
    assert name in {violation.name for violation in verify.violations(_broken(answered(home))[name])}


FIRST = "alternatives.0"
NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"question.as_of": "someday"}, "which is no date"),
    ({"question.horizon_days": 0.0}, "question.horizon_days is 0"),
    ({"question.limits.budget": float("nan")}, "question.limits.budget is nan"),
    ({"question.limits.luck": 1.0}, "luck is no limit of anything here"),
    ({f"{FIRST}.workloads": ()}, "no workloads or no pools"),
    ({f"{FIRST}.workloads.0.schedule": ()}, "base runs nowhere"),
    ({f"{FIRST}.workloads.0.plan.cluster.pools": ()}, "its plan is for no nodes"),
    ({f"{FIRST}.workloads.0.schedule.0.pool": "the moon"}, "runs on the moon, which is not come by"),
    ({f"{FIRST}.pools.0.copies": 0}, "copies is 0"),
    ({f"{FIRST}.workloads.0.deadline_day": 1e7}, "deadline_day is 1e+07"),
    ({f"{FIRST}.workloads": lambda jobs: (*jobs, jobs[0])}, "a job appears twice"),
    ({f"{FIRST}.workloads.0.finish_day": lambda day: day + 1}, "is not done on day"),
    ({f"{FIRST}.workloads.0.late_chance": 0.9}, "is late with a chance of 0.9"),
    ({f"{FIRST}.workloads.0.release_day": 80.0}, "starts before its release"),
    ({f"{FIRST}.workloads.0.schedule.0.copy": 9}, "is on copy 10 of"),
    ({f"{FIRST}.workloads.0.schedule.0.start_day": -1.0, f"{FIRST}.pools.0.start_day": 1.0}, "start_day is -1"),
    ({f"{FIRST}.pools.0.start_day": 80.0}, "when it is not there"),
    ({f"{FIRST}.constraints": lambda limits: limits[1:]}, "is missing"),
    ({f"{FIRST}.pools.0.price_date": "yesterday", f"{FIRST}.pools.0.stale": False}, "said to be not stale"),
    ({f"{FIRST}.pools.0.price_date": "2026-13-40", f"{FIRST}.pools.0.stale": False}, "said to be not stale"),
    ({f"{FIRST}.bill_of_materials.0.pool": "the moon"}, "is for the moon, which is not come by"),
    ({f"{FIRST}.bill_of_materials.0.kind": "staff"}, "staff is on the bill, and nothing calls for it"),
    ({f"{FIRST}.rests_on": ()}, "does not say that it rests on the price of p5.48xlarge"),
    ({f"{FIRST}.rests_on": lambda said: said[:1]}, "and a pool is spot"),
    ({f"{FIRST}.rests_on": lambda said: (*said, "a resale value")}, "and a resale value does not count"),
    ({"alternatives.1.rank": 5}, "not ranked from 1"),
    ({"alternatives": ()}, "there is no alternative"),
]
"""What an answer is made to say, and words of what is found wrong; the first alternative hires."""


@sweep(("changes", "words"), NONSENSE)
def test_nonsense_is_told_in_words(changes: dict[str, Any], words: str, home: Path) -> None:
    found = answered(home)
    assert all(pool.way in HIRED for pool in found.alternatives[0].pools)
    says = [violation.says for violation in verify.violations(altered(found, changes))]
    assert any(words in each for each in says), says


def test_an_answer_that_does_not_hold_is_refused(home: Path) -> None:
    """In a file by its reader, as one answer of a search as a fault of the program; both say all that is wrong."""
    found = altered(answered(home), {f"{FIRST}.carbon_kg": 0.0, f"{FIRST}.tokens_per_usd": 1e9})
    with pytest.raises(Inconsistent, match=r"value_is_of_the_objective(.|\n)*totals_are_sums"):
        verify.check(found)
    with pytest.raises(AssertionError, match=r"value_is_of_the_objective.*totals_are_sums"):
        verify.keeps(found.question, found.alternatives[0])


def _bought(found: Procurement) -> int:
    """The place of an alternative that buys."""
    return next(n for n, a in enumerate(found.alternatives) if any(pool.way == "buy" for pool in a.pools))


def _with(found: Procurement, n: int, **changes: Any) -> Procurement:
    alternatives = list(found.alternatives)
    alternatives[n] = replace(alternatives[n], **changes)
    return replace(found, alternatives=tuple(alternatives))


def _repriced(found: Procurement, kind: str, factor: float) -> Procurement:
    """A bill on which one kind of line has another unit price, every sum of money made to agree with it."""
    n = _bought(found)
    a = found.alternatives[n]
    lines = [
        replace(x, unit_price_usd=x.unit_price_usd * factor, usd=round(x.count * x.unit_price_usd * factor, 2))
        if x.kind == kind
        else x
        for x in a.bill_of_materials
    ]
    more = sum(x.usd for x in lines) - sum(x.usd for x in a.bill_of_materials)
    first = a.cost.by_year[0]
    years = (
        replace(first, running_usd=first.running_usd + more, total_usd=first.total_usd + more), *a.cost.by_year[1:]
    )  # fmt: skip
    cost = replace(
        a.cost,
        total_usd=a.cost.total_usd + more,
        cash_usd=a.cost.cash_usd + more,
        by_kind={**a.cost.by_kind, kind: a.cost.by_kind[kind] + more},
        by_year=years,
    )
    constraints = tuple(
        replace(c, value=c.value + more, slack=c.slack - more) if c.name == "budget" else c for c in a.constraints
    )
    return _with(
        found, n, bill_of_materials=tuple(lines), cost=cost, value=a.value + more, constraints=constraints,
        tokens_per_usd=sum(job.tokens for job in a.workloads) / cost.total_usd,
    )  # fmt: skip


def _misstated(found: Procurement) -> dict[str, tuple[str, Procurement]]:
    """Faults that leave every sum as it is: what finds them, and the answer that has them."""
    n, sure = _bought(found), found.optimality
    a = found.alternatives[n]
    pool = next(pool for pool in a.pools if pool.way == "buy")
    others = tuple(x for x in a.pools if x is not pool)
    years = a.cost.by_year
    moved = replace(years[0], running_usd=years[0].running_usd + 5.0, capital_usd=years[0].capital_usd - 5.0)
    owner, first = found.question.ownership, found.alternatives[0]
    assert owner is not None

    def with_pool(**changes: Any) -> Procurement:
        return _with(found, n, pools=(replace(pool, **changes), *others))

    def with_sure(**changes: Any) -> Procurement:
        return replace(found, optimality=replace(sure, **changes))

    def with_owner(**changes: Any) -> Procurement:
        return replace(found, question=replace(found.question, ownership=replace(owner, **changes)))

    def with_cost(**changes: Any) -> Procurement:
        return _with(found, n, cost=replace(a.cost, **changes))

    return {
        "a kWh that costs more on the bill": ("prices_are_those_of_pools", _repriced(found, "energy", 1.1)),
        "colocation that costs more on the bill": ("prices_are_those_of_pools", _repriced(found, "facility", 1.1)),
        "less maintenance on the bill": ("prices_are_those_of_pools", _repriced(found, "maintenance", 0.5)),
        "a day that costs less": ("prices_are_those_of_pools", with_pool(day_usd=pool.day_usd * 0.9)),
        "a month that costs less": ("prices_are_those_of_pools", with_pool(month_usd=pool.month_usd * 0.9)),
        "cheaper electricity where it stands": (
            "prices_are_those_of_pools", with_pool(usd_per_kwh=pool.usd_per_kwh * 0.9)
        ),
        "other terms of colocation": (
            "prices_are_those_of_pools", with_owner(colocation_usd_per_kw_month=owner.colocation_usd_per_kw_month + 1)
        ),
        "other terms of maintenance": ("prices_are_those_of_pools", with_owner(maintenance=0.05)),
        "staff that nobody pays": ("prices_are_those_of_pools", with_owner(staff_usd_per_accelerator_year=100.0)),
        "a later start for the same money": (
            "pools_are_there_as_long_as_is_paid", with_pool(start_day=pool.start_day + 1)
        ),
        "a pause that is none": (
            "jobs_are_done",
            _with(found, n, workloads=(replace(a.workloads[0], pauses=1, restart_days=0.1), *a.workloads[1:])),
        ),
        "fewer months": ("bill_has_what_is_used", with_pool(held_days=pool.held_days / 2)),
        "capital in the wrong column of a year": ("years_are_of_the_bill", with_cost(by_year=(moved, *years[1:]))),
        "a kind left out": ("bill_adds_up", with_cost(by_kind=dict(list(a.cost.by_kind.items())[1:]))),
        "more of the capital used": ("charge_is_as_asked", with_cost(used_usd=a.cost.used_usd + 1.0)),
        "a longer life": ("charge_is_as_asked", with_owner(life_years=owner.life_years * 2)),
        "a better resale": ("charge_is_as_asked", with_cost(resale_usd=(a.cost.resale_usd or 0.0) + 1.0)),
        "a better value": ("value_is_of_the_objective", _with(found, n, value=a.value * 0.99)),
        "more tokens for the money": ("value_is_of_the_objective", _with(found, n, tokens_per_usd=1e9)),
        "less power": ("totals_are_sums", with_pool(power_w=pool.power_w / 2)),
        "more accelerators": ("totals_are_sums", with_pool(accelerators=pool.accelerators + 1)),
        "more use": ("totals_are_sums", with_pool(utilisation=pool.utilisation * 1.1)),
        "a price that is fresh": ("prices_have_their_age", with_pool(stale=not pool.stale)),
        "a limit that does not bind": (
            "limits_hold",
            _with(found, n, constraints=tuple(replace(c, binding=not c.binding) for c in a.constraints)),
        ),
        "a limit that nobody named": (
            "limits_hold", _with(found, n, constraints=(*a.constraints, replace(a.constraints[0], name="luck")))
        ),
        "another value proven": ("optimality_is_of_the_first", with_sure(value=sure.value * 0.99)),
        "a smaller gap": ("optimality_is_of_the_first", with_sure(gap=sure.gap + 0.01)),
        "a bound that is beaten": ("optimality_is_of_the_first", with_sure(bound=sure.bound * 1.01, gap=0.01)),
        "another unit": ("optimality_is_of_the_first", with_sure(unit="EUR")),
        "no alternative": ("optimality_is_of_the_first", replace(found, alternatives=())),
        "the wrong order": (
            "optimality_is_of_the_first",
            replace(found, alternatives=(first, *reversed(found.alternatives[1:]))),
        ),
        "more would help, and it does not bind": (
            "binding_is_what_binds",
            replace(found, binding=(), marginal_values=(replace(found.marginal_values[0], gain=1.0),)),
        ),
        "everything binds": ("binding_is_what_binds", replace(found, binding=tuple(found.question.limits))),
    }  # fmt: skip


@pytest.mark.slow
def test_the_second_opinion_holds_the_bill_to_what_it_summarises(home: Path) -> None:
    top = 'charge = "amortised"'
    for found in (answered(home), answered(home, top=top)):
        assert verify.violations(found) == []
        missed = {
            fault: {violation.name for violation in verify.violations(broken)}
            for fault, (name, broken) in _misstated(found).items()
            if name not in {violation.name for violation in verify.violations(broken)}
        }
        assert not missed


@pytest.mark.slow
@sweep(
    ("objective", "charge"),
    product(("cost", "time", "carbon", "tokens-per-dollar"), ("cash", "amortised")),
    ci=3,
)
def test_every_objective_is_answered_and_holds(objective: str, charge: str, home: Path) -> None:
    top = f'objective = "{objective}"\ncharge = "{charge}"'
    tail = '[[owned]]\nnode = "dgx-a100-80gb"\ncount = 3'
    known = load()
    asked = reading.read(lab(home, top=top, limits='monthly = "$60k"', tail=tail), known)
    found = run.procure(known, asked, depth=Depth(top=3, marginal=False, sensitivity=False))
    assert verify.violations(found) == []
    assert len(found.alternatives) == 3


def test_an_amortised_charge_is_derived_again(home: Path) -> None:
    found = answered(home, top='charge = "amortised"', tail="[ownership]\nresidual = 0.2")
    n = _bought(found)
    cost = found.alternatives[n].cost
    assert 0 < cost.charged_usd < cost.capital_usd
    assert verify.violations(found) == []
    other = replace(cost, charged_usd=cost.charged_usd + 1.0, total_usd=cost.total_usd + 1.0)
    assert "charge_is_as_asked" in {v.name for v in verify.violations(_with(found, n, cost=other))}
    # What is left at the end of the life makes owning cheaper.
    whole = answered(home, top='charge = "amortised"')
    assert cost.charged_usd < whole.alternatives[_bought(whole)].cost.charged_usd
    assert found.break_even[0].owned_usd_per_accelerator_hour < whole.break_even[0].owned_usd_per_accelerator_hour
