"""Plans over several pools: against the cost of one cluster, against every plan there is, and on the command line."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import catalog, cost, verify
from planner import planning as one_pool
from planner.axes.options import option_values
from planner.base.errors import WrongQuestion
from planner.cost import stage_memory
from planner.mixed import (
    batch_shares,
    integer_program,
    pipelines,
    pool_subsets,
    prepared_pools,
    run,
    search,
    stages,
    subproblems,
)
from planner.mixed.groups import PlacedStage, found_pipeline, memory_of_placed_stage
from planner.mixed.integer_program import Columns, Offer
from planner.mixed.prepared_pools import PreparedPools
from planner.planning import document
from planner.question import pools as pooled
from planner.question.job_pools import Pools, default_link, merged
from planner.question.plan_options import PlanOptions
from planner.question.several_pools import pooled_request
from planner.schema.plan import PlanSet
from planner.space.cost_grid import single_grid
from tests.altering import altered
from tests.asking import ask
from tests.layer_splits import best_split
from tests.sweeps import sweep

SMALL = ("ws-4xrtx6000:2", "t4-4:2")


def posed(model: str, clusters: tuple[str, ...], **asked: Any) -> PreparedPools:
    known, wanted, pools = pooled_request(model, clusters, PlanOptions(**asked))
    return prepared_pools.prepare(known, wanted, pools, wanted.batches[-1])


def planned(*clusters: str, model: str = "gpt2-medium", **asked: Any) -> PlanSet:
    """What the search finds; what it depends on is another test's."""
    return run.plan(*pooled_request(model, clusters, PlanOptions(**{"batch": "64", **asked})))


# ---- the one cost model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "node"), [("gpt2-medium", "dgx-v100:2"), ("mixtral-8x7b", "dgx-h100:8")])
def test_even_pipelines_on_one_pool_cost_what_one_cluster_costs(model: str, node: str) -> None:
    """Step time and every stage's memory of kinds that divide evenly, against the grid of one plan."""
    prepared = posed(model, (node,), batch="512")
    setting, kinds = prepared.setting, prepared.setting.kinds
    layers, accelerators = int(prepared.figures[0].shape.layers), prepared.pools.all[0].cluster.accelerators
    rng, compared = np.random.default_rng(1), 0
    for index in rng.permutation(len(kinds)):
        chain, rows, deal, _ = found_pipeline(prepared, int(index))
        pp, width = chain[0][1], int(kinds.width[index])
        policies = {int(p) for p in deal.policy[0]}
        even = layers % pp == 0 and len(set(deal.layers[0])) == 1 and len(policies) == 1
        steps, rest = divmod(512, int(kinds.samples[index]))
        # One bundle with all replicas (there, states are sharded as in one cluster), and a pipeline that is filled.
        if not even or kinds.usage[index, 0] != accelerators or rest or steps < pp:
            continue
        found = batch_shares.shortest_step(setting, np.array([index]), np.array([1]))
        grid = _as_one_plan(prepared, int(index), pp, int(policies.pop()), width)
        expected = cost.evaluate(grid)
        assert found is not None
        ends = abs(found.time / float(expected.time) - 1)
        assert ends < (1e-12 if pp == 1 else 0.01), (chain, rows, found.time, float(expected.time))
        held = [_held(prepared, int(index), i) for i in range(pp)]
        assert max(held) == pytest.approx(float(expected.memory), rel=1e-12)
        compared += 1
        if compared == 12:
            return
    assert compared >= 5


def _as_one_plan(prepared: PreparedPools, kind: int, pp: int, policy: int, width: int) -> Any:
    kinds, table = prepared.setting.kinds, prepared.tables[0]
    row = int(kinds.configs[kind, 0])
    configs = table.configs
    tp, cp = int(configs.tp[row]), int(configs.cp[row])
    options = option_values(
        precision=prepared.precision,
        recompute=table.policies[policy],
        sequence_parallel=tp > 1,
        tp_overlap=tp > 1,
        zero=1 if width * cp > 1 else 0,
        dp_overlap=True,
    )
    layout = {"tp": tp, "pp": pp, "vpp": 1, "cp": cp, "ep": int(configs.ep[row]), "etp": 1, "dp": width,
              "micro": int(configs.micro[row]), "batch": 512, "nodes": prepared.pools.all[0].count}  # fmt: skip
    return single_grid(prepared.figures[0], layout, options)


def _held(prepared: PreparedPools, kind: int, stage: int) -> float:
    chain, rows, deal, _ = found_pipeline(prepared, kind)
    at, pool, role, depth = pipelines.places(chain)[stage]
    placed = PlacedStage(pool, rows[at], int(deal.policy[0, stage]), int(deal.layers[0, stage]), role, depth)
    found = memory_of_placed_stage(prepared, placed)
    return float(np.ravel(found.total)[0])


def test_room_is_what_memory_leaves() -> None:
    """One layer more than there is room for exceeds what the risk leaves; so many do not."""
    prepared = posed("gpt2-medium", SMALL)
    for pool, table in enumerate(prepared.tables):
        whole = prepared.pools.all[pool].cluster.accelerator.memory
        capacity = stage_memory.usable(whole, prepared.memory_spread.half_width, prepared.request.oom_risk)
        for role, depth in (("alone", 1), ("first", 3), ("middle", 2), ("last", 1)):
            room = table.max_layers[:, 0, stages.ROLES.index(role), depth - 1]
            for row in range(0, len(room), 7):
                for layers, fits in ((int(room[row]), True), (int(room[row]) + 1, False)):
                    if layers >= 1:
                        held = memory_of_placed_stage(prepared, PlacedStage(pool, row, 0, layers, role, depth))
                        assert (float(np.ravel(held.total)[0]) <= capacity) == fits


# ---- the search ------------------------------------------------------------------------------------------------------


def small_setting(seed: int) -> batch_shares.BundleSetting:
    """Few kinds on few nodes, so that every plan can be tried."""
    prepared = posed("gpt2", ("ws-4xrtx6000:1", "t4-4:1"), batch="24")
    kinds = prepared.setting.kinds
    picked = np.random.default_rng(seed).choice(np.flatnonzero(kinds.usage.sum(-1) <= 4), 6, replace=False)
    return dataclasses.replace(prepared.setting, kinds=kinds.taken(picked))


def every_plan(setting: batch_shares.BundleSetting) -> float:
    """The least step time over all numbers of bundles of every kind that fit the pools."""
    have = np.array(setting.offer.nodes) * np.array(setting.offer.per_node)
    most = [int(np.min(have[use > 0] // use[use > 0])) for use in setting.kinds.usage]
    best = float("inf")
    for counts in itertools.product(*(range(m + 1) for m in most)):
        copies = np.array(counts)
        if np.any(copies @ setting.kinds.usage > have) or not copies.any():
            continue
        rows = np.flatnonzero(copies)
        found = batch_shares.shortest_step(setting, rows, copies[rows])
        best = min(best, found.time if found else best)
    return best


@sweep("seed", range(4))
def test_the_search_finds_the_best_of_all_plans(seed: int) -> None:
    setting = small_setting(seed)
    best = every_plan(setting)
    told: list[tuple[float, float]] = []
    found = search.search(setting, gap=1e-3, report_bound=lambda value, bound: told.append((value, bound)))
    assert found.best[0].time == pytest.approx(best, rel=2e-3)
    assert found.bound <= best * (1 + 1e-9)
    assert all(bound * (1 - 1e-9) <= best <= value * (1 + 1e-9) for value, bound in told) and told


def test_the_integer_program_agrees_with_trying_all() -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        usage = rng.integers(0, 4, (4, 2)) + np.array([[1, 0], [0, 1], [1, 0], [0, 1]])
        columns = Columns(usage, rng.integers(1, 9, 4).astype(float), np.ones(4, dtype=np.int64))
        offer = Offer((3, 4), (2, 2), (1.0, 1.7), 12)
        best = float("inf")
        for counts in itertools.product(range(9), repeat=4):
            need = np.array(counts) @ usage
            nodes = -(-need // 2)
            if np.all(nodes <= offer.nodes) and np.array(counts) @ columns.delivered >= 12 and sum(counts) <= 6:
                best = min(best, float(nodes @ np.array(offer.weights)))
        found = integer_program.assign(columns, offer, 6, whole=True, gap=0.0)
        assert (found.value if found else float("inf")) == pytest.approx(best)


@pytest.mark.slow
def test_identical_pools_are_one_cluster() -> None:
    whole = planned("t4-4:4")
    cut = planned("t4-4:1", "t4-4:3")
    assert [p.cluster for p in cut.plans] == [p.cluster for p in whole.plans]
    assert [p.prediction for p in cut.plans] == [p.prediction for p in whole.plans]
    assert cut.search == whole.search


@pytest.mark.slow
def test_a_pool_without_nodes_is_as_if_absent() -> None:
    with_none, without = planned("ws-4xrtx6000:2", "t4-4:0"), planned("ws-4xrtx6000:2")
    assert [p.prediction for p in with_none.plans] == [p.prediction for p in without.plans]
    with pytest.raises(WrongQuestion, match="no pool has any nodes"):
        planned("t4-4:0", "ws-4xrtx6000:0")


@pytest.mark.slow
def test_one_more_pool_never_makes_it_worse() -> None:
    """Of three pools, every set against every smaller one."""
    pools = ("quad-rtx6000:1", "t4-4:1", "ws-4xa5000:1")
    best = {
        names: planned(*names, model="bert-base", batch="2048", pin=("tp=1", "pp=1..2")).plans[0].money.days
        for size in range(1, len(pools) + 1)
        for names in itertools.combinations(pools, size)
    }
    for names, fewer in itertools.product(best, best):
        if set(fewer) < set(names):
            assert best[names] <= best[fewer]
    assert any(best[names] < min(best[name,] for name in names) for names in best if len(names) == 2)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["time", pytest.param("cost", marks=pytest.mark.thorough)])
def test_sets_that_are_not_searched_would_change_nothing(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a search of every set of pools, whatever its relaxation shows."""
    asked = ("dgx-a100-40gb:1", "dgx-v100:2", "dgx-v100:1@far")
    found = planned(*asked, objective=objective)
    monkeypatch.setattr(search, "beyond", lambda *_: False)
    whole = planned(*asked, objective=objective)
    assert found.search.candidates == whole.search.candidates
    kept = [(p.cluster, p.prediction, p.money) for p in found.plans]
    assert kept[0] == (whole.plans[0].cluster, whole.plans[0].prediction, whole.plans[0].money)
    assert all(each in [(p.cluster, p.prediction, p.money) for p in whole.plans] for each in kept)


def test_a_pool_by_itself_is_searched_as_one_cluster() -> None:
    known, wanted, _ = pooled_request("gpt2-medium", ("dgx-v100:2",), PlanOptions(batch="64"))
    best, how = one_pool.best(known, wanted)
    whole = one_pool.plan(known, wanted)
    assert dataclasses.replace(best, rank=1) == whole.plans[0]
    assert (how.candidates, how.feasible, how.proven_optimal) == (
        whole.search.candidates, whole.search.feasible, whole.search.proven_optimal
    )  # fmt: skip


def test_a_pool_too_slow_to_help_is_left_out_and_said_to_be() -> None:
    found = planned("dgx-h100:1", "t4-4:1@far")
    assert [p.node for p in found.plans[0].cluster.pools] == ["dgx-h100"]
    assert any("excluded: all 1 x t4-4@far" in line for line in found.reasons.why_not)


@pytest.mark.slow
def test_money_and_deadlines_hold() -> None:
    asked = ("dgx-a100-40gb:1", "dgx-a100-80gb:1")
    fast = planned(*asked)
    cheap = planned(*asked, objective="cost")
    most, least = fast.plans[0].money.usd_total, cheap.plans[0].money.usd_total
    assert most is not None and least is not None and least < most
    assert least <= min(p.money.usd_total or 1e99 for p in fast.plans)
    cap = 0.5 * (most + least)
    capped = planned(*asked, max_cost=f"${cap:.2f}")
    assert all((p.money.usd_total or 1e99) <= cap * (1 + 1e-9) for p in capped.plans)
    assert capped.plans[0].money.days >= fast.plans[0].money.days


def test_what_is_not_used_shortens_no_deadline() -> None:
    """A set of pools has the goodput of its own nodes, whatever is offered beside it."""
    pins = ("tp=1", "pp=1", "micro=4")
    asked = PlanOptions(batch="1024", deadline="30 d", max_cost="$1M", precision="fp16", pin=pins)
    ours = ("dgx-a100-40gb:20", "dgx-v100:20")
    known, wanted, pools = pooled_request("gpt2-medium", (*ours, "dgx-a100-80gb:400@far"), asked)
    kept = pool_subsets.PreparedCache(known, wanted, pools, 1024)
    found, _ = kept.prepared(pools.all[:2])
    assert len(found.pools.all) == 3
    longest, most = prepared_pools.limits(wanted, pools.all[:2], 1024)
    assert (found.setting.longest, found.setting.most) == (longest, most)
    everything, _ = kept.prepared(pools.all)
    assert everything.setting.longest < 0.999 * longest and everything.setting.most < 0.999 * most


def test_stages_stand_on_both_pools_where_one_alone_has_too_few_accelerators() -> None:
    found = planned("ws-4xrtx6000:1", "t4-4:1", pin=("pp=5",))
    assert any(len({s.pool for s in g.stages}) == 2 for g in found.plans[0].parallelism.groups)


LINKED = ("dgx-a100-40gb:2", "dgx-v100:2")


def test_a_slower_link_makes_a_plan_over_two_pools_slower_or_leaves_one_out() -> None:
    """Copies on two pools share no domain, so that gradients always pass the link."""
    prepared = [
        posed("bert-large", LINKED, batch="256", link=(f"dgx-a100-40gb/dgx-v100={rate} Gbit/s,20 us",))
        for rate in ("400", "25", "1")
    ]
    kinds = prepared[0].setting.kinds
    pair = [
        int(np.flatnonzero((kinds.usage[:, p] == 1) & (kinds.usage.sum(-1) == 1) & (kinds.samples == 4))[0])
        for p in (0, 1)
    ]
    times = []
    for each in prepared:
        found = batch_shares.shortest_step(each.setting, np.array(pair), np.array([8, 8]))
        assert found is not None
        times.append(found.time)
    assert times[0] < times[1] < 0.5 * times[2]


@pytest.mark.slow
def test_no_reduction_is_shorter_than_its_bound() -> None:
    """However many replicas there are, and however they stand on two pools."""
    setting = posed("mixtral-8x7b", ("dgx-h100:8", "dgx-a100-80gb:8"), batch="256").setting
    rows = np.random.default_rng(3).integers(0, len(setting.kinds), 400)
    on = subproblems.TemplatesOnPools(setting, (0, 1), rows, spans_pools=True)
    for fewest, most, low, high in ((2, 2, 1, 1), (3, 4, 1, 2), (5, 8, 1, 4), (17, 32, 2, 8), (65, 128, 1, 64)):
        subproblem = subproblems.Subproblem(on, fewest, most, low, high)
        for replicas in {max(fewest, 2 * low), (fewest + most) // 2, most}:
            for beside in {low, min(high, replicas // 2)}:
                assert np.all(subproblem.least <= on.reductions(replicas, beside) * (1 + 1e-9))


def test_scenes_split_into_all_that_they_hold() -> None:
    """Every number of replicas and of neighbours is in exactly one of the last parts, where reductions are known."""
    setting = posed("gpt2-medium", SMALL).setting
    (spans_pools,) = [s for s in subproblems.list_subproblems(setting, [(0, 1)]) if s.on.spans_pools]
    parts, leaves = [dataclasses.replace(spans_pools, most=9, high=4)], []
    while parts:
        subproblem = parts.pop()
        parts += subproblem.split()
        if not subproblem.split():
            leaves.append((subproblem.fewest, subproblem.most, subproblem.low, subproblem.high))
    assert all(fewest == most and low == high for fewest, most, low, high in leaves)
    held = [(n, b) for n, _, b, _ in leaves]
    assert len(held) == len(set(held))
    assert {(n, b) for n in range(2, 10) for b in range(1, 5) if b <= max(n // 2, 1)} <= set(held)


def test_pipelines_that_share_their_seam_reduce_inside_their_pools() -> None:
    """The same layers on the same pools in every copy: no gradient passes the link, however slow it is."""
    fast, slow = (
        posed("gpt2-medium", SMALL, link=(f"ws-4xrtx6000/t4-4={rate},20 us",)).setting
        for rate in ("100 Gbit/s", "2 Gbit/s")
    )
    slow = dataclasses.replace(fast, network_of=slow.network_of)  # a slow link would deal layers otherwise, too
    spans = np.flatnonzero(np.all(fast.kinds.usage == 1, axis=-1))
    one = int(spans[np.argmin(fast.kinds.total[spans])])
    other = next(int(k) for k in spans if fast.kinds.seam[k] != fast.kinds.seam[one])
    shown = [batch_shares.shortest_step(setting, np.array([one]), np.array([4])) for setting in (fast, slow)]
    assert shown[0] is not None and shown[1] is not None and shown[0].exposed == shown[1].exposed
    mixed = [batch_shares.shortest_step(setting, np.array([one, other]), np.array([2, 2])) for setting in (fast, slow)]
    assert mixed[0] is not None and mixed[1] is not None and mixed[1].exposed > 5 * mixed[0].exposed


# ---- documents -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed() -> PlanSet:
    found = planned("dgx-a100-40gb:2", "dgx-v100:2", model="llama2-13b", batch="128")
    assert len(found.plans[0].cluster.pools) == 2
    return found


@pytest.mark.slow
def test_documents_come_back_as_they_were(mixed: PlanSet) -> None:
    assert document.parse(json.loads(document.as_json(mixed)), "here") == mixed


@pytest.mark.slow
def test_gradients_that_pass_a_link_faster_than_it_sends_are_found() -> None:
    best = planned("dgx-a100-40gb:1", "dgx-a100-80gb:1", model="gpt2-medium", batch="512").plans[0]
    assert len(best.cluster.pools) == 2
    assert not verify.violations(best)
    (link,) = best.cluster.links
    slow = dataclasses.replace(best.cluster, links=(dataclasses.replace(link, bytes_per_s=1e6),))
    told = verify.violations(dataclasses.replace(best, cluster=slow))
    assert [violation.name for violation in told] == ["gradients_cross_in_time"] * 2


BREAKS = [
    ("parallelism.groups.0.copies", lambda x: x + 40, "ranks_fit_the_pools"),
    ("cluster.pools.0.count", lambda x: x + 3, "ranks_fit_the_pools"),
    ("parallelism.groups.0.stages.0.layers", lambda x: x + 1, "layers_are_all_dealt"),
    ("parallelism.groups.0.sequences", lambda x: x + 1, "batch_is_shared"),
    ("parallelism.groups.0.stages.0.tp", 3, "tensor_divides"),
    ("parallelism.groups.0.stages.0.time_s", lambda x: 9 * x, "times_follow"),
    ("parallelism.groups.0.stages.0.memory_bytes", 1e9, "memory_fits_stage_by_stage"),
    ("parallelism.groups.0.stages.0.memory_bytes", 1e12, "memory_fits_stage_by_stage"),
    ("parallelism.groups.0.stages.0.pool", 7, "groups_are_possible"),
    ("parallelism.groups.0.stages.0.recompute", "sometimes", "groups_are_possible"),
    ("parallelism.groups.0.stages", lambda x: (), "groups_are_possible"),
    ("cluster.links", lambda x: tuple(dataclasses.replace(y, pools=(0, 9)) for y in x), "groups_are_possible"),
    ("cluster.links", lambda x: tuple(dataclasses.replace(y, bytes_per_s=0.0) for y in x), "groups_are_possible"),
    ("parallelism.tp", lambda x: 2 * x, "summary_follows"),
    ("parallelism.pp", lambda x: x + 1, "summary_follows"),
    ("parallelism.dp", lambda x: x + 1, "summary_follows"),
    ("parallelism.vpp", 2, "summary_follows"),
    ("parallelism.etp", 2, "summary_follows"),
    ("parallelism.dp_shard", lambda x: x + 1, "summary_follows"),
    ("parallelism.zero_stage", 2, "summary_follows"),
    ("batch.micro", lambda x: x + 1, "summary_follows"),
    ("batch.accumulation", lambda x: x + 1, "summary_follows"),
    ("batch.per_pool", lambda x: (x[0] - 2, x[1] + 2), "summary_follows"),
    ("parallelism.stages", lambda x: x[:-1], "summary_follows"),
    ("prediction.memory.resident_bytes", lambda x: 2 * x + 1, "memory_adds_up"),
    ("prediction.step_time_s", lambda x: 0.9 * x, "times_follow"),
    ("money.usd_per_hour", lambda x: x + 1, "dollars_follow_from_pools"),
    ("money.tokens_per_usd", lambda x: 2 * x, "dollars_follow_from_pools"),
    ("money.tokens_per_usd", None, "dollars_follow_from_pools"),
    ("money.price.usd_per_hour", lambda x: x + 1, "dollars_follow_from_pools"),
    ("prediction.memory.stage", lambda x: x + 1, "fullest_stage_is_told"),
    ("prediction.memory.oom_chance", lambda x: x / 2 + 0.001, "chance_follows_from_interval"),
    ("prediction.memory.oom_risk", 0.7, "risk_is_one"),
    ("recompute.policy", lambda x: "full" if x != "full" else "none", "switches_are_those_of_groups"),
    ("recompute.selective", lambda x: not x, "switches_are_those_of_groups"),
    ("offload", {"optimizer": True}, "switches_are_those_of_groups"),
    ("overlap.p2p", True, "switches_are_those_of_groups"),
    ("cluster.pools.0.count", 0, "groups_are_possible"),
    ("parallelism.groups.0.stages.0.layers", 0, "groups_are_possible"),
    ("batch.per_pool", lambda x: x[:-1], "batch_is_shared"),
    ("parallelism.groups.0.stages.0.held.gradients_bytes", lambda x: 2 * x + 1, "stages_add_up"),
    ("parallelism.groups.0.stages.0.ep", 3, "tensor_divides"),
    ("parallelism.groups.0.stages.0.cp", 3, "tensor_divides"),
    ("money.usd_total", None, "dollars_follow_from_pools"),
    ("money.prices", lambda x: x[:1], "dollars_follow_from_pools"),
]


@sweep(("path", "value", "name"), BREAKS)
def test_what_cannot_be_is_found(mixed: PlanSet, path: str, value: Any, name: str) -> None:
    assert name in {violation.name for violation in verify.violations(altered(mixed.plans[0], {path: value}))}


def test_the_breakdown_adds_up_and_groups_end_with_the_step(mixed: PlanSet) -> None:
    for plan in mixed.plans:
        assert sum(plan.prediction.breakdown.values()) == pytest.approx(plan.prediction.step_time_s, rel=1e-9)
        if plan.parallelism.groups:
            assert max(g.time_s for g in plan.parallelism.groups) == plan.prediction.step_time_s


def test_states_shared_by_context_parallel_ranks_alone_are_told_as_sharded() -> None:
    """Stages of width 1 whose context-parallel ranks share optimizer states: the plan says ZeRO 1, and holds."""
    found = planned("dgx-h100:2", "dgx-a100-80gb:2", model="llama3-70b", batch="1024")
    best = found.plans[0].parallelism
    assert max(s.cp for g in best.groups for s in g.stages) > 1
    assert (best.zero_stage, best.dp_shard) == (1, max(g.width * s.cp for g in best.groups for s in g.stages))


# ---- the command line ------------------------------------------------------------------------------------------------


def test_a_mixed_plan_is_shown_written_and_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    asked = "plan gpt2-medium --cluster ws-4xrtx6000:1 --cluster t4-4:1 --pin pp=5 --batch 64"
    shown = ask(capsys, f"{asked} -o {file}")
    assert shown.code == 0
    for words in ("RTX-6000", "T4", "group=", "gap"):
        assert words in shown.out
    assert "no supported launcher can run this plan" in " ".join(shown.out.split())
    again = ask(capsys, f"explain {file}")
    assert again.code == 0
    assert "group=" in again.out


NODES = [
    ("A100:9", [(8, 1), (1, 1)]),
    ("A100:6", [(6, 1)]),
    ("A100:4", [(4, 1)]),
    ("RTX6000:8", [(4, 2)]),
    ("T4:7", [(4, 1), (3, 1)]),
    ("H100:20", [(8, 2), (4, 1)]),
]


NO_NODE = {"Dojo-D1"}
"""Accelerators that nobody can rent or buy, and that no runtime trains on."""


def test_every_accelerator_can_be_asked_for_or_is_refused_in_words() -> None:
    known = catalog.load()
    for name in known.accelerators:
        if name in NO_NODE:
            with pytest.raises(WrongQuestion, match=r"no node of the catalog holds it; .*--catalog DIR"):
                pooled.of_accelerators(known, f"{name}:8", None, None)
        else:
            assert sum(c.accelerators for c in pooled.of_accelerators(known, f"{name}:8", None, None)) == 8


@sweep(("text", "stand"), NODES)
def test_accelerators_stand_in_whole_nodes_and_a_part_of_one(text: str, stand: list[tuple[int, int]]) -> None:
    found = pooled.of_accelerators(catalog.load(), text, None, None)
    assert [(c.node.accelerators, c.count) for c in found] == stand


@sweep(("name", "meant"), [("A100-80GB", "A100-SXM4-80GB"), ("v100-32gb", "V100-SXM2-32GB"), ("80GB", "")])
def test_an_accelerator_may_be_named_by_family_and_size(name: str, meant: str) -> None:
    known = catalog.load()
    if meant:
        assert pooled.accelerator(known, name) == meant
    else:
        with pytest.raises(WrongQuestion, match="no such accelerator in a node"):
            pooled.accelerator(known, name)


def test_what_stands_for_accelerators_is_told() -> None:
    _, wanted, _ = pooled_request("gpt2", (), PlanOptions(accelerators="A100:9"))
    told = [what for what, _, flag in wanted.assumptions if flag == "--cluster"]
    assert len(told) == 2 and "1 of the 8 of a" in told[1]


@pytest.mark.slow
def test_a_model_that_fits_nowhere_has_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(capsys, "plan llama3.1-405b --cluster t4-4:1 --cluster ws-4xrtx6000:1")
    assert found.code == 1
    assert "t4-4" in found.err


PINS_OF_ONE_POOL = (
    "zero=3",
    "zero=2",
    "offload=optimizer",
    "vpp=2",
    "dp=2",
    "zero_scope=node",
    "schedule=interleaved-1f1b",
)


@sweep("pin", PINS_OF_ONE_POOL)
def test_pins_that_only_one_pool_can_have_are_not_ignored(pin: str) -> None:
    """No plan over several pools has them; where single pools answer, it is said why the others are left out."""
    axis = pin.partition("=")[0]
    known, wanted, pools = pooled_request("gpt2", SMALL, PlanOptions(pin=(pin,)))
    with pytest.raises(WrongQuestion, match=axis):
        prepared_pools.prepare(known, wanted, pools, wanted.batches[-1])


def test_a_pool_that_was_refused_is_told_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ask(capsys, "plan gpt2 --cluster ws-4xrtx6000:2 --cluster dgx-v100:1 --batch 64 --pin zero=2")
    assert shown.code == 0
    said = " ".join(shown.out.split())
    assert "excluded" in said and "plans over several pools have zero 0 or 1 only" in said
    assert "Suggested fix" not in said


def test_only_a_closed_gap_is_proven(mixed: PlanSet) -> None:
    assert mixed.search.proven_optimal == (mixed.search.gap == 0.0)
    assert mixed.search.gap > 0


# ---- pools -----------------------------------------------------------------------------------------------------------


def test_links_have_stated_defaults() -> None:
    _, _, pools = pooled_request("gpt2", ("dgx-v100:1", "ws-4xrtx6000:1", "t4-4:1@far"), PlanOptions())
    a, b, far = pools.all
    assert default_link(a, b).bandwidth == 25e9 / 8
    assert default_link(a, far).bandwidth == 10e9 / 8
    assert "assumed" in default_link(a, far).basis
    given = Pools(pools.all, {frozenset((a.name, b.name)): default_link(a, far)})
    assert given.link(b, a).bandwidth == 10e9 / 8


def test_merging_keeps_what_differs() -> None:
    _, _, pools = pooled_request("gpt2", ("dgx-v100:1", "dgx-v100:2", "dgx-v100:1@far"), PlanOptions())
    assert [p.count for p in merged(pools.all)] == [3, 1]


def test_the_deal_of_a_document_is_the_best(mixed: PlanSet) -> None:
    """No other deal of a kind's layers has a faster slowest stage."""
    prepared = posed("llama2-13b", ("dgx-a100-40gb:2", "dgx-v100:2"), batch="128")
    for index in np.random.default_rng(0).integers(0, len(prepared.setting.kinds), 5):
        _, _, deal, of = found_pipeline(prepared, int(index))
        layers = int(prepared.figures[0].shape.layers)
        _, time = best_split(of, layers, 10**6)
        assert float(deal.slowest[0]) == pytest.approx(time / 10**6, rel=1e-4)


@pytest.mark.slow
def test_pools_that_a_link_names_stay_apart() -> None:
    """A link between two pools that are alike is not dropped by making them one."""
    link = "dgx-v100#1/dgx-v100#2=1 Gbit/s"
    _, _, pools = pooled_request("gpt2", ("dgx-v100:1", "dgx-v100:2"), PlanOptions(link=(link,)))
    assert [p.count for p in merged(pools.all, {name for pair in pools.given for name in pair})] == [1, 2]
    slow = planned("dgx-v100:1", "dgx-v100:1", link=("dgx-v100#1/dgx-v100#2=1 Mbit/s",)).plans[0]
    fast = planned("dgx-v100:1", "dgx-v100:1", model="gpt2-medium").plans[0]
    assert slow.prediction.step_time_s > fast.prediction.step_time_s


@pytest.mark.slow
def test_plans_of_one_pool_say_their_zone() -> None:
    found = planned("dgx-v100:1@a", "dgx-v100:2@b", batch="16")
    assert {pool.zone for each in found.plans for pool in each.cluster.pools} <= {"a", "b"}
