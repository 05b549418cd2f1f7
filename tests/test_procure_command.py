"""``clusterwright procure``: the document, the report, the short form, sweeps, prices and their age."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner.base.errors import WrongQuestion
from planner.base.stopping import Watch
from planner.catalog import load
from planner.commands.command_line import cli, main
from planner.commands.screen import procure_view
from planner.planning import document
from planner.procurement import run as procuring
from planner.procurement.program import shadow_prices
from planner.procurement.program import solve as solving
from planner.procurement.program.instance import ProcureVariant, Settings
from planner.procurement.program.restrictions import SHARED_DAYS, restrictions
from planner.procurement.program.solve import best
from planner.procurement.question import flags as asking
from planner.procurement.question import reading
from planner.procurement.run import Depth, pose
from planner.question.purchase_options import ProcureQuestion
from planner.report import offer_evidence, offers
from planner.schema.procurement import Stretch
from tests.procuring import random_instance
from tests.procuring_lab import answered, lab


def run(*line: str) -> Any:
    return CliRunner().invoke(cli, ["procure", *line])


def test_what_never_pays_back_is_not_said_to(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At $0.21 an hour owned and $0.16 rented, a machine would have to be used 128 % of the time."""
    answer = answered(home)
    dear = replace(answer.break_even[0], utilisation=1.28, months=380.0)
    procure_view.show(replace(answer, break_even=(dear,)))
    printed = capsys.readouterr().out
    assert "renting is cheaper however much it is used" in printed
    assert "128 %" not in printed


def test_the_document_is_what_was_promised(home: Path) -> None:
    data = document.dump(answered(home))
    assert (data["kind"], data["schema_version"]) == ("procurement", 1)
    assert {"gap", "bound"} <= data["optimality"].keys()
    first = data["alternatives"][0]
    assert {"item", "kind", "count", "unit_price_usd", "source"} <= first["bill_of_materials"][0].keys()
    assert {"total_usd"} <= first["cost"].keys()
    assert {"name", "finish_day", "pools", "plan"} <= first["workloads"][0].keys()
    assert first["workloads"][0]["plan"]["kind"] == "plan"
    assert all({"limit", "step", "gain"} <= value.keys() for value in data["marginal_values"])
    assert json.loads(document.as_json(answered(home))) == document.stamped(answered(home))


def test_the_answer_says_among_which_plans_it_is_the_best(home: Path) -> None:
    # Moving a job to other nodes at a checkpoint, and selling what was bought before the end, are asked of no program.
    levers, *others = answered(home).optimality.restrictions or ()
    assert levers.startswith("plans are without levers")
    stay, *others = others
    assert re.fullmatch(r"jobs stay where they are \(moves at checkpoints would save at most \d+\.\d\d %\)", stay)
    assert others == ["nothing bought is sold"]
    printed = run(str(lab(home)), "--quick").output
    stay = "jobs stay where they are (moves at checkpoints were not tried, without a bound: --quick)"
    among = f"best of those in which {levers}, {stay} and nothing bought is sold"
    assert among in " ".join(printed.split())


def test_gap_that_is_not_of_the_whole_question_is_not_in_the_headline(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    procure_view.show(answered(home))

    headline, *others = capsys.readouterr().out.splitlines()
    assert "gap" not in headline and "gap 0.00 % to these alone" in " ".join(" ".join(others).split())


def test_offer_whose_copies_share_their_first_days_under_a_budget_is_not_proven_of_the_whole(home: Path) -> None:
    posed = pose(load(), reading.read(lab(home, top='objective = "time"'), load()))

    assert SHARED_DAYS in set(restrictions(posed.lean, 1e6))


def test_one_option_is_told_as_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(home)
    procure_view.show(replace(found, optimality=replace(found.optimality, pools=1, columns=2000)))
    assert "1 purchase option, 2,000 precomputed plans" in " ".join(capsys.readouterr().out.split())


def test_alternatives_are_ranked_and_differ_in_kind(home: Path) -> None:
    found = answered(home).alternatives
    assert [a.rank for a in found] == [1, 2, 3]
    assert [a.value for a in found] == sorted(a.value for a in found)
    assert {pool.way for a in found for pool in a.pools} >= {"spot", "buy"}


@pytest.mark.slow
def test_plan_and_procure_agree_on_the_step(home: Path) -> None:
    from planner import api

    for a in answered(home).alternatives:
        for job in a.workloads:
            pool = next(pool for pool in a.pools if pool.id == job.pools[0])
            if pool.wiring in ("", "rail-optimised"):
                method = job.plan.workload.method
                alone = api.plan(
                    job.model, f"{pool.node}:{pool.count}", method=method["kind"], rank=method["rank"] or None, top=1
                ).plans[0]
                assert alone.prediction.step_time_s == job.plan.prediction.step_time_s
                assert alone.parallelism == job.plan.parallelism


def test_currencies_are_converted_by_the_given_rate(home: Path) -> None:
    rate = '[exchange]\nusd = 1.1\ndate = "2026-11-20"\nsource = "the bank"'
    text = lab(home).read_text(encoding="utf-8").replace('"USD"', '"EUR"').replace("$6M", "€6M")
    path = home / "euro.toml"
    path.write_text(text + rate, encoding="utf-8")
    found = reading.read(path, load())
    assert found.limits.budget == pytest.approx(6.6e6)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WrongQuestion, match="EUR needs its rate"):
        reading.read(path, load())


def test_the_report_is_one_screen_with_its_reasons(home: Path) -> None:
    found = run(str(lab(home)), "--quick")
    assert found.exit_code == 0, found.output
    for said in ("gap 0", "per 1T tokens", "Limited by", "Assumes", "Search", "Next"):
        assert said in found.output
    assert len(found.output.splitlines()) < 50


def test_the_short_form_answers_with_the_same_document(tmp_path: Path) -> None:
    out = tmp_path / "offer.json"
    flags = ("--model", "llama3-8b", "--tokens", "50B", "--budget", "$1M", "--deadline", "60d", "--node", "p5.48xlarge")
    found = run(*flags, "--quick", "--json", "-o", str(out), "--as-of", "2026-11-20")
    assert found.exit_code == 0, found.output
    data = json.loads(found.output)
    assert data == json.loads(out.read_text(encoding="utf-8"))
    assert data["question"]["limits"] == {"budget": 1e6, "deadline:llama3-8b": 60.0}


def test_the_same_question_has_the_same_answer(home: Path) -> None:
    known = load()
    again = procuring.procure(known, reading.read(lab(home), known), depth=Depth(top=3))
    assert replace(again, meta={}) == replace(answered(home), meta={})


def test_a_sweep_is_a_front(home: Path) -> None:
    found = run(str(lab(home)), "--sweep", "budget=5k..2M", "--objective", "time", "--json")
    assert found.exit_code == 0, found.output
    data = json.loads(found.output)
    points = data["points"]
    assert (data["limit_unit"], data["value_unit"], data["currency"]["code"]) == ("USD", "d", "USD")
    assert len({tuple(sorted(point)) for point in points}) == 1  # a point without an answer has the same keys
    values = [point["value"] for point in points if point["what"]]
    assert values == sorted(values, reverse=True)
    front = [point["value"] for point in points if point["front"]]
    assert len(front) > 1 and len(set(front)) == len(front)


def test_dates_that_are_old_or_still_to_come_are_flagged(tmp_path: Path) -> None:
    tail = """price = { amount = "50 EUR/h", date = "2026-12-24" }
[exchange]
usd = 1.1
date = "2026-09-01"
"""
    text = lab(tmp_path, tail=tail).read_text(encoding="utf-8").replace('["on-demand", "spot"]', '["spot"]')
    path = tmp_path / "euro.toml"
    path.write_text(text.replace('"USD"', '"EUR"').replace("$6M", "€6M"), encoding="utf-8")
    known = load()
    quick = Depth(top=1, marginal=False, sensitivity=False)
    found = procuring.procure(known, reading.read(path, known), depth=quick)
    assert found.stale_prices == ("1 EUR: 1.1 USD of 2026-09-01", "p5.48xlarge spot: 55.00 USD of 2026-12-24")
    assert found.alternatives[0].pools[0].stale
    later = reading.read(path, known)
    later = replace(later, as_of="2026-12-25", currency=replace(later.currency, date="2026-12-01"))
    assert procuring.procure(known, later, depth=quick).stale_prices == ()


def test_prices_turned_by_a_fifth_are_answered_again(home: Path) -> None:
    found = answered(home)
    assert [x.prices for x in found.sensitivity] == [0.8, 1.2]
    assert found.sensitivity[0].value < found.alternatives[0].value < found.sensitivity[1].value
    assert any("2025-11" in line for line in found.stale_prices)


def test_break_even_is_rent_over_what_owning_saves(home: Path) -> None:
    for each in answered(home).break_even:
        ratio = each.owned_usd_per_accelerator_hour / each.rented_usd_per_accelerator_hour
        assert each.utilisation == pytest.approx(ratio)
        assert each.months is None or each.months > 0


@pytest.mark.slow
def test_more_time_costs_no_more_in_the_short_form() -> None:
    known = load()
    costs = []
    for deadline in ("20d", "100d", "360d"):
        flags = ProcureQuestion(
            model="llama3-8b", tokens="300B", deadline=deadline, node=("hgx-h100",), ways="buy", as_of="2026-11-20"
        )
        posed = procuring.pose(known, asking.asked(known, None, flags))
        found = best(posed.lean, ProcureVariant(), "cost")
        assert found is not None
        costs.append(found.cost)
    assert costs == sorted(costs, reverse=True)


def test_what_binds_is_what_more_of_would_help(home: Path) -> None:
    known = load()
    asked = reading.read(lab(home), known)
    asked = replace(asked, objective="time", limits=replace(asked.limits, budget=36_000.0))
    found = procuring.procure(known, asked, depth=Depth(top=1, sensitivity=False))
    wanted = {value.limit for value in found.marginal_values if value.gain > 0}
    assert wanted and wanted <= set(found.binding)
    slack = {c.name for c in found.alternatives[0].constraints if not c.binding}
    assert wanted & slack  # more of it helps although some is left


@pytest.mark.slow
def test_a_sweep_of_tokens_per_dollar_has_their_sign_and_the_portfolio_s_money(home: Path) -> None:
    rate = '[exchange]\nusd = 1.1\ndate = "2026-11-20"\nsource = "the bank"'
    path = home / "euro_sweep.toml"
    text = lab(home).read_text(encoding="utf-8").replace('"USD"', '"EUR"').replace("$6M", "€6M")
    path.write_text(text + rate, encoding="utf-8")
    line = (str(path), "--sweep", "budget=50k..100k", "--objective", "tokens-per-dollar", "--ways", "spot")
    data = json.loads(run(*line, "--json").output)
    assert data["value_unit"] == "tokens/USD"
    assert data["currency"]["code"] == "EUR"
    assert all(point["value"] > 1e5 for point in data["points"])
    assert "EUR 50.0k" in run(*line).output


def test_what_is_to_be_spent_buys_the_most_tokens_or_the_earliest_day(home: Path) -> None:
    line = ("--model", "llama3-8b", "--spend", "$300k", "--within", "20d", "--node", "nebius-8x-h100", "--quick")
    most = json.loads(run(*line, "--json").output)
    (job,) = most["alternatives"][0]["workloads"]
    assert most["question"]["objective"] == "tokens" and most["question"]["limits"]["budget"] == 300_000
    assert job["tokens"] == pytest.approx(job["plan"]["workload"]["tokens"])
    assert job["tokens"] == pytest.approx(most["optimality"]["value"])
    assert most["alternatives"][0]["cost"]["cash_usd"] == pytest.approx(300_000, rel=1e-4)
    assert "most tokens within budget $300k" in run(*line).output
    # The same work is done for the same money no later.
    soonest = json.loads(run(*line, "--tokens", f"{job['tokens']:.0f}", "--json").output)
    assert soonest["question"]["objective"] == "time"
    assert soonest["optimality"]["value"] <= most["alternatives"][0]["done_day"] * (1 + 1e-3)
    both = run(*line, "--budget", "$1M")
    assert isinstance(both.exception, WrongQuestion) and "--spend and --budget" in str(both.exception)


def test_ctrl_c_leaves_the_best_so_far(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    whole = document.dump(answered(home))
    monkeypatch.setattr(shadow_prices, "marginal_values", interrupted)
    assert main(["procure", str(lab(home)), "--json"]) == 130
    found = json.loads(capsys.readouterr().out)
    assert found["optimality"]["stopped"] is True
    assert found["alternatives"][0] == whole["alternatives"][0]
    assert found["marginal_values"] == found["sensitivity"] == [] and "soonest" not in found
    with pytest.raises(KeyboardInterrupt):  # Python is not content with less
        procuring.procure(load(), reading.read(lab(home), load()), depth=Depth(sensitivity=False))


def test_ctrl_c_on_a_bisection_keeps_what_was_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_instance(13)
    whole = best(instance, ProcureVariant(), "time", Settings(gap=1e-9))
    solve, calls = solving.solve, []

    def interrupted(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return solve(*given)

    monkeypatch.setattr(solving, "solve", interrupted)
    watch = Watch(keeps=True)
    found = best(instance, ProcureVariant(), "time", Settings(gap=1e-9, watch=watch))
    assert watch.stopped and found is not None and whole is not None
    assert found.bound <= whole.value <= found.value * (1 + 1e-9) and found.gap > whole.gap


@pytest.mark.parametrize(("second", "counted"), [(0.0, 16), (4.0, 16), (10.0, 8), (12.0, 8)])
def test_what_jobs_hire_counts_as_often_as_it_works_at_a_time(home: Path, second: float, counted: int) -> None:
    offer = answered(home)
    best_of_all = offer.alternatives[0]
    job = best_of_all.workloads[0]
    pool = replace(best_of_all.pools[0], id="hired", way="on-demand", copies=2, accelerators=16)
    stretches = [Stretch(pool="hired", copy=0, start_day=day, end_day=day + 10.0) for day in (0.0, second)]
    jobs = tuple(replace(job, pools=("hired",), schedule=(stretch,)) for stretch in stretches)
    best_of_all = replace(best_of_all, pools=(pool,), workloads=jobs)
    assert offer_evidence.accelerators(offer, best_of_all) == counted
    page = offers.of_offer(replace(offer, alternatives=(best_of_all,)), "lab.json")
    assert page.figures[-1].what == f"of the days of {counted} accelerators in use"


def test_the_bill_of_materials_adds_up_to_the_cent(home: Path) -> None:
    import csv

    result = run(str(lab(home)), "--bom", "-o", str(home / "bom.csv"))
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader((home / "bom.csv").read_text(encoding="utf-8").splitlines()))
    best_of_all = answered(home).alternatives[0]
    cents = [round(100 * float(row["usd"])) for row in rows]
    assert rows[-1]["item"] == "total" and sum(cents[:-1]) == cents[-1] == round(100 * best_of_all.cost.cash_usd)
    lines = [row for row in rows[:-1] if row["kind"] != "capacity"]
    assert [row["item"] for row in lines] == [line.item for line in best_of_all.bill_of_materials]
    assert all(row["source"] for row in rows)
    assert run(str(lab(home)), "--bom").output.splitlines()[1:] == [
        line for line in (home / "bom.csv").read_text(encoding="utf-8").splitlines()[1:]
    ]
    refused = run(str(lab(home)), "--bom", "--json")
    assert isinstance(refused.exception, WrongQuestion) and "leave --json" in str(refused.exception)


def test_a_bill_of_ones_own_machines_lists_what_the_place_provides(home: Path) -> None:
    import csv

    text = lab(home).read_text(encoding="utf-8")
    path = home / "bought.toml"
    path.write_text(
        text.replace('["on-demand", "spot"]', '["buy"]').replace("p5.48xlarge", "dgx-h100"), encoding="utf-8"
    )
    result = run(str(path), "--bom", "--survive", "N-1")
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(result.output.splitlines()))
    kilowatts, cooled = (
        sum(float(row["quantity"]) for row in rows if row["item"] == item) for item in ("power at the plug", "cooling")
    )
    assert sum(float(row["quantity"]) for row in rows if row["item"] == "rack") >= 1
    assert 0 < cooled < kilowatts and kilowatts == pytest.approx(1.25 * cooled)  # PUE of the United States
    spare = [row for row in rows if row["item"].endswith(", spare")]
    assert sum(round(100 * float(row["usd"])) for row in rows[:-1]) == round(100 * float(rows[-1]["usd"]))
    for row in spare:
        assert row["kind"] == "node" and float(row["quantity"]) >= 1


@pytest.mark.slow
def test_the_headline_says_what_it_rests_on(home: Path) -> None:
    said, _, prices = run(str(lab(home)), "--quick").output.splitlines()[1].partition("; prices: ")
    assert said == "rests on prices older than a year: p5.48xlarge of 2025-11; an assumed rate of preemptions on spot"
    assert re.fullmatch(r"\$[\d.]+k to \$[\d.]+k in all", prices)
    path = lab(home)
    path.write_text(path.read_text(encoding="utf-8").replace('as_of = "2026-11-20"', 'as_of = "2025-12-20"'))
    assert run(str(path), "--quick").output.splitlines()[1] == "rests on an assumed rate of preemptions on spot"
    swept = run(str(path), "--sweep", "budget=1M..2M").output.splitlines()
    assert "rests on an assumed rate of preemptions on spot" in swept
    bill = home / "bill.csv"
    assert "rests on an assumed rate" in run(str(path), "--bom", "-o", str(bill)).output


def test_an_assumed_price_and_a_resale_value_are_said_with_the_answer(home: Path) -> None:
    path = lab(home)
    text = (
        path.read_text(encoding="utf-8").replace('["on-demand", "spot"]', '["buy"]').replace("p5.48xlarge", "mi300x-8")
    )
    path.write_text(f'charge = "amortised"\n{text}\n[ownership]\nresidual = 0.25\n', encoding="utf-8")
    found = json.loads(run(str(path), "--quick", "--json").output)["alternatives"][0]
    assert found["rests_on"][1:] == ["assumed prices: mi300x-8", "a resale value of 25% after 5 years"]
