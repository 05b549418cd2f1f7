"""Measures this machine's kernels, or reads a table of them, and writes what they reach as a catalog overlay.

Tables show how efficiency falls with the shape of a product better than whole steps do. They do not show the level that
a training step reaches, since clocks fall under its load (a step's products reach 0.8 to 0.9 of what the same table's
kernels do). So the shape figures are taken from the tables, and the level is left to the priors and the runs.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.base.errors import WrongQuestion
from planner.base.progress import Advance, Progress
from planner.base.writing import make_folder
from planner.calibration.fit.overlay import write_overlay
from planner.calibration.measuring.fitting import FitReport, fit_kernels
from planner.calibration.measuring.kernel_times import (
    COLLECTIVES,
    ELEMENT,
    Kernel,
    MeasurementJournal,
    MeasurementRow,
    MeasurementTable,
    read,
)
from planner.calibration.measuring.kernels import check_rates, kernels, with_prior_levels
from planner.calibration.measuring.ranks import time_collectives
from planner.calibration.measuring.timing import Bench, Refused, device_of, devices, precisions, recognised
from planner.calibration.runs import names
from planner.catalog import Catalog
from planner.figures import conformal_intervals, matrix_formats
from planner.figures.efficiency import Efficiencies
from planner.schema.efficiency import AcceleratorEfficiency
from planner.schema.hardware import Accelerator

JOURNAL = "kernels.csv"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was timed."""

    rows: tuple[MeasurementRow, ...]
    fresh: int
    """Rows timed now; the others were in the journal."""
    refused: tuple[str, ...]
    """Kernels that the device or this build of PyTorch does not run, with its reason."""
    left_out: int = 0
    """Rows of a table that say nothing of this accelerator's figures."""


@dataclass(frozen=True, slots=True)
class MeasureReport:
    """What a measurement, or a table, led to."""

    accelerator: str
    entry: AcceleratorEfficiency
    report: FitReport
    journal: Path
    written: tuple[Path, ...]
    fresh: int
    left_out: int
    """Rows of a table that say nothing of this accelerator's figures: other parts, no shape, no peak in the catalog."""
    refused: tuple[str, ...]
    kept: bool
    """Whether the levels of products, attention and memory stay those that whole training steps showed."""


def run_measure(
    folder: Path,
    accelerator: str | None,
    device: str,
    tiny: bool,
    progress: Progress,
    catalog: Catalog,
    ranks: int | None = None,
) -> MeasureReport:
    """Measures a device and writes ``FOLDER/kernels.csv`` and ``FOLDER/accelerator_efficiencies/ID.toml``.

    Arguments:
        folder: made if it is missing; a journal in it is gone on with.
        accelerator: id in the catalog; None: known by the name that the device gives itself.
        device: ``auto``, ``cuda``, ``cuda:1``, ``cpu``.
        tiny: a few small kernels, to see that it works; the figures mean nothing.
        progress: shows how far it is.
        catalog: where the accelerator and its entry so far are.
        ranks: devices that collectives span; None: all GPUs, or none of them on a CPU.

    Raises:
        WrongQuestion: PyTorch or the device is missing, the accelerator is unknown, or a file cannot be read or
        written.
    """
    place = device_of(device)
    part = catalog.accelerator(accelerator or recognised(place, catalog))
    make_folder(folder / "accelerator_efficiencies")
    measurement = measure(place, folder / JOURNAL, accelerator=part, tiny=tiny, progress=progress, ranks=ranks)
    version = measurement.rows[0].torch if measurement.rows else ""
    return _fitted(folder, folder / JOURNAL, part, catalog, measurement, f"measured with PyTorch {version}")


def run_table(folder: Path, table: Path, accelerator: str, catalog: Catalog) -> MeasureReport:
    """Fits a kernel table, made here or elsewhere, and writes the overlay. Needs no PyTorch.

    Raises:
        WrongQuestion: a malformed table, no row of that accelerator, or a file that cannot be written.
    """
    part = catalog.accelerator(accelerator)
    rows, left_out = of_table(table, part, catalog.accelerators)
    make_folder(folder / "accelerator_efficiencies")
    return _fitted(folder, table, part, catalog, Measurement(tuple(rows), 0, (), left_out), f"table {table.name}")


def measure(
    device: str,
    journal: Path,
    *,
    accelerator: Accelerator,
    progress: Progress,
    tiny: bool = False,
    ranks: int | None = None,
    bench: Any = None,
) -> Measurement:
    """Times every kernel of a device that the journal does not hold yet, and adds each to it as it is known.

    Arguments:
        device: as PyTorch names it.
        journal: rows of the same accelerator and version of PyTorch in it are not measured again.
        accelerator: what the device is, in the catalog.
        progress: shows how far it is.
        tiny: a few small kernels only.
        ranks: devices that collectives span; None: all GPUs, one CPU.
        bench: what times a single-device kernel, with a `version`; None: PyTorch.
    """
    timer = bench or Bench(device)
    wanted = kernels(precisions(device, accelerator), ranks or devices(device), tiny=tiny)
    log = MeasurementJournal(journal)
    earlier = {r.kernel: r for r in log.rows if (r.accelerator, r.torch) == (accelerator.id, timer.version)}
    today = datetime.date.today().isoformat()

    def keep(kernel: Kernel, seconds: float) -> None:
        exact = float(f"{seconds:.6g}")  # as the journal gives it back
        earlier[kernel] = MeasurementRow(
            accelerator=accelerator.id, kernel=kernel, seconds=exact, torch=timer.version, date=today
        )
        log.add(earlier[kernel])

    missing = [kernel for kernel in wanted if kernel not in earlier]
    with progress("measuring kernels", len(wanted)) as advance:
        advance(len(wanted) - len(missing), "")
        refused = _timed(missing, timer, device, keep, advance)
    return Measurement(
        tuple(earlier[kernel] for kernel in wanted if kernel in earlier), len(missing) - len(refused), tuple(refused)
    )


def _timed(
    missing: Sequence[Kernel], timer: Any, device: str, keep: Callable[[Kernel, float], None], advance: Advance
) -> list[str]:
    """Times kernels one by one, collectives a group size at a time; returns what did not run."""
    refused: list[str] = []
    for kernel in missing:
        if kernel.kind not in COLLECTIVES:
            try:
                keep(kernel, timer(kernel))
            except Refused as reason:
                refused.append(f"{kernel}: {reason}")
            advance(1, str(kernel))

    def heard(kernel: Kernel, seconds: float) -> None:
        left.remove(kernel)
        keep(kernel, seconds)
        advance(1, str(kernel))

    together = [kernel for kernel in missing if kernel.kind in COLLECTIVES]
    for ranks in sorted({kernel.ranks for kernel in together}):
        left = [kernel for kernel in together if kernel.ranks == ranks]
        try:
            time_collectives(tuple(left), device, heard)
        except Refused as reason:
            refused += [f"{kernel} on {ranks} ranks: {reason}" for kernel in left]
    return refused


# ---- files -----------------------------------------------------------------------------------------------------------


def of_table(path: Path, part: Accelerator, known: Iterable[str] = ()) -> tuple[list[MeasurementRow], int]:
    """A table's rows of one accelerator, in precisions that it has a peak for, and how many rows are left out.

    Raises:
        WrongQuestion: a malformed table, or none of its rows is of this accelerator.
    """
    table: MeasurementTable = read(path)
    kept = rows_of(table, part, known)
    if not kept:
        accelerators = sorted({names.accelerator(row.accelerator, known) or row.accelerator for row in table.rows})
        raise WrongQuestion(f"{path}: no kernel of {part.id} in it; it has {', '.join(accelerators[:8]) or 'no rows'}")
    return kept, len(table.rows) - len(kept) + table.left_out


def rows_of(table: MeasurementTable, part: Accelerator, known: Iterable[str] = ()) -> list[MeasurementRow]:
    """The rows of one accelerator, in precisions that it has a peak for; `known` are the catalog's ids."""
    ids = (part.id, *known)
    mine = [row for row in table.rows if names.accelerator(row.accelerator, ids) == part.id]
    return [row for row in mine if row.kernel.dtype in ELEMENT and matrix_formats.can_train_in(part, row.kernel.dtype)]


def _fitted(
    folder: Path, journal: Path, part: Accelerator, catalog: Catalog, measurement: Measurement, how: str
) -> MeasureReport:
    check_rates(measurement.rows, part)
    prior = Efficiencies.of(catalog).accelerator(part)
    entry, report = fit_kernels(measurement.rows, part, prior)
    kept = conformal_intervals.measured(conformal_intervals.read(catalog), part.generation)
    entry = with_prior_levels(entry, prior, measurement.rows, part) if kept else entry
    source = f"{how}: {report.rows} kernels, mean error {report.mape:.1%}"
    date = max((row.date for row in measurement.rows), default="") or datetime.date.today().isoformat()
    written = write_overlay(folder, Efficiencies({part.id: entry}, {}), source, date, f"{part.id}.toml")
    return MeasureReport(
        accelerator=part.id,
        entry=entry,
        report=report,
        journal=journal,
        written=tuple(written),
        fresh=measurement.fresh,
        left_out=measurement.left_out,
        refused=measurement.refused,
        kept=kept,
    )


PRECISIONS = ("bf16", "fp16")
"""Products in 8 bit are timed with casts in some tables and without in others."""
FEWEST = 30
"""Kernels of an accelerator that say something about shapes."""


def informed(prior: Efficiencies, catalog: Catalog, table: Path) -> tuple[Efficiencies, int]:
    """The prior with every generation's ``inner_half`` and ``quantisation`` as the kernels of its accelerators show
    them, and how many kernels that rests on.

    Each accelerator is fitted alone, its level left free; a generation takes the geometric mean of ``k_half`` and the
    mean weight of quantisation.

    Raises:
        WrongQuestion: a malformed table, or one without enough kernels of any accelerator in the catalog.
    """
    shapes: dict[str, list[AcceleratorEfficiency]] = {}
    kernels = 0
    timed = read(table)
    for part in catalog.accelerators.values():
        rows = [row for row in rows_of(timed, part, catalog.accelerators) if row.kernel.dtype in PRECISIONS]
        if len(rows) >= FEWEST:
            entry, _ = fit_kernels(rows, part, prior.accelerator(part))
            shapes.setdefault(part.generation, []).append(entry)
            kernels += len(rows)
    if not shapes:
        raise WrongQuestion(f"{table}: under {FEWEST} 16-bit matrix products of any accelerator in the catalog")
    return Efficiencies(_reshaped(prior, catalog, shapes), prior.runtimes), kernels


def _reshaped(
    prior: Efficiencies, catalog: Catalog, shapes: Mapping[str, list[AcceleratorEfficiency]]
) -> dict[str, AcceleratorEfficiency]:
    accelerators = dict(prior.accelerators)
    for name, entry in prior.accelerators.items():
        part = catalog.accelerators.get(name)
        seen = shapes.get(part.generation if part else name)
        if seen:
            half = float(np.exp(np.mean([np.log(shape.inner_half) for shape in seen])))
            weight = float(np.mean([shape.quantisation for shape in seen]))
            accelerators[name] = replace(entry, inner_half=half, quantisation=weight)
    return accelerators
