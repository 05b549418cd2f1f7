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
from planner.procure import asking, procuring, reading
from planner.procure.model import Variant
from planner.procure.pools import pools
from planner.procure.procuring import Depth
from planner.procure.solve import best
from planner.schema.procurement import Procurement
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
    "a name that a periodic one makes": ({"job": 'every = "90 d"'}, '"tuned"', '"base#1"', "'base#1' stands twice"),
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
        (("--model", "llama3-8b", "--budget", "5M"), "limits.budget"),
        (("--model", "llama3-8b", "--within", "60"), "no unit"),
        (("--model", "llama3-8b", "--ways", "steal"), "'steal' is none of"),
        (("--model", "llama3-8b", "--node", "dgx-h10"), "Did you mean dgx-h100"),
        (("--model", "llama3-8b", "--node", "p5.4xlarge", "--sweep", "budget=5..1"), "--sweep"),
    ],
)
def test_wrong_flags(line: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["procure", *line]) == 2
    assert said in capsys.readouterr().err


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
