"""Plans over several pools that a launcher starts: pipelines of one kind that fill their nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import api, verify
from planner.commands import main
from planner.errors import NoAnswer
from planner.export import facts
from planner.export.bundle import trainers
from planner.mixed import alike, document, problem, settling
from planner.mixed.problem import Prepared
from planner.schema.plan import Plan
from tests.asking import ask


def posed(clusters: tuple[str, ...], **asked: Any) -> Prepared:
    known, wanted, pools = api.pooled_request("gpt2-medium", clusters, api.Asked(**asked))
    return problem.prepare(known, wanted, pools, wanted.batches[-1])


def starts(plan: Plan) -> bool:
    """Whether a launcher that numbers ranks node after node can start it, as the exporters see it."""
    return not list(facts.stages_fill_pools(plan))


@pytest.mark.parametrize(
    ("clusters", "batch", "policy", "binds"),
    [
        (("ws-4xrtx6000:3", "t4-4:1"), 35, "none", True),
        (("dgx-v100:1", "t4-4:3"), 35, "none", True),
        (("t4-4:1", "ws-4xrtx6000:2"), 64, "full", False),
    ],
)
def test_it_is_the_best_that_an_exporter_takes(clusters: tuple[str, ...], batch: int, policy: str, binds: bool) -> None:
    """Against every number of bundles of every kind, written down and shown to the exporters, best first."""
    prepared = posed(clusters, batch=str(batch), pins=(f"recompute={policy}",))
    kinds, found = prepared.setting.kinds, []
    limits = np.array(prepared.setting.offer.nodes) * prepared.setting.offer.per_node
    for index in np.flatnonzero(np.all(kinds.usage > 0, axis=-1)):
        for copies in range(1, int(np.min(limits // kinds.usage[index])) + 1):
            plan = settling.settle(prepared.setting, np.array([index]), np.array([copies]))
            if plan is not None:
                found.append(plan)
    found.sort(key=lambda plan: plan.value)
    catalog = api.load(None)
    wanted = next(plan for plan in found if starts(document.plan(catalog, prepared, plan, 1)))
    mine = alike.best(prepared, (0, 1))
    assert mine is not None and mine.value == pytest.approx(wanted.value, rel=1e-9)
    assert (mine.value > found[0].value * (1 + 1e-9)) is binds


@pytest.mark.parametrize(
    ("model", "clusters", "asked"),
    [
        ("llama3.2-3b", ("dgx-a100-80gb:2", "dgx-v100:2"), {}),
        ("llama3.2-3b", ("dgx-v100:2", "dgx-a100-80gb:2"), {}),
        ("llama3-8b", ("dgx-h100:2", "dgx-a100-80gb:4"), {"objective": "cost"}),
        ("mixtral-8x7b", ("dgx-h100:4", "dgx-a100-80gb:4"), {}),
    ],
)
def test_launchers_start_it_and_it_is_no_better_than_the_best(
    model: str, clusters: tuple[str, ...], asked: dict[str, Any]
) -> None:
    free, bound = (api.plan(model, clusters, launchable=each, **asked) for each in (False, True))
    together = [plan for plan in bound.plans if len(plan.cluster.pools) > 1]
    assert together and all("megatron" in trainers(plan)[0] for plan in together)
    assert all(verify.violations(plan) == [] for plan in together)
    best = [found.plans[0].money.usd_total if asked else found.plans[0].money.days for found in (free, bound)]
    assert best[1] is not None and best[0] is not None and best[1] >= best[0] * (1 - free.search.gap - 1e-9)
    assert bound.search.method.startswith("every plan of one kind") and bound.search.gap == 0.0
    # Each pool alone is answered as before.
    alone = [[p for p in found.plans if len(p.cluster.pools) == 1] for found in (free, bound)]
    assert {p.cluster.name: p.money.days for p in alone[1]}.items() >= {
        p.cluster.name: p.money.days for p in alone[0] if not p.parallelism.groups
    }.items()


def test_pools_are_numbered_along_the_pipeline() -> None:
    """In whatever order they are asked for: the same plan, and ranks pool after pool."""
    found = [
        api.plan("llama3.2-3b", pools, launchable=True).plans[0]
        for pools in (("dgx-a100-80gb:2", "dgx-v100:2"), ("dgx-v100:2", "dgx-a100-80gb:2"))
    ]
    assert found[0].prediction.step_time_s == pytest.approx(found[1].prediction.step_time_s)
    for plan in found:
        assert [stage.pool for stage in plan.parallelism.stages] == sorted(s.pool for s in plan.parallelism.stages)
        assert [p.node for p in plan.cluster.pools] == [p.node for p in found[0].cluster.pools]


def test_limits_hold_for_it_too() -> None:
    pools = ("dgx-a100-80gb:2", "dgx-v100:2")
    free = api.plan("llama3.2-3b", pools, launchable=True).plans[0]
    hours = free.money.days * 24
    kept = api.plan("llama3.2-3b", pools, launchable=True, deadline=f"{hours * 1.01:.1f} h").plans
    assert all(plan.money.days * 24 <= hours * 1.01 for plan in kept)
    with pytest.raises(NoAnswer):
        api.plan("llama3.2-3b", pools, launchable=True, deadline=f"{hours * 0.9:.1f} h")


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = "plan llama3.2-3b --cluster dgx-a100-80gb:2 --cluster dgx-v100:2"
    assert "--launchable asks for one that does" in ask(capsys, asked).out
    shown = ask(capsys, f"{asked} --launchable -o plan.json")
    assert "Starts    megatron" in shown.out
    ask(capsys, "export plan.json --to megatron+slurm -o job")
    assert list(Path("job").rglob("target.json"))
    plan = json.loads(Path("plan.json").read_text(encoding="utf-8"))["plans"][0]
    assert len(plan["parallelism"]["groups"]) == 1 and len(plan["cluster"]["pools"]) == 2


def test_with_one_pool_it_changes_nothing() -> None:
    with_it, without = (api.plan("gpt2-medium", "dgx-v100:2", launchable=each) for each in (True, False))
    assert with_it.plans == without.plans
    assert replace(with_it, meta=without.meta) == without
    assert main(["plan", "gpt2-medium", "--cluster", "dgx-v100:2", "--launchable"]) == 0
