"""The six cases of docs/procurement.md: what their prose claims stands in the answers that the program printed there.

``tests/test_docs.py`` holds the printed answers to what the program prints today.
"""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.sources import page_script
from tests.sweeps import sweep

ROOT = Path(__file__).resolve().parent.parent
CASES = tomllib.loads(Path(__file__).with_name("procurement_cases.toml").read_text(encoding="utf-8"))
PORTFOLIOS = sorted(path.stem for path in (ROOT / "examples" / "portfolios").glob("*.toml"))


@cache
def case(name: str) -> tuple[str, str]:
    """The prose and the printed answer of a case."""
    page = (ROOT / "docs" / "procurement.md").read_text(encoding="utf-8")
    for section in page.split("\n## ")[1:]:
        if f"/{name}.toml" in section:
            prose, printed = section.split("<!-- example", 1)
            return prose, printed
    raise AssertionError(f"{name} has no section in docs/procurement.md")


def figure(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, pattern
    number = found[1].replace(",", "")
    return float(number.rstrip("kM")) * {"k": 1e3, "M": 1e6}.get(number[-1], 1.0)


def test_the_prose_quotes_the_answers() -> None:
    page = (ROOT / "docs" / "procurement.md").read_text(encoding="utf-8")
    assert page == page_script("procurement").with_answers_of(page), "run `make docs`"


@sweep("name", PORTFOLIOS)
def test_every_portfolio_is_a_case_with_a_proven_answer(name: str) -> None:
    prose, printed = case(name)
    assert "**" in prose, "the answer is said first"
    assert figure(r"proven gap ([\d.]+) %", printed) <= 1.0


def test_a_small_group_rents() -> None:
    _, printed = case("fine-tuning-group")
    assert re.search(r"\nRent 1 .*lambda-8x-a100-80gb for \d+ jobs", printed)
    assert "buy" not in printed.partition("done")[0]
    total = figure(r"EUR ([\d.]+k), done", printed)
    assert total < 30_000
    bought = figure(r"\n\d  buy 1 ws-8xrtx3090.* d +EUR ([\d.]+k)", printed)
    assert bought > 5 * total


def test_an_8b_model_is_rented_and_not_bought() -> None:
    _, printed = case("pretrain-8b")
    spot, usual, buy = (figure(rf"\n{n}  .*?\d+ d +\$([\d.]+[kM])", printed) for n in (1, 2, 3))
    assert spot < usual < buy <= 5e6
    hours = figure(r"rental +([\d,]+) node-hours", printed)
    assert hours * figure(r"node-hours +\$([\d.]+)", printed) == pytest.approx(spot, rel=0.01)
    # 2T tokens at the rate that is printed.
    assert 2e12 / figure(r"2\.00 T +([\d.]+) k", printed) / 1e3 / 86400 == pytest.approx(
        figure(r"k +([\d.]+) d +[\d.]+ d +60 d", printed), rel=0.01
    )


def test_four_models_keep_capital_and_power() -> None:
    _, printed = case("four-models")
    assert figure(r"done day (\d+)", printed) < 365
    assert figure(r"#1: capital \$([\d.]+M)", printed) <= 100e6
    assert figure(r"\n1  .*?([\d.]+) MW", printed) <= 15
    assert figure(r"\n1  .*? d +\$([\d.]+M)", printed) <= 130.5e6


def test_five_megawatts_are_filled_for_the_whole_year() -> None:
    _, printed = case("five-megawatts")
    assert 4.5 < figure(r"\n1  .*?([\d.]+) MW", printed) <= 5
    tokens = figure(r"accelerators\): ([\d.]+) T tokens", printed)
    rate, days = figure(r" T +([\d.]+) M +", printed), figure(r" M +([\d.]+) d ", printed)
    assert rate * 1e6 * days * 86400 == pytest.approx(tokens * 1e12, rel=0.01)


def test_manoa_reproduces_both_bounds() -> None:
    bounds = CASES["manoa_bounds"][0]
    prose, printed = case("manoa")
    assert "Buy 32 p100-pcie-4 (128 accelerators)" in printed
    capital = figure(r"#1: capital \$([\d.]+k)", printed)
    assert capital < bounds["claimed_usd_under"]
    assert capital / bounds["gpus"] < bounds["implied_usd_per_gpu_max"]
    assert bounds["fp32_pflops_pcie_1329MHz"] > bounds["claimed_pflops_over"]
    assert figure(r"peak is ([\d.]+) PFLOP/s", prose) == pytest.approx(bounds["fp32_pflops_pcie_1329MHz"], rel=0.001)
    assert capital / (bounds["fp32_pflops_pcie_1329MHz"] * 1000) < bounds["implied_usd_per_fp32_tflops_max"]
    # Input and checkpoints need machines; gradients never reach them.
    assert figure(r"I/O node +(\d+)", printed) == figure(r"head node +(\d+)", printed) == 1


def test_machines_of_two_generations_work_on_one_job_and_one_job_is_rented_for() -> None:
    prose, printed = case("owned-and-rented")
    assert "\nUse 2 dgx-a100-80gb, use 2 dgx-v100, rent 1 p5.48xlarge spot" in printed
    assert re.search(r"\nbase +own 2 x dgx-a100-80gb \+ own 2 x dgx-v100 ", printed)
    assert re.search(r"\ncontinued +spot 1 x p5.48xlarge ", printed)
    total = figure(r"\): \$([\d.]+k), done", printed)
    rent = figure(r"node-hours +\$[\d.]+ +\$([\d.]+k)", printed)
    energy = sum(float(usd) for usd in re.findall(r"kWh +\$[\d.]+ +\$([\d.]+)", printed))
    assert total == pytest.approx(rent + energy, rel=0.01)
    # What it saves against every job on one pool, and that the A100 nodes alone would be late.
    assert figure(r"Single pools .*\$([\d.]+k)\n", printed) > total + 1_500
    assert figure(r"says ([\d.]+) d\)", prose) > 25 > figure(r"\nbase .*? ([\d.]+) d  ", printed)
