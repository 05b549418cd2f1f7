"""Measured runs that differ in one lever, and how well predictions compare them."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from planner.base import resources
from planner.calibration.report.prediction_errors import pairs
from planner.calibration.runs import reading
from planner.calibration.runs.measured_run import Run
from planner.catalog import load
from planner.schema.reports import LeverErrors
from tests.asking import ask
from tests.sweeps import sweep


@cache
def skills() -> tuple[Run, ...]:
    """The published runs in which one lever after the other was changed."""
    with resources.runs().open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "megatron-bridge-skills"]
    return tuple(run for row in rows if (run := reading.run_of(row, load())).measured)


def judged(runs: Sequence[Run], power: float = 1.0) -> dict[str, LeverErrors]:
    """By lever, where what is predicted is a power of what was measured."""
    measured = np.array([run.measured or np.nan for run in runs])
    return {each.lever: each for each in pairs(runs, measured**power, measured, "all")}


def test_runs_are_paired_that_differ_in_one_lever() -> None:
    found = {lever: each.pairs for lever, each in judged(skills()).items()}
    # Six and four runs recompute other modules, five offload other shares, two differ in overlap.
    assert found == {
        "overlap of experts' exchanges": 1,
        "what is recomputed": 15 + 6,
        "offloaded optimizer": 10,
        "all": 32,
    }


@sweep(("power", "ordered"), [(1.0, 1.0), (0.5, 1.0), (-1.0, 0.0), (0.0, 0.0)])
def test_order_and_ratio_are_those_of_the_predictions(power: float, ordered: float) -> None:
    runs = [run for run in skills() if run.id[-3:] in ("013", "017")]
    found = judged(runs, power)["offloaded optimizer"]
    ratio = (runs[1].measured or 0) / (runs[0].measured or 1)
    assert (found.pairs, found.apart, found.ordered) == (1, 1, ordered)
    assert found.ratio_error == pytest.approx(ratio ** abs(1 - power) - 1)


@sweep(
    "changed", [{"grade": "C"}, {"routing": "natural"}, {"release": "25.09"}, {"dispatcher": "deepep"}, {"task": "sft"}]
)
def test_runs_that_differ_in_more_are_no_pair(changed: dict[str, str]) -> None:
    first, second = (run for run in skills() if run.id[-3:] in ("013", "017"))
    assert judged([first, second]) and not judged([first, replace(second, **changed)])


def test_a_dispatcher_alone_is_a_lever() -> None:
    first, second = (run for run in skills() if run.id[-3:] in ("013", "017"))
    assert list(judged([first, replace(first, dispatcher="deepep", measured=second.measured)])) == [
        "dispatcher of experts",
        "all",
    ]


def test_close_runs_are_not_ordered() -> None:
    first, second = (run for run in skills() if run.id[-3:] in ("013", "017"))
    close = [first, replace(second, measured=(first.measured or 0) * 1.02)]
    assert judged(close)["all"].apart == 0 and judged(close)["all"].ordered is None


def test_validate_prints_them_and_groups_by_task(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = [line for line in resources.runs().read_text(encoding="utf-8").splitlines() if "bridge-skills" in line]
    file = tmp_path / "runs.csv"
    header = resources.runs().read_text(encoding="utf-8").splitlines()[0]
    file.write_text("\n".join([header, *kept]), encoding="utf-8")
    shown = ask(capsys, f"validate {file} --by task").out
    assert "sft, megatron-bridge-skills" in shown and "differ in one lever alone" in shown
    assert "offloaded optimizer" in shown and "infeasible" in shown
