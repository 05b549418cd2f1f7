"""Shortlists: which plans, in which order, started how, and what is learned from running them."""

import json
import os
import subprocess
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clusterwright as cw
from benchmarks import learning
from planner.base.errors import NoAnswer, WrongQuestion
from planner.calibration.fit.frame import Frame
from planner.calibration.report.prediction_errors import same_job
from planner.calibration.runs import reading
from planner.catalog import load
from planner.commands.command_line import main
from planner.figures.efficiency import Efficiencies
from planner.planning import order, shortlist
from planner.planning.shortlist import ShortlistOptions
from planner.schema.plan import MeasuredSection, Plan, PlanSet
from planner.site import cells
from tests import training_logs as logs
from tests.sweeps import sweep


@cache
def listed() -> PlanSet:
    return cw.plan("llama3-8b", "dgx-h100:2", batch=128, shortlist=4, to="megatron+slurm", pin="cp=1")


@cache
def ranked() -> tuple[Plan, ...]:
    """Best first, as a search finds them."""
    plans = cw.plan("llama3-8b", "dgx-h100:2", batch=128, top=60, pin="cp=1").plans
    return tuple(sorted(plans, key=lambda plan: plan.money.days))


RUN: dict[str, Any] = {
    "runs": 1,
    "ran_out": 0,
    "step_time_s": 1.0,
    "predicted_s": 1.0,
    "half_width": 0.03,
    "memory_bytes": None,
}


def options(count: int = 5, **more: object) -> ShortlistOptions:
    return replace(ShortlistOptions(count=count, able=lambda plan: True), **more)  # type: ignore[arg-type]


@pytest.mark.slow
def test_no_two_plans_are_twins() -> None:
    families = [shortlist.family(plan) for plan in listed().plans]
    assert len(set(families)) == len(families) == 4
    assert [plan.rank for plan in listed().plans] == [1, 2, 3, 4]


@pytest.mark.slow
def test_the_best_of_each_family_stands_for_it() -> None:
    for place in shortlist.pick(ranked(), options()):
        twins = [i for i, plan in enumerate(ranked()) if shortlist.family(plan) == shortlist.family(ranked()[place])]
        assert place == min(twins)


@pytest.mark.slow
def test_order_is_by_prediction_beyond_ties_and_by_simplicity_within() -> None:
    picked = [ranked()[place] for place in shortlist.pick(ranked(), options(8))]
    tried = [plan for plan in picked if not order.seldom_measured(plan)]
    for first, second in pairwise(tried):
        earlier, later = first.money.days, second.money.days
        if later < earlier:
            assert earlier <= later * (1 + order.TIED)
            assert order.kinds(first) <= order.kinds(second)
    best = min(plan.money.days for plan in ranked() if not order.seldom_measured(plan))
    assert picked[0] is tried[0] and picked[0].money.days <= best * (1 + order.TIED)


@pytest.mark.slow
def test_near_what_was_measured_comes_first_among_ties() -> None:
    plans = tuple(replace(plan, money=replace(plan.money, days=1.0)) for plan in ranked())
    for target in plans[:20]:
        recommended, nearest = shortlist.pick(plans, options(2, measured=(target,)))
        assert recommended == order.recommended(plans)
        assert shortlist.distance(plans[nearest], target) == min(
            shortlist.distance(plans[i], target) for i in shortlist.pick(plans, options(60)) if i != recommended
        )


def test_another_zero_stage_is_no_twin() -> None:
    plan = ranked()[0]
    other = replace(plan, parallelism=replace(plan.parallelism, zero_stage=3 - plan.parallelism.zero_stage))
    assert sorted(shortlist.pick([plan, other, plan], options(3))) == [0, 1]


def test_what_was_run_or_cannot_be_started_is_left_out() -> None:
    run = replace(ranked()[0], measured=MeasuredSection(**RUN))
    plans = (run, *ranked()[1:])
    assert 0 not in shortlist.pick(plans, options(60))
    able = shortlist.pick(ranked(), options(60, able=lambda plan: plan.parallelism.tp == 1))
    assert able and all(ranked()[place].parallelism.tp == 1 for place in able)


def test_a_shortlist_says_what_it_is() -> None:
    about = listed().shortlist
    assert about is not None and about.target == "megatron+slurm"
    assert about.regret == {str(k): share for k, share in shortlist.REGRET[2].items() if k <= 4}
    assert json.loads(listed().to_json())["shortlist"]["tied"] == order.TIED


@sweep(
    ("asked", "error", "message"),
    [
        ({"to": "megatron"}, WrongQuestion, "to names what must start the plans of a shortlist"),
        ({"shortlist": 0}, WrongQuestion, "shortlist=0: must be from 1 to 30"),
        ({"shortlist": 2, "to": "slrum"}, WrongQuestion, "no target 'slrum'"),
        (
            {"shortlist": 2, "to": "deepspeed", "pin": "cp=2", "runtime": "megatron-core"},
            NoAnswer,
            "no plan is left for a shortlist",
        ),
        ({"shortlist": 2, "accelerators": "A100:4,V100:4"}, WrongQuestion, "shortlist: of plans on one pool"),
    ],
)
def test_wrong_questions(asked: dict[str, object], error: type[Exception], message: str) -> None:
    cluster = () if "accelerators" in asked else "dgx-h100:1"
    with pytest.raises(error, match=message):
        cw.plan("llama3-8b", cluster, batch=64, **asked)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_target_that_is_a_framework_has_its_plans_ranked(capsys: pytest.CaptureFixture[str]) -> None:
    found = cw.plan("llama3-8b", "dgx-h100:1", batch=64, shortlist=2, to="torchtitan+slurm")
    assert {plan.runtime.name for plan in found} == {"fsdp2"}
    asked = ["plan", "llama3-8b", "--cluster", "dgx-h100:1", "--batch", "64", "--shortlist", "1", "--to", "torchtitan"]
    assert main([*asked, "--runtime", "megatron-core"]) == 0
    said = capsys.readouterr().out
    assert "started by torchtitan, which runs fsdp2: predicted is megatron-core (--runtime fsdp2)" in said
    assert main(asked) == 0
    assert "which runs" not in capsys.readouterr().out


# ---- running it ------------------------------------------------------------------------------------------------------


STUB = """#!/usr/bin/env bash
# Stands in for torchrun: prints what Megatron-LM does, fails or runs out of memory as the folder's name says.
case "$PWD" in
  *rank-2) echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.'; exit 1;;
  *rank-3) echo 'NCCL error'; exit 1;;
esac
cat "$LOG_OF_A_RUN"
"""


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the runs of a shortlist without a scheduler, and a torchrun that only prints."""
    monkeypatch.chdir(tmp_path)
    found = cw.plan("llama3-8b", "dgx-h100:1", batch=128, shortlist=3, to="megatron")
    cw.export(found, "megatron", "trial", set={"megatron-lm": "/opt/megatron"}, benchmark=True)
    stub = tmp_path / "bin" / "torchrun"
    stub.parent.mkdir()
    stub.write_text(STUB)
    stub.chmod(0o755)
    (tmp_path / "a.log").write_text("\n".join(logs.megatron([3.5 * time for time in logs.STEADY])))
    return tmp_path / "trial"


@pytest.mark.slow
def test_runs_go_on_when_one_fails_and_are_learned_from(
    trial: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    run = {"PATH": path, "NODE_RANK": "0", "MASTER_ADDR": "localhost", "LOG_OF_A_RUN": str(tmp_path / "a.log")}
    found = subprocess.run(["bash", "benchmark.sh"], cwd=trial, env=os.environ | run, capture_output=True, text=True)
    said = found.stdout.splitlines()
    assert said[1::2] == ["rank-1: done", "rank-2: ran out of memory", "rank-3: failed; see rank-3/train.log"]
    assert found.returncode == 1
    assert main(["init", "site", "lab"]) == 0
    assert main(["learn", "trial/rank-1/train.log", "trial/rank-2/train.log", "--site", "lab", "--accept"]) == 0
    assert main(["learn", "trial/rank-3/train.log", "--site", "lab"]) == 2
    again = cw.plan("llama3-8b", "dgx-h100:1", batch=128, top=30, site="lab")
    first, second = (cw.load(trial / f"rank-{n}" / "plan.json") for n in (1, 2))
    assert isinstance(first, Plan) and isinstance(second, Plan)
    keys = {cells.key(cells.of_plan(plan)): plan for plan in again.plans}
    measured = keys[cells.key(cells.of_plan(first))].measured
    assert measured is not None and measured.step_time_s == 14.0
    assert cells.key(cells.of_plan(second)) not in keys


def test_nothing_is_started_while_a_placeholder_stands(trial: Path) -> None:
    script = trial / "rank-2" / "start.sh"
    script.write_text(script.read_text().replace("/opt/megatron", "<megatron-lm>"))
    found = subprocess.run(["bash", "benchmark.sh"], cwd=trial, capture_output=True, text=True)
    assert (found.returncode, "started" in found.stdout) == (2, False)
    assert "rank-2/start.sh" in found.stdout and "<megatron-lm>" in found.stdout and "fill these in" in found.stderr


def words(folder: Path) -> list[str]:
    return [str(word) for word in json.loads((folder / "target.json").read_text())["argv"]]


@pytest.mark.slow
def test_fifty_steps_need_no_data_and_leave_no_checkpoint(trial: Path) -> None:
    argv = words(trial / "rank-1")
    assert argv[argv.index("--train-iters") + 1] == "50"
    assert argv[argv.index("--vocab-size") + 1] == "128255"
    assert "--mock-data" in argv and argv.count("--tokenizer-type") == 1
    # Without an interval Megatron stops when it counts the samples of evaluations, also of none.
    assert argv.count("--eval-iters") == 1 and int(argv[argv.index("--eval-interval") + 1]) > 0
    assert not {"--save", "--load", "--save-interval", "--data-path", "--tokenizer-model"} & set(argv)
    assert json.loads((trial / "rank-1" / "target.json").read_text())["placeholders"] == {}


def test_slurm_waits_for_each_job(folder: Path) -> None:
    written = cw.export(listed(), "megatron+slurm", benchmark=True)
    script = written.bundles[""].files["benchmark.sh"]
    assert "sbatch --wait --time=30 --output=train.log job.sbatch" in script
    assert [line for line in script.splitlines() if line.startswith("measure rank")] == [
        f"measure rank-{n}" for n in (1, 2, 3, 4)
    ]


@pytest.mark.slow
def test_torchtitan_reads_no_data_and_no_tokenizer() -> None:
    found = cw.plan("llama3-8b", "dgx-h100:1", batch=64, runtime="fsdp2", shortlist=1, to="torchtitan")
    made = cw.export(found, "torchtitan", benchmark=True).bundles[""]
    argv = json.loads(made.files["target.json"])["argv"]
    assert argv[argv.index("--training.steps") + 1] == "50"
    assert f"{argv[argv.index('--module') + 1]}.py" in made.files and not made.missing
    assert not any(word.startswith(("--checkpoint", "--dataloader", "--hf_assets")) for word in argv)


@sweep(
    ("target", "message"),
    [
        ("megatron+jobset", "jobs of jobset are not waited for"),
        (
            "torchrun+slurm",
            "torchrun has no data of its own; megatron, megatron-bridge, primus, torchtitan, maxtext and hf",
        ),
        ("astra-sim", "astra-sim runs no training"),
    ],
)
def test_what_no_benchmark_is_written_for(target: str, message: str) -> None:
    with pytest.raises(WrongQuestion, match=message):
        cw.export(listed(), target, benchmark=True)


# ---- what it is worth ------------------------------------------------------------------------------------------------


def test_figures_of_the_page_and_of_reports_are_the_benchmarks() -> None:
    figures = json.loads(learning.FIGURES.read_text())["kinds"]
    assert len(figures) == len(shortlist.REGRET)
    for kind, shares in zip(figures.values(), shortlist.REGRET.values(), strict=True):
        assert kind["regret"]["our shortlist"] == {str(k): share for k, share in shares.items()}
    assert learning.page() == learning.PAGE.read_text(encoding="utf-8")


def test_three_runs_find_a_fast_plan_of_published_jobs() -> None:
    document = json.loads(learning.FIGURES.read_text())
    assert document["kinds"]["one node"]["regret"]["our shortlist"]["3"] <= 0.04
    assert document["several"]["without_worst"]["3"] <= 0.02
    for kind in document["kinds"].values():
        other = kind["regret"]["TPE, given our predictions"]
        assert all(share <= other[k] for k, share in kind["regret"]["our shortlist"].items() if k in ("2", "3"))


@sweep(("nodes", "kind"), [(1, 1), (2, 2), (15, 2), (16, shortlist.MANY_NODES), (64, 16)])
def test_what_a_list_is_worth_is_that_of_as_many_nodes(nodes: int, kind: int) -> None:
    plan = listed().plans[0]
    pools = tuple(replace(pool, count=nodes) for pool in plan.cluster.pools)
    found = shortlist.regret([replace(plan, cluster=replace(plan.cluster, pools=pools))] * 3)
    assert found == {str(k): share for k, share in shortlist.REGRET[kind].items() if k <= 3}


@pytest.mark.slow
def test_a_run_that_ends_without_memory_counts_as_the_slowest() -> None:
    measured = job().frame.measured
    ended = replace(job(), frame=copy(job().frame))
    ended.frame.measured = np.where(measured == measured.min(), np.nan, measured)
    assert ended.taken.max() == np.nanmax(ended.frame.measured) and np.isfinite(ended.taken).all()
    assert (ended.taken[measured == measured.min()] == measured.max()).all()


@cache
def job() -> learning.Job:
    catalog = load()
    runs = [run for run in reading.read(learning.RUNS, catalog) if run.source == "vtrain-single" and run.measured]
    own = [run for run in runs if run.covered and same_job(run) == same_job(runs[0])]
    frame, using = Frame(catalog, own), Efficiencies.of(catalog)
    return learning.Job("one node", frame, using, learning._order(frame, using))


@pytest.mark.slow
@sweep("name", learning.POLICIES)
def test_every_policy_runs_every_plan_once(name: str) -> None:
    policy, _ = learning.POLICIES[name]
    order: Iterator[int] = policy(job(), 0)
    assert sorted(order) == list(range(len(job().frame.runs)))
