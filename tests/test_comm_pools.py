"""``comm show`` and ``comm choose`` on plans over several pools: what their step is priced with, nothing else."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner import api, catalog, verify
from planner.base.errors import WrongQuestion
from planner.comm import calls_of_several_pools
from planner.comm.back_end_choice import ChooseOptions
from planner.comm.calls_of_one_pool import CAUSES, known_of, listed
from planner.comm.calls_of_several_pools import PoolCall
from planner.comm.routing.rules import rule_of
from planner.comm.run import modelled, with_rules
from planner.comm.tables import timing
from planner.comm.tables.measured_times import CollectiveMethod, TableJournal, TableRow, TimesTable
from planner.comm.tables.timing import PoolTables, placed
from planner.cost.calls import Call
from planner.launchers import nccl_tuner
from planner.planning import document
from planner.schema.plan import Plan
from planner.schema.reports import Communication
from tests.asking import ask, refused
from tests.sweeps import sweep

CATALOG = catalog.load()
QUESTIONS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    # Unlike pipelines, each on its own pool: gradients cross the link.
    "apart": ("llama3-8b", ("dgx-a100-80gb:2", "dgx-h100:1"), {}),
    # A slow link between zones, and leading dense layers before those with experts.
    "zones": (
        "llama3-8b",
        ("dgx-h100:1@east", "dgx-h100:1@west"),
        {"link": ("dgx-h100@east/dgx-h100@west=40 Gbit/s,200 us",)},
    ),
    # One kind of pipeline over both pools: activations cross it, gradients stay.
    "through": ("llama3-70b", ("dgx-h100:4", "dgx-a100-80gb:4"), {}),
    # Parts of nodes.
    "parts": ("llama3.2-1b", (), {"accelerators": "A100-SXM4-80GB:4,V100-SXM2-32GB:4"}),
}


@cache
def mixed(name: str) -> Plan:
    """The best plan of a question that is over several pools."""
    model, clusters, asked = QUESTIONS[name]
    found = api.plan(model, list(clusters), launchable=False, **asked)
    return next(plan for plan in found.plans if len(plan.cluster.pools) > 1)


def calls(plan: Plan) -> list[PoolCall]:
    return [call for call in listed(plan, CATALOG) if isinstance(call, PoolCall)]


@pytest.mark.slow
@sweep("name", QUESTIONS, every=2)
def test_what_paces_adds_up_to_the_breakdown(name: str) -> None:
    plan = mixed(name)
    found = calls(plan)
    for cause in CAUSES:
        mine = sum(call.exposed_s for call in found if call.paces and call.cause == cause)
        assert math.isclose(mine, plan.prediction.breakdown.get(cause, 0.0), rel_tol=1e-9, abs_tol=1e-12), cause
    assert all(call.pools and 0 <= call.exposed_s <= call.alone_s * (1 + 1e-9) for call in found)
    assert {call.pools for call in found if call.where == calls_of_several_pools.LINK} <= {(0, 1)}
    assert {i for call in found for i in call.pools} == {0, 1}


@sweep("name", QUESTIONS, every=2)
def test_every_stage_takes_what_the_plan_says(name: str) -> None:
    plan = mixed(name)
    stages, groups = calls_of_several_pools.times(known_of(plan, CATALOG, "plan"))
    for g, mine, whole in zip(plan.parallelism.groups, stages, groups, strict=True):
        assert mine == pytest.approx([s.time_s for s in g.stages], rel=1e-12)
        assert whole == pytest.approx(g.time_s, rel=1e-12)


def test_calls_say_which_pool_and_link() -> None:
    apart = calls(mixed("apart"))
    assert {c.pools for c in apart if c.cause == "dp"} == {(0, 1)}
    assert all(c.where == calls_of_several_pools.LINK for c in apart if c.cause == "dp")
    through = calls(mixed("through"))
    hops = [c for c in through if c.where == calls_of_several_pools.LINK]
    assert {c.group for c in hops} == {"pp"} and {c.pools for c in hops} == {(0, 1)}
    assert {c.pools for c in through if c.cause == "dp"} == {(0,), (1,)}
    assert sum(c.leads for c in hops) == 1, "one end stands for the link"


@sweep("name", QUESTIONS, every=2)
def test_faster_calls_are_a_faster_step(name: str) -> None:
    plan = mixed(name)
    known, found = known_of(plan, CATALOG, "plan"), calls(plan)
    step = plan.prediction.step_time_s
    assert calls_of_several_pools.stretched(known, found, lambda call: 1.0) == pytest.approx(step, rel=1e-9)
    half, none = (calls_of_several_pools.stretched(known, found, lambda call, r=r: r) for r in (0.5, 0.0))  # type: ignore[misc]
    assert none <= half <= step
    paced = calls_of_several_pools.stretched(known, found, lambda call: 1.0 if call.paces else 0.0)
    assert none <= paced <= step * (1 + 1e-12)
    # Reductions that are gone take what shows of them along, and the waiting for the slowest rank that they add.
    parts = plan.prediction.breakdown
    own = step - parts["optimizer"] - parts.get("overhead", 0.0)
    slowest = [g for g in plan.parallelism.groups if g.time_s == step]
    if len(slowest) == len(plan.parallelism.groups):
        gone = calls_of_several_pools.stretched(known, found, lambda call: float(call.cause != "dp"))
        assert step - gone == pytest.approx(parts["dp"] * own / (own - parts.get("jitter", 0.0)), rel=1e-6)


def test_figures_of_another_catalog_are_refused() -> None:
    plan = mixed("apart")
    first, *others = plan.parallelism.groups
    for other in (
        replace(first, stages=(replace(first.stages[0], time_s=2 * first.stages[0].time_s), *first.stages[1:])),
        replace(first, time_s=1.01 * first.time_s),
    ):
        wrong = replace(plan, parallelism=replace(plan.parallelism, groups=(other, *others)))
        with pytest.raises(WrongQuestion, match="give the catalog that it was made with"):
            listed(wrong, CATALOG, "x.json")
    pools = (replace(plan.cluster.pools[0], node="our-own"), *plan.cluster.pools[1:])
    with pytest.raises(WrongQuestion, match="the node 'our-own' of pool 1 is not in the catalog"):
        listed(replace(plan, cluster=replace(plan.cluster, pools=pools)), CATALOG, "x.json")


@pytest.mark.slow
def test_without_a_table_nccls_algorithms_are_chosen_pool_by_pool() -> None:
    plan = mixed("through")
    chosen, new = modelled(plan, CATALOG, "plan")
    verify.check(new, may_exceed_limits=True)
    assert chosen.saved_s == 0.0 and {rule.pools for rule in new.communication} == {(0,), (1,), (0, 1)}
    for call in calls(plan):
        rule = rule_of(new.communication, call.op, call.group, call.ranks, call.bytes, call.pools)
        assert rule is not None and rule.pools == call.pools


def test_rules_that_differ_by_pool_are_left_to_nccl_and_told() -> None:
    _, new = modelled(mixed("through"), CATALOG, "plan")
    assert not nccl_tuner.by_pool(replace(new, communication=[r for r in new.communication if r.pools == (0,)]))  # type: ignore[arg-type]
    first = next(rule for rule in new.communication if rule.op == "reduce-scatter" and rule.pools == (0,))
    other = replace(first, pools=(1,), protocol="ll" if first.protocol != "ll" else "simple")
    alike = replace(first, pools=(1,))
    for second, told in ((other, True), (alike, False)):
        plan = replace(new, communication=(first, second))
        assert (second in nccl_tuner.tuned(plan)) is not told
        assert any(loss.field == "communication.pools" for loss in nccl_tuner.loses(plan)) is told


# ---- tables ----------------------------------------------------------------------------------------------------------

SIZES = (4096, 2**20, 2**24, 2**27, 2**30, 2**33, 2**34)
OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv")


def table(rates: dict[str, float], rounds: int = 5) -> TimesTable:
    """Back end -> B/s; 20 us before."""
    return TimesTable(
        tuple(
            TableRow(CollectiveMethod(who), op, ranks, size, (2e-5 + size / rate) * (1 + 0.002 * number), number)
            for op in OPS
            for ranks in (2, 4, 8, 16)
            for size in SIZES
            for number in range(rounds)
            for who, rate in rates.items()
        )
    )


NCCL_FASTER, MPI_FASTER = {"nccl": 2e11, "mpich": 1e11, "gloo": 1e9}, {"nccl": 2e11, "mpich": 4e11, "gloo": 1e9}


def written(folder: Path, **tables: dict[str, float]) -> None:
    for name, rates in tables.items():
        TableJournal(folder / f"{name}.csv").add(table(rates).rows)


@pytest.mark.slow
def test_pools_whose_tables_differ_have_rules_of_their_own(folder: Path) -> None:
    written(folder, mine=NCCL_FASTER, theirs=MPI_FASTER)
    plan = mixed("apart")
    files = ["1=mine.csv", f"{plan.cluster.pools[1].node}=theirs.csv", "1/2=mine.csv"]
    chosen, new = with_rules(plan, CATALOG, files, ChooseOptions(switch_s=0.0), "plan")
    verify.check(new, may_exceed_limits=True)
    for call in calls(plan):
        rule = rule_of(new.communication, call.op, call.group, call.ranks, call.bytes, call.pools)
        assert rule is not None and rule.backend == ("mpich" if call.pools == (1,) else "nccl"), call
    assert 0 < chosen.saved_s <= sum(call.saved_s for call in chosen.calls)
    told = new.communication_choice
    assert told is not None and told.step_time_s == pytest.approx(plan.prediction.step_time_s - chosen.saved_s)
    assert all(one.saved_s == 0 for one, call in zip(told.calls, _leading(plan), strict=True) if not call.paces)


def _leading(plan: Plan) -> list[PoolCall]:
    return [call for call in calls(plan) if call.leads]


def test_one_table_needs_no_pools(tmp_path: Path) -> None:
    written(tmp_path, all=MPI_FASTER)
    _, new = with_rules(mixed("apart"), CATALOG, [str(tmp_path / "all.csv")], ChooseOptions(), "plan")
    assert {rule.pools for rule in new.communication} == {None}
    verify.check(new, may_exceed_limits=True)


@pytest.mark.slow
def test_gains_where_nobody_waits_move_nothing(folder: Path) -> None:
    written(folder, nccl=NCCL_FASTER, mpi=MPI_FASTER)
    plan = mixed("zones")
    paced = {call.pools for call in calls(plan) if call.paces and call.cause != "dp"}
    (slow,) = paced
    files = [f"{i + 1}={'nccl' if (i,) == slow else 'mpi'}.csv" for i in range(2)] + ["1/2=nccl.csv"]
    chosen, new = with_rules(plan, CATALOG, files, ChooseOptions(switch_s=0.0), "plan")
    assert chosen.off_critical_path and chosen.saved_s == 0.0 and {call.choice for call in chosen.calls} == {"nccl"}
    verify.check(new, may_exceed_limits=True)


def call(pools: Sequence[int]) -> Call:
    return Call("all-reduce", "dp", "dp", 8, 1, 8.0, "link", 2.0**24, 1.0, 1.0, 1.0, tuple(pools))


def test_a_group_over_unlike_accelerators_uses_what_both_have() -> None:
    one = table(NCCL_FASTER)
    found = PoolTables({(): one}, ("NVIDIA", "AMD", "Google"))
    names = {pools: {who.backend for who in found.look_up(call(pools))} for pools in ((0,), (1,), (2,), (0, 1), (0, 2))}
    both = {"mpich", "gloo"}
    assert names == {(0,): both | {"nccl"}, (1,): both | {"nccl"}, (2,): both, (0, 1): both, (0, 2): both}
    alike = PoolTables({(): one}, ("NVIDIA", "NVIDIA"))
    assert CollectiveMethod("nccl") in alike.look_up(call((0, 1))) and not alike.differ and found.differ


def test_a_link_that_nobody_measured_is_as_slow_as_the_slower_pool() -> None:
    found = PoolTables({(0,): table(NCCL_FASTER), (1,): table(MPI_FASTER)}, ("NVIDIA", "NVIDIA"))
    across_both = found.look_up(call((0, 1)))
    assert (
        across_both[CollectiveMethod("mpich")].seconds == found.look_up(call((0,)))[CollectiveMethod("mpich")].seconds
    )
    assert all(time.extrapolated for time in across_both.values())
    assert not any(time.extrapolated for time in found.look_up(call((0,))).values())
    assert timing.TOGETHER == ("nvidia", "amd")


def test_tables_are_named_by_pool() -> None:
    names = ("dgx-a100", "dgx-v100@west")
    assert placed("t.csv", names) == ((), "t.csv")
    assert placed("2=t.csv", names) == ((1,), "t.csv") == placed("dgx-v100@west=t.csv", names)
    assert placed("2/1=t.csv", names) == ((0, 1), "t.csv")
    for wrong in ("3=t.csv", "0=t.csv", "dgx-b=t.csv", "=t.csv"):
        with pytest.raises(WrongQuestion, match=r"1 \(dgx-a100\), 2 \(dgx-v100@west\)"):
            placed(wrong, names)


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = mixed("apart")
    Path("plan.json").write_text(document.as_json(plan), encoding="utf-8")
    written(folder, mine=MPI_FASTER, theirs=NCCL_FASTER)
    answer = ask(capsys, "comm show plan.json")
    assert (
        answer.code == 0
        and "Pools          1: 2 x dgx-a100-80gb; 2: 1 x dgx-h100" in answer.out
        and "1-2" in answer.out
    )
    told = json.loads(ask(capsys, "comm show plan.json --json").out)
    assert isinstance(document.parse_answer(told, "here", {"communication": Communication}), Communication)
    for cause in CAUSES:
        assert told["exposed_s"].get(cause, 0.0) == pytest.approx(plan.prediction.breakdown.get(cause, 0.0))
    assert {tuple(each["pools"]) for each in told["calls"]} == {(0,), (1,), (0, 1)}
    tables = "--table 1=mine.csv --table 2=theirs.csv --table 1/2=theirs.csv"
    chosen = ask(capsys, f"comm choose plan.json {tables} --switch 0s -o ruled.json")
    assert chosen.code == 0 and "saved" in chosen.out
    assert "mpich" in ask(capsys, "comm show ruled.json").out
    assert "which file? Write 1=FILE" in refused(capsys, "comm choose plan.json --table 1=")
    assert "a link joins two pools" in refused(capsys, "comm choose plan.json --table 2/2=mine.csv")
    Path("some.csv").write_text("backend,op,ranks,bytes,seconds\nnccl,all-gather,4,1048576,0.001\n", encoding="utf-8")
    lacking = refused(capsys, "comm choose plan.json --table 1=mine.csv --table 2=some.csv --table 1/2=mine.csv")
    assert "on pool 2" in lacking and lacking.rstrip().endswith("-o TABLE.csv")
    assert "no table for dgx-h100" in refused(capsys, "comm choose plan.json --table 1=mine.csv")
    assert "one for the same already" in refused(capsys, "comm choose plan.json --table mine.csv --table theirs.csv")
    broken = json.loads(Path("ruled.json").read_text(encoding="utf-8"))
    broken["communication"][0]["pools"] = [7]
    del broken["digest"]
    Path("broken.json").write_text(json.dumps(broken), encoding="utf-8")
    assert "there is no such pool as 8" in refused(capsys, "comm show broken.json")
