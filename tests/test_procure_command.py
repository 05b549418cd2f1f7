"""``clusterwright procure``: the document, the report, wrong questions, and an answer's second opinion."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner import document
from planner.catalog import load
from planner.commands import cli, main
from planner.errors import NoAnswer, WrongQuestion
from planner.procure import amounts, asking, procuring, reading
from planner.procure.model import Variant
from planner.procure.pools import pools
from planner.procure.portfolio import Exchange
from planner.procure.procuring import Depth
from planner.procure.solve import best
from planner.schema.procurement import Procurement
from planner.units import UnitError
from planner.verify import procurement as verify

LAB = """
name = "lab"
currency = "USD"
as_of = "2026-11-20"
horizon = "6 months"
{top}
[limits]
budget = "$6M"
power = "400 kW"
{limits}
[[workloads]]
name = "base"
model = "llama3-8b"
tokens = "200B"
deadline = "90 d"
{job}
[[workloads]]
name = "tuned"
model = "llama3-8b"
method = "lora"
rank = 16
tokens = "2B"
{second}
[[candidates]]
node = "hgx-h100"
ways = ["buy"]
counts = [1, 2, 4]
wirings = ["rail-optimised", "fat-tree 2:1"]
{candidate}
[[candidates]]
node = "p5.48xlarge"
ways = ["on-demand", "spot"]
counts = [1, 2, 4, 8]
{tail}
"""
PARTS = ("top", "limits", "job", "second", "candidate", "tail")


def lab(folder: Path, **parts: str) -> Path:
    path = folder / "lab.toml"
    path.write_text(LAB.format(**{part: parts.get(part, "") for part in PARTS}), encoding="utf-8")
    return path


@cache
def answered(folder: Path, **parts: str) -> Procurement:
    known = load()
    return procuring.procure(known, reading.read(lab(folder, **parts), known), depth=Depth(top=3))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab")


def run(*line: str) -> Any:
    return CliRunner().invoke(cli, ["procure", *line])


def test_the_document_is_what_was_promised(home: Path) -> None:
    data = document.dump(answered(home))
    assert (data["kind"], data["schema_version"]) == ("procurement", 1)
    assert {"gap", "bound"} <= data["optimality"].keys()
    first = data["alternatives"][0]
    assert {"item", "kind", "count", "unit_price_usd", "source"} <= first["bill_of_materials"][0].keys()
    assert {"total_usd"} <= first["cost"].keys()
    assert {"name", "finish_day", "pools", "plan"} <= first["workloads"][0].keys()
    assert first["workloads"][0]["plan"]["kind"] == "plan"
    assert all({"limit", "step", "gain"} <= value.keys() for value in data["marginal_values"])
    assert json.loads(document.as_json(answered(home))) == data


def test_alternatives_are_ranked_and_differ_in_kind(home: Path) -> None:
    found = answered(home).alternatives
    assert [a.rank for a in found] == [1, 2, 3]
    assert [a.value for a in found] == sorted(a.value for a in found)
    assert {pool.way for a in found for pool in a.pools} >= {"spot", "buy"}


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("charge", ["cash", "amortised"])
@pytest.mark.parametrize("objective", ["cost", "time", "carbon", "tokens-per-dollar"])
def test_every_objective_is_answered_and_holds(objective: str, charge: str, home: Path) -> None:
    top = f'objective = "{objective}"\ncharge = "{charge}"'
    tail = '[[owned]]\nnode = "dgx-a100-80gb"\ncount = 3'
    known = load()
    asked = reading.read(lab(home, top=top, limits='monthly = "$60k"', tail=tail), known)
    found = procuring.procure(known, asked, depth=Depth(top=3, marginal=False, sensitivity=False))
    assert verify.violations(found) == []
    assert len(found.alternatives) == 3


def test_machines_that_stand_there_take_racks_ports_and_power(home: Path) -> None:
    known = load()
    own = '[[owned]]\nnode = "dgx-h100"\ncount = 7'
    limits = "racks = 3\nswitch_ports = 100"
    alone = procuring.procure(
        known, reading.read(lab(home, limits=limits), known), depth=Depth(top=1, marginal=False, sensitivity=False)
    )
    asked = reading.read(lab(home, limits=limits, tail=own), known)
    found = procuring.procure(known, asked, depth=Depth(top=2, marginal=False, sensitivity=False))
    # Six to a rack of 48 units, eight ports each: so much is taken, whatever is bought beside it.
    assert found.question.standing == {"racks": 2.0, "switch_ports": 56.0}
    assert alone.question.standing == {"racks": 0.0, "switch_ports": 0.0}
    for a in found.alternatives:
        values = {c.name: c.value for c in a.constraints}
        assert values["racks"] == 2.0 + sum(x.racks * x.copies for x in a.pools)
        assert values["power"] == pytest.approx(sum(x.power_w * x.copies for x in a.pools if x.way in ("own", "buy")))
    working = next(x for a in found.alternatives for x in a.pools if x.way == "own")
    assert working.power_w == pytest.approx(working.count * working.node_power_w * working.pue)
    taken = replace(found, question=replace(found.question, standing={"racks": 1.0, "switch_ports": 56.0}))
    assert "limits_hold" in {violation.name for violation in verify.violations(taken)}
    with pytest.raises(NoAnswer, match="racks 1 conflicts"):
        procuring.procure(known, reading.read(lab(home, limits="racks = 1", tail=own), known))


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


def test_plan_and_procure_agree_on_the_step(home: Path) -> None:
    from planner import api

    for a in answered(home).alternatives:
        for job in a.workloads:
            pool = next(pool for pool in a.pools if pool.id == job.pools[0])
            if pool.wiring in ("", "rail-optimised"):
                method = job.plan.workload.method
                alone = api.plan(
                    job.model, f"{pool.node}:{pool.count}", method=method["kind"], rank=method["rank"] or None, top=1
                ).plans[0]
                assert alone.prediction.step_time_s == job.plan.prediction.step_time_s
                assert alone.parallelism == job.plan.parallelism


def test_currencies_are_converted_by_the_given_rate(home: Path) -> None:
    rate = '[exchange]\nusd = 1.1\ndate = "2026-11-20"\nsource = "the bank"'
    text = lab(home).read_text(encoding="utf-8").replace('"USD"', '"EUR"').replace("$6M", "€6M")
    path = home / "euro.toml"
    path.write_text(text + rate, encoding="utf-8")
    found = reading.read(path, load())
    assert found.limits.budget == pytest.approx(6.6e6)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WrongQuestion, match="EUR needs its rate"):
        reading.read(path, load())


@pytest.mark.parametrize("text", ["30k EUR", "30 kEUR", "€30k", "€ 30k", "30,000 EUR", "0.03 MEUR", "0.03M EUR"])
def test_an_amount_may_be_written_as_people_do(text: str) -> None:
    assert amounts.usd(text, Exchange(code="EUR", usd=1.1)) == pytest.approx(33_000)


@pytest.mark.parametrize("text", ["30k", "30 USD", "-3 EUR", "30 kk EUR", "EUR", "many EUR", 30, "30 EUROS"])
def test_a_wrong_amount_is_told_as_it_was_written(text: object) -> None:
    with pytest.raises(UnitError, match=re.escape(repr(text))):
        amounts.usd(text, Exchange(code="EUR", usd=1.1))


WRONG = {
    "no currency": ({"top": ""}, 'currency = "USD"\n', "", "currency: missing"),
    "another currency": ({}, "$6M", "€6M", "is in EUR, and the portfolio in USD"),
    "no currency in an amount": ({}, "$6M", "6M", "has no currency"),
    "a negative price": (
        {"tail": 'price = { amount = "-$3/h", date = "2026-11-20" }'},
        '["on-demand", "spot"]',
        '["spot"]',
        "must not be negative",
    ),
    "a price by no hour": (
        {"tail": 'price = { amount = "$30", date = "2026-11-20" }'},
        '["on-demand", "spot"]',
        '["spot"]',
        "say what an hour costs",
    ),
    "power without unit": ({}, '"400 kW"', '"400"', "no unit"),
    "tokens below nothing": ({}, '"2B"', '"-2B"', "tokens"),
    "a deadline past the horizon": ({}, '"90 d"', '"900 d"', "is past the horizon"),
    "a deadline before the release": ({"job": 'release = "95 d"'}, "", "", "is not after the release"),
    "a duplicate": ({}, '"tuned"', '"base"', "stands twice"),
    "two without a name": (
        {"second": '[[workloads]]\nmodel = "llama3-8b"\n[[workloads]]\nmodel = "llama3-8b"'},
        "",
        "",
        "'llama3-8b' stands twice",
    ),
    "a name that a periodic one makes": ({"job": 'every = "90 d"'}, '"tuned"', '"base#1"', "'base#1': must not hold a #"),
    "a period past the horizon": ({"second": 'every = "7 months"'}, "", "", "workloads.1.every: not one period"),
    "a deadline past the next run": (
        {"second": 'every = "10 d"\ndeadline = "30 d"'},
        "",
        "",
        "is after the next run's release",
    ),
    "a price of nothing": (
        {"tail": 'price = { amount = "$0/h", date = "2026-11-20" }'},
        '["on-demand", "spot"]',
        '["spot"]',
        "must be more than nothing",
    ),
    "an unknown node": ({}, '"hgx-h100"', '"hgx-h10"', "no node 'hgx-h10'"),
    "an unknown model": ({}, 'model = "llama3-8b"\ntokens', 'model = "llama3-8"\ntokens', "no model 'llama3-8'"),
    "an unknown key": ({"limits": 'budgget = "$1"'}, "", "", "unknown key; did you mean budget?"),
    "an unknown way": ({}, '["buy"]', '["steal"]', "choose buy"),
    "an unknown wiring": ({}, '"fat-tree 2:1"', '"fat tree"', "rail-optimised"),
    "a workload without a name": ({}, 'name = "base"', 'name = " "', "workloads.0.name: ' ': must be some text"),
    "no way to come by it": ({}, '["on-demand", "spot"]', "[]", "candidates.1.ways: missing; any of buy"),
    "a smallest order that is too large": (
        {"candidate": "min_order = 9\nat_most = 8"},
        "",
        "",
        "min_order: 9, and there",
    ),
    "no size in its bounds": ({"candidate": "min_order = 9"}, "", "", "counts: [1, 2, 4]: none is from 9"),
    "a throughput without unit": ({"job": "min_throughput = 1000"}, "", "", "has no unit"),
    "no delivery within the horizon": ({"candidate": 'delivery = "7 months"'}, "", "", "is not before the end"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_portfolios_are_told_in_one_message(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts, old, new, said = WRONG[name]
    path = lab(tmp_path, **parts)
    if old:
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
    assert main(["procure", str(path)]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert str(path) in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ((), "what for?"),
        (("missing.toml",), "missing.toml"),
        (("--model", "llama3-8"), "Did you mean llama3-8b"),
        (("--model", "llama3-8b", "--budget", "5M"), "--budget: '5M' has no currency; write for example '$5M'"),
        (("--model", "llama3-8b", "--power", "400"), "--power: '400': no unit"),
        (("--model", "llama3-8b", "--region", "mars"), "--region: no region 'mars'"),
        (("--model", "llama3-8b", "--within", "0d"), "--within: '0d': must be more than nothing"),
        (("--model", "llama3-8b", "--tokens", "abc"), "clusterwright: tokens = 'abc' is not a quantity"),
        (("--model", "llama3-8b", "--within", "60"), "no unit"),
        (("--model", "llama3-8b", "--ways", "steal"), "'steal' is none of"),
        (("--model", "llama3-8b", "--node", "dgx-h10"), "Did you mean dgx-h100"),
        (("--model", "llama3-8b", "--node", "p5.4xlarge", "--sweep", "budget=5..1"), "--sweep"),
    ],
)
def test_wrong_flags(line: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["procure", *line]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        (("--budget", "abc"), "--budget: 'abc' has no currency; write for example '$5M'"),
        (("--within", "400d"), "--within: is past the horizon of 183 days\n"),
        (("--region", "mars"), "--region: no region 'mars'"),
        (("--as-of", "never"), "--as-of: 'never' is no date"),
    ],
)
def test_a_wrong_flag_beside_a_file_is_not_told_as_the_file_s(
    flag: tuple[str, str], said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lab(home)
    assert main(["procure", str(path), *flag]) == 2
    told = capsys.readouterr().err
    assert said in told and str(path) not in told


def test_a_misspelt_node_is_the_only_thing_that_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "misspelt.toml"
    text = lab(home).read_text(encoding="utf-8").replace('"hgx-h100"', '"hgx-h10"').replace("p5.48xlarge", "p5.48xlrge")
    path.write_text(text, encoding="utf-8")
    assert main(["procure", str(path)]) == 2
    told = capsys.readouterr().err
    assert "Did you mean p5.48xlarge" in told and "there is nothing to train on" not in told


def test_conflicting_limits_are_named_with_a_way_out(home: Path) -> None:
    path = home / "poor.toml"
    path.write_text(lab(home).read_text(encoding="utf-8").replace("$6M", "$2k"), encoding="utf-8")
    with pytest.raises(NoAnswer) as told:
        procuring.procure(load(), reading.read(path, load()))
    assert "budget $2.00k" in str(told.value)
    assert "Any one of these is enough: budget $" in str(told.value)
    assert "of the work" in str(told.value)
    assert told.value.exit_code == 1


def test_what_fits_nowhere_is_told(home: Path) -> None:
    path = home / "large.toml"
    text = lab(home).read_text(encoding="utf-8")
    text = text.replace("[1, 2, 4, 8]", "[1]").replace("[1, 2, 4]", "[1]")
    path.write_text(text.replace('model = "llama3-8b"\ntokens', 'model = "deepseek-v3"\ntokens'), encoding="utf-8")
    with pytest.raises(NoAnswer, match="trains on none of the"):
        procuring.procure(load(), reading.read(path, load()))
    with pytest.raises(NoAnswer, match="trains at 9,000,000,000 tokens/s on none"):
        fast = lab(home, job='min_throughput = "9B tokens/s"')
        procuring.procure(load(), reading.read(fast, load()))


def test_the_report_is_one_screen_with_its_reasons(home: Path) -> None:
    found = run(str(lab(home)), "--quick")
    assert found.exit_code == 0, found.output
    for said in ("gap 0", "per 1T tokens", "Binds", "Assumes", "Search", "Next"):
        assert said in found.output
    assert len(found.output.splitlines()) < 50


def test_the_short_form_answers_with_the_same_document(tmp_path: Path) -> None:
    out = tmp_path / "offer.json"
    flags = ("--model", "llama3-8b", "--tokens", "50B", "--budget", "$1M", "--within", "60d", "--node", "p5.48xlarge")
    found = run(*flags, "--quick", "--json", "-o", str(out), "--as-of", "2026-11-20")
    assert found.exit_code == 0, found.output
    data = json.loads(found.output)
    assert data == json.loads(out.read_text(encoding="utf-8"))
    assert data["question"]["limits"] == {"budget": 1e6, "deadline:llama3-8b": 60.0}


def test_the_same_question_has_the_same_answer(home: Path) -> None:
    known = load()
    again = procuring.procure(known, reading.read(lab(home), known), depth=Depth(top=3))
    assert replace(again, meta={}) == replace(answered(home), meta={})


def test_a_sweep_is_a_front(home: Path) -> None:
    found = run(str(lab(home)), "--sweep", "budget=5k..2M", "--objective", "time", "--json")
    assert found.exit_code == 0, found.output
    data = json.loads(found.output)
    points = data["points"]
    assert (data["limit_unit"], data["value_unit"], data["currency"]["code"]) == ("USD", "d", "USD")
    assert len({tuple(sorted(point)) for point in points}) == 1  # a point without an answer has the same keys
    values = [point["value"] for point in points if point["what"]]
    assert values == sorted(values, reverse=True)
    front = [point["value"] for point in points if point["front"]]
    assert len(front) > 1 and len(set(front)) == len(front)


def test_dates_that_are_old_or_still_to_come_are_flagged(tmp_path: Path) -> None:
    tail = """price = { amount = "50 EUR/h", date = "2026-12-24" }
[exchange]
usd = 1.1
date = "2026-09-01"
"""
    text = lab(tmp_path, tail=tail).read_text(encoding="utf-8").replace('["on-demand", "spot"]', '["spot"]')
    path = tmp_path / "euro.toml"
    path.write_text(text.replace('"USD"', '"EUR"').replace("$6M", "€6M"), encoding="utf-8")
    known = load()
    quick = Depth(top=1, marginal=False, sensitivity=False)
    found = procuring.procure(known, reading.read(path, known), depth=quick)
    assert found.stale_prices == ("1 EUR: 1.1 USD of 2026-09-01", "p5.48xlarge spot: 55.00 USD of 2026-12-24")
    assert found.alternatives[0].pools[0].stale
    later = reading.read(path, known)
    later = replace(later, as_of="2026-12-25", exchange=replace(later.exchange, date="2026-12-01"))
    assert procuring.procure(known, later, depth=quick).stale_prices == ()


def test_prices_turned_by_a_fifth_are_answered_again(home: Path) -> None:
    found = answered(home)
    assert [x.prices for x in found.sensitivity] == [0.8, 1.2]
    assert found.sensitivity[0].value < found.alternatives[0].value < found.sensitivity[1].value
    assert any("2025-11" in line for line in found.stale_prices)


def test_break_even_is_rent_over_what_owning_saves(home: Path) -> None:
    for each in answered(home).break_even:
        ratio = each.owned_usd_per_accelerator_hour / each.rented_usd_per_accelerator_hour
        assert each.utilisation == pytest.approx(ratio)
        assert each.months is None or each.months > 0


def test_two_offers_of_one_node_are_told_apart(tmp_path: Path) -> None:
    tail = """price = { amount = "$50/h", date = "2026-11-20" }
[[candidates]]
node = "p5.48xlarge"
ways = ["spot"]
counts = [8]
price = { amount = "$40/h", date = "2026-11-20" }
delivery = "1 d"
[[candidates]]
node = "hgx-h100"
ways = ["buy"]
counts = [2]
nics = 2
"""
    text = lab(tmp_path, tail=tail).read_text(encoding="utf-8").replace('["on-demand", "spot"]', '["spot"]')
    path = tmp_path / "two.toml"
    path.write_text(text, encoding="utf-8")
    known = load()
    ids = [pool.id for pool in pools(known, reading.read(path, known))]
    assert len(set(ids)) == len(ids)
    assert "spot 8 x p5.48xlarge from day 1 at 40.00 USD" in ids
    assert any(name.startswith("buy 2 x hgx-h100") and "with 2 NICs" in name for name in ids)
    verify.check(procuring.procure(known, reading.read(path, known), depth=Depth(top=2, marginal=False)))


@pytest.mark.parametrize(
    "flag", [("--tokens", "1T"), ("--method", "lora"), ("--batch", "8"), ("--seq", "512"), ("--precision", "fp8")]
)
def test_what_the_file_says_is_not_said_again(
    flag: tuple[str, str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["procure", str(lab(home)), *flag]) == 2
    assert f"a portfolio file and {flag[0]}" in capsys.readouterr().err


def test_rented_machines_stand_where_the_candidate_says(tmp_path: Path) -> None:
    known = load()
    path = lab(tmp_path, tail='regions = ["fr", "us-texas"]')
    hired = [pool for pool in pools(known, reading.read(path, known)) if pool.hired]
    places = {pool.cluster.region.id for pool in hired if pool.cluster.region}
    assert places == {"fr", "us-texas"}
    clean, dirty = (
        min(x.day_kg for x in hired if x.cluster.region is known.region(name)) for name in ("fr", "us-texas")
    )
    assert clean < dirty / 3


def test_every_offer_has_its_own_number_of_nodes(tmp_path: Path) -> None:
    tail = """at_most = 8
[[candidates]]
node = "p5.48xlarge"
ways = ["spot"]
counts = [8]
at_most = 9
"""
    known = load()
    found = procuring.procure(known, reading.read(lab(tmp_path, tail=tail), known), depth=Depth(top=1, marginal=False))
    limits = {name: value for name, value in found.question.limits.items() if name.startswith("quantity:")}
    assert limits == {"quantity:p5.48xlarge on-demand/spot": 8.0, "quantity:p5.48xlarge spot": 9.0}
    verify.check(found)


def test_more_time_costs_no_more_in_the_short_form() -> None:
    known = load()
    costs = []
    for within in ("20d", "100d", "360d"):
        flags = asking.Flags(
            model="llama3-8b", tokens="300B", within=within, nodes=("hgx-h100",), ways="buy", as_of="2026-11-20"
        )
        posed = procuring.pose(known, asking.asked(known, None, flags))
        found = best(posed.lean, Variant(), "cost")
        assert found is not None
        costs.append(found.cost)
    assert costs == sorted(costs, reverse=True)


def test_what_binds_is_what_more_of_would_help(home: Path) -> None:
    known = load()
    asked = reading.read(lab(home), known)
    asked = replace(asked, objective="time", limits=replace(asked.limits, budget=32_000.0))
    found = procuring.procure(known, asked, depth=Depth(top=1, sensitivity=False))
    wanted = {value.limit for value in found.marginal_values if value.gain > 0}
    assert wanted and wanted <= set(found.binding)
    slack = {c.name for c in found.alternatives[0].constraints if not c.binding}
    assert wanted & slack  # more of it helps although some is left


def test_a_sweep_of_tokens_per_dollar_has_their_sign_and_the_portfolio_s_money(home: Path) -> None:
    rate = '[exchange]\nusd = 1.1\ndate = "2026-11-20"\nsource = "the bank"'
    path = home / "euro_sweep.toml"
    text = lab(home).read_text(encoding="utf-8").replace('"USD"', '"EUR"').replace("$6M", "€6M")
    path.write_text(text + rate, encoding="utf-8")
    line = (str(path), "--sweep", "budget=50k..100k", "--objective", "tokens-per-dollar", "--ways", "spot")
    data = json.loads(run(*line, "--json").output)
    assert data["value_unit"] == "tokens/USD"
    assert data["currency"]["code"] == "EUR"
    assert all(point["value"] > 1e5 for point in data["points"])
    assert "EUR 50.0k" in run(*line).output


def test_ways_out_are_rounded_up_in_the_portfolio_s_money(home: Path) -> None:
    rate = '[exchange]\nusd = 1.1\ndate = "2026-11-20"\nsource = "the bank"'
    text = lab(home).read_text(encoding="utf-8").replace('"USD"', '"EUR"')
    path = home / "poor_euro.toml"
    path.write_text(text.replace("$6M", "€2k") + rate, encoding="utf-8")
    with pytest.raises(NoAnswer) as told:
        procuring.procure(load(), reading.read(path, load()))
    assert "budget EUR 2.00k" in str(told.value)
    enough = re.search(r"enough: budget EUR ([\d.]+)k", str(told.value))
    assert enough is not None
    path.write_text(text.replace("$6M", f"€{enough[1]}k") + rate, encoding="utf-8")
    procuring.procure(load(), reading.read(path, load()), depth=Depth(top=1, marginal=False, sensitivity=False))


def test_reserved_machines_are_found_by_their_way() -> None:
    flags = asking.Flags(model="llama3-8b", tokens="2B", ways="reserved-1y", as_of="2026-11-20")
    found = asking.asked(load(), None, flags)
    assert {way for candidate in found.candidates for way in candidate.ways} == {"reserved-1y"}


def test_searching_side_by_side_finds_the_same(home: Path) -> None:
    from planner.procure.columns import Throughputs

    known = load()
    asked = reading.read(lab(home), known)
    offered = pools(known, asked)
    alone, together = (Throughputs(known, asked.jobs, offered).columns(processes=n) for n in (1, 2))
    assert alone == together


def _offered(home: Path, **parts: str) -> dict[str, Any]:
    known = load()
    return {pool.id: pool for pool in pools(known, reading.read(lab(home, **parts), known))}


def test_what_may_be_acquired_keeps_to_the_hall_and_to_the_offer(home: Path) -> None:
    plain = _offered(home)
    wired = "buy 4 x hgx-h100 fat-tree"
    assert {"buy 1 x hgx-h100", "buy 2 x hgx-h100 fat-tree", wired, f"{wired} +1 spare"} <= plain.keys()
    # Four racks' worth of heat: 10.2 kW a node; six fit by height.
    cool = _offered(home, tail='[hall]\ncooling_per_rack = "11 kW"')
    assert (plain[wired].racks, cool[wired].racks) == (1.0, 4.0)
    assert not any(name.startswith("buy") for name in _offered(home, tail='[hall]\ncooling_per_rack = "9 kW"'))
    large = _offered(home, candidate="min_order = 4")
    assert {name for name in large if name.startswith("buy")} == {wired, f"{wired} +1 spare"}
    late = _offered(home, candidate='delivery = "1 month"')[wired]
    assert late.start_day == pytest.approx(30.4375)
    assert late.held_usd == pytest.approx(plain[wired].held_usd * 5 / 6)
    careful = _offered(home, tail='[reliability]\nspare_risk = 1e-9\nrepair = "20 d"')
    assert any(name.startswith(wired) and not name.endswith("+1 spare") and "spare" in name for name in careful)
    # Without a spare node a failure stops the job for hours.
    assert plain[wired].restart_s == 4 * 3600 > plain[f"{wired} +1 spare"].restart_s


def test_a_portfolio_s_own_terms_of_owning_change_what_a_month_costs(home: Path) -> None:
    plain = _offered(home)["buy 1 x hgx-h100"]
    terms = '[ownership]\ncolocation_per_kw_month = "$0"\nmaintenance = 0.06\nstaff_per_accelerator_year = "$1,200"'
    other = _offered(home, tail=terms)["buy 1 x hgx-h100"]
    assert other.running == {
        "facility": 0.0,
        "maintenance": pytest.approx(2 * plain.running["maintenance"]),
        "staff": pytest.approx(800.0),
    }
    dim = _offered(home, tail="[ownership]\nload = 0.3")["buy 1 x hgx-h100"]
    assert dim.day_usd == pytest.approx(plain.day_usd * 0.3 / 0.75)
    assert dim.power == plain.power  # what must be provided stays


def test_a_node_type_that_another_beats_in_everything_is_never_chosen(home: Path) -> None:
    # The same board in a dearer box.
    tail = '[[candidates]]\nnode = "dgx-h100"\nways = ["buy"]\ncounts = [1, 2, 4]\nwirings = ["fat-tree"]'
    known = load()
    for objective in ("cost", "time", "carbon", "tokens-per-dollar"):
        asked = replace(reading.read(lab(home, tail=tail), known), objective=objective)  # type: ignore[arg-type]
        posed = procuring.pose(known, asked)
        assert any(posed.instance.pools[c.pool].node.id == "dgx-h100" for c in posed.columns)
        assert all(posed.lean.pools[c.pool].node.id != "dgx-h100" for c in posed.lean.columns)
        chosen = best(posed.instance, Variant(), objective)
        assert chosen is not None
        assert {posed.instance.pools[p].node.id for p in chosen.pools} <= {"hgx-h100", "p5.48xlarge"}
