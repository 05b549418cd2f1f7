"""What a plan is priced at: a vendor's instance at its own price, other nodes at the median of current offers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from planner.api import plans
from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.catalog.files import TomlDocument
from planner.procurement.question.portfolio import Job, NodeOption, Portfolio
from planner.procurement.supply.acquiring import pools
from planner.question.plan_options import PlanOptions
from planner.question.reading import PRICE_BASES, request
from planner.schema.hardware import Price
from planner.schema.plan import Plan
from planner.study.program.clusters import Clusters
from planner.study.question import reading
from tests.sweeps import sweep

KNOWN = load()
JOB = Job(name="job", model="gpt2", asked=PlanOptions(), tokens=1e9, deadline_day=30.0)
VENDORS = {vendor for runtime in KNOWN.runtimes.values() for vendor in runtime.vendors}
NODES = [node.id for node in KNOWN.nodes.values() if KNOWN.accelerator(node.accelerator).vendor in VENDORS]
"""On which some runtime trains: for others there is no plan to compare with."""
STUDY = """
name = "one"
objectives = ["cost"]
[base]
node = "{node}"
count = 1
[axes]
"accelerator.memory" = ["80 GiB", "96 GiB"]
[[workloads]]
model = "gpt2"
[costs]
basis = "{basis}"
"""


def _plan(cluster: str, **more: str) -> Plan:
    return plans.plan("llama3-8b", cluster, top=1, tokens=1e11, **more)[0]  # type: ignore[arg-type]


def test_the_median_of_the_cheapest_current_offer_of_each_provider() -> None:
    price = _plan("dgx-h100:2").money.price
    assert price is not None and price.offers is not None
    # Per accelerator: AWS 55.04 / 8, CoreWeave 49.24 / 8, Lambda 31.92 / 8, Nebius 23.60 / 8; others are older.
    assert price.offers.providers == ("AWS", "CoreWeave", "Lambda", "Nebius")
    assert price.offers.median_usd == pytest.approx((31.92 + 49.24) / 16, rel=1e-3)
    assert (price.offers.low_usd, price.offers.high_usd) == (pytest.approx(2.95), pytest.approx(6.88))
    assert price.usd_per_hour == pytest.approx(8 * price.offers.median_usd, abs=0.01)
    assert price.node == "dgx-h100" and price.source.startswith("median of current offers")
    # Of Lambda's 2026-08 and CoreWeave's 2026; that AWS's is of 2025-11 makes this price no older.
    assert price.date == "2026" and price.offers.oldest == "2025-11"


def test_a_vendor_besides_a_price_is_refused() -> None:
    with pytest.raises(WrongQuestion, match="vendor='nebius': two prices of one node; keep one"):
        _plan("dgx-h100:2", vendor="nebius", price="$2/h")


@pytest.mark.slow
def test_an_instance_has_its_own_price_and_a_vendor_may_be_named() -> None:
    own, named = _plan("p5.48xlarge:2").money.price, _plan("dgx-h100:2", vendor="nebius").money.price
    assert own is not None and own.node == "p5.48xlarge" and own.usd_per_hour == pytest.approx(55.04)
    assert named is not None and named.node == "nebius-8x-h100" and named.usd_per_hour == pytest.approx(23.6)
    given = _plan("dgx-h100:2", price="$2/h").money.price
    assert given is not None and given.offers is None and given.usd_per_hour == 16.0
    with pytest.raises(WrongQuestion, match="no current on-demand price of H100-SXM5-80GB; there are AWS, CoreWeave"):
        _plan("dgx-h100:2", vendor="nobody")


def _told(price: Price | None) -> tuple[object, ...] | None:
    return None if price is None else (price.basis, round(price.usd, 6), price.date, price.source)


def _procured(node: str, way: str) -> Price | None:
    offered = NodeOption(node=node, ways=(way,), counts=(1,))  # type: ignore[arg-type]
    asked = Portfolio(horizon_days=30.0, as_of="2026-11-20", jobs=(JOB,), candidates=(offered,))
    try:
        return next(pool.quote for pool in pools(KNOWN, asked) if pool.nodes == 1)
    except WrongQuestion:
        return None


@sweep("basis", PRICE_BASES)
def test_plan_and_procure_pay_one_price(basis: str) -> None:
    priced = 0
    for node in NODES:
        planned = request("gpt2", f"{node}:1", PlanOptions(basis=basis), known=KNOWN)[1].price
        assert _told(_procured(node, basis)) == _told(planned), node
        priced += planned is not None
    assert priced > 10


@pytest.mark.parametrize("basis", ["on-demand", "purchase"])
def test_design_and_procure_pay_one_price(basis: str) -> None:
    way, priced = ("buy" if basis == "purchase" else basis), 0
    for node in NODES:
        text = STUDY.format(node=node, basis=basis)
        try:
            study = reading.study(TomlDocument(Path("study.toml"), text, tomllib.loads(text)), KNOWN)
            clusters = Clusters(KNOWN, study)
            usd = clusters.capital({}) if basis == "purchase" else clusters.hourly_usd({})
        except WrongQuestion:
            usd = None
        bought = _procured(node, way)
        assert (bought is None) == (usd is None), node
        if bought is not None and usd is not None:
            assert usd == pytest.approx(bought.usd), node
            priced += 1
    assert priced > 10
