"""Wrong and unanswerable questions to ``clusterwright procure``: what is wrong, where, and the ways out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.base.errors import NoAnswer
from planner.base.units import UnitError
from planner.catalog import load
from planner.commands import main
from planner.procurement import run
from planner.procurement.question import reading
from planner.procurement.run import Depth
from planner.question import file_values as currency
from planner.schema.procurement import Currency
from tests.procuring_lab import lab
from tests.sweeps import sweep


@sweep("text", ["30k EUR", "30 kEUR", "€30k", "€ 30k", "30,000 EUR", "0.03 MEUR", "0.03M EUR"])
def test_an_amount_may_be_written_as_people_do(text: str) -> None:
    assert currency.usd(text, Currency(code="EUR", usd=1.1)) == pytest.approx(33_000)


@sweep("text", ["30k", "30 USD", "-3 EUR", "30 kk EUR", "EUR", "many EUR", 30, "30 EUROS"])
def test_a_wrong_amount_is_told_as_it_was_written(text: object) -> None:
    with pytest.raises(UnitError, match=re.escape(repr(text))):
        currency.usd(text, Currency(code="EUR", usd=1.1))


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
        "give the price of an hour",
    ),
    "power without unit": ({}, '"400 kW"', '"400"', "no unit"),
    "tokens below nothing": ({}, '"2B"', '"-2B"', "tokens"),
    "a deadline past the horizon": ({}, '"90 d"', '"900 d"', "is past the horizon"),
    "a deadline before the release": ({"job": 'release = "95 d"'}, "", "", "is not after the release"),
    "a duplicate": ({}, '"tuned"', '"base"', "appears twice"),
    "two without a name": (
        {"second": '[[workloads]]\nmodel = "llama3-8b"\n[[workloads]]\nmodel = "llama3-8b"'},
        "",
        "",
        "'llama3-8b' appears twice",
    ),
    "a name that a periodic one makes": (
        {"job": 'every = "90 d"'},
        '"tuned"',
        '"base#1"',
        "'base#1': must not hold a #",
    ),
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
    "a sale of what is charged by its days": (
        {"top": 'charge = "amortised"\nresale = 0.8'},
        "",
        "",
        "resale: what a sale brings counts in cash",
    ),
    "a sale for more than it is worth": ({"top": "resale = 1.2"}, "", "", "resale: 1.2: must be a number above 0"),
    "no delivery within the horizon": ({"candidate": 'delivery = "7 months"'}, "", "", "is not before the end"),
}


@sweep("name", WRONG)
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


@sweep(
    ("flag", "said"),
    [
        (("--budget", "abc"), "--budget: 'abc' has no currency; write for example '$5M'"),
        (("--deadline", "400d"), "--deadline: is past the horizon of 183 days\n"),
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
        run.procure(load(), reading.read(path, load()))
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
        run.procure(load(), reading.read(path, load()))
    with pytest.raises(NoAnswer, match="trains at 9,000,000,000 tokens/s on none"):
        fast = lab(home, job='min_throughput = "9B tokens/s"')
        run.procure(load(), reading.read(fast, load()))


@sweep("flag", [("--tokens", "1T"), ("--method", "lora"), ("--batch", "8"), ("--seq", "512"), ("--precision", "fp8")])
def test_what_the_file_says_is_not_said_again(
    flag: tuple[str, str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["procure", str(lab(home)), *flag]) == 2
    assert f"a portfolio file and {flag[0]}" in capsys.readouterr().err


def test_ways_out_are_rounded_up_in_the_portfolio_s_money(home: Path) -> None:
    rate = '[exchange]\nusd = 1.1\ndate = "2026-11-20"\nsource = "the bank"'
    text = lab(home).read_text(encoding="utf-8").replace('"USD"', '"EUR"')
    path = home / "poor_euro.toml"
    path.write_text(text.replace("$6M", "€2k") + rate, encoding="utf-8")
    with pytest.raises(NoAnswer) as told:
        run.procure(load(), reading.read(path, load()))
    assert "budget EUR 2.00k" in str(told.value)
    enough = re.search(r"enough: budget EUR ([\d.]+)k", str(told.value))
    assert enough is not None
    path.write_text(text.replace("$6M", f"€{enough[1]}k") + rate, encoding="utf-8")
    run.procure(load(), reading.read(path, load()), depth=Depth(top=1, marginal=False, sensitivity=False))
