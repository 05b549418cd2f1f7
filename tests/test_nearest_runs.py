"""The measured runs that plans name: how far they are, what is said of them, and where they stand."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planner
from planner import catalog
from planner.base.errors import WrongQuestion
from planner.figures import nearest_runs
from planner.figures.nearest_runs import COLUMNS, DOUBLED, OTHER, NearbyRuns
from planner.report import recommendation
from planner.schema.plan import Plan
from tests.asking import ask


def shipped() -> NearbyRuns:
    return nearest_runs.read(catalog.load())


@cache
def megatron_plan() -> Plan:
    return planner.estimate("llama3-70b", "dgx-h100:16", tp=8, pp=4)[0]


def described(**changed: str | float) -> dict[str, Any]:
    """A run of Llama 3 70B on 128 H100, with some of it otherwise."""
    labels = {
        "lab": "NVIDIA",
        "name": "llama3-70b",
        "model": "8192x28672x64",
        "generation": "hopper",
        "precision": "bf16",
        "recompute": "none",
        "accelerator": "H100-SXM5-80GB",
        "runtime": "megatron-core",
        "kind": "dense",
        "method": "pretrain",
        "id": "one",
    }
    counts = {"accelerators": 128.0, "tp": 8.0, "pp": 2.0, "cp": 1.0, "ep": 1.0, "micro": 1.0}
    work = {"parameters": 70.6e9, "sequence": 8192.0, "batch": 256.0}
    return {**labels, **counts, **work, "measured_s": 10.0, "predicted_s": 11.0, "runs": 1.0, **changed}


def table(*rows: dict[str, Any]) -> NearbyRuns:
    return NearbyRuns({name: np.array([row[name] for row in rows]) for name in COLUMNS})


def test_a_run_of_the_table_is_its_own_nearest() -> None:
    runs = shipped()
    for index in range(0, len(runs.columns["id"]), 40):
        (nearest, *_) = nearest_runs.nearest(runs, runs.row(index))
        assert nearest.distance == 0.0
        assert nearest.model == runs.columns["name"][index] or nearest.how_near.startswith("same model")


def test_distance_is_symmetric_and_adds_labels_and_doublings() -> None:
    one, other = described(), described(precision="fp8", accelerators=512.0, tp=2.0)
    expected = OTHER["precision"] + 2.0 * DOUBLED["accelerators"] + 2.0 * DOUBLED["tp"]
    assert nearest_runs.distance(one, other) == pytest.approx(expected)
    assert nearest_runs.distance(other, one) == nearest_runs.distance(one, other)
    assert nearest_runs.distance(one, one) == 0.0


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, "same model, accelerator, runtime and layout"),
        ({"accelerators": 512.0, "tp": 4.0}, "same model, accelerator and runtime, 4 times the ranks"),
        ({"accelerators": 32.0}, "same model, accelerator and runtime, 1/4 of the ranks"),
        ({"accelerator": "VR200"}, "no run of this accelerator, same model"),
        ({"kind": "moe", "model": "4096x1x1"}, "no run of a mixture on this accelerator, llama3-70b"),
        ({"runtime": "fsdp2"}, "no run under this runtime, same model"),
        ({"model": "4096x1x1", "precision": "fp8"}, "llama3-70b, same accelerator, runtime and layout"),
    ],
)
def test_what_is_shared_is_said_in_words(changed: dict[str, Any], text: str) -> None:
    (nearest,) = nearest_runs.nearest(table(described()), described(**changed))
    assert nearest.how_near == text
    assert len(nearest.how_near) <= nearest_runs.LONGEST


def test_near_runs_are_said_of_a_usual_plan_and_none_of_an_announced_chip() -> None:
    usual = megatron_plan().nearest_runs or ()
    assert usual[0].how_near.startswith("same model, accelerator and runtime")
    new = planner.estimate("mixtral-8x7b", "vr-nvl144:1", tp=8, batch=1440)[0].nearest_runs or ()
    assert new[0].how_near.startswith("no run of this accelerator")
    assert new[0].distance > usual[0].distance
    assert [run.distance for run in usual] == sorted(run.distance for run in usual)


def test_the_block_has_the_nearest_run_in_a_line_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ask(capsys, "plan llama3-70b --cluster dgx-h100:16").report
    block = shown.partition("Recommended")[2].partition("\n\n")[0].splitlines()
    assert len(block) <= 12 and max(map(len, block)) <= 80
    assert sum(line.startswith("Nearest run    NVIDIA, ") for line in block) == 1


def test_explain_names_three_with_their_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = megatron_plan()
    (tmp_path / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    shown = ask(capsys, f"explain {tmp_path / 'plan.json'}").report
    for run in plan.nearest_runs or ():
        assert recommendation.measured_elsewhere(run) in shown and f"({run.run})" in shown


def test_a_layout_is_thinned_to_its_median_error(tmp_path: Path) -> None:
    """Predicted over measured 1.3, 1.0 and 1.1: the last stands for all three, another lab's for itself."""
    rows = [described(id=str(n), micro=float(n), predicted_s=10.0 * e) for n, e in enumerate((1.3, 1.0, 1.1), 1)]
    nearest_runs.write(tmp_path, [*rows, described(lab="Meta", id="4")], "published.csv")
    layer = catalog.Catalog((catalog.CatalogLayer("own", tmp_path),))
    runs = nearest_runs.read(layer)
    assert list(runs.columns["id"]) == ["3", "4"] and list(runs.columns["runs"]) == [3.0, 1.0]
    assert runs.row(0)["predicted_s"] == 11.0


def test_a_run_of_two_layers_is_the_later_ones(tmp_path: Path) -> None:
    for name, predicted_s in (("first", 11.0), ("second", 12.0)):
        nearest_runs.write(tmp_path / name, [described(predicted_s=predicted_s)], "published.csv")
    layers = tuple(catalog.CatalogLayer(name, tmp_path / name) for name in ("first", "second"))
    assert list(nearest_runs.read(catalog.Catalog(layers)).columns["predicted_s"]) == [12.0]


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nearest_runs").mkdir()
    (tmp_path / "nearest_runs" / "mine.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(WrongQuestion, match="expected columns lab, name"):
        nearest_runs.read(catalog.Catalog((catalog.CatalogLayer("own", tmp_path),)))
