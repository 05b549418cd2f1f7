"""What a network that is bought costs: by piece, by LIBRA's price of bandwidth, dimension by dimension."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog, load
from planner.procurement import run
from planner.procurement.question import reading
from planner.procurement.supply.acquiring import pools
from planner.procurement.supply.pools import SupplyPool
from planner.verify import procurement as verify

LAB = """
currency = "USD"
as_of = "2026-11-20"
horizon = "6 months"
{top}
[[workloads]]
name = "base"
model = "llama3-8b"
tokens = "100B"
deadline = "60 d"
[[candidates]]
node = "hgx-h100"
ways = ["buy"]
counts = [2, 4]
{candidate}
"""
# Eight accelerators on a board's own switch, nodes in a ring at half the rate of its eight ports.
FABRIC = """
[ring-of-nodes]
extends = "infiniband-ndr"
name = "nodes in a ring"
dimension1 = { topology = "switch", size = 8, bandwidth = "450 GB/s", latency = "500 ns" }
dimension2 = { topology = "ring", bandwidth = "25 GB/s", latency = "2 us" }
source = "made up"
date = "2026-11"

[slow-ring]
extends = "ring-of-nodes"
name = "the same, slower"
dimension1 = { topology = "switch", size = 8, bandwidth = "450 GB/s", latency = "500 ns" }
dimension2 = { topology = "ring", bandwidth = "2 GB/s", latency = "2 us" }
source = "made up"
date = "2026-11"
"""


# Made up, at half of NDR's rate.
PIECES = """
[switch-hdr]
name = "switch"
rate = "200 Gbit/s"
radix = 40
usd = "$20k"
power = "400 W"
source = "an offer"
date = "2026-11"
[link-nic-hdr]
name = "link from NIC to leaf"
rate = "200 Gbit/s"
usd = "$500"
power = "12 W"
source = "an offer"
date = "2026-11"
[link-switch-hdr]
name = "link between switches"
rate = "200 Gbit/s"
usd = "$400"
power = "12 W"
source = "an offer"
date = "2026-11"
"""


def lab(folder: Path, top: str = "", candidate: str = "") -> Path:
    path = folder / "lab.toml"
    path.write_text(LAB.format(top=top, candidate=candidate), encoding="utf-8")
    return path


def of(path: Path, known: Catalog) -> dict[str, SupplyPool]:
    return {pool.id: pool for pool in pools(known, reading.read(path, known))}


def network_usd(pool: SupplyPool) -> float:
    return sum(item.usd for item in pool.items if item.kind == "network")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("catalog")
    (folder / "fabrics").mkdir()
    (folder / "fabrics" / "rings.toml").write_text(FABRIC, encoding="utf-8")
    return load(folder)


def test_libras_price_of_bandwidth_is_an_alternative_to_pieces(tmp_path: Path) -> None:
    known = load()
    wired = 'wirings = ["rail-optimised", "torus"]'
    pieces, libra = (
        of(lab(tmp_path, top, wired), known) for top in ("", 'network_prices = "libra"')
    )  # fmt: skip
    name = "buy 4 x hgx-h100 fat-tree"
    # 32 ports of 50 GB/s, at 7.80 for a link, 18 for a switch and 31.60 for a NIC; one switch and 32 links by piece.
    assert network_usd(libra[name]) == pytest.approx(32 * 50 * 57.4)
    assert network_usd(pieces[name]) == pytest.approx(36_000 + 32 * 1_320)
    # A torus has no switch.
    torus = next(x for x in libra if "4 x hgx-h100 torus" in x and "spare" not in x)
    assert network_usd(libra[torus]) == pytest.approx(32 * 50 * 7.8)
    (line,) = (item for item in libra[name].items if item.kind == "network")
    assert "LIBRA" in line.source and line.date == "2024-05"
    asked = reading.read(lab(tmp_path, 'network_prices = "libra"', wired), known)
    found = run.procure(known, asked, depth=run.Depth(top=1, marginal=False, sensitivity=False))
    assert verify.violations(found) == []
    with pytest.raises(WrongQuestion, match="network_prices"):
        reading.read(lab(tmp_path, 'network_prices = "guess"'), known)


def test_pieces_of_another_rate_come_from_a_catalog_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "catalog"
    (own / "parts").mkdir(parents=True)
    (own / "parts" / "hdr.toml").write_text(PIECES, encoding="utf-8")
    path = lab(tmp_path, candidate='fabric = "infiniband-hdr"')
    path.write_text(path.read_text().replace("hgx-h100", "dgx-a100-80gb").replace("[2, 4]", "[4, 8]"))
    without, found = of(path, load()), of(path, load(own))
    small, large = (found[f"buy {n} x dgx-a100-80gb {kind}"] for n, kind in ((4, "fat-tree"), (8, "rail-optimised")))
    pieces = {item.item: item.count for item in small.items if item.kind == "network"}
    # 32 ports are on one switch of 40, 64 are not.
    assert pieces == {"switch-hdr": 1, "link-nic-hdr": 32}
    assert network_usd(small) == pytest.approx(20_000 + 32 * 500) and small.network_power == 400 + 32 * 12
    assert sum(item.count for item in large.items if item.item == "switch-hdr") > 1
    (line,) = (item for item in without["buy 4 x dgx-a100-80gb fat-tree"].items if item.kind == "network")
    assert "LIBRA" in line.source


def test_a_network_of_dimensions_is_priced_dimension_by_dimension(tmp_path: Path, own: Catalog) -> None:
    found = of(lab(tmp_path, candidate='fabric = "ring-of-nodes"'), own)
    (line,) = (item for item in found["buy 4 x hgx-h100 in dimensions"].items if item.kind == "network")
    # 32 accelerators that send 25 GB/s each over links of the ring; the board's own switch is in the node's price.
    assert line.usd == pytest.approx(32 * 25 * 7.8) and line.count == 32
    assert line.item == "dimension 2 of ring-of-nodes (ring), an accelerator"


@pytest.mark.slow
def test_dimensions_of_a_network_make_its_speed(tmp_path: Path, own: Catalog) -> None:
    text = lab(tmp_path, candidate='fabric = "ring-of-nodes"').read_text(encoding="utf-8")
    path = tmp_path / "two.toml"
    path.write_text(
        text + '[[candidates]]\nnode = "hgx-h100"\nways = ["buy"]\ncounts = [2, 4]\nfabric = "slow-ring"\n', "utf-8"
    )
    posed = run.pose(own, reading.read(path, own))
    days = {posed.instance.pools[c.pool].cluster.fabric.id: c.days for c in posed.whole.columns
            if posed.instance.pools[c.pool].cluster.count == 4 and not posed.instance.pools[c.pool].spares}  # fmt: skip
    # Same ports, same leaves: only the dimensions differ.
    assert days["slow-ring"] > 1.05 * days["ring-of-nodes"]
    with pytest.raises(WrongQuestion, match="ring-of-nodes has dimensions, which are its wiring"):
        of(lab(tmp_path, candidate='fabric = "ring-of-nodes"\nwirings = ["torus"]'), own)
