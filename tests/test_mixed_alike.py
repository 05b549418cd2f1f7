"""Plans over several pools that a launcher starts: pipelines of one kind that fill their nodes."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import api, verify
from planner.base.errors import NoAnswer
from planner.commands.command_line import main
from planner.launchers import plan_facts
from planner.launchers.bundle import trainers
from planner.mixed import answer, batch_shares, prepared_pools
from planner.mixed import launchable as alike
from planner.mixed.batch_shares import MixedPlan
from planner.mixed.prepared_pools import PreparedPools
from planner.question.plan_options import PlanOptions
from planner.question.several_pools import pooled_request
from planner.schema.plan import Plan, PlanSet
from tests.answered_once import answered_once
from tests.asking import ask


@answered_once
def planned(model: str, *clusters: str, **asked: Any) -> PlanSet:
    return api.plan(model, clusters, **asked)


@cache
def posed(clusters: tuple[str, ...], **asked: Any) -> PreparedPools:
    known, wanted, pools = pooled_request("gpt2-medium", clusters, PlanOptions(**asked))
    return prepared_pools.prepare(known, wanted, pools, wanted.batches[-1])


def starts(plan: Plan) -> bool:
    """Whether a launcher that numbers ranks node after node can start it, as the exporters see it."""
    return not list(plan_facts.stages_fill_pools(plan))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clusters", "batch", "policy", "binds"),
    [
        (("ws-4xrtx6000:3", "t4-4:1"), 35, "none", True),
        pytest.param(("t4-4:1", "ws-4xrtx6000:2"), 64, "full", False, marks=pytest.mark.thorough),
    ],
)
def test_it_is_the_best_that_an_exporter_takes(clusters: tuple[str, ...], batch: int, policy: str, binds: bool) -> None:
    """Against every number of bundles of every kind, written down and shown to the exporters, best first."""
    prepared = posed(clusters, batch=str(batch), pin=(f"recompute={policy}",))
    kinds, found = prepared.setting.kinds, []
    limits = np.array(prepared.setting.offer.nodes) * prepared.setting.offer.per_node
    for index in np.flatnonzero(np.all(kinds.usage > 0, axis=-1)):
        for copies in range(1, int(np.min(limits // kinds.usage[index])) + 1):
            plan = batch_shares.shortest_step(prepared.setting, np.array([index]), np.array([copies]))
            if plan is not None:
                found.append(plan)
    found.sort(key=lambda plan: plan.value)
    wanted = next(plan for plan in found if starts(answer.plan(prepared, plan, 1)))
    mine = alike.best(prepared, (0, 1))
    assert mine is not None and mine.value == pytest.approx(wanted.value, rel=1e-9)
    assert (mine.value > found[0].value * (1 + 1e-9)) is binds


# ---- every plan of one kind, written down ----------------------------------------------------------------------------


def degrees(prepared: PreparedPools, row: int) -> set[tuple[int, ...]]:
    """Tensor, context and expert parallel of every stage of a kind, as its ways have them."""
    kinds, found = prepared.setting.kinds, set()
    for place, (pool, _) in enumerate(prepared.chains[int(kinds.chain[row])]):
        configs, way = prepared.tables[pool].configs, int(kinds.configs[row, place])
        found.add((int(configs.tp[way]), int(configs.cp[way]), int(configs.ep[way])))
    return found


SMALL = ("dgx-v100:1", "t4-4:2")
"""Reductions take far longer on the second."""
WEIGHTS = (1.0, 2.5)


def can(prepared: PreparedPools, row: int, copies: int) -> bool:
    """Whether so many bundles fill nodes that there are, and their micro-batches divide the batch."""
    kinds, offer = prepared.setting.kinds, prepared.setting.offer
    nodes = [copies * int(used) / each for used, each in zip(kinds.usage[row], offer.per_node, strict=True)]
    fills = all(n == int(n) and n <= most for n, most in zip(nodes, offer.nodes, strict=True))
    return fills and offer.batch % (copies * int(kinds.samples[row])) == 0


@cache
def every() -> list[tuple[int, int, MixedPlan]]:
    """Kind, bundles and plan, of all that stand on both pools, are cut alike, fill nodes and divide the batch."""
    prepared, found = posed(SMALL, batch="48"), []
    for row in range(len(prepared.setting.kinds)):
        if np.all(prepared.setting.kinds.usage[row] > 0) and len(degrees(prepared, row)) == 1:
            for copies in (copies for copies in range(1, 49) if can(prepared, row, copies)):
                plan = batch_shares.shortest_step(prepared.setting, np.array([row]), np.array([copies]))
                assert plan is not None
                found.append((row, copies, plan))
    return found


@pytest.mark.parametrize("batch", [6, 12, 35])
def test_bundles_fill_nodes_and_divide_the_batch(batch: int) -> None:
    prepared = posed(SMALL, batch=str(batch))
    rows = np.arange(len(prepared.setting.kinds))
    for copies in range(1, batch + 1):
        wanted = [can(prepared, row, copies) for row in rows]
        assert alike._whole(prepared.setting, rows, copies).tolist() == wanted


def rated(plan: MixedPlan) -> float:
    return plan.time * sum(n * weight for n, weight in zip(plan.nodes, WEIGHTS, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("by_rate", [False, True])
def test_what_is_said_of_a_plan_is_what_the_plan_is(by_rate: bool) -> None:
    """Seconds, or what the nodes count in them, in whatever order the pools are named."""
    prepared = posed(SMALL, batch="48")
    offer = replace(prepared.setting.offer, weights=WEIGHTS)
    setting = replace(prepared.setting, by_rate=by_rate, offer=offer)
    for copies in {copies for _, copies, _ in every()}:
        rows, plans = zip(*[(row, plan) for row, each, plan in every() if each == copies], strict=True)
        wanted = [rated(plan) if by_rate else plan.time for plan in plans]
        for pools in ((0, 1), (1, 0)):
            assert alike._values(setting, np.array(rows), pools, copies) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("by_rate", [False, True])
@pytest.mark.parametrize("limit", ["none", "time", "money", "both", "more than there is"])
def test_it_is_the_best_within_the_limits(limit: str, by_rate: bool) -> None:
    prepared = posed(SMALL, batch="48")
    times, money = (sorted(of(plan) for *_, plan in every()) for of in (lambda plan: plan.time, rated))
    longest, most = np.inf, np.inf
    if limit in ("time", "both"):
        longest = times[len(times) // 3] * (1 + 1e-9)
    if limit in ("money", "both"):
        most = money[len(money) // 8] * (1 + 1e-9)
    if limit == "more than there is":
        longest = times[0] * 0.99
    setting = replace(prepared.setting, by_rate=by_rate, longest=longest, most=most,
                      offer=replace(prepared.setting.offer, weights=WEIGHTS))  # fmt: skip
    kept = [rated(p) if by_rate else p.time for *_, p in every() if p.time <= longest and rated(p) <= most]
    found = alike.best(replace(prepared, setting=setting), (0, 1))
    assert (None if found is None else found.value) == (pytest.approx(min(kept), rel=1e-9) if kept else None)
    assert bool(kept) is (limit != "more than there is")


@pytest.mark.slow
@pytest.mark.parametrize(("model", "unlike"), [("mixtral-8x7b", (1, 1, 2)), ("llama3.2-1b", (1, 2, 1))])
def test_kinds_are_those_whose_document_has_one_cut(model: str, unlike: tuple[int, ...]) -> None:
    """Of every way in which degrees may agree and differ, as the stages of the written plan say."""
    known, wanted, pools = pooled_request(model, ("dgx-h100:1", "dgx-a100-80gb:2"), PlanOptions(batch="64"))
    prepared = prepared_pools.prepare(known, wanted, pools, 64)
    kinds, seen, alike_there = prepared.setting.kinds, {}, set()
    mine = set(alike._cut_alike(prepared, (0, 1)).tolist())
    for row in range(len(kinds)):
        if np.all(kinds.usage[row] > 0):
            cuts = degrees(prepared, row)
            seen.setdefault(tuple(len({cut[i] for cut in cuts}) for i in range(3)), row)
            alike_there |= {row} if len(cuts) == 1 else set()
    assert mine == alike_there == set(alike._cut_alike(prepared, (1, 0)).tolist()), "chains run either way"
    assert {(1, 1, 1), (2, 1, 1), unlike} <= seen.keys()
    for row in seen.values():
        plan = batch_shares.shortest_step(prepared.setting, np.array([row]), np.array([1]))
        assert plan is not None
        stages = answer.plan(prepared, plan, 1).parallelism.groups[0].stages
        assert (row in mine) is (len({(stage.tp, stage.cp, stage.ep) for stage in stages}) == 1)


def test_only_these_kinds_are_listed_where_they_are_asked_for() -> None:
    """With the same figures to the bit as among all kinds."""
    known, wanted, pools = pooled_request("llama3.2-1b", ("dgx-h100:1", "dgx-a100-80gb:1"), PlanOptions(batch="64"))
    every, only = (prepared_pools.prepare(known, wanted, pools, 64, shared=shared) for shared in ((), alike.AXES))
    on_both = [np.flatnonzero(np.all(each.setting.kinds.usage > 0, axis=-1)) for each in (every, only)]
    rows = alike._cut_alike(every, (0, 1))
    assert 0 < len(on_both[1]) == len(rows) < len(on_both[0])
    here, there = every.setting.kinds.taken(np.sort(rows)), only.setting.kinds.taken(on_both[1])
    assert all(np.array_equal(getattr(here, f.name), getattr(there, f.name)) for f in fields(here))


def test_divisors_come_in_pairs() -> None:
    for batch in range(1, 200):
        found = alike._divisors(batch)
        assert found == sorted(batch // n for n in found) and {1, batch} <= set(found)
        assert not any(batch % n == 0 for n in set(range(1, batch)) - set(found))


# ---- plans -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "clusters", "asked"),
    [
        ("llama3.2-3b", ("dgx-a100-80gb:2", "dgx-v100:2"), {}),
        pytest.param("llama3-8b", ("dgx-h100:2", "dgx-a100-80gb:4"), {"objective": "cost"}, marks=pytest.mark.thorough),
        pytest.param("mixtral-8x7b", ("dgx-h100:2", "dgx-a100-80gb:2"), {}, marks=pytest.mark.thorough),
    ],
)
def test_launchers_start_it_and_it_is_no_better_than_the_best(
    model: str, clusters: tuple[str, ...], asked: dict[str, Any]
) -> None:
    free, bound = (planned(model, *clusters, launchable=each, **asked) for each in (False, True))
    together = [plan for plan in bound.plans if len(plan.cluster.pools) > 1]
    assert together and all("megatron" in trainers(plan)[0] for plan in together)
    assert all(verify.violations(plan) == [] for plan in together)
    best = [found.plans[0].money.usd_total if asked else found.plans[0].money.days for found in (free, bound)]
    assert best[1] is not None and best[0] is not None and best[1] >= best[0] * (1 - free.search.gap - 1e-9)
    least = min(plan.money.usd_total if asked else plan.money.days for plan in bound.plans)
    assert bound.search.method.startswith("all plans of identical pipelines")
    assert bound.search.gap == pytest.approx(best[1] / least - 1.0)  # a pool alone may stand before a faster plan
    # Each pool alone is answered as before.
    alone = [[p for p in found.plans if len(p.cluster.pools) == 1] for found in (free, bound)]
    assert {p.cluster.name: p.money.days for p in alone[1]}.items() >= {
        p.cluster.name: p.money.days for p in alone[0] if not p.parallelism.groups
    }.items()


@pytest.mark.slow
def test_pools_are_numbered_along_the_pipeline() -> None:
    """In whatever order they are asked for: the same plan, and ranks pool after pool."""
    found = [
        planned("llama3.2-3b", *pools, launchable=True).plans[0]
        for pools in (("dgx-a100-80gb:2", "dgx-v100:2"), ("dgx-v100:2", "dgx-a100-80gb:2"))
    ]
    assert found[0].prediction.step_time_s == pytest.approx(found[1].prediction.step_time_s)
    for plan in found:
        assert [stage.pool for stage in plan.parallelism.stages] == sorted(s.pool for s in plan.parallelism.stages)
        assert [p.node for p in plan.cluster.pools] == [p.node for p in found[0].cluster.pools]


@pytest.mark.slow
@pytest.mark.thorough
def test_limits_hold_for_it_too() -> None:
    pools = ("dgx-a100-80gb:2", "dgx-v100:2")
    free = planned("llama3.2-3b", *pools, launchable=True).plans[0]
    hours = free.money.days * 24
    kept = api.plan("llama3.2-3b", pools, launchable=True, deadline=f"{hours * 1.01:.1f} h").plans
    assert all(plan.money.days * 24 <= hours * 1.01 for plan in kept)
    with pytest.raises(NoAnswer):
        api.plan("llama3.2-3b", pools, launchable=True, deadline=f"{hours * 0.9:.1f} h")


@pytest.mark.slow
def test_fewer_nodes_of_one_pool_are_tried_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A batch of 128 does not divide over three nodes of either pool, and T5's stacks are not cut between pools."""
    shown = ask(capsys, "plan t5-large --cluster dgx-v100:3 --cluster t4-4:3 --batch 128 --launchable")
    assert shown.code == 0 and "\n1  2 x dgx-v100 " in shown.out
    assert "excluded: 1 of 3 x dgx-v100: they do not improve the best plan found" in shown.out
    assert "excluded: all 3 x t4-4: no pipelines of one kind fill nodes of dgx-v100 and t4-4" in shown.out
    assert "Launchers      deepspeed, accelerate" in shown.out


@pytest.mark.slow
def test_the_same_plan_of_one_pool_stands_once() -> None:
    found = api.plan("gpt2-medium", ("dgx-v100:5", "t4-4:1"), batch="16", launchable=True).plans
    assert len({plan.money.days for plan in found}) == len({round(plan.money.days, 9) for plan in found})


def test_errors_name_the_pins_that_were_given(capsys: pytest.CaptureFixture[str]) -> None:
    refused = ask(capsys, "plan llama3.2-1b --cluster dgx-a100-80gb:1 --cluster dgx-v100:1 --launchable --pin tp=3")
    assert refused.code == 2 and "under these pins: tp=3\n" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        "bert-large --cluster dgx-h100:1 --cluster gh200-4:2",
        pytest.param(
            "smollm2-1.7b --cluster dgx-h100:1 --cluster gh200-4:1 --method lora --runtime megatron-core --batch 48",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_what_no_launcher_starts_over_several_pools_stays_on_one(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No launcher has encoders or LoRA over two pools; uneven data parallelism needs a script of one's own."""
    for alone in (ask(capsys, f"plan {asked} --launchable").out, ask(capsys, f"plan {asked}").out):
        assert " alone: tp=1 pp=1" in alone and " + " not in alone.partition("Recommended")[2].splitlines()[0]
    assert "a plan that none of them starts would gain" in " ".join(alone.split())
    free = ask(capsys, f"plan {asked} --any-pipelines").out
    assert "Launchers      planner.rebalancing.training in your own" in free and "would gain" not in free


@pytest.mark.slow
def test_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = "plan llama3-8b --cluster dgx-h100:2 --cluster dgx-a100-80gb:2 --batch 128"
    assert "--launchable restricts the search" in ask(capsys, f"{asked} --any-pipelines").out
    shown = ask(capsys, f"{asked} -o plan.json")
    assert "Launchers      megatron" in shown.out
    assert "a plan that none of them starts would gain" in " ".join(shown.out.split())
    assert "would gain" not in ask(capsys, f"{asked} --launchable").out
    ask(capsys, "export plan.json --to megatron+slurm -o job")
    assert list(Path("job").rglob("target.json"))
    plan = json.loads(Path("plan.json").read_text(encoding="utf-8"))["plans"][0]
    assert len(plan["parallelism"]["groups"]) == 1 and len(plan["cluster"]["pools"]) == 2


@pytest.mark.slow
def test_with_one_pool_it_changes_nothing() -> None:
    with_it, without = (api.plan("gpt2-medium", "dgx-v100:2", launchable=each) for each in (True, False))
    assert with_it.plans == without.plans
    assert replace(with_it, meta=without.meta) == without
    assert main(["plan", "gpt2-medium", "--cluster", "dgx-v100:2", "--launchable"]) == 0
