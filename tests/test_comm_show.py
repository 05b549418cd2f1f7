"""``comm show``: the calls of a step are what its predicted time is made of."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from planner import api, catalog, cost
from planner.base.errors import WrongQuestion
from planner.comm.calls_of_one_pool import CAUSES, grid_of, listed
from planner.cost import calls, collective_times, nccl_algorithms
from planner.planning import document
from tests.asking import ask, refused
from tests.plans import QUESTIONS, plans
from tests.sweeps import sweep

CATALOG = catalog.load()


@sweep("name", QUESTIONS, every=2, ci=2)
def test_what_is_exposed_adds_up_to_the_breakdown(name: str) -> None:
    for plan in plans(name).plans:
        found = listed(plan, CATALOG)
        for cause in CAUSES:
            told = plan.prediction.breakdown.get(cause, 0.0)
            mine = sum(call.exposed_s for call in found if call.cause == cause)
            assert math.isclose(mine, told, rel_tol=1e-9, abs_tol=1e-15), (plan.rank, cause)
        again = sum(call.exposed_s for call in found if call.cause == "recompute")
        assert again <= plan.prediction.breakdown.get("recompute", 0.0) * (1 + 1e-9)
        assert {call.cause for call in found} <= {*CAUSES, "recompute"}


@sweep("name", QUESTIONS, every=2, ci=2)
def test_without_overlap_all_of_it_shows(name: str) -> None:
    plan = plans(name).plans[0]
    grid = grid_of(plan, CATALOG, "plan")
    off = dict.fromkeys(("tp_overlap", "dp_overlap", "p2p_overlap", "cp_overlap", "ep_overlap"), 0.0)
    bare = replace(grid, stack=replace(grid.stack, **off), options=replace(grid.options, dp_overlap=0.0))
    parts = cost.breakdown(bare)
    for cause in CAUSES:
        found = [call for call in calls.calls(bare) if call.cause == cause]
        assert sum(c.alone_s for c in found) == pytest.approx(float(parts[cause]), rel=1e-9), cause


@pytest.mark.slow
def test_calls_say_where_they_run() -> None:
    plan = next(plan for plan in plans("alternating-mixture").plans if plan.parallelism.pp > 1)
    found, cut = {(c.op, c.group): c for c in listed(plan, CATALOG)}, plan.parallelism
    assert found["all-gather", "tp"].where == "domain" and found["all-gather", "tp"].inside == cut.tp > 1
    exchange = found["all-to-all", "ep"]
    assert (exchange.ranks, exchange.where) == (cut.ep, "rail") and exchange.inside < exchange.ranks
    assert found["reduce-scatter", "dp"].where == "spine"


def test_figures_of_another_catalog_are_refused(tmp_path: Path) -> None:
    plan = plans("dense").plans[0]
    parts = plan.prediction.breakdown
    other = replace(plan, prediction=replace(plan.prediction, breakdown=parts | {"tp": 2 * parts["tp"]}))
    with pytest.raises(WrongQuestion, match="give the catalog that it was made with"):
        listed(other, CATALOG, "x.json")


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.json").write_text(document.as_json(plans("dense")), encoding="utf-8")
    answer = ask(capsys, "comm show plan.json")
    assert answer.code == 0 and "reduce-scatter" in answer.out and "clusterwright comm choose plan.json" in answer.out
    told = json.loads(ask(capsys, "comm show plan.json --json").out)
    parts = plans("dense").plans[0].prediction.breakdown
    assert all(told["exposed_s"][cause] == pytest.approx(parts[cause]) for cause in CAUSES if cause in parts)
    assert "no plan of rank 99" in refused(capsys, "comm show plan.json --rank 99")
    assert "no such file" in refused(capsys, "comm show nowhere.json").lower()
    assert "nowhere.csv: No such file" in refused(capsys, "comm choose plan.json --table nowhere.csv")
    Path("one.json").write_text(json.dumps({"kind": "nonsense"}), encoding="utf-8")
    assert "kind is 'nonsense'" in refused(capsys, "comm show one.json")


LAB = """
count = 2
[node]
extends = "dgx-h100"
nics = 4
[fabric]
name = "Our network"
kind = "roce"
nic_bandwidth = "100 Gbit/s"
latency = "9 us"
topology = "fat-tree"
leaf_nodes = 16
[accelerator]
memory_bandwidth = "3.0 TB/s"
"""


def test_a_plan_on_a_cluster_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("lab.toml").write_text(LAB, encoding="utf-8")
    assert ask(capsys, "plan llama3.2-1b --cluster lab.toml --pin cp=1,micro=1 --top 1 -o plan.json").code == 0
    for verb in ("show plan.json", "choose plan.json"):
        assert "(--cluster lab.toml)" in refused(capsys, f"comm {verb}")
    answer = ask(capsys, "comm show plan.json --cluster lab.toml")
    assert answer.code == 0 and "clusterwright comm choose plan.json --cluster lab.toml --table" in answer.out
    parts = json.loads(Path("plan.json").read_text(encoding="utf-8"))["plans"][0]["prediction"]["breakdown"]
    told = json.loads(ask(capsys, "comm show plan.json --cluster lab.toml --json").out)
    assert told["exposed_s"]["dp"] == pytest.approx(parts["dp"]) and parts["dp"] > 0
    chosen = ask(capsys, "comm choose plan.json --cluster lab.toml -o ruled.json")
    assert chosen.code == 0 and "clusterwright comm show ruled.json --cluster lab.toml" in chosen.out
    assert ask(capsys, "comm show ruled.json --cluster lab.toml").code == 0


@sweep(
    ("line", "other", "said"),
    [
        ("count = 2", "count = 5", ""),  # The plan says how many nodes it takes.
        ("100 Gbit/s", "50 Gbit/s", "and the cluster's file, if it was made from one"),
        ('[node]\nextends = "dgx-h100"', '[node]\nextends = "dgx-a100-80gb"', "its node is"),
    ],
    every=2,
)
def test_another_cluster_file_is_told_apart(
    line: str,
    other: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lab.toml").write_text(LAB, encoding="utf-8")
    assert ask(capsys, "plan llama3.2-1b --cluster lab.toml --pin cp=1,micro=1 --top 1 -o plan.json").code == 0
    Path("lab.toml").write_text(LAB.replace(line, other), encoding="utf-8")
    question = "comm show plan.json --cluster lab.toml"
    if said:
        assert said in refused(capsys, question)
    else:
        assert ask(capsys, question).code == 0


def test_a_network_named_beside_a_cluster_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("lab.toml").write_text(LAB, encoding="utf-8")
    assert ask(capsys, "plan llama3.2-1b --cluster lab.toml --fabric efa-v2 --top 1 -o plan.json").code == 0
    assert ask(capsys, "comm show plan.json --cluster lab.toml").code == 0


# ---- networks of dimensions ------------------------------------------------------------------------------------------

POD = """
count = 16
[node]
extends = "tpu-v5p-4"
[fabric]
name = "A pod of our own"
kind = "ici"
topology = "torus"
nic_bandwidth = "4800 Gbit/s"
latency = "1 us"
leaf_nodes = 2048
dimension1 = { topology = "ring", size = 4, bandwidth = "200 GB/s", latency = "1 us" }
dimension2 = { topology = "torus", size = 4, bandwidth = "100 GB/s", latency = "1 us" }
dimension3 = { topology = "switch", size = 4, bandwidth = "50 GB/s", latency = "2 us" }
"""
BOXES = POD.replace("tpu-v5p-4", "dgx-h100").replace("size = 4", "size = 8", 1)
PODS = {
    "dense": (POD, "llama3-8b", ("tp=4",)),
    "shards": (POD, "llama3-8b", ("zero=3",)),
    "experts": (BOXES, "mixtral-8x7b", ("ep=8",)),
    "stages": (BOXES, "llama3-70b", ("tp=4", "pp=4")),
}


@sweep("name", PODS)
def test_over_dimensions_calls_are_what_the_step_is_made_of(name: str, tmp_path: Path) -> None:
    file = tmp_path / "pod.toml"
    text, model, pins = PODS[name]
    file.write_text(text, encoding="utf-8")
    own = [catalog.cluster_from_file(file, CATALOG)]
    plan = api.plan(model, str(file), pin=pins, top=1).plans[0]
    found, grid = listed(plan, CATALOG, "plan", own), grid_of(plan, CATALOG, "plan", own)
    assert found and {call.where for call in found} == {"dimensions"} and all(call.bytes > 0 for call in found)
    for cause in CAUSES:
        mine = sum(call.exposed_s for call in found if call.cause == cause)
        assert mine == pytest.approx(plan.prediction.breakdown.get(cause, 0.0), rel=1e-9, abs=1e-12), cause
    for call in found:  # The table of algorithms says the same of a call as the step does.
        if call.cause == "tp":
            group = collective_times.group(grid.network, float(call.ranks), 1.0)
            ((how, seconds),) = nccl_algorithms.times(grid.network, call.op, call.bytes, group).items()
            assert how == (nccl_algorithms.BY_DIMENSION, "")
            assert float(seconds) == pytest.approx(call.alone_s / call.count, rel=1e-9), call


@pytest.mark.slow
@sweep("op", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
def test_over_dimensions_there_is_one_algorithm(op: str, tmp_path: Path) -> None:
    (tmp_path / "pod.toml").write_text(POD, encoding="utf-8")
    own = catalog.cluster_from_file(tmp_path / "pod.toml", CATALOG)
    grid = grid_of(api.plan("llama3-8b", str(tmp_path / "pod.toml"), top=1).plans[0], CATALOG, "plan", [own])
    step = {"all-reduce": collective_times.all_reduce, "all-to-all": collective_times.all_to_all}.get(
        op, collective_times.gather
    )
    for n, stride in ((4.0, 1.0), (8.0, 2.0), (4.0, 16.0)):
        group = collective_times.group(grid.network, n, stride)
        (seconds,) = nccl_algorithms.times(grid.network, op, 2.0**28, group).values()
        assert float(seconds) == float(step(grid.network, 2.0**28, group))
        with pytest.raises(ValueError, match="ranks along each"):
            nccl_algorithms.times(grid.network, op, 2.0**28, replace(group, spans=None))
    assert not nccl_algorithms.times(grid.network, op, 2.0**28, group, among=nccl_algorithms.NCCL_ALGORITHMS)


def test_over_dimensions_no_algorithm_of_nccl_is_claimed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pod.toml").write_text(
        POD.replace("tpu-v5p-4", "dgx-h100").replace("size = 4", "size = 8", 1), encoding="utf-8"
    )
    assert ask(capsys, "plan llama3-70b --cluster pod.toml --top 1 -o plan.json").code == 0
    shown = ask(capsys, "comm show plan.json --cluster pod.toml")
    assert shown.code == 0 and "nccl" not in shown.out and "dimensions" in shown.out
    assert "not on dimensions" in refused(capsys, "comm choose plan.json --cluster pod.toml")
