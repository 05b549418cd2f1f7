"""Tables of timed kernels before any run: how far matrix products fall short on small shapes.

Tables show how efficiency falls with the shape of a product better than whole steps do; they do not show the level that
a training step reaches, for clocks fall under its load (a step's products reach 0.8 to 0.9 of what the same table's
kernels do). So the shape figures are taken from the tables, and the level is left to the priors and the runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from planner.base.errors import WrongQuestion
from planner.calibration.measuring.fitting import fit_kernels
from planner.calibration.measuring.kernel_times import read
from planner.calibration.measuring.measure import rows_of
from planner.catalog import Catalog
from planner.figures.efficiency import Efficiencies
from planner.schema.efficiency import AcceleratorEfficiency

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
    found = dict(prior.accelerators)
    for name, entry in prior.accelerators.items():
        part = catalog.accelerators.get(name)
        seen = shapes.get(part.generation if part else name)
        if seen:
            half = float(np.exp(np.mean([np.log(each.inner_half) for each in seen])))
            weight = float(np.mean([each.quantisation for each in seen]))
            found[name] = replace(entry, inner_half=half, quantisation=weight)
    return found
