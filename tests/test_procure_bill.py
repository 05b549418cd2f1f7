"""The bill of materials as a table: whoever multiplies and adds what is printed finds the offer's total to the cent."""

from __future__ import annotations

import csv
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.commands.screen import procure_view
from planner.cost import network_bill
from planner.procurement.answer.bill import price_range
from planner.procurement.supply import buying
from planner.procurement.supply.prices import parts
from planner.question.node_prices import AgedPrice
from planner.schema.procurement import Line, Procurement
from tests.procuring_lab import answered
from tests.sweeps import sweep

CENT = Decimal("0.01")


def random_offer(found: Procurement, seed: int) -> Procurement:
    """The same offer with another bill: whole nodes, odd hours and kilowatt-hours, prices with many digits."""
    r, best = random.Random(seed), found.alternatives[0]
    bill = []
    for n in range(r.randint(1, 40)):
        whole = r.random() < 0.5
        count = float(r.randint(1, 5000)) if whole else r.uniform(0, 1) * 10 ** r.randint(0, 8)
        price = round(r.uniform(1, 4e5), 2) if whole else r.uniform(0.01, 60)
        bill.append(
            Line(pool="a", item=f"{n}", kind="node" if whole else "energy", count=count, unit="", unit_price_usd=price,
                 usd=round(count * price, 2), source="made up", date="2026")
        )  # fmt: skip
    cost = replace(best.cost, cash_usd=round(sum(line.usd for line in bill), 2))
    return replace(found, alternatives=(replace(best, bill_of_materials=tuple(bill), cost=cost),))


def test_random_bills_follow_from_what_is_printed(home: Path, tmp_path: Path) -> None:
    found, path = answered(home), tmp_path / "bill.csv"
    for seed in range(200):
        offer = random_offer(found, seed)
        procure_view.deliver_bill(offer, output=path)
        *rows, last = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
        lines = [row for row in rows if row["kind"] != "capacity"]
        for row in lines:
            product = Decimal(row["quantity"]) * Decimal(row["unit_price_usd"])
            # Fifteen digits are printed; what is behind them may turn half a cent.
            assert abs(product - Decimal(row["usd"])) <= CENT / 2 + abs(product) * Decimal("1e-14"), (seed, row)
        total = sum(Decimal(row["usd"]) for row in lines)
        assert total == Decimal(last["usd"]) == Decimal(str(offer.alternatives[0].cost.cash_usd)).quantize(CENT)


@sweep("kind", ["rail-optimised", "fat-tree"])
@sweep("nodes", [8, 9, 64, 65, 128, 512, 4096])
def test_the_range_of_a_price_of_bandwidth_holds_what_the_same_network_costs_by_piece(
    nodes: int, kind: network_bill.Wiring
) -> None:
    known, bill = parts(load()), network_bill.wired(kind, nodes, 8, buying.RADIX)
    pieces = {"switch-ndr": bill.switches, "link-nic-ndr": bill.nic_links, "link-switch-ndr": bill.switch_links}
    by_piece = sum(known[name].usd * count for name, count in pieces.items())
    by_bandwidth = network_bill.dimension_usd("switch", "inter-pod", 8 * nodes, 1, known["switch-ndr"].rate)
    low, high = buying.LIBRA_RANGE
    assert low <= by_piece / by_bandwidth <= high, by_piece / by_bandwidth


def test_a_part_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    lines = '[switch]\nname = "own"\nsource = "offer"\nusd = "$1k"\npower = "-1 W"\nradx = 64\n'
    (tmp_path / "parts" / "own.toml").write_text(lines, encoding="utf-8")
    with pytest.raises(WrongQuestion) as caught:
        parts(load(tmp_path))
    said = str(caught.value)
    assert 'own.toml:5: switch.power = "-1 W": must be above 0' in said
    assert "own.toml:6: switch.radx: unknown key; did you mean radix?" in said


def test_an_old_price_carries_what_today_s_may_be() -> None:
    """$100 of rent at 0.5 to 1.6 times are $50 to $160; a machine of $400, half charged, 100 off to 120 more."""
    aged = AgedPrice(basis="spot", usd=2.0, date="2024", source="a price list", spread=(0.5, 1.6))
    pools: Any = {name: SimpleNamespace(quote=aged) for name in ("rented", "bought")}
    bill: Any = [SimpleNamespace(pool="rented", kind="rental", usd=100.0, count=50.0)]
    rented = price_range(pools, bill, 100.0, 1.0)
    both = price_range(pools, [*bill, SimpleNamespace(pool="bought", kind="node", usd=400.0, count=1.0)], 300.0, 0.5)

    assert rented is not None and (rented.low_usd, rented.median_usd, rented.high_usd) == (50.0, 100.0, 160.0)
    assert (rented.offers, rented.oldest) == (0, "2024")
    assert both is not None and (both.low_usd, both.high_usd) == (150.0, 480.0)
