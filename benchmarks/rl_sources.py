"""The figures of planner/rl/fitted.toml fitted to all sources of measured steps, and judged by leaving each source out.

    python -m benchmarks.rl_sources

prints the fit to all rows, and for every source the fit without it and how far that is off on the source's rows; with
``--write`` it writes the table of measured steps that plans name, instead. The
figures are searched one after the other on a log scale, which few figures and sixty rows allow.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from planner.base.errors import ClusterwrightError
from planner.catalog import Catalog, load
from planner.models.parameters import parameters
from planner.models.workload import find_model
from planner.rl import constants, measured, nearest
from planner.rl.constants import MeasuredExcess
from planner.rl.measured import PHASES, Row, StepParts

FIGURES = {"generation": 1.3, "training": 1.3, "training_experts": 2.0, "other": 10.0}
"""What is fitted, and where the search begins, to which little weight holds it."""
HELD = 0.4
SMALL = 0.2
UNKNOWN_LENGTHS = 0.4
"""Weight of a row whose mean length is not stated."""
Priced = tuple[Row, StepParts]


def loss(excess: MeasuredExcess, rows: Sequence[Priced]) -> float:
    """Errors on a log scale, squared up to :data:`SMALL` and linear beyond: of steps, and by half of phases of
    colocated steps.
    """
    total = 0.0
    for row, parts in rows:
        weight = 1.0 if parts.lengths_known else UNKNOWN_LENGTHS
        errors = [math.log(parts.step(excess) / float(row["step_s"]))]
        if parts.placement == "colocated":
            phases = parts.phases(excess)
            errors += [
                0.5 * math.log(phases[name] / float(row[column]))
                for name, column in PHASES.items()
                if name != "weights" and float(row[column] or 0) and phases[name]
            ]
        total += sum(_counted(weight * error) for error in errors)
    return total + sum(_counted(HELD * math.log(getattr(excess, name) / start)) for name, start in FIGURES.items())


def _counted(error: float) -> float:
    return math.hypot(1.0, error / SMALL) - 1.0


def fit(rows: Sequence[Priced]) -> MeasuredExcess:
    """The figures with the least loss."""
    excess = replace(constants.fitted(), **FIGURES)
    width = 0.4
    while width > 0.01:
        before = loss(excess, rows)
        for name in FIGURES:
            tried = [replace(excess, **{name: getattr(excess, name) * math.exp(step * width)}) for step in (-1, 0, 1)]
            excess = min(tried, key=lambda one: loss(one, rows))
        if loss(excess, rows) >= before - 1e-9:
            width /= 2.0
    return excess


def said(excess: MeasuredExcess) -> str:
    """The fitted figures in a line."""
    return ", ".join(f"{name} {value:.2f}" for name, value in asdict(excess).items() if name in FIGURES)


def write(known: Catalog, rows: Sequence[Priced]) -> None:
    """Writes the measured steps with the predictions of the shipped figures."""
    excess = constants.fitted()
    with nearest.TABLE.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(nearest.COLUMNS)
        for row, parts in rows:
            model = find_model(measured.MODELS.get(row["model"], row["model"]))
            demand, _, stated = measured.demand(row)
            table.writerow([
                row["id"], row["source"], row["source_ref"], model.id, "mixture" if model.moe else "dense",
                parameters(model).total, measured.accelerators(known, row["accelerator"], 1).accelerator.id,
                row["gpus_train"], row["gpus_rollout"], parts.placement, f"{parts.staleness:g}",
                measured.trainer(row), measured.engine(row), f"{demand.sequences:.0f}",
                f"{demand.lengths.mean:.0f}" if stated else "",
                f"{demand.lengths.cap:.0f}", row["step_s"], f"{parts.step(excess):.1f}",
            ])  # fmt: skip


def main() -> None:
    """Prints the fits and their errors."""
    known = load(None)
    rows: list[Priced] = []
    for row in measured.rows(Path(__file__).parent / "data" / "rl_runs.csv") or ():
        try:
            rows.append((row, measured.parts(known, row)))
        except ClusterwrightError as error:
            print(f"{row['id']}: {error}")
    if sys.argv[1:] == ["--write"]:
        write(known, rows)
        return
    whole = fit(rows)
    print(f"all {len(rows)} rows: {said(whole)}")
    inside = {True: 0, False: 0}
    counted = {True: 0, False: 0}
    phases: dict[str, list[float]] = {}
    for source in dict.fromkeys(row["source"] for row, _ in rows):
        without = fit([(row, parts) for row, parts in rows if row["source"] != source])
        own = [(row, parts) for row, parts in rows if row["source"] == source]
        errors = [parts.step(without) / float(row["step_s"]) - 1.0 for row, parts in own]
        fitted = [parts.step(whole) / float(row["step_s"]) - 1.0 for row, parts in own]
        for row, parts in own:
            for name, error in _phase_errors(row, parts, without):
                phases.setdefault(name, []).append(abs(error))
        for (_, parts), error in zip(own, errors, strict=True):
            half = without.half_width if parts.lengths_known else without.unknown_lengths
            counted[parts.lengths_known] += 1
            inside[parts.lengths_known] += abs(math.log(1.0 + error)) <= half
        print(f"without {source} ({len(own)} rows): {said(without)}")
        print(
            f"  left out {fmean(map(abs, errors)):.1%} off, bias {fmean(errors):+.1%};"
            f" fitted {fmean(map(abs, fitted)):.1%}"
        )
    for stated, word in ((True, "stated"), (False, "assumed")):
        print(f"lengths {word}: {inside[stated]} of {counted[stated]} left-out steps in their 80 % intervals")
    for name, off in phases.items():
        print(f"{name}: 80 % of {len(off)} left-out phases within {np.quantile(off, 0.8):.2f} (log)")


def _phase_errors(row: Row, parts: StepParts, excess: MeasuredExcess) -> Iterator[tuple[str, float]]:
    """Phases of a row and their errors, log scale; where roles are apart, what is called generation is a wait."""
    predicted = parts.phases(excess)
    for name, column in PHASES.items():
        taken = float(row[column] or 0)
        is_wait = name == "generation" and parts.placement != "colocated"
        if taken and predicted[name] and name != "weights" and not is_wait:
            yield name, math.log(predicted[name] / taken)


if __name__ == "__main__":
    main()
