"""What is bought may be sold: when is a decision, and trying every day of it finds the same."""

from __future__ import annotations

import csv
import itertools
import math
import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.catalog import load
from planner.catalog.files import TomlDocument
from planner.commands.screen import procure_view
from planner.procurement import run
from planner.procurement.program import pruning
from planner.procurement.program import solve as solving
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, Settings
from planner.procurement.program.solve import best
from planner.procurement.question import reading
from planner.procurement.question.portfolio import Limits
from planner.procurement.run import Depth
from planner.procurement.supply.buying import sold
from planner.procurement.throughput.column import Column
from planner.question.typed_file import TypedFile
from planner.schema.procurement import Procurement
from planner.verify import procurement as verify
from tests.procuring import HORIZON, bought, hired, job, portfolio
from tests.procuring_lab import lab
from tests.sweeps import sweep

MONTH = 365.25 / 12
RESALE = 0.7
IN_ONE_GO = (10503, 10598, 10860, 11178, 11314)
"""Seeds of clusters that do their jobs one after another only from one day on, which is no first day of a month."""
SETTINGS = Settings(gap=1e-9)


def selling(seed: int) -> ProcureInstance:
    """One to three jobs, one to two clusters to buy, kept or sold after one to three months, and one to hire."""
    r = random.Random(seed)
    jobs = tuple(
        job(n, r.choice((45.0, 70.0, 100.0)), r.choice((0.0, 0.0, 10.0, 40.0))) for n in range(r.randint(1, 3))
    )
    limits = Limits(budget=r.choice((None, None, r.uniform(1e5, 4e5))))
    asked = replace(portfolio(jobs, "cost", limits), resale=RESALE)
    kept = [
        bought(
            n,
            r.uniform(3e4, 2e5),
            r.uniform(0, 2e4),
            r.uniform(0, 500),
            start_day=r.choice((0.0, 0.0, 20.0)),
            lengths_of=f"buy {n}",
        )
        for n in range(r.randint(1, 2))
    ]
    pools = [*kept, *(each for pool in kept for each in sold(asked, pool)), hired(0, r.uniform(1e3, 6e3))]
    days = {(j, pool.id): r.uniform(3, 50) for j in range(len(jobs)) for pool in (*kept, pools[-1])}
    columns = [
        Column(j, p, takes, jobs[j].tokens / takes / 86400)
        for j in range(len(jobs))
        for p, pool in enumerate(pools)
        if (takes := days[j, pool.lengths_of or pool.id]) < 48
    ]
    return ProcureInstance(asked, pools, columns)


def least_cost(instance: ProcureInstance) -> float:
    """Every assignment to machines, each of them kept from every first day or sold after every number of months."""
    kept = [p for p, pool in enumerate(instance.pools) if pool.sold_usd is None]
    days = {(c.job, c.pool): c.days for c in instance.columns}
    budget = instance.asked.limits.budget
    found = math.inf
    for place in itertools.product(kept, repeat=len(instance.jobs)):
        if all((j, p) in days for j, p in enumerate(place)):
            mine = {p: [j for j, q in enumerate(place) if q == p] for p in place}
            each = [list(_ways(instance, jobs, p, days)) for p, jobs in mine.items()]
            for chosen in itertools.product(*each):
                if budget is None or sum(paid for _, paid in chosen) <= budget:
                    found = min(found, sum(cost for cost, _ in chosen))
    return found


def _ways(
    instance: ProcureInstance, mine: Sequence[int], p: int, days: dict[tuple[int, int], float]
) -> Iterator[tuple[float, float]]:
    """What one machine costs, and what is paid for it, in every way in which it does these jobs in time."""
    pool, work = instance.pools[p], sum(days[j, p] for j in mine) * instance.pools[p].day_usd
    if pool.hired:
        if all(instance.jobs[j].release_day + days[j, p] <= instance.jobs[j].deadline_day for j in mine):
            yield work, work
        return
    capital = pool.items[0].unit_price_usd
    for order in itertools.permutations(mine):
        due = _latest_first_day(instance, order, p, days)
        if _end(instance, order, p, days, pool.start_day) is None:
            continue
        releases = [job.release_day for job in instance.jobs]
        for day in {pool.start_day, *releases, *(n * MONTH for n in range(4))}:
            if pool.start_day <= day <= due + 1e-9:
                paid = capital + pool.month_usd * (HORIZON - day) / MONTH + work
                yield paid, paid
        for months in (1, 2, 3, (HORIZON - pool.start_day) / MONTH):
            start = min(due, HORIZON - months * MONTH)
            end = _end(instance, order, p, days, start) if start >= pool.start_day else None
            if end is not None and end - start <= months * MONTH + 1e-9:
                paid = capital + pool.month_usd * months + work
                yield paid - round(RESALE * capital * 10 ** (-0.14 * months / 12), 2), paid


def _latest_first_day(
    instance: ProcureInstance, order: Sequence[int], p: int, days: dict[tuple[int, int], float]
) -> float:
    """Day on which a machine is there at the latest so that work in this order is done in time."""
    worked = itertools.accumulate(days[j, p] for j in order)
    return min(instance.jobs[j].deadline_day - done for j, done in zip(order, worked, strict=True))


def _end(
    instance: ProcureInstance, order: Sequence[int], p: int, days: dict[tuple[int, int], float], start: float
) -> float | None:
    """When jobs in this order are done, one after the other from a day on; None where one is late."""
    for j in order:
        start = max(start, instance.jobs[j].release_day) + days[j, p]
        if start > instance.jobs[j].deadline_day + 1e-9:
            return None
    return start


@sweep("part", range(3), every=3)
def test_agrees_with_every_day_of_purchase_and_sale(part: int) -> None:
    sales = later = proven = answered = 0
    for seed in (*range(part, 240, 3), *IN_ONE_GO[part::3]):
        whole = selling(seed)
        instance = replace(whole, columns=pruning.undominated(whole, across=True))
        wanted = least_cost(whole)
        found = best(instance, ProcureVariant(), "cost", SETTINGS)
        assert (found is None) == math.isinf(wanted), seed
        if found is not None:
            answered += 1
            assert found.value == pytest.approx(wanted, rel=1e-6), seed
            assert found.bound <= wanted * (1 + 1e-6), seed
            proven += found.gap < 1e-6
            used = [instance.pools[p] for p in found.hold]
            sales += any(pool.sold_usd is not None for pool in used)
            later += any(instance.pools[p].sold_usd is not None for p in found.starts)
    assert sales > 10 and later > 2 and proven >= 0.95 * answered > 30


def test_a_month_more_is_kept_where_jobs_wait_for_their_release() -> None:
    # Ten days each, the second 40 days after the first is due: one cluster for two months, or two for one month each.
    jobs = (job(0, 15.0), job(1, 100.0, 40.0))
    asked = replace(portfolio(jobs), resale=0.9)
    pools = [bought(0, 1e5, 5_000.0), *sold(asked, bought(0, 1e5, 5_000.0))]
    whole = ProcureInstance(asked, pools, [Column(j, p, 10.0, 1e3) for j in range(2) for p in range(len(pools))])
    lean = replace(whole, columns=pruning.undominated(whole))
    found = best(lean, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.hold == {2: 1} and found.run == {0: (2,), 1: (2,)}
    assert found.cost == pytest.approx(1e5 - 0.9e5 * 10 ** (-0.14 / 6) + 10_000.0, abs=0.01)
    assert max(pools[c.pool].term_days for c in lean.columns) == pytest.approx(2 * MONTH)  # no third one is needed


def test_nothing_is_sold_after_the_horizon() -> None:
    late = job(0, 100.0, 50.0)
    asked = replace(portfolio((late,)), resale=0.9)
    pools = list(sold(asked, bought(0, 1e5, 5_000.0)))
    columns = [Column(0, p, 45.0, 1e3) for p in range(len(pools))]
    found = best(ProcureInstance(asked, pools, columns), ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.hold == {1: 1}
    assert found.starts[1] + 2 * MONTH <= HORIZON + 1e-6
    # Where its deadline is given up, the job still has no machine beyond the horizon, sold or kept.
    longer = [replace(c, days=55.0) for c in columns]
    given_up = ProcureVariant(dropped=frozenset({"deadline:job 0"}))
    assert solving._sought(ProcureInstance(asked, pools, longer), given_up, SETTINGS) == (None, True)


def test_two_clusters_for_a_month_do_no_job_of_forty_days() -> None:
    asked = replace(portfolio((job(0, 100.0), job(1, 100.0))), resale=0.9)
    pool = next(sold(asked, bought(0, 1e5, 5_000.0, copies=2)))
    instance = ProcureInstance(asked, [pool], [Column(j, 0, days, 1e3) for j, days in enumerate((40.0, 20.0))])
    assert solving._sought(instance, ProcureVariant(), SETTINGS) == (None, True)


SOLD = """
currency = "USD"
as_of = "2026-11-20"
horizon = "36 months"
resale = 0.8
[[workloads]]
name = "base"
model = "llama3-8b"
tokens = "2T"
deadline = "60 d"
[[workloads]]
name = "late"
model = "llama3-8b"
tokens = "1T"
release = "400 d"
deadline = "500 d"
[[candidates]]
node = "hgx-h100"
ways = ["buy"]
counts = [4, 6]
price = { amount = "$310k", date = "2026-11-01" }
"""


@pytest.fixture(scope="module")
def offer(tmp_path_factory: pytest.TempPathFactory) -> Procurement:
    path = tmp_path_factory.mktemp("sold") / "sold.toml"
    path.write_text(SOLD, encoding="utf-8")
    known = load()
    return run.procure(known, reading.read(path, known), depth=Depth(top=1, marginal=False, sensitivity=False))


def test_an_offer_says_when_it_sells_and_for_how_much(offer: Procurement, capsys: pytest.CaptureFixture[str]) -> None:
    (first,) = offer.alternatives
    assert first.what == "buy 4 hgx-h100 from day 400 (sold on day 461), buy 6 hgx-h100 (sold on day 61)"
    assert first.cost.sold_usd == pytest.approx(0.8 * 10 * 310_000 * 10 ** (-0.14 / 6), abs=0.02)
    assert first.cost.total_usd == pytest.approx(first.cost.cash_usd - first.cost.sold_usd, abs=0.01)
    assert [year.sold_usd for year in first.cost.by_year] == [x.sold_usd for x in reversed(first.pools)] + [0.0]
    assert first.rests_on == ("a resale value of 80% of what nodes are worth by their age",)
    assert all(each.count == 2.0 for each in first.bill_of_materials if each.unit == "months")
    assert "switch-ndr: 36,000.00 USD of 2024-08" in offer.stale_prices
    procure_view.show(offer)
    printed = " ".join(capsys.readouterr().out.split())
    assert "purchases are kept or sold whole months later" in printed and "sold for $2.35M" in printed
    assert "on day 460.9 for $940k" in printed
    assert offer.optimality.method.endswith("purchases are kept or sold whole months later")


def test_the_bill_of_materials_ends_with_the_sale(offer: Procurement, capsys: pytest.CaptureFixture[str]) -> None:
    procure_view.deliver_bill(offer, output=None)
    *_, total, sale, cost = csv.DictReader(capsys.readouterr().out.splitlines())
    assert [row["item"] for row in (total, sale, cost)] == ["total", "nodes sold", "cost"]
    assert float(cost["usd"]) == offer.alternatives[0].cost.total_usd
    assert float(total["usd"]) + float(sale["usd"]) == pytest.approx(float(cost["usd"]), abs=0.005)


def test_the_second_opinion_derives_the_sale(offer: Procurement) -> None:
    (first,) = offer.alternatives
    pool, *others = first.pools

    def named(**changes: Any) -> set[str]:
        return {x.name for x in verify.violations(replace(offer, alternatives=(replace(first, **changes),)))}

    def with_pool(**changes: Any) -> set[str]:
        return named(pools=(replace(pool, **changes), *others))

    assert not verify.violations(offer)
    assert "charge_is_as_asked" in with_pool(sold_usd=(pool.sold_usd or 0.0) + 1.0)
    assert "charge_is_as_asked" in named(cost=replace(first.cost, sold_usd=(first.cost.sold_usd or 0.0) + 1.0))
    years = tuple(replace(year, sold_usd=0.0) for year in first.cost.by_year)
    assert "charge_is_as_asked" in named(cost=replace(first.cost, by_year=years))
    held = "pools_are_there_as_long_as_is_paid"
    assert held in with_pool(end_day=(pool.end_day or 0.0) - 1.0)
    assert held in with_pool(held_days=pool.held_days + 10.0, end_day=(pool.end_day or 0.0) + 10.0)
    assert held in with_pool(start_day=1080.0, end_day=1080.0 + pool.held_days)
    assert held in with_pool(way="reserved-1y")
    assert "what_it_rests_on_is_said" in named(rests_on=())
    unasked = replace(offer, question=replace(offer.question, resale=None))
    assert {held, "charge_is_as_asked"} <= {x.name for x in verify.violations(unasked)}


@pytest.mark.slow
@sweep("objective", ["cost", "time", "carbon", "tokens-per-dollar"])
def test_every_objective_sells(objective: str, home: Path) -> None:
    path = lab(home, top=f'objective = "{objective}"\nresale = 0.8', job='interruptible = true\nrelease = "10 d"')
    known, ways = load(), Depth(top=3, marginal=False, sensitivity=False)
    found = run.procure(known, reading.read(path, known), depth=ways)
    assert not verify.violations(found)
    assert any(pool.sold_usd for a in found.alternatives for pool in a.pools) or objective == "carbon"


def test_what_nobody_asked_to_sell_is_kept(offer: Procurement) -> None:
    known = load()
    file = TypedFile(document=TomlDocument(Path("kept.toml"), "", tomllib.loads(SOLD.replace("resale = 0.8", ""))))
    kept = run.procure(known, reading.portfolio(file, known), depth=Depth(top=1, marginal=False, sensitivity=False))
    text = kept.to_json()
    assert "sold_usd" not in text and '"resale"' not in text and "nothing bought is sold" in text
    assert kept.alternatives[0].cost.total_usd > 2 * offer.alternatives[0].cost.total_usd
