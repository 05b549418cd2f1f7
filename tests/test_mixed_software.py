"""Plans over several pools under software that the question leaves open: older releases, other traits, other links."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner import api
from planner.mixed import answer, batch_shares, dependence, prepared_pools, releases, run
from planner.mixed.dependence import unbeaten
from planner.planning import document
from planner.question.plan_options import PlanOptions
from planner.question.several_pools import pooled_request
from planner.report.quantities import seconds
from planner.schema.plan import PlanSet
from tests.asking import ask
from tests.sweeps import sweep

UNLIKE = "A100:4,V100:4,RTX6000:8"
"""Where the best choice is the A100 alone, by little."""


def posed(model: str, accelerators: str, **asked: object):
    known, wanted, pools = pooled_request(model, (), PlanOptions(accelerators=accelerators, **asked))  # type: ignore[arg-type]
    return known, wanted, pools


@pytest.fixture(scope="module")
def close() -> PlanSet:
    return api.plan("gpt2-medium", accelerators=UNLIKE, batch="256")


# ---- an older release ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_figures_that_do_not_change_reprice_every_kind_of_pipeline_to_the_same_step() -> None:
    known, wanted, pools = posed("gpt2-medium", "T4:4,RTX6000:4", batch="64")
    prepared = prepared_pools.prepare(known, wanted, pools, 64)
    assert len(prepared.older) == 2, "the question states no release"
    rng, compared = np.random.default_rng(2), set()
    for index in rng.permutation(len(prepared.setting.kinds))[:60]:
        found = batch_shares.shortest_step(prepared.setting, np.array([index]), np.array([1]))
        if found is not None:
            assert releases._time(prepared, found, prepared.figures) == pytest.approx(found.time, rel=1e-12)
            compared.add(prepared.chains[int(prepared.setting.kinds.chain[index])])
    assert {len(chain) for chain in compared} == {1, 2}, "pipelines on one pool and on two"


@pytest.mark.slow
def test_an_older_release_of_a_mixed_plan_is_slower_on_young_accelerators() -> None:
    plan = api.plan("llama3-8b", ("dgx-b200:1", "dgx-h100:1"), batch="512", launchable=True, top=9).plans
    mixed = next(each for each in plan if len(each.cluster.pools) == 2)
    old = mixed.runtime.older
    assert old is not None and old.release == "2024" and old.lacks == ()
    assert old.step_time_s is not None and old.step_time_s > 1.02 * mixed.prediction.step_time_s


def test_an_older_release_that_lacks_what_a_mixed_plan_uses_says_so() -> None:
    known, wanted, pools = posed("gpt2-medium", "T4:4,RTX6000:4", batch="64")
    wanted = replace(wanted, older="2021", runtime=replace(wanted.runtime, releases=("2021", "2026")))
    prepared = prepared_pools.prepare(known, wanted, pools, 64)
    wide = int(np.flatnonzero(prepared.setting.kinds.width > 1)[0])
    found = batch_shares.shortest_step(prepared.setting, np.array([wide]), np.array([1]))
    assert found is not None
    old = answer.plan(prepared, found, 1).runtime.older
    assert old is not None and old.step_time_s is None and "zero=1" in old.lacks


def test_under_a_framework_of_unknown_name_a_mixed_plan_is_as_unsure_as_frameworks_are_apart() -> None:
    known, wanted, pools = posed("gpt2-medium", "T4:4,RTX6000:4", batch="64", runtime="any")
    prepared = prepared_pools.prepare(known, wanted, pools, 64)
    found = batch_shares.shortest_step(prepared.setting, np.array([0]), np.array([1]))
    assert found is not None and len(prepared.plausible) == len(wanted.runtime.between) > 3
    spread, alone = releases.time_spread(prepared, found), releases.time_spread(replace(prepared, plausible=()), found)
    times = [releases._time(prepared, found, figures) for figures in prepared.plausible]
    apart = 1.28 * float(np.std(np.log(times)))
    assert spread.half_width == pytest.approx(float(np.hypot(alone.half_width, apart))) and apart > 0.01
    assert spread.runs.startswith(alone.runs) and "any of megatron-core" in spread.runs


# ---- other traits and links ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_where_the_choice_of_pools_hangs_on_software_both_figures_are_told(close: PlanSet, tmp_path: Path) -> None:
    assert [pool.accelerator for pool in close.plans[0].cluster.pools] == ["A100-SXM4-40GB"]
    others = {each.supposed: each for each in close.reasons.other_software or ()}
    other = others["gradients reduced in 16 bit"]
    assert len(other.uses) > len(other.own_uses) and other.step_time_s < other.own_step_time_s
    (tmp_path / "runtimes").mkdir()
    (tmp_path / "runtimes" / "own.toml").write_text(
        '[narrow]\nname = "Gradients in 16 bit"\nextends = "megatron-core"\nmeasured_as = "megatron-core"\n'
        'gradient_wire_bytes = 2\nsource = "a test"\ndate = "2026-11"\n'
    )
    again = run.plan(*posed("gpt2-medium", UNLIKE, batch="256", runtime="narrow", catalog=tmp_path, top=9))
    assert again.plans[0].prediction.step_time_s == pytest.approx(other.step_time_s, rel=1e-6)
    own = next(each for each in again.plans if len(each.cluster.pools) == 1)
    assert own.prediction.step_time_s == pytest.approx(other.own_step_time_s, rel=1e-6)
    more = own.money.days / again.plans[0].money.days - 1.0
    assert other.own_more == pytest.approx(more, rel=1e-6) and more > dependence.LEAST


@pytest.mark.slow
@sweep(
    ("accelerators", "asked", "left_open"),
    [
        (UNLIKE, {}, {"gradients reduced in 16 bit", "gradients reduced in 16 bit, element-wise kernels not fused"}),
        ("T4:4,RTX6000:4", {}, set()),
        ("T4:4,A100:4", {"objective": "cost"}, set()),
    ],
    ci=2,
)
def test_what_bounds_alone_rule_out_no_search_finds(
    accelerators: str, asked: dict[str, object], left_open: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, wanted, pools = posed("gpt2-medium", accelerators, batch="256", **asked)
    answered = run.answered(known, wanted, pools)
    assert answered.first is not None
    monkeypatch.setattr(dependence, "unbeaten", lambda *_: False)
    mixed, still = len(answered.first.plan.cluster.pools) > 1, set()
    for case in dependence.supposed(known, wanted, pools, mixed=mixed):
        text, supposed, there = case
        singles = run.alone(known, supposed, pools.all)
        if unbeaten(known, supposed, there, answered.first, singles[0]):
            assert dependence._otherwise(known, case, answered.first, singles) is None
        else:
            still.add(text)
    assert still == left_open


@pytest.mark.slow
def test_a_stated_release_leaves_nothing_open(close: PlanSet) -> None:
    stated = api.plan("gpt2-medium", accelerators=UNLIKE, batch="256", runtime="megatron-core@2026.06")
    assert stated.reasons.other_software == ()
    assert stated.plans[0].prediction.step_time_s == close.plans[0].prediction.step_time_s


def test_one_trait_at_a_time_and_both() -> None:
    known, wanted, pools = posed("gpt2-medium", UNLIKE, batch="256")
    cases = {text: (asked, there) for text, asked, there in dependence.supposed(known, wanted, pools, mixed=True)}
    wire, kernels = "gradients reduced in 16 bit", "element-wise kernels not fused"
    assert list(cases) == [wire, kernels, f"{wire}, {kernels}", "12.5 Gbit/s a node between pools"]
    assert [case.runtime.gradient_wire_bytes for case, _ in cases.values()] == [2, 4, 2, 4]
    assert [dict(case.supposed) for case, _ in cases.values()] == [{}, {"vector": 1.8}, {"vector": 1.8}, {}]
    assert [len(there.given) for _, there in cases.values()] == [0, 0, 0, 3]


def test_links_that_were_given_stay_and_zones_may_be_joined_better() -> None:
    known, wanted, pools = pooled_request("gpt2-medium", ("dgx-h100:1@a", "dgx-v100:1@b"), PlanOptions(batch="256"))
    slower = [there for *_, there in dependence.supposed(known, wanted, pools, mixed=True)][-1]
    faster = [there for *_, there in dependence.supposed(known, wanted, pools, mixed=False)][-1]
    pair = frozenset(pool.name for pool in pools.all)
    assert slower.given[pair].bandwidth * 8 == 5e9 and faster.given[pair].bandwidth * 8 == 400e9
    assert slower.given[pair].latency == faster.given[pair].latency == pools.link(*pools.all).latency
    given = replace(pools, given={pair: pools.link(*pools.all)})
    assert all(there is given for *_, there in dependence.supposed(known, wanted, given, mixed=True))


@pytest.mark.slow
def test_the_screen_says_what_the_choice_depends_on(close: PlanSet, tmp_path: Path, capsys) -> None:
    path = tmp_path / "plan.json"
    path.write_text(document.as_json(close))
    shown = ask(capsys, f"explain {path}").out
    assert close.reasons.other_software
    first = close.reasons.other_software[0]
    figures = (
        first.supposed,
        " + ".join(first.uses),
        seconds(first.step_time_s),
        first.own_uses[0],
        seconds(first.own_step_time_s),
        "more time",
    )
    printed = " ".join(shown[shown.index("Depends on") : shown.index("Search")].split())
    assert [text for text in figures if text not in printed] == []
