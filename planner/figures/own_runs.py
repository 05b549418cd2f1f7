"""A site's own runs in its catalog folder: what each was off by, and its configuration; one CSV, a run a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.base import csv_rows
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.cost.figures import Figure, Layout
from planner.cost.nearness import Label, OwnRuns, RunConfiguration, shift, weighed
from planner.schema.plan_prediction import MOST_OWN_RUNS, OwnRun
from planner.schema.workload import Model

FOLDER = "own_runs"
LARGEST, FURTHEST, LEAST = 10**9, 10.0, 0.01
"""Most accelerators, most that a run can be off by and scatter (log), and least, in a file that may be anyone's."""
LABELS = ("model", "generation", "precision", "recompute")
COUNTS = ("accelerators", "tp", "pp", "cp", "ep", "micro")
_OF_RUN = (*LABELS, *COUNTS, "residual", "scatter")
COLUMNS = ("runtime", *_OF_RUN, "source")


def block(model: Model) -> str:
    """What a model's layers share with those of copies of other depth: ``4096x14336x32``, the experts behind it."""
    experts = f"x{model.moe.experts}" if model.moe else ""
    return f"{model.hidden}x{model.ffn}x{model.heads}{experts}"


def runtime_of(entry: str) -> str:
    """The runtime whose runs an entry of efficiencies stands for: ``megatron-core`` of ``megatron-core@2025``."""
    return re.split("[+@/]", entry)[0]


def configuration(
    model: Label, generation: Label, precision: Label, recompute: Label, accelerators: Figure, layout: Layout
) -> RunConfiguration:
    """Where plans of a layout stand: `model` is a :func:`block`, precisions and recomputation go by their names."""
    degrees: dict[str, Figure] = {name: getattr(layout, name) for name in COUNTS if name != "accelerators"}
    return RunConfiguration(
        model=model,
        generation=generation,
        precision=precision,
        recompute=recompute,
        accelerators=accelerators,
        **degrees,
    )


@dataclass(frozen=True, slots=True)
class NearRuns:
    """A site's runs, and the model and the machines whose plans they are near or far from."""

    runs: OwnRuns
    model: str
    """:func:`block` of it."""
    generation: str

    def factor(self, precision: Label, recompute: Label, accelerators: Figure, layout: Layout) -> Figure:
        """What the runs near such plans stretch their passes by, beyond what all plans have in common."""
        at = configuration(self.model, self.generation, precision, recompute, accelerators, layout)
        return np.exp(shift(self.runs, at))


def read(catalog: Catalog) -> dict[str, OwnRuns]:
    """Runtime -> its runs, of every catalog layer; of a runtime that two layers have runs of, the later's.

    Raises:
        WrongQuestion: a file that `learn` or `calibrate --site` did not write so.
    """
    return {runtime: runs for path in catalog.csv_files(FOLDER) for runtime, runs in _file(path).items()}


def _file(path: Path) -> dict[str, OwnRuns]:
    columns, rows = csv_rows.read(path, "a file of own runs")
    by_runtime: dict[str, list[dict[str, Any]]] = {}
    for row in rows if columns == COLUMNS else ():
        by_runtime.setdefault(row.text("runtime"), []).append(_row(row.cells, row.where))
    if not by_runtime:
        raise WrongQuestion(f"{path}: no own runs: clusterwright learn writes them")
    for runtime, runs in by_runtime.items():
        if len(runs) > MOST_OWN_RUNS:
            raise WrongQuestion(f"{path}: {len(runs)} runs of {runtime}; at most {MOST_OWN_RUNS} are weighed")
    return {runtime: _columns(runs) for runtime, runs in by_runtime.items()}


def _row(row: Mapping[str, str], where: str) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = {name: int(row[name]) for name in COUNTS}
        fields |= {name: float(row[name]) for name in ("residual", "scatter")}
    except ValueError:
        raise WrongQuestion(f"{where}: {', '.join(COUNTS)} must be whole numbers, residual, scatter numbers") from None
    if not all(1 <= fields[name] <= LARGEST for name in COUNTS):
        raise WrongQuestion(f"{where}: {', '.join(COUNTS)} must be from 1 to {LARGEST:,}")
    if not abs(fields["residual"]) <= FURTHEST:
        raise WrongQuestion(f"{where}: residual = {fields['residual']:g}: must be from {-FURTHEST:g} to {FURTHEST:g}")
    if not LEAST <= fields["scatter"] <= FURTHEST:
        raise WrongQuestion(f"{where}: scatter = {fields['scatter']:g}: must be from {LEAST:g} to {FURTHEST:g}")
    return fields | {name: row[name] for name in LABELS}


def _columns(rows: list[dict[str, Any]]) -> OwnRuns:
    labels = {name: np.array([row[name] for row in rows]) for name in LABELS}
    counts = {name: np.array([row[name] for row in rows], dtype=float) for name in COUNTS}
    return weighed(
        RunConfiguration(**labels, **counts), *(np.array([row[k] for row in rows]) for k in ("residual", "scatter"))
    )


def listed(runs: OwnRuns) -> tuple[OwnRun, ...]:
    """Runs as records, one each."""
    return tuple(
        OwnRun(
            model=str(at.model),
            generation=str(at.generation),
            precision=str(at.precision),
            recompute=str(at.recompute),
            accelerators=int(at.accelerators),
            tp=int(at.tp),
            pp=int(at.pp),
            cp=int(at.cp),
            ep=int(at.ep),
            micro=int(at.micro),
            residual=float(runs.residual[i]),
            scatter=float(runs.scatter[i]),
            weight=float(runs.weight[i]),
        )
        for i, at in enumerate(map(runs.at.at, range(len(runs.weight))))
    )


def write(folder: Path, known: Mapping[str, OwnRuns], source: str, name: str) -> Path:
    """Writes runs below a catalog folder, with the digits that give the same figures when they are read.

    Raises:
        WrongQuestion: the folder cannot be written to.
    """
    by_runtime = ((runtime, run) for runtime, runs in sorted(known.items()) for run in listed(runs))
    rows = ([runtime, *(getattr(run, column) for column in _OF_RUN), source] for runtime, run in by_runtime)
    return csv_rows.write(folder / FOLDER / name, COLUMNS, rows)
