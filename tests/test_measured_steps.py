"""The script that times real training steps: its rows are ones that `validate` reads, and it runs."""

import csv
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import measured_steps
from benchmarks.measured_steps import SEQUENCES, SHAPES, Case, arguments, cases, columns, row
from planner import catalog
from planner.axes.table import RECOMPUTE
from planner.calibration.runs import reading
from planner.models.parameters import parameters
from planner.models.workload import library

ROOT = Path(__file__).resolve().parent.parent
FOUND = {"seconds": 0.75, "reserved": 40e9, "allocated": 36e9}
_with_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed here (make test-real)"
)


def test_the_cases_span_shapes_lengths_and_recomputation() -> None:
    found = list(cases(tiny=False))
    assert len(SHAPES) >= 6 and len(SEQUENCES) == 2
    assert len(found) == len({case.id for case in found}) == 4 * len(SHAPES)
    assert {case.micro * case.sequence for case in found} == {measured_steps.TOKENS}
    assert len({case.id for case in (*found, *cases(tiny=False, compiled=True))}) == 8 * len(SHAPES)


def test_every_shape_leaves_room_on_a_device_of_80_gb() -> None:
    # Weights, gradients and two AdamW states in fp32.
    assert all(16 * parameters(case.model).total < 65e9 for case in cases(tiny=False))


def test_the_rows_are_runs_that_can_be_predicted(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    every = [*cases(tiny=False), *cases(tiny=False, compiled=True)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns())
        writer.writeheader()
        writer.writerows(row(case, FOUND, "NVIDIA H200", "2.13.0") for case in every)
    found = reading.read(path, catalog.load())
    for case, run in zip(every, found, strict=True):
        assert run.covered, run.reason
        assert run.workload is not None and run.cluster is not None
        assert run.workload.model.layers == case.model.layers
        assert parameters(run.workload.model).total == parameters(case.model).total
        assert run.cluster.accelerator.id == "H200-SXM-141GB"
        assert (run.runtime, run.mode) == ("fsdp2", "" if case.compiled else "eager")
        assert run.measured == 0.75 and run.measured_bytes == 40e9 and run.memory_measured
        variant = run.variants[0]
        assert variant.layout["micro"] == case.micro and variant.layout["batch"] == 2 * case.micro
        assert variant.options[RECOMPUTE].layers == float(case.recompute)


def test_a_run_out_of_memory_says_so_and_has_no_time(tmp_path: Path) -> None:
    case = Case(library()["mpt-1b"], 2048, 4, False)
    cells = row(case, dict.fromkeys(FOUND), "NVIDIA H200", "2.13.0")
    assert cells["metric"] == "oom"
    assert cells["step_time_s"] == cells["value"] == cells["memory_gb_per_gpu"] == ""
    path = tmp_path / "steps.csv"
    measured_steps._add(path, cells)
    measured_steps._add(path, cells | {"id": "other"})
    assert measured_steps._done(path) == {case.id, "other"}
    assert all(run.out_of_memory for run in reading.read(path, catalog.load()))


def test_the_options_are_read() -> None:
    options = arguments(["--tiny", "--device", "cpu", "-o", "rows.csv", "--compile"])
    assert options.tiny and options.compiled
    assert (options.device, options.output) == ("cpu", Path("rows.csv"))
    assert arguments([]).device == "cuda"


def test_without_torch_one_sentence_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit, match=r"needs PyTorch: pip install"):
        measured_steps.main(["--tiny", "--device", "cpu"])


@_with_torch
def test_tiny_steps_run_on_a_processor(tmp_path: Path) -> None:
    output = tmp_path / "steps.csv"
    line = [sys.executable, str(ROOT / "benchmarks" / "measured_steps.py"), "--tiny", "--device", "cpu"]
    line += ["--only=-16-", "-o", str(output)]
    printed = subprocess.run(line, capture_output=True, check=True, text=True).stdout.splitlines()
    rows = [json.loads(text) for text in printed]
    assert len(rows) == 2 * len(SHAPES)
    assert all(list(one) == columns() and one["step_time_s"] > 0 for one in rows)
    again = subprocess.run(line, capture_output=True, check=True, text=True)
    assert again.stdout == ""
    assert len(output.read_text(encoding="utf-8").splitlines()) == 1 + len(rows)


@_with_torch
def test_the_network_has_the_parameters_that_the_library_counts() -> None:
    import torch

    from benchmarks import transformer

    for case in cases(tiny=True):
        with torch.device("meta"):
            network = transformer._network(case.model, case.sequence, case.recompute)
        held = sum(parameter.numel() for parameter in network.parameters())
        assert held == parameters(case.model).total
