"""The risk of spot, and the range over comparable offers: against a simulation, by asking again, and by hand."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.catalog.files import TomlDocument
from planner.commands.screen import procure_view
from planner.cost.goodput import at_best, failure_rate, wall_time_deviation
from planner.procurement import run
from planner.procurement.question import reading
from planner.procurement.run import Depth
from planner.question.typed_file import TypedFile
from planner.report import offers
from planner.report.html_page import Lines
from planner.schema.procurement import Alternative, Procurement
from planner.verify import procurement as verify

HOUR = 3600.0
SPOT = """
name = "spot"
currency = "USD"
as_of = "2026-08-31"
horizon = "6 months"
[reliability]
preemptions_per_node_day = {rate!r}
[[workloads]]
name = "base"
model = "llama3-8b"
tokens = "200B"
[[candidates]]
node = "nebius-8x-h100"
ways = ["spot", "on-demand"]
counts = [4]
"""


@cache
def asked(rate: float = 0.2) -> Procurement:
    known, text = load(), SPOT.format(rate=rate)
    document = TomlDocument(Path("spot.toml"), text, tomllib.loads(text))
    wanted = reading.portfolio(TypedFile(document=document), known)
    return run.procure(known, wanted, depth=Depth(top=1, marginal=False, sensitivity=False))


def best(rate: float = 0.2) -> Alternative:
    return asked(rate).alternatives[0]


def simulated(work: float, mtbf: float, overhead: float, interval: float, restart: float, runs: int) -> Any:
    """Wall seconds of runs that are interrupted at random, losing what they did since the last checkpoint."""
    rng, ends = np.random.default_rng(3), []
    for _ in range(runs):
        wall = done = 0.0  # done: wall seconds that made progress
        while True:
            until = rng.exponential(mtbf)
            if done + until * (1 - overhead) >= work:
                ends.append(wall + (work - done) / (1 - overhead))
                break
            wall += until + restart
            done += until * (1 - overhead) - rng.uniform(0, interval) * (1 - overhead)
    return np.array(ends)


@pytest.mark.parametrize(("mtbf", "blocks", "restart"), [(6 * HOUR, 8.0, 600.0), (4 * HOUR, 20.0, 900.0)])
def test_nine_of_ten_simulated_runs_are_done_by_then(mtbf: float, blocks: float, restart: float) -> None:
    good, work = at_best(mtbf, blocks, restart), 20 * 24 * HOUR
    interval = float(good.interval)
    ends = simulated(work, mtbf, blocks / interval, interval, restart, 3000)
    expected = float(work / good.fraction)
    # First order: what fails while something is made up for, and restarts that fail, are left out.
    assert np.mean(ends) == pytest.approx(expected, rel=0.05)
    deviation = float(wall_time_deviation(expected, good))
    assert np.std(ends) == pytest.approx(deviation, rel=0.15)
    assert np.mean(ends <= np.mean(ends) + 1.2816 * deviation) == pytest.approx(0.9, abs=0.03)


def test_the_rate_of_a_share_is_that_which_leaves_it() -> None:
    for mtbf in (HOUR, 10 * HOUR, 1000 * HOUR):
        fraction = at_best(mtbf, 8.0, 600.0).fraction
        assert failure_rate(fraction, 8.0, 600.0) == pytest.approx(1 / mtbf, rel=1e-9)


def test_on_demand_is_chosen_above_the_break_even_rate() -> None:
    risk = best().workloads[0].spot
    assert risk is not None and risk.break_even_per_node_day is not None and risk.on_demand_usd is not None
    assert best().pools[0].way == "spot" and risk.usd < risk.on_demand_usd
    assert best().workloads[0].finish_day < risk.finish_90_day and risk.usd < risk.usd_90
    even = risk.break_even_per_node_day
    assert best(0.99 * even).pools[0].way == "spot"
    dearer = best(1.01 * even)
    assert dearer.pools[0].way == "on-demand" and dearer.workloads[0].spot is None
    assert dearer.cost.total_usd == pytest.approx(risk.on_demand_usd, rel=1e-6)


def test_the_range_is_of_the_same_hours_at_other_offers() -> None:
    a = best()
    hours, spread = sum(x.count for x in a.bill_of_materials if x.kind == "rental"), a.cost.range
    # Spot on 31 August 2026: AWS 14.55 / 8 and Nebius 10 / 8 a GPU-hour.
    assert spread is not None and spread.offers == 2
    assert (spread.low_usd, spread.median_usd, spread.high_usd) == pytest.approx(
        (hours * 10, hours * 12.275, hours * 14.55), rel=1e-6
    )


def test_prices_older_than_allowed_decide_nothing() -> None:
    known = load()
    price = 'price = { amount = "$1/h", date = "2026-01-31" }'
    old = f'[[candidates]]\nnode = "p5.48xlarge"\nways = ["spot"]\ncounts = [4]\n{price}'

    def answer(age: str) -> Procurement:
        text = SPOT.format(rate=0.2).replace('horizon = "6 months"', f'horizon = "6 months"\n{age}') + old
        document = TomlDocument(Path("spot.toml"), text, tomllib.loads(text))
        wanted = reading.portfolio(TypedFile(document=document), known)
        return run.procure(known, wanted, depth=Depth(top=1, marginal=False, sensitivity=False))

    cheap, fresh = answer(""), answer('max_price_age = "60 d"')
    assert cheap.alternatives[0].pools[0].node == "p5.48xlarge"
    assert fresh.alternatives[0].pools[0].node == "nebius-8x-h100" and verify.violations(fresh) == []
    told = replace(cheap, question=replace(cheap.question, max_price_age_days=60.0))
    assert {v.name for v in verify.violations(told)} == {"prices_have_their_age"}
    with pytest.raises(WrongQuestion, match="max_price_age: no candidate has a price of the 5 days before 2026-08-31"):
        answer('max_price_age = "5 d"')


def test_answer_at_an_old_price_says_what_prices_of_the_last_year_reach(capsys: pytest.CaptureFixture[str]) -> None:
    """Every answer on the one other offer: 4 nodes on spot, or on demand, at the catalog's price of this year."""
    known = load()
    price = 'price = { amount = "$1/h", date = "2024-01-31" }'
    text = SPOT.format(rate=0.2) + f'[[candidates]]\nnode = "p5.48xlarge"\nways = ["spot"]\ncounts = [4]\n{price}'
    document = TomlDocument(Path("spot.toml"), text, tomllib.loads(text))
    wanted = reading.portfolio(TypedFile(document=document), known)

    offer = run.procure(known, wanted, depth=Depth(top=1, marginal=False, sensitivity=False))

    assert offer.alternatives[0].pools[0].node == "p5.48xlarge"
    assert offer.fresh is not None
    assert offer.fresh.value == pytest.approx(best().cost.total_usd, abs=0.01)
    assert asked().fresh is None
    procure_view.show(offer)
    assert "at prices of the last year alone: rent 4 nebius-8x-h100 spot" in " ".join(capsys.readouterr().out.split())
    listed = dict(
        next(block for block in offers.of_offer(offer, "spot").sections[0].blocks if isinstance(block, Lines)).rows
    )
    rests, at_fresh = listed["Rests on"]
    assert rests.startswith("prices older than a year: p5.48xlarge of 2024-01-31")
    assert at_fresh.startswith("at prices of the last year alone: rent 4 nebius-8x-h100 spot")
    cheaper = replace(offer, fresh=replace(offer.fresh, value=offer.optimality.bound / 2))
    assert {v.name for v in verify.violations(cheaper)} == {"fresh_prices_are_no_better_than_all"}


def test_a_risk_or_a_range_that_does_not_follow_is_found() -> None:
    found, a = asked(), best()
    job, spread = a.workloads[0], a.cost.range
    assert job.spot is not None and spread is not None

    def names(altered: Alternative) -> set[str]:
        return {v.name for v in verify.violations(replace(found, alternatives=(altered,)))}

    assert names(a) == set()
    for wrong in ({"usd_90": 1.0}, {"finish_90_day": 1.0}, {"break_even_per_node_day": 9.0}, {"interruptions": 0.0}):
        told = replace(a, workloads=(replace(job, spot=replace(job.spot, **wrong)),))
        assert names(told) == {"spot_risk_follows"}, wrong
    assert names(replace(a, workloads=(replace(job, spot=None),))) == {"spot_risk_follows"}
    assert names(replace(a, cost=replace(a.cost, range=replace(spread, low_usd=1.0)))) == {"ranges_are_of_the_offers"}
    assert names(replace(a, cost=replace(a.cost, range=None))) == {"ranges_are_of_the_offers"}
