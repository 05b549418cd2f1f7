"""``export --preflight``: the machines are checked before the job, against what the plan was priced with."""

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers import bundle, parts
from tests.launchers.environments import given
from tests.launchers.spread import Case, plan

DENSE = Case("megatron-core", "llama3-8b", "dgx-h100:2", "tp=2")
GIB = 2**30


def files(target: str, case: Case = DENSE) -> dict[str, str]:
    return dict(bundle(plan(case), parts(target), given(target.partition("+")[0]), before=True).files)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the exported check, on a machine whose PyTorch says that it has GPUs."""
    cuda = SimpleNamespace(is_available=lambda: True)
    torch = SimpleNamespace(cuda=cuda, distributed=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", torch.distributed)
    held: dict[str, Any] = {"__name__": "preflight"}
    exec(files("megatron")["preflight.py"], held)
    return held


def ranks(held: dict[str, Any], **other: Any) -> list[dict[str, Any]]:
    """Sixteen ranks as planned, the last of them otherwise."""
    usual = {"alike": {"accelerator": "NVIDIA H100 80GB HBM3", "software": "torch 2.13"}, "count": 8, "clock": "1500"}
    usual |= {"free": 79 * GIB, "whole": 79.6 * GIB, "rate": 600e12, "pool": held["POOLS"][0]}
    return [{**usual, "where": f"n{n // 8} rank {n}", **(other if n == 15 else {})} for n in range(16)]


def test_the_script_runs_before_the_job_with_the_plans_links() -> None:
    made = files("megatron+jobset")

    start = made["start.sh"]
    assert start.index("preflight.py") < start.index("PREFLIGHT:-") < start.index("exec torchrun")
    assert "'scaleup': 450000000000.0, 'adapters': 400000000000.0" in made["preflight.py"]
    assert "> preflight.py" in made["jobset.yaml"]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({}, None),
        ({"count": 7}, "n1 rank 15: 7 accelerators in its node (plan: 8)"),
        ({"free": 60 * GIB}, "n1 rank 15: 60.0 GiB free (plan: 80.0 GiB)"),
        ({"free": 73 * GIB, "whole": 74 * GIB}, None),  # as 22.5 GiB of an L4's 24
        ({"free": 39 * GIB, "whole": 39.5 * GIB}, "n1 rank 15: 39.0 GiB free (plan: 80.0 GiB)"),
        ({"alike": {"accelerator": "NVIDIA GH100", "software": "torch 2.13"}}, "(plan: H100-SXM5-80GB)"),
        ({"rate": 480e12, "clock": "1100"}, "n1 rank 15: 480 TFLOP/s at 1100 MHz (median rank: 600 TFLOP/s)"),
        ({"alike": {"accelerator": "NVIDIA H100 80GB HBM3", "software": "torch 2.12"}}, "torch 2.12 on 1 ranks"),
        ({"alike": {"accelerator": "NVIDIA A100-SXM4-80GB", "software": "torch 2.13"}}, "(plan: H100-SXM5-80GB)"),
    ],
)
def test_a_rank_that_is_not_as_planned_is_named(check: dict[str, Any], other: dict[str, Any], says: str | None) -> None:
    lines = list(check["wrong_with"](ranks(check, **other)))

    assert bool(lines) == (says is not None)
    assert says is None or any(says in line for line in lines), lines


def test_tpus_are_refused() -> None:
    with pytest.raises(WrongQuestion, match="--preflight: it measures by PyTorch and NCCL"):
        files("maxtext", Case("maxtext", "llama3-8b", "tpu-v5p-4:1", ""))


@pytest.mark.parametrize(
    ("target", "runtime", "option"),
    [
        ("megatron", "megatron-core", "--distributed-timeout-minutes 15 "),
        ("torchtitan", "fsdp2", "--comm.train_timeout_seconds 900"),
    ],
)
def test_collectives_may_take_as_long_as_the_steps_are(target: str, runtime: str, option: str) -> None:
    """Three steps of 290 s, and 30 s of a checkpoint; those of a second keep the launcher's own limit."""
    whole = plan(Case(runtime, "llama3-8b", "dgx-h100:2", "tp=2"))

    def start(step_s: float) -> str:
        goodput = replace(whole.money.goodput, checkpoint_blocks_s=30.0)
        prediction = replace(whole.prediction, step_time_s=step_s)
        changed = replace(whole, prediction=prediction, money=replace(whole.money, goodput=goodput))
        return bundle(changed, parts(target), given(target)).files["start.sh"].replace("\\\n", "") + " "

    assert option in start(290.0)
    assert option.split()[0] not in start(1.0)
