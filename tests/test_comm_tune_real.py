"""``comm tune`` with real processes: Gloo alone, Gloo and MPI in turns, interrupted and gone on with."""

import importlib.util
import sys
from pathlib import Path

import pytest

from planner.comm.tables import measured_times
from planner.comm.tables.measuring import BACKENDS, MeasureOptions, measure
from planner.commands.screen.render import progress

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "mpi4py")),
    reason="PyTorch or mpi4py is not installed here; make test-real installs them",
)
OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-recv")


def asked(**changes: object) -> MeasureOptions:
    usual = {"backends": ("gloo",), "ops": OPS, "sizes": (4, 4096), "ranks": (2,), "rounds": 2}
    return MeasureOptions(**(usual | changes))  # type: ignore[arg-type]


def test_gloo_and_mpi_take_turns_and_go_on(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    first = measure(asked(backends=("gloo", "mpi"), ranks=(2, 3)), path, progress)
    assert len(first.rows) == 2 * 2 * 2 * 2 * len(OPS)
    assert {row.candidate.backend for row in first.rows} == {"gloo", "mpich"}
    assert all(0 < row.seconds < 60 for row in first.rows)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-10]) + "gloo,,,all", encoding="utf-8")
    again = measure(asked(backends=("gloo", "mpi"), ranks=(2, 3)), path, progress)
    key = [(r.candidate, r.op, r.ranks, r.bytes, r.round) for r in again.rows]
    assert len(key) == len(set(key)) == len(first.rows)
    assert again.rows[: len(first.rows) - 10] == first.rows[:-10], "what was measured stays"
    assert measured_times.read(path).rows == again.rows


def test_gloo_needs_no_mpi(tmp_path: Path) -> None:
    found = measure(asked(), tmp_path / "table.csv", progress)
    assert len(found.rows) == 2 * 2 * len(OPS) and BACKENDS[0] == "gloo" and sys.executable
