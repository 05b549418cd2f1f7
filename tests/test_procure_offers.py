"""What may be acquired: sizes, places, terms, and which of it an answer can do without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import NoAnswer
from planner.catalog import load
from planner.procurement import run
from planner.procurement.program.instance import ProcureVariant
from planner.procurement.program.solve import best
from planner.procurement.question import flags as asking
from planner.procurement.question import reading
from planner.procurement.run import Depth
from planner.procurement.supply.acquiring import pools
from planner.question.purchase_options import ProcureQuestion
from planner.verify import procurement as verify
from tests.procuring_lab import lab


@pytest.mark.slow
def test_machines_that_stand_there_take_racks_ports_and_power(home: Path) -> None:
    known = load()
    own = '[[owned]]\nnode = "dgx-h100"\ncount = 7'
    limits = "racks = 3\nswitch_ports = 100"
    alone = run.procure(
        known, reading.read(lab(home, limits=limits), known), depth=Depth(top=1, marginal=False, sensitivity=False)
    )
    asked = reading.read(lab(home, limits=limits, tail=own), known)
    found = run.procure(known, asked, depth=Depth(top=2, marginal=False, sensitivity=False))
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
        run.procure(known, reading.read(lab(home, limits="racks = 1", tail=own), known))


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
    verify.check(run.procure(known, reading.read(path, known), depth=Depth(top=2, marginal=False)))


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
    found = run.procure(known, reading.read(lab(tmp_path, tail=tail), known), depth=Depth(top=1, marginal=False))
    limits = {name: value for name, value in found.question.limits.items() if name.startswith("quantity:")}
    assert limits == {"quantity:p5.48xlarge on-demand/spot": 8.0, "quantity:p5.48xlarge spot": 9.0}
    verify.check(found)


def test_reserved_machines_are_found_by_their_way() -> None:
    flags = ProcureQuestion(model="llama3-8b", tokens="2B", ways="reserved-1y", as_of="2026-11-20")
    found = asking.asked(load(), None, flags)
    assert {way for candidate in found.candidates for way in candidate.ways} == {"reserved-1y"}


def test_searching_side_by_side_finds_the_same(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.procurement.throughput import searches
    from planner.procurement.throughput.job_days import Throughputs

    monkeypatch.setattr(searches, "SHARE", 1)
    known = load()
    asked = reading.read(lab(home), known)
    offered = pools(known, asked)
    wanted = Throughputs(known, asked.jobs, offered).wanted()
    alone, together = (Throughputs(known, asked.jobs, offered).columns(processes=n) for n in (1, 2))
    assert alone == together and wanted > 1


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


@pytest.mark.slow
def test_a_node_type_that_another_beats_in_everything_is_never_chosen(home: Path) -> None:
    # The same board in a dearer box.
    tail = '[[candidates]]\nnode = "dgx-h100"\nways = ["buy"]\ncounts = [1, 2, 4]\nwirings = ["fat-tree"]'
    known = load()
    for objective in ("cost", "time", "carbon", "tokens-per-dollar"):
        asked = replace(reading.read(lab(home, tail=tail), known), objective=objective)  # type: ignore[arg-type]
        posed = run.pose(known, asked)
        assert any(posed.instance.pools[c.pool].node.id == "dgx-h100" for c in posed.whole.columns)
        assert all(posed.lean.pools[c.pool].node.id != "dgx-h100" for c in posed.lean.columns)
        chosen = best(posed.instance, ProcureVariant(), objective)
        assert chosen is not None
        assert {posed.instance.pools[p].node.id for p in chosen.pools} <= {"hgx-h100", "p5.48xlarge"}
