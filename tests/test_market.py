"""What a plan is priced at: a vendor's instance at its own price, other nodes at the median of current offers."""

from __future__ import annotations

import pytest

from planner.api import plans
from planner.base.errors import WrongQuestion
from planner.schema.plan import Plan


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


def test_an_instance_has_its_own_price_and_a_vendor_may_be_named() -> None:
    own, named = _plan("p5.48xlarge:2").money.price, _plan("dgx-h100:2", vendor="nebius").money.price
    assert own is not None and own.node == "p5.48xlarge" and own.usd_per_hour == pytest.approx(55.04)
    assert named is not None and named.node == "nebius-8x-h100" and named.usd_per_hour == pytest.approx(23.6)
    given = _plan("dgx-h100:2", price="$2/h").money.price
    assert given is not None and given.offers is None and given.usd_per_hour == 16.0
    with pytest.raises(WrongQuestion, match="no current on-demand price of H100-SXM5-80GB; there are AWS, CoreWeave"):
        _plan("dgx-h100:2", vendor="nobody")
