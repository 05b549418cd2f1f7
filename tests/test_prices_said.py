"""No amount of money without its price: every screen states source and date, and that a price is old when it is."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import planner
from planner import report
from planner.base.errors import WrongQuestion
from planner.catalog import ages
from planner.commands.command_line import main
from planner.report import quantities
from planner.schema.plan import Plan
from tests.sweeps import sweep

PLANS = Path(__file__).parent / "golden" / "plans" / "1"
OLD, LISTED = "2025-11, over 365 days old", "skypilot-org/skypilot-catalog v8/aws/vms.csv @00148f2"
SCREENS = (
    ("compare {plans}/dense.json {plans}/mixture.json", "2025-11", LISTED),
    ("explain {plans}/dense.json", "2025-11", LISTED),
    ("explain -v {plans}/dense.json", "2025-11", LISTED),
    ("estimate llama3-8b --cluster dgx-h100:2 tp=2 dp=8 -v", "2026", "median of current offers: AWS, CoreWeave"),
    ("fit llama3-8b --on H100-SXM5-80GB:8 --seq 2k", "2025-11", f"{LISTED} (2025-11 or later); $2.95 to $6.88"),
)


def on(monkeypatch: pytest.MonkeyPatch, day: str) -> None:
    seconds = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
    monkeypatch.setenv(ages.DAY, f"{seconds:.0f}")


def first(name: str) -> Plan:
    plan = planner.load(PLANS / name)
    return plan if isinstance(plan, Plan) else plan.plans[0]


@sweep(("screen", "dated", "source"), SCREENS)
def test_a_screen_states_source_and_date_and_when_the_price_is_old(
    screen: str, dated: str, source: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    said = {}
    for day in ("2026-10-20", "2027-01-20"):
        on(monkeypatch, day)
        assert main(screen.format(plans=PLANS).split()) in (0, 1)
        said[day] = capsys.readouterr().out
    assert f"{dated}, over 365 days old" in said["2027-01-20"] and all(source in out for out in said.values())
    assert dated in said["2026-10-20"] and "days old" not in said["2026-10-20"]


@pytest.mark.parametrize("several", [False, True])
def test_pages_state_it_too(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planner.compare(PLANS / "dense.json", PLANS / "mixture.json") if several else first("dense.json")
    kept, pages = json.loads(found.to_json()), {}
    for day in ("2026-10-20", "2026-11-20"):
        on(monkeypatch, day)
        parsed = report.parsed(kept, "a file")
        pages[day] = str(parsed if isinstance(parsed, report.Content) else report.shown(parsed, "a file"))
    assert f"$55.04/h, {OLD}, " in pages["2026-11-20"] and LISTED in pages["2026-11-20"]
    assert "$55.04/h, 2025-11, us-east" in pages["2026-10-20"] and "days old" not in pages["2026-10-20"]


@pytest.mark.slow
def test_fit_names_what_the_cheapest_rests_on_and_every_old_price(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["fit", "llama3-8b", "--seq", "2k", "--most", "1"]) == 0
    out = capsys.readouterr().out
    cheapest = next(fit for fit in planner.fit("llama3-8b", seq="2k", most=1) if "cheapest" in fit.best)
    assert cheapest.price is not None and f"cheapest: {quantities.line(cheapest.price)}" in out
    old = next(line for line in out.splitlines() if "over 365 days old or undated" in line)
    assert "p4d.24xlarge of 2025-11" in old and cheapest.node not in old


def test_prices_that_are_the_same_are_said_once_and_a_given_one_has_no_date() -> None:
    money = first("dense.json").money
    assert money.price is not None
    given = replace(money, price=replace(money.price, source=quantities.GIVEN, date="", offers=None))
    none = replace(money, price=None)
    assert len(quantities.compared(("a", "b"), [money, money])) == 1
    told = quantities.compared(("a", "b"), [money, given])
    assert [line[:3] for line in told] == ["a: ", "b: "] and told[1].endswith("as given (--price)")
    assert quantities.compared(("a", "b"), [money, none])[1] == "b: no such price in the catalog"
    assert quantities.compared(("a", "b"), [none, none]) == []
    assert given.price is not None and quantities.old([given.price, money.price]) == [f"{money.price.node} of 2025-11"]


@sweep(
    ("dated", "told"),
    [
        ("2025-11-20", "2025-11-20"),
        ("2025-11-19", "2025-11-19, over 365 days old"),
        ("2025", "2025, over 365 days old"),
        ("2026-11-21", "2026-11-21, a day to come"),
        ("", "no date"),
    ],
)
def test_a_price_is_old_after_a_year(dated: str, told: str) -> None:
    assert ages.with_age(dated, "2026-11-20") == told


def test_what_is_no_date_is_stale_and_ends_nothing() -> None:
    assert ages.is_stale("2025-99", "2026-11-20") and ages.with_age("2025-99", "2026-11-20") == "2025-99"


@sweep("stated", ["yesterday", "1e9", "9" * 30])
def test_a_day_that_is_none_is_refused_before_anything_is_asked(
    stated: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ages.DAY, stated)
    assert main(["plan", "llama3-8b", "--cluster", "no-such-node:2"]) == 2
    out, err = capsys.readouterr()
    assert f"SOURCE_DATE_EPOCH={stated}: no day; unset it" in err and "no-such-node" not in err and not out


@sweep("stated", ["yesterday", "1e9", "9" * 30])
def test_a_day_that_is_none_is_refused(stated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ages.DAY, stated)
    with pytest.raises(WrongQuestion, match=f"SOURCE_DATE_EPOCH={stated}: no day; unset it"):
        ages.today()
