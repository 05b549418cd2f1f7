"""Wrong and unanswerable questions to ``clusterwright procure``: what is wrong, where, and the ways out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner.base.errors import NoAnswer
from planner.base.units import UnitError
from planner.catalog import load
from planner.commands.command_line import main
from planner.procurement import run
from planner.procurement.question import reading
from planner.procurement.run import Depth
from planner.question import values as currency
from planner.schema.procurement import Currency
from tests.procuring_lab import lab
from tests.sweeps import sweep
from tests.words import worded


@sweep("text", ["30k EUR", "EUR 30k", "EUR 30,000", "30 kEUR", "€30k", "€ 30k", "30,000 EUR", "0.03 MEUR", "0.03M EUR"])
def test_an_amount_may_be_written_as_people_do(text: str) -> None:
    assert currency.usd(text, Currency(code="EUR", usd=1.1)) == pytest.approx(33_000)


@sweep("text", ["30k", "30 USD", "-3 EUR", "30 kk EUR", "EUR", "many EUR", 30, "30 EUROS"])
def test_a_wrong_amount_is_told_as_it_was_written(text: object) -> None:
    with pytest.raises(UnitError, match=re.escape(repr(text))):
        currency.usd(text, Currency(code="EUR", usd=1.1))


@worded("procure.portfolios", read=json.loads)
def test_wrong_portfolios_are_told_in_one_message(
    edit: tuple[dict[str, str], str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> str:
    """Portfolios that say more, and one text in place of another."""
    parts, old, new = edit
    path = lab(tmp_path, **parts)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new) if old else text, encoding="utf-8")
    assert main(["procure", str(path)]) == 2
    told = capsys.readouterr().err
    assert str(path) in told and "Traceback" not in told
    return told


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


@pytest.mark.slow
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
