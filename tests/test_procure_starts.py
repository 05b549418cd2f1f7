"""Copies of one offer that begin on different days: every way to share jobs between terms finds the same."""

from __future__ import annotations

import itertools
import math
import random
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from planner.catalog import load
from planner.catalog.files import TomlDocument
from planner.procurement import run
from planner.procurement.program import several_starts
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, Settings
from planner.procurement.program.restrictions import restrictions
from planner.procurement.program.several_starts import with_several_starts
from planner.procurement.program.solve import best
from planner.procurement.question import reading
from planner.procurement.question.portfolio import Limits
from planner.procurement.throughput.column import Column
from planner.question.typed_file import TypedFile
from tests.procuring import hired, job, portfolio
from tests.sequencing import TERM, hire
from tests.sweeps import sweep

SETTINGS = Settings(gap=1e-9)
TERM_DAYS = 30.0
Key = tuple[int, int]
"""A job and a pool, or a pool and one of its copies."""


def terms_and_rent(seed: int) -> ProcureInstance:
    """Two to four jobs over 100 days, one or two offers of up to three terms of 30 days each, and one to hire."""
    r = random.Random(seed)
    releases = [r.choice((0.0, 0.0, 20.0, 45.0, 60.0)) for _ in range(r.randint(2, 4))]
    jobs = tuple(job(n, min(100.0, day + r.choice((15.0, 30.0, 40.0, 90.0))), day) for n, day in enumerate(releases))
    pools = [
        replace(
            hire("reserved-1y", TERM, 2, month_usd=r.uniform(1e4, 5e4), held_days=TERM_DAYS, end_day=TERM_DAYS),
            id=f"terms {n}",
            copies=r.randint(1, 3),
            offer=f"offer {n}",
        )
        for n in range(r.randint(1, 2))
    ]
    pools.append(hired(1, r.uniform(1e3, 6e3)))
    days = {(j, p): r.uniform(3, 30) for j in range(len(jobs)) for p in range(len(pools)) if r.random() < 0.85}
    columns = [Column(j, p, d, jobs[j].tokens / d / 86400) for (j, p), d in days.items()]
    return ProcureInstance(portfolio(jobs), pools, columns)


def fits_on_term(instance: ProcureInstance, order: Sequence[int], days: Sequence[float]) -> bool:
    """Whether one term does jobs in this order, by difference constraints.

    Each job starts on its release or later, on the first day of the term or later, and after the job before it. It
    ends by its deadline and within the term.
    """
    jobs = [instance.jobs[j] for j in order]
    end = 0.0
    for asked, work in zip(jobs, days, strict=True):
        end = max(end, asked.release_day) + work
        if end > asked.deadline_day + 1e-9:
            return False
    latest = min(asked.deadline_day - sum(days[: n + 1]) for n, asked in enumerate(jobs))
    earliest = max([0.0, *(asked.release_day + sum(days[n:]) - TERM_DAYS for n, asked in enumerate(jobs))])
    return sum(days) <= TERM_DAYS + 1e-9 and earliest <= latest + 1e-9


def least_cost(instance: ProcureInstance) -> float:
    """US dollars of the best of every job on every term of every offer, or hired for; infinite if none is in time."""
    days = {(c.job, c.pool): c.days for c in instance.columns}
    *offers, rent = instance.pools
    hourly = len(offers), 0
    terms = [(p, copy) for p, pool in enumerate(offers) for copy in range(pool.copies)]
    least = math.inf
    for run_on in itertools.product([*terms, hourly], repeat=len(instance.jobs)):
        if any((j, p) not in days for j, (p, _) in enumerate(run_on)):
            continue
        used = set(run_on) - {hourly}
        rented = {j: days[j, len(offers)] for j, copy in enumerate(run_on) if copy == hourly}
        cost = sum(instance.pools[p].held_usd for p, _ in used) + sum(rented.values()) * rent.day_usd
        in_time = all(
            instance.jobs[j].release_day + work <= instance.jobs[j].deadline_day for j, work in rented.items()
        )
        if cost < least and in_time and all(_has_order(instance, days, run_on, term) for term in used):
            least = cost
    return least


def _has_order(instance: ProcureInstance, days: dict[Key, float], run_on: Sequence[Key], term: Key) -> bool:
    mine = [j for j, copy in enumerate(run_on) if copy == term]
    return any(
        fits_on_term(instance, order, [days[j, term[0]] for j in order]) for order in itertools.permutations(mine)
    )


@sweep("part", range(40), every=20, ci=3)
def test_agrees_with_every_share_of_jobs_between_terms(part: int) -> None:
    answered = 0
    for seed in range(part, 320, 40):
        offered = terms_and_rent(seed)
        instance = with_several_starts(offered)
        least = least_cost(offered)

        solution = best(instance, ProcureVariant(), "cost", SETTINGS)

        assert (solution is None) == math.isinf(least), seed
        if solution is None:
            continue
        answered += 1
        assert solution.value == pytest.approx(least, rel=1e-6), seed
        assert solution.bound <= least * (1 + 1e-6), seed
        for p, pool in enumerate(offered.pools[:-1]):
            copies = [n for q, n in solution.hold.items() if instance.as_offered((q,)) == (p,)]
            assert sum(copies) <= pool.copies, seed
    assert answered > 1


def two_terms_apart(copies: int = 4) -> ProcureInstance:
    """Three jobs of 30 days, of which one is due on day 30 and two run from day 60 to 90, on terms of 30 days."""
    jobs = (job(0, 30.0), job(1, 90.0, 60.0), job(2, 90.0, 60.0))
    term = hire("reserved-1y", TERM, 2, month_usd=1e4, held_days=TERM_DAYS, end_day=TERM_DAYS, copies=copies)
    return ProcureInstance(portfolio(jobs), [term], [Column(j, 0, 30.0, 1e3) for j in range(3)])


def test_terms_that_begin_together_are_of_no_use_to_jobs_of_different_months() -> None:
    assert best(two_terms_apart(), ProcureVariant(), "cost", SETTINGS) is None


def test_terms_begin_with_their_jobs_and_those_of_one_day_are_one_pool() -> None:
    instance = two_terms_apart()

    solution = best(with_several_starts(instance), ProcureVariant(), "cost", SETTINGS)

    assert solution is not None
    assert sorted(solution.hold.values()) == [1, 2]
    assert list(solution.starts.values()) == [pytest.approx(60.0)]
    assert solution.cost == pytest.approx(3 * instance.pools[0].held_usd)
    late = {s.copy for s in solution.calendar if s.start > 50}
    assert late == {0, 1}


def test_no_more_terms_are_held_than_are_offered() -> None:
    assert best(with_several_starts(two_terms_apart(copies=2)), ProcureVariant(), "cost", SETTINGS) is None


def test_under_a_monthly_limit_terms_begin_on_different_days_too() -> None:
    """Two terms of 30 days at 10,000 a month: the first takes 9,856 of the 9,900 that may be spent in its month.

    The 44 that are left pay for 0.13 days, so that the second begins on day 30.3 or later, not on its release.
    """
    jobs = (job(0, 30.0), job(1, 100.0, 30.0))
    term = hire("reserved-1y", TERM, 2, month_usd=1e4, held_days=TERM_DAYS, end_day=TERM_DAYS, copies=2)
    asked = portfolio(jobs, "cost", Limits(monthly=9_900.0))
    instance = ProcureInstance(asked, [term], [Column(j, 0, 30.0, 1e3) for j in range(2)])

    assert best(instance, ProcureVariant(), "cost", SETTINGS) is None
    solution = best(with_several_starts(instance), ProcureVariant(), "cost", SETTINGS)

    assert solution is not None and sum(solution.hold.values()) == 2
    (second,) = solution.starts.values()
    assert second >= 30.30
    assert solution.value == pytest.approx(2 * term.held_usd)


def test_too_large_a_question_says_that_copies_share_their_first_days(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "copies of an offer share their first days"
    assert said not in set(restrictions(with_several_starts(two_terms_apart()), 1e6))

    monkeypatch.setattr(several_starts, "MOST_COLUMNS", 3)

    two_usd = 2 * two_terms_apart().pools[0].held_usd
    assert said not in set(restrictions(with_several_starts(two_terms_apart()), 0.99 * two_usd))

    assert said in set(restrictions(with_several_starts(two_terms_apart()), 1e6))


ASKED = """
name = "terms"
currency = "USD"
as_of = "2026-11-20"
horizon = "30 months"
reliability = { survive = 1 }
workloads = [
    { name = "early", model = "llama3-8b", tokens = "500B", deadline = "300 d" },
    { name = "late", model = "llama3-8b", tokens = "500B", release = "600 d", deadline = "900 d" },
]
candidates = [
    { node = "p5.48xlarge", ways = ["reserved-1y"], counts = [1, 2], price = { amount = "$8/h", date = "2026-11-20" } },
    { node = "p5.48xlarge", ways = ["on-demand"], counts = [1, 2] },
]
"""


def test_whole_question_with_terms_on_different_days_holds() -> None:
    known = load()
    document = TomlDocument(Path("terms.toml"), ASKED, tomllib.loads(ASKED))

    offer = run.procure(known, reading.portfolio(TypedFile(document=document), known))

    early, late = sorted(pool.start_day for pool in offer.alternatives[0].pools)
    assert early < 300 and late > 300
