"""Plans for lost nodes: the best on what is left by asking for every count, checked, exported, and refused in words."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from planner import planning
from planner.api import plans
from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.commands.command_line import main
from planner.question.plan_options import PlanOptions
from planner.question.reading import request
from planner.schema.plan import ContingencyPlan, PlanSet
from planner.verify.contingency import contingency_violations

NODES, MOST = 5, 2


@cache
def found() -> PlanSet:
    return plans.plan("llama3-8b", f"dgx-h100:{NODES}", batch=480, top=1, contingency=MOST)


def kept() -> tuple[ContingencyPlan, ...]:
    return found().contingency or ()


@pytest.mark.slow
def test_each_is_the_best_of_all_counts_that_are_left() -> None:
    known, wanted = request("llama3-8b", f"dgx-h100:{NODES}", PlanOptions(batch=480, top=1))
    alone = {}
    for count in range(1, NODES):
        try:
            there = replace(wanted, counts=(count,), cluster=replace(wanted.cluster, count=count))
            alone[count] = planning.best(known, there)[0].prediction.step_time_s
        except ClusterwrightError:
            continue
    assert [each.lost_nodes for each in kept()] == [1, 2]
    for each in kept():
        left = {count: step for count, step in alone.items() if count <= NODES - each.lost_nodes}
        assert each.plan.prediction.step_time_s == pytest.approx(min(left.values()), rel=1e-9)
        assert each.plan.prediction.step_time_s > found().plans[0].prediction.step_time_s
        assert each.plan.batch.global_ == 480
        # 8.03 G parameters in bf16 with fp32 master weights and two states: 14 bytes each, a GB a second and node.
        nodes = each.plan.cluster.pools[0].count
        assert each.reshard_s == pytest.approx(600 + 8.03e9 * 14 / (nodes * 2e12 / 2048), rel=1e-3)


def test_what_does_not_go_on_is_found() -> None:
    first, second = kept()
    assert contingency_violations(found()) == []
    for wrong in (
        (second, first),
        (replace(first, plan=found().plans[0]), second),
        (replace(first, reshard_s=1.0), second),
        (replace(first, checkpoint_bytes=1e9), second),
        (replace(first, plan=replace(first.plan, batch=replace(first.plan.batch, global_=960))), second),
    ):
        assert contingency_violations(replace(found(), contingency=wrong)), wrong[0].lost_nodes


def test_a_launcher_gets_the_next_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = tmp_path / "plan.json", tmp_path / "next"
    file.write_text(found().to_json(), encoding="utf-8")
    assert main(["export", str(file), "--to", "megatron", "--lost", "1", "-o", str(folder)]) == 0
    written = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file())
    p = kept()[0].plan.parallelism
    assert f"tensor-model-parallel-size {p.tp}" in written or f'tensor-model-parallel-size", "{p.tp}"' in written
    capsys.readouterr()
    assert main(["export", str(file), "--to", "megatron", "--lost", "3", "-o", str(folder)]) == 2
    assert "no plan for 3 lost nodes; it has those for 1 to 2" in capsys.readouterr().err


@pytest.mark.slow
def test_what_cannot_be_lost_is_said() -> None:
    with pytest.raises(WrongQuestion, match="nodes that may be lost: from 1 to 1 of 2 nodes"):
        plans.plan("llama3-8b", "dgx-h100:2", top=1, contingency=2)
    with pytest.raises(WrongQuestion, match="one node leaves none"):
        plans.plan("llama3-8b", "dgx-h100:1", top=1, contingency=1)
    with pytest.raises(WrongQuestion, match="contingency: of the best plan on one pool"):
        plans.plan("llama3-8b", ["dgx-h100:1", "dgx-a100-80gb:1"], contingency=1)


def test_the_recommended_plan_is_the_one_that_goes_on() -> None:
    """Plans for lost nodes follow the plan that is run, whether it is the first or not."""
    other = replace(found().plans[0], rank=2, batch=replace(found().plans[0].batch, global_=960))
    two = replace(found(), plans=(*found().plans, other))
    assert contingency_violations(two) == []
    assert any("batch" in each.says for each in contingency_violations(replace(two, recommended=2)))
