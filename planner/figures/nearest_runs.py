"""The measured runs that a plan is nearest to: who measured them, what they took, and what is predicted for them.

Each catalog layer may have such a table in ``nearest_runs/``: the built-in one of published runs, a site's of its own.
A row stands for all runs that share its labels and counts but for the micro-batch, and is the one whose error is their
median. The distance of a plan and a run adds a figure for each label in which they differ, and for each doubling of a
count:

    d = sum_k c_k [a_k != b_k] + sum_k c_k |log2(a_k / b_k)|
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.base import csv_rows
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.cost import nearness
from planner.cost.figures import Array
from planner.schema.plan_prediction import NearestRun

FOLDER = "nearest_runs"
OTHER = nearness.OTHER | {"accelerator": 0.2, "runtime": 0.4, "kind": 0.6, "method": 0.4}
"""Label -> distance of a plan and a run that differ in it; `model` is the block of layers. The terms beyond those of
:mod:`planner.cost.nearness`, which are fitted, are assumed: other boards of a generation are near, other kinds far."""
DOUBLED = nearness.DOUBLED | {"parameters": 0.1, "sequence": 0.1}
"""Count -> distance of a plan and a run of which one has twice as many; those beyond the fitted ones are assumed."""
COLUMNS = ("lab", "name", *OTHER, *DOUBLED, "batch", "measured_s", "predicted_s", "runs", "id")
_NUMBERS = (*DOUBLED, "batch", "measured_s", "predicted_s", "runs")
NAMED = 3
"""Runs that a plan names."""
LONGEST = 56
"""Characters of what is said of a run, so that it stands in a line of a screen of 80 columns."""
SAME_SIZE = 0.03
"""Relative difference of the parameters of two models of one block that are called the same."""

Described = Mapping[str, str | float]
"""Labels and counts of one plan or run."""


@dataclass(frozen=True, slots=True)
class NearbyRuns:
    """Measured runs, columns of shape (runs,)."""

    columns: Mapping[str, NDArray[Any]]

    @staticmethod
    def nothing() -> NearbyRuns:
        """No run."""
        return NearbyRuns({name: np.empty(0) for name in COLUMNS})

    def distances(self, plan: Described) -> Array:
        """How far each run is from a plan."""
        return distance(self.columns, plan)

    def row(self, index: int) -> dict[str, Any]:
        """One run."""
        return {name: column[index] for name, column in self.columns.items()}


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> Array:
    """How far plans or runs are apart, from their labels and counts; columns broadcast."""
    far: Array = np.zeros(1)
    for name, added in OTHER.items():
        far = far + added * (one[name] != other[name])
    for name, added in DOUBLED.items():
        far = far + added * np.abs(np.log2(one[name] / other[name]))
    return far


def nearest(runs: NearbyRuns, plan: Described) -> tuple[NearestRun, ...]:
    """The runs nearest to a plan, the nearest first; none where nothing was measured."""
    if not len(runs.columns["id"]):
        return ()
    far = runs.distances(plan)
    order = np.argsort(far, kind="stable")[:NAMED]
    return tuple(_named(runs.row(int(index)), float(far[index]), plan, runs) for index in order)


def _named(run: Mapping[str, Any], far: float, plan: Described, runs: NearbyRuns) -> NearestRun:
    degrees = " ".join(f"{axis}={run[axis]:.0f}" for axis in ("tp", "pp", "cp", "ep") if run[axis] > 1)
    return NearestRun(
        lab=str(run["lab"]),
        run=str(run["id"]),
        runs=int(run["runs"]),
        model=str(run["name"]),
        accelerator=str(run["accelerator"]),
        accelerators=int(run["accelerators"]),
        runtime=str(run["runtime"]),
        precision=str(run["precision"]),
        degrees=degrees,
        batch=int(run["batch"]),
        measured_s=float(run["measured_s"]),
        predicted_s=float(run["predicted_s"]),
        distance=far,
        how_near=how_near(run, plan, runs.columns),
    )


def how_near(run: Mapping[str, Any], plan: Described, columns: Mapping[str, NDArray[Any]]) -> str:
    """``same model and accelerator, 4 times the ranks``: what a plan shares with its nearest run, and what not."""
    missing = _missing(plan, columns)
    # Where nothing at all was measured of its machines or software, it matters whether at least the model was.
    same = [name for name, is_same in _shared(run, plan).items() if is_same and (not missing or name == "model")]
    if plan["accelerators"] != run["accelerators"]:
        same = same[:3]  # how many more ranks says more than the layout, and both are more than a line
    shared = " and ".join(text for text in (", ".join(same[:-1]), same[-1] if same else "") if text)
    times = float(plan["accelerators"]) / float(run["accelerators"])
    parts = [
        *missing,
        "" if "model" in same else str(run["name"]),
        f"same {shared}" if shared else "",
        "" if run["accelerator"] == plan["accelerator"] else f"on {run['accelerator']}",
        "" if times == 1.0 else f"{times:.3g} times the ranks" if times > 1.0 else f"1/{1.0 / times:.3g} of the ranks",
        *(f"{name} {run[name]}" for name in ("precision", "method") if run[name] != plan[name]),
    ]
    text = ""
    for part in filter(None, parts):
        longer = f"{text}, {part}" if text else part
        if len(longer) <= LONGEST:
            text = longer
    return text


def _missing(plan: Described, columns: Mapping[str, NDArray[Any]]) -> list[str]:
    """What no run was measured of at all."""
    on_accelerator = columns["accelerator"] == plan["accelerator"]
    missing = []
    if not on_accelerator.any():
        missing.append("no run of this accelerator")
    elif not (on_accelerator & (columns["kind"] == plan["kind"])).any():
        missing.append(f"no run of a {'mixture' if plan['kind'] == 'moe' else 'dense model'} on this accelerator")
    if not (columns["runtime"] == plan["runtime"]).any():
        missing.append("no run under this runtime")
    return missing


def _shared(run: Mapping[str, Any], plan: Described) -> dict[str, bool]:
    size = abs(float(run["parameters"]) / float(plan["parameters"]) - 1.0)
    return {
        "model": bool(run["model"] == plan["model"]) and size <= SAME_SIZE,
        "accelerator": bool(run["accelerator"] == plan["accelerator"]),
        "runtime": bool(run["runtime"] == plan["runtime"]),
        "layout": all(run[axis] == plan[axis] for axis in ("tp", "pp", "cp", "ep")),
    }


# ---- tables ----------------------------------------------------------------------------------------------------------


def read(catalog: Catalog) -> NearbyRuns:
    """The runs of every catalog layer; of a run that two have, the later's.

    Raises:
        WrongQuestion: a file that `calibrate` or `learn` did not write so.
    """
    tables: list[Mapping[str, NDArray[Any]]] = []
    for path in catalog.csv_files(FOLDER):
        later = _file(path, path.stat().st_mtime_ns)
        tables = [_without(table, later["id"]) for table in tables] + [later]
    return NearbyRuns(
        {
            name: np.concatenate([np.empty(0, float if name in _NUMBERS else "U1"), *(table[name] for table in tables)])
            for name in COLUMNS
        }
    )


def _without(table: Mapping[str, NDArray[Any]], ids: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
    kept = ~np.isin(table["id"], ids)
    return {name: column[kept] for name, column in table.items()}


@lru_cache(maxsize=8)
def _file(path: Path, modified: int) -> Mapping[str, NDArray[Any]]:
    """A table's columns; one that was read and has not been written since is not read again."""
    header, rows = csv_rows.read(path, "a table of measured runs")
    if header != COLUMNS:
        raise WrongQuestion(f"{path}:1: expected columns {', '.join(COLUMNS)}")
    listed = list(rows)
    return {
        name: np.array([_positive(row, name) if name in _NUMBERS else row.text(name) for row in listed])
        for name in COLUMNS
    }


def _positive(row: csv_rows.CsvRow, name: str) -> float:
    value = row.number(name)
    if not value:
        raise WrongQuestion(f"{row.where}: {name}: must be above 0")
    return value


def write(folder: Path, rows: Iterable[Mapping[str, str | float]], name: str) -> Path:
    """Writes runs below a catalog folder, thinned: of those that differ in nothing but the micro-batch and
    recomputation the one whose error is their median.

    Raises:
        WrongQuestion: the folder cannot be written to.
    """
    cells = ([_cell(row[column]) for column in COLUMNS] for row in thinned(rows))
    return csv_rows.write(folder / FOLDER / name, COLUMNS, cells)


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4g}" if value % 1.0 else f"{value:.0f}"


def thinned(rows: Iterable[Mapping[str, str | float]]) -> list[Mapping[str, str | float]]:
    """One row for each layout of each lab: the one whose error is the median."""
    kept = [name for name in ("lab", "name", *OTHER, *DOUBLED) if name not in ("micro", "recompute")]
    groups: dict[Sequence[str | float], list[Mapping[str, str | float]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in kept), []).append(row)
    medians = []
    for members in groups.values():
        ordered = sorted(members, key=lambda row: float(row["predicted_s"]) / float(row["measured_s"]))
        medians.append({**ordered[(len(ordered) - 1) // 2], "runs": len(ordered)})
    return sorted(medians, key=lambda row: str(row["id"]))
