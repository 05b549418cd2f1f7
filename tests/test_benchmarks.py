"""The benchmarks run, say what they promise, and measure what they claim to. Nothing here is timed."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import design_points, measure, mixed, mixed_runs, uneven_batches
from benchmarks.spaces import SPACES, Space, posed, tiny, values
from planner.axes import AXES, OPTION_AXES
from planner.axes.options import DIMENSIONS, Point
from planner.axes.table import OFFLOAD
from planner.cost.figures import Array
from planner.search import branch_and_bound, costing
from planner.search.problem import SearchProblem
from tests.sweeps import sweep

ROOT = Path(__file__).resolve().parent.parent
PROBLEM_KEYS = {
    "name",
    "candidates",
    "feasible",
    "costed",
    "cpu_s",
    "candidates_per_cpu_s",
    "proven_top20_cpu_s",
    "peak_bytes",
}
_each_space = sweep("space", SPACES, ids=lambda space: space.name)


def _printed(name: str) -> dict[str, Any]:
    line = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--tiny", "--json"]
    document = json.loads(subprocess.run(line, capture_output=True, check=True, text=True).stdout)
    assert set(document["machine"]) == {"cores", "loop_s", "python", "numpy"}
    return document


@pytest.mark.slow
@pytest.mark.thorough
def test_search_speed_prints_its_problems_and_their_axes() -> None:
    document = _printed("search_speed")
    assert document["same"] is True
    assert [problem["name"] for problem in document["problems"]] == list(document["axes"])
    assert len(document["problems"]) == len(SPACES)
    for problem in document["problems"]:
        assert set(problem) >= PROBLEM_KEYS
        assert 0 < problem["costed"] < problem["candidates"]
        assert 0 < problem["feasible"] < problem["candidates"]
    for axes in document["axes"].values():
        assert set(axes["values"]) == set(AXES)


@pytest.mark.slow
@pytest.mark.thorough
def test_scaling_prints_layouts_and_seconds() -> None:
    rows = _printed("scaling")["searches"]
    assert {row["accelerators"] for row in rows} == {64, 128}
    keys = {"model", "accelerators", "layouts", "candidates", "feasible", "costed", "cpu_s"}
    assert all(set(row) == keys for row in rows)


@pytest.mark.slow
def test_design_points_prints_what_the_estimate_of_a_study_is_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    design_points.main(["--tiny", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["machine"].keys() >= {"POINT_S", "ROW_S", "TABLE_ROW_S"}
    assert all(row["searched"] >= row["layouts"] > 0 and row["point_ms"] > 0 for row in document["rows"])


@pytest.mark.slow
def test_command_line_prints_seconds_of_both_commands() -> None:
    rows = _printed("command_line")["commands"]
    assert [row["command"] for row in rows] == ["--help", "plan llama3-70b --cluster dgx-h100:16"]
    assert all(row["cpu_s"] > 0 for row in rows)


def test_a_table_aligns_its_columns() -> None:
    printed = measure.table(
        [{"name": "one", "size": 12345, "seconds": 0.5}, {"name": "three", "size": 6, "same": True}]
    )
    assert printed.splitlines() == ["name     size  seconds", "one    12,345    0.500", "three       6      yes"]


@pytest.mark.slow
@sweep("name", ["search_speed", "scaling", "command_line", "many_configurations"])
def test_without_json_a_table_is_printed(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(module, "measured", lambda *_: {"name": "one", "same": True})
    module.main(["--tiny"])
    printed = capsys.readouterr().out
    assert printed.startswith("cores ")
    assert "\none    yes\n" in printed


@_each_space
def test_a_space_is_large(space: Space) -> None:
    assert posed(space.question()).candidates >= 1e7


@pytest.mark.slow
@_each_space
def test_no_feasible_candidate_is_below_the_bound(space: Space) -> None:
    problem = posed(tiny(space).question())
    for index, block in enumerate(problem.blocks):
        ready = costing.table(problem, index)
        bounds = branch_and_bound.survey(problem, index, ready).value
        for rows in np.array_split(np.arange(block.height), -(-block.height // 64)):
            found = costing.cost(ready, rows)
            values = np.where(
                found.memory <= problem.capacity, found.time * problem.targets[index].weight[rows], np.inf
            )
            assert (bounds[rows] <= values.reshape(-1, len(rows)).min(axis=0)).all()


@pytest.mark.slow
@_each_space
def test_every_option_changes_some_cost_or_memory(space: Space) -> None:
    problem = posed(space.question())
    distinct: set[tuple[str, object, object]] = set()
    pairs: set[tuple[str, object, object]] = set()
    for index, block in enumerate(problem.blocks):
        arrays = _some_rows(problem, index)
        for dimension, axis in enumerate(DIMENSIONS):
            for (i, one), (j, other) in combinations(enumerate(block.axes.on(axis)), 2):
                pairs.add((axis, one, other))
                if any(_differ(array, dimension, i, j) for array in arrays):
                    distinct.add((axis, one, other))
    for index, (plain, offloading) in enumerate(pairwise(problem.blocks)):  # apart, as not all ZeRO stages offload
        shared = [s for s in offloading.axes.on("sharding") if s in plain.axes.on("sharding")]
        if shared and (plain.axes[OFFLOAD], offloading.axes[OFFLOAD]) == ((0.0,), (1.0,)):
            pairs.add(("offload", (0.0,), (1.0,)))
            if any(not np.array_equal(*both) for both in _offloaded(problem, index, shared)):
                distinct.add(("offload", (0.0,), (1.0,)))
    assert pairs
    apart = {"ep_overlap", "cp_algorithm"}  # of other layouts; tests/test_overlap.py and test_context.py compare them
    assert {axis for axis, *_ in pairs} | apart >= {
        AXES[axis].dimension for axis, listed in values(problem).items() if _is_option(axis, listed)
    }
    assert distinct == pairs


def _offloaded(problem: SearchProblem, index: int, shared: list[Point]) -> Iterator[tuple[Array, Array]]:
    """Times, then memories, of a block and of the next, which offloads the optimizer, under the shardings of both."""
    axis = tuple(DIMENSIONS).index("sharding")
    blocks = [_some_rows(problem, each) for each in (index, index + 1)]
    places = [[problem.blocks[each].axes.on("sharding").index(s) for s in shared] for each in (index, index + 1)]
    for found in zip(*blocks, strict=True):
        one, other = (np.take(array, at, axis) for array, at in zip(found, places, strict=True))
        yield one, other


def _is_option(axis: str, listed: list[object]) -> bool:
    return AXES[axis] in OPTION_AXES and len(listed) > 1


def _some_rows(problem: SearchProblem, index: int) -> tuple[Array, Array]:
    """Times and memories of a few layouts of a block under every option."""
    block = problem.blocks[index]
    rows = np.unique(np.linspace(0, block.height - 1, 12).astype(int))
    found = costing.cost(costing.table(problem, index), rows)
    shape = (*block.axes.shape, len(rows))
    return np.broadcast_to(found.time, shape), np.broadcast_to(found.memory, shape)


def _differ(array: Array, dimension: int, i: int, j: int) -> bool:
    return not np.array_equal(np.take(array, i, dimension), np.take(array, j, dimension))


@pytest.mark.slow
@pytest.mark.thorough
def test_a_procurement_is_measured_step_by_step() -> None:
    row = _printed("procure")["procurement"]
    assert row["gap"] <= 0.01
    assert {"columns_cpu_s", "columns_wall_s", "solve_cpu_s", "solve_wall_s", "peak_bytes"} <= row.keys()
    assert 0 < row["undominated"] < row["columns"]


@pytest.mark.slow
@pytest.mark.thorough
def test_mixed_prints_gaps_and_what_simpler_plans_take() -> None:
    (row,) = _printed("mixed")["problems"]
    assert row["gap"] <= 0.02
    assert row["step_s"] <= row["even_step_s"] and row["step_s"] <= row["best_pool_step_s"]
    assert sum(row["breakdown"].values()) == pytest.approx(row["step_s"])


@pytest.mark.slow
def test_uneven_batches_trains_on_the_models_that_are_shipped() -> None:
    (row,) = _printed("uneven_batches")["workloads"]
    assert row["ours_s"] < row["even_adaptive_s"] < row["even_fixed_s"]


def test_uneven_batches_fits_a_table(tmp_path: Path) -> None:
    """On a made-up table of exact lines, the batch sizes left out are predicted exactly."""
    table = tmp_path / "steps.csv"
    lines = ["source,app,gpu_pool,placement_gpus_per_node,local_bsz,step_time_s,sync_time_s"]
    for app, pool in [(a, p) for a in uneven_batches.APPS for p in uneven_batches.POOLS]:
        lines += [f"made up,{app},{pool},1,{b},{0.01 * b + 0.05 + 0.002},0.002" for b in (4, 8, 16, 32, 64, 128)]
    table.write_text("\n".join(lines), encoding="utf-8")
    errors = [e for measured in uneven_batches.steps_of(table).values() for e in uneven_batches.fitted(measured)[1]]
    assert len(errors) == 3 * len(uneven_batches.APPS) * len(uneven_batches.POOLS)
    assert max(errors) < 1e-9


def test_a_table_of_steps_that_is_none_is_refused_kindly(tmp_path: Path) -> None:
    wrong = tmp_path / "other.csv"
    wrong.write_text("a,b\n1,2\n", encoding="utf-8")
    for path, says in ((tmp_path / "none.csv", "No such file"), (wrong, "not the table of measured steps")):
        line = [sys.executable, str(ROOT / "benchmarks" / "uneven_batches.py"), str(path)]
        done = subprocess.run(line, capture_output=True, check=False, text=True)
        assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_mixed_run_is_predicted_better_the_more_is_known() -> None:
    """The first run, 2 machines and 2 stages: with its network within a tenth, and so with measured layers."""
    document = _printed("mixed_runs")
    errors = {row["told"]: abs(row["error"]) for row in document["runs"]}
    told = ["catalog alone", "and the software", "and the network", "and measured layers instead"]
    alone, software, network, layers = (errors[name] for name in told)
    assert alone > software > network and max(network, layers) < 0.1
    for row in document["runs"]:
        parts = ("layers", "transfers", "fill", "reductions", "update", "rest")
        assert sum(row[name] for name in parts) == pytest.approx(row["step"])


def test_mixed_runs_are_cut_as_their_table_says() -> None:
    found = {run.name: run for run in mixed_runs.runs()}
    assert len(found) == 8 and "N6_D2" not in found
    assert all(sum(run.layers) == 24 for run in found.values())
    assert found["N4_D2"].pipelines == (("RTX-3090", "Titan-RTX"), ("RTX-2080", "RTX-2080"))


def test_images_are_shared_by_what_each_accelerator_does() -> None:
    row = mixed.images()
    used = row["used"]
    assert isinstance(used, dict) and sum(images for _, images in used.values()) == 1024
    each = {name: images / n for name, (n, images) in used.items()}
    assert each["A100-SXM4-40GB"] > each["V100-SXM2-16GB"] > each["RTX-6000"]
    assert isinstance(row["breakdown"], dict) and sum(row["breakdown"].values()) == pytest.approx(row["step_s"])
    assert row["below_even"] > 0 and row["below_best_pool"] > 0
