"""Cost of ownership and bills of materials against published and worked figures."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost import network_bill
from planner.cost.goodput import ACCELERATOR_MTBF_S, goodput
from planner.cost.ownership import Ownership, annuity, break_even_utilisation, capital_recovery, hourly_cost, resale
from tests.sweeps import sweep

CASES: dict[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("procurement_cases.toml").read_text(encoding="utf-8")
)
ELECTRICITY = 0.0826
WIRINGS = ("rail-optimised", "fat-tree", "dragonfly", "torus")


@sweep("case", CASES["tco_example"], ids=lambda case: case["case"])
def test_worked_examples_of_ownership(case: dict[str, Any]) -> None:
    owner = Ownership(
        interest=case["interest"],
        life_years=case["years"],
        colocation_usd_per_kw_month=case["colo_usd_per_kw_month"],
        maintenance=case["maintenance"],
    )
    found = hourly_cost(case["capex_usd_per_acc"], case["kw_per_acc"] * 1000, ELECTRICITY, case["pue"], owner)
    parts = {
        "capex": found.capital,
        "energy": found.energy,
        "colo": found.facility,
        "maintenance": found.maintenance,
        "total": found.total,
    }
    for name, value in parts.items():
        assert value == pytest.approx(case[f"{name}_usd_h"], abs=case["tol_abs"])
    assert found.total == pytest.approx(case["total_usd_h"], rel=0.01)


@sweep("case", CASES["rail_plane_switches"], ids=lambda case: str(case["nodes"]))
def test_switches_of_the_public_bill_of_materials(case: dict[str, Any]) -> None:
    assert network_bill.rail_optimised(case["nodes"], case["rails"], case["radix"]).switches == case["switches"]


def test_network_capital_of_1024_gpus_in_the_same_sheet() -> None:
    bill = network_bill.rail_optimised(128, 8, 64)
    usd = bill.switches * 36_000 + bill.nic_links * 1_320 + bill.switch_links * 1_240
    assert usd / 1024 == pytest.approx(4_247.5)


def test_libra_example() -> None:
    case = CASES["libra_cost"][0]
    assert network_bill.libra_switch_usd(case["npus"], case["bw_GBps"] * 1e9) == pytest.approx(case["expected_usd"])
    # NDR at 50 GB/s: the whole network of an endpoint.
    assert network_bill.libra_switch_usd(1, 50e9) == pytest.approx(2_870)


def test_goodput_of_the_largest_run_that_told_its_interruptions() -> None:
    # Llama 3 405B on 16,384 H100: one interruption in 2.8 hours, and an effective training time above 90 %.
    state = 405e9 * 14 / 16_384
    good = goodput(16_384, state, 50e9, accelerator_mtbf=16_384 * 2.8 * 3600)
    assert float(good.mtbf) == pytest.approx(2.8 * 3600)
    assert 0.90 < float(good.fraction) < 0.97
    # Young: tau = sqrt(2 C M).
    assert float(good.interval) == pytest.approx((2 * float(good.blocks) * 2.8 * 3600) ** 0.5)
    assert 16_384 * 2.8 * 3600 < ACCELERATOR_MTBF_S  # ours counts the 419 of 466 that were not planned


def test_recovery_without_interest_is_the_limit() -> None:
    assert capital_recovery(1e-9, 5) == pytest.approx(capital_recovery(0, 5)) == pytest.approx(0.2)
    assert annuity(100.0, 0.0, 4, 20.0) == pytest.approx(20.0)
    assert resale(100.0, 0) == 100.0
    assert 0.25 < resale(1.0, 3) < 0.40  # claims of 25 to 35 % after 36 months


@given(st.floats(0.001, 0.3), st.floats(1, 12), st.floats(1e3, 1e6), st.floats(0, 0.9))
def test_paying_off_is_worth_the_capital(interest: float, years: float, capital: float, left: float) -> None:
    # The present value of all payments and of what is left is the capital: whole years, paid at each year's end.
    whole = round(years)
    yearly = annuity(capital, interest, whole, left * capital)
    value = sum(yearly / (1 + interest) ** t for t in range(1, whole + 1)) + left * capital / (1 + interest) ** whole
    assert value == pytest.approx(capital)


@given(st.floats(1e3, 1e5), st.floats(1, 10))
def test_cost_is_linear_in_prices(capital: float, factor: float) -> None:
    owner = Ownership()
    one, more = (hourly_cost(k, 1400, ELECTRICITY, 1.25, owner) for k in (capital, capital * factor))
    assert more.capital == pytest.approx(one.capital * factor)
    assert more.maintenance == pytest.approx(one.maintenance * factor)
    assert more.energy == one.energy


def test_owning_breaks_even_at_the_share_of_hours_that_rent_costs_more() -> None:
    assert break_even_utilisation(1.85, 2.64) == pytest.approx(0.70, abs=0.01)


@given(st.integers(1, 5000), st.sampled_from([1, 2, 4, 8]), st.sampled_from([32, 64]), st.sampled_from([1.0, 2.0, 4.0]))
def test_more_nodes_never_need_fewer_links(nodes: int, nics: int, radix: int, over: float) -> None:
    for kind in WIRINGS:
        bill = network_bill.wired(kind, nodes, nics, radix, over)  # type: ignore[arg-type]
        more = network_bill.wired(kind, nodes + 1, nics, radix, over)  # type: ignore[arg-type]
        assert bill.nic_links <= more.nic_links
        if network_bill.tiers(nodes * nics, radix) == network_bill.tiers((nodes + 1) * nics, radix):
            assert bill.switches <= more.switches


@given(st.integers(2, 4000), st.sampled_from([1.0, 2.0, 3.0]))
def test_oversubscription_never_costs_more(nodes: int, over: float) -> None:
    free, cut = network_bill.rail_optimised(nodes, 8, 64), network_bill.rail_optimised(nodes, 8, 64, over)
    assert cut.switches <= free.switches
    assert cut.switch_links <= free.switch_links


def test_rail_only_saves_the_spine_and_ends_at_the_radix() -> None:
    assert network_bill.rail_only(64, 8, 64).switches == 8
    assert network_bill.rail_only(48, 8, 64).switch_links == 0
    with pytest.raises(ValueError, match="at most 64"):
        network_bill.rail_only(65, 8, 64)


def test_one_node_needs_no_network() -> None:
    assert network_bill.wired("rail-optimised", 1, 8, 64).switches == 0


def test_dragonfly_of_balanced_groups() -> None:
    # Radix 63 is exact: p = 16, a = 32, h = 16, p + h + a - 1 = 63.
    bill = network_bill.dragonfly(1024, 1, 63)
    assert bill.switches == 64
    assert bill.switch_links == round(64 * (31 / 2 + 16 / 2))


def test_manoa_bounds() -> None:
    case = CASES["manoa_bounds"][0]
    assert case["gpus"] * case["cuda_cores"] * 2 * 1.329e9 / 1e15 == pytest.approx(case["fp32_pflops_pcie_1329MHz"])
    assert case["claimed_usd_under"] / case["gpus"] == case["implied_usd_per_gpu_max"]
