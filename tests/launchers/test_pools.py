"""Plans over several pools: every rank's stage stands on the nodes that the plan gives it, whoever starts the job.

Trainers number stages along the ranks, schedulers number ranks pool after pool. Pods' scripts run here in bash with a
stand-in for torchrun; Megatron's own view of the ranks needs its environment (``make test-launchers``).
"""

import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.launchers import EXPORTERS, bundle, parts
from planner.launchers.bundle import refusals
from planner.schema.plan import Plan
from tests.launchers.environments import ask, checkout, export, given, python
from tests.launchers.spread import ALIKE, EVERY, MIXED, alike, mixed
from tests.launchers.test_megatron_core import job

SPANNING: dict[str, Callable[[], Plan]] = {
    **{f"{model} on {' and '.join(pools)}": partial(alike, model, pools) for model, pools in ALIKE[::EVERY]},
    **{f"{model} on {' and '.join(pools)}": partial(mixed, model, pools) for model, pools in MIXED[1::EVERY]},
}
"""Plans of one kind of pipeline, every one of which spans all pools; made when a test first asks."""
STUB = """#!/usr/bin/env bash
while (($#)); do
  case "$1" in
    --nproc-per-node) each="$2" ;;
    --node-rank) rank="$2" ;;
    --master-addr) address="$2" ;;
    --nnodes) nodes="$2" ;;
  esac
  shift
done
echo "$rank $each $nodes $address"
"""
INDEX = {"jobset": "JOB_COMPLETION_INDEX", "volcano": "VC_TASK_INDEX"}
"""Starter -> the variable that tells a pod its number in its pool."""


def on_pools(whole: Plan) -> list[int]:
    """The pool of every rank, where nodes are numbered pool after pool."""
    return [n for n, p in enumerate(whole.cluster.pools) for _ in range(p.count * p.accelerators_per_node)]


@pytest.mark.parametrize("asked", SPANNING)
def test_the_plan_itself_fills_its_pools(asked: str) -> None:
    whole, p = SPANNING[asked](), SPANNING[asked]().parallelism
    each = p.tp * p.cp * p.dp
    assert len(whole.cluster.pools) == 2 and p.pp > 1
    assert [stage.pool for stage in p.stages for _ in range(each)] == on_pools(whole)


def pods(whole: Plan, name: str) -> list[tuple[int, dict[str, Any]]]:
    """(number in its pool, container) of every pod, pool after pool."""
    target = f"megatron+{name}"
    document = yaml.safe_load(bundle(whole, parts(target), given(target)).files[f"{name}.yaml"])["spec"]
    if name == "jobset":
        jobs = [group["template"]["spec"] for group in document["replicatedJobs"]]
        tasks = [(inner["parallelism"], inner["template"]) for inner in jobs]
        assert all(inner["completionMode"] == "Indexed" for inner in jobs)
    else:
        tasks = [(task["replicas"], task["template"]) for task in document["tasks"]]
    return [(n, template["spec"]["containers"][0]) for count, template in tasks for n in range(count)]


@pytest.mark.parametrize("name", INDEX)
@pytest.mark.parametrize("asked", SPANNING)
def test_pods_are_numbered_pool_after_pool(asked: str, name: str, tmp_path: Path) -> None:
    whole = SPANNING[asked]()
    (tmp_path / "torchrun").write_text(STUB, encoding="utf-8")
    (tmp_path / "torchrun").chmod(0o755)
    found = []
    for number, container in pods(whole, name):
        known = {"PATH": f"{tmp_path}:{os.environ['PATH']}", INDEX[name]: str(number)}
        words = [*container["command"][:2], container["command"][2].replace("$$", "$")]
        done = subprocess.run(words, env=known, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.splitlines()[-1].split())
    sizes = [p.accelerators_per_node for p in whole.cluster.pools for _ in range(p.count)]
    wanted = [[str(rank), str(each), str(len(sizes))] for rank, each in enumerate(sizes)]
    assert [words[:3] for words in found] == wanted
    assert len({words[3] for words in found}) == 1, "they would not meet"


@pytest.mark.parametrize("name", ["skypilot", "dstack", "trainjob", "pytorchjob"])
@pytest.mark.parametrize("asked", SPANNING)
def test_who_has_one_kind_of_node_says_so(asked: str, name: str) -> None:
    assert [*refusals(SPANNING[asked](), EXPORTERS[name])] == ["pools 2 (it has 1)"]


def test_megatron_puts_layers_and_ranks_where_the_plan_does(tmp_path: Path) -> None:
    """The layers of every stage by its own reading of the command, the ranks of every stage by its rank groups."""
    python("megatron")
    plans = [made() for made in SPANNING.values()]
    jobs = [export(whole, "megatron", tmp_path / str(number)) for number, whole in enumerate(plans)]
    cut = ask("megatron_core", [job(whole) for whole in plans], tmp_path)
    for whole, said in zip(plans, cut, strict=True):
        assert "error" not in said, said["error"]
        pools = on_pools(whole)
        dealt = [{pools[rank] for rank in ranks} for ranks in said["values"]["stages"]]
        assert dealt == [{stage.pool} for stage in whole.parallelism.stages]
    for whole, said in zip(plans, ask("megatron", jobs, tmp_path, checkout()), strict=True):
        assert "error" not in said, said["error"]
        layers = [stage.layers for stage in whole.parallelism.stages]
        even = [whole.workload.shape["layers"] // whole.parallelism.pp] * whole.parallelism.pp
        assert (said["values"]["chunks"] or even) == layers
