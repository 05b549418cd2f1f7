"""The recommendation: which plan to run, and the configuration that the screen prints for it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.commands.screen import typeset
from planner.planning import order, why_this_plan
from planner.report import quantities, recommendation
from planner.schema.plan import Plan, PlanSet
from tests.asking import ask
from tests.sweeps import sweep

WITHOUT_LEVERS = "graphs=none,attention_kernel=none,offload=none|optimizer,offload_overlap=off,activation_offload=none"
QUESTIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dense": ("llama3-70b", "dgx-h100:16", {"pin": (WITHOUT_LEVERS,)}),
    "levers": ("llama3-70b", "dgx-h100:16", {}),
    "mixture": ("mixtral-8x7b", "dgx-h100:8", {"precision": "fp8"}),
    "sharded": ("llama3-8b", "dgx-a100-80gb:2", {"runtime": "fsdp2", "batch": 256}),
    "tight": ("llama2-70b", "dgx-a100-40gb:6", {}),
    "offloaded": ("llama3-70b", "dgx-a100-80gb:2", {}),
    "adapters": ("llama3-8b", "p5.4xlarge:1", {"method": "lora", "rank": 8, "tokens": "1B"}),
}


class Answers(dict[str, PlanSet]):
    """The answers to the questions, each made when it is looked up."""

    def __missing__(self, name: str) -> PlanSet:
        model, cluster, asked = QUESTIONS[name]
        self[name] = planner.plan(model, cluster, **asked)
        return self[name]


@pytest.fixture(scope="module")
def found() -> dict[str, PlanSet]:
    return Answers()


@pytest.mark.slow
@sweep("name", QUESTIONS, ci=2)
def test_the_printed_configuration_is_the_plan(found: dict[str, PlanSet], name: str) -> None:
    """What the screen prints, given back to ``estimate``, is predicted to the digit as the plan is."""
    model, cluster, asked = QUESTIONS[name]
    asked = {keyword: value for keyword, value in asked.items() if keyword != "pin"}
    for plan in found[name].plans:
        typed = dict(part.split("=", 1) for part in recommendation.configuration(plan).split())
        again = planner.estimate(model, cluster, **asked, **typed)[0]
        assert (again.prediction.step_time_s, again.prediction.memory.total_bytes) == (
            plan.prediction.step_time_s,
            plan.prediction.memory.total_bytes,
        )


@pytest.mark.parametrize("top", [1, 2, 7])
def test_the_recommended_plan_does_not_depend_on_how_many_are_listed(found: dict[str, PlanSet], top: int) -> None:
    listed = planner.plan("llama3-70b", "dgx-h100:16", top=top, pin=(WITHOUT_LEVERS,)).plans
    assert len(listed) == top and listed[0].axes == found["dense"][0].axes


def test_the_best_of_each_count_is_what_is_recommended_on_it(found: dict[str, PlanSet]) -> None:
    """On 16 nodes not the fastest but a simpler plan; on one, what the optimizer in host memory makes possible."""
    front = planner.plan("llama3-70b", "dgx-h100:15..16", pin=(WITHOUT_LEVERS,)).front
    assert front[-1].step_time_s == found["dense"][0].prediction.step_time_s
    assert planner.plan("llama3-70b", "dgx-h100:2", batch=64, pin="tp=8,micro=1").front[0].label == "TP8 PP2, offload"


@pytest.mark.parametrize(("ratio", "word"), [(1.19, "high"), (1.49, "fair"), (1.99, "low"), (2.01, "very low")])
def test_confidence_follows_the_interval(found: dict[str, PlanSet], ratio: float, word: str) -> None:
    plan = found["dense"][0]
    interval = replace(plan.prediction.intervals["step_time_s"], low=1.0, high=ratio)
    plan = replace(plan, prediction=replace(plan.prediction, intervals={"step_time_s": interval}))
    assert dict(recommendation.of_plan(plan))["Confidence"][0].startswith(f"{word}, ±")
    assert plan.nearest_runs
    elsewhere = replace(plan.nearest_runs[0], how_near="no run of this accelerator, same model")
    unseen = dict(recommendation.of_plan(replace(plan, nearest_runs=(elsewhere,))))["Confidence"][0]
    assert unseen.startswith("very low" if ratio > 2 else "low")


def test_what_few_measured_runs_keep_in_host_memory_is_shown_and_not_recommended(found: dict[str, PlanSet]) -> None:
    """The fastest plan moves activations to the host; the one to run does without, and says what it needs."""
    chosen, *others = found["levers"].plans
    fastest = min(others, key=lambda plan: plan.prediction.step_time_s)
    assert order.seldom_measured(fastest) and not order.seldom_measured(chosen)
    assert fastest.prediction.step_time_s < chosen.prediction.step_time_s
    assert "activation_offload=" in recommendation.levers(fastest) and not recommendation.levers(chosen)
    assert recommendation.packages(fastest) == ["FlashAttention 3"]
    assert order.recommended([fastest]) == 0


@pytest.mark.parametrize("days", [61, 56])
def test_limits_that_only_levers_keep_are_kept(days: int) -> None:
    """60.3 days with levers that are often measured, 55.2 with activations in host memory, which seldom are."""
    found = planner.plan("qwen3-30b-a3b", "dgx-h100:2", deadline=f"{days} d")
    assert all(plan.money.days <= days for plan in found.plans)
    assert order.seldom_measured(found[0]) == (days == 56)


def test_some_configuration_offloads(found: dict[str, PlanSet]) -> None:
    assert any("offload=optimizer" in recommendation.configuration(plan) for plan in found["offloaded"].plans)


def test_a_simpler_plan_is_recommended_where_the_difference_says_nothing(found: dict[str, PlanSet]) -> None:
    chosen, *others = found["dense"].plans
    fastest = min(found["dense"].plans, key=_days)
    assert fastest is not chosen and _days(chosen) <= (1 + order.TIED) * _days(fastest)
    close = [plan for plan in others if _days(plan) <= (1 + order.TIED) * _days(fastest)]
    assert order.kinds(chosen) <= min(order.kinds(plan) for plan in close)


def _days(plan: Plan) -> float:
    return plan.money.days


@sweep("name", QUESTIONS, every=2, ci=2)
def test_the_first_plan_is_the_one_to_run_and_the_others_are_best_first(found: dict[str, PlanSet], name: str) -> None:
    first, *others = found[name].plans
    assert (found[name].recommended, found[name].plan_to_run) == (1, first)
    assert [plan.rank for plan in found[name].plans] == [*range(1, len(others) + 2)]
    assert [*map(_days, others)] == sorted(map(_days, others))


@sweep("name", QUESTIONS, every=2, ci=2)
def test_no_plan_is_listed_that_another_of_its_degrees_dominates(found: dict[str, PlanSet], name: str) -> None:
    """But for the plan without levers, which stays beside one with."""
    plans = found[name].plans
    for one in [plan for plan in plans if not (recommendation.levers(plan) or recommendation.packages(plan))]:
        for other in plans:
            alike = all(one.axes[axis] == other.axes[axis] for axis in (*order.DEGREES, "precision"))
            faster = one.prediction.step_time_s < other.prediction.step_time_s
            assert not (alike and faster and _bytes(one) <= _bytes(other)), (one.rank, other.rank)


def _bytes(plan: Plan) -> float:
    return plan.prediction.memory.total_bytes


def test_dominated_plans_are_listed_with_all() -> None:
    asked: dict[str, Any] = {"batch": 64, "top": 6, "pin": "tp=2,cp=1,pp=1,vpp=1,recompute=none,offload=none"}
    few, every = (planner.plan("llama3-8b", "dgx-h100:1", all=on, **asked).plans for on in (False, True))
    assert len(few) < len(every)


def test_a_shortlist_has_the_recommended_plan_first(found: dict[str, PlanSet]) -> None:
    listed = planner.plan("llama3-70b", "dgx-h100:16", shortlist=3, pin=(WITHOUT_LEVERS,))
    assert listed[0].axes == found["dense"][0].axes


def test_a_simpler_plan_that_is_clearly_slower_is_not_recommended(found: dict[str, PlanSet]) -> None:
    simple, first, *_ = found["dense"].plans
    assert order.recommended([first, simple]) == 1
    slow = replace(simple, money=replace(simple.money, days=1.1 * first.money.days))
    assert order.recommended([first, slow]) == 0


@sweep("name", QUESTIONS, every=2, ci=2)
def test_reasons_are_those_of_the_recommended_plan(found: dict[str, PlanSet], name: str) -> None:
    others = {f"#{plan.rank}" for plan in found[name].plans} - {f"#{found[name].recommended}"}
    assert {line.split()[0] for line in found[name].reasons.why_not if line.startswith("#")} == others


def test_the_cost_names_its_price(capsys: pytest.CaptureFixture[str]) -> None:
    """Who states an hour's price; that it was given; that none of this kind is known."""
    asked = "plan llama3-8b --cluster dgx-h100:1 --batch 64 --pin tp=2,cp=1,micro=1 --top 1"
    assert "@00148f2" in ask(capsys, f"{asked} --vendor AWS -v").out
    given = ask(capsys, f"{asked} --price '$2/h'").out
    assert "as given (--price)" in given and "on-demand" not in given.partition("Fits")[0]
    none = ask(capsys, f"{asked} --basis reserved-3y").out
    assert "no catalog price (--price, --basis)" in none


def test_faster_and_not_distinguishable_never_stand_together(found: dict[str, PlanSet]) -> None:
    for each in (found[name] for name in ("mixture", "sharded", "offloaded")):
        assert {difference.rank for difference in each.differences or ()} == {
            plan.rank for plan in each.plans if plan is not each.plan_to_run
        }
        for line in each.reasons.why_not:
            assert ("not distinguishable" in line) != any(
                word in line for word in ("slower (", "faster (", ": the same")
            )


def test_a_set_in_one_line_names_the_recommended_plan(found: dict[str, PlanSet]) -> None:
    assert repr(found["dense"]).startswith("<PlanSet: 5 plans; recommended: llama3-70b on 16 x dgx-h100: TP8 PP2")


def test_a_faster_plan_stands_below_with_its_gain(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ask(capsys, f"plan llama3-70b --cluster dgx-h100:16 --pin {WITHOUT_LEVERS}").out
    rows = [line.split() for line in shown.splitlines() if line[:1].isdigit() and "GiB" in line]
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5"] and rows[0][-1] == "-"
    assert rows[1][-4].startswith("-") and rows[1][-3] == "±"
    assert "#2 is faster, and more complex" in shown


# ---- at the edge of what was asked for -------------------------------------------------------------------------------


def test_what_is_best_at_the_end_of_a_range_is_said(found: dict[str, PlanSet]) -> None:
    plan, asked = found["dense"].plans[0], found["dense"].question
    assert asked is not None
    assert (plan.parallelism.tp, plan.parallelism.pp, plan.batch.global_) == (8, 2, 1024)
    assert not [*recommendation.edges(asked, plan)]
    pins = {"tp": "4|8", "pp": "2..4", "cp": "1..2", "dp": "8"}
    wide = replace(asked, nodes=(8, 16), batches=(1024, 2048), pins=pins)
    ends = ["nodes 16 (most)", "batch 1,024 (least)", "tp 8 (most)", "pp 2 (least)"]
    assert [*recommendation.edges(wide, plan)] == ends
    open_ended = replace(asked, pins={"tp": "..8", "pp": "..16", "recompute": "none|full"})
    assert [*recommendation.edges(open_ended, plan)] == ["tp 8 (most)"]


def test_the_screen_says_that_a_range_ended_there(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "plan llama3-8b --cluster dgx-h100:1..2 --batch 64 --pin tp=2,cp=1,micro=1 --top 1"
    assert "nodes 2 (most): beyond what was tried may be better still" in ask(capsys, asked).out


def test_of_counts_that_cost_the_same_the_quickest_is_recommended() -> None:
    """Two nodes cost 1.2 % more than one, for half the days; at 4 % more they are another choice."""
    answer = planner.plan("llama3-8b", "dgx-h100:1..2", batch=64, pin="tp=2,cp=1,micro=1", top=3, objective="cost")
    one, two = answer.front
    assert one.usd_total is not None and two.usd_total is not None
    assert 1.0 < two.usd_total / one.usd_total < 1.0 + order.TIED
    assert [plan.cluster.accelerators for plan in answer.plans][:2] == [16, 8]
    assert "quickest of the counts within 3 % of the least cost (1 node: " in recommendation.quicker_than_least(answer)
    by_dollar = replace(answer, search=replace(answer.search, objective="tokens-per-dollar"))
    assert "within 3 % of the most tokens per dollar (" in recommendation.quicker_than_least(by_dollar)

    dearer = replace(answer.plans[0], money=replace(answer.plans[0].money, days=1.04 * one.days / 2))
    assert order.quickest_of_cheapest([answer.plans[1], dearer]) == 0


@pytest.mark.slow
def test_a_fabric_that_the_nics_cannot_drive_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "plan gpt2-xl --pin tp=1,micro=1 --top 1 --fabric infiniband-ndr"
    told = "NICs of 400 Gbit/s in dgx-v100: its own, of 100 Gbit/s, cannot drive infiniband-ndr (--fabric)"
    assert f"Warning        {told}" in ask(capsys, f"{asked} --cluster dgx-v100:2").out
    assert "Warning" not in ask(capsys, f"{asked} --cluster dgx-h100:2").out
    mixed = planner.plan("gpt2-xl", ["dgx-v100:1", "dgx-h100:1"], fabric="infiniband-ndr", top=1)
    assert [each.what for each in mixed[0].assumptions if each.flag == "--fabric"] == [told.partition(":")[0]]


@pytest.mark.slow
def test_a_plain_price_is_dollars_of_an_accelerator_hour(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "plan llama3-8b --cluster dgx-h100:1 --batch 64 --pin tp=2,cp=1,micro=1 --top 1 --price"
    told = "dgx-h100 at $16.00/h: $2.00 per accelerator-hour, as given (--price)"
    assert told in ask(capsys, f"{asked} 2").out and told in ask(capsys, f"{asked} '$2/h'").out
    costs = {planner.plan("llama3-8b", "dgx-h100:1", top=1, price=each)[0].money.usd_total for each in (2, "2", "$2/h")}
    assert len(costs) == 1
    assert ask(capsys, f"{asked} '2 GB'").code == 2


@sweep("typed", ["--tp 8 --sequence-parallel off", "--tp=8 --sequence_parallel=off", "tp=8 sequence_parallel=off"])
def test_axes_may_be_typed_as_options(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ask(capsys, f"estimate llama3-8b --cluster dgx-h100:1 {typed}").report
    assert "tp=8 pp=1 dp=1 micro=1 zero=1 recompute=none sequence_parallel=off" in shown


def test_axes_typed_as_options_are_pins_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "plan llama3-8b --cluster dgx-h100:1 --batch 64 --micro 1 --cp 1 --top 1 --json"
    question = ask(capsys, f"{asked} --tp 2").document["question"]
    assert question["pins"] == {"micro": "1", "cp": "1", "tp": "2"}


@sweep(
    ("axes", "label", "code"),
    [
        ("tp=2 dp=4", "Fits", 0),
        ("tp=2 dp=4 micro=2", "Too risky", 1),
        ("tp=2 dp=4 micro=2 --oom-risk 50%", "Fits", 0),
        ("dp=8", "Does not fit", 1),
    ],
)
def test_what_is_said_of_memory_agrees_with_the_exit_code(
    axes: str, label: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ask(capsys, f"estimate llama3-8b --cluster dgx-h100:1 {axes}")
    assert answer.code == code
    assert [line for line in answer.out.splitlines() if line.startswith(f"{label:<15}in ")]


# ---- the block -------------------------------------------------------------------------------------------------------


@sweep("name", QUESTIONS, every=2, ci=2)
def test_the_block_has_at_most_twelve_lines_of_eighty_columns(found: dict[str, PlanSet], name: str) -> None:
    printed = [
        folded
        for label, texts in recommendation.lines(found[name])
        for number, text in enumerate(texts)
        for folded in typeset.fold(f"{'' if number else label:15}{text}", 80)
    ]
    assert len(printed) <= 12
    assert max(map(len, printed)) <= 80


def test_rates_are_given_per_accelerator(found: dict[str, PlanSet]) -> None:
    """The step trains 1,024 x 8,192 tokens on 128 accelerators of 989 dense TFLOP/s in bf16."""
    plan = found["dense"][0]
    each = 1024 * 8192 / 128 / plan.prediction.step_time_s
    (speed,) = (texts for label, texts in recommendation.lines(found["dense"]) if label == "Speed")
    assert speed[1].startswith(f"{each / 1000:.2f} k tokens/s/GPU, {plan.prediction.mfu * 989.0:.0f} TFLOP/s/GPU, ")
    assert speed[1].endswith(" % MFU (full attention)")


# ---- the gain over a usual run ---------------------------------------------------------------------------------------


def test_the_usual_run_is_what_estimate_says_of_it(found: dict[str, PlanSet]) -> None:
    """ZeRO-3 over all accelerators with the largest micro-batch that fits; the next does not, by the same risk."""
    usual = found["dense"].usual
    assert usual is not None and usual.gain is not None and usual.configuration == "zero=3 micro=2 recompute=full"
    asked = partial(planner.estimate, "llama3-70b", "dgx-h100:16", runtime="fsdp2")
    same = asked(zero=3, micro=2, recompute="full")
    assert same[0].prediction.step_time_s == usual.step_time_s and same.search.feasible
    assert not asked(zero=3, micro=4, recompute="full").search.feasible
    assert not asked(zero=3, micro=1, recompute="selective").search.feasible
    ratio = math.sqrt(usual.gain.low * usual.gain.high)
    assert ratio == pytest.approx(same[0].prediction.step_time_s / found["dense"][0].prediction.step_time_s)


def test_it_is_said_that_no_usual_run_fits_or_how_much_faster_the_plan_is(found: dict[str, PlanSet]) -> None:
    names = ("dense", "offloaded", "tight", "adapters")
    gains = {name: dict(recommendation.lines(found[name])).get("Gain") for name in names}
    assert gains["dense"] == ["1.2x a default FSDP run on this cluster (80 %: 0.91 to 1.6)"]
    assert gains["offloaded"] == ["a default FSDP run does not fit on this cluster"]
    assert gains["tight"] is None, "48 accelerators cannot share 1,024 sequences"
    assert gains["adapters"] is None


# ---- words and units -------------------------------------------------------------------------------------------------


def test_energy_and_carbon_are_said_where_they_count(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "plan llama3-8b --cluster dgx-h100:1 --batch 64 --pin tp=2,cp=1 --top 2 --tokens 1B --region fr"
    shown, table = (ask(capsys, f"{asked} --objective {name}").out for name in ("energy", "time"))
    plan = planner.plan(
        "llama3-8b", "dgx-h100:1", batch=64, pin="tp=2,cp=1", top=2, tokens="1B", region="fr", objective="energy"
    )[0]
    assert plan.energy.energy_j is not None and plan.energy.carbon_kg is not None
    figures = f"{plan.energy.energy_j / 3.6e6:,.3g} kWh, {plan.energy.carbon_kg / 1000:.3g} t CO2e: "
    assert f"Energy         {figures}75 % of maximum power, PUE 1.25, fr" in shown
    assert "energy time vs #1" in " ".join(shown.split()) and "cost time vs #1" in " ".join(table.split())
    assert "Energy  " not in table
    apart = replace(plan, energy=replace(plan.energy, basis="75 % of each node's maximum power, PUE 1.25, us"))
    words = dict(recommendation.expected(apart, by_energy=True))["Energy"][0]
    assert words.endswith(": 75 % of maximum power, PUE 1.25, us") and len(words) <= recommendation.ROOM


def test_times_of_an_answer_are_in_the_unit_of_the_plan_to_run() -> None:
    assert (quantities.days(0.365), quantities.days(1.6, 0.365)) == ("8.76 h", "38.4 h")
    assert (quantities.days(1.6), quantities.days(0.9, 1.6), quantities.days(1584.7)) == ("1.6 d", "0.9 d", "1,585 d")
    assert (quantities.seconds(1.5, 0.9), quantities.seconds(0.9, 1.5)) == ("1,500 ms", "0.90 s")


def test_a_cause_has_one_name(found: dict[str, PlanSet]) -> None:
    plan = found["mixture"][0]
    largest = {**plan.prediction.breakdown, "vector": 2 * plan.prediction.step_time_s}
    changed = replace(plan, prediction=replace(plan.prediction, breakdown=largest))
    assert any(line.startswith("element-wise (") for line in why_this_plan._binds(changed, {}))


def test_classes_that_stalled_in_most_published_runs_are_not_recommended() -> None:
    """nanotron with stages on many accelerators, as often as the page of accuracy counts it."""
    plans = planner.plan("llama3-8b", "p5.48xlarge:64", runtime="nanotron", batch=512, seq=4096).plans
    fastest_staged = next(place for place, plan in enumerate(plans) if order.stalls(plan))
    assert not order.stalls(plans[0])
    assert order.recommended([plans[fastest_staged], plans[0]]) == 1
    assert order.recommended([plans[fastest_staged]]) == 0
    page = Path("docs/accuracy-details.md").read_text(encoding="utf-8")
    many, slow, of = order.STALLED["nanotron"]
    rows = [tuple(map(int, row)) for row in re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| [\d.]+ to", page, re.MULTILINE)]
    runs, stalled = (sum(row[column] for row in rows if row[0] >= many) for column in (1, 2))
    assert (stalled, runs) == (slow, of) and 2 * stalled > runs
    assert all(2 * row[2] <= row[1] for row in rows if row[0] < many)
