"""Plans trained for real: exported, started by ``start.sh`` with torchrun and gloo on CPU, every loss as alone."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from planner import api
from planner.launchers import bundle, parts, write
from planner.schema.plan import Plan
from tests.launchers.conformance import kept
from tests.launchers.environments import python
from tests.launchers.spread import alike

SCRIPT = Path(__file__).resolve().parent / "train.py"
CLOSE = 1e-5
"""Largest difference of a loss from the same step of one process."""
NODES = {2: "ws-2xrtx4090", 4: "lambda-4x-a6000"}
"""Ranks -> a node of the catalog with as many."""
CASES = {
    "DDP": (2, "zero=0 micro=2", "pytorch-ddp"),
    "DDP, accumulated": (4, "zero=0", "pytorch-ddp"),
    "FSDP2": (2, "micro=4", "fsdp2"),
    "FSDP2 x 4": (4, "micro=2", "fsdp2"),
    "TP": (2, "tp=2 micro=2", "fsdp2"),
    "TP x FSDP2": (4, "tp=2", "fsdp2"),
    "PP": (2, "pp=2", "megatron-core"),
    "PP x DP": (4, "pp=2 zero=0", "megatron-core"),
    "uneven PP": (4, "pp=4 zero=0", "megatron-core"),
}
"""Name -> ranks, what is asked, runtime."""


def asked(ranks: int, settings: str, runtime: str) -> Plan:
    """A plan for one node of so many ranks."""
    return api.estimate("gpt2", f"{NODES[ranks]}:1", settings.split(), runtime=runtime, batch="8", seq=16).plans[0]


def train(whole: Plan, folder: Path, **environment: str) -> tuple[list[float], list[float]]:
    """Losses of the exported job, and of one process."""
    interpreter = python("torchrun")
    made = bundle(whole, parts("torchrun"), {"script": str(SCRIPT), "master-port": str(29600 + os.getpid() % 1000)})
    write(folder, {"": made})
    known = os.environ | {"PATH": f"{interpreter.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"} | environment
    sizes = [pool.accelerators_per_node for pool in whole.cluster.pools for _ in range(pool.count)]
    found = []
    for name, command, nodes in (
        ("together", ["bash", "start.sh"], sizes),
        ("alone", [str(interpreter), str(SCRIPT)], [1]),
    ):
        here = known | {"LOSSES": str(folder / name), "CLUSTERWRIGHT_PLAN": "plan.json", "MASTER_ADDR": "127.0.0.1"}
        running = []
        for rank, each in enumerate(nodes):  # this machine plays all nodes
            ranked = here | {"NODE_RANK": str(rank), "NPROC_PER_NODE": str(each)}
            with (folder / f"{name}-{rank}.log").open("w", encoding="utf-8") as log:
                running.append(subprocess.Popen(command, cwd=folder, env=ranked, stdout=log, stderr=log))
        try:
            for rank, process in enumerate(running):
                code = process.wait(timeout=300)
                assert code == 0, (folder / f"{name}-{rank}.log").read_text(encoding="utf-8")[-3000:]
        finally:
            for process in running:
                process.terminate()
                process.wait(timeout=60)
        found.append(json.loads((folder / name).read_text(encoding="utf-8")))
    return found[0], found[1]


def apart(together: list[float], alone: list[float]) -> float:
    assert len(together) == len(alone) > 3
    return max(abs(a - b) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_one_process(name: str, tmp_path: Path) -> None:
    python("torchrun")
    whole = asked(*CASES[name])
    if name == "uneven PP":
        sizes = (2, 4, 4, 2)
        stages = tuple(replace(s, layers=n) for s, n in zip(whole.parallelism.stages, sizes, strict=True))
        whole = replace(whole, parallelism=replace(whole.parallelism, stages=stages))
    together, alone = train(whole, tmp_path / "job")
    assert alone[-1] < alone[0], "it learns nothing"
    print(f"{name}: {apart(together, alone):.1e} apart")
    assert apart(together, alone) <= CLOSE


SPANNING = {
    "3 stages, 5, 4 and 3 layers": ("ws-2xrtx4090:1", "p5.4xlarge:1", 128, ("micro=2",)),
    "2 stages x 2": ("ws-2xrtx4090:1", "p5.4xlarge:2", 16, ("pp=2", "micro=1", "zero=0")),
}
"""Name -> two pools of few accelerators, sequence, pins; a step has as many micro-batches as stages, or more."""


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", SPANNING)
def test_pipelines_over_two_pools_train(name: str, turned: bool, tmp_path: Path) -> None:
    """What ``plan --launchable`` answers, in either order of the pools: each node starts its own ``start.sh``."""
    python("torchrun")
    first, second, sequence, pins = SPANNING[name]
    pools = (second, first) if turned else (first, second)
    whole = alike("gpt2", pools, batch="8", seq=sequence, pin=pins)
    assert {stage.pool for stage in whole.parallelism.stages} == {0, 1} and len(whole.parallelism.groups) == 1
    together, alone = train(whole, tmp_path / "job")
    print(f"{name}: {apart(together, alone):.1e} apart")
    assert apart(together, alone) <= CLOSE


def uneven_batches() -> Plan:
    """Two ranks on two pools, six sequences for one and two for the other."""
    whole = asked(*CASES["DDP"])
    (pool,) = whole.cluster.pools
    pools = tuple(replace(pool, node=name, accelerators_per_node=1) for name in ("fast", "slow"))
    return replace(
        whole,
        cluster=replace(whole.cluster, pools=pools),
        batch=replace(whole.batch, per_pool=(6, 2), micro=1, accumulation=1),
    )


def test_uneven_batches_are_weighted(tmp_path: Path) -> None:
    python("torchrun")
    whole = uneven_batches()
    # One machine plays both nodes.
    one = replace(whole.cluster.pools[0], accelerators_per_node=2)
    local = replace(whole, cluster=replace(whole.cluster, pools=(one,)))
    weighted = train(replace(local, batch=whole.batch), tmp_path / "weighted")
    assert apart(*weighted) <= CLOSE
    unweighted = train(replace(local, batch=whole.batch), tmp_path / "unweighted", WEIGHTED="0")
    assert apart(*unweighted) > 100 * CLOSE, "the check cannot fail"
    # The others are trained by the tests above.
    kept("torchrun", plans=len(CASES) + 2 * len(SPANNING) + 1, fields=len(weighted[0]), refused=1)
